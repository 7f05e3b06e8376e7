/* SPDX-License-Identifier: Apache-2.0
 *
 * kept.c: gradient arrays, which outlive a sync where another one of the same store follows.
 *
 * A fresh array is zeros that the system makes page by page, while the first backward pass waits: on a virtual machine
 * that can take as long as a step. One that is used again has what an earlier step left there, as in any second step.
 */
#include "base/memory.h"
#include "parallel/compress.h"
#include "parallel/sync_impl.h"

static size_t array_nbytes(const tri_params *params)
{
    return (size_t)(tri_params_grad_count(params) + TRI_PARAMS_TAIL) * sizeof(float);
}

void tri_sync_kept_fini(tri_sync_kept *kept)
{
    tri_group_memory_free(&kept->first);
    while (kept->count > 0)
        tri_free(kept->others[--kept->count]);
    *kept = (tri_sync_kept){0};
}

tri_status tri_sync_kept_make(tri_sync_kept *kept, const tri_parallel_config *config, const tri_params *params,
                              int part_count, bool shared)
{
    tri_sync_kept_fini(kept);
    if (!tri_sync_keeps(config))
        return TRI_OK;
    kept->nbytes = array_nbytes(params);
    TRI_TRY(tri_group_memory_make(kept->nbytes, shared, &kept->first));
    for (; kept->count < part_count - 1; kept->count++) {
        if (!(kept->others[kept->count] = tri_alloc_bulk(kept->nbytes)))
            return TRI_ENOMEM;
        tri_memory_touch(kept->others[kept->count], kept->nbytes);
    }
    return TRI_OK;
}

/* The group's first, then this rank's own; what is left over is not kept. */
static tri_status arrays_fill(tri_group *group, tri_sync_kept *kept, int part_count, float **arrays)
{
    void *first = NULL;
    tri_group_memory *memory = &kept->first;
    if (!memory->plain &&
        kept->count > 0) { /* also beside a region: the first rank on another host makes that useless */
        memory->plain = kept->others[--kept->count];
        memory->nbytes = kept->nbytes;
    }
    TRI_TRY(tri_group_alloc_kept(group, kept->nbytes, memory, &first));
    arrays[0] = first;
    for (int p = 1; p < part_count; p++) {
        if (kept->count > 0)
            arrays[p] = kept->others[--kept->count];
        else if (memory->plain) {
            arrays[p] = memory->plain;
            memory->plain = NULL;
        } else if (!(arrays[p] = tri_alloc_bulk(kept->nbytes)))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

tri_status tri_sync_arrays_alloc(tri_group *group, const tri_params *params, int part_count, tri_sync_kept *kept,
                                 float ***out)
{
    tri_sync_kept none = {0};
    float **arrays = tri_alloc_zero((size_t)part_count, sizeof(float *));
    if (!arrays)
        return TRI_ENOMEM;
    kept = kept ? kept : &none;
    if (kept->nbytes != array_nbytes(params))
        tri_sync_kept_fini(kept);
    kept->nbytes = array_nbytes(params);
    tri_status status = arrays_fill(group, kept, part_count, arrays);
    tri_sync_kept_fini(kept);
    kept->nbytes = array_nbytes(params);
    *out = arrays;
    if (status == TRI_OK)
        return TRI_OK;
    tri_sync_arrays_free(group, arrays, part_count, NULL);
    *out = NULL;
    return status;
}

void tri_sync_arrays_free(tri_group *group, float **arrays, int part_count, tri_sync_kept *kept)
{
    if (!arrays)
        return;
    for (int p = 1; p < part_count; p++) {
        if (kept && arrays[p])
            kept->others[kept->count++] = arrays[p];
        else
            tri_free(arrays[p]);
    }
    if (kept && arrays[0]) {
        tri_group_free_kept(group, arrays[0], kept->shared, &kept->first);
        kept->shared = false;
    } else {
        tri_group_free(group, arrays[0]);
    }
    tri_free(arrays);
}
