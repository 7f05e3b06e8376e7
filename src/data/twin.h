/* SPDX-License-Identifier: Apache-2.0
 *
 * twin.h: a prepared batch in memory of a device whose kernels cannot read the host's: copied there beside what the
 * device does, and not written again before its kernels have read it.
 */
#ifndef TRI_DATA_TWIN_H
#define TRI_DATA_TWIN_H

#include "data/data.h"

typedef struct tri_twin {
    void *input, *target;        /* NULL: nobody reads it */
    tri_device_event came, left; /* copies to there; kernels that read it */
} tri_twin;

/* Bytes of an array. */
typedef struct tri_twin_part {
    size_t first, nbytes;
} tri_twin_part;

/* Of what the batch has of the two, which it then names; half-made ones are freed like whole ones. */
tri_status tri_twin_make(const tri_device *device, tri_loader_batch *batch, size_t input_nbytes, size_t target_nbytes,
                         tri_twin *twin);
void tri_twin_free(const tri_device *device, tri_twin *twin);
/* Waits until nothing copies from the batch, and no kernel reads the twin. */
void tri_twin_await(const tri_device *device, const tri_twin *twin);
/* Copies parts of a batch, which is in memory of tri_device_host_alloc(). */
void tri_twin_fill(const tri_device *device, const tri_twin *twin, const tri_loader_batch *batch, tri_twin_part input,
                   tri_twin_part target);
/* Kernels that are queued from now on find the twin filled. */
void tri_twin_lend(const tri_device *device, const tri_twin *twin);
/* All that reads it is queued. */
void tri_twin_return(const tri_device *device, const tri_twin *twin);
/* The batch begins this many bytes further on, as far as it names a twin. */
void tri_twin_shift(tri_loader_batch *batch, size_t input_nbytes, size_t target_nbytes);

#endif
