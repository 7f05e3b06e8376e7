/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c: builds products: linear layers (over the last dimension) and matmul.
 */
#include "nn/parts.h"

tri_value tri_linear(tri_model *model, tri_value x, tri_linear_options options)
{
    return tri_linear_piece(model, x, options, (tri_piece){0}, (tri_piece){0});
}

tri_value tri_linear_piece(tri_model *model, tri_value x, tri_linear_options options, tri_piece weight, tri_piece bias)
{
    tri_build build = {
        .op = TRI_OP_LINEAR,
        .attr = {.relu = options.relu, .bias = !options.no_bias, .units = options.units},
        .input_count = 1,
        .input = {x},
        .kind = "fc",
        .name = options.name,
        .param = {{"weight", model->deviation > 0 ? TRI_INIT_NORMAL : TRI_INIT_FAN_IN, true, false, weight},
                  {"bias", model->deviation > 0 ? TRI_INIT_ZERO : TRI_INIT_FAN_IN, false, false, bias}},
    };
    return tri_model_add(model, &build);
}

tri_value tri_matmul(tri_model *model, tri_value a, tri_value b)
{
    tri_build build = {.op = TRI_OP_MATMUL, .input_count = 2, .input = {a, b}};
    return tri_model_add(model, &build);
}
