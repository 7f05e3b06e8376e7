/* SPDX-License-Identifier: Apache-2.0
 *
 * move.c: the mover: all frames of a call, over all links, in one loop that never waits for one peer alone.
 *
 * A pass gives each peer one write and one read; when a pass moves nothing, it waits. While it waits long, it also
 * listens to the peers of no move, so that the death or the abort of any rank ends the wait. Allocates nothing.
 */
#include <stdio.h>
#include <string.h>

#include "net/net_impl.h"

/* The head and the first bytes of a frame, and its last ones with the padding, are written together. */
#define GATHER_NBYTES   ((uint64_t)4096)
#define PATROL_AFTER_NS (20 * TRI_NS_PER_MS)
#define WAIT_LIMIT_NS   (100 * TRI_NS_PER_MS)
#define FINISH_LIMIT_NS TRI_NS_PER_S /* a peer on a busy machine reads late; one that is gone is not waited for */

typedef struct move_run {
    tri_net *net;
    tri_move *moves;
    size_t count;
    int64_t began_ns, deadline_ns;
    tri_frame *found;
    int *culprit;
} move_run;

static void culprit_note(const move_run *mover, int peer, const tri_frame *frame)
{
    if (mover->found)
        *mover->found = *frame;
    if (mover->culprit)
        *mover->culprit = peer;
}

static uint64_t frame_total(const tri_move *move)
{
    return TRI_FRAME_NBYTES + tri_net_padded(move->frame.nbytes);
}

/* The next move of the same peer and direction after `index`; SIZE_MAX: none. */
static size_t move_next(const move_run *mover, size_t index, int peer, bool send)
{
    while (++index < mover->count) {
        if (mover->moves[index].peer == peer && mover->moves[index].send == send)
            return index;
    }
    return SIZE_MAX;
}

static tri_status moves_check(const move_run *mover)
{
    const tri_net *net = mover->net;

    for (size_t i = 0; i < mover->count; i++) {
        const tri_move *move = &mover->moves[i];

        if (move->peer < 0 || move->peer >= net->world || move->peer == net->rank)
            return tri_fail(TRI_EINVAL, "net: move %zu of rank %d: want another rank of %d, got %d", i, net->rank,
                            net->world, move->peer);
        if (!net->links[move->peer].transport)
            return tri_fail(TRI_EINVAL, "net: rank %d is not linked to rank %d", net->rank, move->peer);
        if (move->send && net->links[move->peer].partial)
            return tri_fail(TRI_EINVAL, "net: the link to rank %d broke off inside a frame", move->peer);
        if (move->frame.kind != TRI_FRAME_DATA || move->frame.nbytes > TRI_FRAME_LIMIT_NBYTES ||
            (move->frame.nbytes > 0 && !move->bytes && (move->send || !move->consumer)))
            return tri_fail(TRI_EINVAL,
                            "net: move %zu of rank %d: want data and where it lies, got kind %d, %llu bytes", i,
                            net->rank, move->frame.kind, (unsigned long long)move->frame.nbytes);
    }
    return TRI_OK;
}

static void moves_start(const move_run *mover)
{
    tri_net *net = mover->net;

    net->active_count = 0;
    for (size_t i = 0; i < mover->count; i++) {
        tri_move *move = &mover->moves[i];
        tri_net_link *link = &net->links[move->peer];
        size_t *first = move->send ? &link->sending : &link->receiving;

        move->done_nbytes = 0;
        if (link->sending == SIZE_MAX && link->receiving == SIZE_MAX)
            net->active[net->active_count++] = move->peer;
        if (*first == SIZE_MAX)
            *first = i;
    }
}

static void moves_end(const move_run *mover)
{
    tri_net *net = mover->net;

    for (size_t i = 0; i < net->active_count; i++) {
        tri_net_link *link = &net->links[net->active[i]];

        if (link->sending != SIZE_MAX && mover->moves[link->sending].done_nbytes > 0)
            link->partial = true;
        link->sending = link->receiving = SIZE_MAX;
    }
}

/* ---- sending */

/* Bytes [done, done + nbytes) of a frame with its padding. */
static void frame_gather(tri_move *move, uint64_t done, unsigned char *out, uint64_t nbytes)
{
    uint64_t end = done + nbytes, payload_end = TRI_FRAME_NBYTES + move->frame.nbytes;

    memset(out, 0, (size_t)nbytes);
    if (done < TRI_FRAME_NBYTES) {
        uint64_t take = TRI_FRAME_NBYTES - done < nbytes ? TRI_FRAME_NBYTES - done : nbytes;

        memcpy(out, move->head + done, (size_t)take);
        out += take;
        done += take;
    }
    if (end > payload_end)
        end = payload_end;
    if (end > done)
        memcpy(out, (const unsigned char *)move->bytes + (done - TRI_FRAME_NBYTES), (size_t)(end - done));
}

