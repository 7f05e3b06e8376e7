/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_norm.c: what batch_norm, layer_norm and softmax mean. Plain loops in double, one shard after the other.
 *
 * batch_norm: statistics per shard and channel over its valid samples; rows behind them give 0 forward and backward.
 * Saved per shard: mean[C], 1 / sqrt(variance + epsilon)[C], unbiased variance[C] (the biased one of a single value).
 */
#include <math.h>

#include "kernel/row.h"

static double epsilon_of(const tri_kernel *kernel)
{
    return kernel->desc.attr.epsilon == 0 ? 1e-5 : (double)kernel->desc.attr.epsilon;
}

static tri_status batch_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t channels = tri_shape_last(&desc->input[0]);
    kernel->saved_nbytes = (size_t)(3 * channels) * sizeof(float);
    kernel->scratch_nbytes = (size_t)(2 * channels * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

/* Writes the sums of means and variances of the shards with samples to the buffers' gradients, when these are wanted.
 */
static void batch_buffers(const tri_kernel *kernel, const tri_op_call *call, int64_t channels)
{
    const float *saved = call->saved;
    float *leaves = call->scratch;
    for (int p = 2; p < 4; p++) {
        if (!tri_call_wants_dparam(call, p)) {
            continue;
        }
        for (int64_t s = 0; s < call->shards; s++) {
            memcpy(leaves + s * channels, saved + (3 * s + (p == 2 ? 0 : 2)) * channels,
                   (size_t)channels * sizeof(float));
        }
        tri_leaves_sum(kernel, call, p, leaves, channels, channels);
    }
}

static void batch_statistics(const float *x, int64_t count, int64_t channels, int64_t c, double epsilon, float *saved)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; i < count; i++) {
        mean += (double)x[i * channels + c];
    }
    mean = count > 0 ? mean / (double)count : 0;
    for (int64_t i = 0; i < count; i++) {
        const double e = (double)x[i * channels + c] - mean;
        square += e * e;
    }
    saved[c] = (float)mean;
    saved[channels + c] = count > 0 ? (float)(1 / sqrt(square / (double)count + epsilon)) : 0;
    saved[2 * channels + c] = (float)(square / (double)tri_int64_max(count - 1, 1));
}

static void batch_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t channels = tri_shape_last(&kernel->desc.input[0]), count = tri_shape_count(kernel->desc.input[0]);
    const int64_t pixels = count / channels / kernel->desc.input[0].dim[0];
    const float *scale = call->param[0], *shift = call->param[1], *mean = call->param[2], *var = call->param[3];
    const double epsilon = epsilon_of(kernel);
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s);
        float *y = tri_call_output(kernel, call, s), *saved = (float *)call->saved + 3 * channels * s;
        const int64_t valid = call->rows[s] * pixels;
        for (int64_t c = 0; c < channels; c++) {
            if (call->training) {
                batch_statistics(x, valid, channels, c, epsilon, saved);
            }
            const double m = (double)(call->training ? saved[c] : mean[c]);
            const double r = call->training ? (double)saved[channels + c] : 1 / sqrt((double)var[c] + epsilon);
            for (int64_t i = c; i < count; i += channels) {
                const double v = ((double)x[i] - m) * r * (double)scale[c] + (double)shift[c];
                y[i] = i >= valid * channels || (kernel->desc.attr.relu && v < 0) ? 0.0f : (float)v;
            }
        }
    }
    if (call->training) {
        batch_buffers(kernel, call, channels);
    }
}

static void batch_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t channels = tri_shape_last(&kernel->desc.input[0]), count = tri_shape_count(kernel->desc.input[0]);
    const int64_t pixels = count / channels / kernel->desc.input[0].dim[0];
    const float *scale = call->param[0];
    const bool relu = kernel->desc.attr.relu;
    batch_buffers(kernel, call, channels);
    float *dscale = call->scratch, *dshift = dscale + call->shards * channels;
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s), *dy = tri_call_doutput(kernel, call, s);
        const float *y = tri_call_output(kernel, call, s), *saved = (const float *)call->saved + 3 * channels * s;
        float *dx = tri_call_dinput(kernel, call, 0, s);
        const int64_t valid = call->rows[s] * pixels * channels;
        for (int64_t c = 0; c < channels; c++) {
            const double m = (double)saved[c], r = (double)saved[channels + c];
            double sum = 0, dot = 0;
            for (int64_t i = c; i < valid; i += channels) {
                const double g = relu && !(y[i] > 0) ? 0 : (double)dy[i];
                sum += g;
                dot += g * ((double)x[i] - m) * r;
            }
            dshift[s * channels + c] = (float)sum;
            dscale[s * channels + c] = (float)dot;
            const double n = (double)tri_int64_max(valid / channels, 1);
            for (int64_t i = c; dx != NULL && i < count; i += channels) {
                const double g = relu && !(y[i] > 0) ? 0 : (double)dy[i];
                const double h = ((double)x[i] - m) * r;
                dx[i] = i < valid ? (float)((double)scale[c] * r * (g - sum / n - h * dot / n)) : 0.0f;
            }
        }
    }
    tri_leaves_sum(kernel, call, 0, dscale, channels, channels);
    tri_leaves_sum(kernel, call, 1, dshift, channels, channels);
}

