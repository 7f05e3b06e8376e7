/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_back.c: the backward pass of attention: the weights of a block are formed again from the saved logarithms.
 *
 * A task is one head of keys with its heads of queries, in order, block by block: the gradients of keys and values are
 * one chain over the queries, held in register tiles.
 */
#include "kernel/cpu/attention.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"

TRI_CLONES static void keep_row(float *x, const float *keep, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        x[i] *= keep[i];
    }
}

/* p = exp(p scale - log_sum); d = p (d - mean) scale, for `valid` of them, by whole lanes; zeros up to `count`. */
TRI_CLONES static void weights_row(float *p, float *d, float scale, float log_sum, float mean, int64_t valid,
                                   int64_t count)
{
    for (int64_t first = 0; first < valid; first += TRI_ROW_LANES) {
        for (int64_t i = first; i < first + TRI_ROW_LANES; i++) {
            p[i] = tri_exp(p[i] * scale - log_sum);
            d[i] = p[i] * (d[i] - mean) * scale;
        }
    }
    for (int64_t i = valid; i < count; i++) {
        p[i] = 0;
        d[i] = 0;
    }
}

/* sums[place tile][panel][mr][nr] += over the rows that see the place of s[row][place] b[row][element]. */
static void sums_add(const tri_attention_run *a, const float *s, const float *b, int64_t query, int64_t rows,
                     int64_t first, int64_t count, float *sums)
{
    const tri_gemm_ops *ops = a->ops;
    for (int64_t place = 0; place < count; place += ops->mr) {
        const int64_t begin = tri_int64_max(0, first + place - query);
        const tri_gemm_walk walk = {
            .count = {1, rows - begin}, .a_step = {0, TRI_ATTENTION_KEYS}, .b_step = {0, a->padded}};
        float *tile = sums + (first + place) * a->padded;
        for (int64_t column = 0; column < a->h.width; column += ops->nr) {
            ops->outer((int)tri_int64_min(ops->mr, count - place), (int)tri_int64_min(ops->nr, a->h.width - column),
                       &walk, s + begin * TRI_ATTENTION_KEYS + place, b + begin * a->padded + column,
                       tile + column * ops->mr, 0, NULL);
        }
    }
}

/* From register tiles to rows. */
static void sums_store(const tri_attention_run *a, const float *sums, float *to)
{
    const int64_t mr = a->ops->mr, nr = a->ops->nr;
    for (int64_t place = 0; place < a->h.length; place++) {
        const float *tile = sums + place / mr * mr * a->padded;
        for (int64_t column = 0; column < a->h.width; column += nr) {
            memcpy(to + place * a->h.stride + column, tile + column * mr + place % mr * nr,
                   (size_t)tri_int64_min(nr, a->h.width - column) * sizeof(float));
        }
    }
}

static void rows_copy(const tri_attention_run *a, const float *from, int64_t stride, int64_t rows, float *to)
{
    for (int64_t r = 0; r < rows; r++) {
        memcpy(to + r * a->padded, from + r * stride, (size_t)a->h.width * sizeof(float));
    }
}

/* One block of queries of one head. */
typedef struct block_arg {
    const float *q, *y, *dy, *saved;
    float *dq;
    int64_t query, rows;
    int64_t sample, head; /* of dropout */
    bool next;            /* heads of another head of keys come after */
} block_arg;

/* Weights and gradients of scores of a block, in place of its scores and products with dy. What was left out has no
 * product, and no part in the gradient of values. */
static void block_weights(const tri_attention_run *a, const block_arg *b, const float *mean, int64_t first,
                          int64_t count, float *p, float *d)
{
    float keep[TRI_ATTENTION_KEYS];
    for (int64_t r = 0; r < b->rows; r++, p += TRI_ATTENTION_KEYS, d += TRI_ATTENTION_KEYS) {
        const int64_t valid = tri_int64_max(0, tri_int64_min(count, b->query + r + 1 - first));
        const bool drop = a->drop.on && valid > 0;
        if (drop) {
            tri_attention_drop_row(&a->drop, b->sample, b->head, b->query + r, first, valid, keep);
            keep_row(d, keep, valid);
        }
        weights_row(p, d, a->scale, b->saved[r * a->h.queries], mean[r], valid, count);
        if (drop) {
            keep_row(p, keep, valid);
        }
    }
}

