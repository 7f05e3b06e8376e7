/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: steps that go wrong: a loss or a gradient that is NaN or Inf (train.on_nonfinite), a loss that jumps
 * (train.on_spike).
 *
 * The judge sees reduced values alone, the loss and the norm of the canonical sums, so all ranks of all layouts decide
 * alike, and nothing travels for it. A step that is skipped moves nothing, as with the loss scale (loss_scale.c). To
 * roll back is to skip the step and to take weights and state back to a copy in memory, made before the first step and
 * each checkpoint.every_steps. Neither changes the number of a step: its samples do not come again, nor do those since
 * the copy. (To train the steps since the copy again would give the very weights that skipping gives: all is a function
 * of the step.)
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"
#include "base/runtime.h"
#include "train/checkpointing/arrays.h"
#include "train/core/features.h"
#include "train/core/step.h"
#include "train/features/observers.h"

#define GROWTH 1000.0 /* times the first loss: a run that has lost its way, not a noisy one */

typedef struct guard_state {
    tri_guard_act on_nonfinite, on_spike;
    double loss;       /* running mean of the loss, */
    int64_t steps;     /* over this many steps */
    int64_t acts;      /* steps of this run that were skipped or rolled back */
    double first_loss; /* of the first step that had one, 0: none had */
    bool grown;        /* the loss is far above it, which is reported once */
    /* rollback: what the run was before step copy_step (-1: none yet); arrays as in tri_job_arrays */
    float *copies[1 + TRI_OPTIM_MAX_STATE];
    int64_t copy_step, copy_steps;
    double copy_loss;
} guard_state;

static guard_state *guard_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_GUARDS];
}

/* Elements of what this rank holds: weights, and what it has of the optimizer's arrays. */
static int64_t array_count(const tri_job *job, int array)
{
    return array == 0 ? tri_params_held(job->params) : tri_optim_count(job->optim);
}

