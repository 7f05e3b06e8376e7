/* SPDX-License-Identifier: Apache-2.0
 *
 * row_math.c: the loops of row_math.h, compiled for several instruction sets.
 */
#include "kernel/cpu/row_math.h"

#include "kernel/cpu/lanes.h"
#include "kernel/cpu/vector_math.h"

TRI_CLONES float tri_row_sum(const float *x, int64_t count){TRI_ROW_SUM_BODY(x[i])}

TRI_CLONES float tri_row_product(const float *a, const float *b, int64_t count){TRI_ROW_SUM_BODY(a[i] * b[i])}

TRI_CLONES void tri_row_scale(float *x, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        x[i] *= factor;
    }
}

/* Compilers do not vectorise a maximum that must not lose order with NaN; vectors say it outright. */
TRI_CLONES float tri_row_max(const float *x, int64_t count)
{
    float top = x[0];
    int64_t first = 0;
    if (count >= TRI_LANES) {
        tri_lanes best, next;
        memcpy(&best, x, sizeof best);
        for (; first + TRI_LANES <= count; first += TRI_LANES) {
            memcpy(&next, x + first, sizeof next);
            const tri_lanes_bits wins = next > best;
            best = (tri_lanes)(((tri_lanes_bits)next & wins) | ((tri_lanes_bits)best & ~wins));
        }
        for (int j = 0; j < TRI_LANES; j++) {
            top = best[j] > top ? best[j] : top;
        }
    }
    for (; first < count; first++) {
        top = x[first] > top ? x[first] : top;
    }
    return top;
}

TRI_CLONES void tri_row_exp(float *y, const float *x, float top, float scale, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        y[i] = tri_exp(x[i] - top) * scale;
    }
}

#define EXP_BLOCK INT64_C(256)

float tri_row_exp_sum(const float *x, float top, int64_t count)
{
    float sum = 0, block[EXP_BLOCK];
    for (int64_t first = 0; first < count; first += EXP_BLOCK) {
        const int64_t n = tri_int64_min(EXP_BLOCK, count - first);
        tri_row_exp(block, x + first, top, 1.0f, n);
        sum += tri_row_sum(block, n);
    }
    return sum;
}
