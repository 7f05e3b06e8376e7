/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/groups.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "unit/optim/optim_store.h"

static float values[STORE_COUNT], grads[STORE_COUNT], before[STORE_COUNT], expected[STORE_COUNT];

static tri_optim_config config_of(const char *groups)
{
    tri_optim_config config;
    tri_options_defaults(&tri_optim_options, &config);
    config.weight_decay = 0.25;
    config.momentum = 0;
    assert_int_equal(tri_options_set(&tri_optim_options, &config, "groups", groups), TRI_OK);
    return config;
}

static void globs_fit_as_in_a_shell(void **state)
{
    (void)state;
    const struct {
        const char *glob, *text;
        bool fits;
    } cases[] = {
        {"*", "", true},
        {"*", "fc.bias", true},
        {"*.bias", "fc.bias", true},
        {"*.bias", "fc.bias2", false},
        {"fc.*", "fc.", true},
        {"fc.*", "fc", false},
        {"f?.bias", "fc.bias", true},
        {"f?.bias", "f.bias", false},
        {"", "", true},
        {"", "a", false},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "aXcYb", false},
        {"*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"**", "x", true},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        if (optim_glob_fits(cases[i].glob, cases[i].text) != cases[i].fits)
            fail_msg("'%s' on '%s': want %d", cases[i].glob, cases[i].text, cases[i].fits);
}

/* One step of plain sgd, lr 0.1: each entry with its own rate and decay. */
static void expect_step(const char *groups, const char *decay, const float lr[2], const float decays[2])
{
    tri_optim_config config = config_of(groups);
    tri_optim *optim;
    assert_int_equal(tri_options_set(&tri_optim_options, &config, "decay", decay), TRI_OK);
    if (tri_optim_create(&config, &store, 2, &optim) != TRI_OK)
        fail_msg("%s", tri_last_error());
    store_fill(values, grads);
    memcpy(before, values, sizeof(values));
    tri_optim_scalars figures = {.lr = 0.1f, .grad_scale = 0.5f, .buffer_scale = 0.25f};
    tri_optim_step(optim, &figures, values, grads, 0, STORE_COUNT);
    for (int e = 0; e < 2; e++)
        for (int64_t i = store_entries[e].first; i < store_entries[e].first + store_entries[e].count; i++) {
            float want = before[i] - lr[e] * (0.5f * grads[i] + decays[e] * before[i]);
            if (fabsf(values[i] - want) > 1e-6f)
                fail_msg("%s: element %lld: want %.9g, got %.9g", groups, (long long)i, (double)want,
                         (double)values[i]);
        }
    tri_optim_destroy(optim);
}

static void rules_give_their_parameters_rate_and_decay(void **state)
{
    (void)state;
    const float usual[2] = {0.1f, 0.1f};
    expect_step("[]", "all", usual, (const float[2]){0.25f, 0.25f});
    expect_step("[]", "weights", usual, (const float[2]){0.25f, 0});
    expect_step("[{match: '*.bias', weight_decay: 0, lr_scale: 0.5}]", "all", (const float[2]){0.1f, 0.05f},
                (const float[2]){0.25f, 0});
    expect_step("[{match: '*', lr_scale: 2}]", "weights", (const float[2]){0.2f, 0.2f}, (const float[2]){0.25f, 0});
    expect_step("[{match: fc.weight, weight_decay: 1}, {match: '*', lr_scale: 0}]", "all", (const float[2]){0.1f, 0},
                (const float[2]){1, 0.25f});
}

static void slices_and_threads_change_no_bit(void **state)
{
    (void)state;
    const char *const names[] = {"sgd", "adam", "adamw"};
    for (size_t n = 0; n < TRI_COUNT_OF(names); n++)
        for (int variant = 0; variant < 4; variant++) {
            tri_optim_config config = config_of("[{match: '*.bias', weight_decay: 0.5, lr_scale: 0.3}]");
            assert_int_equal(tri_options_set(&tri_optim_options, &config, "name", names[n]), TRI_OK);
            tri_optim *optim;
            assert_int_equal(tri_optim_create(&config, &store, 1 + variant % 3, &optim), TRI_OK);
            store_fill(values, grads);
            for (int64_t step = 0; step < 2; step++) {
                tri_optim_scalars figures = {.step = step, .lr = 0.1f, .grad_scale = 0.5f, .buffer_scale = 0.25f};
                int64_t piece = variant == 0 ? STORE_COUNT : 1777 * variant;
                for (int64_t first = 0; first < STORE_COUNT; first += piece)
                    tri_optim_step(optim, &figures, values, grads, first,
                                   STORE_COUNT - first < piece ? STORE_COUNT - first : piece);
            }
            if (variant == 0)
                memcpy(expected, values, sizeof(values));
            assert_memory_equal(values, expected, sizeof(values));
            tri_optim_destroy(optim);
        }
}

static void wrong_rules_name_the_rule_and_what_was_found(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"[x]", "optim.groups: rule 1: want fields such as {match"},
        {"[{match: '*'}, {lr_scale: 1}]", "rule 2: want match, a glob"},
        {"[{match: [a]}]", "rule 1: match: want one glob of at most 127 bytes"},
        {"[{match: '*', lr_scal: 1}]",
         "rule 1: lr_scal: want match, lr_scale or weight_decay; did you mean 'lr_scale'?"},
        {"[{match: '*', lr_scale: -1}]", "rule 1: lr_scale"},
        {"[{match: '*', weight_decay: much}]", "rule 1: weight_decay"},
        {"[{match: fc.bia}]", "rule 1: 'fc.bia' names no parameter; there is 'fc.bias'"},
        {"[{match: norm.mean}]", "names no parameter"}, /* a buffer */
        {"[{match: 'fc.*'}, {match: fc.bias}]",
         "rule 2: all that 'fc.bias' names is taken by earlier rules, as by 'fc.*'"},
        {"[{match: '*'", "optim.groups"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_optim_config config = config_of(cases[i][0]);
        tri_optim *optim;
        assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_ECONFIG);
        if (!strstr(tri_last_error(), cases[i][1]))
            fail_msg("want '%s' in: %s", cases[i][1], tri_last_error());
    }
}

