/* SPDX-License-Identifier: Apache-2.0
 *
 * activation.c: builds what maps each element alone: activations, softmax, dropout.
 */
#include "nn/parts.h"

static tri_value map_add(tri_model *model, tri_op op, tri_value x)
{
    tri_build build = {.op = op, .input_count = 1, .input = {x}};
    return tri_model_add(model, &build);
}

#define MAP(name, op)                                                                                                  \
    tri_value tri_##name(tri_model *model, tri_value x)                                                                \
    {                                                                                                                  \
        return map_add(model, op, x);                                                                                  \
    }
MAP(relu, TRI_OP_RELU)
MAP(gelu, TRI_OP_GELU)
MAP(gelu_erf, TRI_OP_GELU_ERF)
MAP(silu, TRI_OP_SILU)
MAP(tanh, TRI_OP_TANH)
MAP(sigmoid, TRI_OP_SIGMOID)
MAP(softmax, TRI_OP_SOFTMAX)
MAP(swiglu, TRI_OP_SWIGLU)

tri_value tri_dropout(tri_model *model, tri_value x, float rate)
{
    uint64_t number = 0;
    if (!tri_model_number(model, "#dropout", &number))
        return -1;
    tri_build build = {.op = TRI_OP_DROPOUT, .attr = {.rate = rate, .key = number}, .input_count = 1, .input = {x}};
    if (model->split.sequence) {
        int64_t here = tri_shape_count(tri_model_shape(model, x));
        build.attr.first = model->split.rank * here;
        build.attr.whole = tri_model_ranks(model) * here;
    }
    return tri_model_add(model, &build);
}
