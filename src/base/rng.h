/* SPDX-License-Identifier: Apache-2.0
 *
 * rng.h: random numbers as a pure function of (seed, stream, index), the same on every rank, thread and layout.
 *
 * Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. No state anywhere:
 * a number's address is its key. Streams separate uses: initialisation of a tensor, dropout of an op, augmentation.
 */
#ifndef TRI_BASE_RNG_H
#define TRI_BASE_RNG_H

#include <stdint.h>

typedef struct tri_rng {
    uint64_t seed;
    uint64_t stream; /* what the numbers are for: tri_rng_stream("init", hash of a name), ... */
} tri_rng;

/* One block of Philox4x32-10. */
void tri_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* A stream number from a purpose and up to two numbers (xxh3 of the three). */
uint64_t tri_rng_stream(const char *purpose, uint64_t a, uint64_t b);
/* The index-th number of the stream. */
uint32_t tri_rng_u32(tri_rng rng, uint64_t index);
uint64_t tri_rng_u64(tri_rng rng, uint64_t index);
/* In [0, 1), 24 random bits. */
float tri_rng_uniform(tri_rng rng, uint64_t index);
/* Standard normal, Box-Muller on one block. */
float tri_rng_normal(tri_rng rng, uint64_t index);
/* In [0, bound) without bias worth mentioning (64-bit multiply-shift); bound >= 1. */
uint64_t tri_rng_below(tri_rng rng, uint64_t index, uint64_t bound);
/* Fills out[i] with tri_rng_uniform(rng, first + i); four numbers a block, so faster than one by one, same values. */
void tri_rng_fill_uniform(tri_rng rng, uint64_t first, uint64_t count, float *out);
/* A permutation of [0, bound) as a pure function: where position `index` goes. Feistel network with cycle walking, so
 * that no table is needed. */
uint64_t tri_rng_permute(tri_rng rng, uint64_t index, uint64_t bound);
/* Fills out[i] with tri_rng_permute(rng, first + i, bound); first + count <= bound. Faster than one by one. */
void tri_rng_fill_permute(tri_rng rng, uint64_t first, uint64_t count, uint64_t bound, uint64_t *out);

#endif
