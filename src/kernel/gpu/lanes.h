/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes.h: elements of a row that one lane of a warp has, 32 apart. All loads of a call are under way before the first
 * value is converted.
 */
#ifndef TRI_KERNEL_GPU_LANES_H
#define TRI_KERNEL_GPU_LANES_H

#include "kernel/gpu/gpu.h"

#define GPU_LANE_EACH 8 /* elements of a call, at most */
#define GPU_LANE_STEP (32 * GPU_LANE_EACH)
#define GPU_LANE_LAST (GPU_LANE_STEP - 32) /* from the first of them to the last */

/* x[k] = element i + 32 k for k < n. */
GPU_FN void gpu_load_lane(tri_gpu_value v, int64_t i, float x[GPU_LANE_EACH], const int n)
{
    uint16_t raw[GPU_LANE_EACH];
    if (v.type == TRI_GPU_F32) {
        const float *const from = (const float *)v.data + i;
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            x[k] = from[32 * k];
        }
        return;
    }
    const uint16_t *const from = (const uint16_t *)v.data + i;
    GPU_UNROLL
    for (int k = 0; k < n; k++) {
        raw[k] = from[32 * k];
    }
    if (v.type == TRI_GPU_BF16) {
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            x[k] = gpu_from_half(raw[k], TRI_GPU_BF16);
        }
    } else {
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            x[k] = gpu_from_half(raw[k], TRI_GPU_F16);
        }
    }
}

GPU_FN void gpu_store_lane(tri_gpu_value v, int64_t i, const float x[GPU_LANE_EACH], const int n)
{
    if (v.type == TRI_GPU_F32) {
        float *const to = (float *)v.data + i;
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            to[32 * k] = x[k];
        }
    } else if (v.type == TRI_GPU_BF16) {
        uint16_t *const to = (uint16_t *)v.data + i;
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            to[32 * k] = gpu_to_half(x[k], TRI_GPU_BF16);
        }
    } else {
        uint16_t *const to = (uint16_t *)v.data + i;
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            to[32 * k] = gpu_to_half(x[k], TRI_GPU_F16);
        }
    }
}

/* The values that an array of that type keeps of x. */
GPU_FN void gpu_round_lane(float x[GPU_LANE_EACH], int type, const int n)
{
    if (type == TRI_GPU_BF16) {
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            x[k] = gpu_round(x[k], TRI_GPU_BF16);
        }
    } else if (type == TRI_GPU_F16) {
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            x[k] = gpu_round(x[k], TRI_GPU_F16);
        }
    }
}

#endif
