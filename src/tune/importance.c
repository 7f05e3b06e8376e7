/* SPDX-License-Identifier: Apache-2.0
 *
 * importance.c: a one-way analysis of variance for each option.
 */
#include "tune/importance.h"

#include <math.h>
#include <stdlib.h>

#define LEAST_TRIALS 8
#define MOST_BINS    16

typedef struct sample {
    const double *units;
    double cost, rank, key;
} sample;

static int compare_steps(const void *a, const void *b)
{
    return (*(const int64_t *)a > *(const int64_t *)b) - (*(const int64_t *)a < *(const int64_t *)b);
}

static int compare_cost(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    return (x->cost > y->cost) - (x->cost < y->cost);
}

static int compare_key(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* The most steps that at least half of the trials with points have a point of. */
static tri_status step_find(const tri_trials *trials, int64_t *step)
{
    tri_vector steps = {.each = sizeof(int64_t)};
    int with = 0;
    *step = 0;
    for (int i = 0; i < tri_trials_count(trials); i++) {
        const tri_trial *trial = tri_trials_at(trials, i);
        const tri_trial_point *points = trial->points.items;
        with += trial->points.count > 0;
        for (size_t p = 0; p < trial->points.count; p++)
            if (!tri_vector_push(&steps, &points[p].step)) {
                tri_vector_fini(&steps);
                return TRI_ENOMEM;
            }
    }
    int64_t *list = steps.items;
    if (steps.count > 1)
        qsort(list, steps.count, sizeof(*list), compare_steps);
    for (size_t i = 0, run = 1; i < steps.count; i++, run++) {
        if (i + 1 < steps.count && list[i + 1] == list[i])
            continue;
        if (2 * (int)run >= with)
            *step = list[i];
        run = 0;
    }
    tri_vector_fini(&steps);
    return TRI_OK;
}

/* Those that have the row, in bins: its choices, or as many equally full ones as the root of their number. */
static double explained(const tri_space_row *row, int place, sample *list, int count)
{
    double sums[MOST_BINS * 64] = {0}, total = 0, squares = 0, between = 0;
    int counts[MOST_BINS * 64] = {0}, used = 0, filled = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(list[i].units[place])) {
            list[used] = list[i];
            list[used++].key = list[i].units[place];
        }
    const bool choice = row->kind == TRI_SPACE_CHOICE && row->choice_count <= MOST_BINS * 64;
    const int bins = choice ? row->choice_count : (int)fmin(sqrt(used), MOST_BINS);
    if (used < LEAST_TRIALS || bins < 2)
        return (double)NAN;
    qsort(list, (size_t)used, sizeof(*list), compare_key);
    for (int i = 0; i < used; i++) {
        int bin = choice ? (int)fmin(list[i].key * bins, bins - 1) : i * bins / used;
        sums[bin] += list[i].rank;
        counts[bin]++;
        total += list[i].rank;
        squares += list[i].rank * list[i].rank;
    }
    const double all = squares - total * total / used;
    for (int b = 0; b < bins; b++)
        if (counts[b] > 0) {
            between += sums[b] * sums[b] / counts[b];
            filled++;
        }
    between -= total * total / used;
    if (!(all > 0) || filled < 2 || used <= filled)
        return (double)NAN;
    return fmax(0, (between - (filled - 1) * (all - between) / (used - filled)) / all);
}

tri_status tri_importance(const tri_sweep *sweep, const tri_trials *trials, double *parts, int64_t *step)
{
    TRI_TRY(step_find(trials, step));
    sample *list = tri_alloc_zero(2 * (size_t)tri_trials_count(trials) + 1, sizeof(*list));
    int count = 0;
    if (!list)
        return TRI_ENOMEM;
    for (int i = 0; i < tri_trials_count(trials); i++) {
        const tri_trial *trial = tri_trials_at(trials, i);
        double cost = tri_sweep_cost(sweep, tri_trial_at(trial, *step));
        if (trial->state == TRI_TRIAL_FAILED)
            cost = (double)INFINITY; /* the worst */
        if (!isnan(cost))
            list[count++] = (sample){.units = trial->units, .cost = cost};
    }
    /* Equal ones share the mean of their places. */
    qsort(list, (size_t)count, sizeof(*list), compare_cost);
    for (int i = 0, j; i < count; i = j) {
        for (j = i; j < count && list[j].cost == list[i].cost; j++)
            ;
        for (int k = i; k < j; k++)
            list[k].rank = 0.5 * (i + j - 1);
    }
    sample *copy = list + count;
    for (int r = 0; r < sweep->space.count; r++) {
        for (int i = 0; i < count; i++)
            copy[i] = list[i];
        parts[r] = explained(&sweep->space.rows[r], r, copy, count);
    }
    tri_free(list);
    return TRI_OK;
}
