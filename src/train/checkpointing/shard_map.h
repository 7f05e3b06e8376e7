/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_map.h: which rank holds which elements of which tensor, and the way of tensors between all ranks and rank 0,
 * which alone touches files.
 *
 * A place is a number: elements of the tensors in front of it (tri_tensors). Tensors travel in windows of at most
 * TRI_INVENTORY_WINDOW elements, so that nobody ever holds a whole that he could not hold. Rank 0 goes along the
 * tensors and the others go along the same ones; nothing is sent but elements.
 */
#ifndef TRI_TRAIN_INVENTORY_H
#define TRI_TRAIN_INVENTORY_H

#include <trireme/comm.h>

#include "nn/params.h"
#include "nn/tensors.h"
#include "parallel/sync.h"

#define TRI_INVENTORY_WINDOW (INT64_C(1) << 18)

/* Elements [low, high) of a piece of a tensor, which lie one after the other in an array of their rank. */
typedef struct tri_holding {
    int tensor;
    tri_shape shape; /* of the piece */
    tri_piece piece;
    int64_t low, high;
    bool gives; /* of several ranks that hold the same, one gives it to rank 0; all that are named take it from there */
    int rank;
    int64_t at; /* element of the array where `low` lies; known to its rank alone */
} tri_holding;

/* A holding as numbers for other ranks, all but rank and at. What is read must be a piece of one of the tensors. */
#define TRI_HOLDING_ROW 10
void tri_holding_write(const tri_holding *holding, int64_t row[TRI_HOLDING_ROW]);
tri_status tri_holding_read(const tri_tensors *tensors, const int64_t row[TRI_HOLDING_ROW], int rank,
                            tri_holding *holding);

typedef struct tri_inventory tri_inventory;

/* What this rank holds of a slice of the store, whose first element is element `at` of an array: appended to `list` (of
 * tri_holding). uncut: it gives also entries that are no pieces, which other tensor ranks have too; copies it never
 * gives. */
tri_status tri_holdings_of_slice(const tri_params *params, const tri_tensors *tensors, tri_sync_slice slice, int64_t at,
                                 bool uncut, tri_vector *list);
/* Collective: rank 0 learns of all. The holdings are copied, tensors are borrowed. */
tri_status tri_inventory_create(tri_group *group, const tri_tensors *tensors, const tri_vector *holdings,
                                tri_inventory **out);
void tri_inventory_destroy(tri_inventory *inventory);
/* What this rank holds, in order of tensors. */
const tri_holding *tri_inventory_own(const tri_inventory *inventory, int *count);
/* Does rank 0 hold less than all? The same on all ranks. */
bool tri_inventory_is_spread(const tri_inventory *inventory);

/* Rank 0: all elements of a tensor that nobody else holds, where they lie one after the other; else NULL. */
float *tri_inventory_alone(const tri_inventory *inventory, float *array, int tensor);
/* Rank 0, going along the elements of a tensor: those from `place` on, at most *count of them; sets *count, at least 1,
 * and *values, which hold until the next call. `array` is this rank's. */
tri_status tri_inventory_read(tri_inventory *inventory, float *array, int64_t place, int64_t *count,
                              const float **values);
/* Rank 0: all elements of the tensor at `place`, to whoever holds them. */
tri_status tri_inventory_write(tri_inventory *inventory, float *array, int64_t place, const float *values);
/* The others, while rank 0 reads (gives) or writes (takes) the tensor. */
tri_status tri_inventory_give(tri_inventory *inventory, float *array, int tensor);
tri_status tri_inventory_take(tri_inventory *inventory, float *array, int tensor);

#endif
