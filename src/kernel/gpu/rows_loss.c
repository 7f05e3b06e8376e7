/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_loss.c: rows of cross_entropy, mse, and of the loss over a vocabulary, whole or in parts.
 *
 * Saved: the logarithm of the sum of the exponentials of each row. vocab_loss and vocab_part form logits of some words
 * at a time and never keep them; how many words that is does not depend on the shards of a call.
 */
#include "kernel/gpu/product.h"
#include "kernel/gpu/rows.h"

_Static_assert(TRI_GPU_VOCAB_STATE == TRI_VOCAB_STATE, "kernels know the states of parts");

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

/* Logits of `width` words from number `first` on; begins: nothing is known of the rows yet. */
static void run_state(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_value logits, int64_t first,
                      int64_t width, int64_t words, bool begins)
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
                                     .begins = begins,
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

static void run_slope(const tri_kernel *kernel, const tri_op_call *call, const float *log_sums, tri_gpu_value to,
                      tri_gpu_value logits, int64_t first, int64_t width, int64_t words)
{
    const tri_op_desc *desc = &kernel->desc;
    tri_gpu_words_slope_args args = {.to = to,
                                     .logits = logits,
                                     .targets = call->input[1],
                                     .log_sums = log_sums,
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
    run_state(kernel, call, tri_gpu_input(kernel, call, 0), 0, words, words, true);
    run_loss(kernel, call, words);
}

static void entropy_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t words = tri_shape_last(&kernel->desc.input[0]);
    if (call->dinput[0] != NULL) {
        run_slope(kernel, call, call->saved, tri_gpu_dinput(kernel, call, 0), tri_gpu_input(kernel, call, 0), 0, words,
                  words);
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

/* Words of a part: 4 bytes of scratch, in 16 bits 2, for each of them and each row. By arithmetic a row moves 14 bytes
 * a word in bf16 (logits twice, their gradients), and as many an element of x for each part (x three times, its
 * gradient in f32 there and back): with 768 elements parts add 150 % to that where they have 512 words, 19 % with
 * 4,096, 9 % with 8,192. */
int64_t tri_gpu_vocab_words = 4096;

#define MANY_WORDS 1024

/* Where things lie in scratch, as offsets of floats: states first. Where x is of 16 bits, so are the weights of a part
 * and its logits: a sum in f32, rounded once. Gradients of logits take their place. */
typedef struct vocab_plan {
    int64_t words, width, rows; /* words here; rows of a shard */
    int64_t first, all;         /* number of the first word here, words of the whole vocabulary */
    int64_t part;               /* words at a time */
    int64_t rounded, logits, dx, leaves, total;
} vocab_plan;

static vocab_plan plan_make(const tri_op_desc *desc)
{
    vocab_plan p = {.words = desc->param[0].dim[0], .width = desc->param[0].dim[1], .rows = target_rows(desc)};
    p.first = desc->attr.first;
    p.all = desc->op == TRI_OP_VOCAB_PART ? desc->attr.words : p.words;
    const int64_t shards = desc->max_shards;
    const tri_dtype dtype = desc->input_dtype[0];
    p.part = tri_int64_min(p.words, tri_gpu_vocab_words);
    p.rounded = (int64_t)(state_nbytes(desc) / sizeof(float));
    p.logits = p.rounded + tri_gpu_half_count(dtype, p.part * p.width);
    const int64_t count = p.rows * shards * p.part;
    p.dx = p.logits + (dtype == TRI_F32 ? tri_align_count(count) : tri_gpu_half_count(dtype, count));
    p.leaves = p.dx + tri_align_count(p.rows * shards * p.width);
    p.total = p.leaves + shards * p.part * p.width;
    return p;
}

/* Words of the part that begins at `first`. What many words are beyond a multiple of 64 is a part of its own, so that
 * rows of the others' logits lie on multiples of 16 bytes. */
static int64_t part_width(const vocab_plan *p, int64_t first)
{
    const int64_t width = tri_int64_min(p->part, p->words - first);
    return width >= MANY_WORDS ? width / 64 * 64 : width;
}

/* Words [first, first + width) of those here. */
typedef struct vocab_part {
    const vocab_plan *p;
    int64_t first, width;
    tri_gpu_value x, w, logits, dx, leaves; /* logits: backward their gradients in the end */
} vocab_part;

static tri_gpu_value part_weights(const tri_op_call *call, const vocab_plan *p, int64_t first, tri_dtype dtype)
{
    const int64_t skipped = first * p->width;
    if (dtype == TRI_F32) {
        return tri_gpu_value_make(tri_gpu_place(call->param[0], skipped), dtype);
    }
    const tri_gpu_value all = tri_gpu_value_make(call->rounded[0], dtype);
    return call->rounded[0] != NULL ? tri_gpu_value_make(tri_gpu_moved(all, skipped), dtype)
                                    : tri_gpu_value_make(tri_gpu_place(call->scratch, p->rounded), dtype);
}

static vocab_part part_make(const tri_kernel *kernel, const tri_op_call *call, const vocab_plan *p, int64_t first)
{
    const void *const scratch = call->scratch;
    const tri_dtype dtype = kernel->desc.input_dtype[0];
    return (vocab_part){.p = p,
                        .first = first,
                        .width = part_width(p, first),
                        .x = tri_gpu_input(kernel, call, 0),
                        .w = part_weights(call, p, first, dtype),
                        .logits = tri_gpu_value_make(tri_gpu_place(scratch, p->logits), dtype),
                        .dx = tri_gpu_value_make(tri_gpu_place(scratch, p->dx), TRI_F32),
                        .leaves = tri_gpu_value_make(tri_gpu_place(scratch, p->leaves), TRI_F32)};
}

/* x w', of one shard. */
static tri_gpu_gemm_args part_logits(const vocab_part *v)
{
    const int64_t c = v->p->width, rows = v->p->rows;
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(v->x, rows * c, c, 1),
                               .b = tri_gpu_operand_make(v->w, 0, c, 1),
                               .c = tri_gpu_operand_make(v->logits, rows * v->width, v->width, 1),
                               .m = (int)rows,
                               .n = (int)v->width,
                               .k = (int)c,
                               .type = v->x.type};
}

/* Of x: added up over the parts in f32. */
static tri_gpu_gemm_args part_input(const vocab_part *v)
{
    const int64_t c = v->p->width, rows = v->p->rows;
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(v->logits, rows * v->width, v->width, 1),
                               .b = tri_gpu_operand_make(v->w, 0, 1, c),
                               .c = tri_gpu_operand_make(v->dx, rows * c, c, 1),
                               .m = (int)rows,
                               .n = (int)c,
                               .k = (int)v->width,
                               .adds = v->first > 0,
                               .type = v->x.type};
}

