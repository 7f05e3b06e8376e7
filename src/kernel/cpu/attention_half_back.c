/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_half_back.c: attention_back.c over values in bf16: weights and the gradients of scores are rounded as they
 * are formed, gradients of queries, keys and values are sums in f32, rounded once.
 */
#include "kernel/cpu/attention_half.h"

#include "kernel/cpu/cpu.h"

#define QUERIES TRI_ATTENTION_HALF_QUERIES
#define KEYS    TRI_ATTENTION_HALF_KEYS

/* One block of queries of one head. */
typedef struct block_arg {
    const uint16_t *q, *dy;
    uint16_t *dq;
    const float *saved;
    int64_t query, rows;
    int64_t sample, head; /* of dropout */
    float mean[QUERIES];
} block_arg;

/* sums[place tile][panel][mr][nr] += over pairs of rows that see the place of s[pair][place] b[pair][element]. */
static void sums_add(const tri_attention_half *a, const float *s, const float *b, const block_arg *v, int64_t first,
                     int64_t count, float *sums)
{
    const tri_gemm_ops *ops = a->ops;
    const int64_t pairs = tri_pairs(v->rows);
    float turned[QUERIES * TRI_GEMM_HALF_MR];
    for (int64_t place = 0; place < count; place += ops->mr) {
        const int64_t begin = tri_int64_max(0, first + place - v->query) / 2;
        const int64_t m = tri_int64_min(ops->mr, count - place);
        const tri_gemm_walk walk = {.count = {1, pairs - begin}, .a_step = {0, KEYS}, .b_step = {0, ops->nr}};
        const float *rows = s + begin * KEYS + place;
        if (ops->turn != NULL) {
            ops->turn(turned, rows, KEYS, pairs - begin, m);
            rows = turned;
        }
        for (int64_t column = 0; column < a->columns; column += ops->nr) {
            ops->outer((int)m, ops->nr, &walk, rows, b + column * pairs + begin * ops->nr,
                       sums + (first + place) * a->columns + column * ops->mr, 0, NULL);
        }
    }
}

/* From register tiles to rows, times a factor. */
static void sums_store(const tri_attention_half *a, const float *sums, float factor, uint16_t *to)
{
    const int64_t mr = a->ops->mr, nr = a->ops->nr;
    for (int64_t place = 0; place < a->h.length; place++) {
        const float *tile = sums + place / mr * mr * a->columns + place % mr * nr;
        for (int64_t column = 0; column < a->h.width; column += nr) {
            a->loops->scale(to + place * a->h.stride + column, tile + column * mr, factor,
                            tri_int64_min(nr, a->h.width - column));
        }
    }
}

/* What was left out has no product with dy. */
static void products_drop(const tri_attention_half *a, const block_arg *b, int64_t row, int64_t first, int64_t valid,
                          float *d, float *keep)
{
    tri_attention_drop_row(&a->drop, b->sample, b->head, b->query + row, first, valid, keep);
    for (int64_t i = 0; i < valid; i++) {
        d[i] *= keep[i];
    }
}

/* And no part in the gradient of values, whose sums are multiplied by the scale at the end. */
static void pairs_drop(uint32_t *pairs, const float *keep, uint32_t half, int64_t valid)
{
    for (int64_t i = 0; i < valid; i++) {
        pairs[i] &= keep[i] > 0 ? UINT32_MAX : ~half;
    }
}

/* Weights and gradients of scores of a block, from its scores and products. */
static void block_weights(const tri_attention_half *a, const block_arg *b, float *scratch, int64_t first, int64_t count)
{
    uint32_t *pairs = (uint32_t *)(void *)(scratch + a->turned);
    float *products = scratch + a->block + TRI_ATTENTION_HALF_BLOCK, keep[2][KEYS];
    for (int64_t r = 0; r < b->rows; r += 2) {
        tri_half_rows rows = {.s = scratch + a->block + r * KEYS,
                              .d = products + r * KEYS,
                              .ds = (uint16_t *)(void *)(scratch + a->weights) + r * KEYS,
                              .p_pairs = pairs + r / 2 * KEYS,
                              .ds_pairs = pairs + TRI_ATTENTION_HALF_BLOCK / 2 + r / 2 * KEYS,
                              .stride = KEYS,
                              .scale = a->scale,
                              .count = count};
        for (int64_t i = 0; i < 2 && r + i < b->rows; i++) {
            rows.log_sum[i] = b->saved[(r + i) * a->h.queries];
            rows.mean[i] = b->mean[r + i];
            rows.valid[i] = tri_int64_max(0, tri_int64_min(count, b->query + r + i + 1 - first));
            if (a->drop.on && rows.valid[i] > 0) {
                products_drop(a, b, r + i, first, rows.valid[i], products + (r + i) * KEYS, keep[i]);
            }
        }
        a->loops->weights_back(&rows);
        for (int i = 0; i < 2 && a->drop.on; i++) {
            pairs_drop(rows.p_pairs, keep[i], i == 0 ? 0xffffu : 0xffff0000u, rows.valid[i]);
        }
    }
}

