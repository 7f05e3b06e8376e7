/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: the operations that can be measured, one row each: what a rank passes in and gets out, the call, and where
 * each element of a result comes from. Rank 0 is the root. An uneven operation gives rank r a part of r + 1 units, and
 * rank a sends (a + b) mod ranks + 1 units to rank b.
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

static int64_t part_count(const bench_case *c, int rank)
{
    return c->op->uneven ? c->unit * (rank + 1) : c->unit;
}

int64_t bench_part_first(const bench_case *c, int rank)
{
    return c->op->uneven ? c->unit * rank * (rank + 1) / 2 : c->unit * rank;
}

/* What a sends to b in an all-to-all, and where it begins in the input of a. */
static int64_t block_count(const bench_case *c, int a, int b)
{
    return c->op->uneven ? c->unit * ((a + b) % c->ranks + 1) : c->unit;
}

static int64_t block_first(const bench_case *c, int a, int b)
{
    int64_t first = 0;
    for (int k = 0; k < b; k++)
        first += block_count(c, a, k);
    return first;
}

void bench_case_size(bench_case *c, int64_t count)
{
    int64_t units = !c->op->by_rank ? 1 : c->op->uneven ? (int64_t)c->ranks * (c->ranks + 1) / 2 : c->ranks;
    c->unit = count / units;
    if (c->unit == 0 && count > 0 && c->op->by_rank)
        c->unit = 1;
    c->count = c->unit * units;
    for (int r = 0; r < c->ranks; r++)
        c->counts[r] = c->op->op == TRI_COMM_ALL_TO_ALL ? block_count(c, c->rank, r) : part_count(c, r);
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
    return part_count(c, c->rank);
}

static int64_t count_at_root(const bench_case *c)
{
    return c->rank == 0 ? c->count : 0;
}

static int64_t count_at_pair(const bench_case *c)
{
    return c->rank < 2 ? c->count : 0;
}

static bench_source expect_reduced(const bench_case *c, int64_t at)
{
    return (bench_source){BENCH_REDUCED, at, c->count - at};
}

static bench_source expect_part_reduced(const bench_case *c, int64_t at)
{
    return (bench_source){BENCH_REDUCED, bench_part_first(c, c->rank) + at, count_part(c) - at};
}

static bench_source expect_root(const bench_case *c, int64_t at)
{
    return (bench_source){0, at, c->count - at};
}

static bench_source expect_scattered(const bench_case *c, int64_t at)
{
    return (bench_source){0, bench_part_first(c, c->rank) + at, count_part(c) - at};
}

static bench_source expect_gathered(const bench_case *c, int64_t at)
{
    int r = 0;
    while (at >= bench_part_first(c, r + 1))
        r++;
    at -= bench_part_first(c, r);
    return (bench_source){r, at, part_count(c, r) - at};
}

static bench_source expect_exchanged(const bench_case *c, int64_t at)
{
    int from = 0;
    for (; at >= block_count(c, from, c->rank); from++)
        at -= block_count(c, from, c->rank);
    return (bench_source){from, block_first(c, from, c->rank) + at, block_count(c, from, c->rank) - at};
}

static bench_source expect_partner(const bench_case *c, int64_t at)
{
    return (bench_source){1 - c->rank, at, c->count - at};
}

static tri_status run_all_reduce(const bench_case *c, void *in, void *out)
{
    return tri_all_reduce(c->group, in, out, c->count, c->dtype, c->reduce, NULL);
}

static tri_status run_reduce(const bench_case *c, void *in, void *out)
{
    return tri_reduce(c->group, in, c->rank == 0 ? out : NULL, c->count, c->dtype, c->reduce, 0, NULL);
}

static tri_status run_broadcast(const bench_case *c, void *in, void *out)
{
    (void)in;
    return tri_broadcast(c->group, out, c->count, c->dtype, 0, NULL);
}

static tri_status run_all_gather(const bench_case *c, void *in, void *out)
{
    return tri_all_gather(c->group, in, out, c->unit, c->dtype, NULL);
}

static tri_status run_all_gather_v(const bench_case *c, void *in, void *out)
{
    tri_blocks blocks = {.counts = c->counts};
    return tri_all_gather_v(c->group, in, out, &blocks, c->dtype, NULL);
}

static tri_status run_reduce_scatter(const bench_case *c, void *in, void *out)
{
    return tri_reduce_scatter(c->group, in, out, c->unit, c->dtype, c->reduce, NULL);
}

static tri_status run_reduce_scatter_v(const bench_case *c, void *in, void *out)
{
    tri_blocks blocks = {.counts = c->counts};
    return tri_reduce_scatter_v(c->group, in, &blocks, out, c->dtype, c->reduce, NULL);
}

