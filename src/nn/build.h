/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h: what the builders of ops/ share: one call that infers, names, and appends a node.
 *
 * Included by files of nn/ only.
 */
#ifndef TRI_NN_BUILD_H
#define TRI_NN_BUILD_H

#include "nn/model.h"

/* One parameter of an op, in the op's order. */
typedef struct tri_build_param {
    const char *suffix; /* "weight" */
    tri_init init;
    bool decay, buffer;
    tri_piece piece; /* of a tensor that several nodes share out; what tri_op_infer() says is the shape of the piece */
} tri_build_param;

/* What a builder needs; shapes come from tri_op_infer(). */
typedef struct tri_build {
    tri_op op;
    tri_op_attr attr;
    int input_count;
    tri_value input[TRI_OP_MAX_INPUTS];
    const char *kind; /* of default names: "conv" gives "conv1", "conv2"; ops with parameters only */
    const char *name; /* NULL: the default */
    int64_t fan;      /* of the parameters' initial values; 0: by parameter 0 */
    const char *tied; /* NULL, or the whole name of the parameter that is parameter 0 of this op too */
    tri_build_param param[TRI_OP_MAX_PARAMS];
} tri_build;

/* The number of the new value, or -1: the failure stays in the model. */
tri_value tri_model_add(tri_model *model, const tri_build *build);
/* The next number, from 1 on, of its kind: of what random numbers are keyed by, so that other nodes may come and go
 * without changing them. False: the failure stays in the model. */
bool tri_model_number(tri_model *model, const char *kind, uint64_t *number);
/* Keeps the first failure; returns -1. */
tri_value tri_model_fail(tri_model *model, tri_status status);
/* x if it has samples [H, W, C], which the op needs; else -1 and the failure stays in the model. */
tri_value tri_model_image(tri_model *model, tri_op op, tri_value x);
/* The value's row, or NULL when there is no such value or the model has failed. */
const tri_value_spec *tri_model_value(const tri_model *model, tri_value value);
/* Shape of one sample with a batch of one in front. */
tri_shape tri_shape_batched(tri_shape sample, int64_t rows);

#endif
