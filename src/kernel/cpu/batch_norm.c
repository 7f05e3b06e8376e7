/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_norm.c: a tile is a block of channels of one shard: statistics, then the map. Sums run over blocks of pixels in
 * f32 around a shift near the mean, and over blocks in double. The fused relu's mask is computed again backward, by the
 * same expression, so the output is not needed. Saved as reference_norm.c says: mean, rstd, unbiased variance. With
 * attr.sync the sums of all tiles come first, then those over the batch, then the maps.
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
    double *leaves;                   /* [shards][tri_sync_count()] */
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

/* Around `shift`, the mean of the first values: sums of differences and of their squares. */
typedef struct moments {
    float shift[CHANNELS];
    double sum[CHANNELS], square[CHANNELS];
} moments;

static moments moments_find(const float *x, int64_t count, int64_t stride, int width)
{
    double first_sum[CHANNELS] = {0}, unused[CHANNELS] = {0};
    float copy[PIXELS * CHANNELS];
    moments m = {0};
    for (int64_t first = 0; first < count; first += PIXELS) {
        const int64_t n = tri_int64_min(PIXELS, count - first);
        int64_t step = stride;
        const float *block = whole(x + first * stride, n, &step, width, copy);
        if (first == 0) {
            square_block(block, n, step, m.shift, first_sum, unused);
            for (int c = 0; c < CHANNELS; c++) {
                m.shift[c] = (float)(first_sum[c] / (double)n);
            }
        }
        square_block(block, n, step, m.shift, m.sum, m.square);
    }
    return m;
}

/* Of the shard's channels [first, first + width): what is saved. */
static void statistics(const norm_arg *v, const moments *m, int64_t count, int width, float *saved)
{
    const double n = (double)tri_int64_max(count, 1), epsilon = tri_norm_epsilon(v->kernel);
    for (int c = 0; c < width; c++) {
        const double spread = fmax(m->square[c] - m->sum[c] * m->sum[c] / n, 0);
        saved[c] = (float)((double)m->shift[c] + m->sum[c] / n);
        saved[v->channels + c] = count > 0 ? (float)(1 / sqrt(spread / n + epsilon)) : 0;
        saved[2 * v->channels + c] = (float)(spread / (double)tri_int64_max(count - 1, 1));
        if (isnan(m->square[c])) { /* fmax would hide it */
            saved[v->channels + c] = saved[2 * v->channels + c] = NAN;
        }
    }
}

/* The same as a leaf of the batch's sums, of x and of x^2. */
static void leaf_write(const norm_arg *v, const moments *m, int64_t count, int width, double *leaf)
{
    for (int c = 0; c < width; c++) {
        const double shift = (double)m->shift[c];
        leaf[c] = m->sum[c] + (double)count * shift;
        leaf[v->channels + c] = m->square[c] + shift * (2 * m->sum[c] + (double)count * shift);
    }
}

