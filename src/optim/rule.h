/* SPDX-License-Identifier: Apache-2.0
 *
 * rule.h: one row per optimizer: what it keeps per element and how an element moves.
 */
#ifndef TRI_OPTIM_RULE_H
#define TRI_OPTIM_RULE_H

#include "optim/optim.h"

/* Everything a move needs, worked out once a step. */
typedef struct tri_optim_move {
    const tri_optim_config *config;
    float lr, grad_scale;
    float correction1, correction2; /* adam: 1 / (1 - beta^t), 1 / sqrt(1 - beta2^t) */
} tri_optim_move;

typedef struct tri_optim_rule {
    const char *name;
    const char *does;
    const char *state_names[TRI_OPTIM_MAX_STATE]; /* NULL: fewer */
    /* values[i] moves for i in [0, count); all pointers begin at the same element. decay: the factor for this entry. */
    void (*move)(const tri_optim_move *move, float decay, float *values, const float *grads, float *const *state,
                 int64_t count);
} tri_optim_rule;

extern const tri_optim_rule tri_optim_sgd, tri_optim_adam, tri_optim_adamw;

#endif
