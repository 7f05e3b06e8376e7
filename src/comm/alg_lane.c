/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_lane.c: small operations on the lane of a host: every rank posts what the others need, and reads what it needs.
 *
 * Nobody waits for anybody but those whose messages it reads. Sums are added by each rank alone in the order of the
 * plan, halves in f32, rounded once.
 */
#include <string.h>

#include "base/cache.h"
#include "comm/lane.h"

/* Has a message a block for each other rank? Then nobody reads all of it. */
static bool is_cut(const tri_call *call)
{
    return call->op == TRI_COMM_REDUCE_SCATTER || call->op == TRI_COMM_SCATTER || call->op == TRI_COMM_ALL_TO_ALL;
}

/* Bytes of the message of a rank that has one; the same on all ranks. */
static size_t message_nbytes(const tri_call *call)
{
    return tri_call_nbytes(call, is_cut(call) ? call->count * (call->group->count - 1) : call->count);
}

/* Blocks are in the order of the ranks; a rank's own is not among them. */
static void write_message(const tri_call *call, char *message)
{
    size_t nbytes = message_nbytes(call);
    size_t before = is_cut(call) ? tri_call_nbytes(call, call->count) * (size_t)call->group->rank : nbytes;
    memcpy(message, call->in, before);
    if (is_cut(call))
        memcpy(message + before, tri_call_in_block(call, call->group->rank + 1), nbytes - before);
}

/* Waits for the message of a peer: what this rank reads of it. */
static tri_status await_part(tri_call *call, int peer, const char **part)
{
    const void *message;
    int rank = call->group->rank, block = rank < peer ? rank : rank - 1;
    TRI_TRY(tri_lane_await(call, peer, message_nbytes(call), &message));
    *part = (const char *)message + (is_cut(call) ? tri_call_nbytes(call, call->count) * (size_t)block : 0);
    return TRI_OK;
}

static bool posts(const tri_call *call)
{
    return !tri_comm_has_root(call->op) || tri_call_only_gives(call);
}

/* With two ranks the reader of a slot is the only one: its writer gets the lines back whole (base/cache.h). */
static void give_back(const tri_call *call, const void *message)
{
    size_t nbytes = message_nbytes(call);
    if (call->group->count == 2 && nbytes > TRI_LANE_INLINE_NBYTES)
        tri_take_lines((void *)(uintptr_t)message, nbytes + TRI_LINE_NBYTES - 1);
}

static tri_status sum_two(tri_call *call, const char *own)
{
    const char *theirs;
    TRI_TRY(await_part(call, 1 - call->group->rank, &theirs));
    tri_reduce_find(call->reduce, call->dtype)(call->out, own, theirs, call->count);
    give_back(call, theirs);
    return tri_call_finish(call, call->dtype, call->out, call->count);
}

/* out = the sum of what all messages have for this rank; own: its own part of it. */
static tri_status sum_messages(tri_call *call, const char *own)
{
    tri_group *group = call->group;
    tri_dtype adds_in = tri_call_adds_in(call);
    int64_t count = call->count;
    const tri_plan *plan;
    if (group->count == 2 && adds_in == call->dtype)
        return sum_two(call, own);
    TRI_TRY(tri_plan_find(group, TRI_TREE_OF_RANKS, &plan));
    size_t each = (size_t)count * tri_dtype_nbytes(adds_in);
    char *sums = tri_call_scratch(call, each * (size_t)group->count + 1);
    if (!sums)
        return TRI_ENOMEM;
    for (int r = 0; r < group->count; r++) {
        const char *part = own;
        if (r != group->rank)
            TRI_TRY(await_part(call, r, &part));
        TRI_TRY(tri_convert(sums + (size_t)r * each, adds_in, part, call->dtype, count));
    }
    tri_reduce_fn combine = tri_reduce_find(call->reduce, adds_in);
    for (int i = 0; i < plan->step_count; i++) {
        char *into = sums + (size_t)plan->steps[i].into * each;
        combine(into, into, sums + (size_t)plan->steps[i].from * each, count);
    }
    TRI_TRY(tri_call_finish(call, adds_in, sums, count));
    return tri_convert(call->out, call->dtype, sums, adds_in, count);
}

/* What every message has for this rank, to the blocks of the output. */
static tri_status take_blocks(tri_call *call, const char *own)
{
    const tri_group *group = call->group;
    size_t nbytes = tri_call_nbytes(call, call->count);
    for (int r = 0; r < group->count; r++) {
        const char *part;
        char *block = tri_call_out_block(call, r);
        if (r == group->rank) {
            if (block != own)
                memmove(block, own, nbytes);
            continue;
        }
        TRI_TRY(await_part(call, r, &part));
        memcpy(block, part, nbytes);
        give_back(call, part);
    }
    return TRI_OK;
}

