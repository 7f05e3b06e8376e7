/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_death.c: why a rank was killed, as far as the kernel says: nothing tells a process of its out-of-memory
 * killer, but a count does, of each control group and of the machine.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cluster/launch_impl.h"

#define FILE_LIMIT_NBYTES (UINT64_C(1) << 20)
#define LOOK_NS           (1 * TRI_NS_PER_S)

/* The number behind "oom_kill " at the start of a line; -1: the file has none. */
static int64_t count_of(char *path)
{
    static const char name[] = "oom_kill ";
    char *text = NULL;
    int64_t count = -1;

    if (path && tri_fs_read(path, FILE_LIMIT_NBYTES, &text, NULL) == TRI_OK)
        for (const char *line = text; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL)
            if (strncmp(line, name, sizeof name - 1) == 0)
                count = strtoll(line + sizeof name - 1, NULL, 10);
    tri_free(text);
    tri_free(path);
    return count;
}

/* This process's group in the hierarchy that `mark` names in /proc/self/cgroup; "": in none. */
static void group_find(const char *groups, const char *mark, char folder[400])
{
    const char *at = strstr(groups, mark);

    folder[0] = 0;
    if (at)
        snprintf(folder, 400, "%.*s", (int)strcspn(at + strlen(mark), "\n"), at + strlen(mark));
}

int64_t tri_launch_oom_count(const char *root)
{
    static const struct {
        const char *mark, *mount, *file;
    } kinds[] = {{"0::", "/sys/fs/cgroup", "memory.events"},
                 {":memory:", "/sys/fs/cgroup/memory", "memory.oom_control"},
                 {":memory:", "/sys/fs/cgroup/memory/.", "memory.oom_control"}}; /* a container's own is its root */
    char *path = tri_format("%s/proc/self/cgroup", root), *groups = NULL, folder[400];
    int64_t count = -1;

    if (path && tri_fs_read(path, FILE_LIMIT_NBYTES, &groups, NULL) == TRI_OK)
        for (size_t k = 0; count < 0 && k < TRI_COUNT_OF(kinds); k++) {
            bool own = kinds[k].mount[strlen(kinds[k].mount) - 1] != '.';
            group_find(groups, kinds[k].mark, folder);
            if (folder[0])
                count = count_of(tri_format("%s%s%s/%s", root, kinds[k].mount, own ? folder : "", kinds[k].file));
        }
    tri_free(groups);
    tri_free(path);
    return count >= 0 ? count : count_of(tri_format("%s/proc/vmstat", root));
}

void tri_launch_death_begin(launch *job)
{
    job->oom.before = job->oom.last = tri_launch_oom_count("");
    job->oom.look_ns = tri_now_ns();
}

void tri_launch_death_look(launch *job)
{
    if (job->oom.last < 0 || tri_now_ns() - job->oom.look_ns < LOOK_NS)
        return;
    job->oom.before = job->oom.last;
    job->oom.last = tri_launch_oom_count("");
    job->oom.look_ns = tri_now_ns();
}

void tri_launch_death_words(const launch *job, const launch_rank *rank, int signal, char words[LAUNCH_DEATH_NBYTES])
{
    bool is_here = !rank->host || rank->host->is_local;

    if (signal == SIGKILL && is_here && job->oom.before >= 0 && tri_launch_oom_count("") > job->oom.before)
        snprintf(
            words, LAUNCH_DEATH_NBYTES,
            "was killed by the kernel for want of memory (signal 9; 'trireme plan' says what a rank takes; a smaller "
            "train.batch, or parallel.sync=zero3, takes less)");
    else
        snprintf(words, LAUNCH_DEATH_NBYTES, "was killed by signal %d (%s)", signal, strsignal(signal));
}
