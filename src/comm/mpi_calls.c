/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_calls.c: our calls in MPI's words: in place or not, blocks in counts of int, halves as f32.
 */
#include <inttypes.h>
#include <string.h>

#include "comm/engine_mpi.h"

static bool is_half(const tri_call *call)
{
    return tri_call_adds_in(call) != call->dtype;
}

static bool is_result_here(const tri_call *call)
{
    return call->op != TRI_COMM_REDUCE || call->root == call->group->rank;
}

/* Elements of all blocks of a reduce-scatter. */
static int64_t scattered_count(const tri_call *call)
{
    return call->in_blocks.counts ? call->count : call->count * call->group->count;
}

tri_status tri_mpi_can(const tri_call *call)
{
    bool in_pieces = call->op == TRI_COMM_ALL_REDUCE || call->op == TRI_COMM_REDUCE ||
                     call->op == TRI_COMM_ALL_REDUCE_TREE || call->op == TRI_COMM_BROADCAST;
    int64_t count = call->count;
    /* The counts of these v forms are known to all ranks; others are looked at where they are. */
    if (call->op == TRI_COMM_REDUCE_SCATTER)
        count = scattered_count(call);
    if (call->op == TRI_COMM_REDUCE_SCATTER_TREE)
        return tri_fail(TRI_EUNSUPPORTED, "MPI has no sum over shards");
    if (in_pieces || count <= TRI_MPI_COUNT_MAX)
        return TRI_OK;
    return tri_fail(TRI_EUNSUPPORTED, "MPI counts %d elements, not %" PRId64, TRI_MPI_COUNT_MAX, count);
}

/* Own subtrees first; a rank without any adds nothing. */
static void add_parts(const tri_call *call)
{
    tri_reduce_fn combine = tri_reduce_find(TRI_REDUCE_SUM, TRI_F32);
    if (call->part_count == 0 && call->count > 0)
        memset(call->parts[0], 0, tri_call_nbytes(call, call->count));
    for (int p = 1; p < call->part_count; p++)
        combine(call->parts[0], call->parts[0], call->parts[p], call->count);
}

/* Places as MPI needs them; a block that an int does not reach is reported by the rank that has it. */
static tri_status ints_fill(const tri_call *call, const tri_blocks *blocks, bool all, int *counts, int *firsts)
{
    int64_t first = 0;
    for (int r = 0; r < call->group->count; r++) {
        if (!all && r != call->group->rank)
            continue;
        int64_t at = all && blocks->firsts ? blocks->firsts[r] : first;
        if (at > TRI_MPI_COUNT_MAX || blocks->counts[r] > TRI_MPI_COUNT_MAX)
            return tri_fail(TRI_EINVAL,
                            "comm.engine mpi: block %d: want at most %d elements and a first element up to there, got "
                            "%" PRId64 " at %" PRId64 " (comm.engine=host has no such limit)",
                            r, TRI_MPI_COUNT_MAX, blocks->counts[r], at);
        counts[r] = (int)blocks->counts[r];
        firsts[r] = (int)at;
        first = at + blocks->counts[r];
    }
    return TRI_OK;
}

/* A reduce-scatter of MPI needs its input in one piece and its output apart; halves are added as f32: what is not so
 * is in scratch memory. */
static tri_status scattered_begin(mpi_engine *engine, tri_call *call, tri_mpi_call *mpi)
{
    int rank = call->group->rank, ranks = call->group->count;
    tri_dtype dtype = tri_call_adds_in(call);
    size_t nbytes = tri_dtype_nbytes(dtype);
    int64_t own = tri_call_in_count(call, rank), all = scattered_count(call), first = 0;
    const char *in = call->in, *out = call->out;
    bool packs = is_half(call) || call->in_blocks.firsts;
    bool apart = is_half(call) || (out >= in && out < in + tri_call_nbytes(call, all));
    char *scratch = tri_call_scratch(call, (size_t)((packs ? all : 0) + (apart ? own : 0)) * nbytes + 1);
    if (!scratch)
        return TRI_ENOMEM;
    for (int r = 0; packs && r < ranks; r++) {
        int64_t count = tri_call_in_count(call, r);
        TRI_TRY(tri_convert(scratch + (size_t)first * nbytes, dtype, tri_call_in_block(call, r), call->dtype, count));
        first += count;
    }
    mpi->dtype = dtype;
    mpi->in = packs ? scratch : call->in;
    mpi->out = apart ? scratch + (size_t)first * nbytes : call->out;
    if (call->in_blocks.counts) {
        const tri_blocks packed = {.counts = call->in_blocks.counts};
        TRI_TRY(ints_fill(call, &packed, true, engine->ints, engine->ints + ranks));
        mpi->in_counts = engine->ints;
    }
    return TRI_OK;
}

