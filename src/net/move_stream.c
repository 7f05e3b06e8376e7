/* SPDX-License-Identifier: Apache-2.0
 *
 * move_stream.c: the frames of one peer: the one under way out, and the one that comes in, piece by piece.
 *
 * Payloads go straight from and to where they belong, or are lent to a consumer in the transport's own memory.
 */
#include <string.h>

#include "net/move_impl.h"

/* The head and the first bytes of a frame, and its last ones with the padding, are written together. */
#define GATHER_NBYTES ((uint64_t)4096)

void tri_move_blame(const move_run *mover, int peer, const tri_frame *frame)
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

/* Has one writer. */
static void count_add(_Atomic uint64_t *count, uint64_t nbytes)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + nbytes, memory_order_relaxed);
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

/* Head, payload and padding from `done` on, as they are. */
static size_t frame_parts(const tri_move *move, uint64_t done, tri_part parts[3])
{
    static const unsigned char zeros[TRI_NET_BLOCK_NBYTES];
    const tri_part all[3] = {{move->head, TRI_FRAME_NBYTES},
                             {move->bytes, (size_t)move->frame.nbytes},
                             {zeros, (size_t)(tri_net_padded(move->frame.nbytes) - move->frame.nbytes)}};
    size_t count = 0;

    for (size_t i = 0; i < TRI_COUNT_OF(all); i++) {
        if (done >= all[i].nbytes) {
            done -= all[i].nbytes;
            continue;
        }
        parts[count++] = (tri_part){(const char *)all[i].bytes + done, all[i].nbytes - (size_t)done};
        done = 0;
    }
    return count;
}

/* One write of a frame, as the transport likes it: in pieces, or gathered. */
static tri_status frame_write(const tri_net_link *link, int peer, tri_move *move, size_t *taken)
{
    const tri_transport_ops *ops = link->transport->ops;
    uint64_t done = move->done_nbytes, total = frame_total(move);
    uint64_t nbytes = total - done < GATHER_NBYTES ? total - done : GATHER_NBYTES;
    unsigned char gathered[GATHER_NBYTES];
    tri_part parts[3];

    if (ops->write_parts)
        return ops->write_parts(link->transport, peer, parts, frame_parts(move, done, parts), taken);
    if (done < TRI_FRAME_NBYTES || total - done <= GATHER_NBYTES) {
        frame_gather(move, done, gathered, nbytes);
        return ops->write_some(link->transport, peer, gathered, (size_t)nbytes, taken);
    }
    nbytes = (move->frame.nbytes & ~(TRI_NET_BLOCK_NBYTES - 1)) - (done - TRI_FRAME_NBYTES);
    return ops->write_some(link->transport, peer, (const unsigned char *)move->bytes + (done - TRI_FRAME_NBYTES),
                           (size_t)nbytes, taken);
}

tri_status tri_move_send(const move_run *mover, int peer, bool *moved)
{
    tri_net_link *link = mover->net->links[peer];
    tri_move *move = &mover->moves[link->sending];
    size_t taken;

    link->written = true;
    if (move->done_nbytes == 0)
        tri_frame_encode(&move->frame, move->head);
    /* On failure not `gone`: what the peer said before may still be there to read. */
    TRI_TRY(frame_write(link, peer, move, &taken));
    *moved |= taken > 0;
    move->done_nbytes += taken;
    count_add(&link->sent_nbytes, taken);
    if (move->done_nbytes == frame_total(move)) {
        move->done_nbytes = TRI_FRAME_NBYTES + move->frame.nbytes;
        link->sending = move->next;
        mover->net->traffic.sent_frames++;
        mover->net->traffic.sent_nbytes += move->frame.nbytes;
        if (tri_net_host_of(mover->net, peer) != tri_net_host_of(mover->net, mover->net->rank))
            mover->net->traffic.far_nbytes += move->frame.nbytes;
    }
    return TRI_OK;
}

/* ---- receiving */

static tri_status frame_claim(const move_run *mover, int peer, tri_move *move)
{
    tri_net_link *link = mover->net->links[peer];

    if (link->frame.nbytes != move->frame.nbytes || !tri_frame_agrees(&move->frame, &link->frame)) {
        tri_move_blame(mover, peer, &link->frame);
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

/* Gives the consumer what is in the transport's own memory. False: not possible now. */
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
    tri_net_link *link = mover->net->links[peer];
    const tri_transport_ops *ops = link->transport->ops;
    unsigned char *scratch = mover->net->scratch;
    uint64_t left = move->frame.nbytes - link->payload_nbytes;
    /* With peek, only up to the end of the block: then it continues in place. */
    uint64_t limit = (ops->peek ? TRI_NET_BLOCK_NBYTES : mover->net->scratch_nbytes) - link->carry_nbytes;
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
    tri_net_link *link = mover->net->links[peer];
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
        link->receiving = move->next;
        *moved = true;
    }
    return TRI_OK;
}

tri_status tri_move_listen(const move_run *mover, int peer, bool *moved)
{
    tri_status status = tri_net_link_listen(mover->net, peer, moved);

    if (status == TRI_EABORT)
        tri_move_blame(mover, mover->net->abort_peer, &mover->net->links[mover->net->abort_peer]->frame);
    return status;
}

tri_status tri_move_receive(const move_run *mover, int peer, bool *moved)
{
    tri_net_link *link = mover->net->links[peer];
    tri_move *move = &mover->moves[link->receiving];
    uint64_t before = move->done_nbytes;
    tri_status status;

    if (!link->claimed) {
        TRI_TRY(tri_move_listen(mover, peer, moved));
        if (link->bye || link->gone)
            return tri_fail(TRI_EPEER, "rank %d is gone (it left in good order, but data is expected of it)", peer);
        if (!link->decoded)
            return TRI_OK;
        TRI_TRY(frame_claim(mover, peer, move));
    }
    status = payload_receive(mover, peer, move, moved);
    count_add(&link->received_nbytes, move->done_nbytes - before);
    if (status == TRI_EPEER)
        link->gone = true;
    return status;
}
