/* SPDX-License-Identifier: Apache-2.0
 *
 * vocab.c: the last linear layer and the cross entropy of its logits in one: tiles of words, all rows at a time.
 *
 * Forward each row's maximum and sum of exponentials go along from tile to tile. Backward a tile's logits become their
 * gradient in place, and are used for both products at once. Logits are kept from forward to backward where they are
 * few, else formed again: the same chains, the same bits. Padded rows and ignored targets have zero gradients.
 *
 * With x in bf16 all three products are of bf16: weights are rounded as they are packed, a tile's gradient once it is
 * formed. Logits, and the gradient of x until all tiles are in it, are f32.
 */
#include <math.h>

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_half.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"
#include "kernel/cpu/vocab.h"

#define WORD_TILE   INT64_C(1024)        /* words at once; also where the running sums of a row are cut */
#define KEPT_NBYTES (INT64_C(256) << 20) /* of logits, at most, that are kept */
#define ROW_TILE    INT64_C(8)           /* rows of one tile of the loops over logits */

/* Sizes, and where things are in scratch and in saved, in elements. */
typedef struct vocab {
    const tri_kernel *kernel;
    const tri_op_call *call;
    int64_t words, width, rows, total; /* rows of a shard and of the call */
    int64_t begin, all;                /* vocab_part: the first of the words, and how many there are in all */
    int64_t widest;                    /* words of the widest tile */
    bool kept;
    bool few;                /* rows, so that they are packed for the logits, once, and words are read where they are */
    bool half;               /* x is bf16 */
    bool x_is_paired;        /* half: by an earlier tile of this call */
    int64_t dx, dense, even; /* half, of scratch: the gradient of x in f32; that of a tile's logits, also with rows of
                                an even length */
    int64_t dense_pairs, x_pairs;                 /* half, of scratch: pairs of rows of both, for short shards */
    int64_t tree, logits, states, samples, count; /* of scratch; packed words are at 0 */
    int64_t saved;                                /* elements of one shard */
    int64_t first, here;                          /* words of the current tile */
    float *x;                                     /* logits of the current tile, [total][here] */
} vocab;

static vocab vocab_make(const tri_op_desc *desc)
{
    vocab v = {.words = desc->param[0].dim[0], .width = desc->param[0].dim[1], .rows = tri_shape_count(desc->input[1])};
    v.half = desc->input_dtype[0] == TRI_BF16;
    const tri_gemm_ops *ops = v.half ? tri_gemm_half_find() : tri_gemm_find();
    v.begin = desc->attr.first;
    v.all = desc->op == TRI_OP_VOCAB_PART ? desc->attr.words : v.words;
    const int64_t all = v.rows * desc->max_shards;
    v.widest = tri_int64_min(v.words, WORD_TILE);
    v.kept = !desc->attr.forget && v.all <= KEPT_NBYTES / (int64_t)sizeof(float) / all;
    const int64_t up = tri_gemm_packed_count(ops, v.width, v.widest);
    const int64_t down = tri_gemm_packed_count(ops, v.widest, v.width);
    v.tree = tri_align_count(tri_int64_max(up, down));
    v.logits = v.tree + tri_align_count(tri_gemm_tree_count(ops, v.half ? tri_pairs(v.rows) : v.rows, desc->max_shards,
                                                            desc->threads));
    v.states = v.logits + (v.kept ? 0 : tri_align_count(all * v.widest));
    v.samples = v.states + tri_align_count(all * TRI_VOCAB_STATE);
    v.few = !v.half && all < TRI_GEMM_MANY;
    v.count = v.samples + (v.few ? tri_align_count(tri_gemm_packed_count(ops, v.width, all)) : 0);
    if (v.half) {
        const int64_t pairs = tri_pairs(v.rows),
                      paired = tri_gemm_tree_may_be_short(ops, pairs) ? pairs * desc->max_shards : 0;
        v.dx = v.count;
        v.dense = v.dx + tri_align_count(all * v.width);
        v.even = v.dense + tri_align_count(all * tri_pairs(v.widest));
        v.dense_pairs = v.even + tri_align_count(all * tri_pairs(v.widest));
        v.x_pairs = v.dense_pairs + tri_align_count(paired * v.widest);
        v.count = v.x_pairs + tri_align_count(paired * v.width);
    }
    v.saved = tri_align_count(v.rows) + (v.kept ? tri_align_count(v.rows * v.words) : 0);
    return v;
}

