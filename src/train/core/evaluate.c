/* SPDX-License-Identifier: Apache-2.0
 *
 * evaluate.c: loss and accuracy on the validation or test set, every rank its own shards.
 *
 * Each shard's sums are added up over the steps in order and only then over shards, in f64: the figures do not depend
 * on the number of ranks either.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "train/checkpointing/local_sgd.h"
#include "train/core/evaluate.h"
#include "train/core/features.h"
#include "train/core/regression.h"
#include "train/core/step.h"

/* Of ranks that share one model out, and all have the same sums, the first one counts them. */
static void count_sums(tri_job *job, int64_t first, int64_t count, const float (*sums)[4])
{
    if (job->mesh.tensor_rank > 0 || job->mesh.stage > 0)
        return;
    for (int64_t s = 0; s < count; s++)
        for (int column = 0; column < TRI_LOSS_COLUMNS; column++)
            job->test.sums[(job->test.first_shard + first + s) * job->test.columns + column] += (double)sums[s][column];
}

/* Adds this rank's share of one test batch to test->sums. */
static tri_status evaluate_batch(tri_job *job, int64_t step)
{
    tri_loader_batch loaded;
    int64_t all = job->test.shard_count, each = job->model.pipeline ? all : job->shards.accumulation.at_once;
    TRI_TRY(tri_loader_next(job->test.loader, &loaded));
    for (int64_t first = 0; first < all; first += each) {
        int64_t count = all - first < each ? all - first : each;
        const tri_batch batch = tri_job_batch(job, &loaded, first, count);
        const float(*sums)[4];
        TRI_TRY(job->model.pipeline ? tri_pipeline_evaluate(job->model.pipeline, &batch, (uint64_t)job->step, &sums)
                                    : tri_graph_forward(job->model.graph, &batch, (uint64_t)job->step, false, &sums));
        count_sums(job, first, count, sums);
        if (step == 0 && first == 0)
            tri_features_evaluated_batch(job, &batch);
    }
    tri_job_regression_count(job, &loaded);
    return TRI_OK;
}

/* Asked every few batches, since the answer is a message of all ranks. */
#define STOP_BATCHES 8

/* Whether a signal asks some rank to stop: the same answer on all of them. Where ranks come and go, one that is asked
 * to leave does so after its step, or at the end of its grace. */
static tri_status stop_check(tri_job *job, bool *stops)
{
    const int number = tri_stop_signal();
    int64_t asked = number && (!job->elastic.on || number == SIGINT);
    if (job->world > 1) {
        tri_group_name_next(job->group, "evaluation, stop");
        TRI_TRY(tri_all_reduce(job->group, &asked, &asked, 1, TRI_I64, TRI_REDUCE_MAX, NULL));
        tri_group_name_next(job->group, "");
    }
    *stops = asked > 0;
    return TRI_OK;
}

tri_status tri_job_evaluate(tri_job *job)
{
    if (!job->test.loader)
        return TRI_OK;
    TRI_TRY(tri_job_settle(job));
    const int64_t shards = job->data.sampler.shards, steps = tri_sampler_steps(&job->test.sampler);
    const int64_t columns = job->test.columns;
    memset(job->test.sums, 0, (size_t)(shards * columns) * sizeof(double));
    for (int64_t step = 0; step < steps; step++) {
        bool stops = false;
        if (step % STOP_BATCHES == STOP_BATCHES - 1)
            TRI_TRY(stop_check(job, &stops));
        if (stops) {
            job->test.loss = job->test.accuracy = job->test.perplexity = NAN;
            return tri_fail(TRI_ECANCELED, "stopped by a signal in an evaluation, after batch %lld of %lld",
                            (long long)step, (long long)steps);
        }
        TRI_TRY(evaluate_batch(job, step));
    }
    if (job->world > 1) {
        tri_group_name_next(job->group, "evaluation");
        TRI_TRY(tri_all_reduce(job->group, job->test.sums, job->test.sums, shards * columns, TRI_F64, TRI_REDUCE_SUM,
                               NULL));
        tri_group_name_next(job->group, "");
    }
    double *const total = job->test.sums; /* over the first shard's */
    for (int64_t s = 1; s < shards; s++)
        for (int64_t column = 0; column < columns; column++)
            total[column] += job->test.sums[s * columns + column];
    job->test.loss = total[TRI_TAIL_LOSS] / total[TRI_TAIL_WEIGHT];
    job->test.weight = total[TRI_TAIL_WEIGHT];
    job->test.perplexity = job->test.tokens ? exp(job->test.loss) : NAN;
    job->test.accuracy = job->test.classes ? total[TRI_TAIL_RIGHT] / total[TRI_TAIL_WEIGHT] : NAN;
    tri_job_regression_finish(job, total);
    return TRI_OK;
}

tri_status tri_job_evaluate_and_tell(tri_job *job)
{
    tri_status status = tri_job_evaluate(job);
    if (status == TRI_ECANCELED) { /* what is due after it is done, and the run stops */
        job->progress.stop_wanted = true;
        return TRI_OK;
    }
    TRI_TRY_IN(status, "while evaluating after step %lld", (long long)job->step);
    const tri_job_test *test = &job->test;
    if (!test->loader)
        return TRI_OK;
    const tri_test_record record = {test->loss, test->accuracy, test->perplexity, test->mae, test->r2};
    if (job->output.metrics)
        TRI_TRY(tri_metrics_write_test(job->output.metrics, job->step - 1, &record));
    const char *const part = tri_data_part_name(test->part);
    char accuracy[48] = "", perplexity[48] = "", regression[96] = "";
    if (!isnan(test->accuracy)) /* of classes alone */
        snprintf(accuracy, sizeof(accuracy), "  %s accuracy %.4f", part, test->accuracy);
    if (!isnan(test->perplexity))
        snprintf(perplexity, sizeof(perplexity), "  %s perplexity %.4g", part, test->perplexity);
    if (!isnan(test->mae))
        snprintf(regression, sizeof(regression), "  %s mae %.4g", part, test->mae);
    if (!isnan(test->r2))
        snprintf(regression + strlen(regression), 48, "  r2 %.4f", test->r2);
    if (job->output.console && job->throughput.trained_s > 0) /* the end of a run prints its own result */
        tri_console_line(job->output.console, "epoch %.4g  step %lld  loss %.4f  %s loss %.4f%s%s%s  %.0f samples/s",
                         job->record.epoch, (long long)job->step, job->record.known_loss, part, test->loss, accuracy,
                         perplexity, regression, job->throughput.trained_samples / job->throughput.trained_s);
    return tri_features_evaluated(job);
}

tri_status tri_job_evaluate_end(tri_job *job)
{
    TRI_TRY(tri_job_meet(job));
    return isnan(job->test.loss) ? tri_job_evaluate_and_tell(job) : TRI_OK;
}

static bool is_due(const tri_job *job)
{
    const tri_train_config *train = &job->config.train;
    return tri_job_is_due(job, train->eval_every_steps > 0 ? train->eval_every_steps
                                                           : train->eval_every * job->progress.steps_per_epoch);
}

const tri_feature tri_feature_evaluation = {.is_due = is_due, .run = tri_job_evaluate_and_tell};
