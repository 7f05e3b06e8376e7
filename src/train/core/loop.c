/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c: all steps of a run, with what happens between them: evaluation, checkpoints, lines for people, a wish to
 * stop.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"
#include "data/tables/table.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/local_sgd.h"
#include "train/checkpointing/resume.h"
#include "train/core/build.h"
#include "train/core/evaluate.h"
#include "train/core/features.h"
#include "train/core/job.h"
#include "train/core/stages.h"
#include "train/core/step.h"

#define PATIENCE_S 3600.0 /* what a disk or a link may take; a rank that dies is noticed all the same */

/* A group of one, for programs that take part in no job. */
static tri_status open_alone(tri_job *job)
{
    tri_comm_config comm;
    tri_net_config net;
    tri_options_defaults(&tri_comm_options, &comm);
    tri_options_defaults(&tri_net_options, &net);
    job->alone = (tri_cluster){.started_by = "alone", .world = 1, .local_world = 1};
    TRI_TRY(tri_comm_open(&job->alone, &comm, &net, TRI_FOREVER, &job->own_comm));
    job->comm = job->own_comm;
    return TRI_OK;
}

tri_status tri_job_open_failed(tri_job *job, tri_status status)
{
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    if (job->world > 1)
        tri_comm_abort(job->comm, status, message);
    tri_job_close(job);
    return tri_fail_copy(status, message);
}

tri_status tri_job_create(tri_comm *comm, const char *run_folder, tri_job **out)
{
    tri_job *job = tri_alloc_zero(1, sizeof(*job));
    if (!job)
        return TRI_ENOMEM;
    job->comm = comm;
    tri_status status = tri_features_create(job);
    job->progress.saved_step = job->placement.hashed_step = -1;
    job->test.loss = job->test.accuracy = job->test.perplexity = job->test.mae = job->test.r2 = NAN;
    job->record.known_loss = NAN;
    job->progress.acted = true;
    if (status == TRI_OK && !job->comm)
        status = open_alone(job);
    if (status == TRI_OK) {
        job->group = tri_comm_world(job->comm);
        job->rank = tri_group_rank(job->group);
        job->world = tri_group_count(job->group);
    }
    if (status == TRI_OK && run_folder) {
        job->output.folder = tri_strdup(run_folder);
        status = job->output.folder ? TRI_OK : TRI_ENOMEM;
    }
    if (status != TRI_OK)
        return tri_job_open_failed(job, status);
    *out = job;
    return TRI_OK;
}

double tri_job_patience_begin(tri_job *job)
{
    const double limit_s = tri_group_limit_now(job->group);
    if (limit_s < PATIENCE_S)
        (void)tri_group_limit(job->group, PATIENCE_S);
    return limit_s;
}

tri_status tri_job_await_all(tri_job *job)
{
    if (job->world == 1)
        return TRI_OK;
    const double limit_s = tri_job_patience_begin(job);
    tri_group_name_next(job->group, "files");
    tri_status status = tri_barrier(job->group, NULL);
    tri_group_name_next(job->group, "");
    (void)tri_group_limit(job->group, limit_s);
    return status;
}

tri_status tri_job_open(const tri_job_setup *setup, tri_job **out)
{
    tri_job *job = NULL;
    TRI_TRY(tri_job_create(setup->comm, setup->run_folder, &job));
    const double limit_s = tri_job_patience_begin(job);
    tri_status status = tri_job_build(job, setup);
    if (status == TRI_OK) /* one may fetch data that others have */
        status = tri_job_await_all(job);
    if (status == TRI_OK)
        status = tri_group_limit(job->group, limit_s);
    if (status != TRI_OK)
        return tri_job_open_failed(job, status);
    *out = job;
    return TRI_OK;
}

static tri_status step_and_after(tri_job *job)
{
    TRI_TRY_IN(tri_job_step_run(job), "step %lld", (long long)job->step);
    TRI_TRY(tri_features_step_done(job));
    TRI_TRY(tri_features_run_due(job));
    return tri_features_step_end(job);
}

/* The others hear of it first: what is queued on a card may take a while to end. */
static void step_fail(tri_job *job, tri_status status)
{
    if (job->world > 1)
        tri_comm_abort(job->comm, status, tri_last_error());
    if (job->sync->ops->stop)
        job->sync->ops->stop(job->sync);
}

tri_status tri_job_step(tri_job *job, bool *done)
{
    if (job->step < job->progress.steps) {
        tri_status status = step_and_after(job);
        if (status != TRI_OK) {
            step_fail(job, status);
            return status;
        }
    }
    *done = job->step >= job->progress.steps;
    return TRI_OK;
}

tri_status tri_job_sums_end(tri_job *job)
{
    if (!job->sync || !job->sync->ops->end || job->sync->over)
        return TRI_OK;
    job->sync->over = true;
    TRI_TRY(tri_barrier(job->group, NULL));
    job->sync->ops->end(job->sync);
    return TRI_OK;
}

