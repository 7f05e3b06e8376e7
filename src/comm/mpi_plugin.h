/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin.h: what engine_mpi.c and a plug-in that was built with some MPI's mpi.h say to each other.
 *
 * A plug-in is mpi_plugin.c compiled once per MPI. It decides nothing and calls nothing of ours: it starts what a
 * tri_mpi_call says and tells when all that was started has ended. Its state is MPI's, one per process; one thread at a
 * time uses it. Texts of failures are written to `why`.
 */
#ifndef TRI_COMM_MPI_PLUGIN_H
#define TRI_COMM_MPI_PLUGIN_H

#include "comm/comm.h"

#define TRI_MPI_WHY_NBYTES 256
/* Elements that one call of MPI may count. */
#define TRI_MPI_COUNT_MAX INT32_MAX

/* One nonblocking operation. Counts and places in elements; an array that is NULL: `count` of each rank, in order. */
typedef struct tri_mpi_call {
    tri_comm_op op;
    void *group; /* of group_create; a send or receive: NULL, between ranks of the world */
    tri_dtype dtype;
    tri_reduce_op reduce; /* TRI_REDUCE_SUM, MIN, MAX, PRODUCT; of f32, f64 and whole numbers */
    int root;             /* a send or receive: the peer */
    bool sends;
    int tag;        /* of a send or receive; any, it is folded into what MPI takes */
    const void *in; /* NULL: in place (a scatter: out is NULL) */
    void *out;
    int64_t count;
    const int *in_counts, *in_firsts, *out_counts, *out_firsts; /* [ranks of the group] */
} tri_mpi_call;

typedef struct tri_mpi_ops {
    const char *version; /* TRI_VERSION it was built with: another has another table */
    const char *library; /* "Open MPI" */
    /* Initializes MPI for calls from one thread at a time, unless the program did; its own rank and number of ranks. */
    bool (*start)(int *rank, int *ranks, char why[TRI_MPI_WHY_NBYTES]);
    /* Collective over its ranks of the world, blocking. NULL: why. */
    void *(*group_create)(const int *world_ranks, int count, char why[TRI_MPI_WHY_NBYTES]);
    bool (*begin)(const tri_mpi_call *call, char why[TRI_MPI_WHY_NBYTES]);
    /* *done: all that was begun has ended. TRI_EMISMATCH: a message is not as long as was wanted; TRI_EIO. */
    tri_status (*test)(bool *done, char why[TRI_MPI_WHY_NBYTES]);
    /* Collective; only where nothing failed. Finalizes MPI if start initialized it. */
    void (*stop)(void);
} tri_mpi_ops;

/* The one symbol of a plug-in: a tri_mpi_ops. */
#define TRI_MPI_SYMBOL "tri_mpi_plugin"

#endif
