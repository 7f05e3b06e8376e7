/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "optim/optim.h"

static tri_optim_config config_of(const char *schedule, int64_t warmup)
{
    tri_optim_config config;
    tri_options_defaults(&tri_optim_options, &config);
    assert_int_equal(tri_options_set(&tri_optim_options, &config, "schedule", schedule), TRI_OK);
    config.lr = 1;
    config.warmup_steps = warmup;
    return config;
}

static void schedules_have_their_known_figures(void **state)
{
    (void)state;
    const struct {
        const char *schedule;
        int64_t warmup, step;
        double rate;
    } cases[] = {
        {"constant", 0, 0, 1},   {"constant", 0, 99, 1},  {"constant", 10, 0, 0.1}, {"constant", 10, 9, 1},
        {"constant", 10, 10, 1}, {"cosine", 0, 0, 1},     {"cosine", 0, 50, 0.5},   {"cosine", 0, 100, 0},
        {"cosine", 20, 20, 1},   {"cosine", 20, 60, 0.5}, {"linear", 0, 25, 0.75},  {"linear", 0, 100, 0},
        {"step", 0, 32, 1},      {"step", 0, 33, 0.1},    {"step", 0, 66, 0.01},    {"step", 0, 99, 0.001},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_optim_config config = config_of(cases[i].schedule, cases[i].warmup);
        double rate = tri_schedule_rate(&config, cases[i].step, 100);
        if (fabs(rate - cases[i].rate) > 1e-12)
            fail_msg("%s step %lld: want %g, got %g", cases[i].schedule, (long long)cases[i].step, cases[i].rate, rate);
    }
}

static void final_factor_and_step_every_are_heard(void **state)
{
    (void)state;
    tri_optim_config config = config_of("cosine", 0);
    config.final_lr_fraction = 0.2;
    assert_true(fabs(tri_schedule_rate(&config, 100, 100) - 0.2) < 1e-12);
    config = config_of("linear", 0);
    config.final_lr_fraction = 0.2;
    assert_true(fabs(tri_schedule_rate(&config, 50, 100) - 0.6) < 1e-12);
    config = config_of("step", 0);
    config.step_every = 10;
    config.step_factor = 0.5;
    assert_true(fabs(tri_schedule_rate(&config, 25, 100) - 0.25) < 1e-12);
}

static void rates_behind_the_end_stay_at_the_last_one(void **state)
{
    (void)state;
    tri_optim_config config = config_of("linear", 0);
    assert_true(tri_schedule_rate(&config, 500, 100) == 0);
}

static void expect_rates(const tri_optim_config *config, const double (*cases)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double rate = tri_schedule_rate(config, (int64_t)cases[i][0], 100);
        if (fabs(rate - cases[i][1]) > 1e-12)
            fail_msg("%s step %g: want %.15g, got %.15g", config->schedule, cases[i][0], cases[i][1], rate);
    }
}

static void wsd_rises_stays_and_falls_in_the_shape_asked_for(void **state)
{
    (void)state;
    const double whole[][2] = {{0, 0.1}, {9, 1}, {10, 1}, {79, 1}, {80, 1}};
    const double sqrts[][2] = {{85, 0.5}, {99, 1 - 0.974679434480896}, {100, 0}, {200, 0}};
    const double lines[][2] = {{85, 0.75}, {90, 0.5}, {99, 0.05}};
    const double cosines[][2] = {{90, 0.5}, {85, 0.5 + 0.5 * 0.70710678118654752}};
    tri_optim_config config = config_of("wsd", 10);
    expect_rates(&config, whole, TRI_COUNT_OF(whole));
    expect_rates(&config, sqrts, TRI_COUNT_OF(sqrts));
    assert_int_equal(tri_options_set(&tri_optim_options, &config, "decay_shape", "linear"), TRI_OK);
    expect_rates(&config, whole, TRI_COUNT_OF(whole));
    expect_rates(&config, lines, TRI_COUNT_OF(lines));
    assert_int_equal(tri_options_set(&tri_optim_options, &config, "decay_shape", "cosine"), TRI_OK);
    expect_rates(&config, cosines, TRI_COUNT_OF(cosines));
    config.decay_fraction = 1; /* all that the warm-up leaves */
    const double all[][2] = {{10, 1}, {55, 0.5}, {100, 0}};
    expect_rates(&config, all, TRI_COUNT_OF(all));
}

