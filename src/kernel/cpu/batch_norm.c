/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_norm.c: a tile is a block of channels of one shard: statistics, then the map. Sums run over blocks of pixels in
 * f32 around a shift near the mean, and over blocks in double. The fused relu's mask is computed again backward, by the
 * same expression, so the output is not needed. Saved as reference_norm.c says: mean, rstd, unbiased variance.
 */
#include <math.h>

#include "kernel/cpu/cpu.h"

#define CHANNELS 16  /* of one tile: sums in registers */
#define PIXELS   128 /* of one f32 sum */

/* Figures of the channels of a tile. */
typedef struct figures {
    float mean[CHANNELS], slope[CHANNELS], shift[CHANNELS]; /* y = (x - mean) slope + shift */
} figures;

typedef struct norm_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    int64_t channels, blocks, pixels; /* pixels of one sample */
    float *dscale, *dshift;           /* leaves [shards][channels] */
} norm_arg;

/* Eight channels at once; written with vectors, since x, dy and dx may be one memory for all that the compiler knows.
 */
typedef float eight __attribute__((vector_size(32)));
typedef int32_t eight_bits __attribute__((vector_size(32)));

/* Both sums over count pixels of CHANNELS channels, in f32: of x - mean and its square. */
TRI_CLONES static void square_block(const float *x, int64_t count, int64_t stride, const float *mean, double *sum,
                                    double *square)
{
    eight s[CHANNELS / 8] = {{0}}, q[CHANNELS / 8] = {{0}}, m[CHANNELS / 8];
    memcpy(m, mean, sizeof m);
    for (int64_t i = 0; i < count; i++, x += stride) {
        for (int k = 0; k < CHANNELS / 8; k++) {
            eight e;
            memcpy(&e, x + 8 * k, sizeof e);
            e = e - m[k];
            s[k] += e;
            q[k] += e * e;
        }
    }
    for (int c = 0; c < CHANNELS; c++) {
        sum[c] += (double)s[c / 8][c % 8];
        square[c] += (double)q[c / 8][c % 8];
    }
}

TRI_CLONES static void map_block(float *y, const float *x, int64_t count, int64_t stride, const figures *f, bool relu)
{
    eight mean[CHANNELS / 8], slope[CHANNELS / 8], shift[CHANNELS / 8];
    memcpy(mean, f->mean, sizeof mean);
    memcpy(slope, f->slope, sizeof slope);
    memcpy(shift, f->shift, sizeof shift);
    const eight_bits keep = (eight_bits){0} - (relu ? 0 : 1);
    for (int64_t i = 0; i < count; i++, x += stride, y += stride) {
        for (int k = 0; k < CHANNELS / 8; k++) {
            eight v;
            memcpy(&v, x + 8 * k, sizeof v);
            v = (v - mean[k]) * slope[k] + shift[k];
            v = (eight)((eight_bits)v & (~(v < 0.0f) | keep));
            memcpy(y + 8 * k, &v, sizeof v);
        }
    }
}

/* Sums of g and g (x - mean), g the gradient behind the relu. */
TRI_CLONES static void dot_block(const float *dy, const float *x, int64_t count, int64_t stride, const figures *f,
                                 bool relu, double *sum, double *dot)
{
    float s[CHANNELS] = {0}, q[CHANNELS] = {0};
    for (int64_t i = 0; i < count; i++, x += stride, dy += stride) {
        for (int c = 0; c < CHANNELS; c++) {
            const float e = x[c] - f->mean[c], v = e * f->slope[c] + f->shift[c];
            const float g = relu && !(v > 0) ? 0.0f : dy[c];
            s[c] += g;
            q[c] += g * e;
        }
    }
    for (int c = 0; c < CHANNELS; c++) {
        sum[c] += (double)s[c];
        dot[c] += (double)q[c];
    }
}

/* dx = slope (g - base - (x - mean) lean) */
TRI_CLONES static void back_block(float *dx, const float *dy, const float *x, int64_t count, int64_t stride,
                                  const figures *f, bool relu, const float *base, const float *lean)
{
    eight mean[CHANNELS / 8], slope[CHANNELS / 8], shift[CHANNELS / 8], low[CHANNELS / 8], tilt[CHANNELS / 8];
    memcpy(mean, f->mean, sizeof mean);
    memcpy(slope, f->slope, sizeof slope);
    memcpy(shift, f->shift, sizeof shift);
    memcpy(low, base, sizeof low);
    memcpy(tilt, lean, sizeof tilt);
    const eight_bits keep = (eight_bits){0} - (relu ? 0 : 1);
    for (int64_t i = 0; i < count; i++, x += stride, dy += stride, dx += stride) {
        for (int k = 0; k < CHANNELS / 8; k++) {
            eight e, g;
            memcpy(&e, x + 8 * k, sizeof e);
            memcpy(&g, dy + 8 * k, sizeof g);
            e = e - mean[k];
            g = (eight)((eight_bits)g & ((e * slope[k] + shift[k] > 0.0f) | keep));
            g = slope[k] * (g - low[k] - e * tilt[k]);
            memcpy(dx + 8 * k, &g, sizeof g);
        }
    }
}

