/* SPDX-License-Identifier: Apache-2.0
 *
 * test_reduce.c: combination against plain scalar text, for all types, operations, odd counts and unaligned starts.
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

#include "base/rng.h"

enum { COUNT = 131, GUARD = 8 };

/* Element i of a buffer as a double (exact for what the tests store). */
static double element(const void *data, tri_dtype dtype, int64_t i)
{
    double value = 0;
    const char *at = (const char *)data + i * (int64_t)tri_dtype_nbytes(dtype);
    assert_int_equal(tri_convert(&value, TRI_F64, at, dtype, 1), TRI_OK);
    return value;
}

static double combined(tri_reduce_op op, double a, double b)
{
    switch (op) {
    case TRI_REDUCE_MIN:
        return a < b ? a : b;
    case TRI_REDUCE_MAX:
        return a > b ? a : b;
    case TRI_REDUCE_PRODUCT:
        return a * b;
    default:
        return a + b;
    }
}

/* Small integers: every type holds them and their sums and products exactly. */
static void every_operation_on_every_type_matches_scalar_text(void **state)
{
    (void)state;
    for (int d = 0; d < TRI_DTYPE_COUNT; d++) {
        tri_dtype dtype = (tri_dtype)d;
        size_t each = tri_dtype_nbytes(dtype);
        for (int o = 0; o < TRI_REDUCE_COUNT; o++) {
            for (int64_t count = 0; count <= COUNT; count = count * 2 + 1) {
                double left[COUNT], right[COUNT];
                _Alignas(64) char a[(COUNT + GUARD) * 8], b[(COUNT + GUARD) * 8], out[(COUNT + GUARD) * 8];
                for (int i = 0; i < COUNT; i++) {
                    left[i] = (i * 7) % 12;
                    right[i] = (i * 5) % 10;
                }
                memset(out, 0x5a, sizeof(out));
                /* One element past the start: not aligned to a vector. */
                tri_convert(a + each, dtype, left, TRI_F64, COUNT);
                tri_convert(b + each, dtype, right, TRI_F64, COUNT);
                tri_reduce_find((tri_reduce_op)o, dtype)(out + each, a + each, b + each, count);
                for (int64_t i = 0; i < count; i++)
                    assert_true(element(out + each, dtype, i) == combined((tri_reduce_op)o, left[i], right[i]));
                for (size_t i = 0; i < each; i++) {
                    assert_int_equal((unsigned char)out[i], 0x5a);
                    assert_int_equal((unsigned char)out[(size_t)(count + 1) * each + i], 0x5a);
                }
            }
        }
    }
}

static void sums_of_floats_are_rounded_once_as_the_scalar_sum_is(void **state)
{
    (void)state;
    tri_rng rng = {.seed = 3, .stream = 4};
    float a[1000], b[1000], out[1000];
    for (uint64_t i = 0; i < 1000; i++) {
        a[i] = tri_rng_normal(rng, i);
        b[i] = tri_rng_normal(rng, i + 1000) * 1e-3f;
    }
    tri_reduce_find(TRI_REDUCE_SUM, TRI_F32)(out, a, b, 1000);
    for (int i = 0; i < 1000; i++) {
        volatile float want = a[i] + b[i];
        assert_memory_equal(&out[i], (const float *)&want, sizeof(float));
    }
}

static void halves_are_combined_in_f32_and_rounded_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i += 7) {
        uint16_t a = (uint16_t)i, b = (uint16_t)(i * 40503u), out = 0;
        float fa = tri_bf16_to_f32(a), fb = tri_bf16_to_f32(b);
        if (isnan(fa) || isnan(fb) || isnan(fa + fb))
            continue;
        tri_reduce_find(TRI_REDUCE_SUM, TRI_BF16)(&out, &a, &b, 1);
        assert_int_equal(out, tri_f32_to_bf16(fa + fb));
    }
}

static void min_and_max_do_not_depend_on_who_is_left(void **state)
{
    (void)state;
    const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 1e-45f};
    for (int op = TRI_REDUCE_MIN; op <= TRI_REDUCE_MAX; op++) {
        for (size_t i = 0; i < 8; i++) {
            for (size_t j = 0; j < 8; j++) {
                float ab, ba;
                double a = values[i], b = values[j], dab, dba;
                tri_reduce_find((tri_reduce_op)op, TRI_F32)(&ab, &values[i], &values[j], 1);
                tri_reduce_find((tri_reduce_op)op, TRI_F32)(&ba, &values[j], &values[i], 1);
                tri_reduce_find((tri_reduce_op)op, TRI_F64)(&dab, &a, &b, 1);
                tri_reduce_find((tri_reduce_op)op, TRI_F64)(&dba, &b, &a, 1);
                assert_memory_equal(&ab, &ba, sizeof(ab));
                assert_memory_equal(&dab, &dba, sizeof(dab));
                assert_int_equal(isnan(ab) != 0, isnan(a) || isnan(b));
            }
        }
    }
    float zero = 0.0f, minus = -0.0f, out;
    tri_reduce_find(TRI_REDUCE_MIN, TRI_F32)(&out, &zero, &minus, 1);
    assert_true(signbit(out));
    tri_reduce_find(TRI_REDUCE_MAX, TRI_F32)(&out, &minus, &zero, 1);
    assert_false(signbit(out));
}

