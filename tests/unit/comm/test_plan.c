/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c: plans over ranks: slots, order, reuse.
 */
#include "comm/comm_impl.h"

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
    assert_int_equal(tri_plan_find(&group, 0, &plan), TRI_OK);
    assert_int_equal(plan->slot_count, 3);
    assert_int_equal(plan->step_count, 2);
    assert_int_equal(plan->steps[1].into, 0);
    assert_int_equal(plan->steps[1].from, 2);
    /* 8 shards over 3 ranks: 0-1 | 2-4 | 5-7 are the subtrees 0-1 | 2-3, 4 | 5, 6-7. */
    const tri_plan *tree = NULL;
    assert_int_equal(tri_plan_find(&group, 8, &tree), TRI_OK);
    assert_int_equal(tree->slot_count, 5);
    assert_int_equal(tree->first_slot[1], 1);
    assert_int_equal(tree->first_slot[2], 3);
    assert_int_equal(tree->step_count, 4);
    const tri_tree_step *steps = tree->steps;
    assert_int_equal(tri_plan_find(&group, 8, &tree), TRI_OK);
    assert_ptr_equal(tree->steps, steps); /* kept */
    assert_int_equal(tri_plan_find(&group, 16, &tree), TRI_OK);
    assert_int_equal(tree->leaves, 16);
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
        assert_int_equal(tri_plan_find(&group, 8, &plan), TRI_ENOMEM);
        tri_memory_fail_at(0);
        assert_int_equal(tri_plan_find(&group, 8, &plan), TRI_OK);
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
