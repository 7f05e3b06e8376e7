/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.c: what a run says of its steps: lines of metrics.jsonl for programs, of the console for people.
 */
#include "base/log.h"
#include "train/core/features.h"
#include "train/core/initial.h"

/* Some steps, by the clock, where so many are made that a line of each would cost time. */
static tri_status metrics_step(tri_job *job)
{
    double every_s = job->config.monitor.step_every_s;
    if (!job->metrics)
        return TRI_OK;
    if (every_s > 0) {
        int64_t now_ns = tri_now_ns();
        bool due = job->told_ns == 0 || (double)(now_ns - job->told_ns) / 1e9 >= every_s;
        if (!due && !job->record.skipped && job->step < job->steps)
            return TRI_OK;
        job->told_ns = now_ns;
    }
    return tri_metrics_write(job->metrics, &job->record);
}

static tri_status metrics_missed(tri_job *job)
{
    return tri_metrics_write(job->metrics, &job->record);
}

static void metrics_close(tri_job *job)
{
    if (tri_metrics_close(job->metrics) != TRI_OK)
        tri_log(TRI_LOG_WARN, "metrics.jsonl is not complete: %s", tri_last_error());
    job->metrics = NULL;
}

const tri_feature tri_feature_metrics = {
    .name = "metrics", .step_made = metrics_step, .step_missed = metrics_missed, .close = metrics_close};

static tri_status console_form(tri_job *job)
{
    if (!job->elastic.console || job->rank != 0 || job->console)
        return TRI_OK;
    TRI_TRY(tri_console_open(job->step, job->steps, job->steps_per_epoch, job->config.train.epochs, &job->console));
    tri_job_initial_print(job, job->console);
    return TRI_OK;
}

static tri_status console_step(tri_job *job)
{
    if (job->console)
        tri_console_step(job->console, &job->record);
    return TRI_OK;
}

static void console_close(tri_job *job)
{
    tri_console_close(job->console);
    job->console = NULL;
}

const tri_feature tri_feature_console = {
    .name = "console", .form = console_form, .step_made = console_step, .close = console_close};
