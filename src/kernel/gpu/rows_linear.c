/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_linear.c: rows of linear, matmul and conv2d: products by a library of the card (product.h), else by our own
 * tiles, f32 or tensor cores; convolutions always by these.
 *
 * Values of 16 bits are multiplied as they are, weights rounded to their type: by the caller, once for many calls, or
 * here. Weight gradients: one product for each shard, in f32, then the canonical tree. B rows, C inputs, D outputs.
 */
#include "kernel/gpu/rows.h"

#include "base/status.h"
#include "kernel/gpu/product.h"

static tri_gpu_value f32(const void *data)
{
    return tri_gpu_value_make(data, TRI_F32);
}

/* bias: that of args in the type of c, NULL where no library multiplies or there is none. */
static void multiply_with(const tri_kernel *kernel, const tri_op_call *call, const tri_gpu_gemm_args *args,
                          const void *bias, int64_t shards)
{
    tri_gpu_gemm_args typed = *args;
    typed.type = tri_gpu_input(kernel, call, 0).type;
    tri_gpu_gemm(call, &typed, bias, shards);
}

static void multiply(const tri_kernel *kernel, const tri_op_call *call, const tri_gpu_gemm_args *args, int64_t shards)
{
    multiply_with(kernel, call, args, NULL, shards);
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

/* Weights as the products read them, rounded to the type of x, and behind them a bias in that of y, as a library reads
 * it: in scratch in front of all else, unless the caller has rounded them. */
static int64_t weights_count(const tri_op_desc *desc)
{
    return tri_gpu_half_count(desc->input_dtype[0], tri_shape_count(desc->param[0]));
}

static int64_t rounded_count(const tri_op_desc *desc)
{
    return weights_count(desc) +
           (desc->attr.bias ? tri_gpu_half_count(desc->output_dtype, tri_shape_count(desc->param[1])) : 0);
}

static tri_gpu_value weights(const tri_kernel *kernel, const tri_op_call *call)
{
    const void *rounded = call->rounded[0] != NULL ? call->rounded[0] : call->scratch;
    return weights_count(&kernel->desc) == 0 ? f32(call->param[0])
                                             : tri_gpu_value_make(rounded, kernel->desc.input_dtype[0]);
}

static void weights_round(const tri_kernel *kernel, const tri_op_call *call)
{
    if (weights_count(&kernel->desc) > 0 && call->rounded[0] == NULL) {
        tri_gpu_cast(tri_gpu_queue_of(call->device), weights(kernel, call), f32(call->param[0]),
                     tri_shape_count(kernel->desc.param[0]));
    }
}

static const void *bias_round(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_desc *desc = &kernel->desc;
    if (!desc->attr.bias || desc->output_dtype == TRI_F32) {
        return desc->attr.bias ? call->param[1] : NULL;
    }
    if (call->rounded[1] != NULL) {
        return call->rounded[1];
    }
    const tri_gpu_value to = tri_gpu_value_make(tri_gpu_place(call->scratch, weights_count(desc)), desc->output_dtype);
    if (tri_gpu_queue_of(call->device)->library != NULL) {
        tri_gpu_cast(tri_gpu_queue_of(call->device), to, f32(call->param[1]), tri_shape_count(desc->param[1]));
    }
    return to.data;
}

static float *leaves_of(const tri_kernel *kernel, const tri_op_call *call)
{
    return tri_gpu_place(call->scratch, rounded_count(&kernel->desc));
}

/* x w', of one shard; pointers as the call has them. */
static tri_gpu_gemm_args linear_output(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d = kernel->desc.param[0].dim[0], c = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d;
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(tri_gpu_input(kernel, call, 0), rows * c, c, 1),
                               .b = tri_gpu_operand_make(weights(kernel, call), 0, c, 1),
                               .c = tri_gpu_operand_make(tri_gpu_output(kernel, call), rows * d, d, 1),
                               .m = (int)rows,
                               .n = (int)d,
                               .k = (int)c,
                               .relu = kernel->desc.attr.relu,
                               .bias = kernel->desc.attr.bias ? call->param[1] : NULL};
}

