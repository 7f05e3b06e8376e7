/* SPDX-License-Identifier: Apache-2.0
 *
 * adam.c: Kingma, Ba, "Adam", ICLR 2015, and AdamW: Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR
 * 2019.
 *
 * One pass: both moments, both bias corrections and the weights. As PyTorch: epsilon is added after the corrected root.
 */
#include <math.h>

#include "optim/step.h"

/* joined: decay as part of the gradient; apart: what the weights keep before the step, 1 - lr * decay. */
TRI_CLONES static void adam_run(const optim_rates *rates, float joined, float kept, float *restrict values,
                                const float *restrict grads, float *restrict mean, float *restrict square,
                                int64_t count)
{
    const float scale = rates->grad_scale, beta1 = rates->beta1, beta2 = rates->beta2, epsilon = rates->epsilon;
    const float one_minus_first = 1.0f - beta1, one_minus_second = 1.0f - beta2;
    const float step_lr = rates->step_lr, root_scale = rates->root_scale;
    for (int64_t i = 0; i < count; i++) {
        float g = scale * grads[i] + joined * values[i];
        float m = beta1 * mean[i] + one_minus_first * g;
        float v = beta2 * square[i] + one_minus_second * (g * g);
        mean[i] = m;
        square[i] = v;
        values[i] = kept * values[i] - step_lr * (m / (sqrtf(v) * root_scale + epsilon));
    }
}

static void adam_step(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                      int64_t count)
{
    adam_run(rates, decay, 1.0f, values, grads, state[0], state[1], count);
}

static void adamw_step(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                       int64_t count)
{
    adam_run(rates, 0.0f, 1.0f - rates->lr * decay, values, grads, state[0], state[1], count);
}

const tri_optim_ops tri_optim_adam = {.name = "adam", .state = {"exp_avg", "exp_avg_sq"}, .step = adam_step};
const tri_optim_ops tri_optim_adamw = {.name = "adamw", .state = {"exp_avg", "exp_avg_sq"}, .step = adamw_step};
