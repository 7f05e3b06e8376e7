/* SPDX-License-Identifier: Apache-2.0
 *
 * vocab_half.c: vocab.c over values in bf16: all three products are of bf16, logits and sums f32.
 *
 * A task forms the logits of a block of rows and a tile of words in memory of its thread, and leaves exp(logit - the
 * largest of them) in bf16: half the memory of logits, kept from forward to backward where that is not too much, else
 * formed again with the same bits. Backward each row of a tile is scaled to its softmax; the target's own element comes
 * from its logit in f32, so that a weight near one keeps its distance from it. The gradient of x is f32 until all tiles
 * are in it.
 */
#include <math.h>

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_half.h"
#include "kernel/cpu/half_loops.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"

#define WORD_TILE   INT64_C(1024)        /* words at once: also where the sums of a row are cut */
#define PACKED      INT64_C(4)           /* tiles whose weights are packed together in the forward pass */
#define ROW_BLOCK   INT64_C(48)          /* rows of a task: whole register tiles in every instruction set */
#define KEPT_NBYTES (INT64_C(256) << 20) /* of exponentials, at most, that are kept */

/* Of one row and one tile. */
typedef struct tile_state {
    float sum;   /* of exponentials */
    float total; /* of logits: smoothing */
} tile_state;

#define STATE_FLOATS ((int64_t)(sizeof(tile_state) / sizeof(float)))

/* Sizes, and where things are in scratch and in saved, in elements of 32 bits. */
typedef struct vocab {
    const tri_kernel *kernel;
    const tri_op_call *call;
    const tri_gemm_ops *ops;
    const tri_half_loops *loops;
    int64_t words, width, rows, total, tiles; /* rows of a shard and of the call */
    bool kept;
    int64_t tree, block, states, lead, dx, e, e_pairs, x_pairs, count; /* of scratch; packed weights are at 0 */
    int64_t saved;                                                     /* of one shard */
    int64_t first, here, wide; /* words of the current tile, and whole lanes of them */
    bool x_is_paired;          /* by an earlier tile of this call */
} vocab;

static int64_t lanes_up(int64_t count)
{
    return tri_align_count(count);
}

static vocab vocab_make(const tri_op_desc *desc)
{
    vocab v = {.ops = tri_gemm_half_find(), .loops = tri_half_loops_find()};
    v.words = desc->param[0].dim[0];
    v.width = desc->param[0].dim[1];
    v.rows = tri_shape_count(desc->input[1]);
    v.tiles = tri_int64_ceil(v.words, WORD_TILE);
    const int64_t all = v.rows * desc->max_shards, widest = lanes_up(tri_int64_min(v.words, WORD_TILE));
    const int64_t pairs = tri_pairs(v.rows),
                  paired = tri_gemm_tree_may_be_short(v.ops, pairs) ? pairs * desc->max_shards : 0;
    const int64_t at_once = tri_int64_min(v.tiles, PACKED);
    v.kept = !desc->attr.forget && lanes_up(v.words) <= KEPT_NBYTES / (int64_t)sizeof(uint16_t) / all;
    const int64_t up = at_once * tri_gemm_packed_count(v.ops, tri_pairs(v.width), widest);
    const int64_t down = tri_gemm_packed_count(v.ops, tri_pairs(widest), v.width);
    v.tree = tri_align_count(tri_int64_max(up, down));
    v.block = v.tree + tri_align_count(tri_gemm_tree_count(v.ops, pairs, desc->max_shards, desc->threads));
    v.states = v.block + desc->threads * ROW_BLOCK * widest;
    v.lead = v.states + tri_align_count(all * v.tiles * STATE_FLOATS);
    v.dx = v.lead + tri_align_count(all);
    v.e = v.dx + tri_align_count(all * v.width);
    v.e_pairs = v.e + (v.kept ? 0 : tri_align_count(all * widest / 2));
    v.x_pairs = v.e_pairs + tri_align_count(paired * widest);
    v.count = v.x_pairs + tri_align_count(paired * v.width);
    v.saved = tri_align_count(v.rows * (2 + v.tiles)) + (v.kept ? tri_align_count(v.rows * lanes_up(v.words) / 2) : 0);
    return v;
}

