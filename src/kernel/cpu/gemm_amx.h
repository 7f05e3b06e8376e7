/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_amx.h: how gemm_amx.c and gemm_amx_tree.c use the processor's tiles: four hold 32 x 32 sums, two hold rows of A
 * and two columns of B. For files compiled with -mamx-tile -mamx-bf16 and AVX512_BF16.
 */
#ifndef TRI_KERNEL_CPU_GEMM_AMX_H
#define TRI_KERNEL_CPU_GEMM_AMX_H

#include <immintrin.h>
#include <string.h>

#include "kernel/cpu/gemm_half.h"

#define MR     TRI_GEMM_HALF_MR
#define NR     TRI_GEMM_MAX_NR
#define DEPTH  16 /* pairs of a step; also rows and columns of a tile */
#define INLINE static inline __attribute__((always_inline))
/* What was stored is in memory before a tile is loaded from there: compilers do not see that tiles read it. */
#define memory_written() __asm__ volatile("" ::: "memory")

_Static_assert(MR == 2 * DEPTH && NR == 2 * DEPTH, "two tiles each way");

/* Sums are tiles 0 and 1, below them 2 and 3 where a tile is tall; rows 4 and 5, columns 6 and 7. */
INLINE void sums_zero(const bool tall)
{
    _tile_zero(0);
    _tile_zero(1);
    if (tall) {
        _tile_zero(2);
        _tile_zero(3);
    }
}

INLINE void sums_load(const bool tall, const float *c, int64_t stride)
{
    memory_written();
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + DEPTH, stride);
    if (tall) {
        _tile_loadd(2, (const char *)c + DEPTH * stride, stride);
        _tile_loadd(3, (const char *)(c + DEPTH) + DEPTH * stride, stride);
    }
}

INLINE void sums_store(const bool tall, float *c, int64_t stride)
{
    _tile_stored(0, c, stride);
    _tile_stored(1, c + DEPTH, stride);
    if (tall) {
        _tile_stored(2, (char *)c + DEPTH * stride, stride);
        _tile_stored(3, (char *)(c + DEPTH) + DEPTH * stride, stride);
    }
}

/* 16 pairs of k: rows a_stride bytes apart, pairs of columns b_stride. */
INLINE void step(const bool tall, const void *a, int64_t a_stride, const float *b, int64_t b_stride)
{
    _tile_loadd(6, b, b_stride);
    _tile_loadd(7, b + DEPTH, b_stride);
    _tile_loadd(4, a, a_stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (tall) {
        _tile_loadd(5, (const char *)a + DEPTH * a_stride, a_stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* The last `count` of its pairs are missing. */
INLINE const float *columns_filled(float (*to)[NR], const float *b, int64_t b_step, int64_t count)
{
    for (int64_t l = 0; l < count; l++) {
        memcpy(to[l], b + l * b_step, sizeof to[l]);
    }
    memset(to[count], 0, (size_t)(DEPTH - count) * sizeof to[0]);
    memory_written();
    return to[0];
}

/* The first n of 16 columns. */
INLINE __mmask16 first_columns(int n)
{
    return (__mmask16)(n >= DEPTH ? 0xffffu : n > 0 ? (1u << n) - 1 : 0u);
}

/* gemm_amx_tree.c: rows of tri_gemm_amx. */
void tri_gemm_amx_outer(int m, int n, const tri_gemm_walk *walk, const float *a, const float *b, float *c,
                        unsigned flags, const tri_gemm_close *close);
void tri_gemm_amx_column(const tri_gemm_column *column);
void tri_gemm_amx_pack_rows(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count,
                            int64_t step);
void tri_gemm_amx_pack_columns(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count,
                               int64_t step);
void tri_gemm_amx_turn(float *to, const float *from, int64_t from_step, int64_t k, int64_t m);

#endif
