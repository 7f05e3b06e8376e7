/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_half.c: attention.c over values in bf16: products by the tiles over pairs, sums and softmax in f32.
 *
 * Tasks, blocks and the running maximum are those of attention.c. Rows of queries are read where they are; weights are
 * rounded to bf16 as they are formed, before the division by their sum, and results once. A head has an even width: for
 * odd ones the adapter of half.c runs the row for f32.
 */
#include "kernel/cpu/attention_half.h"

#include <math.h>

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"

#define TASK_QUERIES INT64_C(512) /* of a task; they share packed keys and values */
#define KEYS         TRI_ATTENTION_HALF_KEYS

void tri_attention_half_make(const tri_op_desc *desc, tri_attention_half *a)
{
    const tri_gemm_ops *ops = tri_gemm_half_find();
    const tri_heads h = tri_heads_make(desc);
    *a = (tri_attention_half){.ops = ops,
                              .loops = tri_half_loops_find(),
                              .h = h,
                              .scale = 1.0f / sqrtf((float)h.width),
                              .pairs = h.width / 2};
    a->columns = tri_int64_ceil(h.width, ops->nr) * ops->nr;
    const int64_t by_place = tri_align_count(tri_gemm_packed_count(ops, a->pairs, h.length));
    const int64_t by_element = tri_align_count(tri_gemm_packed_count(ops, tri_pairs(h.length), h.width));
    const int64_t block = TRI_ATTENTION_HALF_BLOCK, results = TRI_ATTENTION_HALF_QUERIES * a->columns;
    a->values = by_place;
    a->elements = a->values + tri_int64_max(by_place, by_element);
    a->block = a->elements + by_element;
    a->weights = a->block + 2 * block;
    a->turned = a->weights + block / 2;
    a->rows = a->turned + block;
    a->mixed = a->rows + tri_align_count(results);
    a->sums = a->mixed + tri_align_count(results);
    a->sums_count = tri_align_count(tri_int64_ceil(h.length, ops->mr) * ops->mr * a->columns);
    a->each = a->sums + 2 * a->sums_count;
}

void tri_attention_half_pack_places(const tri_attention_half *a, const uint16_t *from, int64_t count, float *packed)
{
    for (int64_t panel = 0; panel * a->ops->nr < count; panel++) {
        tri_gemm_pack(a->ops, packed, (const float *)(const void *)from, a->pairs, count, 1, a->h.stride / 2, panel);
    }
}

void tri_attention_half_pack_elements(const tri_attention_half *a, const uint16_t *from, int64_t count, float *packed)
{
    tri_gemm_half_pass((uint32_t *)(void *)packed, from, a->h.stride, count, a->h.width, a->ops->nr,
                       tri_pairs(count) * a->ops->nr);
}

/* c[m][nr] (+)= a panel times m rows of `from`. */
static void tile_dot(const tri_attention_half *a, const uint16_t *from, int64_t stride, int64_t m, int64_t pairs,
                     const float *panel, float *c, int64_t c_stride, bool add)
{
    const float *row[TRI_GEMM_HALF_MR];
    float *to[TRI_GEMM_HALF_MR];
    for (int64_t i = 0; i < m; i++) {
        row[i] = (const float *)(const void *)(from + i * stride);
        to[i] = c + i * c_stride;
    }
    a->ops->dot((int)m, a->ops->nr, 1, pairs, row, panel, to, NULL, add ? 0u : TRI_GEMM_FIRST);
}

void tri_attention_half_scores(const tri_attention_half *a, const uint16_t *from, int64_t stride, int64_t query,
                               int64_t rows, const float *packed, int64_t first, int64_t count, float *s)
{
    for (int64_t r = 0, m; r < rows; r += m) {
        m = tri_int64_min(a->ops->mr, rows - r);
        const int64_t seen = tri_int64_min(count, query + r + m - first);
        for (int64_t place = 0; place < seen; place += a->ops->nr) {
            tile_dot(a, from + r * stride, stride, m, a->pairs, packed + (first + place) * a->pairs,
                     s + r * KEYS + place, KEYS, false);
        }
    }
}

void tri_attention_half_mix(const tri_attention_half *a, const uint16_t *w, int64_t query, int64_t rows,
                            const float *packed, int64_t all, int64_t first, int64_t count, float *to)
{
    const int64_t nr = a->ops->nr;
    for (int64_t column = 0; column < a->columns; column += nr) {
        const float *panel = packed + column * tri_pairs(all) + first / 2 * nr;
        for (int64_t r = 0, m; r < rows; r += m) {
            m = tri_int64_min(a->ops->mr, rows - r);
            const int64_t seen = tri_int64_min(count, query + r + m - first);
            if (seen > 0) {
                tile_dot(a, w + r * KEYS, KEYS, m, tri_pairs(seen), panel, to + r * a->columns + column, a->columns,
                         first > 0);
            }
        }
    }
}

/* Softmax of the rows of a block as far as it goes; results, where earlier keys are in, follow the new maximum. */
static void block_softmax(const tri_attention_half *a, const float *s, int64_t query, int64_t rows, int64_t first,
                          int64_t count, float *top, float *sum, float *mixed, uint16_t *w)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *row = s + r * KEYS;
        const int64_t valid = tri_int64_min(count, query + r + 1 - first);
        if (valid <= 0) {
            memset(w + r * KEYS, 0, KEYS * sizeof *w);
            continue;
        }
        const float best = a->loops->top(row, valid) * a->scale;
        if (first > 0 && best > top[r]) {
            const float factor = tri_exp(top[r] - best);
            tri_row_scale(mixed + r * a->columns, factor, a->columns);
            sum[r] *= factor;
        }
        top[r] = first > 0 && top[r] > best ? top[r] : best;
        const float more = a->loops->weights(w + r * KEYS, row, a->scale, top[r], valid, count);
        sum[r] = (first > 0 ? sum[r] : 0) + more;
    }
}

