/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.c: ranks as fibers of a simulation: bytes that travel as messages, for as long as the fabric says (fabric.h).
 *
 * Memory follows what is under way: a pipe exists once something was written, and holds the messages that are not read
 * yet, at most comm.slot_kib. Those for one host wait in `coming` by the time their head is there, and when no earlier
 * one can come any more pass its interface; then, and inside a host at once, it is known when they are there, and they
 * wait in `due` of their rank. Fibers of one OS thread: no atomics; the locks are only for sleeping.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "net/hub.h"
#include "net/sim_heap.h"

/* What a message holds at most, so that the first bytes of much arrive before the last are sent. */
#define MESSAGE_NBYTES ((size_t)64 << 10)
#define ALIGN          ((size_t)64) /* of the bytes that are lent, as their place in the stream is */
/* What a rank says to all at once: an abort and a goodbye. */
#define REST_NBYTES ((size_t)2048)
#define RESTS       2

typedef struct sim_message {
    struct sim_message *next;
    struct sim_pipe *pipe;
    tri_fabric_trip trip;
    int64_t at_ns; /* when it is there; TRI_FOREVER: not known yet */
    size_t nbytes, read_nbytes;
    unsigned char *bytes;
} sim_message;

typedef struct sim_pipe {
    int from, to;
    sim_message *first, *last;
    size_t held_nbytes;
    uint64_t written_nbytes;
    int64_t latest_ns; /* when the latest that is known is there */
    uint64_t woken;    /* the wait of the reader that has been told of it */
    bool starved;      /* the writer found no room */
    tri_fabric_link link;
} sim_pipe;

typedef struct sim_port {
    tri_mutex mutex;
    tri_cond cond;
    tri_port_state state;
    sim_pipe **in;             /* [world], by sender; made with the first pipe */
    sim_heap due;              /* senders, by when a message of theirs is there */
    const unsigned char *want; /* of the wait under way; NULL: none */
    int64_t until_ns;          /* when the sleeper looks again */
    uint64_t waits;
    bool freed;    /* a reader made room for which this rank waited */
    uint64_t news; /* of the hub, when this rank looked last */
    /* Said to all who had no pipe by then. */
    unsigned char *rest;
    struct {
        size_t upto;
        int64_t at_ns;
    } rests[RESTS];
    int rest_count;
    uint16_t *heard; /* [world], by sender: bytes of its rest that were read */
} sim_port;

struct tri_sim_hub {
    int world;
    tri_fabric *fabric;
    sim_port *ports;
    sim_heap *coming; /* [hosts]: messages by head_ns */
    uint64_t news;    /* ranks that left or said something to all */
};

typedef struct endpoint {
    tri_transport base;
    tri_sim_hub *sim;
    sim_port *port;
    size_t window_nbytes;
    int *woken; /* [world] */
    size_t woken_count;
    char address[16];
} endpoint;

/* ---- the place */

void tri_sim_hub_destroy(tri_sim_hub *sim)
{
    if (!sim)
        return;
    for (int r = 0; sim->ports && r < sim->world; r++) {
        sim_port *port = &sim->ports[r];

        for (int from = 0; port->in && from < sim->world; from++) {
            while (port->in[from] && port->in[from]->first) {
                sim_message *message = port->in[from]->first;

                port->in[from]->first = message->next;
                tri_free(message);
            }
            tri_free(port->in[from]);
        }
        tri_free(port->in);
        tri_free(port->rest);
        tri_free(port->heard);
        sim_heap_fini(&port->due);
        tri_cond_fini(&port->cond);
        tri_mutex_fini(&port->mutex);
    }
    for (int host = 0; sim->coming && host < tri_fabric_host_count(sim->fabric); host++)
        sim_heap_fini(&sim->coming[host]);
    tri_free(sim->coming);
    tri_free(sim->ports);
    tri_free(sim);
}

static tri_status sim_hub_create(tri_hub *hub)
{
    tri_sim_hub *sim = tri_alloc_zero(1, sizeof *sim);

    if (!sim)
        return TRI_ENOMEM;
    sim->fabric = hub->fabric;
    sim->world = hub->config.world;
    sim->coming = tri_alloc_zero((size_t)tri_fabric_host_count(hub->fabric), sizeof *sim->coming);
    sim->ports = tri_alloc_zero((size_t)sim->world, sizeof *sim->ports);
    for (int r = 0; sim->ports && r < sim->world; r++) {
        tri_mutex_init(&sim->ports[r].mutex);
        tri_cond_init(&sim->ports[r].cond);
    }
    if (!sim->coming || !sim->ports) {
        tri_sim_hub_destroy(sim);
        return TRI_ENOMEM;
    }
    hub->sim = sim;
    return TRI_OK;
}