/* Of the weights, for each shard. */
static tri_gpu_gemm_args part_leaves(const vocab_part *v)
{
    const int64_t c = v->p->width, rows = v->p->rows;
    return (tri_gpu_gemm_args){.a = tri_gpu_operand_make(v->logits, rows * v->width, 1, v->width),
                               .b = tri_gpu_operand_make(v->x, rows * c, 1, c),
                               .c = tri_gpu_operand_make(v->leaves, v->width * c, c, 1),
                               .m = (int)v->width,
                               .n = (int)c,
                               .k = (int)rows,
                               .type = v->x.type};
}

static tri_status products_plan(const tri_op_desc *desc, const tri_kernel *kernel, const vocab_plan *p)
{
    const tri_op_call nothing = {.shards = 1};
    for (int64_t first = 0; first < p->words; first += part_width(p, first)) {
        const vocab_part part = part_make(kernel, &nothing, p, first);
        const tri_gpu_gemm_args logits = part_logits(&part), input = part_input(&part), leaves = part_leaves(&part);
        TRI_TRY(tri_gpu_product_plan(desc, &logits));
        TRI_TRY(desc->need_dinput[0] ? tri_gpu_product_plan(desc, &input) : TRI_OK);
        TRI_TRY(tri_gpu_product_plan(desc, &leaves));
    }
    return TRI_OK;
}

static tri_status vocab_plan_row(const tri_op_desc *desc, tri_kernel *kernel)
{
    const vocab_plan p = plan_make(desc);
    kernel->saved_nbytes = desc->op == TRI_OP_VOCAB_LOSS ? (size_t)target_rows(desc) * sizeof(float) : 0;
    kernel->scratch_nbytes = (size_t)p.total * sizeof(float);
    kernel->rounds[0] = desc->input_dtype[0];
    TRI_TRY(tri_gpu_width_check(desc, p.part));
    TRI_TRY(tri_gpu_width_check(desc, p.width));
    TRI_TRY(tri_gpu_plan(desc, kernel));
    return products_plan(desc, kernel, &p);
}

