/* SPDX-License-Identifier: Apache-2.0
 *
 * hub.c: the place where ranks of one process meet, and the transport between those that are threads.
 *
 * A sleeper sets `sleeping`, looks at its pipes once more, and waits; whoever writes to or reads from one of them looks
 * at `sleeping` afterwards. All four are seq_cst, so at least one of the two sees the other.
 */
#include "net/hub.h"

#include <stdio.h>

#include "base/memory.h"

#define YIELDS_BEFORE_SLEEP 4
#define PIPE_ALIGN          ((size_t)TRI_LINES_APART) /* no less than that of a tri_pipe */

typedef struct endpoint {
    tri_transport base;
    tri_hub *hub;
    tri_port *port;
    size_t ring_nbytes;
    char address[16];
} endpoint;

tri_status tri_hub_create(const tri_hub_config *config, tri_hub **out)
{
    tri_hub *hub;
    tri_status status;

    *out = NULL;
    if (config->world < 1)
        return tri_fail(TRI_EINVAL, "hub: want a world of 1 or more, got %d", config->world);
    hub = tri_alloc_zero(1, sizeof *hub);
    if (!hub)
        return TRI_ENOMEM;
    hub->config = *config;
    hub->ports = tri_alloc_zero((size_t)config->world, sizeof *hub->ports);
    hub->pipes = tri_alloc_zero((size_t)config->world * (size_t)config->world, sizeof *hub->pipes);
    for (int r = 0; hub->ports && r < config->world; r++) {
        tri_mutex_init(&hub->ports[r].mutex);
        tri_cond_init(&hub->ports[r].cond);
    }
    hub->config.host = NULL;
    status = hub->ports && hub->pipes ? tri_fabric_create(&config->fabric, config->world, config->host, &hub->fabric)
                                      : TRI_ENOMEM;
    if (status != TRI_OK) {
        tri_hub_destroy(hub);
        return status;
    }
    for (int r = 0; r < config->world; r++)
        hub->ports[r].in = hub->pipes + (size_t)r * (size_t)config->world;
    *out = hub;
    return TRI_OK;
}

void tri_hub_destroy(tri_hub *hub)
{
    if (!hub)
        return;
    tri_sim_hub_destroy(hub->sim);
    tri_fabric_destroy(hub->fabric);
    for (int r = 0; hub->ports && r < hub->config.world; r++) {
        tri_port *port = &hub->ports[r];

        tri_free(port->out);
        tri_free(atomic_load(&port->token));
        tri_cond_fini(&port->cond);
        tri_mutex_fini(&port->mutex);
    }
    tri_free(hub->pipes);
    tri_free(hub->ports);
    tri_free(hub);
}

tri_fabric *tri_hub_fabric(const tri_hub *hub)
{
    return hub->fabric;
}

_Static_assert(_Alignof(tri_pipe) <= PIPE_ALIGN, "pipes lie at multiples of PIPE_ALIGN");

static size_t pipe_round(size_t nbytes)
{
    return (nbytes + PIPE_ALIGN - 1) / PIPE_ALIGN * PIPE_ALIGN;
}

/* A pipe, its ring: readers are lent the ring's bytes where they are and expect them aligned. */
static size_t pipe_nbytes(size_t ring_nbytes)
{
    return pipe_round(sizeof(tri_pipe)) + pipe_round(ring_nbytes);
}

/* The pipe to a peer in the port's memory, seen by the peer from now on. */
static tri_pipe *pipe_make(const endpoint *from, int peer)
{
    uintptr_t at = pipe_round((uintptr_t)from->port->out) + (size_t)peer * pipe_nbytes(from->ring_nbytes);
    tri_pipe *pipe = (tri_pipe *)at;

    pipe->ring = (tri_ring){.ends = &pipe->ends,
                            .bytes = (unsigned char *)(at + pipe_round(sizeof(tri_pipe))),
                            .capacity = from->ring_nbytes};
    atomic_store(&from->hub->ports[peer].in[from->base.rank], pipe);
    return pipe;
}

