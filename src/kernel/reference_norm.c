/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_norm.c: what batch_norm, layer_norm and softmax mean. Plain loops in double, one shard after the other.
 *
 * batch_norm: statistics per shard and channel over its valid samples, or with attr.sync over those of the whole batch:
 * sums in double, shard by shard, then the canonical tree. Rows behind the valid ones give 0 forward and backward.
 * Saved per shard: mean[C], 1 / sqrt(variance + epsilon)[C], unbiased variance[C] (the biased one of a single value).
 */
#include <math.h>

#include "kernel/infer.h"

tri_status tri_batch_norm_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t channels = tri_shape_last(&desc->input[0]), shards = desc->max_shards;
    kernel->saved_nbytes = (size_t)(3 * channels) * sizeof(float);
    kernel->scratch_nbytes = (size_t)tri_align_count(2 * channels * shards) * sizeof(float) +
                             (size_t)(tri_sync_count(channels) * shards) * sizeof(double);
    return TRI_OK;
}

void tri_batch_norm_buffers(const tri_kernel *kernel, const tri_op_call *call, int64_t channels)
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

void tri_sync_figures(const tri_op_call *call, const double *sums, int64_t channels, double epsilon)
{
    const double n = fmax(sums[0], 1);
    for (int64_t s = 0; s < call->shards; s++) {
        float *saved = (float *)call->saved + 3 * channels * s;
        for (int64_t c = 0; c < channels; c++) {
            const double mean = sums[1 + c] / n, spread = sums[1 + channels + c] - mean * sums[1 + c];
            const double square = spread < 0 ? 0 : spread; /* not by fmax, which would hide a NaN */
            const bool empty = call->rows[s] == 0;
            saved[c] = empty ? 0 : (float)mean;
            saved[channels + c] = empty ? 0 : (float)(1 / sqrt(square / n + epsilon));
            saved[2 * channels + c] = empty ? 0 : (float)(square / fmax(n - 1, 1));
        }
    }
}

/* Mean of the values of a channel, and the sum of the squares around it. */
static void batch_moments(const float *x, int64_t count, int64_t channels, int64_t c, double *mean, double *square)
{
    *mean = *square = 0;
    for (int64_t i = 0; i < count; i++) {
        *mean += (double)x[i * channels + c];
    }
    *mean = count > 0 ? *mean / (double)count : 0;
    for (int64_t i = 0; i < count; i++) {
        const double e = (double)x[i * channels + c] - *mean;
        *square += e * e;
    }
}

/* Statistics of each shard, or of the batch. */
static void batch_statistics(const tri_kernel *kernel, const tri_op_call *call, int64_t channels, int64_t pixels)
{
    const double epsilon = tri_norm_epsilon(kernel);
    double *leaves = tri_sync_leaves(call, channels), mean, square;
    for (int64_t s = 0; s < call->shards; s++) {
        const int64_t valid = call->rows[s] * pixels;
        float *saved = (float *)call->saved + 3 * channels * s;
        double *leaf = leaves + tri_sync_count(channels) * s;
        for (int64_t c = 0; c < channels; c++) {
            batch_moments(tri_call_input(kernel, call, 0, s), valid, channels, c, &mean, &square);
            if (kernel->desc.attr.sync) {
                leaf[0] = (double)valid;
                leaf[1 + c] = mean * (double)valid;
                leaf[1 + channels + c] = square + mean * mean * (double)valid;
                continue;
            }
            saved[c] = (float)mean;
            saved[channels + c] = valid > 0 ? (float)(1 / sqrt(square / (double)valid + epsilon)) : 0;
            saved[2 * channels + c] = (float)(square / (double)tri_int64_max(valid - 1, 1));
        }
    }
    if (kernel->desc.attr.sync) {
        tri_batch_sum(call, leaves, tri_sync_count(channels));
        tri_sync_figures(call, leaves, channels, epsilon);
    }
}

static void batch_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t channels = tri_shape_last(&kernel->desc.input[0]), count = tri_shape_count(kernel->desc.input[0]);
    const int64_t pixels = count / channels / kernel->desc.input[0].dim[0];
    const float *scale = call->param[0], *shift = call->param[1], *mean = call->param[2], *var = call->param[3];
    if (call->training) {
        batch_statistics(kernel, call, channels, pixels);
    }
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s);
        float *y = tri_call_output(kernel, call, s), *saved = (float *)call->saved + 3 * channels * s;
        const int64_t valid = call->rows[s] * pixels;
        for (int64_t c = 0; c < channels; c++) {
            const double m = (double)(call->training ? saved[c] : mean[c]);
            const double r =
                call->training ? (double)saved[channels + c] : 1 / sqrt((double)var[c] + tri_norm_epsilon(kernel));
            for (int64_t i = c; i < count; i += channels) {
                const double v = ((double)x[i] - m) * r * (double)scale[c] + (double)shift[c];
                y[i] = i >= valid * channels || (kernel->desc.attr.relu && v < 0) ? 0.0f : (float)v;
            }
        }
    }
    if (call->training) {
        tri_batch_norm_buffers(kernel, call, channels);
    }
}

