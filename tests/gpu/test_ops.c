/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ops.c: every row of kind "cuda" on the emulator: against the reference in f32, bf16 and f16; the same bits for
 * every cut of the shards, every schedule and every repetition; and the hashes that a card must give, which
 * expected/ops.txt keeps.
 *
 * test_ops [--accept] [--cuda] [--few] FILE: --accept writes the file again; --cuda: on the device "cuda"; --few: one
 * case of each op.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <xxhash.h>

#include "base/status.h"
#include "gpu/emulator.h"
#include "gpu/ops.h"
#include "kernel/gpu/rows.h"
#include "ops/cases.h"
#include "ops/parts.h"

#define MATCH      3e-5 /* of the largest element, f32 */
#define MATCH_BF16 4e-2 /* values of 8 bits, and products of them */
#define MATCH_F16  5e-3

static const char *expected_path;
static bool accepts;
static tri_gpu_queue queue;
tri_device ops_device, *card;
bool few;

typedef void (*pass_fn)(const tri_kernel *kernel, const tri_op_call *call);

/* On a card: all that the call names goes there and comes back. */
static void run_mirrored(const op_run *r, pass_fn pass)
{
    const tri_op_desc *desc = &r->kernel.desc;
    const size_t shards = (size_t)r->call.shards;
    tri_op_call call = r->call;
    mirror m = {.count = 0};
    float *dparam[TRI_OP_MAX_PARAMS];
    tri_op_call add;
    if (call.add != NULL) { /* whose sum is input 0 */
        const size_t nbytes = (size_t)r->input_count[0] * shards * tri_dtype_nbytes(desc->input_dtype[0]);
        add = *call.add;
        add.input[0] = mirror_add(&m, add.input[0], nbytes);
        add.input[1] = mirror_add(&m, add.input[1], nbytes);
        call.add = &add;
    }
    for (int i = 0; i < desc->input_count; i++) {
        const size_t nbytes = (size_t)r->input_count[i] * shards * tri_dtype_nbytes(desc->input_dtype[i]);
        call.input[i] = mirror_add(&m, call.input[i], nbytes);
        call.dinput[i] = mirror_add(&m, call.dinput[i], nbytes);
    }
    for (int p = 0; p < desc->param_count; p++) {
        const size_t nbytes = (size_t)r->param_count[p] * sizeof(float);
        call.param[p] = mirror_add(&m, call.param[p], nbytes);
        dparam[p] = mirror_add(&m, call.dparam[p][0], nbytes);
        call.dparam[p] = &dparam[p];
    }
    const size_t nbytes = (size_t)r->output_count * shards * tri_dtype_nbytes(desc->output_dtype);
    call.output = mirror_add(&m, call.output, nbytes);
    call.doutput = mirror_add(&m, call.doutput, nbytes);
    call.saved = mirror_add(&m, call.saved, r->kernel.saved_nbytes * shards);
    call.scratch = mirror_add(&m, call.scratch, r->kernel.scratch_nbytes);
    pass(&r->kernel, &call);
    mirror_end(&m);
}

static void run_pass(const op_run *r, pass_fn pass)
{
    if (card != NULL && r->call.device != NULL) {
        run_mirrored(r, pass);
    } else {
        pass(&r->kernel, &r->call);
    }
}

/* Convolutions of 8 channels and units at a time, and of sums over places in two chunks, the second one shorter; sums
 * of more than TRI_GPU_SLICES chunks of rows; widths of heads that models have, over tiles that are not full. cases.h
 * has the narrow ones. */
#define HEADS(d, title, drops)                                                                                         \
    {                                                                                                                  \
        .name = "attention_" title, .op = TRI_OP_ATTENTION, .x = {1, 37, 4 * d},                                       \
        .attr = {.heads = 2, .kv_heads = 1, .rate = drops, .key = 3}, .shards = 2                                      \
    }
