/* SPDX-License-Identifier: Apache-2.0
 *
 * ops_kernels.c: kernels that have code for several layouts, launched alone: the same bits in all of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/status.h"
#include "gpu/ops.h"
#include "kernel/gpu/math.h"
#include "ops/ops.h"

void *mirror_add(mirror *m, const void *host, size_t nbytes)
{
    if (host == NULL) {
        return NULL;
    }
    void *there = tri_device_alloc(card, nbytes);
    if (there == NULL) {
        fail_msg("%s", tri_last_error());
    }
    tri_device_from_host(card, there, host, nbytes);
    m->list[m->count].host = (void *)(uintptr_t)host;
    m->list[m->count].there = there;
    m->list[m->count++].nbytes = nbytes;
    return there;
}

void mirror_end(mirror *m)
{
    for (int i = 0; i < m->count; i++) {
        tri_device_to_host(card, m->list[i].host, m->list[i].there, m->list[i].nbytes);
        tri_device_free(card, m->list[i].there);
    }
}

void *mirror_place(mirror *m, const void *host, size_t nbytes)
{
    return card != NULL ? mirror_add(m, host, nbytes) : (void *)(uintptr_t)host;
}

void tanh_has_the_bits_of_its_formula(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 100003) {
        const float x = gpu_float((uint32_t)bits), z = gpu_abs(x), got = gpu_tanh(x);
        const float want = gpu_sign(1.0f - 2.0f / (gpu_exp(2.0f * z) + 1.0f), x);
        if (x != x ? got == got : z >= 0.625f && gpu_bits(got) != gpu_bits(want)) {
            fail_msg("tanh(%a): want %a, got %a", (double)x, (double)want, (double)got);
        }
    }
}

/* --- sums of columns --- */

enum { COLUMNS_SHARDS = 2, COLUMNS_ROWS = 150, COLUMNS_WIDTH = 36 };

/* Partial sums of arrays that begin `off` elements behind a multiple of 16 bytes. */
static void columns_run(int mode, tri_dtype dtype, bool masks, int off, float *partial)
{
    const int64_t count = COLUMNS_SHARDS * COLUMNS_ROWS * COLUMNS_WIDTH;
    const size_t width = tri_dtype_nbytes(dtype), nbytes = (size_t)count * width;
    char *host[3];
    tri_gpu_value value[3];
    float stats[COLUMNS_SHARDS * COLUMNS_ROWS * 3];
    mirror m = {.count = 0};
    for (int i = 0; i < 3; i++) { /* g, x, mask */
        float *x = tri_alloc_bulk((size_t)count * sizeof(float));
        op_fill(x, count, 20 + (uint64_t)i);
        if (dtype != TRI_F32) {
            op_halve(x, count, dtype);
        }
        host[i] = tri_alloc_bulk(nbytes + width);
        memcpy(host[i] + (size_t)off * width, x, nbytes);
        tri_free(x);
        value[i] = tri_gpu_value_make((char *)mirror_place(&m, host[i], nbytes + width) + (size_t)off * width, dtype);
    }
    op_fill(stats, (int64_t)TRI_COUNT_OF(stats), 23);
    const tri_gpu_columns_args args = {.g = value[0],
                                       .x = value[1],
                                       .mask = masks ? value[2] : (tri_gpu_value){0},
                                       .rows_stats = mirror_place(&m, stats, sizeof stats),
                                       .batch_stats = mirror_place(&m, stats, sizeof stats),
                                       .mode = mode,
                                       .rows = COLUMNS_ROWS,
                                       .width = COLUMNS_WIDTH,
                                       .valid = {COLUMNS_ROWS, COLUMNS_ROWS - 10},
                                       .partial = mirror_place(&m, partial, 4 * COLUMNS_SHARDS * COLUMNS_WIDTH * 4)};
    tri_gpu_run(tri_gpu_queue_of(&ops_device), tri_gpu_kernel_columns, 1, 2, COLUMNS_SHARDS, TRI_GPU_THREADS, &args,
                sizeof args);
    mirror_end(&m);
    for (int i = 0; i < 3; i++) {
        tri_free(host[i]);
    }
}