static tri_status vocab_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const vocab v = vocab_make(desc);
    kernel->scratch_nbytes = (size_t)v.count * sizeof(float);
    kernel->saved_nbytes = (size_t)v.saved * sizeof(float);
    return TRI_OK;
}

static vocab call_make(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab v = vocab_make(&kernel->desc);
    v.kernel = kernel;
    v.call = call;
    v.total = v.rows * call->shards;
    return v;
}

/* Saved: logarithms of the sums of all rows, logits of their targets, the largest logit of each row and tile; then,
 * where they are kept, exponentials, tile by tile. */
static float *log_sums(const vocab *v)
{
    return v->call->saved;
}

static float *rights(const vocab *v)
{
    return log_sums(v) + v->total;
}

static float *base_of(const vocab *v, int64_t row, int64_t tile)
{
    return rights(v) + v->total + row * v->tiles + tile;
}

static float *scratch_of(const vocab *v, int64_t at)
{
    return (float *)v->call->scratch + at;
}

static tile_state *state_of(const vocab *v, int64_t row, int64_t tile)
{
    return (tile_state *)(void *)scratch_of(v, v->states) + row * v->tiles + tile;
}

static int32_t target_of(const vocab *v, int64_t row)
{
    return ((const int32_t *)v->call->input[1])[row];
}

static bool row_counts(const vocab *v, int64_t r)
{
    const int64_t per_sample = v->rows / v->kernel->desc.input[1].dim[0];
    const int32_t target = target_of(v, r);
    return r % v->rows < v->call->rows[r / v->rows] * per_sample && target >= 0 && target < v->words;
}

static void tile_enter(vocab *v, int64_t tile)
{
    v->first = tile * WORD_TILE;
    v->here = tri_int64_min(WORD_TILE, v->words - v->first);
    v->wide = lanes_up(v->here);
}

/* Exponentials of the current tile, rows `wide` apart. */
static uint16_t *exponentials(const vocab *v)
{
    if (!v->kept) {
        return (uint16_t *)(void *)scratch_of(v, v->e);
    }
    const int64_t head = tri_align_count(v->total * (2 + v->tiles));
    return (uint16_t *)(void *)(log_sums(v) + head) + v->first * v->total;
}

/* Weights of the current tile, packed as the factor of a product over elements. */
static uint32_t *packed_words(const vocab *v, int64_t slot)
{
    const int64_t widest = lanes_up(tri_int64_min(v->words, WORD_TILE));
    return (uint32_t *)v->call->scratch + slot * tri_gemm_packed_count(v->ops, tri_pairs(v->width), widest);
}

static void words_pack(const vocab *v, int64_t slot)
{
    tri_gemm_half_pack(v->ops, v->kernel->desc.threads, packed_words(v, slot),
                       tri_call_param(v->call, 0) + v->first * v->width, v->width, v->here, 1, v->width);
}

/* Logits of rows [row, row + count) and the current tile, `wide` apart, in memory of this thread. */
static float *block_logits(const vocab *v, int64_t slot, int64_t row, int64_t count)
{
    const int64_t widest = lanes_up(tri_int64_min(v->words, WORD_TILE));
    float *x = scratch_of(v, v->block) + tri_tile_worker() * ROW_BLOCK * widest;
    tri_gemm_half_run(v->ops, 1,
                      &(tri_gemm_half_call){.a = (const uint16_t *)v->call->input[0] + row * v->width,
                                            .packed = packed_words(v, slot),
                                            .c_wide = x,
                                            .m = count,
                                            .n = v->here,
                                            .k = v->width,
                                            .lda = v->width,
                                            .ldc = v->wide});
    return x;
}

/* --- forward --- */

static void row_up(const vocab *v, int64_t tile, int64_t r, const float *x)
{
    const float top = v->loops->top(x, v->here);
    const int64_t target = target_of(v, r) - v->first;
    if (target >= 0 && target < v->here) {
        rights(v)[r] = x[target];
        scratch_of(v, v->lead)[r] = target > 0 ? v->loops->top(x, target) : -INFINITY;
    }
    *base_of(v, r, tile) = top;
    state_of(v, r, tile)->sum = v->loops->weights(exponentials(v) + r * v->wide, x, 1.0f, top, v->here, v->wide);
    state_of(v, r, tile)->total = v->kernel->desc.attr.smoothing > 0 ? tri_row_sum(x, v->here) : 0;
}

