/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c: the public operations: each checks its arguments, becomes a tri_call and goes into the queue.
 */
#include <inttypes.h>

#include "comm/engine.h"

/* With no elements a pointer may be NULL; the algorithms then still exchange empty frames. */
static char nothing[64];

/* Does this rank read `in`, write `out`? */
static bool reads(const tri_call *call)
{
    bool is_root = call->root == call->group->rank;
    return call->op == TRI_COMM_SEND_RECV ? call->sends : call->op != TRI_COMM_SCATTER || is_root;
}

static bool writes(const tri_call *call)
{
    bool is_root = call->root == call->group->rank;
    bool rooted = call->op == TRI_COMM_REDUCE || call->op == TRI_COMM_GATHER;
    return call->op == TRI_COMM_SEND_RECV ? !call->sends : !rooted || is_root;
}

static int64_t count_limit(const tri_call *call)
{
    return (INT64_C(1) << 39) / (int64_t)tri_dtype_nbytes(call->dtype) / call->group->count;
}

/* Counts of the blocks that this rank looks at: all of them, or its own. */
static tri_status check_blocks(const tri_call *call, const tri_blocks *blocks, bool all)
{
    int64_t limit = count_limit(call), rank = call->group->rank;
    if (!blocks->counts)
        return TRI_OK;
    for (int64_t r = all ? 0 : rank; r < (all ? call->group->count : rank + 1); r++) {
        int64_t first = blocks->firsts && all ? blocks->firsts[r] : 0;
        if (blocks->counts[r] < 0 || blocks->counts[r] > limit || first < 0)
            return tri_fail(TRI_EINVAL,
                            "%s: block %" PRId64 ": want a count from 0 to %" PRId64 " and a first element from 0, got "
                            "%" PRId64 " and %" PRId64,
                            tri_comm_op_name(call->op), r, limit, blocks->counts[r], first);
    }
    return TRI_OK;
}

static bool blocks_are_empty(const tri_call *call, const tri_blocks *blocks)
{
    for (int r = 0; blocks->counts && r < call->group->count; r++) {
        if (blocks->counts[r] > 0)
            return false;
    }
    return true;
}

static bool is_empty(const tri_call *call)
{
    return call->count == 0 && blocks_are_empty(call, &call->in_blocks) && blocks_are_empty(call, &call->out_blocks);
}

/* Does a buffer that this rank reads or writes have no elements of it? `own`: its blocks, `other`: those of the other
 * buffer, of which this one is a block. */
static bool has_nothing(const tri_call *call, const tri_blocks *own, const tri_blocks *other)
{
    if (own->counts)
        return blocks_are_empty(call, own);
    return other->counts ? other->counts[call->group->rank] == 0 : call->count == 0;
}

static tri_status check(tri_call *call)
{
    const char *what = tri_comm_op_name(call->op);
    int ranks = call->group->count;
    if ((unsigned)call->dtype >= TRI_DTYPE_COUNT)
        return tri_fail(TRI_EINVAL, "%s: there is no element type %d", what, (int)call->dtype);
    if ((unsigned)call->reduce >= TRI_REDUCE_COUNT)
        return tri_fail(TRI_EINVAL, "%s: there is no reduction %d", what, (int)call->reduce);
    int64_t limit = count_limit(call);
    if (call->count < 0 || call->count > limit)
        return tri_fail(TRI_EINVAL, "%s: want a count from 0 to %" PRId64 ", got %" PRId64, what, limit, call->count);
    if (call->root < 0 || call->root >= ranks)
        return tri_fail(TRI_EINVAL, "%s: want a rank from 0 to %d, got %d", what, ranks - 1, call->root);
    TRI_TRY(check_blocks(call, &call->in_blocks, call->op != TRI_COMM_SCATTER || call->root == call->group->rank));
    TRI_TRY(check_blocks(call, &call->out_blocks, call->op != TRI_COMM_GATHER || call->root == call->group->rank));
    bool empty = is_empty(call);
    if (!call->in && (empty || (reads(call) && has_nothing(call, &call->in_blocks, &call->out_blocks))))
        call->in = nothing;
    if (!call->out && (empty || (writes(call) && has_nothing(call, &call->out_blocks, &call->in_blocks))))
        call->out = nothing;
    if ((!call->in && reads(call)) || (!call->out && writes(call)))
        return tri_fail(TRI_EINVAL, "%s of %" PRId64 " elements: want a buffer, got NULL", what, call->count);
    return TRI_OK;
}

static tri_status submit(tri_call *call, tri_work **work)
{
    tri_group *group = call->group;
    call->canonical = !group->comm->any_order || tri_comm_is_tree(call->op);
    call->scale = group->scale;
    tri_status status = check(call);
    if (status == TRI_OK)
        status = tri_engine_check(call);
    if (!group->collecting)
        return status == TRI_OK ? tri_work_submit(call, work) : status;
    if (status == TRI_OK && work)
        status =
            tri_fail(TRI_EINVAL, "%s: in a batch an operation has no handle of its own", tri_comm_op_name(call->op));
    if (status == TRI_OK)
        status = tri_batch_append(group->collecting, call);
    if (status != TRI_OK)
        tri_batch_fail(group->collecting, status);
    return status;
}

