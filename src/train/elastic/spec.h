/* SPDX-License-Identifier: Apache-2.0
 *
 * spec.h: the description of a run that all of its workers must have in common.
 */
#ifndef TRI_TRAIN_SPEC_H
#define TRI_TRAIN_SPEC_H

#include "train/core/job.h"

/* Appends lines "key=value" in a fixed order: of a job that was opened for workers that come and go. */
tri_status tri_job_spec(const tri_job *job, tri_string *out);

#endif
