/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c: monitor.trace, and traces that are asked for while a run goes on: what all ranks did in some steps, on the
 * clock of rank 0.
 *
 * Communication is in the event ring anyway (base/events.h); phases are written there while the window lasts. After its
 * last step rank 0 asks each rank what time it has, several times, and takes the answer that came back soonest; then it
 * is sent what they remember, and writes the file. Parameter servers are asked the same by the first worker.
 */
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/fs.h"
#include "base/log.h"
#include "monitor/trace.h"
#include "ps/client.h"
#include "train/job.h"

#define RING_COUNT 65536 /* of the ring */
#define PINGS      16

struct tri_job_trace {
    tri_trace_window window;
    int64_t begin_ns; /* 0: it has not begun */
    bool over, asked; /* asked: by a signal */
};

tri_status tri_job_trace_open(tri_job *job)
{
    if (job->trace || !job->config.monitor.trace[0] || tri_job_follows(job))
        return TRI_OK;
    job->trace = tri_alloc_zero(1, sizeof(*job->trace));
    if (!job->trace)
        return TRI_ENOMEM;
    TRI_TRY_IN(tri_trace_window_read(job->config.monitor.trace, &job->trace->window), "monitor.trace");
    return job->rank == 0 ? tri_trace_path_check(job->trace->window.path) : TRI_OK;
}

tri_status tri_job_trace_ask(tri_job *job, int steps)
{
    char folder[1100];
    tri_job_trace *trace = job->trace;
    if (!job->run_folder || job->step >= job->steps)
        return TRI_OK;
    if (trace && !trace->over) {
        if (job->rank == 0)
            tri_log(TRI_LOG_WARN, "a trace was asked for while that of steps %lld to %lld is due: ask again after it",
                    (long long)trace->window.from, (long long)trace->window.to);
        return TRI_OK;
    }
    if (!trace && !(trace = job->trace = tri_alloc_zero(1, sizeof(*trace))))
        return TRI_ENOMEM;
    *trace = (tri_job_trace){.asked = true, .window = {.from = job->step, .to = job->step + steps - 1}};
    if (trace->window.to >= job->steps)
        trace->window.to = job->steps - 1;
    snprintf(folder, sizeof(folder), "%.1000s/traces", job->run_folder);
    if (snprintf(trace->window.path, sizeof(trace->window.path), "%.900s/traces/steps-%lld-%lld.json", job->run_folder,
                 (long long)trace->window.from, (long long)trace->window.to) < 0)
        return TRI_ENOMEM;
    if (job->rank == 0 && tri_fs_make_folder(folder) != TRI_OK)
        tri_log(TRI_LOG_WARN, "a trace was asked for: %s", tri_last_error());
    return TRI_OK;
}

void tri_job_trace_drop(tri_job *job)
{
    tri_job_trace *trace = job->trace;
    job->asks = (tri_job_asks){.own = job->asks.own};
    if (!trace || !trace->asked || trace->over)
        return;
    trace->over = true;
    tri_job_who_tell(job, -1);
    if (job->rank == 0)
        tri_log(TRI_LOG_WARN, "the trace of steps %lld to %lld is given up: the ranks have changed; ask again",
                (long long)trace->window.from, (long long)trace->window.to);
}

void tri_job_trace_close(tri_job *job)
{
    tri_free(job->trace);
    job->trace = NULL;
}

void tri_job_trace_begin(tri_job *job)
{
    tri_job_trace *trace = job->trace;
    if (!trace || trace->over || trace->begin_ns != 0 || job->step < trace->window.from)
        return;
    trace->begin_ns = tri_now_ns();
    tri_job_who_tell(job, trace->window.from);
}

void tri_job_span(const tri_job *job, const char *what, int64_t start_ns, int64_t end_ns)
{
    if (!job->trace || job->trace->over || job->trace->begin_ns == 0)
        return;
    tri_event_write(&(tri_event){.start_ns = start_ns,
                                 .duration_ns = end_ns - start_ns,
                                 .what = what,
                                 .rank = job->rank,
                                 .sequence = (uint32_t)job->step});
}

/* What this rank remembers of the window. */
static tri_status rows_read(const tri_job *job, tri_trace_rank *own)
{
    tri_event *events = tri_alloc(RING_COUNT * sizeof(*events));
    own->rows = tri_alloc_zero(RING_COUNT, sizeof(*own->rows));
    if (!events || !own->rows) {
        tri_free(events);
        return TRI_ENOMEM;
    }
    uint64_t count = tri_event_read(events, RING_COUNT);
    int64_t end_ns = tri_now_ns();
    for (uint64_t i = 0; i < count; i++) {
        if (events[i].rank != job->rank || events[i].start_ns < job->trace->begin_ns || events[i].start_ns > end_ns)
            continue;
        tri_trace_row *row = &own->rows[own->count++];
        *row = (tri_trace_row){events[i].start_ns, events[i].duration_ns, events[i].nbytes, events[i].sequence, ""};
        snprintf(row->what, sizeof(row->what), "%s", events[i].what);
    }
    own->lost = count == RING_COUNT && events[0].start_ns > job->trace->begin_ns;
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
    if (head[0] < 0 || head[0] > RING_COUNT)
        return tri_fail(TRI_EFORMAT, "rank %d has %lld events to tell of, want at most %d", other, (long long)head[0],
                        RING_COUNT);
    rank->count = head[0];
    rank->lost = head[1] != 0;
    rank->rows = tri_alloc((size_t)(rank->count + 1) * sizeof(*rank->rows));
    if (!rank->rows)
        return TRI_ENOMEM;
    return rank->count > 0
               ? tri_receive(job->group, rank->rows, rank->count * (int64_t)sizeof(*rank->rows), TRI_U8, other, NULL)
               : TRI_OK;
}

