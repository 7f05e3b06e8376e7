/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_conv.c: what conv2d means, with a fused pool behind it or without. Plain loops in double.
 *
 * x[B,H,W,C], w[D,C/groups,kh,kw].
 */
#include "kernel/infer.h"

/* The input row or column under an output place and a tap, -1 outside. */
static int64_t tap(const tri_window *w, int axis, int64_t out, int64_t k)
{
    const int64_t in = out * w->stride[axis] - w->pad[axis] + k * w->dilation[axis];
    return in >= 0 && in < w->in[axis] ? in : -1;
}

/* Offsets of one multiplication y[place, d] += x[...] w[...]; false outside the image. */
typedef struct conv_place {
    int64_t b, oh, ow, d, kh, kw;
} conv_place;

static bool conv_offsets(const tri_window *w, conv_place at, int64_t *x, int64_t *weight)
{
    const int64_t h = tap(w, 0, at.oh, at.kh), v = tap(w, 1, at.ow, at.kw);
    const int64_t group_channels = w->channels / w->groups;
    if (h < 0 || v < 0) {
        return false;
    }
    const int64_t group = at.d / (w->out_channels / w->groups);
    *x = ((at.b * w->in[0] + h) * w->in[1] + v) * w->channels + group * group_channels;
    *weight = (at.d * group_channels * w->kernel[0] + at.kh) * w->kernel[1] + at.kw; /* of channel 0 of the group */
    return true;
}

static int64_t conv_out(const tri_window *w, conv_place at)
{
    return ((at.b * w->out[0] + at.oh) * w->out[1] + at.ow) * w->out_channels + at.d;
}

/* Steps through all (place, d, kh, kw) of one shard, taps fastest. */
static bool conv_next(const tri_window *w, conv_place *at)
{
    int64_t *const digit[] = {&at->kw, &at->kh, &at->d, &at->ow, &at->oh, &at->b};
    const int64_t bound[] = {w->kernel[1], w->kernel[0], w->out_channels, w->out[1], w->out[0], w->batch};
    for (int i = 0; i < 6; i++) {
        if (++*digit[i] < bound[i]) {
            return true;
        }
        *digit[i] = 0;
    }
    return false;
}

static void plain_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    tri_window w = tri_window_make(&kernel->desc);
    w.batch *= call->shards;
    const int64_t channels = w.channels / w.groups, taps = w.kernel[0] * w.kernel[1];
    const float *x = call->input[0], *weight = call->param[0], *bias = kernel->desc.attr.bias ? call->param[1] : NULL;
    float *y = call->output;
    conv_place at = {0};
    double sum = 0;
    do {
        int64_t xi, wi;
        if (at.kh == 0 && at.kw == 0) {
            sum = bias != NULL ? (double)bias[at.d] : 0;
        }
        if (conv_offsets(&w, at, &xi, &wi)) {
            for (int64_t c = 0; c < channels; c++) {
                sum += (double)x[xi + c] * (double)weight[wi + c * taps];
            }
        }
        if (at.kh == w.kernel[0] - 1 && at.kw == w.kernel[1] - 1) {
            y[conv_out(&w, at)] = (float)tri_relu_fused(kernel, sum);
        }
    } while (conv_next(&w, &at));
}

static void conv_weights(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_window w = tri_window_make(&kernel->desc);
    const int64_t channels = w.channels / w.groups, taps = w.kernel[0] * w.kernel[1];
    const int64_t count = w.out_channels * channels * taps;
    float *dw = call->scratch, *db = dw + call->shards * count;
    memset(dw, 0, (size_t)(call->shards * count) * sizeof(float));
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s), *dy = tri_call_doutput(kernel, call, s);
        const float *y = tri_call_output(kernel, call, s);
        conv_place at = {0};
        do {
            int64_t xi, wi;
            if (tri_call_wants_dparam(call, 0) && conv_offsets(&w, at, &xi, &wi)) {
                const int64_t o = conv_out(&w, at);
                const float g = (float)tri_relu_cut(kernel, y[o], dy[o]);
                for (int64_t c = 0; c < channels; c++) {
                    dw[s * count + wi + c * taps] += g * x[xi + c];
                }
            }
        } while (conv_next(&w, &at));
        for (int64_t d = 0; kernel->desc.attr.bias && d < w.out_channels; d++) {
            double sum = 0;
            for (int64_t o = d; o < tri_shape_count(kernel->desc.output); o += w.out_channels) {
                sum += tri_relu_cut(kernel, y[o], dy[o]);
            }
            db[s * w.out_channels + d] = (float)sum;
        }
    }
    tri_leaves_sum(kernel, call, 0, dw, count, count);
    if (kernel->desc.attr.bias) {
        tri_leaves_sum(kernel, call, 1, db, w.out_channels, w.out_channels);
    }
}

static void plain_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    tri_window w = tri_window_make(&kernel->desc);
    const int64_t channels = w.channels / w.groups, taps = w.kernel[0] * w.kernel[1];
    const float *weight = call->param[0], *dy = call->doutput, *y = call->output;
    float *dx = call->dinput[0];
    conv_weights(kernel, call);
    if (dx == NULL) {
        return;
    }
    w.batch *= call->shards;
    memset(dx, 0, (size_t)(tri_shape_count(kernel->desc.input[0]) * call->shards) * sizeof(float));
    conv_place at = {0};
    do {
        int64_t xi, wi;
        if (conv_offsets(&w, at, &xi, &wi)) {
            const int64_t o = conv_out(&w, at);
            const float g = (float)tri_relu_cut(kernel, y[o], dy[o]);
            for (int64_t c = 0; c < channels; c++) {
                dx[xi + c] += g * weight[wi + c * taps];
            }
        }
    } while (conv_next(&w, &at));
}

