/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_linear.c: rows of linear, matmul and conv2d: products by our own tiles, f32 or tensor cores.
 *
 * Values of 16 bits are multiplied as they are, weights rounded to their type. Weight gradients: one product for each
 * shard, in f32, then the canonical tree. B rows, C inputs, D outputs.
 */
#include "kernel/gpu/rows.h"

#include "base/status.h"

static tri_gpu_operand operand(tri_gpu_value value, int64_t shard_stride, int64_t row, int64_t column)
{
    return (tri_gpu_operand){.value = value, .shard_stride = shard_stride, .row = row, .column = column};
}

static tri_gpu_value f32(const void *data)
{
    return tri_gpu_value_make(data, TRI_F32);
}

static void multiply(const tri_kernel *kernel, const tri_op_call *call, const tri_gpu_gemm_args *args, int64_t shards)
{
    tri_gpu_gemm_args typed = *args;
    typed.type = tri_gpu_input(kernel, call, 0).type;
    tri_gpu_gemm(call, &typed, typed.type != TRI_GPU_F32, shards);
}

/* dy = 0 where the fused relu cut. */
static void cut(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_relu_cut_args args = {.dy = tri_gpu_doutput(kernel, call),
                                        .y = tri_gpu_output(kernel, call),
                                        .count = tri_shape_count(kernel->desc.output) * call->shards};
    if (kernel->desc.attr.relu) {
        TRI_GPU_RUN(call, relu_cut, tri_gpu_blocks_each(args.count), 1, 1, args);
    }
}

/* Gradient of the bias: sums over the rows of dy, in scratch behind `used` floats. */
static void bias_back(const tri_kernel *kernel, const tri_op_call *call, int64_t used)
{
    const int64_t width = tri_shape_last(&kernel->desc.output);
    if (kernel->desc.attr.bias && tri_call_wants_dparam(call, 1)) {
        tri_gpu_columns_args args = {.g = tri_gpu_doutput(kernel, call),
                                     .mode = TRI_GPU_SUM,
                                     .rows = tri_shape_count(kernel->desc.output) / width,
                                     .width = width};
        const float *leaves = tri_gpu_columns(call, &args, call->shards, 1, 0, (float *)call->scratch + used);
        tri_gpu_leaves(kernel, call, 1, leaves, width, width);
    }
}

/* Scratch: leaves of the weights, then sums of the bias. */
static tri_status weights_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t width = tri_shape_last(&desc->output), rows = tri_shape_count(desc->output) / width;
    const int64_t bias = desc->attr.bias ? tri_gpu_columns_count(desc->max_shards, rows, width, 1) : 0;
    const int64_t leaves = tri_align_count(tri_shape_count(desc->param[0]) * desc->max_shards);
    kernel->scratch_nbytes = (size_t)(leaves + bias) * sizeof(float);
    if (tri_shape_count(desc->input[0]) * desc->max_shards > INT32_MAX ||
        tri_shape_count(desc->output) * desc->max_shards > INT32_MAX) {
        return tri_fail(TRI_EUNSUPPORTED, "%s: want at most 2^31 elements at once on a GPU", tri_op_name(desc->op));
    }
    if (desc->attr.bias) {
        TRI_TRY(tri_gpu_rows_check(desc, rows));
    }
    TRI_TRY(tri_gpu_width_check(desc, width));
    TRI_TRY(tri_gpu_width_check(desc, tri_shape_count(desc->param[0]) / desc->param[0].dim[0]));
    return tri_gpu_plan(desc, kernel);
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d = kernel->desc.param[0].dim[0], c = kernel->desc.param[0].dim[1];
    const tri_gpu_gemm_args args = {.a = operand(tri_gpu_input(kernel, call, 0), 0, c, 1),
                                    .b = operand(f32(call->param[0]), 0, c, 1),
                                    .c = operand(tri_gpu_output(kernel, call), 0, d, 1),
                                    .m = (int)(tri_shape_count(kernel->desc.output) / d * call->shards),
                                    .n = (int)d,
                                    .k = (int)c,
                                    .relu = kernel->desc.attr.relu,
                                    .bias = kernel->desc.attr.bias ? call->param[1] : NULL};
    multiply(kernel, call, &args, 1);
}

