/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_loss.c: rows of cross_entropy, vocab_loss and mse.
 *
 * Saved: the logarithm of the sum of the exponentials of each row. vocab_loss forms logits of a part of the vocabulary
 * at a time and never keeps them; how many words that is depends on the shape of one shard alone.
 */
#include "kernel/gpu/rows.h"

static int64_t target_rows(const tri_op_desc *desc)
{
    return tri_shape_count(desc->input[1]);
}

static int64_t rows_per_sample(const tri_op_desc *desc)
{
    return target_rows(desc) / desc->input[1].dim[0];
}

static size_t state_nbytes(const tri_op_desc *desc)
{
    return (size_t)tri_align_count(target_rows(desc) * desc->max_shards) * sizeof(tri_gpu_word_state);
}

static void run_state(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_value logits, int64_t first,
                      int64_t width, int64_t words)
{
    const tri_op_desc *desc = &kernel->desc;
    tri_gpu_words_state_args args = {.logits = logits,
                                     .targets = call->input[1],
                                     .state = call->scratch,
                                     .rows = target_rows(desc) * call->shards,
                                     .each = target_rows(desc),
                                     .width = width,
                                     .first = first,
                                     .words = words,
                                     .begins = first == 0,
                                     .mixes = desc->op == TRI_OP_CROSS_ENTROPY};
    tri_gpu_valid(call, rows_per_sample(desc), args.valid);
    TRI_GPU_RUN(call, words_state, tri_gpu_blocks_rows(args.rows), 1, 1, args);
}

static void run_loss(const tri_kernel *kernel, const tri_op_call *call, int64_t words)
{
    const tri_op_desc *desc = &kernel->desc;
    tri_gpu_words_loss_args args = {.state = call->scratch,
                                    .targets = call->input[1],
                                    .out = call->output,
                                    .log_sums = call->saved,
                                    .each = target_rows(desc),
                                    .words = words,
                                    .smoothing = desc->attr.smoothing,
                                    .mixes = desc->op == TRI_OP_CROSS_ENTROPY};
    tri_gpu_valid(call, rows_per_sample(desc), args.valid);
    TRI_GPU_RUN(call, words_loss, call->shards, 1, 1, args);
}

static void run_slope(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_value to, tri_gpu_value logits,
                      int64_t first, int64_t width, int64_t words)
{
    const tri_op_desc *desc = &kernel->desc;
    tri_gpu_words_slope_args args = {.to = to,
                                     .logits = logits,
                                     .targets = call->input[1],
                                     .log_sums = call->saved,
                                     .rows = target_rows(desc) * call->shards,
                                     .each = target_rows(desc),
                                     .width = width,
                                     .first = first,
                                     .words = words,
                                     .smoothing = desc->attr.smoothing,
                                     .factor = tri_gpu_loss_scale(call),
                                     .mixes = desc->op == TRI_OP_CROSS_ENTROPY};
    tri_gpu_valid(call, rows_per_sample(desc), args.valid);
    TRI_GPU_RUN(call, words_slope, tri_gpu_blocks_rows(args.rows), 1, 1, args);
}

static tri_status entropy_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->saved_nbytes = (size_t)target_rows(desc) * sizeof(float);
    kernel->scratch_nbytes = state_nbytes(desc);
    return tri_gpu_plan(desc, kernel);
}

static void entropy_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t words = tri_shape_last(&kernel->desc.input[0]);
    run_state(kernel, call, tri_gpu_input(kernel, call, 0), 0, words, words);
    run_loss(kernel, call, words);
}

static void entropy_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t words = tri_shape_last(&kernel->desc.input[0]);
    if (call->dinput[0] != NULL) {
        run_slope(kernel, call, tri_gpu_dinput(kernel, call, 0), tri_gpu_input(kernel, call, 0), 0, words, words);
    }
}

const tri_kernel_ops tri_gpu_row_cross_entropy = {
    TRI_GPU_ROW,
    .op = TRI_OP_CROSS_ENTROPY,
    .plan = entropy_plan,
    .forward = entropy_forward,
    .backward = entropy_backward,
    .backward_input = true,
};

/* --- loss over a vocabulary --- */

#define LOGITS     (INT64_C(1) << 22) /* of a shard at a time, at most, but for */
#define LEAST_PART INT64_C(256)       /* words */

/* Where things lie in scratch, as offsets of floats: states first. */
typedef struct vocab_plan {
    int64_t words, width, rows; /* of a shard */
    int64_t part;               /* words at a time */
    int64_t logits, dx, leaves, total;
} vocab_plan;

static vocab_plan plan_make(const tri_op_desc *desc)
{
    vocab_plan p = {.words = desc->param[0].dim[0], .width = desc->param[0].dim[1], .rows = target_rows(desc)};
    const int64_t fits = LOGITS / tri_int64_max(p.rows, 1) / 64 * 64, shards = desc->max_shards;
    p.part = tri_int64_min(p.words, tri_int64_max(fits, LEAST_PART));
    p.logits = (int64_t)(state_nbytes(desc) / sizeof(float));
    p.dx = p.logits + tri_align_count(p.rows * shards * p.part);
    p.leaves = p.dx + tri_align_count(p.rows * shards * p.width);
    p.total = p.leaves + shards * p.part * p.width;
    return p;
}

static tri_status vocab_plan_row(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->saved_nbytes = (size_t)target_rows(desc) * sizeof(float);
    kernel->scratch_nbytes = (size_t)plan_make(desc).total * sizeof(float);
    TRI_TRY(tri_gpu_width_check(desc, plan_make(desc).part));
    TRI_TRY(tri_gpu_width_check(desc, plan_make(desc).width));
    return tri_gpu_plan(desc, kernel);
}

