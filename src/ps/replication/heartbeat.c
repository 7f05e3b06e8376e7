/* SPDX-License-Identifier: Apache-2.0
 *
 * heartbeat.c: signs of life between a server and its backup, and what silence means.
 *
 * A server that is stopped, or whose host hangs, keeps its connections. It beats to its backup, which acknowledges; who
 * is silent for SILENT_BEATS is done without, by whoever has a copy of all that it has. The other side of it: a server
 * whose beats were not acknowledged for LEASE_BEATS does not know whether it is done without already, and tells nobody
 * anything until the next one is (tri_ps_chain_keep()). So what it tells was so when it was asked.
 */
#include "base/log.h"
#include "ps/server/kv.h"
#include "ps/server/server_impl.h"

#define SILENT_BEATS 5
#define LEASE_BEATS  3

static int64_t beat_ns(const tri_ps_server *server)
{
    return server->setup.replicas > 1 ? server->setup.net->heartbeat_ms * TRI_NS_PER_MS : 0;
}

int64_t tri_ps_beat_ms(const tri_ps_server *server, int64_t otherwise_ms)
{
    int64_t half_ms = beat_ns(server) / TRI_NS_PER_MS / 2 + 1;
    return beat_ns(server) > 0 && half_ms < otherwise_ms ? half_ms : otherwise_ms;
}

/* --- the lease --- */

static void beat_say(tri_ps_server *server, int64_t now_ns)
{
    ps_chain *chain = &server->chain;
    tri_message message = ps_head_write(&(ps_head){.kind = PS_BEAT});
    tri_ps_chain_say(server, &message, NULL);
    chain->beat = chain->sent;
    chain->beat_ns = now_ns;
}

/* A backup that has not been given all is nobody who could do without this server. A beat that was on its way when this
 * server was stopped says nothing of now: it would send answers that it has kept although others have taken over. */
bool tri_ps_beat_is_leased(tri_ps_server *server)
{
    ps_chain *chain = &server->chain;
    int64_t beat = beat_ns(server), now_ns = beat > 0 ? tri_now_ns() : 0, lease_ns = LEASE_BEATS * beat;
    if (beat == 0 || chain->is_giving || now_ns - chain->leased_ns < lease_ns)
        return true;
    if (chain->beat <= chain->acknowledged || now_ns - chain->beat_ns >= lease_ns)
        beat_say(server, now_ns);
    return false;
}

void tri_ps_beat_acknowledged(ps_chain *chain)
{
    if (chain->beat > 0 && chain->acknowledged >= chain->beat)
        chain->leased_ns = chain->beat_ns;
}

/* --- silence --- */

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
    int64_t beat = beat_ns(server);
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
    int64_t beat = beat_ns(server), now_ns = beat > 0 ? tri_now_ns() : 0, passed_ns = now_ns - server->beat_look_ns;
    if (beat == 0 || !server->setup.store || passed_ns < beat / 4)
        return TRI_OK;
    server->beat_look_ns = now_ns;
    if (chain->connection && chain->beat <= chain->acknowledged && now_ns - chain->beat_ns >= beat)
        beat_say(server, now_ns);
    if (chain->connection && is_silent(server, &chain->quiet, chain->connection, passed_ns) &&
        is_covered(server, chain->backup))
        return do_without(server, chain->backup, chain->quiet.silent_ns);
    for (ps_client_connection *client = server->clients; client; client = client->next)
        if (client->server >= 0 && is_silent(server, &client->quiet, client->connection, passed_ns) &&
            ps_view_has(&server->view, client->server) && is_covered(server, client->server))
            return do_without(server, client->server, client->quiet.silent_ns); /* clients may have gone */
    return TRI_OK;
}

/* --- long work --- */

static void excuse_say(tri_ps_server *server, tri_connection *connection, int64_t limit_ms)
{
    tri_message message = ps_head_write(&(ps_head){.kind = PS_BEAT, .extra = (double)limit_ms});
    (void)tri_ps_concerns_all(server, tri_connection_send(connection, (unsigned)INT32_MAX, &message, NULL, NULL, NULL));
    tri_connection_flush(connection);
}

void tri_ps_beat_excuse(tri_ps_server *server, int64_t limit_ms)
{
    if (beat_ns(server) == 0)
        return;
    if (server->chain.connection && server->chain.acknowledged > 0) /* it knows whose connection this is */
        excuse_say(server, server->chain.connection, limit_ms);
    for (ps_client_connection *client = server->clients; client; client = client->next)
        if (client->server >= 0)
            excuse_say(server, client->connection, limit_ms);
}

/* Nobody is excused for longer than whoever waits for him waits. */
void tri_ps_beat_excused(const tri_ps_server *server, ps_quiet *quiet, const tri_connection *connection,
                         double limit_ms)
{
    double most_ms = server->setup.net->timeout_s * 1e3;
    limit_ms = limit_ms < most_ms ? limit_ms : most_ms;
    *quiet =
        (ps_quiet){.heard = tri_connection_received(connection), .excused_ns = (int64_t)(limit_ms * TRI_NS_PER_MS)};
}
