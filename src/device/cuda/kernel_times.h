/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_times.h: how long each launch of a stream takes on the card: an event before it and one behind it.
 */
#ifndef TRI_DEVICE_CUDA_KERNEL_TIMES_H
#define TRI_DEVICE_CUDA_KERNEL_TIMES_H

#include "base/containers.h"
#include "device/cuda/library.h"
#include "device/device.h"

typedef struct tri_cuda_times {
    const tri_cuda_calls *calls;
    cuda_stream stream;
    int64_t step;      /* that launches belong to; below 0: they are not timed */
    cuda_event origin; /* over when the host's clock was origin_ns */
    int64_t origin_ns;
    tri_vector launches; /* timed_launch (kernel_times.c), in order */
} tri_cuda_times;

void tri_cuda_times_init(tri_cuda_times *times, const tri_cuda_calls *calls, cuda_stream stream);
/* The stream has no work left. */
void tri_cuda_times_fini(tri_cuda_times *times);
/* As of tri_device_kernels_time(). */
void tri_cuda_times_step(tri_cuda_times *times, int64_t step);
/* Around one launch, whose name is copied. */
void tri_cuda_times_begin(tri_cuda_times *times, const char *name);
void tri_cuda_times_end(tri_cuda_times *times);
/* The same for an exchange between ranks. */
void tri_cuda_times_exchange_end(tri_cuda_times *times, int64_t sent_nbytes);
/* As of tri_device_kernels_read(). */
tri_status tri_cuda_times_read(tri_cuda_times *times, tri_device_kernel **out, int64_t *count);

#endif
