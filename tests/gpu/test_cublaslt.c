/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cublaslt.c: products by the fake cublasLt: what it refuses, which algorithm the probe chooses, and that products
 * are those of the reference, with the same bytes in batches of one, two and many shards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda.h"
#include "kernel/gpu/product.h"

#define SHARDS 11
#define ROWS   3
#define C      40
#define D      24

static tri_device card;

static tri_cublaslt *library(void)
{
    return tri_gpu_queue_of(&card)->library;
}

static void open_card(const char *faults)
{
    setenv("FAKE_CUBLASLT", faults, 1);
    card = (tri_device){.ops = &tri_device_cuda};
    if (tri_device_cuda.open(&card) != TRI_OK || tri_device_cuda.library_open(&card) != TRI_OK)
        fail_msg("%s", tri_last_error());
}

static void close_card(void)
{
    tri_device_cuda.close(&card);
}

static tri_op_desc linear(tri_dtype dtype, bool planned)
{
    tri_op_desc desc = {.op = TRI_OP_LINEAR,
                        .attr = {.units = D, .bias = true, .relu = true},
                        .input_count = 1,
                        .input = {tri_shape_make(2, (int64_t[]){ROWS, C})},
                        .input_dtype = {dtype},
                        .need_dinput = {true},
                        .max_shards = SHARDS,
                        .device = planned ? &card : NULL,
                        .threads = 1};
    assert_int_equal(tri_op_infer(&desc), TRI_OK);
    desc.input_dtype[0] = desc.output_dtype = dtype;
    return desc;
}

/* The kind of each algorithm that was chosen, in the fake's numbers; -1: our own kernel. */
static int chosen(int i)
{
    const tri_product_choice *choice = &library()->choices[i];
    return choice->own ? -1 : (int)choice->algorithm.record.words[1];
}

static void plan(tri_dtype dtype, tri_kernel *kernel)
{
    const tri_op_desc desc = linear(dtype, true);
    assert_int_equal(tri_kernel_plan("cuda", &desc, kernel), TRI_OK);
}