static void block_backward(const tri_attention_half *a, const block_arg *b, float *scratch)
{
    const int64_t stride = a->h.queries * a->h.width, nr = a->ops->nr, pairs = tri_pairs(b->rows);
    float *s = scratch + a->block, *d = s + TRI_ATTENTION_HALF_BLOCK, *dq = scratch + a->mixed;
    float *p_pairs = scratch + a->turned, *ds_pairs = p_pairs + TRI_ATTENTION_HALF_BLOCK / 2;
    float *q_pairs = scratch + a->rows, *dy_pairs = q_pairs + QUERIES / 2 * a->columns;
    float *dk = scratch + a->sums, *dv = dk + a->sums_count;
    tri_gemm_half_pass((uint32_t *)(void *)q_pairs, b->q, a->h.stride, b->rows, a->h.width, nr, pairs * nr);
    tri_gemm_half_pass((uint32_t *)(void *)dy_pairs, b->dy, stride, b->rows, a->h.width, nr, pairs * nr);
    for (int64_t first = 0; first < b->query + b->rows; first += KEYS) {
        const int64_t count = tri_int64_min(KEYS, b->query + b->rows - first);
        tri_attention_half_scores(a, b->q, a->h.stride, b->query, b->rows, scratch, first, count, s);
        tri_attention_half_scores(a, b->dy, stride, b->query, b->rows, scratch + a->values, first, count, d);
        block_weights(a, b, scratch, first, count);
        tri_attention_half_mix(a, (const uint16_t *)(const void *)(scratch + a->weights), b->query, b->rows,
                               scratch + a->elements, a->h.length, first, count, dq);
        sums_add(a, p_pairs, dy_pairs, b, first, count, dv);
        sums_add(a, ds_pairs, q_pairs, b, first, count, dk);
    }
    for (int64_t r = 0; r < b->rows; r++) {
        a->loops->scale(b->dq + r * a->h.stride, dq + r * a->columns, 1.0f, a->h.width);
    }
}

static void backward_tile(void *arg, int64_t tile)
{
    const tri_attention_half *a = arg;
    const tri_heads *h = &a->h;
    const int64_t key = tile % h->keys, row = tile / h->keys * h->length, stride = h->queries * h->width;
    const int64_t keys_at = (h->queries + key) * h->width, values_at = keys_at + h->keys * h->width;
    const uint16_t *sample = (const uint16_t *)a->call->input[0] + row * h->stride;
    uint16_t *dsample = (uint16_t *)a->call->dinput[0] + row * h->stride;
    float *scratch = (float *)a->call->scratch + tri_tile_worker() * a->each;
    tri_attention_half_pack_places(a, sample + keys_at, h->length, scratch);
    tri_attention_half_pack_places(a, sample + values_at, h->length, scratch + a->values);
    tri_attention_half_pack_elements(a, sample + keys_at, h->length, scratch + a->elements);
    memset(scratch + a->sums, 0, (size_t)(2 * a->sums_count) * sizeof(float));
    tri_gemm_enter(a->ops);
    for (int64_t head = key * h->group; head < (key + 1) * h->group; head++) {
        for (int64_t query = 0; query < h->length; query += QUERIES) {
            const int64_t at = ((row + query) * h->queries + head) * h->width;
            const uint16_t *y = (const uint16_t *)a->call->output + at;
            block_arg block = {.q = sample + query * h->stride + head * h->width,
                               .dy = (const uint16_t *)a->call->doutput + at,
                               .dq = dsample + query * h->stride + head * h->width,
                               .saved = (const float *)a->call->saved + (row + query) * h->queries + head,
                               .query = query,
                               .sample = row / h->length,
                               .head = head,
                               .rows = tri_int64_min(QUERIES, h->length - query)};
            if (head == key * h->group) {
                tri_attention_ahead(h, sample, sizeof *sample, key, query, query + block.rows);
            }
            for (int64_t r = 0; r < block.rows; r++) {
                if (key + 1 < h->keys) { /* the head that comes after */
                    tri_ahead(block.dy + r * stride + h->group * h->width, (size_t)h->width * sizeof *y);
                    tri_ahead(y + r * stride + h->group * h->width, (size_t)h->width * sizeof *y);
                }
                block.mean[r] = a->loops->product(block.dy + r * stride, y + r * stride, h->width);
            }
            block_backward(a, &block, scratch);
        }
    }
    tri_gemm_leave(a->ops);
    sums_store(a, scratch + a->sums, 1.0f, dsample + keys_at);
    sums_store(a, scratch + a->sums + a->sums_count, a->drop.on ? a->drop.rule.scale : 1.0f, dsample + values_at);
}

void tri_attention_half_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    tri_attention_half a;
    if (call->dinput[0] == NULL) {
        return;
    }
    tri_attention_half_make(&kernel->desc, &a);
    a.call = call;
    a.drop = tri_attention_drop_make(kernel, call);
    tri_tiles_run(kernel->desc.threads, a.h.samples * call->shards * a.h.keys, backward_tile, &a);
}
