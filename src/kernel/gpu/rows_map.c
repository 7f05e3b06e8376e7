/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_map.c: rows of activations, add, mul, dropout, bias, positions, SwiGLU, rope.
 */
#include "base/status.h"
#include "kernel/gpu/rows.h"

static int64_t count_all(const tri_kernel *kernel, const tri_op_call *call)
{
    return tri_shape_count(kernel->desc.output) * call->shards;
}

static int map_op(tri_op op)
{
    switch (op) {
    case TRI_OP_RELU:
        return TRI_GPU_RELU;
    case TRI_OP_GELU:
        return TRI_GPU_GELU;
    case TRI_OP_GELU_ERF:
        return TRI_GPU_GELU_ERF;
    case TRI_OP_SILU:
        return TRI_GPU_SILU;
    case TRI_OP_TANH:
        return TRI_GPU_TANH;
    default:
        return TRI_GPU_SIGMOID;
    }
}

static void map_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_map_args args = {.to = tri_gpu_output(kernel, call),
                                   .v = tri_gpu_input(kernel, call, 0),
                                   .op = map_op(kernel->desc.op),
                                   .count = count_all(kernel, call)};
    TRI_GPU_RUN(call, map, tri_gpu_blocks_each(args.count), 1, 1, args);
}

static void map_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_map_args args = {.to = tri_gpu_dinput(kernel, call, 0),
                                   .v = kernel->ops->backward_output ? tri_gpu_output(kernel, call)
                                                                     : tri_gpu_input(kernel, call, 0),
                                   .dy = tri_gpu_doutput(kernel, call),
                                   .op = map_op(kernel->desc.op),
                                   .count = count_all(kernel, call)};
    if (args.to.data != NULL) {
        TRI_GPU_RUN(call, map, tri_gpu_blocks_each(args.count), 1, 1, args);
    }
}

/* Elements of 16 bits and of 32 do not share memory. */
#define MAP(row, id, from_output)                                                                                      \
    const tri_kernel_ops row = {                                                                                       \
        TRI_GPU_ROW,                                                                                                   \
        .op = id,                                                                                                      \
        .forward = map_forward,                                                                                        \
        .backward = map_backward,                                                                                      \
        .dinput_may_alias = true,                                                                                      \
        .output_may_alias = (from_output),                                                                             \
        .backward_output = (from_output),                                                                              \
        .backward_input = !(from_output),                                                                              \
    }
MAP(tri_gpu_row_relu, TRI_OP_RELU, true);
MAP(tri_gpu_row_tanh, TRI_OP_TANH, true);
MAP(tri_gpu_row_sigmoid, TRI_OP_SIGMOID, true);
MAP(tri_gpu_row_gelu, TRI_OP_GELU, false);
MAP(tri_gpu_row_gelu_erf, TRI_OP_GELU_ERF, false);
MAP(tri_gpu_row_silu, TRI_OP_SILU, false);

static int64_t pair_sample(const tri_kernel *kernel)
{
    const tri_shape *a = &kernel->desc.input[0], *b = &kernel->desc.input[1];
    return a->dim[0] != b->dim[0] ? tri_shape_count(*b) : 0;
}

static void pair_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const bool add = kernel->desc.op == TRI_OP_ADD;
    const tri_gpu_pair_args args = {.y = tri_gpu_output(kernel, call),
                                    .a = tri_gpu_input(kernel, call, 0),
                                    .b = tri_gpu_input(kernel, call, 1),
                                    .multiplies = !add,
                                    .relu = add && kernel->desc.attr.relu,
                                    .count = count_all(kernel, call),
                                    .each = tri_shape_count(kernel->desc.output),
                                    .sample = pair_sample(kernel)};
    TRI_GPU_RUN(call, pair, tri_gpu_blocks_each(args.count), 1, 1, args);
}

/* The sum over samples comes first: da may be dy. */
static void pair_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const bool add = kernel->desc.op == TRI_OP_ADD;
    const tri_gpu_pair_back_args args = {.da = tri_gpu_dinput(kernel, call, 0),
                                         .db = tri_gpu_dinput(kernel, call, 1),
                                         .a = tri_gpu_input(kernel, call, 0),
                                         .b = tri_gpu_input(kernel, call, 1),
                                         .y = tri_gpu_output(kernel, call),
                                         .dy = tri_gpu_doutput(kernel, call),
                                         .multiplies = !add,
                                         .relu = add && kernel->desc.attr.relu,
                                         .count = count_all(kernel, call),
                                         .each = tri_shape_count(kernel->desc.output),
                                         .sample = pair_sample(kernel)};
    if (args.db.data != NULL && args.sample > 0) {
        TRI_GPU_RUN(call, pair_rows, tri_gpu_blocks(args.sample * call->shards), 1, 1, args);
    }
    if (args.da.data != NULL || (args.db.data != NULL && args.sample == 0)) {
        TRI_GPU_RUN(call, pair_back, tri_gpu_blocks_each(args.count), 1, 1, args);
    }
}

