/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_ops.c: the operations of `trireme sim`: how each is called, and what must come out. A new one is a row.
 */

#include "base/memory.h"
#include "cli/sim.h"
#include "tensor/tree.h"

/* ---- contributions */

static uint64_t mix(uint64_t rank, uint64_t index)
{
    uint64_t hash = (rank + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ index * UINT64_C(0xd1b54a32d192ed03);

    hash ^= hash >> 31;
    hash *= UINT64_C(0xff51afd7ed558ccd);
    return hash ^ hash >> 29;
}

void sim_fill(float *out, int rank, int64_t first, int64_t count, bool whole)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t hash = mix((uint64_t)rank, (uint64_t)(first + i));

        out[i] =
            whole ? (float)((int)(hash % 17) - 8) : (float)(int32_t)(hash >> 32) * 0x1p-31F * (float)(1 << (hash & 7));
    }
}

tri_status sim_sum(float *out, int rank, int ranks, int64_t first, int64_t count, bool whole)
{
    float *other;
    int left = 1;
    tri_status status;

    if (ranks == 1) {
        sim_fill(out, rank, first, count, whole);
        return TRI_OK;
    }
    while (left * 2 < ranks)
        left *= 2;
    if (!(other = tri_alloc((size_t)count * sizeof *other)))
        return TRI_ENOMEM;
    status = sim_sum(out, rank, left, first, count, whole);
    if (status == TRI_OK)
        status = sim_sum(other, rank + left, ranks - left, first, count, whole);
    for (int64_t i = 0; status == TRI_OK && i < count; i++)
        out[i] += other[i];
    tri_free(other);
    return status;
}

/* ---- sizes */

static int none(int ranks)
{
    (void)ranks;
    return 0;
}

static int one(int ranks)
{
    (void)ranks;
    return 1;
}

static int each(int ranks)
{
    return ranks;
}

static int leaves_of(int ranks)
{
    int leaves = 1;

    while (leaves < ranks)
        leaves *= 2;
    return leaves;
}

static int two(int ranks)
{
    (void)ranks;
    return 2;
}

static int two_of_each(int ranks)
{
    return 2 * ranks;
}

static double factor_one(int ranks)
{
    (void)ranks;
    return 1;
}

