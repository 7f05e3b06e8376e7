/* SPDX-License-Identifier: Apache-2.0
 *
 * features.c: the table of features, and what walks it.
 */
#include "train/core/features.h"
#include "base/memory.h"
#include "train/checkpointing/local_sgd.h"
#include "train/checkpointing/resume.h"

static const tri_feature *const features[] = {
#define ROW(name, NAME) &tri_feature_##name,
    TRI_FEATURE_LIST(ROW)
#undef ROW
};
enum { FEATURES = TRI_FEATURE_COUNT };

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

/* The same in the reverse order of the rows. */
#define EACH_BACK(slot, ...)                                                                                           \
    for (int i = FEATURES - 1; i >= 0; i--)                                                                            \
        if (features[i]->slot)                                                                                         \
    features[i]->slot(__VA_ARGS__)

/* Of a state in the block of all. */
static size_t state_room(const tri_feature *feature)
{
    return (feature->state_nbytes + 15) / 16 * 16;
}

tri_status tri_features_create(tri_job *job)
{
    const size_t pointers_nbytes = (FEATURES + 1) / 2 * 16; /* rounded up, for what comes behind */
    size_t nbytes = pointers_nbytes;
    for (int i = 0; i < FEATURES; i++)
        nbytes += state_room(features[i]);
    job->states = tri_alloc_zero(1, nbytes);
    if (!job->states)
        return TRI_ENOMEM;
    char *at = (char *)job->states + pointers_nbytes;
    for (int i = 0; i < FEATURES; at += state_room(features[i++]))
        if (features[i]->state_nbytes)
            job->states[i] = at;
    return TRI_OK;
}

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

tri_status tri_features_fit(tri_job *job, const tri_model *model, const tri_dataset_info *info)
{
    EACH_TRY(fits, job, model, info);
    return TRI_OK;
}

tri_status tri_features_plan(tri_job *job, const tri_model *model, const tri_dataset_info *info)
{
    EACH_TRY(plan, job, model, info);
    return TRI_OK;
}

void tri_features_servers_begin(tri_job *job)
{
    EACH(servers_begin, job);
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

tri_status tri_features_copied(tri_job *job)
{
    EACH_TRY(copied, job);
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

void tri_features_batch_taken(tri_job *job, const tri_loader_batch *batch)
{
    EACH(batch_taken, job, batch);
}

void tri_features_evaluated_batch(tri_job *job, const tri_batch *batch)
{
    EACH(evaluated_batch, job, batch);
}

void tri_features_event(tri_job *job, const char *event, const char *text)
{
    EACH(event, job, event, text);
}

void tri_features_scalars_put(const tri_job *job, tri_scalar_state *scalars)
{
    EACH(scalars_put, job, scalars);
}

void tri_features_scalars_take(tri_job *job, const tri_scalar_state *scalars)
{
    EACH(scalars_take, job, scalars);
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

tri_status tri_features_rollback(tri_job *job)
{
    EACH_TRY(rollback, job);
    return TRI_OK;
}

void tri_features_manifest_put(const tri_job *job, tri_checkpoint_manifest *manifest)
{
    EACH(manifest_put, job, manifest);
}

void tri_features_manifest_take(tri_job *job, const tri_checkpoint_manifest *manifest)
{
    EACH(manifest_take, job, manifest);
}

tri_status tri_features_files_open(tri_job *job)
{
    EACH_TRY(files_open, job);
    return TRI_OK;
}

tri_status tri_features_files_follow(tri_job *job)
{
    EACH_TRY(files_follow, job);
    return TRI_OK;
}

tri_status tri_features_files_lead(tri_job *job)
{
    EACH_TRY(files_lead, job);
    return TRI_OK;
}

void tri_features_files_yield(tri_job *job)
{
    EACH_BACK(files_yield, job);
}

void tri_features_files_lost(tri_job *job)
{
    EACH_BACK(files_lost, job);
}

tri_status tri_features_files_rewind(tri_job *job, int64_t step)
{
    EACH_TRY(files_rewind, job, step);
    return TRI_OK;
}

void tri_features_files_flush(tri_job *job)
{
    EACH(files_flush, job);
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

tri_status tri_features_step_done(tri_job *job)
{
    EACH_TRY(step_done, job);
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
    return job->step == job->progress.steps || (every > 0 && job->step / every > job->progress.step_before / every);
}

/* Ranks whose weights are apart meet for it, and stay together after the last step. */
tri_status tri_features_run_due(tri_job *job)
{
    bool any = false;
    EACH_TRY(look, job);
    for (int i = 0; i < FEATURES; i++)
        any = any || is_due(job, i);
    if (!any) {
        job->progress.acted = true;
        return TRI_OK;
    }
    TRI_TRY(tri_job_meet(job));
    for (int i = 0; i < FEATURES; i++)
        if (is_due(job, i))
            TRI_TRY(features[i]->run(job));
    if (job->step < job->progress.steps)
        tri_job_part(job);
    if (job->elastic.on || tri_job_save_is_due(job)) /* rank 0 has written what it had to */
        TRI_TRY(tri_job_await_all(job));
    job->progress.acted = true;
    return TRI_OK;
}

tri_status tri_features_step_end(tri_job *job)
{
    EACH_TRY(step_end, job);
    return TRI_OK;
}

void tri_features_part(tri_job *job)
{
    if (job->states)
        EACH_BACK(part, job);
}

void tri_features_close(tri_job *job)
{
    if (job->states)
        EACH_BACK(close, job);
}

void tri_features_free(tri_job *job)
{
    if (!job->states)
        return;
    EACH_BACK(free, job);
    tri_free(job->states);
    job->states = NULL;
}
