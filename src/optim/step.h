/* SPDX-License-Identifier: Apache-2.0
 *
 * step.h: the form of an optimizer: names of its state, and one fused pass over a run of elements of one entry.
 *
 * Included by files of optim/ and their tests only.
 */
#ifndef TRI_OPTIM_STEP_H
#define TRI_OPTIM_STEP_H

#include "base/clones.h"
#include "optim/optim.h"

/* Figures of one step, worked out once for all slices. */
typedef struct optim_rates {
    float lr, grad_scale;
    float momentum; /* sgd */
    bool nesterov;  /* sgd */
    float beta1, beta2, epsilon;
    float step_lr, root_scale; /* adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
} optim_rates;

typedef struct tri_optim_ops {
    const char *name;
    const char *state[TRI_OPTIM_MAX_STATE]; /* names of state arrays, NULL past the last */
    /* count elements of one entry: values move, state moves; decay is this entry's. */
    void (*step)(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                 int64_t count);
} tri_optim_ops;

extern const tri_optim_ops tri_optim_sgd, tri_optim_sgd_plain, tri_optim_adam, tri_optim_adamw;

#endif