static void block_backward(const tri_attention_run *a, const block_arg *b, float *scratch)
{
    const int64_t stride = a->h.queries * a->h.width, width = a->h.width;
    float *p = scratch + a->block, *d = p + TRI_ATTENTION_QUERIES * TRI_ATTENTION_KEYS;
    float *dk = scratch + a->sums, *dv = dk + a->sums_count;
    float *q = scratch + a->rows, *dy = q + TRI_ATTENTION_QUERIES * a->padded;
    float mean[TRI_ATTENTION_QUERIES];
    rows_copy(a, b->q, a->h.stride, b->rows, q);
    rows_copy(a, b->dy, stride, b->rows, dy);
    for (int64_t r = 0; r < b->rows; r++) {
        if (b->next) { /* of the head that comes after */
            tri_ahead(b->dy + r * stride + a->h.group * width, (size_t)width * sizeof(float));
            tri_ahead(b->y + r * stride + a->h.group * width, (size_t)width * sizeof(float));
        }
        mean[r] = tri_row_product(b->dy + r * stride, b->y + r * stride, width);
    }
    for (int64_t first = 0; first < b->query + b->rows; first += TRI_ATTENTION_KEYS) {
        const int64_t count = tri_int64_min(TRI_ATTENTION_KEYS, b->query + b->rows - first);
        tri_attention_scores(a, q, a->padded, b->query, b->rows, scratch, first, count, p);
        tri_attention_scores(a, dy, a->padded, b->query, b->rows, scratch + a->keys, first, count, d);
        block_weights(a, b, mean, first, count, p, d);
        tri_attention_mix(a, d, b->query, b->rows, scratch + a->values, a->h.length, first, count, b->dq, a->h.stride);
        sums_add(a, p, dy, b->query, b->rows, first, count, dv);
        sums_add(a, d, q, b->query, b->rows, first, count, dk);
    }
}

static void backward_tile(void *arg, int64_t tile)
{
    const tri_attention_run *a = arg;
    const tri_heads *h = &a->h;
    const int64_t key = tile % h->keys, row = tile / h->keys * h->length;
    const int64_t keys_at = (h->queries + key) * h->width, values_at = keys_at + h->keys * h->width;
    const float *sample = (const float *)a->call->input[0] + row * h->stride;
    float *dsample = (float *)a->call->dinput[0] + row * h->stride;
    float *scratch = (float *)a->call->scratch + tri_tile_worker() * a->each;
    tri_attention_pack_places(a, sample + keys_at, h->length, scratch);
    tri_attention_pack_places(a, sample + values_at, h->length, scratch + a->keys);
    tri_attention_pack_elements(a, sample + keys_at, h->length, scratch + a->values);
    memset(scratch + a->sums, 0, (size_t)(2 * a->sums_count) * sizeof(float));
    for (int64_t head = key * h->group; head < (key + 1) * h->group; head++) {
        for (int64_t query = 0; query < h->length; query += TRI_ATTENTION_QUERIES) {
            const int64_t at = ((row + query) * h->queries + head) * h->width;
            const block_arg block = {.q = sample + query * h->stride + head * h->width,
                                     .y = (const float *)a->call->output + at,
                                     .dy = (const float *)a->call->doutput + at,
                                     .saved = (const float *)a->call->saved + (row + query) * h->queries + head,
                                     .dq = dsample + query * h->stride + head * h->width,
                                     .query = query,
                                     .sample = row / h->length,
                                     .head = head,
                                     .next = key + 1 < h->keys,
                                     .rows = tri_int64_min(TRI_ATTENTION_QUERIES, h->length - query)};
            if (head == key * h->group) {
                tri_attention_ahead(h, sample, sizeof *sample, key, query, query + block.rows);
            }
            block_backward(a, &block, scratch);
        }
    }
    sums_store(a, scratch + a->sums, dsample + keys_at);
    sums_store(a, scratch + a->sums + a->sums_count, dsample + values_at);
}

void tri_attention_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    tri_attention_run a;
    if (call->dinput[0] == NULL) {
        return;
    }
    tri_attention_make(&kernel->desc, &a);
    a.kernel = kernel;
    a.call = call;
    a.drop = tri_attention_drop_make(kernel, call);
    tri_tiles_run(kernel->desc.threads, a.h.samples * call->shards * a.h.keys, backward_tile, &a);
}