void columns_in_fours_give_the_bits_of_columns_one_by_one(void **state)
{
    static const tri_dtype types[] = {TRI_F32, TRI_BF16, TRI_F16};
    float fours[4 * COLUMNS_SHARDS * COLUMNS_WIDTH] = {0}, ones[4 * COLUMNS_SHARDS * COLUMNS_WIDTH] = {0};
    (void)state;
    for (int mode = TRI_GPU_SUM; mode <= TRI_GPU_BATCH_SUMS; mode++) {
        for (size_t t = 0; t < 2 * TRI_COUNT_OF(types); t++) {
            columns_run(mode, types[t / 2], t % 2 == 1, 0, fours);
            columns_run(mode, types[t / 2], t % 2 == 1, 1, ones);
            assert_int_equal(tri_gpu_queue_of(&ops_device)->status, TRI_OK);
            assert_memory_equal(fours, ones, sizeof ones);
        }
    }
}

/* --- products in large tiles --- */

enum { WIDE_M = 136, WIDE_N = 144, WIDE_K = 40, WIDE_SHARDS = 2, MANY_SHARDS = 16 };

typedef struct wide_case {
    tri_dtype type, a_type, b_type;
    bool a_along_k, b_along_k;
    int shards;
} wide_case;

/* A factor of `rows` rows that lies along k, or along its rows. */
static tri_gpu_operand wide_factor(tri_dtype dtype, int shards, int rows, bool along_k, uint64_t stream)
{
    const int64_t count = (int64_t)rows * WIDE_K * shards;
    float *x = tri_alloc_bulk((size_t)count * sizeof(float));
    op_fill(x, count, stream);
    if (dtype != TRI_F32) {
        op_halve(x, count, dtype);
    }
    return (tri_gpu_operand){.value = tri_gpu_value_make(x, dtype),
                             .shard_stride = (int64_t)rows * WIDE_K,
                             .row = along_k ? WIDE_K : 1,
                             .column = along_k ? 1 : rows};
}

static tri_status spy_launch(void *arg, const tri_gpu_launch *launch)
{
    *(int *)arg = launch->kernel;
    return TRI_OK;
}

/* The kernel of our own that multiplies. */
static int kernel_of(const tri_gpu_gemm_args *args, int64_t shards)
{
    int kernel = -1;
    tri_gpu_queue spy = {.launch = spy_launch, .arg = &kernel};
    const tri_device spied = {.ops = ops_device.ops, .state = &spy};
    tri_gpu_gemm_own(&(tri_op_call){.device = &spied}, args, shards);
    return kernel;
}

/* Small tiles by elements, small ones by eights, large ones. */
static void wide_run(const tri_gpu_gemm_args *args, int form, int shards)
{
    const int tile = form == 2 ? TRI_GPU_WIDE : TRI_GPU_TILE;
    if (form == 2 && shards == MANY_SHARDS) { /* enough tiles to be chosen */
        assert_int_equal(kernel_of(args, shards), tri_gpu_kernel_gemm_wide);
        tri_gpu_gemm_own(&(tri_op_call){.device = &ops_device}, args, shards);
        return;
    }
    tri_gpu_run(tri_gpu_queue_of(&ops_device), form == 2 ? tri_gpu_kernel_gemm_wide : tri_gpu_kernel_gemm_half,
                tri_int64_ceil(WIDE_M, tile), (int)tri_int64_ceil(WIDE_N, tile), shards,
                form == 2 ? TRI_GPU_THREADS : TRI_GPU_THREADS / 2, args, sizeof *args);
}

