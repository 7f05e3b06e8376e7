/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_bf16.c: each element in two bytes, to the nearest, ties to even. What is lost is lost: with eight bits of
 * fraction it is no bias.
 */
#include "parallel/compress_impl.h"
#include "tensor/narrow.h"

static size_t bf16_nbytes(const tri_parallel_config *config, int64_t count)
{
    (void)config;
    return (size_t)count * sizeof(uint16_t);
}

static void bf16_encode(const tri_parallel_config *config, float *values, int64_t count, void *bytes)
{
    (void)config;
    tri_bf16_encode(values, count, bytes);
}

static void bf16_add(const tri_parallel_config *config, const void *bytes, int64_t count, float *sums)
{
    (void)config;
    tri_bf16_add(bytes, count, sums);
}

static const tri_codec codec = {.nbytes = bf16_nbytes, .encode = bf16_encode, .add = bf16_add};

static tri_status bf16_create(const tri_compress_setup *setup, tri_compress **out)
{
    return tri_chunks_create(setup, &tri_compress_bf16, &codec, out);
}

static size_t bf16_sum_nbytes(const tri_compress_setup *setup, int ranks)
{
    return tri_chunks_nbytes(setup, &codec, ranks);
}

const tri_compress_ops tri_compress_bf16 = {
    .name = "bf16",
    .does = "each element rounded to bf16: half the bytes",
    .create = bf16_create,
    .nbytes = bf16_sum_nbytes,
    TRI_CHUNKS_SLOTS,
};