/* --- parameter servers --- */

static void servers_free(tri_trace_servers *all)
{
    for (int s = 0; all->servers && s < all->count; s++)
        tri_free(all->servers[s].rows);
    tri_free(all->servers);
    *all = (tri_trace_servers){0};
}

static tri_status deeds_keep(const tri_ps_deeds *deeds, tri_trace_rank *server)
{
    *server = (tri_trace_rank){.ahead_ns = deeds->ahead_ns, .uncertain_ns = deeds->uncertain_ns, .lost = deeds->lost};
    server->rows = tri_alloc((deeds->count + 1) * sizeof(*server->rows));
    if (!server->rows)
        return TRI_ENOMEM;
    for (size_t i = 0; i < deeds->count; i++) {
        const ps_deed *deed = &deeds->deeds[i];
        tri_trace_row *row = &server->rows[server->count++];
        *row = (tri_trace_row){deed->start_ns, deed->duration_ns, (uint64_t)deed->worker << 32 | (uint32_t)deed->nbytes,
                               deed->step, ""};
        snprintf(row->what, sizeof(row->what), "%s", deed->pulls ? TRI_EVENT_SERVER_PULL : TRI_EVENT_SERVER_PUSH);
    }
    return TRI_OK;
}

/* What servers did in the window, for whatever worker. */
static tri_status servers_ask(const tri_job *job, tri_trace_servers *all)
{
    struct tri_ps_client *client = job->servers.client;
    if (!client)
        return TRI_OK;
    const tri_ps_client_setup *setup = tri_ps_client_setup_of(client);
    tri_ps_deeds *deeds = tri_alloc_zero((size_t)setup->servers, sizeof(*deeds));
    all->servers = tri_alloc_zero((size_t)setup->servers, sizeof(*all->servers));
    if (!deeds || !all->servers) {
        tri_free(deeds);
        return TRI_ENOMEM;
    }
    all->count = setup->servers;
    all->workers = setup->workers;
    tri_status status = tri_ps_client_deeds(client, job->trace->begin_ns, deeds);
    for (int s = 0; s < all->count; s++) {
        if (status == TRI_OK)
            status = deeds_keep(&deeds[s], &all->servers[s]);
        tri_free(deeds[s].deeds);
    }
    tri_free(deeds);
    return status;
}

static void file_write(const tri_job *job, tri_trace_rank *ranks, const tri_trace_servers *servers)
{
    const tri_trace_window *window = &job->trace->window;
    bool lost = false;
    for (int r = 0; r < job->world; r++) {
        lost = lost || ranks[r].lost;
        tri_job_span_id(job, r, window->from, ranks[r].span_id);
    }
    for (int s = 0; s < servers->count; s++)
        lost = lost || servers->servers[s].lost;
    if (tri_trace_write(window, job->trace_id, ranks, job->world, servers) != TRI_OK)
        tri_log(TRI_LOG_WARN, "monitor.trace: %s", tri_last_error());
    else
        tri_log(TRI_LOG_INFO, "trace of steps %lld to %lld: %s%s", (long long)window->from, (long long)job->step - 1,
                window->path, lost ? " (the first ones are missing: too many events)" : "");
}

static tri_status collect(tri_job *job)
{
    tri_trace_rank own = {0}, *ranks = NULL;
    tri_trace_servers servers = {0};
    tri_status status = rows_read(job, &own);
    tri_group_name_next(job->group, "trace");
    if (status == TRI_OK && job->rank > 0)
        status = give(job, &own);
    if (status == TRI_OK && job->rank == 0)
        status = (ranks = tri_alloc_zero((size_t)job->world, sizeof(*ranks))) ? TRI_OK : TRI_ENOMEM;
    for (int r = 1; status == TRI_OK && job->rank == 0 && r < job->world; r++)
        status = take(job, r, &ranks[r]);
    tri_group_name_next(job->group, "");
    if (status == TRI_OK && job->rank == 0) {
        ranks[0] = own;
        status = servers_ask(job, &servers);
    }
    if (status == TRI_OK && job->rank == 0)
        file_write(job, ranks, &servers);
    servers_free(&servers);
    for (int r = 1; ranks && r < job->world; r++)
        tri_free(ranks[r].rows);
    tri_free(ranks);
    tri_free(own.rows);
    return status;
}

/* The same on all ranks, also on one that others have brought to a later step, or that came later: it is past the end
 * then, or it traces what is left. */
tri_status tri_job_trace_look(tri_job *job)
{
    tri_job_trace *trace = job->trace;
    if (!trace || trace->over)
        return TRI_OK;
    int64_t end = trace->window.to + 1 < job->steps ? trace->window.to + 1 : job->steps;
    if (job->step_before >= end || job->step < end)
        return TRI_OK;
    trace->over = true;
    tri_job_who_tell(job, -1);
    if (end > trace->window.from)
        TRI_TRY_IN(collect(job), "while collecting the trace");
    else if (job->rank == 0)
        tri_log(TRI_LOG_WARN,
                "monitor.trace: want a step before %lld, where the run ends, found %lld: there is no trace",
                (long long)job->steps, (long long)trace->window.from);
    return TRI_OK;
}
