/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h: what kernels of products share: where elements of factors lie, tiles in 16 bits that are read 16 bytes at a
 * time, and what happens to a sum.
 */
#ifndef TRI_KERNEL_GPU_GEMM_H
#define TRI_KERNEL_GPU_GEMM_H

#include "kernel/gpu/math.h"

/* A tile in 16 bits has pairs along k. The rows of a fragment, and what threads store together, lie in different banks:
 * eight rows from one to the next, and the next eight 16 banks further. */
#define HALF_DEPTH       32
#define HALF_STRIDE      20                     /* words of a row */
#define HALF_EIGHT       (8 * HALF_STRIDE + 16) /* of eight rows, the first of which is a multiple of 8 */
#define HALF_WORDS(rows) ((rows) / 8 * HALF_EIGHT)

GPU_FN int half_place(int row)
{
    return row / 8 * HALF_EIGHT + row % 8 * HALF_STRIDE;
}

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

/* Element of x at row h and column v of image b, or -1. */
GPU_FN int gemm_x(const tri_gpu_window *w, int b, int h, int v)
{
    return h >= 0 && h < w->in[0] && v >= 0 && v < w->in[1] ? ((b * w->in[0] + h) * w->in[1] + v) * w->channels : -1;
}

/* v / stride, below 0 where v is below 0 or no multiple. */
GPU_FN int gemm_stride(int v, int stride)
{
    return stride == 1 ? v : stride == 2 ? (v % 2 != 0 ? -1 : v / 2) : v < 0 || v % stride != 0 ? -1 : v / stride;
}

/* Element of y whose window begins, padding counted, at row h and column v of image b, or -1. */
GPU_FN int gemm_y(const tri_gpu_window *w, int b, int h, int v)
{
    const int oh = gemm_stride(h, w->stride[0]), ow = gemm_stride(v, w->stride[1]);
    return oh >= 0 && oh < w->out[0] && ow >= 0 && ow < w->out[1]
               ? ((b * w->out[0] + oh) * w->out[1] + ow) * w->out_channels
               : -1;
}

/* Element of x under a place of y and a tap, or -1. */
GPU_FN int gemm_patch(const tri_gpu_window *w, int place, int tap)
{
    const int ow = place % w->out[1], oh = place / w->out[1] % w->out[0], b = place / w->out[1] / w->out[0];
    return gemm_x(w, b, oh * w->stride[0] - w->pad[0] + tap / w->kernel[1] * w->dilation[0],
                  ow * w->stride[1] - w->pad[1] + tap % w->kernel[1] * w->dilation[1]);
}

/* Element of y that a tap leads to from a place of x, or -1. */
GPU_FN int gemm_patch_back(const tri_gpu_window *w, int place, int tap)
{
    const int iw = place % w->in[1], ih = place / w->in[1] % w->in[0], b = place / w->in[1] / w->in[0];
    return gemm_y(w, b, ih + w->pad[0] - tap / w->kernel[1] * w->dilation[0],
                  iw + w->pad[1] - tap % w->kernel[1] * w->dilation[1]);
}

/* Channels, or units, of a group. */
GPU_FN int gemm_each(const tri_gpu_operand *o, const tri_gpu_window *w)
{
    return (o->source == TRI_GPU_PATCHES_DY ? w->out_channels : w->channels) / w->groups;
}

/* Place of element (i, k) of a factor, -1: there is none, it is 0; base: where this product of the batch begins. side:
 * a constant, so that there is code for the sources of that factor alone. */
enum { GEMM_PLAIN, GEMM_A, GEMM_B };
GPU_FN int64_t gemm_place(const tri_gpu_operand *o, const tri_gpu_window *w, int64_t base, int i, int k, const int side)
{
    if (side == GEMM_PLAIN || o->source == TRI_GPU_PLAIN) {
        return base + (int64_t)i * o->row + (int64_t)k * o->column;
    }
    const int each = gemm_each(o, w);
    const int at = side == GEMM_B                    ? gemm_patch(w, k, i / each)
                   : o->source == TRI_GPU_PATCHES_DY ? gemm_patch_back(w, i, k / each)
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

/* Fragments of 16 rows and 16 elements of k of a tile, from row `row`, a multiple of 16, and word `word` on. Thread t
 * of group g of a warp, 4 g + t, has word t of row g in block[0]; block[1]: 8 rows down on side A, 4 words on else;
 * block[2]: the other way; block[3]: both. */
GPU_FN void half_block(uint32_t block[4], const uint32_t *tile, int row, int word, const int side)
{
#ifdef GPU_DEVICE
    const int lane = gpu_tx() % 32, i = lane / 8;
    const uint32_t *const from = tile + half_place(row + (side == GEMM_A ? i % 2 : i / 2) * 8 + lane % 8) + word +
                                 (side == GEMM_A ? i / 2 : i % 2) * 4;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(block[0]), "=r"(block[1]), "=r"(block[2]), "=r"(block[3])
                 : "r"(gpu_address(from)));
#else
    for (int i = 0; i < 4; i++) {
        block[i] = tile[half_place(row + (side == GEMM_A ? i % 2 : i / 2) * 8 + gpu_tx() % 32 / 4) + word +
                        (side == GEMM_A ? i / 2 : i % 2) * 4 + gpu_tx() % 4];
    }
#endif
}

