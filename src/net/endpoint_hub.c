/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_hub.c: the endpoint between threads of a process or fibers of a simulation, over the transports of a hub.
 *
 * What is said of a connection travels in the pair's streams (endpoint_hub_stream.c). Memory follows the partners that
 * an endpoint has: a thousand endpoints are one process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net/endpoint_hub_impl.h"
#include "net/hub.h"

#define SCRATCH_NBYTES ((size_t)8 << 10)

/* ---- opening and closing */

static void hub_close(tri_endpoint *endpoint)
{
    hub_endpoint *hub = hub_of(endpoint);

    if (hub->transport)
        hub->transport->ops->close(hub->transport);
    for (int i = 0; i < hub->known_count; i++)
        tri_free(hub->peers[hub->known[i]]);
    tri_free(hub->peers);
    tri_free(hub->known);
    tri_free(hub->want);
    tri_free(hub->piece);
}

static tri_status hub_open(tri_endpoint *endpoint)
{
    hub_endpoint *hub = hub_of(endpoint);
    const tri_endpoint_setup *setup = &endpoint->setup;
    const tri_transport_ops *ops = tri_sim_active() ? &tri_transport_sim : &tri_transport_inproc;
    size_t world = (size_t)setup->world;
    tri_status status = ops->open(&(tri_transport_setup){.config = &endpoint->config,
                                                         .rank = setup->rank,
                                                         .world = setup->world,
                                                         .token = endpoint->token,
                                                         .hub = setup->hub},
                                  &hub->transport);

    if (status != TRI_OK)
        return status;
    hub->peers = tri_alloc_zero(world, sizeof *hub->peers);
    hub->known = tri_alloc_zero(world, sizeof *hub->known);
    hub->want = tri_alloc_zero(world, sizeof *hub->want);
    hub->piece_nbytes = TRI_HUB_HEAD_NBYTES;
    hub->piece = tri_alloc(hub->piece_nbytes);
    status = hub->peers && hub->known && hub->want && hub->piece ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && setup->listens) {
        memset(hub->want, TRI_WANT_READ, world);
        hub->want[setup->rank] = 0;
        status = tri_hub_listen(setup->hub, setup->rank, endpoint->token);
    }
    if (status != TRI_OK)
        hub_close(endpoint);
    return status;
}

static const char *hub_address(const tri_endpoint *endpoint)
{
    const tri_transport *transport = ((const hub_endpoint *)endpoint)->transport;

    return transport->ops->address(transport);
}

