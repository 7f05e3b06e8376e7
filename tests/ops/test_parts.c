/* SPDX-License-Identifier: Apache-2.0
 *
 * test_parts.c: the loss over a vocabulary in parts is that of the whole; its bits depend on neither threads, nor what
 * is kept, nor the side of a join.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/ops.h"

enum { PARTS = 4 };

typedef struct parts_run {
    op_run whole; /* data, and what vocab_loss makes of it */
    tri_kernel part[PARTS], join, sums;
    tri_op_call call[PARTS];
    float *state[PARTS], *down, *dinput[PARTS], *dweight[PARTS], *output;
    int64_t first[PARTS + 1];
} parts_run;

static void plan(const char *kind, const tri_op_desc *desc, int64_t units, tri_kernel *kernel)
{
    tri_op_desc copy = *desc;
    copy.attr.units = units;
    if (tri_op_infer(&copy) != TRI_OK || tri_kernel_plan(kind, &copy, kernel) != TRI_OK)
        fail_msg("%s: %s", tri_op_name(desc->op), tri_last_error());
}

static tri_op_desc states_desc(const parts_run *r, tri_op op)
{
    tri_op_desc desc = r->whole.kernel.desc;
    desc.op = op;
    desc.attr.words = r->whole.kernel.desc.param[0].dim[0];
    desc.input_count = 2;
    desc.input[0] = r->part[0].desc.output;
    desc.input_dtype[0] = TRI_F32;
    if (op == TRI_OP_VOCAB_JOIN) {
        desc.input[1] = desc.input[0];
        desc.input_dtype[1] = TRI_F32;
        desc.need_dinput[1] = true;
    }
    return desc;
}

static void part_open(parts_run *r, const char *kind, int p)
{
    const tri_op_desc *whole = &r->whole.kernel.desc;
    const int64_t words = whole->param[0].dim[0], width = whole->param[0].dim[1];
    tri_op_desc desc = *whole;
    desc.op = TRI_OP_VOCAB_PART;
    r->first[p] = words * p / PARTS;
    r->first[p + 1] = words * (p + 1) / PARTS;
    desc.attr.first = r->first[p];
    desc.attr.words = words;
    plan(kind, &desc, r->first[p + 1] - r->first[p], &r->part[p]);
    const size_t shards = (size_t)desc.max_shards;
    r->state[p] = tri_alloc_bulk((size_t)tri_shape_count(r->part[p].desc.output) * shards * 4);
    r->dinput[p] = tri_alloc_bulk((size_t)r->whole.input_count[0] * shards * 4);
    r->dweight[p] = tri_alloc_bulk((size_t)((r->first[p + 1] - r->first[p]) * width) * 4);
    r->call[p] = r->whole.call;
    r->call[p].param[0] = r->whole.param[0] + r->first[p] * width;
    r->call[p].output = r->state[p];
    r->call[p].saved = tri_alloc_bulk(r->part[p].saved_nbytes * shards);
    r->call[p].scratch = tri_alloc_bulk(r->part[p].scratch_nbytes);
    r->call[p].dinput[0] = r->dinput[p];
    r->call[p].dparam[0] = &r->dweight[p];
    tri_kernel_forward(&r->part[p], &r->call[p]);
}

static void join(const parts_run *r, float *a, const float *b)
{
    tri_op_call call = r->whole.call;
    call.input[0] = a;
    call.input[1] = b;
    call.output = a;
    tri_kernel_forward(&r->join, &call);
}

static void parts_open(parts_run *r, const char *kind, const op_case *c, int threads)
{
    *r = (parts_run){0};
    if (op_open(&r->whole, kind, c, threads, true) != TRI_OK)
        fail_msg("%s", tri_last_error());
    for (int p = 0; p < PARTS; p++)
        part_open(r, kind, p);
    tri_op_desc desc = states_desc(r, TRI_OP_VOCAB_JOIN);
    plan(kind, &desc, 0, &r->join);
    desc = states_desc(r, TRI_OP_VOCAB_SUMS);
    plan(kind, &desc, 0, &r->sums);
    join(r, r->state[0], r->state[1]);
    join(r, r->state[2], r->state[3]);
    join(r, r->state[0], r->state[2]);
    const size_t shards = (size_t)desc.max_shards;
    r->down = tri_alloc_bulk((size_t)tri_shape_count(desc.input[0]) * shards * 4);
    r->output = tri_alloc_bulk(shards * TRI_LOSS_COLUMNS * 4);
    tri_op_call call = r->whole.call;
    call.input[0] = r->state[0];
    call.output = r->output;
    call.saved = tri_alloc_bulk(r->sums.saved_nbytes * shards);
    call.dinput[0] = r->down;
    tri_kernel_forward(&r->sums, &call);
    tri_kernel_backward(&r->sums, &call);
    tri_free(call.saved);
    for (int p = 0; p < PARTS; p++) {
        r->call[p].doutput = r->down;
        tri_kernel_backward(&r->part[p], &r->call[p]);
    }
}

