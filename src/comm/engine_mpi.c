/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_mpi.c: the engine that hands calls to the MPI library which started the job, through a plug-in.
 *
 * Everything is begun without blocking and then tested in a loop, so that our time limit holds and a rank that dies or
 * aborts is heard of over our own links meanwhile. Elements of 16 bits are added as f32 and rounded once. MPI does not
 * compare what its ranks call: our mismatch reports exist only in the first call of a set of ranks.
 */
#include <string.h>

#include "comm/engine_mpi.h"
#include "net/host.h"

#define LOOK_EVERY_NS     (20 * TRI_NS_PER_MS)
#define SPIN_NS           INT64_C(100000)
#define TESTS_PER_CLOCK   32
#define CLOSE_LIMIT_MS    5000
#define PIECE_COUNT       ((int64_t)1 << 30)
#define BARRIER_ALGORITHM (&tri_barrier_by_dissemination)

/* Waits for all that was begun, at most limit_ms. */
static tri_status wait_all(const mpi_engine *engine, int64_t limit_ms)
{
    tri_comm *comm = engine->base.comm;
    int64_t began_ns = tri_now_ns(), look_ns = began_ns + LOOK_EVERY_NS;
    bool yields = engine->shares_cores;
    char why[TRI_MPI_WHY_NBYTES];

    for (uint32_t turn = 1;; turn++) {
        bool done;
        tri_status status = engine->mpi->test(&done, why);
        if (status != TRI_OK) {
            TRI_TRY(tri_engine_look(comm)); /* a lost rank is the better reason */
            return tri_fail(status, "%s: %s", engine->mpi->library, why);
        }
        if (done)
            return TRI_OK;
        if (yields)
            tri_yield();
        if (turn % TESTS_PER_CLOCK)
            continue;
        int64_t now_ns = tri_now_ns();
        yields |= now_ns - began_ns > SPIN_NS;
        if (now_ns - began_ns > limit_ms * TRI_NS_PER_MS)
            return tri_fail(TRI_ETIMEOUT,
                            "rank %d waited %.3f s for other ranks inside %s, which does not tell for whom", comm->rank,
                            (double)(now_ns - began_ns) * 1e-9, engine->mpi->library);
        if (now_ns >= look_ns) {
            TRI_TRY(tri_engine_look(comm));
            look_ns = now_ns + LOOK_EVERY_NS;
        }
    }
}

static tri_status begin(const mpi_engine *engine, const tri_mpi_call *call)
{
    char why[TRI_MPI_WHY_NBYTES];
    return engine->mpi->begin(call, why) ? TRI_OK : tri_fail(TRI_EIO, "%s: %s", engine->mpi->library, why);
}

/* What MPI cannot count at once goes in pieces: operations element by element. */
static tri_status begin_pieces(const mpi_engine *engine, const tri_mpi_call *whole)
{
    size_t nbytes = tri_dtype_nbytes(whole->dtype);
    int64_t first = 0;
    do {
        tri_mpi_call piece = *whole;
        size_t at = (size_t)first * nbytes;
        piece.in = whole->in ? (const char *)whole->in + at : NULL;
        piece.out = whole->out ? (char *)whole->out + at : NULL;
        piece.count = whole->count - first < PIECE_COUNT ? whole->count - first : PIECE_COUNT;
        TRI_TRY(begin(engine, &piece));
        first += piece.count;
    } while (first < whole->count);
    return TRI_OK;
}

/* Groups of the same ranks share one: their calls come in one order. The first call of a set of ranks also meets over
 * our links, since MPI's own meeting has no time limit. */
static tri_status group_find(mpi_engine *engine, tri_call *call, void **out)
{
    const tri_group *group = call->group;
    size_t nbytes = (size_t)group->count * sizeof(int);
    char why[TRI_MPI_WHY_NBYTES];
    mpi_group *found = engine->groups;

    while (found && (found->count != group->count || memcmp(found->world_rank, group->world_rank, nbytes) != 0))
        found = found->next;
    if (!found) {
        found = tri_alloc_zero(1, sizeof(*found) + nbytes);
        if (!found)
            return TRI_ENOMEM;
        found->count = group->count;
        memcpy(found->world_rank, group->world_rank, nbytes);
        tri_status status = BARRIER_ALGORITHM->run(call);
        if (status == TRI_OK) {
            found->comm = engine->mpi->group_create(found->world_rank, found->count, why);
            status = found->comm ? TRI_OK : tri_fail(TRI_EIO, "%s: %s", engine->mpi->library, why);
        }
        if (status != TRI_OK) {
            tri_free(found);
            return status;
        }
        found->next = engine->groups;
        engine->groups = found;
    }
    *out = found->comm;
    return TRI_OK;
}

static tri_mpi_call pair_of(const tri_call *call)
{
    return (tri_mpi_call){.op = TRI_COMM_SEND_RECV,
                          .dtype = call->dtype,
                          .root = call->group->world_rank[call->root],
                          .sends = call->sends,
                          .tag = (int)(call->group->id & INT32_MAX),
                          .in = call->in,
                          .out = call->out,
                          .count = call->count};
}

