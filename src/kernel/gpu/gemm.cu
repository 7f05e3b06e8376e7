/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.cu: products of matrices, and convolutions as products of gathered patches: in f32, and by tensor cores.
 *
 * A block computes a tile of 64 x 64; each element is one sum over k in order (f32: one fused multiply-add after the
 * other; tensor cores: 16 at a time), never cut, so it depends on nothing but its row, its column and k.
 */
#include "kernel/gpu/gemm.h"

#define GEMM_DEPTH 16 /* of a tile in f32 */

/* Element of x under a place of y and a tap, or -1. */
GPU_FN int gemm_patch(const tri_gpu_window *w, int place, int tap)
{
    const int ow = place % w->out[1], oh = place / w->out[1] % w->out[0], b = place / w->out[1] / w->out[0];
    const int ih = oh * w->stride[0] - w->pad[0] + tap / w->kernel[1] * w->dilation[0];
    const int iw = ow * w->stride[1] - w->pad[1] + tap % w->kernel[1] * w->dilation[1];
    return ih >= 0 && ih < w->in[0] && iw >= 0 && iw < w->in[1] ? ((b * w->in[0] + ih) * w->in[1] + iw) * w->channels
                                                                : -1;
}

/* Element of y that a tap leads to from a place of x, or -1. */
GPU_FN int gemm_patch_back(const tri_gpu_window *w, int place, int tap)
{
    const int iw = place % w->in[1], ih = place / w->in[1] % w->in[0], b = place / w->in[1] / w->in[0];
    const int h = ih + w->pad[0] - tap / w->kernel[1] * w->dilation[0];
    const int v = iw + w->pad[1] - tap % w->kernel[1] * w->dilation[1];
    if (h < 0 || v < 0 || h % w->stride[0] != 0 || v % w->stride[1] != 0 || h / w->stride[0] >= w->out[0] ||
        v / w->stride[1] >= w->out[1]) {
        return -1;
    }
    return ((b * w->out[0] + h / w->stride[0]) * w->out[1] + v / w->stride[1]) * w->out_channels;
}

/* Element (i, k) of a factor; base: where this product of the batch begins. */
GPU_FN float gemm_element(const tri_gpu_operand *o, const tri_gpu_window *w, int64_t base, int i, int k)
{
    if (o->source == TRI_GPU_PLAIN) {
        return gpu_load(o->value, base + (int64_t)i * o->row + (int64_t)k * o->column);
    }
    const int channels = w->channels / w->groups, units = w->out_channels / w->groups;
    const int taps = w->kernel[0] * w->kernel[1];
    int at;
    switch (o->source) {
    case TRI_GPU_PATCHES:
        at = gemm_patch(w, i, k / channels);
        return at >= 0 ? gpu_load(o->value, base + at + k % channels) : 0.0f;
    case TRI_GPU_TAPS:
        return gpu_load(o->value, base + (i * channels + k % channels) * taps + k / channels);
    case TRI_GPU_PATCHES_DY:
        at = gemm_patch_back(w, i, k / units);
        return at >= 0 ? gpu_load(o->value, base + at + k % units) : 0.0f;
    case TRI_GPU_TAPS_BACK:
        return gpu_load(o->value, base + (k % units * channels + i) * taps + k / units);
    default: /* TRI_GPU_PATCHES_DW */
        at = gemm_patch(w, k, i % taps);
        return at >= 0 ? gpu_load(o->value, base + at + i / taps) : 0.0f;
    }
}

typedef struct gemm_tiles {
    float a[GEMM_DEPTH][TRI_GPU_TILE + 1], b[GEMM_DEPTH][TRI_GPU_TILE + 1];
} gemm_tiles;

/* 4 elements of a thread; neighbours read neighbours. */
GPU_FN void gemm_fill(const tri_gpu_operand *o, const tri_gpu_gemm_args *a, int64_t base, int first, int rows, int k0,
                      float tile[GEMM_DEPTH][TRI_GPU_TILE + 1])
{
    for (int e = gpu_tx(); e < TRI_GPU_TILE * GEMM_DEPTH; e += TRI_GPU_THREADS) {
        const int along = o->source == TRI_GPU_PLAIN && o->row == 1;
        const int i = along ? e % TRI_GPU_TILE : e / GEMM_DEPTH, k = along ? e / TRI_GPU_TILE : e % GEMM_DEPTH;
        const int inside = first + i < rows && k0 + k < a->k;
        tile[k][i] = inside ? gemm_element(o, &a->w, base, first + i, k0 + k) : 0.0f;
    }
}

