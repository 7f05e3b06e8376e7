/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_int8.c: each element as a whole number from -127 to 127 times the scale of its block (tensor/narrow.h); what
 * the bytes do not say is fed back.
 */
#include "parallel/compress_impl.h"
#include "tensor/narrow.h"

static size_t int8_nbytes(const tri_parallel_config *config, int64_t count)
{
    return tri_int8_nbytes(count, config->compress_block);
}

static void int8_encode(const tri_parallel_config *config, float *values, int64_t count, void *bytes)
{
    tri_int8_encode(values, count, config->compress_block, bytes, values);
}

static void int8_add(const tri_parallel_config *config, const void *bytes, int64_t count, float *sums)
{
    tri_int8_add(bytes, count, config->compress_block, sums);
}

static const tri_codec codec = {.feeds_back = true, .nbytes = int8_nbytes, .encode = int8_encode, .add = int8_add};

static tri_status int8_create(const tri_compress_setup *setup, tri_compress **out)
{
    return tri_chunks_create(setup, &tri_compress_int8, &codec, out);
}

static size_t int8_sum_nbytes(const tri_compress_setup *setup, int ranks)
{
    return tri_chunks_nbytes(setup, &codec, ranks);
}

const tri_compress_ops tri_compress_int8 = {
    .name = "int8",
    .does = "each element in a byte, with a scale for each block; what is lost is added to the next sum",
    .keeps = true,
    .create = int8_create,
    .nbytes = int8_sum_nbytes,
    TRI_CHUNKS_SLOTS,
};
