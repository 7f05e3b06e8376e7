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

/* The rows and their files, in features/ where no folder is named. The order counts. The loss scale judges a step
 * before the guards do; weights are verified before others see them; a checkpoint is written after the evaluation of
 * its step. In the reverse order, at the end: a save that is logged in metrics.jsonl ends before that is closed, and
 * TensorBoard's file is closed after it has read the last lines. */
#define TRI_FEATURE_LIST(X)                                                                                            \
    X(chaos, CHAOS)             /* fault_injection.c */                                                                \
    X(loss_scale, LOSS_SCALE)   /* loss_scale.c */                                                                     \
    X(guards, GUARDS)           /* guard.c */                                                                          \
    X(mirrors, MIRRORS)         /* elastic/mirrors_verify.c */                                                         \
    X(replicas, REPLICAS)       /* verify.c */                                                                         \
    X(evaluation, EVALUATION)   /* core/evaluate.c */                                                                  \
    X(samples, SAMPLES)         /* sample.c */                                                                         \
    X(tensorboard, TENSORBOARD) /* show.c */                                                                           \
    X(metrics, METRICS)         /* lines.c */                                                                          \
    X(ledger, LEDGER)           /* sample_audit.c */                                                                   \
    X(live, LIVE)               /* live.c */                                                                           \
    X(card, CARD)               /* card.c */                                                                           \
    X(trace, TRACE)             /* trace.c */                                                                          \
    X(requests, REQUESTS)       /* control_requests.c */                                                               \
    X(watch, WATCH)             /* slow_ranks.c */                                                                     \
    X(stragglers, STRAGGLERS)   /* stragglers.c */                                                                     \
    X(console, CONSOLE)         /* lines.c */                                                                          \
    X(best, BEST)               /* best.c */                                                                           \
    X(saver, SAVER)             /* checkpointing/save.c */                                                             \
    X(peak, PEAK)               /* peak.c */                                                                           \
    X(assignment, ASSIGNMENT)   /* elastic/reform_assignment.c */                                                      \
    X(ps_restore, PS_RESTORE)   /* elastic/ps_restore.c */                                                             \
    X(local_sgd, LOCAL_SGD)     /* checkpointing/local_sgd.c */

enum {
#define TRI_FEATURE_ENUM(name, NAME) TRI_FEATURE_##NAME,
    TRI_FEATURE_LIST(TRI_FEATURE_ENUM)
#undef TRI_FEATURE_ENUM
        TRI_FEATURE_COUNT
};

/* A row fills the slots that it needs; best.c and lines.c are short ones. "Collective": called on all ranks, in the
 * order of the rows. What a row says with a step, hands to a rank that joins, or keeps in a checkpoint has a field of
 * its own in tri_control, tri_scalar_state and tri_checkpoint_manifest. */
