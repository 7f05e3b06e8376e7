/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_pool.c: what the pools and the loss functions mean. Plain loops, one shard after the other.
 *
 * x[B,H,W,C] -> y[B,H',W',C]. Padding never wins a maximum and never counts in an average.
 */
#include <math.h>

#include "kernel/infer.h"
#include "tensor/label.h"

/* The places of one window inside the image: rows [low[0], high[0]) and so on, in steps of the dilation. */
typedef struct span {
    int64_t low, high;
} span;

static span span_make(const tri_window *w, int axis, int64_t out)
{
    int64_t low = out * w->stride[axis] - w->pad[axis];
    const int64_t high = low + (w->kernel[axis] - 1) * w->dilation[axis] + 1;
    while (low < 0) {
        low += w->dilation[axis];
    }
    return (span){low, tri_int64_min(high, w->in[axis])};
}

typedef void (*window_fn)(const tri_window *w, bool average, span h, span v, int64_t x_first, int64_t y_at,
                          const float *x, float *y, const float *dy, float *dx);

static int64_t window_max(const tri_window *w, span h, span v, int64_t x_first, const float *x)
{
    int64_t best = -1;
    for (int64_t i = h.low; i < h.high; i += w->dilation[0]) {
        for (int64_t j = v.low; j < v.high; j += w->dilation[1]) {
            const int64_t at = x_first + (i * w->in[1] + j) * w->channels;
            if (best < 0 || x[at] > x[best] || x[at] != x[at]) { /* NaN wins */
                best = at;
            }
        }
    }
    return best;
}

static int64_t window_area(const tri_window *w, span h, span v)
{
    return tri_int64_ceil(h.high - h.low, w->dilation[0]) * tri_int64_ceil(v.high - v.low, w->dilation[1]);
}

static void window_forward(const tri_window *w, bool average, span h, span v, int64_t x_first, int64_t y_at,
                           const float *x, float *y, const float *dy, float *dx)
{
    (void)dy;
    (void)dx;
    if (!average) {
        y[y_at] = x[window_max(w, h, v, x_first, x)];
        return;
    }
    double sum = 0;
    for (int64_t i = h.low; i < h.high; i += w->dilation[0]) {
        for (int64_t j = v.low; j < v.high; j += w->dilation[1]) {
            sum += (double)x[x_first + (i * w->in[1] + j) * w->channels];
        }
    }
    y[y_at] = (float)(sum / (double)window_area(w, h, v));
}

static void window_backward(const tri_window *w, bool average, span h, span v, int64_t x_first, int64_t y_at,
                            const float *x, float *y, const float *dy, float *dx)
{
    (void)y;
    if (!average) {
        dx[window_max(w, h, v, x_first, x)] += dy[y_at];
        return;
    }
    for (int64_t i = h.low; i < h.high; i += w->dilation[0]) {
        for (int64_t j = v.low; j < v.high; j += w->dilation[1]) {
            dx[x_first + (i * w->in[1] + j) * w->channels] += dy[y_at] / (float)window_area(w, h, v);
        }
    }
}

static void windows_run(const tri_kernel *kernel, const tri_op_call *call, window_fn body)
{
    const tri_window w = tri_window_make(&kernel->desc);
    const bool average = kernel->desc.op == TRI_OP_AVG_POOL;
    int64_t y_at = 0;
    for (int64_t b = 0; b < w.batch * call->shards; b++) {
        for (int64_t oh = 0; oh < w.out[0]; oh++) {
            for (int64_t ow = 0; ow < w.out[1]; ow++) {
                for (int64_t c = 0; c < w.channels; c++) {
                    body(&w, average, span_make(&w, 0, oh), span_make(&w, 1, ow),
                         b * w.in[0] * w.in[1] * w.channels + c, y_at++, call->input[0], call->output, call->doutput,
                         call->dinput[0]);
                }
            }
        }
    }
}

static void pool_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    windows_run(kernel, call, window_forward);
}

