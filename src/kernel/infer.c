/* SPDX-License-Identifier: Apache-2.0
 *
 * infer.c: from input shapes and attributes to output and parameter shapes: what the rows of ops share.
 *
 * Nothing behind tri_op_infer() checks a shape again.
 */
#include <stdio.h>

#include "kernel/infer.h"

tri_status tri_infer_fail(const tri_op_desc *desc, const char *wanted, const char *thing, tri_shape found)
{
    char text[96];
    return tri_fail(TRI_EINVAL, "%s: %s: want %s, got %s", tri_op_name(desc->op), thing, wanted,
                    tri_shape_print(found, text));
}

tri_status tri_infer_input(const tri_op_desc *desc, int i, int min_dims, int max_dims, tri_dtype dtype)
{
    const tri_shape shape = desc->input[i];
    char thing[32], wanted[48];
    snprintf(thing, sizeof thing, "input %d", i);
    if (shape.ndim < min_dims || shape.ndim > max_dims) {
        if (min_dims == max_dims)
            snprintf(wanted, sizeof wanted, "%d dimensions", min_dims);
        else
            snprintf(wanted, sizeof wanted, "%d to %d dimensions", min_dims, max_dims);
        return tri_infer_fail(desc, wanted, thing, shape);
    }
    int64_t count = 1;
    for (int d = 0; d < shape.ndim; d++) {
        if (shape.dim[d] < 1 || shape.dim[d] > TRI_INFER_MAX_COUNT / count) {
            return tri_infer_fail(desc, "dimensions of at least 1 and at most 2^40 elements", thing, shape);
        }
        count *= shape.dim[d];
    }
    const bool half = dtype == TRI_F32 && (desc->input_dtype[i] == TRI_BF16 || desc->input_dtype[i] == TRI_F16);
    if (desc->input_dtype[i] != dtype && !half) {
        return tri_fail(TRI_EINVAL, "%s: %s: want elements of type %s, got %s", tri_op_name(desc->op), thing,
                        tri_dtype_name(dtype), tri_dtype_name(desc->input_dtype[i]));
    }
    return TRI_OK;
}

tri_status tri_infer_units(const tri_op_desc *desc, const char *name, int64_t units)
{
    if (units < 1 || units > INT32_MAX) {
        return tri_fail(TRI_EINVAL, "%s: want %s from 1 to 2^31, got %lld", tri_op_name(desc->op), name,
                        (long long)units);
    }
    return TRI_OK;
}

tri_status tri_infer_param(tri_op_desc *desc, tri_shape shape)
{
    int64_t count = 1;
    for (int d = 0; d < shape.ndim; d++) {
        if (shape.dim[d] > TRI_INFER_MAX_COUNT / count) {
            return tri_infer_fail(desc, "at most 2^40 elements", "parameter", shape);
        }
        count *= shape.dim[d];
    }
    desc->param[desc->param_count++] = shape;
    return TRI_OK;
}

tri_status tri_infer_window(tri_op_desc *desc, bool pool)
{
    const tri_op_attr *attr = &desc->attr;
    for (int i = 0; i < 2; i++) {
        const char *axis = i == 0 ? "H" : "W";
        const int64_t stride = attr->stride[i] == 0 ? 1 : attr->stride[i];
        const int64_t dilation = attr->dilation[i] == 0 ? 1 : attr->dilation[i];
        if (attr->kernel[i] < 1 || stride < 1 || dilation < 1 || attr->pad[i] < 0) {
            return tri_fail(TRI_EINVAL, "%s: %s: want kernel, stride, dilation >= 1 and pad >= 0, got %d, %d, %d, %d",
                            tri_op_name(desc->op), axis, attr->kernel[i], attr->stride[i], attr->dilation[i],
                            attr->pad[i]);
        }
        const int64_t reach = dilation * (attr->kernel[i] - 1) + 1;
        if (pool && attr->pad[i] * 2 > reach) {
            return tri_fail(TRI_EINVAL, "%s: %s: want pad of at most half the window (%lld), got %d",
                            tri_op_name(desc->op), axis, (long long)reach, attr->pad[i]);
        }
        if (pool && dilation > desc->input[0].dim[1 + i]) { /* so that each window meets the image */
            return tri_fail(TRI_EINVAL, "%s: %s: want a dilation of at most the image (%lld), got %lld",
                            tri_op_name(desc->op), axis, (long long)desc->input[0].dim[1 + i], (long long)dilation);
        }
        const int64_t room = desc->input[0].dim[1 + i] + 2 * (int64_t)attr->pad[i];
        if (reach > room) {
            return tri_fail(TRI_EINVAL, "%s: %s: want a window of at most %lld (image and padding), got %lld",
                            tri_op_name(desc->op), axis, (long long)room, (long long)reach);
        }
        desc->output.dim[1 + i] = (room - reach) / stride + 1;
    }
    desc->output.ndim = 4;
    desc->output.dim[0] = desc->input[0].dim[0];
    return TRI_OK;
}

tri_status tri_infer_same(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS, TRI_F32));
    desc->output = desc->input[0];
    return TRI_OK;
}

tri_status tri_infer_norm(tri_op_desc *desc, int params)
{
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    if (!(desc->attr.epsilon >= 0)) {
        return tri_fail(TRI_EINVAL, "%s: want epsilon >= 0, got %g", tri_op_name(desc->op), (double)desc->attr.epsilon);
    }
    TRI_TRY(tri_infer_token_parts(desc));
    for (int p = 0; p < params; p++) {
        TRI_TRY(tri_infer_param(desc, tri_shape_vector(tri_shape_last(&desc->input[0]))));
    }
    desc->output = desc->input[0];
    return TRI_OK;
}

