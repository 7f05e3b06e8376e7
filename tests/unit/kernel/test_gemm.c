/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gemm.c: each instruction set's tiles against plain sums, at all edges; bits independent of the cut into threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernel/cpu/gemm.h"
#include "ops/ops.h"

/* The sets that this machine can run. */
static int sets(const tri_gemm_ops *list[3])
{
    int count = 0;
    list[count++] = &tri_gemm_generic;
#ifdef TRI_HAVE_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        list[count++] = &tri_gemm_avx;
    }
    if (__builtin_cpu_supports("avx512f")) {
        list[count++] = &tri_gemm_wide;
    }
#endif
    return count;
}

/* The same product with b read where it lies has the same bytes; relu too. */
static void check_turned(const tri_gemm_ops *ops, const tri_gemm_call *want, const float *b, bool turned)
{
    const int64_t m = want->m, n = want->n, k = want->k;
    float *packed = tri_alloc_bulk((size_t)tri_gemm_packed_count(ops, k, m) * 4);
    float *c = tri_alloc_bulk((size_t)(m * n) * 4);
    tri_gemm_pack_all(ops, 1, packed, want->a, k, m, 1, want->lda);
    for (int threads = 1; threads <= 2; threads++) {
        memset(c, 0xff, (size_t)(m * n) * 4);
        tri_gemm_turn_run(ops, threads,
                          &(tri_gemm_turn){.a = b,
                                           .packed = packed,
                                           .bias = want->bias,
                                           .c = c,
                                           .m = n,
                                           .n = m,
                                           .k = k,
                                           .row_step = turned ? k : 1,
                                           .k_step = turned ? 1 : n,
                                           .ldc = n,
                                           .relu = want->relu});
        assert_memory_equal(c, want->c, (size_t)(m * n) * 4);
    }
    tri_free(packed);
    tri_free(c);
}

static void check_product(const tri_gemm_ops *ops, int64_t m, int64_t n, int64_t k, bool turned)
{
    float *a = tri_alloc_bulk((size_t)(m * k) * 4), *b = tri_alloc_bulk((size_t)(k * n) * 4);
    float *c = tri_alloc_bulk((size_t)(m * n) * 4), *more = tri_alloc_bulk((size_t)(m * n) * 4);
    float *packed = tri_alloc_bulk((size_t)tri_gemm_packed_count(ops, k, n) * 4);
    op_fill(a, m * k, 1);
    op_fill(b, k * n, 2);
    tri_gemm_pack_all(ops, 2, packed, b, k, n, turned ? 1 : n, turned ? k : 1);
    tri_gemm_call call = {.a = a, .packed = packed, .bias = b, .c = c, .m = m, .n = n, .k = k, .lda = k, .ldc = n};
    tri_gemm_run(ops, 1, &call);
    call.c = more;
    tri_gemm_run(ops, 3, &call);
    assert_memory_equal(c, more, (size_t)(m * n) * 4);
    check_turned(ops, &call, b, turned);
    call.relu = true;
    tri_gemm_run(ops, 1, &call);
    check_turned(ops, &call, b, turned);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = (double)b[i % n], scale = 1;
        for (int64_t l = 0; l < k; l++) {
            const double term = (double)a[i / n * k + l] * (double)b[turned ? i % n * k + l : l * n + i % n];
            sum += term;
            scale += fabs(term);
        }
        if (!(fabs((double)c[i] - sum) <= 1e-5 * scale)) {
            fail_msg("%s: [%d, %d, %d] at %d: want %g, got %g", ops->name, (int)m, (int)n, (int)k, (int)i, sum,
                     (double)c[i]);
        }
    }
    tri_free(a);
    tri_free(b);
    tri_free(c);
    tri_free(more);
    tri_free(packed);
}

static void products_are_right_at_every_edge(void **state)
{
    (void)state;
    const tri_gemm_ops *list[3];
    const int count = sets(list);
    for (int s = 0; s < count; s++) {
        for (int64_t m = 1; m <= 9; m++) {
            check_product(list[s], m, 1 + 7 * m, 13, m % 2 == 0);
        }
        check_product(list[s], 37, 65, 515, true);
        check_product(list[s], 130, 33, 256, false);
    }
}

/* A tile of n columns holds what one of all columns holds there. */
static void check_narrow(const tri_gemm_ops *ops, int64_t m, int64_t n, const tri_gemm_walk *walk, const float *a,
                         const float *b, const float *whole)
{
    float *tile = tri_alloc_bulk((size_t)(ops->mr * ops->nr) * 4);
    ops->outer((int)m, (int)n, walk, a, b, tile, TRI_GEMM_FIRST, NULL);
    for (int64_t i = 0; i < m; i++) {
        assert_memory_equal(tile + i * ops->nr, whole + i * ops->nr, (size_t)n * 4);
    }
    tri_free(tile);
}