tri_status tri_mpi_reduce_begin(mpi_engine *engine, tri_call *call, tri_mpi_call *mpi)
{
    if (call->op == TRI_COMM_REDUCE_SCATTER)
        return scattered_begin(engine, call, mpi);
    if (call->op == TRI_COMM_ALL_REDUCE_TREE) {
        add_parts(call);
        mpi->op = TRI_COMM_ALL_REDUCE;
    }
    if (is_half(call)) {
        char *scratch = tri_call_scratch(call, (size_t)call->count * sizeof(float) + 1);
        if (!scratch)
            return TRI_ENOMEM;
        TRI_TRY(tri_convert(scratch, TRI_F32, call->in, call->dtype, call->count));
        mpi->dtype = TRI_F32;
        mpi->in = NULL;
        mpi->out = scratch;
    }
    /* Only the root of a reduction is in place. */
    if (!mpi->in && !is_result_here(call))
        mpi->in = mpi->out;
    return TRI_OK;
}

tri_status tri_mpi_reduce_end(tri_call *call, const tri_mpi_call *mpi)
{
    bool adds = mpi->op == TRI_COMM_ALL_REDUCE || mpi->op == TRI_COMM_REDUCE || mpi->op == TRI_COMM_REDUCE_SCATTER;
    int64_t count = mpi->op == TRI_COMM_REDUCE_SCATTER ? tri_call_in_count(call, call->group->rank) : call->count;
    if (!adds || !is_result_here(call))
        return TRI_OK;
    TRI_TRY(tri_call_finish(call, mpi->dtype, mpi->out, count));
    return mpi->out == call->out ? TRI_OK : tri_convert(call->out, call->dtype, mpi->out, mpi->dtype, count);
}

/* Is this rank's own block where it would come to be? */
static bool is_in_place(const tri_call *call)
{
    int rank = call->group->rank;
    bool is_root = call->root == rank;
    switch (call->op) {
    case TRI_COMM_ALL_GATHER:
        return call->in == tri_call_out_block(call, rank);
    case TRI_COMM_GATHER:
        return is_root && call->in == tri_call_out_block(call, rank);
    case TRI_COMM_SCATTER:
        return is_root && call->out == tri_call_in_block(call, rank);
    default:
        return false;
    }
}

tri_status tri_mpi_blocks_begin(mpi_engine *engine, const tri_call *call, tri_mpi_call *mpi)
{
    int rank = call->group->rank, ranks = call->group->count;
    bool is_root = call->root == rank, in_place = is_in_place(call);
    if (call->op == TRI_COMM_ALL_TO_ALL && tri_call_in_count(call, rank) != tri_call_out_count(call, rank))
        return tri_fail(TRI_EMISMATCH, "all_to_all: this rank sends itself %" PRId64 " elements and expects %" PRId64,
                        tri_call_in_count(call, rank), tri_call_out_count(call, rank));
    mpi->in = in_place && call->op != TRI_COMM_SCATTER ? NULL : call->in;
    mpi->out = in_place && call->op == TRI_COMM_SCATTER ? NULL : call->out;
    if (call->in_blocks.counts) {
        TRI_TRY(ints_fill(call, &call->in_blocks, call->op != TRI_COMM_SCATTER || is_root, engine->ints,
                          engine->ints + ranks));
        mpi->in_counts = engine->ints;
        mpi->in_firsts = engine->ints + ranks;
    }
    if (call->out_blocks.counts) {
        TRI_TRY(ints_fill(call, &call->out_blocks, call->op != TRI_COMM_GATHER || is_root, engine->ints + 2 * ranks,
                          engine->ints + 3 * ranks));
        mpi->out_counts = engine->ints + 2 * ranks;
        mpi->out_firsts = engine->ints + 3 * ranks;
    }
    return TRI_OK;
}
