/* SPDX-License-Identifier: Apache-2.0
 *
 * regression.h: of real targets, mean absolute error and R2 beside the loss.
 */
#ifndef TRI_TRAIN_CORE_REGRESSION_H
#define TRI_TRAIN_CORE_REGRESSION_H

#include "train/core/job.h"

/* Columns of job->test.sums behind those of the loss; 0: targets are classes. */
int64_t tri_job_regression_columns(const tri_job *job);
/* Adds the targets of this rank's shards of a test batch to the sums. */
void tri_job_regression_count(tri_job *job, const tri_loader_batch *batch);
/* Fills test.mae and test.r2 from the sums over all shards. */
void tri_job_regression_finish(tri_job *job, const double *total);

#endif
