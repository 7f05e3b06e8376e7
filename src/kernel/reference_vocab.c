/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_vocab.c: what the loss over a vocabulary means, whole (vocab_loss) and in parts: vocab_part looks at some
 * of the words, vocab_join puts two looks together, vocab_sums makes the loss. Plain loops in double, one row after the
 * other.
 */
#include <math.h>

#include "kernel/infer.h"

/* Where things are in scratch: one row of logits and its gradient, then leaves of dw. */
static tri_status vocab_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t words = desc->param[0].dim[0], each = tri_shape_count(desc->param[0]);
    kernel->scratch_nbytes = (size_t)(2 * words + each * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

/* Gradients of one row; dx may be NULL. */
static void vocab_row_back(const tri_kernel *kernel, const float *w, const float *x, const float *dlogits, float *dx,
                           float *dw)
{
    const int64_t words = kernel->desc.param[0].dim[0], width = kernel->desc.param[0].dim[1];
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t v = 0; v < words; v++) {
            sum += (double)dlogits[v] * (double)w[v * width + c];
            dw[v * width + c] += dlogits[v] * x[c];
        }
        if (dx != NULL) {
            dx[c] = (float)sum;
        }
    }
}

static void vocab_logits(const tri_kernel *kernel, const tri_op_call *call, int64_t r, float *logits)
{
    const int64_t words = kernel->desc.param[0].dim[0], width = kernel->desc.param[0].dim[1];
    const float *x = (const float *)call->input[0] + r * width, *w = call->param[0];
    for (int64_t v = 0; v < words; v++) {
        double sum = 0;
        for (int64_t c = 0; c < width; c++) {
            sum += (double)x[c] * (double)w[v * width + c];
        }
        logits[v] = (float)sum;
    }
}

bool tri_vocab_row_counts(const tri_kernel *kernel, const tri_op_call *call, int64_t r, int64_t words)
{
    const int64_t rows = tri_shape_count(kernel->desc.input[1]), per_sample = rows / kernel->desc.input[1].dim[0];
    const int32_t target = ((const int32_t *)call->input[1])[r];
    return r % rows < call->rows[r / rows] * per_sample && target >= 0 && target < words;
}

/* Forward when sums are wanted, else backward. */
static void vocab_run(const tri_kernel *kernel, const tri_op_call *call, bool sums)
{
    const int64_t words = kernel->desc.param[0].dim[0], width = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.input[1]);
    const float *w = call->param[0];
    float *logits = call->scratch, *dlogits = logits + words, *leaves = dlogits + words;
    for (int64_t s = 0; s < call->shards; s++) {
        const float *x = tri_call_input(kernel, call, 0, s);
        const int32_t *target = (const int32_t *)call->input[1] + s * rows;
        float *dx = sums ? NULL : tri_call_dinput(kernel, call, 0, s), *dw = leaves + s * words * width;
        double total[TRI_LOSS_COLUMNS] = {0};
        if (!sums) {
            memset(dw, 0, (size_t)(words * width) * sizeof(float));
        }
        for (int64_t r = 0; r < rows; r++) {
            if (dx != NULL) {
                memset(dx + r * width, 0, (size_t)width * sizeof(float));
            }
            if (!tri_vocab_row_counts(kernel, call, s * rows + r, words)) {
                continue;
            }
            vocab_logits(kernel, call, s * rows + r, logits);
            const tri_row_loss row = tri_reference_loss_row(logits, words, target[r],
                                                            (double)kernel->desc.attr.smoothing, sums ? NULL : dlogits);
            if (!sums) {
                vocab_row_back(kernel, w, x + r * width, dlogits, dx != NULL ? dx + r * width : NULL, dw);
            }
            total[0] += row.loss;
            total[1] += 1;
            total[2] += row.right;
        }
        for (int i = 0; sums && i < TRI_LOSS_COLUMNS; i++) {
            ((float *)call->output)[s * TRI_LOSS_COLUMNS + i] = (float)total[i];
        }
    }
    if (!sums) {
        tri_leaves_sum(kernel, call, 0, leaves, words * width, words * width);
    }
}

