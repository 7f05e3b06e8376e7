/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_elementwise.c: what activations, add, mul, dropout mean. Plain loops, one shard after the other.
 */
#include <math.h>

#include "base/rng.h"
#include "kernel/row.h"

#define GELU_ROOT 0.7978845608028654 /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715
#define SQRT_HALF 0.7071067811865476

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double value(tri_op op, double x)
{
    switch (op) {
    case TRI_OP_RELU:
        return x < 0 ? 0 : x;
    case TRI_OP_GELU:
        return 0.5 * x * (1 + tanh(GELU_ROOT * (x + GELU_CUBE * x * x * x)));
    case TRI_OP_GELU_ERF:
        return 0.5 * x * (1 + erf(x * SQRT_HALF));
    case TRI_OP_SILU:
        return x * sigmoid(x);
    case TRI_OP_TANH:
        return tanh(x);
    default:
        return sigmoid(x);
    }
}

/* dy/dx; relu, tanh and sigmoid from y, the others from x. */
static double slope(tri_op op, double x, double y)
{
    switch (op) {
    case TRI_OP_RELU:
        return y > 0 ? 1 : 0;
    case TRI_OP_GELU: {
        const double t = tanh(GELU_ROOT * (x + GELU_CUBE * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_ROOT * (1 + 3 * GELU_CUBE * x * x);
    }
    case TRI_OP_GELU_ERF:
        return 0.5 * (1 + erf(x * SQRT_HALF)) + 0.5 * x * GELU_ROOT * exp(-0.5 * x * x);
    case TRI_OP_SILU:
        return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case TRI_OP_TANH:
        return 1 - y * y;
    default:
        return y * (1 - y);
    }
}

static void map_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const float *x = call->input[0];
    float *y = call->output;
    for (int64_t i = 0; i < tri_shape_count(kernel->desc.output) * call->shards; i++) {
        y[i] = (float)value(kernel->desc.op, (double)x[i]);
    }
}

static void map_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const float *x = call->input[0], *y = call->output, *dy = call->doutput;
    const bool from_output = kernel->ops->backward_output;
    float *dx = call->dinput[0];
    for (int64_t i = 0; dx != NULL && i < tri_shape_count(kernel->desc.output) * call->shards; i++) {
        dx[i] = (float)((double)dy[i] *
                        slope(kernel->desc.op, from_output ? 0 : (double)x[i], from_output ? (double)y[i] : 0));
    }
}

#define MAP_FROM_OUTPUT(id, row)                                                                                       \
    const tri_kernel_ops row = {                                                                                       \
        .op = id,                                                                                                      \
        .name = "reference",                                                                                           \
        .forward = map_forward,                                                                                        \
        .backward = map_backward,                                                                                      \
        .dinput_may_alias = true,                                                                                      \
        .output_may_alias = true,                                                                                      \
        .backward_output = true,                                                                                       \
    }
#define MAP_FROM_INPUT(id, row)                                                                                        \
    const tri_kernel_ops row = {                                                                                       \
        .op = id,                                                                                                      \
        .name = "reference",                                                                                           \
        .forward = map_forward,                                                                                        \
        .backward = map_backward,                                                                                      \
        .dinput_may_alias = true,                                                                                      \
        .backward_input = true,                                                                                        \
    }
MAP_FROM_OUTPUT(TRI_OP_RELU, tri_reference_relu);
MAP_FROM_OUTPUT(TRI_OP_TANH, tri_reference_tanh);
MAP_FROM_OUTPUT(TRI_OP_SIGMOID, tri_reference_sigmoid);
MAP_FROM_INPUT(TRI_OP_GELU, tri_reference_gelu);
MAP_FROM_INPUT(TRI_OP_GELU_ERF, tri_reference_gelu_erf);
MAP_FROM_INPUT(TRI_OP_SILU, tri_reference_silu);

