/* SPDX-License-Identifier: Apache-2.0
 *
 * evaluate.h: evaluation.
 */
#ifndef TRI_TRAIN_EVALUATE_H
#define TRI_TRAIN_EVALUATE_H

#include "train/core/job.h"

/* evaluate.c: the test set, or the part of it that train.eval_batches asks for; collective. */
tri_status tri_job_evaluate(tri_job *job);
/* Evaluates, tells the figures, and keeps the best checkpoint; collective. */
tri_status tri_job_evaluate_and_tell(tri_job *job);
/* The same of a job that begins at its last step, unless that was evaluated: its ranks meet. Collective. */
tri_status tri_job_evaluate_end(tri_job *job);

#endif
