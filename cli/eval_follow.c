/* SPDX-License-Identifier: Apache-2.0
 *
 * eval_follow.c: looks into the folder of a run now and then, and evaluates what is new there.
 *
 * The run knows nothing of it. A checkpoint may be removed while it is read (checkpoint.keep): then a newer one is
 * there.
 */
#include "cli/eval_follow.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "monitor/metrics.h"
#include "train/checkpointing/resume.h"
#include "train/core/build.h"
#include "train/core/evaluate.h"
#include "train/core/trained.h"

#define LOOK_EVERY_NS (200 * TRI_NS_PER_MS)

typedef struct follow {
    const char *run;
    double patience_s;
    int64_t since_ns;  /* nothing new since then */
    int64_t last_step; /* after which the run ends */
    tri_trained trained;
    tri_job *job; /* NULL: there was no checkpoint yet */
} follow;

/* Somewhat later, unless that is too late. */
static tri_status pause(const follow *at)
{
    if (tri_stop_signal())
        return tri_fail(TRI_ECANCELED, "stopped by a signal");
    if ((double)(tri_now_ns() - at->since_ns) / 1e9 < at->patience_s) {
        tri_sleep_ns(LOOK_EVERY_NS);
        return TRI_OK;
    }
    if (!tri_fs_is_folder(at->run))
        return tri_fail(TRI_ETIMEOUT,
                        "%s: there is no such folder after %g s (--patience): who follows a run needs the file system "
                        "that its first worker writes to, and the same --out",
                        at->run, at->patience_s);
    return tri_fail(TRI_ETIMEOUT, "%s: no new checkpoint in %g s (--patience; checkpoint.every_steps says how often)",
                    at->run, at->patience_s);
}

/* The first checkpoint makes the job. */
static tri_status job_open(follow *at, const char *const *overrides)
{
    tri_trained_setup setup = {.trained = &at->trained, .overrides = overrides};
    TRI_TRY(tri_trained_open(&setup, &at->job));
    TRI_TRY_IN(tri_job_open_evaluation(at->job, tri_job_evaluated_part(at->job)), "while opening the data to evaluate");
    /* The last step is known from the training data, whose samples are counted and not read. */
    tri_dataset *dataset;
    const tri_train_config *train = &at->job->config.train;
    tri_sampler sampler = at->job->data.sampler;
    TRI_TRY_IN(tri_dataset_open(&at->job->config.data, TRI_PART_TRAIN, &dataset),
               "while counting the steps of the run");
    sampler.count = dataset->info.count;
    tri_dataset_close(dataset);
    at->last_step = train->epochs * tri_sampler_steps(&sampler);
    if (train->steps > 0 && train->steps < at->last_step)
        at->last_step = train->steps;
    return TRI_OK;
}

static tri_status tell(const follow *at)
{
    const tri_job_test *test = &at->job->test;
    char path[1300];
    tri_metrics *metrics;
    snprintf(path, sizeof(path), "%s/evaluator.jsonl", at->run);
    TRI_TRY(tri_metrics_open(path, at->job->step - 1, &metrics));
    const tri_test_record record = {test->loss, test->accuracy, test->perplexity, test->mae, test->r2};
    tri_status status = tri_metrics_write_test(metrics, at->job->step - 1, &record);
    tri_status closed = tri_metrics_close(metrics);
    TRI_TRY(status != TRI_OK ? status : closed);
    const char *const part = tri_data_part_name(test->part);
    printf("step %" PRId64 " of %" PRId64 "  %s loss %.4f", at->job->step, at->last_step, part, test->loss);
    if (!isnan(test->accuracy))
        printf("  %s accuracy %.4f", part, test->accuracy);
    if (!isnan(test->perplexity))
        printf("  %s perplexity %.4g", part, test->perplexity);
    puts("");
    fflush(stdout);
    return TRI_OK;
}

/* What is there, if it is new. */
static tri_status look(follow *at, const char *config, const char *const *overrides, bool *fresh)
{
    tri_trained found;
    *fresh = false;
    tri_status status = tri_trained_find(at->run, config, &found);
    if (status != TRI_OK || strcmp(found.checkpoint, at->trained.checkpoint) == 0)
        return status;
    at->trained = found;
    status = at->job ? tri_job_load_weights(at->job, found.checkpoint) : job_open(at, overrides);
    if (status != TRI_OK && !tri_fs_exists(found.checkpoint)) { /* removed meanwhile */
        at->trained = (tri_trained){0};
        return TRI_ENOTFOUND;
    }
    *fresh = status == TRI_OK;
    return status;
}

static tri_status run_follow(follow *at, const char *config, const char *const *overrides)
{
    while (!at->job || at->job->step < at->last_step) {
        bool fresh;
        tri_status status = look(at, config, overrides, &fresh);
        if (status != TRI_OK && status != TRI_ENOTFOUND)
            return status;
        if (!fresh) {
            TRI_TRY(pause(at));
            continue;
        }
        TRI_TRY(tri_job_evaluate(at->job));
        TRI_TRY(tell(at));
        at->since_ns = tri_now_ns();
    }
    return TRI_OK;
}

tri_status tri_eval_follow(const char *run, const char *config, const char *const *overrides, double patience_s)
{
    follow at = {.run = run, .patience_s = patience_s, .since_ns = tri_now_ns()};
    char message[TRI_ERROR_NBYTES];
    if (strlen(run) >= 1000)
        return tri_fail(TRI_EINVAL, "%.40s...: want a path of at most 999 bytes", run);
    tri_status status = run_follow(&at, config, overrides);
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_job_close(at.job);
    return status == TRI_OK ? TRI_OK : tri_fail_copy(status, message);
}
