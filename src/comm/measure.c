/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c: what the links between hosts and this machine's additions really cost, found out while a comm opens.
 *
 * Every rank exchanges with its neighbours in the order of ranks, all at the same time, as a collective would: a
 * little, to see what a message costs, and more. The slowest rank's figures are everybody's, since all must price
 * alike. Takes some milliseconds; far links are not measured (slow start would be all that is seen) but guessed by
 * their round trip. Inside a host nothing is measured: lanes and shared memory are cheaper than anything else whatever
 * it costs.
 */
#include "comm/comm_impl.h"

/* A phase of large messages begins and ends with waiting for the slower side: measured, as many little ones. */
enum { PHASE_LITTLES = 2 };
enum { LITTLE_NBYTES = 1 << 10, MUCH_NBYTES = 256 << 10, TURNS = 8, ADDED_COUNT = 16 << 10 };
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
    int64_t little_ns = 0, much_ns = 0;
    tri_status status = exchange_ns(&call, bytes, bytes + MUCH_NBYTES, LITTLE_NBYTES, &little_ns);
    if (status == TRI_OK)
        status = exchange_ns(&call, bytes, bytes + MUCH_NBYTES, MUCH_NBYTES, &much_ns);
    int64_t found_ns[3] = {much_ns - little_ns, 0, little_ns};
    if (status == TRI_OK) {
        found_ns[1] = adding_ns((float *)(void *)bytes, (const float *)(const void *)(bytes + MUCH_NBYTES));
        tri_call agree = {.group = group,
                          .op = TRI_COMM_ALL_REDUCE,
                          .dtype = TRI_I64,
                          .reduce = TRI_REDUCE_MAX,
                          .count = 3,
                          .in = found_ns,
                          .out = found_ns,
                          .canonical = true,
                          .algorithm = &tri_all_reduce_by_tree};
        status = tri_work_submit(&agree, NULL);
    }
    tri_free(bytes);
    if (status != TRI_OK)
        return status;
    /* A clock that stood still tells nothing. */
    if (found_ns[0] > 0)
        comm->us_per_byte = (double)found_ns[0] * 1e-3 / (MUCH_NBYTES - LITTLE_NBYTES);
    if (found_ns[1] > 0)
        comm->us_per_byte_reduced = (double)found_ns[1] * 1e-3 / (ADDED_COUNT * sizeof(float));
    if (found_ns[2] > 0)
        comm->latency_us = PHASE_LITTLES * (double)found_ns[2] * 1e-3;
    group->price = tri_price_of_group(group);
    return TRI_OK;
}
