/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_doubling.c: recursive doubling: at distance 1, 2, 4 .. partners give each other all they have; ranks a power of
 * two.
 *
 * After the step of distance d every rank holds the sum of its aligned block of 2d ranks, a subtree of the canonical
 * tree (Thakur, Rabenseifner, Gropp 2005). Ranks x log2(ranks) messages in place of the ranks x (ranks - 1) of an
 * exchange, for as many latencies: where handling a message costs more than waiting for one.
 */
#include <string.h>

#include "comm/call.h"

/* Beyond it halving moves less, and what it adds is still in the cache. */
#define DOUBLING_LIMIT_NBYTES ((size_t)64 << 10)

static tri_status all_reduce_run(tri_call *call)
{
    int rank = call->group->rank, ranks = call->group->count;
    size_t nbytes = tri_call_nbytes(call, call->count), room = (nbytes + 63) & ~(size_t)63;
    char *scratch = tri_call_scratch(call, 2 * room);
    const char *held = call->in;
    if (!scratch)
        return TRI_ENOMEM;
    for (int distance = 1, step = 0; distance < ranks; distance *= 2, step++) {
        bool last = 2 * distance == ranks;
        int partner = rank ^ distance;
        char *sum =
            last && held != call->out ? call->out : scratch + (size_t)(step & 1) * room; /* held is on its way */
        TRI_TRY(tri_verb_exchange_reduce(call, partner, held, call->count, partner, held, sum, call->count,
                                         (uint32_t)step));
        held = sum;
    }
    if (held != call->out)
        memcpy(call->out, held, nbytes);
    return tri_call_finish(call, call->dtype, call->out, call->count);
}

static const char *cannot(const tri_call *call)
{
    int ranks = call->group->count;
    if (ranks & (ranks - 1))
        return "the number of ranks is no power of two";
    if (ranks == 2)
        return "of two ranks it is the exchange";
    if (call->canonical && tri_call_adds_in(call) != call->dtype)
        return "would round halves at every step";
    return tri_call_nbytes(call, call->count) > DOUBLING_LIMIT_NBYTES ? "is for little: halving moves less" : NULL;
}

static double cost_us(const tri_price *price, int ranks, double nbytes)
{
    return tri_log_ceil(ranks) * (price->latency_us + nbytes * (price->us_per_byte + price->us_per_byte_reduced));
}

const tri_algorithm tri_all_reduce_by_doubling = {
    .name = "doubling",
    .does = "partners at distance 1, 2, 4 .. give each other all they have",
    .op = TRI_COMM_ALL_REDUCE,
    .cannot = cannot,
    .cost_us = cost_us,
    .run = all_reduce_run,
};
