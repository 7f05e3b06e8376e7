/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ops.c: every op and shape of cases.h: fast rows against the reference, the reference against finite differences,
 * and the same bits for any number of threads and any cut of the shards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/cases.h"

#define MATCH 3e-5 /* of the largest element, for sums of a few hundred terms */

/* Each case with each fast row that can compute it: the kinds differ in what they prefer. */
static struct {
    const char *kind;
    const op_case *op;
} fast[3 * TRI_COUNT_OF(op_cases)];
static size_t fast_count;

static void list_rows(void)
{
    static const char *const kinds[] = {"cpu", "dnnl", "tiles"};
    for (size_t i = 0; i < TRI_COUNT_OF(op_cases); i++) {
        const tri_kernel_ops *last = NULL;
        tri_op_desc desc;
        for (size_t k = 0; k < TRI_COUNT_OF(kinds) && op_describe(&op_cases[i], 1, &desc) == TRI_OK; k++) {
            const tri_kernel_ops *ops = tri_kernel_choose(kinds[k], &desc);
            if (ops != last) {
                fast[fast_count].kind = kinds[k];
                fast[fast_count++].op = &op_cases[i];
            }
            last = ops;
        }
    }
}

static void open_case(op_run *r, const char *kind, const op_case *c, int threads, bool ragged)
{
    const tri_status status = op_open(r, kind, c, threads, ragged);
    if (status != TRI_OK) {
        fail_msg("%s: %s", c->name, tri_last_error());
    }
}

static void run_both(op_run *r)
{
    tri_kernel_forward(&r->kernel, &r->call);
    tri_kernel_backward(&r->kernel, &r->call);
}

/* Largest difference over largest element must stay small. */
static void expect_near(const char *name, const char *what, const float *got, const float *want, int64_t count)
{
    double error = 0, top = 1e-3;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        const double e = fabs((double)got[i] - (double)want[i]);
        if (!(e <= error) && !isnan(error)) { /* a NaN stays */
            error = e;
            at = i;
        }
        top = fmax(top, fabs((double)want[i]));
    }
    if (!(error <= MATCH * top)) {
        fail_msg("%s: %s[%lld]: want %.9g, got %.9g (largest %g)", name, what, (long long)at, (double)want[at],
                 (double)got[at], top);
    }
}

static void expect_same(const char *name, const char *what, const float *got, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0) {
            fail_msg("%s: %s[%lld]: want the bits of %.9g, got %.9g", name, what, (long long)i, (double)want[i],
                     (double)got[i]);
        }
    }
}

typedef void (*compare_fn)(const char *name, const char *what, const float *got, const float *want, int64_t count);

static void compare_runs(const op_case *c, const op_run *got, const op_run *want, compare_fn compare)
{
    const tri_op_desc *desc = &want->kernel.desc;
    compare(c->name, "output", got->output, want->output, want->output_count * desc->max_shards);
    for (int i = 0; i < desc->input_count; i++) {
        if (desc->need_dinput[i]) {
            compare(c->name, i == 0 ? "dinput 0" : "dinput 1", got->dinput[i], want->dinput[i],
                    want->input_count[i] * desc->max_shards);
        }
    }
    for (int p = 0; p < desc->param_count; p++) {
        for (int part = 0; part < want->call.part_count; part++) {
            compare(c->name, "dparam", got->dparam[p][part], want->dparam[p][part], want->param_count[p]);
        }
    }
}

static void fast_rows_match_the_reference(void **state)
{
    (void)state;
    for (int ragged = 0; ragged < 2; ragged++) {
        op_run slow;
        for (size_t i = 0; i < fast_count; i++) { /* rows of the same case follow each other */
            op_run quick;
            if (i == 0 || fast[i].op != fast[i - 1].op) {
                open_case(&slow, "reference", fast[i].op, 1, ragged);
                run_both(&slow);
            }
            open_case(&quick, fast[i].kind, fast[i].op, 2, ragged);
            run_both(&quick);
            compare_runs(fast[i].op, &quick, &slow, expect_near);
            op_close(&quick);
            if (i + 1 == fast_count || fast[i].op != fast[i + 1].op) {
                op_close(&slow);
            }
        }
    }
}

static void evaluation_matches_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < fast_count; i++) {
        op_run quick, slow;
        open_case(&quick, fast[i].kind, fast[i].op, 1, false);
        open_case(&slow, "reference", fast[i].op, 1, false);
        quick.call.training = slow.call.training = false;
        quick.call.part_count = slow.call.part_count = 0;
        tri_kernel_forward(&quick.kernel, &quick.call);
        tri_kernel_forward(&slow.kernel, &slow.call);
        expect_near(fast[i].op->name, "output", quick.output, slow.output, slow.output_count * slow.call.shards);
        op_close(&quick);
        op_close(&slow);
    }
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < fast_count; i++) {
        op_run one, more;
        open_case(&one, fast[i].kind, fast[i].op, 1, true);
        run_both(&one);
        for (int threads = 2; threads <= 3; threads++) {
            open_case(&more, fast[i].kind, fast[i].op, threads, true);
            run_both(&more);
            compare_runs(fast[i].op, &more, &one, expect_same);
            op_close(&more);
        }
        op_close(&one);
    }
}