GPU_KERNEL(gemm)
{
    GPU_SHARED(gemm_tiles, shared);
    const int m0 = gpu_bx() * TRI_GPU_TILE, n0 = gpu_by() * TRI_GPU_TILE;
    const int64_t a_base = gemm_base(&a.a, a.groups), b_base = gemm_base(&a.b, a.groups);
    const int x = gpu_tx() % 16, y = gpu_tx() / 16;
    float sum[4][4] = {{0}};
    for (int k0 = 0; k0 < a.k; k0 += GEMM_DEPTH) {
        gemm_fill(&a.a, &a, a_base, m0, a.m, k0, shared->a);
        gemm_fill(&a.b, &a, b_base, n0, a.n, k0, shared->b);
        gpu_sync();
        for (int k = 0; k < GEMM_DEPTH && k0 + k < a.k; k++) {
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
    const int64_t base = gemm_base(&a.c, a.groups);
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            gemm_write(&a, base, m0 + y + 16 * i, n0 + x + 16 * j, sum[i][j]);
        }
    }
}

typedef struct half_tiles {
    uint32_t a[TRI_GPU_TILE][HALF_STRIDE], b[TRI_GPU_TILE][HALF_STRIDE]; /* pairs along k */
} half_tiles;

GPU_FN void half_fill(const tri_gpu_operand *o, const tri_gpu_gemm_args *a, int64_t base, int first, int rows, int k0,
                      uint32_t tile[TRI_GPU_TILE][HALF_STRIDE])
{
    for (int e = gpu_tx(); e < TRI_GPU_TILE * HALF_DEPTH / 2; e += TRI_GPU_THREADS / 2) {
        const int along = o->source == TRI_GPU_PLAIN && o->row == 1;
        const int i = along ? e % TRI_GPU_TILE : e / (HALF_DEPTH / 2),
                  k = along ? e / TRI_GPU_TILE : e % (HALF_DEPTH / 2);
        uint32_t pair = 0;
        if (first + i < rows && k0 + 2 * k < a->k) {
            pair = gpu_to_half(gemm_element(o, &a->w, base, first + i, k0 + 2 * k), a->type);
        }
        if (first + i < rows && k0 + 2 * k + 1 < a->k) {
            pair |= (uint32_t)gpu_to_half(gemm_element(o, &a->w, base, first + i, k0 + 2 * k + 1), a->type) << 16;
        }
        tile[i][k] = pair;
    }
}

/* 16 elements of k for a warp's 32 x 32. */
GPU_FN void half_steps(const half_tiles *tiles, int type, int wm, int wn, int k, float sum[2][4][4])
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    uint32_t left[2][4], right[2];
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        GPU_UNROLL
        for (int r = 0; r < 4; r++) {
            left[i][r] = tiles->a[wm + 16 * i + g + r % 2 * 8][k / 2 + t + r / 2 * 4];
        }
    }
    GPU_UNROLL
    for (int j = 0; j < 4; j++) {
        right[0] = tiles->b[wn + 8 * j + g][k / 2 + t];
        right[1] = tiles->b[wn + 8 * j + g][k / 2 + t + 4];
        GPU_UNROLL
        for (int i = 0; i < 2; i++) {
            gpu_mma(type, sum[i][j], left[i], right);
        }
    }
}

GPU_KERNEL(gemm_half)
{
    GPU_SHARED(half_tiles, shared);
    const int m0 = gpu_bx() * TRI_GPU_TILE, n0 = gpu_by() * TRI_GPU_TILE;
    const int64_t a_base = gemm_base(&a.a, a.groups), b_base = gemm_base(&a.b, a.groups);
    const int warp = gpu_tx() / 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    const int inside = m0 + wm < a.m && n0 + wn < a.n; /* the same for a whole warp */
    float sum[2][4][4] = {{{0}}};
    for (int k0 = 0; k0 < a.k; k0 += HALF_DEPTH) {
        half_fill(&a.a, &a, a_base, m0, a.m, k0, shared->a);
        half_fill(&a.b, &a, b_base, n0, a.n, k0, shared->b);
        gpu_sync();
        for (int k = 0; k < HALF_DEPTH && inside; k += 16) {
            if (k0 + k < a.k) {
                half_steps(shared, a.type, wm, wn, k, sum);
            }
        }
        gpu_sync();
    }
    const int64_t base = gemm_base(&a.c, a.groups);
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            GPU_UNROLL
            for (int r = 0; r < 4; r++) {
                gemm_write(&a, base, m0 + wm + 16 * i + g + r / 2 * 8, n0 + wn + 8 * j + 2 * t + r % 2, sum[i][j][r]);
            }
        }
    }
}
