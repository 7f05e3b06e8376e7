/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bench_data.c: what `trireme bench` expects as results is what the operations are defined to give, and it notices
 * what is not. The definitions are written here once more, over f64.
 */
#include "cli/bench/bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/reduce.h"

#define RANKS_MOST 5
#define COUNT_MOST 4000

static double inputs[RANKS_MOST][COUNT_MOST], result[COUNT_MOST];
static int64_t counts[RANKS_MOST][RANKS_MOST];
static char bytes[COUNT_MOST * 8];
static bench_case cases[RANKS_MOST];
static bench_pattern pattern;

static const bench_op *op_find(const char *name)
{
    const bench_op *op = bench_ops;
    while (op->name && strcmp(op->name, name) != 0)
        op++;
    assert_non_null(op->name);
    return op;
}

/* All ranks' cases, and their inputs of a turn as numbers. */
static void world_make(const char *op, int ranks, tri_dtype dtype, tri_reduce_op reduce, int64_t count, int64_t turn)
{
    for (int r = 0; r < ranks; r++) {
        cases[r] = (bench_case){
            .op = op_find(op), .ranks = ranks, .rank = r, .dtype = dtype, .reduce = reduce, .counts = counts[r]};
        bench_case_size(&cases[r], count);
    }
    assert_int_equal(bench_pattern_init(&cases[0], &pattern), TRI_OK);
    for (int r = 0; r < ranks; r++) {
        bench_pattern_write(&cases[r], &pattern, turn, bytes);
        assert_int_equal(tri_convert(inputs[r], TRI_F64, bytes, dtype, cases[r].op->in_count(&cases[r])), TRI_OK);
    }
}

static double combined(int64_t at)
{
    double sum = inputs[0][at];
    for (int r = 1; r < cases[0].ranks; r++) {
        double next = inputs[r][at];
        switch (cases[0].reduce) {
        case TRI_REDUCE_MIN:
            sum = next < sum ? next : sum;
            break;
        case TRI_REDUCE_MAX:
            sum = next > sum ? next : sum;
            break;
        case TRI_REDUCE_PRODUCT:
            sum *= next;
            break;
        case TRI_REDUCE_PREMUL_SUM:
            sum += next * bench_scale(r);
            break;
        default:
            sum += next;
        }
    }
    return cases[0].reduce == TRI_REDUCE_AVERAGE ? sum / cases[0].ranks : sum;
}

/* Elements of `result` on a rank that are not expected for a turn. */
static int64_t wrong_on(int rank, int64_t turn)
{
    const bench_case *c = &cases[rank];
    assert_int_equal(tri_convert(bytes, c->dtype, result, TRI_F64, c->op->out_count(c)), TRI_OK);
    return bench_pattern_wrong(c, &pattern, turn, bytes);
}

static void sums_of_every_type_are_expected_as_they_are_defined(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < TRI_DTYPE_COUNT; dtype++)
        for (int reduce = 0; reduce < TRI_REDUCE_COUNT; reduce++)
            for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
                if (reduce == TRI_REDUCE_AVERAGE && dtype != TRI_F64)
                    continue; /* rounded in another way */
                world_make("all_reduce", ranks, (tri_dtype)dtype, (tri_reduce_op)reduce, 3001, 5);
                for (int64_t i = 0; i < 3001; i++)
                    result[i] = combined(i);
                assert_int_equal(wrong_on(ranks - 1, 5), 0);
                bench_pattern_fini(&pattern);
            }
}

static void an_average_is_rounded_as_its_type_rounds(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < TRI_DTYPE_COUNT; dtype++) {
        world_make("all_reduce", 3, (tri_dtype)dtype, TRI_REDUCE_AVERAGE, 3001, 0);
        for (int64_t i = 0; i < 3001; i++)
            result[i] = inputs[0][i] + inputs[1][i] + inputs[2][i];
        assert_int_equal(tri_convert(bytes, cases[0].dtype, result, TRI_F64, 3001), TRI_OK);
        assert_int_equal(tri_reduce_divide(bytes, cases[0].dtype, 3001, 3), TRI_OK);
        assert_int_equal(bench_pattern_wrong(&cases[0], &pattern, 0, bytes), 0);
        bench_pattern_fini(&pattern);
    }
}

static void one_wrong_element_is_counted_once(void **state)
{
    (void)state;
    world_make("all_reduce", 2, TRI_F32, TRI_REDUCE_SUM, 3001, 0);
    for (int64_t i = 0; i < 3001; i++)
        result[i] = combined(i);
    result[0] += 1;
    result[1500] += 1;
    result[3000] = 0;
    assert_int_equal(wrong_on(0, 0), 3);
    bench_pattern_fini(&pattern);
}

