/* SPDX-License-Identifier: Apache-2.0
 *
 * state_shard.h: what a process keeps of a sharded state, role by role, and how ranks with another layout get theirs
 * from it.
 *
 * An element of a tensor has the same bits in every layout: so a layout takes each element from any rank that had it in
 * an earlier one. All ranks know who has what, and go through the tensors in windows of the same elements.
 */
#ifndef TRI_TRAIN_STATE_SHARD_H
#define TRI_TRAIN_STATE_SHARD_H

#include "kernel/digest.h"
#include "optim/optim.h"
#include "train/checkpointing/shard_map.h"
#include "train/elastic/assignment.h"

/* state_shard_digest.c: hashes of a shard's tiles as they were written last. */
typedef struct tri_state_shard_tile tri_state_shard_tile;
typedef struct tri_state_shard_digests {
    tri_digest *digest;          /* NULL: nobody looks */
    tri_state_shard_tile *tiles; /* [count] */
    int64_t count;
    uint64_t *written, *found; /* [count]: behind the writing; when somebody looked */
    bool noted;                /* `written` is of what was written last */
} tri_state_shard_digests;

/* One role: its store, and the slices of it whose state it keeps. */
typedef struct tri_state_shard {
    tri_params *params; /* NULL: nothing */
    tri_optim *optim;
    tri_slice *share;
    int share_count;
    tri_vector held, held_values; /* of tri_extent: its elements, as they are in arrays of state; in params->values */
    tri_vector wanted_values;     /* elements of params->values to be filled in: these, or all */
    tri_state_shard_digests digests;
} tri_state_shard;

/* Takes params and optim; share as tri_shares_of() has it, taken too. all: of a whole store all values are wanted. */
tri_status tri_state_shard_make(const tri_tensors *tensors, tri_params *params, tri_optim *optim, tri_slice *share,
                                int share_count, bool all, tri_state_shard *shard);
/* Where an element of the share is among its elements. */
int64_t tri_state_shard_at(const tri_state_shard *shard, int64_t element);

/* Does not move. */
tri_status tri_state_shard_digests_open(tri_state_shard *shard);
void tri_state_shard_digests_close(tri_state_shard *shard);
/* All is written. Allocates nothing. */
void tri_state_shard_note(tri_state_shard *shard, int threads);
/* What is there now. */
typedef struct tri_state_shard_sight {
    uint64_t digest; /* the same of the same elements of a role, whoever has them */
    bool known;      /* it was noted when they were written last: */
    bool changed;    /* they have changed since, */
    int array;       /* first in weights (0), or in an array of state, */
    int tensor;      /* of this tensor; -1: they have not */
} tri_state_shard_sight;
tri_status tri_state_shard_look(const tri_state_shard *shard, int threads, tri_state_shard_sight *sight);
/* Weights and arrays of state, as the host sees them; ends with close whatever is returned. */
typedef struct tri_state_shard_views {
    tri_device_view arrays[1 + TRI_OPTIM_MAX_STATE];
    int count;
} tri_state_shard_views;
tri_status tri_state_shard_views_open(const tri_state_shard *shard, tri_state_shard_views *views);
void tri_state_shard_views_close(tri_state_shard_views *views);

/* What one process has after a step. */
typedef struct tri_shard_set {
    tri_assignment_set what; /* generation 0: nothing */
    tri_state_shard own, mirror;
} tri_shard_set;
void tri_shard_set_close(tri_shard_set *set);

/* Collective over the group: elements of weights and of `states` arrays of state go from all shards `from` (of the same
 * state; NULL: this rank has none) to those of `to`. Every element must be in some shard. */
tri_status tri_state_shards_move(tri_group *group, const tri_tensors *tensors, const tri_state_shard *const from[2],
                                 const tri_state_shard *const to[2], int states);

#endif
