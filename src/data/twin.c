/* SPDX-License-Identifier: Apache-2.0
 *
 * twin.c: copies of batches in memory of a device, by its queue of copies.
 */
#include "data/twin.h"

tri_status tri_twin_make(const tri_device *device, tri_loader_batch *batch, size_t input_nbytes, size_t target_nbytes,
                         tri_twin *twin)
{
    TRI_TRY(tri_device_event_create(device, &twin->came));
    TRI_TRY(tri_device_event_create(device, &twin->left));
    if (batch->input && !(twin->input = tri_device_alloc(device, input_nbytes)))
        return TRI_ENOMEM;
    if (batch->target && !(twin->target = tri_device_alloc(device, target_nbytes)))
        return TRI_ENOMEM;
    batch->input_there = twin->input;
    batch->target_there = twin->target;
    return TRI_OK;
}

void tri_twin_free(const tri_device *device, tri_twin *twin)
{
    tri_device_free(device, twin->input);
    tri_device_free(device, twin->target);
    tri_device_event_destroy(device, &twin->came);
    tri_device_event_destroy(device, &twin->left);
}

void tri_twin_await(const tri_device *device, const tri_twin *twin)
{
    tri_device_event_wait(device, twin->came);
    tri_device_event_wait(device, twin->left);
}

void tri_twin_fill(const tri_device *device, const tri_twin *twin, const tri_loader_batch *batch, tri_twin_part input,
                   tri_twin_part target)
{
    if (twin->input)
        tri_device_copy_in(device, (char *)twin->input + input.first, (const char *)batch->input + input.first,
                           input.nbytes);
    if (twin->target)
        tri_device_copy_in(device, (char *)twin->target + target.first, (const char *)batch->target + target.first,
                           target.nbytes);
    tri_device_event_record(device, twin->came, TRI_QUEUE_COPIES);
}

void tri_twin_lend(const tri_device *device, const tri_twin *twin)
{
    tri_device_event_order(device, twin->came, TRI_QUEUE_KERNELS);
}

void tri_twin_return(const tri_device *device, const tri_twin *twin)
{
    tri_device_event_record(device, twin->left, TRI_QUEUE_KERNELS);
}

void tri_twin_shift(tri_loader_batch *batch, size_t input_nbytes, size_t target_nbytes)
{
    if (batch->input_there)
        batch->input_there = (const char *)batch->input_there + input_nbytes;
    if (batch->target_there)
        batch->target_there = (const char *)batch->target_there + target_nbytes;
}