static tri_status peer_send(const move_run *mover, int peer, bool *moved)
{
    tri_net_link *link = &mover->net->links[peer];
    tri_move *move = &mover->moves[link->sending];
    uint64_t done = move->done_nbytes, total = frame_total(move);
    unsigned char gathered[GATHER_NBYTES];
    const void *from = gathered;
    uint64_t nbytes = total - done < GATHER_NBYTES ? total - done : GATHER_NBYTES;
    tri_status status;
    size_t taken;

    if (done == 0)
        tri_frame_encode(&move->frame, move->head);
    if (done < TRI_FRAME_NBYTES || total - done <= GATHER_NBYTES) {
        frame_gather(move, done, gathered, nbytes);
    } else {
        from = (const unsigned char *)move->bytes + (done - TRI_FRAME_NBYTES);
        nbytes = (move->frame.nbytes & ~(TRI_NET_BLOCK_NBYTES - 1)) - (done - TRI_FRAME_NBYTES);
    }
    status = link->transport->ops->write_some(link->transport, peer, from, (size_t)nbytes, &taken);
    /* Not `gone`: what the peer said before may still be there to read. */
    TRI_TRY(status);
    *moved |= taken > 0;
    move->done_nbytes += taken;
    if (move->done_nbytes == total) {
        move->done_nbytes = TRI_FRAME_NBYTES + move->frame.nbytes;
        link->sending = move_next(mover, link->sending, peer, true);
    }
    return TRI_OK;
}

/* ---- receiving */

static tri_status frame_claim(const move_run *mover, int peer, tri_move *move)
{
    tri_net_link *link = &mover->net->links[peer];

    if (link->frame.nbytes != move->frame.nbytes || !tri_frame_agrees(&move->frame, &link->frame)) {
        culprit_note(mover, peer, &link->frame);
        return tri_fail(
            TRI_EMISMATCH,
            "ranks %d and %d called different things: want op %d, dtype %d, count %llu, group %u, sequence "
            "%llu, part %u, %llu bytes, got op %d, dtype %d, count %llu, group %u, sequence %llu, part %u, "
            "%llu bytes",
            mover->net->rank, peer, move->frame.op, move->frame.dtype, (unsigned long long)move->frame.count,
            move->frame.group, (unsigned long long)move->frame.sequence, move->frame.part,
            (unsigned long long)move->frame.nbytes, link->frame.op, link->frame.dtype,
            (unsigned long long)link->frame.count, link->frame.group, (unsigned long long)link->frame.sequence,
            link->frame.part, (unsigned long long)link->frame.nbytes);
    }
    link->claimed = true;
    return TRI_OK;
}

/* Gives the consumer what lies in the transport's own memory. False: not possible now. */
static tri_status payload_lend(tri_net_link *link, int peer, tri_move *move, bool *lent)
{
    const tri_transport_ops *ops = link->transport->ops;
    uint64_t left = move->frame.nbytes - link->payload_nbytes;
    const void *bytes;
    size_t nbytes;

    *lent = false;
    if (!ops->peek || link->carry_nbytes > 0)
        return TRI_OK;
    TRI_TRY(ops->peek(link->transport, peer, &bytes, &nbytes));
    if (nbytes >= left)
        nbytes = (size_t)left;
    else
        nbytes &= ~(size_t)(TRI_NET_BLOCK_NBYTES - 1);
    if (nbytes == 0)
        return TRI_OK;
    move->consumer(move->consumer_arg, (size_t)link->payload_nbytes, bytes, nbytes);
    ops->consume(link->transport, peer, nbytes);
    link->payload_nbytes += nbytes;
    *lent = true;
    return TRI_OK;
}

/* Gives the consumer what fits into scratch memory; an incomplete block waits in the link. */
static tri_status payload_copy(const move_run *mover, int peer, tri_move *move, size_t *given)
{
    tri_net_link *link = &mover->net->links[peer];
    const tri_transport_ops *ops = link->transport->ops;
    unsigned char *scratch = mover->net->scratch;
    uint64_t left = move->frame.nbytes - link->payload_nbytes;
    /* With peek, only up to the end of the block: then it goes on in place. */
    uint64_t limit = (ops->peek ? TRI_NET_BLOCK_NBYTES : TRI_NET_SCRATCH_NBYTES) - link->carry_nbytes;
    size_t have, whole;

    TRI_TRY(ops->read_some(link->transport, peer, scratch + link->carry_nbytes, (size_t)(left < limit ? left : limit),
                           given));
    if (*given == 0)
        return TRI_OK;
    memcpy(scratch, link->carry, link->carry_nbytes);
    link->payload_nbytes += *given;
    have = link->carry_nbytes + *given;
    whole = *given == left ? have : have & ~(size_t)(TRI_NET_BLOCK_NBYTES - 1);
    if (whole > 0)
        move->consumer(move->consumer_arg, (size_t)(link->payload_nbytes - have), scratch, whole);
    link->carry_nbytes = have - whole;
    memcpy(link->carry, scratch + whole, link->carry_nbytes);
    return TRI_OK;
}

