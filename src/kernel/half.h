/* SPDX-License-Identifier: Apache-2.0
 *
 * half.h: values in bf16: whole arrays to f32 and back, and rows for f32 run over them.
 *
 * Included by files of kernel/ only.
 */
#ifndef TRI_KERNEL_HALF_H
#define TRI_KERNEL_HALF_H

#include "kernel/row.h"

/* to[i] = bf16 of from[i], to nearest even, NaN kept; and back. On the calling thread. */
void tri_half_round(uint16_t *to, const float *from, int64_t count);
void tri_half_widen(float *to, const uint16_t *from, int64_t count);
/* The same on threads; 0 threads are as one. */
void tri_half_round_all(int threads, uint16_t *to, const float *from, int64_t count);
void tri_half_widen_all(int threads, float *to, const uint16_t *from, int64_t count);

/* Plans `ops`, a row for f32, for a description with bf16 in it: each call converts into scratch, runs the row, and
 * converts back. Values and gradients are rounded to bf16 once; parameters and their gradients are f32 as ever. */
const tri_kernel_ops *tri_half_adapter(const tri_kernel_ops *ops);
/* Which row the adapter of a description runs is decided by the kind and the same description in f32. */
tri_status tri_half_plan(const char *kind, const tri_op_desc *desc, tri_kernel *kernel);
/* The same description with f32 in place of bf16. */
tri_op_desc tri_half_desc_widen(const tri_op_desc *desc);

#endif
