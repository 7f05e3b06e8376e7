/* SPDX-License-Identifier: Apache-2.0
 *
 * math.h: exp, log, tanh, erf and what activations are made of, in f32, and sine and cosine: the same bits on a GPU and
 * on the host.
 *
 * Range reduction and polynomials, fitted by least squares over Chebyshev points; only operations that IEEE 754 rounds.
 */
#ifndef TRI_KERNEL_GPU_MATH_H
#define TRI_KERNEL_GPU_MATH_H

#include "kernel/gpu/gpu.h"

GPU_FN float gpu_abs(float x)
{
    return gpu_float(gpu_bits(x) & 0x7fffffffu);
}

/* |x| with the sign of s. */
GPU_FN float gpu_sign(float x, float s)
{
    return gpu_float((gpu_bits(x) & 0x7fffffffu) | (gpu_bits(s) & 0x80000000u));
}

/* 2^n for -126 <= n <= 127. */
GPU_FN float gpu_power(int n)
{
    return gpu_float((uint32_t)(n + 127) << 23);
}

/* Of r in [-ln 2 / 2, ln 2 / 2]. */
GPU_FN float gpu_exp_part(float r)
{
    float p = 1.393364885e-3f;
    p = gpu_fma(p, r, 8.363180122e-3f);
    p = gpu_fma(p, r, 4.166646494e-2f);
    p = gpu_fma(p, r, 1.666657698e-1f);
    p = gpu_fma(p, r, 0.5f);
    return gpu_fma(p * r, r, r) + 1.0f;
}

/* Infinity from 88.73 on, 0 below -103.98. */
GPU_FN float gpu_exp(float x)
{
    const float in = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
    const float shifted = gpu_fma(in, 1.44269504f, 12582912.0f); /* 1.5 * 2^23: its low bits are the rounded integer */
    const float n = shifted - 12582912.0f;
    const float r = gpu_fma(n, 1.904654300e-9f, gpu_fma(n, -0.693147182f, in));
    const float p = gpu_exp_part(r);
    const int power = (int)gpu_bits(shifted) - 0x4b400000, half = power / 2;
    const float y = p * gpu_power(half) * gpu_power(power - half);
    return x != x ? x : y;
}

/* gpu_exp() of x up to 60 in fewer operations, with the same bits: the power of two is a normal number times 2^-33. */
GPU_FN float gpu_exp_below(float x)
{
    const float in = gpu_most(x, -104.0f);
    const float shifted = gpu_fma(in, 1.44269504f, 12583072.0f); /* 1.5 * 2^23 + 127 + 33 */
    const float n = shifted - 12583072.0f;
    const float r = gpu_fma(n, 1.904654300e-9f, gpu_fma(n, -0.693147182f, in));
    const float p = gpu_exp_part(r);
    return p * gpu_float(gpu_bits(shifted) << 23) * 0x1p-33f;
}

