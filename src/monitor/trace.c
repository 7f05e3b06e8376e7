/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c: Chrome's trace events (docs/formats/run.md): a process is a rank, its threads are what it computes and
 * what it communicates.
 */
#include "monitor/trace.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/fs.h"
#include "base/json.h"

#define FROM_DEFAULT 10
#define TO_DEFAULT   19

enum { LANE_STEPS = 1, LANE_COMPUTE, LANE_COMM, LANE_STAGES, LANE_SERVER, LANE_KERNELS };
static const char *const lanes[] = {[LANE_STEPS] = "steps",   [LANE_COMPUTE] = "compute", [LANE_COMM] = "communication",
                                    [LANE_STAGES] = "stages", [LANE_SERVER] = "server",   [LANE_KERNELS] = "kernels"};

const char *const tri_trace_phases[] = {"data",    "forward",   "backward", "pipeline",
                                        "waiting", "optimizer", "publish",  NULL};

tri_status tri_trace_window_read(const char *text, tri_trace_window *window)
{
    const char *colon = strrchr(text, ':');
    char *dash = NULL, *end = NULL;
    *window = (tri_trace_window){.from = FROM_DEFAULT, .to = TO_DEFAULT};
    if (colon && colon[1] >= '0' && colon[1] <= '9') {
        window->from = strtoll(colon + 1, &dash, 10);
        window->to = *dash == '-' ? strtoll(dash + 1, &end, 10) : -1;
        if (!end || *end || end == dash + 1 || window->to < window->from || window->from < 0 ||
            window->to - window->from >= TRI_TRACE_MOST_STEPS)
            return tri_fail(TRI_ECONFIG,
                            "want FILE or FILE:FROM-TO, steps FROM to TO, such as trace.json:10-19, got '%s'", text);
    } else
        colon = text + strlen(text);
    if (colon == text)
        return tri_fail(TRI_ECONFIG, "want FILE or FILE:FROM-TO, got '%s'", text);
    snprintf(window->path, sizeof(window->path), "%.*s", (int)(colon - text), text);
    return TRI_OK;
}

tri_status tri_trace_path_check(const char *path)
{
    char probe[1100];
    if (tri_fs_is_folder(path))
        return tri_fail(TRI_ECONFIG, "monitor.trace: want a file, got the folder %s", path);
    snprintf(probe, sizeof(probe), "%s.probe", path);
    tri_status status = tri_fs_append(probe, "", 0);
    if (status == TRI_OK)
        return tri_fs_remove(probe);
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    return tri_fail(TRI_ECONFIG, "monitor.trace: %s cannot be written: %s", path, why);
}

static int lane_of(const char *what)
{
    if (strcmp(what, "step") == 0)
        return LANE_STEPS;
    if (strcmp(what, TRI_EVENT_STAGE_UP) == 0 || strcmp(what, TRI_EVENT_STAGE_DOWN) == 0 ||
        strcmp(what, TRI_EVENT_STAGE_WEIGHTS) == 0)
        return LANE_STAGES;
    for (int i = 0; tri_trace_phases[i]; i++)
        if (strcmp(tri_trace_phases[i], what) == 0)
            return LANE_COMPUTE;
    return LANE_COMM;
}

static void name_put(tri_json *events, const char *kind, int rank, int lane, const char *text)
{
    tri_json event = tri_json_object_in(events, NULL), args;
    tri_json_text(&event, "ph", "M");
    tri_json_text(&event, "name", kind);
    tri_json_int(&event, "pid", rank);
    tri_json_int(&event, "tid", lane);
    args = tri_json_object_in(&event, "args");
    tri_json_text(&args, "name", text);
    (void)tri_json_end(&args);
    (void)tri_json_end(&event);
}

static void row_put(tri_json *events, int rank, const tri_trace_row *row, int64_t origin_ns, int64_t ahead_ns)
{
    char what[sizeof(row->what) + 1];
    snprintf(what, sizeof(what), "%.*s", (int)sizeof(row->what), row->what);
    const int lane = row->on_device ? LANE_KERNELS : lane_of(what);
    if (lane == LANE_STAGES) /* their own words, without the lane's */
        memmove(what, what + strlen("stage "), strlen(what + strlen("stage ")) + 1);
    tri_json event = tri_json_object_in(events, NULL), args;
    tri_json_text(&event, "name", what);
    tri_json_text(&event, "cat", lanes[lane]);
    tri_json_text(&event, "ph", "X");
    tri_json_real(&event, "ts", (double)(row->start_ns - ahead_ns - origin_ns) / 1e3);
    tri_json_real(&event, "dur", (double)row->duration_ns / 1e3);
    tri_json_int(&event, "pid", rank);
    tri_json_int(&event, "tid", lane);
    args = tri_json_object_in(&event, "args");
    tri_json_int(&args, lane == LANE_COMM ? "sequence" : "step", row->sequence);
    if (lane == LANE_COMM)
        tri_json_int(&args, "bytes", (int64_t)row->nbytes);
    if (lane == LANE_STAGES) {
        tri_json_int(&args, "stage", (int64_t)(row->nbytes / TRI_EVENT_MICROS));
        tri_json_int(&args, "micro_batch", (int64_t)(row->nbytes % TRI_EVENT_MICROS));
    }
    (void)tri_json_end(&args);
    (void)tri_json_end(&event);
}