static const op_case more_cases[] = {
    {.name = "conv_eights",
     .op = TRI_OP_CONV,
     .x = {2, 7, 5, 48},
     .units = 32,
     .attr = {KERNEL(3, 2), .stride = {2, 1}, .pad = {1, 1}, .dilation = {1, 2}, .groups = 2, .bias = true},
     .shards = 2},
    {.name = "conv_chunks",
     .op = TRI_OP_CONV,
     .x = {2, 17, 31, 8},
     .units = 8,
     .attr = {KERNEL(2, 2), .pad = {1, 1}, .relu = true},
     .shards = 2},
    {.name = "conv_chunks_groups",
     .op = TRI_OP_CONV,
     .x = {1, 63, 65, 32},
     .units = 32,
     .attr = {KERNEL(1, 1), .stride = {2, 2}, .groups = 2},
     .shards = 2},
    {.name = "conv_plain", .op = TRI_OP_CONV, .x = {1, 33, 32, 16}, .units = 24, .attr = {KERNEL(1, 1)}, .shards = 2},
    {.name = "conv_chunks_odd",
     .op = TRI_OP_CONV,
     .x = {1, 36, 31, 3},
     .units = 5,
     .attr = {KERNEL(3, 3), .pad = {1, 1}},
     .shards = 2},
    {.name = "batch_norm_long", .op = TRI_OP_BATCH_NORM, .x = {1, 65, 67, 3}, .attr = {.relu = true}},
    HEADS(64, "64", 0),
    HEADS(80, "80", 0),
    HEADS(96, "96", 0),
    HEADS(128, "128", 0),
    HEADS(128, "128_drop", 0.3f),
    {.name = "attention_128_tiles",
     .op = TRI_OP_ATTENTION,
     .x = {1, 65, 384},
     .attr = {.heads = 1, .kv_heads = 1},
     .shards = 2},
    {.name = "attention_128_tiles_drop",
     .op = TRI_OP_ATTENTION,
     .x = {1, 65, 384},
     .attr = {.heads = 1, .kv_heads = 1, .rate = 0.3f, .key = 3},
     .shards = 2},
    {.name = "attention_tiles",
     .op = TRI_OP_ATTENTION,
     .x = {1, 70, 64},
     .attr = {.heads = 2, .kv_heads = 1},
     .shards = 2},
    {.name = "attention_tiles_drop",
     .op = TRI_OP_ATTENTION,
     .x = {1, 67, 48},
     .attr = {.heads = 1, .rate = 0.3f, .key = 3},
     .shards = 2},
};
static const size_t case_count = TRI_COUNT_OF(op_cases) + TRI_COUNT_OF(more_cases);

static op_case case_at(size_t i)
{
    return i < TRI_COUNT_OF(op_cases) ? op_cases[i] : more_cases[i - TRI_COUNT_OF(op_cases)];
}

static bool is_one_of_few(size_t i)
{
    static const char *const of_other_kernels[] = {"attention_tiles", "attention_tiles_drop", "attention_128",
                                                   "attention_128_drop", "conv_chunks"};
    const op_case c = case_at(i);
    bool is_one = true;
    for (size_t before = 0; before < i; before++) {
        is_one = is_one && case_at(before).op != c.op;
    }
    for (size_t k = 0; k < TRI_COUNT_OF(of_other_kernels); k++) {
        is_one = is_one || strcmp(c.name, of_other_kernels[k]) == 0;
    }
    return is_one;
}

/* Cases that a row of kind "cuda" takes, with at most so much work for the emulator. */
#define MOST_PRODUCTS 1.1e6

static bool takes(const op_case *c, tri_op_desc *desc)
{
    if (op_describe(c, 1, desc) != TRI_OK || tri_kernel_choose("cuda", desc) == NULL) {
        return false;
    }
    const tri_op_ops *row = tri_op_row(c->op);
    return row->products == NULL || row->products(desc) * desc->max_shards <= MOST_PRODUCTS;
}

static void open_case(op_run *r, const char *kind, const op_case *c, bool ragged)
{
    if (op_open(r, kind, c, 1, ragged) != TRI_OK) {
        fail_msg("%s: %s", c->name, tri_last_error());
    }
    r->call.device = strcmp(kind, "cuda") == 0 ? &ops_device : NULL;
}

static void expect_no_failure(const op_run *r)
{
    if (tri_gpu_queue_of(&ops_device)->status != TRI_OK) {
        fail_msg("%s: %s", tri_op_name(r->kernel.desc.op), tri_last_error());
    }
}

typedef void (*visit_fn)(const char *name, const char *what, float *got, float *want, int64_t count, double match);

static void expect_near(const char *name, const char *what, float *got, float *want, int64_t count, double match)
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
    if (!(error <= match * top)) {
        fail_msg("%s: %s[%lld]: want %.9g, got %.9g (largest %g)", name, what, (long long)at, (double)want[at],
                 (double)got[at], top);
    }
}