static tri_status payload_receive(const move_run *mover, int peer, tri_move *move, bool *moved)
{
    tri_net_link *link = &mover->net->links[peer];
    const tri_transport_ops *ops = link->transport->ops;
    uint64_t nbytes = move->frame.nbytes, total = tri_net_padded(nbytes);
    unsigned char padding[TRI_NET_BLOCK_NBYTES];
    size_t given = 0;
    bool lent;

    if (link->payload_nbytes < nbytes && move->consumer) {
        TRI_TRY(payload_lend(link, peer, move, &lent));
        *moved |= lent;
        if (!lent)
            TRI_TRY(payload_copy(mover, peer, move, &given));
    } else if (link->payload_nbytes < nbytes) {
        TRI_TRY(ops->read_some(link->transport, peer, (unsigned char *)move->bytes + link->payload_nbytes,
                               (size_t)(nbytes - link->payload_nbytes), &given));
        link->payload_nbytes += given;
    }
    *moved |= given > 0;
    if (link->payload_nbytes >= nbytes && link->payload_nbytes < total) {
        TRI_TRY(ops->read_some(link->transport, peer, padding, (size_t)(total - link->payload_nbytes), &given));
        *moved |= given > 0;
        link->payload_nbytes += given;
    }
    move->done_nbytes = TRI_FRAME_NBYTES + (link->payload_nbytes < nbytes ? link->payload_nbytes : nbytes);
    if (link->payload_nbytes == total) {
        tri_net_link_next(link);
        link->receiving = move_next(mover, link->receiving, peer, false);
        *moved = true;
    }
    return TRI_OK;
}

static tri_status peer_listen(const move_run *mover, int peer, bool *moved)
{
    tri_status status = tri_net_link_listen(mover->net, peer, moved);

    if (status == TRI_EABORT)
        culprit_note(mover, mover->net->abort_peer, &mover->net->links[mover->net->abort_peer].frame);
    return status;
}

static tri_status peer_receive(const move_run *mover, int peer, bool *moved)
{
    tri_net_link *link = &mover->net->links[peer];
    tri_move *move = &mover->moves[link->receiving];
    tri_status status;

    if (!link->claimed) {
        TRI_TRY(peer_listen(mover, peer, moved));
        if (link->bye || link->gone)
            return tri_fail(TRI_EPEER, "rank %d is gone (it left in good order, but data is expected of it)", peer);
        if (!link->decoded)
            return TRI_OK;
        TRI_TRY(frame_claim(mover, peer, move));
    }
    status = payload_receive(mover, peer, move, moved);
    if (status == TRI_EPEER)
        link->gone = true;
    return status;
}

/* ---- the loop */

static tri_status moves_late(const move_run *mover)
{
    const tri_net *net = mover->net;
    char text[512];
    size_t used = 0, late = 0, named = 0;

    text[0] = 0;
    for (size_t i = 0; i < net->active_count; i++) {
        const tri_net_link *link = &net->links[net->active[i]];
        const size_t indexes[2] = {link->receiving, link->sending};

        for (int side = 0; side < 2; side++) {
            const tri_move *move = &mover->moves[indexes[side]];

            if (indexes[side] == SIZE_MAX)
                continue;
            late++;
            if (used > sizeof text - 96)
                continue;
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%s rank %d: %llu of %llu bytes", named ? "; " : "",
                                 side == 0 ? "from" : "to", net->active[i], (unsigned long long)move->done_nbytes,
                                 (unsigned long long)(TRI_FRAME_NBYTES + move->frame.nbytes));
            named++;
        }
    }
    return tri_fail(TRI_ETIMEOUT, "rank %d waited %.3f s: %s%s", net->rank,
                    (double)(tri_now_ns() - mover->began_ns) * 1e-9, text, late > named ? "; and others" : "");
}

static tri_status pass(const move_run *mover, bool *moved, bool *left)
{
    const tri_net *net = mover->net;

    *moved = *left = false;
    for (size_t i = 0; i < net->active_count; i++) {
        int peer = net->active[i];
        const tri_net_link *link = &net->links[peer];

        if (link->sending != SIZE_MAX)
            TRI_TRY(peer_send(mover, peer, moved));
        if (link->receiving != SIZE_MAX)
            TRI_TRY(peer_receive(mover, peer, moved));
        *left |= link->sending != SIZE_MAX || link->receiving != SIZE_MAX;
    }
    return TRI_OK;
}

