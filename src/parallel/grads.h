/* SPDX-License-Identifier: Apache-2.0
 *
 * grads.h: sharded state: gradients of units go to their owners: each rank ends with the sums of its shares alone.
 *
 * They are in arrays as large as the store (zero1, and where a batch is computed in pieces, which are added first), or
 * pass through a pool: from when a kernel first writes a unit's gradient to when its sum is formed.
 */
#ifndef TRI_PARALLEL_GRADS_H
#define TRI_PARALLEL_GRADS_H

#include "parallel/pool.h"
#include "parallel/sync.h"
#include "parallel/units.h"

/* Buffers of the pool, where no more are being written at a time: the sums of the others are under way. */
#define TRI_GRADS_BUFFERS 2

typedef struct grads_unit {
    float **parts;  /* [part_count] where its gradient is; in the pool: while `buffer` is not -1 */
    float **sums;   /* [sum_count] this rank's share of the sum of each whole subtree; the first becomes all of it */
    int missing;    /* gradients not ready in this step */
    int buffer;     /* of the pool, -1: none */
    tri_work *work; /* the sum is under way, */
    tri_work *rest; /* and with those of the replicas */
} grads_unit;

typedef struct tri_grads {
    tri_group *group;     /* of all who share the batch: the tail's */
    tri_group *zero;      /* with whom the state is shared out */
    tri_group *replicas;  /* those with the same share; NULL: nobody */
    tri_tree_place place; /* of `zero` among the shards */
    const tri_params *params;
    const tri_units *units;
    int rank, part_count, threads; /* rank: in `zero` */
    int sum_count;                 /* whole subtrees of the shards of `zero`: 1 where there are no replicas */
    bool whole, overlap;
    float **arrays;      /* whole: [part_count] arrays with tail, the first in the group's memory */
    grads_unit *states;  /* [units->count] */
    float **parts;       /* of all units */
    float **sum_places;  /* of all units */
    float *sums;         /* in the pool: shares of entries, then of ties */
    float *scratch;      /* for sums but the first; one unit's at a time: calls run one after the other */
    float **tails;       /* [part_count] */
    float *tail_memory;  /* in the pool */
    tri_work *tail_work; /* its sum, which all ranks get */
    tri_kept *kept;
    tri_pool pool;
    int open;                  /* units whose gradients are being written */
    int *flying, flying_count; /* units under way, the oldest first */
    tri_status status;         /* first failure in this step */
    char message[TRI_ERROR_NBYTES];
    int64_t waited_ns; /* since the sync was made: in place and ready */
} tri_grads;

/* Elements of what sums but the first take. */
size_t tri_grads_scratch(const tri_units *units, int rank, int sum_count);
tri_status tri_grads_init(tri_grads *grads, const tri_sync_setup *setup, const tri_units *units, bool whole);
void tri_grads_fini(tri_grads *grads);
void tri_grads_begin(tri_grads *grads);
/* As tri_graph_hooks.place; not where they are whole. */
tri_status tri_grads_place(tri_grads *grads, int number, float **parts);
/* Gradient `number` is complete in all parts. Failures wait for finish. */
void tri_grads_ready(tri_grads *grads, int number);
/* Waits for all sums. */
tri_status tri_grads_finish(tri_grads *grads);
/* Adds the sums of ties to those of their entries. */
void tri_grads_fold(const tri_grads *grads);
/* This rank's share of the sum of gradient `number`, *count elements; what stages share has a unit of its own. */
float *tri_grads_sum(const tri_grads *grads, int number, int64_t *count);

#endif
