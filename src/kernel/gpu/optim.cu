/* SPDX-License-Identifier: Apache-2.0
 *
 * optim.cu: one step of an optimizer over a run of elements of a flat store: the formulas of src/optim, operation by
 * operation, so that these bits are the CPU's. The copy of the weights in 16 bits is written by the same pass.
 */
#include "kernel/gpu/math.h"

/* A moving average takes in its newest value: optim/step.h. */
GPU_FN float step_average(float average, float newest, float fraction, float kept)
{
    return fraction < 0.5f ? average + fraction * (newest - average) : kept * average + fraction * newest;
}

GPU_FN float step_momentum(const tri_gpu_step_args *a, int64_t i, float g, float w)
{
    const float b = a->momentum * a->state[0][i] + g;
    a->state[0][i] = b;
    return w - a->lr * (a->optimizer == TRI_GPU_NESTEROV ? g + a->momentum * b : b);
}

GPU_FN float step_adam(const tri_gpu_step_args *a, int64_t i, float g, float w)
{
    const float m = step_average(a->state[0][i], g, a->one_minus_beta1, a->beta1);
    const float v = step_average(a->state[1][i], g * g, a->one_minus_beta2, a->beta2);
    a->state[0][i] = m;
    a->state[1][i] = v;
    return w - (a->shrink * w + a->step_lr * (m / (gpu_sqrt(v) * a->root_scale + a->epsilon)));
}

GPU_FN float step_adagrad(const tri_gpu_step_args *a, int64_t i, float g, float w)
{
    const float s = a->state[0][i] + g * g, root = gpu_sqrt(s) + a->epsilon;
    a->state[0][i] = s;
    return w - (root > 0.0f ? a->lr * (g / root) : 0.0f);
}

GPU_FN float step_ftrl(const tri_gpu_step_args *a, int64_t i, float g, float w)
{
    const float inverse = 1.0f / a->lr, before = a->state[1][i], n = before + g * g, root = gpu_sqrt(n);
    const float sum = a->state[0][i] + (g - (root - gpu_sqrt(before)) * inverse * w);
    const float excess = gpu_abs(sum) - a->l1, curve = (a->beta + root) * inverse + a->l2;
    a->state[1][i] = n;
    a->state[0][i] = sum;
    return excess > 0.0f && curve > 0.0f ? -gpu_sign(excess, sum) / curve : 0.0f;
}

GPU_FN float step_value(const tri_gpu_step_args *a, int64_t i)
{
    const float w = a->values[i], g = a->grad_scale * a->grads[i] + a->decay * w;
    if (a->optimizer == TRI_GPU_AVERAGE) {
        return step_average(w, a->grads[i] * a->grad_scale, a->momentum, a->beta1);
    }
    switch (a->optimizer) {
    case TRI_GPU_SGD:
        return w - a->lr * g;
    case TRI_GPU_MOMENTUM:
    case TRI_GPU_NESTEROV:
        return step_momentum(a, i, g, w);
    case TRI_GPU_ADAM:
        return step_adam(a, i, g, w);
    case TRI_GPU_ADAGRAD:
        return step_adagrad(a, i, g, w);
    default:
        return step_ftrl(a, i, g, w);
    }
}

GPU_KERNEL(step)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count) {
            const float w = step_value(&a, i);
            a.values[i] = w;
            if (a.copy.data != 0) {
                gpu_store(a.copy, i, w);
            }
        }
    }
}
