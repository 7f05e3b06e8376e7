/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.c: what the processes of a run use.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "cli/run_process.h"
#include "cli/top/top.h"

static bool stat_read(pid_t pid, tri_top_rank *out)
{
    unsigned long user = 0, system = 0;
    long threads = 0, pages = 0;
    char *text = tri_proc_read(pid, "stat", NULL), *end = text ? strrchr(text, ')') : NULL;
    bool read = end && sscanf(end + 1,
                              " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %ld %*d %*u %*u %ld",
                              &out->state, &user, &system, &threads, &pages) == 5;
    tri_free(text);
    out->pid = pid;
    out->threads = (int)threads;
    out->cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    out->memory = (int64_t)pages * sysconf(_SC_PAGESIZE);
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
    if (!tri_proc_folder(pid, folder) || strcmp(folder, at->folder) != 0 || !stat_read(pid, &one))
        return;
    one.rank = tri_proc_rank(pid);
    one.cpu = cpu_since(&at->top->ranks, &one);
    at->full = !tri_vector_push(&at->found, &one) || at->full;
}

tri_status tri_top_ranks_look(tri_top *top)
{
    char folder[PATH_MAX];
    look at = {.top = top, .folder = folder, .found = {.each = sizeof(tri_top_rank)}};
    if (!realpath(top->run, folder))
        return TRI_OK;
    tri_pids_visit(look_at, &at);
    starters_drop(&at.found);
    tri_vector_fini(&top->ranks);
    top->ranks = at.found;
    return at.full ? TRI_ENOMEM : TRI_OK;
}
