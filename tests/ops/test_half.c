/* SPDX-License-Identifier: Apache-2.0
 *
 * test_half.c: every op and shape of cases.h with values in bf16 and in f16, against the f32 reference on the same
 * values; the same bits for any number of threads and any cut of the shards; memory shared where rows say so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/cases.h"
#include "tier.h"

#define ROUNDED                                                                                                        \
    6e-3 /* of the largest element, for a value rounded to bf16 once: 2^-9 of itself, and some sum before it */
#define SUMMED 2e-4 /* for gradients of parameters, which are f32 */

/* All in bf16, then all in f16. */
#define HALF_CASES (2 * TRI_COUNT_OF(op_cases))
static op_case half_case(size_t i)
{
    op_case c = op_cases[i % TRI_COUNT_OF(op_cases)];
    c.half = i < TRI_COUNT_OF(op_cases) ? TRI_BF16 : TRI_F16;
    return c;
}

static void open_case(op_run *r, const char *kind, const op_case *c, int threads, bool ragged)
{
    if (op_open(r, kind, c, threads, ragged) != TRI_OK) {
        fail_msg("%s: %s", c->name, tri_last_error());
    }
}

static void run_both(op_run *r)
{
    tri_kernel_forward(&r->kernel, &r->call);
    tri_kernel_backward(&r->kernel, &r->call);
}

static int64_t input_total(const op_run *r, int i)
{
    return r->input_count[i] * r->kernel.desc.max_shards;
}

static int64_t output_total(const op_run *r)
{
    return r->output_count * r->kernel.desc.max_shards;
}

static bool is_half(tri_dtype dtype)
{
    return dtype == TRI_BF16 || dtype == TRI_F16;
}

/* What came out in 16 bits, as f32 in its place. */
static void widen_results(op_run *r)
{
    const tri_op_desc *desc = &r->kernel.desc;
    if (is_half(desc->output_dtype)) {
        op_widen(r->output, output_total(r), desc->output_dtype);
    }
    for (int i = 0; i < desc->input_count; i++) {
        if (is_half(desc->input_dtype[i])) {
            op_widen(r->dinput[i], input_total(r, i), desc->input_dtype[i]);
        }
    }
}

/* The f32 run gets the rounded values of the other, and both the same rounded parameters. */
static void copy_values(op_run *wide, const op_run *half)
{
    const tri_op_desc *desc = &half->kernel.desc;
    const tri_dtype type = tri_op_desc_has(desc, TRI_F16) ? TRI_F16 : TRI_BF16;
    for (int i = 0; i < desc->input_count; i++) {
        memcpy(wide->input[i], half->input[i], (size_t)input_total(half, i) * 4);
        if (is_half(desc->input_dtype[i])) {
            op_widen(wide->input[i], input_total(half, i), desc->input_dtype[i]);
        }
    }
    for (int p = 0; p < desc->param_count; p++) {
        op_halve(half->param[p], half->param_count[p], type);
        op_widen(half->param[p], half->param_count[p], type);
        memcpy(wide->param[p], half->param[p], (size_t)half->param_count[p] * 4);
    }
    memcpy(wide->doutput, half->doutput, (size_t)output_total(half) * 4);
    if (is_half(desc->output_dtype)) {
        op_widen(wide->doutput, output_total(half), desc->output_dtype);
    }
}

static void expect_near(const char *name, const char *what, const float *got, const float *want, int64_t count,
                        double part)
{
    double top = 1e-3;
    for (int64_t i = 0; i < count; i++) {
        top = fmax(top, fabs((double)want[i]));
    }
    for (int64_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - (double)want[i]) <= part * top)) {
            fail_msg("%s: %s[%lld]: want %.9g, got %.9g (largest %g)", name, what, (long long)i, (double)want[i],
                     (double)got[i], top);
        }
    }
}

static void compare_with_reference(const op_case *c, const char *kind, bool ragged)
{
    op_run half, wide;
    op_case plain = *c;
    plain.half = TRI_F32;
    open_case(&half, kind, c, 2, ragged);
    open_case(&wide, "reference", &plain, 1, ragged);
    copy_values(&wide, &half);
    run_both(&half);
    run_both(&wide);
    widen_results(&half);
    const tri_op_desc *desc = &wide.kernel.desc;
    expect_near(c->name, "output", half.output, wide.output, output_total(&wide), ROUNDED);
    for (int i = 0; i < desc->input_count; i++) {
        if (desc->need_dinput[i]) {
            expect_near(c->name, "dinput", half.dinput[i], wide.dinput[i], input_total(&wide, i), ROUNDED);
        }
    }
    for (int p = 0; p < desc->param_count; p++) {
        expect_near(c->name, "dparam", half.dparam[p][0], wide.dparam[p][0], wide.param_count[p],
                    c->op == TRI_OP_VOCAB_LOSS ? ROUNDED : SUMMED);
    }
    op_close(&half);
    op_close(&wide);
}