static void each_bad_algorithm_gives_way_to_a_good_one(void **state)
{
    static const struct {
        const char *faults;
        int want, refused;
    } rows[] = {{"", 1, 0},           {"batch", 1, 1},
                {"tail", 1, 1},       {"refuses", 1, 1},
                {"batch,tail", 1, 2}, {"batch,tail,only", -1, 2},
                {"only", -1, 0},      {"batch,tail,refuses", 1, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int half = 0; half < 2; half++) {
            tri_kernel kernel;
            open_card(rows[i].faults);
            plan(half ? TRI_BF16 : TRI_F32, &kernel);
            assert_int_equal(library()->choice_count, 3); /* output, leaves of the weights, gradient of the input */
            for (int p = 0; p < 3; p++) {
                assert_int_equal(chosen(p), rows[i].want);
                assert_int_equal(library()->choices[p].refused, rows[i].refused);
            }
            plan(half ? TRI_BF16 : TRI_F32, &kernel); /* what is known is not asked for again */
            assert_int_equal(library()->choice_count, 3);
            close_card();
        }
}

/* --- products --- */

static float *filled(int64_t count, float scale, float *host)
{
    float *there = tri_device_alloc(&card, (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        host[i] = scale * (float)((i * 2654435761u >> 7) % 1000) / 1000 - scale / 2;
    tri_device_from_host(&card, there, host, (size_t)count * sizeof(float));
    return there;
}

typedef struct results {
    float y[SHARDS * ROWS * D], dx[SHARDS * ROWS * C], dw[D * C];
} results;

/* In calls of `each` shards; dw: of the last one. */
static void run(const tri_kernel *kernel, int each, results *out)
{
    static float x[SHARDS * ROWS * C], w[D * C], b[D], dy[SHARDS * ROWS * D];
    static int32_t rows[SHARDS];
    float *const there[] = {filled(SHARDS * ROWS * C, 2, x), filled(D * C, 1, w), filled(D, 1, b),
                            filled(SHARDS * ROWS * D, 2, dy)};
    float *y = tri_device_alloc(&card, sizeof(out->y)), *dx = tri_device_alloc(&card, sizeof(out->dx));
    float *dw = tri_device_alloc(&card, sizeof(out->dw)), *db = tri_device_alloc(&card, sizeof(b));
    void *scratch = tri_device_alloc(&card, kernel->scratch_nbytes);
    for (int first = 0; first < SHARDS; first += each) {
        const int count = first + each < SHARDS ? each : SHARDS - first;
        const tri_tree_part part = {.first = 0, .count = 1};
        for (int s = 0; s < count; s++)
            rows[s] = ROWS;
        const tri_op_call call = {.device = &card,
                                  .shards = count,
                                  .rows = rows,
                                  .input = {there[0] + first * ROWS * C},
                                  .param = {there[1], there[2]},
                                  .output = y + first * ROWS * D,
                                  .doutput = there[3] + first * ROWS * D,
                                  .dinput = {dx + first * ROWS * C},
                                  .part_count = 1,
                                  .parts = &part,
                                  .dparam = {&dw, &db},
                                  .scratch = scratch};
        tri_kernel_forward(kernel, &call);
        tri_kernel_backward(kernel, &call);
    }
    tri_device_to_host(&card, out->y, y, sizeof(out->y));
    tri_device_to_host(&card, out->dx, dx, sizeof(out->dx));
    tri_device_to_host(&card, out->dw, dw, sizeof(out->dw));
    assert_int_equal(tri_gpu_queue_of(&card)->status, TRI_OK);
    void *const all[] = {there[0], there[1], there[2], there[3], y, dx, dw, db, scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tri_device_free(&card, all[i]);
}

static void products_are_the_same_in_every_batch_and_those_of_our_own_kernel_but_for_rounding(void **state)
{
    static results all, some, own;
    tri_kernel kernel;
    (void)state;
    open_card("batch,tail");
    plan(TRI_F32, &kernel);
    run(&kernel, SHARDS, &all);
    for (int each = 1; each <= 10; each += 3) {
        run(&kernel, each, &some);
        assert_memory_equal(all.y, some.y, sizeof(all.y));
        assert_memory_equal(all.dx, some.dx, sizeof(all.dx));
    }
    tri_cublaslt_close(library());
    tri_gpu_queue_of(&card)->library = NULL;
    run(&kernel, SHARDS, &own);
    float differ = 0;
    for (int i = 0; i < SHARDS * ROWS * C; i++) {
        assert_true(fabsf(own.dx[i] - all.dx[i]) < 1e-4f);
        differ += own.dx[i] != all.dx[i];
    }
    for (int i = 0; i < SHARDS * ROWS * D; i++)
        assert_true(fabsf(own.y[i] - all.y[i]) < 1e-4f);
    for (int i = 0; i < D * C; i++)
        assert_true(fabsf(own.dw[i] - all.dw[i]) < 1e-4f);
    assert_true(differ > 0); /* it was the library that multiplied */
    close_card();
}

/* The fake's `batch` adds in another order where there are more than 3 shards: fit where calls have at most 2. */
static void large_products_have_fewer_shards_a_call(void **state)
{
    static results all, some;
    const int64_t most = tri_gpu_product_nbytes;
    tri_kernel kernel;
    (void)state;
    open_card("batch");
    tri_gpu_product_nbytes = 2 * ROWS * C * (int64_t)sizeof(float);
    plan(TRI_F32, &kernel);
    tri_gpu_product_nbytes = most;
    for (int p = 0; p < 3; p++) {
        const tri_product_choice *choice = &library()->choices[p];
        const bool weights = choice->product.m == D; /* whose gradient is larger than that of rows */
        assert_int_equal(choice->batch, weights ? 1 : 2);
        assert_int_equal(choice->refused, 0);
        assert_false(choice->own);
    }
    run(&kernel, SHARDS, &all);
    for (int each = 1; each <= 7; each += 2) {
        run(&kernel, each, &some);
        assert_memory_equal(all.y, some.y, sizeof(all.y));
        assert_memory_equal(all.dx, some.dx, sizeof(all.dx));
    }
    close_card();
}

/* --- the library itself --- */

/* A product of dense f32 factors. */
static tri_gpu_product product_make(int64_t m, int64_t n, int64_t k)
{
    return (tri_gpu_product){.m = m,
                             .n = n,
                             .k = k,
                             .type = CUBLASLT_F32,
                             .c_type = CUBLASLT_F32,
                             .a_along = 1,
                             .b_along = 1,
                             .a_step = k,
                             .b_step = k,
                             .a_stride = m * k};
}

static int found_count(const tri_gpu_product *product, bool cuts, tri_gpu_algorithm found[8])
{
    tri_cublaslt_plan *of;
    assert_int_equal(tri_cublaslt_plan_create(library(), product, &of), TRI_OK);
    const int count = tri_cublaslt_find(library(), of, TRI_PRODUCT_BATCH, cuts, found, 8);
    tri_cublaslt_plan_destroy(library(), of);
    return count;
}

static void algorithms_are_those_that_fit(void **state)
{
    tri_gpu_algorithm found[8];
    tri_gpu_product product = product_make(8, 8, 8);
    (void)state;
    open_card("");
    assert_int_equal(found_count(&product, false, found), 2);
    assert_string_equal(found[0].text, "1.0.1.0.0.0.0.0.0");
    assert_int_equal(found_count(&product, true, found), 3);
    assert_string_equal(found[0].text, "2.0.2.2.0.0.0.0.0");
    product = product_make(8, 8, 9); /* rows of 36 bytes: not by vectors of 16 */
    assert_int_equal(found_count(&product, true, found), 1);
    product = product_make(8, 8, 8);
    product.a_stride = 65; /* nor shards that begin between them */
    assert_int_equal(found_count(&product, true, found), 1);
    product.type = CUBLASLT_BF16;
    product.c_type = CUBLASLT_F16;
    assert_int_equal(found_count(&product, true, found), 0);
    product = product_make(8, 8, 8);
    product.a_step = 7; /* rows overlap */
    assert_int_equal(found_count(&product, true, found), 0);
    close_card();
}

/* As the library is asked by nobody who asks by a plan. */
static void what_does_not_fit_is_refused(void **state)
{
    tri_gpu_algorithm found[8];
    tri_gpu_product product = product_make(8, 8, 8);
    tri_cublaslt_plan *of;
    (void)state;
    open_card("");
    assert_int_equal(tri_cublaslt_plan_create(library(), &product, &of), TRI_OK);
    assert_int_equal(tri_cublaslt_find(library(), of, TRI_PRODUCT_BATCH, false, found, 8), 2);
    char *a = tri_device_alloc(&card, 4096), *b = tri_device_alloc(&card, 4096), *c = tri_device_alloc(&card, 4096);
    assert_int_equal(tri_cublaslt_multiply(library(), of, &found[0], 2, a, b, NULL, c), TRI_OK);
    const cuda_memory workspace = library()->workspace;
    library()->workspace += 128;
    assert_int_equal(tri_cublaslt_multiply(library(), of, &found[0], 2, a, b, NULL, c), TRI_EUNSUPPORTED);
    assert_string_equal(tri_last_error(), "cuda:0: cublasLt 13.1.0: error 7");
    library()->workspace = workspace;
    found[0].record.words[0] = 0; /* no algorithm of this library */
    assert_int_equal(tri_cublaslt_multiply(library(), of, &found[0], 2, a, b, NULL, c), TRI_EUNSUPPORTED);
    tri_device_free(&card, a);
    tri_device_free(&card, b);
    tri_device_free(&card, c);
    tri_cublaslt_plan_destroy(library(), of);
    close_card();
}

static void a_library_that_cannot_start_is_one_sentence(void **state)
{
    (void)state;
    setenv("FAKE_CUBLASLT", "no_start", 1);
    card = (tri_device){.ops = &tri_device_cuda};
    assert_int_equal(tri_device_cuda.open(&card), TRI_OK);
    assert_int_equal(tri_device_cuda.library_open(&card), TRI_EUNSUPPORTED);
    assert_string_equal(tri_last_error(), "cublasLt 13.1.0 cannot start: error 1");
    assert_null(library());
    close_card();
}

static void a_card_without_room_for_the_probe_is_one_sentence(void **state)
{
    tri_kernel kernel;
    (void)state;
    open_card("");
    const tri_op_desc desc = linear(TRI_F32, true);
    setenv("FAKE_CUDA", "memory=1", 1);
    assert_int_equal(tri_kernel_plan("cuda", &desc, &kernel), TRI_ENOMEM);
    unsetenv("FAKE_CUDA");
    assert_non_null(strstr(tri_last_error(), "the card's memory is full"));
    assert_non_null(
        strstr(tri_last_error(), "while probing algorithms of cublasLt 13.1.0 (train.kernels=cuda_own needs"));
    assert_int_equal(library()->choice_count, 0);
    close_card();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_bad_algorithm_gives_way_to_a_good_one),
        cmocka_unit_test(products_are_the_same_in_every_batch_and_those_of_our_own_kernel_but_for_rounding),
        cmocka_unit_test(large_products_have_fewer_shards_a_call),
        cmocka_unit_test(algorithms_are_those_that_fit),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_library_that_cannot_start_is_one_sentence),
        cmocka_unit_test(a_card_without_room_for_the_probe_is_one_sentence),
    };
    tri_cuda_image = NULL; /* the fake has its own */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