static void the_lowest_rate_is_the_greater_of_both(void **state)
{
    (void)state;
    const char *const schedules[] = {"cosine", "linear", "wsd"};
    for (size_t i = 0; i < TRI_COUNT_OF(schedules); i++) {
        tri_optim_config config = config_of(schedules[i], 0);
        assert_int_equal(tri_options_set(&tri_optim_options, &config, "decay_shape", "linear"), TRI_OK);
        config.lr = 2;
        config.min_lr = 0.5;
        double middle = strcmp(schedules[i], "wsd") == 0 ? 90 : 50;
        const double floor[][2] = {{middle, 1.25}, {100, 0.5}};
        expect_rates(&config, floor, TRI_COUNT_OF(floor));
        config.final_lr_fraction = 0.1;
        expect_rates(&config, floor, TRI_COUNT_OF(floor));
        config.final_lr_fraction = 0.5;
        const double factor[][2] = {{middle, 1.5}, {100, 1}};
        expect_rates(&config, factor, TRI_COUNT_OF(factor));
    }
}

static void a_schedule_may_be_shorter_or_longer_than_the_run(void **state)
{
    (void)state;
    tri_optim_config config = config_of("cosine", 0);
    config.schedule_steps = 50;
    config.final_lr_fraction = 0.25;
    const double shorter[][2] = {{25, 0.625}, {50, 0.25}, {99, 0.25}};
    expect_rates(&config, shorter, TRI_COUNT_OF(shorter));
    config.schedule_steps = 200;
    const double longer[][2] = {{100, 0.625}};
    expect_rates(&config, longer, TRI_COUNT_OF(longer));
}

static void contradictions_are_found(void **state)
{
    (void)state;
    tri_optim_config config = config_of("cosine", 0);
    assert_int_equal(tri_schedule_check(&config), TRI_OK);
    config.min_lr = 1.5;
    assert_int_equal(tri_schedule_check(&config), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "optim.min_lr: want at most optim.lr, which is 1, got 1.5"));
    config = config_of("wsd", 20);
    config.schedule_steps = 10;
    assert_int_equal(tri_schedule_check(&config), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "optim.warmup_steps: want at most optim.schedule_steps, which is 10"));
}

static void a_plot_shows_each_rate_at_its_height(void **state)
{
    (void)state;
    tri_optim_config config = config_of("linear", 0);
    tri_string text = {0};
    assert_int_equal(tri_schedule_plot(&config, 8, 7, "# ", &text), TRI_OK);
    assert_string_equal(tri_string_text(&text), "#          1 | *\n"
                                                "#      0.857 |  *\n"
                                                "#      0.714 |   *\n"
                                                "#      0.571 |    *\n"
                                                "#      0.429 |     *\n"
                                                "#      0.286 |      *\n"
                                                "#      0.143 |       *\n"
                                                "#          0 |        *\n"
                                                "#              step 0 to 7; first 1, last 0\n");
    tri_string_clear(&text);
    config.lr = 0;
    assert_int_equal(tri_schedule_plot(&config, 1, 1, "", &text), TRI_OK);
    assert_non_null(strstr(tri_string_text(&text), "0 | *\n"));
    tri_string_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_have_their_known_figures),
        cmocka_unit_test(final_factor_and_step_every_are_heard),
        cmocka_unit_test(rates_behind_the_end_stay_at_the_last_one),
        cmocka_unit_test(wsd_rises_stays_and_falls_in_the_shape_asked_for),
        cmocka_unit_test(the_lowest_rate_is_the_greater_of_both),
        cmocka_unit_test(a_schedule_may_be_shorter_or_longer_than_the_run),
        cmocka_unit_test(contradictions_are_found),
        cmocka_unit_test(a_plot_shows_each_rate_at_its_height),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