/* A tile with fewer channels works on a copy of a block of pixels, padded with zeros. */
static const float *whole(const float *x, int64_t count, int64_t *stride, int width, float *copy)
{
    if (width == CHANNELS) {
        return x;
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(copy + i * CHANNELS, x + i * *stride, (size_t)width * sizeof(float));
        memset(copy + i * CHANNELS + width, 0, (size_t)(CHANNELS - width) * sizeof(float));
    }
    *stride = CHANNELS;
    return copy;
}

static void put_back(float *to, const float *copy, int64_t count, int64_t stride, int width)
{
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + i * stride, copy + i * CHANNELS, (size_t)width * sizeof(float));
    }
}

static void statistics(const float *x, int64_t count, int64_t stride, int width, double epsilon, float *saved,
                       int64_t channels)
{
    double shift_sum[CHANNELS] = {0}, sum[CHANNELS] = {0}, square[CHANNELS] = {0}, unused[CHANNELS] = {0};
    float shift[CHANNELS] = {0}, copy[PIXELS * CHANNELS];
    for (int64_t first = 0; first < count; first += PIXELS) {
        const int64_t n = tri_int64_min(PIXELS, count - first);
        int64_t step = stride;
        const float *block = whole(x + first * stride, n, &step, width, copy);
        if (first == 0) {
            square_block(block, n, step, shift, shift_sum, unused);
            for (int c = 0; c < CHANNELS; c++) {
                shift[c] = (float)(shift_sum[c] / (double)n);
            }
        }
        square_block(block, n, step, shift, sum, square);
    }
    const double n = (double)tri_int64_max(count, 1);
    for (int c = 0; c < width; c++) {
        const double spread = fmax(square[c] - sum[c] * sum[c] / n, 0);
        saved[c] = (float)((double)shift[c] + sum[c] / n);
        saved[channels + c] = count > 0 ? (float)(1 / sqrt(spread / n + epsilon)) : 0;
        saved[2 * channels + c] = (float)(spread / (double)tri_int64_max(count - 1, 1));
        if (isnan(square[c])) { /* fmax would hide it */
            saved[channels + c] = saved[2 * channels + c] = NAN;
        }
    }
}

static double epsilon_of(const tri_kernel *kernel)
{
    return kernel->desc.attr.epsilon == 0 ? 1e-5 : (double)kernel->desc.attr.epsilon;
}

static figures figures_make(const norm_arg *v, int64_t shard, int64_t first, int width)
{
    const tri_op_call *call = v->call;
    const float *saved = (const float *)call->saved + 3 * v->channels * shard + first;
    figures f = {0};
    for (int c = 0; c < width; c++) {
        const float var = tri_call_param(call, 3)[first + c];
        const float rstd =
            call->training ? saved[v->channels + c] : (float)(1 / sqrt((double)var + epsilon_of(v->kernel)));
        f.mean[c] = call->training ? saved[c] : tri_call_param(call, 2)[first + c];
        f.slope[c] = rstd * tri_call_param(call, 0)[first + c];
        f.shift[c] = tri_call_param(call, 1)[first + c];
    }
    return f;
}

/* Rows behind the valid ones. */
static void clear_rest(const norm_arg *v, float *to, int64_t valid, int width)
{
    for (int64_t i = valid; i < v->pixels * v->kernel->desc.input[0].dim[0]; i++) {
        memset(to + i * v->channels, 0, (size_t)width * sizeof(float));
    }
}

static void forward_tile(void *arg, int64_t tile)
{
    const norm_arg *v = arg;
    const int64_t shard = tile / v->blocks, first = tile % v->blocks * CHANNELS;
    const int width = (int)tri_int64_min(CHANNELS, v->channels - first);
    const float *x = tri_call_input(v->kernel, v->call, 0, shard) + first;
    float *y = tri_call_output(v->kernel, v->call, shard) + first, copy[PIXELS * CHANNELS];
    const int64_t valid = v->call->rows[shard] * v->pixels;
    if (v->call->training) {
        statistics(x, valid, v->channels, width, epsilon_of(v->kernel),
                   (float *)v->call->saved + 3 * v->channels * shard + first, v->channels);
    }
    const figures f = figures_make(v, shard, first, width);
    for (int64_t i = 0; i < valid; i += PIXELS) {
        const int64_t n = tri_int64_min(PIXELS, valid - i);
        int64_t step = v->channels;
        const float *block = whole(x + i * v->channels, n, &step, width, copy);
        map_block(width == CHANNELS ? y + i * v->channels : copy, block, n, step, &f, v->kernel->desc.attr.relu);
        if (width < CHANNELS) {
            put_back(y + i * v->channels, copy, n, v->channels, width);
        }
    }
    clear_rest(v, y, valid, width);
}