static void vocab_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab_run(kernel, call, true);
}

static void vocab_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab_run(kernel, call, false);
}

static tri_status infer_vocab(tri_op_desc *desc)
{
    tri_shape targets = desc->input[0];
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    TRI_TRY(tri_infer_units(desc, "units (words)", desc->attr.units));
    targets.ndim--;
    TRI_TRY(tri_infer_loss(desc, targets, TRI_I32));
    return tri_infer_param(desc, tri_shape_make(2, (int64_t[]){desc->attr.units, tri_shape_last(&desc->input[0])}));
}

static double vocab_products(const tri_op_desc *desc)
{
    return (double)tri_shape_count(desc->input[1]) * (double)tri_shape_count(desc->param[0]);
}

const tri_op_ops tri_op_vocab_loss = {
    .inputs = 2,
    .infer = infer_vocab,
    .products = vocab_products,
    .loss = true,
    .makes_logits = true,
    .begins_gradient = true,
    .rounds_weights = true,
    .per_token = true,
    .packs = true,
    .reference.plan = vocab_plan,
    .reference.forward = vocab_forward,
    .reference.backward = vocab_backward,
    .reference.backward_input = true,
};

/* --- in parts --- */

static void part_state(const tri_kernel *kernel, const tri_op_call *call, int64_t r, const float *logits,
                       tri_vocab_state *state)
{
    const int64_t words = kernel->desc.param[0].dim[0];
    const int64_t target = ((const int32_t *)call->input[1])[r] - kernel->desc.attr.first;
    double top = -INFINITY, sum = 0, total = 0;
    *state = (tri_vocab_state){.before = -INFINITY};
    for (int64_t v = 0; v < words; v++) {
        top = fmax(top, (double)logits[v]);
        total += (double)logits[v];
        if (v < target) {
            state->before = fmaxf(state->before, logits[v]);
        }
    }
    for (int64_t v = 0; v < words; v++) {
        sum += exp((double)logits[v] - top);
    }
    state->top = (float)top;
    state->sum = (float)sum;
    state->right = target >= 0 && target < words ? logits[target] : 0;
    state->total = (float)total;
}

static void part_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    tri_vocab_state *states = call->output;
    for (int64_t r = 0; r < tri_shape_count(kernel->desc.input[1]) * call->shards; r++) {
        states[r] = (tri_vocab_state){0};
        if (tri_vocab_row_counts(kernel, call, r, kernel->desc.attr.words)) {
            vocab_logits(kernel, call, r, call->scratch);
            part_state(kernel, call, r, call->scratch, &states[r]);
        }
    }
}

static void part_gradient(const tri_kernel *kernel, const tri_op_call *call, int64_t r, float *logits)
{
    const int64_t target = ((const int32_t *)call->input[1])[r] - kernel->desc.attr.first;
    const double smoothing = (double)kernel->desc.attr.smoothing;
    const double log_sum = (double)((const tri_vocab_state *)call->doutput)[r].top;
    for (int64_t v = 0; v < kernel->desc.param[0].dim[0]; v++) {
        const double wanted = (v == target ? 1 - smoothing : 0) + smoothing / (double)kernel->desc.attr.words;
        logits[v] = (float)(exp((double)logits[v] - log_sum) - wanted);
    }
}

