/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_topk.c: of each chunk the elements of greatest magnitude alone, with their places; the rest waits.
 *
 * Bytes: places, u32, ascending, then values, f32. Of equal magnitudes the first ones go. The least magnitude that goes
 * is found digit by digit over the bits of the magnitudes, which are in the order of the numbers: no sorting. Source:
 * Stich, Cordonnier, Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
 */
#include <math.h>

#include "parallel/compress_impl.h"
#include "tensor/half.h"

static int64_t kept_count(const tri_parallel_config *config, int64_t count)
{
    int64_t kept = (int64_t)ceil(config->compress_fraction * (double)count);
    return kept < count ? kept : count;
}

static size_t topk_nbytes(const tri_parallel_config *config, int64_t count)
{
    return (size_t)kept_count(config, count) * (sizeof(uint32_t) + sizeof(float));
}

static uint32_t magnitude_of(float value)
{
    return half_bits(value) & 0x7fffffffu;
}

/* The least magnitude of the `kept` greatest; *equals: how many of just that magnitude are among them. */
static uint32_t least_kept(const float *values, int64_t count, int64_t kept, int64_t *equals)
{
    enum { DIGITS = 4, DIGIT_BITS = 8, DIGIT_VALUES = 1 << DIGIT_BITS };
    uint32_t least = 0, known = 0; /* known: mask of the digits that are found */
    for (int digit = DIGITS - 1; digit >= 0; digit--) {
        int64_t of_digit[DIGIT_VALUES] = {0};
        int shift = digit * DIGIT_BITS, at = DIGIT_VALUES - 1;
        for (int64_t i = 0; i < count; i++) {
            uint32_t magnitude = magnitude_of(values[i]);
            if ((magnitude & known) == least)
                of_digit[magnitude >> shift & (DIGIT_VALUES - 1)]++;
        }
        while (kept > of_digit[at])
            kept -= of_digit[at--];
        least |= (uint32_t)at << shift;
        known |= (uint32_t)(DIGIT_VALUES - 1) << shift;
    }
    *equals = kept;
    return least;
}

static void topk_encode(const tri_parallel_config *config, float *values, int64_t count, void *bytes)
{
    int64_t kept = kept_count(config, count), equals = 0, at = 0;
    if (kept == 0)
        return;
    char *places = bytes, *sent = places + kept * (int64_t)sizeof(uint32_t);
    uint32_t least = least_kept(values, count, kept, &equals);
    for (int64_t i = 0; i < count; i++) {
        uint32_t magnitude = magnitude_of(values[i]), place = (uint32_t)i;
        if (magnitude < least || (magnitude == least && equals-- <= 0))
            continue;
        memcpy(places + at * (int64_t)sizeof(place), &place, sizeof(place));
        memcpy(sent + at * (int64_t)sizeof(float), &values[i], sizeof(float));
        values[i] = 0;
        at++;
    }
    TRI_ASSERT(at == kept);
}

static void topk_add(const tri_parallel_config *config, const void *bytes, int64_t count, float *sums)
{
    int64_t kept = kept_count(config, count);
    const char *places = bytes, *sent = places + kept * (int64_t)sizeof(uint32_t);
    for (int64_t i = 0; i < kept; i++) {
        uint32_t place;
        float value;
        memcpy(&place, places + i * (int64_t)sizeof(place), sizeof(place));
        memcpy(&value, sent + i * (int64_t)sizeof(value), sizeof(value));
        if (place < (uint64_t)count) /* it came over the wire */
            sums[place] += value;
    }
}

static const tri_codec codec = {.feeds_back = true, .nbytes = topk_nbytes, .encode = topk_encode, .add = topk_add};

static tri_status topk_create(const tri_compress_setup *setup, tri_compress **out)
{
    return tri_chunks_create(setup, &tri_compress_topk, &codec, out);
}

static size_t topk_sum_nbytes(const tri_compress_setup *setup, int ranks)
{
    return tri_chunks_nbytes(setup, &codec, ranks);
}

const tri_compress_ops tri_compress_topk = {
    .name = "topk",
    .does = "the greatest elements alone; the others wait for the next sum",
    .keeps = true,
    .create = topk_create,
    .nbytes = topk_sum_nbytes,
    TRI_CHUNKS_SLOTS,
};
