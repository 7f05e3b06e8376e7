/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_pipe.c: writing to and reading from simulated ranks: messages on their way, and when they are there.
 *
 * Those for one host wait in `coming` by the time their head is there, and when no earlier one can come any more pass
 * its interface; then, and inside a host at once, it is known when they are there, and they wait in `due` of their
 * rank.
 */
#include <string.h>

#include "base/memory.h"
#include "net/bytes.h"
#include "net/frame.h"
#include "net/sim_impl.h"

/* What a message holds at most, so that the first bytes of much arrive before the last are sent. */
#define MESSAGE_NBYTES ((size_t)64 << 10)
#define ALIGN          ((size_t)64) /* of the bytes that are lent, as their place in the stream is */
/* ---- time */

static void port_wake(const sim_port *port, int from, unsigned char event, int64_t at_ns)
{
    if (port->want && (port->want[from] & event))
        tri_sim_rouse(&port->sleeper, at_ns);
}

/* It is known when the message is there. There is room in `due` of its rank. */
static void message_settle(tri_sim_hub *sim, sim_message *message, int64_t at_ns)
{
    sim_pipe *pipe = message->pipe;
    sim_port *port = &sim->ports[pipe->to];
    int64_t reach_ns = tri_sim_process_reach_ns(sim->ports[pipe->from].process, port->process);

    if (at_ns < reach_ns)
        at_ns = reach_ns;
    if (at_ns < pipe->latest_ns)
        at_ns = pipe->latest_ns;
    pipe->latest_ns = message->at_ns = at_ns;
    sim_heap_push(&port->due, at_ns, (uint64_t)pipe->from, NULL);
    port_wake(port, pipe->from, TRI_WANT_READ, at_ns);
}

/* Again when the next message gets to the interface: until then no earlier one can. */
void tri_sim_host_advance(void *arg)
{
    sim_host *host = arg;
    sim_heap *coming = &host->coming;
    tri_sim_hub *sim = host->sim;
    int64_t until_ns = tri_now_ns() + tri_fabric_ahead_ns(sim->fabric);

    while (sim_heap_first_ns(coming) <= until_ns) {
        sim_message *message = sim_heap_pop(coming).subject;

        sim->ports[message->pipe->to].coming_count--;
        message_settle(sim, message,
                       tri_fabric_receive(sim->fabric, message->pipe->to, message->trip, message->nbytes));
    }
    if (coming->count > 0)
        tri_sim_alarm_set(&host->alarm, sim_heap_first_ns(coming));
}

/* ---- writing */

static tri_status peer_gone(int peer)
{
    return tri_fail(TRI_EPEER, "rank %d is gone (connection closed)", peer);
}

static tri_status killed(void)
{
    return tri_fail(TRI_EIO, "sim: this process was killed");
}