tri_status tri_all_reduce(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype, tri_reduce_op op,
                          tri_work **work)
{
    tri_call call = {
        .group = group, .op = TRI_COMM_ALL_REDUCE, .dtype = dtype, .reduce = op, .count = count, .in = in, .out = out};
    return submit(&call, work);
}

tri_status tri_reduce(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype, tri_reduce_op op,
                      int root, tri_work **work)
{
    tri_call call = {.group = group,
                     .op = TRI_COMM_REDUCE,
                     .dtype = dtype,
                     .reduce = op,
                     .root = root,
                     .count = count,
                     .in = in,
                     .out = out};
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

tri_status tri_gather(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype, int root,
                      tri_work **work)
{
    tri_call call = {
        .group = group, .op = TRI_COMM_GATHER, .dtype = dtype, .root = root, .count = count, .in = in, .out = out};
    return submit(&call, work);
}

tri_status tri_scatter(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype, int root,
                       tri_work **work)
{
    tri_call call = {
        .group = group, .op = TRI_COMM_SCATTER, .dtype = dtype, .root = root, .count = count, .in = in, .out = out};
    return submit(&call, work);
}

tri_status tri_all_to_all(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype, tri_work **work)
{
    tri_call call = {.group = group, .op = TRI_COMM_ALL_TO_ALL, .dtype = dtype, .count = count, .in = in, .out = out};
    return submit(&call, work);
}

static int64_t blocks_sum(const tri_group *group, const tri_blocks *blocks)
{
    int64_t sum = 0;
    for (int r = 0; r < group->count; r++)
        sum += blocks->counts[r];
    return sum;
}

static tri_status want_blocks(const char *what, const tri_blocks *blocks)
{
    return blocks && blocks->counts ? TRI_OK
                                    : tri_fail(TRI_EINVAL, "%s: want the counts of the blocks, got NULL", what);
}

tri_status tri_all_gather_v(tri_group *group, const void *in, void *out, const tri_blocks *out_blocks, tri_dtype dtype,
                            tri_work **work)
{
    TRI_TRY(want_blocks("all_gather_v", out_blocks));
    tri_call call = {.group = group,
                     .op = TRI_COMM_ALL_GATHER,
                     .dtype = dtype,
                     .count = blocks_sum(group, out_blocks),
                     .in = in,
                     .out = out,
                     .out_blocks = *out_blocks};
    return submit(&call, work);
}

tri_status tri_reduce_scatter_v(tri_group *group, const void *in, const tri_blocks *in_blocks, void *out,
                                tri_dtype dtype, tri_reduce_op op, tri_work **work)
{
    TRI_TRY(want_blocks("reduce_scatter_v", in_blocks));
    tri_call call = {.group = group,
                     .op = TRI_COMM_REDUCE_SCATTER,
                     .dtype = dtype,
                     .reduce = op,
                     .count = blocks_sum(group, in_blocks),
                     .in = in,
                     .out = out,
                     .in_blocks = *in_blocks};
    return submit(&call, work);
}

/* What each rank sends is for two ranks alone: their frames' lengths show whether they agree. */
tri_status tri_gather_v(tri_group *group, const void *in, void *out, const tri_blocks *out_blocks, tri_dtype dtype,
                        int root, tri_work **work)
{
    TRI_TRY(want_blocks("gather_v", out_blocks));
    tri_call call = {.group = group,
                     .op = TRI_COMM_GATHER,
                     .dtype = dtype,
                     .root = root,
                     .in = in,
                     .out = out,
                     .out_blocks = *out_blocks};
    return submit(&call, work);
}

tri_status tri_scatter_v(tri_group *group, const void *in, const tri_blocks *in_blocks, void *out, tri_dtype dtype,
                         int root, tri_work **work)
{
    TRI_TRY(want_blocks("scatter_v", in_blocks));
    tri_call call = {.group = group,
                     .op = TRI_COMM_SCATTER,
                     .dtype = dtype,
                     .root = root,
                     .in = in,
                     .out = out,
                     .in_blocks = *in_blocks};
    return submit(&call, work);
}

tri_status tri_all_to_all_v(tri_group *group, const void *in, const tri_blocks *in_blocks, void *out,
                            const tri_blocks *out_blocks, tri_dtype dtype, tri_work **work)
{
    TRI_TRY(want_blocks("all_to_all_v", in_blocks));
    TRI_TRY(want_blocks("all_to_all_v", out_blocks));
    tri_call call = {.group = group,
                     .op = TRI_COMM_ALL_TO_ALL,
                     .dtype = dtype,
                     .in = in,
                     .out = out,
                     .in_blocks = *in_blocks,
                     .out_blocks = *out_blocks};
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

tri_status tri_probe_sender(tri_group *group, int *from)
{
    tri_call call = {.group = group, .op = TRI_COMM_SEND_RECV, .dtype = TRI_U8, .sender = from};
    if (group->collecting)
        return tri_fail(TRI_EINVAL, "probe: want a call outside of a batch, got one inside");
    if (group->count == 1)
        return tri_fail(TRI_EINVAL, "probe: want a group of several ranks, got one rank");
    if (group->comm->engine)
        return tri_fail(TRI_EUNSUPPORTED, "probe: want comm.engine=host, got %s", tri_comm_engine(group->comm));
    return tri_work_submit(&call, NULL);
}

/* Are these the parts of this rank's leaves, of `count` elements? */
static tri_status check_parts(const tri_group *group, tri_comm_op op, tri_tree_place place, float *const *parts,
                              int part_count, int64_t count)
{
    const char *what = tri_comm_op_name(op);
    int64_t leaves = place.leaves;
    int rank = place.first + group->rank;
    if (leaves < 1 || (leaves & (leaves - 1)) || leaves > INT64_C(1) << 30)
        return tri_fail(TRI_EINVAL, "%s: want a power of two of leaves up to 2^30, got %" PRId64, what, leaves);
    tri_tree_part own[TRI_TREE_MAX_PARTS];
    int64_t own_first = tri_tree_first(leaves, rank, place.ranks),
            own_count = tri_tree_count(leaves, rank, place.ranks);
    int want = tri_tree_parts(leaves, own_first, own_count, own);
    if (part_count != want)
        return tri_fail(TRI_EINVAL, "%s: rank %d of %d owns %" PRId64 " of %" PRId64 " leaves: want %d parts, got %d",
                        what, rank, place.ranks, own_count, leaves, want, part_count);
    /* A rank without leaves still needs a place for the result. */
    for (int p = 0; count > 0 && p < (want > 1 ? want : 1); p++) {
        if (!parts || !parts[p])
            return tri_fail(TRI_EINVAL, "%s of %" PRId64 " elements: want a buffer as part %d, got NULL", what, count,
                            p);
    }
    return TRI_OK;
}

tri_status tri_all_reduce_tree(tri_group *group, int64_t leaves, float *const *parts, int part_count, int64_t count,
                               tri_work **work)
{
    tri_tree_place place = {leaves, 0, group->count};
    TRI_TRY(check_parts(group, TRI_COMM_ALL_REDUCE_TREE, place, parts, part_count, count));
    tri_call call = {.group = group,
                     .op = TRI_COMM_ALL_REDUCE_TREE,
                     .dtype = TRI_F32,
                     .reduce = TRI_REDUCE_SUM,
                     .count = count,
                     .place = place,
                     .parts = parts,
                     .part_count = part_count};
    call.in = call.out = parts ? parts[0] : NULL;
    return submit(&call, work);
}

/* outs: NULL or as in tri_reduce_scatter_subtrees(). */
static tri_status scatter_tree(tri_group *group, tri_tree_place place, float *const *parts, int part_count,
                               const tri_blocks *in_blocks, float *const *outs, float *out, tri_work **work)
{
    TRI_TRY(want_blocks("reduce_scatter_tree", in_blocks));
    int64_t count = blocks_sum(group, in_blocks);
    TRI_TRY(check_parts(group, TRI_COMM_REDUCE_SCATTER_TREE, place, parts, part_count, count));
    tri_call call = {.group = group,
                     .op = TRI_COMM_REDUCE_SCATTER_TREE,
                     .dtype = TRI_F32,
                     .reduce = TRI_REDUCE_SUM,
                     .count = count,
                     .place = place,
                     .parts = parts,
                     .part_count = part_count,
                     .in = parts ? parts[0] : NULL,
                     .out = out,
                     .outs = outs,
                     .in_blocks = *in_blocks};
    return submit(&call, work);
}

tri_status tri_reduce_scatter_tree(tri_group *group, int64_t leaves, float *const *parts, int part_count,
                                   const tri_blocks *in_blocks, float *out, tri_work **work)
{
    return scatter_tree(group, (tri_tree_place){leaves, 0, group->count}, parts, part_count, in_blocks, NULL, out,
                        work);
}

/* Where groups of this length share the leaves out evenly, each has one whole subtree: a tree of its own. */
tri_status tri_reduce_scatter_subtrees(tri_group *group, tri_tree_place place, float *const *parts, int part_count,
                                       const tri_blocks *in_blocks, float *const *outs, tri_work **work)
{
    int groups = place.ranks / group->count;
    if (place.ranks % group->count == 0 && place.first % group->count == 0 && place.leaves % groups == 0)
        return tri_reduce_scatter_tree(group, place.leaves / groups, parts, part_count, in_blocks, outs[0], work);
    return scatter_tree(group, place, parts, part_count, in_blocks, outs, outs[0], work);
}
