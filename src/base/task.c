/* SPDX-License-Identifier: Apache-2.0 */
#include "base/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

#define STAT_MOST 1024 /* bytes of a line of some fifty numbers */

static bool stat_parse(const char *text, tri_task *out)
{
    const char *open = strchr(text, '('), *close = strrchr(text, ')'); /* the name between them may hold any byte */
    unsigned long long user, system, start;
    long parent, threads, pages;

    if (!open || !close || close < open)
        return false;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(close - open - 1), open + 1);
    if (sscanf(close, ") %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %ld %*d %llu %*u %ld",
               &out->state, &parent, &user, &system, &threads, &start, &pages) != 7)
        return false;
    out->parent = (pid_t)parent;
    out->user_ticks = user;
    out->system_ticks = system;
    out->start_ticks = start;
    out->threads = threads;
    out->pages = pages;
    return true;
}

bool tri_task_look(pid_t process, pid_t thread, tri_task *out)
{
    char path[64], text[STAT_MOST];
    size_t nbytes;

    *out = (tri_task){0};
    if (process <= 0)
        return false;
    if (thread > 0)
        snprintf(path, sizeof path, "/proc/%ld/task/%ld/stat", (long)process, (long)thread);
    else
        snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    if (tri_fs_read_part(path, 0, text, sizeof text - 1, &nbytes) != TRI_OK)
        return false;
    text[nbytes] = '\0';
    return stat_parse(text, out);
}

bool tri_task_any_busy(pid_t process)
{
    char path[64], **names = NULL;
    size_t count = 0;
    bool found = false;
    tri_task thread;

    snprintf(path, sizeof path, "/proc/%ld/task", (long)process);
    if (process <= 0 || tri_fs_list(path, &names, &count) != TRI_OK)
        return false;
    for (size_t i = 0; i < count && !found; i++)
        found = tri_task_look(process, (pid_t)atol(names[i]), &thread) && (thread.state == 'R' || thread.state == 'D');
    tri_fs_list_free(names, count);
    return found;
}
