/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_halving.c: recursive halving with growing distance, then recursive doubling back; ranks a power of two.
 *
 * After the step of distance d a rank holds the sum of its aligned block of 2d ranks, for ever smaller ranges: exactly
 * the subtrees of the canonical tree. (Thakur, Rabenseifner, Gropp 2005, with the distances turned around.) Pieces are
 * added straight from where they arrive.
 */
#include "comm/call.h"

typedef struct halving_range {
    int64_t first, count;
} halving_range;

/* The lower or the upper half; cut at a multiple of 64 bytes so that both sides' loops start aligned. */
static halving_range half_of(const tri_call *call, halving_range whole, bool upper)
{
    int64_t align = 64 / (int64_t)tri_dtype_nbytes(call->dtype);
    int64_t low = (whole.count / 2 + align - 1) / align * align;
    if (low > whole.count)
        low = whole.count;
    if (upper)
        return (halving_range){whole.first + low, whole.count - low};
    return (halving_range){whole.first, low};
}

static tri_status all_reduce_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    char *data = call->out;
    tri_call_place(call);
    halving_range held[32] = {{0, call->count}}; /* by depth */
    int depth = 0;
    for (int distance = 1; distance < ranks; distance *= 2, depth++) {
        bool upper = rank & distance;
        halving_range keep = half_of(call, held[depth], upper), give = half_of(call, held[depth], !upper);
        char *kept = data + tri_call_nbytes(call, keep.first);
        int partner = rank ^ distance;
        TRI_TRY(tri_verb_exchange_reduce(call, partner, data + tri_call_nbytes(call, give.first), give.count, partner,
                                         kept, kept, keep.count, (uint32_t)depth));
        held[depth + 1] = keep;
    }
    TRI_TRY(tri_call_finish(call, call->dtype, data + tri_call_nbytes(call, held[depth].first), held[depth].count));
    for (int distance = ranks / 2; distance >= 1; distance /= 2) {
        halving_range mine = held[depth--];
        halving_range theirs = half_of(call, held[depth], !(rank & distance));
        int partner = rank ^ distance;
        TRI_TRY(tri_verb_exchange(
            call, partner, data + tri_call_nbytes(call, mine.first), tri_call_nbytes(call, mine.count), partner,
            data + tri_call_nbytes(call, theirs.first), tri_call_nbytes(call, theirs.count), 64 + (uint32_t)depth));
    }
    return TRI_OK;
}

static const char *cannot(const tri_call *call)
{
    int ranks = call->group->count;
    if (ranks & (ranks - 1))
        return "the number of ranks is no power of two";
    if (call->canonical && tri_call_adds_in(call) != call->dtype)
        return "would round halves at every step";
    return NULL;
}

static double cost_us(const tri_price *price, int ranks, double nbytes)
{
    double share = nbytes * (ranks - 1) / ranks;
    return 2 * tri_log_ceil(ranks) * price->latency_us + share * (2 * price->us_per_byte + price->us_per_byte_reduced);
}

const tri_algorithm tri_all_reduce_by_halving = {
    .name = "halving",
    .does = "recursive halving, then doubling",
    .op = TRI_COMM_ALL_REDUCE,
    .cannot = cannot,
    .cost_us = cost_us,
    .run = all_reduce_run,
};
