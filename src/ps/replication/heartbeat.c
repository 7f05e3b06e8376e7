/* SPDX-License-Identifier: Apache-2.0
 *
 * heartbeat.c: heartbeats between a server and its backup, and the lease that they give.
 *
 * A server that is stopped, or whose host hangs, keeps its connections. It beats to its backup, which acknowledges; a
 * silent one is left out (suspicion.c). The other side of it: a server whose beats were not acknowledged for
 * LEASE_BEATS does not know whether it was left out already, and answers nobody until the next one is
 * (tri_ps_chain_keep()). So each answer was true when it was asked for.
 */
#include "ps/replication/chain.h"
#include "ps/server/connection.h"

#define LEASE_BEATS 3

int64_t tri_ps_beat_ns(const tri_ps_server *server)
{
    return server->setup.replicas > 1 ? server->setup.net->heartbeat_ms * TRI_NS_PER_MS : 0;
}

int64_t tri_ps_beat_ms(const tri_ps_server *server, int64_t otherwise_ms)
{
    int64_t half_ms = tri_ps_beat_ns(server) / TRI_NS_PER_MS / 2 + 1;
    return tri_ps_beat_ns(server) > 0 && half_ms < otherwise_ms ? half_ms : otherwise_ms;
}

/* --- the lease --- */

void tri_ps_beat_send(tri_ps_server *server, int64_t now_ns)
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
    int64_t beat = tri_ps_beat_ns(server), now_ns = beat > 0 ? tri_now_ns() : 0, lease_ns = LEASE_BEATS * beat;
    if (beat == 0 || chain->is_giving || now_ns - chain->leased_ns < lease_ns)
        return true;
    if (chain->beat <= chain->acknowledged || now_ns - chain->beat_ns >= lease_ns)
        tri_ps_beat_send(server, now_ns);
    return false;
}

void tri_ps_beat_acknowledged(ps_chain *chain)
{
    if (chain->beat > 0 && chain->acknowledged >= chain->beat)
        chain->leased_ns = chain->beat_ns;
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
    if (tri_ps_beat_ns(server) == 0)
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
