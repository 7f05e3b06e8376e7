/* SPDX-License-Identifier: Apache-2.0
 *
 * rng.c: Philox4x32-10 and what is made of it. Block b of a stream is philox(counter = (b, stream), key = seed).
 *
 * u32, uniform and normal number i come from block i/4, u64 and below from block i/2: use one stream for one kind of
 * number. The permutation is a balanced Feistel network; its round keys come from blocks that no number uses.
 */
#include "base/rng.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/clones.h"
#include "base/status.h"

#define PHILOX_M0 UINT32_C(0xD2511F53)
#define PHILOX_M1 UINT32_C(0xCD9E8D57)
#define PHILOX_W0 UINT32_C(0x9E3779B9) /* golden ratio */
#define PHILOX_W1 UINT32_C(0xBB67AE85) /* sqrt(3) - 1 */

static uint32_t low32(uint64_t x)
{
    return (uint32_t)x;
}

static uint32_t high32(uint64_t x)
{
    return (uint32_t)(x >> 32);
}

void tri_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * x0;
        uint64_t p1 = (uint64_t)PHILOX_M1 * x2;
        uint32_t y0 = high32(p1) ^ x1 ^ k0;
        uint32_t y2 = high32(p0) ^ x3 ^ k1;
        x0 = y0;
        x1 = low32(p1);
        x2 = y2;
        x3 = low32(p0);
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

uint64_t tri_rng_stream(const char *purpose, uint64_t a, uint64_t b)
{
    uint64_t parts[3] = {XXH3_64bits(purpose, strlen(purpose)), a, b};
    return XXH3_64bits(parts, sizeof(parts));
}

static void block_of(tri_rng rng, uint64_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {low32(block), high32(block), low32(rng.stream), high32(rng.stream)};
    const uint32_t key[2] = {low32(rng.seed), high32(rng.seed)};
    tri_philox(counter, key, out);
}

uint32_t tri_rng_u32(tri_rng rng, uint64_t index)
{
    uint32_t words[4];
    block_of(rng, index / 4, words);
    return words[index % 4];
}

uint64_t tri_rng_u64(tri_rng rng, uint64_t index)
{
    uint32_t words[4];
    block_of(rng, index / 2, words);
    return index % 2 ? (uint64_t)words[3] << 32 | words[2] : (uint64_t)words[1] << 32 | words[0];
}

static float uniform_of(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24F;
}

float tri_rng_uniform(tri_rng rng, uint64_t index)
{
    return uniform_of(tri_rng_u32(rng, index));
}

float tri_rng_normal(tri_rng rng, uint64_t index)
{
    uint32_t words[4];
    block_of(rng, index / 4, words);
    const uint32_t *pair = words + (index % 4 / 2) * 2;
    double radius = sqrt(-2.0 * log(((double)pair[0] + 1.0) * 0x1p-32)); /* the logarithm's argument is in (0, 1] */
    double angle = 6.283185307179586476925 * ((double)pair[1] * 0x1p-32);
    return (float)(radius * (index % 2 ? sin(angle) : cos(angle)));
}

uint64_t tri_rng_below(tri_rng rng, uint64_t index, uint64_t bound)
{
    TRI_ASSERT(bound >= 1);
    return (uint64_t)(((unsigned __int128)tri_rng_u64(rng, index) * bound) >> 64);
}

#define WIDE 32 /* blocks side by side */

/* Numbers of the blocks [block, block + WIDE): what block_of gives, a vector at a time. */
TRI_CLONES static void blocks_uniform(tri_rng rng, uint64_t block, float *restrict out)
{
    uint32_t x0[WIDE], x1[WIDE], x2[WIDE], x3[WIDE];
    uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
    for (int j = 0; j < WIDE; j++) {
        x0[j] = (uint32_t)(block + (uint64_t)j);
        x1[j] = (uint32_t)((block + (uint64_t)j) >> 32);
        x2[j] = (uint32_t)rng.stream;
        x3[j] = (uint32_t)(rng.stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 1
        for (int j = 0; j < WIDE; j++) {
            uint64_t p0 = (uint64_t)PHILOX_M0 * x0[j], p1 = (uint64_t)PHILOX_M1 * x2[j];
            x0[j] = (uint32_t)(p1 >> 32) ^ x1[j] ^ k0;
            x1[j] = (uint32_t)p1;
            x2[j] = (uint32_t)(p0 >> 32) ^ x3[j] ^ k1;
            x3[j] = (uint32_t)p0;
        }
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    for (int j = 0; j < WIDE; j++) {
        out[4 * j] = uniform_of(x0[j]);
        out[4 * j + 1] = uniform_of(x1[j]);
        out[4 * j + 2] = uniform_of(x2[j]);
        out[4 * j + 3] = uniform_of(x3[j]);
    }
}

void tri_rng_fill_uniform(tri_rng rng, uint64_t first, uint64_t count, float *out)
{
    uint64_t i = 0;
    while (i < count) {
        uint32_t words[4];
        if ((first + i) % 4 == 0 && count - i >= 4 * WIDE) {
            blocks_uniform(rng, (first + i) / 4, out + i);
            i += 4 * WIDE;
            continue;
        }
        block_of(rng, (first + i) / 4, words);
        for (uint64_t lane = (first + i) % 4; lane < 4 && i < count; lane++)
            out[i++] = uniform_of(words[lane]);
    }
}

#define PERMUTE_ROUNDS 8

/* The finalizer of MurmurHash3 (64 bits): every input bit reaches every output bit. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

void tri_rng_fill_permute(tri_rng rng, uint64_t first, uint64_t count, uint64_t bound, uint64_t *out)
{
    TRI_ASSERT(count <= bound && first <= bound - count);
    if (bound == 1) {
        memset(out, 0, count * sizeof *out);
        return;
    }
    int half = (64 - __builtin_clzll(bound - 1) + 1) / 2; /* bits of a half: the square has at most 4 * bound places */
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t keys[PERMUTE_ROUNDS];
    for (uint64_t i = 0; i < PERMUTE_ROUNDS; i += 2) {
        uint32_t words[4];
        block_of(rng, UINT64_MAX - i, words);
        keys[i] = (uint64_t)words[1] << 32 | words[0];
        keys[i + 1] = (uint64_t)words[3] << 32 | words[2];
    }
    for (uint64_t at = 0; at < count; at++) {
        uint64_t place = first + at;
        do {
            /* A permutation of the square walks in cycles; a cycle that starts inside [0, bound) comes back there. */
            uint64_t left = place >> half, right = place & mask;
            for (int i = 0; i < PERMUTE_ROUNDS; i++) {
                uint64_t next = left ^ (mix(right + keys[i]) >> (64 - half));
                left = right;
                right = next;
            }
            place = left << half | right;
        } while (place >= bound);
        out[at] = place;
    }
}

uint64_t tri_rng_permute(tri_rng rng, uint64_t index, uint64_t bound)
{
    uint64_t place;
    tri_rng_fill_permute(rng, index, 1, bound, &place);
    return place;
}
