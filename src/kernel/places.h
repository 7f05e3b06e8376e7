/* SPDX-License-Identifier: Apache-2.0
 *
 * places.h: what a sequence that grows needs besides ops on rows: attention over the keys and values that are kept, and
 * rope at a place. A query meets its keys in the same blocks and order however many rows come together.
 */
#ifndef TRI_KERNEL_PLACES_H
#define TRI_KERNEL_PLACES_H

#include "kernel/kernel.h"

/* Rows of an activation that follow each other in one sequence. */
typedef struct tri_place_span {
    int64_t row, count; /* rows */
    int64_t place;      /* of the first one in its sequence */
    float *kept;        /* the sequence's keys and values for this op */
} tri_place_span;

/* desc: attention, planned for one sample whose length is the most that a sequence may have. */
int64_t tri_places_kept_count(const tri_op_desc *desc);
/* Elements of scratch. */
int64_t tri_places_scratch_count(const tri_op_desc *desc);
/* Keeps the keys and values of all rows of x[rows][(H + 2K) D], then y[rows][H D] = attention over all that is kept. */
void tri_places_attention(const tri_op_desc *desc, const tri_place_span *spans, int span_count, const float *x,
                          float *y, float *scratch);
/* The rope kernel was planned as such a desc. y may be x. */
void tri_places_rope(const tri_kernel *kernel, const tri_place_span *spans, int span_count, const float *x, float *y);

#endif
