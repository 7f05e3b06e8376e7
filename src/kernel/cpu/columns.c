/* SPDX-License-Identifier: Apache-2.0
 *
 * columns.c: one pass over a gradient: cut it where the fused relu did, and sum its columns (the bias gradient).
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/half_loops.h"
#include "tensor/loops.h"

#define COLUMNS       32   /* at once: sums in registers */
#define HALF_COLUMNS  384  /* of bf16, at least: sums in L1 */
#define AHEAD         8    /* rows that are asked for ahead */
#define TILE_ELEMENTS 2048 /* of a shard, about: a smaller tile costs more than it computes */

typedef struct columns_arg {
    float *dy;
    const float *y;
    uint16_t *half; /* dy in bf16, and y with it; NULL: f32 */
    const uint16_t *half_y;
    float *leaves;
    int64_t rows, columns;
    int64_t width; /* columns of a tile */
    int shards;
} columns_arg;

/* The compiler unrolls over the columns of a full tile. */
TRI_CLONES static void sum_tile(float *dy, const float *y, float *sums, int64_t rows, int64_t stride)
{
    float sum[COLUMNS] = {0};
    for (int64_t r = 0; r < rows; r++) {
        float *g = dy + r * stride;
        tri_ahead(dy + tri_int64_min(r + AHEAD, rows - 1) * stride, COLUMNS * sizeof(float));
        if (y != NULL) {
            const float *o = y + r * stride;
            for (int c = 0; c < COLUMNS; c++) {
                g[c] = o[c] > 0 ? g[c] : 0.0f;
            }
        }
        for (int c = 0; c < COLUMNS; c++) {
            sum[c] += g[c];
        }
    }
    if (sums != NULL) {
        memcpy(sums, sum, sizeof sum);
    }
}

static void sum_rest(float *dy, const float *y, float *sums, int64_t rows, int64_t stride, int64_t count)
{
    float sum[COLUMNS] = {0};
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < count; c++) {
            const int64_t at = r * stride + c;
            if (y != NULL && !(y[at] > 0)) {
                dy[at] = 0;
            }
            sum[c] += dy[at];
        }
    }
    if (sums != NULL) {
        memcpy(sums, sum, (size_t)count * sizeof(float));
    }
}

/* Above zero: not negative, not zero, no NaN. */
static inline bool half_is_positive(uint16_t y)
{
    return y != 0 && y <= 0x7f80;
}

TRI_CLONES static void half_mask(uint16_t *dy, const uint16_t *y, int64_t count)
{
    TRI_APART
    for (int64_t c = 0; c < count; c++) {
        dy[c] = half_is_positive(y[c]) ? dy[c] : 0;
    }
}

/* The same in bf16, sums in f32: a row of the tile is in one stretch. */
static void half_tile(uint16_t *dy, const uint16_t *y, float *sums, int64_t rows, int64_t stride, int64_t count)
{
    const tri_half_loops *loops = tri_half_loops_find();
    if (sums != NULL) {
        memset(sums, 0, (size_t)count * sizeof(float));
    }
    for (int64_t r = 0; r < rows; r++) {
        if (y != NULL) {
            half_mask(dy + r * stride, y + r * stride, count);
        }
        if (sums != NULL) {
            if (r + AHEAD < rows) {
                tri_ahead(dy + (r + AHEAD) * stride, (size_t)count * sizeof *dy);
            }
            loops->add(sums, dy + r * stride, count);
        }
    }
}

static void columns_run(const columns_arg *v, int64_t shard, int64_t first, int64_t count)
{
    const int64_t at = shard * v->rows * v->columns + first;
    const float *y = v->y != NULL ? v->y + at : NULL;
    float *sums = v->leaves != NULL ? v->leaves + shard * v->columns + first : NULL;
    if (v->half != NULL) {
        const uint16_t *half_y = v->half_y != NULL ? v->half_y + at : NULL;
        half_tile(v->half + at, half_y, sums, v->rows, v->columns, count);
        return;
    }
    if (count == COLUMNS) {
        sum_tile(v->dy + at, y, sums, v->rows, v->columns);
    } else {
        sum_rest(v->dy + at, y, sums, v->rows, v->columns, count);
    }
}

/* Columns before shards: as products share out units (tri_tiles_run), so that each thread meets what it wrote. */
static void columns_tile(void *arg, int64_t tile)
{
    const columns_arg *v = arg;
    const int64_t first = tile / v->shards * v->width, last = tri_int64_min(first + v->width, v->columns);
    const int64_t step = v->half != NULL ? v->width : COLUMNS;
    for (int64_t column = first; column < last; column += step) {
        columns_run(v, tile % v->shards, column, tri_int64_min(step, last - column));
    }
}

void tri_cpu_mask_shard(float *dy, const float *y, float *sums, int64_t rows, int64_t columns)
{
    const columns_arg arg = {.dy = dy, .y = y, .leaves = sums, .rows = rows, .columns = columns};
    for (int64_t column = 0; (y != NULL || sums != NULL) && column < columns; column += COLUMNS) {
        columns_run(&arg, 0, column, tri_int64_min(COLUMNS, columns - column));
    }
}

void tri_cpu_columns_ready(void *columns, int64_t first, int64_t last)
{
    const tri_cpu_columns *v = columns;
    const columns_arg arg = {.dy = v->dy, .y = v->y, .leaves = v->leaves, .rows = v->rows, .columns = v->columns};
    for (int64_t shard = 0; (v->y != NULL || v->leaves != NULL) && shard < v->shards; shard++) {
        for (int64_t column = first; column < last; column += COLUMNS) {
            columns_run(&arg, shard, column, tri_int64_min(COLUMNS, last - column));
        }
    }
}

void tri_cpu_mask_columns(const tri_kernel *kernel, const tri_op_call *call, int64_t rows, int64_t columns, bool relu,
                          float *leaves)
{
    if (!relu && leaves == NULL) {
        return;
    }
    columns_arg arg = {.dy = (float *)call->doutput,
                       .y = relu ? call->output : NULL,
                       .leaves = leaves,
                       .rows = rows,
                       .columns = columns,
                       .width = tri_int64_ceil(tri_int64_max(1, TILE_ELEMENTS / rows), COLUMNS) * COLUMNS,
                       .shards = call->shards};
    if (kernel->desc.output_dtype == TRI_BF16) {
        arg.width = tri_int64_max(arg.width, HALF_COLUMNS);
        arg.half = (uint16_t *)call->doutput;
        arg.half_y = relu ? call->output : NULL;
        arg.y = NULL;
    }
    tri_tiles_run(kernel->desc.threads, call->shards * tri_int64_ceil(columns, arg.width), columns_tile, &arg);
}
