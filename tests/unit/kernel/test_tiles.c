/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tiles.c: tiles run once each, and vector loops give the same bits for any number of threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/ops.h"

static void count_tile(void *arg, int64_t tile)
{
    ((int *)arg)[tile]++;
}

static void every_tile_runs_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        int seen[101] = {0};
        tri_tiles_run(threads, 101, count_tile, seen);
        tri_tiles_run(threads, 0, count_tile, seen);
        for (int i = 0; i < 101; i++) {
            assert_int_equal(seen[i], 1);
        }
    }
}

static void vectors_add_elementwise(void **state)
{
    (void)state;
    enum { COUNT = 40001 };
    float *a = tri_alloc_bulk(COUNT * 4), *b = tri_alloc_bulk(COUNT * 4);
    op_fill(a, COUNT, 1);
    op_fill(b, COUNT, 2);
    const float first = a[0] + b[0], last = a[COUNT - 1] + b[COUNT - 1];
    tri_vector_add(3, a, a, b, COUNT);
    assert_true(a[0] == first && a[COUNT - 1] == last);
    tri_free(a);
    tri_free(b);
}

static void square_sums_of_whole_blocks_do_not_depend_on_the_slice(void **state)
{
    (void)state;
    enum { COUNT = 5 * TRI_NORM_BLOCK + 77 };
    float *x = tri_alloc_bulk(COUNT * 4);
    op_fill(x, COUNT, 1);
    double whole[6], slice[6], want = 0;
    tri_vector_square_blocks(3, x, COUNT, whole);
    tri_vector_square_blocks(1, x, 2 * TRI_NORM_BLOCK, slice);
    tri_vector_square_blocks(2, x + 2 * TRI_NORM_BLOCK, COUNT - 2 * TRI_NORM_BLOCK, slice + 2);
    assert_memory_equal(whole, slice, sizeof whole);
    for (int i = 0; i < COUNT; i++) {
        want += (double)x[i] * (double)x[i];
    }
    const double got = tri_vector_tree_sum(whole, 6);
    assert_true(fabs(got - want) < 1e-9 * want);
    tri_free(x);
}

static void tree_sums_are_balanced(void **state)
{
    (void)state;
    double x[5] = {1e16, 1, 1, 1, 1}; /* (1e16 + 1) + (1 + 1) loses one, gains two; then + 1 is lost */
    const double want = ((1e16 + 1) + (1.0 + 1.0)) + 1;
    assert_true(tri_vector_tree_sum(x, 5) == want);
    assert_true(tri_vector_tree_sum(x, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_runs_once),
        cmocka_unit_test(vectors_add_elementwise),
        cmocka_unit_test(square_sums_of_whole_blocks_do_not_depend_on_the_slice),
        cmocka_unit_test(tree_sums_are_balanced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
