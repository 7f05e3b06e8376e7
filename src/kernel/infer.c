/* SPDX-License-Identifier: Apache-2.0
 *
 * infer.c: from input shapes and attributes to output and parameter shapes, with every check that a kernel relies on.
 *
 * One small function per family of ops. Nothing behind this file checks a shape again.
 */
#include <stdio.h>

#include "kernel/infer.h"

#define MAX_COUNT (INT64_C(1) << 40) /* elements of one tensor of one shard */

static tri_status fail(const tri_op_desc *desc, const char *wanted, const char *thing, tri_shape found)
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
        snprintf(wanted, sizeof wanted, "%d to %d dimensions", min_dims, max_dims);
        return fail(desc, wanted, thing, shape);
    }
    int64_t count = 1;
    for (int d = 0; d < shape.ndim; d++) {
        if (shape.dim[d] < 1 || shape.dim[d] > MAX_COUNT / count) {
            return fail(desc, "dimensions of at least 1 and at most 2^40 elements", thing, shape);
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

static tri_status check_input_count(const tri_op_desc *desc, int low, int high)
{
    if (desc->input_count < low || desc->input_count > high) {
        return tri_fail(TRI_EINVAL, "%s: want %d to %d inputs, got %d", tri_op_name(desc->op), low, high,
                        desc->input_count);
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
        if (shape.dim[d] > MAX_COUNT / count) {
            return fail(desc, "at most 2^40 elements", "parameter", shape);
        }
        count *= shape.dim[d];
    }
    desc->param[desc->param_count++] = shape;
    return TRI_OK;
}

static tri_shape vector_of(int64_t count)
{
    return tri_shape_make(1, (int64_t[]){count});
}

static tri_status infer_linear(tri_op_desc *desc, int64_t units)
{
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    TRI_TRY(tri_infer_units(desc, "units", units));
    TRI_TRY(tri_infer_param(desc, tri_shape_make(2, (int64_t[]){units, tri_shape_last(&desc->input[0])})));
    if (desc->attr.bias) {
        TRI_TRY(tri_infer_param(desc, vector_of(units)));
    }
    desc->output = desc->input[0];
    desc->output.dim[desc->output.ndim - 1] = units;
    return TRI_OK;
}

static tri_status infer_matmul(tri_op_desc *desc)
{
    const tri_shape *a = &desc->input[0], *b = &desc->input[1];
    TRI_TRY(tri_infer_input(desc, 0, 3, TRI_MAX_DIMS, TRI_F32));
    TRI_TRY(tri_infer_input(desc, 1, 3, TRI_MAX_DIMS, TRI_F32));
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim - 2; d++) {
        same = a->dim[d] == b->dim[d];
    }
    if (!same || a->dim[a->ndim - 1] != b->dim[b->ndim - 2]) {
        char text[96];
        char wanted[160];
        snprintf(wanted, sizeof wanted, "[batch.., K, N] for [batch.., M, K] = %s", tri_shape_print(*a, text));
        return fail(desc, wanted, "input 1", *b);
    }
    desc->output = *a;
    desc->output.dim[a->ndim - 1] = b->dim[b->ndim - 1];
    return TRI_OK;
}

static tri_status check_window(tri_op_desc *desc, bool pool)
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

/* Places of the last row or column of an odd image are in no window. */
static tri_status infer_fused_pool(tri_op_desc *desc)
{
    if (!desc->attr.relu || desc->output.dim[1] < 2 || desc->output.dim[2] < 2) {
        return fail(desc, "2x2 places at least, behind a relu, for a fused pool", "output", desc->output);
    }
    desc->output.dim[1] /= 2;
    desc->output.dim[2] /= 2;
    return TRI_OK;
}

static tri_status infer_conv(tri_op_desc *desc, int64_t units)
{
    TRI_TRY(tri_infer_input(desc, 0, 4, 4, TRI_F32));
    TRI_TRY(tri_infer_units(desc, "units", units));
    const int64_t channels = desc->input[0].dim[3], groups = desc->attr.groups == 0 ? 1 : desc->attr.groups;
    if (groups < 1 || channels % groups != 0 || units % groups != 0) {
        return tri_fail(TRI_EINVAL, "conv2d: want groups that divide %lld channels and %lld units, got %lld",
                        (long long)channels, (long long)units, (long long)groups);
    }
    TRI_TRY(check_window(desc, false));
    desc->output.dim[3] = units;
    TRI_TRY(tri_infer_param(
        desc, tri_shape_make(4, (int64_t[]){units, channels / groups, desc->attr.kernel[0], desc->attr.kernel[1]})));
    if (desc->attr.bias) {
        TRI_TRY(tri_infer_param(desc, vector_of(units)));
    }
    return desc->attr.pool ? infer_fused_pool(desc) : TRI_OK;
}

static tri_status infer_pool(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 4, 4, TRI_F32));
    TRI_TRY(check_window(desc, true));
    desc->output.dim[3] = desc->input[0].dim[3];
    return TRI_OK;
}

