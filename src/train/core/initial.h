/* SPDX-License-Identifier: Apache-2.0
 *
 * initial.h: what a run begins with: model.from, model.freeze, model.reinit, and the tokenizer.
 */
#ifndef TRI_TRAIN_INITIAL_H
#define TRI_TRAIN_INITIAL_H

#include "train/core/job.h"

/* initial.c: model.from, model.freeze, model.reinit. The architecture, before its hash is formed; collective. */
tri_status tri_job_model_find(tri_job *job, const tri_job_setup *setup);
/* What data.tokenizer: auto stands for, as rank 0 finds it. */
tri_status tri_job_tokenizer_find(tri_job *job, const tri_job_setup *setup);
/* Rank 0's text, of at most `nbytes` bytes, on all ranks of more than one; the others' is empty. what: for messages. */
tri_status tri_job_text_spread(tri_job *job, tri_string *text, size_t limit, const char *what);
/* Marks what model.freeze names, in job->model.frozen. */
tri_status tri_job_freeze(tri_job *job, const tri_model *model);
/* Weights, over those of the seed; collective. */
tri_status tri_job_weights_find(tri_job *job);
void tri_job_initial_print(const tri_job *job, tri_console *console);
/* Rank 0, with a run folder: config.json of models that Hugging Face has too. */
tri_status tri_job_config_write(tri_job *job);

#endif
