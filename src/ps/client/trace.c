/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c: what servers did in the last seconds, and how far their clocks are ahead of this worker's: each is
 * asked several times, and the answer that came back soonest counts.
 */
#include <string.h>

#include "base/memory.h"
#include "ps/client/client_impl.h"

#define ASKED_TIMES 16

tri_status tri_ps_clocks_ask(tri_ps_client *client, tri_ps_operations *of)
{
    for (int s = 0; s < client->setup.servers; s++)
        of[s].uncertain_ns = INT64_MAX;
    for (int i = 0; i < ASKED_TIMES; i++) {
        const int64_t before_ns = tri_now_ns();
        TRI_TRY(tri_ps_ask_all(client, (ps_head){.kind = PS_STATS, .flags = PS_FLAG_TIME}, NULL,
                               "what time the servers have"));
        for (int s = 0; s < client->setup.servers; s++) {
            const ps_link *link = &client->links[s];
            const int64_t way_ns = link->heard_ns - before_ns;
            if (link->answered != link->question || way_ns / 2 >= of[s].uncertain_ns)
                continue;
            of[s].ahead_ns = link->clock - before_ns - way_ns / 2;
            of[s].uncertain_ns = way_ns / 2;
        }
    }
    return TRI_OK;
}

/* By each one's own clock, however long the question is on its way. */
static tri_status events_ask(tri_ps_client *client, int64_t since_ns, tri_ps_operations *of)
{
    double *since = tri_alloc((size_t)client->setup.servers * sizeof(*since));
    if (!since)
        return TRI_ENOMEM;
    for (int s = 0; s < client->setup.servers; s++)
        since[s] = (double)(since_ns + of[s].ahead_ns) - (double)of[s].uncertain_ns;
    client->asked_extras = since;
    tri_status status =
        tri_ps_ask_all(client, (ps_head){.kind = PS_STATS, .flags = PS_FLAG_EVENTS}, NULL, "what the servers did");
    client->asked_extras = NULL;
    tri_free(since);
    TRI_TRY(status);
    for (int s = 0; s < client->setup.servers; s++) {
        ps_link *link = &client->links[s];
        if (link->answered != link->question)
            continue;
        of[s].lost = link->extra != 0;
        of[s].count = link->events.nbytes / sizeof(ps_operation_record);
        of[s].operations = (ps_operation_record *)(void *)link->events.text; /* as malloc aligns it */
        link->events = (tri_string){0};
    }
    return TRI_OK;
}

tri_status tri_ps_client_operations(tri_ps_client *client, int64_t since_ns, tri_ps_operations *of_servers)
{
    memset(of_servers, 0, (size_t)client->setup.servers * sizeof(*of_servers));
    tri_mutex_lock(&client->mutex);
    tri_status status = tri_ps_clocks_ask(client, of_servers);
    if (status == TRI_OK)
        status = events_ask(client, since_ns, of_servers);
    tri_mutex_unlock(&client->mutex);
    return status;
}