static tri_status infer_global_pool(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 4, 4, TRI_F32));
    desc->output = tri_shape_make(2, (int64_t[]){desc->input[0].dim[0], desc->input[0].dim[3]});
    return TRI_OK;
}

static tri_status infer_norm(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    if (!(desc->attr.epsilon >= 0)) {
        return tri_fail(TRI_EINVAL, "%s: want epsilon >= 0, got %g", tri_op_name(desc->op), (double)desc->attr.epsilon);
    }
    TRI_TRY(tri_infer_token_parts(desc));
    const int params = desc->op == TRI_OP_BATCH_NORM ? 4 : desc->op == TRI_OP_RMS_NORM ? 1 : 2;
    for (int p = 0; p < params; p++) {
        TRI_TRY(tri_infer_param(desc, vector_of(tri_shape_last(&desc->input[0]))));
    }
    desc->output = desc->input[0];
    return TRI_OK;
}

static tri_status infer_map(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS, TRI_F32));
    if (desc->op == TRI_OP_DROPOUT && !(desc->attr.rate >= 0 && desc->attr.rate < 1)) {
        return tri_fail(TRI_EINVAL, "dropout: want a rate from 0 to below 1, got %g", (double)desc->attr.rate);
    }
    if (desc->op == TRI_OP_DROPOUT && desc->attr.whole > 0 &&
        (desc->attr.first < 0 ||
         tri_shape_product(&desc->input[0], 1, desc->input[0].ndim) > desc->attr.whole - desc->attr.first)) {
        return tri_fail(TRI_EINVAL, "dropout: want elements from number %lld on to be within the %lld of a sample",
                        (long long)desc->attr.first, (long long)desc->attr.whole);
    }
    desc->output = desc->input[0];
    return TRI_OK;
}

static tri_status infer_embedding(tri_op_desc *desc, int64_t units, int64_t width)
{
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS - 1, TRI_I32));
    TRI_TRY(tri_infer_units(desc, "units (rows)", units));
    TRI_TRY(tri_infer_units(desc, "width", width));
    TRI_TRY(tri_infer_param(desc, tri_shape_make(2, (int64_t[]){units, width})));
    desc->output = desc->input[0];
    desc->output.dim[desc->output.ndim++] = width;
    return TRI_OK;
}

static tri_status infer_pair(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS, TRI_F32));
    TRI_TRY(tri_infer_input(desc, 1, 1, TRI_MAX_DIMS, TRI_F32));
    tri_shape row = desc->input[0];
    row.dim[0] = 1;
    if (!tri_shape_equal(desc->input[0], desc->input[1]) && !tri_shape_equal(row, desc->input[1])) {
        char text[96], wanted[160];
        snprintf(wanted, sizeof wanted, "%s or 1 in place of its first dimension",
                 tri_shape_print(desc->input[0], text));
        return fail(desc, wanted, "input 1", desc->input[1]);
    }
    desc->output = desc->input[0];
    return TRI_OK;
}

