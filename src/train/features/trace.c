/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c: monitor.trace, and traces that are asked for during a run: what all ranks did in some steps, on the
 * clock of rank 0.
 *
 * Communication is in the event ring anyway (base/events.h); phases are written there while the window lasts. After its
 * last step rank 0 asks each rank what time it has, several times, and takes the answer that came back soonest; then it
 * is sent what they remember, and writes the file. Workers of parameter servers know no other ranks: trace_servers.c.
 */
#include <stdio.h>

#include "base/events.h"
#include "base/fs.h"
#include "base/log.h"
#include "monitor/trace.h"
#include "train/core/build.h"
#include "train/core/features.h"
#include "train/features/observers.h"

#define RING_COUNT 65536            /* of the ring, and of kernels */
#define MOST_ROWS  (3 * RING_COUNT) /* with those of sums between cards */
#define PINGS      16

typedef struct trace_state {
    tri_trace_window window;
    int64_t begin_ns; /* 0: it has not begun */
    bool over, asked; /* asked: by a signal */
    bool late;        /* this worker has heard of it when it had begun */
} trace_state;

/* NULL: no trace was asked for. */
static trace_state *trace_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_TRACE];
}

static tri_status form(tri_job *job)
{
    trace_state *trace = trace_of(job);
    if (trace || !job->config.monitor.trace[0])
        return TRI_OK;
    trace = job->states[TRI_FEATURE_TRACE] = tri_alloc_zero(1, sizeof(*trace));
    if (!trace)
        return TRI_ENOMEM;
    TRI_TRY_IN(tri_trace_window_read(job->config.monitor.trace, &trace->window), "monitor.trace");
    return tri_job_number(job) == 0 ? tri_trace_path_check(trace->window.path) : TRI_OK;
}

bool tri_job_trace_is_due(const tri_job *job)
{
    const trace_state *trace = trace_of(job);
    return trace && !trace->over;
}

/* Of workers of servers, one that is past the window tells that it has nothing to tell. */
tri_status tri_job_trace_ask_at(tri_job *job, int64_t from, int64_t to)
{
    char folder[1100];
    trace_state *trace = trace_of(job);
    if (tri_job_follows(job) && job->step > to)
        return tri_job_trace_give(job, from, &(tri_trace_rank){.lost = true}, true);
    if (!trace && !(trace = job->states[TRI_FEATURE_TRACE] = tri_alloc_zero(1, sizeof(*trace))))
        return TRI_ENOMEM;
    *trace = (trace_state){.asked = true,
                           .late = job->step > from,
                           .window = {.from = from, .to = to < job->progress.steps ? to : job->progress.steps - 1}};
    if (tri_job_follows(job))
        return TRI_OK;
    snprintf(folder, sizeof(folder), "%.1000s/traces", job->output.folder);
    if (snprintf(trace->window.path, sizeof(trace->window.path), "%.900s/traces/steps-%lld-%lld.json",
                 job->output.folder, (long long)trace->window.from, (long long)trace->window.to) < 0)
        return TRI_ENOMEM;
    if (job->rank == 0 && tri_fs_make_folder(folder) != TRI_OK)
        tri_log(TRI_LOG_WARN, "a trace was asked for: %s", tri_last_error());
    return TRI_OK;
}

tri_status tri_job_trace_ask(tri_job *job, int steps)
{
    const trace_state *trace = trace_of(job);
    if (!job->output.folder || job->step >= job->progress.steps)
        return TRI_OK;
    if (!tri_job_trace_is_due(job))
        return tri_job_trace_ask_at(job, job->step, job->step + steps - 1);
    if (job->rank == 0)
        tri_log(TRI_LOG_WARN, "a trace was asked for while that of steps %lld to %lld is due: ask again after it",
                (long long)trace->window.from, (long long)trace->window.to);
    return TRI_OK;
}

/* Also in the queue of sums between cards. */
static void kernels_time(const tri_job *job, int64_t step)
{
    tri_device_kernels_time(job->device, step);
    if (job->sync && job->sync->beside)
        tri_device_kernels_time(job->sync->beside, step);
}

static void part(tri_job *job)
{
    trace_state *trace = trace_of(job);
    if (!trace || !trace->asked || trace->over)
        return;
    trace->over = true;
    kernels_time(job, -1);
    tri_job_who_tell(job, -1);
    if (job->rank == 0)
        tri_log(TRI_LOG_WARN, "the trace of steps %lld to %lld is given up: the ranks have changed; ask again",
                (long long)trace->window.from, (long long)trace->window.to);
}

static void trace_close(tri_job *job)
{
    tri_free(trace_of(job));
    job->states[TRI_FEATURE_TRACE] = NULL;
}

static tri_status step_begin(tri_job *job)
{
    trace_state *trace = trace_of(job);
    if (!trace || trace->over || job->step < trace->window.from)
        return TRI_OK;
    kernels_time(job, job->step);
    if (trace->begin_ns != 0)
        return TRI_OK;
    trace->begin_ns = job->progress.step_start_ns;
    tri_job_who_tell(job, trace->window.from);
    return TRI_OK;
}