tri_status tri_vocab_plan(const tri_op_desc *desc, tri_kernel *kernel)
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

static tri_vocab_state *state_of(const vocab *v, int64_t row)
{
    return (tri_vocab_state *)(void *)((float *)v->call->scratch + v->states) + row;
}

static bool row_counts(const vocab *v, int64_t r)
{
    return tri_vocab_row_counts(v->kernel, v->call, r, v->all);
}

/* Where the target of a row is in the current tile; below 0: before it. */
static int64_t row_target(const vocab *v, int64_t r)
{
    return ((const int32_t *)v->call->input[1])[r] - v->begin - v->first;
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

/* The logits of a tile from packed rows, which the first tile packs. */
static void few_logits(const vocab *v)
{
    const tri_gemm_ops *ops = tri_gemm_find();
    const int threads = v->kernel->desc.threads;
    float *packed = (float *)v->call->scratch + v->samples;
    if (v->first == 0) {
        tri_gemm_pack_all(ops, threads, packed, v->call->input[0], v->width, v->total, 1, v->width);
    }
    tri_gemm_turn_run(ops, threads,
                      &(tri_gemm_turn){.a = tri_call_param(v->call, 0) + v->first * v->width,
                                       .packed = packed,
                                       .c = v->x,
                                       .m = v->here,
                                       .n = v->total,
                                       .k = v->width,
                                       .row_step = v->width,
                                       .k_step = 1,
                                       .ldc = v->here});
}

/* The same for bf16; c is f32. */
static void half_product(const vocab *v, const void *a, int64_t k, float *c, int64_t n, bool add)
{
    const tri_gemm_ops *ops = tri_gemm_half_find();
    const int threads = v->kernel->desc.threads;
    const bool up = c == v->x;
    uint32_t *packed = v->call->scratch;
    tri_gemm_half_pack(ops, threads, packed, tri_call_param(v->call, 0) + v->first * v->width, k, n, up ? 1 : v->width,
                       up ? v->width : 1);
    tri_gemm_half_run(ops, threads,
                      &(tri_gemm_half_call){.a = a,
                                            .packed = packed,
                                            .c_wide = c,
                                            .m = v->total,
                                            .n = n,
                                            .k = k,
                                            .lda = 2 * tri_pairs(k),
                                            .ldc = n,
                                            .add = add});
}

static void tile_logits(const vocab *v)
{
    if (v->half) {
        half_product(v, v->call->input[0], v->width, v->x, v->here, false);
    } else if (v->few) {
        few_logits(v);
    } else {
        tile_product(v, v->call->input[0], v->width, v->x, v->here, false);
    }
}

/* --- forward --- */

static void state_row(const vocab *v, int64_t r)
{
    tri_vocab_state *state = state_of(v, r);
    const float *x = v->x + r * v->here, best = tri_row_max(x, v->here);
    const int64_t target = row_target(v, r);
    const bool begin = v->first == 0;
    if (begin) {
        *state = (tri_vocab_state){.top = best, .before = -INFINITY};
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
        const tri_vocab_state *state = state_of(v, r);
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

const tri_vocab_state *tri_vocab_up(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab v = call_make(kernel, call);
    for (int64_t first = 0; first < v.words; first += WORD_TILE) {
        tile_enter(&v, first);
        tile_logits(&v);
        rows_run(&v, state_tile);
    }
    return state_of(&v, 0);
}

static void vocab_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const vocab v = call_make(kernel, call);
    (void)tri_vocab_up(kernel, call);
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
        gradient_row(x, log_sums(v)[r], smoothing / (float)v->all, v->here);
        const int64_t target = row_target(v, r);
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

/* The gradient of a tile's logits in bf16, dense and with an even length of rows; both are one where that is the same.
 */
static void half_round_tile(void *arg, int64_t tile)
{
    const vocab *v = arg;
    uint16_t *dense = (uint16_t *)(void *)((float *)v->call->scratch + v->dense);
    uint16_t *even = (uint16_t *)(void *)((float *)v->call->scratch + v->even);
    const int64_t stride = 2 * tri_pairs(v->here);
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        tri_half_round(dense + r * v->here, v->x + r * v->here, v->here);
        if (stride > v->here) {
            memcpy(even + r * stride, dense + r * v->here, (size_t)v->here * sizeof *even);
            even[r * stride + v->here] = 0;
        }
    }
}

static void half_pairs(const vocab *v, int64_t to, const uint16_t *from, int64_t columns)
{
    for (int64_t s = 0; s < v->call->shards; s++) {
        tri_half_pair((uint32_t *)v->call->scratch + to + s * tri_pairs(v->rows) * columns,
                      from + s * v->rows * columns, v->rows, columns);
    }
}

static void half_weights(vocab *v)
{
    if (!tri_call_wants_dparam(v->call, 0)) {
        return;
    }
    tri_op_call here = *v->call;
    float *out[TRI_TREE_MAX_PARTS], *scratch = v->call->scratch;
    for (int part = 0; part < here.part_count; part++) {
        out[part] = v->call->dparam[0][part] + v->first * v->width;
    }
    here.dparam[0] = out;
    tri_gemm_tree tree = {.m = v->here,
                          .n = v->width,
                          .k = tri_pairs(v->rows),
                          .half_a = (const uint16_t *)(const void *)(scratch + v->dense),
                          .half_b = here.input[0],
                          .rows = v->rows,
                          .scratch = scratch + v->tree};
    if (tri_gemm_tree_is_short(tri_gemm_half_find(), &tree)) {
        half_pairs(v, v->dense_pairs, tree.half_a, v->here);
        if (!v->x_is_paired) { /* tiles are short or not by their words: the first of them need not be */
            half_pairs(v, v->x_pairs, tree.half_b, v->width);
            v->x_is_paired = true;
        }
        tree.a = scratch + v->dense_pairs;
        tree.b = scratch + v->x_pairs;
    }
    tri_gemm_tree_run(tri_gemm_half_find(), v->kernel, &here, 0, &tree);
}

static void half_backward(vocab *v)
{
    float *scratch = v->call->scratch;
    for (int64_t first = 0; first < v->words; first += WORD_TILE) {
        tile_enter(v, first);
        if (!v->kept) {
            tile_logits(v);
        }
        rows_run(v, gradient_tile);
        rows_run(v, half_round_tile);
        half_weights(v);
        if (v->call->dinput[0] != NULL) {
            half_product(v, scratch + (v->here % 2 == 0 ? v->dense : v->even), v->here, scratch + v->dx, v->width,
                         first > 0);
        }
    }
    if (v->call->dinput[0] != NULL) {
        tri_half_round_all(v->kernel->desc.threads, TRI_BF16, v->call->dinput[0], scratch + v->dx, v->total * v->width);
    }
}

void tri_vocab_down(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab v = call_make(kernel, call);
    if (v.half) {
        half_backward(&v);
        return;
    }
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

/* In bf16 rows of x are read where they are, as pairs. */
bool tri_vocab_can(const tri_op_desc *desc)
{
    return desc->input_dtype[0] != TRI_BF16 || desc->param[0].dim[1] % 2 == 0;
}

const tri_kernel_ops tri_cpu_vocab_loss = {
    .op = TRI_OP_VOCAB_LOSS,
    .name = "tiles",
    .can = tri_vocab_can,
    .half = true,
    .plan = tri_vocab_plan,
    .forward = vocab_forward,
    .backward = tri_vocab_down,
    .backward_input = true,
};
