/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.h: a launch of a kernel, and the queue that takes it: a stream of a card, or the emulator of the tests.
 */
#ifndef TRI_KERNEL_GPU_LAUNCH_H
#define TRI_KERNEL_GPU_LAUNCH_H

#include <stddef.h>

#include <trireme/status.h>

#include "kernel/gpu/args.h"

typedef struct tri_gpu_launch {
    tri_gpu_kernel kernel;
    int64_t grid[3]; /* blocks along x, y, z; 0 = 1 */
    int threads;     /* of a block: a multiple of 32 */
    const void *args;
    size_t args_nbytes;
} tri_gpu_launch;

/* Launches run in order, and may run after the call: args are copied. */
typedef struct tri_gpu_queue {
    tri_status (*launch)(void *arg, const tri_gpu_launch *launch);
    void *arg;
    tri_status status; /* the first failure; from then on nothing is launched */
} tri_gpu_queue;

/* "fill" */
const char *tri_gpu_kernel_name(tri_gpu_kernel kernel);

#endif
