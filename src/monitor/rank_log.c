/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_log.c: sums since the last line, and a line.
 */
#include "monitor/rank_log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/containers.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/runtime.h"
#include "device/cuda/nvml.h"
#include "device/device.h"

#define FOLDER      "ranks"
#define ROOM_NBYTES 16384u
#define SERVER      "server"

struct tri_rank_log {
    char path[1300];
    int64_t every_ns, written_ns;
    tri_step_record sum; /* phases since the last line; the rest is the last step's */
    int64_t steps;       /* since the last line */
    uint64_t sent, received;
    uint64_t served[TRI_COUNTER_COUNT]; /* a server's, by counter: as they were in the last line */
    bool has_served;                    /* it has lines of a server */
    tri_rank_place place;
    tri_string line;
    bool failed;
};

tri_status tri_rank_log_open(const char *folder, int rank, int64_t every_s, int64_t first_step, tri_rank_log **out)
{
    char path[1300];
    tri_rank_log *log = tri_alloc_zero(1, sizeof(*log));
    if (!log)
        return TRI_ENOMEM;
    snprintf(path, sizeof(path), "%.1200s/" FOLDER, folder);
    snprintf(log->path, sizeof(log->path), "%.1200s/rank-%d.jsonl", path, rank);
    log->every_ns = every_s * TRI_NS_PER_S;
    log->sent = tri_counter_now(TRI_COUNT_SENT_NBYTES);
    log->received = tri_counter_now(TRI_COUNT_RECEIVED_NBYTES);
    tri_status status = tri_fs_make_folder(path);
    if (status == TRI_OK && first_step == 0)
        status = tri_fs_remove(log->path);
    if (status == TRI_OK)
        status = tri_string_reserve(&log->line, ROOM_NBYTES);
    if (status == TRI_OK) {
        *out = log;
        return TRI_OK;
    }
    tri_string_fini(&log->line);
    tri_free(log);
    return status;
}

