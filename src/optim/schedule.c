/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c: the learning rate as a pure function of the step.
 *
 * Warm-up: step s of W has (s + 1) / W of the rate, so that the first step moves too. Behind it the fall runs over the
 * steps left; cosine and linear would reach final_factor at the step after the last.
 */
#include <math.h>
#include <string.h>

#include "optim/optim.h"

/* Part of the rate that is left when `progress` in [0, 1] of the fall is over. */
static double fall(const tri_optim_config *config, double progress)
{
    double low = config->final_factor;
    if (strcmp(config->schedule, "cosine") == 0)
        return low + (1 - low) * 0.5 * (1 + cos(3.14159265358979323846 * progress));
    if (strcmp(config->schedule, "linear") == 0)
        return 1 - (1 - low) * progress;
    return 1;
}

double tri_schedule_rate(const tri_optim_config *config, int64_t step, int64_t steps)
{
    int64_t warmup = config->warmup_steps;
    if (step < warmup)
        return config->lr * (double)(step + 1) / (double)warmup;
    if (strcmp(config->schedule, "step") == 0) {
        int64_t every = config->step_every > 0 ? config->step_every : steps / 3;
        return config->lr * pow(config->step_factor, every > 0 ? (double)(step / every) : 0);
    }
    double progress = steps > warmup ? (double)(step - warmup) / (double)(steps - warmup) : 1;
    return config->lr * fall(config, progress < 1 ? progress : 1);
}
