/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.h: elementwise combination of arrays, and conversion between element types.
 *
 * Templates by include, one instance per type, compiled for AVX2, AVX-512 and generic with the same results in each
 * (elementwise, no contraction). f16 and bf16 are combined in f32 and rounded to nearest even once per call.
 */
#ifndef TRI_TENSOR_REDUCE_H
#define TRI_TENSOR_REDUCE_H

#include <trireme/tensor.h>

/* out[i] = a[i] op b[i]; out may be a or b. AVERAGE and PREMUL_SUM combine as SUM. */
typedef void (*tri_reduce_fn)(void *out, const void *a, const void *b, int64_t count);
/* NULL for a pair that has no meaning (none at present). */
tri_reduce_fn tri_reduce_find(tri_reduce_op op, tri_dtype dtype);
/* a[i] = b[i] = a[i] + b[i], in one pass over two arrays that do not overlap. */
typedef void (*tri_reduce_both_fn)(void *a, void *b, int64_t count);
/* NULL for what is not a plain sum. */
tri_reduce_both_fn tri_reduce_both_find(tri_reduce_op op, tri_dtype dtype);
/* data[i] = data[i] / divisor: floating types rounded once (f16, bf16 by way of f32), integers towards zero. AVERAGE is
 * SUM and then this with the number of ranks. */
tri_status tri_reduce_divide(void *data, tri_dtype dtype, int64_t count, int64_t divisor);
/* out[i] = in[i] * factor: in f32 for f32 and halves, in f64 for f64 and integers, rounded to nearest even (integers
 * saturate, NaN to 0). out may be in. */
tri_status tri_reduce_multiply(void *out, const void *in, tri_dtype dtype, int64_t count, double factor);
/* to[i] = (to type) from[i]; nearest even; saturating to integers, NaN to 0. */
tri_status tri_convert(void *to, tri_dtype to_dtype, const void *from, tri_dtype from_dtype, int64_t count);

/* Bit-level conversions of one element. */
float tri_bf16_to_f32(uint16_t bits);
uint16_t tri_f32_to_bf16(float value);
float tri_f16_to_f32(uint16_t bits);
uint16_t tri_f32_to_f16(float value);

#endif
