/* SPDX-License-Identifier: Apache-2.0
 *
 * test_dtype.c: names and widths.
 */
#include <trireme/tensor.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void every_type_is_found_by_its_name(void **state)
{
    (void)state;
    for (int i = 0; i < TRI_DTYPE_COUNT; i++) {
        tri_dtype found = TRI_DTYPE_COUNT;
        assert_true(tri_dtype_find(tri_dtype_name((tri_dtype)i), &found));
        assert_int_equal(found, i);
        assert_true(tri_dtype_nbytes((tri_dtype)i) >= 1);
    }
    assert_int_equal(tri_dtype_nbytes(TRI_BF16), 2);
    assert_int_equal(tri_dtype_nbytes(TRI_I64), 8);
    assert_string_equal(tri_dtype_name(TRI_F32), "f32");
}

static void a_name_that_is_none_is_not_found(void **state)
{
    (void)state;
    tri_dtype found = TRI_I32;
    assert_false(tri_dtype_find("f33", &found));
    assert_false(tri_dtype_find("", &found));
    assert_int_equal(found, TRI_I32);
}

static void a_number_that_is_none_has_no_width(void **state)
{
    (void)state;
    assert_string_equal(tri_dtype_name(TRI_DTYPE_COUNT), "?");
    assert_string_equal(tri_dtype_name((tri_dtype)-1), "?");
    assert_int_equal(tri_dtype_nbytes((tri_dtype)-1), 0);
    assert_int_equal(tri_dtype_nbytes(TRI_DTYPE_COUNT), 0);
}

static void every_reduction_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(tri_reduce_name(TRI_REDUCE_AVERAGE), "average");
    assert_string_equal(tri_reduce_name(TRI_REDUCE_PRODUCT), "product");
    assert_string_equal(tri_reduce_name(TRI_REDUCE_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_found_by_its_name),
        cmocka_unit_test(a_name_that_is_none_is_not_found),
        cmocka_unit_test(a_number_that_is_none_has_no_width),
        cmocka_unit_test(every_reduction_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
