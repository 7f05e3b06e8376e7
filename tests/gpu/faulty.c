/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty.c: one fault in each kernel.
 */
#include "gpu/faulty.h"

#include "kernel/gpu/gpu.h"

typedef struct pad {
    float x[64];
} pad;

GPU_KERNEL(two_barriers)
{
    (void)a;
    if (gpu_tx() % 2 == 0) {
        gpu_sync();
    } else {
        gpu_sync_warp();
    }
}

GPU_KERNEL(leaver)
{
    (void)a;
    if (gpu_tx() != 33) {
        gpu_sync();
    }
}

GPU_KERNEL(lane_leaver)
{
    if (gpu_tx() != 5) {
        a.x[gpu_tx()] = gpu_lane(1.0f, 0);
    }
}

GPU_KERNEL(mixed_lanes)
{
    if (gpu_tx() % 2 == 0) {
        a.x[gpu_tx()] = gpu_lane(1.0f, 0);
    } else {
        gpu_sync_warp();
    }
}

GPU_KERNEL(unset)
{
    GPU_SHARED(pad, shared);
    a.x[gpu_tx()] = shared->x[gpu_tx()];
    gpu_sync();
    shared->x[gpu_tx()] = 1;
}

GPU_KERNEL(race_shared)
{
    GPU_SHARED(pad, shared);
    shared->x[gpu_tx()] = 1;
    a.x[gpu_tx()] = shared->x[63 - gpu_tx()];
}

GPU_KERNEL(race_blocks)
{
    gpu_sync();
    a.x[gpu_tx()] = (float)gpu_bx();
}

GPU_KERNEL(race_lanes)
{
    GPU_SHARED(pad, shared);
    shared->x[gpu_tx()] = gpu_warp_sum(1.0f);
    (void)gpu_warp_sum(1.0f);
    a.x[gpu_tx()] = shared->x[gpu_tx() ^ 1];
}

GPU_KERNEL(no_race)
{
    GPU_SHARED(pad, shared);
    shared->x[gpu_tx()] = 1;
    gpu_sync();
    const float mine = shared->x[63 - gpu_tx()];
    gpu_sync_warp();
    if (gpu_bx() == 0) {
        a.x[gpu_tx()] = mine;
    }
}

GPU_KERNEL(beyond_shared)
{
    GPU_SHARED(pad, shared);
    shared->x[gpu_tx() + 1] = a.x[0];
}

GPU_KERNEL(beyond)
{
    a.x[gpu_tx() + 1] = 1;
}
