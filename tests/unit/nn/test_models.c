/* SPDX-License-Identifier: Apache-2.0
 *
 * test_models.c: ready models have the sizes the papers give, lists of layers mean what they say, and wrong ones are
 * refused with line and nearest name.
 */
#include "base/yaml.h"
#include "unit/nn/nn_rig.h"

static tri_status build(const char *text, int ndim, const int64_t *dim, int64_t classes, tri_model **out)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    OK(tri_yaml_parse(&arena, text, strlen(text), "m.yaml", &root));
    tri_status status = tri_model_build(root, tri_shape_make(ndim, dim), classes, out);
    tri_arena_fini(&arena); /* the model keeps nothing of the configuration */
    return status;
}

static void ready_models_have_the_known_number_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t dim[3], classes, count;
    } cases[] = {
        {"name: mlp", {28, 28, 1}, 10, 784 * 512 + 512 + 512 * 256 + 256 + 2560 + 10},
        {"{name: mlp, hidden: [64], dropout: 0.1}", {28, 28, 1}, 10, 784 * 64 + 64 + 640 + 10},
        {"{name: mlp, hidden: []}", {28, 28, 1}, 10, 7850},
        {"name: lenet", {28, 28, 1}, 10, 61706},
        {"name: lenet", {32, 32, 1}, 10, 61706},
        {"name: cnn", {28, 28, 1}, 10, 1199882},
        {"{name: resnet, depth: 20}", {32, 32, 3}, 10, 272474},
        {"{name: resnet, depth: 56}", {32, 32, 3}, 10, 855770},
        {"{name: resnet, depth: 18}", {224, 224, 3}, 1000, 11689512},
        {"{name: resnet, depth: 34}", {224, 224, 3}, 1000, 21797672},
        {"{name: resnet, depth: 50}", {224, 224, 3}, 1000, 25557032},
        {"{name: vgg, depth: 11, batch_norm: false}", {224, 224, 3}, 1000, 132863336},
        {"{name: vgg, depth: 13, batch_norm: true}", {224, 224, 3}, 1000, 133053736},
        {"{name: vgg, depth: 16, batch_norm: false}", {224, 224, 3}, 1000, 138357544},
        {"{name: vgg, depth: 19, batch_norm: false}", {224, 224, 3}, 1000, 143667240},
        {"{name: vgg, depth: 16, batch_norm: false}", {32, 32, 3}, 10, 14719818},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_model *m;
        OK(build(cases[i].text, 3, cases[i].dim, cases[i].classes, &m));
        if (strstr(cases[i].text, "batch_norm: true")) { /* torchvision's convolutions keep their bias */
            assert_int_equal(tri_model_param_count(m), cases[i].count - 2944);
        } else if (tri_model_param_count(m) != cases[i].count) {
            fail_msg("%s: want %lld parameters, got %lld", cases[i].text, (long long)cases[i].count,
                     (long long)tri_model_param_count(m));
        }
        tri_model_destroy(m);
    }
}

static void ready_models_run_and_improve(void **state)
{
    (void)state;
    static const char *const texts[] = {"{name: mlp, hidden: 16, smoothing: 0.1}", "name: lenet",
                                        "{name: cnn, channels: [4, 4], hidden: 8, dropout: 0.2}", "name: resnet"};
    for (size_t i = 0; i < TRI_COUNT_OF(texts); i++) {
        tri_model *m;
        rig r;
        OK(build(texts[i], 2, (int64_t[]){16, 16}, 5, &m));
        rig_open(&r, m, 5, "cpu", 1, true);
        float first = rig_run_whole(&r, 0), last = first;
        for (int step = 0; step < 5; step++) {
            for (int e = 0; e < r.params->entry_count; e++)
                for (int64_t k = 0; !r.params->entries[e].buffer && k < r.params->entries[e].count; k++)
                    r.params->values[r.params->entries[e].first + k] -=
                        0.001f * r.grads[0][r.params->entries[e].first + k];
            last = rig_run_whole(&r, 0);
        }
        if (!(last < first))
            fail_msg("%s: the loss went from %g to %g", texts[i], (double)first, (double)last);
        rig_close(&r);
    }
}

static void a_list_of_layers_is_the_model_it_describes(void **state)
{
    (void)state;
    static const char text[] =
        "layers:\n"
        "  - conv2d: {out: 8, kernel: [3, 3], pad: 1, stride: 1, relu: true}\n"
        "  - batch_norm\n"
        "  - relu\n"
        "  - residual: [conv2d: {out: 8, kernel: 3, pad: 1, bias: false}, batch_norm: {momentum: 0.3}]\n"
        "  - max_pool: 2\n"
        "  - residual:\n"
        "      layers: [conv2d: {out: 16, kernel: 3, pad: 1, stride: 2}, gelu]\n"
        "      shortcut: {conv2d: {out: 16, kernel: 1, stride: 2, name: down}}\n"
        "      relu: true\n"
        "  - avg_pool: {kernel: 2, stride: 1, pad: 1}\n"
        "  - global_pool\n"
        "  - dropout: 0.5\n"
        "  - linear: {out: 12, relu: true}\n"
        "  - layer_norm: {epsilon: 1e-6}\n"
        "  - tanh\n"
        "  - linear: classes\n";
    tri_model *m;
    OK(build(text, 2, (int64_t[]){12, 12}, 7, &m));
    assert_int_equal(tri_model_param_count(m),
                     8 * 9 + 8 + 16 + 8 * 8 * 9 + 16 + 16 * 8 * 9 + 16 + 16 * 8 + 16 + 16 * 12 + 12 + 24 + 12 * 7 + 7);
    rig r;
    rig_open(&r, m, 7, "cpu", 1, true);
    assert_non_null(tri_params_find(r.params, "down.weight"));
    assert_true(tri_params_find(r.params, "bn2.running_var")->momentum == 0.3f);
    assert_true(isfinite(rig_run_whole(&r, 0)));
    rig_close(&r);
    OK(build("layers: [embedding: {rows: 5, width: 8}, layer_norm, linear: classes]", 1, (int64_t[]){6}, 5, &m));
    rig_open(&r, m, 5, "cpu", 1, true);
    assert_true(isfinite(rig_run_whole(&r, 0)));
    rig_close(&r);
    OK(build("layers: [linear: 8, silu, linear: 3]", 1, (int64_t[]){6}, 0, &m)); /* real targets: squared error */
    rig_open(&r, m, 0, "cpu", 1, true);
    assert_true(isfinite(rig_run_whole(&r, 0)));
    rig_close(&r);
}

