/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_bf16_generic.c: the tiles of gemm.h over pairs of bf16 in vectors of four, for any machine: two products and two
 * sums a pair, the lower element first, each rounded to f32.
 */
#include "tensor/half.h"

typedef float vec __attribute__((vector_size(16)));
typedef uint32_t vec_bits __attribute__((vector_size(16)));
#define GEMM_OPS         tri_gemm_bf16_generic
#define GEMM_NAME        "generic"
#define MR               4
#define ROWS_TO_MR       ROWS_TO_4
#define NV               2
#define LANES            4
#define vec_zero()       ((vec){0})
#define vec_all(x)       vec_all_of(x)
#define vec_load(p)      vec_load_from(p)
#define vec_store(p, v)  vec_store_to(p, v)
#define vec_fma(a, b, c) vec_pair_sum(a, b, c)
#define vec_add(a, b)    ((a) + (b))
#define vec_max(a, b)    vec_max_of(a, b)

static inline vec vec_all_of(float x)
{
    return (vec){x, x, x, x};
}

static inline vec vec_load_from(const float *p)
{
    vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

static inline void vec_store_to(float *p, vec v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

static inline vec vec_pair_sum(vec a, vec b, vec c)
{
    const vec_bits left = (vec_bits)a, right = (vec_bits)b;
    c += (vec)(left << 16) * (vec)(right << 16);
    return c + (vec)(left & 0xffff0000u) * (vec)(right & 0xffff0000u);
}

/* Keeps a NaN of a. */
static inline vec vec_max_of(vec a, vec b)
{
    for (int i = 0; i < 4; i++) {
        a[i] = a[i] < b[i] ? b[i] : a[i];
    }
    return a;
}
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
