/* SPDX-License-Identifier: Apache-2.0
 *
 * sgd.c: stochastic gradient descent as PyTorch's SGD: b = momentum b + g, value -= lr b, or lr (g + momentum b) with
 * Nesterov.
 *
 * A buffer of zeros gives b = g in the first step, which is PyTorch's rule for it.
 */
#include "optim/step.h"

TRI_CLONES static void plain_run(const optim_rates *rates, float decay, float *restrict values,
                                 const float *restrict grads, int64_t count)
{
    const float lr = rates->lr, scale = rates->grad_scale;
    for (int64_t i = 0; i < count; i++)
        values[i] -= lr * (scale * grads[i] + decay * values[i]);
}

static void plain_step(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                       int64_t count)
{
    (void)state;
    plain_run(rates, decay, values, grads, count);
}

TRI_CLONES static void momentum_run(const optim_rates *rates, float decay, float *restrict values,
                                    const float *restrict grads, float *restrict buffer, int64_t count)
{
    const float lr = rates->lr, scale = rates->grad_scale, momentum = rates->momentum;
    for (int64_t i = 0; i < count; i++) {
        float b = momentum * buffer[i] + (scale * grads[i] + decay * values[i]);
        buffer[i] = b;
        values[i] -= lr * b;
    }
}

TRI_CLONES static void nesterov_run(const optim_rates *rates, float decay, float *restrict values,
                                    const float *restrict grads, float *restrict buffer, int64_t count)
{
    const float lr = rates->lr, scale = rates->grad_scale, momentum = rates->momentum;
    for (int64_t i = 0; i < count; i++) {
        float g = scale * grads[i] + decay * values[i];
        float b = momentum * buffer[i] + g;
        buffer[i] = b;
        values[i] -= lr * (g + momentum * b);
    }
}

static void momentum_step(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                          int64_t count)
{
    if (rates->nesterov)
        nesterov_run(rates, decay, values, grads, state[0], count);
    else
        momentum_run(rates, decay, values, grads, state[0], count);
}

const tri_optim_ops tri_optim_sgd = {
    .name = "sgd", .state = {"momentum"}, .gpu = TRI_GPU_MOMENTUM, .step = momentum_step};
/* Momentum 0: nothing to remember. */
const tri_optim_ops tri_optim_sgd_plain = {.name = "sgd", .gpu = TRI_GPU_SGD, .step = plain_step};
