/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gemm_half.c: each instruction set's tiles over bf16 against plain sums, at all edges; bits independent of the
 * cut into threads; rounding to nearest even, NaN kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/amx.h"
#include "kernel/cpu/gemm_half.h"
#include "ops/ops.h"

/* The sets that this machine can run. */
static int sets(const tri_gemm_ops *list[5])
{
    int count = 0;
    list[count++] = &tri_gemm_bf16_generic;
#ifdef TRI_HAVE_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        list[count++] = &tri_gemm_bf16_avx;
    }
    if (__builtin_cpu_supports("avx512f")) {
        list[count++] = &tri_gemm_bf16_wide;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16")) {
        list[count++] = &tri_gemm_bf16;
    }
    if (tri_amx_allowed()) {
        list[count++] = &tri_gemm_amx;
    }
#endif
    return count;
}

static double plain(uint16_t a, float b)
{
    return (double)tri_bf16_to_f32(a) * (double)tri_bf16_to_f32(tri_f32_to_bf16(b));
}

static void check_product(const tri_gemm_ops *ops, int64_t m, int64_t n, int64_t k, bool turned, bool relu)
{
    const int64_t lda = 2 * tri_pairs(k);
    float *x = tri_alloc_bulk((size_t)(m * lda) * 4), *b = tri_alloc_bulk((size_t)(k * n + n) * 4);
    uint16_t *a = tri_alloc_bulk((size_t)(m * lda) * 2), *c = tri_alloc_bulk((size_t)(m * n) * 2);
    uint16_t *more = tri_alloc_bulk((size_t)(m * n) * 2);
    float *wide = tri_alloc_bulk((size_t)(m * n) * 4);
    uint32_t *packed = tri_alloc_bulk((size_t)tri_gemm_packed_count(ops, tri_pairs(k), n) * 4);
    op_fill(x, m * lda, 1);
    op_fill(b, k * n + n, 2);
    tri_half_round(a, x, m * lda);
    for (int64_t i = 0; k % 2 != 0 && i < m; i++) {
        a[i * lda + k] = 0;
    }
    tri_gemm_half_pack(ops, 2, packed, b, k, n, turned ? 1 : n, turned ? k : 1);
    tri_gemm_half_call call = {
        .a = a, .packed = packed, .bias = b, .c = c, .m = m, .n = n, .k = k, .lda = lda, .ldc = n, .relu = relu};
    tri_gemm_half_run(ops, 1, &call);
    call.c = more;
    tri_gemm_half_run(ops, 3, &call);
    assert_memory_equal(c, more, (size_t)(m * n) * 2);
    call.c = NULL;
    call.c_wide = wide;
    tri_gemm_half_run(ops, 2, &call);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = (double)b[i % n], scale = 1;
        for (int64_t l = 0; l < k; l++) {
            const double term = plain(a[i / n * lda + l], b[turned ? i % n * k + l : l * n + i % n]);
            sum += term;
            scale += fabs(term);
        }
        sum = relu && sum < 0 ? 0 : sum;
        if (!(fabs((double)wide[i] - sum) <= 1e-5 * scale) || c[i] != tri_f32_to_bf16(wide[i])) {
            fail_msg("%s: [%d, %d, %d] at %d: want %g, got %g, rounded %g", ops->name, (int)m, (int)n, (int)k, (int)i,
                     sum, (double)wide[i], (double)tri_bf16_to_f32(c[i]));
        }
    }
    tri_free(x);
    tri_free(a);
    tri_free(b);
    tri_free(c);
    tri_free(more);
    tri_free(wide);
    tri_free(packed);
}

static void products_are_right_at_every_edge(void **state)
{
    (void)state;
    const tri_gemm_ops *list[5];
    const int count = sets(list);
    for (int s = 0; s < count; s++) {
        for (int64_t m = 1; m <= 13; m++) {
            check_product(list[s], m, 1 + 7 * m, 13 + m % 2, m % 2 == 0, m % 3 == 0);
        }
        check_product(list[s], 37, 65, 515, true, false);
        check_product(list[s], 230, 33, 256, false, true);
        check_product(list[s], 9, 500, 1, true, false);
        check_product(list[s], 52, 40, 70, false, true);
        check_product(list[s], 48, 64, 64, true, false);
    }
}

