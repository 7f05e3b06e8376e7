/* SPDX-License-Identifier: Apache-2.0
 *
 * test_search.c: spaces, suggestions, schedules and importance, on trials whose values are a formula.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/fs.h"
#include "tune/importance.h"
#include "tune/schedule.h"
#include "tune/suggest.h"

static char folder[64];

static const char space_text[] = "space:\n"
                                 "  a.x: {uniform: [-1, 1], points: 3}\n"
                                 "  a.kind: {choice: [plain, [1, 2]]}\n"
                                 "  a.y: {log: [1e-4, 1], points: 2, when: {a.kind: [[1, 2]]}}\n"
                                 "  a.n: {int: [2, 8], step: 3}\n";

static tri_status load(const char *head, const char *space, tri_sweep *sweep)
{
    char path[100], text[2000];
    snprintf(path, sizeof(path), "%s/s.yaml", folder);
    snprintf(text, sizeof(text), "config: c.yaml\n%s%s", head, space);
    assert_int_equal(tri_fs_write_atomic(path, text, strlen(text)), TRI_OK);
    return tri_sweep_load(path, false, sweep);
}

static void open_new(const tri_sweep *sweep, tri_trials *trials)
{
    char path[100];
    const char *const names[] = {"trials.sqlite", "trials.sqlite-wal", "trials.sqlite-shm", "lock.sqlite"};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(tri_fs_remove(path), TRI_OK);
    }
    assert_int_equal(tri_trials_open(folder, sweep, false, trials), TRI_OK);
}

static void every_kind_of_row_is_read_and_wrong_ones_are_told(void **state)
{
    (void)state;
    tri_sweep sweep;
    static const struct {
        const char *space, *message;
    } wrong[] = {
        {"space: {a.x: {uniform: [1, 1]}}\n", "low < high"},
        {"space: {a.x: {log: [0, 1]}}\n", "above 0"},
        {"space: {a.x: {int: [0.5, 2]}}\n", "whole numbers"},
        {"space: {x: {int: [1, 2]}}\n", "section.key"},
        {"space: {a.x: {unifrom: [0, 1]}}\n", "uniform, log, int"},
        {"space: {a.x: {int: [1, 2], when: {a.y: 3}}}\n", "a row above"},
        {"space: {a.y: {choice: [1, 2]}, a.x: {int: [1, 2], when: {a.y: 3}}}\n", "never '3'"},
        {"spaec: {}\n", "did you mean 'space'"},
        {"schedule: asha\nspace: {a.x: {int: [1, 2]}}\n", "want steps"},
        {"search: grid\nspace: {a.x: {log: [1, 2]}}\n", "points"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        assert_int_equal(load("", wrong[i].space, &sweep), TRI_ECONFIG);
        if (!strstr(tri_last_error(), wrong[i].message))
            fail_msg("want '%s' in: %s", wrong[i].message, tri_last_error());
        tri_sweep_fini(&sweep);
    }
    assert_int_equal(load("", space_text, &sweep), TRI_OK);
    for (int r = 0; r < sweep.space.count; r++)
        for (double unit = 0; unit <= 1; unit += 1.0 / 64) {
            char text[1024], again[1024];
            tri_space_value(&sweep.space.rows[r], unit, text);
            double back = tri_space_unit(&sweep.space.rows[r], text);
            assert_true(back >= 0 && back <= 1);
            tri_space_value(&sweep.space.rows[r], back, again);
            if (sweep.space.rows[r].kind != TRI_SPACE_REAL)
                assert_string_equal(text, again);
            else
                assert_true(fabs(back - unit) < 1e-4);
        }
    assert_true(isnan(tri_space_unit(&sweep.space.rows[0], "1.5")));
    tri_sweep_fini(&sweep);
}

static void a_grid_has_each_combination_once(void **state)
{
    (void)state;
    tri_sweep sweep;
    tri_trials trials;
    tri_trial *trial;
    assert_int_equal(load("search: grid\n", space_text, &sweep), TRI_OK);
    assert_int_equal(sweep.tune.trials, 3 * (1 + 2) * 3); /* a.y is there for one of two kinds */
    open_new(&sweep, &trials);
    for (int n = 0; n < sweep.tune.trials; n++) {
        assert_int_equal(tri_suggest(&sweep, &trials, n, &trial), TRI_OK);
        assert_non_null(trial);
        for (int other = 0; other < n; other++)
            assert_true(memcmp(trial->units, tri_trials_at(&trials, other)->units, 4 * sizeof(double)) != 0);
        assert_true(isnan(trial->units[2]) == (trial->units[1] < 0.5));
    }
    assert_int_equal(tri_suggest(&sweep, &trials, (int)sweep.tune.trials, &trial), TRI_OK);
    assert_null(trial);
    tri_trials_close(&trials);
    tri_sweep_fini(&sweep);
}

/* The mean of the last 20 of 60 values of a formula. */
static double searched(const char *head, uint64_t *sum)
{
    tri_sweep sweep;
    tri_trials trials;
    tri_trial *trial;
    double mean = 0;
    assert_int_equal(load(head, space_text, &sweep), TRI_OK);
    open_new(&sweep, &trials);
    *sum = 0;
    for (int n = 0; n < 60; n++) {
        assert_int_equal(tri_suggest(&sweep, &trials, n, &trial), TRI_OK);
        const double *u = trial->units;
        double value = (u[0] - 0.3) * (u[0] - 0.3) + (isnan(u[2]) ? 0.5 : fabs(u[2] - 0.8));
        trial->state = TRI_TRIAL_DONE;
        assert_int_equal(tri_trials_save(&trials, trial), TRI_OK);
        assert_int_equal(tri_trials_point_add(&trials, trial, 10, value), TRI_OK);
        *sum = *sum * 31 + (uint64_t)(value * 1e9);
        mean += n >= 40 ? value / 20 : 0;
    }
    tri_trials_close(&trials);
    tri_sweep_fini(&sweep);
    return mean;
}

