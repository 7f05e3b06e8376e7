/* SPDX-License-Identifier: Apache-2.0
 *
 * mma.h: one step of a tensor core as MMA-Sim measured it on Hopper (arXiv 2511.10909): the sum of c and of 16 exact
 * products, aligned to the largest exponent, cut to 25 bits behind its point, added as integers, cut to f32.
 */
#ifndef TRI_TESTS_GPU_MMA_H
#define TRI_TESTS_GPU_MMA_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernel/gpu/args.h"
#include "tensor/half.h"

#define MMA_BITS 25

/* value = mantissa * 2^exponent, |mantissa| below 2^width; mantissa 0: zero. */
typedef struct mma_number {
    int64_t mantissa;
    int exponent;
} mma_number;

/* bits of the fraction, bias of the exponent */
static inline mma_number mma_split(uint32_t bits, int fraction, int bias, int width)
{
    const int power = (int)(bits >> fraction) & ((1 << (width - 1 - fraction)) - 1);
    const int64_t low = (int64_t)(bits & ((1u << fraction) - 1));
    const int64_t mantissa = power > 0 ? low | (INT64_C(1) << fraction) : low;
    return (mma_number){bits >> (width - 1) & 1 ? -mantissa : mantissa, (power > 0 ? power : 1) - bias - fraction};
}

static inline float mma_cut(int64_t sum, int exponent)
{
    if (sum == 0) {
        return 0;
    }
    uint64_t size = sum < 0 ? (uint64_t)-sum : (uint64_t)sum;
    const int extra = 64 - __builtin_clzll(size) - 24; /* bits that f32 has no room for */
    if (extra > 0) {
        size = size >> extra << extra;
    }
    return (float)ldexp(sum < 0 ? -(double)size : (double)size, exponent);
}

/* Sixteen factors, read once for all sums that they are in. */
typedef struct mma_factors {
    mma_number number[16];
    float value[16];
    int fraction;
    bool finite, zero; /* all of them */
} mma_factors;

static inline void mma_read(mma_factors *f, int type, const uint16_t *bits)
{
    const int fraction = type == TRI_GPU_BF16 ? 7 : 10, bias = type == TRI_GPU_BF16 ? 127 : 15;
    f->fraction = fraction;
    f->finite = f->zero = true;
    for (int i = 0; i < 16; i++) {
        f->number[i] = mma_split(bits[i], fraction, bias, 16);
        f->value[i] = type == TRI_GPU_BF16 ? half_from_bf16(bits[i]) : half_from_f16(bits[i]);
        f->finite = f->finite && isfinite(f->value[i]);
        f->zero = f->zero && f->number[i].mantissa == 0;
    }
}

/* c + a b is a NaN, an infinity, or overflows on its way: the result. */
static inline bool mma_is_special(const mma_factors *a, const mma_factors *b, float c, float *result)
{
    float check = c;
    for (int i = 0; i < 16; i++) {
        check += a->value[i] * b->value[i];
    }
    *result = isnan(check) ? half_float(0x7fffffffu) : check;
    return !isfinite(check);
}

static inline float mma_step(const mma_factors *a, const mma_factors *b, float c)
{
    const bool finite = a->finite && b->finite;
    if (finite && isfinite(c) && (a->zero || b->zero)) {
        return c + 0.0f; /* of -0: 0 */
    }
    mma_number term[17];
    int top = -100000;
    for (int i = 0; i < 16; i++) {
        term[i] =
            (mma_number){a->number[i].mantissa * b->number[i].mantissa, a->number[i].exponent + b->number[i].exponent};
        /* Exponents of the factors count, not that of the product. */
        const int exponent = term[i].exponent + 2 * a->fraction;
        top = term[i].mantissa != 0 && exponent > top ? exponent : top;
    }
    term[16] = mma_split(half_bits(c), 23, 127, 32);
    top = term[16].mantissa != 0 && term[16].exponent + 23 > top ? term[16].exponent + 23 : top;
    float special;
    if ((!finite || top >= 120) && mma_is_special(a, b, c, &special)) { /* 17 terms, each below 2^(top + 2) */
        return special;
    }
    int64_t sum = 0;
    for (int i = 0; i < 17; i++) {
        if (term[i].mantissa == 0) {
            continue; /* its exponent counts for nothing, and may be far above top */
        }
        const int shift = term[i].exponent - (top - MMA_BITS);
        const int64_t size = term[i].mantissa < 0 ? -term[i].mantissa : term[i].mantissa;
        const int64_t cut = shift >= 0 ? size << shift : shift > -63 ? size >> -shift : 0;
        sum += term[i].mantissa < 0 ? -cut : cut;
    }
    return mma_cut(sum, top - MMA_BITS);
}

#endif
