/* SPDX-License-Identifier: Apache-2.0
 *
 * features.h: what a run does besides the plain step, one row of a table each (features.c). The core walks the rows and
 * knows none of them by name.
 *
 * A row does nothing where the configuration does not ask for it. Its state is its own: job->states[TRI_FEATURE_...],
 * which no other row reads; what others need of it is a function of a header of its own. Guards, replicas, mirrors and
 * local SGD change or restore weights and optimizer state, in the slots that say so; the other rows only read them. No
 * row draws random numbers of the training. Collective slots are called on all ranks, in the order of the rows.
 */
#ifndef TRI_TRAIN_FEATURES_H
#define TRI_TRAIN_FEATURES_H

#include "checkpoint/manifest.h"
#include "train/core/job.h"

/* The order counts. The loss scale judges a step before the guards do; weights are verified before others see them; a
 * checkpoint is written after the evaluation of its step. In the reverse order, at the end: a save that is logged in
 * metrics.jsonl ends before that is closed, and TensorBoard's file is closed after it has read the last lines. */
#define TRI_FEATURE_LIST(X)                                                                                            \
    X(chaos, CHAOS)                                                                                                    \
    X(loss_scale, LOSS_SCALE)                                                                                          \
    X(guards, GUARDS)                                                                                                  \
    X(mirrors, MIRRORS)                                                                                                \
    X(replicas, REPLICAS)                                                                                              \
    X(evaluation, EVALUATION)                                                                                          \
    X(samples, SAMPLES)                                                                                                \
    X(tensorboard, TENSORBOARD)                                                                                        \
    X(metrics, METRICS)                                                                                                \
    X(ledger, LEDGER)                                                                                                  \
    X(live, LIVE)                                                                                                      \
    X(trace, TRACE)                                                                                                    \
    X(requests, REQUESTS)                                                                                              \
    X(watch, WATCH)                                                                                                    \
    X(stragglers, STRAGGLERS)                                                                                          \
    X(console, CONSOLE)                                                                                                \
    X(best, BEST)                                                                                                      \
    X(saver, SAVER)                                                                                                    \
    X(peak, PEAK)                                                                                                      \
    X(assignment, ASSIGNMENT)                                                                                          \
    X(ps_restore, PS_RESTORE)                                                                                          \
    X(local_sgd, LOCAL_SGD)

enum {
#define TRI_FEATURE_ENUM(name, NAME) TRI_FEATURE_##NAME,
    TRI_FEATURE_LIST(TRI_FEATURE_ENUM)
#undef TRI_FEATURE_ENUM
        TRI_FEATURE_COUNT
};

typedef struct tri_feature {
    /* The job has a state of this size, of zeros at first, until it is closed; 0: the row makes it where the run asks
     * for it (NULL: it does not), or has none. */
    size_t state_nbytes;
    /* The configuration is read, and not yet checked. */
    tri_status (*configure)(tri_job *job);
    /* The weights are those that the run begins with, in memory that lasts as long as the job. */
    tri_status (*open)(tri_job *job);
    /* The run begins once more: nobody has a state. */
    void (*restart)(tri_job *job);
    /* The graph is there, of `model`, or of the configuration's (NULL). In an elastic run once in each membership. */
    tri_status (*plan)(tri_job *job, const tri_model *model, const tri_dataset_info *info);
    /* The ranks are known, and the weights are those after job->step. In an elastic run once in each generation. */
    tri_status (*form)(tri_job *job);
    /* The next step begins. */
    tri_status (*step_begin)(tri_job *job);
    /* What this rank says to all ranks with the step, and what all have said, before anything moves. */
    tri_status (*control_put)(tri_job *job, tri_control *own);
    void (*control_read)(tri_job *job, const tri_control *sum);
    /* Whether it judges by the norm of the gradient, and whether it reads the gradients of this step; the same on all
     * ranks. */
    bool (*wants_norm)(const tri_job *job);
    bool (*wants_gradients)(const tri_job *job);
    /* The sums of the step are there, and its loss; norm: 0 where nobody judges by it. It may mark the step as skipped
     * in the record, so that nothing moves. */
    tri_status (*judge)(tri_job *job, double norm);
    /* Where it wants them; scale: of the mean gradient; collective. */
    tri_status (*gradients)(tri_job *job, float scale);
    /* Replicas of the weights are not the same: it makes them so, or *done stays false. Collective. */
    tri_status (*repair)(tri_job *job, bool *done);
    /* Between the sums of a step and the update: nothing moves anywhere before all ranks have what moves. *same, true
     * before: false where copies of what moves differ, which make_same() then repairs, and the step is made once more.
     * Whether these are compared in this step. All collective. */
    tri_status (*commit)(tri_job *job, bool *same);
    tri_status (*make_same)(tri_job *job);
    bool (*compares)(const tri_job *job);
    /* This rank has moved its weights, or the step is skipped. */
    void (*moved)(tri_job *job);
    /* All ranks are about to move the weights. */
    tri_status (*before_move)(tri_job *job);
    /* The step is made: its lines. */
    tri_status (*step_done)(tri_job *job);
    /* A part of the step is over; the step waits for its batch, and has it. */
    void (*span)(const tri_job *job, const char *what, int64_t start_ns, int64_t end_ns);
    void (*batch_wait)(const tri_job *job, bool begins);
    void (*batch_taken)(tri_job *job, const tri_loader_batch *batch);
    /* One batch of an evaluation went forward; the evaluation is done and logged (collective). */
    void (*evaluated_batch)(tri_job *job, const tri_batch *batch);
    tri_status (*evaluated)(tri_job *job);
    /* Something for a time line of the run. */
    void (*event)(tri_job *job, const char *event, const char *text);
    /* What it has of the run's scalar state, into `rest` and from there. */
    void (*scalars_put)(const tri_job *job, tri_scalar_state *scalars);
    void (*scalars_take)(tri_job *job, const tri_scalar_state *scalars);
    /* A checkpoint is loaded: what rank 0 has of the scalar state becomes everybody's; and, where steps are rolled
     * back, the weights and the state here are what they go back to after `step`. Collective. */
    tri_status (*spread)(tri_job *job);
    tri_status (*rollback_set)(tri_job *job, int64_t step);
    /* A guard takes the run back to that. */
    tri_status (*rollback)(tri_job *job);
    /* What a checkpoint keeps of its scalar state; a checkpoint of this run, or the one that it begins with, is read
     * (rank 0). */
    void (*manifest_put)(const tri_job *job, tri_checkpoint_manifest *manifest);
    void (*manifest_take)(tri_job *job, const tri_checkpoint_manifest *manifest);
    /* Files of the run that rank 0 writes, and whoever becomes rank 0 after it. open: this is rank 0, from now on.
     * follow: it may become it, and keeps the latest lines. lead: it writes from job->step on. yield: it writes what it
     * has, and no more then. lost: others write already. rewind: the run goes back to `step`. flush: a checkpoint is
     * written next. yield and lost are called in the reverse order of the rows. */
    tri_status (*files_open)(tri_job *job);
    tri_status (*files_follow)(tri_job *job);
    tri_status (*files_lead)(tri_job *job);
    void (*files_yield)(tri_job *job);
    void (*files_lost)(tri_job *job);
    tri_status (*files_rewind)(tri_job *job, int64_t step);
    void (*files_flush)(tri_job *job);
    /* Before it is asked what is due; collective. */
    tri_status (*look)(tri_job *job);
    /* Due after this step; the same on all ranks. Then `run`, collective, with the weights of all ranks the same. */
    bool (*is_due)(const tri_job *job);
    tri_status (*run)(tri_job *job);
    /* The others have made the step in the record without this rank: its line. */
    tri_status (*step_missed)(tri_job *job);
    /* What was due is done; collective. */
    tri_status (*step_end)(tri_job *job);
    /* The ranks part, often since one is lost: nothing is collective. In the reverse order of the rows, as is: */
    void (*part)(tri_job *job);
    /* The job ends; the ranks have parted. */
    void (*close)(tri_job *job);
    void (*free)(tri_job *job);
} tri_feature;

