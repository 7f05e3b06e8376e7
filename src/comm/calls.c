/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c: the public operations: each checks its arguments, becomes a tri_call and goes into the queue; and the body
 * of every call when its turn has come.
 */
#include <inttypes.h>
#include <string.h>

#include <xxhash.h>

#include "base/events.h"
#include "comm/comm_impl.h"

static const char *const op_names[TRI_COMM_OP_COUNT] = {
    [TRI_COMM_ALL_REDUCE] = "all_reduce",         [TRI_COMM_REDUCE] = "reduce",
    [TRI_COMM_BROADCAST] = "broadcast",           [TRI_COMM_ALL_GATHER] = "all_gather",
    [TRI_COMM_REDUCE_SCATTER] = "reduce_scatter", [TRI_COMM_BARRIER] = "barrier",
    [TRI_COMM_SEND_RECV] = "send_recv",           [TRI_COMM_ALL_REDUCE_TREE] = "all_reduce_tree",
};

const char *tri_comm_op_name(tri_comm_op op)
{
    return (unsigned)op < TRI_COMM_OP_COUNT && op_names[op] ? op_names[op] : "?";
}

/* With no elements a pointer may be NULL; the algorithms then still exchange empty frames. */
static char nothing[64];

static tri_status submit(tri_call *call, tri_work **work)
{
    const char *what = tri_comm_op_name(call->op);
    int ranks = call->group->count;
    if ((unsigned)call->dtype >= TRI_DTYPE_COUNT)
        return tri_fail(TRI_EINVAL, "%s: there is no element type %d", what, (int)call->dtype);
    if ((unsigned)call->reduce >= TRI_REDUCE_COUNT)
        return tri_fail(TRI_EINVAL, "%s: there is no reduction %d", what, (int)call->reduce);
    int64_t limit = (INT64_C(1) << 39) / (int64_t)tri_dtype_nbytes(call->dtype) / ranks;
    if (call->count < 0 || call->count > limit)
        return tri_fail(TRI_EINVAL, "%s: want a count from 0 to %" PRId64 ", got %" PRId64, what, limit, call->count);
    if (call->root < 0 || call->root >= ranks)
        return tri_fail(TRI_EINVAL, "%s: want a rank from 0 to %d, got %d", what, ranks - 1, call->root);
    if (call->count == 0) {
        call->in = call->in ? call->in : nothing;
        call->out = call->out ? call->out : nothing;
    }
    bool receives = call->op == TRI_COMM_SEND_RECV && !call->sends;
    if ((!call->in && !receives) || (!call->out && !call->sends))
        return tri_fail(TRI_EINVAL, "%s of %" PRId64 " elements: want a buffer, got NULL", what, call->count);
    call->canonical = !call->group->comm->any_order || call->op == TRI_COMM_ALL_REDUCE_TREE;
    return tri_work_submit(call, work);
}

tri_status tri_all_reduce(tri_group *group, void *data, int64_t count, tri_dtype dtype, tri_reduce_op op,
                          tri_work **work)
{
    tri_call call = {.group = group,
                     .op = TRI_COMM_ALL_REDUCE,
                     .dtype = dtype,
                     .reduce = op,
                     .count = count,
                     .in = data,
                     .out = data};
    return submit(&call, work);
}

tri_status tri_reduce(tri_group *group, void *data, int64_t count, tri_dtype dtype, tri_reduce_op op, int root,
                      tri_work **work)
{
    tri_call call = {.group = group,
                     .op = TRI_COMM_REDUCE,
                     .dtype = dtype,
                     .reduce = op,
                     .root = root,
                     .count = count,
                     .in = data,
                     .out = data};
    return submit(&call, work);
}

tri_status tri_broadcast(tri_group *group, void *data, int64_t count, tri_dtype dtype, int root, tri_work **work)
{
    tri_call call = {.group = group,
                     .op = TRI_COMM_BROADCAST,
                     .dtype = dtype,
                     .root = root,
                     .count = count,
                     .in = data,
                     .out = data};
    return submit(&call, work);
}

tri_status tri_all_gather(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype, tri_work **work)
{
    tri_call call = {.group = group, .op = TRI_COMM_ALL_GATHER, .dtype = dtype, .count = count, .in = in, .out = out};
    return submit(&call, work);
}

tri_status tri_reduce_scatter(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype,
                              tri_reduce_op op, tri_work **work)
{
    tri_call call = {.group = group,
                     .op = TRI_COMM_REDUCE_SCATTER,
                     .dtype = dtype,
                     .reduce = op,
                     .count = count,
                     .in = in,
                     .out = out};
    return submit(&call, work);
}

tri_status tri_barrier(tri_group *group, tri_work **work)
{
    tri_call call = {.group = group, .op = TRI_COMM_BARRIER, .dtype = TRI_U8};
    return submit(&call, work);
}

static tri_status submit_pair(tri_call *call, tri_work **work)
{
    if (call->root == call->group->rank)
        return tri_fail(TRI_EINVAL, "%s: want another rank than this one, got %d", call->sends ? "send" : "receive",
                        call->root);
    return submit(call, work);
}

tri_status tri_send(tri_group *group, const void *data, int64_t count, tri_dtype dtype, int to, tri_work **work)
{
    tri_call call = {.group = group,
                     .op = TRI_COMM_SEND_RECV,
                     .dtype = dtype,
                     .root = to,
                     .sends = true,
                     .count = count,
                     .in = data};
    return submit_pair(&call, work);
}