/* Runs the shards [first, first + count) of `whole`'s data through `r`, planned for as many shards, as given parts. */
static void run_slice(op_run *r, const op_run *whole, int first, int count, int part_count, const tri_tree_part *parts)
{
    tri_op_call *call = &r->call;
    const tri_op_desc *desc = &r->kernel.desc;
    for (int i = 0; i < desc->input_count; i++) {
        call->input[i] = (const float *)whole->input[i] + first * r->input_count[i];
        if (call->dinput[i] != NULL) {
            call->dinput[i] = r->dinput[i] + first * r->input_count[i];
        }
    }
    call->output = r->output + first * r->output_count;
    call->doutput = r->doutput + first * r->output_count;
    call->rows = whole->rows + first;
    call->first_sample = whole->first_sample + first;
    call->shards = count;
    call->part_count = part_count;
    call->parts = parts;
    run_both(r);
    for (int i = 0; i < desc->input_count; i++) {
        if (call->dinput[i] != NULL) {
            call->dinput[i] = r->dinput[i];
        }
    }
}

/* Two workers with half of the shards each give the two halves of the tree. */
static void two_halves_add_up_to_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < fast_count; i++) {
        op_run whole, half;
        if (fast[i].op->attr.sync) { /* a half is another batch */
            continue;
        }
        open_case(&whole, fast[i].kind, fast[i].op, 1, true);
        open_case(&half, fast[i].kind, fast[i].op, 2, true);
        const int shards = whole.call.shards;
        run_both(&whole);
        float *sum[TRI_OP_MAX_PARAMS];
        for (int p = 0; p < whole.kernel.desc.param_count; p++) {
            sum[p] = tri_alloc_bulk((size_t)whole.param_count[p] * sizeof(float));
        }
        for (int side = 0; side < 2; side++) {
            run_slice(&half, &whole, side * shards / 2, shards / 2, 1, &(tri_tree_part){0, shards / 2});
            for (int p = 0; p < whole.kernel.desc.param_count; p++) {
                for (int64_t j = 0; j < whole.param_count[p]; j++) {
                    sum[p][j] = side == 0 ? half.dparam[p][0][j] : sum[p][j] + half.dparam[p][0][j];
                }
            }
        }
        for (int p = 0; p < whole.kernel.desc.param_count; p++) {
            memcpy(half.dparam[p][0], sum[p], (size_t)whole.param_count[p] * sizeof(float));
            tri_free(sum[p]);
        }
        compare_runs(fast[i].op, &half, &whole, expect_same);
        op_close(&whole);
        op_close(&half);
    }
}

/* A worker with shards 1..6 of 8 holds the parts {1}, {2,3}, {4,5}, {6}: each is that subtree of the whole tree. */
static void odd_parts_are_subtrees(void **state)
{
    (void)state;
    static const tri_tree_part parts[] = {{0, 1}, {1, 2}, {3, 2}, {5, 1}};
    for (size_t i = 0; i < fast_count; i++) {
        op_run single, odd;
        open_case(&single, fast[i].kind, fast[i].op, 1, false);
        if (single.kernel.desc.param_count == 0 || single.call.shards < 8 || fast[i].op->attr.sync) {
            op_close(&single);
            continue;
        }
        for (int s = 0; s < 8; s++) {
            single.parts[s] = (tri_tree_part){s, 1};
        }
        single.call.part_count = 8;
        run_both(&single);
        open_case(&odd, fast[i].kind, fast[i].op, 2, false);
        run_slice(&odd, &single, 1, 6, 4, parts);
        for (int p = 0; p < single.kernel.desc.param_count; p++) {
            float *const *leaf = single.dparam[p];
            tri_vector_add(1, leaf[2], leaf[2], leaf[3], single.param_count[p]);
            tri_vector_add(1, leaf[4], leaf[4], leaf[5], single.param_count[p]);
            const int root[] = {1, 2, 4, 6};
            for (int part = 0; part < 4; part++) {
                expect_same(fast[i].op->name, "dparam", odd.dparam[p][part], leaf[root[part]], single.param_count[p]);
            }
        }
        op_close(&single);
        op_close(&odd);
    }
}