static double factor_both(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static double factor_share(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

/* ---- calls; the root is the last rank, which is nobody's favourite */

static int root_of(int ranks)
{
    return ranks - 1;
}

static tri_status run_all_reduce(const sim_call *call)
{
    return tri_all_reduce(call->group, call->in, call->in, call->count, TRI_F32, TRI_REDUCE_SUM, NULL);
}

static tri_status run_reduce(const sim_call *call)
{
    return tri_reduce(call->group, call->in, call->in, call->count, TRI_F32, TRI_REDUCE_SUM,
                      root_of(tri_group_count(call->group)), NULL);
}

static tri_status run_broadcast(const sim_call *call)
{
    return tri_broadcast(call->group, call->in, call->count, TRI_F32, root_of(tri_group_count(call->group)), NULL);
}

static tri_status run_all_gather(const sim_call *call)
{
    return tri_all_gather(call->group, call->in, call->out, call->count, TRI_F32, NULL);
}

static tri_status run_reduce_scatter(const sim_call *call)
{
    return tri_reduce_scatter(call->group, call->in, call->out, call->count, TRI_F32, TRI_REDUCE_SUM, NULL);
}

static tri_status run_gather(const sim_call *call)
{
    return tri_gather(call->group, call->in, call->out, call->count, TRI_F32, root_of(tri_group_count(call->group)),
                      NULL);
}

static tri_status run_scatter(const sim_call *call)
{
    return tri_scatter(call->group, call->in, call->out, call->count, TRI_F32, root_of(tri_group_count(call->group)),
                       NULL);
}

static tri_status run_all_to_all(const sim_call *call)
{
    return tri_all_to_all(call->group, call->in, call->out, call->count, TRI_F32, NULL);
}

static tri_status run_barrier(const sim_call *call)
{
    return tri_barrier(call->group, NULL);
}

/* Ranks of pairs: the even one sends to the next; the last of an odd number watches. */
static tri_status run_send_recv(const sim_call *call)
{
    int rank = tri_group_rank(call->group), ranks = tri_group_count(call->group);

    if ((rank | 1) >= ranks)
        return TRI_OK;
    return rank % 2 ? tri_receive(call->group, call->in, call->count, TRI_F32, rank - 1, NULL)
                    : tri_send(call->group, call->in, call->count, TRI_F32, rank + 1, NULL);
}

/* At most two leaves each: they are as many as the ranks, rounded up to a power of two. */
static int tree_parts(const sim_call *call, tri_tree_part parts[TRI_TREE_MAX_PARTS])
{
    int rank = tri_group_rank(call->group), ranks = tri_group_count(call->group), leaves = leaves_of(ranks);

    return tri_tree_parts(leaves, tri_tree_first(leaves, rank, ranks), tri_tree_count(leaves, rank, ranks), parts);
}

static tri_status run_tree(const sim_call *call)
{
    float *buffers[2] = {call->in, (float *)call->in + call->count};
    tri_tree_part parts[TRI_TREE_MAX_PARTS];

    return tri_all_reduce_tree(call->group, leaves_of(tri_group_count(call->group)), buffers, tree_parts(call, parts),
                               call->count, NULL);
}

/* Each part is a block for every rank. */
static tri_status run_scatter_tree(const sim_call *call)
{
    int ranks = tri_group_count(call->group);
    float *buffers[2] = {call->in, (float *)call->in + ranks * call->count};
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int64_t *counts = tri_alloc((size_t)ranks * sizeof *counts);
    tri_status status = TRI_ENOMEM;

    for (int r = 0; counts && r < ranks; r++)
        counts[r] = call->count;
    if (counts)
        status = tri_reduce_scatter_tree(call->group, leaves_of(ranks), buffers, tree_parts(call, parts),
                                         &(tri_blocks){counts, NULL}, call->out, NULL);
    tri_free(counts);
    return status;
}

static void fill_parts(const sim_call *call, int64_t count, bool whole)
{
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int part_count = tree_parts(call, parts);

    for (int p = 0; p < part_count; p++)
        (void)sim_sum((float *)call->in + p * count, (int)parts[p].first, (int)parts[p].count, 0, count, whole);
}

static void fill_tree(const sim_call *call, bool whole)
{
    fill_parts(call, call->count, whole);
}

static void fill_scatter_tree(const sim_call *call, bool whole)
{
    fill_parts(call, call->count * tri_group_count(call->group), whole);
}

/* ---- results */

static bool expect_sum(int rank, int ranks, int block, sim_place *place)
{
    (void)rank;
    (void)ranks;
    *place = (sim_place){.sums = true, .block = block};
    return true;
}

static bool expect_sum_at_first_block(int rank, int ranks, int block, sim_place *place)
{
    return expect_sum(rank, ranks, block, place) && block == 0;
}

static bool expect_sum_at_root(int rank, int ranks, int block, sim_place *place)
{
    bool root = rank == root_of(ranks);

    *place = (sim_place){.sums = root, .rank = rank, .block = block};
    return true;
}

static bool expect_of_root(int rank, int ranks, int block, sim_place *place)
{
    (void)rank;
    *place = (sim_place){.rank = root_of(ranks), .block = block};
    return true;
}

static bool expect_of_each(int rank, int ranks, int block, sim_place *place)
{
    (void)rank;
    (void)ranks;
    *place = (sim_place){.rank = block};
    return true;
}

static bool expect_own_sum(int rank, int ranks, int block, sim_place *place)
{
    (void)ranks;
    (void)block;
    *place = (sim_place){.sums = true, .block = rank};
    return true;
}

static bool expect_of_each_at_root(int rank, int ranks, int block, sim_place *place)
{
    return expect_of_each(rank, ranks, block, place) && rank == root_of(ranks);
}

static bool expect_own_of_root(int rank, int ranks, int block, sim_place *place)
{
    (void)block;
    *place = (sim_place){.rank = root_of(ranks), .block = rank};
    return true;
}

static bool expect_own_of_each(int rank, int ranks, int block, sim_place *place)
{
    (void)ranks;
    *place = (sim_place){.rank = block, .block = rank};
    return true;
}

static bool expect_of_partner(int rank, int ranks, int block, sim_place *place)
{
    (void)ranks;
    *place = (sim_place){.rank = rank & ~1, .block = block};
    return true;
}

const sim_op sim_ops[] = {
    {.name = "all_reduce",
     .op = TRI_COMM_ALL_REDUCE,
     .bus_factor = factor_both,
     .in_blocks = one,
     .run = run_all_reduce,
     .expect = expect_sum},
    {.name = "reduce",
     .op = TRI_COMM_REDUCE,
     .bus_factor = factor_one,
     .in_blocks = one,
     .run = run_reduce,
     .expect = expect_sum_at_root},
    {.name = "broadcast",
     .op = TRI_COMM_BROADCAST,
     .bus_factor = factor_one,
     .in_blocks = one,
     .run = run_broadcast,
     .expect = expect_of_root},
    {.name = "all_gather",
     .op = TRI_COMM_ALL_GATHER,
     .by_rank = true,
     .bus_factor = factor_share,
     .in_blocks = one,
     .out_blocks = each,
     .run = run_all_gather,
     .expect = expect_of_each},
    {.name = "reduce_scatter",
     .op = TRI_COMM_REDUCE_SCATTER,
     .by_rank = true,
     .bus_factor = factor_share,
     .in_blocks = each,
     .out_blocks = one,
     .run = run_reduce_scatter,
     .expect = expect_own_sum},
    {.name = "all_reduce_tree",
     .op = TRI_COMM_ALL_REDUCE_TREE,
     .bus_factor = factor_both,
     .in_blocks = two,
     .contributors = leaves_of,
     .run = run_tree,
     .fill = fill_tree,
     .expect = expect_sum_at_first_block},
    {.name = "reduce_scatter_tree",
     .op = TRI_COMM_REDUCE_SCATTER_TREE,
     .by_rank = true,
     .bus_factor = factor_share,
     .in_blocks = two_of_each,
     .out_blocks = one,
     .contributors = leaves_of,
     .run = run_scatter_tree,
     .fill = fill_scatter_tree,
     .expect = expect_own_sum},
    {.name = "gather",
     .op = TRI_COMM_GATHER,
     .by_rank = true,
     .bus_factor = factor_share,
     .in_blocks = one,
     .out_blocks = each,
     .run = run_gather,
     .expect = expect_of_each_at_root},
    {.name = "scatter",
     .op = TRI_COMM_SCATTER,
     .by_rank = true,
     .bus_factor = factor_share,
     .in_blocks = each,
     .out_blocks = one,
     .run = run_scatter,
     .expect = expect_own_of_root},
    {.name = "all_to_all",
     .op = TRI_COMM_ALL_TO_ALL,
     .by_rank = true,
     .bus_factor = factor_share,
     .in_blocks = each,
     .out_blocks = each,
     .run = run_all_to_all,
     .expect = expect_own_of_each},
    {.name = "barrier", .op = TRI_COMM_BARRIER, .bus_factor = factor_one, .in_blocks = none, .run = run_barrier},
    {.name = "send_recv",
     .op = TRI_COMM_SEND_RECV,
     .min_pair = true,
     .bus_factor = factor_one,
     .in_blocks = one,
     .run = run_send_recv,
     .expect = expect_of_partner},
    {.name = NULL},
};
