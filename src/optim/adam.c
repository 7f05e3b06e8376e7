/* SPDX-License-Identifier: Apache-2.0
 *
 * adam.c: Kingma, Ba, "Adam", ICLR 2015, and AdamW: Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR
 * 2019.
 *
 * One pass: both moments, both bias corrections and the weights. As PyTorch: epsilon is added after the corrected root.
 */
#include <math.h>

#include "optim/step.h"

/* joined: weight decay as part of the gradient; shrink: decoupled, lr * decay, the fraction that a weight loses. It is
 * subtracted: 1 - lr * decay in f32 is 1 where lr * decay is below 3e-8, and 1.4 % off at 1e-6. */
TRI_CLONES static void adam_run(const optim_rates *rates, float joined, float shrink, float *restrict values,
                                const float *restrict grads, float *restrict mean, float *restrict square,
                                int64_t count)
{
    const float scale = rates->grad_scale, beta1 = rates->beta1, beta2 = rates->beta2, epsilon = rates->epsilon;
    const float fraction1 = rates->one_minus_beta1, fraction2 = rates->one_minus_beta2;
    const float step_lr = rates->step_lr, root_scale = rates->root_scale;
    for (int64_t i = 0; i < count; i++) {
        float g = scale * grads[i] + joined * values[i];
        float m = optim_average(mean[i], g, fraction1, beta1);
        float v = optim_average(square[i], g * g, fraction2, beta2);
        mean[i] = m;
        square[i] = v;
        values[i] -= shrink * values[i] + step_lr * (m / (sqrtf(v) * root_scale + epsilon));
    }
}

static void adam_step(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                      int64_t count)
{
    adam_run(rates, decay, 0.0f, values, grads, state[0], state[1], count);
}

static void adamw_step(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                       int64_t count)
{
    adam_run(rates, 0.0f, rates->lr * decay, values, grads, state[0], state[1], count);
}

const tri_optim_ops tri_optim_adam = {
    .name = "adam", .state = {"exp_avg", "exp_avg_sq"}, .gpu = TRI_GPU_ADAM, .step = adam_step};
const tri_optim_ops tri_optim_adamw = {
    .name = "adamw", .state = {"exp_avg", "exp_avg_sq"}, .gpu = TRI_GPU_ADAM, .shrinks = true, .step = adamw_step};
