/* SPDX-License-Identifier: Apache-2.0
 *
 * test_narrow.c: two bits of a number: what they say and what is left are the number, and how near they are.
 */
#include "tensor/narrow.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

enum { COUNT = 4096, BYTES = COUNT };

static void fill(float *values, int64_t count, float scale)
{
    const tri_rng rng = {.seed = 5, .stream = tri_rng_stream("narrow", 1, 1)};
    for (int64_t i = 0; i < count; i++)
        values[i] = scale * tri_rng_normal(rng, (uint64_t)i);
}

static void expect_whole(int64_t count, float scale)
{
    float values[COUNT], left[COUNT], said[COUNT] = {0};
    unsigned char bytes[BYTES];
    fill(values, COUNT, scale);
    memcpy(left, values, sizeof(left));
    memset(bytes, 0xa5, sizeof(bytes));
    tri_two_bits_encode(left, count, bytes + 1, left);
    assert_int_equal(bytes[0], 0xa5);
    assert_int_equal(bytes[1 + tri_two_bits_nbytes(count)], 0xa5);
    tri_two_bits_add(bytes + 1, count, said);
    for (int64_t i = 0; i < count; i++) {
        assert_true(said[i] != 0 && signbit(said[i]) == signbit(values[i]));
        assert_true(left[i] == values[i] - said[i]);
    }
}

static void what_is_said_and_what_is_left_are_the_number(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 129, 130, 131, 255, 256, 257, 1000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        expect_whole(counts[i], 1);
        expect_whole(counts[i], 1e-30f);
        expect_whole(counts[i], 1e30f);
    }
    assert_int_equal(tri_two_bits_nbytes(0), 0);
    assert_int_equal(tri_two_bits_nbytes(128), 2 + 32);
    assert_int_equal(tri_two_bits_nbytes(129), 2 + 32 + 2 + 1);
}

/* Max's quantizer of four levels has an error of 0.1175 of a normal distribution's mean square; here its root is found
 * from 128 numbers and rounded. */
static void of_normal_numbers_an_eighth_is_lost(void **state)
{
    (void)state;
    float left[COUNT];
    double square = 0, lost = 0;
    unsigned char bytes[BYTES];
    fill(left, COUNT, 3);
    for (int i = 0; i < COUNT; i++)
        square += (double)left[i] * (double)left[i];
    tri_two_bits_encode(left, COUNT, bytes, left);
    for (int i = 0; i < COUNT; i++)
        lost += (double)left[i] * (double)left[i];
    assert_true(lost > 0.10 * square && lost < 0.125 * square);
}

static void sums_grow(void **state)
{
    (void)state;
    float values[100], left[100], once[100] = {0}, twice[100] = {0};
    unsigned char bytes[100];
    fill(values, 100, 1);
    tri_two_bits_encode(values, 100, bytes, left);
    tri_two_bits_add(bytes, 100, once);
    tri_two_bits_add(bytes, 100, twice);
    tri_two_bits_add(bytes, 100, twice);
    for (int i = 0; i < 100; i++)
        assert_true(twice[i] == 2 * once[i]);
}

static void zeros_and_what_is_no_number(void **state)
{
    (void)state;
    enum { BLOCK = TRI_TWO_BITS_BLOCK, MORE = 2 * BLOCK + 5 };
    float values[MORE] = {0}, sums[MORE] = {0};
    unsigned char bytes[MORE];
    tri_two_bits_encode(values, MORE, bytes, values);
    tri_two_bits_add(bytes, MORE, sums);
    for (int i = 0; i < MORE; i++)
        assert_true(values[i] == 0 && sums[i] == 0);
    static const float wrong[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    for (int w = 0; w < 4; w++) {
        fill(values, MORE, 1);
        values[BLOCK + 6] = wrong[w];
        memset(sums, 0, sizeof(sums));
        tri_two_bits_encode(values, MORE, bytes, values);
        tri_two_bits_add(bytes, MORE, sums);
        for (int i = 0; i < MORE; i++) { /* the second block alone */
            assert_int_equal(isfinite(sums[i]) == 0, w < 3 && i >= BLOCK && i < 2 * BLOCK);
            assert_true(isfinite(values[i]) && (w == 3 || i < BLOCK || i >= 2 * BLOCK || values[i] == 0));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_and_what_is_left_are_the_number),
        cmocka_unit_test(of_normal_numbers_an_eighth_is_lost),
        cmocka_unit_test(sums_grow),
        cmocka_unit_test(zeros_and_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
