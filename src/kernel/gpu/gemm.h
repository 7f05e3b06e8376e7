/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h: what kernels of products share: where elements of factors lie, tiles in 16 bits that are read 16 bytes at a
 * time, and what happens to a sum.
 */
#ifndef TRI_KERNEL_GPU_GEMM_H
#define TRI_KERNEL_GPU_GEMM_H

#include "kernel/gpu/math.h"

#define HALF_DEPTH  32 /* of a tile in 16 bits */
#define HALF_STRIDE 20 /* pairs of a row, so that fragments are free of bank conflicts */

/* Where this product of the batch begins. */
GPU_FN int64_t gemm_base(const tri_gpu_gemm_args *a, const tri_gpu_operand *o)
{
    const int z = gpu_bz() / a->chunks;
    return z / a->groups * o->shard_stride + z % a->groups * o->group_stride;
}

GPU_FN int64_t gemm_base_c(const tri_gpu_gemm_args *a)
{
    return gemm_base(a, &a->c) + gpu_bz() % a->chunks * a->chunk_stride;
}

/* Terms of this product: k from here to there. */
GPU_FN int gemm_begin(const tri_gpu_gemm_args *a)
{
    return gpu_bz() % a->chunks * a->chunk;
}

GPU_FN int gemm_end(const tri_gpu_gemm_args *a)
{
    const int end = gemm_begin(a) + a->chunk;
    return end < a->k ? end : a->k;
}

/* --- elements of factors --- */

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

/* Place of element (i, k) of a factor, -1: there is none, it is 0; base: where this product of the batch begins. side:
 * a constant, so that there is code for the sources of that factor alone. */
enum { GEMM_PLAIN, GEMM_A, GEMM_B };
GPU_FN int64_t gemm_place(const tri_gpu_operand *o, const tri_gpu_window *w, int64_t base, int i, int k, const int side)
{
    if (side == GEMM_PLAIN || o->source == TRI_GPU_PLAIN) {
        return base + (int64_t)i * o->row + (int64_t)k * o->column;
    }
    const int back = o->source == TRI_GPU_PATCHES_DY, each = (back ? w->out_channels : w->channels) / w->groups;
    const int at = side == GEMM_B ? gemm_patch(w, k, i / each)
                   : back         ? gemm_patch_back(w, i, k / each)
                                  : gemm_patch(w, i, k / each);
    return at < 0 ? -1 : base + at + (side == GEMM_B ? i : k) % each;
}

GPU_FN float gemm_element(const tri_gpu_operand *o, const tri_gpu_window *w, int64_t base, int i, int k, const int side)
{
    const int64_t at = gemm_place(o, w, base, i, k, side);
    return at >= 0 ? gpu_load(o->value, at) : 0.0f;
}

/* Whether neighbours lie along k; else along rows, or nowhere. */
GPU_FN int gemm_along_k(const tri_gpu_operand *o, const int side)
{
    return o->source == TRI_GPU_PLAIN ? o->column == 1 : side == GEMM_A;
}

/* --- tiles in 16 bits of factors with eights: threads / 2 rows, HALF_DEPTH of k --- */

/* What a thread has of a tile: 16 elements, in f32 or in the first two. */
typedef struct gemm_part {
    gpu_quad quad[4];
} gemm_part;

/* 8 elements from `at` on; zeros where they are outside. */
GPU_FN void gemm_read(gpu_quad quad[2], tri_gpu_value value, int64_t at, int inside)
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

/* 8 elements along k, or along rows, from (row, k) on. */
GPU_FN void gemm_read_at(gpu_quad quad[2], const tri_gpu_operand *o, const tri_gpu_window *w, int64_t base, int row,
                         int k, int inside, const int side)
{
    const int64_t at = inside ? gemm_place(o, w, base, row, k, side) : -1;
    gemm_read(quad, o->value, at, at >= 0);
}

GPU_FN void gemm_load(gemm_part *part, const tri_gpu_operand *o, const tri_gpu_window *w, int64_t base, int first,
                      int rows, int k0, int end, const int side)
{
    if (gemm_along_k(o, side)) { /* 8 elements along k of two rows */
        GPU_UNROLL
        for (int s = 0; s < 2; s++) {
            const int task = gpu_tx() + s * gpu_nx(), row = first + task / 4, k = k0 + task % 4 * 8;
            gemm_read_at(part->quad + 2 * s, o, w, base, row, k, row < rows && k < end, side);
        }
    } else { /* 8 rows of two neighbours along k */
        GPU_UNROLL
        for (int s = 0; s < 2; s++) {
            const int row = first + gpu_tx() / 16 * 8, k = k0 + gpu_tx() % 16 * 2 + s;
            gemm_read_at(part->quad + 2 * s, o, w, base, row, k, row < rows && k < end, side);
        }
    }
}

/* Element e of 8, in 16 bits. */
GPU_FN uint32_t gemm_half_of(const gpu_quad quad[2], int source, int type, const int e)
{
    return source == TRI_GPU_F32 ? gpu_to_half(gpu_float(quad[e / 4].word[e % 4]), type)
                                 : quad[0].word[e / 2] >> (e % 2 * 16) & 0xffffu;
}

/* tile: pairs along k, HALF_STRIDE a row. */
GPU_FN void gemm_keep(const gemm_part *part, const tri_gpu_operand *o, int type, uint32_t *tile, const int side)
{
    const int source = o->value.type;
    if (gemm_along_k(o, side)) {
        GPU_UNROLL
        for (int s = 0; s < 2; s++) {
            const int task = gpu_tx() + s * gpu_nx();
            gpu_quad pairs;
            GPU_UNROLL
            for (int w = 0; w < 4; w++) {
                pairs.word[w] = gemm_half_of(part->quad + 2 * s, source, type, 2 * w) |
                                gemm_half_of(part->quad + 2 * s, source, type, 2 * w + 1) << 16;
            }
            *(gpu_quad *)(tile + task / 4 * HALF_STRIDE + task % 4 * 4) = pairs;
        }
    } else {
        uint32_t *const words = tile + gpu_tx() / 16 * 8 * HALF_STRIDE + gpu_tx() % 16;
        GPU_UNROLL
        for (int e = 0; e < 8; e++) {
            words[e * HALF_STRIDE] =
                gemm_half_of(part->quad, source, type, e) | gemm_half_of(part->quad + 2, source, type, e) << 16;
        }
    }
}

/* --- sums --- */

/* base: of gemm_base_c(). */
GPU_FN void gemm_write(const tri_gpu_gemm_args *a, int64_t base, int i, int j, float v)
{
    if (i >= a->m || j >= a->n) {
        return;
    }
    const int channels = a->w.channels / a->groups, taps = a->w.kernel[0] * a->w.kernel[1];
    const int64_t column =
        a->c.source == TRI_GPU_PATCHES_DW ? j % channels * taps + j / channels : (int64_t)j * a->c.column;
    const int64_t at = base + (int64_t)i * a->c.row + column;
    if (a->bias != 0) {
        v += a->bias[gpu_bz() % a->groups * a->n + j]; /* there are no chunks */
    }
    if (a->adds) {
        v += gpu_load(a->c.value, at);
    }
    gpu_store(a->c.value, at, a->relu && v < 0.0f ? 0.0f : v);
}

#endif
