/* SPDX-License-Identifier: Apache-2.0
 *
 * test_parts.c: the loss over a vocabulary in parts is that of the whole; its bits depend on neither threads, nor what
 * is kept, nor the side of a join.
 */
#include "ops/parts.h"

static const op_case cases[] = {
    {.name = "few words", .op = TRI_OP_VOCAB_LOSS, .x = {3, 5, 20}, .other = {3, 5}, .units = 37},
    {.name = "tiles",
     .op = TRI_OP_VOCAB_LOSS,
     .x = {2, 30, 24},
     .other = {2, 30},
     .units = 4501,
     .attr = {.smoothing = 0.05f}},
    {.name = "forgetful",
     .op = TRI_OP_VOCAB_LOSS,
     .x = {2, 13, 24},
     .other = {2, 13},
     .units = 4603,
     .attr = {.forget = true}},
    {.name = "bf16", .op = TRI_OP_VOCAB_LOSS, .x = {2, 13, 24}, .other = {2, 13}, .units = 53, .half = TRI_BF16},
    {.name = "f16", .op = TRI_OP_VOCAB_LOSS, .x = {2, 13, 24}, .other = {2, 13}, .units = 53, .half = TRI_F16},
};

static void parts_make_the_loss_of_the_whole(void **state)
{
    (void)state;
    static const char *const kinds[] = {"cpu", "reference"};
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++)
        for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++)
            parts_compare(kinds[k], &cases[c], 2, NULL);
}

static void bits_depend_on_neither_threads_nor_what_is_kept(void **state)
{
    (void)state;
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        parts_run one, more;
        op_case other = cases[c];
        other.attr.forget = !other.attr.forget;
        parts_open(&one, "cpu", &cases[c], 1, NULL);
        parts_open(&more, "cpu", &other, 3, NULL);
        assert_true(one.part[0].saved_nbytes != more.part[0].saved_nbytes);
        const size_t count = (size_t)(one.whole.input_count[0] * one.whole.call.shards);
        assert_memory_equal(more.output, one.output, (size_t)one.whole.call.shards * TRI_LOSS_COLUMNS * 4);
        for (int p = 0; p < PARTS; p++) {
            assert_memory_equal(more.dinput[p], one.dinput[p], count * (cases[c].half ? 2 : 4));
            assert_memory_equal(more.dweight[p], one.dweight[p],
                                (size_t)tri_shape_count(one.part[p].desc.param[0]) * 4);
        }
        parts_close(&one);
        parts_close(&more);
    }
}

static void either_side_of_a_join_is_as_good(void **state)
{
    (void)state;
    parts_run r;
    parts_open(&r, "cpu", &cases[1], 1, NULL);
    const size_t nbytes =
        (size_t)(tri_shape_count(r.part[0].desc.output) * r.whole.call.shards) * sizeof(float); /* 1 and 3 are whole */
    float *left = tri_alloc_bulk(nbytes), *right = tri_alloc_bulk(nbytes);
    memcpy(left, r.state[1], nbytes);
    memcpy(right, r.state[3], nbytes);
    parts_join(&r, left, r.state[3]);
    parts_join(&r, right, r.state[1]);
    assert_memory_equal(left, right, nbytes);
    assert_memory_not_equal(left, r.state[1], nbytes);
    tri_free(left);
    tri_free(right);
    parts_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_make_the_loss_of_the_whole),
        cmocka_unit_test(bits_depend_on_neither_threads_nor_what_is_kept),
        cmocka_unit_test(either_side_of_a_join_is_as_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
