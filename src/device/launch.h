/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.h: a launch of a kernel, and the queue that takes it: a stream of a card, or the emulator of the tests.
 *
 * The state of a device whose kernels are "cuda" begins with its queue.
 */
#ifndef TRI_DEVICE_LAUNCH_H
#define TRI_DEVICE_LAUNCH_H

#include <stdint.h>

#include "device/device.h"

#define TRI_LAUNCH_KERNELS 128 /* of a module, at most */

typedef struct tri_gpu_launch {
    int kernel;         /* its number, below TRI_LAUNCH_KERNELS */
    const char *symbol; /* in the module: "tri_cuda_fill" */
    int64_t grid[3];    /* blocks along x, y, z; 0 = 1 */
    int threads;        /* of a block: a multiple of 32; 0: the kernel is loaded, and not launched */
    const void *args;
    size_t args_nbytes;
} tri_gpu_launch;

/* Launches run in order, and may run after the call: args are copied. */
typedef struct tri_gpu_queue {
    tri_status (*launch)(void *arg, const tri_gpu_launch *launch);
    void *arg;
    struct tri_cublaslt *library; /* that multiplies matrices: cuda/cublaslt.h; NULL: our own kernels do */
    tri_status status;            /* the first failure; from then on nothing is launched */
} tri_gpu_queue;

static inline tri_gpu_queue *tri_gpu_queue_of(const tri_device *device)
{
    return device->state;
}

/* NULL: the device has no products of a library, or none is open; device may be NULL. */
static inline struct tri_cublaslt *tri_gpu_library_of(const tri_device *device)
{
    return device != NULL && device->ops->library_open != NULL ? tri_gpu_queue_of(device)->library : NULL;
}

#endif
