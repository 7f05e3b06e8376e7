/* SPDX-License-Identifier: Apache-2.0
 *
 * narrow.h: f32 in fewer bytes, for the wire: as bf16, or as whole numbers or two bits with a scale for each block.
 *
 * Bytes may be anywhere. int8: the scales of all blocks, f32, then the numbers, -127 to 127; a scale is the block's
 * greatest magnitude over 127, and a block that has no finite greatest is NaN. bf16: to the nearest, ties to even.
 * Two bits: of each TRI_TWO_BITS_BLOCK numbers the root of the mean square, bf16; then of each number its sign and
 * which of two multiples of that root is its magnitude: those with the least error for a normal distribution (Max,
 * "Quantizing for minimum distortion", IRE Transactions on Information Theory, 1960). A block with a number that is
 * not finite is NaN.
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

enum { TRI_TWO_BITS_BLOCK = 128 };
size_t tri_two_bits_nbytes(int64_t count);
/* left: [count] what the bytes do not say (may be values); of a block that is NaN nothing is left. */
void tri_two_bits_encode(const float *values, int64_t count, void *bytes, float *left);
void tri_two_bits_add(const void *bytes, int64_t count, float *sums);

#endif
