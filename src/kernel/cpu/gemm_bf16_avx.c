/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_bf16_avx.c: the tiles of gemm.h over pairs of bf16 for AVX2 with FMA: 4 x 16. Compiled with -mavx2 -mfma. A pair
 * is two multiply-adds in f32, the lower element first.
 */
#include <immintrin.h>

#include "tensor/half.h"

typedef __m256 vec;
#define GEMM_OPS             tri_gemm_bf16_avx
#define GEMM_NAME            "avx2"
#define MR                   4
#define ROWS_TO_MR           ROWS_TO_4
#define NV                   2
#define LANES                8
#define vec_zero()           _mm256_setzero_ps()
#define vec_all(x)           _mm256_set1_ps(x)
#define vec_load(p)          _mm256_loadu_ps(p)
#define vec_store(p, v)      _mm256_storeu_ps(p, v)
#define vec_low(v)           _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 16))
#define vec_high(v)          _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000u)))
#define vec_fma(a, b, c)     _mm256_fmadd_ps(vec_high(a), vec_high(b), _mm256_fmadd_ps(vec_low(a), vec_low(b), c))
#define vec_add(a, b)        _mm256_add_ps(a, b)
#define vec_max(a, b)        _mm256_max_ps(b, a) /* keeps a NaN of a */
#define vec_store_half(p, v) vec_round_to(p, v)

static inline void vec_round_to(uint16_t *p, vec v)
{
    float x[LANES];
    vec_store(x, v);
    for (int i = 0; i < LANES; i++) {
        p[i] = half_to_bf16(x[i]);
    }
}
#include "kernel/cpu/gemm.tmpl.h"
