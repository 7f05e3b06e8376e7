/* SPDX-License-Identifier: Apache-2.0
 *
 * once.h: tables of a library's calls that all threads of the process share.
 */
#ifndef TRI_DEVICE_CUDA_ONCE_H
#define TRI_DEVICE_CUDA_ONCE_H

#include <stdbool.h>

#include "base/runtime.h"
#include "base/status.h"

typedef struct tri_cuda_once {
    tri_mutex mutex; /* {.real = PTHREAD_MUTEX_INITIALIZER} */
    bool ready;
} tri_cuda_once;

/* The first caller's load() fills in `calls`, or, where it fails, that of the next one. */
static inline tri_status tri_cuda_load_once(tri_cuda_once *once, tri_status (*load)(bool emulated, void *calls),
                                            bool emulated, void *calls)
{
    tri_mutex_lock(&once->mutex);
    const tri_status status = once->ready ? TRI_OK : load(emulated, calls);
    once->ready = status == TRI_OK;
    tri_mutex_unlock(&once->mutex);
    return status;
}

#endif
