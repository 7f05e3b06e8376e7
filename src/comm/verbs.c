/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs.c: the words in which algorithms are written: send, receive, exchange, and the same with a reduction.
 *
 * Each is one tri_net_move with frames that carry the whole signature of the call, so that ranks which disagree find
 * out at the first frame they exchange; here that becomes a message with both calls.
 */
#include <inttypes.h>
#include <string.h>

#include "base/events.h"
#include "comm/call.h"

void tri_moves_begin(tri_call *call)
{
    tri_comm *comm = call->group->comm;
    comm->move_count = 0;
    comm->move_status = TRI_OK;
}

static tri_status moves_grow(tri_comm *comm)
{
    size_t capacity = comm->move_capacity ? comm->move_capacity * 2 : 64;
    tri_move *moves = tri_realloc(comm->moves, capacity * sizeof(*moves));
    if (!moves)
        return TRI_ENOMEM;
    comm->moves = moves;
    tri_sink *sinks = tri_realloc(comm->sinks, capacity * sizeof(*sinks));
    if (!sinks)
        return TRI_ENOMEM;
    comm->sinks = sinks;
    comm->move_capacity = capacity;
    return TRI_OK;
}

static tri_move *moves_add(tri_call *call, int peer, uint32_t part, size_t nbytes)
{
    tri_comm *comm = call->group->comm;
    if (comm->move_status == TRI_OK && comm->move_count == comm->move_capacity)
        comm->move_status = moves_grow(comm);
    if (comm->move_status != TRI_OK)
        return NULL;
    tri_move *move = &comm->moves[comm->move_count++];
    *move = (tri_move){
        .peer = call->group->world_rank[peer], .collective = call->op != TRI_COMM_SEND_RECV, .frame = call->frame};
    move->frame.part = part;
    move->frame.nbytes = nbytes;
    return move;
}

void tri_moves_send(tri_call *call, int to, uint32_t part, const void *bytes, size_t nbytes)
{
    tri_move *move = moves_add(call, to, part, nbytes);
    if (!move)
        return;
    move->send = true;
    move->bytes = (void *)(uintptr_t)bytes; /* only read */
}

void tri_moves_receive(tri_call *call, int from, uint32_t part, void *bytes, size_t nbytes)
{
    tri_move *move = moves_add(call, from, part, nbytes);
    if (move)
        move->bytes = bytes;
}

/* Pieces begin at multiples of 64 bytes, and so hold whole elements. */
static void sink_consume(void *arg, size_t first, const void *bytes, size_t nbytes)
{
    const tri_sink *sink = arg;
    size_t index = first / tri_dtype_nbytes(sink->from);
    int64_t count = (int64_t)(nbytes / tri_dtype_nbytes(sink->from));
    char *out = (char *)sink->out + index * tri_dtype_nbytes(sink->to);
    if (sink->combine) {
        sink->combine(out, (const char *)sink->left + index * tri_dtype_nbytes(sink->to), bytes, count);
        tri_added(nbytes);
    } else {
        (void)tri_convert(out, sink->to, bytes, sink->from, count);
    }
}

void tri_moves_receive_into(tri_call *call, int from, uint32_t part, size_t nbytes, const tri_sink *sink)
{
    tri_move *move = moves_add(call, from, part, nbytes);
    if (!move)
        return;
    move->consumer = sink_consume;
    tri_comm *comm = call->group->comm;
    comm->sinks[comm->move_count - 1] = *sink;
}

static void count_bytes(const tri_comm *comm)
{
    uint64_t sent = 0, received = 0;
    for (size_t i = 0; i < comm->move_count; i++) {
        uint64_t nbytes = comm->moves[i].frame.nbytes;
        *(comm->moves[i].send ? &sent : &received) += nbytes;
        if (comm->moves[i].send && comm->sent_to)
            atomic_fetch_add_explicit(&comm->sent_to[comm->moves[i].peer], nbytes, memory_order_relaxed);
    }
    tri_counter_add(TRI_COUNT_SENT_NBYTES, sent);
    tri_counter_add(TRI_COUNT_RECEIVED_NBYTES, received);
}

/* An earlier collective of the call's group on this rank, if it is still known: the one of that number, or (0) the
 * latest that had a root. */
static bool earlier_find(const tri_call *call, uint64_t sequence, tri_frame *own)
{
    tri_board_call at;
    for (uint64_t back = 0; tri_board_earlier(call->group->comm->board, back, &at); back++) {
        *own = at.frame;
        bool wanted = sequence ? own->sequence == sequence : tri_comm_has_root((tri_comm_op)own->op);
        if (wanted && own->op != TRI_COMM_SEND_RECV && own->group == call->frame.group &&
            own->sequence < call->frame.sequence)
            return true;
    }
    return false;
}