static sim_pipe *pipe_make(const sim_endpoint *end, int peer)
{
    sim_port *port = sim_port_of(end, peer);
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

/* What TCP's sum has let pass. Of the payload nobody would know without comm.encrypt: then it is as if it were lost. */
static void head_damage(tri_sim_process *process, sim_message *message)
{
    uint64_t bit = tri_sim_random() % (8 * TRI_FRAME_NBYTES);

    if (message->nbytes < TRI_FRAME_NBYTES || tri_bytes_read_u32(message->bytes) != TRI_FRAME_MAGIC)
        return;
    message->bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    process->damages = false;
}

static tri_status message_send(sim_endpoint *end, sim_pipe *pipe, const void *bytes, size_t nbytes)
{
    tri_sim_hub *sim = end->sim;
    sim_port *port = &sim->ports[pipe->to];
    sim_host *host = &sim->hosts[tri_fabric_host(sim->fabric, pipe->to)];
    bool inside = tri_fabric_host(sim->fabric, pipe->from) == tri_fabric_host(sim->fabric, pipe->to);
    sim_message *message;
    uintptr_t at;

    TRI_TRY(sim_heap_reserve(&port->due, port->coming_count + 1));
    TRI_TRY(sim_heap_reserve(&host->coming, 1));
    message = tri_alloc(sizeof *message + nbytes + 2 * ALIGN);
    if (!message)
        return TRI_ENOMEM;
    at = ((uintptr_t)(message + 1) + ALIGN - 1) / ALIGN * ALIGN + pipe->written_nbytes % ALIGN;
    *message = (sim_message){.pipe = pipe, .at_ns = TRI_FOREVER, .nbytes = nbytes, .bytes = (unsigned char *)at};
    memcpy(message->bytes, bytes, nbytes);
    if (end->process && end->process->damages)
        head_damage(end->process, message);
    message->trip = tri_fabric_send(sim->fabric, pipe->from, pipe->to, &pipe->link, nbytes);
    tri_fabric_hold(&pipe->link, &message->trip, tri_sim_process_late_ns(end->process, port->process));
    if (pipe->last)
        pipe->last->next = message;
    else
        pipe->first = message;
    pipe->last = message;
    pipe->held_nbytes += nbytes;
    pipe->written_nbytes += nbytes;
    if (inside) {
        message_settle(sim, message, message->trip.tail_ns);
        return TRI_OK;
    }
    port->coming_count++;
    sim_heap_push(&host->coming, message->trip.head_ns, 0, message);
    if (sim_heap_first_ns(&host->coming) == message->trip.head_ns)
        tri_sim_host_advance(host);
    return TRI_OK;
}

tri_status tri_sim_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken)
{
    sim_endpoint *end = (sim_endpoint *)transport;
    sim_pipe *pipe = sim_pipe_of(end, transport->rank, peer);
    size_t room;

    *taken = 0;
    if (sim_is_dead(end))
        return killed();
    if (sim_port_of(end, peer)->state == TRI_PORT_CLOSED && sim_reach_ns(end, peer) <= tri_now_ns())
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

void tri_sim_news_spread(sim_endpoint *end, int64_t at_ns)
{
    (void)tri_vector_push(&end->sim->news, &end->base.rank); /* without memory nobody hears of it */
    for (int peer = 0; peer < end->base.world; peer++)
        port_wake(sim_port_of(end, peer), end->base.rank, TRI_WANT_READ | TRI_WANT_WRITE, at_ns);
}

/* As one message that everybody hears a latency later; without memory nobody does, as of a rank that died. */
void tri_sim_write_rest(tri_transport *transport, const void *bytes, size_t nbytes)
{
    sim_endpoint *end = (sim_endpoint *)transport;
    sim_port *port = end->port;
    size_t used = port->rest_count > 0 ? port->rests[port->rest_count - 1].upto : 0;

    if (!port->rest && !sim_is_dead(end))
        port->rest = tri_alloc(SIM_REST_NBYTES);
    if (sim_is_dead(end) || !port->rest || port->rest_count == SIM_RESTS || used + nbytes > SIM_REST_NBYTES)
        return;
    memcpy(port->rest + used, bytes, nbytes);
    port->rests[port->rest_count].upto = used + nbytes;
    port->rests[port->rest_count].at_ns =
        tri_now_ns() + tri_fabric_ahead_ns(end->sim->fabric) + tri_sim_process_late_ns(end->process, NULL);
    tri_sim_news_spread(end, port->rests[port->rest_count++].at_ns);
}

/* ---- reading */

size_t tri_sim_rest_left(const sim_endpoint *end, int peer, const void **bytes, int64_t *next_ns)
{
    const sim_port *port = sim_port_of(end, peer);
    size_t heard = end->port->heard ? end->port->heard[peer] : 0, upto = 0;
    int64_t now_ns = tri_now_ns(), reach_ns = sim_reach_ns(end, peer);

    *next_ns = TRI_FOREVER;
    if (reach_ns > now_ns) {
        *next_ns = reach_ns;
        return 0;
    }
    if (port->rest_count == 0 || sim_pipe_of(end, peer, end->base.rank))
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
static tri_status inbound(sim_endpoint *end, int peer, const void **bytes, size_t *nbytes)
{
    sim_pipe *pipe = sim_pipe_of(end, peer, end->base.rank);
    int64_t now_ns = tri_now_ns(), next_ns;
    sim_message *first = pipe ? pipe->first : NULL;

    *nbytes = 0;
    *bytes = NULL;
    if (sim_is_dead(end))
        return killed();
    if (first && first->at_ns <= now_ns) {
        *bytes = first->bytes + first->read_nbytes;
        *nbytes = first->nbytes - first->read_nbytes;
        return TRI_OK;
    }
    *nbytes = tri_sim_rest_left(end, peer, bytes, &next_ns);
    if (*nbytes == 0 && !first && next_ns == TRI_FOREVER && sim_port_of(end, peer)->state == TRI_PORT_CLOSED)
        return peer_gone(peer);
    return TRI_OK;
}

tri_status tri_sim_peek(tri_transport *transport, int peer, const void **bytes, size_t *nbytes)
{
    return inbound((sim_endpoint *)transport, peer, bytes, nbytes);
}

/* nbytes of the first piece were read. */
void tri_sim_consume(tri_transport *transport, int peer, size_t nbytes)
{
    sim_endpoint *end = (sim_endpoint *)transport;
    sim_pipe *pipe = sim_pipe_of(end, peer, transport->rank);
    sim_message *first = pipe ? pipe->first : NULL;

    if (!first) {
        end->port->heard[peer] = (uint16_t)(end->port->heard[peer] + nbytes);
        return;
    }
    first->read_nbytes += nbytes;
    pipe->held_nbytes -= nbytes;
    if (pipe->starved) {
        pipe->starved = false;
        sim_port_of(end, peer)->freed = true;
        port_wake(sim_port_of(end, peer), transport->rank, TRI_WANT_WRITE, 0);
    }
    if (first->read_nbytes < first->nbytes)
        return;
    pipe->first = first->next;
    if (!pipe->first)
        pipe->last = NULL;
    tri_free(first);
}

tri_status tri_sim_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given)
{
    sim_endpoint *end = (sim_endpoint *)transport;
    const void *from;
    size_t piece;

    *given = 0;
    while (nbytes > *given) {
        tri_status status = inbound(end, peer, &from, &piece);

        if (status != TRI_OK || piece == 0)
            return *given > 0 ? TRI_OK : status;
        if (!sim_pipe_of(end, peer, transport->rank) && !end->port->heard &&
            !(end->port->heard = tri_alloc_zero((size_t)transport->world, sizeof *end->port->heard)))
            return TRI_ENOMEM;
        if (piece > nbytes - *given)
            piece = nbytes - *given;
        memcpy((char *)bytes + *given, from, piece);
        tri_sim_consume(transport, peer, piece);
        *given += piece;
    }
    return TRI_OK;
}