/* Both factors of one leaf, as passes over rows pack them. */
static void pass_pack(const tri_gemm_ops *ops, uint32_t *a, uint32_t *b, const uint16_t *from_a, const uint16_t *from_b,
                      int64_t rows, int64_t m, int64_t n, int64_t stride, int64_t step)
{
    if (ops->column != NULL) {
        ops->pack_rows(a, from_a, stride, rows, m, step);
        ops->pack_columns(b, from_b, stride, rows, n, step);
        return;
    }
    tri_gemm_half_pass(a, from_a, stride, rows, m, ops->mr, step);
    tri_gemm_half_pass(b, from_b, stride, rows, n, ops->nr, step);
}

/* c[m][n] = sum over rows of a[row][m] b[row][n], with what stands to the left of it, from factors as a pass packs
 * them. */
static void check_outer(const tri_gemm_ops *ops, int64_t rows, int64_t m, int64_t n)
{
    enum { WIDE = 80, STEP = 128 * 32 };
    const int64_t mr = ops->mr, nr = ops->nr;
    float *x = tri_alloc_bulk((size_t)(2 * rows * WIDE) * 4), *sums = tri_alloc_bulk((size_t)(2 * mr * nr) * 4);
    uint16_t *half = tri_alloc_bulk((size_t)(2 * rows * WIDE) * 2);
    uint32_t *a = tri_alloc_bulk(3 * STEP * 4), *b = tri_alloc_bulk(3 * STEP * 4);
    float *out = tri_alloc_bulk((size_t)(mr * WIDE) * 4), *left = sums + mr * nr;
    op_fill(x, 2 * rows * WIDE, 3);
    op_fill(left, mr * nr, 4);
    tri_half_round(half, x, 2 * rows * WIDE);
    pass_pack(ops, a, b, half, half + rows * WIDE, rows, m, n, WIDE, STEP);
    const tri_gemm_walk walk = {.count = {1, tri_pairs(rows)}, .a_step = {0, mr}, .b_step = {0, nr}};
    tri_gemm_close close = {.count = 1, .left = {left}, .out = out, .out_step = WIDE};
    tri_gemm_enter(ops);
    ops->outer((int)m, (int)n, &walk, (const float *)(const void *)a, (const float *)(const void *)b, sums,
               TRI_GEMM_FIRST, NULL);
    ops->outer((int)m, (int)n, &walk, (const float *)(const void *)a, (const float *)(const void *)b, sums, 0, &close);
    tri_gemm_leave(ops);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = (double)left[i / n * nr + i % n], scale = 1;
        for (int64_t row = 0; row < rows; row++) {
            const double term = 2 * (double)tri_bf16_to_f32(half[row * WIDE + i / n]) *
                                (double)tri_bf16_to_f32(half[(rows + row) * WIDE + i % n]);
            sum += term;
            scale += fabs(term);
        }
        if (!(fabs((double)out[i / n * WIDE + i % n] - sum) <= 1e-5 * scale)) {
            fail_msg("%s: %d rows, [%d, %d] at %d: want %g, got %g", ops->name, (int)rows, (int)m, (int)n, (int)i, sum,
                     (double)out[i / n * WIDE + i % n]);
        }
    }
    tri_free(x);
    tri_free(half);
    tri_free(a);
    tri_free(b);
    tri_free(sums);
    tri_free(out);
}

