/* SPDX-License-Identifier: Apache-2.0
 *
 * loss_scale.c: the factor of the loss with values in f16 (train.precision), so that small gradients are not lost.
 *
 * It is a power of two, so it costs no figures. The one judge of a step is the norm of the gradient's canonical sums,
 * which all ranks of all layouts have alike: where it is NaN or Inf, nobody moves anything, and the factor is halved.
 */
#include <math.h>

#include "base/log.h"
#include "train/core/features.h"

#define LEAST     0x1p-24
#define MOST      0x1p40
#define MOST_LOST 40 /* steps in a row that may be skipped */

typedef struct loss_scale {
    double now;         /* a power of two; 0: there is none */
    int64_t good, lost; /* steps since it last changed; in a row that were skipped */
} loss_scale;

typedef struct scale_state {
    loss_scale scale, copy; /* copy: to roll back to */
} scale_state;

static loss_scale *scale_of(const tri_job *job)
{
    return &((scale_state *)job->states[TRI_FEATURE_LOSS_SCALE])->scale;
}

static void restart(tri_job *job)
{
    const tri_train_config *train = &job->config.train;
    if (train->precision == TRI_PRECISION_F16)
        scale_of(job)->now = (double)(train->loss_scale > 0 ? train->loss_scale : train->loss_scale_init);
}

static tri_status scale_open(tri_job *job)
{
    restart(job);
    return TRI_OK;
}

static tri_status step_begin(tri_job *job)
{
    double now = scale_of(job)->now;
    job->record.loss_scale = now > 0 ? now : NAN;
    if (!(now > 0))
        return TRI_OK;
    if (job->model.pipeline)
        tri_pipeline_loss_scale(job->model.pipeline, (float)now);
    else
        tri_graph_loss_scale(job->model.graph, (float)now);
    return TRI_OK;
}

static tri_status overflowed(tri_job *job)
{
    loss_scale *scale = scale_of(job);
    bool fixed = job->config.train.loss_scale > 0;
    double before = scale->now;
    job->record.skipped = true;
    scale->good = 0;
    scale->lost++;
    if (!fixed && scale->now > LEAST)
        scale->now /= 2;
    if (scale->lost >= MOST_LOST)
        return tri_fail(TRI_ENUMERIC,
                        "the gradients of %d steps in a row overflow f16, in the end with a loss scale of %g: %s",
                        MOST_LOST, before,
                        fixed ? "want a smaller train.loss_scale, or 0 (found by itself)"
                              : "values beyond 65504 want train.precision bf16, or optim.lr (now too high?) lower");
    if (job->rank == 0)
        tri_log(TRI_LOG_INFO, "step %lld is skipped: its gradients overflow f16 with a loss scale of %g%s",
                (long long)job->step, before, fixed ? "" : ", which is halved");
    return TRI_OK;
}

static tri_status judge(tri_job *job, double norm)
{
    loss_scale *scale = scale_of(job);
    if (!(scale->now > 0))
        return TRI_OK;
    bool any = job->sync->tail[TRI_TAIL_WEIGHT] != 0; /* else no target counts, and there is no loss */
    if (!isfinite(norm) || (any && !isfinite(job->record.loss)))
        return overflowed(job);
    scale->lost = 0;
    scale->good++;
    if (job->config.train.loss_scale == 0 && scale->good >= job->config.train.loss_scale_window) {
        scale->good = 0;
        scale->now = fmin(2 * scale->now, MOST);
    }
    return TRI_OK;
}

static tri_status spread(tri_job *job)
{
    loss_scale *scale = scale_of(job);
    double numbers[] = {scale->now, (double)scale->good, (double)scale->lost};
    if (job->world == 1 || !(scale->now > 0))
        return TRI_OK;
    TRI_TRY(tri_broadcast(job->group, numbers, TRI_COUNT_OF(numbers), TRI_F64, 0, NULL));
    *scale = (loss_scale){numbers[0], (int64_t)numbers[1], (int64_t)numbers[2]};
    return TRI_OK;
}

static bool wants_norm(const tri_job *job)
{
    return scale_of(job)->now > 0;
}

static void scalars_put(const tri_job *job, tri_scalar_state *scalars)
{
    const loss_scale *scale = scale_of(job);
    scalars->loss_scale[0] = scale->now;
    scalars->loss_scale[1] = (double)scale->good;
    scalars->loss_scale[2] = (double)scale->lost;
}

static void scalars_take(tri_job *job, const tri_scalar_state *scalars)
{
    const double *scale = scalars->loss_scale;
    *scale_of(job) = (loss_scale){scale[0], (int64_t)scale[1], (int64_t)scale[2]};
}

static void manifest_put(const tri_job *job, tri_checkpoint_manifest *manifest)
{
    const loss_scale *scale = scale_of(job);
    manifest->loss_scale = scale->now;
    manifest->loss_scale_good = scale->good;
    manifest->loss_scale_lost = scale->lost;
}

/* One that the configuration states stays. */
static void manifest_take(tri_job *job, const tri_checkpoint_manifest *manifest)
{
    loss_scale *scale = scale_of(job);
    if (scale->now > 0 && job->config.train.loss_scale == 0 && manifest->loss_scale > 0)
        *scale = (loss_scale){manifest->loss_scale, manifest->loss_scale_good, manifest->loss_scale_lost};
}

static tri_status rollback_set(tri_job *job, int64_t step)
{
    scale_state *state = job->states[TRI_FEATURE_LOSS_SCALE];
    (void)step;
    state->copy = state->scale;
    return TRI_OK;
}

static tri_status rollback(tri_job *job)
{
    scale_state *state = job->states[TRI_FEATURE_LOSS_SCALE];
    state->scale = state->copy;
    return TRI_OK;
}

const tri_feature tri_feature_loss_scale = {.state_nbytes = sizeof(scale_state),
                                            .manifest_put = manifest_put,
                                            .manifest_take = manifest_take,
                                            .rollback_set = rollback_set,
                                            .rollback = rollback,
                                            .open = scale_open,
                                            .restart = restart,
                                            .scalars_put = scalars_put,
                                            .scalars_take = scalars_take,
                                            .spread = spread,
                                            .step_begin = step_begin,
                                            .wants_norm = wants_norm,
                                            .judge = judge};