static sim_port *port_of(const endpoint *end, int rank)
{
    return &end->sim->ports[rank];
}

static sim_pipe *pipe_of(const endpoint *end, int from, int to)
{
    sim_port *port = port_of(end, to);

    return port->in ? port->in[from] : NULL;
}

static tri_status sim_open(const tri_transport_setup *setup, tri_transport **out)
{
    tri_hub *hub = setup->hub;
    endpoint *end;

    *out = NULL;
    if (!tri_sim_active())
        return tri_fail(TRI_EINVAL, "net sim: works only inside a simulation; threads use inproc");
    TRI_TRY(tri_hub_check(setup, "sim"));
    if (!hub->sim)
        TRI_TRY(sim_hub_create(hub));
    if (hub->sim->ports[setup->rank].state != TRI_PORT_NEW)
        return tri_fail(TRI_EINVAL, "net sim: rank %d was opened on this hub before", setup->rank);
    end = tri_alloc_zero(1, sizeof *end);
    if (!end)
        return TRI_ENOMEM;
    end->woken = tri_alloc_zero((size_t)setup->world, sizeof *end->woken);
    if (!end->woken) {
        tri_free(end);
        return TRI_ENOMEM;
    }
    end->base = (tri_transport){.ops = &tri_transport_sim, .rank = setup->rank, .world = setup->world};
    end->sim = hub->sim;
    end->port = port_of(end, setup->rank);
    end->port->state = TRI_PORT_OPEN;
    end->window_nbytes = (size_t)setup->config->slot_kib << 10;
    snprintf(end->address, sizeof end->address, "%d", setup->rank);
    /* The rank is this fiber and those that it starts. */
    tri_sim_add_rate_set((double)tri_fabric_figures(hub->fabric)->add_rate /
                         tri_fabric_slowness(hub->fabric, setup->rank));
    *out = &end->base;
    return TRI_OK;
}

static const char *sim_address(const tri_transport *transport)
{
    return ((const endpoint *)transport)->address;
}

static tri_status sim_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns)
{
    endpoint *end = (endpoint *)transport;

    for (int peer = 0; peer < transport->world; peer++) {
        if (peer == transport->rank || !addresses[peer])
            continue;
        while (port_of(end, peer)->state == TRI_PORT_NEW) {
            if (tri_now_ns() >= deadline_ns)
                return tri_fail(TRI_ETIMEOUT, "rank %d does not come to the hub", peer);
            tri_sleep_ns(TRI_NS_PER_MS);
        }
    }
    return TRI_OK;
}

/* ---- time */

static void port_wake(sim_port *port, int from, unsigned char event)
{
    if (port->want && (port->want[from] & event)) {
        port->until_ns = 0;
        tri_mutex_lock(&port->mutex);
        tri_cond_broadcast(&port->cond);
        tri_mutex_unlock(&port->mutex);
    }
}

/* It is known when the message is there. */
static tri_status message_settle(tri_sim_hub *sim, sim_message *message, int64_t at_ns)
{
    sim_pipe *pipe = message->pipe;

    if (at_ns < pipe->latest_ns)
        at_ns = pipe->latest_ns;
    pipe->latest_ns = message->at_ns = at_ns;
    return sim_heap_push(&sim->ports[pipe->to].due, at_ns, (uint64_t)pipe->from, NULL);
}

/* Messages whose head nobody can come before any more pass the interface of the host. */
static tri_status host_advance(tri_sim_hub *sim, int host, int64_t now_ns)
{
    sim_heap *coming = &sim->coming[host];

    while (sim_heap_first_ns(coming) <= now_ns + tri_fabric_ahead_ns(sim->fabric)) {
        sim_message *message = sim_heap_pop(coming).subject;

        TRI_TRY(message_settle(sim, message,
                               tri_fabric_receive(sim->fabric, message->pipe->to, message->trip, message->nbytes)));
    }
    return TRI_OK;
}