/* 16 bytes of a tile at once. */
GPU_FN void half_store(uint32_t *to, gpu_quad quad)
{
#ifdef GPU_DEVICE
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};"
                 :
                 : "r"(gpu_address(to)), "r"(quad.word[0]), "r"(quad.word[1]), "r"(quad.word[2]), "r"(quad.word[3])
                 : "memory");
#else
    *(gpu_quad *)to = quad;
#endif
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

/* Row of a task along k: 8 threads that store together have rows whose banks differ by 16, four apart. */
GPU_FN int gemm_row(int task)
{
    return task / 32 * 8 + task / 4 % 2 * 4 + task / 8 % 4;
}

/* A number in three digits: row and column of a tap, and channel; or image, row and column of a place. */
typedef struct gemm_digits {
    int high, middle, low;
} gemm_digits;

GPU_FN gemm_digits gemm_digits_make(int value, int middles, int lows)
{
    gemm_digits d;
    d.low = value % lows;
    d.middle = value / lows % middles;
    d.high = value / lows / middles;
    return d;
}

GPU_FN gemm_digits gemm_digits_add(gemm_digits d, gemm_digits more, int middles, int lows)
{
    d.low += more.low;
    d.middle += more.middle;
    d.high += more.high;
    if (d.low >= lows) {
        d.low -= lows;
        d.middle++;
    }
    if (d.middle >= middles) {
        d.middle -= middles;
        d.high++;
    }
    return d;
}

/* What a thread reads of patches, so that the loop over k has no divisions. On side A image, h, v are those of two rows
 * under the first tap, and k is (tap, channel); on side B k is a place, h and v are of the tap of the row, and image is
 * its channel. */
typedef struct gemm_patches {
    gemm_digits k, depth; /* depth: HALF_DEPTH */
    int middles, lows;
    int image[2], h[2], v[2];
} gemm_patches;

GPU_FN void gemm_patches_row(gemm_patches *p, const tri_gpu_operand *o, const tri_gpu_window *w, int row, int s,
                             const int side)
{
    const int back = o->source == TRI_GPU_PATCHES_DY;
    if (side == GEMM_B) {
        const gemm_digits d = gemm_digits_make(row, w->kernel[1], gemm_each(o, w));
        p->image[s] = d.low;
        p->h[s] = d.high * w->dilation[0] - w->pad[0];
        p->v[s] = d.middle * w->dilation[1] - w->pad[1];
    } else {
        const gemm_digits d = gemm_digits_make(row, back ? w->in[0] : w->out[0], back ? w->in[1] : w->out[1]);
        p->image[s] = d.high;
        p->h[s] = back ? d.middle + w->pad[0] : d.middle * w->stride[0] - w->pad[0];
        p->v[s] = back ? d.low + w->pad[1] : d.low * w->stride[1] - w->pad[1];
    }
}

/* Rows from `first` on, k from k0 on: as gemm_load() has them. */
GPU_FN gemm_patches gemm_patches_make(const tri_gpu_operand *o, const tri_gpu_window *w, int first, int k0,
                                      const int side)
{
    gemm_patches p;
    __builtin_memset(&p, 0, sizeof p);
    if (o->source == TRI_GPU_PLAIN || !o->eights) {
        return p;
    }
    p.middles = side == GEMM_B ? w->out[0] : w->kernel[1];
    p.lows = side == GEMM_B ? w->out[1] : gemm_each(o, w);
    p.depth = gemm_digits_make(HALF_DEPTH, p.middles, p.lows);
    p.k = gemm_digits_make(k0 + (side == GEMM_B ? gpu_tx() % 16 * 2 : gpu_tx() % 4 * 8), p.middles, p.lows);
    if (side == GEMM_B) {
        gemm_patches_row(&p, o, w, first + gpu_tx() / 16 * 8, 0, side);
    } else {
        gemm_patches_row(&p, o, w, first + gemm_row(gpu_tx()), 0, side);
        gemm_patches_row(&p, o, w, first + gemm_row(gpu_tx() + gpu_nx()), 1, side);
    }
    return p;
}