/* Leaves summed one by one and added by hand. */
static void check_tree(const tri_gemm_ops *ops, int64_t m, int64_t n, int64_t k, int64_t leaves)
{
    float *a = tri_alloc_bulk((size_t)(leaves * k * ops->mr) * 4),
          *b = tri_alloc_bulk((size_t)(leaves * k * ops->nr) * 4);
    float c[TRI_GEMM_MAX_MR * TRI_GEMM_MAX_NR] = {0};
    float *leaf = tri_alloc_bulk((size_t)(leaves * ops->mr * ops->nr) * 4);
    op_fill(a, leaves * k * ops->mr, 1);
    op_fill(b, leaves * k * ops->nr, 2);
    const int64_t tile = ops->mr * ops->nr;
    const tri_gemm_walk walk = {.count = {1, k}, .a_step = {k * ops->mr, ops->mr}, .b_step = {k * ops->nr, ops->nr}};
    ops->tree((int)m, (int)n, leaves, &walk, a, b, c, n);
    for (int64_t i = 0; i < leaves; i++) {
        ops->outer((int)m, ops->nr, &walk, a + i * k * ops->mr, b + i * k * ops->nr, leaf + i * tile, TRI_GEMM_FIRST,
                   NULL);
        check_narrow(ops, m, n, &walk, a + i * k * ops->mr, b + i * k * ops->nr, leaf + i * tile);
    }
    for (int64_t step = 1; step < leaves; step *= 2) {
        for (int64_t i = 0; i < leaves; i += 2 * step) {
            tri_vector_add(1, leaf + i * tile, leaf + i * tile, leaf + (i + step) * tile, tile);
        }
    }
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            assert_true(c[i * n + j] == leaf[i * ops->nr + j]);
        }
    }
    tri_free(a);
    tri_free(b);
    tri_free(leaf);
}

static void leaves_are_added_in_tree_order(void **state)
{
    (void)state;
    const tri_gemm_ops *list[3];
    const int count = sets(list);
    for (int s = 0; s < count; s++) {
        for (int64_t leaves = 1; leaves <= 32; leaves *= 2) {
            for (int64_t m = 1; m <= list[s]->mr; m++) {
                check_tree(list[s], m, list[s]->nr - (m == 2), 5, leaves);
                check_tree(list[s], m, m == 2 ? 3 : list[s]->lanes, 5, leaves);
            }
        }
    }
}

/* dparam[m][n] of rows of `a` that lie lda apart, 4 shards of 64 rows. */
static float *gradient(const tri_gemm_ops *ops, const float *a, const float *b, int64_t m, int64_t n, int64_t lda,
                       bool is_short)
{
    enum { SHARDS = 4, ROWS = 64 };
    float *c = tri_alloc_bulk((size_t)(m * n) * 4);
    float *scratch = tri_alloc_bulk((size_t)tri_gemm_tree_count(ops, ROWS, SHARDS, 2) * 4);
    const tri_gemm_tree tree = {.a = a, .b = b, .m = m, .n = n, .k = ROWS, .lda = lda, .scratch = scratch};
    const tri_tree_part part = {0, SHARDS};
    float *const out[] = {c};
    const tri_kernel kernel = {.desc = {.threads = 2, .max_shards = SHARDS}};
    const tri_op_call call = {.shards = SHARDS, .part_count = 1, .parts = &part, .dparam = {out}};
    assert_int_equal(tri_gemm_tree_is_short(ops, &tree), is_short);
    tri_gemm_tree_run(ops, &kernel, &call, 0, &tree);
    tri_free(scratch);
    return c;
}

/* Whole pages from row to row, and a line more. */
static void rows_that_are_pages_apart_give_the_same_bits(void **state)
{
    (void)state;
    enum { ROWS = 4 * 64, M = 1024, N = 72, APART = M + 16 };
    const tri_gemm_ops *list[3];
    const int count = sets(list);
    float *a = tri_alloc_bulk((size_t)(ROWS * M) * 4), *wide = tri_alloc_bulk((size_t)(ROWS * APART) * 4);
    float *b = tri_alloc_bulk((size_t)(ROWS * N) * 4);
    op_fill(a, ROWS * M, 1);
    op_fill(b, ROWS * N, 2);
    for (int64_t row = 0; row < ROWS; row++) {
        memcpy(wide + row * APART, a + row * M, M * sizeof(float));
    }
    for (int s = 0; s < count; s++) {
        float *packed = gradient(list[s], a, b, M, N, M, false);
        float *in_place = gradient(list[s], wide, b, M, N, APART, true);
        assert_memory_equal(packed, in_place, (size_t)(M * N) * 4);
        tri_free(packed);
        tri_free(in_place);
    }
    tri_free(a);
    tri_free(wide);
    tri_free(b);
}

/* Many panels: rows are packed once for all of them; few: they are read where they lie. */
static void rows_packed_for_many_panels_give_the_same_bits(void **state)
{
    (void)state;
    enum { ROWS = 4 * 64, M = 8 * 2 * TRI_GEMM_MAX_MR + 11, N = 9 * TRI_GEMM_MAX_NR + 5, FEW = 40 };
    const tri_gemm_ops *list[3];
    const int count = sets(list);
    float *a = tri_alloc_bulk((size_t)(ROWS * M) * 4), *b = tri_alloc_bulk((size_t)(ROWS * N) * 4);
    float *some = tri_alloc_bulk((size_t)(ROWS * FEW) * 4);
    op_fill(a, ROWS * M, 1);
    op_fill(b, ROWS * N, 2);
    for (int s = 0; s < count; s++) {
        float *whole = gradient(list[s], a, b, M, N, M, true);
        for (int64_t first = 0; first < N; first += FEW) {
            const int64_t n = N - first < FEW ? N - first : FEW;
            for (int64_t row = 0; row < ROWS; row++) {
                memcpy(some + row * n, b + row * N + first, (size_t)n * sizeof(float));
            }
            float *part = gradient(list[s], a, some, M, n, M, true);
            for (int64_t i = 0; i < M; i++) {
                assert_memory_equal(whole + i * N + first, part + i * n, (size_t)n * sizeof(float));
            }
            tri_free(part);
        }
        tri_free(whole);
    }
    tri_free(a);
    tri_free(b);
    tri_free(some);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_at_every_edge),
        cmocka_unit_test(leaves_are_added_in_tree_order),
        cmocka_unit_test(rows_that_are_pages_apart_give_the_same_bits),
        cmocka_unit_test(rows_packed_for_many_panels_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
