/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c: what the links between hosts and this machine's additions really cost, found out while a comm opens.
 *
 * Every rank exchanges with its neighbours in the order of ranks, all at the same time, as a collective would: a
 * little, to see what a phase costs, and more; and a little with all others, to see what a message more costs (where
 * cores are few, more than a phase). The slowest rank's figures are everybody's, since all must price alike. Takes some
 * milliseconds; far links are not measured (slow start would be all that is seen) but guessed by their round trip.
 * Inside a host nothing is measured: lanes and shared memory are cheaper than anything else whatever it costs.
 */
#include <stdlib.h>

#include "comm/run.h"

/* A phase of large messages begins and ends with waiting for the slower side: measured, as many little ones. */
enum { PHASE_LITTLES = 2 };
enum { LITTLE_NBYTES = 1 << 10, MUCH_NBYTES = 256 << 10, TURNS = 8, ADDED_COUNT = 16 << 10 };
/* Beyond this number of ranks nobody sends to all, and with two there is only one. */
enum { ALL_LEAST = 3, ALL_MOST = 16, ALL_TURNS = 15 };
#define FAR_US INT64_C(5000)

/* The shortest of a few exchanges of nbytes with both neighbours. */
static tri_status exchange_ns(tri_call *call, char *give, char *take, size_t nbytes, int64_t *least_ns)
{
    const tri_group *group = call->group;
    int next = (group->rank + 1) % group->count, previous = (group->rank + group->count - 1) % group->count;
    *least_ns = INT64_MAX;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        int64_t start_ns = tri_now_ns();
        TRI_TRY(tri_verb_exchange(call, next, give, nbytes, previous, take, nbytes, turn));
        int64_t took_ns = tri_now_ns() - start_ns;
        *least_ns = took_ns < *least_ns ? took_ns : *least_ns;
    }
    return TRI_OK;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The middle one of some exchanges of a little with the next `others` ranks on either side. */
static tri_status exchange_all_ns(tri_call *call, const char *give, char *take, int others, int64_t *middle_ns)
{
    const tri_group *group = call->group;
    int64_t took_ns[ALL_TURNS];
    for (uint32_t turn = 0; turn < ALL_TURNS; turn++) {
        int64_t start_ns = tri_now_ns();
        tri_moves_begin(call);
        for (int i = 1; i <= others; i++) {
            int to = (group->rank + i) % group->count, from = (group->rank + group->count - i) % group->count;
            tri_moves_send(call, to, turn, give, LITTLE_NBYTES);
            tri_moves_receive(call, from, turn, take + (ptrdiff_t)i * LITTLE_NBYTES, LITTLE_NBYTES);
        }
        TRI_TRY(tri_moves_run(call));
        took_ns[turn] = tri_now_ns() - start_ns;
    }
    qsort(took_ns, ALL_TURNS, sizeof(took_ns[0]), compare_times);
    *middle_ns = took_ns[ALL_TURNS / 2];
    return TRI_OK;
}

/* What an exchange with a neighbour takes, and what each message to another one adds. */
static tri_status messages_ns(tri_call *call, const char *give, char *take, int64_t *one_ns, int64_t *more_ns)
{
    int others = call->group->count - 1;
    int64_t all_ns;
    if (call->group->count < ALL_LEAST || call->group->count > ALL_MOST)
        return TRI_OK;
    TRI_TRY(exchange_all_ns(call, give, take, 1, one_ns));
    TRI_TRY(exchange_all_ns(call, give, take, others, &all_ns));
    *more_ns = (all_ns - *one_ns) / (others - 1);
    return TRI_OK;
}

static int64_t adding_ns(float *sums, const float *values)
{
    tri_reduce_fn add = tri_reduce_find(TRI_REDUCE_SUM, TRI_F32);
    int64_t least_ns = INT64_MAX;
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start_ns = tri_now_ns();
        add(sums, sums, values, ADDED_COUNT);
        int64_t took_ns = tri_now_ns() - start_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    return least_ns;
}

enum { BYTES_NS, ADDING_NS, PHASE_NS, ALL_NS, MESSAGE_NS, PRICE_COUNT };

/* What this rank measures, and the most of all ranks. `bytes`: twice MUCH_NBYTES. */
static tri_status prices_find(tri_call *call, char *bytes, int64_t found_ns[PRICE_COUNT])
{
    char *take = bytes + MUCH_NBYTES;
    int64_t little_ns, much_ns;
    TRI_TRY(exchange_ns(call, bytes, take, LITTLE_NBYTES, &little_ns));
    TRI_TRY(exchange_ns(call, bytes, take, MUCH_NBYTES, &much_ns));
    found_ns[BYTES_NS] = much_ns - little_ns;
    found_ns[PHASE_NS] = PHASE_LITTLES * little_ns;
    TRI_TRY(messages_ns(call, bytes, take, &found_ns[ALL_NS], &found_ns[MESSAGE_NS]));
    found_ns[ADDING_NS] = adding_ns((float *)(void *)bytes, (const float *)(const void *)take);
    tri_call agree = {.group = call->group,
                      .op = TRI_COMM_ALL_REDUCE,
                      .dtype = TRI_I64,
                      .reduce = TRI_REDUCE_MAX,
                      .count = PRICE_COUNT,
                      .in = found_ns,
                      .out = found_ns,
                      .canonical = true,
                      .algorithm = &tri_all_reduce_by_tree};
    return tri_work_submit(&agree, NULL);
}

tri_status tri_prices_measure(tri_comm *comm)
{
    tri_group *group = comm->world_group;
    if (group->count <= 1 || !group->price.between_hosts || comm->far_us >= FAR_US)
        return TRI_OK;
    char *bytes = tri_alloc_zero(2, MUCH_NBYTES);
    if (!bytes)
        return TRI_ENOMEM;
    tri_call call = {.group = group, .op = TRI_COMM_ALL_GATHER, .dtype = TRI_U8, .count = MUCH_NBYTES};
    tri_call_fill_frame(&call);
    int64_t found_ns[PRICE_COUNT] = {0};
    tri_status status = prices_find(&call, bytes, found_ns);
    tri_free(bytes);
    if (status != TRI_OK)
        return status;
    /* A clock that stood still tells nothing. */
    if (found_ns[BYTES_NS] > 0)
        comm->us_per_byte = (double)found_ns[BYTES_NS] * 1e-3 / (MUCH_NBYTES - LITTLE_NBYTES);
    if (found_ns[ADDING_NS] > 0)
        comm->us_per_byte_reduced = (double)found_ns[ADDING_NS] * 1e-3 / (ADDED_COUNT * sizeof(float));
    if (found_ns[PHASE_NS] > 0)
        comm->latency_us =
            (double)(found_ns[ALL_NS] > found_ns[PHASE_NS] ? found_ns[ALL_NS] : found_ns[PHASE_NS]) * 1e-3;
    if (found_ns[MESSAGE_NS] > 0)
        comm->message_us = (double)found_ns[MESSAGE_NS] * 1e-3;
    group->price = tri_price_of_group(group);
    return TRI_OK;
}
