/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi.c: the operations of an MPI library, measured as core.h does. Started by bench/compare and bench/tcp under its
 * mpirun.
 */
#define _GNU_SOURCE
#include "core.h"

#include <mpi.h>

static void call(core_case *c, float *in, float *out)
{
    int count = (int)c->count, part = (int)c->part;
    switch (c->op) {
    case CORE_ALL_REDUCE:
        MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case CORE_REDUCE:
        MPI_Reduce(c->rank == 0 ? MPI_IN_PLACE : in, c->rank == 0 ? out : NULL, count, MPI_FLOAT, MPI_SUM, 0,
                   MPI_COMM_WORLD);
        break;
    case CORE_BROADCAST:
        MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    case CORE_ALL_GATHER:
        MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case CORE_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case CORE_ALL_TO_ALL:
        MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case CORE_GATHER:
        MPI_Gather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    case CORE_SCATTER:
        MPI_Scatter(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    default:
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void fence(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    core_begin();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    core_open(rank, ranks);
    static const core_peer peer = {call, fence, core_malloc, core_free};
    int code = core_main(argc, argv, &peer);
    MPI_Finalize();
    return code;
}