/* dy' x */
static tri_gpu_gemm_args linear_leaves(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d = kernel->desc.param[0].dim[0], c = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d;
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(tri_gpu_doutput(kernel, call), rows * d, 1, d),
                               .b = tri_gpu_operand_make(tri_gpu_input(kernel, call, 0), rows * c, 1, c),
                               .c = tri_gpu_operand_make(f32(leaves_of(kernel, call)), d * c, c, 1),
                               .m = (int)d,
                               .n = (int)c,
                               .k = (int)rows};
}

/* dy w */
static tri_gpu_gemm_args linear_input(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d = kernel->desc.param[0].dim[0], c = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d;
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(tri_gpu_doutput(kernel, call), rows * d, d, 1),
                               .b = tri_gpu_operand_make(weights(kernel, call), 0, 1, c),
                               .c = tri_gpu_operand_make(tri_gpu_dinput(kernel, call, 0), rows * c, c, 1),
                               .m = (int)rows,
                               .n = (int)c,
                               .k = (int)d};
}

static tri_status linear_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_op_call nothing = {.shards = 1, .param = {NULL, desc}}; /* any address says that there is a bias */
    TRI_TRY(weights_plan(desc, kernel));
    kernel->scratch_nbytes += (size_t)rounded_count(desc) * sizeof(float);
    kernel->rounds[0] = desc->input_dtype[0];
    /* Plans, which have no library, lack these few bytes. */
    kernel->rounds[1] = desc->attr.bias && tri_gpu_library_of(desc->device) != NULL ? desc->output_dtype : TRI_F32;
    const tri_gpu_gemm_args output = linear_output(kernel, &nothing), leaves = linear_leaves(kernel, &nothing),
                            input = linear_input(kernel, &nothing);
    TRI_TRY(tri_gpu_product_plan(desc, &output));
    TRI_TRY(tri_gpu_product_plan(desc, &leaves));
    return desc->need_dinput[0] ? tri_gpu_product_plan(desc, &input) : TRI_OK;
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_gemm_args args = linear_output(kernel, call);
    weights_round(kernel, call);
    multiply_with(kernel, call, &args, bias_round(kernel, call), call->shards);
}

static void linear_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t count = tri_shape_count(kernel->desc.param[0]);
    cut(kernel, call);
    if (tri_call_wants_dparam(call, 0)) {
        const tri_gpu_gemm_args args = linear_leaves(kernel, call);
        multiply(kernel, call, &args, call->shards);
        tri_gpu_leaves(kernel, call, 0, leaves_of(kernel, call), count, count);
    }
    bias_back(kernel, call, rounded_count(&kernel->desc) + tri_align_count(count * kernel->desc.max_shards));
    if (call->dinput[0] != NULL) {
        const tri_gpu_gemm_args args = linear_input(kernel, call);
        weights_round(kernel, call);
        multiply(kernel, call, &args, call->shards);
    }
}

const tri_kernel_ops tri_gpu_row_linear = {
    TRI_GPU_ROW,
    .op = TRI_OP_LINEAR,
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};

/* A product of the leading dimensions is a shard of its own here: M rows, K, N columns. */
typedef struct matmul_sizes {
    int64_t m, k, n, count; /* count: products of one shard of the op */
} matmul_sizes;

static matmul_sizes matmul_sizes_make(const tri_op_desc *desc)
{
    const tri_shape *a = &desc->input[0];
    return (matmul_sizes){.m = a->dim[a->ndim - 2],
                          .k = a->dim[a->ndim - 1],
                          .n = tri_shape_last(&desc->output),
                          .count = tri_shape_product(a, 0, a->ndim - 2)};
}

