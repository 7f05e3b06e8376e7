/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_mpi.h: what the files of the engine `mpi` share: loading (mpi_load.c), sums and blocks (mpi_calls.c), the
 * engine itself (engine_mpi.c). None of them sees mpi.h.
 */
#ifndef TRI_COMM_ENGINE_MPI_H
#define TRI_COMM_ENGINE_MPI_H

#include "comm/engine.h"
#include "comm/mpi_plugin.h"

/* MPI's communicator of a set of ranks. */
typedef struct mpi_group {
    struct mpi_group *next;
    void *comm;
    int count;
    int world_rank[]; /* [count] */
} mpi_group;

typedef struct mpi_engine {
    tri_engine base;
    const tri_mpi_ops *mpi;
    mpi_group *groups;
    int *ints;         /* [4 * world]: counts and first elements as MPI takes them */
    bool shares_cores; /* ranks of this host outnumber its cores */
} mpi_engine;

/* The plug-in at `path`, or the one for the MPI that started the job. It stays loaded. */
tri_status tri_mpi_load(const char *path, const char *started_by, const tri_mpi_ops **out);
/* TRI_EUNSUPPORTED where MPI cannot count this many elements and all ranks know. */
tri_status tri_mpi_can(const tri_call *call);
/* Before a reduction: own parts are added, halves become f32, blocks are one after the other. */
tri_status tri_mpi_reduce_begin(mpi_engine *engine, tri_call *call, tri_mpi_call *mpi);
/* After it: the result goes where it belongs; divides for AVERAGE. Nothing for other operations. */
tri_status tri_mpi_reduce_end(tri_call *call, const tri_mpi_call *mpi);
/* Counts and places of blocks, for operations that move them. */
tri_status tri_mpi_blocks_begin(mpi_engine *engine, const tri_call *call, tri_mpi_call *mpi);

#endif