static void expect_same(const char *name, const char *what, float *got, float *want, int64_t count, double match)
{
    (void)match;
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0) {
            fail_msg("%s: %s[%lld]: want the bits of %.9g, got %.9g", name, what, (long long)i, (double)want[i],
                     (double)got[i]);
        }
    }
}

/* Values of 16 bits become f32 first; a run is compared once. */
static void compare_runs(const op_case *c, op_run *got, op_run *want, visit_fn visit, double match)
{
    const tri_op_desc *desc = &want->kernel.desc;
    const int64_t outputs = want->output_count * desc->max_shards;
    if (c->half != 0 && !op_is_loss(c->op)) {
        op_widen(got->output, outputs, c->half);
        op_widen(want->output, outputs, c->half);
    }
    visit(c->name, "output", got->output, want->output, outputs, match);
    for (int i = 0; i < desc->input_count; i++) {
        const int64_t count = want->input_count[i] * desc->max_shards;
        if (desc->need_dinput[i]) {
            if (c->half != 0) {
                op_widen(got->dinput[i], count, c->half);
                op_widen(want->dinput[i], count, c->half);
            }
            visit(c->name, i == 0 ? "dinput 0" : "dinput 1", got->dinput[i], want->dinput[i], count, match);
        }
    }
    for (int p = 0; p < desc->param_count; p++) {
        visit(c->name, "dparam", got->dparam[p][0], want->dparam[p][0], want->param_count[p], match);
    }
}

static void expect_halves(const op_case *c, const op_run *got, const op_run *want, double match)
{
    const int64_t count = want->output_count * want->call.shards;
    float *copy[2];
    for (int i = 0; i < 2; i++) {
        copy[i] = tri_alloc_bulk((size_t)count * sizeof(float));
        memcpy(copy[i], i == 0 ? got->output : want->output, (size_t)count * 2);
        op_widen(copy[i], count, c->half);
    }
    expect_near(c->name, "output", copy[0], copy[1], count, match);
    tri_free(copy[0]);
    tri_free(copy[1]);
}

static void compare_kinds(const op_case *c, bool ragged, double match)
{
    op_run got, want;
    open_case(&want, "reference", c, ragged);
    open_case(&got, "cuda", c, ragged);
    tri_kernel_forward(&want.kernel, &want.call);
    run_pass(&got, tri_kernel_forward);
    if (c->half != 0 && !op_is_loss(c->op)) { /* a rounding turns a relu around */
        const size_t nbytes = (size_t)(want.output_count * want.call.shards) * 2;
        expect_halves(c, &got, &want, match);
        memcpy(got.output, want.output, nbytes);
    }
    tri_kernel_backward(&want.kernel, &want.call);
    run_pass(&got, tri_kernel_backward);
    expect_no_failure(&got);
    compare_runs(c, &got, &want, expect_near, match);
    op_close(&got);
    op_close(&want);
}

static void rows_match_the_reference(void **state)
{
    tri_op_desc desc;
    int rows = 0;
    (void)state;
    for (size_t i = 0; i < case_count; i++) {
        const op_case c = case_at(i);
        if ((!few || is_one_of_few(i)) && takes(&c, &desc)) {
            rows++;
            compare_kinds(&c, i % 2 == 1, MATCH);
        }
    }
    assert_true(rows >= (few ? 30 : 70));
}

static void halves_match(tri_dtype dtype, double match)
{
    tri_op_desc desc;
    int rows = 0;
    for (size_t i = 0; i < case_count; i++) {
        op_case c = case_at(i);
        c.half = dtype;
        if ((!few || is_one_of_few(i)) && takes(&c, &desc)) {
            rows++;
            compare_kinds(&c, i % 2 == 0, match);
        }
    }
    assert_true(rows >= (few ? 25 : 50));
}

static void rows_match_in_bf16(void **state)
{
    (void)state;
    halves_match(TRI_BF16, MATCH_BF16);
}

static void rows_match_in_f16(void **state)
{
    (void)state;
    halves_match(TRI_F16, MATCH_F16);
}

static void run_both(op_run *r)
{
    run_pass(r, tri_kernel_forward);
    run_pass(r, tri_kernel_backward);
    expect_no_failure(r);
}

/* f32 and bf16 of each case, then f16 of few: it takes the same steps as bf16. */
static bool nth_case(size_t i, op_case *c)
{
    tri_op_desc desc;
    const size_t at = i < 2 * case_count ? i / 2 : i - 2 * case_count;
    *c = case_at(at);
    c->half = i >= 2 * case_count ? TRI_F16 : i % 2 == 0 ? TRI_F32 : TRI_BF16;
    return ((!few && c->half != TRI_F16) || is_one_of_few(at)) && takes(c, &desc);
}

