/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c: causal attention over tiles: no matrix of places by places in memory.
 *
 * A task is some queries of the heads that read one head of keys. A block of queries meets blocks of keys in order; the
 * maximum and the sum of exponentials go along (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018;
 * Dao et al., "FlashAttention", 2022), and their logarithm is saved for the backward pass. Blocks depend on the shape
 * alone.
 */
#include "kernel/cpu/attention.h"

#include <math.h>

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"

#define TASK_QUERIES INT64_C(512) /* of a task; they share packed keys and values */

void tri_attention_make(const tri_op_desc *desc, tri_attention_run *a)
{
    const tri_heads h = tri_heads_make(desc);
    *a = (tri_attention_run){.ops = tri_gemm_find(), .h = h, .scale = 1.0f / sqrtf((float)h.width)};
    const int64_t nr = a->ops->nr, mr = a->ops->mr, panels = tri_int64_ceil(h.width, nr);
    a->padded = panels * nr;
    const int64_t by_place = tri_align_count(tri_gemm_packed_count(a->ops, h.width, h.length));
    const int64_t by_element = tri_align_count(tri_gemm_packed_count(a->ops, h.length, h.width));
    a->keys = by_place;
    a->values = a->keys + (by_place > by_element ? by_place : by_element);
    a->block = a->values + by_element;
    a->sums = a->block + 2 * TRI_ATTENTION_QUERIES * TRI_ATTENTION_KEYS;
    a->sums_count = tri_align_count(tri_int64_ceil(h.length, mr) * mr * a->padded);
    a->rows = a->sums + 2 * a->sums_count;
    a->each = a->rows + 2 * TRI_ATTENTION_QUERIES * a->padded;
}

void tri_attention_pack_places(const tri_attention_run *a, const float *from, int64_t count, float *packed)
{
    for (int64_t panel = 0; panel * a->ops->nr < count; panel++) {
        tri_gemm_pack(a->ops, packed, from, a->h.width, count, 1, a->h.stride, panel);
    }
}

void tri_attention_pack_elements(const tri_attention_run *a, const float *from, int64_t count, float *packed)
{
    for (int64_t panel = 0; panel * a->ops->nr < a->h.width; panel++) {
        tri_gemm_pack(a->ops, packed, from, count, a->h.width, a->h.stride, 1, panel);
    }
}

void tri_attention_ahead(const tri_heads *h, const void *sample, size_t element_nbytes, int64_t key, int64_t first,
                         int64_t last)
{
    if (key + 1 >= h->keys) {
        return; /* the next sample is new rows, which come one after the other */
    }
    const int64_t head = h->width * (int64_t)element_nbytes;
    for (int64_t place = first; place < last; place++) {
        const char *row = (const char *)sample + place * h->stride * (int64_t)element_nbytes;
        tri_ahead(row + (key + 1) * h->group * head, (size_t)(h->group * head));
        tri_ahead(row + (h->queries + key + 1) * head, (size_t)head);
        tri_ahead(row + (h->queries + h->keys + key + 1) * head, (size_t)head);
    }
}

void tri_attention_scores(const tri_attention_run *a, const float *from, int64_t stride, int64_t query, int64_t rows,
                          const float *packed, int64_t first, int64_t count, float *s)
{
    for (int64_t r = 0, group; r < rows; r += group) {
        group = tri_int64_min(a->ops->mr, rows - r);
        const int64_t seen = tri_int64_min(count, query + r + group - first);
        if (seen > 0) {
            tri_gemm_block(a->ops, &(tri_gemm_call){.a = from + r * stride,
                                                    .packed = packed + first * a->h.width,
                                                    .c = s + r * TRI_ATTENTION_KEYS,
                                                    .m = group,
                                                    .n = seen,
                                                    .k = a->h.width,
                                                    .lda = stride,
                                                    .ldc = TRI_ATTENTION_KEYS});
        }
    }
}

void tri_attention_mix(const tri_attention_run *a, const float *s, int64_t query, int64_t rows, const float *packed,
                       int64_t all, int64_t first, int64_t count, float *to, int64_t stride)
{
    const int64_t nr = a->ops->nr, mr = a->ops->mr;
    for (int64_t column = 0; column < a->h.width; column += nr) {
        for (int64_t r = 0, group; r < rows; r += group) {
            group = tri_int64_min(mr, rows - r);
            tri_gemm_block(a->ops, &(tri_gemm_call){.a = s + r * TRI_ATTENTION_KEYS,
                                                    .packed = packed + column * all + first * nr,
                                                    .c = to + r * stride + column,
                                                    .m = group,
                                                    .n = tri_int64_min(nr, a->h.width - column),
                                                    .k = tri_int64_min(count, query + r + group - first),
                                                    .lda = TRI_ATTENTION_KEYS,
                                                    .ldc = stride,
                                                    .add = first > 0});
        }
    }
}

/* s = exp(s scale - top) for `valid` of them, zeros up to `count` and the end of the lanes: whole ones are computed,
 * since the rest of a row, one at a time, would take longer than the row. */
TRI_CLONES static void exp_scaled(float *s, float scale, float top, int64_t valid, int64_t count)
{
    const int64_t whole = tri_row_whole(valid);
    for (int64_t first = 0; first < whole; first += TRI_ROW_LANES) {
        for (int64_t i = first; i < first + TRI_ROW_LANES; i++) {
            s[i] = tri_exp(s[i] * scale - top);
        }
    }
    for (int64_t i = valid; i < tri_int64_max(count, whole); i++) {
        s[i] = 0;
    }
}