static void results_of_an_earlier_turn_are_wrong(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++) {
        world_make("all_reduce", ranks, TRI_F32, TRI_REDUCE_SUM, 3001, 0);
        for (int64_t i = 0; i < 3001; i++)
            result[i] = combined(i);
        assert_true(wrong_on(0, 1) > 2500);
        bench_pattern_fini(&pattern);
    }
}

static void a_rank_that_is_left_out_is_noticed(void **state)
{
    (void)state;
    world_make("all_reduce", 3, TRI_BF16, TRI_REDUCE_SUM, 3001, 0);
    for (int64_t i = 0; i < 3001; i++)
        result[i] = inputs[0][i] + inputs[2][i];
    assert_true(wrong_on(0, 0) > 2500);
    bench_pattern_fini(&pattern);
}

static void parts_of_different_lengths_are_expected_where_they_lie(void **state)
{
    (void)state;
    world_make("reduce_scatter_v", 3, TRI_I32, TRI_REDUCE_SUM, 3000, 1);
    assert_int_equal(cases[1].op->out_count(&cases[1]), 1000);
    for (int64_t i = 0; i < 1000; i++)
        result[i] = combined(500 + i);
    assert_int_equal(wrong_on(1, 1), 0);
    bench_pattern_fini(&pattern);

    world_make("all_gather_v", 3, TRI_F32, TRI_REDUCE_SUM, 3000, 1);
    int64_t at = 0;
    for (int r = 0; r < 3; r++)
        for (int64_t i = 0; i < 500 * (r + 1); i++)
            result[at++] = inputs[r][i];
    assert_int_equal(wrong_on(2, 1), 0);
    bench_pattern_fini(&pattern);
}

static void exchanged_blocks_are_expected_where_they_lie(void **state)
{
    (void)state;
    const char *const names[] = {"all_to_all", "all_to_all_v"};
    for (int k = 0; k < 2; k++) {
        world_make(names[k], 4, TRI_F32, TRI_REDUCE_SUM, 4000, 3);
        for (int me = 0; me < 4; me++) {
            int64_t at = 0;
            for (int r = 0; r < 4; r++) {
                int64_t first = 0;
                for (int b = 0; b < me; b++)
                    first += counts[r][b];
                assert_int_equal(counts[r][me], counts[me][r]);
                for (int64_t i = 0; i < counts[r][me]; i++)
                    result[at++] = inputs[r][first + i];
            }
            assert_int_equal(at, cases[me].op->out_count(&cases[me]));
            assert_int_equal(wrong_on(me, 3), 0);
            result[at - 1] = result[at - 2] + 1;
            assert_int_equal(wrong_on(me, 3), result[at - 1] != inputs[3][0]);
        }
        bench_pattern_fini(&pattern);
    }
}

static void every_rank_has_at_least_one_element(void **state)
{
    (void)state;
    world_make("all_gather", 5, TRI_F32, TRI_REDUCE_SUM, 1, 0);
    assert_int_equal(cases[4].count, 5);
    bench_pattern_fini(&pattern);
    world_make("scatter_v", 4, TRI_F32, TRI_REDUCE_SUM, 1, 0);
    assert_int_equal(cases[3].count, 10);
    bench_pattern_fini(&pattern);
    world_make("all_gather", 5, TRI_F32, TRI_REDUCE_SUM, 0, 0);
    assert_int_equal(cases[4].count, 0);
    bench_pattern_fini(&pattern);
}

static void sums_of_many_ranks_stay_exact(void **state)
{
    (void)state;
    static int64_t many[4096];
    const tri_dtype narrow[] = {TRI_I8, TRI_BF16};
    for (int k = 0; k < 2; k++) {
        bench_case c = {.op = op_find("all_reduce"), .ranks = 1000, .dtype = narrow[k], .counts = many};
        bench_case_size(&c, BENCH_PERIOD);
        assert_int_equal(bench_pattern_init(&c, &pattern), TRI_OK);
        double most = 0;
        assert_int_equal(tri_convert(result, TRI_F64, pattern.combined, c.dtype, BENCH_PERIOD), TRI_OK);
        for (int i = 0; i < BENCH_PERIOD; i++)
            most = result[i] > most ? result[i] : most;
        assert_true(most > 0 && most <= (k == 0 ? 127 : 256));
        bench_pattern_fini(&pattern);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_every_type_are_expected_as_they_are_defined),
        cmocka_unit_test(an_average_is_rounded_as_its_type_rounds),
        cmocka_unit_test(one_wrong_element_is_counted_once),
        cmocka_unit_test(results_of_an_earlier_turn_are_wrong),
        cmocka_unit_test(a_rank_that_is_left_out_is_noticed),
        cmocka_unit_test(parts_of_different_lengths_are_expected_where_they_lie),
        cmocka_unit_test(exchanged_blocks_are_expected_where_they_lie),
        cmocka_unit_test(every_rank_has_at_least_one_element),
        cmocka_unit_test(sums_of_many_ranks_stay_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
