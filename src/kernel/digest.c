/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.c: hashes of tiles: by the library of xxHash where the host's processor finds the arrays, else by a kernel. Of
 * a few bytes xxh3 is another function: such tiles of a GPU come to the host.
 */
#include "kernel/digest.h"

#include <string.h>

#include "base/hash_wide.h"
#include "base/memory.h"
#include "kernel/gpu/flat.h"

struct tri_digest {
    const tri_device *device;
    tri_digest_tile *tiles; /* [count] */
    int64_t count;
    tri_gpu_digest_args args; /* of a GPU; its tiles and results are there */
};

_Static_assert(sizeof(tri_digest_tile) == sizeof(tri_gpu_digest_tile) && TRI_DIGEST_ARRAYS == TRI_GPU_DIGEST_ARRAYS &&
                   XXH3_SECRET_DEFAULT_SIZE == sizeof(((tri_gpu_digest_args *)0)->secret),
               "tiles are what the kernel reads");

static bool is_gpu(const tri_device *device)
{
    return strcmp(device->ops->kernels, "cuda") == 0;
}

static tri_status gpu_open(tri_digest *digest)
{
    const size_t tiles_nbytes = (size_t)digest->count * sizeof(tri_digest_tile);
    tri_gpu_digest_args *args = &digest->args;
    void *tiles = tri_device_alloc(digest->device, tiles_nbytes);
    args->tiles = tiles;
    args->out = tri_device_alloc(digest->device, (size_t)digest->count * sizeof(uint64_t));
    args->count = digest->count;
    if (!tiles || !args->out)
        return TRI_ENOMEM;
    XXH3_generateSecret_fromSeed(args->secret, 0);
    tri_device_from_host(digest->device, tiles, digest->tiles, tiles_nbytes);
    return TRI_OK;
}

tri_status tri_digest_create(const tri_device *device, const tri_digest_tile *tiles, int64_t count, tri_digest **out)
{
    tri_digest *digest = tri_alloc_zero(1, sizeof(*digest));
    if (!digest)
        return TRI_ENOMEM;
    digest->device = device;
    digest->count = count;
    digest->tiles = tri_alloc((size_t)count * sizeof(*tiles) + 1);
    tri_status status = digest->tiles ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        memcpy(digest->tiles, tiles, (size_t)count * sizeof(*tiles));
    if (status == TRI_OK && is_gpu(device))
        status = gpu_open(digest);
    if (status != TRI_OK) {
        tri_digest_destroy(digest);
        return status;
    }
    *out = digest;
    return TRI_OK;
}

void tri_digest_destroy(tri_digest *digest)
{
    if (!digest)
        return;
    if (is_gpu(digest->device)) {
        tri_device_free(digest->device, (void *)(uintptr_t)digest->args.tiles);
        tri_device_free(digest->device, digest->args.out);
    }
    tri_free(digest->tiles);
    tri_free(digest);
}

typedef struct run_arg {
    const tri_digest *digest;
    const float *arrays[TRI_DIGEST_ARRAYS]; /* where this processor finds them */
    uint64_t *out;
} run_arg;

static void cpu_tile(void *arg, int64_t number)
{
    const run_arg *v = arg;
    const tri_digest_tile *tile = &v->digest->tiles[number];
    v->out[number] = XXH3_64bits_withSeed(v->arrays[tile->array] + tile->first, (size_t)tile->count * sizeof(float),
                                          (XXH64_hash_t)tile->seed);
}

static void gpu_run(const tri_digest *digest, const float *const arrays[TRI_DIGEST_ARRAYS], uint64_t *out)
{
    tri_gpu_digest_args args = digest->args;
    memcpy(args.arrays, arrays, sizeof(args.arrays));
    tri_gpu_digest(tri_gpu_queue_of(digest->device), &args);
    tri_device_to_host(digest->device, out, args.out, (size_t)digest->count * sizeof(uint64_t));
    for (int64_t i = 0; i < digest->count; i++) {
        const tri_digest_tile *tile = &digest->tiles[i];
        const size_t nbytes = (size_t)tile->count * sizeof(float);
        float few[TRI_GPU_DIGEST_FEW];
        if (tile->count > TRI_GPU_DIGEST_FEW)
            continue;
        tri_device_to_host(digest->device, few, arrays[tile->array] + tile->first, nbytes);
        out[i] = XXH3_64bits_withSeed(few, nbytes, (XXH64_hash_t)tile->seed);
    }
}

void tri_digest_run(const tri_digest *digest, int threads, const float *const arrays[TRI_DIGEST_ARRAYS], uint64_t *out)
{
    if (digest->count == 0)
        return;
    if (is_gpu(digest->device)) {
        gpu_run(digest, arrays, out);
        return;
    }
    run_arg arg = {.digest = digest, .out = out};
    for (int a = 0; a < TRI_DIGEST_ARRAYS; a++)
        arg.arrays[a] = tri_device_mapped(digest->device, arrays[a]);
    tri_tiles_run(threads, digest->count, cpu_tile, &arg);
}