static tri_status infer_concat(tri_op_desc *desc)
{
    const int axis = desc->attr.axis;
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    if (axis < 1 || axis >= desc->input[0].ndim) {
        return tri_fail(TRI_EINVAL, "concat: want an axis from 1 to %d, got %d", desc->input[0].ndim - 1, axis);
    }
    desc->output = desc->input[0];
    for (int i = 1; i < desc->input_count; i++) {
        TRI_TRY(tri_infer_input(desc, i, 2, TRI_MAX_DIMS, TRI_F32));
        tri_shape like = desc->input[i];
        like.dim[axis] = desc->input[0].dim[axis];
        if (!tri_shape_equal(like, desc->input[0])) {
            char text[96], wanted[160], thing[32];
            snprintf(thing, sizeof thing, "input %d", i);
            snprintf(wanted, sizeof wanted, "%s but for dimension %d", tri_shape_print(desc->input[0], text), axis);
            return fail(desc, wanted, thing, desc->input[i]);
        }
        desc->output.dim[axis] += desc->input[i].dim[axis];
    }
    return TRI_OK;
}

static tri_status infer_reshape(tri_op_desc *desc, tri_shape to)
{
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS, TRI_F32));
    bool fits = to.ndim >= 1 && to.ndim <= TRI_MAX_DIMS && to.dim[0] == desc->input[0].dim[0];
    for (int d = 0; fits && d < to.ndim; d++) {
        fits = to.dim[d] >= 1 && to.dim[d] <= MAX_COUNT;
    }
    if (!fits || tri_shape_count(to) != tri_shape_count(desc->input[0])) {
        char text[96], wanted[160];
        snprintf(wanted, sizeof wanted, "as many samples and elements as %s", tri_shape_print(desc->input[0], text));
        if (to.ndim < 0 || to.ndim > TRI_MAX_DIMS) {
            return tri_fail(TRI_EINVAL, "reshape: want 1 to %d dimensions, got %d", TRI_MAX_DIMS, to.ndim);
        }
        return fail(desc, wanted, "new shape", to);
    }
    desc->output = to;
    return TRI_OK;
}

static tri_status infer_transpose(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    const tri_shape *in = &desc->input[0];
    unsigned seen = 0;
    for (int d = 0; d < in->ndim; d++) {
        const int axis = desc->attr.axes[d];
        if (axis < 0 || axis >= in->ndim || (seen & 1u << axis) != 0 || (d == 0 && axis != 0)) {
            return tri_fail(TRI_EINVAL,
                            "transpose: want axes that permute %d dimensions with the batch first, got %d at place %d",
                            in->ndim, axis, d);
        }
        seen |= 1u << axis;
        desc->output.dim[d] = in->dim[axis];
    }
    desc->output.ndim = in->ndim;
    return TRI_OK;
}

static tri_status infer_loss(tri_op_desc *desc)
{
    const tri_shape x = desc->input[0];
    const bool classes = desc->op == TRI_OP_CROSS_ENTROPY;
    TRI_TRY(tri_infer_input(desc, 0, classes ? 2 : 1, TRI_MAX_DIMS, TRI_F32));
    TRI_TRY(tri_infer_input(desc, 1, 1, TRI_MAX_DIMS, classes ? TRI_I32 : TRI_F32));
    tri_shape want = x;
    want.ndim -= classes ? 1 : 0;
    if (!tri_shape_equal(want, desc->input[1])) {
        char text[96];
        return fail(desc, tri_shape_print(want, text), "targets", desc->input[1]);
    }
    if (classes && !(desc->attr.smoothing >= 0 && desc->attr.smoothing <= 1)) {
        return tri_fail(TRI_EINVAL, "cross_entropy: want smoothing from 0 to 1, got %g", (double)desc->attr.smoothing);
    }
    desc->output = vector_of(TRI_LOSS_COLUMNS);
    return TRI_OK;
}