static void port_wake(tri_port *port)
{
    if (!atomic_load(&port->sleeping))
        return;
    tri_mutex_lock(&port->mutex);
    tri_cond_broadcast(&port->cond);
    tri_mutex_unlock(&port->mutex);
}

tri_status tri_hub_check(const tri_transport_setup *setup, const char *name)
{
    if (!setup->hub)
        return tri_fail(TRI_EINVAL,
                        "comm.transport %s is for ranks of one process: want shm, tcp or ucx between processes", name);
    if (setup->world != setup->hub->config.world || setup->rank < 0 || setup->rank >= setup->world)
        return tri_fail(TRI_EINVAL, "net %s: want a rank of a world of %d, got rank %d of %d", name,
                        setup->hub->config.world, setup->rank, setup->world);
    return TRI_OK;
}

tri_status tri_hub_listen(tri_hub *hub, int rank, const char *token)
{
    char *copy = tri_strdup(token);

    if (!copy)
        return TRI_ENOMEM;
    tri_free(atomic_exchange(&hub->ports[rank].token, copy));
    return TRI_OK;
}

const char *tri_hub_listener(const tri_hub *hub, int rank)
{
    return atomic_load(&hub->ports[rank].token);
}

tri_status tri_hub_endpoint_open(const tri_transport_ops *ops, const tri_transport_setup *setup, tri_transport **out)
{
    tri_hub *hub = setup->hub;
    size_t ring_nbytes = (size_t)setup->config->slot_kib << 10;
    int wanted = TRI_PORT_NEW;
    endpoint *end;

    *out = NULL;
    TRI_TRY(tri_hub_check(setup, ops->name));
    end = tri_alloc_zero(1, sizeof *end);
    if (!end)
        return TRI_ENOMEM;
    if (!atomic_compare_exchange_strong(&hub->ports[setup->rank].state, &wanted, TRI_PORT_OPEN)) {
        tri_free(end);
        return tri_fail(TRI_EINVAL, "net %s: rank %d was opened on this hub before", ops->name, setup->rank);
    }
    end->base = (tri_transport){.ops = ops, .rank = setup->rank, .world = setup->world};
    end->hub = hub;
    end->port = &hub->ports[setup->rank];
    /* Zeros of the system: what is never written to costs no memory. */
    end->port->out = tri_alloc_zero((size_t)setup->world + 1, pipe_nbytes(ring_nbytes));
    if (!end->port->out) {
        tri_hub_endpoint_close(&end->base);
        return TRI_ENOMEM;
    }
    end->ring_nbytes = ring_nbytes;
    snprintf(end->address, sizeof end->address, "%d", setup->rank);
    *out = &end->base;
    return TRI_OK;
}

const char *tri_hub_endpoint_address(const tri_transport *transport)
{
    return ((const endpoint *)transport)->address;
}

tri_status tri_hub_endpoint_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns)
{
    endpoint *end = (endpoint *)transport;

    for (int peer = 0; peer < transport->world; peer++) {
        if (peer == transport->rank || !addresses[peer])
            continue;
        while (atomic_load(&end->hub->ports[peer].state) == TRI_PORT_NEW) {
            if (tri_now_ns() >= deadline_ns)
                return tri_fail(TRI_ETIMEOUT, "rank %d does not come to the hub", peer);
            tri_sleep_ns(TRI_NS_PER_MS);
        }
    }
    return TRI_OK;
}

static tri_status peer_gone(int peer)
{
    return tri_fail(TRI_EPEER, "rank %d is gone (connection closed)", peer);
}

tri_status tri_hub_endpoint_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes,
                                       size_t *taken)
{
    endpoint *end = (endpoint *)transport;
    tri_port *port = &end->hub->ports[peer];
    tri_pipe *pipe = atomic_load_explicit(&port->in[transport->rank], memory_order_relaxed);

    *taken = 0;
    if (atomic_load(&port->state) == TRI_PORT_CLOSED)
        return peer_gone(peer);
    if (!pipe)
        pipe = pipe_make(end, peer);
    *taken = tri_ring_write(&pipe->ring, bytes, nbytes);
    if (*taken > 0)
        port_wake(port);
    return TRI_OK;
}

