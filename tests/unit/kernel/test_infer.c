/* SPDX-License-Identifier: Apache-2.0
 *
 * test_infer.c: shapes that ops give, and what they refuse with which words; names and choice of rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"

static void expect_output(const op_case *c, const int64_t *output)
{
    tri_op_desc desc;
    if (op_describe(c, 1, &desc) != TRI_OK) {
        fail_msg("%s: %s", c->name, tri_last_error());
    }
    assert_true(tri_shape_equal(desc.output, op_shape(output)));
}

static void shapes_follow_the_formulas(void **state)
{
    (void)state;
    const op_case conv = {.name = "conv",
                          .op = TRI_OP_CONV,
                          .x = {2, 9, 8, 6},
                          .units = 12,
                          .attr = {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .bias = true}};
    expect_output(&conv, (int64_t[]){2, 5, 4, 12, 0});
    tri_op_desc desc;
    assert_int_equal(op_describe(&conv, 1, &desc), TRI_OK);
    assert_int_equal(desc.param_count, 2);
    assert_true(tri_shape_equal(desc.param[0], tri_shape_make(4, (int64_t[]){12, 6, 3, 3})));
    const op_case pool = {.name = "pool", .op = TRI_OP_MAX_POOL, .x = {1, 7, 7, 3}, .attr = {.kernel = {3, 2}}};
    expect_output(&pool, (int64_t[]){1, 5, 6, 3, 0});
    const op_case table = {.name = "embedding", .op = TRI_OP_EMBEDDING, .x = {3, 5}, .units = 10, .width = 4};
    expect_output(&table, (int64_t[]){3, 5, 4, 0});
    const op_case loss = {.name = "loss", .op = TRI_OP_CROSS_ENTROPY, .x = {3, 5, 7}, .other = {3, 5}};
    expect_output(&loss, (int64_t[]){TRI_LOSS_COLUMNS, 0});
    const op_case norm = {.name = "norm", .op = TRI_OP_BATCH_NORM, .x = {3, 5}};
    assert_int_equal(op_describe(&norm, 1, &desc), TRI_OK);
    assert_int_equal(desc.param_count, 4);
}

static void wrong_shapes_are_refused_with_words(void **state)
{
    (void)state;
    static const struct {
        op_case c;
        const char *words;
    } wrong[] = {
        {{.op = TRI_OP_LINEAR, .x = {4}, .units = 2}, "linear: input 0: want 2 to 6 dimensions"},
        {{.op = TRI_OP_LINEAR, .x = {4, 4}}, "want units from 1"},
        {{.op = TRI_OP_LINEAR, .x = {4, 4}, .units = -3}, "got -3"},
        {{.op = TRI_OP_LINEAR, .x = {4, INT64_C(1) << 40}, .units = 4}, "at most 2^40"},
        {{.op = TRI_OP_MATMUL, .x = {1, 2, 3}, .other = {1, 4, 5}}, "matmul: input 1"},
        {{.op = TRI_OP_MATMUL, .x = {1, 2, 3}}, "want 2 to 2 inputs, got 1"},
        {{.op = TRI_OP_CONV, .x = {1, 4, 4}, .units = 1, .attr = {.kernel = {1, 1}}}, "want 4 dimensions"},
        {{.op = TRI_OP_CONV, .x = {1, 4, 4, 3}, .units = 1}, "kernel"},
        {{.op = TRI_OP_CONV, .x = {1, 4, 4, 3}, .units = 1, .attr = {.kernel = {5, 1}}}, "window of at most 4"},
        {{.op = TRI_OP_CONV, .x = {1, 4, 4, 3}, .units = 4, .attr = {.kernel = {1, 1}, .groups = 2}}, "groups"},
        {{.op = TRI_OP_CONV, .x = {1, 4, 4, 3}, .units = 3, .attr = {.kernel = {1, 1}, .groups = -3}}, "groups"},
        {{.op = TRI_OP_MAX_POOL, .x = {1, 4, 4, 3}, .attr = {.kernel = {2, 2}, .pad = {2, 0}}}, "pad of at most half"},
        {{.op = TRI_OP_AVG_POOL, .x = {1, 4, 2, 3}, .attr = {.kernel = {1, 2}, .dilation = {1, 3}, .pad = {0, 2}}},
         "dilation"},
        {{.op = TRI_OP_BATCH_NORM, .x = {4, 4}, .attr = {.epsilon = -1}}, "epsilon"},
        {{.op = TRI_OP_DROPOUT, .x = {4}, .attr = {.rate = 1}}, "rate"},
        {{.op = TRI_OP_EMBEDDING, .x = {4}, .units = 3}, "width"},
        {{.op = TRI_OP_ADD, .x = {4, 2}, .other = {4, 3}}, "add: input 1"},
        {{.op = TRI_OP_CONCAT, .x = {4, 2}, .other = {4, 3}}, "axis"},
        {{.op = TRI_OP_CONCAT, .x = {4, 2, 2}, .other = {4, 3, 3}, .attr = {.axis = 1}}, "but for dimension 1"},
        {{.op = TRI_OP_RESHAPE, .x = {4, 2}, .to = {4}}, "as many samples"},
        {{.op = TRI_OP_TRANSPOSE, .x = {4, 2}, .attr = {.axes = {1, 0}}}, "batch first"},
        {{.op = TRI_OP_TRANSPOSE, .x = {4, 2, 2}, .attr = {.axes = {0, 1, 1}}}, "permute"},
        {{.op = TRI_OP_CROSS_ENTROPY, .x = {4, 10}, .other = {4, 10}}, "targets"},
        {{.op = TRI_OP_CROSS_ENTROPY, .x = {4, 10}, .other = {4}, .attr = {.smoothing = 2}}, "smoothing"},
        {{.op = TRI_OP_MSE, .x = {4, 10}, .other = {4}}, "targets"},
        {{.op = TRI_OP_COUNT, .x = {4}}, "op: want"},
        {{.op = TRI_OP_ATTENTION, .x = {2, 4, 12}}, "want heads that are a multiple"},
        {{.op = TRI_OP_ATTENTION, .x = {2, 4, 12}, .attr = {.heads = 3, .kv_heads = 2}}, "got 3 of 2"},
        {{.op = TRI_OP_ATTENTION, .x = {2, 4, 14}, .attr = {.heads = 2, .kv_heads = 1}}, "rows of 4 heads"},
        {{.op = TRI_OP_ATTENTION, .x = {4, 12}, .attr = {.heads = 2}}, "want 3 dimensions"},
        {{.op = TRI_OP_ROPE, .x = {2, 4, 9}, .attr = {.heads = 1, .theta = 10}}, "even width"},
        {{.op = TRI_OP_ROPE, .x = {2, 4, 12}, .attr = {.heads = 1}}, "a base above 0, got 4 and 0"},
        {{.op = TRI_OP_ROPE, .x = {2, 4, 12}, .attr = {.heads = 1, .theta = 10, .rope_factor = 0.5f}},
         "rope: want a factor"},
        {{.op = TRI_OP_SWIGLU, .x = {2, 7}}, "rows of two halves"},
        {{.op = TRI_OP_POSITIONS, .x = {2, 7, 3}, .units = 6}, "at most 6 tokens, got 7"},
        {{.op = TRI_OP_RMS_NORM, .x = {4, 4}, .attr = {.epsilon = -1}}, "epsilon"},
        {{.op = TRI_OP_VOCAB_LOSS, .x = {4, 10}, .other = {4}}, "units (words)"},
        {{.op = TRI_OP_VOCAB_LOSS, .x = {4, 10}, .other = {5}, .units = 3}, "vocab_loss: targets"},
        {{.op = TRI_OP_VOCAB_LOSS, .x = {4, 10}, .other = {4}, .units = 3, .attr = {.smoothing = 2}}, "smoothing"},
        {{.op = TRI_OP_VOCAB_PART, .x = {4, 10}, .other = {4}, .units = 3, .attr = {.first = 5, .words = 7}},
         "vocab_part: want 3 words from number 5 on to be within 7"},
        {{.op = TRI_OP_VOCAB_JOIN, .x = {4, 5}, .other = {4, 4}}, "input 1: want rows of 5 elements"},
        {{.op = TRI_OP_VOCAB_JOIN, .x = {4, 5}, .other = {3, 5}}, "vocab_join: input 1: want [4, 5], got [3, 5]"},
        {{.op = TRI_OP_VOCAB_SUMS, .x = {4, 5}, .other = {5}}, "vocab_sums: targets: want [4], got [5]"},
        {{.op = TRI_OP_VOCAB_SUMS, .x = {4, 5}, .other = {4}, .attr = {.ranks = 2, .rank = 2}}, "got rank 2 of 2"},
        {{.op = TRI_OP_SHARE_PARTS, .x = {4, 5}, .attr = {.ranks = 3}}, "share_parts: want a power of two of ranks"},
        {{.op = TRI_OP_SPREAD_TOKENS, .x = {4, 5, 3}, .attr = {.ranks = 2}}, "tokens that the 2 ranks divide, got 5"},
        {{.op = TRI_OP_GATHER_TOKENS, .x = {4, 5}, .attr = {.ranks = 2}}, "want 3 dimensions"},
        {{.op = TRI_OP_RMS_NORM, .x = {4, 5, 3}, .attr = {.parts = 2}}, "rms_norm: want tokens in a power of two"},
        {{.op = TRI_OP_BIAS, .x = {4, 6, 3}, .attr = {.parts = 3}}, "got 6 in 3 parts"},
        {{.op = TRI_OP_DROPOUT, .x = {4, 6, 3}, .attr = {.first = 20, .whole = 36}},
         "number 20 on to be within the 36"},
        {{.op = TRI_OP_POSITIONS, .x = {2, 4, 3}, .units = 6, .attr = {.ranks = 2}}, "at most 6 tokens, got 8"},
        {{.op = TRI_OP_SUM_PARTS, .x = {4, 5}, .attr = {.rank = -1}}, "sum_parts: want"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        tri_op_desc desc;
        assert_int_equal(op_describe(&wrong[i].c, 1, &desc), TRI_EINVAL);
        if (strstr(tri_last_error(), wrong[i].words) == NULL) {
            fail_msg("row %zu: want \"%s\" in \"%s\"", i, wrong[i].words, tri_last_error());
        }
    }
}

static void the_element_type_is_checked(void **state)
{
    (void)state;
    tri_op_desc desc = {.op = TRI_OP_RELU, .input_count = 1, .input = {{1, {4}}}, .input_dtype = {TRI_I32}};
    assert_int_equal(tri_op_infer(&desc), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "want elements of type f32, got i32"));
}

static void every_op_has_a_name_and_a_reference(void **state)
{
    (void)state;
    for (int i = 0; i < TRI_OP_COUNT; i++) {
        tri_op op;
        assert_true(tri_op_find(tri_op_name((tri_op)i), &op));
        assert_int_equal(op, i);
        tri_op_desc desc = {.op = (tri_op)i};
        assert_non_null(tri_kernel_choose("reference", &desc));
    }
    tri_op op;
    assert_false(tri_op_find("sorting", &op));
    assert_string_equal(tri_op_name(TRI_OP_COUNT), "?");
}

static void plans_refuse_unknown_kinds_and_empty_calls(void **state)
{
    (void)state;
    tri_op_desc desc;
    tri_kernel kernel;
    const op_case c = {.name = "relu", .op = TRI_OP_RELU, .x = {4, 4}};
    assert_int_equal(op_describe(&c, 1, &desc), TRI_OK);
    assert_int_equal(tri_kernel_plan("abacus", &desc, &kernel), TRI_EINVAL);
    desc.threads = 0;
    assert_int_equal(tri_kernel_plan("cpu", &desc, &kernel), TRI_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_follow_the_formulas),
        cmocka_unit_test(wrong_shapes_are_refused_with_words),
        cmocka_unit_test(the_element_type_is_checked),
        cmocka_unit_test(every_op_has_a_name_and_a_reference),
        cmocka_unit_test(plans_refuse_unknown_kinds_and_empty_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
