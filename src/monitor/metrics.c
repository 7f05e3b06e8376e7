/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c: metrics.jsonl: one object a step, appended in blocks so that a step costs no system call.
 */
#include "monitor/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/runtime.h"

#define FLUSH_NBYTES (32u << 10)
#define ROOM_NBYTES  (2 * FLUSH_NBYTES + 4096u)
#define KEPT_NBYTES  (4u << 20) /* while the disk fails */

/* Lines of a step, in this order. */
enum { LINE_EVENT, LINE_STEP, LINE_TEST, LINE_SAMPLE, LINE_KINDS };

struct tri_metrics {
    char *path;
    bool leads;       /* writes the file; else keeps the latest lines */
    tri_string lines; /* not yet in the file, or the latest */
    bool failed;      /* the latest attempt to write */
    int64_t dropped;  /* bytes of lines that could be written nowhere */
    bool shared;      /* somebody else may have taken the file over without a word */
    int64_t at;       /* its bytes, -1: not known */
    int64_t last;     /* of the newest line: step x kinds + kind; -1: none */
    int64_t flushed_ns;
    tri_metrics_reader reader; /* or NULL */
    void *reader_arg;
};

static int64_t line_number(const char *line, const char *end)
{
    static const char step[] = "\"step\":", test[] = "\"test_loss\":", sample[] = "\"sample\":";
    static const char event[] = "\"event\":";
    size_t nbytes = (size_t)(end - line);
    const char *found = memmem(line, nbytes, step, sizeof(step) - 1);
    if (!found)
        return -1;
    int kind = memmem(line, nbytes, test, sizeof(test) - 1)       ? LINE_TEST
               : memmem(line, nbytes, sample, sizeof(sample) - 1) ? LINE_SAMPLE
               : memmem(line, nbytes, event, sizeof(event) - 1)   ? LINE_EVENT
                                                                  : LINE_STEP;
    return strtoll(found + sizeof(step) - 1, NULL, 10) * LINE_KINDS + kind;
}

/* Keeps the lines of an earlier run up to first_step: a resumed run writes the others again. That of a save comes when
 * it has ended, among those of later steps. *last: the highest number of those kept, and how many have it: a step has
 * any number of events. Of a full disk *unwritten gets those that find no room any more. */
static tri_status drop_later_lines(const char *path, int64_t first_step, int64_t *last, int *count,
                                   tri_string *unwritten)
{
    char *text;
    size_t nbytes;
    *last = -1;
    *count = 0;
    if (!tri_fs_exists(path))
        return TRI_OK;
    TRI_TRY(tri_fs_read(path, 0, &text, &nbytes));
    size_t first = 0, kept = 0; /* bytes before the first line that goes, and those that stay, which move up */
    bool all = true;
    for (char *line = text, *end; (end = memchr(line, '\n', (size_t)(text + nbytes - line))); line = end + 1) {
        int64_t number = line_number(line, end);
        size_t length = (size_t)(end + 1 - line);
        if (number < 0)
            break;
        all = all && number / LINE_KINDS < first_step;
        if (number / LINE_KINDS >= first_step)
            continue;
        *count = number > *last ? 1 : *count + (number == *last);
        *last = number > *last ? number : *last;
        memmove(text + kept, line, length);
        kept += length;
        first = all ? kept : first;
    }
    tri_status status = first < nbytes ? tri_fs_cut(path, first) : TRI_OK;
    if (status == TRI_OK && kept > first)
        status = tri_fs_append(path, text + first, kept - first);
    if (status == TRI_EIO && kept > first) {
        tri_log(TRI_LOG_WARN, "%s; lines of earlier steps are kept", tri_last_error());
        status = tri_fs_cut(path, first);
        if (status == TRI_OK)
            status = tri_string_append_bytes(unwritten, text + first, kept - first);
    }
    tri_free(text);
    return status;
}

tri_status tri_metrics_follow(const char *path, tri_metrics **out)
{
    tri_metrics *metrics = tri_alloc_zero(1, sizeof(*metrics));
    if (!metrics)
        return TRI_ENOMEM;
    metrics->path = tri_strdup(path);
    tri_status status = metrics->path ? tri_string_reserve(&metrics->lines, ROOM_NBYTES) : TRI_ENOMEM;
    if (status != TRI_OK) {
        tri_string_fini(&metrics->lines);
        tri_free(metrics->path);
        tri_free(metrics);
        return status;
    }
    metrics->last = metrics->at = -1;
    metrics->shared = true;
    *out = metrics;
    return TRI_OK;
}

/* Half of the room is more than what whoever leads has not written yet. */
static void lines_thin(tri_string *lines)
{
    char *half = memchr(lines->text + lines->nbytes / 2, '\n', lines->nbytes - lines->nbytes / 2);
    size_t dropped = half ? (size_t)(half + 1 - lines->text) : lines->nbytes;
    lines->nbytes -= dropped;
    memmove(lines->text, lines->text + dropped, lines->nbytes + 1);
}