static void values_in_16_bits_match_the_reference(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool ragged;
    } kernels[] = {{"cpu", true}, {"tiles", true}, {"cpu", false}, {"reference", true}};
    for (size_t i = 0; i < HALF_CASES; i++) {
        const op_case c = half_case(i);
        for (size_t k = 0; k < tests_count(TRI_COUNT_OF(kernels), 2); k++) {
            compare_with_reference(&c, kernels[k].name, kernels[k].ragged);
        }
    }
}

/* Compares bytes as they came out. */
static void expect_same(const op_case *c, const op_run *got, const op_run *want)
{
    const tri_op_desc *desc = &want->kernel.desc;
    const size_t nbytes = tri_dtype_nbytes(desc->output_dtype);
    if (memcmp(got->output, want->output, (size_t)output_total(want) * nbytes) != 0) {
        fail_msg("%s: the output differs", c->name);
    }
    for (int i = 0; i < desc->input_count; i++) {
        if (desc->need_dinput[i] &&
            memcmp(got->dinput[i], want->dinput[i],
                   (size_t)input_total(want, i) * tri_dtype_nbytes(desc->input_dtype[i])) != 0) {
            fail_msg("%s: the gradient of input %d differs", c->name, i);
        }
    }
    for (int p = 0; p < desc->param_count; p++) {
        if (memcmp(got->dparam[p][0], want->dparam[p][0], (size_t)want->param_count[p] * 4) != 0) {
            fail_msg("%s: the gradient of parameter %d differs", c->name, p);
        }
    }
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < HALF_CASES; i++) {
        const op_case c = half_case(i);
        op_run one, more;
        open_case(&one, "cpu", &c, 1, true);
        run_both(&one);
        for (int threads = 2; threads <= 3; threads++) {
            open_case(&more, "cpu", &c, threads, true);
            run_both(&more);
            expect_same(&c, &more, &one);
            op_close(&more);
        }
        op_close(&one);
    }
}

/* Runs half of the shards of `whole`'s values, from shard `first`. */
static void run_slice(op_run *r, const op_run *whole, int first, int count)
{
    tri_op_call *call = &r->call;
    const tri_op_desc *desc = &r->kernel.desc;
    for (int i = 0; i < desc->input_count; i++) {
        const int64_t at = first * r->input_count[i] * (int64_t)tri_dtype_nbytes(desc->input_dtype[i]);
        call->input[i] = (const char *)whole->input[i] + at;
        call->dinput[i] = desc->need_dinput[i] ? (char *)r->dinput[i] + at : NULL;
    }
    const int64_t at = first * r->output_count * (int64_t)tri_dtype_nbytes(desc->output_dtype);
    call->output = (char *)r->output + at;
    call->doutput = (char *)r->doutput + at;
    call->rows = whole->rows + first;
    call->first_sample = whole->first_sample + first;
    call->shards = count;
    call->parts = &(tri_tree_part){0, count};
    run_both(r);
}

static void two_halves_add_up_to_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < HALF_CASES; i++) {
        const op_case c = half_case(i);
        op_run whole, half;
        if (c.attr.sync) { /* a half is another batch */
            continue;
        }
        open_case(&whole, "cpu", &c, 1, true);
        open_case(&half, "cpu", &c, 2, true);
        const int shards = whole.call.shards;
        run_both(&whole);
        float *sum[TRI_OP_MAX_PARAMS];
        run_slice(&half, &whole, 0, shards / 2);
        for (int p = 0; p < whole.kernel.desc.param_count; p++) {
            sum[p] = tri_alloc_bulk((size_t)whole.param_count[p] * sizeof(float));
            memcpy(sum[p], half.dparam[p][0], (size_t)whole.param_count[p] * sizeof(float));
        }
        run_slice(&half, &whole, shards / 2, shards / 2);
        for (int p = 0; p < whole.kernel.desc.param_count; p++) {
            tri_vector_add(1, half.dparam[p][0], sum[p], half.dparam[p][0], whole.param_count[p]);
            tri_free(sum[p]);
        }
        expect_same(&c, &half, &whole);
        op_close(&whole);
        op_close(&half);
    }
}

/* Where a row says that memory may be shared, sharing changes nothing. */
static void shared_memory_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < HALF_CASES; i++) {
        const op_case c = half_case(i);
        op_run apart, shared;
        open_case(&apart, "cpu", &c, 2, true);
        open_case(&shared, "cpu", &c, 2, true);
        const tri_kernel_ops *ops = shared.kernel.ops;
        run_both(&apart);
        const size_t nbytes = (size_t)output_total(&shared) * tri_dtype_nbytes(shared.kernel.desc.output_dtype);
        shared.call.output = ops->output_may_alias ? shared.input[0] : shared.output;
        tri_kernel_forward(&shared.kernel, &shared.call);
        memmove(shared.output, shared.call.output, nbytes);
        shared.call.dinput[0] = ops->dinput_may_alias ? shared.doutput : shared.call.dinput[0];
        if (!ops->backward_output) {
            memset(shared.call.output, 0xff, nbytes);
        }
        tri_kernel_backward(&shared.kernel, &shared.call);
        if (!ops->backward_output) {
            memcpy(shared.output, apart.output, nbytes);
        }
        if (ops->dinput_may_alias && apart.call.dinput[0] != NULL) {
            memcpy(shared.dinput[0], shared.doutput, nbytes);
        }
        expect_same(&c, &shared, &apart);
        op_close(&apart);
        op_close(&shared);
    }
}

