/* SPDX-License-Identifier: Apache-2.0
 *
 * alg_hosts.c: operations in two floors: through memory inside a host, over the network between hosts.
 *
 * Each rank of a host takes its chunk of what goes between hosts, so every byte crosses once and all ranks carry. Where
 * the ranks of a host follow one another and their number is a power of two, a host's sum is a whole subtree of the
 * canonical tree, and the sum over hosts is the rest of it.
 */
#include <string.h>

#include "comm/hosts.h"

/* An operation of an inner group, as part of this one. */
static tri_status run_inside(const tri_call *call, tri_group *group, tri_comm_op op, const void *in, void *out,
                             int64_t count, int root)
{
    tri_call inner = {.group = group,
                      .op = op,
                      .dtype = call->dtype,
                      .reduce = call->reduce == TRI_REDUCE_AVERAGE ? TRI_REDUCE_SUM : call->reduce,
                      .root = root,
                      .canonical = call->canonical,
                      .count = count,
                      .in = in,
                      .out = out};
    memcpy(inner.name, call->name, sizeof(inner.name));
    atomic_store(&group->timeout_ms, atomic_load(&call->group->timeout_ms));
    tri_call_number(&inner);
    inner.frame.roots = call->frame.roots;
    return tri_call_run_inside(&inner);
}

static tri_status all_reduce_run(tri_call *call)
{
    const tri_hosts *hosts = call->group->hosts;
    int64_t align = 64 / (int64_t)tri_dtype_nbytes(call->dtype);
    int64_t each = call->count / hosts->locals / align * align, whole = each * hosts->locals;
    char *own = (char *)call->out + tri_call_nbytes(call, each * hosts->local->rank);
    tri_call_place(call);
    TRI_TRY(run_inside(call, hosts->local, TRI_COMM_REDUCE_SCATTER, call->out, own, each, 0));
    TRI_TRY(run_inside(call, hosts->across, TRI_COMM_ALL_REDUCE, own, own, each, 0));
    TRI_TRY(tri_call_finish(call, call->dtype, own, each));
    TRI_TRY(run_inside(call, hosts->local, TRI_COMM_ALL_GATHER, own, call->out, each, 0));
    /* Elements that do not divide by the ranks of a host: few, so over all ranks at once. */
    if (whole == call->count)
        return TRI_OK;
    tri_call rest = *call;
    rest.in = rest.out = (char *)call->out + tri_call_nbytes(call, whole);
    rest.count = call->count - whole;
    return tri_all_reduce_by_tree.run(&rest);
}

/* Sums of the blocks of this rank's place on every host, then over hosts. */
static tri_status reduce_scatter_run(tri_call *call)
{
    const tri_hosts *hosts = call->group->hosts;
    size_t nbytes = tri_call_nbytes(call, call->count), host_nbytes = nbytes * (size_t)hosts->locals;
    const char *in = call->in;
    char *sums = tri_call_keep(call, TRI_KEEP_FLOORS, nbytes * (size_t)hosts->count);
    if (!sums)
        return TRI_ENOMEM;
    for (size_t h = 0; h < (size_t)hosts->count; h++)
        TRI_TRY(run_inside(call, hosts->local, TRI_COMM_REDUCE_SCATTER, in + h * host_nbytes, sums + h * nbytes,
                           call->count, 0));
    TRI_TRY(run_inside(call, hosts->across, TRI_COMM_REDUCE_SCATTER, sums, call->out, call->count, 0));
    return tri_call_finish(call, call->dtype, call->out, call->count);
}

/* Each rank fetches the blocks of its place from all hosts; then a host's ranks put theirs together. */
static tri_status all_gather_run(tri_call *call)
{
    const tri_hosts *hosts = call->group->hosts;
    size_t nbytes = tri_call_nbytes(call, call->count), host_nbytes = nbytes * (size_t)hosts->locals;
    size_t place = (size_t)hosts->local->rank * nbytes;
    char *out = call->out, *blocks = tri_call_keep(call, TRI_KEEP_FLOORS, nbytes * (size_t)hosts->count);
    if (!blocks)
        return TRI_ENOMEM;
    TRI_TRY(run_inside(call, hosts->across, TRI_COMM_ALL_GATHER, call->in, blocks, call->count, 0));
    for (size_t h = 0; h < (size_t)hosts->count; h++) {
        char *own = out + h * host_nbytes + place;
        memcpy(own, blocks + h * nbytes, nbytes);
        TRI_TRY(run_inside(call, hosts->local, TRI_COMM_ALL_GATHER, own, out + h * host_nbytes, call->count, 0));
    }
    return TRI_OK;
}

