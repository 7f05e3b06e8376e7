/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c: what a sweep has found: a table, the best configuration, how much each option matters.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/tune/tune.h"
#include "tune/importance.h"

#define ROWS_SHOWN 20

static const tri_sweep *sorted_sweep; /* of the comparison below; a report is one at a time */

/* Those that came further first, then by the metric, then by number. */
static int compare_trials(const void *a, const void *b)
{
    const tri_trial *x = *(const tri_trial *const *)a, *y = *(const tri_trial *const *)b;
    const tri_trial_point *p = tri_trial_last(x), *q = tri_trial_last(y);
    int64_t p_step = p ? p->step : -1, q_step = q ? q->step : -1;
    if (p_step != q_step)
        return p_step > q_step ? -1 : 1;
    double p_cost = p ? tri_sweep_cost(sorted_sweep, p->value) : 0,
           q_cost = q ? tri_sweep_cost(sorted_sweep, q->value) : 0;
    if (p_cost != q_cost && !isnan(p_cost) && !isnan(q_cost))
        return p_cost < q_cost ? -1 : 1;
    if (isnan(p_cost) != isnan(q_cost))
        return isnan(p_cost) ? 1 : -1;
    return x->number - y->number;
}

/* Steps that were trained for a sweep: of a failed trial all that it was started for. */
static int64_t steps_of(const tri_trial *trial)
{
    const tri_trial_point *last = tri_trial_last(trial);
    int64_t seen = last ? last->step : 0;
    return trial->state == TRI_TRIAL_FAILED && trial->target > seen ? trial->target : seen;
}

static int64_t steps_of_all(const tri_trials *trials)
{
    int64_t steps = 0;
    for (int i = 0; i < tri_trials_count(trials); i++)
        steps += steps_of(tri_trials_at(trials, i));
    return steps;
}

static void params_json(tri_json *json, const tri_trial *trial)
{
    const tri_trial_param *params = trial->params.items;
    tri_json inner = tri_json_object_in(json, "params");
    for (size_t i = 0; i < trial->params.count; i++)
        tri_json_text(&inner, params[i].name, params[i].text);
    (void)tri_json_end(&inner); /* the outer one has its failure */
}

static void trial_json(tri_json *list, const tri_trial *trial)
{
    const tri_trial_point *points = trial->points.items, *last = tri_trial_last(trial);
    tri_json json = tri_json_object_in(list, NULL);
    tri_json_int(&json, "trial", trial->number);
    tri_json_text(&json, "state", tri_trial_state_text(trial->state));
    tri_json_int(&json, "step", last ? last->step : 0);
    tri_json_real(&json, "value", last ? last->value : (double)NAN);
    tri_json_real(&json, "seconds", trial->seconds);
    if (trial->error[0])
        tri_json_text(&json, "error", trial->error);
    params_json(&json, trial);
    tri_json all = tri_json_array_in(&json, "points");
    for (size_t i = 0; i < trial->points.count; i++) {
        tri_json one = tri_json_array_in(&all, NULL);
        tri_json_int(&one, NULL, points[i].step);
        tri_json_real(&one, NULL, points[i].value);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&all);
    (void)tri_json_end(&json);
}

static void report_fields(const tri_tune_work *work, tri_trial *const *order, const tri_trial *best,
                          const double *parts, int64_t step, tri_json *json)
{
    const int count = tri_trials_count(&work->trials);
    tri_json_text(json, "metric", tri_sweep_metric_word(work->sweep.tune.metric));
    tri_json_text(json, "search", tri_sweep_search_word(work->sweep.tune.search));
    tri_json_text(json, "schedule", tri_sweep_schedule_word(work->sweep.tune.schedule));
    tri_json_int(json, "steps", steps_of_all(&work->trials));
    if (best)
        tri_json_int(json, "best", best->number);
    tri_json importance = tri_json_object_in(json, "importance");
    for (int r = 0; r < work->sweep.space.count; r++)
        tri_json_real(&importance, work->sweep.space.rows[r].name, parts[r]);
    (void)tri_json_end(&importance);
    tri_json_int(json, "importance_step", step);
    tri_json list = tri_json_array_in(json, "trials");
    for (int i = 0; i < count; i++)
        trial_json(&list, order[i]);
    (void)tri_json_end(&list);
}

