/* SPDX-License-Identifier: Apache-2.0
 *
 * stock.h: what a process keeps of a spread state, role by role, and how ranks with another layout get theirs from it.
 *
 * An element of a tensor has the same bits in every layout: so a layout takes each element from any rank that had it in
 * an earlier one. All ranks know who has what, and go through the tensors in windows of the same elements.
 */
#ifndef TRI_TRAIN_STOCK_H
#define TRI_TRAIN_STOCK_H

#include "optim/optim.h"
#include "train/inventory.h"
#include "train/roles.h"

/* One role: its store, and the slices of it whose state it keeps. */
typedef struct tri_stock {
    tri_params *params; /* NULL: nothing */
    tri_optim *optim;
    tri_slice *share;
    int share_count;
    tri_vector held, held_values; /* of tri_holding: its elements, as they lie in arrays of state; in params->values */
    tri_vector wanted_values;     /* elements of params->values to be filled in: these, or all */
} tri_stock;

/* Takes params and optim; share as tri_shares_of() has it, taken too. all: of a whole store all values are wanted. */
tri_status tri_stock_make(const tri_tensors *tensors, tri_params *params, tri_optim *optim, tri_slice *share,
                          int share_count, bool all, tri_stock *stock);
void tri_stock_close(tri_stock *stock);
/* Where an element of the share lies among its elements. */
int64_t tri_stock_at(const tri_stock *stock, int64_t element);

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