static void linear_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d = kernel->desc.param[0].dim[0], c = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d;
    cut(kernel, call);
    if (tri_call_wants_dparam(call, 0)) { /* dy' x */
        const tri_gpu_gemm_args args = {.a = operand(tri_gpu_doutput(kernel, call), rows * d, 1, d),
                                        .b = operand(tri_gpu_input(kernel, call, 0), rows * c, 1, c),
                                        .c = operand(f32(call->scratch), d * c, c, 1),
                                        .m = (int)d,
                                        .n = (int)c,
                                        .k = (int)rows};
        multiply(kernel, call, &args, call->shards);
        tri_gpu_leaves(kernel, call, 0, call->scratch, d * c, d * c);
    }
    bias_back(kernel, call, tri_align_count(d * c * kernel->desc.max_shards));
    if (call->dinput[0] != NULL) { /* dy w */
        const tri_gpu_gemm_args args = {.a = operand(tri_gpu_doutput(kernel, call), 0, d, 1),
                                        .b = operand(f32(call->param[0]), 0, 1, c),
                                        .c = operand(tri_gpu_dinput(kernel, call, 0), 0, c, 1),
                                        .m = (int)(rows * call->shards),
                                        .n = (int)c,
                                        .k = (int)d};
        multiply(kernel, call, &args, 1);
    }
}

const tri_kernel_ops tri_gpu_row_linear = {
    TRI_GPU_ROW,
    .op = TRI_OP_LINEAR,
    .plan = weights_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};

static tri_status matmul_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    (void)kernel;
    TRI_TRY(tri_gpu_width_check(desc, tri_shape_last(&desc->input[0])));
    return tri_gpu_width_check(desc, tri_shape_last(&desc->output));
}

static void matmul_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *a = &kernel->desc.input[0];
    const int64_t m = a->dim[a->ndim - 2], k = a->dim[a->ndim - 1], n = tri_shape_last(&kernel->desc.output);
    const tri_gpu_gemm_args args = {.a = operand(tri_gpu_input(kernel, call, 0), m * k, k, 1),
                                    .b = operand(tri_gpu_input(kernel, call, 1), k * n, 1, n),
                                    .c = operand(tri_gpu_output(kernel, call), m * n, n, 1),
                                    .m = (int)m,
                                    .n = (int)n,
                                    .k = (int)k};
    multiply(kernel, call, &args, tri_shape_product(a, 0, a->ndim - 2) * call->shards);
}

static void matmul_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *a = &kernel->desc.input[0];
    const int64_t m = a->dim[a->ndim - 2], k = a->dim[a->ndim - 1], n = tri_shape_last(&kernel->desc.output);
    const int64_t batch = tri_shape_product(a, 0, a->ndim - 2) * call->shards;
    const tri_gpu_value dy = tri_gpu_doutput(kernel, call);
    if (call->dinput[0] != NULL) { /* dy b' */
        const tri_gpu_gemm_args args = {.a = operand(dy, m * n, n, 1),
                                        .b = operand(tri_gpu_input(kernel, call, 1), k * n, n, 1),
                                        .c = operand(tri_gpu_dinput(kernel, call, 0), m * k, k, 1),
                                        .m = (int)m,
                                        .n = (int)k,
                                        .k = (int)n};
        multiply(kernel, call, &args, batch);
    }
    if (call->dinput[1] != NULL) { /* a' dy */
        const tri_gpu_gemm_args args = {.a = operand(tri_gpu_input(kernel, call, 0), m * k, 1, k),
                                        .b = operand(dy, m * n, 1, n),
                                        .c = operand(tri_gpu_dinput(kernel, call, 1), k * n, n, 1),
                                        .m = (int)k,
                                        .n = (int)n,
                                        .k = (int)m};
        multiply(kernel, call, &args, batch);
    }
}

const tri_kernel_ops tri_gpu_row_matmul = {
    TRI_GPU_ROW,
    .op = TRI_OP_MATMUL,
    .plan = matmul_plan,
    .forward = matmul_forward,
    .backward = matmul_backward,
    .backward_input = true,
};

/* --- convolution --- */

static bool conv_can(const tri_op_desc *desc)
{
    return !desc->attr.pool && tri_window_make(desc).groups <= TRI_GPU_MOST_BLOCKS;
}

static tri_gpu_window window_make(const tri_op_desc *desc)
{
    const tri_window w = tri_window_make(desc);
    tri_gpu_window out = {.channels = (int)w.channels, .out_channels = (int)w.out_channels, .groups = (int)w.groups};
    for (int i = 0; i < 2; i++) {
        out.in[i] = (int)w.in[i];
        out.out[i] = (int)w.out[i];
        out.kernel[i] = (int)w.kernel[i];
        out.stride[i] = (int)w.stride[i];
        out.pad[i] = (int)w.pad[i];
        out.dilation[i] = (int)w.dilation[i];
    }
    return out;
}

