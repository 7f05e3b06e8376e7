/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor.h: what the ranks that share out the parts of a model (nn/model.h, tri_model_split) exchange inside a graph's
 * runs.
 */
#ifndef TRI_PARALLEL_TENSOR_H
#define TRI_PARALLEL_TENSOR_H

#include <trireme/comm.h>

#include "kernel/kernel.h"

typedef struct tri_tensor_ranks tri_tensor_ranks;

/* Collective. Rank r of the group has the parts of split.rank r; their number is a power of two. */
tri_status tri_tensor_ranks_create(tri_group *group, tri_tensor_ranks **out);
void tri_tensor_ranks_destroy(tri_tensor_ranks *tensor);
/* For tri_graph_across_set(). */
tri_op_ranks tri_tensor_ranks_across(tri_tensor_ranks *tensor);
/* Time spent in exchanges so far. */
int64_t tri_tensor_ranks_spent_ns(const tri_tensor_ranks *tensor);

#endif
