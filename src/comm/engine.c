/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c: the table of engines, and the way of each call to its engine.
 */
#include "comm/engine.h"

#include "base/log.h"
#include "comm/lane.h"

static tri_status host_run(tri_engine *engine, tri_call *call)
{
    (void)engine;
    if (call->op == TRI_COMM_BATCH)
        return tri_batch_run_pairs(call);
    if (!call->algorithm)
        call->algorithm = tri_algorithm_select(call);
    tri_lane_announce(call);
    return call->algorithm->run(call);
}

const tri_engine_ops tri_engine_host = {
    .name = "host",
    .does = "the cheapest of Trireme's own algorithms",
    .run = host_run,
};

static const tri_engine_ops *const engines[] = {
    [TRI_ENGINE_HOST] = &tri_engine_host, [TRI_ENGINE_MPI] = &tri_engine_mpi};

tri_status tri_engine_open(tri_comm *comm, const tri_comm_config *config, const char *started_by)
{
    const tri_engine_ops *ops = engines[config->engine];
    return ops->open && comm->world > 1 ? ops->open(comm, config, started_by, &comm->engine) : TRI_OK;
}

void tri_engine_close(tri_comm *comm)
{
    if (comm->engine)
        comm->engine->ops->close(comm->engine);
    comm->engine = NULL;
}

const char *tri_comm_engine(const tri_comm *comm)
{
    return comm->engine ? comm->engine->ops->name : tri_engine_host.name;
}

/* Sums, averages and products of floats round at each step; all else comes out the same in every order. */
static bool order_matters(const tri_call *call)
{
    bool adds = call->op == TRI_COMM_ALL_REDUCE || call->op == TRI_COMM_REDUCE || call->op == TRI_COMM_REDUCE_SCATTER ||
                call->op == TRI_COMM_ALL_REDUCE_TREE;
    bool is_whole = call->dtype == TRI_I8 || call->dtype == TRI_U8 || call->dtype == TRI_I32 || call->dtype == TRI_I64;
    return adds && !is_whole && call->reduce != TRI_REDUCE_MIN && call->reduce != TRI_REDUCE_MAX;
}

tri_status tri_engine_check(const tri_call *call)
{
    const tri_comm *comm = call->group->comm;
    if (!comm->engine || !comm->engine->ops->any_order || comm->any_order || call->group->count == 1 ||
        !order_matters(call))
        return TRI_OK;
    return tri_fail(TRI_ECONFIG, "comm.engine %s adds in an order of its own: set comm.order=any",
                    comm->engine->ops->name);
}

/* Once for each operation. */
static void say_unsupported(tri_comm *comm, tri_comm_op op)
{
    if (!(comm->engine_cannot & 1u << op))
        tri_log(TRI_LOG_DEBUG, "comm.engine %s cannot run %s: the host's algorithms do (%s)", comm->engine->ops->name,
                tri_comm_op_name(op), tri_last_error());
    comm->engine_cannot |= 1u << op;
}

tri_status tri_engine_run(tri_call *call)
{
    tri_comm *comm = call->group->comm;
    if (!comm->engine || call->algorithm)
        return host_run(NULL, call);
    tri_status status = comm->engine->ops->run(comm->engine, call);
    if (status != TRI_EUNSUPPORTED)
        return status;
    say_unsupported(comm, call->op);
    return host_run(NULL, call);
}

tri_status tri_engine_look(tri_comm *comm)
{
    tri_frame found = {0};
    int culprit = -1;
    tri_status failed = (tri_status)atomic_load(&comm->failed); /* tri_comm_abort from another thread of this rank */
    if (failed != TRI_OK)
        return tri_fail_copy(failed, comm->cause);
    return tri_call_heard(comm, tri_net_patrol(comm->net, &found, &culprit), &found);
}
