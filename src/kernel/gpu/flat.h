/* SPDX-License-Identifier: Apache-2.0
 *
 * flat.h: what flat stores in a GPU's memory need: fill, cast, add, the canonical tree, norms, optimizers.
 *
 * Pointers are into the memory of the queue's device. Each call launches and returns; a failure is the queue's status.
 */
#ifndef TRI_KERNEL_GPU_FLAT_H
#define TRI_KERNEL_GPU_FLAT_H

#include <trireme/tensor.h>

#include "device/launch.h"
#include "kernel/gpu/args.h"
#include "tensor/tree.h"

/* An array of f32, bf16 or f16. */
tri_gpu_value tri_gpu_value_make(const void *data, tri_dtype dtype);
/* Launches, unless the queue has failed; of as many blocks as `count` threads need, times the grid's y and z. */
void tri_gpu_run(tri_gpu_queue *queue, tri_gpu_kernel kernel, int64_t blocks, int y, int z, int threads,
                 const void *args, size_t args_nbytes);

/* Loads all kernels, which the driver else does at their first launch. */
void tri_gpu_load(tri_gpu_queue *queue);
void tri_gpu_fill(tri_gpu_queue *queue, float *out, float value, int64_t count);
/* Copies, where the types are equal. */
void tri_gpu_cast(tri_gpu_queue *queue, tri_gpu_value to, tri_gpu_value from, int64_t count);
/* out = a + b, each sum rounded once to the type; out may be a or b. */
void tri_gpu_add(tri_gpu_queue *queue, tri_gpu_value out, tri_gpu_value a, tri_gpu_value b, int64_t count);
/* out[part][0, count) = factor times the sum of the part's leaves (at most TRI_GPU_SHARDS in all), which lie `stride`
 * apart; adds: added to what is there. */
void tri_gpu_fold(tri_gpu_queue *queue, const float *leaves, int64_t stride, int64_t count, const tri_tree_part *parts,
                  int part_count, float *const *out, float factor, bool adds);
/* blocks[b] = sum of squares of x[4096 b ..), the CPU's bits: kernel.h, TRI_NORM_BLOCK. */
void tri_gpu_squares(tri_gpu_queue *queue, const float *x, int64_t count, double *blocks);
/* args are complete. */
void tri_gpu_digest(tri_gpu_queue *queue, const tri_gpu_digest_args *args);
/* One step of an optimizer: the CPU's bits. */
void tri_gpu_step(tri_gpu_queue *queue, const tri_gpu_step_args *args);

#endif