/* A disk that fails ends no run: lines are kept for a better time, as many as there is room for. */
static tri_status flush(tri_metrics *metrics)
{
    if (metrics->lines.nbytes == 0)
        return TRI_OK;
    if (!metrics->shared)
        metrics->at = -1;
    tri_status status = tri_fs_append_at(metrics->path, metrics->lines.text, metrics->lines.nbytes, &metrics->at);
    metrics->flushed_ns = tri_now_ns();
    if (status == TRI_EIO) {
        if (!metrics->failed)
            tri_log(TRI_LOG_WARN, "%s; training continues, and the newest lines are kept", tri_last_error());
        metrics->failed = true;
        metrics->dropped += (int64_t)metrics->lines.nbytes;
        if (metrics->lines.nbytes >= KEPT_NBYTES)
            lines_thin(&metrics->lines);
        metrics->dropped -= (int64_t)metrics->lines.nbytes;
        return TRI_OK;
    }
    if (metrics->failed && status == TRI_OK)
        tri_log(metrics->dropped ? TRI_LOG_WARN : TRI_LOG_INFO, "%s is written again; %lld bytes of lines are missing",
                metrics->path, (long long)metrics->dropped);
    metrics->failed = false;
    metrics->dropped = 0;
    if (status == TRI_EMISMATCH) { /* this process was stopped for a while */
        metrics->leads = false;
        status = TRI_OK;
    } else if (status == TRI_OK && metrics->reader)
        metrics->reader(metrics->reader_arg, metrics->lines.text, metrics->lines.nbytes);
    tri_string_clear(&metrics->lines);
    return status;
}

/* Lines up to number `last` go, and `count` that have it. */
static void lines_drop(tri_string *lines, int64_t last, int count)
{
    char *line = lines->text, *stop = lines->text + lines->nbytes, *end;
    while (line < stop && (end = memchr(line, '\n', (size_t)(stop - line)))) {
        int64_t number = line_number(line, end);
        if (number > last || (number == last && count-- == 0))
            break;
        line = end + 1;
    }
    lines->nbytes = (size_t)(stop - line);
    memmove(lines->text, line, lines->nbytes + 1);
}

static tri_status lines_put_first(tri_string *lines, const tri_string *first)
{
    if (first->nbytes == 0)
        return TRI_OK;
    TRI_TRY(tri_string_reserve(lines, first->nbytes));
    memmove(lines->text + first->nbytes, lines->text, lines->nbytes + 1);
    memcpy(lines->text, first->text, first->nbytes);
    lines->nbytes += first->nbytes;
    return TRI_OK;
}

tri_status tri_metrics_lead(tri_metrics *metrics, int64_t first_step)
{
    tri_string unwritten = {0};
    int64_t last;
    int count;
    if (metrics->leads)
        return flush(metrics);
    tri_status status = drop_later_lines(metrics->path, first_step, &last, &count, &unwritten);
    if (status == TRI_OK) {
        lines_drop(&metrics->lines, last, count);
        status = lines_put_first(&metrics->lines, &unwritten);
    }
    tri_string_fini(&unwritten);
    TRI_TRY(status);
    metrics->last = last > metrics->last ? last : metrics->last;
    metrics->leads = true;
    metrics->at = -1;
    if (metrics->lines.nbytes == 0) /* so that it is known how long the file is */
        return metrics->shared ? tri_fs_append_at(metrics->path, "", 0, &metrics->at) : TRI_OK;
    return flush(metrics);
}

tri_status tri_metrics_flush(tri_metrics *metrics)
{
    return metrics->leads ? flush(metrics) : TRI_OK;
}

tri_status tri_metrics_rewind(tri_metrics *metrics, int64_t step)
{
    tri_string *lines = &metrics->lines;
    tri_status status = tri_metrics_flush(metrics);
    char *line = lines->text, *stop = lines->text + lines->nbytes, *end;
    while (line < stop && (end = memchr(line, '\n', (size_t)(stop - line))) &&
           line_number(line, end) < step * LINE_KINDS)
        line = end + 1;
    lines->nbytes = (size_t)(line - lines->text);
    lines->text[lines->nbytes] = 0;
    metrics->leads = false;
    metrics->last = metrics->last < step * LINE_KINDS ? metrics->last : step * LINE_KINDS - 1;
    return status;
}

void tri_metrics_drop_lead(tri_metrics *metrics)
{
    metrics->leads = false;
}

void tri_metrics_yield(tri_metrics *metrics)
{
    if (!metrics->leads)
        return;
    if (flush(metrics) != TRI_OK)
        tri_log(TRI_LOG_WARN, "metrics.jsonl is not complete: %s", tri_last_error());
    tri_string_clear(&metrics->lines);
    metrics->leads = false;
}