/* Visible bytes; EPEER when there will never be more. *pipe may be NULL. */
static tri_status inbound(endpoint *end, int peer, tri_pipe **pipe, uint64_t *visible)
{
    /* First the state, then the bytes: what was written before the peer left is not lost. */
    bool closed = atomic_load(&end->hub->ports[peer].state) == TRI_PORT_CLOSED;

    *pipe = atomic_load(&end->port->in[peer]);
    *visible = 0;
    if (*pipe)
        *visible = tri_ring_used(&(*pipe)->ring);
    if (closed && *visible == 0)
        return peer_gone(peer);
    return TRI_OK;
}

tri_status tri_hub_endpoint_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given)
{
    endpoint *end = (endpoint *)transport;
    tri_pipe *pipe;
    uint64_t visible;

    *given = 0;
    TRI_TRY(inbound(end, peer, &pipe, &visible));
    if (visible == 0)
        return TRI_OK;
    *given = tri_ring_read(&pipe->ring, visible, bytes, nbytes);
    port_wake(&end->hub->ports[peer]);
    return TRI_OK;
}

tri_status tri_hub_endpoint_peek(tri_transport *transport, int peer, const void **bytes, size_t *nbytes)
{
    tri_pipe *pipe;
    uint64_t visible;

    *bytes = NULL;
    *nbytes = 0;
    TRI_TRY(inbound((endpoint *)transport, peer, &pipe, &visible));
    if (visible > 0)
        *nbytes = tri_ring_peek(&pipe->ring, visible, bytes);
    return TRI_OK;
}

void tri_hub_endpoint_consume(tri_transport *transport, int peer, size_t nbytes)
{
    endpoint *end = (endpoint *)transport;

    tri_ring_consume(&atomic_load_explicit(&end->port->in[peer], memory_order_relaxed)->ring, nbytes);
    port_wake(&end->hub->ports[peer]);
}

/* Can one of the wanted continue, or does somebody want the wait to end? */
static bool is_ready(endpoint *end, const unsigned char *want)
{
    if (atomic_exchange(&end->port->rung, false))
        return true;
    for (int peer = 0; peer < end->base.world; peer++) {
        tri_port *port = &end->hub->ports[peer];
        tri_pipe *pipe;

        if (!want[peer] || peer == end->base.rank)
            continue;
        if (atomic_load(&port->state) == TRI_PORT_CLOSED)
            return true;
        if (want[peer] & TRI_WANT_WRITE) {
            pipe = atomic_load(&port->in[end->base.rank]);
            if (!pipe || tri_ring_free(&pipe->ring) > 0)
                return true;
        }
        pipe = want[peer] & TRI_WANT_READ ? atomic_load(&end->port->in[peer]) : NULL;
        if (pipe && tri_ring_used(&pipe->ring) > 0)
            return true;
    }
    return false;
}

tri_status tri_hub_endpoint_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns)
{
    endpoint *end = (endpoint *)transport;

    for (int i = 0; i < YIELDS_BEFORE_SLEEP; i++) {
        if (is_ready(end, want))
            return TRI_OK;
        tri_yield();
    }
    tri_mutex_lock(&end->port->mutex);
    atomic_store(&end->port->sleeping, 1);
    if (!is_ready(end, want))
        tri_cond_wait(&end->port->cond, &end->port->mutex, deadline_ns);
    atomic_store(&end->port->sleeping, 0);
    tri_mutex_unlock(&end->port->mutex);
    return TRI_OK;
}

void tri_hub_endpoint_wake(tri_transport *transport)
{
    tri_port *port = ((endpoint *)transport)->port;

    atomic_store(&port->rung, true);
    port_wake(port);
}

void tri_hub_endpoint_close(tri_transport *transport)
{
    endpoint *end = (endpoint *)transport;

    if (!end)
        return;
    atomic_store(&end->port->state, TRI_PORT_CLOSED);
    for (int peer = 0; peer < transport->world; peer++) {
        if (peer != transport->rank)
            port_wake(&end->hub->ports[peer]);
    }
    tri_free(end);
}
