/* SPDX-License-Identifier: Apache-2.0
 *
 * show.h: what a run shows of itself in TensorBoard, for the files of it.
 */
#ifndef TRI_TRAIN_SHOW_H
#define TRI_TRAIN_SHOW_H

#include "monitor/tensorboard.h"
#include "train/core/features.h"

#define TRI_SHOW_SAMPLES 16

/* Of the first samples of the test data, as they were evaluated last. */
typedef struct tri_show_samples {
    int64_t count; /* 0: none are known */
    int64_t elements, classes;
    float *inputs, *logits; /* [TRI_SHOW_SAMPLES][elements], [..][classes]; NULL: nothing to see here */
    int32_t *targets;
} tri_show_samples;

typedef struct tri_job_show {
    tri_tensorboard *file;        /* rank 0; NULL elsewhere */
    int64_t *gradients, *weights; /* [tensors][TRI_HISTOGRAM_BINS]; NULL: not wanted */
    int64_t *threads;             /* [threads][TRI_HISTOGRAM_BINS]: counts under way */
    int thread_count;
    int64_t gradients_step; /* that they were counted in; -1: none since they were written */
    tri_show_samples samples;
    tri_proto body;
} tri_job_show;

/* NULL: monitor.tensorboard is off. */
static inline tri_job_show *tri_show_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_TENSORBOARD];
}

/* show_counts.c: distributions of this step, into show->body on rank 0; collective where the model is spread. */
tri_status tri_show_counts_open(tri_job *job);
tri_status tri_show_counts_write(tri_job *job);
/* show_pictures.c */
tri_status tri_show_pictures_open(tri_job *job);
tri_status tri_show_pictures_write(tri_job *job);
/* show_model.c, rank 0: what the run is: its graph and hyper-parameters; its configuration and notes. */
tri_status tri_show_head_write(tri_job *job);
tri_status tri_show_texts_write(tri_job *job);
/* show_counts.c, within a step: the gradients of this one are counted, once their sums are there; collective. */
bool tri_show_wants_gradients(const tri_job *job);
tri_status tri_show_gradients(tri_job *job, float scale);
/* show_pictures.c: a test batch went up; the first one of an evaluation is kept. */
void tri_show_batch(tri_job *job, const tri_batch *batch);

#endif