static tri_status run_pairs(const mpi_engine *engine, const tri_call *batch_call)
{
    size_t count;
    const tri_call *calls = tri_batch_calls(batch_call->batch, &count);
    for (size_t i = 0; i < count; i++) {
        if (calls[i].op != TRI_COMM_SEND_RECV)
            continue;
        tri_mpi_call pair = pair_of(&calls[i]);
        TRI_TRY(begin_pieces(engine, &pair));
    }
    return wait_all(engine, batch_call->group->timeout_ms);
}

static tri_status run_one(mpi_engine *engine, tri_call *call)
{
    tri_mpi_call mpi = {.op = call->op,
                        .dtype = call->dtype,
                        .reduce = call->reduce == TRI_REDUCE_AVERAGE ? TRI_REDUCE_SUM : call->reduce,
                        .root = call->root,
                        .in = call->in == call->out ? NULL : call->in,
                        .out = call->out,
                        .count = call->count};
    TRI_TRY(group_find(engine, call, &mpi.group));
    switch (call->op) {
    case TRI_COMM_ALL_REDUCE:
    case TRI_COMM_REDUCE:
    case TRI_COMM_ALL_REDUCE_TREE:
        TRI_TRY(tri_mpi_reduce_begin(engine, call, &mpi));
        TRI_TRY(begin_pieces(engine, &mpi));
        break;
    case TRI_COMM_REDUCE_SCATTER:
        TRI_TRY(tri_mpi_reduce_begin(engine, call, &mpi));
        TRI_TRY(begin(engine, &mpi));
        break;
    case TRI_COMM_BROADCAST:
        TRI_TRY(begin_pieces(engine, &mpi));
        break;
    case TRI_COMM_BARRIER:
        TRI_TRY(begin(engine, &mpi));
        break;
    default:
        TRI_TRY(tri_mpi_blocks_begin(engine, call, &mpi));
        TRI_TRY(begin(engine, &mpi));
        break;
    }
    TRI_TRY(wait_all(engine, call->group->timeout_ms));
    return tri_mpi_reduce_end(call, &mpi);
}

static tri_status run(tri_engine *base, tri_call *call)
{
    mpi_engine *engine = (mpi_engine *)base;
    if (call->op == TRI_COMM_BATCH)
        return run_pairs(engine, call);
    if (call->op == TRI_COMM_SEND_RECV) {
        tri_mpi_call pair = pair_of(call);
        TRI_TRY(begin_pieces(engine, &pair));
        return wait_all(engine, call->group->timeout_ms);
    }
    TRI_TRY(tri_mpi_can(call));
    return run_one(engine, call);
}

/* MPI_Finalize waits for all ranks, however long: only when all have come this far. */
static void engine_close(tri_engine *base)
{
    mpi_engine *engine = (mpi_engine *)base;
    tri_mpi_call barrier = {.op = TRI_COMM_BARRIER};
    if (base->comm->failed == TRI_OK && begin(engine, &barrier) == TRI_OK && wait_all(engine, CLOSE_LIMIT_MS) == TRI_OK)
        engine->mpi->stop();
    while (engine->groups) {
        mpi_group *group = engine->groups;
        engine->groups = group->next;
        tri_free(group);
    }
    tri_free(engine->ints);
    tri_free(engine);
}

/* MPI must know the job as we do. */
static tri_status start(const mpi_engine *engine, const char *started_by)
{
    const tri_comm *comm = engine->base.comm;
    char why[TRI_MPI_WHY_NBYTES];
    int rank = 0, ranks = 0;
    if (!engine->mpi->start(&rank, &ranks, why))
        return tri_fail(TRI_EUNSUPPORTED, "comm.engine mpi: %s: %s", engine->mpi->library, why);
    if (rank == comm->rank && ranks == comm->world)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG,
                    "comm.engine mpi: want a job that mpirun of %s started; this process is rank %d of %d there and "
                    "rank %d of %d in the job, started by %s",
                    engine->mpi->library, rank, ranks, comm->rank, comm->world, started_by);
}

/* MPI_Init waits for all ranks: they meet first, so that one that has no plug-in ends them all. */
static tri_status meet(tri_comm *comm)
{
    tri_call call = {.group = comm->world_group,
                     .op = TRI_COMM_BARRIER,
                     .dtype = TRI_U8,
                     .canonical = true,
                     .algorithm = BARRIER_ALGORITHM};
    return tri_work_submit(&call, NULL);
}

static tri_status engine_open(tri_comm *comm, const tri_comm_config *config, const char *started_by, tri_engine **out)
{
    mpi_engine *engine = tri_alloc_zero(1, sizeof(*engine));
    if (!engine)
        return TRI_ENOMEM;
    engine->base = (tri_engine){.ops = &tri_engine_mpi, .comm = comm};
    engine->shares_cores = tri_host_cores() < comm->local_count;
    engine->ints = tri_alloc_zero((size_t)comm->world * 4, sizeof(int));
    tri_status status = engine->ints ? tri_mpi_load(config->mpi_library, started_by, &engine->mpi) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = meet(comm);
    if (status == TRI_OK)
        status = start(engine, started_by);
    if (status != TRI_OK) {
        tri_free(engine->ints);
        tri_free(engine);
        return status;
    }
    *out = &engine->base;
    return TRI_OK;
}

const tri_engine_ops tri_engine_mpi = {
    .name = "mpi",
    .does = "the MPI library that started the job",
    .any_order = true,
    .open = engine_open,
    .run = run,
    .close = engine_close,
};
