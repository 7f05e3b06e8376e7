/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_elementwise.c: what activations, add, mul, dropout mean. Plain loops, one shard after the other.
 */
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "kernel/infer.h"

#define GELU_ROOT 0.7978845608028654 /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715
#define SQRT_HALF 0.7071067811865476

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double relu(double x)
{
    return x < 0 ? 0 : x;
}

static double relu_slope(double x, double y)
{
    (void)x;
    return y > 0 ? 1 : 0;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(GELU_ROOT * (x + GELU_CUBE * x * x * x)));
}

static double gelu_slope(double x, double y)
{
    const double t = tanh(GELU_ROOT * (x + GELU_CUBE * x * x * x));
    (void)y;
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_ROOT * (1 + 3 * GELU_CUBE * x * x);
}

static double gelu_erf(double x)
{
    return 0.5 * x * (1 + erf(x * SQRT_HALF));
}

static double gelu_erf_slope(double x, double y)
{
    (void)y;
    return 0.5 * (1 + erf(x * SQRT_HALF)) + 0.5 * x * GELU_ROOT * exp(-0.5 * x * x);
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double silu_slope(double x, double y)
{
    (void)y;
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

static double tanh_slope(double x, double y)
{
    (void)x;
    return 1 - y * y;
}

static double sigmoid_slope(double x, double y)
{
    (void)x;
    return y * (1 - y);
}

static void map_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const float *x = call->input[0];
    float *y = call->output;
    double (*value)(double x) = tri_op_row(kernel->desc.op)->value;
    for (int64_t i = 0; i < tri_shape_count(kernel->desc.output) * call->shards; i++) {
        y[i] = (float)value((double)x[i]);
    }
}

static void map_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const float *x = call->input[0], *y = call->output, *dy = call->doutput;
    const bool from_output = kernel->ops->backward_output;
    float *dx = call->dinput[0];
    double (*slope)(double x, double y) = tri_op_row(kernel->desc.op)->slope;
    for (int64_t i = 0; dx != NULL && i < tri_shape_count(kernel->desc.output) * call->shards; i++) {
        dx[i] = (float)((double)dy[i] * slope(from_output ? 0 : (double)x[i], from_output ? (double)y[i] : 0));
    }
}

/* from_output: the slope is a function of y, else of x. */
#define MAP(name, from_output)                                                                                         \
    const tri_op_ops tri_op_##name = {                                                                                 \
        .infer = tri_infer_same,                                                                                       \
        .value = name,                                                                                                 \
        .slope = name##_slope,                                                                                         \
        .per_token = true,                                                                                             \
        .reference.forward = map_forward,                                                                              \
        .reference.backward = map_backward,                                                                            \
        .reference.dinput_may_alias = true,                                                                            \
        .reference.output_may_alias = (from_output),                                                                   \
        .reference.backward_output = (from_output),                                                                    \
        .reference.backward_input = !(from_output),                                                                    \
    }
MAP(relu, true);
MAP(tanh, true);
MAP(sigmoid, true);
MAP(gelu, false);
MAP(gelu_erf, false);
MAP(silu, false);

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
        return tri_infer_fail(desc, wanted, "input 1", desc->input[1]);
    }
    desc->output = desc->input[0];
    return TRI_OK;
}

const tri_op_ops tri_op_add = {
    .inputs = 2,
    .infer = infer_pair,
    .fuses_relu = true,
    .per_token = true,
    .reference.forward = pair_forward,
    .reference.backward = pair_backward,
    .reference.dinput_may_alias = true,
    .reference.backward_output = true,
};

const tri_op_ops tri_op_mul = {
    .inputs = 2,
    .infer = infer_pair,
    .per_token = true,
    .reference.forward = pair_forward,
    .reference.backward = pair_backward,
    .reference.dinput_may_alias = true,
    .reference.backward_input = true,
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

static tri_status infer_dropout(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_same(desc));
    if (!(desc->attr.rate >= 0 && desc->attr.rate < 1)) {
        return tri_fail(TRI_EINVAL, "dropout: want a rate from 0 to below 1, got %g", (double)desc->attr.rate);
    }
    if (desc->attr.whole > 0 && (desc->attr.first < 0 || tri_shape_product(&desc->input[0], 1, desc->input[0].ndim) >
                                                             desc->attr.whole - desc->attr.first)) {
        return tri_fail(TRI_EINVAL, "dropout: want elements from number %lld on to be within the %lld of a sample",
                        (long long)desc->attr.first, (long long)desc->attr.whole);
    }
    return TRI_OK;
}

const tri_op_ops tri_op_dropout = {
    .infer = infer_dropout,
    .per_token = true,
    .trains_only = true,
    .reference.forward = dropout_forward,
    .reference.backward = dropout_backward,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
};