static tri_gpu_operand operand(const void *data, tri_dtype dtype, int64_t shard_stride, int64_t row, int64_t column)
{
    return (tri_gpu_operand){
        .value = tri_gpu_value_make(data, dtype), .shard_stride = shard_stride, .row = row, .column = column};
}

static void multiply(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_operand a, tri_gpu_operand b,
                     tri_gpu_operand c, int64_t m, int64_t n, int64_t k, bool adds, int64_t shards)
{
    const tri_gpu_value x = tri_gpu_input(kernel, call, 0);
    const tri_gpu_gemm_args args = {
        .a = a, .b = b, .c = c, .m = (int)m, .n = (int)n, .k = (int)k, .adds = adds, .type = x.type};
    tri_gpu_gemm(call, &args, x.type != TRI_GPU_F32, shards);
}

/* Logits of words first .. first + width, of all rows. */
static tri_gpu_value make_logits(const tri_kernel *kernel, const tri_op_call *call, const vocab_plan *p, int64_t first,
                                 int64_t width)
{
    float *const logits = (float *)call->scratch + p->logits;
    const float *const w = (const float *)call->param[0] + first * p->width;
    multiply(kernel, call, operand(call->input[0], kernel->desc.input_dtype[0], 0, p->width, 1),
             operand(w, TRI_F32, 0, p->width, 1), operand(logits, TRI_F32, 0, width, 1), p->rows * call->shards, width,
             p->width, false, 1);
    return tri_gpu_value_make(logits, TRI_F32);
}

static void vocab_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const vocab_plan p = plan_make(&kernel->desc);
    for (int64_t first = 0; first < p.words; first += p.part) {
        const int64_t width = tri_int64_min(p.part, p.words - first);
        run_state(kernel, call, make_logits(kernel, call, &p, first, width), first, width, p.words);
    }
    run_loss(kernel, call, p.words);
}

/* Gradients from those of the logits of some words: that of x is added up over the parts in f32. */
static void vocab_part_back(const tri_kernel *kernel, const tri_op_call *call, const vocab_plan *p, int64_t first,
                            int64_t width)
{
    float *const scratch = call->scratch, *const logits = scratch + p->logits, *const leaves = scratch + p->leaves;
    const float *const w = (const float *)call->param[0] + first * p->width;
    if (call->dinput[0] != NULL) {
        multiply(kernel, call, operand(logits, TRI_F32, 0, width, 1), operand(w, TRI_F32, 0, 1, p->width),
                 operand(scratch + p->dx, TRI_F32, 0, p->width, 1), p->rows * call->shards, p->width, width, first > 0,
                 1);
    }
    if (tri_call_wants_dparam(call, 0)) {
        float *out[TRI_TREE_MAX_PARTS];
        for (int part = 0; part < call->part_count; part++) {
            out[part] = call->dparam[0][part] + first * p->width;
        }
        multiply(kernel, call, operand(logits, TRI_F32, p->rows * width, 1, width),
                 operand(call->input[0], kernel->desc.input_dtype[0], p->rows * p->width, 1, p->width),
                 operand(leaves, TRI_F32, width * p->width, p->width, 1), width, p->width, p->rows, false,
                 call->shards);
        tri_gpu_fold(tri_gpu_queue_of(call->device), leaves, width * p->width, width * p->width, call->parts,
                     call->part_count, out, 1.0f, kernel->desc.adds);
    }
}

static void vocab_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const vocab_plan p = plan_make(&kernel->desc);
    for (int64_t first = 0; first < p.words; first += p.part) {
        const int64_t width = tri_int64_min(p.part, p.words - first);
        const tri_gpu_value logits = make_logits(kernel, call, &p, first, width);
        run_slope(kernel, call, logits, logits, first, width, p.words);
        vocab_part_back(kernel, call, &p, first, width);
    }
    if (call->dinput[0] != NULL) {
        tri_gpu_cast(tri_gpu_queue_of(call->device), tri_gpu_dinput(kernel, call, 0),
                     tri_gpu_value_make((float *)call->scratch + p.dx, TRI_F32), p.rows * p.width * call->shards);
    }
}

const tri_kernel_ops tri_gpu_row_vocab_loss = {
    TRI_GPU_ROW,
    .op = TRI_OP_VOCAB_LOSS,
    .plan = vocab_plan_row,
    .forward = vocab_forward,
    .backward = vocab_backward,
    .backward_input = true,
};

static void mse_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t each = tri_shape_count(kernel->desc.input[0]);
    tri_gpu_mse_args args = {
        .x = tri_gpu_input(kernel, call, 0), .t = tri_gpu_input(kernel, call, 1), .out = call->output, .each = each};
    tri_gpu_valid(call, each / kernel->desc.input[0].dim[0], args.valid);
    TRI_GPU_RUN(call, mse, call->shards, 1, 1, args);
}

static void mse_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t each = tri_shape_count(kernel->desc.input[0]);
    tri_gpu_mse_back_args args = {.dx = tri_gpu_dinput(kernel, call, 0),
                                  .dt = tri_gpu_dinput(kernel, call, 1),
                                  .x = tri_gpu_input(kernel, call, 0),
                                  .t = tri_gpu_input(kernel, call, 1),
                                  .factor = tri_gpu_loss_scale(call),
                                  .each = each};
    tri_gpu_valid(call, each / kernel->desc.input[0].dim[0], args.valid);
    TRI_GPU_RUN(call, mse_back, tri_gpu_blocks_each(each), call->shards, 1, args);
}

const tri_kernel_ops tri_gpu_row_mse = {
    TRI_GPU_ROW,
    .op = TRI_OP_MSE,
    .plan = tri_gpu_plan,
    .forward = mse_forward,
    .backward = mse_backward,
    .backward_input = true,
};