static size_t value_nbytes(const op_case *c, tri_dtype dtype)
{
    return dtype == TRI_I32 ? 4 : c->half == 0 ? 4 : 2;
}

/* Runs shards [first, first + count) of the whole's data by a plan for as many, into the places of r's arrays. */
static void run_slice(const op_case *c, op_run *r, const op_run *whole, int first, int count)
{
    const tri_op_desc *desc = &whole->kernel.desc;
    const tri_tree_part part = {0, count};
    tri_op_call *call = &r->call;
    for (int i = 0; i < desc->input_count; i++) {
        const size_t nbytes = value_nbytes(c, desc->input_dtype[i]) * (size_t)r->input_count[i] * (size_t)first;
        call->input[i] = (const char *)whole->input[i] + nbytes;
        call->dinput[i] = desc->need_dinput[i] ? (char *)(void *)r->dinput[i] + nbytes : NULL;
    }
    const size_t nbytes = (op_is_loss(c->op) ? 4 : value_nbytes(c, TRI_F32)) * (size_t)r->output_count * (size_t)first;
    call->output = (char *)(void *)r->output + nbytes;
    call->doutput = (char *)(void *)r->doutput + nbytes;
    call->rows = whole->rows + first;
    call->first_sample = whole->first_sample + first;
    call->shards = count;
    call->parts = &part;
    run_both(r);
}

/* --- hashes --- */

static uint64_t mix(uint64_t hash, const float *values, int64_t count)
{
    return XXH3_64bits_withSeed(values, (size_t)count * sizeof *values, hash);
}

static uint64_t hash_run(const op_case *c, op_run *r)
{
    const tri_op_desc *desc = &r->kernel.desc;
    uint64_t hash = 0;
    const int64_t width = op_is_loss(c->op) || c->half == 0 ? 4 : 2;
    hash = mix(hash, r->output, r->output_count * desc->max_shards * width / 4);
    for (int i = 0; i < desc->input_count; i++) {
        if (desc->need_dinput[i]) {
            hash = mix(hash, r->dinput[i], r->input_count[i] * desc->max_shards * width / 4);
        }
    }
    for (int p = 0; p < desc->param_count; p++) {
        hash = mix(hash, r->dparam[p][0], r->param_count[p]);
    }
    return hash;
}

/* Halves of the shards give the bits of all at once, gradients of parameters by the tree, under another schedule. */
static void expect_the_same_in_halves(const op_case *c, op_run *whole)
{
    op_run pieces;
    float *left[TRI_OP_MAX_PARAMS] = {NULL};
    const int half = whole->call.shards / 2;
    const tri_op_desc *desc = &whole->kernel.desc;
    open_case(&pieces, "cuda", c, true);
    tri_emulator_seed(XXH3_64bits(c->name, strlen(c->name)));
    run_slice(c, &pieces, whole, 0, half);
    for (int p = 0; p < desc->param_count; p++) {
        const size_t nbytes = (size_t)pieces.param_count[p] * sizeof(float);
        left[p] = tri_alloc_bulk(nbytes);
        memcpy(left[p], pieces.dparam[p][0], nbytes);
    }
    run_slice(c, &pieces, whole, half, half);
    tri_emulator_seed(0);
    for (int p = 0; p < desc->param_count; p++) {
        tri_vector_add(1, pieces.dparam[p][0], left[p], pieces.dparam[p][0], pieces.param_count[p]);
        tri_free(left[p]);
    }
    compare_runs(c, &pieces, whole, expect_same, 0);
    op_close(&pieces);
}

static uint64_t hash_case(const op_case *c)
{
    op_run r;
    open_case(&r, "cuda", c, true);
    run_both(&r);
    const uint64_t hash = hash_run(c, &r);
    op_close(&r);
    return hash;
}

static void hash_print(char line[128], const op_case *c, uint64_t hash)
{
    snprintf(line, 128, "%s %s %016llx\n", c->name, tri_dtype_name(c->half), (unsigned long long)hash);
}

/* The line of the file that is about the same case and type as `line`; with --few it has others between them. */
static bool wanted_read(FILE *file, const char *line, char wanted[128])
{
    const size_t nbytes = (size_t)(strrchr(line, ' ') + 1 - line);
    while (fgets(wanted, 128, file) != NULL) {
        if (!few || strncmp(line, wanted, nbytes) == 0) {
            return true;
        }
    }
    return false;
}