/* Logits of the words of a part, of all rows. */
static void make_logits(const tri_kernel *kernel, const tri_op_call *call, const vocab_part *v)
{
    const tri_gpu_gemm_args args = part_logits(v);
    if (kernel->desc.input_dtype[0] != TRI_F32 && call->rounded[0] == NULL) {
        const float *const w = (const float *)call->param[0] + v->first * v->p->width;
        tri_gpu_cast(tri_gpu_queue_of(call->device), v->w, tri_gpu_value_make(w, TRI_F32), v->width * v->p->width);
    }
    tri_gpu_gemm(call, &args, NULL, call->shards);
}

/* States of all rows, in scratch, from the words here. */
static void vocab_states(const tri_kernel *kernel, const tri_op_call *call, const vocab_plan *p)
{
    for (int64_t first = 0; first < p->words; first += part_width(p, first)) {
        const vocab_part v = part_make(kernel, call, p, first);
        make_logits(kernel, call, &v);
        run_state(kernel, call, v.logits, p->first + first, v.width, p->all, first == 0);
    }
}

static void vocab_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const vocab_plan p = plan_make(&kernel->desc);
    vocab_states(kernel, call, &p);
    run_loss(kernel, call, p.all);
}

/* Gradients from those of the logits of a part. */
static void vocab_part_back(const tri_kernel *kernel, const tri_op_call *call, const vocab_part *v)
{
    const int64_t c = v->p->width;
    if (call->dinput[0] != NULL) {
        const tri_gpu_gemm_args args = part_input(v);
        tri_gpu_gemm(call, &args, NULL, call->shards);
    }
    if (tri_call_wants_dparam(call, 0)) {
        const tri_gpu_gemm_args args = part_leaves(v);
        tri_gpu_gemm(call, &args, NULL, call->shards);
        tri_gpu_leaves_from(kernel, call, 0, v->leaves.data, v->width * c, v->first * c, v->width * c);
    }
}

static void vocab_slopes(const tri_kernel *kernel, const tri_op_call *call, const float *log_sums)
{
    const vocab_plan p = plan_make(&kernel->desc);
    for (int64_t first = 0; first < p.words; first += part_width(&p, first)) {
        const vocab_part v = part_make(kernel, call, &p, first);
        make_logits(kernel, call, &v);
        run_slope(kernel, call, log_sums, v.logits, v.logits, p.first + first, v.width, p.all);
        vocab_part_back(kernel, call, &v);
    }
    if (call->dinput[0] != NULL) {
        tri_gpu_cast(tri_gpu_queue_of(call->device), tri_gpu_dinput(kernel, call, 0),
                     tri_gpu_value_make((float *)call->scratch + p.dx, TRI_F32), p.rows * p.width * call->shards);
    }
}

static void vocab_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab_slopes(kernel, call, call->saved);
}

const tri_kernel_ops tri_gpu_row_vocab_loss = {
    TRI_GPU_ROW,
    .op = TRI_OP_VOCAB_LOSS,
    .plan = vocab_plan_row,
    .forward = vocab_forward,
    .backward = vocab_backward,
    .backward_input = true,
};

/* --- in parts: states as tri_vocab_state has them between ops, as tri_gpu_word_state within them --- */

/* `width` floats of each row, from places `from_first` and `to_first` of its `from_stride` and `to_stride` floats. */
static void run_move(const tri_op_call *call, int64_t rows, int64_t width, const float *from, int64_t from_stride,
                     int64_t from_first, float *to, int64_t to_stride, int64_t to_first)
{
    const tri_gpu_move_args args = {.to = tri_gpu_value_make(to, TRI_F32),
                                    .from = tri_gpu_value_make(from, TRI_F32),
                                    .to_stride = to_stride,
                                    .from_stride = from_stride,
                                    .to_first = to_first,
                                    .from_first = from_first,
                                    .width = width,
                                    .outer = rows};
    tri_gpu_move(call, &args);
}

#define STATE       TRI_GPU_VOCAB_STATE
#define WHOLE_STATE ((int64_t)(sizeof(tri_gpu_word_state) / sizeof(float))) /* those floats, then `main` */
#define RIGHT       2                                                       /* place in both */

