/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_view.h: a tensor put together from stored ones: rows of one after rows of another, each perhaps transposed,
 * read as f32 piece by piece.
 *
 * Nothing is copied before it is asked for, so a model is converted without a second one in memory. f32, f16 and bf16
 * come out exact, f64 rounded to the nearest.
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
/* Elements [first, first + count) of the view, row by row. */
void tri_tensor_view_read(const tri_tensor_view *view, int64_t first, int64_t count, float *out);

#endif
