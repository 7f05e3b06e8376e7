/* SPDX-License-Identifier: Apache-2.0
 *
 * isa.h: the instruction set of a run's kernels (train.isa).
 */
#ifndef TRI_TRAIN_ISA_H
#define TRI_TRAIN_ISA_H

#include "train/core/job.h"

/* For a plan: what the run will compute with, if the configuration says it and this processor has it. */
tri_status tri_config_isa_plan(const tri_config *config);
/* Sets the instruction set of kernels, the same on all ranks of a job; before anything is computed. resume: run folder
 * that the job resumes from, or NULL. With workers that come and go it finds elastic.isa alone, and sets nothing. */
tri_status tri_job_isa_settle(tri_job *job, const char *resume);
/* Sets the one that the members have agreed on. TRI_EMISMATCH: this one cannot have it. */
tri_status tri_job_isa_take(const tri_job *job, tri_isa common);

#endif
