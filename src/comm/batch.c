/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.c: several operations of a group, noted once.
 */
#include <stdio.h>
#include <string.h>

#include "comm/run.h"

tri_status tri_batch_begin(tri_group *group)
{
    if (group->collecting)
        return tri_fail(TRI_EINVAL, "batch: want tri_batch_end before another tri_batch_begin of this group");
    tri_batch *batch = tri_alloc_zero(1, sizeof(*batch));
    if (!batch)
        return TRI_ENOMEM;
    batch->group = group;
    group->collecting = batch;
    return TRI_OK;
}

tri_status tri_batch_append(tri_batch *batch, const tri_call *call)
{
    if (batch->count == batch->capacity) {
        size_t capacity = batch->capacity ? 2 * batch->capacity : 8;
        tri_call *calls = tri_realloc(batch->calls, capacity * sizeof(*calls));
        if (!calls)
            return TRI_ENOMEM;
        batch->calls = calls;
        batch->capacity = capacity;
    }
    batch->calls[batch->count] = *call;
    memcpy(batch->calls[batch->count++].name, batch->group->name, sizeof(call->name));
    return TRI_OK;
}

void tri_batch_fail(tri_batch *batch, tri_status status)
{
    if (batch->failed != TRI_OK)
        return;
    batch->failed = status;
    snprintf(batch->message, sizeof(batch->message), "%s", tri_last_error());
}

tri_status tri_batch_end(tri_group *group, tri_batch **out)
{
    tri_batch *batch = group->collecting;
    *out = NULL;
    if (!batch)
        return tri_fail(TRI_EINVAL, "batch: want tri_batch_begin before tri_batch_end");
    group->collecting = NULL;
    if (batch->failed != TRI_OK) {
        tri_status status = tri_fail_copy(batch->failed, batch->message);
        tri_batch_destroy(batch);
        return status;
    }
    *out = batch;
    return TRI_OK;
}

void tri_batch_destroy(tri_batch *batch)
{
    if (!batch)
        return;
    tri_free(batch->calls);
    tri_free(batch);
}

void tri_batch_number(tri_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        /* A run changes its call; what was noted stays. */
        batch->calls[i].frame = (tri_frame){0};
        tri_call_number(&batch->calls[i]);
    }
}

const tri_call *tri_batch_calls(const tri_batch *batch, size_t *count)
{
    *count = batch->count;
    return batch->calls;
}