const tri_kernel_ops tri_gpu_row_add = {
    TRI_GPU_ROW,
    .op = TRI_OP_ADD,
    .forward = pair_forward,
    .backward = pair_backward,
    .dinput_may_alias = true,
    .backward_output = true,
};
const tri_kernel_ops tri_gpu_row_mul = {
    TRI_GPU_ROW,
    .op = TRI_OP_MUL,
    .forward = pair_forward,
    .backward = pair_backward,
    .dinput_may_alias = true,
    .backward_input = true,
};

static void dropout_run(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_value from, tri_gpu_value to)
{
    const tri_dropout_rule rule = tri_dropout_rule_make(kernel, call);
    const int64_t samples = kernel->desc.input[0].dim[0], per_sample = tri_shape_count(kernel->desc.input[0]) / samples;
    tri_gpu_dropout_args args = {.to = to,
                                 .from = from,
                                 .seed = rule.seed,
                                 .stream = rule.stream,
                                 .rate = rule.rate,
                                 .scale = rule.scale,
                                 .samples = samples,
                                 .per_sample = per_sample,
                                 .whole = kernel->desc.attr.whole > 0 ? kernel->desc.attr.whole : per_sample,
                                 .first = kernel->desc.attr.first};
    for (int s = 0; s < call->shards; s++) {
        args.first_sample[s] = call->first_sample[s];
    }
    TRI_GPU_RUN(call, dropout, tri_gpu_blocks_each(samples * per_sample), call->shards, 1, args);
}

static void dropout_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_value x = tri_gpu_input(kernel, call, 0), y = tri_gpu_output(kernel, call);
    if (call->training) {
        dropout_run(kernel, call, x, y);
    } else if (x.data != y.data) {
        tri_gpu_cast(tri_gpu_queue_of(call->device), y, x, count_all(kernel, call));
    }
}

static void dropout_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        dropout_run(kernel, call, tri_gpu_doutput(kernel, call), tri_gpu_dinput(kernel, call, 0));
    }
}

const tri_kernel_ops tri_gpu_row_dropout = {
    TRI_GPU_ROW,
    .op = TRI_OP_DROPOUT,
    .plan = tri_gpu_plan,
    .forward = dropout_forward,
    .backward = dropout_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

static void add_row(const tri_kernel *kernel, const tri_op_call *call, const float *b, int64_t width)
{
    const tri_gpu_bias_args args = {.y = tri_gpu_output(kernel, call),
                                    .x = tri_gpu_input(kernel, call, 0),
                                    .b = b,
                                    .count = count_all(kernel, call),
                                    .width = width};
    TRI_GPU_RUN(call, bias, tri_gpu_blocks_each(args.count), 1, 1, args);
}

/* Sums over `rows` of a shard, each of `width`. */
static float *sum_rows(const tri_kernel *kernel, const tri_op_call *call, int64_t rows, int64_t width)
{
    tri_gpu_columns_args args = {.g = tri_gpu_doutput(kernel, call), .mode = TRI_GPU_SUM, .rows = rows, .width = width};
    return tri_gpu_rows_sum(kernel, call, &args, 1);
}

static void pass_down(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL && call->dinput[0] != call->doutput) {
        tri_gpu_cast(tri_gpu_queue_of(call->device), tri_gpu_dinput(kernel, call, 0), tri_gpu_doutput(kernel, call),
                     count_all(kernel, call));
    }
}

static tri_status bias_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t width = tri_shape_last(&desc->input[0]);
    return tri_gpu_rows_plan(desc, kernel, tri_shape_count(desc->input[0]) / width, width, 1);
}

static void bias_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    add_row(kernel, call, call->param[0], tri_shape_last(&kernel->desc.input[0]));
}

static void bias_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]);
    if (tri_call_wants_dparam(call, 0)) {
        const float *leaves = sum_rows(kernel, call, tri_shape_count(kernel->desc.input[0]) / width, width);
        tri_gpu_leaves(kernel, call, 0, leaves, width, width);
    }
    pass_down(kernel, call);
}

const tri_kernel_ops tri_gpu_row_bias = {
    TRI_GPU_ROW,
    .op = TRI_OP_BIAS,
    .plan = bias_plan,
    .forward = bias_forward,
    .backward = bias_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

static tri_status positions_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_shape *shape = &desc->input[0];
    const int64_t sample = shape->dim[1] * shape->dim[2];
    if (desc->attr.ranks > 1) {
        kernel->host_nbytes = (size_t)(desc->attr.ranks * sample) * sizeof(float);
    }
    return tri_gpu_rows_plan(desc, kernel, shape->dim[0], sample, 1);
}

