/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rules.c: the text of comm.algorithm: what it means, and what each mistake says.
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

static tri_rule rules[TRI_COMM_RULES_MAX];
static int rule_count;

static void ranges_and_suffixes_are_understood(void **state)
{
    (void)state;
    assert_int_equal(
        tri_rules_parse("all_reduce:0-64k=tree,64k-=halving;broadcast:1M-2G=scatter;", false, rules, &rule_count),
        TRI_OK);
    assert_int_equal(rule_count, 3);
    assert_int_equal(rules[0].high, 65536);
    assert_ptr_equal(rules[0].algorithm, &tri_all_reduce_by_tree);
    assert_int_equal(rules[1].low, 65536);
    assert_true(rules[1].high == INT64_MAX);
    assert_int_equal(rules[2].op, TRI_COMM_BROADCAST);
    assert_true(rules[2].high == INT64_C(2) << 30);
}

static void no_text_is_no_rule(void **state)
{
    (void)state;
    assert_int_equal(tri_rules_parse("", false, rules, &rule_count), TRI_OK);
    assert_int_equal(rule_count, 0);
}

static void each_mistake_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"all_redce:0-=tree", "all_reduce"},
        {"all_reduce", "want ':'"},
        {"all_reduce:tree", "number of bytes"},
        {"all_reduce:0=tree", "range of bytes"},
        {"all_reduce:0-64k", "'='"},
        {"all_reduce:0-=scatter", "tree, halving, shared, direct, exchange, doubling, ring"},
        {"all_reduce:64k-64k=tree", "empty"},
        {"all_reduce:0-64k=tree,32k-=direct", "overlap"},
        {"all_reduce:0-=ring", "comm.order = any"},
        {"all_reduce:0-=tree!", "',' or ';'"},
        {"all_reduce:99999999999999999999-=tree", "number of bytes"},
        {"all_reduce:999999999999G-=tree", "number of bytes"},
        {";", "name of an operation"},
    };
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        assert_int_equal(tri_rules_parse(cases[c][0], false, rules, &rule_count), TRI_ECONFIG);
        if (!strstr(tri_last_error(), cases[c][1]))
            fail_msg("'%s': want '%s', got '%s'", cases[c][0], cases[c][1], tri_last_error());
    }
}

static void rings_are_allowed_when_order_does_not_matter(void **state)
{
    (void)state;
    assert_int_equal(tri_rules_parse("all_reduce:0-=ring", true, rules, &rule_count), TRI_OK);
    assert_ptr_equal(rules[0].algorithm, &tri_all_reduce_by_ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_and_suffixes_are_understood),
        cmocka_unit_test(no_text_is_no_rule),
        cmocka_unit_test(each_mistake_is_named),
        cmocka_unit_test(rings_are_allowed_when_order_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
