/* SPDX-License-Identifier: Apache-2.0
 *
 * row_math.h: sums, maxima and exponentials over one row. Sums run in fixed lanes, then a tree over the lanes: the same
 * bits in every instruction set.
 */
#ifndef TRI_KERNEL_CPU_ROW_MATH_H
#define TRI_KERNEL_CPU_ROW_MATH_H

#include "kernel/row.h"

#define TRI_ROW_LANES 16

/* count and the rest of its last lanes. */
static inline int64_t tri_row_whole(int64_t count)
{
    return (count + TRI_ROW_LANES - 1) / TRI_ROW_LANES * TRI_ROW_LANES;
}

static inline float tri_row_lanes_sum(float *lane)
{
    for (int step = TRI_ROW_LANES / 2; step > 0; step /= 2) {
        for (int j = 0; j < step; j++) {
            lane[j] += lane[j + step];
        }
    }
    return lane[0];
}

/* Body of a function of a, b, w, p, count: returns the sum over i of `term`. */
#define TRI_ROW_SUM_BODY(term)                                                                                         \
    float lane[TRI_ROW_LANES] = {0};                                                                                   \
    int64_t first = 0;                                                                                                 \
    for (; first + TRI_ROW_LANES <= count; first += TRI_ROW_LANES) {                                                   \
        for (int j = 0; j < TRI_ROW_LANES; j++) {                                                                      \
            const int64_t i = first + j;                                                                               \
            lane[j] += term;                                                                                           \
        }                                                                                                              \
    }                                                                                                                  \
    for (int j = 0; first + j < count; j++) {                                                                          \
        const int64_t i = first + j;                                                                                   \
        lane[j] += term;                                                                                               \
    }                                                                                                                  \
    return tri_row_lanes_sum(lane);

float tri_row_sum(const float *x, int64_t count);
float tri_row_product(const float *a, const float *b, int64_t count);
/* The largest; NaN never wins, unless it comes first. */
float tri_row_max(const float *x, int64_t count);
/* x = x factor */
void tri_row_scale(float *x, float factor, int64_t count);
/* y = exp(x - top) scale */
void tri_row_exp(float *y, const float *x, float top, float scale, int64_t count);
/* Sum of exp(x - top). */
float tri_row_exp_sum(const float *x, float top, int64_t count);

#endif
