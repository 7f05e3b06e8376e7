/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_half.c: choice of the instruction set for bf16, packing of f32 weights, and the loops over tiles.
 *
 * A tile's sums stay in registers through all of k and are rounded on their way out. A group of panels stays in L2
 * while rows of A stream.
 */
#include "kernel/cpu/gemm_half.h"

#include "tensor/half.h"

#define GROUP_NBYTES (INT64_C(384) << 10) /* of packed B, reused for all rows of a task */
#define GROUP_PANELS 12
#define ROW_TILES    16 /* register tiles of rows in one task */

const tri_gemm_ops *tri_gemm_half_find(void)
{
#ifdef TRI_HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        return __builtin_cpu_supports("avx512bf16") ? &tri_gemm_bf16 : &tri_gemm_bf16_wide;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &tri_gemm_bf16_avx;
    }
#endif
    return &tri_gemm_bf16_generic;
}

TRI_CLONES static void pair_rows(uint32_t *to, const uint16_t *low, const uint16_t *high, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = (uint32_t)low[i] | (uint32_t)high[i] << 16;
    }
}

TRI_CLONES static void pair_last(uint32_t *to, const uint16_t *low, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = low[i];
    }
}

void tri_half_pair(uint32_t *to, const uint16_t *from, int64_t rows, int64_t columns)
{
    for (int64_t row = 0; row + 1 < rows; row += 2) {
        pair_rows(to + row / 2 * columns, from + row * columns, from + (row + 1) * columns, columns);
    }
    if (rows % 2 != 0) {
        pair_last(to + rows / 2 * columns, from + (rows - 1) * columns, columns);
    }
}

#define PASS_PARTS(width)                                                                                              \
    for (int64_t part = 0; part < count / (width); part++) {                                                           \
        for (int64_t i = 0; i < (width); i++) {                                                                        \
            const int64_t at = part * (width) + i;                                                                     \
            to[part * step + i] = (uint32_t)low[at] | (uint32_t)high[at] << 16;                                        \
        }                                                                                                              \
    }

/* to[part * step + i] = the pair of element part * width + i of two rows. */
TRI_CLONES static void pass_rows(uint32_t *to, const uint16_t *low, const uint16_t *high, int64_t step, int64_t count,
                                 int64_t width)
{
    if (width == 32) {
        PASS_PARTS(32)
    } else if (width == 12) {
        PASS_PARTS(12)
    } else {
        PASS_PARTS(width)
    }
}

void tri_gemm_half_pass(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count, int64_t width,
                        int64_t step)
{
    const int64_t whole = count - count % width;
    for (int64_t row = 0; row < rows; row += 2, to += width) {
        const uint16_t *low = from + row * stride, *high = low + stride;
        uint32_t *rest = to + count / width * step;
        for (int64_t i = 0; i < count; i += 32) {
            __builtin_prefetch(low + TRI_GEMM_AHEAD * stride + i, 0, 2);
            __builtin_prefetch(high + TRI_GEMM_AHEAD * stride + i, 0, 2);
        }
        if (row + 1 < rows) {
            pass_rows(to, low, high, step, count, width);
            pair_rows(rest, low + whole, high + whole, count - whole);
        } else {
            for (int64_t i = 0; i < whole; i++) {
                to[i / width * step + i % width] = low[i];
            }
            pair_last(rest, low + whole, count - whole);
        }
        if (whole < count) {
            memset(rest + (count - whole), 0, (size_t)(width - (count - whole)) * sizeof *rest);
        }
    }
}