/* sum(doutput * output), or the sum of losses, in double. */
static double objective(op_run *r)
{
    double sum = 0;
    tri_kernel_forward(&r->kernel, &r->call);
    for (int64_t i = 0; i < r->output_count * r->call.shards; i++) {
        if (op_is_loss(r->kernel.desc.op)) {
            sum += i % TRI_LOSS_COLUMNS == 0 ? (double)r->output[i] : 0;
        } else {
            sum += (double)r->doutput[i] * (double)r->output[i];
        }
    }
    return sum;
}

/* Moves x along a random direction both ways; returns the difference quotient, and the gradient's word on it. */
static double quotient(op_run *r, float *x, int64_t count, const float *gradient, uint64_t stream, double *slope)
{
    const float step = 3e-4f;
    float *old = tri_alloc_bulk((size_t)count * sizeof(float)), *way = tri_alloc_bulk((size_t)count * sizeof(float));
    double side[2];
    memcpy(old, x, (size_t)count * sizeof(float));
    op_fill(way, count, stream);
    *slope = 0;
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < count; i++) {
            x[i] = old[i] + (k == 0 ? step : -step) * way[i];
        }
        side[k] = objective(r);
    }
    for (int64_t i = 0; i < count; i++) {
        *slope += (double)gradient[i] * (double)way[i];
    }
    memcpy(x, old, (size_t)count * sizeof(float));
    tri_free(old);
    tri_free(way);
    return (side[0] - side[1]) / (2 * (double)step);
}

static void expect_slope(const char *name, const char *what, double got, double want, double scale)
{
    if (!(fabs(got - want) <= 0.03 * scale)) {
        fail_msg("%s: slope along a direction of %s: want %g by differences, got %g (scale %g)", name, what, want, got,
                 scale);
    }
}

static double norm_of(const float *x, int64_t count)
{
    double sum = 1e-2;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sqrt(sum);
}

static void gradients_are_the_slopes_of_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(op_cases); i++) {
        const op_case *c = &op_cases[i];
        op_run r;
        open_case(&r, "reference", c, 1, true);
        const tri_op_desc desc = r.kernel.desc;
        run_both(&r);
        double slope;
        for (int p = 0; p < desc.param_count && p < 2; p++) {
            const float *gradient = r.dparam[p][0];
            const double want = quotient(&r, r.param[p], r.param_count[p], gradient, (uint64_t)(40 + p), &slope);
            expect_slope(c->name, p == 0 ? "parameter 0" : "parameter 1", slope, want,
                         norm_of(gradient, r.param_count[p]));
        }
        for (int k = 0; k < desc.input_count; k++) {
            const int64_t count = r.input_count[k] * r.call.shards;
            if (desc.need_dinput[k]) {
                const double want = quotient(&r, r.input[k], count, r.dinput[k], (uint64_t)(50 + k), &slope);
                expect_slope(c->name, k == 0 ? "input 0" : "input 1", slope, want, norm_of(r.dinput[k], count));
            }
        }
        op_close(&r);
    }
}

/* Where a row says that memory may be shared, sharing changes nothing. */
static void shared_memory_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < fast_count; i++) {
        op_run apart, shared;
        open_case(&apart, fast[i].kind, fast[i].op, 2, true);
        open_case(&shared, fast[i].kind, fast[i].op, 2, true);
        const tri_kernel_ops *ops = shared.kernel.ops;
        run_both(&apart);
        const size_t nbytes = (size_t)(shared.output_count * shared.call.shards) * sizeof(float);
        if (ops->output_may_alias) {
            shared.call.output = shared.input[0];
        }
        tri_kernel_forward(&shared.kernel, &shared.call);
        memcpy(shared.output, shared.call.output, nbytes);
        if (ops->dinput_may_alias) {
            shared.call.dinput[0] = shared.doutput;
        }
        if (!ops->backward_input && !ops->output_may_alias) {
            memset(shared.input[0], 0xff, (size_t)(shared.input_count[0] * shared.call.shards) * sizeof(float));
        }
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
        compare_runs(fast[i].op, &shared, &apart, expect_same);
        op_close(&apart);
        op_close(&shared);
    }
}

