/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch.h: weights that are spread over the ranks, unit by unit where kernels read them.
 *
 * A unit is gathered from its owners before its first use, and ahead of it: a run goes through the units in the same
 * order each time, so the first run up and down shows what comes next. A few stay; the one that was not used for the
 * longest time makes room.
 */
#ifndef TRI_PARALLEL_FETCH_H
#define TRI_PARALLEL_FETCH_H

#include "parallel/pool.h"
#include "parallel/units.h"

/* Units that are here at a time, where no op reads more than one. */
#define TRI_FETCH_BUFFERS 3

typedef struct fetch_unit {
    int buffer;     /* of the pool, -1: it is not here */
    int users;      /* bring without done */
    bool coming;    /* it is on its way */
    tri_work *work; /* by the comm */
} fetch_unit;

/* Who gathers units, each into its buffer, where others than the comm do. */
typedef struct tri_fetch_source {
    void *arg;
    tri_status (*begin)(void *arg, int unit);
    tri_status (*await)(void *arg, int unit); /* kernels that follow may read it */
    void (*left)(void *arg, int unit);        /* kernels that read it are queued */
    const tri_device *device;                 /* has the buffers */
} tri_fetch_source;

typedef struct tri_fetch {
    tri_group *group;
    const tri_params *params; /* whose values are this rank's share */
    const tri_units *units;
    tri_fetch_source source; /* of zeros: the comm */
    int rank;
    bool ahead;
    fetch_unit *states;    /* [units->store_count] */
    int *here, here_count; /* units that are here, the one not used for the longest time first */
    tri_pool pool;
    tri_vector order[2]; /* units of a run forward and backward (a pipeline: of evaluations and steps), as used (int) */
    bool known[2];       /* a run has ended */
    bool down;
    int place;         /* of the latest use in the order, -1: none */
    int64_t waited_ns; /* since it was made */
} tri_fetch;

/* source NULL: the comm gathers. */
tri_status tri_fetch_init(tri_fetch *fetch, tri_group *group, const tri_params *params, const tri_units *units,
                          bool ahead, const tri_fetch_source *source);
void tri_fetch_fini(tri_fetch *fetch);
/* Where a unit that is here, or on its way, lies. */
float *tri_fetch_values(const tri_fetch *fetch, int unit);
/* As tri_graph_hooks. */
void tri_fetch_begin(tri_fetch *fetch, bool down);
tri_status tri_fetch_bring(tri_fetch *fetch, int entry, const float **values);
void tri_fetch_done(tri_fetch *fetch, int entry);
/* The owners have moved their shares: what is here is old. By the comm: begins to gather what the next forward run
 * needs first. */
tri_status tri_fetch_renew(tri_fetch *fetch);

#endif
