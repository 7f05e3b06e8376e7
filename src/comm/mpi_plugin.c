/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin.c: the only file that sees mpi.h; compiled once for each MPI found (libtrireme_mpi_<name>.so).
 */
#include "comm/mpi_plugin.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MPI_Comm pairs; /* all ranks, for sends and receives */
static bool initialized_here;
static int tag_limit;

/* What was begun and has not ended. */
static MPI_Request *requests;
static MPI_Status *statuses;
static tri_mpi_call *calls;
static int request_count, request_capacity;

static bool check(int error, char why[TRI_MPI_WHY_NBYTES])
{
    char text[MPI_MAX_ERROR_STRING];
    int nbytes = 0;
    if (error == MPI_SUCCESS)
        return true;
    if (MPI_Error_string(error, text, &nbytes) != MPI_SUCCESS)
        nbytes = snprintf(text, sizeof(text), "error %d", error);
    /* One line: MPICH tells its whole stack. */
    int first_line = (int)strcspn(text, "\n");
    snprintf(why, TRI_MPI_WHY_NBYTES, "%.*s", first_line < nbytes ? first_line : nbytes, text);
    return false;
}

static bool refuse(char why[TRI_MPI_WHY_NBYTES], const char *text)
{
    snprintf(why, TRI_MPI_WHY_NBYTES, "%s", text);
    return false;
}

static bool initialize(char why[TRI_MPI_WHY_NBYTES])
{
    int flag = 0, level = MPI_THREAD_SINGLE;
    if (!check(MPI_Finalized(&flag), why))
        return false;
    if (flag)
        return refuse(why, "MPI was finalized in this process, and cannot be started again");
    if (!check(MPI_Initialized(&flag), why))
        return false;
    initialized_here = !flag;
    if (!check(flag ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), why))
        return false;
    if (level < MPI_THREAD_SERIALIZED)
        return refuse(why, flag ? "want MPI initialized by the program with MPI_THREAD_SERIALIZED, got less"
                                : "want MPI_THREAD_SERIALIZED (calls come from two threads, one at a time); this MPI "
                                  "gives less");
    return true;
}

static bool start(int *rank, int *ranks, char why[TRI_MPI_WHY_NBYTES])
{
    int *limit = NULL, found = 0;
    if (!initialize(why) || !check(MPI_Comm_dup(MPI_COMM_WORLD, &pairs), why) ||
        !check(MPI_Comm_set_errhandler(pairs, MPI_ERRORS_RETURN), why) ||
        !check(MPI_Comm_get_attr(pairs, MPI_TAG_UB, &limit, &found), why) || !check(MPI_Comm_rank(pairs, rank), why) ||
        !check(MPI_Comm_size(pairs, ranks), why))
        return false;
    tag_limit = found ? *limit : 32767;
    return true;
}

static void *group_create(const int *world_ranks, int count, char why[TRI_MPI_WHY_NBYTES])
{
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm *comm = malloc(sizeof(*comm));
    if (!comm) {
        refuse(why, "out of memory");
        return NULL;
    }
    *comm = MPI_COMM_NULL;
    bool made = check(MPI_Comm_group(pairs, &all), why) && check(MPI_Group_incl(all, count, world_ranks, &some), why) &&
                check(MPI_Comm_create_group(pairs, some, 0, comm), why) &&
                check(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), why);
    if (some != MPI_GROUP_NULL)
        MPI_Group_free(&some);
    if (all != MPI_GROUP_NULL)
        MPI_Group_free(&all);
    if (made)
        return comm;
    free(comm);
    return NULL;
}

static MPI_Datatype type_of(tri_dtype dtype)
{
    switch (dtype) {
    case TRI_F32:
        return MPI_FLOAT;
    case TRI_F64:
        return MPI_DOUBLE;
    case TRI_I8:
        return MPI_INT8_T;
    case TRI_U8:
        return MPI_UINT8_T;
    case TRI_I32:
        return MPI_INT32_T;
    case TRI_I64:
        return MPI_INT64_T;
    default:
        return MPI_UINT16_T; /* halves are moved, never added */
    }
}

static MPI_Op op_of(tri_reduce_op reduce)
{
    switch (reduce) {
    case TRI_REDUCE_MIN:
        return MPI_MIN;
    case TRI_REDUCE_MAX:
        return MPI_MAX;
    case TRI_REDUCE_PRODUCT:
        return MPI_PROD;
    default:
        return MPI_SUM;
    }
}

static bool requests_grow(void)
{
    int capacity = request_capacity ? 2 * request_capacity : 16;
    MPI_Request *more_requests = realloc(requests, (size_t)capacity * sizeof(*requests));
    requests = more_requests ? more_requests : requests;
    MPI_Status *more_statuses = realloc(statuses, (size_t)capacity * sizeof(*statuses));
    statuses = more_statuses ? more_statuses : statuses;
    tri_mpi_call *more_calls = realloc(calls, (size_t)capacity * sizeof(*calls));
    calls = more_calls ? more_calls : calls;
    if (!more_requests || !more_statuses || !more_calls)
        return false;
    request_capacity = capacity;
    return true;
}