/* Of a normal number above 0. */
GPU_FN float gpu_log(float x)
{
    const uint32_t bits = gpu_bits(x) - 0x3f3504f3u; /* of sqrt(1/2): the fraction is from there to sqrt(2) */
    const int power = (int)bits >> 23;
    const float f = gpu_float((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f, n = (float)power;
    float p = 7.147885962e-2f;
    p = gpu_fma(p, f, -1.157070731e-1f);
    p = gpu_fma(p, f, 1.166190270e-1f);
    p = gpu_fma(p, f, -1.241113055e-1f);
    p = gpu_fma(p, f, 1.424990968e-1f);
    p = gpu_fma(p, f, -1.666847672e-1f);
    p = gpu_fma(p, f, 2.000070809e-1f);
    p = gpu_fma(p, f, -2.499998908e-1f);
    p = gpu_fma(p, f, 3.333333119e-1f);
    const float small = gpu_fma(p * f * f, f, n * -1.904654300e-9f) - 0.5f * f * f + f;
    return gpu_fma(n, 0.693147182f, small);
}

/* 1 / x for 1 <= x <= 2^100, rounded. From what a card gives, which is off by a unit at most, one step leads there: so
 * do divisions of nvcc, behind a branch for other numbers. */
#ifdef GPU_DEVICE
GPU_FN float gpu_inverse(float x)
{
    float r;
    asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return gpu_fma(gpu_fma(-x, r, 1.0f), r, r);
}
#else
#define gpu_inverse(x) (1.0f / (x))
#endif

GPU_FN float gpu_tanh(float x)
{
    const float z = gpu_abs(x), s = x * x, in = z > 10.0f ? 10.0f : z; /* it is 1 from 9.02 on */
    float p = 2.272702938e-3f;
    p = gpu_fma(p, s, -8.326400138e-3f);
    p = gpu_fma(p, s, 2.176363283e-2f);
    p = gpu_fma(p, s, -5.395862407e-2f);
    p = gpu_fma(p, s, 1.333330097e-1f);
    p = gpu_fma(p, s, -3.333333316e-1f);
    const float near = gpu_fma(p * s, x, x);
    const float far = gpu_fma(-2.0f, gpu_inverse(gpu_exp_below(2.0f * in) + 1.0f), 1.0f);
    return z < 0.625f ? near : gpu_sign(far, x);
}

GPU_FN float gpu_erf(float x)
{
    const float z = gpu_abs(x), s = x * x, t = z - 2.5f;
    float p = -9.673590926e-6f;
    p = gpu_fma(p, s, 1.126825393e-4f);
    p = gpu_fma(p, s, -8.484396555e-4f);
    p = gpu_fma(p, s, 5.221053413e-3f);
    p = gpu_fma(p, s, -2.686543831e-2f);
    p = gpu_fma(p, s, 1.128378262e-1f);
    p = gpu_fma(p, s, -3.761263848e-1f);
    p = gpu_fma(p, s, 1.128379167f);
    float q = 3.877706414e-7f; /* the logarithm of 1 - erf */
    q = gpu_fma(q, t, -1.946547512e-5f);
    q = gpu_fma(q, t, 6.669407030e-5f);
    q = gpu_fma(q, t, -4.260881551e-4f);
    q = gpu_fma(q, t, 2.167993841e-3f);
    q = gpu_fma(q, t, -1.085445956e-2f);
    q = gpu_fma(q, t, -9.438926431e-1f);
    q = gpu_fma(q, t, -5.352680768f);
    q = gpu_fma(q, t, -7.806815303f);
    const float far = z < 4.0f ? 1.0f - gpu_exp(q) : 1.0f;
    return x != x ? x : z < 1.0f ? p * x : gpu_sign(far, x);
}

GPU_FN float gpu_sigmoid(float x)
{
    return 1.0f / (1.0f + gpu_exp(-x));
}

#define GPU_GELU_ROOT 0.7978845608f /* sqrt(2 / pi) */
#define GPU_GELU_CUBE 0.044715f

/* y = f(x) of the op. */
GPU_FN float gpu_map_value(int op, float x)
{
    switch (op) {
    case TRI_GPU_RELU:
        return x < 0.0f ? 0.0f : x;
    case TRI_GPU_GELU: /* its tanh form */
        return 0.5f * x * (1.0f + gpu_tanh(GPU_GELU_ROOT * (x + GPU_GELU_CUBE * x * x * x)));
    case TRI_GPU_GELU_ERF:
        return 0.5f * x * (1.0f + gpu_erf(x * 0.7071067812f));
    case TRI_GPU_SILU:
        return x * gpu_sigmoid(x);
    case TRI_GPU_TANH:
        return gpu_tanh(x);
    default:
        return gpu_sigmoid(x);
    }
}

/* dy/dx, from y where the op reads that in backward, else from x. */
GPU_FN float gpu_map_slope(int op, float v)
{
    float t;
    switch (op) {
    case TRI_GPU_RELU:
        return v > 0.0f ? 1.0f : 0.0f;
    case TRI_GPU_GELU:
        t = gpu_tanh(GPU_GELU_ROOT * (v + GPU_GELU_CUBE * v * v * v));
        return 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * GPU_GELU_ROOT * (1.0f + 3.0f * GPU_GELU_CUBE * v * v);
    case TRI_GPU_GELU_ERF:
        return 0.5f * (1.0f + gpu_erf(v * 0.7071067812f)) + 0.5f * v * GPU_GELU_ROOT * gpu_exp(-0.5f * v * v);
    case TRI_GPU_SILU:
        t = gpu_sigmoid(v);
        return t * (1.0f + v * (1.0f - t));
    case TRI_GPU_TANH:
        return 1.0f - v * v;
    default:
        return v * (1.0f - v);
    }
}

/* Sine and cosine of an angle in double: quadrants, then Taylor's series up to 2^-53. */
GPU_FN void gpu_turn(double angle, float *cosine, float *sine)
{
    const double shifted = gpu_fma64(angle, 0.63661977236758138, 6755399441055744.0), n = shifted - 6755399441055744.0;
    const double r = gpu_fma64(n, -6.123233995736766e-17, gpu_fma64(n, -1.5707963267948966, angle)), s = r * r;
    double odd = -1.0 / 1307674368000.0, even = 1.0 / 87178291200.0;
    odd = gpu_fma64(odd, s, 1.0 / 6227020800.0);
    odd = gpu_fma64(odd, s, -1.0 / 39916800.0);
    odd = gpu_fma64(odd, s, 1.0 / 362880.0);
    odd = gpu_fma64(odd, s, -1.0 / 5040.0);
    odd = gpu_fma64(odd, s, 1.0 / 120.0);
    odd = gpu_fma64(odd, s, -1.0 / 6.0);
    odd = gpu_fma64(odd * s, r, r);
    even = gpu_fma64(-even, s, 1.0 / 479001600.0);
    even = gpu_fma64(even, s, -1.0 / 3628800.0);
    even = gpu_fma64(even, s, 1.0 / 40320.0);
    even = gpu_fma64(even, s, -1.0 / 720.0);
    even = gpu_fma64(even, s, 1.0 / 24.0);
    even = gpu_fma64(even, s, -0.5);
    even = gpu_fma64(even, s, 1.0);
    const int quadrant = (int)((int64_t)n & 3);
    const double c = quadrant & 1 ? odd : even, d = quadrant & 1 ? even : odd;
    *cosine = (float)(quadrant == 1 || quadrant == 2 ? -c : c);
    *sine = (float)(quadrant >= 2 ? -d : d);
}

#endif
