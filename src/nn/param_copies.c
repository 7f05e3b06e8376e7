/* SPDX-License-Identifier: Apache-2.0
 *
 * param_copies.c: entries of a store in 16 bits, as products of a card read them, beside the f32 values.
 *
 * A copy that is there is always that of the values: kernels of optimizers write both (optim/gpu.c), though with zero1
 * and zero2 the gather that follows overwrites the values; whatever else writes values, the device says so
 * (tri_device_watch: copies by themselves, who launches a kernel or lets NCCL write by tri_device_written()), and the
 * copy is rounded again before it is next read. The bits are those of values that are rounded each time they are read.
 */
#include "base/memory.h"
#include "kernel/gpu/flat.h"
#include "nn/params.h"

struct tri_param_copies {
    const tri_params *params;
    tri_device_watch watch;
    int count;              /* of items that have memory: while there are some, the values are watched */
    tri_param_copy items[]; /* [entry_count] */
};

/* Bytes of the values change. */
static void values_change(void *arg, size_t first, size_t nbytes)
{
    struct tri_param_copies *copies = arg;
    const tri_params *params = copies->params;
    const int64_t low = (int64_t)(first / sizeof(float)),
                  high = (int64_t)((first + nbytes + sizeof(float) - 1) / sizeof(float));
    for (int e = 0; e < params->entry_count && params->entries[e].first < high; e++)
        if (params->entries[e].first + params->entries[e].count > low)
            copies->items[e].there = false;
}

tri_status tri_params_copies_init(tri_params *params)
{
    params->copies = tri_alloc_zero(1, sizeof(*params->copies) + (size_t)params->entry_count * sizeof(tri_param_copy));
    if (!params->copies)
        return TRI_ENOMEM;
    params->copies->params = params;
    return TRI_OK;
}

void tri_params_copies_fini(tri_params *params)
{
    TRI_ASSERT(!params->copies || params->copies->count == 0);
    tri_free(params->copies);
}

static bool watch_begin(struct tri_param_copies *copies)
{
    const tri_params *params = copies->params;
    copies->watch = (tri_device_watch){.memory = params->values,
                                       .nbytes = (size_t)params->count * sizeof(float),
                                       .changes = values_change,
                                       .arg = copies};
    return tri_device_watch_set(params->device, &copies->watch);
}

bool tri_params_copy_add(const tri_params *params, int entry, void *data, tri_dtype dtype)
{
    struct tri_param_copies *copies = params->copies;
    TRI_ASSERT(!params->share);
    if (copies->items[entry].data || (copies->count == 0 && !watch_begin(copies)))
        return false;
    copies->items[entry] = (tri_param_copy){.data = data, .dtype = dtype};
    copies->count++;
    return true;
}

void tri_params_copy_drop(const tri_params *params, int entry, const void *data)
{
    struct tri_param_copies *copies = params->copies;
    if (copies->items[entry].data != data)
        return;
    copies->items[entry] = (tri_param_copy){0};
    if (--copies->count == 0)
        tri_device_watch_end(params->device, &copies->watch);
}

const void *tri_params_copy_bring(const tri_params *params, int entry, const void *data)
{
    tri_param_copy *copy = &params->copies->items[entry];
    if (!data || copy->data != data)
        return NULL;
    if (!copy->there)
        tri_gpu_cast(tri_gpu_queue_of(params->device), tri_gpu_value_make(copy->data, copy->dtype),
                     tri_gpu_value_make(params->values + params->entries[entry].first, TRI_F32),
                     params->entries[entry].count);
    copy->there = true;
    return copy->data;
}

tri_param_copy tri_params_copy_at(const tri_params *params, int entry, const float *values, int64_t first)
{
    const tri_param_copy *copy = params->copies ? &params->copies->items[entry] : NULL;
    if (!copy || !copy->there || values != params->values + first)
        return (tri_param_copy){0};
    const size_t skipped = (size_t)(first - params->entries[entry].first) * tri_dtype_nbytes(copy->dtype);
    return (tri_param_copy){(char *)copy->data + skipped, copy->dtype, true};
}
