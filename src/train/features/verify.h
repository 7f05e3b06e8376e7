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
bool tri_job_is_marked_late(const tri_job *job);
/* Are weights, and parts with their mirrors, compared after this step, before others see them? */
bool tri_job_verify_is_due(const tri_job *job);
/* Has a rank been repaired too often, this time included (own: times before)? train.guard_limit. */
bool tri_job_verify_is_worn(const tri_job *job, int64_t own, int in_a_row);
/* `rank` was wrong too often, as `what` tells: fails on all ranks. Where these come and go it alone ends, as if it were
 * lost, and the others go on. Collective. */
tri_status tri_job_put_out(tri_job *job, int rank, const char *what);

/* verify.c: once the model is there. */
tri_status tri_job_verify_open(tri_job *job);
/* The sums of a step are there: do replicas differ? The same on all ranks. */
bool tri_job_verify_differs(const tri_job *job);
/* Then, collective, between finish and publish or between steps: names and repairs them, or fails on all ranks. */
tri_status tri_job_verify_repair(tri_job *job);
/* `ranks` differ, and it cannot be said who is right: fails on all ranks; where these come and go, the next generation
 * begins at the newest checkpoint. Collective. */
tri_status tri_job_verify_tie(tri_job *job, const char *ranks);
tri_status tri_job_verify_drop(tri_job *job, const char *what);
/* train.verify_every, where so many bytes are hashed: steps; 0: off. */
int64_t tri_job_verify_steps(const tri_job *job, double nbytes);
/* verify_mirrors.c: parts of a spread state and their mirrors. Once these are there. */
tri_status tri_job_mirrors_verify_open(tri_job *job);
/* They are compared before this step moves them; the same on all ranks. */
bool tri_job_mirrors_due(const tri_job *job, int64_t step);
/* A set has been written, up to this step. */
void tri_job_mirrors_written(const tri_job *job, tri_stock_set *set, int64_t step);
/* Collective, called `name`; the same on all ranks. */
tri_status tri_job_mirrors_compare(tri_job *job, const char *name, bool *same);
/* Then, collective, where they are not the same: names and repairs them, or fails on all ranks. */
tri_status tri_job_mirrors_repair(tri_job *job);
/* Without the others: what has changed in memory since it was written takes no role any more. */
void tri_job_mirrors_check(const tri_job *job, tri_stock_set *set, int64_t step);

#endif
