/* SPDX-License-Identifier: Apache-2.0
 *
 * features.c: the table of features, and what walks it.
 *
 * The order counts: the loss scale judges a step before the guards do; weights are verified before others see them, a
 * checkpoint is written after the evaluation of its step; at the end, backwards, a save that is told in metrics.jsonl
 * ends before that is closed, and its lines are read by the file of TensorBoard before that is.
 */
#include "train/core/features.h"
#include "train/checkpointing/local_sgd.h"

static const tri_feature *const features[] = {
    &tri_feature_chaos,     &tri_feature_loss_scale, &tri_feature_guards,     &tri_feature_mirrors,
    &tri_feature_replicas,  &tri_feature_evaluation, &tri_feature_samples,    &tri_feature_tensorboard,
    &tri_feature_metrics,   &tri_feature_ledger,     &tri_feature_live,       &tri_feature_trace,
    &tri_feature_requests,  &tri_feature_watch,      &tri_feature_console,    &tri_feature_best,
    &tri_feature_saver,     &tri_feature_peak,       &tri_feature_assignment, &tri_feature_ps_restore,
    &tri_feature_local_sgd,
};
enum { FEATURES = TRI_COUNT_OF(features) };

/* Calls `slot` of all rows that have it, until one fails. */
#define EACH_TRY(slot, ...)                                                                                            \
    for (int i = 0; i < FEATURES; i++)                                                                                 \
        if (features[i]->slot)                                                                                         \
    TRI_TRY(features[i]->slot(__VA_ARGS__))

/* The same of slots that cannot fail. */
#define EACH(slot, ...)                                                                                                \
    for (int i = 0; i < FEATURES; i++)                                                                                 \
        if (features[i]->slot)                                                                                         \
    features[i]->slot(__VA_ARGS__)

tri_status tri_features_configure(tri_job *job)
{
    EACH_TRY(configure, job);
    return TRI_OK;
}

tri_status tri_features_open(tri_job *job)
{
    EACH_TRY(open, job);
    return TRI_OK;
}

void tri_features_restart(tri_job *job)
{
    EACH(restart, job);
}

tri_status tri_features_plan(tri_job *job, const tri_model *model, const tri_dataset_info *info)
{
    EACH_TRY(plan, job, model, info);
    return TRI_OK;
}

tri_status tri_features_form(tri_job *job)
{
    EACH_TRY(form, job);
    return TRI_OK;
}

tri_status tri_features_step_begin(tri_job *job)
{
    EACH_TRY(step_begin, job);
    return TRI_OK;
}

tri_status tri_features_control_put(tri_job *job, tri_control *own)
{
    EACH_TRY(control_put, job, own);
    return TRI_OK;
}

void tri_features_control_read(tri_job *job, const tri_control *sum)
{
    EACH(control_read, job, sum);
}

bool tri_features_want_norm(const tri_job *job)
{
    bool any = false;
    for (int i = 0; i < FEATURES; i++)
        any = any || (features[i]->wants_norm && features[i]->wants_norm(job));
    return any;
}

bool tri_features_want_gradients(const tri_job *job)
{
    bool any = false;
    for (int i = 0; i < FEATURES; i++)
        any = any || (features[i]->wants_gradients && features[i]->wants_gradients(job));
    return any;
}

tri_status tri_features_judge(tri_job *job, double norm)
{
    EACH_TRY(judge, job, norm);
    return TRI_OK;
}

tri_status tri_features_gradients(tri_job *job, float scale)
{
    EACH_TRY(gradients, job, scale);
    return TRI_OK;
}

tri_status tri_features_repair(tri_job *job)
{
    bool done = false;
    for (int i = 0; i < FEATURES && !done; i++)
        if (features[i]->repair)
            TRI_TRY(features[i]->repair(job, &done));
    return TRI_OK;
}

void tri_features_span(const tri_job *job, const char *what, int64_t start_ns, int64_t end_ns)
{
    EACH(span, job, what, start_ns, end_ns);
}

