/* SPDX-License-Identifier: Apache-2.0
 *
 * vocab.c: the last linear layer and the cross entropy of its logits in one: tiles of words, all rows at a time.
 *
 * Forward each row's maximum and sum of exponentials go along from tile to tile. Backward a tile's logits become their
 * gradient in place, and are used for both products at once. Logits are kept from forward to backward where they are
 * few, else formed again: the same chains, the same bits. Padded rows and ignored targets have zero gradients.
 */
#include <math.h>

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"

#define WORD_TILE   INT64_C(1024)        /* words at once; also where the running sums of a row are cut */
#define KEPT_NBYTES (INT64_C(256) << 20) /* of logits, at most, that are kept */
#define ROW_TILE    INT64_C(8)           /* rows of one tile of the loops over logits */

/* Running figures of one row; saved from forward to backward: log_sum. */
typedef struct row_state {
    float top, sum; /* of exp(x - top) */
    float right;    /* logit of the target */
    float before;   /* the largest logit before the target's */
    float total;    /* of logits: smoothing */
} row_state;

#define STATE_FLOATS ((int64_t)(sizeof(row_state) / sizeof(float)))

/* Sizes, and where things lie in scratch and in saved, in elements. */
typedef struct vocab {
    const tri_kernel *kernel;
    const tri_op_call *call;
    int64_t words, width, rows, total; /* rows of a shard and of the call */
    int64_t widest;                    /* words of the widest tile */
    bool kept;
    int64_t packed, tree, logits, states, count; /* of scratch */
    int64_t saved;                               /* elements of one shard */
    int64_t first, here;                         /* words of the current tile */
    float *x;                                    /* logits of the current tile, [total][here] */
} vocab;

static vocab vocab_make(const tri_op_desc *desc)
{
    vocab v = {.words = desc->param[0].dim[0], .width = desc->param[0].dim[1], .rows = tri_shape_count(desc->input[1])};
    const tri_gemm_ops *ops = tri_gemm_find();
    const int64_t all = v.rows * desc->max_shards;
    v.widest = tri_int64_min(v.words, WORD_TILE);
    v.kept = !desc->attr.forget && v.words <= KEPT_NBYTES / (int64_t)sizeof(float) / all;
    const int64_t up = tri_gemm_packed_count(ops, v.width, v.widest);
    const int64_t down = tri_gemm_packed_count(ops, v.widest, v.width);
    v.tree = tri_align_count(tri_int64_max(up, down));
    v.logits = v.tree + tri_align_count(tri_gemm_tree_count(ops, v.rows, desc->max_shards, desc->threads));
    v.states = v.logits + (v.kept ? 0 : tri_align_count(all * v.widest));
    v.count = v.states + tri_align_count(all * STATE_FLOATS);
    v.saved = tri_align_count(v.rows) + (v.kept ? tri_align_count(v.rows * v.words) : 0);
    return v;
}

static tri_status vocab_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const vocab v = vocab_make(desc);
    kernel->scratch_nbytes = (size_t)v.count * sizeof(float);
    kernel->saved_nbytes = (size_t)v.saved * sizeof(float);
    return TRI_OK;
}

/* Logarithms of the sums of all rows, then, where they are kept, the logits, tile by tile. */
static float *log_sums(const vocab *v)
{
    return v->call->saved;
}

static row_state *state_of(const vocab *v, int64_t row)
{
    return (row_state *)(void *)((float *)v->call->scratch + v->states) + row;
}

static bool row_counts(const vocab *v, int64_t r)
{
    const int64_t per_sample = v->rows / v->kernel->desc.input[1].dim[0];
    const int32_t target = ((const int32_t *)v->call->input[1])[r];
    return r % v->rows < v->call->rows[r / v->rows] * per_sample && target >= 0 && target < v->words;
}

static void tile_enter(vocab *v, int64_t first)
{
    v->first = first;
    v->here = tri_int64_min(WORD_TILE, v->words - first);
    v->x = v->kept ? log_sums(v) + tri_align_count(v->total) + first * v->total : (float *)v->call->scratch + v->logits;
}

static void rows_run(const vocab *v, tri_tile_fn body)
{
    tri_tiles_run(v->kernel->desc.threads, tri_int64_ceil(v->total, ROW_TILE), body, (void *)v);
}

/* c[total][n] (+)= a[total][k] times words of the tile, by elements (n = words) or by words (n = elements). */
static void tile_product(const vocab *v, const float *a, int64_t k, float *c, int64_t n, bool add)
{
    const tri_gemm_ops *ops = tri_gemm_find();
    const int threads = v->kernel->desc.threads;
    const bool up = c == v->x;
    float *packed = v->call->scratch;
    tri_gemm_pack_all(ops, threads, packed, tri_call_param(v->call, 0) + v->first * v->width, k, n, up ? 1 : v->width,
                      up ? v->width : 1);
    tri_gemm_run(ops, threads,
                 &(tri_gemm_call){
                     .a = a, .packed = packed, .c = c, .m = v->total, .n = n, .k = k, .lda = k, .ldc = n, .add = add});
}