/* A message of an earlier call that this rank did not expect; it may have come over any link. */
static bool stale_find(const tri_call *call, tri_frame *found, int *peer)
{
    const tri_group *group = call->group;
    (void)tri_net_patrol(group->comm->net, found, peer);
    for (int r = 0; r < group->count; r++) {
        *peer = group->world_rank[r];
        if (r != group->rank && tri_net_pending(group->comm->net, *peer, found) && found->op != TRI_COMM_SEND_RECV &&
            found->group == call->frame.group && found->sequence < call->frame.sequence)
            return true;
    }
    return false;
}

/* Both ranks make the same call, but not all calls before it had the same roots. */
static tri_status earlier_mismatch(const tri_call *call, int culprit)
{
    const tri_comm *comm = call->group->comm;
    char mine[192] = "this call", theirs[192];
    tri_frame own, found = {0};
    int peer = -1;
    if (stale_find(call, &found, &peer) && earlier_find(call, found.sequence, &own)) {
        tri_call_describe(comm, &own, mine);
        tri_call_describe(comm, &found, theirs);
        return tri_fail(TRI_EMISMATCH, "ranks called different things: rank %d called %s, rank %d called %s",
                        comm->rank, mine, peer, theirs);
    }
    if (earlier_find(call, 0, &own))
        tri_call_describe(comm, &own, mine);
    return tri_fail(TRI_EMISMATCH,
                    "ranks called different things: the roots of calls up to %s on rank %d differ from those on rank "
                    "%d",
                    mine, comm->rank, culprit);
}

tri_status tri_call_mismatch(const tri_call *call, const tri_frame *found, const char *name, int culprit)
{
    const tri_comm *comm = call->group->comm;
    char mine[192], theirs[192];
    tri_frame own;
    bool is_late = found->group == call->frame.group && found->sequence < call->frame.sequence;
    tri_call_describe(comm, is_late && earlier_find(call, found->sequence, &own) ? &own : &call->frame, mine);
    if (found->group != call->frame.group || found->generation != call->frame.generation) {
        tri_call_describe_as(found, name ? name : tri_known_name_find(comm, found->name), theirs);
        return tri_fail(TRI_EMISMATCH,
                        "ranks called different things: rank %d called %s in group %08" PRIx32
                        ", rank %d called %s in group %08" PRIx32,
                        comm->rank, mine, call->frame.group, culprit, theirs, found->group);
    }
    tri_call_describe_as(found, name ? name : tri_known_name_find(comm, found->name), theirs);
    if (strcmp(mine, theirs) != 0)
        return tri_fail(TRI_EMISMATCH, "ranks called different things: rank %d called %s, rank %d called %s",
                        comm->rank, mine, culprit, theirs);
    if (found->roots != call->frame.roots)
        return earlier_mismatch(call, culprit);
    /* The same call, and yet another frame: the two run different algorithms. */
    uint32_t part = 0;
    for (size_t i = 0; i < comm->move_count; i++) {
        if (comm->moves[i].peer == culprit && !comm->moves[i].send) {
            part = comm->moves[i].frame.part;
            break;
        }
    }
    return tri_fail(TRI_EMISMATCH,
                    "ranks run %s in different ways: rank %d awaits part %" PRIu32 ", rank %d sent part %" PRIu32
                    " of %" PRIu64 " bytes",
                    mine, comm->rank, part, culprit, found->part, found->nbytes);
}

tri_status tri_call_heard(tri_comm *comm, tri_status status, const tri_frame *found)
{
    if (status != TRI_EABORT || found->kind != TRI_FRAME_ABORT)
        return status;
    comm->found_cause = (tri_status)found->op;
    comm->found_origin = (int)found->count;
    /* Whoever finds a mismatch is no more to blame than the others: all say the same. */
    return found->op == TRI_EMISMATCH ? TRI_EMISMATCH : TRI_EABORT;
}

/* What became of the net's work: says who failed, in this rank's words. */
static tri_status net_failed(tri_call *call, tri_status status, const tri_frame *found, int culprit)
{
    if (status == TRI_EMISMATCH)
        return tri_call_mismatch(call, found, NULL, culprit);
    return tri_call_heard(call->group->comm, status, found);
}

tri_status tri_call_lost(tri_call *call, int peer)
{
    const tri_group *group = call->group;
    tri_frame found = {0};
    int culprit = -1;
    tri_status status = tri_net_lost(group->comm->net, group->world_rank[peer], &found, &culprit);
    return net_failed(call, status, &found, culprit);
}

tri_status tri_call_look_around(tri_call *call)
{
    const tri_group *group = call->group;
    tri_frame found = {0};
    int culprit = -1;
    tri_status status = tri_net_patrol(group->comm->net, &found, &culprit);
    if (status != TRI_OK)
        return net_failed(call, status, &found, culprit);
    for (int r = 0; r < group->count; r++) {
        int peer = group->world_rank[r];
        if (r == group->rank || !tri_net_pending(group->comm->net, peer, &found) || found.op == TRI_COMM_SEND_RECV ||
            found.group != call->frame.group || found.sequence != call->frame.sequence)
            continue;
        found.part = call->frame.part; /* it may be further in the same call */
        if (!tri_frame_agrees(&call->frame, &found))
            return tri_call_mismatch(call, &found, NULL, peer);
    }
    return TRI_OK;
}

