/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c: the learning rate as a pure function of the step.
 *
 * Warm-up: step s of W has (s + 1) / W of the rate, so that the first step updates the weights too. The decay follows
 * over the remaining steps, or with wsd over the last ones; it would reach its lowest rate at the step after the last.
 */
#include <math.h>

#include "base/status.h"
#include "optim/optim.h"

/* The lowest rate, as a fraction of lr. */
static double lowest(const tri_optim_config *config)
{
    double fraction = config->min_lr > 0 ? config->min_lr / config->lr : 0;
    return fraction > config->final_lr_fraction ? fraction : config->final_lr_fraction;
}

/* Fraction of the rate that is left when `progress` in [0, 1] of the decay is over. */
static double decayed(const tri_optim_config *config, tri_decay_shape shape, double progress)
{
    double low = lowest(config);
    switch (shape) {
    case TRI_DECAY_COSINE:
        return low + (1 - low) * 0.5 * (1 + cos(3.14159265358979323846 * progress));
    case TRI_DECAY_LINEAR:
        return 1 - (1 - low) * progress;
    case TRI_DECAY_SQRT:
        return 1 - (1 - low) * sqrt(progress);
    }
    return 1;
}

/* The step at which the decay begins. */
static int64_t decay_begin(const tri_optim_config *config, int64_t steps)
{
    int64_t warmup = config->warmup_steps;
    if (config->schedule != TRI_LR_WSD)
        return warmup;
    int64_t begin = steps - (int64_t)llround(config->decay_fraction * (double)steps);
    return begin > warmup ? begin : warmup;
}

double tri_schedule_rate(const tri_optim_config *config, int64_t step, int64_t steps)
{
    int64_t warmup = config->warmup_steps;
    if (config->schedule_steps > 0)
        steps = config->schedule_steps;
    if (step < warmup)
        return config->lr * (double)(step + 1) / (double)warmup;
    if (config->schedule == TRI_LR_STEP) {
        int64_t every = config->step_every > 0 ? config->step_every : steps / 3;
        return config->lr * pow(config->step_factor, every > 0 ? (double)(step / every) : 0);
    }
    int64_t begin = decay_begin(config, steps);
    if (step < begin || config->schedule == TRI_LR_CONSTANT)
        return config->lr;
    double progress = steps > begin ? (double)(step - begin) / (double)(steps - begin) : 1;
    tri_decay_shape shape = config->schedule == TRI_LR_WSD      ? config->decay_shape
                            : config->schedule == TRI_LR_COSINE ? TRI_DECAY_COSINE
                                                                : TRI_DECAY_LINEAR;
    return config->lr * decayed(config, shape, progress < 1 ? progress : 1);
}

tri_status tri_schedule_check(const tri_optim_config *config)
{
    if (config->min_lr > config->lr)
        return tri_fail(TRI_ECONFIG, "optim.min_lr: want at most optim.lr, which is %g, got %g", config->lr,
                        config->min_lr);
    if (config->schedule_steps > 0 && config->warmup_steps > config->schedule_steps)
        return tri_fail(TRI_ECONFIG, "optim.warmup_steps: want at most optim.schedule_steps, which is %lld, got %lld",
                        (long long)config->schedule_steps, (long long)config->warmup_steps);
    return TRI_OK;
}

/* --- as a picture --- */

#define PLOT_COLUMNS 60
#define PLOT_ROWS    8

/* The step that a column shows: the first and the last step have one each. */
static int64_t plot_step(int column, int columns, int64_t shown)
{
    return columns > 1 ? (int64_t)llround((double)column * (double)(shown - 1) / (columns - 1)) : 0;
}

tri_status tri_schedule_plot(const tri_optim_config *config, int64_t shown, int64_t steps, const char *prefix,
                             tri_string *out)
{
    int columns = shown < PLOT_COLUMNS ? (int)shown : PLOT_COLUMNS;
    double rates[PLOT_COLUMNS], top = 0;
    if (shown < 1)
        return TRI_OK;
    for (int c = 0; c < columns; c++) {
        rates[c] = tri_schedule_rate(config, plot_step(c, columns, shown), steps);
        top = rates[c] > top ? rates[c] : top;
    }
    for (int row = PLOT_ROWS - 1; row >= 0; row--) {
        char line[PLOT_COLUMNS + 1] = "";
        int used = 0;
        for (int c = 0; c < columns; c++) {
            int height = top > 0 ? (int)lround(rates[c] / top * (PLOT_ROWS - 1)) : 0;
            line[c] = height == row ? '*' : ' ';
            used = height == row ? c + 1 : used;
        }
        line[used] = 0;
        TRI_TRY(
            tri_string_appendf(out, "%s%10.3g |%s%s\n", prefix, top * row / (PLOT_ROWS - 1), used ? " " : "", line));
    }
    return tri_string_appendf(out, "%s%10s   step 0 to %lld; first %g, last %g\n", prefix, "", (long long)shown - 1,
                              rates[0], rates[columns - 1]);
}
