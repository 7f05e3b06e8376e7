/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_half.c: choice of the instruction set for bf16, packing of f32 weights, and the loops over tiles.
 *
 * A tile's sums stay in registers through all of k and are rounded on their way out. A group of panels stays in L2
 * while rows of A stream.
 */
#include "kernel/cpu/gemm_half.h"

#include "kernel/cpu/half_loops.h"
#include "kernel/isa.h"

#define GROUP_NBYTES (INT64_C(384) << 10) /* of packed B, reused for all rows of a task */
#define GROUP_PANELS 12
/* The same where rows stay in L1 meanwhile: processors with AMX have an L2 of 2 MiB. */
#define BAND_NBYTES (INT64_C(1280) << 10)
#define PANELS      INT64_C(8)   /* of one task of packing where n is together, */
#define PIECE       INT64_C(128) /* and its k; even */

const tri_gemm_ops *tri_gemm_half_of(tri_isa isa)
{
#ifdef TRI_HAVE_X86
    static const tri_gemm_ops *const rows[] = {[TRI_ISA_GENERIC] = &tri_gemm_bf16_generic,
                                               [TRI_ISA_AVX2] = &tri_gemm_bf16_avx,
                                               [TRI_ISA_AVX512] = &tri_gemm_bf16_wide,
                                               [TRI_ISA_AVX512_BF16] = &tri_gemm_bf16,
                                               [TRI_ISA_AMX] = &tri_gemm_amx};
    return rows[isa];
#else
    (void)isa;
    return &tri_gemm_bf16_generic;
#endif
}