/* The file has a line for each: case, type, hash. --accept writes all before it compares. */
static void bits_depend_on_nothing_and_are_those_of_the_file(void **state)
{
    (void)state;
    FILE *file = fopen(expected_path, accepts ? "w+" : "r");
    char line[128];
    op_case c;
    if (file == NULL) {
        fail_msg("cannot open %s", expected_path);
    }
    for (size_t i = 0; accepts && i < 3 * case_count; i++) {
        if (nth_case(i, &c)) {
            hash_print(line, &c, hash_case(&c));
            fputs(line, file);
            fflush(file); /* what there is when time runs out */
        }
    }
    rewind(file);
    for (size_t i = 0; i < 3 * case_count; i++) {
        char wanted[128] = "";
        op_run r;
        if (!nth_case(i, &c)) {
            continue;
        }
        open_case(&r, "cuda", &c, true);
        run_both(&r);
        hash_print(line, &c, hash_run(&c, &r));
        if (!c.attr.sync) { /* whose sums are over all shards of the run */
            expect_the_same_in_halves(&c, &r);
        }
        op_close(&r);
        if (!wanted_read(file, line, wanted) || strcmp(line, wanted) != 0) {
            fclose(file);
            fail_msg("want the line %s got %s (test_ops --accept FILE writes all again)", wanted, line);
        }
    }
    assert_true(few || fgets(line, sizeof line, file) == NULL);
    fclose(file);
}

/* Three parts, the last one shorter; the words beyond a multiple of 64 apart. */
static void a_large_vocabulary_is_taken_in_parts(void **state)
{
    static const op_case parts = {.name = "vocab_loss_parts",
                                  .op = TRI_OP_VOCAB_LOSS,
                                  .x = {2, 9, 16},
                                  .other = {2, 9},
                                  .units = 150,
                                  .shards = 4};
    static const op_case many = {.name = "vocab_loss_many",
                                 .op = TRI_OP_VOCAB_LOSS,
                                 .x = {1, 5, 8},
                                 .other = {1, 5},
                                 .units = 1101,
                                 .attr = {.smoothing = 0.1f},
                                 .shards = 2};
    const int64_t most = tri_gpu_vocab_words;
    (void)state;
    for (int half = 0; !few && half < 2; half++) {
        op_case c = parts, m = many;
        c.half = m.half = half ? TRI_BF16 : TRI_F32;
        compare_kinds(&m, false, half ? MATCH_BF16 : MATCH);
        tri_gpu_vocab_words = 64;
        compare_kinds(&c, true, half ? MATCH_BF16 : MATCH);
        tri_gpu_vocab_words = most;
    }
}

static size_t vocabulary_scratch(int64_t samples, int shards)
{
    tri_op_desc desc = {
        .op = TRI_OP_VOCAB_LOSS,
        .attr = {.units = 50257},
        .input_count = 2,
        .input = {tri_shape_make(3, (int64_t[]){samples, 1024, 768}), tri_shape_make(2, (int64_t[]){samples, 1024})},
        .input_dtype = {TRI_BF16, TRI_I32},
        .max_shards = shards,
        .threads = 1};
    tri_kernel kernel;
    assert_int_equal(tri_op_infer(&desc), TRI_OK);
    assert_int_equal(tri_kernel_plan("cuda", &desc, &kernel), TRI_OK);
    const size_t nbytes = kernel.scratch_nbytes;
    tri_kernel_release(&kernel);
    return nbytes;
}

/* GPT-2 124M, 64 samples: 2 bytes for each of 65,536 rows and 4,096 words, the gradient of x in f32, and leaves of a
 * part, which 64 shards have more of. */
static void the_scratch_of_a_vocabulary_is_bounded(void **state)
{
    (void)state;
    assert_in_range(vocabulary_scratch(8, 8), 800 << 20, 820 << 20);
    assert_in_range(vocabulary_scratch(1, 64), 1470 << 20, 1490 << 20);
}

