/* SPDX-License-Identifier: Apache-2.0
 *
 * narrow.h: f32 in fewer bytes, for the wire: as bf16, or as whole numbers with a scale for each block.
 *
 * Bytes may lie anywhere. int8: the scales of all blocks, f32, then the numbers, -127 to 127; a scale is the block's
 * greatest magnitude over 127, and a block that has no finite greatest is NaN. bf16: to the nearest, ties to even.
 */
#ifndef TRI_TENSOR_NARROW_H
#define TRI_TENSOR_NARROW_H

#include <stddef.h>
#include <stdint.h>

/* Of count numbers in blocks of `block`, the last may be short. */
size_t tri_int8_nbytes(int64_t count, int64_t block);
/* left: [count] what the bytes do not say (may be values); NULL: nobody asks. */
void tri_int8_encode(const float *values, int64_t count, int64_t block, void *bytes, float *left);
void tri_int8_decode(const void *bytes, int64_t count, int64_t block, float *values);
/* sums[i] grows by number i. */
void tri_int8_add(const void *bytes, int64_t count, int64_t block, float *sums);

void tri_bf16_encode(const float *values, int64_t count, void *bytes);
void tri_bf16_decode(const void *bytes, int64_t count, float *values);
void tri_bf16_add(const void *bytes, int64_t count, float *sums);

#endif
