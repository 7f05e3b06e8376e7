/* SPDX-License-Identifier: Apache-2.0
 *
 * evaluate.h: evaluation, samples of text, the best checkpoint.
 */
#ifndef TRI_TRAIN_EVALUATE_H
#define TRI_TRAIN_EVALUATE_H

#include "train/core/job.h"

/* evaluate.c: the test set, or the part of it that train.eval_batches asks for; collective. */
tri_status tri_job_evaluate(tri_job *job);
/* Evaluates, tells the figures, and keeps the best checkpoint; collective. */
tri_status tri_job_evaluate_and_tell(tri_job *job);
/* sample.c, rank 0: sizes it. */
tri_status tri_job_sample_plan(tri_job *job, const tri_model *given, const tri_dataset_info *info);
/* best.c: keeps the weights that were evaluated in RUN/best if they are better; on rank 0, with checkpoint.keep_best.
 */
tri_status tri_job_best_offer(tri_job *job);

#endif
