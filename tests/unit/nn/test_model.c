/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model.c: shapes and names that builders give, and failures that stick until finish.
 */
#include "unit/nn/nn_rig.h"

static void check_shape(const tri_model *m, tri_value v, const char *wanted)
{
    char text[96];
    assert_string_equal(tri_shape_print(tri_model_shape(m, v), text), wanted);
}

static void builders_give_shapes_and_names(void **state)
{
    (void)state;
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 2, (int64_t[]){28, 28}, &x, &y);
    x = tri_conv(m, x, (tri_conv_options){.channels = 8, .kernel = {3, 5}, .stride = {2}, .pad = {1}});
    check_shape(m, x, "[14, 13, 8]");
    x = tri_max_pool(m, x, (tri_pool_options){.kernel = {2}});
    check_shape(m, x, "[7, 6, 8]");
    tri_model_scope(m, "block1.");
    x = tri_conv(m, x, (tri_conv_options){.channels = 8, .kernel = {3}, .pad = {1}, .groups = 4, .no_bias = true});
    x = tri_batch_norm(m, x, (tri_norm_options){0});
    tri_model_scope(m, "");
    x = tri_transpose(m, x, (int[]){2, 0, 1});
    check_shape(m, x, "[8, 7, 6]");
    x = tri_concat(m, (tri_value[]){x, x}, 2, 2);
    check_shape(m, x, "[8, 7, 12]");
    x = tri_flatten(m, x);
    assert_int_equal(tri_flatten(m, x), x);
    x = tri_linear(m, x, (tri_linear_options){.units = 10});
    tri_cross_entropy(m, x, y, 0);
    OK(tri_model_finish(m));
    static const char *const names[] = {"conv1.weight",           "conv1.bias",      "block1.conv1.weight",
                                        "block1.bn1.weight",      "block1.bn1.bias", "block1.bn1.running_mean",
                                        "block1.bn1.running_var", "fc1.weight",      "fc1.bias"};
    assert_int_equal(m->params.count, TRI_COUNT_OF(names));
    const tri_param_spec *specs = m->params.items;
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
        assert_string_equal(specs[i].name, names[i]);
    char text[96];
    assert_string_equal(tri_shape_print(specs[2].shape, text), "[8, 2, 3, 3]");
    assert_int_equal(tri_model_param_count(m), 8 * 15 + 8 + 8 * 2 * 9 + 16 + 672 * 10 + 10);
    tri_model_destroy(m);
}

static void sticks(tri_model *m, const char *needle)
{
    tri_status status = tri_model_finish(m);
    assert_int_equal(status, TRI_EINVAL);
    if (!strstr(tri_last_error(), needle))
        fail_msg("'%s' does not hold '%s'", tri_last_error(), needle);
    tri_model_destroy(m);
}

static void the_first_failure_sticks_with_its_node(void **state)
{
    (void)state;
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
    x = tri_linear(m, x, (tri_linear_options){.units = 4});
    tri_value bad = tri_conv(m, x, (tri_conv_options){.channels = 2, .kernel = {3}});
    assert_int_equal(bad, -1);
    assert_int_equal(tri_linear(m, bad, (tri_linear_options){.units = -4}), -1);
    assert_int_equal(tri_relu(m, x), -1);
    assert_int_equal(tri_model_shape(m, bad).ndim, 0);
    (void)tri_fail(TRI_EIO, "something else happened on this thread");
    sticks(m, "conv2d needs an image sample [H, W, C], got [4]");
}

static void models_without_an_end_or_with_loose_ends_are_refused(void **state)
{
    (void)state;
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
    (void)tri_linear(m, x, (tri_linear_options){.units = 4});
    sticks(m, "got no loss");
    OK(tri_model_create("empty", &m));
    sticks(m, "got no input");
    m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
    (void)tri_relu(m, x);
    tri_cross_entropy(m, x, y, 0);
    sticks(m, "nothing uses the output of node 1 (relu)");
    m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
    tri_value loss = tri_cross_entropy(m, x, y, 0);
    (void)tri_relu(m, loss);
    sticks(m, "nothing may follow");
    m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
    x = tri_linear(m, x, (tri_linear_options){.units = 7, .name = "a"});
    (void)tri_linear(m, x, (tri_linear_options){.units = 4, .name = "a"});
    sticks(m, "two parameters are called a.weight");
    m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
    (void)tri_model_input(m, TRI_F32, tri_shape_make(1, (int64_t[]){7}));
    sticks(m, "has one input already");
    m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
    (void)tri_cross_entropy(m, x, x, 0);
    sticks(m, "want the model's target");
}

static void hostile_arguments_are_refused(void **state)
{
    (void)state;
    for (int which = 0; which < 10; which++) {
        tri_value x, y;
        tri_model *m = rig_start(TRI_F32, 3, (int64_t[]){6, 6, 2}, &x, &y);
        int64_t huge[] = {INT64_C(1) << 30, INT64_C(1) << 30};
        tri_value made = which == 0   ? tri_transpose(m, x, (int[]){0, 0, 1})
                         : which == 1 ? tri_transpose(m, x, (int[]){0, 1, 2147483647})
                         : which == 2 ? tri_concat(m, &x, 1, 0)
                         : which == 3 ? tri_concat(m, (tri_value[]){x, x}, 2, 3)
                         : which == 4 ? tri_reshape(m, x, (tri_shape){.ndim = 77})
                         : which == 5 ? tri_reshape(m, x, tri_shape_make(2, huge))
                         : which == 6 ? tri_dropout(m, x, 1.0f)
                         : which == 7 ? tri_add(m, x, 55)
                         : which == 8 ? tri_batch_norm(m, x, (tri_norm_options){.momentum = -1})
                                      : tri_embedding(m, x, 4, 4, NULL);
        assert_int_equal(made, -1);
        assert_int_equal(tri_model_finish(m), TRI_EINVAL);
        tri_model_destroy(m);
    }
    tri_model *m;
    OK(tri_model_create(NULL, &m));
    assert_int_equal(tri_model_input(m, TRI_BF16, tri_shape_make(0, NULL)), -1);
    sticks(m, "f32 or i32");
    OK(tri_model_create("m", &m));
    assert_int_equal(tri_model_input(m, TRI_F32, (tri_shape){.ndim = 6}), -1);
    sticks(m, "0 to 5 dimensions");
    tri_model_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builders_give_shapes_and_names),
        cmocka_unit_test(the_first_failure_sticks_with_its_node),
        cmocka_unit_test(models_without_an_end_or_with_loose_ends_are_refused),
        cmocka_unit_test(hostile_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
