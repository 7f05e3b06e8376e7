/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_servers.c: the trace of a run with parameter servers: the first worker asks the servers what they did, and the
 * other workers leave there what they did (ps/rpc/annotation.h), with how far that server's clock is ahead of theirs.
 */
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "monitor/trace.h"
#include "ps/client/client.h"
#include "train/core/job.h"
#include "train/features/observers.h"

#define ROWS_MOST 32768 /* of a note */
#define WAIT_MS   5000  /* for workers that are not as far */
#define BSP_MS    1000  /* where they are, and make no further step meanwhile: who has not heard by then cannot */
#define LOOK_MS   5

/* Before the rows of a note. */
typedef struct trace_note {
    int64_t count, lost, late;
    int64_t server, ahead_ns, uncertain_ns; /* its clock before this worker's */
} trace_note;

_Static_assert(sizeof(trace_note) + ROWS_MOST * sizeof(tri_trace_row) <= PS_NOTE_LIMIT_NBYTES, "a note holds them");

/* --- servers --- */

void tri_job_trace_servers_free(tri_trace_servers *all)
{
    for (int s = 0; all->servers && s < all->count; s++)
        tri_free(all->servers[s].rows);
    tri_free(all->servers);
    *all = (tri_trace_servers){0};
}

static tri_status operations_keep(const tri_ps_operations *operations, tri_trace_rank *server)
{
    *server = (tri_trace_rank){
        .ahead_ns = operations->ahead_ns, .uncertain_ns = operations->uncertain_ns, .lost = operations->lost};
    server->rows = tri_alloc((operations->count + 1) * sizeof(*server->rows));
    if (!server->rows)
        return TRI_ENOMEM;
    for (size_t i = 0; i < operations->count; i++) {
        const ps_operation_record *operation = &operations->operations[i];
        tri_trace_row *row = &server->rows[server->count++];
        *row = (tri_trace_row){.start_ns = operation->start_ns,
                               .duration_ns = operation->duration_ns,
                               .nbytes = (uint64_t)operation->worker << 32 | (uint32_t)operation->nbytes,
                               .sequence = operation->step};
        snprintf(row->what, sizeof(row->what), "%s", operation->pulls ? TRI_EVENT_SERVER_PULL : TRI_EVENT_SERVER_PUSH);
    }
    return TRI_OK;
}

/* What servers did in the window, for whatever worker. */
static tri_status servers_ask(const tri_job *job, int64_t since_ns, tri_trace_servers *all)
{
    struct tri_ps_client *client = job->servers.client;
    const int servers = tri_ps_client_setup_of(client)->servers;
    tri_ps_operations *operations = tri_alloc_zero((size_t)servers, sizeof(*operations));
    all->servers = tri_alloc_zero((size_t)servers, sizeof(*all->servers));
    if (!operations || !all->servers) {
        tri_free(operations);
        return TRI_ENOMEM;
    }
    all->count = servers;
    all->workers = job->servers.workers;
    tri_status status = tri_ps_client_operations(client, since_ns, operations);
    for (int s = 0; s < servers; s++) {
        if (status == TRI_OK)
            status = operations_keep(&operations[s], &all->servers[s]);
        tri_free(operations[s].operations);
    }
    tri_free(operations);
    return status;
}

/* --- other workers --- */

/* The server whose clock is known best. */
static tri_status clock_find(const tri_job *job, trace_note *note)
{
    const int servers = tri_ps_client_setup_of(job->servers.client)->servers;
    tri_ps_operations *clocks = tri_alloc_zero((size_t)servers, sizeof(*clocks));
    tri_status status = clocks ? tri_ps_client_clocks(job->servers.client, clocks) : TRI_ENOMEM;
    note->uncertain_ns = INT64_MAX;
    for (int s = 0; s < servers && status == TRI_OK; s++)
        if (clocks[s].uncertain_ns < note->uncertain_ns) {
            note->server = s;
            note->ahead_ns = clocks[s].ahead_ns;
            note->uncertain_ns = clocks[s].uncertain_ns;
        }
    tri_free(clocks);
    return status;
}