static void parts_close(parts_run *r)
{
    for (int p = 0; p < PARTS; p++) {
        tri_free(r->state[p]);
        tri_free(r->dinput[p]);
        tri_free(r->dweight[p]);
        tri_free(r->call[p].saved);
        tri_free(r->call[p].scratch);
        tri_kernel_release(&r->part[p]);
    }
    tri_free(r->down);
    tri_free(r->output);
    tri_kernel_release(&r->join);
    tri_kernel_release(&r->sums);
    op_close(&r->whole);
}

static void expect_near(const char *name, const char *what, const float *got, const float *want, int64_t count,
                        double part)
{
    double top = 1e-3;
    for (int64_t i = 0; i < count; i++)
        top = fmax(top, fabs((double)want[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= part * top))
            fail_msg("%s: %s[%lld]: want %.9g, got %.9g", name, what, (long long)i, (double)want[i], (double)got[i]);
}

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

/* The gradient of x, added up over parts, in f32. */
static float *dinput_sum(parts_run *r, int64_t count, tri_dtype half)
{
    for (int p = 0; p < PARTS; p++) {
        if (half)
            op_widen(r->dinput[p], count, half);
        if (p > 0)
            tri_vector_add(1, r->dinput[0], r->dinput[0], r->dinput[p], count);
    }
    return r->dinput[0];
}

static void parts_make_the_loss_of_the_whole(void **state)
{
    (void)state;
    static const char *const kinds[] = {"cpu", "reference"};
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++)
        for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
            parts_run r;
            const op_case *given = &cases[c];
            parts_open(&r, kinds[k], given, 2);
            const int64_t count = r.whole.input_count[0] * r.whole.call.shards, width = r.part[0].desc.param[0].dim[1];
            tri_kernel_forward(&r.whole.kernel, &r.whole.call);
            tri_kernel_backward(&r.whole.kernel, &r.whole.call);
            if (given->half)
                op_widen(r.whole.dinput[0], count, given->half);
            const double near = given->half ? 1.2e-2 : 3e-5;
            expect_near(given->name, "sums", r.output, r.whole.output, r.whole.call.shards * TRI_LOSS_COLUMNS, 3e-5);
            for (int s = 0; s < r.whole.call.shards; s++) /* counts are exact */
                for (int column = 1; column < TRI_LOSS_COLUMNS; column++)
                    assert_true(r.output[s * TRI_LOSS_COLUMNS + column] ==
                                r.whole.output[s * TRI_LOSS_COLUMNS + column]);
            expect_near(given->name, "dinput", dinput_sum(&r, count, given->half), r.whole.dinput[0], count, near);
            for (int p = 0; p < PARTS; p++)
                expect_near(given->name, "dparam", r.dweight[p], r.whole.dparam[0][0] + r.first[p] * width,
                            (r.first[p + 1] - r.first[p]) * width, near);
            parts_close(&r);
        }
}

static void bits_depend_on_neither_threads_nor_what_is_kept(void **state)
{
    (void)state;
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        parts_run one, more;
        op_case other = cases[c];
        other.attr.forget = !other.attr.forget;
        parts_open(&one, "cpu", &cases[c], 1);
        parts_open(&more, "cpu", &other, 3);
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
    parts_open(&r, "cpu", &cases[1], 1);
    const size_t nbytes =
        (size_t)(tri_shape_count(r.part[0].desc.output) * r.whole.call.shards) * sizeof(float); /* 1 and 3 are whole */
    float *left = tri_alloc_bulk(nbytes), *right = tri_alloc_bulk(nbytes);
    memcpy(left, r.state[1], nbytes);
    memcpy(right, r.state[3], nbytes);
    join(&r, left, r.state[3]);
    join(&r, right, r.state[1]);
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