tri_status tri_infer_loss(tri_op_desc *desc, tri_shape targets, tri_dtype dtype)
{
    char text[96];
    TRI_TRY(tri_infer_input(desc, 1, 1, TRI_MAX_DIMS, dtype));
    if (!tri_shape_equal(targets, desc->input[1])) {
        return tri_infer_fail(desc, tri_shape_print(targets, text), "targets", desc->input[1]);
    }
    if (!(desc->attr.smoothing >= 0 && desc->attr.smoothing <= 1)) {
        return tri_fail(TRI_EINVAL, "%s: want smoothing from 0 to 1, got %g", tri_op_name(desc->op),
                        (double)desc->attr.smoothing);
    }
    desc->output = tri_shape_vector(TRI_LOSS_COLUMNS);
    return TRI_OK;
}

tri_status tri_infer_ranks(tri_op_desc *desc)
{
    const tri_op_attr *attr = &desc->attr;
    if (attr->ranks < 0 || attr->rank < 0 || attr->rank >= (attr->ranks > 1 ? attr->ranks : 1) ||
        (attr->ranks & (attr->ranks - 1)) != 0) {
        return tri_fail(TRI_EINVAL, "%s: want a power of two of ranks, and one of them, got rank %d of %d",
                        tri_op_name(desc->op), attr->rank, attr->ranks);
    }
    return TRI_OK;
}

tri_status tri_infer_token_parts(tri_op_desc *desc)
{
    const int parts = desc->attr.parts;
    if (parts == 0) {
        return TRI_OK;
    }
    TRI_TRY(tri_infer_ranks(desc));
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    if (parts < 0 || (parts & (parts - 1)) != 0 || desc->input[0].dim[1] % parts != 0) {
        return tri_fail(TRI_EINVAL,
                        "%s: want tokens in a power of two of parts that divides them, got %lld in %d parts",
                        tri_op_name(desc->op), (long long)desc->input[0].dim[1], parts);
    }
    return TRI_OK;
}

tri_status tri_op_infer(tri_op_desc *desc)
{
    const tri_op_ops *op = tri_op_row(desc->op);
    if (op == NULL) {
        return tri_fail(TRI_EINVAL, "op: want a number below %d, got %d", (int)TRI_OP_COUNT, (int)desc->op);
    }
    const int low = op->inputs > 0 ? op->inputs : 1, high = op->max_inputs > 0 ? op->max_inputs : low;
    if (desc->input_count < low || desc->input_count > high) {
        return tri_fail(TRI_EINVAL, "%s: want %d to %d inputs, got %d", tri_op_name(desc->op), low, high,
                        desc->input_count);
    }
    desc->param_count = 0;
    desc->output = (tri_shape){0};
    desc->output_dtype = TRI_F32;
    TRI_TRY(op->infer(desc));
    int64_t count = 1;
    for (int d = 0; d < desc->output.ndim; d++) {
        if (desc->output.dim[d] > TRI_INFER_MAX_COUNT / count) {
            return tri_infer_fail(desc, "at most 2^40 elements", "output", desc->output);
        }
        count *= desc->output.dim[d];
    }
    return TRI_OK;
}

tri_heads tri_heads_make(const tri_op_desc *desc)
{
    const tri_shape *x = &desc->input[0];
    tri_heads h = {.queries = desc->attr.heads,
                   .keys = desc->attr.kv_heads == 0 ? desc->attr.heads : desc->attr.kv_heads,
                   .samples = x->dim[0],
                   .length = x->dim[1],
                   .stride = x->dim[2]};
    h.group = h.queries / h.keys;
    h.width = h.stride / (h.queries + 2 * h.keys);
    return h;
}

tri_status tri_infer_heads(tri_op_desc *desc)
{
    const tri_op_attr *attr = &desc->attr;
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    const int64_t queries = attr->heads, keys = attr->kv_heads == 0 ? queries : attr->kv_heads;
    if (queries < 1 || keys < 1 || queries % keys != 0) {
        return tri_fail(TRI_EINVAL,
                        "%s: want heads that are a multiple of the heads of keys and values, got %lld of %lld",
                        tri_op_name(desc->op), (long long)queries, (long long)keys);
    }
    const int64_t heads = queries + 2 * keys, last = desc->input[0].dim[2];
    if (last % heads != 0) {
        return tri_fail(TRI_EINVAL,
                        "%s: want rows of %lld heads (queries, keys, values) of one width, got %lld elements",
                        tri_op_name(desc->op), (long long)heads, (long long)last);
    }
    desc->output = desc->input[0];
    return TRI_OK;
}

tri_window tri_window_make(const tri_op_desc *desc)
{
    tri_window w = {.batch = desc->input[0].dim[0],
                    .channels = desc->input[0].dim[3],
                    .out_channels = desc->output.dim[3],
                    .groups = desc->attr.groups == 0 ? 1 : desc->attr.groups};
    for (int i = 0; i < 2; i++) {
        w.in[i] = desc->input[0].dim[1 + i];
        w.out[i] = desc->output.dim[1 + i];
        w.kernel[i] = desc->attr.kernel[i];
        w.stride[i] = desc->attr.stride[i] == 0 ? 1 : desc->attr.stride[i];
        w.dilation[i] = desc->attr.dilation[i] == 0 ? 1 : desc->attr.dilation[i];
        w.pad[i] = desc->attr.pad[i];
        if (desc->attr.pool) {
            w.out[i] = (w.in[i] + 2 * w.pad[i] - w.dilation[i] * (w.kernel[i] - 1) - 1) / w.stride[i] + 1;
        }
    }
    return w;
}