static void more_rules_than_there_is_room_for_are_refused(void **state)
{
    (void)state;
    char text[1024] = "[";
    for (int i = 0; i < OPTIM_MAX_GROUPS; i++)
        strcat(text, i > 0 ? ", {match: '*'}" : "{match: '*'}");
    strcat(text, "]");
    tri_optim_config config = config_of(text);
    tri_optim *optim;
    assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "want at most 32 rules, got 33"));
}

static void groups_are_told_with_their_counts(void **state)
{
    (void)state;
    tri_optim_config config = config_of("[{match: '*.bias', weight_decay: 0, lr_scale: 0.5}]");
    tri_string text = {0};
    assert_int_equal(tri_optim_groups_print(&config, &store, "# ", &text), TRI_OK);
    assert_string_equal(tri_string_text(&text),
                        "# rule 1 \"*.bias\": 1 parameter, 5 elements, lr 0.05, weight decay 0\n"
                        "# the others: 1 parameter, 39997 elements, lr 0.1, weight decay 0.25\n");
    tri_string_clear(&text);
    config = config_of("[]");
    assert_int_equal(tri_options_set(&tri_optim_options, &config, "decay", "weights"), TRI_OK);
    assert_int_equal(tri_optim_groups_print(&config, &store, "", &text), TRI_OK);
    assert_string_equal(tri_string_text(&text),
                        "all parameters by optim.decay: 1 parameter, 39997 elements, lr 0.1, weight decay 0.25\n"
                        "all parameters by optim.decay: 1 parameter, 5 elements, lr 0.1, weight decay 0\n");
    tri_string_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs_fit_as_in_a_shell),
        cmocka_unit_test(rules_give_their_parameters_rate_and_decay),
        cmocka_unit_test(slices_and_threads_change_no_bit),
        cmocka_unit_test(wrong_rules_name_the_rule_and_what_was_found),
        cmocka_unit_test(more_rules_than_there_is_room_for_are_refused),
        cmocka_unit_test(groups_are_told_with_their_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
