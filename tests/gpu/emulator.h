/* SPDX-License-Identifier: Apache-2.0
 *
 * emulator.h: runs the kernels of kernel/gpu on the host: a CUDA thread is a fiber, a block runs until all have ended.
 *
 * Which thread goes next is drawn by a seed. Shared memory holds NaN at the start of a block and is exactly as long as
 * the kernel's object, so AddressSanitizer sees what is written behind it. With ThreadSanitizer each CUDA thread is a
 * fiber of it; a barrier is an edge between the threads of a block, the start and the end of a launch are edges, and
 * nothing else is: two blocks, or two threads between barriers, that touch one element race. Exchanges between the
 * lanes of a warp move registers, so they are no edge.
 */
#ifndef TRI_TESTS_GPU_EMULATOR_H
#define TRI_TESTS_GPU_EMULATOR_H

#include "device/launch.h"

/* Seed of the schedules of later launches; 0: threads and blocks in order. */
void tri_emulator_seed(uint64_t seed);
/* Runs a launch to its end. TRI_EINVAL, and the reason, for a launch that no card takes and for a kernel that hangs:
 * threads of a block wait at different barriers, lanes of a warp meet in different exchanges or have ended. */
tri_status tri_emulator_launch(const tri_gpu_launch *launch);
/* The same for a kernel that is in no table. */
typedef void (*tri_emulator_kernel)(const void *args);
tri_status tri_emulator_run(const char *name, tri_emulator_kernel kernel, const tri_gpu_launch *launch);
/* A queue that runs each launch at once. */
tri_gpu_queue tri_emulator_queue(void);
/* A device with that queue, whose memory is the host's. */
tri_device tri_emulator_device(tri_gpu_queue *queue);
/* Number of the kernel of that symbol, -1: there is none. */
int tri_emulator_find(const char *symbol);
size_t tri_emulator_args_nbytes(int kernel);

#endif