tri_status tri_rank_log_visit(const char *folder, tri_status (*visit)(void *arg, int rank, const char *path), void *arg)
{
    char path[1300], **names;
    size_t count;
    snprintf(path, sizeof(path), "%.1200s/" FOLDER, folder);
    if (!tri_fs_is_folder(path))
        return TRI_OK;
    TRI_TRY(tri_fs_list(path, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        int number, length = 0;
        if (sscanf(names[i], "rank-%d.jsonl%n", &number, &length) != 1 || length == 0 || names[i][length] ||
            number < 0 || number >= TRI_RANK_LOG_RANKS)
            continue;
        snprintf(path, sizeof(path), "%.1200s/" FOLDER "/rank-%d.jsonl", folder, number);
        status = visit(arg, number, path);
    }
    tri_fs_list_free(names, count);
    return status;
}

/* What is known of the card that this process computes on. */
static void card_write(tri_json *json)
{
    const tri_device_memory own = tri_device_memory_now();
    tri_card_figures card;
    if (own.peak > 0) {
        tri_json_int(json, "gpu_own_memory_bytes", (int64_t)own.live);
        tri_json_int(json, "gpu_own_memory_peak_bytes", (int64_t)own.peak);
    }
    if (own.planned > 0)
        tri_json_int(json, "gpu_own_memory_planned_bytes", (int64_t)own.planned);
    if (!tri_card_figures_now(&card))
        return;
#define CARD_WRITE(name, type, help)                                                                                   \
    if (!isnan(card.name))                                                                                             \
        tri_json_real(json, "gpu_" #name, card.name);
    TRI_CARD_LIST(CARD_WRITE)
#undef CARD_WRITE
}

static tri_status line_make(tri_rank_log *log)
{
    const uint64_t sent = tri_counter_now(TRI_COUNT_SENT_NBYTES), received = tri_counter_now(TRI_COUNT_RECEIVED_NBYTES);
    const tri_step_record *sum = &log->sum;
    tri_string_clear(&log->line);
    tri_json json = tri_json_object(&log->line);
    tri_json_int(&json, "step", sum->step);
    tri_json_real(&json, "time", (double)(tri_wall_ns() / TRI_NS_PER_MS) / 1e3);
    tri_json_int(&json, "generation", log->place.generation);
    tri_json_int(&json, "world", log->place.world);
    tri_json_int(&json, "steps", log->steps);
#define PHASE_WRITE(name) tri_json_real(&json, #name, sum->name);
    TRI_PHASE_LIST(PHASE_WRITE)
#undef PHASE_WRITE
    tri_json_int(&json, "memory_bytes", (int64_t)tri_memory_now().live_nbytes);
    card_write(&json);
    tri_json_int(&json, "sent_bytes", (int64_t)(sent - log->sent));
    tri_json_int(&json, "received_bytes", (int64_t)(received - log->received));
    for (int peer = 0; log->place.sent_to && peer < log->place.world; peer++) {
        const uint64_t nbytes = log->place.sent_to(log->place.arg, peer);
        char key[24];
        snprintf(key, sizeof(key), "to_%d", peer);
        if (nbytes > 0)
            tri_json_int(&json, key, (int64_t)nbytes);
    }
    log->sent = sent;
    log->received = received;
    TRI_TRY(tri_json_end(&json));
    return tri_string_append(&log->line, "\n");
}

static void line_append(tri_rank_log *log, tri_status status)
{
    if (status == TRI_OK)
        status = tri_fs_append(log->path, log->line.text, log->line.nbytes);
    if (status != TRI_OK && !log->failed)
        tri_log(TRI_LOG_WARN, "what this rank does is not noted: %s", tri_last_error());
    log->failed = status != TRI_OK;
}

static void line_write(tri_rank_log *log)
{
    line_append(log, line_make(log));
    log->sum = (tri_step_record){.step = log->sum.step};
    log->steps = 0;
}

void tri_rank_log_step(tri_rank_log *log, const tri_step_record *record, bool last, const tri_rank_place *place)
{
    const int64_t now_ns = tri_now_ns();
#define PHASE_ADD(name) log->sum.name += record->name;
    TRI_PHASE_LIST(PHASE_ADD)
#undef PHASE_ADD
    log->sum.step = record->step;
    log->steps++;
    log->place = *place;
    if (log->written_ns > 0 && now_ns - log->written_ns < log->every_ns && !last)
        return;
    log->written_ns = now_ns;
    line_write(log);
}

static tri_status event_make(tri_rank_log *log, int64_t step, const char *event, const char *text)
{
    tri_string_clear(&log->line);
    tri_json json = tri_json_object(&log->line);
    tri_json_int(&json, "step", step);
    tri_json_real(&json, "time", (double)(tri_wall_ns() / TRI_NS_PER_MS) / 1e3);
    tri_json_text(&json, "event", event);
    tri_json_text(&json, "text", text);
    TRI_TRY(tri_json_end(&json));
    return tri_string_append(&log->line, "\n");
}

void tri_rank_log_event(tri_rank_log *log, int64_t step, const char *event, const char *text)
{
    line_append(log, event_make(log, step, event, text));
}

/* --- a server's --- */

static tri_status served_make(tri_rank_log *log, double seconds)
{
    tri_string_clear(&log->line);
    tri_json json = tri_json_object(&log->line);
    tri_json_real(&json, "time", (double)(tri_wall_ns() / TRI_NS_PER_MS) / 1e3);
    tri_json_text(&json, "role", SERVER);
    tri_json_real(&json, "seconds", seconds);
#define SERVED_WRITE(name, counter)                                                                                    \
    tri_json_int(&json, #name, (int64_t)(tri_counter_now(counter) - log->served[counter]));                            \
    log->served[counter] = tri_counter_now(counter);
    TRI_SERVED_LIST(SERVED_WRITE)
#undef SERVED_WRITE
    tri_json_int(&json, "memory_bytes", (int64_t)tri_memory_now().live_nbytes);
    TRI_TRY(tri_json_end(&json));
    return tri_string_append(&log->line, "\n");
}

/* The first line stands for a second, so that there is something to see. */
void tri_rank_log_serve(tri_rank_log *log)
{
    const int64_t now_ns = tri_now_ns(), passed_ns = now_ns - log->written_ns;
    if (log->written_ns > 0 && passed_ns < (log->has_served ? log->every_ns : TRI_NS_PER_S))
        return;
    if (log->written_ns > 0) {
        line_append(log, served_make(log, (double)passed_ns / 1e9));
        log->has_served = true;
    }
    log->written_ns = now_ns;
}

bool tri_served_read(const tri_metrics_line *line, tri_served *out)
{
    const char *role = tri_metrics_line_text(line, "role");
    if (!role || strcmp(role, SERVER) != 0)
        return false;
    out->time = tri_metrics_line_real(line, "time");
    out->seconds = tri_metrics_line_real(line, "seconds");
#define SERVED_READ(name, counter) out->name = tri_metrics_line_real(line, #name);
    TRI_SERVED_LIST(SERVED_READ)
#undef SERVED_READ
    out->memory_bytes = tri_metrics_line_real(line, "memory_bytes");
    return out->seconds > 0;
}

void tri_rank_log_close(tri_rank_log *log)
{
    if (!log)
        return;
    log->place.sent_to = NULL; /* its comm may be gone */
    if (log->steps > 0)
        line_write(log);
    tri_string_fini(&log->line);
    tri_free(log);
}
