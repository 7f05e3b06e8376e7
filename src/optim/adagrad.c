/* SPDX-License-Identifier: Apache-2.0
 *
 * adagrad.c: Duchi, Hazan, Singer, "Adaptive subgradient methods for online learning and stochastic optimization", JMLR
 * 2011, with a diagonal matrix; as PyTorch's Adagrad: epsilon is added to the root of the sum of squares.
 */
#include <math.h>

#include "optim/step.h"

TRI_CLONES static void adagrad_run(const optim_rates *rates, float decay, float *restrict values,
                                   const float *restrict grads, float *restrict sum, int64_t count)
{
    const float lr = rates->lr, scale = rates->grad_scale, epsilon = rates->epsilon;
    for (int64_t i = 0; i < count; i++) {
        float g = scale * grads[i] + decay * values[i];
        float s = sum[i] + g * g;
        sum[i] = s;
        /* 0 / 0 without an epsilon: a weight that never had a gradient stays. */
        float root = sqrtf(s) + epsilon;
        values[i] -= root > 0 ? lr * (g / root) : 0.0f;
    }
}

static void adagrad_step(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                         int64_t count)
{
    adagrad_run(rates, decay, values, grads, state[0], count);
}

const tri_optim_ops tri_optim_adagrad = {
    .name = "adagrad", .state = {"sum"}, .accumulates = {true}, .gpu = TRI_GPU_ADAGRAD, .step = adagrad_step};