/* A rank whose message waits, -1: none. The search begins behind the rank found last, so that each has its turn.
 * *left: ranks that may still send. */
static int find_sender(tri_group *group, int *left)
{
    tri_frame found;
    *left = 0;
    for (int i = 1; i <= group->count; i++) {
        int r = (group->found_sender + i) % group->count, peer = group->world_rank[r];
        if (r == group->rank)
            continue;
        if (tri_net_pending(group->comm->net, peer, &found) && found.op == TRI_COMM_SEND_RECV &&
            found.group == group->id)
            return group->found_sender = r;
        *left += !tri_net_has_gone(group->comm->net, peer);
    }
    return -1;
}

tri_status tri_call_probe(tri_call *call)
{
    tri_group *group = call->group;
    int64_t began_ns = tri_now_ns(), deadline_ns = tri_deadline_after_ms(group->timeout_ms);
    int64_t pause_ns = 1000, pause_limit_ns = TRI_NS_PER_MS;
    for (;;) {
        int left;
        TRI_TRY(tri_call_look_around(call));
        *call->sender = find_sender(group, &left);
        if (*call->sender >= 0)
            return TRI_OK;
        if (left == 0)
            return tri_fail(TRI_EPEER, "probe: all other ranks of the group have gone");
        if (tri_now_ns() >= deadline_ns)
            return tri_fail(TRI_ETIMEOUT, "probe: rank %d waited %.3f s for a message from any rank", group->comm->rank,
                            (double)(tri_now_ns() - began_ns) * 1e-9);
        tri_sleep_ns(pause_ns);
        pause_ns = pause_ns * 2 < pause_limit_ns ? pause_ns * 2 : pause_limit_ns;
    }
}

tri_status tri_moves_run(tri_call *call)
{
    tri_comm *comm = call->group->comm;
    if (comm->move_status != TRI_OK || comm->move_count == 0)
        return comm->move_status;
    for (size_t i = 0; i < comm->move_count; i++) {
        if (comm->moves[i].consumer)
            comm->moves[i].consumer_arg = &comm->sinks[i];
    }
    tri_frame found = {0};
    int culprit = -1;
    int64_t deadline_ns = tri_deadline_after_ms(call->group->timeout_ms);
    tri_status status = tri_net_move(comm->net, comm->moves, comm->move_count, deadline_ns, &found, &culprit);
    if (status == TRI_OK)
        count_bytes(comm);
    return net_failed(call, status, &found, culprit);
}

tri_status tri_verb_send(tri_call *call, int to, uint32_t part, const void *bytes, size_t nbytes)
{
    tri_moves_begin(call);
    tri_moves_send(call, to, part, bytes, nbytes);
    return tri_moves_run(call);
}

tri_status tri_verb_receive(tri_call *call, int from, uint32_t part, void *bytes, size_t nbytes)
{
    tri_moves_begin(call);
    tri_moves_receive(call, from, part, bytes, nbytes);
    return tri_moves_run(call);
}

tri_status tri_verb_exchange(tri_call *call, int to, const void *sent, size_t sent_nbytes, int from, void *received,
                             size_t received_nbytes, uint32_t part)
{
    tri_moves_begin(call);
    tri_moves_send(call, to, part, sent, sent_nbytes);
    tri_moves_receive(call, from, part, received, received_nbytes);
    return tri_moves_run(call);
}

tri_status tri_verb_receive_reduce(tri_call *call, int from, uint32_t part, tri_dtype dtype, const void *left,
                                   void *out, int64_t count)
{
    tri_sink sink = {
        .combine = tri_reduce_find(call->reduce, dtype), .from = dtype, .to = dtype, .left = left, .out = out};
    tri_moves_begin(call);
    tri_moves_receive_into(call, from, part, (size_t)count * tri_dtype_nbytes(dtype), &sink);
    return tri_moves_run(call);
}

tri_status tri_verb_exchange_reduce(tri_call *call, int to, const void *sent, int64_t send_count, int from,
                                    const void *left, void *out, int64_t count, uint32_t part)
{
    tri_sink sink = {.combine = tri_reduce_find(call->reduce, call->dtype),
                     .from = call->dtype,
                     .to = call->dtype,
                     .left = left,
                     .out = out};
    tri_moves_begin(call);
    tri_moves_send(call, to, part, sent, tri_call_nbytes(call, send_count));
    tri_moves_receive_into(call, from, part, tri_call_nbytes(call, count), &sink);
    return tri_moves_run(call);
}