/* The root gives chunks to its neighbours, each sends its own across, and every host puts them together. */
static tri_status broadcast_run(tri_call *call)
{
    const tri_hosts *hosts = call->group->hosts;
    int root_host = call->root / hosts->locals, root_place = call->root % hosts->locals;
    int64_t each = call->count / hosts->locals, whole = each * hosts->locals;
    char *data = call->out, *own = data + tri_call_nbytes(call, each * hosts->local->rank);
    char *rest = data + tri_call_nbytes(call, whole);
    if (hosts->across->rank == root_host)
        TRI_TRY(run_inside(call, hosts->local, TRI_COMM_SCATTER, data, own, each, root_place));
    TRI_TRY(run_inside(call, hosts->across, TRI_COMM_BROADCAST, own, own, each, root_host));
    TRI_TRY(run_inside(call, hosts->local, TRI_COMM_ALL_GATHER, own, data, each, 0));
    if (whole == call->count)
        return TRI_OK;
    if (hosts->local->rank == root_place)
        TRI_TRY(run_inside(call, hosts->across, TRI_COMM_BROADCAST, rest, rest, call->count - whole, root_host));
    return run_inside(call, hosts->local, TRI_COMM_BROADCAST, rest, rest, call->count - whole, root_place);
}

static tri_status barrier_run(tri_call *call)
{
    const tri_hosts *hosts = call->group->hosts;
    TRI_TRY(run_inside(call, hosts->local, TRI_COMM_BARRIER, call->in, call->out, 0, 0));
    TRI_TRY(run_inside(call, hosts->across, TRI_COMM_BARRIER, call->in, call->out, 0, 0));
    return run_inside(call, hosts->local, TRI_COMM_BARRIER, call->in, call->out, 0, 0);
}

static const char *no_hosts(const tri_call *call)
{
    return call->group->hosts ? NULL : "not the same number of ranks, at least 2, on each of several hosts";
}

static const char *blocks_cannot(const tri_call *call)
{
    if (call->in_blocks.counts || call->out_blocks.counts)
        return "the blocks are of different lengths";
    if (call->group->hosts && !call->group->hosts->ordered)
        return "the ranks of a host do not follow one another";
    return no_hosts(call);
}

static const char *sum_cannot(const tri_call *call)
{
    const tri_hosts *hosts = call->group->hosts;
    if (!hosts || !call->canonical)
        return no_hosts(call);
    if (tri_call_adds_in(call) != call->dtype)
        return "would round halves at every step";
    if (!hosts->ordered || (hosts->locals & (hosts->locals - 1)))
        return "a host's ranks are no whole subtree of the canonical sum";
    return NULL;
}

static const char *sum_blocks_cannot(const tri_call *call)
{
    const char *why = sum_cannot(call);
    return why ? why : blocks_cannot(call);
}

/* What crosses the network counts; nbytes of one rank, shared out. The floors inside a host: three meetings. */
static double floors_us(const tri_price *price, int ranks, double nbytes)
{
    return 2 * price->latency_us + 3 + nbytes * price->us_per_byte + nbytes / 8000 + ranks * 0.2;
}

#define ROW(id, op_id, why, run_fn, text)                                                                              \
    const tri_algorithm id = {                                                                                         \
        .name = "hosts", .does = text, .op = op_id, .cannot = why, .cost_us = floors_us, .run = run_fn}

ROW(tri_all_reduce_by_hosts, TRI_COMM_ALL_REDUCE, sum_cannot, all_reduce_run,
    "added inside each host, then each rank its chunk between hosts");
ROW(tri_reduce_scatter_by_hosts, TRI_COMM_REDUCE_SCATTER, sum_blocks_cannot, reduce_scatter_run,
    "added inside each host, then between hosts");
ROW(tri_all_gather_by_hosts, TRI_COMM_ALL_GATHER, blocks_cannot, all_gather_run,
    "each rank between hosts, then inside each host");
ROW(tri_broadcast_by_hosts, TRI_COMM_BROADCAST, blocks_cannot, broadcast_run,
    "chunks between hosts, put together inside each");
ROW(tri_barrier_by_hosts, TRI_COMM_BARRIER, no_hosts, barrier_run, "inside each host, between hosts, inside");
