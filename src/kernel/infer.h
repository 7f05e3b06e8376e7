/* SPDX-License-Identifier: Apache-2.0
 *
 * infer.h: the checks that the files of shape inference share. Included by files of kernel/ only.
 */
#ifndef TRI_KERNEL_INFER_H
#define TRI_KERNEL_INFER_H

#include "kernel/row.h"

/* Input i has so many dimensions, a sane number of elements, and that type. */
tri_status tri_infer_input(const tri_op_desc *desc, int i, int min_dims, int max_dims, tri_dtype dtype);
tri_status tri_infer_units(const tri_op_desc *desc, const char *name, int64_t units);
/* Appends a parameter. */
tri_status tri_infer_param(tri_op_desc *desc, tri_shape shape);

/* infer_tokens.c: the ops of sequences of tokens. */
tri_status tri_infer_tokens(tri_op_desc *desc, int64_t units);

/* infer_parts.c: the ops of models in parts. */
tri_status tri_infer_parts(tri_op_desc *desc);
/* Input 0 has tokens that attr.parts fit. */
tri_status tri_infer_token_parts(tri_op_desc *desc);

#endif
