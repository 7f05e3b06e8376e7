/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest.c: grid, random, and TPE: Bergstra, Bardenet, Bengio, Kegl, "Algorithms for hyper-parameter optimization",
 * NIPS 2011, each option by itself; how many trials count as good, the number of candidates and the widths are those of
 * Watanabe, "Tree-structured Parzen estimator: understanding its algorithm components", 2023 (Optuna's).
 *
 * Trials that came further are before those that were ended earlier; among those that came equally far the metric
 * decides. Every random number is addressed by trial, row and use: nothing depends on what was asked before.
 */
#include "tune/suggest.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

#define CANDIDATES 24
#define GOOD_SHARE 0.1
#define GOOD_MOST  25
#define WIDTHS     100 /* a kernel is at least 1 / WIDTHS of the range wide */

static double uniform(tri_rng rng, uint64_t index)
{
    return (double)(tri_rng_u64(rng, index) >> 11) * 0x1p-53;
}

static tri_rng rng_of(const tri_sweep *sweep, const char *purpose, int number, int row)
{
    return (tri_rng){(uint64_t)sweep->tune.seed, tri_rng_stream(purpose, (uint64_t)number, (uint64_t)row)};
}

/* --- TPE --- */

typedef struct observed {
    const double *units;
    int64_t steps;
    double cost;
    int number;
} observed;

static int compare_observed(const void *a, const void *b)
{
    const observed *x = a, *y = b;
    if (x->steps != y->steps)
        return x->steps > y->steps ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Those that have a value, best first; *out is tri_free()d. */
static tri_status observed_list(const tri_sweep *sweep, const tri_trials *trials, observed **out, int *count)
{
    *count = 0;
    *out = tri_alloc_zero((size_t)tri_trials_count(trials) + 1, sizeof(**out));
    if (!*out)
        return TRI_ENOMEM;
    for (int i = 0; i < tri_trials_count(trials); i++) {
        const tri_trial *trial = tri_trials_at(trials, i);
        const tri_trial_point *last = tri_trial_last(trial);
        const bool failed = trial->state == TRI_TRIAL_FAILED || (last && isnan(last->value));
        if (trial->state == TRI_TRIAL_RUNNING || (!last && !failed))
            continue;
        (*out)[(*count)++] = (observed){.units = trial->units,
                                        .steps = failed ? 0 : last->step,
                                        .cost = failed ? (double)INFINITY : tri_sweep_cost(sweep, last->value),
                                        .number = trial->number};
    }
    qsort(*out, (size_t)*count, sizeof(**out), compare_observed);
    return TRI_OK;
}

/* One option among some trials: a mixture of normals around their units, cut to [0, 1], and a wide one (the prior); of
 * choices, counts. */
typedef struct estimate {
    double *centers, *widths;
    int count;   /* with the prior, which is the last */
    int choices; /* 0: numbers */
} estimate;

static int compare_doubles(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static tri_status estimate_make(const tri_space_row *row, int place, const observed *list, int count, estimate *e)
{
    *e = (estimate){.choices = row->kind == TRI_SPACE_CHOICE ? row->choice_count : 0};
    e->centers = tri_alloc_zero(2 * ((size_t)count + 1), sizeof(double));
    if (!e->centers)
        return TRI_ENOMEM;
    e->widths = e->centers + count + 1;
    for (int i = 0; i < count; i++)
        if (!isnan(list[i].units[place]))
            e->centers[e->count++] = list[i].units[place];
    e->centers[e->count++] = 0.5;
    /* The distance to the further neighbour, the bounds and the prior's middle being neighbours too. */
    const double least = 1.0 / (e->count < WIDTHS ? e->count : WIDTHS);
    qsort(e->centers, (size_t)e->count - 1, sizeof(double), compare_doubles);
    for (int i = 0; i + 1 < e->count; i++) {
        double below = e->centers[i] - (i > 0 ? e->centers[i - 1] : 0);
        double above = (i + 2 < e->count ? e->centers[i + 1] : 1) - e->centers[i];
        e->widths[i] = fmin(fmax(fmax(below, above), least), 1);
    }
    e->widths[e->count - 1] = 1;
    return TRI_OK;
}

static double normal_share(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

static double density(const estimate *e, double unit)
{
    double sum = 0;
    for (int i = 0; i < e->count; i++) {
        if (e->choices > 0) {
            bool prior = i + 1 == e->count, same = (int)(e->centers[i] * e->choices) == (int)(unit * e->choices);
            sum += prior ? 1.0 / e->choices : same;
            continue;
        }
        double z = (unit - e->centers[i]) / e->widths[i];
        double inside = normal_share((1 - e->centers[i]) / e->widths[i]) - normal_share(-e->centers[i] / e->widths[i]);
        sum += exp(-0.5 * z * z) / (e->widths[i] * inside);
    }
    return sum / e->count;
}

static double draw(const estimate *e, tri_rng rng, uint64_t candidate)
{
    enum { TRIES = 30 };
    const uint64_t at = candidate * (TRIES + 2);
    int kernel = (int)(uniform(rng, at) * e->count);
    kernel = kernel < e->count ? kernel : e->count - 1;
    if (e->choices > 0)
        return kernel + 1 < e->count ? e->centers[kernel]
                                     : (floor(uniform(rng, at + 1) * e->choices) + 0.5) / e->choices;
    for (uint64_t i = 0; i < TRIES; i++) {
        double unit = e->centers[kernel] + e->widths[kernel] * (double)tri_rng_normal(rng, at + 1 + i);
        if (unit >= 0 && unit < 1)
            return unit;
    }
    return e->centers[kernel];
}

/* The candidate that is likeliest among the good ones and least so among the others. */
static tri_status tpe_row(const tri_sweep *sweep, int place, const observed *list, int count, int number, double *unit)
{
    const tri_space_row *row = &sweep->space.rows[place];
    tri_rng rng = rng_of(sweep, "tune tpe", number, place);
    int good = (int)fmin(ceil(GOOD_SHARE * count), GOOD_MOST);
    estimate low, high;
    double best = (double)-INFINITY;
    TRI_TRY(estimate_make(row, place, list, good, &low));
    tri_status status = estimate_make(row, place, list + good, count - good, &high);
    for (uint64_t i = 0; i < CANDIDATES && status == TRI_OK; i++) {
        double candidate = draw(&low, rng, i), score = log(density(&low, candidate)) - log(density(&high, candidate));
        if (score > best) {
            best = score;
            *unit = candidate;
        }
    }
    tri_free(low.centers);
    tri_free(high.centers);
    return status;
}

static tri_status tpe(const tri_sweep *sweep, const tri_trials *trials, int number, double *units)
{
    observed *list;
    int count;
    tri_status status = observed_list(sweep, trials, &list, &count);
    const bool learns = count >= sweep->tune.startup;
    for (int r = 0; r < sweep->space.count && status == TRI_OK; r++) {
        units[r] = (double)NAN;
        if (!tri_space_is_active(&sweep->space, r, units))
            continue;
        units[r] = uniform(rng_of(sweep, "tune", number, r), 0);
        if (learns)
            status = tpe_row(sweep, r, list, count, number, &units[r]);
    }
    tri_free(list);
    return status;
}

/* --- all of them --- */

static void at_random(const tri_sweep *sweep, int number, double *units)
{
    for (int r = 0; r < sweep->space.count; r++) {
        units[r] = (double)NAN;
        if (tri_space_is_active(&sweep->space, r, units))
            units[r] = uniform(rng_of(sweep, "tune", number, r), 0);
    }
}

tri_status tri_suggest(const tri_sweep *sweep, tri_trials *trials, int number, tri_trial **out)
{
    double units[TRI_SPACE_MAX];
    *out = NULL;
    if (sweep->tune.search == TRI_SEARCH_GRID) {
        if (!tri_space_grid_point(&sweep->space, number, units))
            return TRI_OK;
    } else if (sweep->tune.search == TRI_SEARCH_TPE)
        TRI_TRY(tpe(sweep, trials, number, units));
    else
        at_random(sweep, number, units);
    TRI_TRY(tri_trials_add(trials, number, out));
    for (int r = 0; r < sweep->space.count; r++) {
        char text[1024];
        (*out)->units[r] = units[r];
        if (isnan(units[r]))
            continue;
        tri_space_value(&sweep->space.rows[r], units[r], text);
        TRI_TRY(tri_trial_param_add(*out, sweep->space.rows[r].name, text));
    }
    return TRI_OK;
}