/* --- with a fused pool: the one, then the other --- */

/* The two kernels, and where what goes between them is in scratch, in elements; the convolution's own is at 0. */
typedef struct fused {
    tri_kernel conv, pool;
    int64_t between, dbetween, total;
} fused;

static fused fused_make(const tri_op_desc *desc)
{
    const tri_window w = tri_window_make(desc);
    fused f = {.conv = {.desc = *desc}, .pool = {.ops = &tri_op_max_pool.reference}};
    f.conv.desc.attr.pool = false;
    f.conv.desc.output = tri_shape_make(4, (int64_t[]){w.batch, w.out[0], w.out[1], w.out_channels});
    f.pool.desc = (tri_op_desc){.op = TRI_OP_MAX_POOL,
                                .attr = {.kernel = {2, 2}, .stride = {2, 2}},
                                .input_count = 1,
                                .input = {f.conv.desc.output},
                                .output = desc->output,
                                .max_shards = desc->max_shards,
                                .threads = 1};
    const int64_t count = tri_align_count(tri_shape_count(f.conv.desc.output) * desc->max_shards);
    (void)tri_weights_plan(&f.conv.desc, &f.conv);
    f.between = tri_align_count((int64_t)(f.conv.scratch_nbytes / sizeof(float)));
    f.dbetween = f.between + count;
    f.total = f.dbetween + count;
    return f;
}

static tri_status conv_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    if (!desc->attr.pool) {
        return tri_weights_plan(desc, kernel);
    }
    kernel->scratch_nbytes = (size_t)fused_make(desc).total * sizeof(float);
    return TRI_OK;
}

static tri_op_call inner_call(const fused *f, const tri_op_call *call)
{
    tri_op_call conv = *call;
    conv.output = (float *)call->scratch + f->between;
    conv.doutput = (float *)call->scratch + f->dbetween;
    return conv;
}

static void conv_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (!kernel->desc.attr.pool) {
        plain_forward(kernel, call);
        return;
    }
    const fused f = fused_make(&kernel->desc);
    const tri_op_call conv = inner_call(&f, call);
    tri_op_call pool = *call;
    plain_forward(&f.conv, &conv);
    pool.input[0] = conv.output;
    tri_kernel_forward(&f.pool, &pool);
}

/* What went between them is formed again. */
static void conv_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (!kernel->desc.attr.pool) {
        plain_backward(kernel, call);
        return;
    }
    const fused f = fused_make(&kernel->desc);
    const tri_op_call conv = inner_call(&f, call);
    tri_op_call pool = *call;
    plain_forward(&f.conv, &conv);
    pool.input[0] = conv.output;
    pool.dinput[0] = (float *)call->scratch + f.dbetween;
    tri_kernel_backward(&f.pool, &pool);
    plain_backward(&f.conv, &conv);
}

/* Places of the last row or column of an odd image are in no window. */
static tri_status infer_fused_pool(tri_op_desc *desc)
{
    if (!desc->attr.relu || desc->output.dim[1] < 2 || desc->output.dim[2] < 2) {
        return tri_infer_fail(desc, "2x2 places at least, behind a relu, for a fused pool", "output", desc->output);
    }
    desc->output.dim[1] /= 2;
    desc->output.dim[2] /= 2;
    return TRI_OK;
}

static tri_status infer_conv(tri_op_desc *desc)
{
    const int64_t units = desc->attr.units;
    TRI_TRY(tri_infer_input(desc, 0, 4, 4, TRI_F32));
    TRI_TRY(tri_infer_units(desc, "units", units));
    const int64_t channels = desc->input[0].dim[3], groups = desc->attr.groups == 0 ? 1 : desc->attr.groups;
    if (groups < 1 || channels % groups != 0 || units % groups != 0) {
        return tri_fail(TRI_EINVAL, "conv2d: want groups that divide %lld channels and %lld units, got %lld",
                        (long long)channels, (long long)units, (long long)groups);
    }
    TRI_TRY(tri_infer_window(desc, false));
    desc->output.dim[3] = units;
    TRI_TRY(tri_infer_param(
        desc, tri_shape_make(4, (int64_t[]){units, channels / groups, desc->attr.kernel[0], desc->attr.kernel[1]})));
    if (desc->attr.bias) {
        TRI_TRY(tri_infer_param(desc, tri_shape_vector(units)));
    }
    return desc->attr.pool ? infer_fused_pool(desc) : TRI_OK;
}

static double conv_products(const tri_op_desc *desc)
{
    const tri_window w = tri_window_make(desc);
    return (double)(w.batch * w.out[0] * w.out[1]) * (double)tri_shape_count(desc->param[0]);
}

const tri_op_ops tri_op_conv2d = {
    .infer = infer_conv,
    .products = conv_products,
    .gives_half_gpu = true,
    .fuses_relu = true,
    .reference.plan = conv_plan,
    .reference.forward = conv_forward,
    .reference.backward = conv_backward,
    .reference.backward_input = true, /* a fused pool's backward forms what the pool read */
    .reference.backward_output = true,
};
