/* SPDX-License-Identifier: Apache-2.0
 *
 * vector_math.h: exp, tanh, sigmoid in f32 as straight lines of code that compilers turn into vectors; within 2 ulp.
 *
 * Range reduction and polynomials after Cephes (Moshier, expf and tanhf). NaN stays NaN; exp saturates at e^-87 and
 * e^88.3 (no branch, and nothing here needs an exact zero or infinity).
 */
#ifndef TRI_KERNEL_CPU_VECTOR_MATH_H
#define TRI_KERNEL_CPU_VECTOR_MATH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* condition ? a : b without a branch, whatever the compiler thinks of it. */
static inline float tri_choose(bool condition, float a, float b)
{
    uint32_t x, y;
    float chosen;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    const uint32_t mask = 0u - (uint32_t)condition;
    x = (x & mask) | (y & ~mask);
    memcpy(&chosen, &x, sizeof chosen);
    return chosen;
}

static inline float tri_exp(float x)
{
    const float low = -87.0f, high = 88.3f; /* results are normal numbers in between */
    const float in = tri_choose(x > high, high, tri_choose(x < low, low, x));
    const float shifted = in * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the rounded integer */
    const float n = shifted - 12582912.0f;
    const float r = (in - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits, scale;
    memcpy(&bits, &shifted, sizeof bits);
    scale = (bits - 0x4b400000u + 127u) << 23;
    float power;
    memcpy(&power, &scale, sizeof power);
    return p * power;
}

static inline float tri_sigmoid(float x)
{
    return 1.0f / (1.0f + tri_exp(-x));
}

#define TRI_GELU_ROOT 0.7978845608f
#define TRI_GELU_CUBE 0.044715f

/* Of gelu in its tanh form: x sigmoid(2u), u the argument of the usual tanh: the same function. */
static inline float tri_gelu_gate(float x)
{
    return tri_sigmoid(2.0f * TRI_GELU_ROOT * (x + TRI_GELU_CUBE * x * x * x));
}

static inline float tri_gelu_slope(float x)
{
    const float gate = tri_gelu_gate(x);
    return gate + x * gate * (1.0f - gate) * 2.0f * TRI_GELU_ROOT * (1.0f + 3.0f * TRI_GELU_CUBE * x * x);
}

static inline float tri_tanh(float x)
{
    const float z = fabsf(x), s = x * x;
    float p = -5.70498872745e-3f;
    p = p * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    const float near = p * s * x + x;
    const float far = 1.0f - 2.0f / (tri_exp(2.0f * z) + 1.0f);
    return tri_choose(z < 0.625f, near, copysignf(far, x));
}

#endif
