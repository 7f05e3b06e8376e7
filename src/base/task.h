/* SPDX-License-Identifier: Apache-2.0
 *
 * task.h: what the kernel says of a process of this machine, or of one of its threads (proc(5), /proc/PID/stat).
 */
#ifndef TRI_BASE_TASK_H
#define TRI_BASE_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct tri_task {
    char name[64]; /* as the kernel keeps it: at most 15 bytes of any kind */
    char state;    /* 'R' wants to run, 'S' and 'D' wait, 'T' is stopped, 'Z' and 'X' have ended */
    pid_t parent;
    uint64_t start_ticks;              /* since the machine began; with the id it names a process for good */
    uint64_t user_ticks, system_ticks; /* sysconf(_SC_CLK_TCK) a second */
    int64_t threads, pages;            /* resident ones */
} tri_task;

/* thread: 0 for the process. false: there is none, or it may not be seen. */
bool tri_task_look(pid_t process, pid_t thread, tri_task *out);
/* Whether any thread of a process has a core, needs one, or waits for its disk. */
bool tri_task_any_busy(pid_t process);
static inline bool tri_task_has_ended(const tri_task *task)
{
    return task->state == 'Z' || task->state == 'X';
}

#endif
