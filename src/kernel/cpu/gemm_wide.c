/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_wide.c: the tiles of gemm.h for AVX-512: 8 x 32, 16 accumulators. Compiled with -mavx512f.
 */
#include <immintrin.h>

typedef __m512 vec;
#define GEMM_OPS         tri_gemm_wide
#define GEMM_NAME        "avx512"
#define MR               12
#define ROWS_TO_MR       ROWS_TO_12
#define NV               2
#define LANES            16
#define vec_zero()       _mm512_setzero_ps()
#define vec_all(x)       _mm512_set1_ps(x)
#define vec_load(p)      _mm512_loadu_ps(p)
#define vec_store(p, v)  _mm512_storeu_ps(p, v)
#define vec_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vec_add(a, b)    _mm512_add_ps(a, b)
#define vec_max(a, b)    _mm512_max_ps(b, a) /* keeps a NaN of a */
#include "kernel/cpu/gemm.tmpl.h"
