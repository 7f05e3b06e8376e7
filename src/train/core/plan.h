/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: what a run will need of memory, without running it.
 */
#ifndef TRI_TRAIN_PLAN_H
#define TRI_TRAIN_PLAN_H

#include "train/core/job.h"

/* Bytes where the weights are: of the card, or of the host; and of the host. */
size_t tri_job_memory_nbytes(const tri_job_memory *memory);
size_t tri_job_memory_host(const tri_job_memory *memory);
/* plan.c. Of the rank that holds most, of `ranks` on one host; with compressed sums, of hosts of one rank each. Opens
 * the training data for the shape of its samples and builds the model. */
tri_status tri_job_memory_plan(const tri_config *config, int ranks, tri_job_memory *memory);
/* Of a rank of one stage: that with most shards. */
tri_status tri_job_stage_plan(const tri_config *config, int ranks, int stage, tri_job_memory *memory);
/* Of this rank of a job that is about to be built; given: a program's model, NULL: the configuration's. Of whichever
 * workers parameter servers have, alike. */
tri_status tri_job_own_plan(const tri_job *job, const tri_model *given, const tri_dataset_info *info,
                            tri_job_memory *memory);
/* The same of the rank that holds most, and appends lines about the optimizer, each beginning with `prefix`: its
 * groups, and the learning rate as a plot. */
tri_status tri_job_describe(const tri_config *config, int ranks, tri_job_memory *memory, const char *prefix,
                            tri_string *notes);

#endif