static figures figures_make(const norm_arg *v, int64_t shard, int64_t first, int width)
{
    const tri_op_call *call = v->call;
    const float *saved = (const float *)call->saved + 3 * v->channels * shard + first;
    figures f = {0};
    for (int c = 0; c < width; c++) {
        const float var = tri_call_param(call, 3)[first + c];
        const float rstd =
            call->training ? saved[v->channels + c] : (float)(1 / sqrt((double)var + tri_norm_epsilon(v->kernel)));
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

/* A tile's place. */
typedef struct span {
    int64_t shard, first, valid; /* its first channel; pixels that count */
    int width;
} span;

static span span_make(const norm_arg *v, int64_t tile)
{
    const int64_t shard = tile / v->blocks, first = tile % v->blocks * CHANNELS;
    return (span){shard, first, v->call->rows[shard] * v->pixels, (int)tri_int64_min(CHANNELS, v->channels - first)};
}

static double *leaf_find(const norm_arg *v, const span *at)
{
    double *leaf = v->leaves + at->shard * tri_sync_count(v->channels);
    if (at->first == 0) {
        leaf[0] = (double)at->valid;
    }
    return leaf + 1 + at->first;
}

static void measure_tile(void *arg, int64_t tile)
{
    const norm_arg *v = arg;
    const span at = span_make(v, tile);
    const float *x = tri_call_input(v->kernel, v->call, 0, at.shard) + at.first;
    const moments m = moments_find(x, at.valid, v->channels, at.width);
    if (v->kernel->desc.attr.sync) {
        leaf_write(v, &m, at.valid, at.width, leaf_find(v, &at));
    } else {
        statistics(v, &m, at.valid, at.width, (float *)v->call->saved + 3 * v->channels * at.shard + at.first);
    }
}

static void map_tile(void *arg, int64_t tile)
{
    const norm_arg *v = arg;
    const span at = span_make(v, tile);
    const float *x = tri_call_input(v->kernel, v->call, 0, at.shard) + at.first;
    float *y = tri_call_output(v->kernel, v->call, at.shard) + at.first, copy[PIXELS * CHANNELS];
    const figures f = figures_make(v, at.shard, at.first, at.width);
    for (int64_t i = 0; i < at.valid; i += PIXELS) {
        const int64_t n = tri_int64_min(PIXELS, at.valid - i);
        int64_t step = v->channels;
        const float *block = whole(x + i * v->channels, n, &step, at.width, copy);
        map_block(at.width == CHANNELS ? y + i * v->channels : copy, block, n, step, &f, v->kernel->desc.attr.relu);
        if (at.width < CHANNELS) {
            put_back(y + i * v->channels, copy, n, v->channels, at.width);
        }
    }
    clear_rest(v, y, at.valid, at.width);
}

static void forward_tile(void *arg, int64_t tile)
{
    measure_tile(arg, tile);
    map_tile(arg, tile);
}

/* Sums of the gradient, and of its product with x - mean, as leaves. */
static void slope_tile(void *arg, int64_t tile)
{
    const norm_arg *v = arg;
    const span at = span_make(v, tile);
    const float *x = tri_call_input(v->kernel, v->call, 0, at.shard) + at.first;
    const float *dy = tri_call_doutput(v->kernel, v->call, at.shard) + at.first;
    const float *rstd = (const float *)v->call->saved + (3 * at.shard + 1) * v->channels + at.first;
    const figures f = figures_make(v, at.shard, at.first, at.width);
    double sum[CHANNELS] = {0}, dot[CHANNELS] = {0}, *leaf = leaf_find(v, &at);
    float copy[2][PIXELS * CHANNELS];
    for (int64_t i = 0; i < at.valid; i += PIXELS) {
        const int64_t n = tri_int64_min(PIXELS, at.valid - i);
        int64_t step = v->channels, same = v->channels;
        const float *from = whole(x + i * v->channels, n, &step, at.width, copy[0]);
        dot_block(whole(dy + i * v->channels, n, &same, at.width, copy[1]), from, n, step, &f,
                  v->kernel->desc.attr.relu, sum, dot);
    }
    for (int c = 0; c < at.width; c++) {
        v->dshift[at.shard * v->channels + at.first + c] = (float)sum[c];
        v->dscale[at.shard * v->channels + at.first + c] = (float)(dot[c] * (double)rstd[c]);
        leaf[c] = sum[c];
        leaf[v->channels + c] = dot[c];
    }
}

/* dx, from the sums of those whose statistics x has: the shard's, or the batch's. */
static void back_tile(void *arg, int64_t tile)
{
    const norm_arg *v = arg;
    const span at = span_make(v, tile);
    const float *x = tri_call_input(v->kernel, v->call, 0, at.shard) + at.first;
    const float *dy = tri_call_doutput(v->kernel, v->call, at.shard) + at.first;
    const float *rstd = (const float *)v->call->saved + (3 * at.shard + 1) * v->channels + at.first;
    const bool sync = v->kernel->desc.attr.sync;
    const double *sums = v->leaves + (sync ? 0 : at.shard * tri_sync_count(v->channels));
    const double n = fmax(sync ? sums[0] : (double)at.valid, 1);
    float *dx = tri_call_dinput(v->kernel, v->call, 0, at.shard);
    const figures f = figures_make(v, at.shard, at.first, at.width);
    float copy[2][PIXELS * CHANNELS], base[CHANNELS] = {0}, lean[CHANNELS] = {0};
    if (dx == NULL) {
        return;
    }
    for (int c = 0; c < at.width; c++) {
        const double r = (double)rstd[c];
        base[c] = (float)(sums[1 + at.first + c] / n);
        lean[c] = (float)(sums[1 + v->channels + at.first + c] * r * r / n);
    }
    for (int64_t i = 0; i < at.valid; i += PIXELS) {
        const int64_t some = tri_int64_min(PIXELS, at.valid - i);
        int64_t step = v->channels, same = v->channels;
        float *to = dx + at.first + i * v->channels;
        const float *from = whole(x + i * v->channels, some, &step, at.width, copy[0]);
        const float *g = whole(dy + i * v->channels, some, &same, at.width, copy[1]);
        back_block(at.width == CHANNELS ? to : copy[1], g, from, some, step, &f, v->kernel->desc.attr.relu, base, lean);
        if (at.width < CHANNELS) {
            put_back(to, copy[1], some, v->channels, at.width);
        }
    }
    clear_rest(v, dx + at.first, at.valid, at.width);
}

static void backward_tile(void *arg, int64_t tile)
{
    slope_tile(arg, tile);
    back_tile(arg, tile);
}

static norm_arg norm_make(const tri_kernel *kernel, const tri_op_call *call)
{
    norm_arg v = {.kernel = kernel, .call = call, .channels = tri_shape_last(&kernel->desc.input[0])};
    v.blocks = tri_int64_ceil(v.channels, CHANNELS);
    v.pixels = tri_shape_count(kernel->desc.input[0]) / v.channels / kernel->desc.input[0].dim[0];
    v.dscale = call->scratch;
    v.dshift = v.dscale + v.channels * call->shards;
    v.leaves = tri_sync_leaves(call, v.channels);
    return v;
}

static void norm_run(const norm_arg *v, tri_tile_fn body)
{
    tri_tiles_run(v->kernel->desc.threads, v->blocks * v->call->shards, body, (void *)v);
}

static void norm_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const norm_arg arg = norm_make(kernel, call);
    if (!call->training || !kernel->desc.attr.sync) {
        norm_run(&arg, call->training ? forward_tile : map_tile);
    } else {
        norm_run(&arg, measure_tile);
        tri_batch_sum(call, arg.leaves, tri_sync_count(arg.channels));
        tri_sync_figures(call, arg.leaves, arg.channels, tri_norm_epsilon(kernel));
        norm_run(&arg, map_tile);
    }
    if (call->training) {
        tri_batch_norm_buffers(kernel, call, arg.channels);
    }
}

static void norm_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const norm_arg arg = norm_make(kernel, call);
    tri_batch_norm_buffers(kernel, call, arg.channels);
    if (!kernel->desc.attr.sync) {
        norm_run(&arg, backward_tile);
    } else {
        norm_run(&arg, slope_tile);
        tri_batch_sum(call, arg.leaves, tri_sync_count(arg.channels));
        norm_run(&arg, back_tile);
    }
    tri_leaves_sum(kernel, call, 0, arg.dscale, arg.channels, arg.channels);
    tri_leaves_sum(kernel, call, 1, arg.dshift, arg.channels, arg.channels);
}

const tri_kernel_ops tri_cpu_batch_norm = {
    .op = TRI_OP_BATCH_NORM,
    .name = "tiles",
    .plan = tri_batch_norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
    .dinput_may_alias = true,
    .backward_input = true,
};
