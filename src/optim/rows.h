/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: steps of an optimizer over values that are in no store: rows of tables, blocks by key.
 *
 * A plain value; whoever has the values has their state too. Groups, clipping and schedules are the caller's business:
 * figures say what one step is. Elementwise, so any cut gives the same bits.
 */
#ifndef TRI_OPTIM_ROWS_H
#define TRI_OPTIM_ROWS_H

#include "optim/step.h"

typedef struct tri_optim_rows {
    tri_optim_config config;
    const tri_optim_ops *ops;
    int states; /* arrays of state, each as long as the values */
    optim_rates rates;
} tri_optim_rows;

/* config is copied. TRI_ECONFIG: there is no such optimizer, or its options contradict each other. */
tri_status tri_optim_rows_init(tri_optim_rows *rows, const tri_optim_config *config);
/* What all elements of a state array begin with. */
float tri_optim_rows_initial(const tri_optim_rows *rows, int index);
/* The figures of the steps that follow (buffer_scale means nothing here). */
void tri_optim_rows_begin(tri_optim_rows *rows, const tri_optim_scalars *figures);
/* count values move by their gradients, and so does their state; allocation-free. */
static inline void tri_optim_rows_step(const tri_optim_rows *rows, float *values, const float *grads,
                                       float *const *state, int64_t count)
{
    rows->ops->step(&rows->rates, (float)rows->config.weight_decay, values, grads, state, count);
}

#endif