/* ---- writing */

static tri_status peer_gone(int peer)
{
    return tri_fail(TRI_EPEER, "rank %d is gone (connection closed)", peer);
}

static sim_pipe *pipe_make(const endpoint *end, int peer)
{
    sim_port *port = port_of(end, peer);
    sim_pipe *pipe;

    if (!port->in)
        port->in = tri_alloc_zero((size_t)end->base.world, sizeof(*port->in));
    pipe = port->in ? tri_alloc_zero(1, sizeof *pipe) : NULL;
    if (!pipe)
        return NULL;
    pipe->from = end->base.rank;
    pipe->to = peer;
    port->in[pipe->from] = pipe;
    return pipe;
}

static tri_status message_send(endpoint *end, sim_pipe *pipe, const void *bytes, size_t nbytes)
{
    tri_sim_hub *sim = end->sim;
    sim_message *message = tri_alloc(sizeof *message + nbytes + 2 * ALIGN);
    int host = tri_fabric_host(sim->fabric, pipe->to);
    int64_t look_ns;
    uintptr_t at;

    if (!message)
        return TRI_ENOMEM;
    at = ((uintptr_t)(message + 1) + ALIGN - 1) / ALIGN * ALIGN + pipe->written_nbytes % ALIGN;
    *message = (sim_message){.pipe = pipe, .at_ns = TRI_FOREVER, .nbytes = nbytes, .bytes = (unsigned char *)at};
    memcpy(message->bytes, bytes, nbytes);
    message->trip = tri_fabric_send(sim->fabric, pipe->from, pipe->to, &pipe->link, nbytes);
    if (pipe->last)
        pipe->last->next = message;
    else
        pipe->first = message;
    pipe->last = message;
    pipe->held_nbytes += nbytes;
    pipe->written_nbytes += nbytes;
    if (tri_fabric_host(sim->fabric, pipe->from) == host) {
        TRI_TRY(message_settle(sim, message, message->trip.tail_ns));
    } else {
        TRI_TRY(sim_heap_push(&sim->coming[host], message->trip.head_ns, 0, message));
        TRI_TRY(host_advance(sim, host, tri_now_ns()));
    }
    look_ns = message->at_ns < TRI_FOREVER ? message->at_ns : message->trip.head_ns - tri_fabric_ahead_ns(sim->fabric);
    if (look_ns < sim->ports[pipe->to].until_ns)
        port_wake(&sim->ports[pipe->to], pipe->from, TRI_WANT_READ);
    return TRI_OK;
}

static tri_status sim_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken)
{
    endpoint *end = (endpoint *)transport;
    sim_pipe *pipe = pipe_of(end, transport->rank, peer);
    size_t room;

    *taken = 0;
    if (port_of(end, peer)->state == TRI_PORT_CLOSED)
        return peer_gone(peer);
    if (!pipe && !(pipe = pipe_make(end, peer)))
        return TRI_ENOMEM;
    room = end->window_nbytes - pipe->held_nbytes;
    pipe->starved = nbytes > room;
    if (nbytes > room)
        nbytes = room;
    if (nbytes > MESSAGE_NBYTES) {
        nbytes = MESSAGE_NBYTES;
        end->port->freed = true; /* there is still room */
    }
    if (nbytes == 0)
        return TRI_OK;
    TRI_TRY(message_send(end, pipe, bytes, nbytes));
    *taken = nbytes;
    return TRI_OK;
}

static void news_spread(endpoint *end)
{
    end->sim->news++;
    for (int peer = 0; peer < end->base.world; peer++)
        port_wake(port_of(end, peer), end->base.rank, TRI_WANT_READ | TRI_WANT_WRITE);
}

/* As one message that everybody hears a latency later; without memory nobody does, as of a rank that died. */
static void sim_write_rest(tri_transport *transport, const void *bytes, size_t nbytes)
{
    endpoint *end = (endpoint *)transport;
    sim_port *port = end->port;
    size_t used = port->rest_count > 0 ? port->rests[port->rest_count - 1].upto : 0;

    if (!port->rest)
        port->rest = tri_alloc(REST_NBYTES);
    if (!port->rest || port->rest_count == RESTS || used + nbytes > REST_NBYTES)
        return;
    memcpy(port->rest + used, bytes, nbytes);
    port->rests[port->rest_count].upto = used + nbytes;
    port->rests[port->rest_count++].at_ns = tri_now_ns() + tri_fabric_ahead_ns(end->sim->fabric);
    news_spread(end);
}