static void span(const tri_job *job, const char *what, int64_t start_ns, int64_t end_ns)
{
    const trace_state *trace = trace_of(job);
    if (!trace || trace->over || trace->begin_ns == 0)
        return;
    tri_event_write(&(tri_event){.start_ns = start_ns,
                                 .duration_ns = end_ns - start_ns,
                                 .what = what,
                                 .rank = job->rank,
                                 .sequence = (uint32_t)job->step});
}

static void rows_add(tri_trace_rank *own, const tri_device_kernel *kernels, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        tri_trace_row *row = &own->rows[own->count++];
        *row = (tri_trace_row){.start_ns = kernels[i].start_ns,
                               .duration_ns = kernels[i].duration_ns,
                               .sequence = (uint32_t)kernels[i].step,
                               .nbytes = kernels[i].sent_nbytes > 0 ? (uint64_t)kernels[i].sent_nbytes : 0,
                               .on_device = kernels[i].sent_nbytes < 0};
        snprintf(row->what, sizeof(row->what), "%s", kernels[i].name);
    }
}

/* Kernels of the device come first: who has no room for all rows keeps the last ones. */
static tri_status kernels_read(const tri_job *job, tri_trace_rank *own)
{
    tri_device_kernel *kernels, *sums = NULL;
    int64_t count, sum_count = 0;
    TRI_TRY(tri_device_kernels_read(job->device, &kernels, &count));
    const tri_status status =
        job->sync->beside ? tri_device_kernels_read(job->sync->beside, &sums, &sum_count) : TRI_OK;
    kernels_time(job, -1);
    if (status == TRI_OK)
        own->rows = tri_alloc_zero((size_t)(count + sum_count) + RING_COUNT, sizeof(*own->rows));
    own->lost = count >= RING_COUNT || sum_count >= RING_COUNT;
    if (own->rows) {
        rows_add(own, kernels, count);
        rows_add(own, sums, sum_count);
    }
    tri_free(kernels);
    tri_free(sums);
    return own->rows ? TRI_OK : TRI_ENOMEM;
}

/* What this rank remembers of the window. */
static tri_status rows_read(const tri_job *job, tri_trace_rank *own)
{
    int64_t begin_ns = trace_of(job)->begin_ns, end_ns = tri_now_ns();
    TRI_TRY(kernels_read(job, own));
    tri_event *events = tri_alloc(RING_COUNT * sizeof(*events));
    if (!events)
        return TRI_ENOMEM;
    uint64_t count = tri_event_read(events, RING_COUNT);
    for (uint64_t i = 0; i < count; i++) {
        if (events[i].rank != job->rank || events[i].start_ns < begin_ns || events[i].start_ns > end_ns)
            continue;
        tri_trace_row *row = &own->rows[own->count++];
        *row = (tri_trace_row){.start_ns = events[i].start_ns,
                               .duration_ns = events[i].duration_ns,
                               .nbytes = events[i].nbytes,
                               .sequence = events[i].sequence};
        snprintf(row->what, sizeof(row->what), "%s", events[i].what);
    }
    own->lost = own->lost || (count == RING_COUNT && events[0].start_ns > begin_ns);
    tri_free(events);
    return TRI_OK;
}

/* --- clocks --- */

static tri_status ping(tri_job *job, int other, tri_trace_rank *rank)
{
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < PINGS; i++) {
        int64_t before_ns = tri_now_ns(), there_ns;
        TRI_TRY(tri_send(job->group, &before_ns, 1, TRI_I64, other, NULL));
        TRI_TRY(tri_receive(job->group, &there_ns, 1, TRI_I64, other, NULL));
        int64_t way_ns = tri_now_ns() - before_ns;
        if (way_ns >= best_ns)
            continue;
        best_ns = way_ns;
        rank->ahead_ns = there_ns - before_ns - way_ns / 2;
        rank->uncertain_ns = way_ns / 2;
    }
    return TRI_OK;
}

static tri_status pong(tri_job *job)
{
    for (int i = 0; i < PINGS; i++) {
        int64_t word;
        TRI_TRY(tri_receive(job->group, &word, 1, TRI_I64, 0, NULL));
        word = tri_now_ns();
        TRI_TRY(tri_send(job->group, &word, 1, TRI_I64, 0, NULL));
    }
    return TRI_OK;
}

/* --- all ranks --- */

static tri_status give(tri_job *job, const tri_trace_rank *own)
{
    int64_t head[2] = {own->count, own->lost};
    TRI_TRY(pong(job));
    TRI_TRY(tri_send(job->group, head, 2, TRI_I64, 0, NULL));
    return own->count > 0 ? tri_send(job->group, own->rows, own->count * (int64_t)sizeof(*own->rows), TRI_U8, 0, NULL)
                          : TRI_OK;
}

