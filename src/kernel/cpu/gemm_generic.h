/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_generic.h: vectors of four floats for any machine: what the generic tiles of f32 and of bf16 share. Those that
 * include it bring vec_fma.
 */
#ifndef TRI_KERNEL_CPU_GEMM_GENERIC_H
#define TRI_KERNEL_CPU_GEMM_GENERIC_H

typedef float vec __attribute__((vector_size(16)));
#define MR              4
#define ROWS_TO_MR      ROWS_TO_4
#define NV              2
#define LANES           4
#define vec_zero()      ((vec){0})
#define vec_all(x)      vec_all_of(x)
#define vec_load(p)     vec_load_from(p)
#define vec_store(p, v) vec_store_to(p, v)
#define vec_add(a, b)   ((a) + (b))
#define vec_max(a, b)   vec_max_of(a, b)

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

/* Keeps a NaN of a. */
static inline vec vec_max_of(vec a, vec b)
{
    for (int i = 0; i < 4; i++) {
        a[i] = a[i] < b[i] ? b[i] : a[i];
    }
    return a;
}

#endif
