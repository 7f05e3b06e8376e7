/* SPDX-License-Identifier: Apache-2.0
 *
 * test_convert.c: the halves over all of their 65536 values and the midpoints between them, and conversions of arrays.
 */
#include "tensor/reduce.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the bits of a half with `fraction` bits of fraction and `exponent` of exponent mean. */
static double meaning(uint16_t bits, int exponent, int fraction)
{
    int power = (bits >> fraction) & ((1 << exponent) - 1);
    int rest = bits & ((1 << fraction) - 1);
    int bias = (1 << (exponent - 1)) - 1;
    double value =
        power == 0 ? ldexp(rest, 1 - bias - fraction) : ldexp(rest + (1 << fraction), power - bias - fraction);
    return bits & 0x8000 ? -value : value;
}

static float (*const to_f32[2])(uint16_t) = {tri_f16_to_f32, tri_bf16_to_f32};
static uint16_t (*const from_f32[2])(float) = {tri_f32_to_f16, tri_f32_to_bf16};
static const int exponents[2] = {5, 8}, fractions[2] = {10, 7};
static const uint16_t infinities[2] = {0x7c00, 0x7f80};

static void every_half_means_what_its_bits_say_and_comes_back(void **state)
{
    (void)state;
    for (int h = 0; h < 2; h++) {
        for (uint32_t i = 0; i < 65536; i++) {
            uint16_t bits = (uint16_t)i;
            float value = to_f32[h](bits);
            if ((bits & 0x7fff) > infinities[h]) {
                assert_true(isnan(value));
                assert_true(isnan(to_f32[h](from_f32[h](value))));
                continue;
            }
            if ((bits & 0x7fff) == infinities[h])
                assert_true(isinf(value) && (signbit(value) != 0) == (bits >> 15));
            else
                assert_true((double)value == meaning(bits, exponents[h], fractions[h]));
            assert_int_equal(from_f32[h](value), bits);
        }
    }
}

static void midpoints_go_to_the_even_neighbour_and_others_to_the_nearest(void **state)
{
    (void)state;
    for (int h = 0; h < 2; h++) {
        for (uint32_t i = 0; i < infinities[h]; i++) {
            uint16_t low = (uint16_t)i, high = (uint16_t)(i + 1);
            /* Above the largest number lies what the next power of two would be. */
            double above = meaning(high, exponents[h], fractions[h]);
            float middle = (float)((meaning(low, exponents[h], fractions[h]) + above) / 2);
            assert_int_equal(from_f32[h](middle), low & 1 ? high : low);
            assert_int_equal(from_f32[h](nextafterf(middle, 0)), low);
            assert_int_equal(from_f32[h](nextafterf(middle, INFINITY)), high);
            assert_int_equal(from_f32[h](-middle), (low & 1 ? high : low) | 0x8000);
        }
        assert_int_equal(from_f32[h](INFINITY), infinities[h]);
        assert_int_equal(from_f32[h](-0.0f), 0x8000);
        assert_int_equal(from_f32[h](1e-45f), 0);
    }
}

#ifdef __FLT16_MANT_DIG__
static void f16_agrees_with_the_compilers(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += 997) {
        uint32_t bits = (uint32_t)i;
        float value;
        memcpy(&value, &bits, sizeof(value));
        if (isnan(value))
            continue;
        _Float16 half = (_Float16)value;
        uint16_t want;
        memcpy(&want, &half, sizeof(want));
        if (tri_f32_to_f16(value) != want)
            fail_msg("%a: want %04x, got %04x", (double)value, want, tri_f32_to_f16(value));
    }
}
#endif

