/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_tree.c: the canonical sum of shards has the bits of one rank for every number of ranks; sums in the simulator.
 */
#include "ranks/comm_spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "tensor/tree.h"

typedef struct tree_case {
    int64_t leaves, count;
    const char *order;
    const float *want; /* [count] */
    int locals;        /* ranks of a group, where there are several */
} tree_case;

static void sum_of_shards(spawn_rank *self, void *arg)
{
    const tree_case *tree = arg;
    tri_comm *comm = comm_spawn_open(self, tree->order, NULL);
    if (!comm)
        return;
    tri_tree_part own[TRI_TREE_MAX_PARTS];
    float *parts[TRI_TREE_MAX_PARTS];
    int64_t first = tri_tree_first(tree->leaves, self->rank, self->world);
    int part_count = tri_tree_parts(tree->leaves, first, tri_tree_count(tree->leaves, self->rank, self->world), own);
    parts[0] = tri_alloc((size_t)tree->count * sizeof(float) + 1); /* for the result of a rank without leaves */
    for (int p = 0; p < part_count; p++) {
        if (p > 0)
            parts[p] = tri_alloc((size_t)tree->count * sizeof(float) + 1);
        comm_spawn_tree(parts[p], own[p].first, own[p].count, tree->count);
    }
    SPAWN_CHECK(self, tri_all_reduce_tree(tri_comm_world(comm), tree->leaves, parts, part_count, tree->count, NULL) ==
                          TRI_OK);
    SPAWN_CHECK(self, memcmp(parts[0], tree->want, (size_t)tree->count * sizeof(float)) == 0);
    for (int p = 0; p < part_count || p < 1; p++)
        tri_free(parts[p]);
    tri_comm_leave(comm);
}