tri_status tri_job_trace_give(tri_job *job, int64_t tag, const tri_trace_rank *own, bool late)
{
    trace_note note = {.count = own->count < ROWS_MOST ? own->count : ROWS_MOST,
                       .lost = own->lost || own->count > ROWS_MOST,
                       .late = late};
    const tri_trace_row *latest = own->rows ? own->rows + (own->count - note.count) : NULL;
    tri_string text = {0};
    int count;
    tri_status status = clock_find(job, &note);
    if (status == TRI_OK)
        status = tri_string_append_bytes(&text, &note, sizeof(note));
    if (status == TRI_OK && note.count > 0)
        status = tri_string_append_bytes(&text, latest, (size_t)note.count * sizeof(*latest));
    if (status == TRI_OK)
        status = tri_ps_client_note(job->servers.client, PS_SUBJECT_TRACE, tag, tri_string_text(&text), text.nbytes,
                                    NULL, &count);
    tri_string_fini(&text);
    return status;
}

/* Workers are as far at different times. Those that do not come are left out. */
static tri_status notes_await(tri_job *job, int64_t tag, tri_string *all)
{
    const bool together = job->config.ps.consistency == PS_BSP;
    const int64_t until_ns = tri_deadline_after_ms(together ? BSP_MS : WAIT_MS);
    for (int count = 0; count < job->servers.workers - 1; tri_sleep_ns(LOOK_MS * TRI_NS_PER_MS)) {
        TRI_TRY(tri_ps_client_note(job->servers.client, PS_SUBJECT_TRACE, tag, NULL, 0, NULL, &count));
        if (count >= job->servers.workers - 1 || tri_now_ns() >= until_ns)
            break;
    }
    int count;
    return tri_ps_client_note(job->servers.client, PS_SUBJECT_TRACE, tag, NULL, 0, all, &count);
}

/* What one worker has left; anything that is no such note counts for nothing. */
static tri_status note_keep(const ps_note_head *head, const char *text, const tri_trace_servers *servers,
                            tri_trace_rank *worker, bool *late)
{
    trace_note note;
    if (head->nbytes < sizeof(note))
        return TRI_OK;
    memcpy(&note, text, sizeof(note));
    if (note.count < 0 || note.count > ROWS_MOST || note.server < 0 || note.server >= servers->count ||
        head->nbytes != sizeof(note) + (size_t)note.count * sizeof(*worker->rows))
        return TRI_OK;
    const tri_trace_rank *server = &servers->servers[note.server];
    *worker = (tri_trace_rank){.ahead_ns = server->ahead_ns - note.ahead_ns,
                               .uncertain_ns = server->uncertain_ns + note.uncertain_ns,
                               .lost = note.lost != 0,
                               .count = note.count};
    worker->rows = tri_alloc((size_t)(note.count + 1) * sizeof(*worker->rows));
    if (!worker->rows) {
        worker->count = 0;
        return TRI_ENOMEM;
    }
    memcpy(worker->rows, text + sizeof(note), (size_t)note.count * sizeof(*worker->rows));
    *late = *late || note.late != 0;
    return TRI_OK;
}

tri_status tri_job_trace_servers(tri_job *job, int64_t tag, int64_t since_ns, int count, tri_trace_rank *workers,
                                 tri_trace_servers *servers, bool *late)
{
    tri_string all = {0};
    ps_note_head head;
    size_t at = 0;
    TRI_TRY(servers_ask(job, since_ns, servers));
    for (int w = 1; w < count; w++)
        workers[w].lost = true;
    if (count == 1)
        return TRI_OK;
    tri_status status = notes_await(job, tag, &all);
    for (const void *text; status == TRI_OK && (text = tri_ps_note_next(&all, &at, &head));)
        if (head.worker > 0 && head.worker < (uint32_t)count && !workers[head.worker].rows)
            status = note_keep(&head, text, servers, &workers[head.worker], late);
    for (int w = 1; w < count; w++) /* it may hear of a window that is further ahead */
        *late = *late || !workers[w].rows;
    tri_string_fini(&all);
    return status;
}
