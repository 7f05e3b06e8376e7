/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shape.c: shapes as values.
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

static void a_scalar_has_one_element(void **state)
{
    (void)state;
    tri_shape scalar = tri_shape_make(0, NULL);
    char text[96];
    assert_int_equal(tri_shape_count(scalar), 1);
    assert_string_equal(tri_shape_print(scalar, text), "[]");
}

static void count_is_the_product_of_the_dimensions(void **state)
{
    (void)state;
    tri_shape shape = tri_shape_make(3, (int64_t[]){70000, 70000, 3});
    assert_int_equal(tri_shape_count(shape), INT64_C(14700000000));
    assert_int_equal(tri_shape_count(tri_shape_make(2, (int64_t[]){5, 0})), 0);
}

static void shapes_are_equal_only_in_all_dimensions(void **state)
{
    (void)state;
    tri_shape a = tri_shape_make(2, (int64_t[]){3, 4});
    assert_true(tri_shape_equal(a, tri_shape_make(2, (int64_t[]){3, 4})));
    assert_false(tri_shape_equal(a, tri_shape_make(2, (int64_t[]){4, 3})));
    assert_false(tri_shape_equal(a, tri_shape_make(3, (int64_t[]){3, 4, 1})));
}

static void text_is_readable_and_never_too_long(void **state)
{
    (void)state;
    char text[96];
    assert_string_equal(tri_shape_print(tri_shape_make(2, (int64_t[]){128, 784}), text), "[128, 784]");
    int64_t dim[TRI_MAX_DIMS];
    for (int i = 0; i < TRI_MAX_DIMS; i++)
        dim[i] = INT64_MIN;
    tri_shape_print(tri_shape_make(TRI_MAX_DIMS, dim), text);
    assert_int_equal(strlen(text), 95);
    assert_int_equal(text[94], ']');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scalar_has_one_element),
        cmocka_unit_test(count_is_the_product_of_the_dimensions),
        cmocka_unit_test(shapes_are_equal_only_in_all_dimensions),
        cmocka_unit_test(text_is_readable_and_never_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
