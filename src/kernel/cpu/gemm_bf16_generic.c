/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_bf16_generic.c: the tiles of gemm.h over pairs of bf16 in vectors of four, for any machine: two products and two
 * sums a pair, the lower element first, each rounded to f32.
 */
#include "kernel/cpu/gemm_generic.h"
#include "tensor/half.h"

typedef uint32_t vec_bits __attribute__((vector_size(16)));
#define GEMM_OPS             tri_gemm_bf16_generic
#define GEMM_NAME            "generic"
#define vec_fma(a, b, c)     vec_pair_sum(a, b, c)
#define vec_store_half(p, v) vec_round_to(p, v)

static inline vec vec_pair_sum(vec a, vec b, vec c)
{
    const vec_bits left = (vec_bits)a, right = (vec_bits)b;
    c += (vec)(left << 16) * (vec)(right << 16);
    return c + (vec)(left & 0xffff0000u) * (vec)(right & 0xffff0000u);
}

static inline void vec_round_to(uint16_t *p, vec v)
{
    float x[LANES];
    vec_store(x, v);
    for (int i = 0; i < LANES; i++) {
        p[i] = half_to_bf16(x[i]);
    }
}
#include "kernel/cpu/gemm.tmpl.h"