static void part_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t words = kernel->desc.param[0].dim[0], width = kernel->desc.param[0].dim[1];
    const int64_t rows = tri_shape_count(kernel->desc.input[1]);
    float *logits = call->scratch, *leaves = logits + 2 * words;
    memset(leaves, 0, (size_t)(words * width * call->shards) * sizeof(float));
    for (int64_t r = 0; r < rows * call->shards; r++) {
        float *dx = call->dinput[0] != NULL ? (float *)call->dinput[0] + r * width : NULL;
        if (tri_vocab_row_counts(kernel, call, r, kernel->desc.attr.words)) {
            vocab_logits(kernel, call, r, logits);
            part_gradient(kernel, call, r, logits);
            vocab_row_back(kernel, call->param[0], (const float *)call->input[0] + r * width, logits, dx,
                           leaves + r / rows * words * width);
        } else if (dx != NULL) {
            memset(dx, 0, (size_t)width * sizeof(float));
        }
    }
    tri_leaves_sum(kernel, call, 0, leaves, words * width, words * width);
}

static tri_status infer_part(tri_op_desc *desc)
{
    const tri_op_attr *attr = &desc->attr;
    TRI_TRY(infer_vocab(desc));
    if (attr->first < 0 || attr->units > attr->words - attr->first) {
        return tri_fail(TRI_EINVAL, "vocab_part: want %lld words from number %lld on to be within %lld",
                        (long long)attr->units, (long long)attr->first, (long long)attr->words);
    }
    desc->output = desc->input[1];
    desc->output.dim[desc->output.ndim++] = TRI_VOCAB_STATE;
    return TRI_OK;
}

const tri_op_ops tri_op_vocab_part = {
    .inputs = 2,
    .infer = infer_part,
    .products = vocab_products,
    .begins_gradient = true,
    .rounds_weights = true,
    .gives_f32 = true,
    .reference.plan = vocab_plan,
    .reference.forward = part_forward,
    .reference.backward = part_backward,
    .reference.backward_input = true,
};

/* Either order gives the same bits. Of two rows that do not count nothing comes. */
static tri_vocab_state joined(tri_vocab_state a, tri_vocab_state b)
{
    const float top = a.top > b.top ? a.top : b.top;
    const double left = (double)a.sum * exp((double)a.top - (double)top);
    const double right = (double)b.sum * exp((double)b.top - (double)top);
    return (tri_vocab_state){.top = top,
                             .sum = (float)(left + right),
                             .right = a.right + b.right,
                             .before = a.before > b.before ? a.before : b.before,
                             .total = a.total + b.total};
}

static void join_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_vocab_state *a = call->input[0], *b = call->input[1];
    tri_vocab_state *out = call->output;
    for (int64_t r = 0; r < tri_shape_count(kernel->desc.output) / TRI_VOCAB_STATE * call->shards; r++) {
        out[r] = joined(a[r], b[r]);
    }
}

/* What comes down is for all words. */
static void join_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    for (int i = 1; i >= 0; i--) {
        if (call->dinput[i] != NULL && call->dinput[i] != call->doutput) {
            memcpy(call->dinput[i], call->doutput,
                   (size_t)(tri_shape_count(kernel->desc.output) * call->shards) * sizeof(float));
        }
    }
}

static tri_status infer_states(tri_op_desc *desc, int i)
{
    TRI_TRY(tri_infer_input(desc, i, 2, TRI_MAX_DIMS, TRI_F32));
    char text[96];
    if (tri_shape_last(&desc->input[i]) != TRI_VOCAB_STATE) {
        return tri_fail(TRI_EINVAL, "%s: input %d: want rows of %d elements, got %s", tri_op_name(desc->op), i,
                        TRI_VOCAB_STATE, tri_shape_print(desc->input[i], text));
    }
    return TRI_OK;
}

static tri_status infer_join(tri_op_desc *desc)
{
    char text[96], other[96];
    TRI_TRY(infer_states(desc, 0));
    TRI_TRY(infer_states(desc, 1));
    if (!tri_shape_equal(desc->input[0], desc->input[1])) {
        return tri_fail(TRI_EINVAL, "vocab_join: input 1: want %s, got %s", tri_shape_print(desc->input[0], text),
                        tri_shape_print(desc->input[1], other));
    }
    desc->output = desc->input[0];
    return TRI_OK;
}

const tri_op_ops tri_op_vocab_join = {
    .inputs = 2,
    .infer = infer_join,
    .reference.forward = join_forward,
    .reference.backward = join_backward,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
};

