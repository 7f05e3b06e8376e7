/* SPDX-License-Identifier: Apache-2.0
 *
 * post_hub.c: the post between threads of a process or fibers of a simulation, over the transports of a hub.
 *
 * What is said of a line travels in the pair's streams (post_hub_stream.c). Memory follows the partners that an
 * endpoint has: a thousand endpoints are one process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net/hub.h"
#include "net/post_hub_impl.h"

#define SCRATCH_NBYTES ((size_t)8 << 10)

/* ---- opening and closing */

static void hub_close(tri_post *post)
{
    hub_post *hub = hub_of(post);

    if (hub->transport)
        hub->transport->ops->close(hub->transport);
    for (int i = 0; i < hub->known_count; i++)
        tri_free(hub->peers[hub->known[i]]);
    tri_free(hub->peers);
    tri_free(hub->known);
    tri_free(hub->want);
    tri_free(hub->piece);
}

static tri_status hub_open(tri_post *post)
{
    hub_post *hub = hub_of(post);
    const tri_post_setup *setup = &post->setup;
    const tri_transport_ops *ops = tri_sim_active() ? &tri_transport_sim : &tri_transport_inproc;
    size_t world = (size_t)setup->world;
    tri_status status = ops->open(&(tri_transport_setup){.config = &post->config,
                                                         .rank = setup->rank,
                                                         .world = setup->world,
                                                         .token = post->token,
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
        status = tri_hub_listen(setup->hub, setup->rank, post->token);
    }
    if (status != TRI_OK)
        hub_close(post);
    return status;
}

static const char *hub_address(const tri_post *post)
{
    const tri_transport *transport = ((const hub_post *)post)->transport;

    return transport->ops->address(transport);
}

/* NULL: out of memory. */
static hub_peer *peer_of(hub_post *hub, int rank)
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

/* ---- lines */

/* A line to a peer that has none. */
static tri_status line_make(hub_post *hub, hub_peer *peer, tri_line **out)
{
    TRI_TRY(tri_post_line_create(&hub->base, sizeof(hub_line), out));
    peer->line = hub_line_of(*out);
    peer->line->peer = peer;
    peer->lines++;
    peer->due++;
    peer->is_over = false;
    snprintf((*out)->from, sizeof(*out)->from, "rank %d", peer->rank);
    return TRI_OK;
}

void tri_post_hub_called(hub_post *hub, hub_peer *peer)
{
    tri_line *line;

    if (hub->base.setup.listens && line_make(hub, peer, &line) == TRI_OK) {
        tri_post_line_called(line);
        return;
    }
    /* Refused: a line that has ended. */
    tri_post_note(&hub->base, "rank %d was refused: %s", peer->rank,
                  hub->base.setup.listens ? tri_last_error() : "this end does not listen");
    peer->lines++;
    peer->due += 2;
}

static tri_status hub_dial(tri_post *post, const char *address, bool once, int64_t deadline_ns, tri_line **out)
{
    hub_post *hub = hub_of(post);
    char *end;
    long rank = strtol(address, &end, 10);
    const char *token;
    hub_peer *peer;
    bool done;

    if (*end || end == address || rank < 0 || rank >= post->setup.world || rank == post->setup.rank)
        return tri_fail(TRI_EPEER, "want another rank of a world of %d, got %.100s", post->setup.world, address);
    while (!(token = tri_hub_listener(post->setup.hub, (int)rank))) {
        if (once || tri_now_ns() >= deadline_ns)
            return tri_fail(TRI_EPEER, "rank %ld does not listen", rank);
        tri_sleep_ns(TRI_NS_PER_MS);
    }
    if (strcmp(token, post->token) != 0)
        return tri_fail(TRI_EPEER, "rank %ld does not know the token of this job", rank);
    peer = peer_of(hub, (int)rank);
    if (!peer)
        return TRI_ENOMEM;
    if (peer->line)
        return tri_fail(TRI_EINVAL, "want one line to rank %ld of a hub, got a second", rank);
    TRI_TRY(line_make(hub, peer, out));
    (*out)->dialed = true;
    if (tri_post_hub_write_rest(hub, peer, &done) == TRI_OK)
        return TRI_OK;
    tri_post_line_end(*out, TRI_EPEER);
    return tri_fail(TRI_EPEER, "rank %ld is gone", rank);
}

static void hub_line_end(tri_line *base)
{
    hub_post *hub = hub_of(base->post);
    hub_peer *peer = hub_line_of(base)->peer;
    bool done;

    if (!peer)
        return;
    peer->line = NULL;
    peer->is_cut = peer->out_nbytes > 0 && peer->due == 0;
    peer->due++;
    peer->is_gone |= tri_post_hub_write_rest(hub, peer, &done) == TRI_EPEER;
}

/* ---- polling */

/* Something may have come from it, or there may be room for what goes to it. */
static void peer_look(hub_post *hub, int rank)
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
    if (tri_post_hub_write_rest(hub, peer, &done) == TRI_EPEER ||
        (!peer->line && tri_post_hub_read_others(hub, peer) == TRI_EPEER)) {
        peer->is_gone = !peer->line; /* a line finds out for itself, after what is still to be read */
        peer->due = 0;
        peer->is_cut = false;
    }
    if (!peer->line)
        return;
    tri_post_line_readable(&peer->line->base);
    tri_post_line_writable(&peer->line->base);
}

static unsigned char peer_want(const hub_peer *peer)
{
    const tri_line *line = peer->line ? &peer->line->base : NULL;
    unsigned char want = 0;

    if (peer->is_gone)
        return 0;
    if (!line || (line->state == LINE_OPEN && !line->paused && !line->readable))
        want |= TRI_WANT_READ;
    if (peer->due > 0 || peer->is_cut ||
        (line && line->state == LINE_OPEN && line->full && !tri_post_queue_is_empty(&line->queue)))
        want |= TRI_WANT_WRITE;
    return want;
}

static tri_status hub_poll(tri_post *post, int64_t deadline_ns)
{
    hub_post *hub = hub_of(post);
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
        for (int rank = 0; rank < post->setup.world; rank++) {
            if (hub->want[rank])
                peer_look(hub, rank);
        }
    }
    if (atomic_exchange(&hub->rung, false))
        post->is_woken = true;
    return TRI_OK;
}

static void hub_wake(tri_post *post)
{
    hub_post *hub = hub_of(post);

    atomic_store(&hub->rung, true);
    hub->transport->ops->wake(hub->transport);
}

const tri_post_ops tri_post_hub = {
    .name = "hub",
    .nbytes = sizeof(hub_post),
    .scratch_nbytes = SCRATCH_NBYTES,
    .open = hub_open,
    .address = hub_address,
    .dial = hub_dial,
    .poll = hub_poll,
    .read = tri_post_hub_read,
    .write = tri_post_hub_write,
    .wake = hub_wake,
    .line_end = hub_line_end,
    .close = hub_close,
};
