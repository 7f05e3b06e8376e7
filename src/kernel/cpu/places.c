/* SPDX-License-Identifier: Apache-2.0
 *
 * places.c: keys and values are kept as attention.c packs them, head by head: a new place is a column of a panel of
 * keys and a row of panels of values. The blocks of training run over what is kept.
 */
#include "kernel/places.h"

#include "kernel/cpu/attention.h"
#include "kernel/cpu/cpu.h"

#define TASK_QUERIES INT64_C(128) /* of a task: whole blocks */
#define TILE_ROWS    INT64_C(32)  /* of a tile that keeps or turns */

typedef struct places_arg {
    tri_attention_run run;
    const tri_kernel *kernel; /* rope */
    const tri_place_span *spans;
    int span_count;
    int64_t step; /* rows of a tile */
    const float *x;
    float *y, *scratch;
} places_arg;

int64_t tri_places_kept_count(const tri_op_desc *desc)
{
    tri_attention_run run;
    tri_attention_make(desc, &run);
    return run.values * run.h.keys;
}

int64_t tri_places_scratch_count(const tri_op_desc *desc)
{
    return INT64_C(1) * TRI_ATTENTION_QUERIES * TRI_ATTENTION_KEYS * desc->threads;
}

/* Some rows of one span. */
typedef struct places_tile {
    const tri_place_span *span;
    int64_t first, count; /* rows of the span */
} places_tile;

static int64_t tile_count(const places_arg *v)
{
    int64_t count = 0;
    for (int s = 0; s < v->span_count; s++) {
        count += tri_int64_ceil(v->spans[s].count, v->step);
    }
    return count;
}

static places_tile tile_find(const places_arg *v, int64_t tile)
{
    const tri_place_span *span = v->spans;
    for (int64_t tiles; tile >= (tiles = tri_int64_ceil(span->count, v->step)); span++) {
        tile -= tiles;
    }
    const int64_t first = tile * v->step;
    return (places_tile){span, first, tri_int64_min(v->step, span->count - first)};
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
            float *kept = tile.span->kept + head * run->values;
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
    const float *kept = tile.span->kept + key * run->values;
    float *scores = v->scratch + tri_tile_worker() * INT64_C(1) * TRI_ATTENTION_QUERIES * TRI_ATTENTION_KEYS;
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

void tri_places_attention(const tri_op_desc *desc, const tri_place_span *spans, int span_count, const float *x,
                          float *y, float *scratch)
{
    places_arg arg = {.spans = spans, .span_count = span_count, .step = TILE_ROWS, .x = x, .y = y, .scratch = scratch};
    int64_t rows = 0;
    tri_attention_make(desc, &arg.run);
    for (int s = 0; s < span_count; s++) {
        rows += spans[s].count;
    }
    tri_tiles_run(rows > TILE_ROWS ? desc->threads : 1, tile_count(&arg), keep_tile, &arg);
    arg.step = TASK_QUERIES;
    tri_tiles_run(desc->threads, tile_count(&arg) * arg.run.h.keys, attend_tile, &arg);
}

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

void tri_places_rope(const tri_kernel *kernel, const tri_place_span *spans, int span_count, const float *x, float *y)
{
    places_arg arg = {.kernel = kernel, .spans = spans, .span_count = span_count, .step = TILE_ROWS, .x = x, .y = y};
    tri_tiles_run(tile_count(&arg) > 2 ? kernel->desc.threads : 1, tile_count(&arg), turn_tile, &arg);
}
