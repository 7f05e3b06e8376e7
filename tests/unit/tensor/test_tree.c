/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tree.c: parts cover, and plans add in exactly the order of the recursive definition: compared as hashes of the
 * expression, where (a + b) and (b + a) are the same and nothing else is.
 */
#include "tensor/tree.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A symbolic sum: commutative, not associative. */
static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    uint64_t hash =
        low * UINT64_C(0x9e3779b97f4a7c15) ^ (high + UINT64_C(0xd1b54a32d192ed03)) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ (hash >> 29);
}

static uint64_t leaf(int64_t index)
{
    return (uint64_t)(index + 1) * UINT64_C(0xc2b2ae3d27d4eb4f);
}

/* T(a, b) = T(a, m) + T(m, b). */
static uint64_t tree(int64_t first, int64_t count)
{
    if (count == 1)
        return leaf(first);
    return plus(tree(first, count / 2), tree(first + count / 2, count / 2));
}

/* The same where m is first + the largest power of two below count. */
static uint64_t leaning_tree(int64_t first, int64_t count)
{
    if (count == 1)
        return leaf(first);
    int64_t left = 1;
    while (left * 2 < count)
        left *= 2;
    return plus(leaning_tree(first, left), leaning_tree(first + left, count - left));
}

static uint64_t run(const tri_tree_step *steps, int step_count, uint64_t *slots)
{
    for (int i = 0; i < step_count; i++)
        slots[steps[i].into] = plus(slots[steps[i].into], slots[steps[i].from]);
    return slots[0];
}

static void parts_of_all_ranks_cover_the_leaves_and_the_plan_is_the_tree(void **state)
{
    (void)state;
    for (int64_t leaves = 1; leaves <= 64; leaves *= 2) {
        for (int world = 1; world <= leaves + 3; world++) {
            tri_tree_part parts[128];
            tri_tree_step steps[128];
            uint64_t slots[128];
            int part_count = 0;
            int64_t next = 0;
            for (int rank = 0; rank < world; rank++) {
                tri_tree_part own[TRI_TREE_MAX_PARTS];
                assert_int_equal(tri_tree_first(leaves, rank, world), next);
                int own_count = tri_tree_parts(leaves, next, tri_tree_count(leaves, rank, world), own);
                int most = 0;
                while ((INT64_C(1) << most) < leaves)
                    most++;
                assert_true(own_count <= (most ? 2 * most : 1));
                for (int i = 0; i < own_count; i++) {
                    assert_int_equal(own[i].first, next);
                    assert_int_equal(own[i].count & (own[i].count - 1), 0);
                    assert_int_equal(own[i].first % own[i].count, 0);
                    next += own[i].count;
                    parts[part_count++] = own[i];
                }
            }
            assert_int_equal(next, leaves);
            for (int i = 0; i < part_count; i++)
                slots[i] = tree(parts[i].first, parts[i].count);
            int step_count = tri_tree_plan(parts, part_count, steps);
            assert_int_equal(step_count, part_count - 1);
            assert_true(run(steps, step_count, slots) == tree(0, leaves));
        }
    }
}

static void parts_are_the_fewest(void **state)
{
    (void)state;
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    assert_int_equal(tri_tree_parts(8, 0, 8, parts), 1);
    assert_int_equal(tri_tree_parts(8, 3, 5, parts), 2); /* 3, 4-7 */
    assert_int_equal(parts[1].count, 4);
    assert_int_equal(tri_tree_parts(8, 1, 6, parts), 4); /* 1, 2-3, 4-5, 6 */
    assert_int_equal(tri_tree_parts(8, 5, 0, parts), 0);
}

static void a_rank_alone_sums_one_whole_subtree_in_order(void **state)
{
    (void)state;
    tri_tree_part parts[16];
    tri_tree_step steps[16];
    uint64_t slots[16];
    for (int i = 0; i < 16; i++) {
        parts[i] = (tri_tree_part){16 + i, 1};
        slots[i] = leaf(16 + i);
    }
    assert_true(run(steps, tri_tree_plan(parts, 16, steps), slots) == tree(16, 16));
}

static void leaves_that_are_no_power_of_two_lean_to_the_left(void **state)
{
    (void)state;
    for (int count = 1; count <= 100; count++) {
        tri_tree_step steps[100];
        uint64_t slots[100];
        for (int i = 0; i < count; i++)
            slots[i] = leaf(i);
        int step_count = tri_tree_plan_leaves(count, steps);
        assert_int_equal(step_count, count - 1);
        assert_true(run(steps, step_count, slots) == leaning_tree(0, count));
        if ((count & (count - 1)) == 0)
            assert_true(slots[0] == tree(0, count));
    }
    assert_int_equal(tri_tree_plan_leaves(0, NULL), 0);
}

/* T(a, b) over the leaves of `here`; 0 where none is. */
static uint64_t tree_some(uint64_t here, int64_t first, int64_t count)
{
    if (count == 1)
        return here >> first & 1 ? leaf(first) : 0;
    uint64_t left = tree_some(here, first, count / 2), right = tree_some(here, first + count / 2, count / 2);
    return left && right ? plus(left, right) : left | right;
}

static void what_is_absent_is_left_out(void **state)
{
    (void)state;
    for (uint64_t here = 1; here < 1 << 16; here++) {
        tri_tree_part parts[16];
        tri_tree_step steps[16];
        uint64_t slots[16];
        int part_count = 0;
        for (int64_t i = 0; i < 16; i++)
            if (here >> i & 1)
                parts[part_count++] = (tri_tree_part){i, 1};
        /* Siblings as one part, here and there. */
        for (int i = 0; i + 1 < part_count && here % 3 == 0; i++)
            if (parts[i].first % 2 == 0 && parts[i + 1].first == parts[i].first + 1) {
                parts[i].count = 2;
                memmove(parts + i + 1, parts + i + 2, (size_t)(--part_count - i - 1) * sizeof(*parts));
            }
        for (int i = 0; i < part_count; i++)
            slots[i] = tree_some(here, parts[i].first, parts[i].count);
        int step_count = tri_tree_plan_some(parts, part_count, steps);
        assert_int_equal(step_count, part_count - 1);
        assert_true(run(steps, step_count, slots) == tree_some(here, 0, 16));
    }
    assert_int_equal(tri_tree_plan_some(NULL, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_all_ranks_cover_the_leaves_and_the_plan_is_the_tree),
        cmocka_unit_test(parts_are_the_fewest),
        cmocka_unit_test(a_rank_alone_sums_one_whole_subtree_in_order),
        cmocka_unit_test(leaves_that_are_no_power_of_two_lean_to_the_left),
        cmocka_unit_test(what_is_absent_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