/* Sums, gradients of x and of the weights have the bits of a linear layer and the loss of its output. */
static void logits_are_rounded_as_those_of_a_linear_layer(void **state)
{
    (void)state;
    for (int f16 = 0; f16 < 2; f16++) {
        const tri_dtype half = f16 ? TRI_F16 : TRI_BF16;
        const op_case cases[] = {
            {.name = "whole", .op = TRI_OP_VOCAB_LOSS, .x = {3, 5, 20}, .other = {3, 5}, .units = 37, .half = half},
            {.name = "layer", .op = TRI_OP_LINEAR, .x = {3, 5, 20}, .units = 37, .half = half},
            {.name = "loss", .op = TRI_OP_CROSS_ENTROPY, .x = {3, 5, 37}, .other = {3, 5}, .half = half}};
        op_run whole, layer, loss;
        open_case(&whole, "cuda", &cases[0], true);
        open_case(&layer, "cuda", &cases[1], true);
        open_case(&loss, "cuda", &cases[2], true);
        const size_t shards = (size_t)whole.call.shards, logits = (size_t)layer.output_count * shards * 2;
        run_both(&whole);
        run_pass(&layer, tri_kernel_forward);
        memcpy(loss.input[0], layer.output, logits);
        memcpy(loss.input[1], whole.input[1], (size_t)whole.input_count[1] * shards * sizeof(int32_t));
        run_both(&loss);
        memcpy(layer.doutput, loss.dinput[0], logits);
        run_pass(&layer, tri_kernel_backward);
        assert_memory_equal(whole.output, loss.output, (size_t)loss.output_count * shards * sizeof(float));
        assert_memory_equal(whole.dinput[0], layer.dinput[0], (size_t)whole.input_count[0] * shards * 2);
        assert_memory_equal(whole.dparam[0][0], layer.dparam[0][0], (size_t)whole.param_count[0] * sizeof(float));
        op_close(&whole);
        op_close(&layer);
        op_close(&loss);
    }
}

/* Logits of word 5, which is no target, are 3 times `weight`. */
static void open_far_word(op_run *r, const char *kind, float weight)
{
    static const op_case c = {
        .name = "far", .op = TRI_OP_VOCAB_LOSS, .x = {2, 3, 16}, .other = {2, 3}, .units = 37, .half = TRI_F16};
    open_case(r, kind, &c, false);
    const int64_t rows = 6 * r->call.shards;
    const uint16_t three = tri_f32_to_f16(3);
    for (int64_t i = 0; i < rows; i++) {
        int32_t *const target = (int32_t *)r->input[1] + i;
        memcpy((char *)r->input[0] + i * 16 * 2, &three, sizeof three);
        *target = *target == 5 ? 4 : *target;
    }
    for (int i = 0; i < 16; i++) {
        r->param[0][5 * 16 + i] = i == 0 ? weight : 0;
    }
}

/* Minus infinity has the exponential 0, as in the reference; with infinity neither the loss nor a gradient is a number,
 * so that the loss scale leaves the step out. */
static void logits_beyond_f16_are_infinite(void **state)
{
    op_run got, want;
    (void)state;
    open_far_word(&want, "reference", -60000);
    open_far_word(&got, "cuda", -60000);
    tri_kernel_forward(&want.kernel, &want.call);
    run_pass(&got, tri_kernel_forward);
    expect_near("far word", "output", got.output, want.output, 4 * want.call.shards, MATCH_F16);
    op_close(&got);
    op_close(&want);
    open_far_word(&got, "cuda", 60000);
    run_both(&got);
    assert_true(!isfinite(got.output[0]));
    assert_true(!isfinite(got.dparam[0][0][5 * 16]));
    op_close(&got);
}

static void a_vocabulary_in_parts_gives_the_loss_of_the_whole(void **state)
{
    static const op_case cases[] = {
        {.name = "few words", .op = TRI_OP_VOCAB_LOSS, .x = {3, 5, 20}, .other = {3, 5}, .units = 37},
        {.name = "smoothing",
         .op = TRI_OP_VOCAB_LOSS,
         .x = {2, 7, 24},
         .other = {2, 7},
         .units = 1101,
         .attr = {.smoothing = 0.05f},
         .shards = 2},
        {.name = "bf16", .op = TRI_OP_VOCAB_LOSS, .x = {2, 13, 24}, .other = {2, 13}, .units = 53, .half = TRI_BF16},
        {.name = "f16", .op = TRI_OP_VOCAB_LOSS, .x = {2, 13, 24}, .other = {2, 13}, .units = 53, .half = TRI_F16},
    };
    (void)state;
    for (size_t c = 0; card == NULL && c < TRI_COUNT_OF(cases); c++) { /* its arrays are the host's */
        parts_compare("cuda", &cases[c], 1, &ops_device);
    }
}