static void positions_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *shape = &kernel->desc.input[0];
    add_row(kernel, call, (const float *)call->param[0] + kernel->desc.attr.first * shape->dim[2],
            shape->dim[1] * shape->dim[2]);
}

/* Places where nobody stands have no gradient; those of other ranks come from them. */
static void positions_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *shape = &kernel->desc.input[0];
    const int64_t sample = shape->dim[1] * shape->dim[2], first = kernel->desc.attr.first * shape->dim[2];
    const int64_t whole = tri_shape_count(kernel->desc.param[0]), behind = whole - first - sample;
    if (tri_call_wants_dparam(call, 0)) {
        for (int part = 0; part < call->part_count; part++) {
            tri_gpu_fill(tri_gpu_queue_of(call->device), call->dparam[0][part], 0, first);
            tri_gpu_fill(tri_gpu_queue_of(call->device), call->dparam[0][part] + first + sample, 0, behind);
        }
        tri_gpu_leaves_from(kernel, call, 0, sum_rows(kernel, call, shape->dim[0], sample), sample, first, sample);
        for (int part = 0; kernel->desc.attr.ranks > 1 && part < call->part_count; part++) {
            float *const all = call->dparam[0][part];
            tri_gpu_ranks_gather(kernel, call, all + first, all, sample, TRI_F32);
        }
    }
    pass_down(kernel, call);
}

const tri_kernel_ops tri_gpu_row_positions = {
    TRI_GPU_ROW,
    .op = TRI_OP_POSITIONS,
    .plan = positions_plan,
    .forward = positions_forward,
    .backward = positions_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

static void swiglu_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_swiglu_args args = {.y = tri_gpu_output(kernel, call),
                                      .x = tri_gpu_input(kernel, call, 0),
                                      .count = count_all(kernel, call),
                                      .width = tri_shape_last(&kernel->desc.output)};
    TRI_GPU_RUN(call, swiglu, tri_gpu_blocks_each(args.count), 1, 1, args);
}

static void swiglu_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_swiglu_back_args args = {.dx = tri_gpu_dinput(kernel, call, 0),
                                           .x = tri_gpu_input(kernel, call, 0),
                                           .dy = tri_gpu_doutput(kernel, call),
                                           .count = count_all(kernel, call),
                                           .width = tri_shape_last(&kernel->desc.output)};
    if (args.dx.data != NULL) {
        TRI_GPU_RUN(call, swiglu_back, tri_gpu_blocks_each(args.count), 1, 1, args);
    }
}

const tri_kernel_ops tri_gpu_row_swiglu = {
    TRI_GPU_ROW, .op = TRI_OP_SWIGLU, .forward = swiglu_forward, .backward = swiglu_backward, .backward_input = true,
};

static bool rope_can(const tri_op_desc *desc)
{
    return tri_heads_make(desc).width <= TRI_GPU_HEAD;
}

static tri_status rope_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_heads h = tri_heads_make(desc);
    kernel->scratch_nbytes = (size_t)(h.length * h.width) * sizeof(float);
    return TRI_OK;
}

static void rope_run(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_value from, tri_gpu_value to,
                     float sign)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    const int64_t half = h.width / 2, heads = h.stride / h.width;
    tri_gpu_rope_table_args table = {.table = call->scratch, .length = h.length, .half = half};
    for (int64_t i = 0; i < half; i++) {
        table.frequency[i] = tri_rope_frequency(&kernel->desc, i, h.width);
    }
    TRI_GPU_RUN(call, rope_table, tri_gpu_blocks(h.length * half), 1, 1, table);
    const tri_gpu_rope_args args = {.to = to,
                                    .from = from,
                                    .table = call->scratch,
                                    .count = h.samples * h.length * call->shards * heads * half,
                                    .heads = heads,
                                    .turned = h.queries + h.keys,
                                    .length = h.length,
                                    .half = half,
                                    .sign = sign};
    TRI_GPU_RUN(call, rope, tri_gpu_blocks(args.count), 1, 1, args);
}

static void rope_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    rope_run(kernel, call, tri_gpu_input(kernel, call, 0), tri_gpu_output(kernel, call), 1);
}

static void rope_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        rope_run(kernel, call, tri_gpu_doutput(kernel, call), tri_gpu_dinput(kernel, call, 0), -1);
    }
}

const tri_kernel_ops tri_gpu_row_rope = {
    TRI_GPU_ROW,
    .op = TRI_OP_ROPE,
    .can = rope_can,
    .plan = rope_plan,
    .forward = rope_forward,
    .backward = rope_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};