const tri_kernel_ops tri_reference_batch_norm = {
    .op = TRI_OP_BATCH_NORM,
    .name = "reference",
    .plan = batch_plan,
    .forward = batch_forward,
    .backward = batch_backward,
    .backward_input = true,
    .backward_output = true,
};

static tri_status layer_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes =
        (size_t)(2 * tri_shape_last(&desc->input[0]) * desc->max_shards * tri_leaf_blocks(desc)) * sizeof(float);
    return TRI_OK;
}

/* Mean and 1 / sqrt(variance + epsilon) of one row. */
static void layer_statistics(const float *x, int64_t channels, double epsilon, double *mean, double *rstd)
{
    double sum = 0, square = 0;
    for (int64_t c = 0; c < channels; c++) {
        sum += (double)x[c];
    }
    *mean = sum / (double)channels;
    for (int64_t c = 0; c < channels; c++) {
        square += ((double)x[c] - *mean) * ((double)x[c] - *mean);
    }
    *rstd = 1 / sqrt(square / (double)channels + epsilon);
}

static void layer_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t channels = tri_shape_last(&kernel->desc.input[0]);
    const int64_t rows = tri_shape_count(kernel->desc.input[0]) / channels * call->shards;
    const float *scale = call->param[0], *shift = call->param[1];
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->input[0] + r * channels;
        float *y = (float *)call->output + r * channels;
        double mean, rstd;
        layer_statistics(x, channels, epsilon_of(kernel), &mean, &rstd);
        for (int64_t c = 0; c < channels; c++) {
            y[c] = (float)(((double)x[c] - mean) * rstd * (double)scale[c] + (double)shift[c]);
        }
    }
}

static void layer_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t channels = tri_shape_last(&kernel->desc.input[0]);
    const int64_t rows = tri_shape_count(kernel->desc.input[0]) / channels;
    const int64_t blocks = tri_leaf_blocks(&kernel->desc), block = rows / blocks;
    const float *scale = call->param[0];
    float *dscale = call->scratch, *dshift = dscale + call->shards * blocks * channels;
    memset(dscale, 0, (size_t)(2 * call->shards * blocks * channels) * sizeof(float));
    for (int64_t r = 0; r < rows * call->shards; r++) {
        const float *x = (const float *)call->input[0] + r * channels, *dy = (float *)call->doutput + r * channels;
        float *dx = call->dinput[0] != NULL ? (float *)call->dinput[0] + r * channels : NULL;
        double mean, rstd, sum = 0, dot = 0;
        layer_statistics(x, channels, epsilon_of(kernel), &mean, &rstd);
        for (int64_t c = 0; c < channels; c++) {
            const double g = (double)dy[c] * (double)scale[c], h = ((double)x[c] - mean) * rstd;
            sum += g;
            dot += g * h;
            dscale[r / block * channels + c] += (float)((double)dy[c] * h);
            dshift[r / block * channels + c] += dy[c];
        }
        const double n = (double)channels;
        for (int64_t c = 0; dx != NULL && c < channels; c++) {
            const double g = (double)dy[c] * (double)scale[c], h = ((double)x[c] - mean) * rstd;
            dx[c] = (float)(rstd * (g - sum / n - h * dot / n));
        }
    }
    tri_blocks_fold(kernel, call, dscale, channels);
    tri_blocks_fold(kernel, call, dshift, channels);
    tri_leaves_sum(kernel, call, 0, dscale, channels, channels);
    tri_leaves_sum(kernel, call, 1, dshift, channels, channels);
}

const tri_kernel_ops tri_reference_layer_norm = {
    .op = TRI_OP_LAYER_NORM,
    .name = "reference",
    .plan = layer_plan,
    .forward = layer_forward,
    .backward = layer_backward,
    .backward_input = true,
};

static void softmax_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t classes = tri_shape_last(&kernel->desc.input[0]);
    const int64_t rows = tri_shape_count(kernel->desc.input[0]) / classes * call->shards;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->input[0] + r * classes;
        float *y = (float *)call->output + r * classes;
        double top = (double)x[0], sum = 0;
        for (int64_t v = 1; v < classes; v++) {
            top = fmax(top, (double)x[v]);
        }
        for (int64_t v = 0; v < classes; v++) {
            sum += exp((double)x[v] - top);
        }
        for (int64_t v = 0; v < classes; v++) {
            y[v] = (float)(exp((double)x[v] - top) / sum);
        }
    }
}

static void softmax_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t classes = tri_shape_last(&kernel->desc.input[0]);
    const int64_t rows = tri_shape_count(kernel->desc.input[0]) / classes * call->shards;
    for (int64_t r = 0; call->dinput[0] != NULL && r < rows; r++) {
        const float *y = (const float *)call->output + r * classes, *dy = (const float *)call->doutput + r * classes;
        float *dx = (float *)call->dinput[0] + r * classes;
        double dot = 0;
        for (int64_t v = 0; v < classes; v++) {
            dot += (double)y[v] * (double)dy[v];
        }
        for (int64_t v = 0; v < classes; v++) {
            dx[v] = (float)((double)y[v] * ((double)dy[v] - dot));
        }
    }
}

const tri_kernel_ops tri_reference_softmax = {
    .op = TRI_OP_SOFTMAX,
    .name = "reference",
    .forward = softmax_forward,
    .backward = softmax_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
    .backward_output = true,
};
