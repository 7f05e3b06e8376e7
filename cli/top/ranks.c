/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.c: processes of a run, found in /proc: a `trireme train` whose --out or --resume is the run's folder. What runs
 * on other machines is not seen.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "cli/top/top.h"

#define FILE_MOST (1u << 20)

/* A file of a process as words that end in 0 bytes; "" when it is gone. tri_free(). */
static char *proc_read(const char *pid, const char *name, size_t *nbytes)
{
    char path[300], *text = NULL;
    *nbytes = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/%s", pid, name);
    return tri_fs_read(path, FILE_MOST, &text, nbytes) == TRI_OK ? text : NULL;
}

/* The word after `flag`, or behind "flag=". */
static const char *word_after(const char *words, size_t nbytes, const char *flag)
{
    const size_t length = strlen(flag);
    for (const char *at = words; at < words + nbytes; at += strlen(at) + 1) {
        if (strncmp(at, flag, length) != 0)
            continue;
        if (at[length] == '=')
            return at + length + 1;
        const char *next = at + strlen(at) + 1;
        if (at[length] == 0 && next < words + nbytes)
            return next;
    }
    return NULL;
}

/* Whether a path, as the process sees it, is the folder. */
static bool is_folder_of(const char *pid, const char *path, const char *real_run)
{
    char seen[PATH_MAX], real[PATH_MAX];
    snprintf(seen, sizeof(seen), "%s%.20s%s%.1100s", path[0] == '/' ? "" : "/proc/", path[0] == '/' ? "" : pid,
             path[0] == '/' ? "" : "/cwd/", path);
    return realpath(seen, real) && strcmp(real, real_run) == 0;
}

static bool trains_in(const char *pid, const char *real_run)
{
    size_t nbytes;
    char *words = proc_read(pid, "cmdline", &nbytes);
    bool found = false;
    if (words && nbytes > 0 && strlen(words) + 1 < nbytes && strcmp(words + strlen(words) + 1, "train") == 0) {
        const char *out = word_after(words, nbytes, "--out"), *resume = word_after(words, nbytes, "--resume");
        found = (out && is_folder_of(pid, out, real_run)) || (!out && resume && is_folder_of(pid, resume, real_run));
    }
    tri_free(words);
    return found;
}

/* TRIREME_RANK of its environment; -1: it has none, and starts others or is alone. */
static int rank_of(const char *pid)
{
    size_t nbytes;
    char *words = proc_read(pid, "environ", &nbytes);
    const char *rank = words ? word_after(words, nbytes, "TRIREME_RANK") : NULL;
    int number = rank ? atoi(rank) : -1;
    tri_free(words);
    return number;
}

static bool stat_read(const char *pid, tri_top_rank *out)
{
    size_t nbytes;
    unsigned long user = 0, system = 0;
    long threads = 0, pages = 0;
    char *text = proc_read(pid, "stat", &nbytes), *end = text ? strrchr(text, ')') : NULL;
    bool read = end && sscanf(end + 1,
                              " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %ld %*d %*u %*u %ld",
                              &out->state, &user, &system, &threads, &pages) == 5;
    tri_free(text);
    out->pid = atoi(pid);
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

tri_status tri_top_ranks_look(tri_top *top)
{
    char real_run[PATH_MAX], **names = NULL;
    size_t count = 0;
    tri_vector found = {.each = sizeof(tri_top_rank)};
    if (!realpath(top->run, real_run))
        return TRI_OK;
    TRI_TRY(tri_fs_list("/proc", &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        tri_top_rank one = {0};
        if (names[i][0] < '1' || names[i][0] > '9' || !trains_in(names[i], real_run) || !stat_read(names[i], &one))
            continue;
        one.rank = rank_of(names[i]);
        one.cpu = cpu_since(&top->ranks, &one);
        if (!tri_vector_push(&found, &one))
            status = TRI_ENOMEM;
    }
    tri_fs_list_free(names, count);
    starters_drop(&found);
    tri_vector_fini(&top->ranks);
    top->ranks = found;
    return status;
}