tri_status tri_receive(tri_group *group, void *data, int64_t count, tri_dtype dtype, int from, tri_work **work)
{
    tri_call call = {
        .group = group, .op = TRI_COMM_SEND_RECV, .dtype = dtype, .root = from, .count = count, .out = data};
    return submit_pair(&call, work);
}

static tri_status submit_tree(tri_group *group, int64_t leaves, float *const *parts, int part_count, int64_t count,
                              bool spread, tri_work **work)
{
    if (leaves < 1 || (leaves & (leaves - 1)) || leaves > INT64_C(1) << 30)
        return tri_fail(TRI_EINVAL, "all_reduce_tree: want a power of two of leaves up to 2^30, got %" PRId64, leaves);
    tri_tree_part own[TRI_TREE_MAX_PARTS];
    int64_t own_first = tri_tree_first(leaves, group->rank, group->count);
    int64_t own_count = tri_tree_count(leaves, group->rank, group->count);
    int want = tri_tree_parts(leaves, own_first, own_count, own);
    if (part_count != want)
        return tri_fail(TRI_EINVAL,
                        "all_reduce_tree: rank %d of %d owns %" PRId64 " of %" PRId64 " leaves: want %d parts, got %d",
                        group->rank, group->count, own_count, leaves, want, part_count);
    /* A rank without leaves still needs a place for the result. */
    for (int p = 0; count > 0 && p < (want > 1 ? want : 1); p++) {
        if (!parts || !parts[p])
            return tri_fail(TRI_EINVAL, "all_reduce_tree of %" PRId64 " elements: want a buffer as part %d, got NULL",
                            count, p);
    }
    tri_call call = {.group = group,
                     .op = TRI_COMM_ALL_REDUCE_TREE,
                     .dtype = TRI_F32,
                     .reduce = TRI_REDUCE_SUM,
                     .count = count,
                     .leaves = leaves,
                     .parts = parts,
                     .part_count = part_count,
                     .spread = spread};
    call.in = call.out = parts ? parts[0] : NULL;
    return submit(&call, work);
}

tri_status tri_all_reduce_tree(tri_group *group, int64_t leaves, float *const *parts, int part_count, int64_t count,
                               tri_work **work)
{
    return submit_tree(group, leaves, parts, part_count, count, false, work);
}

tri_status tri_sum_tree(tri_group *group, int64_t leaves, float *const *parts, int part_count, int64_t count,
                        tri_work **work)
{
    return submit_tree(group, leaves, parts, part_count, count, true, work);
}

/* One rank: what the operation comes to without anybody else. */
static tri_status run_alone(tri_call *call)
{
    switch (call->op) {
    case TRI_COMM_ALL_GATHER:
    case TRI_COMM_REDUCE_SCATTER:
        if (call->out != call->in)
            memmove(call->out, call->in, tri_call_nbytes(call, call->count));
        return TRI_OK;
    case TRI_COMM_ALL_REDUCE_TREE:
        /* All leaves are this rank's: one whole subtree, one part, and that is the root. */
        TRI_ASSERT(call->part_count == 1);
        return TRI_OK;
    default:
        return TRI_OK;
    }
}

static uint32_t frame_extra(const tri_call *call)
{
    if (call->op == TRI_COMM_REDUCE || call->op == TRI_COMM_BROADCAST)
        return (uint32_t)call->root;
    return call->op == TRI_COMM_ALL_REDUCE_TREE ? (uint32_t)__builtin_ctzll((uint64_t)call->leaves) : 0;
}

/* The sequence is there already (work.c). */
static void fill_frame(tri_call *call)
{
    tri_comm *comm = call->group->comm;
    call->frame.kind = TRI_FRAME_DATA;
    call->frame.op = (uint8_t)call->op;
    call->frame.dtype = (uint8_t)call->dtype;
    call->frame.group = call->group->id;
    call->frame.count = (uint64_t)call->count;
    call->frame.reduce = (uint32_t)call->reduce | frame_extra(call) << 8;
    if (!call->name[0])
        return;
    call->frame.name = XXH3_64bits(call->name, strlen(call->name));
    for (size_t i = 0; i < TRI_COMM_NAMES_KEPT; i++) {
        if (comm->names[i].hash == call->frame.name)
            return;
    }
    tri_known_name *name = &comm->names[comm->name_next++ % TRI_COMM_NAMES_KEPT];
    name->hash = call->frame.name;
    memcpy(name->text, call->name, sizeof(name->text));
}

tri_status tri_call_run(tri_call *call)
{
    tri_comm *comm = call->group->comm;
    int64_t start_ns = tri_now_ns();
    tri_status status;
    if (call->group->count == 1) {
        status = run_alone(call);
    } else {
        fill_frame(call);
        tri_board_begin(comm->board, &call->frame, call->group->members, call->name);
        const tri_algorithm *algorithm = call->algorithm ? call->algorithm : tri_algorithm_select(call);
        status = algorithm->run(call);
        tri_board_end(comm->board, status);
    }
    tri_event event = {.start_ns = start_ns,
                       .duration_ns = tri_now_ns() - start_ns,
                       .what = tri_comm_op_name(call->op),
                       .rank = comm->rank,
                       .sequence = (uint32_t)call->frame.sequence,
                       .nbytes = tri_call_nbytes(call, call->count)};
    tri_event_write(&event);
    if (status == TRI_OK) {
        tri_counter_add(TRI_COUNT_COLLECTIVES, 1);
    } else if (status != TRI_EMISMATCH && status != TRI_EABORT) {
        char text[192];
        tri_call_describe(comm, &call->frame, text);
        return tri_fail_context(status, "%s", text);
    }
    return status;
}