/* to[i] = the pair of low[i] and high[i] (NULL: zero) in bf16. */
TRI_CLONES static void round_rows(uint32_t *to, const float *low, const float *high, int64_t count)
{
    if (high == NULL) {
        for (int64_t i = 0; i < count; i++) {
            to[i] = half_to_bf16(low[i]);
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        to[i] = (uint32_t)half_to_bf16(low[i]) | (uint32_t)half_to_bf16(high[i]) << 16;
    }
}

typedef struct pack_arg {
    const tri_gemm_ops *ops;
    uint32_t *packed;
    const float *src;
    int64_t k, n, k_step, n_step;
} pack_arg;

#define CHUNK 128 /* of k, even */

/* k lies together: rows of src are rounded a chunk at a time, then turned. */
static void pack_turned(const pack_arg *v, int64_t panel)
{
    const int64_t nr = v->ops->nr, first = panel * nr, count = tri_int64_min(nr, v->n - first), pairs = tri_pairs(v->k);
    uint16_t chunk[TRI_GEMM_MAX_NR][CHUNK];
    for (int64_t k = 0; k < v->k; k += CHUNK) {
        const int64_t len = tri_int64_min(CHUNK, v->k - k);
        for (int64_t j = 0; j < count; j++) {
            tri_half_round(chunk[j], v->src + (first + j) * v->n_step + k, len);
            if (len % 2 != 0) {
                chunk[j][len] = 0;
            }
        }
        tri_gemm_pack(v->ops, (float *)(void *)(v->packed + (panel * pairs + k / 2) * nr), (const float *)(void *)chunk,
                      tri_pairs(len), count, 1, CHUNK / 2, 0);
    }
}

static void pack_tile(void *arg, int64_t panel)
{
    const pack_arg *v = arg;
    if (v->n_step != 1) {
        pack_turned(v, panel);
        return;
    }
    const int64_t nr = v->ops->nr, first = panel * nr, count = tri_int64_min(nr, v->n - first);
    uint32_t *to = v->packed + first * tri_pairs(v->k);
    const float *src = v->src + first;
    for (int64_t k = 0; k < v->k; k += 2, to += nr) {
        round_rows(to, src + k * v->k_step, k + 1 < v->k ? src + (k + 1) * v->k_step : NULL, count);
        memset(to + count, 0, (size_t)(nr - count) * sizeof *to);
    }
}

void tri_gemm_half_pack(const tri_gemm_ops *ops, int threads, uint32_t *packed, const float *src, int64_t k, int64_t n,
                        int64_t k_step, int64_t n_step)
{
    pack_arg arg = {ops, packed, src, k, n, k_step, n_step};
    tri_tiles_run(threads, tri_int64_ceil(n, ops->nr), pack_tile, &arg);
}

typedef struct run_arg {
    const tri_gemm_ops *ops;
    const tri_gemm_half_call *call;
    int64_t panels, group, groups, rows;
} run_arg;

/* m rows of one row tile times one panel. */
static void half_tile(const run_arg *v, int64_t row, int64_t panel, int m)
{
    const tri_gemm_half_call *call = v->call;
    const int64_t nr = v->ops->nr, first = panel * nr, n = tri_int64_min(nr, call->n - first);
    const unsigned flags =
        (call->add ? 0u : TRI_GEMM_FIRST) | (call->relu ? TRI_GEMM_RELU : 0u) | (call->c != NULL ? TRI_GEMM_HALF : 0u);
    const float *a[TRI_GEMM_MAX_MR];
    float *c[TRI_GEMM_MAX_MR];
    for (int i = 0; i < m; i++) {
        const int64_t at = (row + i) * call->ldc + first;
        a[i] = (const float *)(const void *)(call->a + (row + i) * call->lda);
        c[i] = call->c != NULL ? (float *)(void *)(call->c + at) : call->c_wide + at;
    }
    v->ops->dot(m, (int)n, 1, tri_pairs(call->k), a,
                (const float *)(const void *)(call->packed + first * tri_pairs(call->k)), c,
                call->bias != NULL ? call->bias + first : NULL, flags);
}

static void run_tile(void *arg, int64_t tile)
{
    const run_arg *v = arg;
    const int64_t first = tile / v->groups * v->rows, last = tri_int64_min(first + v->rows, v->call->m);
    const int64_t panel = tile % v->groups * v->group, end = tri_int64_min(panel + v->group, v->panels);
    for (int64_t row = first; row < last; row += v->ops->mr) {
        for (int64_t p = panel; p < end; p++) {
            half_tile(v, row, p, (int)tri_int64_min(v->ops->mr, last - row));
        }
    }
}

void tri_gemm_half_run(const tri_gemm_ops *ops, int threads, const tri_gemm_half_call *call)
{
    const int64_t panels = tri_int64_ceil(call->n, ops->nr),
                  nbytes = tri_pairs(call->k) * ops->nr * (int64_t)sizeof(float);
    run_arg arg = {.ops = ops, .call = call, .panels = panels};
    arg.group = tri_int64_max(1, tri_int64_min(tri_int64_min(panels, GROUP_PANELS), GROUP_NBYTES / nbytes));
    arg.groups = tri_int64_ceil(panels, arg.group);
    arg.rows = ROW_TILES * ops->mr;
    /* Enough tiles for the threads: bits do not depend on the cut. */
    while (arg.rows > ops->mr && tri_int64_ceil(call->m, arg.rows) * arg.groups < 3 * (int64_t)threads && threads > 1) {
        arg.rows = tri_int64_ceil(arg.rows / ops->mr, 2) * ops->mr;
    }
    tri_tiles_run(threads, arg.groups * tri_int64_ceil(call->m, arg.rows), run_tile, &arg);
}
