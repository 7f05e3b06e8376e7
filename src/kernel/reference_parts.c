/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_parts.c: what the ops around layers in parts mean: share_parts on the way in, sum_parts and bias on the way
 * out.
 *
 * share_parts and sum_parts copy, where they may not be what they read, and let the ranks that have the other parts add
 * up: one on the way down, the other on the way up.
 */
#include "kernel/row.h"

void tri_ranks_sum(const tri_op_call *call, void *data, int64_t count, tri_dtype dtype)
{
    tri_op_ranks *across = call->across;
    if (across->status == TRI_OK) {
        across->status = across->sum(across->arg, data, count, dtype);
    }
}

static void copy(const tri_kernel *kernel, const tri_op_call *call, void *to, const void *from)
{
    if (to != from) {
        memcpy(to, from,
               (size_t)(tri_shape_count(kernel->desc.output) * call->shards) *
                   tri_dtype_nbytes(kernel->desc.output_dtype));
    }
}

static void add_up(const tri_kernel *kernel, const tri_op_call *call, void *data)
{
    if (kernel->desc.attr.ranks > 1) {
        tri_ranks_sum(call, data, tri_shape_count(kernel->desc.output) * call->shards, kernel->desc.output_dtype);
    }
}

static void share_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    copy(kernel, call, call->output, call->input[0]);
}

static void share_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        copy(kernel, call, call->dinput[0], call->doutput);
        add_up(kernel, call, call->dinput[0]);
    }
}

static bool one_type(const tri_op_desc *desc)
{
    return desc->input_dtype[0] == desc->output_dtype;
}

const tri_kernel_ops tri_reference_share_parts = {
    .op = TRI_OP_SHARE_PARTS,
    .name = "reference",
    .can = one_type,
    .forward = share_forward,
    .backward = share_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
    .view = true,
    .half = true,
};

static void sum_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    copy(kernel, call, call->output, call->input[0]);
    add_up(kernel, call, call->output);
}

static void sum_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        copy(kernel, call, call->dinput[0], call->doutput);
    }
}

const tri_kernel_ops tri_reference_sum_parts = {
    .op = TRI_OP_SUM_PARTS,
    .name = "reference",
    .can = one_type,
    .forward = sum_forward,
    .backward = sum_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
    .half = true,
};

static tri_status bias_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)(tri_shape_last(&desc->output) * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

static void bias_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output);
    const float *x = call->input[0], *b = call->param[0];
    for (int64_t i = 0; i < tri_shape_count(kernel->desc.output) * call->shards; i++) {
        ((float *)call->output)[i] = x[i] + b[i % width];
    }
}

static void bias_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output), count = tri_shape_count(kernel->desc.output);
    const float *dy = call->doutput;
    float *leaves = call->scratch;
    memset(leaves, 0, (size_t)(width * call->shards) * sizeof(float));
    for (int64_t i = 0; i < count * call->shards; i++) {
        leaves[i / count * width + i % width] += dy[i];
    }
    tri_leaves_sum(kernel, call, 0, leaves, width, width);
    if (call->dinput[0] != NULL) {
        copy(kernel, call, call->dinput[0], dy);
    }
}

const tri_kernel_ops tri_reference_bias = {
    .op = TRI_OP_BIAS,
    .name = "reference",
    .plan = bias_plan,
    .forward = bias_forward,
    .backward = bias_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};
