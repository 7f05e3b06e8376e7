/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c: what a server did with dense tables, as it is in the event ring: pushes that it took in, and
 * values that it gave, with how long they were awaited; sent to whoever makes a trace, with the clock.
 *
 * In the ring nbytes has the worker in its upper half: no body is longer than 256 MiB.
 */
#include <string.h>

#include "base/events.h"
#include "ps/rpc/operation_record.h"
#include "ps/server/connection.h"

#define EVENTS_MOST 65536 /* of the ring */

void tri_ps_trace_asked(ps_client_connection *client, const ps_head *head, int64_t now_ns)
{
    if (head->kind != PS_PULL && (head->kind != PS_PUSH || !(head->flags & PS_FLAG_PULL)))
        return;
    const int64_t none = 0;
    while (client->asked.count <= head->block && head->block < PS_TRACED_BLOCKS)
        if (!tri_vector_push(&client->asked, &none))
            return;
    if (head->block < client->asked.count)
        *(int64_t *)tri_vector_at(&client->asked, head->block) = now_ns;
}

static void event_write(const tri_ps_server *server, const char *what, int worker, const ps_head *head,
                        int64_t start_ns)
{
    tri_event_write(&(tri_event){.start_ns = start_ns,
                                 .duration_ns = tri_now_ns() - start_ns,
                                 .what = what,
                                 .rank = server->setup.number,
                                 .sequence = (uint32_t)head->clock,
                                 .nbytes = (uint64_t)(uint32_t)worker << 32 | (uint32_t)head->nbytes});
}

void tri_ps_trace_pushed(const tri_ps_server *server, int worker, const ps_head *head, int64_t start_ns)
{
    if (head->kind == PS_PUSH && worker >= 0)
        event_write(server, TRI_EVENT_SERVER_PUSH, worker, head, start_ns);
}

void tri_ps_trace_answered(ps_client_connection *client, const ps_head *head)
{
    if (head->kind != PS_VALUES || client->server >= 0 || head->block >= client->asked.count)
        return;
    int64_t *asked_ns = tri_vector_at(&client->asked, head->block);
    if (*asked_ns > 0)
        event_write(client->of, TRI_EVENT_SERVER_PULL, client->number, head, *asked_ns);
    *asked_ns = 0;
}

/* Events since head->extra ns. */
static tri_status events_tell(const tri_ps_server *server, ps_client_connection *client, const ps_head *head)
{
    tri_event *events = tri_alloc(EVENTS_MOST * sizeof(*events));
    ps_operation_record *operations = tri_alloc_zero(EVENTS_MOST, sizeof(*operations));
    tri_status status = events && operations ? TRI_OK : TRI_ENOMEM;
    uint64_t found = status == TRI_OK ? tri_event_read(events, EVENTS_MOST) : 0, count = 0;
    for (uint64_t i = 0; i < found; i++) {
        const tri_event *event = &events[i];
        const bool pulls = strcmp(event->what, TRI_EVENT_SERVER_PULL) == 0;
        if ((strcmp(event->what, TRI_EVENT_SERVER_PUSH) != 0 && !pulls) || event->rank != server->setup.number ||
            (double)(event->start_ns + event->duration_ns) < head->extra)
            continue;
        operations[count++] = (ps_operation_record){.start_ns = event->start_ns,
                                                    .duration_ns = event->duration_ns,
                                                    .nbytes = event->nbytes & UINT32_MAX,
                                                    .step = event->sequence,
                                                    .worker = (uint32_t)(event->nbytes >> 32),
                                                    .pulls = pulls};
    }
    ps_head answer = {.kind = PS_STATS,
                      .flags = PS_FLAG_EVENTS,
                      .request = head->request,
                      .nbytes = count * sizeof(*operations),
                      .extra = found == EVENTS_MOST && (double)events[0].start_ns > head->extra};
    if (status == TRI_OK)
        tri_ps_answer(client, &answer, operations, false);
    tri_free(events);
    tri_free(operations);
    return status;
}

tri_status tri_ps_trace_tell(tri_ps_server *server, ps_client_connection *client, const ps_head *head)
{
    if (head->flags & PS_FLAG_EVENTS)
        return events_tell(server, client, head);
    const ps_head answer = {.kind = PS_STATS, .flags = PS_FLAG_TIME, .request = head->request, .clock = tri_now_ns()};
    tri_ps_answer(client, &answer, NULL, false);
    return TRI_OK;
}
