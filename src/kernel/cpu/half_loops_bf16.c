/* SPDX-License-Identifier: Apache-2.0
 *
 * half_loops_bf16.c: the loops of half_loops.h in the instructions of AVX512_BF16. Compiled with -mavx512bf16 and the
 * sets it is on.
 *
 * exp is 2^n times a polynomial on [-1/2, 1/2] (relative error 1e-7), between 2^-150 and 2^150; NaN stays NaN. A row's
 * last, shorter vector runs the same code under a mask.
 */
#include <immintrin.h>
#include <math.h>

#include "kernel/cpu/half_loops.h"
#include "kernel/cpu/vector_math.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES  16
#define ALL    ((__mmask16)0xffff)
#define LOG2_E 1.44269504f
/* Elements of each stream that are asked for ahead: the processor's own guesses end with each page. */
#define AHEAD 1024

/* Lanes of the vector that begins at i. */
INLINE __mmask16 lanes_of(int64_t count, int64_t i)
{
    if (count - i >= LANES) {
        return ALL;
    }
    if (count <= i) {
        return 0;
    }
    return (__mmask16)((1u << (count - i)) - 1);
}

INLINE __m512 widen(__m256i half)
{
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

INLINE __m512 take(const uint16_t *p, __mmask16 lanes)
{
    return widen(_mm256_maskz_loadu_epi16(lanes, p));
}

INLINE __m256i rounded(__m512 x)
{
    return (__m256i)_mm512_cvtneps_pbh(x);
}

INLINE void put(uint16_t *p, __m512 x, __mmask16 lanes)
{
    _mm256_mask_storeu_epi16(p, lanes, rounded(x));
}

/* Pairs of the elements of two vectors. */
INLINE __m512i pairs_of(__m256i low, __m256i high)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

/* 2^t */
INLINE __m512 power_of_two(__m512 t)
{
    const __m512 in = _mm512_min_ps(_mm512_set1_ps(150), _mm512_max_ps(_mm512_set1_ps(-150), t));
    const __m512 n = _mm512_roundscale_ps(in, 0), f = _mm512_sub_ps(in, n);
    __m512 p = _mm512_set1_ps(1.32764718e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.67554133e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55071327e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40221197e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93146967e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.00000007f));
    return _mm512_scalef_ps(p, n);
}

static void scale_row(uint16_t *to, const float *from, float factor, int64_t count)
{
    const __m512 by = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        put(to + i, _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, from + i), by), lanes);
    }
}

static void blend_row(uint16_t *x, float factor, float shift, int64_t count)
{
    const __m512 by = _mm512_set1_ps(factor), more = _mm512_set1_ps(shift);
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        put(x + i, _mm512_fmadd_ps(take(x + i, lanes), by, more), lanes);
    }
}

static void add_row(float *sum, const uint16_t *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        _mm512_mask_storeu_ps(sum + i, lanes, _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, sum + i), take(x + i, lanes)));
    }
}

/* --- packing --- */

static void pair_floats(uint32_t *to, const float *low, const float *high, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        const __m256i first = rounded(_mm512_maskz_loadu_ps(lanes, low + i));
        const __m256i second = high != NULL ? rounded(_mm512_maskz_loadu_ps(lanes, high + i)) : _mm256_setzero_si256();
        _mm512_mask_storeu_epi32(to + i, lanes, pairs_of(first, second));
    }
}

/* Transposes 16 x 16: neighbours, pairs, fours, then eights change places. */
INLINE void turn(__m512i x[LANES])
{
    __m512i y[LANES];
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
        }
    }
    for (int i = 0; i < LANES; i += 8) {
        for (int j = 0; j < 4; j++) {
            y[i + j] = _mm512_shuffle_i32x4(x[i + j], x[i + j + 4], 0x88);
            y[i + j + 4] = _mm512_shuffle_i32x4(x[i + j], x[i + j + 4], 0xdd);
        }
    }
    for (int j = 0; j < 8; j++) {
        x[j] = _mm512_shuffle_i32x4(y[j], y[j + 8], 0x88);
        x[j + 8] = _mm512_shuffle_i32x4(y[j], y[j + 8], 0xdd);
    }
}

