/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tensor.c: views.
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

static void a_new_view_is_row_major(void **state)
{
    (void)state;
    float data[24];
    tri_tensor tensor = tri_tensor_make(data, TRI_F32, tri_shape_make(3, (int64_t[]){2, 3, 4}));
    assert_int_equal(tensor.stride[0], 12);
    assert_int_equal(tensor.stride[1], 4);
    assert_int_equal(tensor.stride[2], 1);
    assert_true(tri_tensor_is_contiguous(&tensor));
}

static void rows_look_at_the_same_memory(void **state)
{
    (void)state;
    float data[24];
    tri_tensor tensor = tri_tensor_make(data, TRI_F32, tri_shape_make(2, (int64_t[]){6, 4}));
    tri_tensor rows = tri_tensor_rows(&tensor, 2, 3);
    assert_ptr_equal(rows.data, data + 8);
    assert_int_equal(rows.shape.dim[0], 3);
    assert_int_equal(tri_shape_count(rows.shape), 12);
    assert_true(tri_tensor_is_contiguous(&rows));
}

static void a_transposed_view_is_not_contiguous(void **state)
{
    (void)state;
    float data[6];
    tri_tensor tensor = tri_tensor_make(data, TRI_F32, tri_shape_make(2, (int64_t[]){2, 3}));
    tensor.shape = tri_shape_make(2, (int64_t[]){3, 2});
    tensor.stride[0] = 1;
    tensor.stride[1] = 3;
    assert_false(tri_tensor_is_contiguous(&tensor));
}

static void the_stride_of_a_dimension_of_one_does_not_matter(void **state)
{
    (void)state;
    float data[6];
    tri_tensor tensor = tri_tensor_make(data, TRI_F32, tri_shape_make(3, (int64_t[]){2, 1, 3}));
    tensor.stride[1] = 77;
    assert_true(tri_tensor_is_contiguous(&tensor));
    tensor.stride[0] = 4;
    assert_false(tri_tensor_is_contiguous(&tensor));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_view_is_row_major),
        cmocka_unit_test(rows_look_at_the_same_memory),
        cmocka_unit_test(a_transposed_view_is_not_contiguous),
        cmocka_unit_test(the_stride_of_a_dimension_of_one_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