typedef struct tri_feature {
    /* The job has a state of this size, of zeros at first, until it is closed; 0: the row makes it where the run asks
     * for it (NULL: it does not), or has none. */
    size_t state_nbytes;

    /* --- building: configure, fits, plan, open, form; elastic: configure, open, then fits, plan, form --- */
    /* The configuration is read, and not yet checked. */
    tri_status (*configure)(tri_job *job);
    /* Store and optimizer are there, without weights of model.from or of a checkpoint. Elastic: once, before any
     * generation; with a sharded state neither is there yet. */
    tri_status (*open)(tri_job *job);
    /* Elastic: the run starts again from step 0, since no rank has a state. */
    void (*restart)(tri_job *job);
    /* The graph is there, of `model` or of the configuration's (NULL). Elastic: in each generation. */
    tri_status (*plan)(tri_job *job, const tri_model *model, const tri_dataset_info *info);
    /* The device is open, and nothing is there yet: what the run needs has room, or all ranks fail alike. Before
     * plan; of an elastic run in the first generation. model: a program's, or NULL. Collective. */
    tri_status (*fits)(tri_job *job, const tri_model *model, const tri_dataset_info *info);
    /* With parameter servers: the strategy is there, and no server was asked for anything yet. */
    void (*servers_begin)(tri_job *job);
    /* The ranks are known, and the weights are those after job->step. Elastic: in each generation. */
    tri_status (*form)(tri_job *job);

    /* --- one step, in this order --- */
    tri_status (*step_begin)(tri_job *job);
    /* The step begins to wait for its batch, or has it. */
    void (*batch_wait)(const tri_job *job, bool begins);
    /* The batch is here. */
    void (*batch_taken)(tri_job *job, const tri_loader_batch *batch);
    /* What this rank says to all ranks with the step. */
    tri_status (*control_put)(tri_job *job, tri_control *own);
    /* Replicas of the weights differ: the row repairs them, or leaves *done false. The batch is computed again.
     * Collective. */
    tri_status (*repair)(tri_job *job, bool *done);
    /* The sum of what all ranks said, before any weight is updated. */
    void (*control_read)(tri_job *job, const tri_control *sum);
    /* Whether judge() needs the norm of the gradient; the same on all ranks. */
    bool (*wants_norm)(const tri_job *job);
    /* The sums of the step are there, and its loss; norm: 0 if no row needs it. A row may mark the step as skipped in
     * the record. */
    tri_status (*judge)(tri_job *job, double norm);
    /* Whether gradients() is called in this step; the same on all ranks. */
    bool (*wants_gradients)(const tri_job *job);
    /* The summed gradients, of which `scale` makes the mean. Collective. */
    tri_status (*gradients)(tri_job *job, float scale);
    /* Whether commit() compares copies in this step. */
    bool (*compares)(const tri_job *job);
    /* No rank updates anything before all ranks have all they need. *same becomes false if copies of it differ.
     * Collective. */
    tri_status (*commit)(tri_job *job, bool *same);
    /* Then: makes the copies the same; the step is made again. Collective. */
    tri_status (*make_same)(tri_job *job);
    /* All ranks are about to update the weights. */
    tri_status (*before_move)(tri_job *job);
    /* This rank has updated its weights, or the step is skipped. */
    void (*moved)(tri_job *job);
    /* A part of the step is over. */
    void (*span)(const tri_job *job, const char *what, int64_t start_ns, int64_t end_ns);
    /* The step is done: its lines. */
    tri_status (*step_done)(tri_job *job);
    /* The others have made the step in the record without this rank: its line. */
    tri_status (*step_missed)(tri_job *job);

    /* --- after a step --- */
    /* Before is_due(). Collective. */
    tri_status (*look)(tri_job *job);
    /* Whether run() is called after this step; the same on all ranks. */
    bool (*is_due)(const tri_job *job);
    /* The weights of all ranks are the same. Collective. */
    tri_status (*run)(tri_job *job);
    /* All that was due is done. Collective. */
    tri_status (*step_end)(tri_job *job);
    /* One batch of an evaluation went forward. */
    void (*evaluated_batch)(tri_job *job, const tri_batch *batch);
    /* The evaluation is done and logged. Collective. */
    tri_status (*evaluated)(tri_job *job);
    /* Something happened, for a time line of the run. */
    void (*event)(tri_job *job, const char *event, const char *text);

    /* --- scalar state, checkpoints --- */
    /* Its part of the scalar state that a rank hands to another one, or goes back to. */
    void (*scalars_put)(const tri_job *job, tri_scalar_state *scalars);
    void (*scalars_take)(tri_job *job, const tri_scalar_state *scalars);
    /* Its part of what a checkpoint keeps; take: rank 0, which has read one. */
    void (*manifest_put)(const tri_job *job, tri_checkpoint_manifest *manifest);
    void (*manifest_take)(tri_job *job, const tri_checkpoint_manifest *manifest);
    /* Behind manifest_take(): what rank 0 has becomes what all ranks have. Collective. */
    tri_status (*spread)(tri_job *job);
    /* Behind a copy for a checkpoint of what this rank holds: fails if that has changed since it was compared. */
    tri_status (*copied)(tri_job *job);
    /* The weights and the state here are what guards roll back to after `step`. */
    tri_status (*rollback_set)(tri_job *job, int64_t step);
    tri_status (*rollback)(tri_job *job);

    /* --- files of the run that rank 0 writes, and whoever becomes rank 0 after it --- */
    /* This is rank 0, from now on. */
    tri_status (*files_open)(tri_job *job);
    /* This rank may become rank 0: it keeps the latest lines. */
    tri_status (*files_follow)(tri_job *job);
    /* This rank writes, from job->step on. */
    tri_status (*files_lead)(tri_job *job);
    /* It writes what it has, and no more then. Reverse order of the rows. */
    void (*files_yield)(tri_job *job);
    /* Another rank writes already. Reverse order of the rows. */
    void (*files_lost)(tri_job *job);
    /* The run goes back to `step`. */
    tri_status (*files_rewind)(tri_job *job, int64_t step);
    /* A checkpoint is written next. */
    void (*files_flush)(tri_job *job);

    /* --- the end, in the reverse order of the rows --- */
    /* The ranks part, often since one is lost: nothing is collective. form() follows, or close(). */
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
tri_status tri_features_fit(tri_job *job, const tri_model *model, const tri_dataset_info *info);
void tri_features_servers_begin(tri_job *job);
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
tri_status tri_features_copied(tri_job *job);
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
