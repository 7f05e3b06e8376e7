/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.cu: xxh3 of tiles of more than 240 bytes, with a seed each, by its specification: 8 threads have one of the 8
 * sums of a tile each, the first of them joins these. Elements lie on multiples of 4 bytes.
 */
#include "kernel/gpu/gpu.h"

#define LANES   8
#define STRIPES 16 /* of 64 bytes: then sums are scrambled */
#define PRIME   0x9E3779B185EBCA87u

/* Eight bytes of the secret from any place on: the seed is added to its even words and taken from the odd ones. */
GPU_FN uint64_t digest_secret_word(const tri_gpu_digest_args *a, uint64_t seed, int word)
{
    return word % 2 == 0 ? a->secret[word] + seed : a->secret[word] - seed;
}

GPU_FN uint64_t digest_secret(const tri_gpu_digest_args *a, uint64_t seed, int at)
{
    const int word = at / 8, bits = at % 8 * 8;
    const uint64_t low = digest_secret_word(a, seed, word);
    return bits == 0 ? low : low >> bits | digest_secret_word(a, seed, word + 1) << (64 - bits);
}

GPU_FN uint64_t digest_word(const uint32_t *at)
{
    return at[0] | (uint64_t)at[1] << 32;
}

/* One stripe: each sum gets its word times the secret, and its neighbour's word. */
GPU_FN uint64_t digest_add(uint64_t sum, const uint32_t *stripe, int lane, uint64_t secret)
{
    const uint64_t key = digest_word(stripe + 2 * lane) ^ secret;
    return sum + digest_word(stripe + 2 * (lane ^ 1)) + (key & 0xffffffffu) * (key >> 32);
}

GPU_FN uint64_t digest_begin(int lane)
{
    switch (lane) {
    case 0:
        return 0xC2B2AE3Du;
    case 1:
        return PRIME;
    case 2:
        return 0xC2B2AE3D27D4EB4Fu;
    case 3:
        return 0x165667B19E3779F9u;
    case 4:
        return 0x85EBCA77C2B2AE63u;
    case 5:
        return 0x85EBCA77u;
    case 6:
        return 0x27D4EB2F165667C5u;
    default:
        return 0x9E3779B1u;
    }
}

GPU_FN uint64_t digest_sum(const tri_gpu_digest_args *a, const tri_gpu_digest_tile *tile, const uint32_t *at, int lane)
{
    const int64_t nbytes = tile->count * 4, blocks = (nbytes - 1) / (64 * STRIPES);
    const int64_t stripes = (nbytes - 1) / 64;
    uint64_t sum = digest_begin(lane);
    for (int64_t s = 0; s < stripes; s++) {
        sum = digest_add(sum, at + 16 * s, lane, digest_secret_word(a, tile->seed, (int)(s % STRIPES) + lane));
        if (s % STRIPES == STRIPES - 1 && s / STRIPES < blocks) {
            sum = (sum ^ sum >> 47 ^ digest_secret_word(a, tile->seed, STRIPES + lane)) * 0x9E3779B1u;
        }
    }
    return digest_add(sum, at + tile->count - 16, lane, digest_secret(a, tile->seed, 121 + 8 * lane));
}

/* Both halves of the product of 128 bits. */
GPU_FN uint64_t digest_fold(uint64_t x, uint64_t y)
{
    const uint64_t mask = 0xffffffffu, low = (x & mask) * (y & mask);
    const uint64_t left = (x >> 32) * (y & mask), right = (x & mask) * (y >> 32);
    const uint64_t middle = (low >> 32) + (left & mask) + right;
    return ((left >> 32) + (middle >> 32) + (x >> 32) * (y >> 32)) ^ (middle << 32 | (low & mask));
}

typedef struct digest_sums {
    uint64_t sum[TRI_GPU_THREADS];
} digest_sums;

GPU_KERNEL(digest)
{
    GPU_SHARED(digest_sums, shared);
    const int lane = gpu_tx() % LANES;
    const int64_t number = gpu_thread_x() / LANES;
    const int there = number < a.count && a.tiles[number].count > TRI_GPU_DIGEST_FEW;
    const tri_gpu_digest_tile tile = a.tiles[there ? number : 0];
    if (there) {
        const uint32_t *const at = (const uint32_t *)(const void *)a.arrays[tile.array] + tile.first;
        shared->sum[gpu_tx()] = digest_sum(&a, &tile, at, lane);
    }
    gpu_sync();
    if (there && lane == 0) {
        const uint64_t *const sum = shared->sum + gpu_tx();
        uint64_t hash = (uint64_t)tile.count * 4 * PRIME;
        for (int i = 0; i < LANES / 2; i++) {
            hash += digest_fold(sum[2 * i] ^ digest_secret(&a, tile.seed, 11 + 16 * i),
                                sum[2 * i + 1] ^ digest_secret(&a, tile.seed, 19 + 16 * i));
        }
        hash = (hash ^ hash >> 37) * 0x165667919E3779F9u;
        a.out[number] = hash ^ hash >> 32;
    }
}
