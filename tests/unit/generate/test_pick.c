/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pick.c: which tokens may be drawn, and how often.
 */
#include "unit/generate/generate_rig.h"

#include "generate/pick.h"

#define WORDS 6

static const float usual[WORDS] = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f, 0.5f};

static int32_t pick(const float *given, tri_pick_rule rule, const int32_t *before, int64_t count)
{
    float logits[WORDS];
    tri_picker *picker;
    memcpy(logits, given, sizeof(logits));
    OK(tri_picker_create(WORDS, &picker));
    int32_t token = tri_pick(picker, logits, WORDS, &rule, before, count);
    tri_picker_destroy(picker);
    return token;
}

/* How often each token is drawn in 20,000 draws. */
static void draws_count(tri_pick_rule rule, double *part)
{
    memset(part, 0, WORDS * sizeof(*part));
    for (int i = 0; i < 20000; i++)
        part[pick(usual, rule, NULL, i)] += 1.0 / 20000;
}

static void the_likeliest_of_equals_is_the_first(void **state)
{
    (void)state;
    assert_int_equal(pick(usual, (tri_pick_rule){.top_p = 1, .repeat = 1}, NULL, 0), 1);
    assert_int_equal(pick(usual, (tri_pick_rule){.temperature = 2, .top_k = 1, .top_p = 1, .repeat = 1}, NULL, 0), 1);
    const float with_nan[WORDS] = {NAN, -3, NAN, -2, -5, -2};
    assert_int_equal(pick(with_nan, (tri_pick_rule){.top_p = 1, .repeat = 1}, NULL, 0), 3);
}

static void draws_follow_the_softmax(void **state)
{
    (void)state;
    for (int t = 1; t <= 4; t *= 2) {
        const tri_pick_rule rule = {.temperature = 0.5 * t, .top_p = 1, .repeat = 1, .seed = 3};
        double part[WORDS], sum = 0;
        for (int i = 0; i < WORDS; i++)
            sum += exp((double)usual[i] / rule.temperature);
        draws_count(rule, part);
        for (int i = 0; i < WORDS; i++)
            assert_true(fabs(part[i] - exp((double)usual[i] / rule.temperature) / sum) < 0.012);
    }
}

static void top_k_and_top_p_leave_the_likeliest(void **state)
{
    (void)state;
    double part[WORDS];
    draws_count((tri_pick_rule){.temperature = 1, .top_k = 3, .top_p = 1, .repeat = 1, .seed = 1}, part);
    assert_true(part[1] > 0.4 && part[3] > 0.4 && part[2] > 0.1 && part[0] + part[4] + part[5] == 0);
    /* e^2, e^2, e, e^0.5, 1, e^-1: the first two have 0.72 of it, the first three 0.85 */
    draws_count((tri_pick_rule){.temperature = 1, .top_p = 0.7, .repeat = 1, .seed = 1}, part);
    assert_true(part[1] > 0.45 && part[3] > 0.45 && part[1] + part[3] > 0.9999);
    draws_count((tri_pick_rule){.temperature = 1, .top_p = 0.8, .repeat = 1, .seed = 1}, part);
    assert_true(part[2] > 0.1 && part[0] + part[4] + part[5] == 0);
    /* Of the two that top_k leaves, the first alone has half. */
    draws_count((tri_pick_rule){.temperature = 1, .top_k = 2, .top_p = 0.4, .repeat = 1, .seed = 1}, part);
    assert_true(part[1] > 0.9999);
}

/* Most of the mass is in a tail of which top_k leaves nothing. */
static void top_p_counts_what_top_k_leaves(void **state)
{
    enum { MANY = 1000 };
    static float logits[MANY], given[MANY];
    tri_picker *picker;
    (void)state;
    for (int i = 0; i < MANY; i++)
        given[i] = logf(i == 3 ? 0.4f : i == 7 ? 0.12f : 0.48f / (MANY - 2));
    OK(tri_picker_create(MANY, &picker));
    for (int k = 2; k <= 5; k += 3)
        for (int64_t i = 0; i < 200; i++) {
            const tri_pick_rule rule = {.temperature = 1, .top_k = k, .top_p = 0.5, .repeat = 1, .seed = 1};
            memcpy(logits, given, sizeof(given));
            assert_int_equal(tri_pick(picker, logits, MANY, &rule, NULL, i), 3);
        }
    tri_picker_destroy(picker);
}

static void a_logit_without_bounds_is_the_greatest(void **state)
{
    const tri_pick_rule rule = {.temperature = 1, .top_p = 0.9, .repeat = 1};
    static const float infinite[WORDS] = {0.0f, 2.0f, INFINITY, 2.0f, -1.0f, 0.5f};
    (void)state;
    assert_int_equal(pick(infinite, rule, NULL, 0), 2);
}

static void a_draw_depends_on_seed_and_place_alone(void **state)
{
    (void)state;
    const tri_pick_rule rule = {.temperature = 1, .top_p = 1, .repeat = 1, .seed = 9};
    tri_pick_rule other = rule;
    int same = 0;
    other.seed = 10;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pick(usual, rule, NULL, i), pick(usual, rule, NULL, i));
        same += pick(usual, rule, NULL, i) == pick(usual, other, NULL, i);
    }
    assert_in_range(same, 5, 80);
}

static void repeated_tokens_become_less_likely_once(void **state)
{
    (void)state;
    const int32_t before[] = {1, 1, 1, 3};
    /* 2 / 1.5 is still the greatest: dividing three times would leave token 2. */
    assert_int_equal(pick(usual, (tri_pick_rule){.top_p = 1, .repeat = 1.5}, before, 4), 1);
    assert_int_equal(pick(usual, (tri_pick_rule){.top_p = 1, .repeat = 1.5}, before, 3), 3);
    assert_int_equal(pick(usual, (tri_pick_rule){.top_p = 1, .repeat = 3}, before, 4), 2);
    const float below[WORDS] = {-1, -2, -1.5f, -4, -4, -4};
    const int32_t first[] = {0, 77};
    assert_int_equal(pick(below, (tri_pick_rule){.top_p = 1, .repeat = 2}, first, 2), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest_of_equals_is_the_first),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(top_k_and_top_p_leave_the_likeliest),
        cmocka_unit_test(top_p_counts_what_top_k_leaves),
        cmocka_unit_test(a_logit_without_bounds_is_the_greatest),
        cmocka_unit_test(a_draw_depends_on_seed_and_place_alone),
        cmocka_unit_test(repeated_tokens_become_less_likely_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
