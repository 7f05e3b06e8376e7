/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.h: the far end of launch.h's ranks on other hosts that outlive their launcher (`trireme attend`).
 *
 * It starts one rank in a session of its own, or finds the one that was started before, and stays with it for as long
 * as the launcher's connection lasts: standard input brings the job's token, then names of signals; standard output is
 * what launch_far.c reads. When the connection ends the rank continues, and the next launcher's attendant finds it.
 */
#ifndef TRI_CLUSTER_ATTEND_H
#define TRI_CLUSTER_ATTEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct tri_attend_setup {
    const char *folder; /* where it writes rank-N.out and rank-N.log, and leaves rank-N.place and rank-N.exit */
    int rank, starts;   /* so often it was started before */
    bool again;         /* start it if nobody has; else it was there once */
    int64_t seen[2];    /* bytes of its output and of its log that were passed on */
    int local_world;    /* ranks of this host: cores are divided by them; 0: the number of threads is given */
    char *const *argv;  /* NULL at the end */
} tri_attend_setup;

/* Returns when the rank has ended and that was said, or when the launcher is gone. */
tri_status tri_attend_run(const tri_attend_setup *setup);

#endif