static tri_gpu_gemm_args matmul_output(const tri_kernel *kernel, const tri_op_call *call)
{
    const matmul_sizes s = matmul_sizes_make(&kernel->desc);
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(tri_gpu_input(kernel, call, 0), s.m * s.k, s.k, 1),
                               .b = tri_gpu_operand_make(tri_gpu_input(kernel, call, 1), s.k * s.n, 1, s.n),
                               .c = tri_gpu_operand_make(tri_gpu_output(kernel, call), s.m * s.n, s.n, 1),
                               .m = (int)s.m,
                               .n = (int)s.n,
                               .k = (int)s.k};
}

/* dy b' */
static tri_gpu_gemm_args matmul_left(const tri_kernel *kernel, const tri_op_call *call)
{
    const matmul_sizes s = matmul_sizes_make(&kernel->desc);
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(tri_gpu_doutput(kernel, call), s.m * s.n, s.n, 1),
                               .b = tri_gpu_operand_make(tri_gpu_input(kernel, call, 1), s.k * s.n, s.n, 1),
                               .c = tri_gpu_operand_make(tri_gpu_dinput(kernel, call, 0), s.m * s.k, s.k, 1),
                               .m = (int)s.m,
                               .n = (int)s.k,
                               .k = (int)s.n};
}

/* a' dy */
static tri_gpu_gemm_args matmul_right(const tri_kernel *kernel, const tri_op_call *call)
{
    const matmul_sizes s = matmul_sizes_make(&kernel->desc);
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(tri_gpu_input(kernel, call, 0), s.m * s.k, 1, s.k),
                               .b = tri_gpu_operand_make(tri_gpu_doutput(kernel, call), s.m * s.n, 1, s.n),
                               .c = tri_gpu_operand_make(tri_gpu_dinput(kernel, call, 1), s.k * s.n, s.n, 1),
                               .m = (int)s.k,
                               .n = (int)s.n,
                               .k = (int)s.m};
}

static tri_status matmul_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_op_call nothing = {.shards = 1};
    TRI_TRY(tri_gpu_width_check(desc, tri_shape_last(&desc->input[0])));
    TRI_TRY(tri_gpu_width_check(desc, tri_shape_last(&desc->output)));
    const tri_gpu_gemm_args output = matmul_output(kernel, &nothing), left = matmul_left(kernel, &nothing),
                            right = matmul_right(kernel, &nothing);
    TRI_TRY(tri_gpu_product_plan(desc, &output));
    TRI_TRY(desc->need_dinput[0] ? tri_gpu_product_plan(desc, &left) : TRI_OK);
    return desc->need_dinput[1] ? tri_gpu_product_plan(desc, &right) : TRI_OK;
}

static void matmul_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_gemm_args args = matmul_output(kernel, call);
    multiply(kernel, call, &args, matmul_sizes_make(&kernel->desc).count * call->shards);
}