tri_status tri_op_infer(tri_op_desc *desc, int64_t units, int64_t width, tri_shape reshape_to)
{
    if ((unsigned)desc->op >= TRI_OP_COUNT) {
        return tri_fail(TRI_EINVAL, "op: want a number below %d, got %d", (int)TRI_OP_COUNT, (int)desc->op);
    }
    const bool two = desc->op == TRI_OP_MATMUL || desc->op == TRI_OP_ADD || desc->op == TRI_OP_MUL ||
                     desc->op == TRI_OP_CROSS_ENTROPY || desc->op == TRI_OP_MSE || desc->op == TRI_OP_VOCAB_LOSS ||
                     desc->op == TRI_OP_VOCAB_PART || desc->op == TRI_OP_VOCAB_JOIN || desc->op == TRI_OP_VOCAB_SUMS;
    const int low = two || desc->op == TRI_OP_CONCAT ? 2 : 1;
    TRI_TRY(check_input_count(desc, low, desc->op == TRI_OP_CONCAT ? TRI_OP_MAX_INPUTS : low));
    desc->param_count = 0;
    desc->output = (tri_shape){0};
    desc->output_dtype = TRI_F32;
    tri_status status = TRI_EINTERNAL;
    switch (desc->op) {
    case TRI_OP_LINEAR:
        status = infer_linear(desc, units);
        break;
    case TRI_OP_MATMUL:
        status = infer_matmul(desc);
        break;
    case TRI_OP_CONV:
        status = infer_conv(desc, units);
        break;
    case TRI_OP_MAX_POOL:
    case TRI_OP_AVG_POOL:
        status = infer_pool(desc);
        break;
    case TRI_OP_GLOBAL_POOL:
        status = infer_global_pool(desc);
        break;
    case TRI_OP_BATCH_NORM:
    case TRI_OP_LAYER_NORM:
    case TRI_OP_RMS_NORM:
        status = infer_norm(desc);
        break;
    case TRI_OP_RELU:
    case TRI_OP_GELU:
    case TRI_OP_GELU_ERF:
    case TRI_OP_SILU:
    case TRI_OP_TANH:
    case TRI_OP_SIGMOID:
    case TRI_OP_SOFTMAX:
    case TRI_OP_DROPOUT:
        status = infer_map(desc);
        break;
    case TRI_OP_EMBEDDING:
        status = infer_embedding(desc, units, width);
        break;
    case TRI_OP_ADD:
    case TRI_OP_MUL:
        status = infer_pair(desc);
        break;
    case TRI_OP_CONCAT:
        status = infer_concat(desc);
        break;
    case TRI_OP_RESHAPE:
        status = infer_reshape(desc, reshape_to);
        break;
    case TRI_OP_TRANSPOSE:
        status = infer_transpose(desc);
        break;
    case TRI_OP_CROSS_ENTROPY:
    case TRI_OP_MSE:
        status = infer_loss(desc);
        break;
    case TRI_OP_SWIGLU:
    case TRI_OP_POSITIONS:
    case TRI_OP_ROPE:
    case TRI_OP_ATTENTION:
    case TRI_OP_VOCAB_LOSS:
    case TRI_OP_VOCAB_PART:
        status = tri_infer_tokens(desc, units);
        break;
    case TRI_OP_BIAS:
    case TRI_OP_SHARE_PARTS:
    case TRI_OP_SUM_PARTS:
    case TRI_OP_GATHER_TOKENS:
    case TRI_OP_SPREAD_TOKENS:
    case TRI_OP_VOCAB_JOIN:
    case TRI_OP_VOCAB_SUMS:
        status = tri_infer_parts(desc);
        break;
    case TRI_OP_COUNT:
        break;
    }
    if (status != TRI_OK) {
        return status;
    }
    int64_t count = 1;
    for (int d = 0; d < desc->output.ndim; d++) {
        if (desc->output.dim[d] > MAX_COUNT / count) {
            return fail(desc, "at most 2^40 elements", "output", desc->output);
        }
        count *= desc->output.dim[d];
    }
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