/* The gradient behind the relu. */
static double batch_slope(const tri_kernel *kernel, float y, float dy)
{
    return kernel->desc.attr.relu && !(y > 0) ? 0 : (double)dy;
}

/* Sums over a shard's samples: leaves of shift and scale in scratch; leaf: the same in double, behind how many there
 * are. */
static void batch_sums(const tri_kernel *kernel, const tri_op_call *call, int64_t s, int64_t valid, double *leaf)
{
    const int64_t channels = tri_shape_last(&kernel->desc.input[0]);
    const float *x = tri_call_input(kernel, call, 0, s), *dy = tri_call_doutput(kernel, call, s);
    const float *y = tri_call_output(kernel, call, s), *saved = (const float *)call->saved + 3 * channels * s;
    float *dscale = (float *)call->scratch + s * channels, *dshift = dscale + call->shards * channels;
    leaf[0] = (double)(valid / channels);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, dot = 0;
        for (int64_t i = c; i < valid; i += channels) {
            const double g = batch_slope(kernel, y[i], dy[i]);
            sum += g;
            dot += g * ((double)x[i] - (double)saved[c]) * (double)saved[channels + c];
        }
        leaf[1 + c] = sum;
        leaf[1 + channels + c] = dot;
        dshift[c] = (float)sum;
        dscale[c] = (float)dot;
    }
}

/* dx of a shard, whose statistics are of `sums[0]` values. */
static void batch_slopes(const tri_kernel *kernel, const tri_op_call *call, int64_t s, int64_t valid,
                         const double *sums)
{
    const int64_t channels = tri_shape_last(&kernel->desc.input[0]), count = tri_shape_count(kernel->desc.input[0]);
    const float *x = tri_call_input(kernel, call, 0, s), *dy = tri_call_doutput(kernel, call, s);
    const float *y = tri_call_output(kernel, call, s), *saved = (const float *)call->saved + 3 * channels * s;
    const float *scale = call->param[0];
    float *dx = tri_call_dinput(kernel, call, 0, s);
    const double n = fmax(sums[0], 1);
    for (int64_t i = 0; dx != NULL && i < count; i++) {
        const int64_t c = i % channels;
        const double r = (double)saved[channels + c], h = ((double)x[i] - (double)saved[c]) * r;
        const double g = batch_slope(kernel, y[i], dy[i]);
        dx[i] =
            i < valid ? (float)((double)scale[c] * r * (g - sums[1 + c] / n - h * sums[1 + channels + c] / n)) : 0.0f;
    }
}

static void batch_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t channels = tri_shape_last(&kernel->desc.input[0]);
    const int64_t sample = tri_shape_count(kernel->desc.input[0]) / kernel->desc.input[0].dim[0];
    const int64_t width = tri_sync_count(channels);
    float *dscale = call->scratch, *dshift = dscale + call->shards * channels;
    double *leaves = tri_sync_leaves(call, channels);
    tri_batch_norm_buffers(kernel, call, channels);
    for (int64_t s = 0; s < call->shards; s++) {
        batch_sums(kernel, call, s, call->rows[s] * sample, leaves + s * width);
    }
    if (kernel->desc.attr.sync) {
        tri_batch_sum(call, leaves, width);
    }
    for (int64_t s = 0; s < call->shards; s++) {
        batch_slopes(kernel, call, s, call->rows[s] * sample, leaves + (kernel->desc.attr.sync ? 0 : s * width));
    }
    tri_leaves_sum(kernel, call, 0, dscale, channels, channels);
    tri_leaves_sum(kernel, call, 1, dshift, channels, channels);
}

static tri_status infer_batch_norm(tri_op_desc *desc)
{
    return tri_infer_norm(desc, 4);
}

const tri_op_ops tri_op_batch_norm = {
    .infer = infer_batch_norm,
    .fuses_relu = true,
    .reference.plan = tri_batch_norm_plan,
    .reference.forward = batch_forward,
    .reference.backward = batch_backward,
    .reference.backward_input = true,
    .reference.backward_output = true,
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
        layer_statistics(x, channels, tri_norm_epsilon(kernel), &mean, &rstd);
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
        layer_statistics(x, channels, tri_norm_epsilon(kernel), &mean, &rstd);
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

static tri_status infer_layer_norm(tri_op_desc *desc)
{
    return tri_infer_norm(desc, 2);
}

const tri_op_ops tri_op_layer_norm = {
    .infer = infer_layer_norm,
    .per_token = true,
    .reference.plan = layer_plan,
    .reference.forward = layer_forward,
    .reference.backward = layer_backward,
    .reference.backward_input = true,
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

const tri_op_ops tri_op_softmax = {
    .infer = tri_infer_same,
    .reference.forward = softmax_forward,
    .reference.backward = softmax_backward,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
    .reference.backward_output = true,
};
