/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_gather.c: operations after which all ranks have the same: all-gather, broadcast by pieces, barrier; and pairs.
 */
#include <string.h>

#include "comm/call.h"

static size_t block_nbytes(const tri_call *call, int rank)
{
    return tri_call_nbytes(call, tri_call_out_count(call, rank));
}

static void place_own(const tri_call *call)
{
    int rank = call->group->rank;
    char *own = tri_call_out_block(call, rank);
    if (own != call->in)
        memmove(own, call->in, block_nbytes(call, rank));
}

static tri_status gather_direct_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    place_own(call);
    tri_moves_begin(call);
    for (int i = 1; i < ranks; i++) {
        int to = (rank + i) % ranks, from = (rank + ranks - i) % ranks;
        tri_moves_send(call, to, 0, tri_call_out_block(call, rank), block_nbytes(call, rank));
        tri_moves_receive(call, from, 0, tri_call_out_block(call, from), block_nbytes(call, from));
    }
    return tri_moves_run(call);
}

/* After the step of distance d a rank has the blocks of its aligned 2d ranks. */
static tri_status gather_doubling_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    size_t nbytes = tri_call_nbytes(call, call->count);
    place_own(call);
    for (int distance = 1; distance < ranks; distance *= 2) {
        int mine = rank & ~(distance - 1), partner = rank ^ distance;
        size_t held = nbytes * (size_t)distance;
        TRI_TRY(tri_verb_exchange(call, partner, tri_call_out_block(call, mine), held, partner,
                                  tri_call_out_block(call, mine ^ distance), held, (uint32_t)distance));
    }
    return TRI_OK;
}

/* Blocks first to first + count - 1, counted around all ranks: in two pieces where they pass the last one. */
static void blocks_note(tri_call *call, bool sends, int peer, int first, int count, int distance)
{
    int ranks = call->group->count, until_end = ranks - first < count ? ranks - first : count;
    int starts[2] = {first, 0}, counts[2] = {until_end, count - until_end};
    for (int piece = 0; piece < 2; piece++) {
        size_t nbytes = tri_call_nbytes(call, call->count) * (size_t)counts[piece];
        uint32_t part = (uint32_t)(2 * distance + piece);
        if (counts[piece] > 0 && sends)
            tri_moves_send(call, peer, part, tri_call_out_block(call, starts[piece]), nbytes);
        else if (counts[piece] > 0)
            tri_moves_receive(call, peer, part, tri_call_out_block(call, starts[piece]), nbytes);
    }
}

/* After the step of distance d a rank has the blocks of 2d ranks from itself on (Bruck), each where it belongs. */
static tri_status gather_dissemination_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    place_own(call);
    for (int distance = 1; distance < ranks; distance *= 2) {
        int above = (rank + distance) % ranks, below = (rank - distance + ranks) % ranks;
        int count = distance < ranks - distance ? distance : ranks - distance;
        tri_moves_begin(call);
        blocks_note(call, true, below, rank, count, distance);
        blocks_note(call, false, above, above, count, distance);
        TRI_TRY(tri_moves_run(call));
    }
    return TRI_OK;
}

static tri_status gather_ring_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    place_own(call);
    for (int step = 0; step < ranks - 1; step++) {
        int give = (rank - step + ranks) % ranks, take = (rank - step - 1 + ranks) % ranks;
        TRI_TRY(tri_verb_exchange(call, (rank + 1) % ranks, tri_call_out_block(call, give), block_nbytes(call, give),
                                  (rank + ranks - 1) % ranks, tri_call_out_block(call, take), block_nbytes(call, take),
                                  (uint32_t)step));
    }
    return TRI_OK;
}

static const char *dissemination_cannot(const tri_call *call)
{
    return call->out_blocks.counts ? "the blocks are of different lengths" : NULL;
}

static const char *doubling_cannot(const tri_call *call)
{
    int ranks = call->group->count;
    if (call->out_blocks.counts)
        return dissemination_cannot(call);
    return ranks & (ranks - 1) ? "the number of ranks is no power of two" : NULL;
}

/* nbytes: of one rank's block. */
static double gather_direct_us(const tri_price *price, int ranks, double nbytes)
{
    return price->latency_us + (ranks - 1) * (price->message_us + nbytes * price->us_per_byte);
}

static double gather_doubling_us(const tri_price *price, int ranks, double nbytes)
{
    return tri_log_ceil(ranks) * price->latency_us + (ranks - 1) * nbytes * price->us_per_byte;
}

/* Some steps are of two messages. */
static double gather_dissemination_us(const tri_price *price, int ranks, double nbytes)
{
    return gather_doubling_us(price, ranks, nbytes) + tri_log_ceil(ranks) * price->message_us;
}

static double gather_ring_us(const tri_price *price, int ranks, double nbytes)
{
    return (ranks - 1) * (price->latency_us + nbytes * price->us_per_byte);
}

static tri_status broadcast_direct_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    size_t nbytes = tri_call_nbytes(call, call->count);
    if (rank != call->root)
        return tri_verb_receive(call, call->root, 0, call->out, nbytes);
    tri_moves_begin(call);
    for (int i = 1; i < ranks; i++)
        tri_moves_send(call, (rank + i) % ranks, 0, call->out, nbytes);
    return tri_moves_run(call);
}

