/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_wide.cu: large products by tensor cores: the bits of gemm_half in tiles of 128 x 128. The next tile comes from
 * memory into registers, 16 bytes at a time, while the last one is multiplied; shared memory has room for both.
 *
 * Factors lie along k or along their rows, on multiples of 16 bytes (tri_gpu_gemm() looks). Values in f32 are rounded
 * on their way to shared memory, which has pairs along k.
 */
#include "kernel/gpu/gemm.h"

typedef struct wide_tiles {
    uint32_t a[2][TRI_GPU_WIDE * HALF_STRIDE], b[2][TRI_GPU_WIDE * HALF_STRIDE];
} __attribute__((aligned(16))) wide_tiles;

/* 16 elements of k for a warp's 64 x 32. */
GPU_FN void wide_steps(const uint32_t *a, const uint32_t *b, int type, int k, float sum[4][4][4])
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    uint32_t left[4][4], right[2];
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        GPU_UNROLL
        for (int r = 0; r < 4; r++) {
            left[i][r] = a[(16 * i + g + r % 2 * 8) * HALF_STRIDE + k / 2 + t + r / 2 * 4];
        }
    }
    GPU_UNROLL
    for (int j = 0; j < 4; j++) {
        right[0] = b[(8 * j + g) * HALF_STRIDE + k / 2 + t];
        right[1] = b[(8 * j + g) * HALF_STRIDE + k / 2 + t + 4];
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            gpu_mma(type, sum[i][j], left[i], right);
        }
    }
}

GPU_KERNEL(gemm_wide)
{
    GPU_SHARED(wide_tiles, shared);
    const int m0 = gpu_bx() * TRI_GPU_WIDE, n0 = gpu_by() * TRI_GPU_WIDE, warp = gpu_tx() / 32;
    const int wm = warp / 4 * 64, wn = warp % 4 * 32, g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    const int64_t a_base = gemm_base(&a, &a.a), b_base = gemm_base(&a, &a.b), base = gemm_base_c(&a);
    float sum[4][4][4] = {{{0}}};
    gemm_part left, right;
    int turn = 0;
    gemm_load(&left, &a.a, &a.w, 0, a_base, m0, a.m, 0, a.k, GEMM_PLAIN);
    gemm_load(&right, &a.b, &a.w, 0, b_base, n0, a.n, 0, a.k, GEMM_PLAIN);
    gemm_keep(&left, &a.a, a.type, shared->a[0], GEMM_PLAIN);
    gemm_keep(&right, &a.b, a.type, shared->b[0], GEMM_PLAIN);
    gpu_sync();
    for (int k0 = 0; k0 < a.k; k0 += HALF_DEPTH) {
        const int more = k0 + HALF_DEPTH < a.k;
        if (more) {
            gemm_load(&left, &a.a, &a.w, 0, a_base, m0, a.m, k0 + HALF_DEPTH, a.k, GEMM_PLAIN);
            gemm_load(&right, &a.b, &a.w, 0, b_base, n0, a.n, k0 + HALF_DEPTH, a.k, GEMM_PLAIN);
        }
        for (int k = 0; k < HALF_DEPTH && k0 + k < a.k; k += 16) {
            wide_steps(shared->a[turn] + wm * HALF_STRIDE, shared->b[turn] + wn * HALF_STRIDE, a.type, k, sum);
        }
        turn ^= 1;
        if (more) { /* nobody reads that one since the last barrier */
            gemm_keep(&left, &a.a, a.type, shared->a[turn], GEMM_PLAIN);
            gemm_keep(&right, &a.b, a.type, shared->b[turn], GEMM_PLAIN);
        }
        gpu_sync();
    }
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            GPU_UNROLL
            for (int r = 0; r < 2; r++) {
                gemm_write_pair(&a, base, m0 + wm + 16 * i + g + 8 * r, n0 + wn + 8 * j + 2 * t, sum[i][j] + 2 * r,
                                GEMM_PLAIN);
            }
        }
    }
}
