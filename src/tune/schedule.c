/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c: successive halving without waiting for a rung to fill, and the median rule.
 */
#include "tune/schedule.h"

#include <math.h>
#include <stdlib.h>

int64_t tri_schedule_first(const tri_sweep *sweep)
{
    return sweep->rung_count > 0 ? sweep->rungs[0] : sweep->tune.steps;
}

static double cost_at(const tri_sweep *sweep, const tri_trial *trial, int64_t step)
{
    double cost = tri_sweep_cost(sweep, tri_trial_at(trial, step));
    return isnan(cost) || trial->state == TRI_TRIAL_FAILED ? (double)INFINITY : cost;
}

/* A failed trial counts for the rung it was started for. */
static bool was_at(const tri_trial *trial, int64_t step)
{
    return !isnan(tri_trial_at(trial, step)) || (trial->state == TRI_TRIAL_FAILED && trial->target >= step);
}

/* Those that came to a rung, and how many of them are better than this one (equal ones: the earlier is). */
static int place_at(const tri_sweep *sweep, const tri_trials *trials, const tri_trial *trial, int64_t step, int *came)
{
    const double mine = cost_at(sweep, trial, step);
    int better = 0;
    *came = 0;
    for (int i = 0; i < tri_trials_count(trials); i++) {
        const tri_trial *other = tri_trials_at(trials, i);
        if (!was_at(other, step))
            continue;
        const double cost = cost_at(sweep, other, step);
        (*came)++;
        better += other != trial && (cost < mine || (cost == mine && other->number < trial->number));
    }
    return better;
}

/* The best of those waiting at a rung, if it is among the best of all that came there. */
static tri_trial *promote_from(const tri_sweep *sweep, const tri_trials *trials, int rung, bool last)
{
    const int64_t step = sweep->rungs[rung];
    for (int i = 0; i < tri_trials_count(trials); i++) {
        tri_trial *trial = tri_trials_at(trials, i);
        int came;
        if (trial->state != TRI_TRIAL_WAITING || trial->target != step || isinf(cost_at(sweep, trial, step)))
            continue;
        int better = place_at(sweep, trials, trial, step, &came);
        int go_on = came / (int)sweep->tune.eta;
        if (better < (last && go_on == 0 ? 1 : go_on))
            return trial;
    }
    return NULL;
}

tri_trial *tri_schedule_promote(const tri_sweep *sweep, const tri_trials *trials, bool last, int64_t *target)
{
    for (int i = 0; i + 1 < sweep->rung_count; i++) {
        int rung = last ? i : sweep->rung_count - 2 - i;
        tri_trial *trial = promote_from(sweep, trials, rung, last);
        if (!trial)
            continue;
        *target = sweep->rungs[rung + 1];
        return trial;
    }
    return NULL;
}

static int compare_doubles(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Of the values up to a step; NaN where the trial has not come as far. *best: the least of them. */
static double mean_to(const tri_sweep *sweep, const tri_trial *trial, int64_t step, double *best)
{
    const tri_trial_point *points = trial->points.items;
    double sum = 0;
    int count = 0;
    *best = (double)INFINITY;
    for (size_t i = 0; i < trial->points.count && points[i].step <= step; i++, count++) {
        sum += tri_sweep_cost(sweep, points[i].value);
        *best = fmin(*best, tri_sweep_cost(sweep, points[i].value));
    }
    const tri_trial_point *last = tri_trial_last(trial);
    return last && last->step >= step && count > 0 ? sum / count : (double)NAN;
}

static bool median_stops(const tri_sweep *sweep, const tri_trials *trials, const tri_trial *trial, int64_t step)
{
    double *means = tri_alloc_zero((size_t)tri_trials_count(trials) + 1, sizeof(double)), mine, ignored;
    int count = 0;
    bool stops = false;
    if (!means)
        return false; /* nothing is lost by continuing */
    for (int i = 0; i < tri_trials_count(trials); i++) {
        double mean = mean_to(sweep, tri_trials_at(trials, i), step, &ignored);
        if (tri_trials_at(trials, i) != trial && !isnan(mean))
            means[count++] = mean;
    }
    qsort(means, (size_t)count, sizeof(double), compare_doubles);
    (void)mean_to(sweep, trial, step, &mine);
    if (count >= sweep->tune.startup)
        stops = mine > 0.5 * (means[(count - 1) / 2] + means[count / 2]);
    tri_free(means);
    return stops;
}

bool tri_schedule_stops(const tri_sweep *sweep, const tri_trials *trials, const tri_trial *trial)
{
    const tri_trial_point *last = tri_trial_last(trial);
    if (!last)
        return false;
    if (sweep->tune.schedule == TRI_SWEEP_MEDIAN)
        return last->step >= sweep->tune.min_steps && median_stops(sweep, trials, trial, last->step);
    for (int i = 0; i + 1 < sweep->rung_count; i++) {
        int came;
        if (sweep->rungs[i] != last->step)
            continue;
        int better = place_at(sweep, trials, trial, last->step, &came);
        return came >= sweep->tune.eta && better >= came / (int)sweep->tune.eta;
    }
    return false;
}
