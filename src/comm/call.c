/* SPDX-License-Identifier: Apache-2.0
 *
 * call.c: what a call is: the name of its operation, its buffers and their blocks, its signature.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "comm/call.h"

static const char *const op_names[TRI_COMM_OP_COUNT] = {
    [TRI_COMM_ALL_REDUCE] = "all_reduce",
    [TRI_COMM_REDUCE] = "reduce",
    [TRI_COMM_BROADCAST] = "broadcast",
    [TRI_COMM_ALL_GATHER] = "all_gather",
    [TRI_COMM_REDUCE_SCATTER] = "reduce_scatter",
    [TRI_COMM_BARRIER] = "barrier",
    [TRI_COMM_SEND_RECV] = "send_recv",
    [TRI_COMM_ALL_REDUCE_TREE] = "all_reduce_tree",
    [TRI_COMM_GATHER] = "gather",
    [TRI_COMM_SCATTER] = "scatter",
    [TRI_COMM_ALL_TO_ALL] = "all_to_all",
    [TRI_COMM_BATCH] = "batch",
    [TRI_COMM_REDUCE_SCATTER_TREE] = "reduce_scatter_tree",
};

const char *tri_comm_op_name(tri_comm_op op)
{
    return (unsigned)op < TRI_COMM_OP_COUNT && op_names[op] ? op_names[op] : "?";
}

/* --- its buffers --- */

size_t tri_call_nbytes(const tri_call *call, int64_t count)
{
    return (size_t)count * tri_dtype_nbytes(call->dtype);
}

tri_dtype tri_call_adds_in(const tri_call *call)
{
    return call->dtype == TRI_F16 || call->dtype == TRI_BF16 ? TRI_F32 : call->dtype;
}

tri_status tri_call_finish(const tri_call *call, tri_dtype dtype, void *data, int64_t count)
{
    if (call->reduce != TRI_REDUCE_AVERAGE)
        return TRI_OK;
    return tri_reduce_divide(data, dtype, count, call->group->count);
}

void *tri_call_keep(const tri_call *call, tri_keep what, size_t nbytes)
{
    tri_comm *comm = call->group->comm;
    nbytes = nbytes ? nbytes : 1;
    if (nbytes > comm->kept_nbytes[what]) {
        void *larger = tri_alloc_bulk(nbytes);
        if (!larger)
            return NULL;
        tri_free(comm->kept[what]);
        comm->kept[what] = larger;
        comm->kept_nbytes[what] = nbytes;
    }
    return comm->kept[what];
}

void *tri_call_scratch(const tri_call *call, size_t nbytes)
{
    return tri_call_keep(call, TRI_KEEP_SCRATCH, nbytes);
}

/* The blocks of a call: of the counts it came with, or all alike. */
static size_t block_offset(const tri_call *call, const tri_blocks *blocks, int rank)
{
    if (!blocks->counts)
        return tri_call_nbytes(call, call->count) * (size_t)rank;
    if (blocks->firsts)
        return tri_call_nbytes(call, blocks->firsts[rank]);
    int64_t first = 0;
    for (int r = 0; r < rank; r++)
        first += blocks->counts[r];
    return tri_call_nbytes(call, first);
}

/* Only one side of an operation of blocks may say their counts; its ranks' own parts on the other side are as long. */
static int64_t block_count(const tri_call *call, const tri_blocks *blocks, const tri_blocks *other, int rank)
{
    if (blocks->counts)
        return blocks->counts[rank];
    return other->counts ? other->counts[rank] : call->count;
}

int64_t tri_call_in_count(const tri_call *call, int rank)
{
    return block_count(call, &call->in_blocks, &call->out_blocks, rank);
}

int64_t tri_call_out_count(const tri_call *call, int rank)
{
    return block_count(call, &call->out_blocks, &call->in_blocks, rank);
}