const tri_gemm_ops *tri_gemm_half_find(void)
{
    return tri_gemm_half_of(tri_isa_now());
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

void tri_gemm_half_pass(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count, int64_t width,
                        int64_t step)
{
    const tri_half_loops *loops = tri_half_loops_find();
    const int64_t whole = count - count % width;
    for (int64_t row = 0; row < rows; row += 2, to += width) {
        const uint16_t *low = from + row * stride, *high = low + stride;
        uint32_t *rest = to + count / width * step;
        for (int64_t i = 0; i < count; i += 32) {
            __builtin_prefetch(low + TRI_GEMM_AHEAD * stride + i, 0, 2);
            __builtin_prefetch(high + TRI_GEMM_AHEAD * stride + i, 0, 2);
        }
        if (row + 1 < rows) {
            loops->pair_parts(to, low, high, step, count, width);
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

typedef struct pack_arg {
    const tri_gemm_ops *ops;
    uint32_t *packed;
    const float *src;
    int64_t k, n, k_step, n_step;
} pack_arg;

/* A panel, or where n is together a piece of some panels: rows of src are read in long stretches. */
static void pack_tile(void *arg, int64_t tile)
{
    const pack_arg *v = arg;
    const tri_half_loops *loops = tri_half_loops_find();
    const int64_t nr = v->ops->nr, pairs = tri_pairs(v->k);
    if (v->n_step != 1) {
        const int64_t first = tile * nr;
        loops->turn_floats(v->packed + first * pairs, v->src + first * v->n_step, v->k, tri_int64_min(nr, v->n - first),
                           v->n_step, nr);
        return;
    }
    const int64_t pieces = tri_int64_ceil(v->k, PIECE), begin = tile % pieces * PIECE;
    const int64_t left = tile / pieces * PANELS * nr, right = tri_int64_min(left + PANELS * nr, v->n);
    for (int64_t k = begin; k < tri_int64_min(begin + PIECE, v->k); k += 2) {
        const float *low = v->src + k * v->k_step, *high = k + 1 < v->k ? low + v->k_step : NULL;
        for (int64_t first = left; first < right; first += nr) {
            const int64_t count = tri_int64_min(nr, right - first);
            uint32_t *to = v->packed + first * pairs + k / 2 * nr;
            for (int64_t i = 0; i < count; i += 16) {
                __builtin_prefetch(low + TRI_GEMM_AHEAD * v->k_step + first + i, 0, 2);
                __builtin_prefetch(low + (TRI_GEMM_AHEAD + 1) * v->k_step + first + i, 0, 2);
            }
            loops->pair_floats(to, low + first, high != NULL ? high + first : NULL, count);
            memset(to + count, 0, (size_t)(nr - count) * sizeof *to);
        }
    }
}

void tri_gemm_half_pack(const tri_gemm_ops *ops, int threads, uint32_t *packed, const float *src, int64_t k, int64_t n,
                        int64_t k_step, int64_t n_step)
{
    pack_arg arg = {ops, packed, src, k, n, k_step, n_step};
    const int64_t tiles =
        n_step != 1 ? tri_int64_ceil(n, ops->nr) : tri_int64_ceil(n, PANELS * ops->nr) * tri_int64_ceil(k, PIECE);
    tri_tiles_run(threads, tiles, pack_tile, &arg);
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
    const float *a[TRI_GEMM_HALF_MR];
    float *c[TRI_GEMM_HALF_MR];
    for (int i = 0; i < m; i++) {
        const int64_t at = (row + i) * call->ldc + first;
        a[i] = (const float *)(const void *)(call->a + (row + i) * call->lda);
        c[i] = call->c != NULL ? (float *)(void *)(call->c + at) : call->c_wide + at;
    }
    v->ops->dot(m, (int)n, 1, tri_pairs(call->k), a,
                (const float *)(const void *)(call->packed + first * tri_pairs(call->k)), c,
                call->bias != NULL ? call->bias + first : NULL, flags);
}

/* Asks for a part of the rows behind those that the tiles work on. */
static void rows_ahead(const run_arg *v, int64_t row, int64_t last, int64_t part, int64_t parts)
{
    const tri_gemm_half_call *call = v->call;
    const int64_t lines = tri_int64_ceil(call->k, 32), from = lines * part / parts, to = lines * (part + 1) / parts;
    for (int64_t r = row + v->ops->mr; r < tri_int64_min(row + 2 * v->ops->mr, last); r++) {
        for (int64_t line = from; line < to; line++) {
            __builtin_prefetch(call->a + r * call->lda + line * 32, 0, 2);
        }
    }
}

/* The whole row tiles from `row` on, at once, where the instruction set has a loop for that; returns the rows done. */
static int64_t run_band(const run_arg *v, int64_t row, int64_t last, int64_t panel, int64_t end)
{
    const tri_gemm_half_call *call = v->call;
    const int64_t m = (last - row) / v->ops->mr * v->ops->mr, first = panel * v->ops->nr;
    if (v->ops->band == NULL || call->c == NULL || call->add || m == 0 || call->k % (2 * v->ops->depth) != 0) {
        return 0;
    }
    v->ops->band(&(tri_gemm_band){.a = call->a + row * call->lda,
                                  .packed = call->packed + first * tri_pairs(call->k),
                                  .bias = call->bias != NULL ? call->bias + first : NULL,
                                  .c = call->c + row * call->ldc + first,
                                  .m = m,
                                  .n = tri_int64_min(end * v->ops->nr, call->n) - first,
                                  .pairs = tri_pairs(call->k),
                                  .lda = call->lda,
                                  .ldc = call->ldc,
                                  .relu = call->relu});
    return m;
}

static void run_tile(void *arg, int64_t tile)
{
    const run_arg *v = arg;
    const int64_t first = tile / v->groups * v->rows, last = tri_int64_min(first + v->rows, v->call->m);
    const int64_t panel = tile % v->groups * v->group, end = tri_int64_min(panel + v->group, v->panels);
    tri_gemm_enter(v->ops);
    for (int64_t row = first + run_band(v, first, last, panel, end); row < last; row += v->ops->mr) {
        for (int64_t p = panel; p < end; p++) {
            rows_ahead(v, row, last, p - panel, end - panel);
            half_tile(v, row, p, (int)tri_int64_min(v->ops->mr, last - row));
        }
    }
    tri_gemm_leave(v->ops);
}

void tri_gemm_half_run(const tri_gemm_ops *ops, int threads, const tri_gemm_half_call *call)
{
    const int64_t panels = tri_int64_ceil(call->n, ops->nr),
                  nbytes = tri_pairs(call->k) * ops->nr * (int64_t)sizeof(float);
    run_arg arg = {.ops = ops, .call = call, .panels = panels};
    arg.group = ops->band != NULL ? tri_int64_min(panels, BAND_NBYTES / nbytes)
                                  : tri_int64_min(tri_int64_min(panels, GROUP_PANELS), GROUP_NBYTES / nbytes);
    arg.group = tri_int64_max(1, arg.group);
    arg.groups = tri_int64_ceil(panels, arg.group);
    arg.rows = tri_gemm_rows(ops, threads, call->m, arg.groups);
    tri_tiles_run(threads, arg.groups * tri_int64_ceil(call->m, arg.rows), run_tile, &arg);
}
