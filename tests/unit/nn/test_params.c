/* SPDX-License-Identifier: Apache-2.0
 *
 * test_params.c: the flat store: places, initial values that know only their name, and the hash of weights.
 */
#include "unit/nn/nn_rig.h"

/* Two layers, made in either order, so that places in the store differ and names do not. */
static tri_model *two_layers(bool swapped)
{
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){6}, &x, &y);
    tri_value a = -1, b = -1;
    for (int i = 0; i < 2; i++) {
        if ((i == 0) != swapped)
            a = tri_linear(m, x, (tri_linear_options){.units = 5, .name = "a"});
        else
            b = tri_linear(m, x, (tri_linear_options){.units = 5, .name = "b"});
    }
    tri_cross_entropy(m, tri_add(m, a, b), y, 0);
    return m;
}

static void values_and_hash_do_not_depend_on_the_order_of_layers(void **state)
{
    (void)state;
    tri_model *m[2] = {two_layers(false), two_layers(true)};
    tri_params *p[2];
    for (int i = 0; i < 2; i++)
        OK(tri_params_create(m[i], tri_device_host(), 42, &p[i]));
    const tri_param *a = tri_params_find(p[0], "a.weight"), *b = tri_params_find(p[1], "a.weight");
    assert_true(a->first != b->first);
    assert_memory_equal(p[0]->values + a->first, p[1]->values + b->first, (size_t)a->count * sizeof(float));
    assert_true(tri_params_hash(p[0]) == tri_params_hash(p[1]));
    uint64_t before = tri_params_hash(p[0]);
    p[0]->values[a->first + 3] += 1e-3f;
    assert_true(tri_params_hash(p[0]) != before);
    for (int i = 0; i < 2; i++) {
        tri_params_destroy(p[i]);
        tri_model_destroy(m[i]);
    }
}

static void the_hash_is_the_documented_one(void **state)
{
    (void)state;
    float values[32] = {1.0f, 2.0f};
    values[16] = 3.0f;
    tri_param entries[] = {{.name = "b", .shape = {1, {2}}, .first = 0, .count = 2},
                           {.name = "a", .first = 16, .count = 1}};
    tri_params params = {
        .entries = entries, .entry_count = 2, .count = 32, .values = values, .device = tri_device_host()};
    /* xxh3 of "a\0", f32 = 0, 3.0f, "b\0", 0, 2, 1.0f, 2.0f; computed in one piece by libxxhash */
    assert_true(tri_params_hash(&params) == UINT64_C(0x8e87de2ce63235b0));
}

static void entries_are_aligned_and_gaps_are_zero(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, rig_resnet(), 5, "reference", 1, true);
    const tri_params *p = r.params;
    int64_t end = 0;
    for (int e = 0; e < p->entry_count; e++) {
        assert_true(p->entries[e].first % TRI_PARAMS_ALIGN == 0 && p->entries[e].first >= end);
        for (; end < p->entries[e].first; end++)
            assert_true(p->values[end] == 0);
        end = p->entries[e].first + p->entries[e].count;
        assert_int_equal(p->entries[e].count, tri_shape_count(p->entries[e].shape));
    }
    assert_true(p->count >= end && p->count % TRI_PARAMS_ALIGN == 0);
    assert_null(tri_params_find(p, "absent"));
    const tri_param *mean = tri_params_find(p, "bn2.running_mean"), *var = tri_params_find(p, "bn2.running_var");
    assert_true(mean->buffer && mean->momentum == 0.2f && !mean->decay && p->values[var->first] == 1);
    assert_true(tri_params_find(p, "conv1.weight")->decay && !tri_params_find(p, "bn1.weight")->decay);
    rig_close(&r);
}

