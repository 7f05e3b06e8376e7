/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_view.h: a tensor put together from stored ones: rows of one after rows of another, each perhaps transposed,
 * read piece by piece as f32 or as another floating type.
 *
 * Nothing is copied before it is asked for, so a model is converted without a second one in memory. A type that holds
 * an element gives it exactly; any other type gives the nearest, ties to even.
 */
#ifndef TRI_CHECKPOINT_TENSOR_VIEW_H
#define TRI_CHECKPOINT_TENSOR_VIEW_H

#include "checkpoint/safetensors.h"

#define TRI_VIEW_MAX_PARTS 3

typedef struct tri_view_part {
    const tri_stored_tensor *from;
    int64_t first_row, rows; /* of `from`; with `transposed` all of them */
    bool transposed;         /* from [C, R] gives rows [R, C] */
} tri_view_part;

typedef struct tri_tensor_view {
    const char *name;
    tri_shape shape;
    tri_view_part parts[TRI_VIEW_MAX_PARTS]; /* one below the other */
    int part_count;
} tri_tensor_view;

/* A stored tensor as it is, under a name. TRI_EUNSUPPORTED when its elements are no floating numbers. */
tri_status tri_tensor_view_whole(const tri_stored_tensor *from, const char *name, tri_tensor_view *view);
/* Whether elements of this type can be read. */
bool tri_tensor_view_reads(tri_dtype dtype);
/* The narrowest type that holds the elements of all parts exactly: their own type where they agree. */
tri_dtype tri_tensor_view_dtype(const tri_tensor_view *view);
/* Elements [first, first + count) of the view, row by row, as f32. */
void tri_tensor_view_read(const tri_tensor_view *view, int64_t first, int64_t count, float *out);
/* The same as elements of a floating type; elements that are stored in this type are copied to the bit. */
void tri_tensor_view_read_as(const tri_tensor_view *view, tri_dtype dtype, int64_t first, int64_t count, void *out);

#endif
