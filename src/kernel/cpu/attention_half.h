/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_half.h: what the two passes of attention over bf16 share: where things are, and products of blocks.
 */
#ifndef TRI_KERNEL_CPU_ATTENTION_HALF_H
#define TRI_KERNEL_CPU_ATTENTION_HALF_H

#include "kernel/cpu/attention.h"
#include "kernel/cpu/gemm_half.h"
#include "kernel/cpu/half_loops.h"

/* Of a block: whole register tiles of rows and of columns in every instruction set; even. */
#define TRI_ATTENTION_HALF_QUERIES 96
#define TRI_ATTENTION_HALF_KEYS    288
#define TRI_ATTENTION_HALF_BLOCK   (INT64_C(96) * 288)

/* One call: sizes, and where the scratch of a thread is, in elements of 32 bits. */
typedef struct tri_attention_half {
    const tri_gemm_ops *ops;
    const tri_half_loops *loops;
    const tri_op_call *call;
    tri_heads h;
    tri_attention_drop drop;
    float scale;        /* of scores: 1 / sqrt(D) */
    int64_t pairs;      /* D / 2 */
    int64_t columns;    /* D rounded up to whole panels */
    int64_t each;       /* of one thread */
    int64_t values;     /* packed keys, at 0, are followed by packed values, and: */
    int64_t elements;   /* backward: keys packed once more, with elements of a head as columns */
    int64_t block;      /* f32: a block of scores; backward one more of products with dy */
    int64_t weights;    /* bf16: the block that places are multiplied with */
    int64_t turned;     /* backward: pairs of rows of weights, then of gradients of scores */
    int64_t rows;       /* backward: pairs of rows of a block of queries, then of dy */
    int64_t mixed;      /* f32: a block of results, [queries][columns] */
    int64_t sums;       /* backward, f32: gradients of keys, then of values, in register tiles */
    int64_t sums_count; /* of one of them */
} tri_attention_half;

void tri_attention_half_make(const tri_op_desc *desc, tri_attention_half *a);
/* Packs the first `count` places of a head for products over D: columns are places. */
void tri_attention_half_pack_places(const tri_attention_half *a, const uint16_t *from, int64_t count, float *packed);
/* The same for products over pairs of places: columns are elements of a head. */
void tri_attention_half_pack_elements(const tri_attention_half *a, const uint16_t *from, int64_t count, float *packed);
/* s[rows][count] = from[rows][D] times the packed places [first, first + count), as far as rows see them. */
void tri_attention_half_scores(const tri_attention_half *a, const uint16_t *from, int64_t stride, int64_t query,
                               int64_t rows, const float *packed, int64_t first, int64_t count, float *s);
/* to[rows][columns] (+)= w[rows][count] times the packed elements of places [first, first + count) of `all`. Row r sees
 * the places up to query + r; w has zeros behind them. */
void tri_attention_half_mix(const tri_attention_half *a, const uint16_t *w, int64_t query, int64_t rows,
                            const float *packed, int64_t all, int64_t first, int64_t count, float *to);

void tri_attention_half_backward(const tri_kernel *kernel, const tri_op_call *call);

#endif