/* Listens to the peers from whom nothing is expected. */
static tri_status patrol(const move_run *mover, bool *moved)
{
    tri_net *net = mover->net;

    for (int peer = 0; peer < net->world; peer++) {
        tri_net_link *link = &net->links[peer];

        if (link->transport && !link->gone && link->receiving == SIZE_MAX)
            TRI_TRY(peer_listen(mover, peer, moved));
    }
    return TRI_OK;
}

static void wants_set(const move_run *mover, bool everybody)
{
    tri_net *net = mover->net;

    memset(net->want, 0, (size_t)net->world);
    for (int peer = 0; everybody && peer < net->world; peer++) {
        const tri_net_link *link = &net->links[peer];

        if (link->transport && !link->gone && !link->decoded && peer != net->rank)
            net->want[peer] = TRI_WANT_READ;
    }
    for (size_t i = 0; i < net->active_count; i++) {
        const tri_net_link *link = &net->links[net->active[i]];

        if (link->receiving != SIZE_MAX)
            net->want[net->active[i]] |= TRI_WANT_READ;
        if (link->sending != SIZE_MAX)
            net->want[net->active[i]] |= TRI_WANT_WRITE;
    }
}

static tri_status moves_run(const move_run *mover)
{
    int64_t quiet_ns = -1;

    for (;;) {
        bool moved, left, patrols;
        int64_t now_ns, until_ns;

        TRI_TRY(pass(mover, &moved, &left));
        if (!left)
            return TRI_OK;
        if (moved) {
            quiet_ns = -1;
            mover->net->slice_ns = 0;
            continue;
        }
        now_ns = tri_now_ns();
        if (quiet_ns < 0)
            quiet_ns = now_ns;
        patrols = now_ns - quiet_ns >= PATROL_AFTER_NS;
        if (patrols)
            TRI_TRY(patrol(mover, &moved));
        if (now_ns >= mover->deadline_ns)
            return moves_late(mover);
        wants_set(mover, patrols);
        until_ns = now_ns + (patrols ? WAIT_LIMIT_NS : PATROL_AFTER_NS);
        TRI_TRY(tri_net_wait(mover->net, until_ns < mover->deadline_ns ? until_ns : mover->deadline_ns));
    }
}

/* After a failure: ends the frames that are under way, with their true bytes, so that a peer who reads them can hear
 * the abort that follows. */
static void frames_finish(const move_run *mover)
{
    tri_net *net = mover->net;
    int64_t until_ns = tri_deadline_after_ms(FINISH_LIMIT_NS / TRI_NS_PER_MS);
    bool left = true;

    while (left) {
        left = false;
        memset(net->want, 0, (size_t)net->world);
        for (size_t i = 0; i < net->active_count; i++) {
            int peer = net->active[i];
            tri_net_link *link = &net->links[peer];
            size_t index = link->sending;
            bool moved = false;

            if (index == SIZE_MAX || link->gone || mover->moves[index].done_nbytes == 0)
                continue;
            if (peer_send(mover, peer, &moved) != TRI_OK)
                link->gone = true;
            else if (link->sending == index) {
                net->want[peer] = TRI_WANT_WRITE;
                left = true;
            } else
                link->sending = SIZE_MAX;
        }
        if (left && (tri_now_ns() >= until_ns || tri_net_wait(net, until_ns) != TRI_OK))
            return;
    }
}

tri_status tri_net_move(tri_net *net, tri_move *moves, size_t count, int64_t deadline_ns, tri_frame *found,
                        int *culprit)
{
    move_run mover = {.net = net,
                      .moves = moves,
                      .count = count,
                      .began_ns = tri_now_ns(),
                      .deadline_ns = deadline_ns,
                      .found = found,
                      .culprit = culprit};
    char message[TRI_ERROR_NBYTES];
    tri_status status;

    TRI_TRY(moves_check(&mover));
    moves_start(&mover);
    status = moves_run(&mover);
    if (status == TRI_EPEER) {
        status = tri_net_first_cause(net, status);
        if (status == TRI_EABORT)
            culprit_note(&mover, net->abort_peer, &net->links[net->abort_peer].frame);
    }
    if (status != TRI_OK && status != TRI_EABORT) {
        snprintf(message, sizeof message, "%s", tri_last_error());
        frames_finish(&mover);
        tri_fail_copy(status, message);
    }
    moves_end(&mover);
    return status;
}