typedef struct up_arg {
    const vocab *v;
    int64_t tile, blocks; /* the first tile that is packed; blocks of rows */
} up_arg;

/* A block of rows and one of the tiles whose weights are packed. */
static void up_tile(void *arg, int64_t task)
{
    const up_arg *up = arg;
    vocab v = *up->v;
    const int64_t slot = task / up->blocks, row = task % up->blocks * ROW_BLOCK;
    const int64_t count = tri_int64_min(ROW_BLOCK, v.total - row);
    tile_enter(&v, up->tile + slot);
    const float *x = block_logits(&v, slot, row, count);
    for (int64_t r = row; r < row + count; r++) {
        if (row_counts(&v, r)) {
            row_up(&v, up->tile + slot, r, x + (r - row) * v.wide);
        }
    }
}

/* Loss of a row from its tiles; right: 1 where no logit before the target's is as large, and none behind it larger. */
static float row_loss(const vocab *v, int64_t r, double *right)
{
    const float smoothing = v->kernel->desc.attr.smoothing, at = rights(v)[r];
    const int64_t home = target_of(v, r) / WORD_TILE;
    float top = *base_of(v, r, 0), before = scratch_of(v, v->lead)[r], sum = 0, total = 0;
    for (int64_t tile = 0; tile < v->tiles; tile++) {
        const float base = *base_of(v, r, tile);
        top = base > top ? base : top;
        before = tile < home && base > before ? base : before;
    }
    for (int64_t tile = 0; tile < v->tiles; tile++) {
        sum += state_of(v, r, tile)->sum * tri_exp(*base_of(v, r, tile) - top);
        total += state_of(v, r, tile)->total;
    }
    const float rest = logf(sum);
    log_sums(v)[r] = top + rest;
    *right += at >= top && !(before >= at) ? 1 : 0;
    const float loss = top - at + rest;
    return smoothing > 0 ? (1 - smoothing) * loss + smoothing * (top - total / (float)v->words + rest) : loss;
}

/* In the order of the rows of a shard. */
static void shard_sums(const vocab *v, int64_t shard)
{
    double loss = 0, weight = 0, right = 0;
    for (int64_t r = shard * v->rows; r < (shard + 1) * v->rows; r++) {
        if (row_counts(v, r)) {
            loss += (double)row_loss(v, r, &right);
            weight += 1;
        }
    }
    float *out = (float *)v->call->output + shard * TRI_LOSS_COLUMNS;
    out[0] = (float)loss;
    out[1] = (float)weight;
    out[2] = (float)right;
    out[3] = 0;
}

static void vocab_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab v = call_make(kernel, call);
    up_arg arg = {&v, .blocks = tri_int64_ceil(v.total, ROW_BLOCK)};
    for (int64_t slots; arg.tile < v.tiles; arg.tile += slots) {
        slots = v.kept ? tri_int64_min(PACKED, v.tiles - arg.tile) : 1; /* else tiles share memory */
        for (int64_t slot = 0; slot < slots; slot++) {
            tile_enter(&v, arg.tile + slot);
            words_pack(&v, slot);
        }
        tri_tiles_run(kernel->desc.threads, slots * arg.blocks, up_tile, &arg);
    }
    for (int64_t s = 0; s < call->shards; s++) {
        shard_sums(&v, s);
    }
}

/* --- backward --- */