static tri_status print_json(const tri_tune_work *work, tri_trial *const *order, const tri_trial *best,
                             const double *parts, int64_t step)
{
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    report_fields(work, order, best, parts, step, &json);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

static void print_row(const tri_trial *trial, const tri_trial *best)
{
    const tri_trial_point *last = tri_trial_last(trial);
    const tri_trial_param *params = trial->params.items;
    printf("%c%5d  %-8s %8lld  ", trial == best ? '*' : ' ', trial->number, tri_trial_state_text(trial->state),
           (long long)(last ? last->step : 0));
    if (last)
        printf("%-11.6g", last->value);
    else
        printf("%-11s", "-");
    for (size_t i = 0; i < trial->params.count; i++)
        printf(" %s=%s", params[i].name, params[i].text);
    printf("\n");
}

static void print_table(const tri_tune_work *work, tri_trial *const *order, const tri_trial *best, const double *parts,
                        int64_t step)
{
    const int count = tri_trials_count(&work->trials);
    printf(" trial  state       steps  %-11s options\n", tri_sweep_metric_word(work->sweep.tune.metric));
    for (int i = 0; i < count && i < ROWS_SHOWN; i++)
        print_row(order[i], best);
    if (count > ROWS_SHOWN)
        printf("   and %d more (--json has all)\n", count - ROWS_SHOWN);
    printf("%lld steps in all\n", (long long)steps_of_all(&work->trials));
    for (int r = 0; r < work->sweep.space.count; r++) {
        if (r == 0)
            printf("\nimportance (part of the variance of ranks after %lld steps, each option by itself)\n",
                   (long long)step);
        if (isnan(parts[r]))
            printf("  %-28s -\n", work->sweep.space.rows[r].name);
        else
            printf("  %-28s %.2f %.*s\n", work->sweep.space.rows[r].name, parts[r], (int)lround(40 * parts[r]),
                   "########################################");
    }
}

/* What the best trial's run was configured with. A trial that others ran has options alone. */
tri_status tri_tune_best_config(const tri_tune_work *work, const tri_trial *best, tri_string *out)
{
    char path[1400], run[1300], *text;
    size_t nbytes;
    tri_tuner_run_folder(work->folder, best->number, run);
    snprintf(path, sizeof(path), "%s/config.yaml", run);
    if (tri_fs_exists(path)) {
        TRI_TRY(tri_fs_read(path, 1u << 20, &text, &nbytes));
        tri_status status = tri_string_append_bytes(out, text, nbytes);
        tri_free(text);
        return status;
    }
    const tri_trial_param *params = best->params.items;
    for (size_t i = 0; i < best->params.count; i++)
        TRI_TRY(tri_string_appendf(out, "# %s=%s\n", params[i].name, params[i].text));
    return TRI_OK;
}

/* best.yaml and report.html, beside the trials. */
static tri_status files_write(const tri_tune_work *work, const tri_trial *best, const double *parts, int64_t step)
{
    char path[1300];
    tri_string text = {0};
    tri_status status = TRI_OK;
    snprintf(path, sizeof(path), "%s/best.yaml", work->folder);
    if (best && (status = tri_tune_best_config(work, best, &text)) == TRI_OK)
        status = tri_fs_write_atomic(path, tri_string_text(&text), text.nbytes);
    tri_string_clear(&text);
    snprintf(path, sizeof(path), "%s/report.html", work->folder);
    if (status == TRI_OK && (status = tri_tune_page(work, parts, step, &text)) == TRI_OK)
        status = tri_fs_write_atomic(path, tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    return status;
}

static tri_trial **trials_sort(const tri_tune_work *work)
{
    const int count = tri_trials_count(&work->trials);
    tri_trial **order = tri_alloc_zero((size_t)count + 1, sizeof(tri_trial *));
    for (int i = 0; order && i < count; i++)
        order[i] = tri_trials_at(&work->trials, i);
    sorted_sweep = &work->sweep;
    if (order)
        qsort(order, (size_t)count, sizeof(tri_trial *), compare_trials);
    return order;
}

tri_status tri_tune_json(const tri_tune_work *work, tri_json *json)
{
    double parts[TRI_SPACE_MAX];
    int64_t step;
    TRI_TRY(tri_importance(&work->sweep, &work->trials, parts, &step));
    tri_trial **order = trials_sort(work);
    if (!order)
        return TRI_ENOMEM;
    report_fields(work, order, tri_trials_best(&work->trials, &work->sweep), parts, step, json);
    tri_free(order);
    return TRI_OK;
}

tri_status tri_tune_report(tri_tune_work *work, bool json)
{
    double parts[TRI_SPACE_MAX];
    int64_t step;
    const tri_trial *best = tri_trials_best(&work->trials, &work->sweep);
    TRI_TRY(tri_importance(&work->sweep, &work->trials, parts, &step));
    tri_trial **order = trials_sort(work);
    if (!order)
        return TRI_ENOMEM;
    tri_status status = files_write(work, best, parts, step);
    if (status == TRI_OK && json)
        status = print_json(work, order, best, parts, step);
    else if (status == TRI_OK) {
        print_table(work, order, best, parts, step);
        if (best)
            printf("\nbest: trial %d, its configuration in %s/best.yaml\n", best->number, work->folder);
        printf("page: %s/report.html\n", work->folder);
    }
    tri_free(order);
    return status;
}
