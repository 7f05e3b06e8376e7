/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_bf16.c: the tiles of gemm.h over pairs of bf16, for AVX512_BF16: 12 x 32, 24 accumulators. Compiled with
 * -mavx512f -mavx512bf16. An element of 32 bits is a pair of neighbours in k; the instruction flushes subnormal
 * numbers.
 */
#include <immintrin.h>

typedef __m512 vec;
#define GEMM_OPS             tri_gemm_bf16
#define GEMM_NAME            "avx512_bf16"
#define MR                   12
#define ROWS_TO_MR           ROWS_TO_12
#define NV                   2
#define LANES                16
#define vec_zero()           _mm512_setzero_ps()
#define vec_all(x)           _mm512_set1_ps(x)
#define vec_load(p)          _mm512_loadu_ps(p)
#define vec_store(p, v)      _mm512_storeu_ps(p, v)
#define vec_fma(a, b, c)     _mm512_dpbf16_ps(c, (__m512bh)(b), (__m512bh)(a))
#define vec_add(a, b)        _mm512_add_ps(a, b)
#define vec_max(a, b)        _mm512_max_ps(b, a) /* keeps a NaN of a */
#define vec_store_half(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), (__m256i)_mm512_cvtneps_pbh(v))
#include "kernel/cpu/gemm.tmpl.h"
