/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h: what a repair of replicas or mirrors means for the run and for the rank that was wrong.
 */
#ifndef TRI_TRAIN_VERIFY_H
#define TRI_TRAIN_VERIFY_H

#include "train/core/job.h"

/* Replicas are found to differ before job->step. Where they were compared before an earlier step than the last one, a
 * flipped bit may have moved the weights of all meanwhile: the run is marked as not reproducible. */
void tri_job_verify_late(tri_job *job, int64_t step);
/* Are weights, and parts with their mirrors, compared after this step, before others see them? */
bool tri_job_verify_is_due(const tri_job *job);
/* Of a part of the state that has changed while it was copied for a checkpoint. */
tri_status tri_job_verify_copy_fails(void);
/* Has a rank been repaired too often, this time included (own: times before)? train.guard_limit. */
bool tri_job_verify_is_worn(const tri_job *job, int64_t own, int in_a_row);
/* `rank` was wrong too often, as `what` tells: fails on all ranks. Where these come and go it alone ends, as if it were
 * lost, and the others continue. Collective. */
tri_status tri_job_put_out(tri_job *job, int rank, const char *what);

/* `ranks` differ, and it cannot be said who is right: fails on all ranks; where these come and go, the next generation
 * begins at the newest checkpoint. Collective. */
tri_status tri_job_verify_tie(tri_job *job, const char *ranks);
tri_status tri_job_verify_drop(tri_job *job, const char *what);
/* The replicas of the weights are compared, every now and then; the same on all ranks. */
bool tri_job_replicas_are_compared(const tri_job *job);
/* How often what this rank holds was wrong and repaired, replicas and parts with mirrors. */
int64_t tri_job_repairs(const tri_job *job);
void tri_job_repairs_add(tri_job *job);
/* train.verify_every, if `nbytes` are hashed each time: steps; 0: off. */
int64_t tri_job_verify_steps(const tri_job *job, double nbytes);

#endif
