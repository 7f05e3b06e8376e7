/* SPDX-License-Identifier: Apache-2.0
 *
 * call_run.c: the body of every call when its turn has come: its signature, its algorithm, what is noted of it.
 */
#include <string.h>

#include "base/events.h"
#include "comm/engine.h"
#include "comm/lane.h"

/* One rank: what the operation comes to without anybody else. */
static tri_status run_alone(tri_call *call)
{
    const char *in = call->in;
    char *out = call->out;
    int64_t count = call->count;
    switch (call->op) {
    case TRI_COMM_BROADCAST:
    case TRI_COMM_BARRIER:
    case TRI_COMM_SEND_RECV:
        return TRI_OK;
    case TRI_COMM_ALL_REDUCE_TREE:
        /* All leaves are this rank's: one whole subtree, one part, and that is the root. */
        TRI_ASSERT(call->part_count == 1);
        return TRI_OK;
    case TRI_COMM_ALL_GATHER:
    case TRI_COMM_GATHER:
        out = tri_call_out_block(call, 0);
        count = tri_call_out_count(call, 0);
        break;
    case TRI_COMM_REDUCE_SCATTER:
    case TRI_COMM_SCATTER:
    case TRI_COMM_REDUCE_SCATTER_TREE:
        in = tri_call_in_block(call, 0);
        count = tri_call_in_count(call, 0);
        break;
    case TRI_COMM_ALL_TO_ALL:
        if (tri_call_in_count(call, 0) != tri_call_out_count(call, 0))
            return tri_fail(TRI_EMISMATCH, "all_to_all: this rank sends itself %lld elements and expects %lld",
                            (long long)tri_call_in_count(call, 0), (long long)tri_call_out_count(call, 0));
        in = tri_call_in_block(call, 0);
        out = tri_call_out_block(call, 0);
        count = tri_call_in_count(call, 0);
        break;
    default:
        break;
    }
    if (out != in)
        memmove(out, in, tri_call_nbytes(call, count));
    return TRI_OK;
}

/* Elements that the rank reads of `in`. */
static int64_t elements_in(const tri_call *call)
{
    bool of_all = call->op == TRI_COMM_REDUCE_SCATTER && !call->in_blocks.counts;
    return of_all ? call->count * call->group->count : call->count;
}

/* Blocks are packed on the way: what is between them is nobody's. */
static tri_status multiply_blocks(tri_call *call, char *out)
{
    for (int r = 0; r < call->group->count; r++) {
        int64_t count = tri_call_in_count(call, r);
        TRI_TRY(tri_reduce_multiply(out, tri_call_in_block(call, r), call->dtype, count, call->scale));
        out += tri_call_nbytes(call, count);
    }
    call->in_blocks.firsts = NULL;
    return TRI_OK;
}

/* PREMUL_SUM: from here on the call is the sum of what this rank's elements times its factor are. */
static tri_status scale_input(tri_call *call)
{
    int64_t count = elements_in(call);
    void *scaled = tri_call_keep(call, TRI_KEEP_SCALED, tri_call_nbytes(call, count));
    if (!scaled)
        return TRI_ENOMEM;
    call->reduce = TRI_REDUCE_SUM;
    if (call->in_blocks.counts)
        TRI_TRY(multiply_blocks(call, scaled));
    else
        TRI_TRY(tri_reduce_multiply(scaled, call->in, call->dtype, count, call->scale));
    call->in = scaled;
    return TRI_OK;
}

static tri_status run(tri_call *call)
{
    if (call->op == TRI_COMM_BATCH)
        return tri_batch_run_calls(call);
    if (call->group->count == 1)
        return run_alone(call);
    if (!call->group->lane_asked && call->op != TRI_COMM_SEND_RECV)
        TRI_TRY(tri_lane_open(call->group));
    return tri_engine_run(call);
}

tri_status tri_call_run_inside(tri_call *call)
{
    tri_call_fill_frame(call);
    return run(call);
}

static tri_status run_timed(tri_call *call)
{
    int64_t start_ns = tri_now_ns();
    tri_status status = run(call);
    tri_event event = {.start_ns = start_ns,
                       .duration_ns = tri_now_ns() - start_ns,
                       .what = tri_comm_op_name(call->op),
                       .rank = call->group->comm->rank,
                       .sequence = (uint32_t)call->frame.sequence,
                       .nbytes = tri_call_nbytes(call, call->count)};
    tri_event_write(&event);
    return status;
}

/* Small calls on a lane take less time than looking at the clock twice. */
static inline bool is_short(const tri_call *call)
{
    const tri_group *group = call->group;
    return group->lane && !group->comm->engine && !call->algorithm && group->comm->rule_count == 0 &&
           tri_lane_takes(call);
}

tri_status tri_call_run(tri_call *call)
{
    if (call->sender)
        return tri_call_probe(call);
    if (call->op != TRI_COMM_BATCH)
        tri_call_fill_frame(call);
    if (call->reduce == TRI_REDUCE_PREMUL_SUM)
        TRI_TRY(scale_input(call));
    tri_comm *comm = call->group->comm;
    bool shown = call->op != TRI_COMM_BATCH; /* its operations show themselves */
    if (shown)
        tri_board_begin(comm->board, &call->frame, call->group->members, call->name);
    bool quick = is_short(call);
    tri_status status = quick ? tri_lane_run(call) : run_timed(call);
    if (shown)
        tri_board_end(comm->board, status, quick);
    if (status == TRI_OK)
        tri_counter_add(TRI_COUNT_COLLECTIVES, 1);
    /* A failure that is this call's own says so. */
    if (status == TRI_OK || status == TRI_EMISMATCH || status == TRI_EABORT)
        return status;
    char text[192];
    tri_call_describe(call->group->comm, &call->frame, text);
    if (status == TRI_ETIMEOUT && call->op == TRI_COMM_SEND_RECV && call->sends)
        return tri_fail(status, "%s: %s; ranks that send to each other before they receive need a batch", text,
                        tri_last_error());
    return tri_fail_context(status, "%s", text);
}
