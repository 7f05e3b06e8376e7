/* SPDX-License-Identifier: Apache-2.0
 *
 * shape.c: builds what moves elements without changing them. The batch is never touched.
 */
#include <string.h>

#include "base/status.h"
#include "nn/build.h"

tri_value tri_concat(tri_model *model, const tri_value *inputs, int count, int axis)
{
    if (model->status != TRI_OK)
        return -1;
    if (count < 2 || count > TRI_OP_MAX_INPUTS || axis < 0 || axis >= TRI_MAX_DIMS)
        return tri_model_fail(model,
                              tri_fail(TRI_EINVAL, "concat: want 2 to %d inputs and an axis from 0, got %d and %d",
                                       TRI_OP_MAX_INPUTS, count, axis));
    tri_build build = {.op = TRI_OP_CONCAT, .attr = {.axis = axis + 1}, .input_count = count};
    memcpy(build.input, inputs, (size_t)count * sizeof(*inputs));
    return tri_model_add(model, &build);
}

tri_value tri_reshape(tri_model *model, tri_value x, tri_shape sample)
{
    tri_build build = {.op = TRI_OP_RESHAPE, .input_count = 1, .attr = {.to = sample}, .input = {x}};
    return tri_model_add(model, &build);
}

tri_value tri_flatten_in_order(tri_model *model, tri_value x, tri_flatten_order order)
{
    const tri_value_spec *spec = tri_model_value(model, x);
    if (spec && spec->sample.ndim == 1)
        return x;
    const tri_shape sample = spec ? spec->sample : (tri_shape){.ndim = 1, .dim = {1}};
    const bool image = sample.ndim == 3 && sample.dim[2] > 1 && sample.dim[0] * sample.dim[1] > 1;
    if (image && order == TRI_FLATTEN_UNSTATED)
        model->unordered = sample;
    if (image && order == TRI_FLATTEN_CHW)
        x = tri_transpose(model, x, (const int[]){2, 0, 1});
    return tri_reshape(model, x, (tri_shape){.ndim = 1, .dim = {tri_shape_count(sample)}});
}

tri_value tri_flatten(tri_model *model, tri_value x)
{
    return tri_flatten_in_order(model, x, TRI_FLATTEN_UNSTATED);
}

tri_value tri_transpose(tri_model *model, tri_value x, const int *axes)
{
    const tri_value_spec *spec = tri_model_value(model, x);
    tri_build build = {.op = TRI_OP_TRANSPOSE, .input_count = 1, .input = {x}};
    for (int i = 0; spec && i < spec->sample.ndim && i < TRI_MAX_DIMS - 1; i++) {
        if (axes[i] < 0 || axes[i] >= spec->sample.ndim)
            return tri_model_fail(model, tri_fail(TRI_EINVAL, "transpose: want axes from 0 to %d, got %d",
                                                  spec->sample.ndim - 1, axes[i]));
        build.attr.axes[i + 1] = axes[i] + 1;
    }
    return tri_model_add(model, &build);
}
