/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.cu: pools of x[B,H,W,C]. Backward each place of x looks at the windows that it is in, in order: no two threads
 * add to one element.
 */
#include "kernel/gpu/math.h"

/* Places of a window along an axis that lie inside the image: low, low + dilation, .. below high. */
GPU_FN int window_low(const tri_gpu_window *w, int axis, int out)
{
    const int low = out * w->stride[axis] - w->pad[axis];
    return low >= 0 ? low : low + (-low + w->dilation[axis] - 1) / w->dilation[axis] * w->dilation[axis];
}

GPU_FN int window_high(const tri_gpu_window *w, int axis, int out)
{
    const int high = out * w->stride[axis] - w->pad[axis] + (w->kernel[axis] - 1) * w->dilation[axis] + 1;
    return high < w->in[axis] ? high : w->in[axis];
}

GPU_FN int window_count(const tri_gpu_window *w, int axis, int out)
{
    return (window_high(w, axis, out) - window_low(w, axis, out) + w->dilation[axis] - 1) / w->dilation[axis];
}

/* The largest element, the first of equals; NaN wins. first: of the sample and channel. */
GPU_FN int window_best(const tri_gpu_window *w, tri_gpu_value x, int first, int oh, int ow)
{
    int best = -1;
    float top = 0;
    for (int i = window_low(w, 0, oh); i < window_high(w, 0, oh); i += w->dilation[0]) {
        for (int j = window_low(w, 1, ow); j < window_high(w, 1, ow); j += w->dilation[1]) {
            const int at = first + (i * w->in[1] + j) * w->channels;
            const float v = gpu_load(x, at);
            if (best < 0 || v > top || v != v) {
                best = at;
                top = v;
            }
        }
    }
    return best;
}

GPU_KERNEL(pool)
{
    const int o = (int)gpu_thread_x();
    if (o >= a.count) {
        return;
    }
    const int c = o % a.w.channels, ow = o / a.w.channels % a.w.out[1];
    const int oh = o / a.w.channels / a.w.out[1] % a.w.out[0], b = o / a.w.channels / a.w.out[1] / a.w.out[0];
    const int first = b * a.w.in[0] * a.w.in[1] * a.w.channels + c;
    if (!a.average) {
        gpu_store(a.y, o, gpu_load(a.x, window_best(&a.w, a.x, first, oh, ow)));
        return;
    }
    float sum = 0;
    for (int i = window_low(&a.w, 0, oh); i < window_high(&a.w, 0, oh); i += a.w.dilation[0]) {
        for (int j = window_low(&a.w, 1, ow); j < window_high(&a.w, 1, ow); j += a.w.dilation[1]) {
            sum += gpu_load(a.x, first + (i * a.w.in[1] + j) * a.w.channels);
        }
    }
    gpu_store(a.y, o, sum / (float)(window_count(&a.w, 0, oh) * window_count(&a.w, 1, ow)));
}

/* The output whose tap k lies on place `in`, or -1. */
GPU_FN int window_out(const tri_gpu_window *w, int axis, int in, int k)
{
    const int at = in + w->pad[axis] - k * w->dilation[axis];
    return at >= 0 && at % w->stride[axis] == 0 && at / w->stride[axis] < w->out[axis] ? at / w->stride[axis] : -1;
}

GPU_KERNEL(pool_back)
{
    const int i = (int)gpu_thread_x();
    if (i >= a.count) {
        return;
    }
    const int c = i % a.w.channels, iw = i / a.w.channels % a.w.in[1];
    const int ih = i / a.w.channels / a.w.in[1] % a.w.in[0], b = i / a.w.channels / a.w.in[1] / a.w.in[0];
    const int first = b * a.w.in[0] * a.w.in[1] * a.w.channels + c;
    float sum = 0;
    for (int kh = a.w.kernel[0] - 1; kh >= 0; kh--) { /* the windows in order */
        for (int kw = a.w.kernel[1] - 1; kw >= 0; kw--) {
            const int oh = window_out(&a.w, 0, ih, kh), ow = window_out(&a.w, 1, iw, kw);
            if (oh < 0 || ow < 0) {
                continue;
            }
            const float dy = gpu_load(a.dy, ((b * a.w.out[0] + oh) * a.w.out[1] + ow) * a.w.channels + c);
            if (a.average) {
                sum += dy / (float)(window_count(&a.w, 0, oh) * window_count(&a.w, 1, ow));
            } else if (window_best(&a.w, a.x, first, oh, ow) == i) {
                sum += dy;
            }
        }
    }
    gpu_store(a.dx, i, sum);
}

GPU_KERNEL(global_pool)
{
    const int64_t o = gpu_thread_x();
    if (o < a.count) {
        const int64_t first = o / a.channels * a.area * a.channels + o % a.channels;
        float sum = 0;
        for (int64_t i = 0; i < a.area; i++) {
            sum += gpu_load(a.x, first + i * a.channels);
        }
        gpu_store(a.y, o, sum / (float)a.area);
    }
}

GPU_KERNEL(global_back)
{
    const int64_t i = gpu_thread_x();
    if (i < a.count) {
        const int64_t o = i / (a.area * a.channels) * a.channels + i % a.channels;
        gpu_store(a.dx, i, gpu_load(a.dy, o) / (float)a.area);
    }
}
