/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_half.h: products of bf16 with sums in f32, on the tiles of gemm.h: an element there is a pair of bf16,
 * neighbours in k.
 *
 * Each element of a product is one chain over pairs, k ascending, rounded to bf16 once, so rows and columns may be cut
 * anywhere. Where k is odd the last pair is filled up with zero.
 */
#ifndef TRI_KERNEL_CPU_GEMM_HALF_H
#define TRI_KERNEL_CPU_GEMM_HALF_H

#include "kernel/cpu/gemm.h"
#include "kernel/half.h"

#define TRI_GEMM_HALF_MR 32 /* rows of a register tile over pairs, at most */

extern const tri_gemm_ops tri_gemm_bf16_generic;
#ifdef TRI_HAVE_X86
extern const tri_gemm_ops tri_gemm_bf16_avx;
extern const tri_gemm_ops tri_gemm_bf16_wide;
extern const tri_gemm_ops tri_gemm_bf16;
extern const tri_gemm_ops tri_gemm_amx; /* where tri_amx_allowed() */
#endif
/* The fastest set that this machine has. */
const tri_gemm_ops *tri_gemm_half_find(void);
/* That of an instruction set. */
const tri_gemm_ops *tri_gemm_half_of(tri_isa isa);

/* ceil(k / 2) */
static inline int64_t tri_pairs(int64_t k)
{
    return (k + 1) / 2;
}

/* to[ceil(rows / 2)][columns] of pairs of rows of from[rows][columns]; an odd last row is paired with zeros. */
void tri_half_pair(uint32_t *to, const uint16_t *from, int64_t rows, int64_t columns);

/* Packs for one pass over k: to[part * step + pair * width + i] = the pair of element part * width + i of two rows of
 * from, `stride` apart; count elements of a row, the last part filled up with zeros. */
void tri_gemm_half_pass(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count, int64_t width,
                        int64_t step);

/* Panels [n / nr][pairs of k][nr] of pairs, from f32 weights src[k * k_step + n * n_step], one step is 1. */
void tri_gemm_half_pack(const tri_gemm_ops *ops, int threads, uint32_t *packed, const float *src, int64_t k, int64_t n,
                        int64_t k_step, int64_t n_step);

/* c[m][n] = act(a[m][k] packed + bias): rows of a lda apart. lda and the memory behind a row hold k rounded up to even,
 * with zero in the odd place. */
typedef struct tri_gemm_half_call {
    const uint16_t *a;
    const uint32_t *packed;
    const float *bias;
    uint16_t *c;   /* NULL: the result is f32 */
    float *c_wide; /* where c is NULL */
    int64_t m, n, k, lda, ldc;
    bool relu;
    bool add; /* f32 result: the chains continue from what it holds */
} tri_gemm_half_call;
void tri_gemm_half_run(const tri_gemm_ops *ops, int threads, const tri_gemm_half_call *call);

#endif
