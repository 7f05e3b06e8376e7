/* SPDX-License-Identifier: Apache-2.0
 *
 * array.h: loops over arrays of a device between the ops: sums of gradients and of the loss, and the squares of the
 * norm.
 *
 * One row for each family of kernels (tri_device_ops.kernels). Pointers are the device's; the bits do not depend on
 * threads, nor on the family.
 */
#ifndef TRI_KERNEL_ARRAY_H
#define TRI_KERNEL_ARRAY_H

#include "device/device.h"
#include "kernel/kernel.h"

typedef struct tri_array_ops {
    const char *kernels;
    void (*add)(const tri_device *device, int threads, float *out, const float *a, const float *b, int64_t count);
    void (*add_half)(const tri_device *device, int threads, tri_dtype dtype, uint16_t *out, const uint16_t *a,
                     const uint16_t *b, int64_t count);
    void (*square_blocks)(const tri_device *device, int threads, const float *x, int64_t count, double *blocks);
    void (*fold)(const tri_device *device, const float *leaves, int64_t stride, int64_t count,
                 const tri_tree_part *parts, int part_count, float *const *out);
    void (*fill)(const tri_device *device, float *out, float value, int64_t count);
} tri_array_ops;

/* out = a + b; out may be a or b. */
void tri_array_add(const tri_device *device, int threads, float *out, const float *a, const float *b, int64_t count);
/* The same in bf16 or f16, each sum rounded once. */
void tri_array_add_half(const tri_device *device, int threads, tri_dtype dtype, uint16_t *out, const uint16_t *a,
                        const uint16_t *b, int64_t count);
/* blocks[b] = sum of squares of x[TRI_NORM_BLOCK b ..). */
void tri_array_square_blocks(const tri_device *device, int threads, const float *x, int64_t count, double *blocks);

/* out[p][i] = canonical tree over leaves[s stride + i] of the shards s of parts[p], for i below count: a few columns.
 */
void tri_array_fold(const tri_device *device, const float *leaves, int64_t stride, int64_t count,
                    const tri_tree_part *parts, int part_count, float *const *out);
void tri_array_fill(const tri_device *device, float *out, float value, int64_t count);

#endif