/* Elements of one sample of b when it is broadcast over the samples of its shard, else 0. */
static int64_t broadcast_count(const tri_kernel *kernel)
{
    const tri_shape *a = &kernel->desc.input[0], *b = &kernel->desc.input[1];
    return a->dim[0] != b->dim[0] ? tri_shape_count(*b) : 0;
}

static void pair_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t count = tri_shape_count(kernel->desc.output), sample = broadcast_count(kernel);
    for (int64_t s = 0; s < call->shards; s++) {
        const float *a = tri_call_input(kernel, call, 0, s), *b = tri_call_input(kernel, call, 1, s);
        float *y = tri_call_output(kernel, call, s);
        for (int64_t i = 0; i < count; i++) {
            const float other = b[sample > 0 ? i % sample : i];
            const float v = kernel->desc.op == TRI_OP_ADD ? a[i] + other : a[i] * other;
            y[i] = kernel->desc.attr.relu && kernel->desc.op == TRI_OP_ADD && v < 0 ? 0 : v;
        }
    }
}

static void pair_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t count = tri_shape_count(kernel->desc.output), sample = broadcast_count(kernel);
    const bool add = kernel->desc.op == TRI_OP_ADD, relu = add && kernel->desc.attr.relu;
    for (int64_t s = 0; s < call->shards; s++) {
        const float *a = tri_call_input(kernel, call, 0, s), *b = tri_call_input(kernel, call, 1, s);
        const float *dy = tri_call_doutput(kernel, call, s), *y = tri_call_output(kernel, call, s);
        float *da = tri_call_dinput(kernel, call, 0, s), *db = tri_call_dinput(kernel, call, 1, s);
        for (int64_t i = 0; i < count; i++) {
            const int64_t j = sample > 0 ? i % sample : i;
            const float g = relu && !(y[i] > 0) ? 0 : dy[i];
            if (db != NULL) {
                db[j] = (add ? g : g * a[i]) + (i >= sample && sample > 0 ? db[j] : 0);
            }
            if (da != NULL) {
                da[i] = add ? g : g * b[j];
            }
        }
    }
}

const tri_kernel_ops tri_reference_add = {
    .op = TRI_OP_ADD,
    .name = "reference",
    .forward = pair_forward,
    .backward = pair_backward,
    .dinput_may_alias = true,
    .backward_output = true,
};

const tri_kernel_ops tri_reference_mul = {
    .op = TRI_OP_MUL,
    .name = "reference",
    .forward = pair_forward,
    .backward = pair_backward,
    .dinput_may_alias = true,
    .backward_input = true,
};

/* y = x scale where the number of (sample, element) is at least the rate; the same for dx from dy. */
static void dropout_run(const tri_kernel *kernel, const tri_op_call *call, const float *from, float *to)
{
    const tri_dropout_rule rule = tri_dropout_rule_make(kernel, call);
    const int64_t samples = kernel->desc.input[0].dim[0], per_sample = tri_shape_count(kernel->desc.input[0]) / samples;
    for (int64_t b = 0; b < samples * call->shards; b++) {
        const uint64_t sample = (uint64_t)(call->first_sample[b / samples] + b % samples);
        for (int64_t i = 0; i < per_sample; i++) {
            const float u = tri_rng_uniform((tri_rng){rule.seed, rule.stream},
                                            tri_dropout_number(&kernel->desc, sample, per_sample) + (uint64_t)i);
            const int64_t at = b * per_sample + i;
            to[at] = u >= rule.rate ? from[at] * rule.scale : 0.0f;
        }
    }
}

static void dropout_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->training) {
        dropout_run(kernel, call, call->input[0], call->output);
    } else if (call->output != call->input[0]) {
        memcpy(call->output, call->input[0],
               (size_t)(tri_shape_count(kernel->desc.output) * call->shards) * sizeof(float));
    }
}

static void dropout_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        dropout_run(kernel, call, call->doutput, call->dinput[0]);
    }
}

const tri_kernel_ops tri_reference_dropout = {
    .op = TRI_OP_DROPOUT,
    .name = "reference",
    .forward = dropout_forward,
    .backward = dropout_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};
