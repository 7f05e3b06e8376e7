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
        if (!tells) { /* nothing, or nothing to report */
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

/* --- two bits --- */

/* Of a normal distribution whose mean square is 1: magnitudes below the border are said as the small one. */
static const float border = 0.9816f, small = 0.4528f, large = 1.510f;
enum { SIGN = 1, LARGE = 2, PARTS = 4, SQUARE_LANES = 16 };

size_t tri_two_bits_nbytes(int64_t count)
{
    int64_t whole = count / TRI_TWO_BITS_BLOCK, rest = count % TRI_TWO_BITS_BLOCK;
    return (size_t)(block_count(count, TRI_TWO_BITS_BLOCK) * (int64_t)sizeof(uint16_t) +
                    whole * TRI_TWO_BITS_BLOCK / PARTS + (rest + PARTS - 1) / PARTS);
}

/* In f64: the square of any finite number is one there. */
TRI_CLONES static float root_mean_square(const float *values, int64_t count)
{
    double lanes[SQUARE_LANES] = {0}, sum = 0;
    int64_t whole = count / SQUARE_LANES * SQUARE_LANES;
    for (int64_t i = 0; i < whole; i += SQUARE_LANES)
        for (int l = 0; l < SQUARE_LANES; l++)
            lanes[l] += (double)values[i + l] * (double)values[i + l];
    for (int64_t i = whole; i < count; i++)
        lanes[i - whole] += (double)values[i] * (double)values[i];
    for (int l = 0; l < SQUARE_LANES; l++)
        sum += lanes[l];
    return (float)sqrt(sum / (double)count);
}

/* A block of up to PARTS * nbytes numbers: byte b has numbers b, nbytes + b, 2 nbytes + b ... */
TRI_CLONES static void bits_encode(const float *values, int64_t count, int64_t nbytes, float scale, uint8_t *out,
                                   float *left)
{
    const float over = border * scale, low = small * scale, high = large * scale;
    memset(out, 0, (size_t)nbytes);
    for (int64_t first = 0, shift = 0; first < count; first += nbytes, shift += 2) {
        int64_t length = count - first < nbytes ? count - first : nbytes;
        TRI_APART
        for (int64_t b = 0; b < length; b++) {
            float value = values[first + b], magnitude = fabsf(value), said = magnitude > over ? high : low;
            int code = (value < 0 ? SIGN : 0) | (magnitude > over ? LARGE : 0);
            out[b] = (uint8_t)(out[b] | code << shift);
            left[first + b] = value - (value < 0 ? -said : said);
        }
    }
}

TRI_CLONES static void bits_add(const uint8_t *in, int64_t count, int64_t nbytes, float scale, float *sums)
{
    const float low = small * scale, high = large * scale;
    for (int64_t first = 0, shift = 0; first < count; first += nbytes, shift += 2) {
        int64_t length = count - first < nbytes ? count - first : nbytes;
        TRI_APART
        for (int64_t b = 0; b < length; b++) {
            int code = in[b] >> shift;
            float said = code & LARGE ? high : low;
            sums[first + b] += code & SIGN ? -said : said;
        }
    }
}

static int64_t bits_nbytes(int64_t count)
{
    return (count + PARTS - 1) / PARTS;
}

void tri_two_bits_encode(const float *values, int64_t count, void *bytes, float *left)
{
    char *scales = bytes;
    uint8_t *bits = (uint8_t *)bytes + block_count(count, TRI_TWO_BITS_BLOCK) * (int64_t)sizeof(uint16_t);
    for (int64_t first = 0; first < count; first += TRI_TWO_BITS_BLOCK, scales += sizeof(uint16_t)) {
        int64_t length = count - first < TRI_TWO_BITS_BLOCK ? count - first : TRI_TWO_BITS_BLOCK;
        uint16_t said = half_to_bf16(root_mean_square(values + first, length));
        float scale = half_from_bf16(said);
        if (isfinite(scale))
            bits_encode(values + first, length, bits_nbytes(length), scale, bits, left + first);
        else {
            said = half_to_bf16(NAN);
            memset(bits, 0, (size_t)bits_nbytes(length));
            memset(left + first, 0, (size_t)length * sizeof(float));
        }
        memcpy(scales, &said, sizeof(said));
        bits += bits_nbytes(length);
    }
}

void tri_two_bits_add(const void *bytes, int64_t count, float *sums)
{
    const char *scales = bytes;
    const uint8_t *bits = (const uint8_t *)bytes + block_count(count, TRI_TWO_BITS_BLOCK) * (int64_t)sizeof(uint16_t);
    for (int64_t first = 0; first < count; first += TRI_TWO_BITS_BLOCK, scales += sizeof(uint16_t)) {
        int64_t length = count - first < TRI_TWO_BITS_BLOCK ? count - first : TRI_TWO_BITS_BLOCK;
        uint16_t said;
        memcpy(&said, scales, sizeof(said));
        bits_add(bits, length, bits_nbytes(length), half_from_bf16(said), sums + first);
        bits += bits_nbytes(length);
    }
}