static void integers_wrap(void **state)
{
    (void)state;
    int64_t big = INT64_MAX, one = 1, out = 0;
    tri_reduce_find(TRI_REDUCE_SUM, TRI_I64)(&out, &big, &one, 1);
    assert_true(out == INT64_MIN);
    tri_reduce_find(TRI_REDUCE_PRODUCT, TRI_I64)(&out, &big, &big, 1);
    assert_true(out == 1);
    uint8_t a = 200, b = 100, c = 0;
    tri_reduce_find(TRI_REDUCE_SUM, TRI_U8)(&c, &a, &b, 1);
    assert_int_equal(c, 44);
}

static void division_rounds_once_and_integers_truncate(void **state)
{
    (void)state;
    float f[3] = {1.0f, 2.0f, -7.5f};
    assert_int_equal(tri_reduce_divide(f, TRI_F32, 3, 3), TRI_OK);
    volatile float third = 1.0f / 3.0f;
    assert_true(f[0] == third);
    int32_t n[3] = {7, -7, 6};
    assert_int_equal(tri_reduce_divide(n, TRI_I32, 3, 3), TRI_OK);
    assert_int_equal(n[0], 2);
    assert_int_equal(n[1], -2);
    assert_int_equal(n[2], 2);
    int8_t small = 100;
    assert_int_equal(tri_reduce_divide(&small, TRI_I8, 1, 300), TRI_OK);
    assert_int_equal(small, 0);
    assert_int_equal(tri_reduce_divide(n, TRI_I32, 3, 0), TRI_EINVAL);
    assert_int_equal(tri_reduce_divide(n, TRI_DTYPE_COUNT, 3, 2), TRI_EINVAL);
}

static void a_pair_that_does_not_exist_is_not_found(void **state)
{
    (void)state;
    assert_null(tri_reduce_find(TRI_REDUCE_COUNT, TRI_F32));
    assert_null(tri_reduce_find(TRI_REDUCE_SUM, TRI_DTYPE_COUNT));
}

/* Both arrays get what one-sided combination gives; what is not a plain sum has no such loop. */
static void the_sum_goes_to_both_places(void **state)
{
    (void)state;
    for (int d = 0; d < TRI_DTYPE_COUNT; d++) {
        tri_dtype dtype = (tri_dtype)d;
        size_t each = tri_dtype_nbytes(dtype);
        double left[COUNT], right[COUNT];
        _Alignas(64) char a[(COUNT + GUARD) * 8], b[(COUNT + GUARD) * 8], want[(COUNT + GUARD) * 8];
        for (int i = 0; i < COUNT; i++) {
            left[i] = (i * 7) % 12;
            right[i] = (i * 5) % 10;
        }
        memset(a, 0x5a, sizeof(a));
        memset(b, 0x5a, sizeof(b));
        memset(want, 0x5a, sizeof(want));
        assert_int_equal(tri_convert(a + each, dtype, left, TRI_F64, COUNT), TRI_OK);
        assert_int_equal(tri_convert(b + each, dtype, right, TRI_F64, COUNT), TRI_OK);
        tri_reduce_find(TRI_REDUCE_SUM, dtype)(want + each, a + each, b + each, COUNT);
        tri_reduce_both_find(TRI_REDUCE_SUM, dtype)(a + each, b + each, COUNT);
        assert_memory_equal(a, want, sizeof(want));
        assert_memory_equal(b, want, sizeof(want));
        assert_null(tri_reduce_both_find(TRI_REDUCE_AVERAGE, dtype));
        assert_null(tri_reduce_both_find(TRI_REDUCE_MAX, dtype));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_on_every_type_matches_scalar_text),
        cmocka_unit_test(the_sum_goes_to_both_places),
        cmocka_unit_test(sums_of_floats_are_rounded_once_as_the_scalar_sum_is),
        cmocka_unit_test(halves_are_combined_in_f32_and_rounded_once),
        cmocka_unit_test(min_and_max_do_not_depend_on_who_is_left),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(division_rounds_once_and_integers_truncate),
        cmocka_unit_test(a_pair_that_does_not_exist_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
