/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.c: several operations of a group noted once and run as one, again and again.
 *
 * In the queue a batch is one call, so nothing comes between its operations. Its sends and receives are moved all at
 * once, first; the other operations then run in the order in which they were noted.
 */
#include <stdio.h>
#include <string.h>

#include "comm/engine.h"

struct tri_batch {
    tri_group *group;
    tri_call *calls;
    size_t count, capacity;
    tri_status failed; /* the first error between begin and end */
    char message[TRI_ERROR_NBYTES];
};

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

tri_status tri_batch_run(tri_batch *batch, tri_work **work)
{
    if (!batch)
        return tri_fail(TRI_EINVAL, "batch: want a batch, got NULL");
    if (batch->group->collecting)
        return tri_fail(TRI_EINVAL, "batch: want no batch inside another");
    tri_call call = {.group = batch->group, .op = TRI_COMM_BATCH, .dtype = TRI_U8, .batch = batch};
    return tri_work_submit(&call, work);
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

tri_status tri_batch_run_pairs(tri_call *batch_call)
{
    tri_batch *batch = batch_call->batch;
    tri_moves_begin(batch_call);
    for (size_t i = 0; i < batch->count; i++) {
        tri_call *call = &batch->calls[i];
        size_t nbytes = tri_call_nbytes(call, call->count);
        if (call->op != TRI_COMM_SEND_RECV)
            continue;
        tri_call_fill_frame(call);
        batch_call->frame = call->frame; /* the latest stands for all in messages */
        if (call->sends)
            tri_moves_send(call, call->root, 0, call->in, nbytes);
        else
            tri_moves_receive(call, call->root, 0, call->out, nbytes);
    }
    return tri_moves_run(batch_call);
}

const tri_call *tri_batch_calls(const tri_batch *batch, size_t *count)
{
    *count = batch->count;
    return batch->calls;
}

tri_status tri_batch_run_calls(tri_call *batch_call)
{
    tri_batch *batch = batch_call->batch;
    TRI_TRY(tri_engine_run(batch_call));
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->calls[i].op == TRI_COMM_SEND_RECV)
            continue;
        tri_call call = batch->calls[i];
        tri_status status = tri_call_run(&call);
        batch_call->frame = call.frame;
        TRI_TRY(status);
    }
    return TRI_OK;
}