static void matmul_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t count = matmul_sizes_make(&kernel->desc).count * call->shards;
    if (call->dinput[0] != NULL) {
        const tri_gpu_gemm_args args = matmul_left(kernel, call);
        multiply(kernel, call, &args, count);
    }
    if (call->dinput[1] != NULL) {
        const tri_gpu_gemm_args args = matmul_right(kernel, call);
        multiply(kernel, call, &args, count);
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

/* A convolution of single places is a plain product: rows of patches are those of the value itself. */
static bool is_plain(const tri_gpu_window *w)
{
    bool plain = w->groups == 1;
    for (int i = 0; i < 2; i++) {
        plain = plain && w->kernel[i] == 1 && w->stride[i] == 1 && w->pad[i] == 0;
    }
    return plain;
}

/* No library multiplies convolutions: which of them are products must not depend on other layers of a model. */
static void convolve(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_gemm_args args)
{
    args.type = tri_gpu_input(kernel, call, 0).type;
    tri_gpu_gemm_own(call, &args, call->shards);
}

#define CHUNK_WARPS  1024               /* about as many warps for a shard, where sums over places can be cut, */
#define CHUNK_LEAST  512                /* into chunks of as many places */
#define CHUNK_FLOATS ((int64_t)1 << 20) /* of all chunks of a shard, at most */
#define WARP_TILE    32                 /* rows and columns that a warp of gemm_half computes */

/* Sums over places of the gradient of the weights, of which there are few in a shard, are cut into chunks: a power of
 * two. Like the weights as products read them they depend on the shape of a shard alone. */
static int chunks_of(const conv_sizes *s, int groups)
{
    const int64_t warps =
        tri_int64_ceil(s->units, WARP_TILE) * tri_int64_ceil(s->channels * s->taps, WARP_TILE) * groups;
    const int64_t weights = s->units * s->channels * s->taps * groups;
    int chunks = 1;
    while (chunks < TRI_GPU_SHARDS && warps * chunks < CHUNK_WARPS && weights * 2 * chunks <= CHUNK_FLOATS &&
           s->out / (2 * chunks) >= CHUNK_LEAST) {
        chunks *= 2;
    }
    return chunks;
}

/* Scratch, as offsets of floats: weights in the order of the products; leaves of chunks; leaves; sums of the bias. */
typedef struct conv_scratch {
    int64_t chunks, leaves, bias;
} conv_scratch;

static conv_scratch scratch_make(const tri_op_desc *desc)
{
    const conv_sizes s = sizes_make(desc);
    const int64_t count = tri_shape_count(desc->param[0]), shards = desc->max_shards;
    const int chunks = chunks_of(&s, (int)(s.c / s.channels));
    conv_scratch at = {.chunks = desc->input_dtype[0] == TRI_F32 ? tri_align_count(count)
                                                                 : tri_gpu_half_count(desc->input_dtype[0], count)};
    at.leaves = at.chunks + (chunks > 1 ? tri_align_count(count * shards * chunks) : 0);
    at.bias = at.leaves + tri_align_count(count * shards);
    return at;
}

static tri_status conv_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    TRI_TRY(weights_plan(desc, kernel));
    kernel->scratch_nbytes += (size_t)scratch_make(desc).leaves * sizeof(float);
    return TRI_OK;
}

/* Weights [unit][channel][tap] as [unit][tap][channel], or back: as [group][channel][tap][unit], in the type of x. */
static tri_gpu_operand conv_taps(const tri_kernel *kernel, const tri_op_call *call, const conv_sizes *s, bool back)
{
    const int64_t count = tri_shape_count(kernel->desc.param[0]), row = s->channels * s->taps;
    const tri_gpu_value to = tri_gpu_value_make(call->scratch, kernel->desc.input_dtype[0]);
    tri_gpu_transpose_args args = {.to = to, .from = f32(call->param[0]), .count = count, .each = count};
    const int64_t there[] = {s->d, s->taps, s->channels}, there_strides[] = {row, 1, s->taps};
    const int64_t down[] = {s->d / s->units, s->channels, s->taps, s->units};
    const int64_t down_strides[] = {s->units * row, s->taps, 1, row};
    args.ndim = back ? 4 : 3;
    for (int i = 0; i < args.ndim; i++) {
        args.dim[i] = back ? down[i] : there[i];
        args.stride[i] = back ? down_strides[i] : there_strides[i];
    }
    TRI_GPU_RUN(call, transpose, tri_gpu_blocks(count), 1, 1, args);
    const int64_t step = s->taps * (back ? s->units : s->channels);
    tri_gpu_operand o = tri_gpu_operand_make(to, 0, step, 1);
    o.group_stride = s->units * row;
    return o;
}

