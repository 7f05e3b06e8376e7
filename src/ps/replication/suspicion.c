/* SPDX-License-Identifier: Apache-2.0
 *
 * suspicion.c: a neighbour that is silent for SILENT_BEATS is left out of the view, by whoever has a copy of all that
 * it has.
 */
#include "base/log.h"
#include "ps/replication/chain.h"
#include "ps/replication/replication.h"

#define SILENT_BEATS 5

/* Is all that another server has here too? Then nothing is lost without it. */
static bool is_covered(const tri_ps_server *server, int number)
{
    for (int s = 0; s < PS_SLOTS; s++)
        if (server->view.slots[s] == number &&
            (ps_view_role(&server->view, server->setup.number, s) != PS_BACKUP || tri_ps_slot_lacks(server, s)))
            return false;
    return true;
}

/* True: it has been silent for too long. A pause of this server's own counts as one beat. */
static bool is_silent(const tri_ps_server *server, ps_quiet *quiet, const tri_connection *connection, int64_t passed_ns)
{
    int64_t beat = tri_ps_beat_ns(server);
    uint64_t heard = tri_connection_received(connection);
    if (heard != quiet->heard)
        *quiet = (ps_quiet){.heard = heard};
    else
        quiet->silent_ns += passed_ns < beat ? passed_ns : beat;
    return quiet->silent_ns > quiet->excused_ns + SILENT_BEATS * beat;
}

static tri_status do_without(tri_ps_server *server, int number, int64_t silent_ns)
{
    ps_change change = {PS_WITHOUT, number};
    tri_log(TRI_LOG_WARN, "server %d has been silent for %lld ms: its backup takes over", number,
            (long long)(silent_ns / TRI_NS_PER_MS));
    while (ps_view_has(&server->view, number) && is_covered(server, number))
        TRI_TRY(tri_ps_view_make(server, &change));
    return TRI_OK;
}

tri_status tri_ps_beat(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    int64_t beat = tri_ps_beat_ns(server), now_ns = beat > 0 ? tri_now_ns() : 0,
            passed_ns = now_ns - server->beat_look_ns;
    if (beat == 0 || !server->setup.store || passed_ns < beat / 4)
        return TRI_OK;
    server->beat_look_ns = now_ns;
    if (chain->connection && chain->beat <= chain->acknowledged && now_ns - chain->beat_ns >= beat)
        tri_ps_beat_send(server, now_ns);
    if (chain->connection && is_silent(server, &chain->quiet, chain->connection, passed_ns) &&
        is_covered(server, chain->backup))
        return do_without(server, chain->backup, chain->quiet.silent_ns);
    for (ps_client_connection *client = server->clients; client; client = client->next)
        if (client->server >= 0 && is_silent(server, &client->quiet, client->connection, passed_ns) &&
            ps_view_has(&server->view, client->server) && is_covered(server, client->server))
            return do_without(server, client->server, client->quiet.silent_ns); /* clients may have gone */
    return TRI_OK;
}
