/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor.h: what the ranks that share out the parts of a model (nn/model.h, tri_model_split) add up between them: the
 * sums inside a graph's runs.
 */
#ifndef TRI_PARALLEL_TENSOR_H
#define TRI_PARALLEL_TENSOR_H

#include <trireme/comm.h>

typedef struct tri_tensor_ranks tri_tensor_ranks;

/* Collective. Rank r of the group has the parts of split.rank r; their number is a power of two. */
tri_status tri_tensor_ranks_create(tri_group *group, tri_tensor_ranks **out);
void tri_tensor_ranks_destroy(tri_tensor_ranks *tensor);
/* For tri_graph_sum_set(), `arg` a tri_tensor_ranks: adds the buffer up over the ranks, in place. All call it in the
 * same order. */
tri_status tri_tensor_ranks_sum(void *arg, void *data, int64_t count, tri_dtype dtype);
/* Time spent in sums so far. */
int64_t tri_tensor_ranks_spent_ns(const tri_tensor_ranks *tensor);

#endif