/* Side A: of row s; side B: of place k + s. */
GPU_FN int gemm_patches_at(const gemm_patches *p, const tri_gpu_operand *o, const tri_gpu_window *w, int s,
                           const int side)
{
    const gemm_digits one = {0, 0, 1},
                      k = side == GEMM_B && s > 0 ? gemm_digits_add(p->k, one, p->middles, p->lows) : p->k;
    int at;
    if (side == GEMM_B) {
        at = gemm_x(w, k.high, p->h[0] + k.middle * w->stride[0], p->v[0] + k.low * w->stride[1]);
        return at < 0 ? at : at + p->image[0];
    }
    const int h = k.high * w->dilation[0], v = k.middle * w->dilation[1];
    at = o->source == TRI_GPU_PATCHES_DY ? gemm_y(w, p->image[s], p->h[s] - h, p->v[s] - v)
                                         : gemm_x(w, p->image[s], p->h[s] + h, p->v[s] + v);
    return at < 0 ? at : at + k.low;
}

/* 8 elements along k, or along rows, from (row, k) on; s: as gemm_patches_at() has it. */
GPU_FN void gemm_read_at(gpu_quad quad[2], const tri_gpu_operand *o, const tri_gpu_window *w, const gemm_patches *p,
                         int64_t base, int row, int k, int inside, int s, const int side)
{
    int64_t at = 0;
    if (side == GEMM_PLAIN || o->source == TRI_GPU_PLAIN) {
        at = base + (int64_t)row * o->row + (int64_t)k * o->column;
    } else if (inside) {
        const int place = gemm_patches_at(p, o, w, s, side);
        inside = place >= 0;
        at = base + place;
    }
    gemm_read(quad, o->value, at, inside);
}

/* p: NULL on side GEMM_PLAIN; k of patches is that of p. */
GPU_FN void gemm_load(gemm_part *part, const tri_gpu_operand *o, const tri_gpu_window *w, const gemm_patches *p,
                      int64_t base, int first, int rows, int k0, int end, const int side)
{
    if (gemm_along_k(o, side)) { /* 8 elements along k of two rows */
        GPU_UNROLL
        for (int s = 0; s < 2; s++) {
            const int task = gpu_tx() + s * gpu_nx(), row = first + gemm_row(task), k = k0 + task % 4 * 8;
            gemm_read_at(part->quad + 2 * s, o, w, p, base, row, k, row < rows && k < end, s, side);
        }
    } else { /* 8 rows of two neighbours along k */
        GPU_UNROLL
        for (int s = 0; s < 2; s++) {
            const int row = first + gpu_tx() / 16 * 8, k = k0 + gpu_tx() % 16 * 2 + s;
            gemm_read_at(part->quad + 2 * s, o, w, p, base, row, k, row < rows && k < end, s, side);
        }
    }
}

/* Element e of 8, in 16 bits, from f32 or from as many bits. */
GPU_FN uint32_t gemm_half_of(const gpu_quad quad[2], const int source, const int type, const int e)
{
    return source == TRI_GPU_F32 ? gpu_to_half(gpu_float(quad[e / 4].word[e % 4]), type)
                                 : quad[0].word[e / 2] >> (e % 2 * 16) & 0xffffu;
}

/* 8 elements along k of two rows. */
GPU_FN void gemm_keep_rows(const gemm_part *part, uint32_t *tile, const int source, const int type)
{
    GPU_UNROLL
    for (int s = 0; s < 2; s++) {
        const int task = gpu_tx() + s * gpu_nx();
        gpu_quad pairs = part->quad[2 * s];
        GPU_UNROLL
        for (int w = 0; w < 4 && source == TRI_GPU_F32; w++) {
            pairs.word[w] = gemm_half_of(part->quad + 2 * s, source, type, 2 * w) |
                            gemm_half_of(part->quad + 2 * s, source, type, 2 * w + 1) << 16;
        }
        half_store(tile + half_place(gemm_row(task)) + task % 4 * 4, pairs);
    }
}

