/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.c: what a run says of its steps: lines of metrics.jsonl for programs, of the console for people.
 */
#include <stdio.h>

#include "base/log.h"
#include "train/core/features.h"
#include "train/core/initial.h"

typedef struct metrics_state {
    int64_t written_ns; /* when the last line of a step was written, with monitor.step_every_s */
} metrics_state;

static void metrics_path(const tri_job_output *output, char path[1200])
{
    snprintf(path, 1200, "%s/metrics.jsonl", output->folder);
}

/* The first line says by what the run is found elsewhere. */
static tri_status metrics_open(tri_job *job)
{
    char path[1200], span[TRI_SPAN_ID_NBYTES];
    metrics_path(&job->output, path);
    if (!job->output.metrics)
        TRI_TRY(tri_metrics_open(path, job->step, &job->output.metrics));
    tri_span_id_make(job->identity.trace_id, -1, 0, -1, span);
    return tri_metrics_write_head(job->output.metrics, job->step, job->identity.trace_id, span);
}

static tri_status metrics_follow(tri_job *job)
{
    char path[1200];
    metrics_path(&job->output, path);
    return tri_metrics_follow(path, &job->output.metrics);
}

static tri_status metrics_lead(tri_job *job)
{
    return job->output.metrics ? tri_metrics_lead(job->output.metrics, job->step) : TRI_OK;
}

static void metrics_yield(tri_job *job)
{
    if (job->output.metrics)
        tri_metrics_yield(job->output.metrics);
}

static void metrics_lost(tri_job *job)
{
    if (job->output.metrics)
        tri_metrics_drop_lead(job->output.metrics);
}

static tri_status metrics_rewind(tri_job *job, int64_t step)
{
    return job->output.metrics ? tri_metrics_rewind(job->output.metrics, step) : TRI_OK;
}

static void metrics_flush(tri_job *job)
{
    if (job->output.metrics && tri_metrics_flush(job->output.metrics) != TRI_OK)
        tri_log(TRI_LOG_WARN, "metrics.jsonl is not complete: %s", tri_last_error());
}

/* Writes only some steps, by the clock, where steps are so short that a line for each would cost time. */
static tri_status metrics_step(tri_job *job)
{
    double every_s = job->config.monitor.step_every_s;
    if (!job->output.metrics)
        return TRI_OK;
    if (every_s > 0) {
        metrics_state *state = job->states[TRI_FEATURE_METRICS];
        int64_t now_ns = tri_now_ns();
        bool due = state->written_ns == 0 || (double)(now_ns - state->written_ns) / 1e9 >= every_s;
        if (!due && !job->record.skipped && job->step < job->progress.steps)
            return TRI_OK;
        state->written_ns = now_ns;
    }
    return tri_metrics_write(job->output.metrics, &job->record);
}

static tri_status metrics_missed(tri_job *job)
{
    return tri_metrics_write(job->output.metrics, &job->record);
}

static void metrics_close(tri_job *job)
{
    if (tri_metrics_close(job->output.metrics) != TRI_OK)
        tri_log(TRI_LOG_WARN, "metrics.jsonl is not complete: %s", tri_last_error());
    job->output.metrics = NULL;
}

const tri_feature tri_feature_metrics = {.state_nbytes = sizeof(metrics_state),
                                         .files_open = metrics_open,
                                         .files_follow = metrics_follow,
                                         .files_lead = metrics_lead,
                                         .files_yield = metrics_yield,
                                         .files_lost = metrics_lost,
                                         .files_rewind = metrics_rewind,
                                         .files_flush = metrics_flush,
                                         .step_done = metrics_step,
                                         .step_missed = metrics_missed,
                                         .close = metrics_close};

static tri_status console_form(tri_job *job)
{
    if (!job->elastic.console || job->rank != 0 || job->output.console)
        return TRI_OK;
    TRI_TRY(tri_console_open(job->step, job->progress.steps, job->progress.steps_per_epoch, job->config.train.epochs,
                             &job->output.console));
    tri_job_initial_print(job, job->output.console);
    return TRI_OK;
}

static tri_status console_step(tri_job *job)
{
    if (job->output.console)
        tri_console_step(job->output.console, &job->record);
    return TRI_OK;
}

static void console_close(tri_job *job)
{
    tri_console_close(job->output.console);
    job->output.console = NULL;
}

const tri_feature tri_feature_console = {.form = console_form, .step_done = console_step, .close = console_close};
