/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.cu: products of matrices, and convolutions as products of gathered patches: in f32, and by tensor cores.
 *
 * A block computes a tile of 64 x 64; each element is one sum over k in order (f32: one fused multiply-add after the
 * other; tensor cores: 16 at a time), cut by nothing but the chunks of the call, so it depends on its row, its column
 * and k. Factors with eights are read 16 bytes at a time, with the same bits.
 */
#include "kernel/gpu/gemm.h"

#define GEMM_DEPTH 16 /* of a tile in f32 */

typedef struct gemm_tiles {
    float a[GEMM_DEPTH][TRI_GPU_TILE + 1], b[GEMM_DEPTH][TRI_GPU_TILE + 1];
} gemm_tiles;

/* 4 elements of a thread; neighbours read neighbours. */
GPU_FN void gemm_fill(const tri_gpu_operand *o, const tri_gpu_gemm_args *a, int64_t base, int first, int rows, int k0,
                      int end, float tile[GEMM_DEPTH][TRI_GPU_TILE + 1], const int side)
{
    const int along_k = o->source == TRI_GPU_PLAIN ? o->row != 1 : side == GEMM_A;
    GPU_ROLLED
    for (int e = gpu_tx(); e < TRI_GPU_TILE * GEMM_DEPTH; e += TRI_GPU_THREADS) {
        const int i = along_k ? e / GEMM_DEPTH : e % TRI_GPU_TILE, k = along_k ? e % GEMM_DEPTH : e / TRI_GPU_TILE;
        const int inside = first + i < rows && k0 + k < end;
        tile[k][i] = inside ? gemm_element(o, &a->w, base, first + i, k0 + k, side) : 0.0f;
    }
}

GPU_KERNEL(gemm)
{
    GPU_SHARED(gemm_tiles, shared);
    const int m0 = gpu_bx() * TRI_GPU_TILE, n0 = gpu_by() * TRI_GPU_TILE;
    const int64_t a_base = gemm_base(&a, &a.a), b_base = gemm_base(&a, &a.b);
    const int end = gemm_end(&a);
    const int x = gpu_tx() % 16, y = gpu_tx() / 16;
    float sum[4][4] = {{0}};
    for (int k0 = gemm_begin(&a); k0 < end; k0 += GEMM_DEPTH) {
        gemm_fill(&a.a, &a, a_base, m0, a.m, k0, end, shared->a, GEMM_A);
        gemm_fill(&a.b, &a, b_base, n0, a.n, k0, end, shared->b, GEMM_B);
        gpu_sync();
        for (int k = 0; k < GEMM_DEPTH && k0 + k < end; k++) {
            GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                GPU_UNROLL
                for (int j = 0; j < 4; j++) {
                    sum[i][j] = gpu_fma(shared->a[k][y + 16 * i], shared->b[k][x + 16 * j], sum[i][j]);
                }
            }
        }
        gpu_sync();
    }
    const gemm_out out = gemm_out_make(&a);
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            gemm_write(&a, out, m0 + y + 16 * i, n0 + x + 16 * j, sum[i][j]);
        }
    }
}

typedef struct half_tiles {
    uint32_t a[HALF_WORDS(TRI_GPU_TILE)], b[HALF_WORDS(TRI_GPU_TILE)];
} __attribute__((aligned(16))) half_tiles;

GPU_FN void half_fill(const tri_gpu_operand *o, const tri_gpu_gemm_args *a, gemm_patches *p, int64_t base, int first,
                      int rows, int k0, int end, uint32_t *tile, const int side)
{
    if (o->eights) {
        gemm_part part;
        gemm_load(&part, o, &a->w, p, base, first, rows, k0, end, side);
        gemm_keep(&part, o, tile, a->type, side);
        p->k = gemm_digits_add(p->k, p->depth, p->middles, p->lows);
        return;
    }
    const int along_k = o->source == TRI_GPU_PLAIN ? o->row != 1 : side == GEMM_A;
    GPU_ROLLED
    for (int e = gpu_tx(); e < TRI_GPU_TILE * HALF_DEPTH / 2; e += TRI_GPU_THREADS / 2) {
        const int i = along_k ? e / (HALF_DEPTH / 2) : e % TRI_GPU_TILE,
                  k = along_k ? e % (HALF_DEPTH / 2) : e / TRI_GPU_TILE;
        uint32_t pair = 0;
        if (first + i < rows && k0 + 2 * k < end) {
            pair = gpu_to_half(gemm_element(o, &a->w, base, first + i, k0 + 2 * k, side), a->type);
        }
        if (first + i < rows && k0 + 2 * k + 1 < end) {
            pair |= (uint32_t)gpu_to_half(gemm_element(o, &a->w, base, first + i, k0 + 2 * k + 1, side), a->type) << 16;
        }
        tile[half_place(i) + k] = pair;
    }
}

/* The first `depth` elements of k of a tile for a warp's 32 x 32; type: a constant. */
GPU_FN void half_steps(const half_tiles *tiles, int wm, int wn, int depth, float sum[2][4][4], const int type)
{
    uint32_t left[2][4], right[4];
    GPU_ROLLED
    for (int k = 0; k < HALF_DEPTH && k < depth; k += 16) {
        GPU_UNROLL
        for (int i = 0; i < 2; i++) {
            half_block(left[i], tiles->a, wm + 16 * i, k / 2, GEMM_A);
        }
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            if (j % 2 == 0) {
                half_block(right, tiles->b, wn + 8 * j, k / 2, GEMM_B);
            }
            GPU_UNROLL
            for (int i = 0; i < 2; i++) {
                gpu_mma(type, sum[i][j], left[i], right + j % 2 * 2);
            }
        }
    }
}

GPU_KERNEL_OF(gemm_half, TRI_GPU_THREADS / 2, 4)
{
    GPU_SHARED(half_tiles, shared);
    const int m0 = gpu_bx() * TRI_GPU_TILE, n0 = gpu_by() * TRI_GPU_TILE;
    const int64_t a_base = gemm_base(&a, &a.a), b_base = gemm_base(&a, &a.b);
    const int end = gemm_end(&a);
    const int warp = gpu_tx() / 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    const int inside = m0 + wm < a.m && n0 + wn < a.n; /* the same for a whole warp */
    gemm_patches left = gemm_patches_make(&a.a, &a.w, m0, gemm_begin(&a), GEMM_A),
                 right = gemm_patches_make(&a.b, &a.w, n0, gemm_begin(&a), GEMM_B);
    float sum[2][4][4] = {{{0}}};
    for (int k0 = gemm_begin(&a); k0 < end; k0 += HALF_DEPTH) {
        half_fill(&a.a, &a, &left, a_base, m0, a.m, k0, end, shared->a, GEMM_A);
        half_fill(&a.b, &a, &right, b_base, n0, a.n, k0, end, shared->b, GEMM_B);
        gpu_sync();
        if (inside && a.type == TRI_GPU_BF16) {
            half_steps(shared, wm, wn, end - k0, sum, TRI_GPU_BF16);
        } else if (inside) {
            half_steps(shared, wm, wn, end - k0, sum, TRI_GPU_F16);
        }
        gpu_sync();
    }
    const gemm_out out = gemm_out_make(&a);
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            GPU_UNROLL
            for (int r = 0; r < 2; r++) {
                gemm_write_pair(&a, out, m0 + wm + 16 * i + g + 8 * r, n0 + wn + 8 * j + 2 * t, sum[i][j] + 2 * r,
                                GEMM_A);
            }
        }
    }
}
