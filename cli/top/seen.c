/* SPDX-License-Identifier: Apache-2.0
 *
 * seen.c: what the lines of metrics.jsonl say of a run, gathered as they come.
 */
#include <math.h>
#include <stdio.h>

#include "base/fs.h"
#include "cli/top/top.h"
#include "train/core/config.h"

static double smooth(double before, double now, bool first)
{
    return first || !isfinite(before) ? now : 0.9 * before + 0.1 * now;
}

/* In the order of the line. */
static void step_read(const tri_metrics_line *line, tri_step_record *out)
{
    out->step = tri_metrics_line_step(line);
    out->epoch = tri_metrics_line_real(line, "epoch");
    out->loss = tri_metrics_line_real(line, "loss");
    out->lr = tri_metrics_line_real(line, "lr");
    out->grad_norm = tri_metrics_line_real(line, "grad_norm");
    out->samples_per_s = tri_metrics_line_real(line, "samples_per_s");
    out->tokens_per_s = tri_metrics_line_real(line, "tokens_per_s");
    out->mfu = tri_metrics_line_real(line, "mfu");
#define PHASE_READ(name) out->name = tri_metrics_line_real(line, #name);
    TRI_PHASE_LIST(PHASE_READ)
#undef PHASE_READ
    const double sent = tri_metrics_line_real(line, "sent_bytes");
    out->sent_bytes = isfinite(sent) ? (int64_t)sent : 0;
}

static void step_seen(tri_top *top)
{
    const tri_step_record *now = &top->newest;
    tri_step_record *last = &top->last;
    const bool first = top->seen++ == 0;
    const tri_step_record before = *last;
    *last = *now;
    last->samples_per_s = smooth(before.samples_per_s, now->samples_per_s, first);
    last->mfu = smooth(before.mfu, now->mfu, first);
#define PHASE_SMOOTH(name) last->name = smooth(before.name, now->name, first);
    TRI_PHASE_LIST(PHASE_SMOOTH)
#undef PHASE_SMOOTH
    tri_spark_add(&top->loss, last->loss);
}

static void slow_seen(tri_top *top, const tri_metrics_line *line)
{
    const char *cause = tri_metrics_line_text(line, "cause");
    if (!cause)
        return;
    top->slow_rank = (int)tri_metrics_line_real(line, "rank");
    snprintf(top->slow_cause, sizeof(top->slow_cause), "%s", cause);
}

bool tri_top_seen(tri_top *top, const tri_metrics_line *line)
{
    if (!isnan(tri_metrics_line_real(line, "samples_per_s"))) {
        step_read(line, &top->newest);
        step_seen(top);
        return true;
    }
    const char *event = tri_metrics_line_text(line, "event"), *text = tri_metrics_line_text(line, "text"),
               *failed = tri_metrics_line_text(line, "checkpoint_error");
    const long long step = (long long)tri_metrics_line_step(line);
    if (!isnan(tri_metrics_line_real(line, "test_loss"))) {
        top->test_loss = tri_metrics_line_real(line, "test_loss");
        top->test_accuracy = tri_metrics_line_real(line, "test_accuracy");
        top->tested = step;
    } else if (event) {
        snprintf(top->event, sizeof(top->event), "step %lld: %s: %s", step + 1, event, text ? text : "");
        slow_seen(top, line);
    } else if (failed)
        snprintf(top->event, sizeof(top->event), "step %lld: a checkpoint could not be saved: %s", step + 1, failed);
    return false;
}

bool tri_top_planned(const char *run, int64_t *epochs, int64_t *steps)
{
    char path[1200];
    tri_config config;
    snprintf(path, sizeof(path), "%.1100s/config.yaml", run);
    if (!tri_fs_exists(path))
        return false;
    const bool loaded = tri_config_load(path, NULL, NULL, &config) == TRI_OK;
    *epochs = config.train.epochs;
    *steps = config.train.steps;
    tri_config_fini(&config);
    return loaded;
}

void tri_top_length_reckon(tri_top *top)
{
    if (!top->has_config || top->steps_reported || top->seen == 0 || !(top->last.epoch > 0))
        return;
    int64_t all = llround((double)(top->last.step + 1) / top->last.epoch * (double)top->epochs);
    if (top->steps == 0 || all < top->steps)
        top->steps = all;
    top->steps_reported = true;
}

void tri_top_length_find(tri_top *top)
{
    if (!top->has_config)
        top->has_config = tri_top_planned(top->run, &top->epochs, &top->steps);
    tri_top_length_reckon(top);
}
