/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: the optimizers that there are, the options they hear, and the figures of a step.
 */
#include <math.h>

#include "optim/step.h"

#define TRI_OPTION_STRUCT tri_optim_config
static const tri_option rows[] = {TRI_OPTIM_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_optim_options =
    TRI_OPTION_TABLE("optim", tri_optim_config, rows, "optimizer and learning rate");

static const tri_optim_ops *const table[] = {
#define OPTIM_ROW(A, NAME, name) [TRI_OPTIM_##NAME] = &tri_optim_##name,
    TRI_OPTIM_LIST(OPTIM_ROW, )
#undef OPTIM_ROW
};

const char *const *tri_optim_names(void)
{
    return tri_options_find(&tri_optim_options, "name")->words;
}

static tri_status check_config(const tri_optim_ops *ops, const tri_optim_config *config)
{
    bool moments = ops == &tri_optim_adam || ops == &tri_optim_adamw;
    if (moments && (config->beta1 >= 1 || config->beta2 >= 1))
        return tri_fail(TRI_ECONFIG, "optim.beta1, optim.beta2: want less than 1, got %g and %g", config->beta1,
                        config->beta2);
    if (ops == &tri_optim_sgd && config->nesterov && config->momentum == 0)
        return tri_fail(TRI_ECONFIG, "optim.nesterov requires optim.momentum above 0");
    return TRI_OK;
}

tri_status optim_ops_find(const tri_optim_config *config, const tri_optim_ops **out)
{
    bool plain = config->name == TRI_OPTIM_SGD && config->momentum == 0;
    *out = plain ? &tri_optim_sgd_plain : table[config->name];
    return check_config(table[config->name], config);
}

optim_rates optim_rates_make(const tri_optim_config *config, const tri_optim_scalars *figures, double lr_scale)
{
    double taken = (double)(figures->step + 1), lr = figures->lr * lr_scale;
    return (optim_rates){
        .lr = (float)lr,
        .grad_scale = figures->grad_scale,
        .momentum = (float)config->momentum,
        .nesterov = config->nesterov,
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .epsilon = (float)config->epsilon,
        .one_minus_beta1 = (float)(1 - config->beta1),
        .one_minus_beta2 = (float)(1 - config->beta2),
        .step_lr = (float)(lr / (1 - pow(config->beta1, taken))),
        .root_scale = (float)(1 / sqrt(1 - pow(config->beta2, taken))),
        .beta = (float)config->beta,
        .l1 = (float)config->l1,
        .l2 = (float)config->l2,
    };
}

int tri_optim_states(const tri_optim_config *config)
{
    const tri_optim_ops *ops;
    int count = 0;
    if (optim_ops_find(config, &ops) != TRI_OK)
        return 0;
    while (count < TRI_OPTIM_MAX_STATE && ops->state[count])
        count++;
    return count;
}
