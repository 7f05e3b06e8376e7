/* SPDX-License-Identifier: Apache-2.0
 *
 * infer.h: the checks that rows of ops share where they infer shapes. Included by files of kernel/ only.
 */
#ifndef TRI_KERNEL_INFER_H
#define TRI_KERNEL_INFER_H

#include "kernel/row.h"

#define TRI_INFER_MAX_COUNT (INT64_C(1) << 40) /* elements of one tensor of one shard */

static inline tri_shape tri_shape_vector(int64_t count)
{
    return tri_shape_make(1, (int64_t[]){count});
}

/* TRI_EINVAL: "op: thing: want wanted, got found". */
tri_status tri_infer_fail(const tri_op_desc *desc, const char *wanted, const char *thing, tri_shape found);
/* Input i has min_dims to max_dims dimensions, a sane number of elements, and that type. */
tri_status tri_infer_input(const tri_op_desc *desc, int i, int min_dims, int max_dims, tri_dtype dtype);
tri_status tri_infer_units(const tri_op_desc *desc, const char *name, int64_t units);
/* Appends a parameter. */
tri_status tri_infer_param(tri_op_desc *desc, tri_shape shape);
/* The output is as the one input, f32 of any shape. */
tri_status tri_infer_same(tri_op_desc *desc);
/* Output of a convolution or pool, but for its channels. */
tri_status tri_infer_window(tri_op_desc *desc, bool pool);
/* A norm with this number of parameters, each of the last dimension. */
tri_status tri_infer_norm(tri_op_desc *desc, int params);
/* Targets of a loss are of that shape and type; attr.smoothing; the output. */
tri_status tri_infer_loss(tri_op_desc *desc, tri_shape targets, tri_dtype dtype);
/* Rows of heads: attr.heads, attr.kv_heads. */
tri_status tri_infer_heads(tri_op_desc *desc);
/* attr.ranks and attr.rank. */
tri_status tri_infer_ranks(tri_op_desc *desc);
/* Input 0 has tokens that attr.parts fit. */
tri_status tri_infer_token_parts(tri_op_desc *desc);

#endif
