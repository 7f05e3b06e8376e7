/* SPDX-License-Identifier: Apache-2.0
 *
 * half_loops.h: the loops over values in bf16 that are no products: packing, softmax of attention, activations, norms.
 *
 * One set is plain C, as compilers turn it into vectors; the other is written in the instructions of AVX512_BF16, which
 * convert 32 elements at once. Both round to the nearest even; sums run in 16 lanes, then a tree. They agree within
 * rounding, not in every bit: exponentials of the second are a shorter formula. Subnormal numbers become zero there.
 */
#ifndef TRI_KERNEL_CPU_HALF_LOOPS_H
#define TRI_KERNEL_CPU_HALF_LOOPS_H

#include "kernel/row.h"

/* Two neighbouring rows of a block of attention: what weights and gradients of scores are formed from, and where they
 * go. A second row that is not there has no valid places. */
typedef struct tri_half_rows {
    const float *s, *d; /* scores and products of dy with values; row 1 is `stride` behind, and so it is of ds */
    uint16_t *ds;       /* gradients of scores by row */
    uint32_t *p_pairs, *ds_pairs; /* weights and gradients as pairs of the two rows */
    int64_t stride;
    float scale, log_sum[2], mean[2];
    int64_t valid[2], count; /* zeros behind the valid ones, up to count and the end of 16 lanes */
} tri_half_rows;

typedef struct tri_half_loops {
    const char *name;
    /* to[i] = bf16 of from[i] factor */
    void (*scale)(uint16_t *to, const float *from, float factor, int64_t count);
    /* x = x factor + shift */
    void (*blend)(uint16_t *x, float factor, float shift, int64_t count);
    /* sum = sum + x */
    void (*add)(float *sum, const uint16_t *x, int64_t count);
    /* to[i] = the pair of low[i] and high[i] (NULL: zero), rounded. */
    void (*pair_floats)(uint32_t *to, const float *low, const float *high, int64_t count);
    /* to[pair][nr] = pairs along k, rounded, of src[n * n_step + k]; columns from `count` to nr, and an odd last
     * element, are filled up with zeros. */
    void (*turn_floats)(uint32_t *to, const float *src, int64_t k, int64_t count, int64_t n_step, int64_t nr);
    /* to[part * step + i] = the pair of element part * width + i of two rows, for all whole parts. */
    void (*pair_parts)(uint32_t *to, const uint16_t *low, const uint16_t *high, int64_t step, int64_t count,
                       int64_t width);
    /* Largest of x; x is not empty. */
    float (*top)(const float *x, int64_t count);
    /* w = exp(s scale - top) for `valid` of them, zeros up to `count` and the end of its 16 lanes; returns the sum
     * before rounding. Whole lanes of s are read; what is behind the valid ones may be anything. */
    float (*weights)(uint16_t *w, const float *s, float scale, float top, int64_t valid, int64_t count);
    void (*weights_back)(const tri_half_rows *rows);
    /* Sum of a b. */
    float (*product)(const uint16_t *a, const uint16_t *b, int64_t count);
    /* y = gelu(x), its tanh form; dx = dy gelu'(x), which may be dy. */
    void (*gelu)(uint16_t *y, const uint16_t *x, int64_t count);
    void (*gelu_back)(uint16_t *dx, const uint16_t *x, const uint16_t *dy, int64_t count);
    /* One row of layer_norm; figures: mean, 1 / deviation. */
    void (*norm)(uint16_t *y, const uint16_t *x, const float *scale, const float *shift, float epsilon, float *figures,
                 int64_t count);
    /* dscale and dshift grow by this row's part; dx (NULL: not wanted) may be dy. */
    void (*norm_back)(uint16_t *dx, float *dscale, float *dshift, const uint16_t *dy, const uint16_t *x,
                      const float *scale, const float *figures, int64_t count);
} tri_half_loops;

extern const tri_half_loops tri_half_loops_plain;
#ifdef TRI_HAVE_X86
extern const tri_half_loops tri_half_loops_bf16;
#endif
/* The fastest set that this machine has. */
const tri_half_loops *tri_half_loops_find(void);

#endif
