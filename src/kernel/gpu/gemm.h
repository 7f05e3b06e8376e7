/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h: what kernels of products share: where those of a batch lie, and what happens to a sum.
 */
#ifndef TRI_KERNEL_GPU_GEMM_H
#define TRI_KERNEL_GPU_GEMM_H

#include "kernel/gpu/math.h"

#define HALF_DEPTH  32 /* of a tile in 16 bits */
#define HALF_STRIDE 20 /* pairs of a row, so that fragments are free of bank conflicts */

/* Where this product of the batch begins. */
GPU_FN int64_t gemm_base(const tri_gpu_operand *o, int groups)
{
    return gpu_bz() / groups * o->shard_stride + gpu_bz() % groups * o->group_stride;
}

GPU_FN void gemm_write(const tri_gpu_gemm_args *a, int64_t base, int i, int j, float v)
{
    const int64_t at = base + (int64_t)i * a->c.row + (int64_t)j * a->c.column;
    if (i >= a->m || j >= a->n) {
        return;
    }
    if (a->bias != 0) {
        v += a->bias[gpu_bz() % a->groups * a->n + j];
    }
    if (a->adds) {
        v += gpu_load(a->c.value, at);
    }
    gpu_store(a->c.value, at, a->relu && v < 0.0f ? 0.0f : v);
}

#endif
