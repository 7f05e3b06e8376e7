/* SPDX-License-Identifier: Apache-2.0
 *
 * features.h: what a run does besides training, one row of a table each (features.c). The training itself (loop.c,
 * form.c, reform.c) walks the rows and knows none by name: to take a feature out, delete its row and its file.
 *
 * A row does nothing where the configuration does not ask for it. None touches weights, optimizer state or random
 * numbers of the training. Collective slots are called on all ranks, in the order of the rows.
 */
#ifndef TRI_TRAIN_FEATURES_H
#define TRI_TRAIN_FEATURES_H

#include "train/job.h"

typedef struct tri_feature {
    const char *name;
    /* The ranks are known, and the weights are those after job->step. In an elastic run once in each generation. */
    tri_status (*form)(tri_job *job);
    /* The next step begins. */
    void (*step_begin)(tri_job *job);
    /* The step is made: its lines. */
    tri_status (*step_made)(tri_job *job);
    /* Before it is asked what is due; collective. */
    tri_status (*look)(tri_job *job);
    /* Due after this step; the same on all ranks. Then `run`, collective, with the weights of all ranks the same. */
    bool (*is_due)(const tri_job *job);
    tri_status (*run)(tri_job *job);
    /* What was due is done; collective. */
    tri_status (*step_end)(tri_job *job);
    /* The ranks part, often since one is lost: nothing is collective. In the reverse order of the rows, as is: */
    void (*part)(tri_job *job);
    /* The job ends. */
    void (*close)(tri_job *job);
} tri_feature;

extern const tri_feature tri_feature_metrics, tri_feature_ledger, tri_feature_mirrors, tri_feature_replicas,
    tri_feature_evaluation, tri_feature_samples, tri_feature_tensorboard, tri_feature_live, tri_feature_trace,
    tri_feature_requests, tri_feature_watch, tri_feature_console, tri_feature_best, tri_feature_saver, tri_feature_peak;

tri_status tri_features_form(tri_job *job);
void tri_features_step_begin(tri_job *job);
tri_status tri_features_step_made(tri_job *job);
/* Runs what is due after the step; collective. */
tri_status tri_features_run_due(tri_job *job);
tri_status tri_features_step_end(tri_job *job);
void tri_features_part(tri_job *job);
void tri_features_close(tri_job *job);

#endif
