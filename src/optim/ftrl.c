/* SPDX-License-Identifier: Apache-2.0
 *
 * ftrl.c: FTRL-Proximal with rates of each coordinate: McMahan et al., "Ad click prediction: a view from the trenches",
 * KDD 2013, algorithm 1; alpha is the learning rate.
 *
 * A weight is a function of its state: what it was before the first step is forgotten but for sigma w. With L1 most of
 * what has little gradient is exactly 0.
 */
#include <math.h>

#include "optim/step.h"

TRI_CLONES static void ftrl_run(const optim_rates *rates, float decay, float *restrict values,
                                const float *restrict grads, float *restrict z, float *restrict squares, int64_t count)
{
    const float scale = rates->grad_scale, beta = rates->beta, l1 = rates->l1, l2 = rates->l2;
    const float inverse = 1.0f / rates->lr;
    for (int64_t i = 0; i < count; i++) {
        float g = scale * grads[i] + decay * values[i];
        float n = squares[i] + g * g, root = sqrtf(n);
        float sigma = (root - sqrtf(squares[i])) * inverse;
        float sum = z[i] + (g - sigma * values[i]);
        float excess = fabsf(sum) - l1, curve = (beta + root) * inverse + l2;
        squares[i] = n;
        z[i] = sum;
        values[i] = excess > 0 && curve > 0 ? -copysignf(excess, sum) / curve : 0.0f;
    }
}

static void ftrl_step(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                      int64_t count)
{
    if (rates->lr > 0) /* else nothing moves */
        ftrl_run(rates, decay, values, grads, state[0], state[1], count);
}

const tri_optim_ops tri_optim_ftrl = {
    .name = "ftrl", .state = {"z", "n"}, .accumulates = {false, true}, .gpu = TRI_GPU_FTRL, .step = ftrl_step};
