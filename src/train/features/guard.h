/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: loss scale and guards, as a checkpoint and a change of membership need them.
 */
#ifndef TRI_TRAIN_GUARD_H
#define TRI_TRAIN_GUARD_H

#include "train/core/job.h"

/* loss_scale.c: rank 0's becomes everybody's; collective. */
tri_status tri_job_scale_spread(tri_job *job);
/* guard.c: the same. */
tri_status tri_job_guard_spread(tri_job *job);
/* What the run is now, before `step`, becomes what a rollback goes back to; with tri_guard_copies(). */
tri_status tri_job_guard_copy(tri_job *job, int64_t step);

#endif
