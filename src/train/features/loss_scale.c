/* SPDX-License-Identifier: Apache-2.0
 *
 * loss_scale.c: the factor of the loss with values in f16 (train.precision), so that small gradients are not lost.
 *
 * It is a power of two, so it costs no figures. The one judge of a step is the norm of the gradient's canonical sums,
 * which all ranks of all layouts have alike: where it is no number, nobody moves anything, and the factor is halved.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "train/core/features.h"

#define LEAST     0x1p-24
#define MOST      0x1p40
#define MOST_LOST 40 /* steps in a row that may be skipped */

static void restart(tri_job *job)
{
    const tri_train_config *train = &job->config.train;
    if (train->precision == TRI_PRECISION_F16)
        job->scale.now = (double)(train->loss_scale > 0 ? train->loss_scale : train->loss_scale_init);
}

static tri_status scale_open(tri_job *job)
{
    restart(job);
    return TRI_OK;
}

static tri_status step_begin(tri_job *job)
{
    job->record.loss_scale = job->scale.now > 0 ? job->scale.now : NAN;
    if (!(job->scale.now > 0))
        return TRI_OK;
    if (job->pipeline)
        tri_pipeline_loss_scale(job->pipeline, (float)job->scale.now);
    else
        tri_graph_loss_scale(job->graph, (float)job->scale.now);
    return TRI_OK;
}

static tri_status overflowed(tri_job *job)
{
    tri_job_scale *scale = &job->scale;
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
    tri_job_scale *scale = &job->scale;
    if (!(scale->now > 0))
        return TRI_OK;
    if (!isfinite(norm) || !isfinite(job->record.loss))
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
    tri_job_scale *scale = &job->scale;
    double numbers[] = {scale->now, (double)scale->good, (double)scale->lost};
    if (job->world == 1 || !(scale->now > 0))
        return TRI_OK;
    TRI_TRY(tri_broadcast(job->group, numbers, TRI_COUNT_OF(numbers), TRI_F64, 0, NULL));
    *scale = (tri_job_scale){numbers[0], (int64_t)numbers[1], (int64_t)numbers[2]};
    return TRI_OK;
}

static bool wants_norm(const tri_job *job)
{
    return job->scale.now > 0;
}

static void rest_put(const tri_job *job, tri_job_rest *rest)
{
    rest->scale = job->scale;
}

static void rest_take(tri_job *job, const tri_job_rest *rest)
{
    job->scale = rest->scale;
}

const tri_feature tri_feature_loss_scale = {.name = "loss scale",
                                            .open = scale_open,
                                            .restart = restart,
                                            .rest_put = rest_put,
                                            .rest_take = rest_take,
                                            .spread = spread,
                                            .step_begin = step_begin,
                                            .wants_norm = wants_norm,
                                            .judge = judge};