/* One block of queries of one head, whose keys and values are packed. */
typedef struct block_arg {
    const uint16_t *q;
    uint16_t *y;
    float *saved;
    int64_t query, rows, all; /* all: keys */
    int64_t sample, head;     /* of dropout */
} block_arg;

/* Weights that are in the sums, but not in what is mixed. */
static void block_drop(const tri_attention_half *a, const block_arg *b, int64_t first, int64_t count, uint16_t *w)
{
    float keep[KEYS];
    for (int64_t r = 0; r < b->rows; r++, w += KEYS) {
        const int64_t valid = tri_int64_max(0, tri_int64_min(count, b->query + r + 1 - first));
        if (valid > 0) {
            tri_attention_drop_row(&a->drop, b->sample, b->head, b->query + r, first, valid, keep);
        }
        for (int64_t i = 0; i < valid; i++) {
            w[i] = keep[i] > 0 ? w[i] : 0;
        }
    }
}

static void block_forward(const tri_attention_half *a, const block_arg *b, float *scratch)
{
    const int64_t query = b->query, rows = b->rows;
    const float kept = a->drop.on ? a->drop.rule.scale : 1.0f;
    float top[TRI_ATTENTION_HALF_QUERIES], sum[TRI_ATTENTION_HALF_QUERIES];
    float *s = scratch + a->block, *mixed = scratch + a->mixed;
    uint16_t *w = (uint16_t *)(void *)(scratch + a->weights);
    for (int64_t first = 0; first < query + rows; first += KEYS) {
        const int64_t count = tri_int64_min(KEYS, query + rows - first);
        tri_attention_half_scores(a, b->q, a->h.stride, query, rows, scratch, first, count, s);
        block_softmax(a, s, query, rows, first, count, top, sum, mixed, w);
        if (a->drop.on) {
            block_drop(a, b, first, count, w);
        }
        tri_attention_half_mix(a, w, query, rows, scratch + a->values, b->all, first, count, mixed);
    }
    for (int64_t r = 0; r < rows; r++) {
        a->loops->scale(b->y + r * a->h.queries * a->h.width, mixed + r * a->columns, kept / sum[r], a->h.width);
        b->saved[r * a->h.queries] = top[r] + logf(sum[r]);
    }
}

static void forward_tile(void *arg, int64_t tile)
{
    const tri_attention_half *a = arg;
    const tri_heads *h = &a->h;
    const int64_t tasks = tri_int64_ceil(h->length, TASK_QUERIES), first = tile % tasks * TASK_QUERIES;
    const int64_t key = tile / tasks % h->keys, row = tile / tasks / h->keys * h->length;
    const int64_t last = tri_int64_min(first + TASK_QUERIES, h->length);
    const uint16_t *sample = (const uint16_t *)a->call->input[0] + row * h->stride;
    const uint16_t *k = sample + (h->queries + key) * h->width;
    float *scratch = (float *)a->call->scratch + tri_tile_worker() * a->each;
    tri_attention_half_pack_places(a, k, last, scratch);
    tri_attention_half_pack_elements(a, k + h->keys * h->width, last, scratch + a->values);
    tri_gemm_enter(a->ops);
    for (int64_t head = key * h->group; head < (key + 1) * h->group; head++) {
        for (int64_t query = first; query < last; query += TRI_ATTENTION_HALF_QUERIES) {
            const int64_t rows = tri_int64_min(TRI_ATTENTION_HALF_QUERIES, last - query);
            const int64_t at = (row + query) * h->queries + head;
            if (head == key * h->group) {
                tri_attention_ahead(h, sample, sizeof *sample, key, query, query + rows);
            }
            block_forward(a,
                          &(block_arg){.q = sample + query * h->stride + head * h->width,
                                       .y = (uint16_t *)a->call->output + at * h->width,
                                       .saved = (float *)a->call->saved + at,
                                       .query = query,
                                       .rows = rows,
                                       .all = last,
                                       .sample = row / h->length,
                                       .head = head},
                          scratch);
        }
    }
    tri_gemm_leave(a->ops);
}

static bool attention_can(const tri_op_desc *desc)
{
    return desc->input_dtype[0] == TRI_BF16 && desc->output_dtype == TRI_BF16 && tri_heads_make(desc).width % 2 == 0;
}

static tri_status attention_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    tri_attention_half a;
    tri_attention_half_make(desc, &a);
    kernel->saved_nbytes = (size_t)(a.h.samples * a.h.length * a.h.queries) * sizeof(float);
    kernel->scratch_nbytes = (size_t)(a.each * desc->threads) * sizeof(float);
    return TRI_OK;
}

static void attention_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    tri_attention_half a;
    tri_attention_half_make(&kernel->desc, &a);
    a.call = call;
    a.drop = tri_attention_drop_make(kernel, call);
    const int64_t tasks = tri_int64_ceil(a.h.length, TASK_QUERIES);
    tri_tiles_run(kernel->desc.threads, a.h.samples * call->shards * a.h.keys * tasks, forward_tile, &a);
}

const tri_kernel_ops tri_cpu_attention_half = {
    .op = TRI_OP_ATTENTION,
    .name = "tiles",
    .can = attention_can,
    .plan = attention_plan,
    .forward = attention_forward,
    .backward = tri_attention_half_backward,
    .backward_input = true,
    .backward_output = true,
    .half = true,
};
