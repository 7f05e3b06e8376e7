/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.c: ranks as fibers of a simulation: bytes that travel as messages, for as long as the fabric says (fabric.h).
 *
 * Here: the place, opening, and waiting; the bytes are sim_pipe.c's. Memory follows what is under way: a pipe holds the
 * messages that are not read yet, at most comm.slot_kib.
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
        tri_vector_fini(&port->unheard);
    }
    for (int host = 0; sim->hosts && host < tri_fabric_host_count(sim->fabric); host++) {
        sim_heap_fini(&sim->hosts[host].coming);
        if (sim->hosts[host].sim)
            tri_sim_alarm_close(&sim->hosts[host].alarm);
    }
    tri_vector_fini(&sim->news);
    tri_free(sim->hosts);
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
    sim->news.each = sizeof(int);
    sim->hosts = tri_alloc_zero((size_t)tri_fabric_host_count(hub->fabric), sizeof *sim->hosts);
    sim->ports = tri_alloc_zero((size_t)sim->world, sizeof *sim->ports);
    tri_status status = sim->hosts && sim->ports ? TRI_OK : TRI_ENOMEM;
    for (int h = 0; status == TRI_OK && h < tri_fabric_host_count(hub->fabric); h++) {
        status = tri_sim_alarm_open(&sim->hosts[h].alarm, tri_sim_host_advance, &sim->hosts[h]);
        sim->hosts[h].sim = status == TRI_OK ? sim : NULL;
    }
    if (status != TRI_OK) {
        tri_sim_hub_destroy(sim);
        return status;
    }
    for (int r = 0; r < sim->world; r++)
        sim->ports[r].unheard.each = sizeof(int);
    hub->sim = sim;
    return TRI_OK;
}

static void port_close(sim_endpoint *end)
{
    if (end->port->state == TRI_PORT_CLOSED)
        return;
    end->port->state = TRI_PORT_CLOSED;
    tri_sim_news_spread(end, tri_now_ns());
}

static void sim_killed(void *arg)
{
    sim_endpoint *end = arg;

    port_close(end);
    sim_wake(&end->base);
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
    end->reported = tri_alloc_zero((size_t)setup->world, sizeof *end->reported);
    if (!end->woken || !end->lost || !end->reported) {
        tri_free(end->reported);
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
    end->config = setup->config;
    end->process = tri_sim_process_now();
    end->port->process = end->process;
    end->listener = (tri_sim_listener){.killed = sim_killed, .arg = end};
    if (end->process)
        tri_sim_process_hear(end->process, &end->listener);
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

static void unmet_tell(sim_endpoint *end, const char *const *addresses)
{
    for (int peer = 0; end->config->unmet && peer < end->base.world; peer++)
        if (peer != end->base.rank && addresses[peer] && sim_reach_ns(end, peer) > tri_now_ns())
            end->config->unmet(end->config->unmet_arg, peer, "a link that is cut");
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
            if (tri_now_ns() >= deadline_ns) {
                unmet_tell(end, addresses);
                return tri_fail(TRI_ETIMEOUT, "rank %d does not come to the hub", peer);
            }
            tri_sleep_ns(TRI_NS_PER_MS);
        }
    }
    return TRI_OK;
}

/* ---- waiting */

/* Once in a wait. */
static void wake_note(sim_endpoint *end, int peer)
{
    if (end->reported[peer] == end->waits)
        return;
    end->reported[peer] = end->waits;
    end->woken[end->woken_count++] = peer;
}

/* Those with room again. Rare, so all who are wanted are looked at. */
static void look_for_room(sim_endpoint *end, const unsigned char *want)
{
    end->port->freed = false;
    for (int peer = 0; peer < end->base.world; peer++) {
        const sim_pipe *out;

        if (!(want[peer] & TRI_WANT_WRITE) || peer == end->base.rank)
            continue;
        out = sim_pipe_of(end, end->base.rank, peer);
        if (sim_port_of(end, peer)->state == TRI_PORT_CLOSED || !out || out->held_nbytes < end->window_nbytes)
            wake_note(end, peer);
    }
}