static tri_status take(tri_job *job, int other, tri_trace_rank *rank)
{
    int64_t head[2];
    TRI_TRY(ping(job, other, rank));
    TRI_TRY(tri_receive(job->group, head, 2, TRI_I64, other, NULL));
    if (head[0] < 0 || head[0] > MOST_ROWS)
        return tri_fail(TRI_EFORMAT, "rank %d has %lld events to tell of, want at most %d", other, (long long)head[0],
                        MOST_ROWS);
    rank->count = head[0];
    rank->lost = head[1] != 0;
    rank->rows = tri_alloc((size_t)(rank->count + 1) * sizeof(*rank->rows));
    if (!rank->rows)
        return TRI_ENOMEM;
    return rank->count > 0
               ? tri_receive(job->group, rank->rows, rank->count * (int64_t)sizeof(*rank->rows), TRI_U8, other, NULL)
               : TRI_OK;
}

static void file_write(const tri_job *job, tri_trace_rank *ranks, int count, const tri_trace_servers *servers)
{
    const tri_trace_window *window = &trace_of(job)->window;
    bool lost = false;
    int silent = 0;
    for (int r = 0; r < count; r++) {
        lost = lost || (ranks[r].lost && ranks[r].rows);
        silent += !ranks[r].rows;
        tri_job_span_id(job, r, window->from, ranks[r].span_id);
    }
    for (int s = 0; s < servers->count; s++)
        lost = lost || servers->servers[s].lost;
    if (tri_trace_write(window, job->identity.trace_id, ranks, count, servers) != TRI_OK) {
        tri_log(TRI_LOG_WARN, "monitor.trace: %s", tri_last_error());
        return;
    }
    tri_log(TRI_LOG_INFO, "trace of steps %lld to %lld: %s%s", (long long)window->from, (long long)job->step - 1,
            window->path, lost ? " (some are missing: too many events)" : "");
    if (silent > 0)
        tri_log(TRI_LOG_WARN, "the trace lacks %d of %d workers, which did not send theirs in time", silent, count);
}

/* Sends between ranks; ranks[world], of which the own one is there. */
static tri_status ranks_meet(tri_job *job, const tri_trace_rank *own, tri_trace_rank *ranks)
{
    tri_status status = TRI_OK;
    tri_group_name_next(job->group, "trace");
    if (job->rank > 0)
        status = give(job, own);
    for (int r = 1; status == TRI_OK && job->rank == 0 && r < job->world; r++)
        status = take(job, r, &ranks[r]);
    tri_group_name_next(job->group, "");
    return status;
}

static tri_status collect(tri_job *job)
{
    const trace_state *trace = trace_of(job);
    const bool of_all =
        !job->servers.client || tri_job_watch_is_on(job) || !trace->asked; /* of that others hear by their looks */
    const int count = of_all ? tri_job_count(job) : 1;
    tri_trace_rank *ranks = tri_alloc_zero((size_t)count, sizeof(*ranks)), own = {0};
    tri_trace_servers servers = {0};
    bool late = false;
    tri_status status = ranks ? rows_read(job, &own) : TRI_ENOMEM;
    if (status == TRI_OK)
        ranks[0] = own;
    if (status == TRI_OK && !job->servers.client)
        status = ranks_meet(job, &own, ranks);
    else if (status == TRI_OK && tri_job_follows(job))
        status = tri_job_trace_give(job, trace->window.from, &own, trace->late);
    else if (status == TRI_OK)
        status = tri_job_trace_servers(job, trace->window.from, trace->begin_ns, count, ranks, &servers, &late);
    if (status == TRI_OK && tri_job_number(job) == 0 && !tri_job_notes_move(job, late))
        file_write(job, ranks, count, &servers);
    tri_job_trace_servers_free(&servers);
    for (int r = 1; ranks && r < count; r++)
        tri_free(ranks[r].rows);
    tri_free(ranks);
    tri_free(own.rows);
    return status;
}

/* The same on all ranks, also on one that others have brought to a later step, or that came later: it is past the end
 * then, or it traces what is left. */
static tri_status step_end(tri_job *job)
{
    trace_state *trace = trace_of(job);
    if (!trace || trace->over)
        return TRI_OK;
    int64_t end = trace->window.to + 1 < job->progress.steps ? trace->window.to + 1 : job->progress.steps;
    if (job->step < end)
        return TRI_OK;
    trace->over = true; /* also one that was over before this run of it began */
    if (job->progress.step_before >= end)
        return TRI_OK;
    tri_job_who_tell(job, -1);
    if (end > trace->window.from)
        TRI_TRY_IN(collect(job), "while collecting the trace");
    else if (tri_job_number(job) == 0)
        tri_log(TRI_LOG_WARN, "monitor.trace: want a step before %lld, where the run ends, got %lld: there is no trace",
                (long long)job->progress.steps, (long long)trace->window.from);
    return TRI_OK;
}

const tri_feature tri_feature_trace = {
    .span = span, .form = form, .step_begin = step_begin, .step_end = step_end, .part = part, .close = trace_close};