static void part_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const vocab_plan p = plan_make(&kernel->desc);
    vocab_states(kernel, call, &p);
    run_move(call, p.rows * call->shards, STATE, call->scratch, WHOLE_STATE, 0, call->output, STATE, 0);
}

/* What comes down has the logarithm of the sum in `top`. */
static void part_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t rows = target_rows(&kernel->desc) * call->shards;
    run_move(call, rows, 1, call->doutput, STATE, 0, call->scratch, 1, 0);
    vocab_slopes(kernel, call, call->scratch);
}

const tri_kernel_ops tri_gpu_row_vocab_part = {
    TRI_GPU_ROW,
    .op = TRI_OP_VOCAB_PART,
    .plan = vocab_plan_row,
    .forward = part_forward,
    .backward = part_backward,
    .backward_input = true,
};

static void run_join(const tri_op_call *call, int64_t rows, const float *left, const float *right, float *out)
{
    const tri_gpu_words_join_args args = {.out = out, .left = left, .right = right, .rows = rows};
    TRI_GPU_RUN(call, words_join, tri_gpu_blocks(rows), 1, 1, args);
}

static void join_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    run_join(call, tri_shape_count(kernel->desc.output) / STATE * call->shards, call->input[0], call->input[1],
             call->output);
}

/* What comes down is for all words. */
static void join_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    for (int i = 1; i >= 0; i--) {
        if (call->dinput[i] != NULL && call->dinput[i] != call->doutput) {
            tri_device_copy(call->device, call->dinput[i], call->doutput,
                            (size_t)(tri_shape_count(kernel->desc.output) * call->shards) * sizeof(float));
        }
    }
}

const tri_kernel_ops tri_gpu_row_vocab_join = {
    TRI_GPU_ROW,
    .op = TRI_OP_VOCAB_JOIN,
    .forward = join_forward,
    .backward = join_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

/* Scratch: the joined states, then those of all ranks. */
static tri_status sums_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const size_t states = (size_t)(target_rows(desc) * desc->max_shards) * sizeof(tri_vocab_state);
    kernel->saved_nbytes = (size_t)target_rows(desc) * sizeof(float);
    kernel->host_nbytes = desc->attr.ranks > 1 ? states * (size_t)desc->attr.ranks : 0;
    kernel->scratch_nbytes = state_nbytes(desc) + kernel->host_nbytes;
    return tri_gpu_plan(desc, kernel);
}

/* The states of all ranks, joined by a balanced tree. */
static const float *states_of_all(const tri_kernel *kernel, const tri_op_call *call, int64_t rows)
{
    const int ranks = kernel->desc.attr.ranks;
    const int64_t each = rows * STATE;
    float *const all = (float *)call->scratch + state_nbytes(&kernel->desc) / sizeof(float);
    if (ranks <= 1) {
        return call->input[0];
    }
    tri_gpu_ranks_gather(kernel, call, call->input[0], all, each, TRI_F32);
    for (int step = 1; step < ranks; step *= 2) {
        for (int k = 0; k < ranks; k += 2 * step) {
            run_join(call, rows, all + k * each, all + (k + step) * each, all + k * each);
        }
    }
    return all;
}

static void sums_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t rows = target_rows(&kernel->desc) * call->shards;
    const float *states = states_of_all(kernel, call, rows);
    run_move(call, rows, STATE, states, STATE, 0, call->scratch, WHOLE_STATE, 0);
    run_move(call, rows, 1, states, STATE, RIGHT, call->scratch, WHOLE_STATE, STATE);
    run_loss(kernel, call, kernel->desc.attr.words);
}

static void sums_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t rows = target_rows(&kernel->desc) * call->shards;
    if (call->dinput[0] != NULL) {
        tri_gpu_fill(tri_gpu_queue_of(call->device), call->dinput[0], 0, rows * STATE);
        run_move(call, rows, 1, call->saved, 1, 0, call->dinput[0], STATE, 0);
    }
}

const tri_kernel_ops tri_gpu_row_vocab_sums = {
    TRI_GPU_ROW, .op = TRI_OP_VOCAB_SUMS, .plan = sums_plan, .forward = sums_forward, .backward = sums_backward,
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
