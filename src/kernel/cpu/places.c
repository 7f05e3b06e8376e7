/* SPDX-License-Identifier: Apache-2.0
 *
 * places.c: the rows of kind "tokens" that know at which place of its sequence a token is.
 *
 * Keys and values are kept as attention.c packs them, head by head: a new place is a column of a panel of keys and a
 * row of panels of values. The blocks of training run over what is kept: a query meets its keys in the same blocks and
 * order however many rows come together.
 */
#include "kernel/cpu/attention.h"
#include "kernel/cpu/cpu.h"

#define TASK_QUERIES INT64_C(128) /* of a task: whole blocks */
#define TILE_ROWS    INT64_C(32)  /* of a tile that keeps or turns */

typedef struct places_arg {
    tri_attention_run run;
    const tri_kernel *kernel;
    const tri_op_call *call;
    int64_t step; /* rows of a tile */
    const float *x;
    float *y;
} places_arg;

/* Some rows of one span. */
typedef struct places_tile {
    const tri_place_span *span;
    int64_t first, count; /* rows of the span */
} places_tile;

static int64_t tile_count(const places_arg *v)
{
    int64_t count = 0;
    for (int s = 0; s < v->call->span_count; s++) {
        count += tri_int64_ceil(v->call->spans[s].count, v->step);
    }
    return count;
}

static places_tile tile_find(const places_arg *v, int64_t tile)
{
    const tri_place_span *span = v->call->spans;
    for (int64_t tiles; tile >= (tiles = tri_int64_ceil(span->count, v->step)); span++) {
        tile -= tiles;
    }
    const int64_t first = tile * v->step;
    return (places_tile){span, first, tri_int64_min(v->step, span->count - first)};
}

/* What the op keeps of the span's sequence. */
static float *kept_of(const places_arg *v, const tri_place_span *span)
{
    return v->call->kept + span->sequence * v->call->kept_each + v->call->kept_first;
}

/* --- keeping --- */

static void keep_tile(void *arg, int64_t number)
{
    const places_arg *v = arg;
    const tri_attention_run *run = &v->run;
    const tri_heads *h = &run->h;
    const places_tile tile = tile_find(v, number);
    const int64_t nr = run->ops->nr;
    for (int64_t r = tile.first; r < tile.first + tile.count; r++) {
        const int64_t place = tile.span->place + r;
        for (int64_t head = 0; head < h->keys; head++) {
            const float *key = v->x + (tile.span->row + r) * h->stride + (h->queries + head) * h->width;
            const float *value = key + h->keys * h->width;
            float *kept = kept_of(v, tile.span) + head * run->values;
            float *column = kept + place / nr * nr * h->width + place % nr;
            for (int64_t c = 0; c < h->width; c++) {
                column[c * nr] = key[c];
            }
            for (int64_t c = 0; c < h->width; c += nr) {
                memcpy(kept + run->keys + c * h->length + place * nr, value + c,
                       (size_t)tri_int64_min(nr, h->width - c) * sizeof(float));
            }
        }
    }
}

/* --- attention --- */

static void attend_tile(void *arg, int64_t number)
{
    const places_arg *v = arg;
    const tri_attention_run *run = &v->run;
    const tri_heads *h = &run->h;
    const places_tile tile = tile_find(v, number / h->keys);
    const int64_t key = number % h->keys;
    const float *kept = kept_of(v, tile.span) + key * run->values;
    float *scores =
        (float *)v->call->scratch + tri_tile_worker() * INT64_C(1) * TRI_ATTENTION_QUERIES * TRI_ATTENTION_KEYS;
    for (int64_t head = key * h->group; head < (key + 1) * h->group; head++) {
        for (int64_t r = tile.first; r < tile.first + tile.count; r += TRI_ATTENTION_QUERIES) {
            const int64_t row = tile.span->row + r;
            tri_attention_block(run, &(tri_attention_queries){
                                         .q = v->x + row * h->stride + head * h->width,
                                         .first = tile.span->place + r,
                                         .count = tri_int64_min(TRI_ATTENTION_QUERIES, tile.first + tile.count - r),
                                         .keys = kept,
                                         .values = kept + run->keys,
                                         .places = h->length,
                                         .scores = scores,
                                         .y = v->y + (row * h->queries + head) * h->width,
                                     });
        }
    }
}

/* The kernel is one of a sample as long as a sequence may become. */
static tri_status attention_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    tri_attention_run run;
    kernel->desc.input[0].dim[1] = desc->places;
    tri_attention_make(&kernel->desc, &run);
    kernel->kept_count = run.values * run.h.keys;
    kernel->scratch_nbytes = (size_t)(TRI_ATTENTION_QUERIES * TRI_ATTENTION_KEYS * desc->threads) * sizeof(float);
    return TRI_OK;
}

static void attention_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    places_arg arg = {.kernel = kernel, .call = call, .step = TILE_ROWS, .x = call->input[0], .y = call->output};
    const int threads = kernel->desc.threads;
    tri_attention_make(&kernel->desc, &arg.run);
    tri_tiles_run(call->shards > TILE_ROWS ? threads : 1, tile_count(&arg), keep_tile, &arg);
    arg.step = TASK_QUERIES;
    tri_tiles_run(threads, tile_count(&arg) * arg.run.h.keys, attend_tile, &arg);
}

const tri_kernel_ops tri_token_attention = {
    .op = TRI_OP_ATTENTION,
    .name = "tokens",
    .plan = attention_plan,
    .forward = attention_forward,
};

/* --- rope --- */

static void turn_tile(void *arg, int64_t number)
{
    const places_arg *v = arg;
    const tri_heads h = tri_heads_make(&v->kernel->desc);
    const places_tile tile = tile_find(v, number);
    for (int64_t r = tile.first; r < tile.first + tile.count; r++) {
        const int64_t at = (tile.span->row + r) * h.stride;
        tri_rope_row(&h, v->kernel->state, tile.span->place + r, v->x + at, v->y + at, 1.0f);
    }
}

static tri_status rope_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->desc.input[0].dim[1] = desc->places;
    return tri_rope_plan(&kernel->desc, kernel);
}

static void rope_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    places_arg arg = {.kernel = kernel, .call = call, .step = TILE_ROWS, .x = call->input[0], .y = call->output};
    tri_tiles_run(tile_count(&arg) > 2 ? kernel->desc.threads : 1, tile_count(&arg), turn_tile, &arg);
}

const tri_kernel_ops tri_token_rope = {
    .op = TRI_OP_ROPE,
    .name = "tokens",
    .plan = rope_plan,
    .forward = rope_forward,
    .release = tri_rope_release,
    .output_may_alias = true,
};

/* --- positions --- */

static void positions_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output);
    const float *x = call->input[0], *table = call->param[0];
    float *y = call->output;
    for (int s = 0; s < call->span_count; s++) {
        const tri_place_span *span = &call->spans[s];
        tri_vector_add(1, y + span->row * width, x + span->row * width, table + span->place * width,
                       span->count * width);
    }
}

const tri_kernel_ops tri_token_positions = {
    .op = TRI_OP_POSITIONS,
    .name = "tokens",
    .forward = positions_forward,
    .output_may_alias = true,
};