static tri_status guard_open(tri_job *job)
{
    guard_state *guard = guard_of(job);
    guard->on_nonfinite = tri_guard_on_nonfinite(&job->config);
    guard->on_spike = tri_guard_on_spike(&job->config);
    guard->copy_step = -1;
    if (!tri_guard_copies(&job->config))
        return TRI_OK;
    for (int i = 0; i == 0 || tri_optim_state_name(job->optim, i - 1); i++) {
        int64_t count = array_count(job, i);
        guard->copies[i] = tri_alloc_bulk((size_t)(count > 0 ? count : 1) * sizeof(float));
        if (!guard->copies[i])
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

static void guard_close(tri_job *job)
{
    guard_state *guard = guard_of(job);
    for (size_t i = 0; i < TRI_COUNT_OF(guard->copies); i++)
        tri_free(guard->copies[i]);
}

static tri_status spread(tri_job *job)
{
    guard_state *guard = guard_of(job);
    double numbers[] = {guard->loss, (double)guard->steps, (double)guard->acts};
    if (job->world == 1)
        return TRI_OK;
    TRI_TRY(tri_broadcast(job->group, numbers, TRI_COUNT_OF(numbers), TRI_F64, 0, NULL));
    guard->loss = numbers[0];
    guard->steps = (int64_t)numbers[1];
    guard->acts = (int64_t)numbers[2];
    return TRI_OK;
}

static void scalars_put(const tri_job *job, tri_scalar_state *scalars)
{
    const guard_state *guard = guard_of(job);
    const double numbers[] = {guard->loss, (double)guard->steps, guard->first_loss, guard->grown};
    memcpy(scalars->guard, numbers, sizeof(numbers));
    scalars->guard_acts = (int32_t)guard->acts;
}

static void scalars_take(tri_job *job, const tri_scalar_state *scalars)
{
    guard_state *guard = guard_of(job);
    guard->loss = scalars->guard[0];
    guard->steps = (int64_t)scalars->guard[1];
    guard->first_loss = scalars->guard[2];
    guard->grown = scalars->guard[3] != 0;
    guard->acts = scalars->guard_acts;
}

static void manifest_put(const tri_job *job, tri_checkpoint_manifest *manifest)
{
    const guard_state *guard = guard_of(job);
    manifest->guard_loss = guard->loss;
    manifest->guard_steps = guard->steps;
    manifest->guard_acts = guard->acts;
}

static void manifest_take(tri_job *job, const tri_checkpoint_manifest *manifest)
{
    guard_state *guard = guard_of(job);
    guard->loss = manifest->guard_loss;
    guard->steps = manifest->guard_steps;
    guard->acts = manifest->guard_acts;
}

static bool wants_norm(const tri_job *job)
{
    return guard_of(job)->on_nonfinite >= TRI_GUARD_SKIP;
}

/* --- the copy to go back to --- */

/* What this rank holds, and moves: nothing travels. */
static tri_status rollback_set(tri_job *job, int64_t step)
{
    guard_state *guard = guard_of(job);
    tri_job_arrays arrays;
    tri_status status = tri_job_arrays_open(job, true, &arrays);
    for (int i = 0; status == TRI_OK && i < arrays.count; i++)
        memcpy(guard->copies[i], arrays.views[i].host, (size_t)array_count(job, i) * sizeof(float));
    tri_job_arrays_close(&arrays);
    guard->copy_step = step;
    guard->copy_loss = guard->loss;
    guard->copy_steps = guard->steps;
    return status;
}

static tri_status rollback(tri_job *job)
{
    guard_state *guard = guard_of(job);
    tri_job_arrays arrays;
    tri_status status = tri_job_arrays_open(job, true, &arrays);
    for (int i = 0; status == TRI_OK && i < arrays.count; i++)
        memcpy(arrays.views[i].host, guard->copies[i], (size_t)array_count(job, i) * sizeof(float));
    if (status == TRI_OK)
        tri_job_arrays_written(&arrays);
    tri_job_arrays_close(&arrays);
    guard->loss = guard->copy_loss;
    guard->steps = guard->copy_steps;
    return status;
}

static tri_status step_begin(tri_job *job)
{
    int64_t every = job->config.checkpoint.every_steps;
    const guard_state *guard = guard_of(job);
    if (!guard->copies[0] || (guard->copy_step >= 0 && (every == 0 || job->step % every != 0)))
        return TRI_OK;
    TRI_TRY(tri_job_settle(job));
    TRI_TRY_IN(tri_features_rollback_set(job, job->step), "while copying the weights to go back to");
    return TRI_OK;
}

/* --- judging --- */

/* `what` happened in this step. */
static tri_status guard_act(tri_job *job, tri_guard_act act, const char *what)
{
    guard_state *guard = guard_of(job);
    int64_t limit = job->config.train.guard_limit;
    char text[512];
    if (act == TRI_GUARD_STOP)
        return tri_fail(TRI_ENUMERIC, "%s", what);
    if (limit > 0 && guard->acts >= limit)
        return tri_fail(TRI_ENUMERIC, "%s, and guards have acted %lld times already (train.guard_limit)", what,
                        (long long)guard->acts);
    guard->acts++;
    job->record.skipped = true;
    if (act == TRI_GUARD_ROLLBACK) {
        TRI_TRY_IN(tri_features_rollback(job), "while rolling back");
        snprintf(text, sizeof(text),
                 "%s: the weights are those before step %lld again, and training continues after this one", what,
                 (long long)guard->copy_step);
    } else
        snprintf(text, sizeof(text), "%s: it updates nothing", what);
    return tri_job_event_tell(job, act == TRI_GUARD_ROLLBACK ? "rollback" : "skip", text);
}

/* A batch in which no target counts has no loss, and nothing is wrong with that. */
static bool loss_is_none(const tri_job *job)
{
    return !isfinite(job->record.loss) && job->sync->tail[TRI_TAIL_WEIGHT] != 0;
}

/* Of one that is none: the sign of a NaN says nothing. */
static const char *loss_text(const tri_job *job)
{
    return isnan(job->record.loss) ? "nan" : job->record.loss > 0 ? "inf" : "-inf";
}

static tri_status loss_judge(const tri_job *job)
{
    bool scaled = job->record.loss_scale > 0; /* then the loss scale judges it */
    if (!loss_is_none(job) || scaled || guard_of(job)->on_nonfinite != TRI_GUARD_STOP)
        return TRI_OK;
    if (job->step == job->progress.first_step) /* nothing has moved yet */
        return tri_fail(TRI_ENUMERIC,
                        "the loss of step %lld is %s: samples, targets or the weights to begin with are too large",
                        (long long)job->step, loss_text(job));
    return tri_fail(TRI_ENUMERIC, "the loss of step %lld is %s: the learning rate (optim.lr, now %g) may be too high",
                    (long long)job->step, loss_text(job), job->record.lr);
}

/* Steps that are left out are not among those that others are compared with. */
static tri_status spike_judge(tri_job *job)
{
    guard_state *guard = guard_of(job);
    const tri_train_config *train = &job->config.train;
    double loss = job->record.loss;
    if (guard->on_spike == TRI_GUARD_OFF || !isfinite(loss))
        return TRI_OK;
    if (guard->steps >= train->spike_window && guard->loss > 0 && loss > train->spike_factor * guard->loss) {
        char what[256];
        snprintf(what, sizeof(what), "the loss of step %lld jumps to %g, from a mean of %g", (long long)job->step, loss,
                 guard->loss);
        return guard_act(job, guard->on_spike, what);
    }
    guard->steps++;
    guard->loss +=
        (loss - guard->loss) / (double)(guard->steps < train->spike_window ? guard->steps : train->spike_window);
    return TRI_OK;
}

/* Weights and the run continue as they are: who asked for no guard may know better. */
static tri_status before_move(tri_job *job)
{
    guard_state *guard = guard_of(job);
    char text[256];
    double loss = job->record.loss;
    if (!isfinite(loss) || guard->grown)
        return TRI_OK;
    if (guard->first_loss == 0)
        guard->first_loss = loss;
    if (guard->first_loss <= 0 || loss <= GROWTH * guard->first_loss)
        return TRI_OK;
    guard->grown = true;
    if (job->rank != 0 &&
        tri_sync_is_local(&job->config.parallel)) /* each has a loss of its own: one warning is enough */
        return TRI_OK;
    snprintf(text, sizeof(text),
             "the loss has grown from %g to %g by step %lld: a lower learning rate (optim.lr, now %g) or samples and "
             "targets of a smaller scale (data.normalize) may be needed",
             guard->first_loss, loss, (long long)job->step, job->record.lr);
    return tri_job_event_tell(job, "growth", text);
}

static tri_status judge(tri_job *job, double norm)
{
    char what[256];
    TRI_TRY(loss_judge(job));
    if (job->record.skipped) /* by the loss scale */
        return TRI_OK;
    if (!loss_is_none(job) && isfinite(norm))
        return spike_judge(job);
    if (loss_is_none(job))
        snprintf(what, sizeof(what), "the loss of step %lld is %s", (long long)job->step, loss_text(job));
    else
        snprintf(what, sizeof(what), "the gradient of step %lld is NaN or Inf, its norm is %f", (long long)job->step,
                 norm);
    return guard_act(job, guard_of(job)->on_nonfinite, what);
}

const tri_feature tri_feature_guards = {.state_nbytes = sizeof(guard_state),
                                        .open = guard_open,
                                        .scalars_put = scalars_put,
                                        .scalars_take = scalars_take,
                                        .spread = spread,
                                        .rollback_set = rollback_set,
                                        .rollback = rollback,
                                        .manifest_put = manifest_put,
                                        .manifest_take = manifest_take,
                                        .step_begin = step_begin,
                                        .wants_norm = wants_norm,
                                        .judge = judge,
                                        .before_move = before_move,
                                        .close = guard_close};
