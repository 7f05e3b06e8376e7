/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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
            fail_msg("%s step %lld: want %g, found %g", cases[i].schedule, (long long)cases[i].step, cases[i].rate,
                     rate);
    }
}

static void final_factor_and_step_every_are_heard(void **state)
{
    (void)state;
    tri_optim_config config = config_of("cosine", 0);
    config.final_factor = 0.2;
    assert_true(fabs(tri_schedule_rate(&config, 100, 100) - 0.2) < 1e-12);
    config = config_of("linear", 0);
    config.final_factor = 0.2;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_have_their_known_figures),
        cmocka_unit_test(final_factor_and_step_every_are_heard),
        cmocka_unit_test(rates_behind_the_end_stay_at_the_last_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
