/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_map.h: which rank holds which elements of which tensor, and the way of tensors between all ranks and rank 0,
 * which alone touches files.
 *
 * A place is a number: elements of the tensors in front of it (tri_tensors). Tensors travel in windows of at most
 * TRI_SHARD_MAP_WINDOW elements, so that nobody ever holds a whole that he could not hold. Rank 0 goes along the
 * tensors and the others go along the same ones; nothing is sent but elements.
 */
#ifndef TRI_TRAIN_SHARD_MAP_H
#define TRI_TRAIN_SHARD_MAP_H

#include <trireme/comm.h>

#include "nn/params.h"
#include "nn/tensors.h"
#include "parallel/sync.h"

#define TRI_SHARD_MAP_WINDOW (INT64_C(1) << 18)

/* Elements [low, high) of a piece of a tensor, which are one after the other in an array of their rank. */
typedef struct tri_extent {
    int tensor;
    tri_shape shape; /* of the piece */
    tri_piece piece;
    int64_t low, high;
    bool gives; /* of several ranks that hold the same, one gives it to rank 0; all that are named take it from there */
    int rank;
    int64_t at; /* element of the array where `low` is; known to its rank alone */
} tri_extent;

/* An extent as numbers for other ranks, all but rank and at. What is read must be a piece of one of the tensors. */
#define TRI_EXTENT_ROW 10
void tri_extent_write(const tri_extent *extent, int64_t row[TRI_EXTENT_ROW]);
tri_status tri_extent_read(const tri_tensors *tensors, const int64_t row[TRI_EXTENT_ROW], int rank, tri_extent *extent);

typedef struct tri_shard_map tri_shard_map;

/* What this rank holds of a slice of the store, whose first element is element `at` of an array: appended to `list` (of
 * tri_extent). uncut: it gives also entries that are no pieces, which other tensor ranks have too; copies it never
 * gives. */
tri_status tri_extents_of_slice(const tri_params *params, const tri_tensors *tensors, tri_sync_slice slice, int64_t at,
                                bool uncut, tri_vector *list);
/* Collective: rank 0 learns of all. The extents are copied, tensors are borrowed. */
tri_status tri_shard_map_create(tri_group *group, const tri_tensors *tensors, const tri_vector *extents,
                                tri_shard_map **out);
void tri_shard_map_destroy(tri_shard_map *map);
/* What this rank holds, in order of tensors. */
const tri_extent *tri_shard_map_own(const tri_shard_map *map, int *count);
/* Does rank 0 hold less than all? The same on all ranks. */
bool tri_shard_map_is_spread(const tri_shard_map *map);

/* Rank 0: all elements of a tensor that nobody else holds, where they are one after the other; else NULL. */
float *tri_shard_map_alone(const tri_shard_map *map, float *array, int tensor);
/* Rank 0, going along the elements of a tensor: those from `place` on, at most *count of them; sets *count, at least 1,
 * and *values, which hold until the next call. `array` is this rank's. */
tri_status tri_shard_map_read(tri_shard_map *map, float *array, int64_t place, int64_t *count, const float **values);
/* Rank 0: all elements of the tensor at `place`, to whoever holds them. */
tri_status tri_shard_map_write(tri_shard_map *map, float *array, int64_t place, const float *values);
/* The others, while rank 0 reads (gives) or writes (takes) the tensor. */
tri_status tri_shard_map_give(tri_shard_map *map, float *array, int tensor);
tri_status tri_shard_map_take(tri_shard_map *map, float *array, int tensor);

#endif
