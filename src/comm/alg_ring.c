/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_ring.c: sums that go around a ring, chunk by chunk; each rank talks to two neighbours only.
 *
 * The order of additions differs from chunk to chunk and with the number of ranks, so it is for comm.order = any.
 * Halves are rounded at every step.
 */
#include "comm/call.h"

typedef struct ring_chunk {
    char *bytes;
    int64_t count;
} ring_chunk;

/* Chunk c (modulo the ranks) of the buffer. */
static ring_chunk chunk_at(const tri_call *call, int c)
{
    int ranks = call->group->count;
    int index = (c % ranks + ranks) % ranks;
    int64_t first = call->count * index / ranks;
    return (ring_chunk){(char *)call->out + tri_call_nbytes(call, first), call->count * (index + 1) / ranks - first};
}

static tri_status all_reduce_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    tri_call_place(call);
    for (int step = 0; step < ranks - 1; step++) {
        ring_chunk give = chunk_at(call, rank - step), add = chunk_at(call, rank - step - 1);
        TRI_TRY(tri_verb_exchange_reduce(call, next, give.bytes, give.count, previous, add.bytes, add.bytes, add.count,
                                         (uint32_t)step));
    }
    ring_chunk whole = chunk_at(call, rank + 1);
    TRI_TRY(tri_call_finish(call, call->dtype, whole.bytes, whole.count));
    for (int step = 0; step < ranks - 1; step++) {
        ring_chunk give = chunk_at(call, rank + 1 - step), take = chunk_at(call, rank - step);
        TRI_TRY(tri_verb_exchange(call, next, give.bytes, tri_call_nbytes(call, give.count), previous, take.bytes,
                                  tri_call_nbytes(call, take.count), (uint32_t)(ranks + step)));
    }
    return TRI_OK;
}

/* The sum of chunk c starts at rank c + 1 and ends at rank c; what is under way is in scratch, as `in` is not
 * changed. */
static tri_status reduce_scatter_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    size_t nbytes = tri_call_nbytes(call, call->count);
    char *sums = tri_call_scratch(call, 2 * nbytes);
    if (!sums)
        return TRI_ENOMEM;
    const char *in = call->in, *give = in + nbytes * (size_t)previous;
    for (int step = 0; step < ranks - 1; step++) {
        int chunk = (rank - step - 2 + 2 * ranks) % ranks;
        char *sum = step == ranks - 2 ? (char *)call->out : sums + nbytes * (size_t)(step & 1);
        TRI_TRY(tri_verb_exchange_reduce(call, next, give, call->count, previous, in + nbytes * (size_t)chunk, sum,
                                         call->count, (uint32_t)step));
        give = sum;
    }
    return tri_call_finish(call, call->dtype, call->out, call->count);
}

static const char *cannot(const tri_call *call)
{
    return call->canonical ? "its order of additions is not the canonical one (comm.order = any allows it)" : NULL;
}

static const char *scatter_cannot(const tri_call *call)
{
    return call->in_blocks.counts ? "the blocks are of different lengths" : cannot(call);
}

static double all_reduce_cost_us(const tri_price *price, int ranks, double nbytes)
{
    double share = nbytes * (ranks - 1) / ranks;
    return 2 * (ranks - 1) * price->latency_us + share * (2 * price->us_per_byte + price->us_per_byte_reduced);
}

static double reduce_scatter_cost_us(const tri_price *price, int ranks, double nbytes)
{
    return (ranks - 1) * (price->latency_us + nbytes * (price->us_per_byte + price->us_per_byte_reduced));
}

const tri_algorithm tri_all_reduce_by_ring = {
    .name = "ring",
    .does = "reduce-scatter and all-gather around a ring",
    .op = TRI_COMM_ALL_REDUCE,
    .cannot = cannot,
    .cost_us = all_reduce_cost_us,
    .run = all_reduce_run,
};

const tri_algorithm tri_reduce_scatter_by_ring = {
    .name = "ring",
    .does = "sums go around a ring",
    .op = TRI_COMM_REDUCE_SCATTER,
    .cannot = scatter_cannot,
    .cost_us = reduce_scatter_cost_us,
    .run = reduce_scatter_run,
};
