/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_run.c: runs the operations of a batch as one, again and again.
 *
 * In the queue a batch is one call, so nothing comes between its operations. Its sends and receives are moved all at
 * once, first; the other operations then run in the order in which they were noted.
 */
#include "comm/engine.h"

tri_status tri_batch_run(tri_batch *batch, tri_work **work)
{
    if (!batch)
        return tri_fail(TRI_EINVAL, "batch: want a batch, got NULL");
    if (batch->group->collecting)
        return tri_fail(TRI_EINVAL, "batch: want no batch inside another");
    tri_call call = {.group = batch->group, .op = TRI_COMM_BATCH, .dtype = TRI_U8, .batch = batch};
    return tri_work_submit(&call, work);
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
