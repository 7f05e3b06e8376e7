/* SPDX-License-Identifier: Apache-2.0
 *
 * run_process.h: processes of this machine that train in a run's folder, by what /proc says of them.
 */
#ifndef TRI_CLI_RUN_PROCESS_H
#define TRI_CLI_RUN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TRI_RUN_FOLDER_NBYTES 1100

typedef void (*tri_pid_visit)(void *arg, pid_t pid);
void tri_pids_visit(tri_pid_visit visit, void *arg);

/* The folder, without links, that a `trireme train` writes its run to: of --out, else of --resume. */
bool tri_proc_folder(pid_t pid, char folder[TRI_RUN_FOLDER_NBYTES]);
/* TRIREME_RANK of its environment; -1: it has none, and starts others or is alone. */
int tri_proc_rank(pid_t pid);
/* Whether it is a parameter server: the last TRIREME_SERVERS ranks are (ps/api/role.h). */
bool tri_proc_serves(pid_t pid);

#endif
