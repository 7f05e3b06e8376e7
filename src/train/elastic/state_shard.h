/* SPDX-License-Identifier: Apache-2.0
 *
 * state_shard.h: what a process keeps of a spread state, role by role, and how ranks with another layout get theirs
 * from it.
 *
 * An element of a tensor has the same bits in every layout: so a layout takes each element from any rank that had it in
 * an earlier one. All ranks know who has what, and go through the tensors in windows of the same elements.
 */
#ifndef TRI_TRAIN_STOCK_H
#define TRI_TRAIN_STOCK_H

#include "optim/optim.h"
#include "train/checkpointing/shard_map.h"
#include "train/elastic/assignment.h"

/* state_shard_digest.c: hashes of a stock's tiles as they were written last. */
typedef struct tri_stock_tile tri_stock_tile;
typedef struct tri_stock_digests {
    tri_stock_tile *tiles; /* [count]; NULL: nobody looks */
    int64_t count;
    uint64_t *written, *found; /* [count]: behind the writing; when somebody looked */
    bool noted;                /* `written` is of what was written last */
} tri_stock_digests;

/* One role: its store, and the slices of it whose state it keeps. */
typedef struct tri_stock {
    tri_params *params; /* NULL: nothing */
    tri_optim *optim;
    tri_slice *share;
    int share_count;
    tri_vector held, held_values; /* of tri_holding: its elements, as they lie in arrays of state; in params->values */
    tri_vector wanted_values;     /* elements of params->values to be filled in: these, or all */
    tri_stock_digests digests;
} tri_stock;

/* Takes params and optim; share as tri_shares_of() has it, taken too. all: of a whole store all values are wanted. */
tri_status tri_stock_make(const tri_tensors *tensors, tri_params *params, tri_optim *optim, tri_slice *share,
                          int share_count, bool all, tri_stock *stock);
void tri_stock_close(tri_stock *stock);
/* Where an element of the share lies among its elements. */
int64_t tri_stock_at(const tri_stock *stock, int64_t element);

/* Does not move. */
tri_status tri_stock_digests_open(tri_stock *stock);
void tri_stock_digests_close(tri_stock *stock);
/* All is written. Allocates nothing where the device shares the host's memory. */
void tri_stock_note(tri_stock *stock, int threads);
/* What is there now. */
typedef struct tri_stock_sight {
    uint64_t digest; /* the same of the same elements of a role, whoever has them */
    bool known;      /* it was noted when they were written last: */
    bool changed;    /* they have changed since, */
    int array;       /* first in weights (0), or in an array of state, */
    int tensor;      /* of this tensor; -1: they have not */
} tri_stock_sight;
tri_status tri_stock_look(const tri_stock *stock, int threads, tri_stock_sight *sight);
/* Weights and arrays of state, as the host sees them; ends with close whatever is returned. */
typedef struct tri_stock_views {
    tri_device_view arrays[1 + TRI_OPTIM_MAX_STATE];
    int count;
} tri_stock_views;
tri_status tri_stock_views_open(const tri_stock *stock, tri_stock_views *views);
void tri_stock_views_close(tri_stock_views *views);

/* What one process has after a step. */
typedef struct tri_stock_set {
    tri_role_set what; /* generation 0: nothing */
    tri_stock own, mirror;
} tri_stock_set;
void tri_stock_set_close(tri_stock_set *set);

/* Collective over the group: elements of weights and of `states` arrays of state go from all stocks `from` (of the same
 * state; NULL: this rank has none) to those of `to`. Every element must be in some stock. */
tri_status tri_stocks_move(tri_group *group, const tri_tensors *tensors, const tri_stock *const from[2],
                           const tri_stock *const to[2], int states);

#endif
