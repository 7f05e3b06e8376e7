/* SPDX-License-Identifier: Apache-2.0
 *
 * test_piece.c: pieces of tensors: every element is in one of them, both ways agree, and a store of pieces is the store
 * of the tensor.
 */
#include "unit/nn/nn_rig.h"

static const struct {
    tri_shape shape;
    int dim, groups, parts, lead;
} cuts[] = {
    {{1, {12}}, 0, 1, 4, 0},    {{1, {12}}, 0, 3, 2, 0},      {{2, {12, 5}}, 0, 3, 4, 0}, {{2, {5, 12}}, 1, 1, 2, 0},
    {{2, {5, 12}}, 1, 2, 3, 0}, {{3, {3, 4, 5}}, 1, 2, 2, 0}, {{2, {13, 3}}, 0, 1, 4, 0}, {{1, {7}}, 0, 1, 1, 0},
    {{2, {20, 3}}, 0, 3, 2, 3}, {{2, {2, 24}}, 1, 3, 4, 4},   {{1, {15}}, 0, 2, 2, 2},
};

/* The piece and its shape. */
static tri_piece piece_of(size_t c, int part, tri_shape *shape)
{
    tri_piece piece = {cuts[c].parts, part, cuts[c].dim, cuts[c].groups, cuts[c].shape.dim[cuts[c].dim], cuts[c].lead};
    *shape = cuts[c].shape;
    shape->dim[piece.dim] = tri_piece_count(piece);
    return piece;
}

static void every_element_is_in_one_piece_and_found_again(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(cuts) / sizeof(cuts[0]); c++) {
        int seen[64] = {0};
        for (int part = 0; part < cuts[c].parts; part++) {
            tri_shape shape;
            tri_piece piece = piece_of(c, part, &shape);
            int64_t last = -1, count, back;
            assert_true(tri_shape_equal(tri_piece_whole(shape, piece), cuts[c].shape));
            for (int64_t at = 0; at < tri_shape_count(shape); at++) {
                int64_t place = tri_piece_place(shape, piece, at, &count);
                assert_true(place > last && place < tri_shape_count(cuts[c].shape) && count >= 1);
                assert_int_equal(tri_piece_find(shape, piece, place, &back), at);
                assert_int_equal(back, count);
                seen[place]++;
                last = place;
            }
            for (int64_t place = 0; place < tri_shape_count(cuts[c].shape); place++)
                if (tri_piece_find(shape, piece, place, &count) < 0)
                    for (int64_t i = 0; i < count && place + i < tri_shape_count(cuts[c].shape); i++)
                        assert_true(tri_piece_find(shape, piece, place + i, &back) < 0);
        }
        for (int64_t place = 0; place < tri_shape_count(cuts[c].shape); place++)
            assert_int_equal(seen[place], 1);
    }
}

/* Two linear layers that are the halves of one with 6 units, added up; or that one. */
static tri_model *halves(int parts)
{
    tri_value x, y, sum = -1;
    tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){6}, &x, &y);
    for (int part = 0; part < parts; part++) {
        tri_piece piece = {parts, part, 0, 1, 6, 0};
        tri_build build = {
            .op = TRI_OP_LINEAR,
            .attr = {.bias = true, .units = 6 / parts},
            .input_count = 1,
            .input = {x},
            .name = "a",
            .param = {{"weight", TRI_INIT_FAN_IN, true, false, piece}, {"bias", TRI_INIT_FAN_IN, false, false, piece}}};
        tri_value part_of = tri_model_add(m, &build);
        sum = part == 0 ? part_of : tri_add(m, sum, part_of);
    }
    tri_cross_entropy(m, sum, y, 0);
    return m;
}

static void pieces_of_a_tensor_begin_as_the_tensor(void **state)
{
    (void)state;
    tri_model *m[2] = {halves(1), halves(2)};
    tri_params *p[2];
    for (int i = 0; i < 2; i++)
        OK(tri_params_create(m[i], tri_device_host(), 42, &p[i]));
    assert_int_equal(p[1]->entry_count, 4);
    assert_true(tri_params_hash(p[0]) == tri_params_hash(p[1]));
    p[1]->values[p[1]->entries[2].first] += 1;
    assert_true(tri_params_hash(p[0]) != tri_params_hash(p[1]));
    for (int i = 0; i < 2; i++) {
        tri_params_destroy(p[i]);
        tri_model_destroy(m[i]);
    }
}

static void a_store_of_some_has_those_alone(void **state)
{
    (void)state;
    tri_model *m = halves(2);
    tri_params *all, *some;
    const bool wanted[] = {false, true, true, false};
    OK(tri_params_create(m, tri_device_host(), 42, &all));
    OK(tri_params_create_some(m, wanted, tri_device_host(), 42, &some));
    assert_int_equal(some->entry_count, 2);
    assert_int_equal(some->block_count, all->block_count);
    for (int e = 0; e < 2; e++) {
        const tri_param *entry = &some->entries[e], *same = &all->entries[entry->number];
        assert_int_equal(entry->number, e + 1);
        assert_int_equal(entry->block, same->block);
        assert_memory_equal(some->values + entry->first, all->values + same->first,
                            (size_t)entry->count * sizeof(float));
    }
    assert_true(some->of_model[0] == -1 && some->of_model[1] == 0 && some->of_model[2] == 1 && some->of_model[3] == -1);
    tri_params_destroy(all);
    tri_params_destroy(some);
    tri_model_destroy(m);
}

static void a_piece_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    const struct {
        tri_piece piece;
        const char *words;
    } cases[] = {{{2, 0, 0, 1, 8, 0}, "want 4 in dimension 0 of piece 0 of 2, got 3"},
                 {{2, 2, 0, 1, 6, 0}, "piece 2 of 2 of dimension 0 in 1 groups of 6 is none"},
                 {{2, 0, 5, 1, 6, 0}, "piece 0 of 2 of dimension 5"},
                 {{2, 0, 0, 3, 6, 2}, "piece 0 of 2 of dimension 0 in 3 groups of 6 is none"}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        tri_value x, y;
        tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){6}, &x, &y);
        tri_build build = {.op = TRI_OP_LINEAR,
                           .attr = {.units = 3},
                           .input_count = 1,
                           .input = {x},
                           .name = "a",
                           .param = {{"weight", TRI_INIT_FAN_IN, true, false, cases[c].piece}}};
        assert_int_equal(tri_model_add(m, &build), -1);
        assert_int_equal(tri_model_check(m), TRI_EINVAL);
        assert_non_null(strstr(tri_last_error(), cases[c].words));
        tri_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_in_one_piece_and_found_again),
        cmocka_unit_test(pieces_of_a_tensor_begin_as_the_tensor),
        cmocka_unit_test(a_store_of_some_has_those_alone),
        cmocka_unit_test(a_piece_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