void tri_features_batch_wait(const tri_job *job, bool begins)
{
    EACH(batch_wait, job, begins);
}

void tri_features_batch_taken(tri_job *job, double waited_s, double prepared_s)
{
    EACH(batch_taken, job, waited_s, prepared_s);
}

void tri_features_evaluated_batch(tri_job *job, const tri_batch *batch)
{
    EACH(evaluated_batch, job, batch);
}

void tri_features_event(tri_job *job, const char *event, const char *text)
{
    EACH(event, job, event, text);
}

void tri_features_rest_put(const tri_job *job, tri_job_rest *rest)
{
    EACH(rest_put, job, rest);
}

void tri_features_rest_take(tri_job *job, const tri_job_rest *rest)
{
    EACH(rest_take, job, rest);
}

tri_status tri_features_spread(tri_job *job)
{
    EACH_TRY(spread, job);
    return TRI_OK;
}

tri_status tri_features_rollback_set(tri_job *job, int64_t step)
{
    EACH_TRY(rollback_set, job, step);
    return TRI_OK;
}

tri_status tri_features_evaluated(tri_job *job)
{
    EACH_TRY(evaluated, job);
    return TRI_OK;
}

tri_status tri_features_commit(tri_job *job, bool *same)
{
    *same = true;
    EACH_TRY(commit, job, same);
    return TRI_OK;
}

tri_status tri_features_make_same(tri_job *job)
{
    EACH_TRY(make_same, job);
    return TRI_OK;
}

bool tri_features_compare(const tri_job *job)
{
    bool any = false;
    for (int i = 0; i < FEATURES; i++)
        any = any || (features[i]->compares && features[i]->compares(job));
    return any;
}

void tri_features_moved(tri_job *job)
{
    EACH(moved, job);
}

tri_status tri_features_before_move(tri_job *job)
{
    EACH_TRY(before_move, job);
    return TRI_OK;
}

tri_status tri_features_step_made(tri_job *job)
{
    EACH_TRY(step_made, job);
    return TRI_OK;
}

tri_status tri_features_step_missed(tri_job *job)
{
    EACH_TRY(step_missed, job);
    return TRI_OK;
}

static bool is_due(const tri_job *job, int i)
{
    return features[i]->is_due && features[i]->is_due(job);
}

bool tri_job_is_due(const tri_job *job, int64_t every)
{
    return job->step == job->steps || (every > 0 && job->step / every > job->step_before / every);
}

/* Ranks whose weights are apart meet for it, and stay together after the last step. */
tri_status tri_features_run_due(tri_job *job)
{
    bool any = false;
    EACH_TRY(look, job);
    for (int i = 0; i < FEATURES; i++)
        any = any || is_due(job, i);
    if (!any) {
        job->acted = true;
        return TRI_OK;
    }
    TRI_TRY(tri_job_meet(job));
    for (int i = 0; i < FEATURES; i++)
        if (is_due(job, i))
            TRI_TRY(features[i]->run(job));
    if (job->step < job->steps)
        tri_job_part(job);
    if (job->elastic.on && job->world > 1) /* rank 0 has written what it had to */
        TRI_TRY(tri_barrier(job->group, NULL));
    job->acted = true;
    return TRI_OK;
}

tri_status tri_features_step_end(tri_job *job)
{
    EACH_TRY(step_end, job);
    return TRI_OK;
}

void tri_features_part(tri_job *job)
{
    for (int i = FEATURES - 1; i >= 0; i--)
        if (features[i]->part)
            features[i]->part(job);
}

void tri_features_close(tri_job *job)
{
    for (int i = FEATURES - 1; i >= 0; i--)
        if (features[i]->close)
            features[i]->close(job);
}

void tri_features_free(tri_job *job)
{
    for (int i = FEATURES - 1; i >= 0; i--)
        if (features[i]->free)
            features[i]->free(job);
}
