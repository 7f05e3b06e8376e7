/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_bf16_wide.c: the tiles of gemm.h over pairs of bf16 for AVX-512 without AVX512_BF16: 8 x 32. Compiled with
 * -mavx512f. A pair is two multiply-adds in f32, the lower element first.
 */
#include <immintrin.h>

#include "tensor/half.h"

typedef __m512 vec;
#define GEMM_OPS             tri_gemm_bf16_wide
#define GEMM_NAME            "avx512"
#define MR                   8
#define ROWS_TO_MR           ROWS_TO_8
#define NV                   2
#define LANES                16
#define vec_zero()           _mm512_setzero_ps()
#define vec_all(x)           _mm512_set1_ps(x)
#define vec_load(p)          _mm512_loadu_ps(p)
#define vec_store(p, v)      _mm512_storeu_ps(p, v)
#define vec_low(v)           _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 16))
#define vec_high(v)          _mm512_castsi512_ps(_mm512_and_epi32(_mm512_castps_si512(v), _mm512_set1_epi32((int)0xffff0000u)))
#define vec_fma(a, b, c)     _mm512_fmadd_ps(vec_high(a), vec_high(b), _mm512_fmadd_ps(vec_low(a), vec_low(b), c))
#define vec_add(a, b)        _mm512_add_ps(a, b)
#define vec_max(a, b)        _mm512_max_ps(b, a) /* keeps a NaN of a */
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
