/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_avx.c: the tiles of gemm.h for AVX2 with FMA: 6 x 16, 12 accumulators. Compiled with -mavx2 -mfma.
 */
#include <immintrin.h>

typedef __m256 vec;
#define GEMM_OPS         tri_gemm_avx
#define GEMM_NAME        "avx2"
#define MR               6
#define ROWS_TO_MR       ROWS_TO_6
#define NV               2
#define LANES            8
#define vec_zero()       _mm256_setzero_ps()
#define vec_all(x)       _mm256_set1_ps(x)
#define vec_load(p)      _mm256_loadu_ps(p)
#define vec_store(p, v)  _mm256_storeu_ps(p, v)
#define vec_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vec_add(a, b)    _mm256_add_ps(a, b)
#define vec_max(a, b)    _mm256_max_ps(b, a) /* keeps a NaN of a */
#include "kernel/cpu/gemm.tmpl.h"