/* 16 columns, 32 elements of k at a time. */
static void turn_columns(uint32_t *to, const float *src, int64_t k, int64_t count, int64_t n_step, int64_t nr)
{
    for (int64_t i = 0; i < k; i += 2 * LANES) {
        const __mmask16 low = lanes_of(k, i), high = lanes_of(k, i + LANES);
        __m512i block[LANES];
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++) {
            const float *row = src + (j < count ? j : 0) * n_step + i;
            const __mmask16 here = j < count ? ALL : 0;
            _mm_prefetch((const char *)(row + 8 * LANES), _MM_HINT_T0);
            _mm_prefetch((const char *)(row + 9 * LANES), _MM_HINT_T0);
            block[j] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high & here, row + LANES),
                                                    _mm512_maskz_loadu_ps(low & here, row));
        }
        turn(block);
        const int64_t pairs = tri_int64_min(LANES, (k - i + 1) / 2);
        if (pairs == LANES) {
#pragma GCC unroll 16
            for (int p = 0; p < LANES; p++) {
                _mm512_storeu_si512(to + (i / 2 + p) * nr, block[p]);
            }
            continue;
        }
        for (int64_t p = 0; p < pairs; p++) {
            _mm512_storeu_si512(to + (i / 2 + p) * nr, block[p]);
        }
    }
}

static void turn_floats(uint32_t *to, const float *src, int64_t k, int64_t count, int64_t n_step, int64_t nr)
{
    if (nr % LANES != 0) { /* panels of another instruction set */
        tri_half_loops_plain.turn_floats(to, src, k, count, n_step, nr);
        return;
    }
    for (int64_t j = 0; j < nr; j += LANES) {
        turn_columns(to + j, src + (j < count ? j : 0) * n_step, k, tri_int64_max(0, count - j), n_step, nr);
    }
}

INLINE void parts_of_twelve(uint32_t *to, const uint16_t *low, const uint16_t *high, int64_t step, int64_t parts)
{
    for (int64_t part = 0; part < parts; part++, to += step, low += 12, high += 12) {
        const __m256i first = _mm256_maskz_loadu_epi16(0xfff, low), second = _mm256_maskz_loadu_epi16(0xfff, high);
        const __m512i pairs = pairs_of(first, second);
        _mm256_storeu_si256((__m256i *)(void *)to, _mm512_castsi512_si256(pairs));
        _mm_storeu_si128((__m128i *)(void *)(to + 8), _mm512_extracti32x4_epi32(pairs, 2));
    }
}

static void pair_parts(uint32_t *to, const uint16_t *low, const uint16_t *high, int64_t step, int64_t count,
                       int64_t width)
{
    if (width == 12) {
        parts_of_twelve(to, low, high, step, count / width);
        return;
    }
    for (int64_t part = 0; part < count / width; part++, to += step, low += width, high += width) {
        for (int64_t i = 0; i < width; i += LANES) {
            const __mmask16 lanes = lanes_of(width, i);
            _mm512_mask_storeu_epi32(
                to + i, lanes,
                pairs_of(_mm256_maskz_loadu_epi16(lanes, low + i), _mm256_maskz_loadu_epi16(lanes, high + i)));
        }
    }
}

/* --- attention --- */

static float top_of(const float *x, int64_t count)
{
    __m512 top = _mm512_set1_ps(x[0]);
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        top = _mm512_mask_max_ps(top, lanes, _mm512_maskz_loadu_ps(lanes, x + i), top);
    }
    return _mm512_reduce_max_ps(top);
}

static float weights_row(uint16_t *w, const float *s, float scale, float top, int64_t valid, int64_t count)
{
    const __m512 by = _mm512_set1_ps(scale * LOG2_E), base = _mm512_set1_ps(top * LOG2_E);
    __m512 sum = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i < valid; i += LANES) {
        const __m512 e = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(s + i), by, base));
        const __m512 kept = _mm512_maskz_mov_ps(lanes_of(valid, i), e);
        sum = _mm512_add_ps(sum, kept);
        put(w + i, kept, ALL);
    }
    for (; i < count; i += LANES) {
        put(w + i, _mm512_setzero_ps(), ALL);
    }
    return _mm512_reduce_add_ps(sum);
}