/* A peer that left or said something to all. False: that is to be heard yet, *least_ns at the latest. */
static bool is_heard(sim_endpoint *end, int peer, unsigned char want, int64_t *least_ns)
{
    const void *bytes;
    size_t nbytes;
    int64_t next_ns;

    if ((want & TRI_WANT_WRITE) && sim_port_of(end, peer)->state == TRI_PORT_CLOSED) {
        wake_note(end, peer);
        return true;
    }
    if (!(want & TRI_WANT_READ))
        return false;
    if (tri_sim_peek(&end->base, peer, &bytes, &nbytes) != TRI_OK || nbytes > 0)
        wake_note(end, peer);
    (void)tri_sim_rest_left(end, peer, &bytes, &next_ns);
    if (next_ns < *least_ns)
        *least_ns = next_ns;
    return next_ns == TRI_FOREVER;
}

/* What ranks said to all since this one looked last, and what it did not hear then. */
static int64_t look_at_news(sim_endpoint *end, const unsigned char *want)
{
    sim_port *port = end->port;
    const tri_vector *news = &end->sim->news;
    int64_t least_ns = TRI_FOREVER;
    size_t kept = 0;
    int *unheard;

    for (; port->news_seen < news->count; port->news_seen++) {
        int *peer = tri_vector_at(news, port->news_seen);

        if (*peer != end->base.rank && !tri_vector_push(&port->unheard, peer))
            break; /* of lack of memory: it looks again */
    }
    unheard = port->unheard.items;
    for (size_t i = 0; i < port->unheard.count; i++) {
        if (!is_heard(end, unheard[i], want[unheard[i]], &least_ns))
            unheard[kept++] = unheard[i];
    }
    port->unheard.count = kept;
    return least_ns;
}

/* Notes who can continue by now; *until_ns becomes when that may next change by itself. */
static void port_look(sim_endpoint *end, const unsigned char *want, int64_t now_ns, int64_t *until_ns)
{
    sim_port *port = end->port;
    int64_t least_ns = TRI_FOREVER;

    end->woken_count = 0;
    end->waits++;
    if (port->freed)
        look_for_room(end, want);
    if (port->unheard.count > 0 || port->news_seen < end->sim->news.count)
        least_ns = look_at_news(end, want);
    while (sim_heap_first_ns(&port->due) <= now_ns) {
        int peer = (int)sim_heap_pop(&port->due).key;

        if (want[peer] & TRI_WANT_READ)
            wake_note(end, peer);
    }
    if (least_ns > sim_heap_first_ns(&port->due))
        least_ns = sim_heap_first_ns(&port->due);
    if (least_ns < *until_ns)
        *until_ns = least_ns;
}

static tri_status sim_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns)
{
    sim_endpoint *end = (sim_endpoint *)transport;
    sim_port *port = end->port;
    tri_status status = TRI_OK;

    if (deadline_ns <= tri_now_ns()) /* others must get on beside one that asks again and again */
        tri_yield();
    for (;;) {
        int64_t now_ns = tri_now_ns(), until_ns = deadline_ns;

        if (sim_is_dead(end)) {
            status = tri_fail(TRI_EIO, "sim: this process was killed");
            break;
        }
        port_look(end, want, now_ns, &until_ns);
        if (end->woken_count > 0 || port->rung || now_ns >= deadline_ns)
            break;
        port->want = want;
        tri_sim_doze(&port->sleeper, until_ns);
        port->want = NULL;
    }
    port->rung = false;
    return status;
}

static void sim_wake(tri_transport *transport)
{
    sim_port *port = ((sim_endpoint *)transport)->port;

    port->rung = true;
    tri_sim_rouse(&port->sleeper, 0);
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
        tri_sim_process_unhear(end->process, &end->listener);
    port_close(end);
    end->port->process = NULL;
    tri_free(end->lost);
    tri_free(end->reported);
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