static void pool_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] == NULL) {
        return;
    }
    memset(call->dinput[0], 0, (size_t)(tri_shape_count(kernel->desc.input[0]) * call->shards) * sizeof(float));
    windows_run(kernel, call, window_backward);
}

static tri_status infer_pool(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 4, 4, TRI_F32));
    TRI_TRY(tri_infer_window(desc, true));
    desc->output.dim[3] = desc->input[0].dim[3];
    return TRI_OK;
}

const tri_op_ops tri_op_max_pool = {
    .infer = infer_pool,
    .reference.forward = pool_forward,
    .reference.backward = pool_backward,
    .reference.backward_input = true,
};

const tri_op_ops tri_op_avg_pool = {
    .infer = infer_pool,
    .reference.forward = pool_forward,
    .reference.backward = pool_backward,
};

static void global_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *in = &kernel->desc.input[0];
    const int64_t area = in->dim[1] * in->dim[2], channels = in->dim[3];
    const float *x = call->input[0];
    float *y = call->output;
    for (int64_t b = 0; b < in->dim[0] * call->shards; b++) {
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (int64_t i = 0; i < area; i++) {
                sum += (double)x[(b * area + i) * channels + c];
            }
            y[b * channels + c] = (float)(sum / (double)area);
        }
    }
}

static void global_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *in = &kernel->desc.input[0];
    const int64_t area = in->dim[1] * in->dim[2], channels = in->dim[3];
    const float *dy = call->doutput;
    float *dx = call->dinput[0];
    for (int64_t i = 0; dx != NULL && i < in->dim[0] * call->shards * area * channels; i++) {
        dx[i] = dy[i / (area * channels) * channels + i % channels] / (float)area;
    }
}

static tri_status infer_global_pool(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 4, 4, TRI_F32));
    desc->output = tri_shape_make(2, (int64_t[]){desc->input[0].dim[0], desc->input[0].dim[3]});
    return TRI_OK;
}

const tri_op_ops tri_op_global_pool = {
    .infer = infer_global_pool,
    .reference.forward = global_forward,
    .reference.backward = global_backward,
};

tri_row_loss tri_reference_loss_row(const float *x, int64_t classes, int32_t target, double smoothing, float *dx)
{
    int64_t best = 0;
    double sum = 0, mean = 0;
    for (int64_t v = 1; v < classes; v++) {
        best = x[v] > x[best] ? v : best;
    }
    for (int64_t v = 0; v < classes; v++) {
        sum += exp((double)x[v] - (double)x[best]);
        mean += (double)x[v] / (double)classes;
    }
    const double log_sum = (double)x[best] + log(sum);
    for (int64_t v = 0; dx != NULL && v < classes; v++) {
        dx[v] =
            (float)(exp((double)x[v] - log_sum) - smoothing / (double)classes - (v == target ? 1.0 - smoothing : 0.0));
    }
    return (tri_row_loss){(1 - smoothing) * (log_sum - (double)x[target]) + smoothing * (log_sum - mean),
                          best == target ? 1 : 0};
}

/* Both classes of a mixed label are among them. */
static bool label_is_good(int32_t target, int64_t classes)
{
    const tri_label label = tri_label_read(target);
    return label.first >= 0 && label.first < classes && label.second < classes;
}

/* Of two classes the weighted losses; a hit is that of the main one. */
static tri_row_loss label_loss(const float *x, int64_t classes, int32_t target, double smoothing, float *dx)
{
    const tri_label label = tri_label_read(target);
    const double weight = (double)label.weight, rest = 1 - weight;
    const tri_row_loss first = tri_reference_loss_row(x, classes, label.first, smoothing, dx);
    if (label.first == label.second)
        return first;
    const tri_row_loss second = tri_reference_loss_row(x, classes, label.second, smoothing, NULL);
    if (dx != NULL) {
        dx[label.first] += (float)((1 - smoothing) * rest);
        dx[label.second] -= (float)((1 - smoothing) * rest);
    }
    return (tri_row_loss){weight * first.loss + rest * second.loss, weight >= 0.5 ? first.right : second.right};
}