/* Blocks of all lengths, none among them, out of the order of the ranks, with gaps; the sum beside or in its place. */
static void block_of_the_sum_of_shards(spawn_rank *self, void *arg)
{
    const tree_case *tree = arg;
    tri_comm *comm = comm_spawn_open(self, tree->order, NULL);
    if (!comm)
        return;
    tri_tree_part own[TRI_TREE_MAX_PARTS];
    float *parts[TRI_TREE_MAX_PARTS];
    int64_t counts[64], firsts[64], at = 0;
    int rank = self->rank, world = self->world;
    for (int i = 0; i < world; i++) {
        int r = (i + 2) % world;
        counts[r] = (tree->count - at) / (world - i) * (i % 3);
        counts[r] = counts[r] > tree->count - at ? tree->count - at : counts[r];
        firsts[r] = at;
        at += counts[r] + (at + counts[r] < tree->count);
    }
    int64_t first = tri_tree_first(tree->leaves, rank, world);
    int part_count = tri_tree_parts(tree->leaves, first, tri_tree_count(tree->leaves, rank, world), own);
    float *beside = tri_alloc((size_t)tree->count * sizeof(float) + 1);
    parts[0] = tri_alloc((size_t)tree->count * sizeof(float) + 1);
    for (int p = 1; p < part_count; p++)
        parts[p] = tri_alloc((size_t)tree->count * sizeof(float) + 1);
    for (int in_place = 0; in_place < 2; in_place++) {
        for (int p = 0; p < part_count; p++)
            comm_spawn_tree(parts[p], own[p].first, own[p].count, tree->count);
        float *out = in_place ? parts[0] + firsts[rank] : beside;
        tri_blocks blocks = {counts, firsts};
        SPAWN_CHECK(self, tri_reduce_scatter_tree(tri_comm_world(comm), tree->leaves, parts, part_count, &blocks, out,
                                                  NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(out, tree->want + firsts[rank], (size_t)counts[rank] * sizeof(float)) == 0);
    }
    for (int p = 0; p < part_count || p < 1; p++)
        tri_free(parts[p]);
    tri_free(beside);
    tri_comm_leave(comm);
}

static void run_tree(spawn_kind kind, int64_t leaves, int world, int64_t count, uint64_t seed, const char *order)
{
    float *want = tri_alloc((size_t)count * sizeof(float) + 1);
    comm_spawn_tree(want, 0, leaves, count);
    tree_case tree = {.leaves = leaves, .count = count, .order = order, .want = want};
    spawn_config config = {.kind = kind, .world = world, .seed = seed};
    bool held = spawn_ranks(&config, sum_of_shards, &tree) && spawn_ranks(&config, block_of_the_sum_of_shards, &tree);
    tri_free(want);
    assert_true(held);
}

static void bits_do_not_depend_on_the_number_of_ranks(void **state)
{
    (void)state;
    for (int64_t leaves = 8; leaves <= 64; leaves *= 8) {
        for (int world = 1; world <= 9; world++) {
            run_tree(SPAWN_INPROC, leaves, world, 1, 0, NULL);
            run_tree(SPAWN_INPROC, leaves, world, 5003, 0, NULL);
        }
    }
    run_tree(SPAWN_INPROC, 8, 3, 0, 0, NULL);
    run_tree(SPAWN_INPROC, 64, 7, 200003, 0, NULL);
}

static void bits_do_not_depend_on_the_transport_or_on_comm_order(void **state)
{
    (void)state;
    for (int world = 1; world <= 9; world += 2) {
        run_tree(SPAWN_SHM, 8, world, 3001, 0, NULL);
        run_tree(SPAWN_TCP, 8, world, 3001, 0, "any");
        run_tree(SPAWN_UCX, 8, world, 3001, 0, NULL);
    }
    run_tree(SPAWN_INPROC, 8, 4, 100003, 0, "any");
}

/* Inside groups each rank gets its block, a sum for each whole subtree of the group; the rest of the tree is a sum
 * between equals. */
static void block_in_two_levels(spawn_rank *self, const tree_case *tree, tri_group *local, tri_group *across)
{
    int rank = self->rank, world = self->world, locals = tree->locals, groups = world / locals;
    tri_tree_part own[TRI_TREE_MAX_PARTS], whole[TRI_TREE_MAX_PARTS];
    float *parts[TRI_TREE_MAX_PARTS], *outs[TRI_TREE_MAX_PARTS];
    int64_t counts[64], firsts[64], first = tri_tree_first(tree->leaves, rank, world);
    for (int r = 0; r < locals; r++) {
        firsts[r] = tree->count * r / locals;
        counts[r] = tree->count * (r + 1) / locals - firsts[r];
    }
    int part_count = tri_tree_parts(tree->leaves, first, tri_tree_count(tree->leaves, rank, world), own);
    int group_count = tri_tree_parts(tree->leaves, tri_tree_first(tree->leaves, rank / locals, groups),
                                     tri_tree_count(tree->leaves, rank / locals, groups), whole);
    for (int p = 0; p < part_count; p++) {
        parts[p] = tri_alloc((size_t)tree->count * sizeof(float) + 1);
        comm_spawn_tree(parts[p], own[p].first, own[p].count, tree->count);
    }
    int64_t mine = firsts[rank % locals], count = counts[rank % locals];
    outs[0] = parts[0] + mine;
    for (int k = 1; k < group_count; k++)
        outs[k] = tri_alloc((size_t)count * sizeof(float) + 1);
    tri_blocks blocks = {counts, firsts};
    tri_tree_place place = {tree->leaves, rank / locals * locals, world};
    SPAWN_CHECK(self, tri_reduce_scatter_subtrees(local, place, parts, part_count, &blocks, outs, NULL) == TRI_OK);
    SPAWN_CHECK(self, tri_all_reduce_tree(across, tree->leaves, outs, group_count, count, NULL) == TRI_OK);
    SPAWN_CHECK(self, memcmp(outs[0], tree->want + mine, (size_t)count * sizeof(float)) == 0);
    for (int p = 0; p < part_count; p++)
        tri_free(parts[p]);
    for (int k = 1; k < group_count; k++)
        tri_free(outs[k]);
}

static void in_two_levels(spawn_rank *self, void *arg)
{
    const tree_case *tree = arg;
    int ranks[64], rank = self->rank, locals = tree->locals;
    tri_group *local = NULL, *across = NULL;
    tri_comm *comm = comm_spawn_open(self, tree->order, NULL);
    if (!comm)
        return;
    for (int i = 0; i < locals; i++)
        ranks[i] = rank / locals * locals + i;
    SPAWN_CHECK(self, tri_group_create_of(comm, ranks, locals, "local", &local) == TRI_OK);
    for (int i = 0; i < self->world / locals; i++)
        ranks[i] = rank % locals + i * locals;
    SPAWN_CHECK(self, tri_group_create_of(comm, ranks, self->world / locals, "across", &across) == TRI_OK);
    if (local && across)
        block_in_two_levels(self, tree, local, across);
    tri_group_destroy(local);
    tri_group_destroy(across);
    tri_comm_leave(comm);
}

static void two_levels_have_the_bits_of_one(void **state)
{
    (void)state;
    static const struct {
        int world, locals;
    } cases[] = {{4, 2}, {8, 2}, {8, 4}, {6, 2}, {6, 3}, {9, 3}, {10, 2}, {10, 5}, {12, 4}, {12, 3}, {15, 5}, {4, 1}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        for (int64_t leaves = 16; leaves <= 64; leaves *= 4) {
            enum { COUNT = 5003 };
            static float want[COUNT];
            comm_spawn_tree(want, 0, leaves, COUNT);
            tree_case tree = {.leaves = leaves, .count = COUNT, .want = want, .locals = cases[i].locals};
            spawn_config config = {.kind = i % 2 ? SPAWN_SHM : SPAWN_INPROC, .world = cases[i].world};
            if (!spawn_ranks(&config, in_two_levels, &tree))
                fail_msg("%d ranks in groups of %d", cases[i].world, cases[i].locals);
        }
}

static void sixty_four_ranks_agree_in_every_order_of_events(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        run_tree(SPAWN_SIM, 64, 64 - (int)(seed % 3), 33, seed, NULL);
}

static void wrong_parts_are_refused(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    float data[4];
    float *parts[1] = {data};
    tri_group *group = tri_comm_world(comm);
    SPAWN_CHECK(self, tri_all_reduce_tree(group, 6, parts, 1, 4, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_all_reduce_tree(group, 8, parts, 2, 4, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_all_reduce_tree(group, 8, NULL, 1, 4, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_reduce_scatter_tree(group, 8, parts, 1, NULL, data, NULL) == TRI_EINVAL);
    tri_blocks blocks = {(const int64_t[]){2, 2}, NULL};
    SPAWN_CHECK(self, tri_reduce_scatter_tree(group, 8, parts, 2, &blocks, data, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, tri_barrier(group, NULL) == TRI_OK);
    tri_comm_leave(comm);
}

static void parts_that_do_not_fit_the_leaves_are_refused(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 2};
    assert_true(spawn_ranks(&config, wrong_parts_are_refused, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(bits_do_not_depend_on_the_transport_or_on_comm_order),
        cmocka_unit_test(two_levels_have_the_bits_of_one),
        cmocka_unit_test(sixty_four_ranks_agree_in_every_order_of_events),
        cmocka_unit_test(parts_that_do_not_fit_the_leaves_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
