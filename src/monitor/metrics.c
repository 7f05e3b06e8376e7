/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c: metrics.jsonl: one object a step, appended in blocks so that a step costs no system call.
 */
#include "monitor/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/runtime.h"

#define FLUSH_NBYTES (32u << 10)
#define ROOM_NBYTES  (FLUSH_NBYTES + 4096u)

struct tri_metrics {
    char *path;
    tri_string lines;
    int64_t flushed_ns;
};

/* Keeps the lines of an earlier run up to first_step: a resumed run writes the others again. */
static tri_status drop_later_lines(const char *path, int64_t first_step)
{
    char *text;
    size_t nbytes;
    if (!tri_fs_exists(path))
        return TRI_OK;
    TRI_TRY(tri_fs_read(path, 0, &text, &nbytes));
    size_t kept = 0;
    for (char *line = text; line < text + nbytes;) {
        char *end = memchr(line, '\n', (size_t)(text + nbytes - line));
        const char *step = strstr(line, "\"step\":");
        if (!end || !step || step > end || strtoll(step + strlen("\"step\":"), NULL, 10) >= first_step)
            break;
        kept = (size_t)(end + 1 - text);
        line = end + 1;
    }
    tri_status status = tri_fs_write_atomic(path, text, kept);
    tri_free(text);
    return status;
}

tri_status tri_metrics_open(const char *path, int64_t first_step, tri_metrics **out)
{
    tri_metrics *metrics = tri_alloc_zero(1, sizeof(*metrics));
    if (!metrics)
        return TRI_ENOMEM;
    metrics->path = tri_strdup(path);
    char *room = tri_alloc_zero(1, ROOM_NBYTES);
    tri_status status = metrics->path && room ? drop_later_lines(path, first_step) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_string_append_bytes(&metrics->lines, room, ROOM_NBYTES); /* the room, taken once */
    tri_free(room);
    if (status != TRI_OK) {
        tri_string_fini(&metrics->lines);
        tri_free(metrics->path);
        tri_free(metrics);
        return status;
    }
    tri_string_clear(&metrics->lines);
    metrics->flushed_ns = tri_now_ns();
    *out = metrics;
    return TRI_OK;
}

static tri_status flush(tri_metrics *metrics)
{
    if (metrics->lines.nbytes == 0)
        return TRI_OK;
    tri_status status = tri_fs_append(metrics->path, metrics->lines.text, metrics->lines.nbytes);
    tri_string_clear(&metrics->lines);
    metrics->flushed_ns = tri_now_ns();
    return status;
}

static tri_status line_end(tri_metrics *metrics, tri_json *json)
{
    TRI_TRY(tri_json_end(json));
    TRI_TRY(tri_string_append(&metrics->lines, "\n"));
    if (metrics->lines.nbytes < FLUSH_NBYTES && tri_now_ns() - metrics->flushed_ns < TRI_NS_PER_S)
        return TRI_OK;
    return flush(metrics);
}

tri_status tri_metrics_write(tri_metrics *metrics, const tri_step_record *record)
{
    tri_json json = tri_json_object(&metrics->lines);
    tri_json_int(&json, "step", record->step);
    tri_json_real(&json, "epoch", record->epoch);
    tri_json_real(&json, "loss", record->loss);
    tri_json_real(&json, "lr", record->lr);
    tri_json_real(&json, "grad_norm", record->grad_norm);
    tri_json_real(&json, "loss_scale", record->loss_scale);
    tri_json_bool(&json, "skipped", record->skipped);
    tri_json_real(&json, "samples_per_s", record->samples_per_s);
    tri_json_real(&json, "tokens_per_s", record->tokens_per_s);
    tri_json_real(&json, "mfu", record->mfu);
#define PHASE_WRITE(name) tri_json_real(&json, #name, record->name);
    TRI_PHASE_LIST(PHASE_WRITE)
#undef PHASE_WRITE
    tri_json_int(&json, "sent_bytes", record->sent_bytes);
    return line_end(metrics, &json);
}

tri_status tri_metrics_write_test(tri_metrics *metrics, int64_t step, double loss, double accuracy, double perplexity)
{
    tri_json json = tri_json_object(&metrics->lines);
    tri_json_int(&json, "step", step);
    tri_json_real(&json, "test_loss", loss);
    tri_json_real(&json, "test_accuracy", accuracy);
    tri_json_real(&json, "test_perplexity", perplexity);
    return line_end(metrics, &json);
}

tri_status tri_metrics_write_save(tri_metrics *metrics, const tri_save_record *record)
{
    tri_json json = tri_json_object(&metrics->lines);
    tri_json_int(&json, "step", record->step);
    tri_json_text(&json, "checkpoint", record->folder);
    tri_json_int(&json, "checkpoint_bytes", record->nbytes);
    tri_json_real(&json, "checkpoint_paused", record->paused_s);
    tri_json_real(&json, "checkpoint_took", record->took_s);
    tri_json_int(&json, "checkpoint_failures", record->failed);
    if (record->error)
        tri_json_text(&json, "checkpoint_error", record->error);
    return line_end(metrics, &json);
}

tri_status tri_metrics_write_sample(tri_metrics *metrics, int64_t step, const char *prompt, const char *text)
{
    tri_json json = tri_json_object(&metrics->lines);
    tri_json_int(&json, "step", step);
    tri_json_text(&json, "sample_prompt", prompt);
    tri_json_text(&json, "sample", text);
    return line_end(metrics, &json);
}

tri_status tri_metrics_write_event(tri_metrics *metrics, int64_t step, const char *event, const char *text)
{
    tri_json json = tri_json_object(&metrics->lines);
    tri_json_int(&json, "step", step);
    tri_json_text(&json, "event", event);
    tri_json_text(&json, "text", text);
    return line_end(metrics, &json);
}

tri_status tri_metrics_close(tri_metrics *metrics)
{
    if (!metrics)
        return TRI_OK;
    tri_status status = flush(metrics);
    tri_string_fini(&metrics->lines);
    tri_free(metrics->path);
    tri_free(metrics);
    return status;
}