/* 8 rows of two neighbours along k. */
GPU_FN void gemm_keep_columns(const gemm_part *part, uint32_t *tile, const int source, const int type)
{
    uint32_t *const words = tile + half_place(gpu_tx() / 16 * 8) + gpu_tx() % 16;
    GPU_UNROLL
    for (int e = 0; e < 8; e++) {
        words[e * HALF_STRIDE] =
            gemm_half_of(part->quad, source, type, e) | gemm_half_of(part->quad + 2, source, type, e) << 16;
    }
}

GPU_FN void gemm_keep_as(const gemm_part *part, const tri_gpu_operand *o, uint32_t *tile, const int source,
                         const int type, const int side)
{
    if (gemm_along_k(o, side)) {
        gemm_keep_rows(part, tile, source, type);
    } else {
        gemm_keep_columns(part, tile, source, type);
    }
}

/* What was loaded becomes a tile. */
GPU_FN void gemm_keep(const gemm_part *part, const tri_gpu_operand *o, uint32_t *tile, int type, const int side)
{
    if (o->value.type != TRI_GPU_F32) {
        gemm_keep_as(part, o, tile, TRI_GPU_BF16, TRI_GPU_BF16, side); /* as it is */
    } else if (type == TRI_GPU_BF16) {
        gemm_keep_as(part, o, tile, TRI_GPU_F32, TRI_GPU_BF16, side);
    } else {
        gemm_keep_as(part, o, tile, TRI_GPU_F32, TRI_GPU_F16, side);
    }
}

/* --- sums --- */

/* Where this product of the batch goes, and its bias or NULL; with one there are no chunks. */
typedef struct gemm_out {
    int64_t base;
    const float *bias;
} gemm_out;

GPU_FN gemm_out gemm_out_make(const tri_gpu_gemm_args *a)
{
    gemm_out out;
    out.base = gemm_base_c(a);
    out.bias = a->bias != 0 ? a->bias + gpu_bz() % a->groups * a->n : 0;
    return out;
}

/* What element (i, j) of c becomes, which lies at `at`. */
GPU_FN float gemm_value(const tri_gpu_gemm_args *a, gemm_out out, int64_t at, int j, float v)
{
    if (out.bias != 0) {
        v += out.bias[j];
    }
    if (a->adds) {
        v += gpu_load(a->c.value, at);
    }
    return a->relu && v < 0.0f ? 0.0f : v;
}

/* Where element (i, j) lies; side: GEMM_PLAIN, or GEMM_A: c may be PATCHES_DW. */
GPU_FN int64_t gemm_place_c(const tri_gpu_gemm_args *a, gemm_out out, int i, int j, const int side)
{
    int64_t column = (int64_t)j * a->c.column;
    if (side != GEMM_PLAIN && a->c.source == TRI_GPU_PATCHES_DW) {
        const int channels = a->w.channels / a->groups, taps = a->w.kernel[0] * a->w.kernel[1];
        column = j % channels * taps + j / channels;
    }
    return out.base + (int64_t)i * a->c.row + column;
}

GPU_FN void gemm_write(const tri_gpu_gemm_args *a, gemm_out out, int i, int j, float v)
{
    if (i < a->m && j < a->n) {
        const int64_t at = gemm_place_c(a, out, i, j, GEMM_A);
        gpu_store(a->c.value, at, gemm_value(a, out, at, j, v));
    }
}

/* (i, j) and (i, j + 1); where c has no pairs it may have the first alone. */
GPU_FN void gemm_write_pair(const tri_gpu_gemm_args *a, gemm_out out, int i, int j, const float v[2], const int side)
{
    if (i >= a->m || j >= a->n) {
        return;
    }
    if (!a->c.pairs) {
        GPU_ROLLED
        for (int k = 0; k < 2 && j + k < a->n; k++) {
            const int64_t one = gemm_place_c(a, out, i, j + k, side);
            gpu_store(a->c.value, one, gemm_value(a, out, one, j + k, k == 0 ? v[0] : v[1]));
        }
        return;
    }
    const int64_t at = gemm_place_c(a, out, i, j, side);
    const float first = gemm_value(a, out, at, j, v[0]), second = gemm_value(a, out, at + 1, j + 1, v[1]);
    if (a->c.value.type == TRI_GPU_F32) {
        *(gpu_four *)((float *)a->c.value.data + at) = (uint64_t)gpu_bits(first) | (uint64_t)gpu_bits(second) << 32;
    } else {
        *(gpu_two *)((uint16_t *)a->c.value.data + at) = gpu_pair(first, second, a->c.value.type);
    }
}

#endif