static int begin_blocks(const tri_mpi_call *call, MPI_Request *request)
{
    MPI_Datatype type = type_of(call->dtype);
    MPI_Comm comm = *(MPI_Comm *)call->group;
    const void *in = call->in ? call->in : MPI_IN_PLACE;
    void *out = call->out ? call->out : MPI_IN_PLACE;
    int count = (int)call->count, rank = 0;
    MPI_Comm_rank(comm, &rank);
    switch (call->op) {
    case TRI_COMM_ALL_GATHER:
        if (!call->out_counts)
            return MPI_Iallgather(in, count, type, out, count, type, comm, request);
        return MPI_Iallgatherv(in, call->out_counts[rank], type, out, call->out_counts, call->out_firsts, type, comm,
                               request);
    case TRI_COMM_GATHER:
        if (!call->out_counts)
            return MPI_Igather(in, count, type, call->out, count, type, call->root, comm, request);
        return MPI_Igatherv(in, call->out_counts[rank], type, call->out, call->out_counts, call->out_firsts, type,
                            call->root, comm, request);
    case TRI_COMM_SCATTER:
        if (!call->in_counts)
            return MPI_Iscatter(call->in, count, type, out, count, type, call->root, comm, request);
        return MPI_Iscatterv(call->in, call->in_counts, call->in_firsts, type, out, call->in_counts[rank], type,
                             call->root, comm, request);
    default:
        if (!call->in_counts)
            return MPI_Ialltoall(in, count, type, out, count, type, comm, request);
        return MPI_Ialltoallv(in, call->in_counts, call->in_firsts, type, out, call->out_counts, call->out_firsts, type,
                              comm, request);
    }
}

static int begin_one(const tri_mpi_call *call, MPI_Request *request)
{
    MPI_Datatype type = type_of(call->dtype);
    MPI_Op op = op_of(call->reduce);
    MPI_Comm comm = call->group ? *(MPI_Comm *)call->group : pairs;
    const void *in = call->in ? call->in : MPI_IN_PLACE;
    int count = (int)call->count;
    /* 0 is the tag of group_create on this communicator. */
    int tag = 1 + (int)((unsigned)call->tag % (unsigned)tag_limit);
    switch (call->op) {
    case TRI_COMM_ALL_REDUCE:
        return MPI_Iallreduce(in, call->out, count, type, op, comm, request);
    case TRI_COMM_REDUCE:
        return MPI_Ireduce(in, call->out, count, type, op, call->root, comm, request);
    case TRI_COMM_BROADCAST:
        return MPI_Ibcast(call->out, count, type, call->root, comm, request);
    case TRI_COMM_REDUCE_SCATTER:
        if (call->in_counts)
            return MPI_Ireduce_scatter(in, call->out, call->in_counts, type, op, comm, request);
        return MPI_Ireduce_scatter_block(in, call->out, count, type, op, comm, request);
    case TRI_COMM_BARRIER:
        return MPI_Ibarrier(comm, request);
    case TRI_COMM_SEND_RECV:
        if (call->sends)
            return MPI_Isend(call->in, count, type, call->root, tag, comm, request);
        return MPI_Irecv(call->out, count, type, call->root, tag, comm, request);
    default:
        return begin_blocks(call, request);
    }
}

static bool begin(const tri_mpi_call *call, char why[TRI_MPI_WHY_NBYTES])
{
    if (request_count == request_capacity && !requests_grow())
        return refuse(why, "out of memory");
    calls[request_count] = *call;
    if (!check(begin_one(call, &requests[request_count]), why))
        return false;
    request_count++;
    return true;
}

static tri_status lengths_check(char why[TRI_MPI_WHY_NBYTES])
{
    for (int i = 0; i < request_count; i++) {
        int got = 0;
        if (calls[i].op != TRI_COMM_SEND_RECV || calls[i].sends)
            continue;
        if (!check(MPI_Get_count(&statuses[i], type_of(calls[i].dtype), &got), why))
            return TRI_EIO;
        if (got != calls[i].count) {
            snprintf(why, TRI_MPI_WHY_NBYTES, "want %lld elements of rank %d, got %d", (long long)calls[i].count,
                     calls[i].root, got);
            return TRI_EMISMATCH;
        }
    }
    return TRI_OK;
}

static tri_status test(bool *done, char why[TRI_MPI_WHY_NBYTES])
{
    int flag = 0, class = 0;
    *done = false;
    int error = MPI_Testall(request_count, requests, &flag, statuses);
    for (int i = 0; error == MPI_ERR_IN_STATUS && i < request_count; i++) {
        if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            error = statuses[i].MPI_ERROR;
    }
    if (!check(error, why))
        return MPI_Error_class(error, &class) == MPI_SUCCESS && class == MPI_ERR_TRUNCATE ? TRI_EMISMATCH : TRI_EIO;
    if (!flag)
        return TRI_OK;
    *done = true;
    tri_status status = lengths_check(why);
    request_count = 0;
    return status;
}

static void stop(void)
{
    if (initialized_here)
        MPI_Finalize();
}

extern const tri_mpi_ops tri_mpi_plugin; /* found by its name */
TRI_API const tri_mpi_ops tri_mpi_plugin = {
    .version = TRI_VERSION,
#ifdef OPEN_MPI
    .library = "Open MPI",
#else
    .library = "MPICH",
#endif
    .start = start,
    .group_create = group_create,
    .begin = begin,
    .test = test,
    .stop = stop,
};