static tri_status run_gather(const bench_case *c, void *in, void *out)
{
    return tri_gather(c->group, in, c->rank == 0 ? out : NULL, c->unit, c->dtype, 0, NULL);
}

static tri_status run_gather_v(const bench_case *c, void *in, void *out)
{
    tri_blocks blocks = {.counts = c->counts};
    return tri_gather_v(c->group, in, c->rank == 0 ? out : NULL, &blocks, c->dtype, 0, NULL);
}

static tri_status run_scatter(const bench_case *c, void *in, void *out)
{
    return tri_scatter(c->group, c->rank == 0 ? in : NULL, out, c->unit, c->dtype, 0, NULL);
}

static tri_status run_scatter_v(const bench_case *c, void *in, void *out)
{
    tri_blocks blocks = {.counts = c->counts};
    return tri_scatter_v(c->group, c->rank == 0 ? in : NULL, &blocks, out, c->dtype, 0, NULL);
}

static tri_status run_all_to_all(const bench_case *c, void *in, void *out)
{
    return tri_all_to_all(c->group, in, out, c->unit, c->dtype, NULL);
}

/* What rank a sends to b is as long as what b sends to a: the same lengths in and out. */
static tri_status run_all_to_all_v(const bench_case *c, void *in, void *out)
{
    tri_blocks blocks = {.counts = c->counts};
    return tri_all_to_all_v(c->group, in, &blocks, out, &blocks, c->dtype, NULL);
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

#define IN   BENCH_IN_PLACE
#define OUT  BENCH_OUT_OF_PLACE
#define BOTH (BENCH_IN_PLACE | BENCH_OUT_OF_PLACE)

/* name, id, places, usually, by rank, uneven, reduces, turns, bus factor, lengths in and out, call, what comes out */
const bench_op bench_ops[] = {
    {"all_reduce", TRI_COMM_ALL_REDUCE, BOTH, IN, false, false, true, 1, factor_all_reduce, count_whole, count_whole,
     run_all_reduce, expect_reduced},
    {"broadcast", TRI_COMM_BROADCAST, IN, IN, false, false, false, 1, factor_one, count_at_root, count_whole,
     run_broadcast, expect_root},
    {"reduce", TRI_COMM_REDUCE, BOTH, IN, false, false, true, 1, factor_one, count_whole, count_at_root, run_reduce,
     expect_reduced},
    {"all_gather", TRI_COMM_ALL_GATHER, BOTH, OUT, true, false, false, 1, factor_others, count_part, count_whole,
     run_all_gather, expect_gathered},
    {"reduce_scatter", TRI_COMM_REDUCE_SCATTER, BOTH, OUT, true, false, true, 1, factor_others, count_whole, count_part,
     run_reduce_scatter, expect_part_reduced},
    {"gather", TRI_COMM_GATHER, BOTH, OUT, true, false, false, 1, factor_others, count_part, count_at_root, run_gather,
     expect_gathered},
    {"scatter", TRI_COMM_SCATTER, BOTH, OUT, true, false, false, 1, factor_others, count_at_root, count_part,
     run_scatter, expect_scattered},
    {"all_to_all", TRI_COMM_ALL_TO_ALL, OUT, OUT, true, false, false, 1, factor_others, count_whole, count_whole,
     run_all_to_all, expect_exchanged},
    {"all_gather_v", TRI_COMM_ALL_GATHER, BOTH, OUT, true, true, false, 1, factor_others, count_part, count_whole,
     run_all_gather_v, expect_gathered},
    {"reduce_scatter_v", TRI_COMM_REDUCE_SCATTER, BOTH, OUT, true, true, true, 1, factor_others, count_whole,
     count_part, run_reduce_scatter_v, expect_part_reduced},
    {"gather_v", TRI_COMM_GATHER, BOTH, OUT, true, true, false, 1, factor_others, count_part, count_at_root,
     run_gather_v, expect_gathered},
    {"scatter_v", TRI_COMM_SCATTER, BOTH, OUT, true, true, false, 1, factor_others, count_at_root, count_part,
     run_scatter_v, expect_scattered},
    {"all_to_all_v", TRI_COMM_ALL_TO_ALL, OUT, OUT, true, true, false, 1, factor_others, count_whole, count_whole,
     run_all_to_all_v, expect_exchanged},
    {"barrier", TRI_COMM_BARRIER, IN, IN, false, false, false, 1, factor_one, count_none, count_none, run_barrier,
     expect_root},
    {"send_recv", TRI_COMM_SEND_RECV, OUT, OUT, false, false, false, 2, factor_one, count_at_pair, count_at_pair,
     run_send_recv, expect_partner},
    {.name = NULL},
};