static void backward_tile(void *arg, int64_t tile)
{
    const norm_arg *v = arg;
    const int64_t shard = tile / v->blocks, first = tile % v->blocks * CHANNELS;
    const int width = (int)tri_int64_min(CHANNELS, v->channels - first);
    const bool relu = v->kernel->desc.attr.relu;
    const float *x = tri_call_input(v->kernel, v->call, 0, shard) + first;
    const float *dy = tri_call_doutput(v->kernel, v->call, shard) + first;
    float *dx = tri_call_dinput(v->kernel, v->call, 0, shard);
    const float *rstd = (const float *)v->call->saved + (3 * shard + 1) * v->channels + first;
    const int64_t valid = v->call->rows[shard] * v->pixels;
    const figures f = figures_make(v, shard, first, width);
    double sum[CHANNELS] = {0}, dot[CHANNELS] = {0};
    float copy[2][PIXELS * CHANNELS], base[CHANNELS] = {0}, lean[CHANNELS] = {0};
    for (int64_t i = 0; i < valid; i += PIXELS) {
        const int64_t n = tri_int64_min(PIXELS, valid - i);
        int64_t step = v->channels, same = v->channels;
        const float *from = whole(x + i * v->channels, n, &step, width, copy[0]);
        dot_block(whole(dy + i * v->channels, n, &same, width, copy[1]), from, n, step, &f, relu, sum, dot);
    }
    for (int c = 0; c < width; c++) {
        const double n = (double)tri_int64_max(valid, 1), r = (double)rstd[c];
        v->dshift[shard * v->channels + first + c] = (float)sum[c];
        v->dscale[shard * v->channels + first + c] = (float)(dot[c] * r);
        base[c] = (float)(sum[c] / n);
        lean[c] = (float)(dot[c] * r * r / n);
    }
    for (int64_t i = 0; dx != NULL && i < valid; i += PIXELS) {
        const int64_t n = tri_int64_min(PIXELS, valid - i);
        int64_t step = v->channels, same = v->channels;
        float *to = dx + first + i * v->channels;
        const float *from = whole(x + i * v->channels, n, &step, width, copy[0]);
        const float *g = whole(dy + i * v->channels, n, &same, width, copy[1]);
        back_block(width == CHANNELS ? to : copy[1], g, from, n, step, &f, relu, base, lean);
        if (width < CHANNELS) {
            put_back(to, copy[1], n, v->channels, width);
        }
    }
    if (dx != NULL) {
        clear_rest(v, dx + first, valid, width);
    }
}

/* Sums of means and variances for the buffers, when they are wanted. */
static void buffers_sum(const norm_arg *v)
{
    float *leaves = v->call->scratch;
    for (int p = 2; p < 4; p++) {
        for (int64_t s = 0; s < v->call->shards && tri_call_wants_dparam(v->call, p); s++) {
            memcpy(leaves + s * v->channels, (const float *)v->call->saved + (3 * s + (p == 2 ? 0 : 2)) * v->channels,
                   (size_t)v->channels * sizeof(float));
        }
        tri_leaves_sum(v->kernel, v->call, p, leaves, v->channels, v->channels);
    }
}

static norm_arg norm_make(const tri_kernel *kernel, const tri_op_call *call)
{
    norm_arg v = {.kernel = kernel, .call = call, .channels = tri_shape_last(&kernel->desc.input[0])};
    v.blocks = tri_int64_ceil(v.channels, CHANNELS);
    v.pixels = tri_shape_count(kernel->desc.input[0]) / v.channels / kernel->desc.input[0].dim[0];
    v.dscale = call->scratch;
    v.dshift = v.dscale + v.channels * call->shards;
    return v;
}

static tri_status norm_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t channels = tri_shape_last(&desc->input[0]);
    kernel->saved_nbytes = (size_t)(3 * channels) * sizeof(float);
    kernel->scratch_nbytes = (size_t)(2 * channels * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

static void norm_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    norm_arg arg = norm_make(kernel, call);
    tri_tiles_run(kernel->desc.threads, arg.blocks * call->shards, forward_tile, &arg);
    if (call->training) {
        buffers_sum(&arg);
    }
}

static void norm_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    norm_arg arg = norm_make(kernel, call);
    buffers_sum(&arg);
    tri_tiles_run(kernel->desc.threads, arg.blocks * call->shards, backward_tile, &arg);
    tri_leaves_sum(kernel, call, 0, arg.dscale, arg.channels, arg.channels);
    tri_leaves_sum(kernel, call, 1, arg.dshift, arg.channels, arg.channels);
}

const tri_kernel_ops tri_cpu_batch_norm = {
    .op = TRI_OP_BATCH_NORM,
    .name = "tiles",
    .plan = norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
    .dinput_may_alias = true,
    .backward_input = true,
};
