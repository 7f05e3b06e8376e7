/* SPDX-License-Identifier: Apache-2.0
 *
 * philox.h: base/rng.h's uniform numbers in kernels: number i of a stream comes from word i % 4 of block i / 4.
 */
#ifndef TRI_KERNEL_GPU_PHILOX_H
#define TRI_KERNEL_GPU_PHILOX_H

#include "kernel/gpu/gpu.h"

/* In [0, 1), 24 bits; a copy wherever it is called. */
GPU_FN float gpu_uniform_here(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint64_t block = index / 4;
    const int word = (int)(index % 4);
    uint32_t x0 = (uint32_t)block, x1 = (uint32_t)(block >> 32), x2 = (uint32_t)stream, x3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * x0, p1 = (uint64_t)0xCD9E8D57u * x2;
        const uint32_t y0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0, y2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x0 = y0;
        x1 = (uint32_t)p1;
        x2 = y2;
        x3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (float)((word == 0 ? x0 : word == 1 ? x1 : word == 2 ? x2 : x3) >> 8) * 0x1p-24f;
}

/* Loops that unroll call it: with a copy in each turn kernels take a fourth longer to compile. */
GPU_FN_APART float gpu_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return gpu_uniform_here(seed, stream, index);
}

#endif
