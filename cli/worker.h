/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h: a command that runs on ranks: this program started again as each of them, and a process as one of them.
 */
#ifndef TRI_CLI_WORKER_H
#define TRI_CLI_WORKER_H

#include "cluster/launch.h"
#include "comm/comm.h"

typedef struct tri_worker_roles {
    int64_t workers, servers;          /* parameter servers are the last ranks */
    int64_t spares;                    /* launch.spares, beside the workers */
    int64_t restarts;                  /* launch.restarts */
    bool elastic;                      /* launch.elastic */
    const char *journal;               /* launch.journal; NULL: none */
    bool attach;                       /* launch.attach */
    const char *store, *listen, *join; /* launch.store, .listen, .join; NULL: none */
    const char *grace_s;               /* launch.grace_s; NULL: the default */
} tri_worker_roles;

/* Runs this program with the words of argv (NULL at the end; argv[0] is set here) as ranks, and waits. hosts:
 * the file of --hosts, or NULL for this machine. Rank 0's standard output is passed on, everybody's standard error;
 * log_folder as in tri_launch_run(). */
tri_status tri_worker_launch(tri_worker_roles roles, const char *hosts, char **argv, const char *log_folder,
                             tri_launch_result *result);

/* Joins the job that started this process; alone it is rank 0 of 1. Log lines are labelled with the rank from here on.
 */
tri_status tri_worker_join(const tri_comm_config *config, const tri_net_config *net, double timeout_s, tri_comm **out);
/* Leaves and returns `status`, whose message stays the last error. comm may be NULL. */
tri_status tri_worker_leave(tri_comm *comm, tri_status status);

#endif
