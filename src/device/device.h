/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: where the flat stores lie: a table of devices, each with its memory.
 *
 * Kernels of a kind ("cpu") take pointers into the memory of the device of that name. Copies between two devices go
 * through the host: to_host of one, from_host of the other.
 */
#ifndef TRI_DEVICE_DEVICE_H
#define TRI_DEVICE_DEVICE_H

#include <stddef.h>
#include <trireme/status.h>

typedef struct tri_device_ops {
    const char *name;
    /* Zeroed, aligned to at least 64 bytes; NULL when memory is out (TRI_ENOMEM in tri_last_error). Free with free().
     */
    void *(*alloc)(size_t nbytes);
    void (*free)(void *memory); /* NULL does nothing */
    /* Within the device; the ranges must not overlap. Complete on return, as are the others. */
    void (*copy)(void *to, const void *from, size_t nbytes);
    void (*to_host)(void *to, const void *from, size_t nbytes);
    void (*from_host)(void *to, const void *from, size_t nbytes);
    void (*fill)(void *to, unsigned char byte, size_t nbytes);
} tri_device_ops;

/* NULL when there is no device of that name in this build. */
const tri_device_ops *tri_device_find(const char *name);
/* The i-th device, NULL behind the last: for lists of what there is. */
const tri_device_ops *tri_device_at(size_t i);

#endif
