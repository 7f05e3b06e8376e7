/* SPDX-License-Identifier: Apache-2.0
 *
 * mirrors_verify.h: parts of a sharded state and their mirrors, compared and repaired.
 */
#ifndef TRI_TRAIN_MIRRORS_VERIFY_H
#define TRI_TRAIN_MIRRORS_VERIFY_H

#include "train/core/job.h"

/* Once they are there. */
tri_status tri_job_mirrors_verify_open(tri_job *job);
/* They are compared before this step moves them; the same on all ranks. */
bool tri_job_mirrors_due(const tri_job *job, int64_t step);
/* A set has been written, up to this step. */
void tri_job_mirrors_written(const tri_job *job, tri_shard_set *set, int64_t step);
/* Collective, called `name`; the same on all ranks. */
tri_status tri_job_mirrors_compare(tri_job *job, const char *name, bool *same);
/* Without the others: what has changed in memory since it was written takes no role any more. */
void tri_job_mirrors_check(const tri_job *job, tri_shard_set *set, int64_t step);

#endif