static tri_status take_from_root(tri_call *call, const char *own)
{
    const char *part;
    size_t nbytes = tri_call_nbytes(call, call->count);
    if (call->group->rank == call->root) {
        if (call->out != own)
            memmove(call->out, own, nbytes);
        return TRI_OK;
    }
    TRI_TRY(await_part(call, call->root, &part));
    tri_lane_glance(call->group->lane, call->root);
    memcpy(call->out, part, nbytes);
    give_back(call, part);
    tri_lane_fetch_ahead(call->group->lane, call->root, message_nbytes(call));
    return TRI_OK;
}

static tri_status await_all(tri_call *call)
{
    const void *message;
    for (int r = 0; r < call->group->count; r++)
        if (r != call->group->rank)
            TRI_TRY(tri_lane_await(call, r, 0, &message));
    return TRI_OK;
}

static tri_status read_messages(tri_call *call)
{
    bool is_root = call->group->rank == call->root;
    const char *own = is_cut(call) ? tri_call_in_block(call, call->group->rank) : call->in;
    switch (call->op) {
    case TRI_COMM_BARRIER:
        return await_all(call);
    case TRI_COMM_ALL_REDUCE:
    case TRI_COMM_REDUCE_SCATTER:
        return sum_messages(call, own);
    case TRI_COMM_REDUCE:
        return is_root ? sum_messages(call, own) : TRI_OK;
    case TRI_COMM_ALL_GATHER:
    case TRI_COMM_ALL_TO_ALL:
        return take_blocks(call, own);
    case TRI_COMM_GATHER:
        return is_root ? take_blocks(call, own) : TRI_OK;
    default:
        return take_from_root(call, own);
    }
}

tri_status tri_lane_run(tri_call *call)
{
    tri_lane *lane = call->group->lane;
    size_t nbytes = message_nbytes(call);
    TRI_TRY(tri_lane_begin(call));
    if (posts(call)) {
        write_message(call, tri_lane_message(lane, nbytes));
        tri_lane_post(lane, call);
        lane->unchecked = tri_call_only_gives(call);
    } else {
        tri_lane_announce(call);
    }
    TRI_TRY(read_messages(call));
    tri_lane_end(lane);
    if (posts(call))
        tri_lane_expect(lane, nbytes);
    return lane->unchecked ? tri_lane_check_root(call) : TRI_OK;
}

static const char *cannot(const tri_call *call)
{
    if (call->op == TRI_COMM_SEND_RECV || tri_comm_is_tree(call->op) || call->op == TRI_COMM_BATCH)
        return "not an operation of lanes";
    if (!call->group->lane)
        return "the group has no lane: not all of its ranks share memory";
    if (call->in_blocks.counts || call->out_blocks.counts)
        return "the blocks are of different lengths";
    return message_nbytes(call) > TRI_LANE_MESSAGE_NBYTES ? "more than a slot of the lane holds" : NULL;
}

bool tri_lane_takes(const tri_call *call)
{
    return !cannot(call);
}

static double cost_us(const tri_price *price, int ranks, double nbytes)
{
    (void)price;
    return (ranks - 1) * (0.06 + nbytes / 8000);
}

#define ROW(id, op_id)                                                                                                 \
    const tri_algorithm id = {.name = "lane",                                                                          \
                              .does = "small messages by flags in shared memory",                                      \
                              .op = op_id,                                                                             \
                              .cannot = cannot,                                                                        \
                              .cost_us = cost_us,                                                                      \
                              .run = tri_lane_run}

ROW(tri_all_reduce_by_lane, TRI_COMM_ALL_REDUCE);
ROW(tri_reduce_by_lane, TRI_COMM_REDUCE);
ROW(tri_broadcast_by_lane, TRI_COMM_BROADCAST);
ROW(tri_all_gather_by_lane, TRI_COMM_ALL_GATHER);
ROW(tri_reduce_scatter_by_lane, TRI_COMM_REDUCE_SCATTER);
ROW(tri_gather_by_lane, TRI_COMM_GATHER);
ROW(tri_scatter_by_lane, TRI_COMM_SCATTER);
ROW(tri_all_to_all_by_lane, TRI_COMM_ALL_TO_ALL);
ROW(tri_barrier_by_lane, TRI_COMM_BARRIER);
