/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_int8.c: each element as a whole number from -127 to 127 times the scale of its block, which is the block's
 * greatest magnitude over 127.
 *
 * Bytes: the scales of all blocks, f32, then the numbers. A block that has no finite greatest is sent as NaN.
 */
#include <float.h>
#include <math.h>

#include "parallel/compress_impl.h"
#include "tensor/half.h"
#include "tensor/loops.h"

static int64_t block_count(const tri_parallel_config *config, int64_t count)
{
    return (count + config->compress_block - 1) / config->compress_block;
}

static size_t int8_nbytes(const tri_parallel_config *config, int64_t count)
{
    return (size_t)block_count(config, count) * sizeof(float) + (size_t)count;
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
TRI_CLONES static void block_encode(float *values, int64_t count, float scale, float inverse, int8_t *out)
{
    const float whole = 12582912.0f; /* 1.5 * 2^23 */
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        float rounded = (values[i] * inverse + whole) - whole;
        out[i] = (int8_t)rounded;
        values[i] -= rounded * scale;
    }
}

TRI_CLONES static void block_add(const int8_t *in, int64_t count, float scale, float *sums)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        sums[i] += (float)in[i] * scale;
}

static void int8_encode(const tri_parallel_config *config, float *values, int64_t count, void *bytes)
{
    int64_t each = config->compress_block, blocks = block_count(config, count);
    int8_t *numbers = (int8_t *)bytes + blocks * (int64_t)sizeof(float);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t first = b * each, length = count - first < each ? count - first : each;
        float greatest = greatest_magnitude(values + first, length), scale = greatest / 127;
        if (scale >= FLT_MIN && isfinite(greatest))
            block_encode(values + first, length, scale, 127 / greatest, numbers + first);
        else { /* nothing, or nothing to be told */
            scale = isfinite(greatest) ? 0 : NAN;
            memset(numbers + first, 0, (size_t)length);
        }
        memcpy((char *)bytes + b * (int64_t)sizeof(float), &scale, sizeof(scale));
    }
}

static void int8_add(const tri_parallel_config *config, const void *bytes, int64_t count, float *sums)
{
    int64_t each = config->compress_block, blocks = block_count(config, count);
    const int8_t *numbers = (const int8_t *)bytes + blocks * (int64_t)sizeof(float);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t first = b * each, length = count - first < each ? count - first : each;
        float scale;
        memcpy(&scale, (const char *)bytes + b * (int64_t)sizeof(float), sizeof(scale));
        block_add(numbers + first, length, scale, sums + first);
    }
}

static const tri_codec codec = {.feeds_back = true, .nbytes = int8_nbytes, .encode = int8_encode, .add = int8_add};

static tri_status int8_create(const tri_compress_setup *setup, tri_compress **out)
{
    return tri_chunks_create(setup, &tri_compress_int8, &codec, out);
}

const tri_compress_ops tri_compress_int8 = {
    .name = "int8",
    .does = "each element in a byte, with a scale for each block; what is lost is added to the next sum",
    .create = int8_create,
    TRI_CHUNKS_SLOTS,
};