const char *tri_call_in_block(const tri_call *call, int rank)
{
    return (const char *)call->in + block_offset(call, &call->in_blocks, rank);
}

char *tri_call_out_block(const tri_call *call, int rank)
{
    return (char *)call->out + block_offset(call, &call->out_blocks, rank);
}

void tri_call_place(const tri_call *call)
{
    if (call->out != call->in)
        memmove(call->out, call->in, tri_call_nbytes(call, call->count));
}

/* --- its signature, which all ranks of the call compare --- */

/* Different roots never have the same digest afterwards: the factor is odd. */
static uint16_t roots_digest(uint16_t roots, int root)
{
    return (uint16_t)(roots * UINT32_C(40503) + (uint32_t)root + 1);
}

void tri_call_number(tri_call *call)
{
    tri_group *group = call->group;
    if (call->sender)
        return;
    if (call->op == TRI_COMM_SEND_RECV) {
        call->frame.sequence = call->sends ? ++group->sent[call->root] : ++group->received[call->root];
    } else {
        if (tri_comm_has_root(call->op))
            group->roots = roots_digest(group->roots, call->root);
        call->frame.sequence = ++group->sequence;
        call->frame.roots = group->roots;
    }
}

static uint32_t frame_extra(const tri_call *call)
{
    if (tri_comm_has_root(call->op))
        return (uint32_t)call->root;
    return tri_comm_is_tree(call->op) ? (uint32_t)__builtin_ctzll((uint64_t)call->place.leaves) : 0;
}

void tri_call_fill_frame(tri_call *call)
{
    tri_comm *comm = call->group->comm;
    call->frame.kind = TRI_FRAME_DATA;
    call->frame.op = (uint8_t)call->op;
    call->frame.dtype = (uint8_t)call->dtype;
    call->frame.group = call->group->id;
    call->frame.generation = comm->generation;
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

const char *tri_known_name_find(const tri_comm *comm, uint64_t hash)
{
    for (size_t i = 0; i < TRI_COMM_NAMES_KEPT; i++) {
        if (comm->names[i].hash == hash)
            return comm->names[i].text;
    }
    return NULL;
}

void tri_call_describe(const tri_comm *comm, const tri_frame *frame, char text[192])
{
    tri_call_describe_as(frame, tri_known_name_find(comm, frame->name), text);
}

void tri_call_describe_as(const tri_frame *frame, const char *name, char text[192])
{
    tri_comm_op op = (tri_comm_op)frame->op;
    int at = snprintf(text, 192, "%s #%" PRIu64, tri_comm_op_name(op), frame->sequence);
    if (op != TRI_COMM_BARRIER)
        at += snprintf(text + at, (size_t)(192 - at), " %s x %" PRIu64, tri_dtype_name((tri_dtype)frame->dtype),
                       frame->count);
    uint32_t extra = frame->reduce >> 8;
    if (op == TRI_COMM_ALL_REDUCE || op == TRI_COMM_REDUCE || op == TRI_COMM_REDUCE_SCATTER)
        at += snprintf(text + at, (size_t)(192 - at), " %s", tri_reduce_name((tri_reduce_op)(frame->reduce & 0xff)));
    if (tri_comm_has_root(op))
        at += snprintf(text + at, (size_t)(192 - at), " root %" PRIu32, extra);
    if (tri_comm_is_tree(op))
        at += snprintf(text + at, (size_t)(192 - at), " over %" PRIu64 " leaves", UINT64_C(1) << (extra & 63));
    if (frame->name) {
        if (name && name[0])
            at += snprintf(text + at, (size_t)(192 - at), " '%s'", name);
        else
            at += snprintf(text + at, (size_t)(192 - at), " named otherwise (hash %016" PRIx64 ")", frame->name);
    }
    (void)at;
}

int tri_log_ceil(int ranks)
{
    int log = 0;
    while ((INT64_C(1) << log) < ranks)
        log++;
    return log;
}