static void wide_compare(const wide_case *c)
{
    const int64_t count = (int64_t)WIDE_M * WIDE_N * c->shards;
    const size_t nbytes = sizeof(float) * (size_t)count;
    const int forms = c->a_type == TRI_F32 || c->b_type == TRI_F32 ? 2 : 3;
    const tri_gpu_operand a = wide_factor(c->a_type, c->shards, WIDE_M, c->a_along_k, 10),
                          b = wide_factor(c->b_type, c->shards, WIDE_N, c->b_along_k, 11);
    float *out[3], bias[WIDE_N];
    op_fill(bias, WIDE_N, 12);
    for (int form = 0; form < forms; form++) {
        mirror m = {.count = 0};
        tri_gpu_gemm_args args = {.a = a,
                                  .b = b,
                                  .c = {.shard_stride = WIDE_M * WIDE_N, .row = WIDE_N, .column = 1},
                                  .m = WIDE_M,
                                  .n = WIDE_N,
                                  .k = WIDE_K,
                                  .groups = 1,
                                  .chunks = 1,
                                  .chunk = WIDE_K,
                                  .relu = c->a_along_k,
                                  .adds = c->b_along_k,
                                  .type = tri_gpu_value_make(NULL, c->type).type};
        out[form] = tri_alloc_bulk(nbytes);
        op_fill(out[form], count, 13);
        args.a.value.data =
            mirror_place(&m, a.value.data, (size_t)(c->shards * WIDE_M * WIDE_K) * (a.value.type == 0 ? 4 : 2));
        args.b.value.data =
            mirror_place(&m, b.value.data, (size_t)(c->shards * WIDE_N * WIDE_K) * (b.value.type == 0 ? 4 : 2));
        args.c.value = tri_gpu_value_make(mirror_place(&m, out[form], nbytes), TRI_F32);
        args.bias = c->a_along_k ? mirror_place(&m, bias, sizeof bias) : NULL;
        args.a.eights = args.b.eights = form > 0;
        wide_run(&args, form, c->shards);
        mirror_end(&m);
    }
    assert_int_equal(tri_gpu_queue_of(&ops_device)->status, TRI_OK);
    for (int form = 1; form < forms; form++) {
        assert_memory_equal(out[form], out[0], nbytes);
        tri_free(out[form]);
    }
    tri_free(out[0]);
    tri_free(a.value.data);
    tri_free(b.value.data);
}

void tiles_of_all_forms_give_the_same_bits(void **state)
{
    static const wide_case cases[] = {
        {TRI_BF16, TRI_BF16, TRI_BF16, true, true, WIDE_SHARDS},   /* forward */
        {TRI_F16, TRI_F16, TRI_F16, true, false, WIDE_SHARDS},     /* gradient of the input */
        {TRI_BF16, TRI_BF16, TRI_BF16, false, false, WIDE_SHARDS}, /* of the weights */
        {TRI_F16, TRI_F32, TRI_F16, false, true, WIDE_SHARDS},
        {TRI_BF16, TRI_BF16, TRI_F32, true, false, WIDE_SHARDS},
        {TRI_BF16, TRI_BF16, TRI_BF16, true, false, MANY_SHARDS},
    };
    (void)state;
    for (size_t c = 0; c < TRI_COUNT_OF(cases) - few; c++) {
        wide_compare(&cases[c]);
    }
}

static int kernel_of_half(int64_t m, int64_t n, int64_t k, size_t offset, tri_dtype b_type)
{
    char *const place = (char *)(uintptr_t)4096 + offset;
    const tri_gpu_gemm_args args = {.a = {.value = tri_gpu_value_make(place, TRI_BF16), .row = k, .column = 1},
                                    .b = {.value = tri_gpu_value_make(place, b_type), .row = 1, .column = n},
                                    .m = (int)m,
                                    .n = (int)n,
                                    .k = (int)k,
                                    .type = TRI_GPU_BF16};
    return kernel_of(&args, 1);
}

void large_tiles_are_for_large_products_on_multiples_of_16_bytes(void **state)
{
    (void)state;
    assert_int_equal(kernel_of_half(1024, 1024, 64, 0, TRI_BF16), tri_gpu_kernel_gemm_wide);
    assert_int_equal(kernel_of_half(1024, 1024, 64, 0, TRI_F32), tri_gpu_kernel_gemm_half);
    assert_int_equal(kernel_of_half(512, 512, 64, 0, TRI_BF16), tri_gpu_kernel_gemm_half);
    assert_int_equal(kernel_of_half(65536, 100, 64, 0, TRI_BF16), tri_gpu_kernel_gemm_half);
    assert_int_equal(kernel_of_half(1024, 1024, 60, 0, TRI_BF16), tri_gpu_kernel_gemm_half);
    assert_int_equal(kernel_of_half(1024, 1028, 64, 0, TRI_BF16), tri_gpu_kernel_gemm_half);
    assert_int_equal(kernel_of_half(1024, 1024, 64, 8, TRI_BF16), tri_gpu_kernel_gemm_half);
}