/* Exponentials of a block of rows become gradients of their logits; without kept ones they are formed first. */
static void down_tile(void *arg, int64_t block)
{
    const vocab *v = arg;
    const float smoothing = v->kernel->desc.attr.smoothing, even = smoothing / (float)v->words;
    const int64_t row = block * ROW_BLOCK, count = tri_int64_min(ROW_BLOCK, v->total - row);
    const float *x = v->kept ? NULL : block_logits(v, 0, row, count);
    for (int64_t r = row; r < row + count; r++) {
        uint16_t *e = exponentials(v) + r * v->wide;
        if (!row_counts(v, r)) {
            memset(e, 0, (size_t)v->wide * sizeof *e);
            continue;
        }
        const float base = *base_of(v, r, v->first / WORD_TILE);
        if (x != NULL) {
            v->loops->weights(e, x + (r - row) * v->wide, 1.0f, base, v->here, v->wide);
        }
        v->loops->blend(e, tri_exp(base - log_sums(v)[r]), -even, v->here);
        const int64_t target = target_of(v, r) - v->first;
        if (target >= 0 && target < v->here) {
            const float own = tri_exp(rights(v)[r] - log_sums(v)[r]) - even - (1.0f - smoothing);
            v->loops->scale(e + target, &own, 1.0f, 1);
        }
    }
}

static void pairs_make(const vocab *v, int64_t to, const uint16_t *from, int64_t columns)
{
    for (int64_t s = 0; s < v->call->shards; s++) {
        tri_half_pair((uint32_t *)(void *)scratch_of(v, to) + s * tri_pairs(v->rows) * columns,
                      from + s * v->rows * columns, v->rows, columns);
    }
}

/* The gradient of the tile's words. */
static void tile_weights(vocab *v)
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
    tri_gemm_tree tree = {.m = v->here,
                          .n = v->width,
                          .k = tri_pairs(v->rows),
                          .lda = v->wide,
                          .half_a = exponentials(v),
                          .half_b = here.input[0],
                          .rows = v->rows,
                          .scratch = scratch_of(v, v->tree)};
    if (tri_gemm_tree_is_short(v->ops, &tree)) {
        pairs_make(v, v->e_pairs, tree.half_a, v->wide);
        if (!v->x_is_paired) { /* tiles are short or not by their words: the first of them need not be */
            pairs_make(v, v->x_pairs, tree.half_b, v->width);
            v->x_is_paired = true;
        }
        tree.a = scratch_of(v, v->e_pairs);
        tree.b = scratch_of(v, v->x_pairs);
    }
    tri_gemm_tree_run(v->ops, v->kernel, &here, 0, &tree);
}

/* The tile's part of the gradient of x. */
static void tile_input(const vocab *v)
{
    const int threads = v->kernel->desc.threads;
    uint32_t *packed = v->call->scratch;
    tri_gemm_half_pack(v->ops, threads, packed, tri_call_param(v->call, 0) + v->first * v->width, v->here, v->width,
                       v->width, 1);
    tri_gemm_half_run(v->ops, threads,
                      &(tri_gemm_half_call){.a = exponentials(v),
                                            .packed = packed,
                                            .c_wide = scratch_of(v, v->dx),
                                            .m = v->total,
                                            .n = v->width,
                                            .k = v->here,
                                            .lda = v->wide,
                                            .ldc = v->width,
                                            .add = v->first > 0});
}

static void vocab_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    vocab v = call_make(kernel, call);
    for (int64_t tile = 0; tile < v.tiles; tile++) {
        tile_enter(&v, tile);
        if (!v.kept) {
            words_pack(&v, 0);
        }
        tri_tiles_run(kernel->desc.threads, tri_int64_ceil(v.total, ROW_BLOCK), down_tile, &v);
        tile_weights(&v);
        if (call->dinput[0] != NULL) {
            tile_input(&v);
        }
    }
    if (call->dinput[0] != NULL) {
        tri_half_round_all(kernel->desc.threads, TRI_BF16, call->dinput[0], scratch_of(&v, v.dx), v.total * v.width);
    }
}

/* Rows of x are read where they are, as pairs. */
static bool vocab_can(const tri_op_desc *desc)
{
    return desc->input_dtype[0] == TRI_BF16 && desc->param[0].dim[1] % 2 == 0;
}

const tri_kernel_ops tri_cpu_vocab_half = {
    .op = TRI_OP_VOCAB_LOSS,
    .name = "tiles",
    .can = vocab_can,
    .half = true,
    .plan = vocab_plan,
    .forward = vocab_forward,
    .backward = vocab_backward,
    .backward_input = true,
};