/* The first layer reads the data in f32, the last one writes logits in f32. */
static void values_of_either_type_may_meet_in_one_op(void **state)
{
    (void)state;
    const op_case c = {.name = "linear", .op = TRI_OP_LINEAR, .x = {5, 33}, .units = 21, .attr = {.bias = true}};
    for (int mix = 0; mix < 4; mix++) {
        op_run wide;
        const tri_dtype type = mix < 2 ? TRI_BF16 : TRI_F16;
        const bool up = mix % 2 == 0;
        open_case(&wide, "reference", &c, 1, false);
        op_halve(wide.input[0], input_total(&wide, 0), type); /* exact in either type from here on */
        op_widen(wide.input[0], input_total(&wide, 0), type);
        op_halve(wide.doutput, output_total(&wide), type);
        op_widen(wide.doutput, output_total(&wide), type);
        run_both(&wide);
        op_run half;
        open_case(&half, "cpu", &c, 1, false);
        tri_op_desc desc = half.kernel.desc;
        desc.input_dtype[0] = up ? TRI_F32 : type;
        desc.output_dtype = up ? type : TRI_F32;
        tri_kernel_release(&half.kernel);
        assert_int_equal(tri_kernel_plan("cpu", &desc, &half.kernel), TRI_OK);
        tri_free(half.call.scratch);
        half.call.scratch = tri_alloc_bulk(half.kernel.scratch_nbytes);
        memcpy(half.input[0], wide.input[0], (size_t)input_total(&wide, 0) * 4);
        memcpy(half.doutput, wide.doutput, (size_t)output_total(&wide) * 4);
        op_halve(up ? half.doutput : half.input[0], up ? output_total(&half) : input_total(&half, 0), type);
        run_both(&half);
        widen_results(&half);
        expect_near(c.name, "output", half.output, wide.output, output_total(&wide), ROUNDED);
        expect_near(c.name, "dinput", half.dinput[0], wide.dinput[0], input_total(&wide, 0), ROUNDED);
        expect_near(c.name, "dparam", half.dparam[0][0], wide.dparam[0][0], wide.param_count[0], SUMMED);
        op_close(&wide);
        op_close(&half);
    }
}

/* A power of two, before anything is rounded: what is a normal number without stays the same but for the power. */
static void the_scale_of_a_loss_is_in_all_its_gradients(void **state)
{
    (void)state;
    static const op_case losses[] = {
        {.name = "cross_entropy", .op = TRI_OP_CROSS_ENTROPY, .x = {5, 33}, .other = {5}, .units = 33},
        {.name = "mse", .op = TRI_OP_MSE, .x = {5, 33}, .other = {5, 33}},
        {.name = "vocab_loss", .op = TRI_OP_VOCAB_LOSS, .x = {2, 13, 24}, .other = {2, 13}, .units = 53},
    };
    for (size_t i = 0; i < 3 * TRI_COUNT_OF(losses); i++) {
        op_case c = losses[i / 3];
        op_run one, more;
        c.half = i % 3 == 1 ? TRI_F16 : TRI_F32;
        const char *kind = i % 3 == 2 ? "reference" : "cpu";
        open_case(&one, kind, &c, 1, true);
        open_case(&more, kind, &c, 2, true);
        more.call.loss_scale = 0x1p10f;
        run_both(&one);
        run_both(&more);
        widen_results(&one);
        widen_results(&more);
        assert_memory_equal(more.output, one.output, (size_t)output_total(&one) * 4);
        for (int64_t j = 0; j < input_total(&one, 0); j++) {
            const float want = one.dinput[0][j] * 0x1p10f, got = more.dinput[0][j];
            assert_true(c.half == TRI_F16 ? fabsf(want - got) <= 0x1p-15f : want == got);
        }
        for (int64_t j = 0; one.kernel.desc.param_count > 0 && j < one.param_count[0]; j++) {
            assert_true(more.dparam[0][0][j] == one.dparam[0][0][j] * 0x1p10f);
        }
        op_close(&one);
        op_close(&more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_in_16_bits_match_the_reference),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(two_halves_add_up_to_the_whole),
        cmocka_unit_test(shared_memory_gives_the_same_bits),
        cmocka_unit_test(values_of_either_type_may_meet_in_one_op),
        cmocka_unit_test(the_scale_of_a_loss_is_in_all_its_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
