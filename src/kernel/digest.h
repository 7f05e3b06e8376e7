/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.h: hashes of fixed tiles of arrays of a device, where the arrays are: xxh3 of the bytes of each tile. The same
 * values by the host and by a GPU.
 */
#ifndef TRI_KERNEL_DIGEST_H
#define TRI_KERNEL_DIGEST_H

#include "device/device.h"
#include "kernel/kernel.h"

#define TRI_DIGEST_ARRAYS 4 /* of one call, at most */

typedef struct tri_digest_tile {
    int64_t array, first, count; /* elements of the array of that number */
    uint64_t seed;
} tri_digest_tile;

typedef struct tri_digest tri_digest;
/* The tiles are copied. */
tri_status tri_digest_create(const tri_device *device, const tri_digest_tile *tiles, int64_t count, tri_digest **out);
void tri_digest_destroy(tri_digest *digest);
/* out[i] is the hash of tile i, with its seed; arrays are the device's. */
void tri_digest_run(const tri_digest *digest, int threads, const float *const arrays[TRI_DIGEST_ARRAYS], uint64_t *out);

#endif