tri_status tri_metrics_has_steps(const char *path, bool *has)
{
    enum { FIRST_LINES_NBYTES = 256 << 10 }; /* events may come before the first step */
    static const char step[] = "\"epoch\":";
    char *text = tri_alloc(FIRST_LINES_NBYTES);
    size_t nbytes = 0;
    if (!text)
        return TRI_ENOMEM;
    tri_status status = tri_fs_read_part(path, 0, text, FIRST_LINES_NBYTES, &nbytes);
    *has = status == TRI_OK && memmem(text, nbytes, step, sizeof(step) - 1);
    tri_free(text);
    return status == TRI_ENOTFOUND ? TRI_OK : status;
}

tri_status tri_metrics_open(const char *path, int64_t first_step, tri_metrics **out)
{
    TRI_TRY(tri_metrics_follow(path, out));
    (*out)->shared = false;
    tri_status status = tri_metrics_lead(*out, first_step);
    if (status != TRI_OK) {
        tri_metrics_close(*out);
        *out = NULL;
    }
    return status;
}

void tri_metrics_reader_set(tri_metrics *metrics, tri_metrics_reader reader, void *arg)
{
    metrics->reader = reader;
    metrics->reader_arg = arg;
}

/* A step that is done again has its lines already. */
static bool is_new(tri_metrics *metrics, int64_t step, int kind)
{
    int64_t number = step * LINE_KINDS + kind;
    bool is = number > metrics->last;
    metrics->last = is ? number : metrics->last;
    return is;
}

static tri_status line_end(tri_metrics *metrics, tri_json *json)
{
    TRI_TRY(tri_json_end(json));
    TRI_TRY(tri_string_append(&metrics->lines, "\n"));
    if (!metrics->leads) {
        if (metrics->lines.nbytes >= 2 * FLUSH_NBYTES)
            lines_thin(&metrics->lines);
        return TRI_OK;
    }
    bool room = metrics->lines.nbytes < (metrics->failed ? KEPT_NBYTES : FLUSH_NBYTES);
    return room && tri_now_ns() - metrics->flushed_ns < TRI_NS_PER_S ? TRI_OK : flush(metrics);
}

tri_status tri_metrics_write(tri_metrics *metrics, const tri_step_record *record)
{
    if (!is_new(metrics, record->step, LINE_STEP))
        return TRI_OK;
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

tri_status tri_metrics_write_test(tri_metrics *metrics, int64_t step, const tri_test_record *record)
{
    if (!is_new(metrics, step, LINE_TEST))
        return TRI_OK;
    tri_json json = tri_json_object(&metrics->lines);
    tri_json_int(&json, "step", step);
    tri_json_real(&json, "test_loss", record->loss);
    tri_json_real(&json, "test_accuracy", record->accuracy);
    tri_json_real(&json, "test_perplexity", record->perplexity);
    if (!isnan(record->mae))
        tri_json_real(&json, "test_mae", record->mae);
    if (!isnan(record->r2))
        tri_json_real(&json, "test_r2", record->r2);
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
    if (!is_new(metrics, step, LINE_SAMPLE))
        return TRI_OK;
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

tri_status tri_metrics_write_slow(tri_metrics *metrics, int64_t step, int rank, const char *cause, double share,
                                  const char *text)
{
    tri_json json = tri_json_object(&metrics->lines);
    tri_json_int(&json, "step", step);
    tri_json_text(&json, "event", "slow");
    tri_json_text(&json, "text", text);
    tri_json_int(&json, "rank", rank);
    tri_json_text(&json, "cause", cause);
    tri_json_real(&json, "share", share);
    return line_end(metrics, &json);
}

tri_status tri_metrics_write_head(tri_metrics *metrics, int64_t step, const char *trace_id, const char *span_id)
{
    if (metrics->last >= 0 || metrics->lines.nbytes > 0)
        return TRI_OK;
    tri_json json = tri_json_object(&metrics->lines);
    tri_json_int(&json, "step", step);
    tri_json_text(&json, "event", "run");
    tri_json_text(&json, "text", "trireme " TRI_VERSION);
    tri_json_text(&json, "trace_id", trace_id);
    tri_json_text(&json, "span_id", span_id);
    return line_end(metrics, &json);
}

tri_status tri_metrics_close(tri_metrics *metrics)
{
    if (!metrics)
        return TRI_OK;
    tri_status status = metrics->leads ? flush(metrics) : TRI_OK;
    if (status == TRI_OK && metrics->failed && metrics->leads)
        status = tri_fail(TRI_EIO, "%s: its last lines could not be written", metrics->path);
    tri_string_fini(&metrics->lines);
    tri_free(metrics->path);
    tri_free(metrics);
    return status;
}
