/* SPDX-License-Identifier: Apache-2.0
 *
 * train.h: a whole training run in one object: what `trireme train` does, for programs of your own.
 *
 *     tri_comm *comm;  tri_comm_join(60, &comm);
 *     tri_job *job;
 *     tri_job_open(&(tri_job_setup){.config = "run.yaml", .comm = comm}, &job);
 *     tri_job_run(job);
 *     tri_job_result result;  tri_job_result_read(job, &result);
 *     tri_job_close(job);  tri_comm_leave(comm);
 */
#ifndef TRIREME_TRAIN_H
#define TRIREME_TRAIN_H

#include <trireme/comm.h>
#include <trireme/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tri_job tri_job;

typedef struct tri_job_setup {
    const char *config;            /* path of a YAML file, or NULL */
    const char *config_text;       /* or its text; both NULL: the defaults */
    const char *const *overrides;  /* "optim.lr=0.05", ..., NULL at the end; or NULL */
    tri_comm *comm;                /* borrowed; NULL: one rank */
    const tri_model *model;        /* a model of your own instead of the configuration's; borrowed during open */
    const char *run_folder;        /* where rank 0 writes; NULL: nothing is written */
    const char *resume;            /* run folder whose newest checkpoint is continued; NULL: from the start */
    bool or_begin;                 /* with resume: begins where that run has no checkpoint yet */
    struct tri_ps_client *servers; /* a worker's way to parameter servers, borrowed (comm is NULL then); NULL: none */
    bool console;                  /* rank 0 prints progress and the last lines to standard output */
} tri_job_setup;

/* Collective over comm: reads the configuration, the data and (resume) the checkpoint, and plans everything. */
TRI_API tri_status tri_job_open(const tri_job_setup *setup, tri_job **out);
/* Trains to the end (or until SIGINT/SIGTERM where the program catches them: TRI_ECANCELED after a last checkpoint). */
TRI_API tri_status tri_job_run(tri_job *job);
/* Runs one more step only; *done is set when none is left. */
TRI_API tri_status tri_job_step(tri_job *job, bool *done);

/* What a hook sees of a step: elements [first, first + count) of a parameter, or of the piece of it that is this rank's
 * (parallel.tensor, sync), with the sum of their gradients over the batch; times `scale` that is the mean. */
typedef struct tri_gradient {
    const char *name;
    int64_t step;
    int64_t first, count;
    float *values; /* in the host's memory; may be changed */
    float scale;
} tri_gradient;
/* Called in each step before the gradient is clipped and the weights move, for every parameter that trains, in the
 * order of the model, on the thread of the step. A failure ends the run. What is done to an element must depend on the
 * element alone, and be the same on all ranks: then the weights still are the same for every layout. NULL: none. Set
 * between steps, on all ranks. */
typedef tri_status (*tri_gradient_hook)(void *arg, const tri_gradient *gradient);
TRI_API void tri_job_gradient_hook(tri_job *job, tri_gradient_hook hook, void *arg);

typedef struct tri_job_result {
    int64_t step;          /* steps done since the very start */
    int64_t steps;         /* planned */
    double loss;           /* mean of the last step */
    double test_loss;      /* of the last evaluation; NaN when there was none */
    double test_accuracy;  /* likewise */
    double samples_per_s;  /* over all ranks, training only */
    uint64_t weights_hash; /* the promise: the same for every layout */
} tri_job_result;
/* Collective where no rank has all weights (parallel.tensor, pipeline, sync zero3). */
TRI_API tri_status tri_job_result_read(tri_job *job, tri_job_result *result);
/* Where NCCL sums gradients (parallel.backend) it is collective, unless a call for this job has failed: it waits until
 * all ranks have got here. Close the job before the comm is left; who ends early calls tri_comm_abort() first. NULL
 * does nothing. */
TRI_API void tri_job_close(tri_job *job);

#ifdef __cplusplus
}
#endif
#endif
