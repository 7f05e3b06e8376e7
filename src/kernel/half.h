/* SPDX-License-Identifier: Apache-2.0
 *
 * half.h: values in bf16 and f16: whole arrays to f32 and back, and rows for f32 run over them.
 *
 * Included by files of kernel/ only.
 */
#ifndef TRI_KERNEL_HALF_H
#define TRI_KERNEL_HALF_H

#include "kernel/row.h"

/* to[i] = bf16 of from[i], to nearest even, NaN kept; and back. On the calling thread. */
void tri_half_round(uint16_t *to, const float *from, int64_t count);
void tri_half_widen(float *to, const uint16_t *from, int64_t count);
/* The same of bf16 or f16, on threads; 0 threads are as one. */
void tri_half_round_all(int threads, tri_dtype dtype, uint16_t *to, const float *from, int64_t count);
void tri_half_widen_all(int threads, tri_dtype dtype, float *to, const uint16_t *from, int64_t count);
/* to[i] = f32 of f16 of from[i]. */
void tri_half_round_f16(int threads, float *to, const float *from, int64_t count);
#ifdef TRI_HAVE_X86
void tri_f16c_round(uint16_t *to, const float *from, int64_t count);
void tri_f16c_widen(float *to, const uint16_t *from, int64_t count);
#endif

/* half_adapter.c */
/* Plans `ops`, a row for f32, for a description with bf16 or f16 in it: each call converts into scratch, runs the row,
 * and converts back. Values and gradients are rounded once; parameters and their gradients are f32 as ever. With f16
 * the weights of products are read rounded to it, from a copy in scratch. */
const tri_kernel_ops *tri_half_adapter(const tri_kernel_ops *ops);
/* Which row the adapter of a description runs is decided by the kind and the same description in f32. */
tri_status tri_half_plan(const char *kind, const tri_op_desc *desc, tri_kernel *kernel);
/* The same description with f32 in place of bf16 and f16. */
tri_op_desc tri_half_desc_widen(const tri_op_desc *desc);

#endif