/* Saved: the logarithms of the sums of all rows. Scratch: the states of all ranks. */
static tri_status sums_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t rows = tri_shape_count(desc->input[1]);
    kernel->saved_nbytes = (size_t)rows * sizeof(float);
    kernel->scratch_nbytes =
        desc->attr.ranks > 1 ? (size_t)(rows * desc->max_shards * desc->attr.ranks) * sizeof(tri_vocab_state) : 0;
    return TRI_OK;
}

/* Gathers the states of all ranks (a sum to which each but one adds zero is exact) and joins them by a balanced tree.
 */
static const tri_vocab_state *states_of_all(const tri_kernel *kernel, const tri_op_call *call, int64_t rows)
{
    const int ranks = kernel->desc.attr.ranks;
    tri_vocab_state *all = call->scratch;
    if (ranks <= 1) {
        return call->input[0];
    }
    memset(all, 0, (size_t)(rows * ranks) * sizeof *all);
    memcpy(all + kernel->desc.attr.rank * rows, call->input[0], (size_t)rows * sizeof *all);
    tri_ranks_sum(call, all, rows * ranks * TRI_VOCAB_STATE, TRI_F32);
    for (int step = 1; step < ranks; step *= 2) {
        for (int k = 0; k < ranks; k += 2 * step) {
            for (int64_t r = 0; r < rows; r++) {
                all[k * rows + r] = joined(all[k * rows + r], all[(k + step) * rows + r]);
            }
        }
    }
    return all;
}

static void sums_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t rows = tri_shape_count(kernel->desc.input[1]), words = kernel->desc.attr.words;
    const double smoothing = (double)kernel->desc.attr.smoothing;
    const tri_vocab_state *states = states_of_all(kernel, call, rows * call->shards);
    float *log_sums = call->saved;
    for (int64_t s = 0; s < call->shards; s++) {
        double total[TRI_LOSS_COLUMNS] = {0};
        for (int64_t r = s * rows; r < (s + 1) * rows; r++) {
            const tri_vocab_state *state = &states[r];
            log_sums[r] = 0;
            if (!tri_vocab_row_counts(kernel, call, r, words)) {
                continue;
            }
            const double log_sum = (double)state->top + log((double)state->sum);
            log_sums[r] = (float)log_sum;
            total[0] += (1 - smoothing) * (log_sum - (double)state->right) +
                        smoothing * (log_sum - (double)state->total / (double)words);
            total[1] += 1;
            total[2] += state->right >= state->top && !(state->before >= state->right) ? 1 : 0;
        }
        for (int i = 0; i < TRI_LOSS_COLUMNS; i++) {
            ((float *)call->output)[s * TRI_LOSS_COLUMNS + i] = (float)total[i];
        }
    }
}

static void sums_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    tri_vocab_state *down = call->dinput[0];
    for (int64_t r = 0; down != NULL && r < tri_shape_count(kernel->desc.input[1]) * call->shards; r++) {
        down[r] = (tri_vocab_state){.top = ((const float *)call->saved)[r]};
    }
}

static tri_status infer_sums(tri_op_desc *desc)
{
    tri_shape targets = desc->input[0];
    TRI_TRY(tri_infer_ranks(desc));
    TRI_TRY(infer_states(desc, 0));
    targets.ndim--;
    return tri_infer_loss(desc, targets, TRI_I32);
}

static double sums_exchange(const tri_op_desc *desc)
{
    return 4.0 * TRI_VOCAB_STATE * desc->attr.ranks * (double)tri_shape_count(desc->input[1]);
}

const tri_op_ops tri_op_vocab_sums = {
    .inputs = 2,
    .infer = infer_sums,
    .exchange = sums_exchange,
    .loss = true,
    .makes_logits = true,
    .reference.plan = sums_plan,
    .reference.forward = sums_forward,
    .reference.backward = sums_backward,
};
