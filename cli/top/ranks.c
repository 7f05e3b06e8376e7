/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.c: what the processes of a run use.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/runtime.h"
#include "base/task.h"
#include "cli/run_process.h"
#include "cli/top/top.h"

static bool task_read(pid_t pid, tri_top_rank *out)
{
    tri_task task;
    bool read = tri_task_look(pid, 0, &task);
    out->pid = pid;
    out->state = task.state;
    out->threads = (int)task.threads;
    out->cpu_s = (double)(task.user_ticks + task.system_ticks) / (double)sysconf(_SC_CLK_TCK);
    out->memory = task.pages * sysconf(_SC_PAGESIZE);
    out->seen_ns = tri_now_ns();
    return read;
}

static double cpu_since(const tri_vector *before, const tri_top_rank *now)
{
    for (size_t i = 0; i < before->count; i++) {
        const tri_top_rank *old = tri_vector_at(before, i);
        if (old->pid == now->pid && now->seen_ns > old->seen_ns)
            return (now->cpu_s - old->cpu_s) / ((double)(now->seen_ns - old->seen_ns) / 1e9);
    }
    return (double)NAN;
}

static int compare_ranks(const void *a, const void *b)
{
    return ((const tri_top_rank *)a)->rank - ((const tri_top_rank *)b)->rank;
}

/* A starter beside its ranks is none of them; one without ranks is rank 0 itself. */
static void starters_drop(tri_vector *ranks)
{
    tri_top_rank *list = ranks->items;
    size_t kept = 0;
    bool any = false;
    for (size_t i = 0; i < ranks->count; i++)
        any = any || list[i].rank >= 0;
    for (size_t i = 0; i < ranks->count; i++) {
        if (any && list[i].rank < 0)
            continue;
        list[kept] = list[i];
        list[kept].rank = list[kept].rank < 0 ? 0 : list[kept].rank;
        kept++;
    }
    ranks->count = kept;
    if (kept > 1)
        qsort(list, kept, sizeof(*list), compare_ranks);
}

typedef struct look {
    const tri_top *top;
    const char *folder; /* of the run, without links */
    tri_vector found;
    bool full;
} look;

static void look_at(void *arg, pid_t pid)
{
    look *at = arg;
    tri_top_rank one = {0};
    char folder[TRI_RUN_FOLDER_NBYTES];
    if (!tri_proc_folder(pid, folder) || strcmp(folder, at->folder) != 0 || !task_read(pid, &one))
        return;
    one.rank = tri_proc_rank(pid);
    one.serves = tri_proc_serves(pid);
    one.cpu = cpu_since(&at->top->ranks, &one);
    at->full = !tri_vector_push(&at->found, &one) || at->full;
}

tri_status tri_top_ranks_find(const tri_top *top, tri_vector *found)
{
    char folder[PATH_MAX];
    look at = {.top = top, .folder = folder, .found = {.each = sizeof(tri_top_rank)}};
    *found = at.found;
    if (!realpath(top->run, folder))
        return TRI_OK;
    tri_pids_visit(look_at, &at);
    starters_drop(&at.found);
    *found = at.found;
    return at.full ? TRI_ENOMEM : TRI_OK;
}

tri_status tri_top_ranks_look(tri_top *top)
{
    tri_vector found;
    const tri_status status = tri_top_ranks_find(top, &found);
    tri_vector_fini(&top->ranks);
    top->ranks = found;
    return status;
}