/* Weight and gradient of the score of one vector of one row. */
INLINE void back_of(const float *s, const float *d, float scale, float log_sum, float mean, __mmask16 lanes, __m256i *p,
                    __m256i *ds)
{
    const __m512 t =
        _mm512_fmsub_ps(_mm512_loadu_ps(s), _mm512_set1_ps(scale * LOG2_E), _mm512_set1_ps(log_sum * LOG2_E));
    const __m512 weight = _mm512_maskz_mov_ps(lanes, power_of_two(t));
    const __m512 lean = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(d), _mm512_set1_ps(mean)), _mm512_set1_ps(scale));
    *p = rounded(weight);
    *ds = rounded(_mm512_maskz_mul_ps(lanes, weight, lean));
}

static void weights_back(const tri_half_rows *v)
{
    const int64_t next = v->stride, end = tri_int64_max(v->valid[0], v->valid[1]);
    int64_t i = 0;
    for (; i < end; i += LANES) {
        __m256i p[2], ds[2];
        for (int r = 0; r < 2; r++) {
            back_of(v->s + r * next + i, v->d + r * next + i, v->scale, v->log_sum[r], v->mean[r],
                    lanes_of(v->valid[r], i), &p[r], &ds[r]);
            _mm256_storeu_si256((__m256i *)(void *)(v->ds + r * next + i), ds[r]);
        }
        _mm512_storeu_si512(v->p_pairs + i, pairs_of(p[0], p[1]));
        _mm512_storeu_si512(v->ds_pairs + i, pairs_of(ds[0], ds[1]));
    }
    for (; i < v->count; i += LANES) {
        _mm512_storeu_si512(v->p_pairs + i, _mm512_setzero_si512());
        _mm512_storeu_si512(v->ds_pairs + i, _mm512_setzero_si512());
        _mm256_storeu_si256((__m256i *)(void *)(v->ds + i), _mm256_setzero_si256());
        _mm256_storeu_si256((__m256i *)(void *)(v->ds + next + i), _mm256_setzero_si256());
    }
}

static float product(const uint16_t *a, const uint16_t *b, int64_t count)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        sum = _mm512_fmadd_ps(take(a + i, lanes), take(b + i, lanes), sum);
    }
    return _mm512_reduce_add_ps(sum);
}

/* --- gelu: x sigmoid(2u), u the argument of the usual tanh --- */

/* sigmoid(2u), square: x x */
INLINE __m512 gelu_gate(__m512 x, __m512 square)
{
    const __m512 one = _mm512_set1_ps(1);
    const __m512 rise = _mm512_fmadd_ps(square, _mm512_set1_ps(-2 * LOG2_E * TRI_GELU_ROOT * TRI_GELU_CUBE),
                                        _mm512_set1_ps(-2 * LOG2_E * TRI_GELU_ROOT));
    return _mm512_div_ps(one, _mm512_add_ps(one, power_of_two(_mm512_mul_ps(x, rise))));
}

static void gelu(uint16_t *y, const uint16_t *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        _mm_prefetch((const char *)(x + i + AHEAD), _MM_HINT_T0);
        const __mmask16 lanes = lanes_of(count, i);
        const __m512 in = take(x + i, lanes);
        put(y + i, _mm512_mul_ps(in, gelu_gate(in, _mm512_mul_ps(in, in))), lanes);
    }
}

static void gelu_back(uint16_t *dx, const uint16_t *x, const uint16_t *dy, int64_t count)
{
    const __m512 one = _mm512_set1_ps(1);
    for (int64_t i = 0; i < count; i += LANES) {
        _mm_prefetch((const char *)(x + i + AHEAD), _MM_HINT_T0);
        _mm_prefetch((const char *)(dy + i + AHEAD), _MM_HINT_T0);
        const __mmask16 lanes = lanes_of(count, i);
        const __m512 in = take(x + i, lanes), square = _mm512_mul_ps(in, in), gate = gelu_gate(in, square);
        const __m512 rise = _mm512_fmadd_ps(square, _mm512_set1_ps(6 * TRI_GELU_ROOT * TRI_GELU_CUBE),
                                            _mm512_set1_ps(2 * TRI_GELU_ROOT));
        const __m512 bend = _mm512_mul_ps(_mm512_mul_ps(in, gate), _mm512_mul_ps(_mm512_sub_ps(one, gate), rise));
        put(dx + i, _mm512_mul_ps(take(dy + i, lanes), _mm512_add_ps(gate, bend)), lanes);
    }
}