/* The root gives each rank one chunk, then all hand their chunks around (van de Geijn). */
static tri_status broadcast_scatter_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    int64_t count = call->count;
    char *data = call->out;
    tri_moves_begin(call);
    for (int r = 0; r < ranks; r++) {
        int64_t first = count * r / ranks;
        size_t nbytes = tri_call_nbytes(call, count * (r + 1) / ranks - first);
        if (rank == call->root && r != rank)
            tri_moves_send(call, r, 0, data + tri_call_nbytes(call, first), nbytes);
        if (rank != call->root && r == rank)
            tri_moves_receive(call, call->root, 0, data + tri_call_nbytes(call, first), nbytes);
    }
    TRI_TRY(tri_moves_run(call));
    tri_moves_begin(call);
    int64_t own = count * rank / ranks;
    size_t own_nbytes = tri_call_nbytes(call, count * (rank + 1) / ranks - own);
    for (int i = 1; i < ranks; i++) {
        int to = (rank + i) % ranks, from = (rank + ranks - i) % ranks;
        int64_t first = count * from / ranks;
        if (to != call->root)
            tri_moves_send(call, to, 1, data + tri_call_nbytes(call, own), own_nbytes);
        if (rank != call->root)
            tri_moves_receive(call, from, 1, data + tri_call_nbytes(call, first),
                              tri_call_nbytes(call, count * (from + 1) / ranks - first));
    }
    return tri_moves_run(call);
}

static double broadcast_direct_us(const tri_price *price, int ranks, double nbytes)
{
    return price->latency_us + (ranks - 1) * (price->message_us + nbytes * price->us_per_byte);
}

/* The root sends everything once and its own chunk again; the others' sends overlap. */
static double broadcast_scatter_us(const tri_price *price, int ranks, double nbytes)
{
    return 2 * (price->latency_us + (ranks - 1) * price->message_us) + 2 * nbytes * price->us_per_byte;
}

/* In the step of distance d everybody hears from d ranks below: after all steps, from everybody. */
static tri_status barrier_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    for (int distance = 1; distance < ranks; distance *= 2)
        TRI_TRY(tri_verb_exchange(call, (rank + distance) % ranks, NULL, 0, (rank - distance + ranks) % ranks, NULL, 0,
                                  (uint32_t)distance));
    return TRI_OK;
}

static double barrier_us(const tri_price *price, int ranks, double nbytes)
{
    (void)nbytes;
    return tri_log_ceil(ranks) * price->latency_us;
}

static tri_status pair_run(tri_call *call)
{
    size_t nbytes = tri_call_nbytes(call, call->count);
    if (call->sends)
        return tri_verb_send(call, call->root, 0, call->in, nbytes);
    return tri_verb_receive(call, call->root, 0, call->out, nbytes);
}

static double pair_us(const tri_price *price, int ranks, double nbytes)
{
    (void)ranks;
    return price->latency_us + nbytes * price->us_per_byte;
}

const tri_algorithm tri_all_gather_by_direct = {
    .name = "direct",
    .does = "every rank sends to every other",
    .op = TRI_COMM_ALL_GATHER,
    .cost_us = gather_direct_us,
    .run = gather_direct_run,
};

const tri_algorithm tri_all_gather_by_doubling = {
    .name = "doubling",
    .does = "pairs exchange all they have, at growing distance",
    .op = TRI_COMM_ALL_GATHER,
    .cannot = doubling_cannot,
    .cost_us = gather_doubling_us,
    .run = gather_doubling_run,
};

const tri_algorithm tri_all_gather_by_dissemination = {
    .name = "dissemination",
    .does = "everybody tells somebody further away all it has",
    .op = TRI_COMM_ALL_GATHER,
    .cannot = dissemination_cannot,
    .cost_us = gather_dissemination_us,
    .run = gather_dissemination_run,
};

const tri_algorithm tri_all_gather_by_ring = {
    .name = "ring",
    .does = "blocks go around a ring",
    .op = TRI_COMM_ALL_GATHER,
    .cost_us = gather_ring_us,
    .run = gather_ring_run,
};

const tri_algorithm tri_broadcast_by_direct = {
    .name = "direct",
    .does = "the root sends to every other",
    .op = TRI_COMM_BROADCAST,
    .cost_us = broadcast_direct_us,
    .run = broadcast_direct_run,
};

const tri_algorithm tri_broadcast_by_scatter = {
    .name = "scatter",
    .does = "the root scatters chunks, then all hand them around",
    .op = TRI_COMM_BROADCAST,
    .cost_us = broadcast_scatter_us,
    .run = broadcast_scatter_run,
};

const tri_algorithm tri_barrier_by_dissemination = {
    .name = "dissemination",
    .does = "everybody tells somebody further away",
    .op = TRI_COMM_BARRIER,
    .cost_us = barrier_us,
    .run = barrier_run,
};

const tri_algorithm tri_pair_by_link = {
    .name = "link",
    .does = "one frame from one rank to another",
    .op = TRI_COMM_SEND_RECV,
    .cost_us = pair_us,
    .run = pair_run,
};
