/* SPDX-License-Identifier: Apache-2.0
 *
 * elementwise.cu: flat arrays: fill, cast, add; the canonical tree over shards; the norm of a gradient; whether
 * two arrays are equal.
 */
#include "kernel/gpu/gpu.h"

GPU_KERNEL(fill)
{
    const int64_t i = gpu_run();
    const float x[TRI_GPU_EACH] = {a.value, a.value, a.value, a.value};
    gpu_store_run(gpu_f32(a.out), i, a.count - i, x);
}

GPU_KERNEL(cast)
{
    const int64_t i = gpu_run();
    float x[TRI_GPU_EACH];
    gpu_load_run(a.from, i, a.count - i, x);
    gpu_store_run(a.to, i, a.count - i, x);
}

GPU_KERNEL(add)
{
    const int64_t i = gpu_run();
    float x[TRI_GPU_EACH], y[TRI_GPU_EACH];
    gpu_load_run(a.a, i, a.count - i, x);
    gpu_load_run(a.b, i, a.count - i, y);
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        x[k] += y[k];
    }
    gpu_store_run(a.out, i, a.count - i, x);
}

/* Sums of 2, 4, .. leaves, written out so that no compiler keeps a stack of them in memory. */
#define FOLD(count, half)                                                                                              \
    GPU_FN float fold##count(const float *leaf, int64_t stride)                                                        \
    {                                                                                                                  \
        return fold##half(leaf, stride) + fold##half(leaf + half * stride, stride);                                    \
    }
GPU_FN float fold1(const float *leaf, int64_t stride)
{
    (void)stride;
    return *leaf;
}
FOLD(2, 1)
FOLD(4, 2)
FOLD(8, 4)
FOLD(16, 8)

/* Whole subtrees of 16, and the tree over at most four of them. */
GPU_FN float fold_all(const float *leaf, int64_t stride, int count)
{
    float sum;
    switch (count) {
    case 1:
        return fold1(leaf, stride);
    case 2:
        return fold2(leaf, stride);
    case 4:
        return fold4(leaf, stride);
    case 8:
        return fold8(leaf, stride);
    default:
        break;
    }
    sum = fold16(leaf, stride);
    if (count >= 32) {
        sum += fold16(leaf + 16 * stride, stride);
    }
    if (count >= 64) {
        const float third = fold16(leaf + 32 * stride, stride);
        sum += third + fold16(leaf + 48 * stride, stride);
    }
    return sum;
}

GPU_KERNEL(fold)
{
    const int64_t i = gpu_thread_x();
    const int part = gpu_by();
    if (i < a.count) {
        const float sum = fold_all(a.leaves + a.first[part] * a.stride + i, a.stride, a.leaf_count[part]) * a.factor;
        float *const out = a.out[part] + i;
        *out = a.adds ? *out + sum : sum;
    }
}

typedef struct square_lanes {
    double lane[TRI_GPU_THREADS];
} square_lanes;

/* The order of the CPU, and so its bits: 16 lanes for a block of 4096 elements, then a tree over them. */
GPU_KERNEL(squares)
{
    GPU_SHARED(square_lanes, shared);
    const int tx = gpu_tx(), lane = tx % TRI_GPU_SQUARE_LANES, lanes = gpu_nx() / TRI_GPU_SQUARE_LANES;
    const int64_t block = (int64_t)gpu_bx() * lanes + tx / TRI_GPU_SQUARE_LANES, first = block * TRI_GPU_SQUARES;
    double sum = 0;
    for (int64_t i = first + lane; i < first + TRI_GPU_SQUARES && i < a.count; i += TRI_GPU_SQUARE_LANES) {
        const double x = (double)a.x[i];
        sum += x * x;
    }
    shared->lane[tx] = sum;
    gpu_sync();
    for (int step = TRI_GPU_SQUARE_LANES / 2; step > 0; step /= 2) {
        if (lane < step) {
            shared->lane[tx] += shared->lane[tx + step];
        }
        gpu_sync();
    }
    if (lane == 0 && first < a.count) {
        a.blocks[block] = shared->lane[tx];
    }
}

typedef struct differs_threads {
    int32_t found[TRI_GPU_THREADS];
} differs_threads;

GPU_KERNEL(differs)
{
    GPU_SHARED(differs_threads, shared);
    const int64_t first = (int64_t)gpu_bx() * gpu_nx() * TRI_GPU_DIFFERS + gpu_tx();
    int32_t found = 0;
    for (int k = 0; k < TRI_GPU_DIFFERS; k++) {
        const int64_t i = first + (int64_t)k * gpu_nx();
        if (i < a.count && a.a[i] != a.b[i]) {
            found = 1;
        }
    }
    shared->found[gpu_tx()] = found;
    gpu_sync();
    if (gpu_tx() == 0) {
        for (int t = 1; t < gpu_nx(); t++) {
            found += shared->found[t];
        }
        a.blocks[gpu_bx()] = found;
    }
}
