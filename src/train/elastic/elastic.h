/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic.h: one worker of a job whose workers come and go: from generation to generation (cluster/members.h), each
 * with links of its own, until the run is over or this worker shall leave.
 */
#ifndef TRI_TRAIN_ELASTIC_H
#define TRI_TRAIN_ELASTIC_H

#include "cluster/members.h"
#include "train/core/job.h"

/* Where workers are fibers of a simulation (cli/sim_recovery.c). */
typedef struct tri_elastic_place {
    void *arg;
    /* Where the members of a generation meet; lives until all of them are in another one. */
    tri_status (*hub)(void *arg, const tri_generation *now, tri_hub **out);
    /* The state of this worker is that after job->step: a generation was formed (also where it heard so from the store,
     * after the one who had claimed it was gone), or a step was made. */
    void (*stepped)(void *arg, const tri_job *job);
    /* Is nothing passing between this worker and that one now? */
    bool (*is_cut)(void *arg, const char *id);
    /* What the worker claims to have in common with the others, true or not; NULL: the truth. */
    const char *spec;
} tri_elastic_place;

typedef struct tri_elastic_setup {
    tri_job_setup job;         /* comm is not looked at */
    tri_members_setup members; /* its stores too are the caller's */
    const char *started_by;
    const char *token;  /* of the job */
    void (*stop)(void); /* there was no launcher for members.alone_ns: all shall stop as by Ctrl-C */
    /* Asked to stop, this worker has so long until it is killed; 0: nobody will. Where its step, or what it has to save
     * or to hand over, does not end in time, overdue is called, on a thread of its own: it is to end the process at
     * once, as if it had been killed, before somebody does so in the midst of a write. */
    int64_t grace_ns;
    void (*overdue)(void *arg);
    void *overdue_arg;
    const tri_elastic_place *place; /* NULL: a process of its own, and its machine's network */
} tri_elastic_setup;

/* Until the run is over, this worker shall leave, or it cannot continue. */
tri_status tri_elastic_run(const tri_elastic_setup *setup);

#endif