tri_status tri_job_print_result(tri_job *job)
{
    const char *const part = tri_data_part_name(job->test.part);
    tri_job_result result;
    TRI_TRY(tri_job_stages_print(job));
    TRI_TRY(tri_job_result_read(job, &result));
    if (!job->output.console || job->output.result_printed)
        return TRI_OK;
    job->output.result_printed = true;
    if (!isnan(result.test_accuracy))
        tri_console_line(job->output.console, "%s accuracy %.4f", part, result.test_accuracy);
    else if (!isnan(result.test_loss))
        tri_console_line(job->output.console, "%s loss %.4f", part, result.test_loss);
    if (!isnan(job->test.mae))
        tri_console_line(job->output.console, "%s mae %.4g", part, job->test.mae);
    if (!isnan(job->test.r2))
        tri_console_line(job->output.console, "%s r2 %.4f", part, job->test.r2);
    if (!isnan(job->test.perplexity))
        tri_console_line(job->output.console, "%s perplexity %.4g", part, job->test.perplexity);
    if (result.samples_per_s > 0)
        tri_console_line(job->output.console, "samples/s %.1f", result.samples_per_s);
    if (result.samples_per_s > 0 && job->throughput.sample_tokens > 0)
        tri_console_line(job->output.console, "tokens/s %.0f",
                         result.samples_per_s * (double)job->throughput.sample_tokens);
    tri_console_line(job->output.console, "weights: xxh3 %016llx", (unsigned long long)result.weights_hash);
    if (strncmp(job->identity.bits, TRI_BITS_LATE, strlen(TRI_BITS_LATE)) == 0)
        tri_console_line(job->output.console, "bits: %s", job->identity.bits);
    return TRI_OK;
}

tri_status tri_job_stopped(const tri_job *job)
{
    return tri_fail(TRI_ECANCELED, "stopped by a signal after step %lld%s", (long long)job->step,
                    job->output.folder ? ", which is saved: --resume continues" : "");
}

bool tri_job_evaluation_is_cut(const tri_job *job)
{
    return job->progress.stop_wanted && job->test.loader && isnan(job->test.loss);
}

tri_status tri_job_event_tell(tri_job *job, const char *event, const char *text)
{
    tri_event_write(&(tri_event){.start_ns = tri_now_ns(), .what = event, .rank = job->rank});
    if (tri_job_follows(job))
        return TRI_OK;
    if (job->rank == 0 || tri_sync_is_local(&job->config.parallel)) /* nobody else sees what one of these does */
        tri_log(TRI_LOG_WARN, "%s", text);
    if (job->rank == 0)
        tri_features_event(job, event, text);
    return job->output.metrics ? tri_metrics_write_event(job->output.metrics, job->step, event, text) : TRI_OK;
}

/* Who has failed does not meet the others at the end. */
static tri_status ended_with(const tri_job *job, tri_status status)
{
    if (status != TRI_OK && job->sync)
        job->sync->over = true;
    return status;
}

/* Nobody says that the step is saved before rank 0 has saved it. */
static tri_status stop(tri_job *job)
{
    tri_status status = tri_job_save(job);
    if (status != TRI_OK) {
        step_fail(job, status);
        return status;
    }
    return tri_job_sums_end(job);
}

static tri_status steps_run(tri_job *job)
{
    bool done = job->step >= job->progress.steps;
    if (done)
        TRI_TRY(tri_job_evaluate_end(job));
    if (done && tri_job_evaluation_is_cut(job))
        return tri_job_stopped(job);
    while (!done) {
        TRI_TRY(tri_job_step(job, &done));
        if (!done ? job->progress.stop_wanted : tri_job_evaluation_is_cut(job)) {
            TRI_TRY(stop(job));
            return tri_job_stopped(job);
        }
    }
    TRI_TRY(tri_job_print_result(job));
    return tri_job_sums_end(job);
}

tri_status tri_job_run(tri_job *job)
{
    return ended_with(job, steps_run(job));
}

static tri_status result_fill(tri_job *job, tri_job_result *result)
{
    TRI_TRY(tri_job_settle(job));
    *result = (tri_job_result){.step = job->step,
                               .steps = job->progress.steps,
                               .loss = job->record.loss,
                               .test_loss = job->test.loss,
                               .test_accuracy = job->test.accuracy,
                               .samples_per_s = job->throughput.trained_s > 0
                                                    ? job->throughput.trained_samples / job->throughput.trained_s
                                                    : 0};
    return tri_job_weights_hash(job, &result->weights_hash);
}

tri_status tri_job_result_read(tri_job *job, tri_job_result *result)
{
    return ended_with(job, result_fill(job, result));
}

/* A program that goes step by step ends its sums here. */
static void sums_leave(tri_job *job)
{
    if (job->sync && !tri_group_has_failed(job->group) && tri_job_sums_end(job) != TRI_OK)
        tri_log(TRI_LOG_WARN, "the end of the job: %s", tri_last_error());
    tri_job_sums_stop(job);
}

void tri_job_close(tri_job *job)
{
    if (!job)
        return;
    sums_leave(job);
    tri_features_close(job);
    tri_job_unform(job);
    tri_kept_fini(&job->elastic.grads);
    tri_features_free(job);
    tri_optim_destroy(job->optim);
    tri_tensors_fini(&job->model.tensors);
    tri_free(job->model.frozen);
    tri_params_destroy(job->params);
    tri_pretrained_close(job->model.source);
    tri_shares_fini(&job->placement.shares);
    tri_dataset_close(job->elastic.data);
    tri_dataset_close(job->elastic.test);
    tri_held_fini(&job->elastic.held[0]);
    tri_held_fini(&job->elastic.held[1]);
    tri_free(job->elastic.resume);
    tri_free(job->elastic.common);
    tri_free(job->output.folder);
    tri_free(job->output.seen_folder);
    tri_arena_fini(&job->data.names_arena);
    tri_table_release(job->data.table);
    tri_config_fini(&job->config);
    tri_comm_leave(job->own_comm);
    tri_device_close(job->device);
    tri_free(job);
}
