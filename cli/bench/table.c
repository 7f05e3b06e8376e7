/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: the operations that can be measured, one row each: what a rank passes in and gets out, the call, and where
 * each element of a result comes from.
 */
#include "cli/bench/bench.h"

static double factor_one(int ranks)
{
    (void)ranks;
    return 1;
}

static double factor_all_reduce(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static double factor_others(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

static int64_t count_none(const bench_case *c)
{
    (void)c;
    return 0;
}

static int64_t count_whole(const bench_case *c)
{
    return c->count;
}

static int64_t count_part(const bench_case *c)
{
    return c->count / c->ranks;
}

static int64_t count_whole_at_root(const bench_case *c)
{
    return c->rank == 0 ? c->count : 0;
}

static int64_t count_whole_at_pair(const bench_case *c)
{
    return c->rank < 2 ? c->count : 0;
}

static bench_source expect_reduced(const bench_case *c, int64_t at)
{
    return (bench_source){BENCH_REDUCED, at, c->count - at};
}

static bench_source expect_own_part_reduced(const bench_case *c, int64_t at)
{
    int64_t part = c->count / c->ranks;
    return (bench_source){BENCH_REDUCED, c->rank * part + at, part - at};
}

static bench_source expect_root(const bench_case *c, int64_t at)
{
    return (bench_source){0, at, c->count - at};
}

static bench_source expect_gathered(const bench_case *c, int64_t at)
{
    int64_t part = c->count / c->ranks;
    return (bench_source){(int)(at / part), at % part, part - at % part};
}

static bench_source expect_partner(const bench_case *c, int64_t at)
{
    return (bench_source){1 - c->rank, at, c->count - at};
}

static tri_status run_all_reduce(const bench_case *c, void *in, void *out)
{
    (void)in;
    return tri_all_reduce(c->group, out, c->count, c->dtype, c->reduce, NULL);
}

static tri_status run_reduce(const bench_case *c, void *in, void *out)
{
    (void)out;
    return tri_reduce(c->group, in, c->count, c->dtype, c->reduce, 0, NULL);
}

static tri_status run_broadcast(const bench_case *c, void *in, void *out)
{
    (void)in;
    return tri_broadcast(c->group, out, c->count, c->dtype, 0, NULL);
}

static tri_status run_all_gather(const bench_case *c, void *in, void *out)
{
    return tri_all_gather(c->group, in, out, c->count / c->ranks, c->dtype, NULL);
}

static tri_status run_reduce_scatter(const bench_case *c, void *in, void *out)
{
    return tri_reduce_scatter(c->group, in, out, c->count / c->ranks, c->dtype, c->reduce, NULL);
}

static tri_status run_barrier(const bench_case *c, void *in, void *out)
{
    (void)in;
    (void)out;
    return tri_barrier(c->group, NULL);
}

/* Rank 0 and 1 play ping-pong; the others watch. */
static tri_status run_send_recv(const bench_case *c, void *in, void *out)
{
    if (c->rank == 0)
        TRI_TRY(tri_send(c->group, in, c->count, c->dtype, 1, NULL));
    if (c->rank < 2)
        TRI_TRY(tri_receive(c->group, out, c->count, c->dtype, 1 - c->rank, NULL));
    return c->rank == 1 ? tri_send(c->group, in, c->count, c->dtype, 0, NULL) : TRI_OK;
}

/* One row: name and id, places and the usual one, by rank, reduces, turns, bus factor, lengths in and out, call,
 * meaning.
 */
const bench_op bench_ops[] = {
    {"all_reduce", TRI_COMM_ALL_REDUCE, BENCH_IN_PLACE, BENCH_IN_PLACE, false, true, 1, factor_all_reduce, count_whole,
     count_whole, run_all_reduce, expect_reduced},
    {"broadcast", TRI_COMM_BROADCAST, BENCH_IN_PLACE, BENCH_IN_PLACE, false, false, 1, factor_one, count_whole_at_root,
     count_whole, run_broadcast, expect_root},
    {"reduce", TRI_COMM_REDUCE, BENCH_IN_PLACE, BENCH_IN_PLACE, false, true, 1, factor_one, count_whole,
     count_whole_at_root, run_reduce, expect_reduced},
    {"all_gather", TRI_COMM_ALL_GATHER, BENCH_IN_PLACE | BENCH_OUT_OF_PLACE, BENCH_OUT_OF_PLACE, true, false, 1,
     factor_others, count_part, count_whole, run_all_gather, expect_gathered},
    {"reduce_scatter", TRI_COMM_REDUCE_SCATTER, BENCH_IN_PLACE | BENCH_OUT_OF_PLACE, BENCH_OUT_OF_PLACE, true, true, 1,
     factor_others, count_whole, count_part, run_reduce_scatter, expect_own_part_reduced},
    {"barrier", TRI_COMM_BARRIER, BENCH_IN_PLACE, BENCH_IN_PLACE, false, false, 1, factor_one, count_none, count_none,
     run_barrier, expect_root},
    {"send_recv", TRI_COMM_SEND_RECV, BENCH_OUT_OF_PLACE, BENCH_OUT_OF_PLACE, false, false, 2, factor_one,
     count_whole_at_pair, count_whole_at_pair, run_send_recv, expect_partner},
    {0},
};