static void conv_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const conv_sizes s = sizes_make(&kernel->desc);
    const tri_gpu_window w = tri_gpu_window_make(&kernel->desc);
    const tri_gpu_value x = tri_gpu_input(kernel, call, 0);
    const tri_gpu_gemm_args args = {
        .a = is_plain(&w) ? tri_gpu_operand_make(x, s.in * s.c, s.c, 1)
                          : gathered(x, TRI_GPU_PATCHES, s.in * s.c, s.channels),
        .b = conv_taps(kernel, call, &s, false),
        .c = grouped(tri_gpu_operand_make(tri_gpu_output(kernel, call), s.out * s.d, s.d, 1), s.units),
        .m = (int)s.out,
        .n = (int)s.units,
        .k = (int)(s.taps * s.channels),
        .groups = w.groups,
        .relu = kernel->desc.attr.relu,
        .bias = kernel->desc.attr.bias ? call->param[1] : NULL,
        .w = w};
    convolve(kernel, call, args);
}

static void conv_weights(const tri_kernel *kernel, const tri_op_call *call, const conv_sizes *s, tri_gpu_window w)
{
    const conv_scratch at = scratch_make(&kernel->desc);
    const int64_t row = s->channels * s->taps, count = s->d * row;
    const int chunks = chunks_of(s, w.groups);
    float *const leaves = tri_gpu_place(call->scratch, at.leaves), *out[TRI_GPU_SHARDS];
    float *const first = chunks > 1 ? tri_gpu_place(call->scratch, at.chunks) : leaves;
    tri_tree_part parts[TRI_GPU_SHARDS];
    tri_gpu_gemm_args args = {
        .a = grouped(tri_gpu_operand_make(tri_gpu_doutput(kernel, call), s->out * s->d, 1, s->d), s->units),
        .b = gathered(tri_gpu_input(kernel, call, 0), TRI_GPU_PATCHES_DW, s->in * s->c, s->channels),
        .c = gathered(f32(first), TRI_GPU_PATCHES_DW, count * chunks, s->units * row),
        .m = (int)s->units,
        .n = (int)row,
        .k = (int)s->out,
        .groups = w.groups,
        .chunks = chunks,
        .chunk = (int)tri_int64_ceil(s->out, 32 * chunks) * 32,
        .chunk_stride = count,
        .w = w};
    args.c.row = row;
    if (is_plain(&w)) {
        args.b = tri_gpu_operand_make(args.b.value, s->in * s->c, 1, s->c);
        args.c = tri_gpu_operand_make(args.c.value, count * chunks, row, 1);
    }
    convolve(kernel, call, args);
    for (int shard = 0; shard < call->shards; shard++) {
        parts[shard] = (tri_tree_part){(int64_t)shard * chunks, chunks};
        out[shard] = leaves + shard * count;
    }
    if (chunks > 1) {
        tri_gpu_fold(tri_gpu_queue_of(call->device), first, count, count, parts, call->shards, out, 1.0f, false);
    }
    tri_gpu_leaves(kernel, call, 0, leaves, count, count);
}

static void conv_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const conv_sizes s = sizes_make(&kernel->desc);
    const tri_gpu_window w = tri_gpu_window_make(&kernel->desc);
    cut(kernel, call);
    if (tri_call_wants_dparam(call, 0)) {
        conv_weights(kernel, call, &s, w);
    }
    bias_back(kernel, call, scratch_make(&kernel->desc).bias);
    if (call->dinput[0] != NULL) {
        const tri_gpu_value dy = tri_gpu_doutput(kernel, call);
        const tri_gpu_gemm_args args = {
            .a = is_plain(&w) ? tri_gpu_operand_make(dy, s.out * s.d, s.d, 1)
                              : gathered(dy, TRI_GPU_PATCHES_DY, s.out * s.d, s.units),
            .b = conv_taps(kernel, call, &s, true),
            .c = grouped(tri_gpu_operand_make(tri_gpu_dinput(kernel, call, 0), s.in * s.c, s.c, 1), s.channels),
            .m = (int)s.in,
            .n = (int)s.channels,
            .k = (int)(s.taps * s.units),
            .groups = w.groups,
            .w = w};
        convolve(kernel, call, args);
    }
}

const tri_kernel_ops tri_gpu_row_conv = {
    TRI_GPU_ROW,
    .op = TRI_OP_CONV,
    .can = conv_can,
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};
