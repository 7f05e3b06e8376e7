/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h: who runs the operations of a comm: our own algorithms (host), or somebody else's library.
 *
 * An engine gets the calls of one comm, one at a time, in the order of its queue. What it cannot do the host does, so
 * an engine decides that by what all ranks of the call know alike. Links, joining, time limits and aborts stay ours.
 */
#ifndef TRI_COMM_ENGINE_H
#define TRI_COMM_ENGINE_H

#include "comm/run.h"

typedef struct tri_engine_ops {
    const char *name;
    const char *does; /* one line for --explain */
    bool any_order;   /* adds in an order of its own */
    /* Collective over the world; started_by as in cluster.h. NULL: nothing to open. */
    tri_status (*open)(tri_comm *comm, const tri_comm_config *config, const char *started_by, tri_engine **out);
    /* Runs a call of at least 2 ranks; of a batch its sends and receives, all at once. TRI_EUNSUPPORTED: the host's
     * turn. */
    tri_status (*run)(tri_engine *engine, tri_call *call);
    /* NULL: nothing to close. */
    void (*close)(tri_engine *engine);
} tri_engine_ops;

/* First member of each implementation's struct. */
struct tri_engine {
    const tri_engine_ops *ops;
    tri_comm *comm;
};

extern const tri_engine_ops tri_engine_host, tri_engine_mpi;

/* The engine of the configuration, on all ranks or none. A comm of one rank needs none. */
tri_status tri_engine_open(tri_comm *comm, const tri_comm_config *config, const char *started_by);
void tri_engine_close(tri_comm *comm);
/* The call is not made yet: TRI_ECONFIG where its result would depend on an order that the engine does not keep. */
tri_status tri_engine_check(const tri_call *call);
tri_status tri_engine_run(tri_call *call);
/* For the loops in which an engine waits: has this comm failed, a rank died or aborted? Never blocks. */
tri_status tri_engine_look(tri_comm *comm);

#endif
