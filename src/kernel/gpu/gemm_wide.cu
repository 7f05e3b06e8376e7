/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_wide.cu: large products by tensor cores: the bits of gemm_half in tiles of 128 x 128. The next tile comes from
 * memory into registers, 16 bytes at a time, while the last one is multiplied; shared memory has room for both.
 *
 * Factors lie along k or along their rows, on multiples of 16 bytes (tri_gpu_gemm() looks). Values in f32 are rounded
 * on their way to shared memory, which has pairs along k.
 */
#include "kernel/gpu/gemm.h"

#define WIDE_QUADS (TRI_GPU_WIDE * HALF_STRIDE / 4)

typedef struct wide_tiles {
    gpu_quad a[2][WIDE_QUADS], b[2][WIDE_QUADS];
} wide_tiles;

/* What a thread has of a tile: 16 elements, in f32 or in the first two. */
typedef struct wide_part {
    gpu_quad quad[4];
} wide_part;

/* 8 elements from `at` on; zeros where they are outside. */
GPU_FN void wide_read(gpu_quad quad[2], tri_gpu_value value, int64_t at, int inside)
{
    const gpu_quad zeros = {{0, 0, 0, 0}};
    quad[0] = quad[1] = zeros;
    if (inside) {
        quad[0] = gpu_load_quad(value, at);
        if (value.type == TRI_GPU_F32) {
            quad[1] = gpu_load_quad(value, at + 4);
        }
    }
}

GPU_FN void wide_load(wide_part *part, const tri_gpu_operand *o, int64_t base, int first, int rows, int k0, int most)
{
    if (o->column == 1) { /* 8 elements along k of two rows */
        GPU_UNROLL
        for (int s = 0; s < 2; s++) {
            const int task = gpu_tx() + s * TRI_GPU_THREADS, row = first + task / 4, k = k0 + task % 4 * 8;
            wide_read(part->quad + 2 * s, o->value, base + (int64_t)row * o->row + k, row < rows && k < most);
        }
    } else { /* 8 rows of two neighbours along k */
        GPU_UNROLL
        for (int s = 0; s < 2; s++) {
            const int row = first + gpu_tx() / 16 * 8, k = k0 + gpu_tx() % 16 * 2 + s;
            wide_read(part->quad + 2 * s, o->value, base + row + (int64_t)k * o->column, row < rows && k < most);
        }
    }
}

/* Element e of 8, in 16 bits. */
GPU_FN uint32_t wide_element(const gpu_quad quad[2], int source, int type, const int e)
{
    return source == TRI_GPU_F32 ? gpu_to_half(gpu_float(quad[e / 4].word[e % 4]), type)
                                 : quad[0].word[e / 2] >> (e % 2 * 16) & 0xffffu;
}

GPU_FN void wide_store(const wide_part *part, const tri_gpu_operand *o, int type, gpu_quad *tile)
{
    const int source = o->value.type;
    if (o->column == 1) {
        GPU_UNROLL
        for (int s = 0; s < 2; s++) {
            const int task = gpu_tx() + s * TRI_GPU_THREADS;
            gpu_quad pairs;
            GPU_UNROLL
            for (int w = 0; w < 4; w++) {
                pairs.word[w] = wide_element(part->quad + 2 * s, source, type, 2 * w) |
                                wide_element(part->quad + 2 * s, source, type, 2 * w + 1) << 16;
            }
            tile[task / 4 * (HALF_STRIDE / 4) + task % 4] = pairs;
        }
    } else {
        uint32_t *const words = (uint32_t *)tile + gpu_tx() / 16 * 8 * HALF_STRIDE + gpu_tx() % 16;
        GPU_UNROLL
        for (int e = 0; e < 8; e++) {
            words[e * HALF_STRIDE] =
                wide_element(part->quad, source, type, e) | wide_element(part->quad + 2, source, type, e) << 16;
        }
    }
}

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
    const int64_t a_base = gemm_base(&a.a, a.groups), b_base = gemm_base(&a.b, a.groups);
    const int64_t base = gemm_base(&a.c, a.groups);
    float sum[4][4][4] = {{{0}}};
    wide_part left, right;
    int turn = 0;
    wide_load(&left, &a.a, a_base, m0, a.m, 0, a.k);
    wide_load(&right, &a.b, b_base, n0, a.n, 0, a.k);
    wide_store(&left, &a.a, a.type, shared->a[0]);
    wide_store(&right, &a.b, a.type, shared->b[0]);
    gpu_sync();
    for (int k0 = 0; k0 < a.k; k0 += HALF_DEPTH) {
        const int more = k0 + HALF_DEPTH < a.k;
        if (more) {
            wide_load(&left, &a.a, a_base, m0, a.m, k0 + HALF_DEPTH, a.k);
            wide_load(&right, &a.b, b_base, n0, a.n, k0 + HALF_DEPTH, a.k);
        }
        for (int k = 0; k < HALF_DEPTH && k0 + k < a.k; k += 16) {
            wide_steps((const uint32_t *)shared->a[turn] + wm * HALF_STRIDE,
                       (const uint32_t *)shared->b[turn] + wn * HALF_STRIDE, a.type, k, sum);
        }
        turn ^= 1;
        if (more) { /* nobody reads that one since the last barrier */
            wide_store(&left, &a.a, a.type, shared->a[turn]);
            wide_store(&right, &a.b, a.type, shared->b[turn]);
        }
        gpu_sync();
    }
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            GPU_UNROLL
            for (int r = 0; r < 4; r++) {
                gemm_write(&a, base, m0 + wm + 16 * i + g + r / 2 * 8, n0 + wn + 8 * j + 2 * t + r % 2, sum[i][j][r]);
            }
        }
    }
}
