/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_linear.c: what linear, matmul and conv2d mean. Plain loops in double, one shard after the other.
 *
 * B rows, C inputs, D outputs of linear; M K N of matmul; conv2d: x[B,H,W,C], w[D,C/groups,kh,kw].
 */
#include "kernel/row.h"

/* dy, or zero where the fused relu cut. */
static double masked(const tri_kernel *kernel, float y, float dy)
{
    return kernel->desc.attr.relu && !(y > 0) ? 0.0 : (double)dy;
}

static double activated(const tri_kernel *kernel, double y)
{
    return kernel->desc.attr.relu && y < 0 ? 0.0 : y;
}

static tri_status weights_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t bias = desc->attr.bias ? tri_shape_count(desc->param[1]) : 0;
    kernel->scratch_nbytes = (size_t)(desc->max_shards * (tri_shape_count(desc->param[0]) + bias)) * sizeof(float);
    return TRI_OK;
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d_count = kernel->desc.param[0].dim[0], c_count = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d_count * call->shards;
    const float *x = call->input[0], *w = call->param[0], *b = kernel->desc.attr.bias ? call->param[1] : NULL;
    float *y = call->output;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < d_count; d++) {
            double sum = b != NULL ? (double)b[d] : 0;
            for (int64_t c = 0; c < c_count; c++) {
                sum += (double)x[r * c_count + c] * (double)w[d * c_count + c];
            }
            y[r * d_count + d] = (float)activated(kernel, sum);
        }
    }
}

static void linear_weights(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d_count = kernel->desc.param[0].dim[0], c_count = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d_count;
    float *dw = call->scratch, *db = dw + call->shards * d_count * c_count;
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s), *y = tri_call_output(kernel, call, s);
        const float *dy = tri_call_doutput(kernel, call, s);
        for (int64_t d = 0; d < d_count; d++) {
            double bias = 0;
            for (int64_t r = 0; r < rows; r++) {
                bias += masked(kernel, y[r * d_count + d], dy[r * d_count + d]);
            }
            if (kernel->desc.attr.bias) {
                db[s * d_count + d] = (float)bias;
            }
            for (int64_t c = 0; c < c_count && tri_call_wants_dparam(call, 0); c++) {
                double sum = 0;
                for (int64_t r = 0; r < rows; r++) {
                    sum += masked(kernel, y[r * d_count + d], dy[r * d_count + d]) * (double)x[r * c_count + c];
                }
                dw[(s * d_count + d) * c_count + c] = (float)sum;
            }
        }
    }
    tri_leaves_sum(kernel, call, 0, dw, d_count * c_count, d_count * c_count);
    if (kernel->desc.attr.bias) {
        tri_leaves_sum(kernel, call, 1, db, d_count, d_count);
    }
}

static void linear_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t d_count = kernel->desc.param[0].dim[0], c_count = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.output) / d_count * call->shards;
    const float *w = call->param[0], *dy = call->doutput, *y = call->output;
    float *dx = call->dinput[0];
    linear_weights(kernel, call);
    for (int64_t r = 0; dx != NULL && r < rows; r++) {
        for (int64_t c = 0; c < c_count; c++) {
            double sum = 0;
            for (int64_t d = 0; d < d_count; d++) {
                sum += masked(kernel, y[r * d_count + d], dy[r * d_count + d]) * (double)w[d * c_count + c];
            }
            dx[r * c_count + c] = (float)sum;
        }
    }
}

const tri_kernel_ops tri_reference_linear = {
    .op = TRI_OP_LINEAR,
    .name = "reference",
    .plan = weights_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};

/* Strides of the three matrices inside one product, and how many products there are. */
typedef struct product {
    int64_t batch, m, k, n;
} product;

static product product_make(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *a = &kernel->desc.input[0];
    return (product){tri_shape_product(a, 0, a->ndim - 2) * call->shards, a->dim[a->ndim - 2], a->dim[a->ndim - 1],
                     tri_shape_last(&kernel->desc.output)};
}

/* c[m,n] = sum over k of a[m * am + k * ak] b[k * bk + n * bn] */
static void multiply(float *c, int64_t m, int64_t n, int64_t k, const float *a, int64_t am, int64_t ak, const float *b,
                     int64_t bk, int64_t bn)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) {
                sum += (double)a[i * am + l * ak] * (double)b[l * bk + j * bn];
            }
            c[i * n + j] = (float)sum;
        }
    }
}

static void matmul_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const product p = product_make(kernel, call);
    const float *a = call->input[0], *b = call->input[1];
    for (int64_t i = 0; i < p.batch; i++) {
        multiply((float *)call->output + i * p.m * p.n, p.m, p.n, p.k, a + i * p.m * p.k, p.k, 1, b + i * p.k * p.n,
                 p.n, 1);
    }
}

static void matmul_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const product p = product_make(kernel, call);
    for (int64_t i = 0; i < p.batch; i++) {
        const float *a = (const float *)call->input[0] + i * p.m * p.k;
        const float *b = (const float *)call->input[1] + i * p.k * p.n;
        const float *dy = (const float *)call->doutput + i * p.m * p.n;
        float *da = call->dinput[0], *db = call->dinput[1];
        if (da != NULL) { /* dy b' */
            multiply(da + i * p.m * p.k, p.m, p.k, p.n, dy, p.n, 1, b, 1, p.n);
        }
        if (db != NULL) { /* a' dy */
            multiply(db + i * p.k * p.n, p.k, p.n, p.m, a, 1, p.k, dy, p.n, 1);
        }
    }
}

const tri_kernel_ops tri_reference_matmul = {
    .op = TRI_OP_MATMUL,
    .name = "reference",
    .forward = matmul_forward,
    .backward = matmul_backward,
    .backward_input = true,
};

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

static void conv_forward(const tri_kernel *kernel, const tri_op_call *call)
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
            y[conv_out(&w, at)] = (float)activated(kernel, sum);
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
                const float g = (float)masked(kernel, y[o], dy[o]);
                for (int64_t c = 0; c < channels; c++) {
                    dw[s * count + wi + c * taps] += g * x[xi + c];
                }
            }
        } while (conv_next(&w, &at));
        for (int64_t d = 0; kernel->desc.attr.bias && d < w.out_channels; d++) {
            double sum = 0;
            for (int64_t o = d; o < tri_shape_count(kernel->desc.output); o += w.out_channels) {
                sum += masked(kernel, y[o], dy[o]);
            }
            db[s * w.out_channels + d] = (float)sum;
        }
    }
    tri_leaves_sum(kernel, call, 0, dw, count, count);
    if (kernel->desc.attr.bias) {
        tri_leaves_sum(kernel, call, 1, db, w.out_channels, w.out_channels);
    }
}

static void conv_backward(const tri_kernel *kernel, const tri_op_call *call)
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
            const float g = (float)masked(kernel, y[o], dy[o]);
            for (int64_t c = 0; c < channels; c++) {
                dx[xi + c] += g * weight[wi + c * taps];
            }
        }
    } while (conv_next(&w, &at));
}

static bool conv_can(const tri_op_desc *desc)
{
    return !desc->attr.pool;
}

const tri_kernel_ops tri_reference_conv = {
    .op = TRI_OP_CONV,
    .name = "reference",
    .can = conv_can,
    .plan = weights_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};