static void cross_entropy_run(const tri_kernel *kernel, const tri_op_call *call, float *sums, float *dx_all)
{
    const int64_t classes = tri_shape_last(&kernel->desc.input[0]);
    const int64_t rows = tri_shape_count(kernel->desc.input[1]), per_sample = rows / kernel->desc.input[1].dim[0];
    const double smoothing = (double)kernel->desc.attr.smoothing;
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s);
        const int32_t *target = (const int32_t *)call->input[1] + s * rows;
        double loss = 0, weight = 0, right = 0;
        for (int64_t r = 0; r < rows; r++) {
            float *dx = dx_all != NULL ? dx_all + (s * rows + r) * classes : NULL;
            if (r >= call->rows[s] * per_sample || !label_is_good(target[r], classes)) {
                if (dx != NULL) {
                    memset(dx, 0, (size_t)classes * sizeof(float));
                }
                continue;
            }
            const tri_row_loss row = label_loss(x + r * classes, classes, target[r], smoothing, dx);
            loss += row.loss;
            right += row.right;
            weight += 1;
        }
        if (sums != NULL) {
            float *out = sums + s * TRI_LOSS_COLUMNS;
            out[0] = (float)loss;
            out[1] = (float)weight;
            out[2] = (float)right;
            out[3] = 0;
        }
    }
}

static void cross_entropy_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    cross_entropy_run(kernel, call, call->output, NULL);
}

static void cross_entropy_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        cross_entropy_run(kernel, call, NULL, call->dinput[0]);
    }
}

static tri_status infer_cross_entropy(tri_op_desc *desc)
{
    tri_shape targets = desc->input[0];
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    targets.ndim--;
    return tri_infer_loss(desc, targets, TRI_I32);
}

const tri_op_ops tri_op_cross_entropy = {
    .inputs = 2,
    .infer = infer_cross_entropy,
    .loss = true,
    .begins_gradient = true,
    .reference.forward = cross_entropy_forward,
    .reference.backward = cross_entropy_backward,
    .reference.backward_input = true,
};

static void mse_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t count = tri_shape_count(kernel->desc.input[0]), per_sample = count / kernel->desc.input[0].dim[0];
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s), *t = tri_call_input(kernel, call, 1, s);
        float *out = (float *)call->output + s * TRI_LOSS_COLUMNS;
        double loss = 0, absolute = 0;
        for (int64_t i = 0; i < call->rows[s] * per_sample; i++) {
            const double e = (double)x[i] - (double)t[i];
            loss += e * e;
            absolute += fabs(e);
        }
        out[0] = (float)loss;
        out[1] = (float)(call->rows[s] * per_sample);
        out[2] = 0;
        out[3] = (float)absolute;
    }
}

static void mse_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t count = tri_shape_count(kernel->desc.input[0]), per_sample = count / kernel->desc.input[0].dim[0];
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s), *t = tri_call_input(kernel, call, 1, s);
        float *dx = tri_call_dinput(kernel, call, 0, s), *dt = tri_call_dinput(kernel, call, 1, s);
        for (int64_t i = 0; i < count; i++) {
            const float g = i < call->rows[s] * per_sample ? 2.0f * (x[i] - t[i]) : 0.0f;
            if (dx != NULL) {
                dx[i] = g;
            }
            if (dt != NULL) {
                dt[i] = -g;
            }
        }
    }
}

static tri_status infer_mse(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS, TRI_F32));
    return tri_infer_loss(desc, desc->input[0], TRI_F32);
}

const tri_op_ops tri_op_mse = {
    .inputs = 2,
    .infer = infer_mse,
    .loss = true,
    .begins_gradient = true,
    .reference.forward = mse_forward,
    .reference.backward = mse_backward,
    .reference.backward_input = true,
};
