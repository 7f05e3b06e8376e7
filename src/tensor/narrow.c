/* SPDX-License-Identifier: Apache-2.0
 *
 * narrow.c: f32 in fewer bytes.
 */
#include "tensor/narrow.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tensor/half.h"
#include "tensor/loops.h"

/* --- bf16 --- */

TRI_CLONES void tri_bf16_encode(const float *values, int64_t count, void *bytes)
{
    char *out = bytes;
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        uint16_t half = half_to_bf16(values[i]);
        memcpy(out + i * (int64_t)sizeof(half), &half, sizeof(half));
    }
}

TRI_CLONES void tri_bf16_decode(const void *bytes, int64_t count, float *values)
{
    const char *in = bytes;
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, in + i * (int64_t)sizeof(half), sizeof(half));
        values[i] = half_from_bf16(half);
    }
}

TRI_CLONES void tri_bf16_add(const void *bytes, int64_t count, float *sums)
{
    const char *in = bytes;
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, in + i * (int64_t)sizeof(half), sizeof(half));
        sums[i] += half_from_bf16(half);
    }
}

/* --- int8 --- */

static int64_t block_count(int64_t count, int64_t block)
{
    return (count + block - 1) / block;
}

size_t tri_int8_nbytes(int64_t count, int64_t block)
{
    return (size_t)block_count(count, block) * sizeof(float) + (size_t)count;
}

/* As bits: of magnitudes they are in the order of the numbers, and NaN is the greatest. */
TRI_CLONES static float greatest_magnitude(const float *values, int64_t count)
{
    uint32_t greatest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t magnitude = half_bits(values[i]) & 0x7fffffffu;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    return half_float(greatest);
}

/* The nearest whole number, ties to even: below 2^22 the sum has no place for a fraction. */
static inline __attribute__((always_inline)) float nearest(float value)
{
    const float whole = 12582912.0f; /* 1.5 * 2^23 */
    return (value + whole) - whole;
}

TRI_CLONES static void block_encode(const float *values, int64_t count, float inverse, int8_t *out)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        out[i] = (int8_t)nearest(values[i] * inverse);
}

TRI_CLONES static void block_encode_left(const float *values, int64_t count, float scale, float inverse, int8_t *out,
                                         float *left)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        float rounded = nearest(values[i] * inverse);
        out[i] = (int8_t)rounded;
        left[i] = values[i] - rounded * scale;
    }
}

TRI_CLONES static void block_decode(const int8_t *in, int64_t count, float scale, float *values)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)in[i] * scale;
}

TRI_CLONES static void block_add(const int8_t *in, int64_t count, float scale, float *sums)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        sums[i] += (float)in[i] * scale;
}

void tri_int8_encode(const float *values, int64_t count, int64_t block, void *bytes, float *left)
{
    int8_t *numbers = (int8_t *)bytes + block_count(count, block) * (int64_t)sizeof(float);
    char *scales = bytes;
    for (int64_t first = 0; first < count; first += block, scales += sizeof(float)) {
        int64_t length = count - first < block ? count - first : block;
        float greatest = greatest_magnitude(values + first, length), scale = greatest / 127;
        bool tells = scale >= FLT_MIN && isfinite(greatest);
        if (!tells) { /* nothing, or nothing to be told */
            scale = isfinite(greatest) ? 0 : NAN;
            memset(numbers + first, 0, (size_t)length);
            if (left && left != values)
                memcpy(left + first, values + first, (size_t)length * sizeof(float));
        } else if (left)
            block_encode_left(values + first, length, scale, 127 / greatest, numbers + first, left + first);
        else
            block_encode(values + first, length, 127 / greatest, numbers + first);
        memcpy(scales, &scale, sizeof(scale));
    }
}

/* Calls `block_run` for each block with its scale. */
static void blocks_run(const void *bytes, int64_t count, int64_t block, float *values,
                       void (*block_run)(const int8_t *in, int64_t count, float scale, float *values))
{
    const int8_t *numbers = (const int8_t *)bytes + block_count(count, block) * (int64_t)sizeof(float);
    const char *scales = bytes;
    for (int64_t first = 0; first < count; first += block, scales += sizeof(float)) {
        float scale;
        memcpy(&scale, scales, sizeof(scale));
        block_run(numbers + first, count - first < block ? count - first : block, scale, values + first);
    }
}

void tri_int8_decode(const void *bytes, int64_t count, int64_t block, float *values)
{
    blocks_run(bytes, count, block, values, block_decode);
}

void tri_int8_add(const void *bytes, int64_t count, int64_t block, float *sums)
{
    blocks_run(bytes, count, block, sums, block_add);
}