static void a_share_of_the_store_has_the_values_of_the_whole(void **state)
{
    (void)state;
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){40}, &x, &y);
    x = tri_linear(m, x, (tri_linear_options){.units = 50, .name = "a"});
    tri_cross_entropy(m, tri_linear(m, x, (tri_linear_options){.units = 5, .name = "b"}), y, 0);
    tri_params *whole, *share;
    OK(tri_params_create(m, tri_device_host(), 9, &whole));
    OK(tri_params_lay(m, NULL, tri_device_host(), &share));
    assert_null(share->values);
    const tri_slice slices[] = {{16, 1600}, {1984, whole->count - 1984}};
    OK(tri_params_fill(share, m, 9, slices, 2));
    assert_int_equal(share->share_count, 2);
    assert_int_equal(share->share_elements, 1600 + slices[1].count);
    assert_memory_equal(share->values, whole->values + 16, 1600 * sizeof(float));
    assert_memory_equal(share->values + 1600, whole->values + 1984, (size_t)slices[1].count * sizeof(float));
    /* Tensor by tensor, as whoever gathers them does. */
    tri_params_hasher hasher;
    tri_params_hasher_init(&hasher);
    for (int e = 0; e < whole->entry_count; e++) { /* in order of name */
        const tri_param *entry = &whole->entries[e == 0 ? 1 : e == 1 ? 0 : e == 2 ? 3 : 2];
        tri_params_hasher_begin(&hasher, entry->name, entry->shape);
        tri_params_hasher_put(&hasher, whole->values + entry->first, entry->count / 2);
        tri_params_hasher_put(&hasher, whole->values + entry->first + entry->count / 2,
                              entry->count - entry->count / 2);
    }
    assert_true(tri_params_hasher_end(&hasher) == tri_params_hash(whole));
    tri_params_destroy(whole);
    tri_params_destroy(share);
    tri_model_destroy(m);
}

static void initial_values_have_their_spread(void **state)
{
    (void)state;
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 3, (int64_t[]){8, 8, 16}, &x, &y);
    x = tri_conv(m, x, (tri_conv_options){.channels = 32, .kernel = {3}, .name = "uniform"});
    m->conv_init = TRI_INIT_HE;
    x = tri_conv(m, x, (tri_conv_options){.channels = 64, .kernel = {3}, .name = "he"});
    tri_cross_entropy(m, tri_linear(m, tri_flatten(m, x), (tri_linear_options){.units = 5}), y, 0);
    tri_params *p;
    OK(tri_params_create(m, tri_device_host(), 9, &p));
    const struct {
        const char *name;
        double deviation, limit;
    } cases[] = {{"uniform.weight", 1 / 12.0 / sqrt(3), 1 / 12.0}, {"he.weight", sqrt(2 / (64 * 9.0)), 10}};
    for (size_t c = 0; c < 2; c++) {
        const tri_param *entry = tri_params_find(p, cases[c].name);
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < entry->count; i++) {
            double v = (double)p->values[entry->first + i];
            assert_true(fabs(v) <= cases[c].limit);
            sum += v;
            squares += v * v;
        }
        double n = (double)entry->count;
        assert_true(fabs(sum / n) < 5 * cases[c].deviation / sqrt(n));
        assert_true(fabs(sqrt(squares / n) / cases[c].deviation - 1) < 0.05);
    }
    tri_params_destroy(p);
    tri_model_destroy(m);
}

static void running_out_of_memory_leaks_nothing(void **state)
{
    (void)state;
    uint64_t live = tri_memory_now().live;
    tri_model *m = rig_attention();
    OK(tri_model_finish(m));
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        tri_params *params = NULL;
        tri_graph *graph = NULL;
        tri_graph_config config = rig_config("cpu", 1);
        tri_memory_fail_at(n);
        tri_status status = tri_params_create(m, tri_device_host(), 1, &params);
        if (status == TRI_OK)
            status = tri_graph_compile(m, params, &config, &graph);
        tri_memory_fail_at(0);
        done = status == TRI_OK;
        assert_true(done || status == TRI_ENOMEM);
        tri_graph_destroy(graph);
        tri_params_destroy(params);
    }
    tri_model_destroy(m);
    assert_int_equal(tri_memory_now().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_hash_do_not_depend_on_the_order_of_layers),
        cmocka_unit_test(the_hash_is_the_documented_one),
        cmocka_unit_test(entries_are_aligned_and_gaps_are_zero),
        cmocka_unit_test(a_share_of_the_store_has_the_values_of_the_whole),
        cmocka_unit_test(initial_values_have_their_spread),
        cmocka_unit_test(running_out_of_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