static void rank_put(tri_json *events, int rank, const tri_trace_rank *it, int64_t origin_ns)
{
    char name[32];
    snprintf(name, sizeof(name), "rank %d", rank);
    name_put(events, "process_name", rank, 0, name);
    bool staged = false, on_device = false;
    for (int64_t i = 0; i < it->count; i++) {
        staged = staged || lane_of(it->rows[i].what) == LANE_STAGES;
        on_device = on_device || it->rows[i].on_device;
    }
    for (int lane = LANE_STEPS; lane <= (staged ? LANE_STAGES : LANE_COMM); lane++)
        name_put(events, "thread_name", rank, lane, lanes[lane]);
    if (on_device)
        name_put(events, "thread_name", rank, LANE_KERNELS, lanes[LANE_KERNELS]);
    for (int64_t i = 0; i < it->count; i++)
        row_put(events, rank, &it->rows[i], origin_ns, it->ahead_ns);
}

/* Values that were given are a point: what one worker waits for is across what others do. */
static void operation_put(tri_json *events, int rank, const tri_trace_row *row, int64_t origin_ns, int64_t ahead_ns)
{
    const bool pulls = strncmp(row->what, TRI_EVENT_SERVER_PULL, sizeof(row->what)) == 0;
    const int64_t start_ns = row->start_ns + (pulls ? row->duration_ns : 0) - ahead_ns - origin_ns;
    tri_json event = tri_json_object_in(events, NULL), args;
    tri_json_text(&event, "name", pulls ? "pull" : "push");
    tri_json_text(&event, "cat", lanes[LANE_SERVER]);
    tri_json_text(&event, "ph", "X");
    tri_json_real(&event, "ts", (double)start_ns / 1e3);
    tri_json_real(&event, "dur", pulls ? 0 : (double)row->duration_ns / 1e3);
    tri_json_int(&event, "pid", rank);
    tri_json_int(&event, "tid", LANE_SERVER);
    args = tri_json_object_in(&event, "args");
    tri_json_int(&args, "step", row->sequence);
    tri_json_int(&args, "worker", (int64_t)(row->nbytes >> 32));
    tri_json_int(&args, "bytes", (int64_t)(row->nbytes & UINT32_MAX));
    if (pulls)
        tri_json_real(&args, "waited_us", (double)row->duration_ns / 1e3);
    (void)tri_json_end(&args);
    (void)tri_json_end(&event);
}

static void server_put(tri_json *events, const tri_trace_servers *servers, int s, int64_t origin_ns)
{
    const tri_trace_rank *it = &servers->servers[s];
    char name[48];
    snprintf(name, sizeof(name), "server %d (rank %d)", s, servers->workers + s);
    name_put(events, "process_name", servers->workers + s, 0, name);
    name_put(events, "thread_name", servers->workers + s, LANE_SERVER, lanes[LANE_SERVER]);
    for (int64_t i = 0; i < it->count; i++)
        operation_put(events, servers->workers + s, &it->rows[i], origin_ns, it->ahead_ns);
}

static void clock_put(tri_json *clocks, int rank, const tri_trace_rank *it)
{
    tri_json clock = tri_json_object_in(clocks, NULL);
    tri_json_int(&clock, "rank", rank);
    tri_json_int(&clock, "ahead_ns", it->ahead_ns);
    tri_json_int(&clock, "uncertain_ns", it->uncertain_ns);
    tri_json_bool(&clock, "lost", it->lost);
    if (it->span_id[0])
        tri_json_text(&clock, "span_id", it->span_id);
    (void)tri_json_end(&clock);
}

static void clocks_put(tri_json *all, const tri_trace_window *window, const char *trace_id, const tri_trace_rank *ranks,
                       int count, const tri_trace_servers *servers)
{
    tri_json other = tri_json_object_in(all, "otherData"), clocks;
    tri_json_int(&other, "trireme_trace", 1);
    tri_json_int(&other, "ranks", count);
    if (servers->count > 0) {
        tri_json_int(&other, "workers", servers->workers);
        tri_json_int(&other, "servers", servers->count);
    }
    tri_json_int(&other, "from", window->from);
    tri_json_int(&other, "to", window->to);
    tri_json_text(&other, "trace_id", trace_id);
    clocks = tri_json_array_in(&other, "clocks");
    for (int r = 0; r < count; r++)
        clock_put(&clocks, r, &ranks[r]);
    for (int s = 0; s < servers->count; s++)
        clock_put(&clocks, servers->workers + s, &servers->servers[s]);
    (void)tri_json_end(&clocks);
    (void)tri_json_end(&other);
}

static int64_t first_of(const tri_trace_rank *ranks, int count, int64_t first_ns)
{
    for (int r = 0; r < count; r++)
        for (int64_t i = 0; i < ranks[r].count; i++)
            if (ranks[r].rows[i].start_ns - ranks[r].ahead_ns < first_ns)
                first_ns = ranks[r].rows[i].start_ns - ranks[r].ahead_ns;
    return first_ns;
}

tri_status tri_trace_write(const tri_trace_window *window, const char *trace_id, const tri_trace_rank *ranks, int count,
                           const tri_trace_servers *servers)
{
    tri_string text = {0};
    const int64_t origin_ns = first_of(servers->servers, servers->count, first_of(ranks, count, INT64_MAX));
    tri_json all = tri_json_object(&text);
    tri_json_text(&all, "displayTimeUnit", "ms");
    clocks_put(&all, window, trace_id, ranks, count, servers);
    tri_json events = tri_json_array_in(&all, "traceEvents");
    for (int r = 0; r < count; r++)
        rank_put(&events, r, &ranks[r], origin_ns);
    for (int s = 0; s < servers->count; s++)
        server_put(&events, servers, s, origin_ns);
    (void)tri_json_end(&events);
    tri_status status = tri_json_end(&all);
    if (status == TRI_OK)
        status = tri_fs_write_swap(window->path, text.text, text.nbytes);
    tri_string_fini(&text);
    return status;
}
