/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c: plans over ranks: slots, order, reuse.
 */
#include "comm/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void ranks_have_one_slot_each_and_shards_as_many_as_they_need(void **state)
{
    (void)state;
    tri_group group = {.count = 3};
    const tri_plan *plan = NULL;
    assert_int_equal(tri_plan_find(&group, TRI_TREE_OF_RANKS, &plan), TRI_OK);
    assert_int_equal(plan->slot_count, 3);
    assert_int_equal(plan->step_count, 2);
    assert_int_equal(plan->steps[1].into, 0);
    assert_int_equal(plan->steps[1].from, 2);
    /* 8 shards over 3 ranks: 0-1 | 2-4 | 5-7 are the subtrees 0-1 | 2-3, 4 | 5, 6-7. */
    const tri_plan *tree = NULL;
    assert_int_equal(tri_plan_find(&group, (tri_tree_place){8, 0, group.count}, &tree), TRI_OK);
    assert_int_equal(tree->slot_count, 5);
    assert_int_equal(tree->first_slot[1], 1);
    assert_int_equal(tree->first_slot[2], 3);
    assert_int_equal(tree->step_count, 4);
    const tri_tree_step *steps = tree->steps;
    assert_int_equal(tri_plan_find(&group, (tri_tree_place){8, 0, group.count}, &tree), TRI_OK);
    assert_ptr_equal(tree->steps, steps); /* kept */
    assert_int_equal(tri_plan_find(&group, (tri_tree_place){16, 0, group.count}, &tree), TRI_OK);
    assert_int_equal(tree->place.leaves, 16);
    assert_int_equal(tree->root_count, 1);
    /* The second pair of 6 ranks has 2-3 | 4: two subtrees, and nothing to add; the third of 9 in threes has 10-11 | 12
     * 13 | 14-15 of 16: 10-11, and 12-15 of three slots. */
    group.count = 2;
    assert_int_equal(tri_plan_find(&group, (tri_tree_place){8, 2, 6}, &tree), TRI_OK);
    assert_int_equal(tree->root_count, 2);
    assert_int_equal(tree->step_count, 0);
    assert_int_equal(tree->roots[1].slot, 1);
    group.count = 3;
    assert_int_equal(tri_plan_find(&group, (tri_tree_place){16, 6, 9}, &tree), TRI_OK);
    assert_int_equal(tree->root_count, 2);
    assert_int_equal(tree->roots[0].end, 0);
    assert_int_equal(tree->roots[1].slot, 1);
    assert_int_equal(tree->roots[1].end - tree->roots[1].first, tree->slot_count - 2);
    tri_plan_fini(&group.rank_plan);
    tri_plan_fini(&group.tree_plan);
}

static void a_plan_without_memory_is_not_half_there(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        tri_group group = {.count = 3};
        const tri_plan *plan = NULL;
        tri_memory_fail_at(n);
        assert_int_equal(tri_plan_find(&group, (tri_tree_place){8, 0, group.count}, &plan), TRI_ENOMEM);
        tri_memory_fail_at(0);
        assert_int_equal(tri_plan_find(&group, (tri_tree_place){8, 0, group.count}, &plan), TRI_OK);
        assert_int_equal(plan->slot_count, 5);
        tri_plan_fini(&group.tree_plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_one_slot_each_and_shards_as_many_as_they_need),
        cmocka_unit_test(a_plan_without_memory_is_not_half_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
