/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.c: ranks as fibers of a simulation: bytes that travel as messages, for as long as the fabric says (fabric.h).
 *
 * Here: the place, opening, and waiting; the bytes are sim_pipe.c's. Memory follows what is under way: a pipe holds the
 * messages that are not read yet, at most comm.slot_kib. The locks are only for sleeping.
 */
#include <stdio.h>

#include "base/memory.h"
#include "net/sim_impl.h"

#define SILENT_NS (300 * TRI_NS_PER_MS) /* after which a stopped rank, or one that is cut off, is lost */

static void sim_wake(tri_transport *transport);

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

static void port_close(sim_endpoint *end)
{
    if (end->port->state == TRI_PORT_CLOSED)
        return;
    end->port->state = TRI_PORT_CLOSED;
    tri_sim_news_spread(end);
}

static void sim_killed(void *arg)
{
    sim_endpoint *end = arg;

    end->is_killed = true;
    port_close(end);
    sim_wake(&end->base);
    end->is_killed = false;
}

static tri_status sim_open(const tri_transport_setup *setup, tri_transport **out)
{
    tri_hub *hub = setup->hub;
    sim_endpoint *end;

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
    end->lost = tri_alloc_zero((size_t)setup->world, sizeof *end->lost);
    if (!end->woken || !end->lost) {
        tri_free(end->woken);
        tri_free(end->lost);
        tri_free(end);
        return TRI_ENOMEM;
    }
    end->base = (tri_transport){.ops = &tri_transport_sim, .rank = setup->rank, .world = setup->world};
    end->sim = hub->sim;
    end->port = sim_port_of(end, setup->rank);
    end->port->state = TRI_PORT_OPEN;
    end->broken = setup->config->broken;
    end->process = tri_sim_process_now();
    end->port->process = end->process;
    end->ear = (tri_sim_ear){.killed = sim_killed, .arg = end};
    if (end->process)
        tri_sim_process_hear(end->process, &end->ear);
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
    return ((const sim_endpoint *)transport)->address;
}

static tri_status sim_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns)
{
    sim_endpoint *end = (sim_endpoint *)transport;

    for (int peer = 0; peer < transport->world; peer++) {
        if (peer == transport->rank || !addresses[peer])
            continue;
        while (sim_port_of(end, peer)->state == TRI_PORT_NEW || sim_reach_ns(end, peer) > tri_now_ns()) {
            if (end->broken && atomic_load(end->broken))
                return tri_fail(TRI_EPEER, "sim: a rank has ended before rank %d was linked to all", transport->rank);
            if (tri_now_ns() >= deadline_ns)
                return tri_fail(TRI_ETIMEOUT, "rank %d does not come to the hub", peer);
            tri_sleep_ns(TRI_NS_PER_MS);
        }
    }
    return TRI_OK;
}

/* ---- waiting */

static void wake_note(sim_endpoint *end, int peer)
{
    end->woken[end->woken_count++] = peer;
}

/* Peers that left or said something to all, and those with room again. Rare, so all who are wanted are looked at. */
static int64_t look_at_all(sim_endpoint *end, const unsigned char *want)
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
        closed = sim_port_of(end, peer)->state == TRI_PORT_CLOSED;
        out = sim_pipe_of(end, end->base.rank, peer);
        if ((want[peer] & TRI_WANT_WRITE) && (closed || !out || out->held_nbytes < end->window_nbytes)) {
            wake_note(end, peer);
        } else if (want[peer] & TRI_WANT_READ) {
            if (tri_sim_peek(&end->base, peer, &bytes, &nbytes) != TRI_OK || nbytes > 0)
                wake_note(end, peer);
            (void)tri_sim_rest_left(end, peer, &bytes, &next_ns);
            if (next_ns < least_ns)
                least_ns = next_ns;
        }
    }
    if (least_ns < TRI_FOREVER)
        end->port->news--; /* to look again */
    return least_ns;
}

/* Notes who can go on by now; *until_ns becomes when that may next change by itself. */
static tri_status port_look(sim_endpoint *end, const unsigned char *want, int64_t now_ns, int64_t *until_ns)
{
    sim_port *port = end->port;
    int host = tri_fabric_host(end->sim->fabric, end->base.rank);
    int64_t least_ns = TRI_FOREVER, coming_ns;

    TRI_TRY(tri_sim_host_advance(end->sim, host, now_ns));
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
    sim_endpoint *end = (sim_endpoint *)transport;
    sim_port *port = end->port;
    tri_status status;

    port->waits++;
    tri_mutex_lock(&port->mutex);
    for (;;) {
        int64_t now_ns = tri_now_ns(), until_ns = deadline_ns;

        status = sim_is_dead(end) ? tri_fail(TRI_EIO, "sim: this process was killed")
                                  : port_look(end, want, now_ns, &until_ns);
        if (status != TRI_OK || end->woken_count > 0 || port->rung || now_ns >= deadline_ns)
            break;
        port->want = want;
        port->until_ns = until_ns;
        tri_cond_wait(&port->cond, &port->mutex, until_ns);
        port->want = NULL;
    }
    port->rung = false;
    tri_mutex_unlock(&port->mutex);
    return status;
}

static void sim_wake(tri_transport *transport)
{
    sim_port *port = ((sim_endpoint *)transport)->port;

    tri_mutex_lock(&port->mutex);
    port->rung = true;
    tri_cond_broadcast(&port->cond);
    tri_mutex_unlock(&port->mutex);
}

static size_t sim_woken(const tri_transport *transport, const int **peers)
{
    *peers = ((const sim_endpoint *)transport)->woken;
    return ((const sim_endpoint *)transport)->woken_count;
}

/* As long as a watch waits for three beats (watch_judge.c). */
static int64_t sim_unanswered_ns(tri_transport *transport, int peer)
{
    const sim_endpoint *end = (const sim_endpoint *)transport;
    int64_t silent_ns = tri_sim_process_silent_ns(end->process, sim_port_of(end, peer)->process);

    return silent_ns >= SILENT_NS ? silent_ns : 0;
}

static bool sim_has_lost(tri_transport *transport, int peer)
{
    sim_endpoint *end = (sim_endpoint *)transport;
    bool gone = sim_port_of(end, peer)->state == TRI_PORT_CLOSED && sim_reach_ns(end, peer) <= tri_now_ns();

    if (gone || sim_unanswered_ns(transport, peer) > 0)
        end->lost[peer] = true;
    return end->lost[peer];
}

static void sim_close(tri_transport *transport)
{
    sim_endpoint *end = (sim_endpoint *)transport;

    if (!end)
        return;
    if (end->process)
        tri_sim_process_unhear(end->process, &end->ear);
    while (end->is_killed) /* by another fiber, which has not done with it */
        tri_sleep_ns(1);
    port_close(end);
    end->port->process = NULL;
    tri_free(end->lost);
    tri_free(end->woken);
    tri_free(end);
}

const tri_transport_ops tri_transport_sim = {
    .name = "sim",
    .does = "ranks as fibers of a simulation, on virtual time",
    .open = sim_open,
    .address = sim_address,
    .connect = sim_connect,
    .write_some = tri_sim_write_some,
    .read_some = tri_sim_read_some,
    .peek = tri_sim_peek,
    .consume = tri_sim_consume,
    .wait = sim_wait,
    .unanswered_ns = sim_unanswered_ns,
    .has_lost = sim_has_lost,
    .wake = sim_wake,
    .woken = sim_woken,
    .write_rest = tri_sim_write_rest,
    .close = sim_close,
};