/* The bits of outer for each leaf, and of their tree, with what stands to the left of it. */
static void check_column(const tri_gemm_ops *ops, int64_t leaves, int64_t rows, int64_t m, int64_t n, bool leaves_tiles)
{
    enum { WIDE = 96, STEP = 512 * 32, TILES = 3 };
    const int64_t mr = ops->mr, nr = ops->nr, area = mr * nr;
    const int64_t pairs = tri_int64_ceil(tri_pairs(rows), ops->depth) * ops->depth, all = leaves * rows * WIDE;
    float *x = tri_alloc_bulk((size_t)(2 * all) * 4), *left = tri_alloc_bulk((size_t)(TILES * area) * 4);
    uint16_t *half = tri_alloc_bulk((size_t)(2 * all) * 2);
    uint32_t *a = tri_alloc_bulk(TILES * STEP * 4), *b = tri_alloc_bulk(STEP * 4);
    float *want = tri_alloc_bulk((size_t)(leaves * area) * 4), *sums = tri_alloc_bulk((size_t)(TILES * area) * 4);
    float *out = tri_alloc_zero((size_t)(TILES * mr * WIDE), 4);
    op_fill(x, 2 * all, 5);
    op_fill(left, TILES * area, 6);
    tri_half_round(half, x, 2 * all);
    for (int64_t leaf = 0; leaf < leaves; leaf++) {
        pass_pack(ops, a + leaf * pairs * mr, b + leaf * pairs * nr, half + leaf * rows * WIDE,
                  half + all + leaf * rows * WIDE, rows, m, n, WIDE, STEP);
    }
    const tri_gemm_close close = {.count = 1, .left = {left}, .out = leaves_tiles ? out : NULL, .out_step = WIDE};
    const tri_gemm_walk walk = {.count = {1, pairs}, .a_step = {0, mr}, .b_step = {0, nr}};
    tri_gemm_enter(ops);
    ops->column(&(tri_gemm_column){.a = (const float *)(const void *)a,
                                   .b = (const float *)(const void *)b,
                                   .c = sums,
                                   .m = m,
                                   .n = n,
                                   .a_step = STEP,
                                   .leaves = leaves,
                                   .pairs = pairs,
                                   .flags = TRI_GEMM_FIRST,
                                   .close = &close});
    for (int64_t tile = 0; tile * mr < m; tile++) {
        for (int64_t leaf = 0; leaf < leaves; leaf++) {
            ops->outer((int)mr, (int)nr, &walk, (const float *)(const void *)(a + tile * STEP + leaf * pairs * mr),
                       (const float *)(const void *)(b + leaf * pairs * nr), want + leaf * area, TRI_GEMM_FIRST, NULL);
        }
        for (int64_t step = 1; step < leaves; step *= 2) {
            for (int64_t i = 0; i < area * leaves; i++) {
                if (i / area % (2 * step) == 0) {
                    want[i] += want[i + step * area];
                }
            }
        }
        for (int64_t i = 0; i < area && tile * mr + i / nr < m; i++) {
            const float sum = left[tile * area + i] + want[i];
            const float got = leaves_tiles ? out[(tile * mr + i / nr) * WIDE + i % nr] : sums[tile * area + i];
            const bool here = !leaves_tiles || i % nr < n;
            if (here ? memcmp(&sum, &got, sizeof sum) != 0 : got != 0) {
                fail_msg("%s: %d leaves of %d rows, [%d, %d], tile %d at %d: want %g, got %g", ops->name, (int)leaves,
                         (int)rows, (int)m, (int)n, (int)tile, (int)i, (double)sum, (double)got);
            }
        }
    }
    tri_gemm_leave(ops);
    tri_free(x);
    tri_free(left);
    tri_free(half);
    tri_free(a);
    tri_free(b);
    tri_free(want);
    tri_free(sums);
    tri_free(out);
}

static void columns_of_leaves_have_the_bits_of_their_tree(void **state)
{
    (void)state;
    const tri_gemm_ops *list[5];
    const int count = sets(list);
    for (int s = 0; s < count; s++) {
        if (list[s]->column == NULL) {
            continue;
        }
        for (int64_t leaves = 1; leaves <= 8; leaves *= 2) {
            check_column(list[s], leaves, 64, 64, 32, true);
            check_column(list[s], leaves, 33, 70, 19, true);
            check_column(list[s], leaves, 7, 20, 32, false);
        }
    }
}

