/* SPDX-License-Identifier: Apache-2.0
 *
 * show.c: monitor.tensorboard: when what is written, and by whom: rank 0 writes, the others give what it lacks.
 *
 * Nothing here touches weights, state or random numbers. A file that cannot be written is reported once, and training
 * continues.
 */
#include "train/features/show.h"
#include "train/core/features.h"

#include <stdio.h>

#include "base/log.h"
#include "base/runtime.h"
#include "train/core/step.h"
#include "train/features/observers.h"

static void lines_read(void *file, const char *lines, size_t nbytes)
{
    tri_tensorboard_lines(file, lines, nbytes);
}

static tri_status file_open(tri_job *job)
{
    char lines[1200], *folder;
    bool is_new;
    tri_job_show *show = tri_show_of(job);
    snprintf(lines, sizeof(lines), "%s/metrics.jsonl", job->output.folder);
    TRI_TRY(tri_monitor_tensorboard_folder(&job->config.monitor, job->output.folder, &folder));
    tri_status status = tri_tensorboard_open(folder, lines, job->step, &show->file, &is_new);
    tri_free(folder);
    TRI_TRY_IN(status, "while opening the event file of monitor.tensorboard");
    tri_metrics_reader_set(job->output.metrics, lines_read, show->file);
    if (is_new)
        TRI_TRY(tri_show_head_write(job));
    return is_new || job->elastic.number <= 1 ? tri_show_texts_write(job) : TRI_OK;
}

static tri_status form(tri_job *job)
{
    if (!tri_monitor_tensorboard_is_on(&job->config.monitor) || tri_job_follows(job))
        return TRI_OK;
    tri_job_show *show = tri_show_of(job);
    if (!show) {
        show = job->states[TRI_FEATURE_TENSORBOARD] = tri_alloc_zero(1, sizeof(*show));
        if (!show)
            return TRI_ENOMEM;
        TRI_TRY(tri_show_counts_open(job));
        TRI_TRY(tri_show_pictures_open(job));
    }
    return job->output.metrics && job->rank == 0 && !show->file ? file_open(job) : TRI_OK;
}

static void files_yield(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    if (!show || !show->file)
        return;
    if (job->output.metrics)
        tri_metrics_reader_set(job->output.metrics, NULL, NULL);
    tri_tensorboard_close(show->file);
    show->file = NULL;
}

/* The metrics are closed: all lines were read. */
static void show_close(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    if (!show)
        return;
    if (show->file) {
        tri_summary_session_end(&show->body, job->step >= job->progress.steps, (double)tri_wall_ns() / 1e9);
        tri_tensorboard_write(show->file, TRI_EVENT_MODEL, job->step, &show->body);
        tri_tensorboard_close(show->file);
    }
    tri_free(show->gradients);
    tri_free(show->weights);
    tri_free(show->threads);
    tri_free(show->samples.inputs);
    tri_free(show->samples.logits);
    tri_free(show->samples.targets);
    tri_string_fini(&show->body.out);
    tri_free(show);
    job->states[TRI_FEATURE_TENSORBOARD] = NULL;
}

static bool is_due(const tri_job *job, int64_t every)
{
    return every > 0 && tri_job_is_due(job, every);
}

static bool show_is_due(const tri_job *job)
{
    const tri_monitor_config *config = &job->config.monitor;
    return tri_show_of(job) && (is_due(job, config->histogram_every) || is_due(job, config->image_every));
}

static tri_status show_write(tri_job *job)
{
    const tri_monitor_config *config = &job->config.monitor;
    tri_job_show *show = tri_show_of(job);
    TRI_TRY(tri_job_settle(job));
    if (is_due(job, config->histogram_every))
        TRI_TRY(tri_show_counts_write(job));
    if (is_due(job, config->image_every))
        TRI_TRY(tri_show_pictures_write(job));
    if (show->file && show->body.out.nbytes > 0)
        tri_tensorboard_write(show->file, TRI_EVENT_MODEL, job->step - 1, &show->body);
    return TRI_OK;
}

const tri_feature tri_feature_tensorboard = {.files_yield = files_yield,
                                             .files_lost = files_yield,
                                             .evaluated_batch = tri_show_batch,
                                             .form = form,
                                             .wants_gradients = tri_show_wants_gradients,
                                             .gradients = tri_show_gradients,
                                             .is_due = show_is_due,
                                             .run = show_write,
                                             .close = show_close};
