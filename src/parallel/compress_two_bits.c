/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_two_bits.c: each element in two bits, with a scale for each block (tensor/narrow.h); what they do not say is
 * fed back. Alone it is too little for transformers; beside the thin matrices of powersgd it is not.
 */
#include "parallel/compress_impl.h"
#include "tensor/narrow.h"

static size_t two_bits_nbytes(const tri_parallel_config *config, int64_t count)
{
    (void)config;
    return tri_two_bits_nbytes(count);
}

static void two_bits_encode(const tri_parallel_config *config, float *values, int64_t count, void *bytes)
{
    (void)config;
    tri_two_bits_encode(values, count, bytes, values);
}

static void two_bits_add(const tri_parallel_config *config, const void *bytes, int64_t count, float *sums)
{
    (void)config;
    tri_two_bits_add(bytes, count, sums);
}

static const tri_codec codec = {
    .feeds_back = true, .nbytes = two_bits_nbytes, .encode = two_bits_encode, .add = two_bits_add};

static const tri_compress_ops two_bits = {.name = "two_bits", TRI_CHUNKS_SLOTS};

tri_status tri_two_bits_create(const tri_compress_setup *setup, tri_compress **out)
{
    return tri_chunks_create(setup, &two_bits, &codec, out);
}

size_t tri_two_bits_sum_nbytes(const tri_compress_setup *setup, int ranks)
{
    return tri_chunks_nbytes(setup, &codec, ranks);
}
