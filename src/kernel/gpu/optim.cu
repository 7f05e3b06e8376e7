/* SPDX-License-Identifier: Apache-2.0
 *
 * optim.cu: one step of an optimizer over a run of elements of a flat store: the formulas of src/optim, operation by
 * operation, so that these bits are the CPU's.
 */
#include "kernel/gpu/math.h"

/* A moving average takes in its newest value: optim/step.h. */
GPU_FN float step_average(float average, float newest, float fraction, float kept)
{
    return fraction < 0.5f ? average + fraction * (newest - average) : kept * average + fraction * newest;
}

/* s: the state of the element. */
GPU_FN float step_momentum(const tri_gpu_step_args *a, float g, float w, float *s)
{
    *s = a->momentum * *s + g;
    return w - a->lr * (a->optimizer == TRI_GPU_NESTEROV ? g + a->momentum * *s : *s);
}

GPU_FN float step_adam(const tri_gpu_step_args *a, float g, float w, float *m, float *v)
{
    *m = step_average(*m, g, a->one_minus_beta1, a->beta1);
    *v = step_average(*v, g * g, a->one_minus_beta2, a->beta2);
    return w - (a->shrink * w + a->step_lr * (*m / (gpu_sqrt(*v) * a->root_scale + a->epsilon)));
}

GPU_FN float step_adagrad(const tri_gpu_step_args *a, float g, float w, float *s)
{
    *s = *s + g * g;
    const float root = gpu_sqrt(*s) + a->epsilon;
    return w - (root > 0.0f ? a->lr * (g / root) : 0.0f);
}

GPU_FN float step_ftrl(const tri_gpu_step_args *a, float g, float w, float *sum, float *squares)
{
    const float inverse = 1.0f / a->lr, before = *squares, n = before + g * g, root = gpu_sqrt(n);
    *squares = n;
    *sum = *sum + (g - (root - gpu_sqrt(before)) * inverse * w);
    const float excess = gpu_abs(*sum) - a->l1, curve = (a->beta + root) * inverse + a->l2;
    return excess > 0.0f && curve > 0.0f ? -gpu_sign(excess, *sum) / curve : 0.0f;
}

GPU_FN float step_value(const tri_gpu_step_args *a, float w, float grad, float *first, float *second)
{
    const float g = a->grad_scale * grad + a->decay * w;
    switch (a->optimizer) {
    case TRI_GPU_AVERAGE:
        return step_average(w, grad * a->grad_scale, a->momentum, a->beta1);
    case TRI_GPU_SGD:
        return w - a->lr * g;
    case TRI_GPU_MOMENTUM:
    case TRI_GPU_NESTEROV:
        return step_momentum(a, g, w, first);
    case TRI_GPU_ADAM:
        return step_adam(a, g, w, first, second);
    case TRI_GPU_ADAGRAD:
        return step_adagrad(a, g, w, first);
    case TRI_GPU_FTRL:
        return step_ftrl(a, g, w, first, second);
    default: /* a new one whose case is missing shows at once */
        return gpu_float(0x7fc00000u);
    }
}

GPU_KERNEL(step)
{
    const int64_t i = gpu_run(), have = a.count - i;
    float w[TRI_GPU_EACH], g[TRI_GPU_EACH], first[TRI_GPU_EACH] = {0}, second[TRI_GPU_EACH] = {0};
    gpu_load_run(gpu_f32(a.values), i, have, w);
    gpu_load_run(gpu_f32(a.grads), i, have, g);
    if (a.state[0] != 0) {
        gpu_load_run(gpu_f32(a.state[0]), i, have, first);
    }
    if (a.state[1] != 0) {
        gpu_load_run(gpu_f32(a.state[1]), i, have, second);
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        w[k] = step_value(&a, w[k], g[k], &first[k], &second[k]);
    }
    gpu_store_run(gpu_f32(a.values), i, have, w);
    if (a.rounded.data != 0) {
        gpu_store_run(a.rounded, i, have, w);
    }
    if (a.state[0] != 0) {
        gpu_store_run(gpu_f32(a.state[0]), i, have, first);
    }
    if (a.state[1] != 0) {
        gpu_store_run(gpu_f32(a.state[1]), i, have, second);
    }
}
