/* SPDX-License-Identifier: Apache-2.0
 *
 * call_run.c: the body of every call when its turn has come: its signature, its algorithm, what is noted of it.
 */
#include <string.h>

#include <xxhash.h>

#include "base/events.h"
#include "comm/engine.h"

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
        in = tri_call_in_block(call, 0);
        count = tri_call_in_count(call, 0);
        break;
    case TRI_COMM_ALL_TO_ALL:
        if (tri_call_in_count(call, 0) != tri_call_out_count(call, 0))
            return tri_fail(TRI_EMISMATCH, "all_to_all: this rank sends itself %lld elements and wants %lld",
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
    int64_t count = call->count;
    if (call->op != TRI_COMM_REDUCE_SCATTER)
        return count;
    if (!call->in_blocks.counts)
        return count * call->group->count;
    count = 0;
    for (int r = 0; r < call->group->count; r++) {
        int64_t first = call->in_blocks.firsts ? call->in_blocks.firsts[r] : count;
        int64_t end = first + call->in_blocks.counts[r];
        count = end > count ? end : count;
    }
    return count;
}

/* PREMUL_SUM: from here on the call is the sum of what this rank's elements times its factor are. */
static tri_status scale_input(tri_call *call)
{
    tri_comm *comm = call->group->comm;
    int64_t count = elements_in(call);
    size_t nbytes = tri_call_nbytes(call, count);
    call->reduce = TRI_REDUCE_SUM;
    if (count == 0)
        return TRI_OK; /* there may be no memory yet */
    if (nbytes > comm->scaled_nbytes) {
        void *larger = tri_alloc_bulk(nbytes);
        if (!larger)
            return TRI_ENOMEM;
        tri_free(comm->scaled);
        comm->scaled = larger;
        comm->scaled_nbytes = nbytes;
    }
    TRI_TRY(tri_reduce_multiply(comm->scaled, call->in, call->dtype, count, call->scale));
    call->in = comm->scaled;
    return TRI_OK;
}

static uint32_t frame_extra(const tri_call *call)
{
    if (call->op == TRI_COMM_REDUCE || call->op == TRI_COMM_BROADCAST || call->op == TRI_COMM_GATHER ||
        call->op == TRI_COMM_SCATTER)
        return (uint32_t)call->root;
    return call->op == TRI_COMM_ALL_REDUCE_TREE ? (uint32_t)__builtin_ctzll((uint64_t)call->leaves) : 0;
}

void tri_call_fill_frame(tri_call *call)
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

static tri_status run(tri_call *call)
{
    if (call->op == TRI_COMM_BATCH)
        return tri_batch_run_calls(call);
    tri_call_fill_frame(call);
    if (call->reduce == TRI_REDUCE_PREMUL_SUM)
        TRI_TRY(scale_input(call));
    if (call->group->count == 1)
        return run_alone(call);
    return tri_engine_run(call);
}

tri_status tri_call_run(tri_call *call)
{
    tri_comm *comm = call->group->comm;
    int64_t start_ns = tri_now_ns();
    tri_status status = run(call);
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
