/* SPDX-License-Identifier: Apache-2.0
 *
 * reform.h: a job whose ranks come and go.
 */
#ifndef TRI_TRAIN_REFORM_H
#define TRI_TRAIN_REFORM_H

#include "train/core/job.h"

typedef struct tri_job_generation {
    int64_t number;                   /* from 1 */
    int count;                        /* of ranks */
    const int64_t *progress;          /* of each */
    const tri_assignment_note *notes; /* what each has of a sharded state */
} tri_job_generation;

/* reform_state.c: are its pages worth a question? A newcomer's memory is there before it asks to be one of `world`:
 * weights, state and gradients, as they will be where all are on its host, or not. Without it the others wait in the
 * first step until the system has made them. */
bool tri_job_state_is_large(const tri_job *job);
tri_status tri_job_state_prepare(tri_job *job, int world, bool one_host);
/* reform.c: a job whose ranks come and go. Whether a configuration can have that. */
tri_status tri_elastic_check(const tri_config *config);
/* Without any ranks (setup->comm is not looked at): data sets, weights, optimizer. */
tri_status tri_job_open_elastic(const tri_job_setup *setup, tri_job **out);
/* Grows with what this job's state holds; -1: it has none. */
int64_t tri_job_progress_number(const tri_job *job);
/* Has anybody saved this step of the run, or a later one, whole? */
bool tri_job_is_saved(const tri_job *job, int64_t step);
/* The ranks continued without this one for a while: others have written on. */
void tri_job_lost_touch(tri_job *job);
/* Of one that is about to hand its state to ranks which have not seen all steps before it: metrics and ledger of these
 * steps are in their files then. So whoever has a state can write all that the files lack, whoever dies. */
tri_status tri_job_lines_settle(tri_job *job);
/* For the ranks of comm, borrowed until tri_job_unform(); collective. All then have the newest state that one has.
 * After a failure: unform. */
tri_status tri_job_form(tri_job *job, tri_comm *comm, const tri_job_generation *generation);
/* Trains until the end of the run, or elastic.ends. A failure leaves the state whole, and the others hear why. */
tri_status tri_job_run_generation(tri_job *job);
/* Nothing is left to do. */
bool tri_job_is_over(const tri_job *job);
/* Saves, and fails with words: too few ranks are left. Collective. */
tri_status tri_job_give_up(tri_job *job, int least);
/* reform_state.c: how one rank's whole state becomes everybody's. */
/* What is here of a state is of no use: the next generation does without it, and begins where a run does. */
void tri_job_state_drop(tri_job *job);
/* Says so. */
void tri_job_begin_tell(const tri_job *job, int64_t generation, bool found);
/* The newest state that anybody has is that after `step`: is a checkpoint more than a step newer? Collective. */
tri_status tri_job_is_behind(tri_job *job, int64_t generation, int64_t step, bool *behind);
/* Nobody has a state: that of the seed, of model.from, or the newest checkpoint; *found: that. Collective. */
tri_status tri_job_state_begin(tri_job *job, int64_t generation, bool *found);
tri_status tri_job_state_find(tri_job *job, const tri_job_generation *generation);
/* Is there a rank, by the progress of each, that has not seen how the state after step `newest` came about? */
bool tri_job_state_is_news(const tri_job *job, const int64_t *progress, int64_t newest);
/* reform_parts.c: the whole state of all ranks that have it ([world], the same on all) to the others; collective. */
tri_status tri_job_state_hand(tri_job *job, const bool *has);
/* reform_local_sgd.c: ranks that are behind, and newcomers, become copies of one of those that have made the most
 * steps. */
tri_status tri_local_state_find(tri_job *job, int64_t generation);

#endif