static void wrong_configurations_say_where_and_what_was_meant(void **state)
{
    (void)state;
    static const struct {
        const char *text, *needle;
    } cases[] = {
        {"{}", "want a name"},
        {"name: resnett", "line 1: there is no model 'resnett'; did you mean 'resnet'?"},
        {"name: [a]", "want one name"},
        {"name: resnet\ndepht: 20", "line 2: there is no field of model resnet 'depht'; did you mean 'depth'?"},
        {"{name: resnet, depth: 21}", "want 20, 32, 44, 56"},
        {"{name: vgg, depth: 12}", "want 11, 13, 16 or 19"},
        {"{name: mlp, hidden: [a]}", "hidden: want an integer"},
        {"{name: mlp, dropout: 1}", "dropout: want a number"},
        {"{name: cnn, channels: [1, 2, 3, 4, 5, 6, 7]}", "window of at most"},
        {"{name: cnn, smoothing: 2}", "smoothing"},
        {"layers: 3", "want a list of layers"},
        {"{name: cnn, layers: [flatten, linear: classes]}", "want either name: cnn or layers, got both"},
        {"{layers: [flatten, linear: classes], sync_batch_norm: true}", "want a model with batch norms"},
        {"{name: vgg, batch_norm: false, sync_batch_norm: true}", "want a model with batch norms"},
        {"layers:\n  - relu\n  - relo", "line 3: there is no layer 'relo'; did you mean 'relu'?"},
        {"layers:\n  - conv2d: {out: 3, kernal: 3}",
         "line 2: there is no field of conv2d 'kernal'; did you mean 'kernel'?"},
        {"layers: [conv2d: {kernel: 3}]", "needs the field 'out'"},
        {"layers: [conv2d: 3]", "needs its fields by name"},
        {"layers: [relu: 3]", "needs no fields"},
        {"layers: [relu: {a: 3}]", "has no fields"},
        {"layers: [linear]", "needs the field 'out'"},
        {"layers: [{linear: 3, relu: 1}]", "want one layer"},
        {"layers: [[relu]]", "want one layer"},
        {"layers:\n- flatten\n- linear: 10\n- max_pool: 2\n- linear: classes",
         "line 4: max_pool needs an image sample [H, W, C], got [10]"},
        {"layers: [flatten: cwh, linear: 10]", "order: want hwc or chw (PyTorch's order), got cwh"},
        {"layers: [flatten: {order: [chw]}, linear: 10]", "order: want hwc or chw"},
        {"{name: lenet, flatten: nchw}", "flatten: want hwc or chw (PyTorch's order), got nchw"},
        {"layers: [flatten, linear: 9]", "want the last layer to give 10 numbers"},
        {"layers: [residual: [linear: 3]]", "add"},
        {"layers: [max_pool: [1, 2, 3]]", "[height, width]"},
        {"layers: [dropout: no]", "rate"},
        {"layers: [batch_norm: {name: [1]}]", "want a text"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_model *m = NULL;
        tri_status status = build(cases[i].text, 3, (int64_t[]){12, 12, 1}, 10, &m);
        if (status != TRI_ECONFIG || !strstr(tri_last_error(), cases[i].needle))
            fail_msg("%s: got %s: %s", cases[i].text, tri_status_name(status), tri_last_error());
        assert_null(m);
    }
    tri_model *m = NULL;
    assert_int_equal(tri_model_build(NULL, (tri_shape){0}, 10, &m), TRI_ECONFIG);
    assert_int_equal(build("name: resnet", 1, (int64_t[]){12}, 10, &m), TRI_ECONFIG);
    assert_int_equal(build("layers: [linear: classes]", 1, (int64_t[]){12}, 0, &m), TRI_ECONFIG);
    assert_int_equal(build("{name: mlp, smoothing: 0.1}", 1, (int64_t[]){12}, 0, &m), TRI_ECONFIG);
    assert_string_equal(tri_last_error(), "model.smoothing: want targets that are classes, got real numbers");
    OK(build("{name: net, layers: [linear: classes]}", 1, (int64_t[]){12}, 10, &m)); /* a title */
    tri_model_destroy(m);
}

static void help_names_every_model(void **state)
{
    (void)state;
    tri_string help = {0};
    OK(tri_models_help(&help));
    static const char *const names[] = {"mlp", "lenet", "cnn", "resnet", "vgg", "layers"};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
        assert_non_null(strstr(tri_string_text(&help), names[i]));
    tri_string_fini(&help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready_models_have_the_known_number_of_parameters),
        cmocka_unit_test(ready_models_run_and_improve),
        cmocka_unit_test(a_list_of_layers_is_the_model_it_describes),
        cmocka_unit_test(wrong_configurations_say_where_and_what_was_meant),
        cmocka_unit_test(help_names_every_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
