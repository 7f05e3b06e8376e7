/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_tree.c: binomial trees: few messages one after the other, each of the whole buffer. For small ones.
 *
 * Towards rank 0 with growing distance d, rank r adds what covers [r + d, r + 2d) to what covers [r, r + d): this is
 * the canonical tree for any number of ranks. Halves travel as f32 and are rounded once, at rank 0.
 */
#include "comm/call.h"

/* Elements moved at a time. */
static int64_t segment_count(const tri_call *call)
{
    return (INT64_C(256) << 10) / (int64_t)tri_dtype_nbytes(tri_call_adds_in(call));
}

/* Adds a segment of all ranks; at rank 0 the result is in `out`, as the call's type. `sums`: room for the segment in
 * the type of the additions; may be `own` or `out` where the types are the same. */
static tri_status reduce_segment(tri_call *call, const void *own, void *sums, void *out, int64_t count, uint32_t part)
{
    int rank = call->group->rank, ranks = call->group->count;
    tri_dtype adds_in = tri_call_adds_in(call);
    const void *sum = own;
    if (adds_in != call->dtype) {
        TRI_TRY(tri_convert(sums, adds_in, own, call->dtype, count));
        sum = sums;
    }
    for (int distance = 1; distance < ranks; distance *= 2) {
        if (rank & distance)
            return tri_verb_send(call, rank - distance, part, sum, (size_t)count * tri_dtype_nbytes(adds_in));
        if (rank + distance >= ranks)
            continue;
        TRI_TRY(tri_verb_receive_reduce(call, rank + distance, part, adds_in, sum, sums, count));
        sum = sums;
    }
    TRI_TRY(tri_call_finish(call, adds_in, sums, count));
    if (out != sums)
        TRI_TRY(tri_convert(out, call->dtype, sums, adds_in, count));
    return TRI_OK;
}

/* The children of a rank in the tree from `root` on, and its parent (-1: it is the root). */
typedef struct tree_place {
    int parent;
    int child_count;
    int child[32]; /* the one with most below it first */
} tree_place;

static tree_place find_place(int rank, int root, int ranks)
{
    tree_place place = {.parent = -1};
    int from_root = (rank - root + ranks) % ranks;
    int distance = 1;
    while (distance < ranks && !(from_root & distance))
        distance *= 2;
    if (from_root)
        place.parent = (from_root - distance + root) % ranks;
    for (distance /= 2; distance >= 1; distance /= 2) {
        if (from_root + distance < ranks)
            place.child[place.child_count++] = (from_root + distance + root) % ranks;
    }
    return place;
}

/* While one segment travels to the children the next comes from the parent. */
static tri_status broadcast(tri_call *call, int root, uint32_t part)
{
    tree_place place = find_place(call->group->rank, root, call->group->count);
    int64_t each = segment_count(call), total = call->count;
    int64_t segments = total > each ? (total + each - 1) / each : 1;
    for (int64_t s = 0; s <= segments; s++) {
        tri_moves_begin(call);
        int64_t first = (s - 1) * each, count = total - first < each ? total - first : each;
        for (int i = 0; s > 0 && i < place.child_count; i++)
            tri_moves_send(call, place.child[i], part + (uint32_t)s - 1,
                           (char *)call->out + tri_call_nbytes(call, first), tri_call_nbytes(call, count));
        first = s * each;
        count = total - first < each ? total - first : each;
        if (place.parent >= 0 && s < segments)
            tri_moves_receive(call, place.parent, part + (uint32_t)s, (char *)call->out + tri_call_nbytes(call, first),
                              tri_call_nbytes(call, count));
        TRI_TRY(tri_moves_run(call));
    }
    return TRI_OK;
}

/* Numbers of messages to children; those to parents have others. */
static const uint32_t down_parts = UINT32_C(1) << 31;

static tri_status all_reduce_run(tri_call *call)
{
    int64_t each = segment_count(call);
    bool half = tri_call_adds_in(call) != call->dtype;
    void *scratch = NULL;
    tri_call_place(call);
    if (half && !(scratch = tri_call_scratch(call, (size_t)each * sizeof(float))))
        return TRI_ENOMEM;
    uint32_t part = 0;
    int64_t first = 0;
    do {
        int64_t count = call->count - first < each ? call->count - first : each;
        void *data = (char *)call->out + tri_call_nbytes(call, first);
        TRI_TRY(reduce_segment(call, data, half ? scratch : data, data, count, part++));
        first += each;
    } while (first < call->count);
    return broadcast(call, 0, down_parts);
}

/* Others' buffers keep their values: sums are scratch. Rank 0 passes each segment on to the root. */
static tri_status reduce_run(tri_call *call)
{
    int rank = call->group->rank;
    int64_t each = segment_count(call);
    size_t sums_nbytes = (size_t)each * tri_dtype_nbytes(tri_call_adds_in(call));
    char *sums = tri_call_scratch(call, 2 * sums_nbytes);
    if (!sums)
        return TRI_ENOMEM;
    uint32_t part = 0;
    int64_t first = 0;
    do {
        int64_t count = call->count - first < each ? call->count - first : each;
        const char *own = (const char *)call->in + tri_call_nbytes(call, first);
        char *result = rank == call->root ? (char *)call->out + tri_call_nbytes(call, first) : sums + sums_nbytes;
        TRI_TRY(reduce_segment(call, own, sums, result, count, part));
        if (call->root != 0 && rank == 0)
            TRI_TRY(tri_verb_send(call, call->root, down_parts + part, result, tri_call_nbytes(call, count)));
        if (call->root != 0 && rank == call->root)
            TRI_TRY(tri_verb_receive(call, 0, down_parts + part, result, tri_call_nbytes(call, count)));
        part++;
        first += each;
    } while (first < call->count);
    return TRI_OK;
}

static tri_status broadcast_run(tri_call *call)
{
    return broadcast(call, call->root, down_parts);
}

static double up_cost_us(const tri_price *price, int ranks, double nbytes)
{
    return tri_log_ceil(ranks) * (price->latency_us + nbytes * (price->us_per_byte + price->us_per_byte_reduced));
}

static double down_cost_us(const tri_price *price, int ranks, double nbytes)
{
    return tri_log_ceil(ranks) * (price->latency_us + nbytes * price->us_per_byte);
}

static double both_cost_us(const tri_price *price, int ranks, double nbytes)
{
    return up_cost_us(price, ranks, nbytes) + down_cost_us(price, ranks, nbytes);
}

const tri_algorithm tri_all_reduce_by_tree = {
    .name = "tree",
    .does = "binomial tree to rank 0 and back",
    .op = TRI_COMM_ALL_REDUCE,
    .cost_us = both_cost_us,
    .run = all_reduce_run,
};

const tri_algorithm tri_reduce_by_tree = {
    .name = "tree",
    .does = "binomial tree to rank 0, then to the root",
    .op = TRI_COMM_REDUCE,
    .cost_us = up_cost_us,
    .run = reduce_run,
};

const tri_algorithm tri_broadcast_by_tree = {
    .name = "tree",
    .does = "binomial tree from the root",
    .op = TRI_COMM_BROADCAST,
    .cost_us = down_cost_us,
    .run = broadcast_run,
};
