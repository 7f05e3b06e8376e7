/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_cuda.h: what the fake libcuda offers to other fake libraries.
 */
#ifndef TRI_TESTS_GPU_FAKE_CUDA_H
#define TRI_TESTS_GPU_FAKE_CUDA_H

#include "device/cuda/library.h"

/* Runs run(arg) on the stream, in order, when somebody waits for it. */
__attribute__((visibility("default"))) void fake_cuda_call(cuda_stream stream, void (*run)(void *arg), void *arg);
typedef void (*fake_cuda_call_fn)(cuda_stream stream, void (*run)(void *arg), void *arg);
/* Asks run(arg) again and again, in the place of the stream's work, until it does not give 0; others go on meanwhile.
 */
__attribute__((visibility("default"))) void fake_cuda_try(cuda_stream stream, int (*run)(void *arg), void *arg);
typedef void (*fake_cuda_try_fn)(cuda_stream stream, int (*run)(void *arg), void *arg);
/* The card of this thread's context. */
__attribute__((visibility("default"))) cuda_device fake_cuda_card(void);
typedef cuda_device (*fake_cuda_card_fn)(void);

#endif