/* NULL: out of memory. */
static hub_peer *peer_of(hub_endpoint *hub, int rank)
{
    hub_peer *peer = hub->peers[rank];

    if (peer)
        return peer;
    peer = tri_alloc_zero(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->rank = rank;
    hub->peers[rank] = peer;
    hub->known[hub->known_count++] = rank;
    return peer;
}

/* ---- connections */

/* A connection to a peer that has none. */
static tri_status connection_make(hub_endpoint *hub, hub_peer *peer, tri_connection **out)
{
    TRI_TRY(tri_connection_create(&hub->base, sizeof(hub_connection), out));
    peer->connection = hub_connection_of(*out);
    peer->connection->peer = peer;
    peer->connections++;
    peer->due++;
    peer->is_over = false;
    snprintf((*out)->from, sizeof(*out)->from, "rank %d", peer->rank);
    return TRI_OK;
}

void tri_endpoint_hub_called(hub_endpoint *hub, hub_peer *peer)
{
    tri_connection *connection;

    if (hub->base.setup.listens && connection_make(hub, peer, &connection) == TRI_OK) {
        tri_connection_accepted(connection);
        return;
    }
    /* Refused: a connection that has ended. */
    tri_endpoint_warn(&hub->base, "rank %d was refused: %s", peer->rank,
                      hub->base.setup.listens ? tri_last_error() : "this end does not listen");
    peer->connections++;
    peer->due += 2;
}

static tri_status hub_dial(tri_endpoint *endpoint, const char *address, bool once, int64_t deadline_ns,
                           tri_connection **out)
{
    hub_endpoint *hub = hub_of(endpoint);
    char *end;
    long rank = strtol(address, &end, 10);
    const char *token;
    hub_peer *peer;
    bool done;

    if (*end || end == address || rank < 0 || rank >= endpoint->setup.world || rank == endpoint->setup.rank)
        return tri_fail(TRI_EPEER, "want another rank of a world of %d, got %.100s", endpoint->setup.world, address);
    while (!(token = tri_hub_listener(endpoint->setup.hub, (int)rank))) {
        if (once || tri_now_ns() >= deadline_ns)
            return tri_fail(TRI_EPEER, "rank %ld does not listen", rank);
        tri_sleep_ns(TRI_NS_PER_MS);
    }
    if (strcmp(token, endpoint->token) != 0)
        return tri_fail(TRI_EPEER, "rank %ld does not know the token of this job", rank);
    peer = peer_of(hub, (int)rank);
    if (!peer)
        return TRI_ENOMEM;
    if (peer->connection)
        return tri_fail(TRI_EINVAL, "want one connection to rank %ld of a hub, got a second", rank);
    TRI_TRY(connection_make(hub, peer, out));
    (*out)->dialed = true;
    if (tri_endpoint_hub_write_rest(hub, peer, &done) == TRI_OK)
        return TRI_OK;
    tri_connection_end(*out, TRI_EPEER);
    return tri_fail(TRI_EPEER, "rank %ld is gone", rank);
}

static void hub_connection_end(tri_connection *base)
{
    hub_endpoint *hub = hub_of(base->endpoint);
    hub_peer *peer = hub_connection_of(base)->peer;
    bool done;

    if (!peer)
        return;
    peer->connection = NULL;
    peer->is_cut = peer->out_nbytes > 0 && peer->due == 0;
    peer->due++;
    peer->is_gone |= tri_endpoint_hub_write_rest(hub, peer, &done) == TRI_EPEER;
}

/* ---- polling */

/* Something may have come from it, or there may be room for what goes to it. */
static void peer_look(hub_endpoint *hub, int rank)
{
    hub_peer *peer = hub->peers[rank];
    const void *bytes;
    size_t nbytes;
    bool done;

    if (!peer) {
        if (hub->transport->ops->peek(hub->transport, rank, &bytes, &nbytes) != TRI_OK)
            hub->want[rank] = 0; /* it has left without a word */
        else if (nbytes > 0)
            peer = peer_of(hub, rank);
        if (!peer)
            return;
    }
    if (tri_endpoint_hub_write_rest(hub, peer, &done) == TRI_EPEER ||
        (!peer->connection && tri_endpoint_hub_read_others(hub, peer) == TRI_EPEER)) {
        peer->is_gone = !peer->connection; /* a connection finds out for itself, after what is still to be read */
        peer->due = 0;
        peer->is_cut = false;
    }
    if (!peer->connection)
        return;
    tri_connection_readable(&peer->connection->base);
    tri_connection_writable(&peer->connection->base);
}

static unsigned char peer_want(const hub_peer *peer)
{
    const tri_connection *connection = peer->connection ? &peer->connection->base : NULL;
    unsigned char want = 0;

    if (peer->is_gone)
        return 0;
    if (!connection || (connection->state == CONNECTION_OPEN && !connection->paused && !connection->readable))
        want |= TRI_WANT_READ;
    if (peer->due > 0 || peer->is_cut ||
        (connection && connection->state == CONNECTION_OPEN && connection->full &&
         !tri_endpoint_queue_is_empty(&connection->queue)))
        want |= TRI_WANT_WRITE;
    return want;
}

static tri_status hub_poll(tri_endpoint *endpoint, int64_t deadline_ns)
{
    hub_endpoint *hub = hub_of(endpoint);
    const tri_transport_ops *ops = hub->transport->ops;
    const int *woken;

    for (int i = 0; i < hub->known_count; i++)
        hub->want[hub->known[i]] = peer_want(hub->peers[hub->known[i]]);
    if (ops->woken || deadline_ns > 0)
        TRI_TRY(ops->wait(hub->transport, hub->want, deadline_ns));
    if (ops->woken) {
        size_t count = ops->woken(hub->transport, &woken);

        for (size_t i = 0; i < count; i++)
            peer_look(hub, woken[i]);
    } else {
        for (int rank = 0; rank < endpoint->setup.world; rank++) {
            if (hub->want[rank])
                peer_look(hub, rank);
        }
    }
    if (atomic_exchange(&hub->rung, false))
        endpoint->is_woken = true;
    return TRI_OK;
}

static void hub_wake(tri_endpoint *endpoint)
{
    hub_endpoint *hub = hub_of(endpoint);

    atomic_store(&hub->rung, true);
    hub->transport->ops->wake(hub->transport);
}

const tri_endpoint_ops tri_endpoint_hub = {
    .name = "hub",
    .nbytes = sizeof(hub_endpoint),
    .scratch_nbytes = SCRATCH_NBYTES,
    .open = hub_open,
    .address = hub_address,
    .dial = hub_dial,
    .poll = hub_poll,
    .read = tri_endpoint_hub_read,
    .write = tri_endpoint_hub_write,
    .wake = hub_wake,
    .connection_end = hub_connection_end,
    .close = hub_close,
};