static void tile_logits(const vocab *v)
{
    tile_product(v, v->call->input[0], v->width, v->x, v->here, false);
}

/* --- forward --- */

static void state_row(const vocab *v, int64_t r)
{
    row_state *state = state_of(v, r);
    const float *x = v->x + r * v->here, best = tri_row_max(x, v->here);
    const int64_t target = ((const int32_t *)v->call->input[1])[r] - v->first;
    const bool begin = v->first == 0;
    if (begin) {
        *state = (row_state){.top = best, .before = -INFINITY};
    }
    if (target >= v->here) {
        state->before = begin || best > state->before ? best : state->before;
    } else if (target >= 0) {
        const float before = target > 0 ? tri_row_max(x, target) : -INFINITY;
        state->before = before > state->before ? before : state->before;
        state->right = x[target];
    }
    if (!begin && best > state->top) {
        state->sum *= tri_exp(state->top - best);
        state->top = best;
    }
    state->sum += tri_row_exp_sum(x, state->top, v->here);
    if (v->kernel->desc.attr.smoothing > 0) {
        state->total += tri_row_sum(x, v->here);
    }
}

static void state_tile(void *arg, int64_t tile)
{
    const vocab *v = arg;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        if (row_counts(v, r)) {
            state_row(v, r);
        }
    }
}

/* In the order of the rows of a shard. */
static void shard_sums(const vocab *v, int64_t shard)
{
    const float smoothing = v->kernel->desc.attr.smoothing;
    double loss = 0, weight = 0, right = 0;
    for (int64_t r = shard * v->rows; r < (shard + 1) * v->rows; r++) {
        if (!row_counts(v, r)) {
            continue;
        }
        const row_state *state = state_of(v, r);
        const float rest = logf(state->sum);
        float row = state->top - state->right + rest;
        if (smoothing > 0) {
            row = (1 - smoothing) * row + smoothing * (state->top - state->total / (float)v->words + rest);
        }
        log_sums(v)[r] = state->top + rest;
        loss += (double)row;
        weight += 1;
        right += state->right >= state->top && !(state->before >= state->right) ? 1 : 0;
    }
    float *out = (float *)v->call->output + shard * TRI_LOSS_COLUMNS;
    out[0] = (float)loss;
    out[1] = (float)weight;
    out[2] = (float)right;
    out[3] = 0;
}

static vocab call_make(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab v = vocab_make(&kernel->desc);
    v.kernel = kernel;
    v.call = call;
    v.total = v.rows * call->shards;
    return v;
}

static void vocab_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab v = call_make(kernel, call);
    for (int64_t first = 0; first < v.words; first += WORD_TILE) {
        tile_enter(&v, first);
        tile_logits(&v);
        rows_run(&v, state_tile);
    }
    for (int64_t s = 0; s < call->shards; s++) {
        shard_sums(&v, s);
    }
}

/* --- backward --- */

TRI_CLONES static void gradient_row(float *x, float log_sum, float even, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        x[i] = tri_exp(x[i] - log_sum) - even;
    }
}

static void gradient_tile(void *arg, int64_t tile)
{
    const vocab *v = arg;
    const float smoothing = v->kernel->desc.attr.smoothing;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        float *x = v->x + r * v->here;
        if (!row_counts(v, r)) {
            memset(x, 0, (size_t)v->here * sizeof(float));
            continue;
        }
        gradient_row(x, log_sums(v)[r], smoothing / (float)v->words, v->here);
        const int64_t target = ((const int32_t *)v->call->input[1])[r] - v->first;
        if (target >= 0 && target < v->here) {
            x[target] -= 1.0f - smoothing;
        }
    }
}

/* The gradient of the tile's words. */
static void tile_weights(const vocab *v)
{
    if (!tri_call_wants_dparam(v->call, 0)) {
        return;
    }
    tri_op_call here = *v->call;
    float *out[TRI_TREE_MAX_PARTS];
    for (int part = 0; part < here.part_count; part++) {
        out[part] = v->call->dparam[0][part] + v->first * v->width;
    }
    here.dparam[0] = out;
    tri_gemm_tree_run(tri_gemm_find(), v->kernel, &here, 0,
                      &(tri_gemm_tree){.a = v->x,
                                       .b = here.input[0],
                                       .m = v->here,
                                       .n = v->width,
                                       .k = v->rows,
                                       .scratch = (float *)here.scratch + v->tree});
}

static void vocab_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab v = call_make(kernel, call);
    for (int64_t first = 0; first < v.words; first += WORD_TILE) {
        tile_enter(&v, first);
        if (!v.kept) {
            tile_logits(&v);
        }
        rows_run(&v, gradient_tile);
        tile_weights(&v);
        if (call->dinput[0] != NULL) {
            tile_product(&v, v.x, v.here, call->dinput[0], v.width, first > 0);
        }
    }
}

const tri_kernel_ops tri_cpu_vocab_loss = {
    .op = TRI_OP_VOCAB_LOSS,
    .name = "tiles",
    .plan = vocab_plan,
    .forward = vocab_forward,
    .backward = vocab_backward,
    .backward_input = true,
};
