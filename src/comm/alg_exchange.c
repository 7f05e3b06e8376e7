/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_exchange.c: each rank sends all it has to all others, and each adds everything in plan order.
 *
 * One message's latency, the least there can be, for ranks - 1 times the bytes: for small messages, and over far links
 * for large ones. Any number of ranks, with the bits of the plan. Halves travel as they are, are added in f32, rounded
 * once.
 */

#include "comm/call.h"

/* Of everybody's data in one rank's memory. */
#define EXCHANGE_LIMIT_NBYTES ((int64_t)64 << 20)
#define BLOCK_NBYTES          ((int64_t)32 << 10)

typedef struct exchange {
    tri_call *call;
    const tri_plan *plan;
    tri_dtype adds_in;
    size_t stride;     /* bytes from slot to slot */
    char *slots;       /* [ranks]: what came, as adds_in */
    const char **from; /* [ranks]: where the value of a slot is */
} exchange;

static tri_status exchange_init(exchange *e, tri_call *call)
{
    size_t ranks = (size_t)call->group->count;
    *e = (exchange){.call = call, .adds_in = tri_call_adds_in(call)};
    TRI_TRY(tri_plan_find(call->group, TRI_TREE_OF_RANKS, &e->plan));
    e->stride = ((size_t)call->count * tri_dtype_nbytes(e->adds_in) + 63) & ~(size_t)63;
    e->slots = tri_call_scratch(call, ranks * (e->stride + sizeof(*e->from)));
    if (!e->slots)
        return TRI_ENOMEM;
    e->from = (const char **)(void *)(e->slots + ranks * e->stride);
    return TRI_OK;
}

static tri_status move_all(exchange *e)
{
    tri_call *call = e->call;
    int rank = call->group->rank, ranks = call->group->count;
    size_t nbytes = tri_call_nbytes(call, call->count);
    tri_moves_begin(call);
    for (int i = 1; i < ranks; i++) {
        int to = (rank + i) % ranks, from = (rank + ranks - i) % ranks;
        tri_sink sink = {.from = call->dtype, .to = e->adds_in, .out = e->slots + (size_t)from * e->stride};
        tri_moves_send(call, to, 0, call->in, nbytes);
        if (e->adds_in == call->dtype)
            tri_moves_receive(call, from, 0, sink.out, nbytes);
        else
            tri_moves_receive_into(call, from, 0, nbytes, &sink);
    }
    return tri_moves_run(call);
}

/* All have come: adds them block by block, so that sums stay in the cache. */
static tri_status add_all(exchange *e)
{
    tri_call *call = e->call;
    const tri_plan *plan = e->plan;
    int rank = call->group->rank;
    size_t each = tri_dtype_nbytes(e->adds_in);
    bool same = e->adds_in == call->dtype;
    tri_reduce_fn combine = tri_reduce_find(call->reduce, e->adds_in);
    if (!same)
        TRI_TRY(tri_convert(e->slots + (size_t)rank * e->stride, e->adds_in, call->in, call->dtype, call->count));
    for (int64_t first = 0; first < call->count; first += BLOCK_NBYTES / (int64_t)each) {
        int64_t left = call->count - first;
        int64_t count = left < BLOCK_NBYTES / (int64_t)each ? left : BLOCK_NBYTES / (int64_t)each;
        size_t offset = (size_t)first * each;
        for (int slot = 0; slot < plan->slot_count; slot++)
            e->from[slot] = e->slots + (size_t)slot * e->stride + offset;
        if (same)
            e->from[rank] = (const char *)call->in + offset;
        for (int i = 0; i < plan->step_count; i++) {
            tri_tree_step step = plan->steps[i];
            char *sum = e->slots + (size_t)step.into * e->stride + offset;
            if (same && i == plan->step_count - 1)
                sum = (char *)call->out + offset;
            combine(sum, e->from[step.into], e->from[step.from], count);
            e->from[step.into] = sum;
        }
    }
    if (same)
        return tri_call_finish(call, e->adds_in, call->out, call->count);
    TRI_TRY(tri_call_finish(call, e->adds_in, e->slots, call->count));
    return tri_convert(call->out, call->dtype, e->slots, e->adds_in, call->count);
}

static tri_status exchange_run(tri_call *call)
{
    exchange e;
    TRI_TRY(exchange_init(&e, call));
    TRI_TRY(move_all(&e));
    return call->group->count > 1 ? add_all(&e) : tri_call_finish(call, call->dtype, call->out, call->count);
}

static const char *cannot(const tri_call *call)
{
    int64_t nbytes = call->count * (int64_t)tri_dtype_nbytes(tri_call_adds_in(call));
    return nbytes > EXCHANGE_LIMIT_NBYTES / call->group->count ? "would need too much memory" : NULL;
}

static double cost_us(const tri_price *price, int ranks, double nbytes)
{
    return price->latency_us + (ranks - 2) * price->message_us +
           (ranks - 1) * nbytes * (price->us_per_byte + price->us_per_byte_reduced);
}

const tri_algorithm tri_all_reduce_by_exchange = {
    .name = "exchange",
    .does = "each rank sends all it has to all others, each adds all",
    .op = TRI_COMM_ALL_REDUCE,
    .cannot = cannot,
    .cost_us = cost_us,
    .run = exchange_run,
};
