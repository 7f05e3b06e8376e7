/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h: buffers that pass from unit to unit: gradients on their way to their owners, weights for as long as kernels
 * read them.
 *
 * What a rank takes and gives back follows from the order of its calls alone, which is the same on all ranks: so it may
 * be memory of their group, which all allocate together. It grows when nothing is free that is large enough; a run's
 * second step allocates nothing.
 */
#ifndef TRI_PARALLEL_POOL_H
#define TRI_PARALLEL_POOL_H

#include <trireme/comm.h>

#include "base/containers.h"
#include "device/device.h"
#include "parallel/kept.h"

typedef struct tri_pool {
    tri_group *group; /* of the first array of each buffer; NULL: ordinary memory */
    int arrays;       /* of each buffer, alike */
    int most;         /* buffers: a free one that is too small is given up for a larger one */
    tri_kept *kept;   /* buffers of the pool before, and for the next one; NULL: none */
    tri_vector buffers;
    const tri_device *device; /* of tri_pool_fill(); NULL: the host */
} tri_pool;

void tri_pool_init(tri_pool *pool, tri_group *group, int arrays, int most, tri_kept *kept);
/* Before the first take: in memory of the device, `most` buffers of that many elements. None of them is given up: to
 * free memory of a device waits for what it computes, and so for other ranks. Who takes what it has not gets one more.
 */
tri_status tri_pool_fill(tri_pool *pool, const tri_device *device, const int64_t *counts);
/* A buffer of `count` elements is free, and large enough. */
bool tri_pool_has(const tri_pool *pool, int64_t count);
/* Of each array of a buffer that is made for `count` elements. */
size_t tri_pool_nbytes(int64_t count);
/* None of its buffers is used any more. */
void tri_pool_fini(tri_pool *pool);
/* A buffer of at least `count` elements in each array; *number gives it back. Its content is left from earlier. */
tri_status tri_pool_take(tri_pool *pool, int64_t count, int *number);
float *tri_pool_array(const tri_pool *pool, int number, int array);
void tri_pool_give(tri_pool *pool, int number);

#endif