/* Softmax of the rows of a block as far as it goes; y, where earlier keys are in, follows the new maximum. */
static void block_softmax(const tri_attention_run *a, float *s, int64_t query, int64_t rows, int64_t first,
                          int64_t count, float *top, float *sum, float *y, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++) {
        float *row = s + r * TRI_ATTENTION_KEYS;
        const int64_t valid = tri_int64_min(count, query + r + 1 - first);
        if (valid <= 0) {
            memset(row, 0, (size_t)count * sizeof(float));
            continue;
        }
        const float best = tri_row_max(row, valid) * a->scale;
        if (first > 0 && best > top[r]) {
            const float factor = tri_exp(top[r] - best);
            tri_row_scale(y + r * stride, factor, a->h.width);
            sum[r] *= factor;
        }
        top[r] = first > 0 && top[r] > best ? top[r] : best;
        exp_scaled(row, a->scale, top[r], valid, count);
        sum[r] = (first > 0 ? sum[r] : 0) + tri_row_sum(row, tri_row_whole(valid));
    }
}

TRI_CLONES static void keep_row(float *w, const float *keep, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        w[i] *= keep[i];
    }
}

/* Weights that are in the sums, but not in what is mixed. */
static void block_drop(const tri_attention_run *a, const tri_attention_queries *b, int64_t first, int64_t count)
{
    float keep[TRI_ATTENTION_KEYS];
    for (int64_t r = 0; r < b->count; r++) {
        const int64_t valid = tri_int64_min(count, b->first + r + 1 - first);
        if (valid > 0) {
            tri_attention_drop_row(&a->drop, b->sample, b->head, b->first + r, first, valid, keep);
            keep_row(b->scores + r * TRI_ATTENTION_KEYS, keep, valid);
        }
    }
}

void tri_attention_block(const tri_attention_run *a, const tri_attention_queries *b)
{
    const int64_t stride = a->h.queries * a->h.width;
    float top[TRI_ATTENTION_QUERIES], sum[TRI_ATTENTION_QUERIES];
    for (int64_t first = 0; first < b->first + b->count; first += TRI_ATTENTION_KEYS) {
        const int64_t count = tri_int64_min(TRI_ATTENTION_KEYS, b->first + b->count - first);
        tri_attention_scores(a, b->q, a->h.stride, b->first, b->count, b->keys, first, count, b->scores);
        block_softmax(a, b->scores, b->first, b->count, first, count, top, sum, b->y, stride);
        if (a->drop.on) {
            block_drop(a, b, first, count);
        }
        tri_attention_mix(a, b->scores, b->first, b->count, b->values, b->places, first, count, b->y, stride);
    }
    for (int64_t r = 0; r < b->count; r++) {
        tri_row_scale(b->y + r * stride, 1.0f / sum[r], a->h.width);
        if (b->saved != NULL) {
            b->saved[r * a->h.queries] = top[r] + logf(sum[r]);
        }
    }
}

static void forward_tile(void *arg, int64_t tile)
{
    const tri_attention_run *a = arg;
    const tri_heads *h = &a->h;
    const int64_t tasks = tri_int64_ceil(h->length, TASK_QUERIES), first = tile % tasks * TASK_QUERIES;
    const int64_t key = tile / tasks % h->keys, row = tile / tasks / h->keys * h->length;
    const int64_t last = tri_int64_min(first + TASK_QUERIES, h->length);
    const float *sample = (const float *)a->call->input[0] + row * h->stride;
    const float *k = sample + (h->queries + key) * h->width;
    float *scratch = (float *)a->call->scratch + tri_tile_worker() * a->each;
    tri_attention_pack_places(a, k, last, scratch);
    tri_attention_pack_elements(a, k + h->keys * h->width, last, scratch + a->keys);
    for (int64_t head = key * h->group; head < (key + 1) * h->group; head++) {
        for (int64_t query = first; query < last; query += TRI_ATTENTION_QUERIES) {
            const int64_t rows = tri_int64_min(TRI_ATTENTION_QUERIES, last - query);
            if (head == key * h->group) {
                tri_attention_ahead(h, sample, sizeof *sample, key, query, query + rows);
            }
            tri_attention_block(a, &(tri_attention_queries){
                                       .q = sample + query * h->stride + head * h->width,
                                       .first = query,
                                       .count = rows,
                                       .sample = row / h->length,
                                       .head = head,
                                       .keys = scratch,
                                       .values = scratch + a->keys,
                                       .places = last,
                                       .scores = scratch + a->block,
                                       .y = (float *)a->call->output + ((row + query) * h->queries + head) * h->width,
                                       .saved = (float *)a->call->saved + (row + query) * h->queries + head});
        }
    }
}

static tri_status attention_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    tri_attention_run a;
    tri_attention_make(desc, &a);
    kernel->saved_nbytes = (size_t)(a.h.samples * a.h.length * a.h.queries) * sizeof(float);
    kernel->scratch_nbytes = (size_t)(a.each * desc->threads) * sizeof(float);
    return TRI_OK;
}

static void attention_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    tri_attention_run a;
    tri_attention_make(&kernel->desc, &a);
    a.kernel = kernel;
    a.call = call;
    a.drop = tri_attention_drop_make(kernel, call);
    const int64_t tasks = tri_int64_ceil(a.h.length, TASK_QUERIES);
    tri_tiles_run(kernel->desc.threads, a.h.samples * call->shards * a.h.keys * tasks, forward_tile, &a);
}

const tri_kernel_ops tri_cpu_attention = {
    .op = TRI_OP_ATTENTION,
    .name = "tiles",
    .plan = attention_plan,
    .forward = attention_forward,
    .backward = tri_attention_backward,
    .backward_input = true,
    .backward_output = true,
};