/* What one kernel makes of an add and the norm of its sum, and of a gradient that it adds to, are the bits of two. */
static void fused_case(const op_case *norm_case)
{
    op_run sum, apart, fused;
    const op_case add_case = {.name = "add",
                              .op = TRI_OP_ADD,
                              .x = {norm_case->x[0], norm_case->x[1], norm_case->x[2]},
                              .other = {norm_case->x[0], norm_case->x[1], norm_case->x[2]},
                              .half = norm_case->half};
    open_case(&sum, "cuda", &add_case, false);
    open_case(&apart, "cuda", norm_case, false);
    open_case(&fused, "cuda", norm_case, false);
    const size_t width = norm_case->half ? 2 : 4;
    const size_t count = (size_t)(apart.input_count[0] * apart.call.shards), nbytes = count * width;
    mirror m = {.count = 0};
    run_pass(&sum, tri_kernel_forward);
    memcpy(apart.input[0], sum.output, nbytes);
    memset(fused.input[0], 0xff, nbytes);
    fused.call.add = &sum.call;
    run_pass(&apart, tri_kernel_forward);
    run_pass(&fused, tri_kernel_forward);
    assert_memory_equal(fused.input[0], apart.input[0], nbytes);
    assert_memory_equal(fused.output, apart.output, nbytes);
    assert_memory_equal(fused.call.saved, apart.call.saved, apart.kernel.saved_nbytes * (size_t)apart.call.shards);
    fused.call.adds_dinput = true;
    memcpy(fused.dinput[0], sum.doutput, nbytes); /* what is there */
    run_pass(&apart, tri_kernel_backward);
    run_pass(&fused, tri_kernel_backward);
    const tri_gpu_value dx = tri_gpu_value_make(mirror_place(&m, apart.dinput[0], nbytes), norm_case->half),
                        dy = tri_gpu_value_make(mirror_place(&m, sum.doutput, nbytes), norm_case->half);
    tri_gpu_add(tri_gpu_queue_of(&ops_device), dx, dy, dx, (int64_t)count);
    mirror_end(&m);
    expect_no_failure(&fused);
    assert_memory_equal(fused.dinput[0], apart.dinput[0], nbytes);
    assert_memory_equal(fused.dparam[0][0], apart.dparam[0][0], (size_t)apart.param_count[0] * 4);
    op_close(&sum);
    op_close(&apart);
    op_close(&fused);
}

static void an_add_and_its_norm_in_one_pass_give_the_bits_of_two(void **state)
{
    static const op_case cases[] = {
        {.name = "layer_norm", .op = TRI_OP_LAYER_NORM, .x = {3, 7, 65}},
        {.name = "layer_norm", .op = TRI_OP_LAYER_NORM, .x = {3, 7, 65}, .half = TRI_BF16},
        {.name = "rms_norm", .op = TRI_OP_RMS_NORM, .x = {2, 5, 70}, .half = TRI_F16},
        {.name = "rms_norm_parts", .op = TRI_OP_RMS_NORM, .x = {2, 12, 70}, .attr = {.parts = 4}},
    };
    (void)state;
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        fused_case(&cases[c]);
    }
}

/* Rows that a warp reads in whole strips; more keys than a tile of the sort has. */
static void embeddings_may_be_wide_and_long(void **state)
{
    static const op_case cases[] = {
        {.name = "wide", .op = TRI_OP_EMBEDDING, .x = {3, 11}, .units = 29, .width = 600, .shards = 2},
        {.name = "wide",
         .op = TRI_OP_EMBEDDING,
         .x = {3, 11},
         .units = 29,
         .width = 600,
         .shards = 2,
         .half = TRI_BF16},
        {.name = "long", .op = TRI_OP_EMBEDDING, .x = {5, 1000}, .units = 90, .width = 4, .shards = 2},
    };
    (void)state;
    for (size_t c = 0; !few && c < TRI_COUNT_OF(cases); c++) {
        compare_kinds(&cases[c], true, cases[c].half != 0 ? MATCH_BF16 : MATCH);
    }
}

/* Leaves of 64 words at a time give the bits of all at once. */
static void an_embedding_is_taken_in_parts(void **state)
{
    static const op_case c = {.name = "embedding_parts", .op = TRI_OP_EMBEDDING, .x = {2}, .units = 300, .width = 64};
    const int64_t most = tri_gpu_embedding_leaves;
    (void)state;
    if (few) {
        return;
    }
    const uint64_t whole = hash_case(&c);
    tri_gpu_embedding_leaves = 1;
    compare_kinds(&c, true, MATCH);
    const uint64_t parts = hash_case(&c);
    tri_gpu_embedding_leaves = most;
    assert_true(parts == whole);
}

