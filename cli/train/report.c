/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c: progress for Kubeflow's Trainer (its KEP-2779): a thread reads the run's lines as `trireme top` does,
 * and posts how far it is. Training is neither asked nor slowed, and does not notice when nobody listens.
 *
 * The controller (feature gate TrainJobStatus) gives each pod the address, a file of who signs its certificate and a
 * file with a token; it shows what it gets as status.trainerStatus of the TrainJob.
 */
#include "cli/train/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "cli/top/top.h"
#include "cluster/environment.h"
#include "monitor/post.h"

#define PREFIX   "KUBEFLOW_TRAINER_SERVER_"
#define LIMIT_MS 5000

struct tri_train_report {
    tri_top top;
    tri_post_place place;
    int64_t every_ns;
    int64_t reported; /* steps seen, by the last report */
    bool failed;
    tri_mutex mutex;
    tri_cond ends;
    bool ended;
    tri_thread *thread;
};

static void metric_add(tri_json *list, const char *name, double value)
{
    char text[32];
    if (!isfinite(value))
        return;
    snprintf(text, sizeof(text), "%.8g", value);
    tri_json one = tri_json_object_in(list, NULL);
    tri_json_text(&one, "name", name);
    tri_json_text(&one, "value", text); /* as texts, which the interface needs */
    (void)tri_json_end(&one);
}

static tri_status body_make(const tri_top *top, tri_string *out)
{
    const tri_step_record *last = &top->last;
    char now[TRI_LOG_TIME_NBYTES];
    tri_json json = tri_json_object(out), status = tri_json_object_in(&json, "trainerStatus");
    if (top->steps > 0) {
        const int64_t done = last->step + 1 < top->steps ? last->step + 1 : top->steps;
        const double left_s = tri_top_left_s(top);
        tri_json_int(&status, "progressPercentage", 100 * done / top->steps);
        tri_json_int(&status, "estimatedRemainingSeconds", left_s < INT32_MAX ? (int64_t)ceil(left_s) : INT32_MAX);
    }
    tri_json list = tri_json_array_in(&status, "metrics");
    metric_add(&list, "step", (double)(last->step + 1));
    metric_add(&list, "epoch", last->epoch);
    metric_add(&list, "loss", last->loss);
    metric_add(&list, "learning_rate", last->lr);
    metric_add(&list, "samples_per_second", last->samples_per_s);
    metric_add(&list, "test_loss", top->tested >= 0 ? top->test_loss : (double)NAN);
    metric_add(&list, "test_accuracy", top->tested >= 0 ? top->test_accuracy : (double)NAN);
    (void)tri_json_end(&list);
    tri_log_time_print(tri_wall_ns(), now);
    tri_json_text(&status, "lastUpdatedTime", now);
    (void)tri_json_end(&status);
    return tri_json_end(&json);
}

static void line_seen(void *top, const tri_metrics_line *line)
{
    tri_top_seen(top, line);
}

static tri_status look_and_tell(tri_train_report *report)
{
    tri_string body = {0};
    TRI_TRY(tri_metrics_read(&report->top.reader, line_seen, &report->top));
    tri_top_length_find(&report->top);
    if (report->top.seen == report->reported)
        return TRI_OK;
    tri_status status = body_make(&report->top, &body);
    if (status == TRI_OK)
        status = tri_post_json(&report->place, tri_string_text(&body), LIMIT_MS);
    if (status == TRI_OK)
        report->reported = report->top.seen;
    tri_string_fini(&body);
    return status;
}

/* A failure is reported once, until it is over. */
static void turn(tri_train_report *report)
{
    tri_status status = look_and_tell(report);
    if (status != TRI_OK && !report->failed)
        tri_log(TRI_LOG_WARN, "the progress of this run is not reported: %s", tri_last_error());
    else if (status == TRI_OK && report->failed)
        tri_log(TRI_LOG_INFO, "the progress of this run is reported again");
    report->failed = status != TRI_OK;
}

static void body(void *arg)
{
    tri_train_report *report = arg;
    for (bool ended = false; !ended;) {
        const int64_t until_ns = tri_now_ns() + report->every_ns;
        tri_mutex_lock(&report->mutex);
        while (!report->ended && tri_cond_wait(&report->ends, &report->mutex, until_ns))
            continue;
        ended = report->ended;
        tri_mutex_unlock(&report->mutex);
        turn(report);
    }
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

tri_status tri_train_report_start(const char *folder, double every_s, tri_train_report **out)
{
    const tri_post_place place = {variable(PREFIX "URL"), variable(PREFIX "CA_CERT"), variable(PREFIX "TOKEN")};
    tri_cluster_place self;
    *out = NULL;
    if (!place.url[0] || every_s <= 0 || tri_cluster_detect(NULL, NULL, &self) != TRI_OK || self.rank != 0)
        return TRI_OK; /* a wrong environment is reported by tri_worker_join() */
    tri_train_report *report = tri_alloc_zero(1, sizeof(*report));
    if (!report)
        return TRI_ENOMEM;
    report->place = place;
    report->every_ns = (int64_t)(every_s * 1e9);
    report->top.tested = -1;
    snprintf(report->top.run, sizeof(report->top.run), "%s", folder);
    snprintf(report->top.reader.path, sizeof(report->top.reader.path), "%.1100s/metrics.jsonl", folder);
    tri_mutex_init(&report->mutex);
    tri_cond_init(&report->ends);
    tri_status status = tri_thread_start(&report->thread, "report", body, report);
    if (status == TRI_OK)
        *out = report;
    else
        tri_train_report_end(report);
    return status;
}

void tri_train_report_end(tri_train_report *report)
{
    if (!report)
        return;
    tri_mutex_lock(&report->mutex);
    report->ended = true;
    tri_cond_signal(&report->ends);
    tri_mutex_unlock(&report->mutex);
    if (report->thread)
        tri_thread_join(report->thread);
    tri_cond_fini(&report->ends);
    tri_mutex_fini(&report->mutex);
    tri_free(report);
}