static void tpe_learns_and_repeats(void **state)
{
    (void)state;
    uint64_t first, again, other;
    double tpe = searched("search: tpe\nseed: 5\n", &first);
    searched("search: tpe\nseed: 5\n", &again);
    double random = searched("search: random\nseed: 5\n", &other);
    assert_int_equal(first, again);
    assert_true(first != other);
    assert_true(tpe < 0.6 * random);
}

static void asha_gives_a_third_three_times_the_steps(void **state)
{
    (void)state;
    tri_sweep sweep;
    tri_trials trials;
    tri_trial *trial;
    int64_t target;
    assert_int_equal(load("search: random\nschedule: asha\neta: 3\nsteps: 90\n", space_text, &sweep), TRI_OK);
    assert_int_equal(sweep.rung_count, 3);
    assert_int_equal(tri_schedule_first(&sweep), 10);
    open_new(&sweep, &trials);
    for (int n = 0; n < 9; n++) {
        assert_int_equal(tri_suggest(&sweep, &trials, n, &trial), TRI_OK);
        trial->state = n == 4 ? TRI_TRIAL_FAILED : TRI_TRIAL_WAITING;
        trial->target = 10;
        assert_int_equal(tri_trials_point_add(&trials, trial, 10, n == 4 ? (double)NAN : 9 - n), TRI_OK);
        trial = tri_schedule_promote(&sweep, &trials, false, &target);
        assert_true((trial != NULL) == (n >= 2));
    }
    for (int n = 8; n >= 6; n--) { /* the three best of nine, and no more */
        bool promoted = false;
        trial = tri_schedule_promote(&sweep, &trials, false, &target);
        for (int other = 6; other < 9; other++)
            promoted = promoted || trial == tri_trials_at(&trials, other);
        assert_true(promoted && target == 30);
        trial->target = target;
        assert_int_equal(tri_trials_point_add(&trials, trial, 30, trial->number), TRI_OK);
    }
    trial = tri_schedule_promote(&sweep, &trials, false, &target);
    assert_ptr_equal(trial, tri_trials_at(&trials, 6));
    assert_int_equal(target, 90);
    trial->state = TRI_TRIAL_DONE;
    trial->target = 90;
    assert_null(tri_schedule_promote(&sweep, &trials, false, &target));
    assert_ptr_equal(tri_trials_best(&trials, &sweep), trial);
    tri_trials_close(&trials);
    tri_sweep_fini(&sweep);
}

static void the_median_stops_what_is_worse(void **state)
{
    (void)state;
    tri_sweep sweep;
    tri_trials trials;
    tri_trial *trial = NULL;
    assert_int_equal(load("search: random\nschedule: median\nstartup: 4\nmin_steps: 20\n", space_text, &sweep), TRI_OK);
    open_new(&sweep, &trials);
    for (int n = 0; n < 6; n++) {
        assert_int_equal(tri_suggest(&sweep, &trials, n, &trial), TRI_OK);
        for (int64_t step = 10; step <= (n < 4 ? 40 : 10); step += 10)
            assert_int_equal(tri_trials_point_add(&trials, trial, step, n < 4 ? n : 2.5 - 2 * (n == 5)), TRI_OK);
    }
    tri_trial *good = trial, *bad = tri_trials_at(&trials, 4);
    assert_false(tri_schedule_stops(&sweep, &trials, bad)); /* before min_steps */
    assert_int_equal(tri_trials_point_add(&trials, bad, 20, 2.5), TRI_OK);
    assert_int_equal(tri_trials_point_add(&trials, good, 20, 3.0), TRI_OK); /* its best counts */
    assert_true(tri_schedule_stops(&sweep, &trials, bad));
    assert_false(tri_schedule_stops(&sweep, &trials, good));
    tri_trials_close(&trials);
    tri_sweep_fini(&sweep);
}

static void what_matters_has_the_longest_bar(void **state)
{
    (void)state;
    tri_sweep sweep;
    tri_trials trials;
    tri_trial *trial;
    double parts[TRI_SPACE_MAX];
    int64_t step;
    assert_int_equal(load("search: random\n", space_text, &sweep), TRI_OK);
    open_new(&sweep, &trials);
    for (int n = 0; n < 64; n++) {
        assert_int_equal(tri_suggest(&sweep, &trials, n, &trial), TRI_OK);
        assert_int_equal(tri_trials_point_add(&trials, trial, 5, trial->units[0] + 0.1 * trial->units[3]), TRI_OK);
        if (n % 4 == 0)
            assert_int_equal(tri_trials_point_add(&trials, trial, 50, 1), TRI_OK);
    }
    assert_int_equal(tri_importance(&sweep, &trials, parts, &step), TRI_OK);
    assert_int_equal(step, 5);
    assert_true(parts[0] > 0.9 && parts[1] < 0.15 && parts[3] < 0.3);
    tri_trials_close(&trials);
    tri_sweep_fini(&sweep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_row_is_read_and_wrong_ones_are_told),
        cmocka_unit_test(a_grid_has_each_combination_once),
        cmocka_unit_test(tpe_learns_and_repeats),
        cmocka_unit_test(asha_gives_a_third_three_times_the_steps),
        cmocka_unit_test(the_median_stops_what_is_worse),
        cmocka_unit_test(what_matters_has_the_longest_bar),
    };
    snprintf(folder, sizeof(folder), "/tmp/trireme-tune-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    tri_fs_remove(folder);
    return failures;
}