/* GPT-2 124M with 64 shards of one sample at once: 9.9 GB without parts. */
static void the_scratch_of_an_embedding_is_bounded(void **state)
{
    tri_op_desc desc = {.op = TRI_OP_EMBEDDING,
                        .attr = {.units = 50257, .width = 768},
                        .input_count = 1,
                        .input = {tri_shape_make(2, (int64_t[]){1, 1024})},
                        .input_dtype = {TRI_I32},
                        .max_shards = 64,
                        .threads = 1};
    tri_kernel kernel;
    (void)state;
    assert_int_equal(tri_op_infer(&desc), TRI_OK);
    assert_int_equal(tri_kernel_plan("cuda", &desc, &kernel), TRI_OK);
    assert_true(kernel.scratch_nbytes < (size_t)300 << 20);
    tri_kernel_release(&kernel);
}

static void expect_no_plan(int64_t rows, int64_t columns, int64_t units, const char *why)
{
    tri_op_desc desc = {.op = TRI_OP_LINEAR,
                        .attr = {.units = units, .bias = true},
                        .input_count = 1,
                        .input = {tri_shape_make(2, (int64_t[]){rows, columns})},
                        .max_shards = 1,
                        .threads = 1};
    tri_kernel kernel;
    assert_int_equal(tri_op_infer(&desc), TRI_OK);
    assert_int_equal(tri_kernel_plan("cuda", &desc, &kernel), TRI_EUNSUPPORTED);
    assert_string_equal(tri_last_error(), why);
}

static void what_no_grid_has_room_for_is_refused(void **state)
{
    (void)state;
    expect_no_plan(65535 * 128 + 1, 1, 1,
                   "linear: want at most 8388480 rows in a shard on a GPU, got 8388481 (train.shards)");
    expect_no_plan(1, 1, 65535 * 64 + 1, "linear: want at most 4194240 columns in a matrix on a GPU, got 4194241");
    expect_no_plan(1, 65535 * 64 + 1, 1, "linear: want at most 4194240 columns in a matrix on a GPU, got 4194241");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_depend_on_nothing_and_are_those_of_the_file),
        cmocka_unit_test(rows_match_the_reference),
        cmocka_unit_test(rows_match_in_bf16),
        cmocka_unit_test(rows_match_in_f16),
        cmocka_unit_test(a_large_vocabulary_is_taken_in_parts),
        cmocka_unit_test(the_scratch_of_a_vocabulary_is_bounded),
        cmocka_unit_test(logits_are_rounded_as_those_of_a_linear_layer),
        cmocka_unit_test(logits_beyond_f16_are_infinite),
        cmocka_unit_test(a_vocabulary_in_parts_gives_the_loss_of_the_whole),
        cmocka_unit_test(an_add_and_its_norm_in_one_pass_give_the_bits_of_two),
        cmocka_unit_test(tiles_of_all_forms_give_the_same_bits),
        cmocka_unit_test(large_tiles_are_for_large_products_on_multiples_of_16_bytes),
        cmocka_unit_test(tanh_has_the_bits_of_its_formula),
        cmocka_unit_test(columns_in_fours_give_the_bits_of_columns_one_by_one),
        cmocka_unit_test(embeddings_may_be_wide_and_long),
        cmocka_unit_test(an_embedding_is_taken_in_parts),
        cmocka_unit_test(the_scratch_of_an_embedding_is_bounded),
        cmocka_unit_test(what_no_grid_has_room_for_is_refused),
    };
    bool cuda = false;
    for (int i = 1; i + 1 < argc; i++) {
        accepts = accepts || strcmp(argv[i], "--accept") == 0;
        cuda = cuda || strcmp(argv[i], "--cuda") == 0;
        few = few || strcmp(argv[i], "--few") == 0;
    }
    expected_path = argc > 1 ? argv[argc - 1] : NULL;
    queue = tri_emulator_queue();
    ops_device = tri_emulator_device(&queue);
    if (cuda) {
        if (tri_device_open("cuda", &card) != TRI_OK) {
            fprintf(stderr, "error: %s\n", tri_last_error());
            return 2;
        }
        ops_device = *card;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_device_close(card);
    return failed;
}