static void doubles_and_integers_become_halves_with_one_rounding(void **state)
{
    (void)state;
    /* Just above the midpoint of 1 and the next f16: by way of f32 it would be the midpoint, and go to 1. */
    double above = 1 + ldexp(1, -11) + ldexp(1, -40), below = 1 + ldexp(3, -11) - ldexp(1, -40);
    uint16_t half;
    tri_convert(&half, TRI_F16, &above, TRI_F64, 1);
    assert_int_equal(half, 0x3c01);
    tri_convert(&half, TRI_F16, &below, TRI_F64, 1);
    assert_int_equal(half, 0x3c01);
    int64_t big = (INT64_C(1) << 62) + (INT64_C(1) << 54) + 1; /* just above the midpoint of two bf16 */
    tri_convert(&half, TRI_BF16, &big, TRI_I64, 1);
    assert_int_equal(half, tri_f32_to_bf16(ldexpf(129, 55)));
    big = -big;
    tri_convert(&half, TRI_BF16, &big, TRI_I64, 1);
    assert_int_equal(half, tri_f32_to_bf16(ldexpf(-129, 55)));
    double huge = 1e300;
    tri_convert(&half, TRI_BF16, &huge, TRI_F64, 1);
    assert_int_equal(half, 0x7f80);
}

static void integers_saturate_and_nan_is_zero(void **state)
{
    (void)state;
    const float in[] = {NAN, INFINITY, -INFINITY, 2.5f, 3.5f, -2.5f, 300.0f, -300.0f, 1e20f};
    const int8_t small[] = {0, 127, -128, 2, 4, -2, 127, -128, 127};
    const uint8_t positive[] = {0, 255, 0, 2, 4, 0, 255, 0, 255};
    const int64_t wide[] = {0, INT64_MAX, INT64_MIN, 2, 4, -2, 300, -300, INT64_MAX};
    int8_t i8[9];
    uint8_t u8[9];
    int32_t i32[9];
    int64_t i64[9];
    assert_int_equal(tri_convert(i8, TRI_I8, in, TRI_F32, 9), TRI_OK);
    assert_int_equal(tri_convert(u8, TRI_U8, in, TRI_F32, 9), TRI_OK);
    assert_int_equal(tri_convert(i64, TRI_I64, in, TRI_F32, 9), TRI_OK);
    assert_int_equal(tri_convert(i32, TRI_I32, wide, TRI_I64, 9), TRI_OK);
    assert_memory_equal(i8, small, sizeof(small));
    assert_memory_equal(u8, positive, sizeof(positive));
    assert_memory_equal(i64, wide, sizeof(wide));
    assert_int_equal(i32[1], INT32_MAX);
    assert_int_equal(i32[2], INT32_MIN);
    assert_int_equal(i32[7], -300);
}

static void every_pair_of_types_keeps_small_numbers(void **state)
{
    (void)state;
    for (int from = 0; from < TRI_DTYPE_COUNT; from++) {
        for (int to = 0; to < TRI_DTYPE_COUNT; to++) {
            int32_t numbers[50], back[50];
            char a[50 * 8], b[50 * 8];
            for (int i = 0; i < 50; i++)
                numbers[i] = i * 2;
            tri_convert(a, (tri_dtype)from, numbers, TRI_I32, 50);
            assert_int_equal(tri_convert(b, (tri_dtype)to, a, (tri_dtype)from, 50), TRI_OK);
            tri_convert(back, TRI_I32, b, (tri_dtype)to, 50);
            assert_memory_equal(back, numbers, sizeof(numbers));
        }
    }
    assert_int_equal(tri_convert(NULL, TRI_DTYPE_COUNT, NULL, TRI_F32, 0), TRI_EINVAL);
    assert_int_equal(tri_convert(NULL, TRI_F32, NULL, TRI_DTYPE_COUNT, 0), TRI_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_means_what_its_bits_say_and_comes_back),
        cmocka_unit_test(midpoints_go_to_the_even_neighbour_and_others_to_the_nearest),
#ifdef __FLT16_MANT_DIG__
        cmocka_unit_test(f16_agrees_with_the_compilers),
#endif
        cmocka_unit_test(doubles_and_integers_become_halves_with_one_rounding),
        cmocka_unit_test(integers_saturate_and_nan_is_zero),
        cmocka_unit_test(every_pair_of_types_keeps_small_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
