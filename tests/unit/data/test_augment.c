/* SPDX-License-Identifier: Apache-2.0
 *
 * test_augment.c: the hue of pixels, and images that are mixed: how much of each, where, and what their labels say.
 */
#include "data/augment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "tensor/label.h"

#define SIDE 16

static tri_augment augment_of(double mixup, double cutmix)
{
    return (tri_augment){.seed = 3, .mixup = mixup, .cutmix = cutmix, .height = SIDE, .width = SIDE, .channels = 3};
}

/* In units of the colors' circle; wanted: those of Python's colorsys. */
static void hue_turns_around_the_circle_of_colors(void **state)
{
    (void)state;
    tri_augment augment = augment_of(0, 0);
    augment.hue = 0.5;
    augment.height = 1;
    augment.width = 3;
    int reds = 0, others = 0;
    for (int64_t index = 0; index < 200; index++) {
        uint8_t pixels[9] = {200, 100, 50, 90, 90, 90, 50, 100, 200};
        tri_augment_colors(&augment, 0, index, pixels);
        for (int p = 0; p < 3; p++) { /* largest and smallest stay */
            const uint8_t *at = pixels + 3 * p;
            const uint8_t most = at[0] > at[1] ? (at[0] > at[2] ? at[0] : at[2]) : at[1] > at[2] ? at[1] : at[2];
            const uint8_t least = at[0] < at[1] ? (at[0] < at[2] ? at[0] : at[2]) : at[1] < at[2] ? at[1] : at[2];
            assert_int_equal(most, p == 1 ? 90 : 200);
            assert_int_equal(least, p == 1 ? 90 : 50);
        }
        reds += pixels[0] == 200;
        others += pixels[0] == 50;
    }
    assert_in_range(reds, 40, 95); /* a third of the circle */
    assert_in_range(others, 40, 95);
    augment.hue = 1e-9;
    uint8_t pixels[9] = {200, 100, 50, 0, 255, 1, 50, 100, 200}, same[9];
    memcpy(same, pixels, 9);
    tri_augment_colors(&augment, 0, 1, pixels);
    assert_memory_equal(pixels, same, 9);
}

static void mixup_weights_are_those_of_the_beta_distribution(void **state)
{
    (void)state;
    static const struct {
        double alpha;
        int low, high; /* of 1000: how many are below 0.1 or above 0.9 */
    } cases[] = {{1, 160, 240}, {0.2, 600, 740}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const tri_augment augment = augment_of(cases[i].alpha, 0);
        double sum = 0;
        int ends = 0;
        for (int64_t index = 0; index < 1000; index++) {
            const tri_augment_mix mix = tri_augment_mix_draw(&augment, 1, index);
            assert_true(mix.weight >= 0 && mix.weight <= 1 && mix.bottom == 0);
            assert_true(mix.weight * TRI_LABEL_WHOLE == (float)mix.share);
            sum += (double)mix.weight;
            ends += mix.weight < 0.1f || mix.weight > 0.9f;
        }
        assert_in_range((int)(sum + 0.5), 450, 550);
        assert_in_range(ends, cases[i].low, cases[i].high);
    }
}

static void cutmix_shares_are_the_area_that_stays(void **state)
{
    (void)state;
    const tri_augment augment = augment_of(0, 1);
    static float one[SIDE * SIDE * 3], other[SIDE * SIDE * 3];
    int64_t sum = 0;
    for (int64_t index = 0; index < 500; index++) {
        const tri_augment_mix mixes[2] = {tri_augment_mix_draw(&augment, 0, index),
                                          tri_augment_mix_draw(&augment, 0, index + 500)};
        int stays = 0, comes = 0;
        for (size_t i = 0; i < TRI_COUNT_OF(one); i++) {
            one[i] = 1;
            other[i] = 2;
        }
        tri_augment_mix_apply(&augment, mixes, one, other);
        for (size_t i = 0; i < TRI_COUNT_OF(one); i++) {
            assert_true((one[i] == 1 || one[i] == 2) && (other[i] == 1 || other[i] == 2));
            stays += one[i] == 1;
            comes += other[i] == 2;
        }
        assert_int_equal(mixes[0].share, stays * TRI_LABEL_WHOLE / (SIDE * SIDE * 3));
        assert_int_equal(mixes[1].share, comes * TRI_LABEL_WHOLE / (SIDE * SIDE * 3));
        sum += mixes[0].share;
    }
    assert_in_range(sum / 500, 650, 780); /* above a half: rectangles are cut at the edges */
}

static void both_are_taken_in_half_of_the_cases(void **state)
{
    (void)state;
    const tri_augment augment = augment_of(1, 1);
    int cuts = 0;
    for (int64_t index = 0; index < 1000; index++)
        cuts += tri_augment_mix_draw(&augment, 2, index).weight == 1;
    assert_in_range(cuts, 440, 560);
}

static void labels_hold_two_classes_and_a_weight(void **state)
{
    (void)state;
    for (int32_t weight = 0; weight <= TRI_LABEL_WHOLE; weight++) {
        const tri_label label = tri_label_read(tri_label_mix(1023, 5, weight));
        const float first = (label.first == 1023 ? label.weight : 0) + (label.second == 1023 ? 1 - label.weight : 0);
        assert_true(first * TRI_LABEL_WHOLE == (float)weight);
        assert_int_equal(tri_label_main(tri_label_mix(1023, 5, weight)), weight >= 512 ? 1023 : 5);
    }
    assert_int_equal(tri_label_mix(7, 7, 100), 7);
    assert_int_equal(tri_label_read(-1).first, -1);
    assert_int_equal(tri_label_read(999999999).first, 999999999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hue_turns_around_the_circle_of_colors),
        cmocka_unit_test(mixup_weights_are_those_of_the_beta_distribution),
        cmocka_unit_test(cutmix_shares_are_the_area_that_stays),
        cmocka_unit_test(both_are_taken_in_half_of_the_cases),
        cmocka_unit_test(labels_hold_two_classes_and_a_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