/* Where a weight stands still its gradient is left alone, the others are the same, and what the op read is not read. */
static void weights_that_stand_still_have_no_gradient(void **state)
{
    (void)state;
    static const char *const kinds[] = {"cpu", "dnnl", "tiles", "reference"};
    int seen = 0;
    for (size_t i = 0; i < 3 * TRI_COUNT_OF(op_cases) * TRI_COUNT_OF(kinds); i++) {
        op_case c = op_cases[i / 3 / TRI_COUNT_OF(kinds)];
        const char *kind = kinds[i / 3 % TRI_COUNT_OF(kinds)];
        c.half = i % 3 == 0 ? TRI_F32 : i % 3 == 1 ? TRI_BF16 : TRI_F16;
        if (c.op != TRI_OP_LINEAR && c.op != TRI_OP_CONV && strcmp(kind, "cpu") != 0) {
            continue;
        }
        op_run all, still;
        open_case(&all, kind, &c, 2, true);
        open_case(&still, kind, &c, 2, true);
        const tri_op_desc *desc = &all.kernel.desc;
        if (desc->param_count > 0) {
            run_both(&all);
            tri_kernel_forward(&still.kernel, &still.call);
            still.call.dparam[0] = NULL;
            memset(still.dparam[0][0], 0x55, (size_t)still.param_count[0] * sizeof(float));
            if (still.kernel.ops->input_for_weight) {
                seen++;
                memset(still.input[0], 0xff,
                       (size_t)(still.input_count[0] * still.call.shards) * tri_dtype_nbytes(desc->input_dtype[0]));
            }
            tri_kernel_backward(&still.kernel, &still.call);
            for (int k = 0; k < desc->input_count; k++) {
                const size_t nbytes =
                    (size_t)(all.input_count[k] * all.call.shards) * tri_dtype_nbytes(desc->input_dtype[k]);
                if (desc->need_dinput[k] && memcmp(still.dinput[k], all.dinput[k], nbytes) != 0) {
                    fail_msg("%s: dinput %d differs", c.name, k);
                }
            }
            for (int p = 1; p < desc->param_count; p++) {
                expect_same(c.name, "dparam", still.dparam[p][0], all.dparam[p][0], all.param_count[p]);
            }
            for (int64_t j = 0; j < still.param_count[0]; j++) {
                assert_memory_equal(&still.dparam[0][0][j], "UUUU", 4);
            }
        }
        op_close(&all);
        op_close(&still);
    }
    assert_true(seen > 200);
}

/* In sync eight shards have the statistics of one that holds all of their samples: values, gradients, buffers. */
static void batch_norm_in_sync_is_that_of_the_whole_batch(void **state)
{
    (void)state;
    static const char *const kinds[] = {"reference", "cpu"};
    for (size_t i = 0; i < TRI_COUNT_OF(op_cases); i++) {
        op_case one = op_cases[i], shards = op_cases[i];
        if (!shards.attr.sync) {
            continue;
        }
        one.attr.sync = false;
        one.shards = 1;
        one.x[0] *= 8;
        for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
            op_run a, b;
            open_case(&a, kinds[k], &shards, 2, false);
            open_case(&b, kinds[k], &one, 1, false);
            const int64_t count = b.output_count, channels = b.param_count[0];
            for (int64_t j = 0; j < count; j++) { /* shards that differ, and a mean far from zero */
                ((float *)a.input[0])[j] = ((float *)b.input[0])[j] += 5 + (float)(j / a.output_count);
            }
            run_both(&a);
            run_both(&b);
            expect_near(shards.name, "output", a.output, b.output, count);
            expect_near(shards.name, "dinput", a.dinput[0], b.dinput[0], count);
            for (int p = 0; p < 4; p++) {
                for (int64_t c = 0; c < channels && p >= 2; c++) { /* the mean of eight */
                    a.dparam[p][0][c] /= 8;
                }
                expect_near(shards.name, "dparam", a.dparam[p][0], b.dparam[p][0], channels);
            }
            op_close(&a);
            op_close(&b);
        }
    }
}

/* Logits that are formed again are the logits that would have been kept. */
static void forgotten_logits_come_back(void **state)
{
    (void)state;
    op_case kept = {.name = "vocab_loss", .op = TRI_OP_VOCAB_LOSS, .x = {2, 40, 16}, .other = {2, 40}, .units = 2500};
    op_case forgotten = kept;
    forgotten.attr.forget = true;
    op_run a, b;
    open_case(&a, "cpu", &kept, 1, true);
    open_case(&b, "cpu", &forgotten, 2, true);
    assert_true(b.kernel.saved_nbytes < a.kernel.saved_nbytes / 100);
    run_both(&a);
    run_both(&b);
    compare_runs(&kept, &b, &a, expect_same);
    op_close(&a);
    op_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_rows_match_the_reference),
        cmocka_unit_test(evaluation_matches_the_reference),
        cmocka_unit_test(gradients_are_the_slopes_of_the_reference),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(two_halves_add_up_to_the_whole),
        cmocka_unit_test(odd_parts_are_subtrees),
        cmocka_unit_test(shared_memory_gives_the_same_bits),
        cmocka_unit_test(weights_that_stand_still_have_no_gradient),
        cmocka_unit_test(batch_norm_in_sync_is_that_of_the_whole_batch),
        cmocka_unit_test(forgotten_logits_come_back),
    };
    list_rows();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