/* ---- reading */

/* What the peer said to all and this rank has not heard yet: bytes that are there, or when the next ones are. */
static size_t rest_left(const endpoint *end, int peer, const void **bytes, int64_t *next_ns)
{
    const sim_port *port = port_of(end, peer);
    size_t heard = end->port->heard ? end->port->heard[peer] : 0, upto = 0;
    int64_t now_ns = tri_now_ns();

    *next_ns = TRI_FOREVER;
    if (port->rest_count == 0 || pipe_of(end, peer, end->base.rank))
        return 0;
    for (int i = 0; i < port->rest_count && *next_ns == TRI_FOREVER; i++) {
        if (port->rests[i].at_ns <= now_ns)
            upto = port->rests[i].upto;
        else
            *next_ns = port->rests[i].at_ns;
    }
    *bytes = port->rest + heard;
    return upto > heard ? upto - heard : 0;
}

/* The bytes that are there in one piece. EPEER when there will never be more. */
static tri_status inbound(endpoint *end, int peer, const void **bytes, size_t *nbytes)
{
    sim_pipe *pipe = pipe_of(end, peer, end->base.rank);
    int64_t now_ns = tri_now_ns(), next_ns;
    sim_message *first = pipe ? pipe->first : NULL;

    *nbytes = 0;
    *bytes = NULL;
    if (first && first->at_ns == TRI_FOREVER)
        TRI_TRY(host_advance(end->sim, tri_fabric_host(end->sim->fabric, end->base.rank), now_ns));
    if (first && first->at_ns <= now_ns) {
        *bytes = first->bytes + first->read_nbytes;
        *nbytes = first->nbytes - first->read_nbytes;
        return TRI_OK;
    }
    *nbytes = rest_left(end, peer, bytes, &next_ns);
    if (*nbytes == 0 && !first && next_ns == TRI_FOREVER && port_of(end, peer)->state == TRI_PORT_CLOSED)
        return peer_gone(peer);
    return TRI_OK;
}

static tri_status sim_peek(tri_transport *transport, int peer, const void **bytes, size_t *nbytes)
{
    return inbound((endpoint *)transport, peer, bytes, nbytes);
}

/* nbytes of the first piece were read. */
static void sim_consume(tri_transport *transport, int peer, size_t nbytes)
{
    endpoint *end = (endpoint *)transport;
    sim_pipe *pipe = pipe_of(end, peer, transport->rank);
    sim_message *first = pipe ? pipe->first : NULL;

    if (!first) {
        end->port->heard[peer] = (uint16_t)(end->port->heard[peer] + nbytes);
        return;
    }
    first->read_nbytes += nbytes;
    pipe->held_nbytes -= nbytes;
    if (pipe->starved) {
        pipe->starved = false;
        port_of(end, peer)->freed = true;
        port_wake(port_of(end, peer), transport->rank, TRI_WANT_WRITE);
    }
    if (first->read_nbytes < first->nbytes)
        return;
    pipe->first = first->next;
    if (!pipe->first)
        pipe->last = NULL;
    tri_free(first);
}

static tri_status sim_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given)
{
    endpoint *end = (endpoint *)transport;
    const void *from;
    size_t piece;

    *given = 0;
    while (nbytes > *given) {
        tri_status status = inbound(end, peer, &from, &piece);

        if (status != TRI_OK || piece == 0)
            return *given > 0 ? TRI_OK : status;
        if (!pipe_of(end, peer, transport->rank) && !end->port->heard &&
            !(end->port->heard = tri_alloc_zero((size_t)transport->world, sizeof *end->port->heard)))
            return TRI_ENOMEM;
        if (piece > nbytes - *given)
            piece = nbytes - *given;
        memcpy((char *)bytes + *given, from, piece);
        sim_consume(transport, peer, piece);
        *given += piece;
    }
    return TRI_OK;
}

/* ---- waiting */

static void wake_note(endpoint *end, int peer)
{
    end->woken[end->woken_count++] = peer;
}