static void sums_over_rows_are_right_at_every_edge(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 15, 32, 33, 64, 97, 256};
    const tri_gemm_ops *list[5];
    const int count = sets(list);
    for (int s = 0; s < count; s++) {
        for (size_t r = 0; r < TRI_COUNT_OF(rows); r++) {
            for (int64_t m = 1; m <= list[s]->mr; m += 5) {
                check_outer(list[s], rows[r], m, tri_int64_min(list[s]->nr, 1 + 3 * m));
            }
            check_outer(list[s], rows[r], list[s]->mr, list[s]->nr);
        }
    }
}

/* One element of 1: the result is the factor, rounded. */
static void results_are_rounded_to_nearest_even_and_a_nan_stays(void **state)
{
    (void)state;
    const float values[] = {1.0f, 1.00390625f, 1.01171875f, -1.00390626f, INFINITY, -INFINITY, NAN, 0.0f, 3.4e38f};
    const uint16_t one[2] = {0x3f80, 0};
    const tri_gemm_ops *list[5];
    const int count = sets(list);
    for (int s = 0; s < count; s++) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            uint32_t packed[TRI_GEMM_MAX_NR] = {0};
            uint16_t c;
            /* The factor of zero brings in nothing, the bias all of it. */
            tri_gemm_half_run(list[s], 1,
                              &(tri_gemm_half_call){.a = one,
                                                    .packed = packed,
                                                    .bias = &values[i],
                                                    .c = &c,
                                                    .m = 1,
                                                    .n = 1,
                                                    .k = 1,
                                                    .lda = 2,
                                                    .ldc = 1});
            if (isnan(values[i])) {
                assert_true(isnan(tri_bf16_to_f32(c)));
            } else {
                assert_int_equal(c, tri_f32_to_bf16(values[i]));
            }
        }
    }
}

/* Rows of pairs, and the same cut into parts for a pass. */
static void rows_are_paired_and_an_odd_one_meets_zeros(void **state)
{
    (void)state;
    enum { ROWS = 5, COLUMNS = 67, STEP = 4 * 32 };
    uint16_t from[ROWS * COLUMNS];
    uint32_t pairs[3 * COLUMNS], parts[3 * STEP];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        from[i] = (uint16_t)(i + 1);
    }
    tri_half_pair(pairs, from, ROWS, COLUMNS);
    static const int widths[] = {32, 12, 8, 4};
    for (size_t w = 0; w < TRI_COUNT_OF(widths); w++) {
        const int width = widths[w];
        uint32_t *to = width == 32 ? parts : tri_alloc_bulk((size_t)(COLUMNS / width + 1) * STEP * 4);
        tri_gemm_half_pass(to, from, COLUMNS, ROWS, COLUMNS, width, STEP);
        for (int i = 0; i < 3 * COLUMNS; i++) {
            const int row = i / COLUMNS, column = i % COLUMNS;
            const uint32_t high = row < 2 ? from[(2 * row + 1) * COLUMNS + column] : 0;
            assert_int_equal(pairs[i], from[2 * row * COLUMNS + column] | high << 16);
            assert_int_equal(to[column / width * STEP + row * width + column % width], pairs[i]);
        }
        assert_int_equal(to[COLUMNS / width * STEP + COLUMNS % width], 0); /* behind the last column */
        if (to != parts) {
            tri_free(to);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_at_every_edge),
        cmocka_unit_test(sums_over_rows_are_right_at_every_edge),
        cmocka_unit_test(columns_of_leaves_have_the_bits_of_their_tree),
        cmocka_unit_test(results_are_rounded_to_nearest_even_and_a_nan_stays),
        cmocka_unit_test(rows_are_paired_and_an_odd_one_meets_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
