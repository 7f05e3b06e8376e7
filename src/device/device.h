/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: where the flat stores lie: a table of devices, each with its memory.
 *
 * Kernels of a kind ("cpu") take pointers into the memory of the device of that name. Copies between two devices go
 * through the host: to_host of one, from_host of the other.
 */
#ifndef TRI_DEVICE_DEVICE_H
#define TRI_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <trireme/status.h>

typedef struct tri_device_ops {
    const char *name;
    /* Host and device see each other's memory at the same addresses: nothing has to be copied. */
    bool shares_host;
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

/* An array of a device as the host reads and writes it: the array itself where the device shares memory with the host,
 * else a copy. */
typedef struct tri_device_view {
    const tri_device_ops *device;
    void *memory; /* of the device */
    void *host;
    size_t nbytes;
} tri_device_view;

/* view->host holds the array's present content. */
tri_status tri_device_view_open(tri_device_view *view, const tri_device_ops *device, void *memory, size_t nbytes);
/* Brings the device's present content to the host, and the host's to the device; nothing where they share memory. */
void tri_device_view_read(const tri_device_view *view);
void tri_device_view_write(const tri_device_view *view);
/* Releases the copy; a view of zeros does nothing. */
void tri_device_view_close(tri_device_view *view);

#endif