/* Peers that left or said something to all, and those with room again. Rare, so all who are wanted are looked at. */
static int64_t look_at_all(endpoint *end, const unsigned char *want)
{
    int64_t least_ns = TRI_FOREVER;

    end->port->freed = false;
    end->port->news = end->sim->news;
    for (int peer = 0; peer < end->base.world; peer++) {
        const sim_pipe *out;
        const void *bytes;
        size_t nbytes;
        int64_t next_ns;
        bool closed;

        if (!want[peer] || peer == end->base.rank)
            continue;
        closed = port_of(end, peer)->state == TRI_PORT_CLOSED;
        out = pipe_of(end, end->base.rank, peer);
        if ((want[peer] & TRI_WANT_WRITE) && (closed || !out || out->held_nbytes < end->window_nbytes)) {
            wake_note(end, peer);
        } else if (want[peer] & TRI_WANT_READ) {
            if (inbound(end, peer, &bytes, &nbytes) != TRI_OK || nbytes > 0)
                wake_note(end, peer);
            (void)rest_left(end, peer, &bytes, &next_ns);
            if (next_ns < least_ns)
                least_ns = next_ns;
        }
    }
    if (least_ns < TRI_FOREVER)
        end->port->news--; /* to look again */
    return least_ns;
}

/* Notes who can go on by now; *until_ns becomes when that may next change by itself. */
static tri_status port_look(endpoint *end, const unsigned char *want, int64_t now_ns, int64_t *until_ns)
{
    sim_port *port = end->port;
    int host = tri_fabric_host(end->sim->fabric, end->base.rank);
    int64_t least_ns = TRI_FOREVER, coming_ns;

    TRI_TRY(host_advance(end->sim, host, now_ns));
    end->woken_count = 0;
    if (port->freed || port->news != end->sim->news)
        least_ns = look_at_all(end, want);
    if (end->woken_count > 0)
        return TRI_OK;
    while (sim_heap_first_ns(&port->due) <= now_ns) {
        int peer = (int)sim_heap_pop(&port->due).key;
        sim_pipe *pipe = port->in[peer];

        if ((want[peer] & TRI_WANT_READ) && pipe->woken != port->waits) {
            pipe->woken = port->waits;
            wake_note(end, peer);
        }
    }
    if (sim_heap_first_ns(&port->due) < least_ns)
        least_ns = sim_heap_first_ns(&port->due);
    coming_ns = sim_heap_first_ns(&end->sim->coming[host]);
    if (coming_ns < TRI_FOREVER && coming_ns - tri_fabric_ahead_ns(end->sim->fabric) < least_ns)
        least_ns = coming_ns - tri_fabric_ahead_ns(end->sim->fabric);
    if (least_ns < *until_ns)
        *until_ns = least_ns;
    return TRI_OK;
}

static tri_status sim_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns)
{
    endpoint *end = (endpoint *)transport;
    sim_port *port = end->port;
    tri_status status;

    port->waits++;
    tri_mutex_lock(&port->mutex);
    for (;;) {
        int64_t now_ns = tri_now_ns(), until_ns = deadline_ns;

        status = port_look(end, want, now_ns, &until_ns);
        if (status != TRI_OK || end->woken_count > 0 || now_ns >= deadline_ns)
            break;
        port->want = want;
        port->until_ns = until_ns;
        tri_cond_wait(&port->cond, &port->mutex, until_ns);
        port->want = NULL;
    }
    tri_mutex_unlock(&port->mutex);
    return status;
}

static size_t sim_woken(const tri_transport *transport, const int **peers)
{
    *peers = ((const endpoint *)transport)->woken;
    return ((const endpoint *)transport)->woken_count;
}

static void sim_close(tri_transport *transport)
{
    endpoint *end = (endpoint *)transport;

    if (!end)
        return;
    end->port->state = TRI_PORT_CLOSED;
    news_spread(end);
    tri_free(end->woken);
    tri_free(end);
}

const tri_transport_ops tri_transport_sim = {
    .name = "sim",
    .does = "ranks as fibers of a simulation, on virtual time",
    .open = sim_open,
    .address = sim_address,
    .connect = sim_connect,
    .write_some = sim_write_some,
    .read_some = sim_read_some,
    .peek = sim_peek,
    .consume = sim_consume,
    .wait = sim_wait,
    .woken = sim_woken,
    .write_rest = sim_write_rest,
    .close = sim_close,
};