/* Sizes of one shard: places of x and y, channels and units of a group, taps. */
typedef struct conv_sizes {
    int64_t in, out, c, d, channels, units, taps;
} conv_sizes;

static conv_sizes sizes_make(const tri_op_desc *desc)
{
    const tri_window w = tri_window_make(desc);
    return (conv_sizes){.in = w.batch * w.in[0] * w.in[1],
                        .out = w.batch * w.out[0] * w.out[1],
                        .c = w.channels,
                        .d = w.out_channels,
                        .channels = w.channels / w.groups,
                        .units = w.out_channels / w.groups,
                        .taps = w.kernel[0] * w.kernel[1]};
}

static tri_gpu_operand gathered(tri_gpu_value value, int source, int64_t shard_stride, int64_t group_stride)
{
    return (tri_gpu_operand){
        .value = value, .source = source, .shard_stride = shard_stride, .group_stride = group_stride};
}

static tri_gpu_operand grouped(tri_gpu_operand o, int64_t group_stride)
{
    o.group_stride = group_stride;
    return o;
}

static void conv_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const conv_sizes s = sizes_make(&kernel->desc);
    const tri_gpu_window w = window_make(&kernel->desc);
    const tri_gpu_gemm_args args = {
        .a = gathered(tri_gpu_input(kernel, call, 0), TRI_GPU_PATCHES, s.in * s.c, s.channels),
        .b = gathered(f32(call->param[0]), TRI_GPU_TAPS, 0, s.units * s.channels * s.taps),
        .c = grouped(operand(tri_gpu_output(kernel, call), s.out * s.d, s.d, 1), s.units),
        .m = (int)s.out,
        .n = (int)s.units,
        .k = (int)(s.taps * s.channels),
        .groups = w.groups,
        .relu = kernel->desc.attr.relu,
        .bias = kernel->desc.attr.bias ? call->param[1] : NULL,
        .w = w};
    multiply(kernel, call, &args, call->shards);
}

static void conv_weights(const tri_kernel *kernel, const tri_op_call *call, const conv_sizes *s, tri_gpu_window w)
{
    const int64_t row = s->channels * s->taps;
    const tri_gpu_gemm_args args = {
        .a = grouped(operand(tri_gpu_doutput(kernel, call), s->out * s->d, 1, s->d), s->units),
        .b = gathered(tri_gpu_input(kernel, call, 0), TRI_GPU_PATCHES_DW, s->in * s->c, s->channels),
        .c = grouped(operand(f32(call->scratch), s->d * row, row, 1), s->units * row),
        .m = (int)s->units,
        .n = (int)row,
        .k = (int)s->out,
        .groups = w.groups,
        .w = w};
    multiply(kernel, call, &args, call->shards);
    tri_gpu_leaves(kernel, call, 0, call->scratch, s->d * row, s->d * row);
}

static void conv_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const conv_sizes s = sizes_make(&kernel->desc);
    const tri_gpu_window w = window_make(&kernel->desc);
    cut(kernel, call);
    if (tri_call_wants_dparam(call, 0)) {
        conv_weights(kernel, call, &s, w);
    }
    bias_back(kernel, call, tri_align_count(tri_shape_count(kernel->desc.param[0]) * kernel->desc.max_shards));
    if (call->dinput[0] != NULL) {
        const tri_gpu_gemm_args args = {
            .a = gathered(tri_gpu_doutput(kernel, call), TRI_GPU_PATCHES_DY, s.out * s.d, s.units),
            .b = gathered(f32(call->param[0]), TRI_GPU_TAPS_BACK, 0, s.units * s.channels * s.taps),
            .c = grouped(operand(tri_gpu_dinput(kernel, call, 0), s.in * s.c, s.c, 1), s.channels),
            .m = (int)s.in,
            .n = (int)s.channels,
            .k = (int)(s.taps * s.units),
            .groups = w.groups,
            .w = w};
        multiply(kernel, call, &args, call->shards);
    }
}

const tri_kernel_ops tri_gpu_row_conv = {
    TRI_GPU_ROW,
    .op = TRI_OP_CONV,
    .can = conv_can,
    .plan = weights_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};