#define TRI_FEATURE_EXTERN(name, NAME) extern const tri_feature tri_feature_##name;
TRI_FEATURE_LIST(TRI_FEATURE_EXTERN)
#undef TRI_FEATURE_EXTERN

/* The states, of zeros; tri_features_free() frees them. Part, close and free do nothing without them. */
tri_status tri_features_create(tri_job *job);

tri_status tri_features_configure(tri_job *job);
tri_status tri_features_open(tri_job *job);
void tri_features_restart(tri_job *job);
tri_status tri_features_plan(tri_job *job, const tri_model *model, const tri_dataset_info *info);
tri_status tri_features_form(tri_job *job);
tri_status tri_features_step_begin(tri_job *job);
tri_status tri_features_control_put(tri_job *job, tri_control *own);
void tri_features_control_read(tri_job *job, const tri_control *sum);
bool tri_features_want_norm(const tri_job *job);
bool tri_features_want_gradients(const tri_job *job);
tri_status tri_features_judge(tri_job *job, double norm);
tri_status tri_features_gradients(tri_job *job, float scale);
tri_status tri_features_repair(tri_job *job);
tri_status tri_features_commit(tri_job *job, bool *same);
tri_status tri_features_make_same(tri_job *job);
bool tri_features_compare(const tri_job *job);
void tri_features_moved(tri_job *job);
tri_status tri_features_before_move(tri_job *job);
void tri_features_span(const tri_job *job, const char *what, int64_t start_ns, int64_t end_ns);
void tri_features_batch_wait(const tri_job *job, bool begins);
void tri_features_batch_taken(tri_job *job, const tri_loader_batch *batch);
void tri_features_evaluated_batch(tri_job *job, const tri_batch *batch);
tri_status tri_features_evaluated(tri_job *job);
void tri_features_event(tri_job *job, const char *event, const char *text);
void tri_features_scalars_put(const tri_job *job, tri_scalar_state *scalars);
void tri_features_scalars_take(tri_job *job, const tri_scalar_state *scalars);
tri_status tri_features_spread(tri_job *job);
tri_status tri_features_rollback_set(tri_job *job, int64_t step);
tri_status tri_features_rollback(tri_job *job);
void tri_features_manifest_put(const tri_job *job, tri_checkpoint_manifest *manifest);
void tri_features_manifest_take(tri_job *job, const tri_checkpoint_manifest *manifest);
tri_status tri_features_files_open(tri_job *job);
tri_status tri_features_files_follow(tri_job *job);
tri_status tri_features_files_lead(tri_job *job);
void tri_features_files_yield(tri_job *job);
void tri_features_files_lost(tri_job *job);
tri_status tri_features_files_rewind(tri_job *job, int64_t step);
void tri_features_files_flush(tri_job *job);
tri_status tri_features_step_done(tri_job *job);
tri_status tri_features_step_missed(tri_job *job);
/* Runs what is due after the step; collective. */
tri_status tri_features_run_due(tri_job *job);
tri_status tri_features_step_end(tri_job *job);
void tri_features_part(tri_job *job);
void tri_features_close(tri_job *job);
void tri_features_free(tri_job *job);

#endif