/* --- layer_norm --- */

static void norm(uint16_t *y, const uint16_t *x, const float *scale, const float *shift, float epsilon, float *figures,
                 int64_t count)
{
    __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i += LANES) {
        sum = _mm512_add_ps(sum, take(x + i, lanes_of(count, i)));
    }
    const float mean = _mm512_reduce_add_ps(sum) / (float)count;
    const __m512 middle = _mm512_set1_ps(mean);
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        const __m512 off = _mm512_maskz_sub_ps(lanes, take(x + i, lanes), middle);
        squares = _mm512_fmadd_ps(off, off, squares);
    }
    const float rstd = 1.0f / sqrtf(_mm512_reduce_add_ps(squares) / (float)count + epsilon);
    const __m512 narrow = _mm512_set1_ps(rstd);
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        const __m512 standard = _mm512_mul_ps(_mm512_sub_ps(take(x + i, lanes), middle), narrow);
        put(y + i,
            _mm512_fmadd_ps(standard, _mm512_maskz_loadu_ps(lanes, scale + i), _mm512_maskz_loadu_ps(lanes, shift + i)),
            lanes);
    }
    figures[0] = mean;
    figures[1] = rstd;
}

static void norm_back(uint16_t *dx, float *dscale, float *dshift, const uint16_t *dy, const uint16_t *x,
                      const float *scale, const float *figures, int64_t count)
{
    const __m512 mean = _mm512_set1_ps(figures[0]), rstd = _mm512_set1_ps(figures[1]);
    __m512 base = _mm512_setzero_ps(), lean = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        const __m512 g = take(dy + i, lanes), standard = _mm512_mul_ps(_mm512_sub_ps(take(x + i, lanes), mean), rstd);
        const __m512 scaled = _mm512_mul_ps(g, _mm512_maskz_loadu_ps(lanes, scale + i));
        base = _mm512_add_ps(base, scaled);
        lean = _mm512_fmadd_ps(scaled, standard, lean);
        _mm512_mask_storeu_ps(dscale + i, lanes,
                              _mm512_fmadd_ps(g, standard, _mm512_maskz_loadu_ps(lanes, dscale + i)));
        _mm512_mask_storeu_ps(dshift + i, lanes, _mm512_add_ps(g, _mm512_maskz_loadu_ps(lanes, dshift + i)));
    }
    const __m512 level = _mm512_set1_ps(_mm512_reduce_add_ps(base) / (float)count);
    const __m512 slope = _mm512_set1_ps(_mm512_reduce_add_ps(lean) / (float)count);
    for (int64_t i = 0; dx != NULL && i < count; i += LANES) {
        const __mmask16 lanes = lanes_of(count, i);
        const __m512 standard = _mm512_mul_ps(_mm512_sub_ps(take(x + i, lanes), mean), rstd);
        const __m512 rest = _mm512_fmsub_ps(take(dy + i, lanes), _mm512_maskz_loadu_ps(lanes, scale + i), level);
        put(dx + i, _mm512_mul_ps(rstd, _mm512_fnmadd_ps(standard, slope, rest)), lanes);
    }
}

const tri_half_loops tri_half_loops_bf16 = {
    .name = "avx512_bf16",
    .scale = scale_row,
    .blend = blend_row,
    .add = add_row,
    .pair_floats = pair_floats,
    .turn_floats = turn_floats,
    .pair_parts = pair_parts,
    .top = top_of,
    .weights = weights_row,
    .weights_back = weights_back,
    .product = product,
    .gelu = gelu,
    .gelu_back = gelu_back,
    .norm = norm,
    .norm_back = norm_back,
};
