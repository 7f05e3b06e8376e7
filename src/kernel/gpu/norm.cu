/* SPDX-License-Identifier: Apache-2.0
 *
 * norm.cu: sums of columns in two stages, batch norm, layer norm, RMS norm, softmax.
 *
 * A sum over rows is cut into chunks of TRI_GPU_CHUNK rows of one shard; inside a chunk each of 8 warps has every 8th
 * row, then a tree over the warps; then each of 32 threads has every 32nd chunk, and there is a tree over them. A row
 * of layer norm or RMS norm is a warp's: a lane has every 32nd element.
 */
#include "kernel/gpu/lanes.h"
#include "kernel/gpu/math.h"

#define COLUMNS_WARPS (TRI_GPU_THREADS / 32)
#define COLUMNS_ROWS  4 /* of a warp, which are read together */

typedef struct column_sums {
    float sum[2][COLUMNS_WARPS][TRI_GPU_COLUMNS];
} column_sums;

/* Rows of a shard that count; valid[] is of the modes of batch norm alone: others may have more shards than that. */
GPU_FN int64_t columns_valid(const int64_t *valid, int mode, int shard)
{
    const int64_t rows = valid[mode >= TRI_GPU_MEAN_SUMS ? shard : 0];
    return mode >= TRI_GPU_MEAN_SUMS ? rows : INT64_MAX;
}

/* What a thread has: TRI_GPU_EACH neighbouring columns; mean and root: those of a batch. */
typedef struct columns_state {
    float first[TRI_GPU_EACH], second[TRI_GPU_EACH], mean[TRI_GPU_EACH], root[TRI_GPU_EACH];
} columns_state;

/* Adds the two terms of one element. */
GPU_FN void columns_element(const tri_gpu_columns_args *a, columns_state *s, int64_t r, int64_t c, const int k)
{
    const int64_t i = r * a->width + c + k;
    float g, x;
    if (a->mode >= TRI_GPU_MEAN_SUMS && a->mode <= TRI_GPU_SPREAD_SUMS) {
        x = gpu_load(a->x, i);
        s->first[k] += a->mode == TRI_GPU_MEAN_SUMS ? x : (x - s->mean[k]) * (x - s->mean[k]);
        return;
    }
    g = a->mask.data != 0 && !(gpu_load(a->mask, i) > 0.0f) ? 0.0f : gpu_load(a->g, i);
    if (a->mode == TRI_GPU_SUM) {
        s->first[k] += g;
        return;
    }
    x = gpu_load(a->x, i);
    s->first[k] += g * (a->mode == TRI_GPU_BATCH_SUMS ? (x - s->mean[k]) * s->root[k]
                                                      : (x - a->rows_stats[2 * r]) * a->rows_stats[2 * r + 1]);
    s->second[k] += g;
}

/* Values of COLUMNS_ROWS rows. */
typedef struct columns_values {
    float v[COLUMNS_ROWS][TRI_GPU_EACH];
} columns_values;

GPU_FN void columns_widen(columns_values *x, const uint64_t raw[COLUMNS_ROWS], const int type)
{
    GPU_UNROLL
    for (int r = 0; r < COLUMNS_ROWS; r++) {
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            x->v[r][k] = gpu_from_half((uint16_t)(raw[r] >> 16 * k), type);
        }
    }
}

/* Elements from i on, on multiples of TRI_GPU_EACH; step: from a row to the next. All loads come before the first
 * conversion. */
GPU_FN void columns_load(columns_values *x, tri_gpu_value v, int64_t i, int64_t step)
{
    uint64_t raw[COLUMNS_ROWS];
    if (v.type == TRI_GPU_F32) {
        GPU_UNROLL
        for (int r = 0; r < COLUMNS_ROWS; r++) {
            const gpu_quad quad = gpu_load_quad(v, i + r * step);
            GPU_UNROLL
            for (int k = 0; k < TRI_GPU_EACH; k++) {
                x->v[r][k] = gpu_float(quad.word[k]);
            }
        }
        return;
    }
    GPU_UNROLL
    for (int r = 0; r < COLUMNS_ROWS; r++) {
        raw[r] = *(const gpu_four *)((const uint16_t *)v.data + i + r * step);
    }
    if (v.type == TRI_GPU_BF16) {
        columns_widen(x, raw, TRI_GPU_BF16);
    } else {
        columns_widen(x, raw, TRI_GPU_F16);
    }
}

GPU_FN void columns_add(float sum[TRI_GPU_EACH], const columns_values *x)
{
    GPU_UNROLL
    for (int r = 0; r < COLUMNS_ROWS; r++) {
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            sum[k] += x->v[r][k];
        }
    }
}

/* g, zero where the mask is not above 0. */
GPU_FN void columns_gradient(columns_values *g, const tri_gpu_columns_args *a, int64_t i, int64_t step)
{
    columns_values mask;
    columns_load(g, a->g, i, step);
    if (a->mask.data == 0) {
        return;
    }
    columns_load(&mask, a->mask, i, step);
    GPU_UNROLL
    for (int r = 0; r < COLUMNS_ROWS; r++) {
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            g->v[r][k] = mask.v[r][k] > 0.0f ? g->v[r][k] : 0.0f;
        }
    }
}

/* Squares of x - mean. */
GPU_FN void columns_squares(columns_values *x, const columns_state *s)
{
    GPU_UNROLL
    for (int r = 0; r < COLUMNS_ROWS; r++) {
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            const float e = x->v[r][k] - s->mean[k];
            x->v[r][k] = e * e;
        }
    }
}

/* g (x - mean) root, of row r's own statistics or of the batch's. */
GPU_FN void columns_normal(columns_values *x, const columns_values *g, const columns_state *s, const float *rows_stats,
                           int64_t r0, const int batch)
{
    GPU_UNROLL
    for (int r = 0; r < COLUMNS_ROWS; r++) {
        const int64_t stats = 2 * (r0 + r * COLUMNS_WARPS);
        const float mean = batch ? 0.0f : rows_stats[stats], root = batch ? 0.0f : rows_stats[stats + 1];
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            const float h = (x->v[r][k] - (batch ? s->mean[k] : mean)) * (batch ? s->root[k] : root);
            x->v[r][k] = g->v[r][k] * h;
        }
    }
}

/* The same as columns_element() of COLUMNS_ROWS rows, COLUMNS_WARPS apart, from row r of all shards on. */
GPU_FN void columns_rows(const tri_gpu_columns_args *a, columns_state *s, int64_t r, int64_t c)
{
    const int64_t i = r * a->width + c, step = COLUMNS_WARPS * a->width;
    columns_values g, x;
    if (a->mode >= TRI_GPU_MEAN_SUMS && a->mode <= TRI_GPU_SPREAD_SUMS) {
        columns_load(&x, a->x, i, step);
        if (a->mode != TRI_GPU_MEAN_SUMS) {
            columns_squares(&x, s);
        }
        columns_add(s->first, &x);
        return;
    }
    columns_gradient(&g, a, i, step);
    if (a->mode == TRI_GPU_SUM) {
        columns_add(s->first, &g);
        return;
    }
    columns_load(&x, a->x, i, step);
    if (a->mode == TRI_GPU_BATCH_SUMS) {
        columns_normal(&x, &g, s, 0, r, 1);
    } else {
        columns_normal(&x, &g, s, a->rows_stats, r, 0);
    }
    columns_add(s->first, &x);
    columns_add(s->second, &g);
}

/* Whether TRI_GPU_EACH columns from a multiple of that on are one access in each row. */
GPU_FN int columns_fit(tri_gpu_value v, int64_t width)
{
    return width % TRI_GPU_EACH == 0 && (uintptr_t)v.data % (v.type == TRI_GPU_F32 ? 16 : 8) == 0;
}

/* Rows [row, end) of a shard, COLUMNS_WARPS apart. */
GPU_FN void columns_sums(const tri_gpu_columns_args *a, columns_state *s, int shard, int64_t row, int64_t end,
                         int64_t c)
{
    const int fits = columns_fit(a->g, a->width) && columns_fit(a->x, a->width) && columns_fit(a->mask, a->width);
    const int64_t first = shard * a->rows;
    GPU_ROLLED
    for (; fits && row + COLUMNS_WARPS * (COLUMNS_ROWS - 1) < end; row += COLUMNS_WARPS * COLUMNS_ROWS) {
        columns_rows(a, s, first + row, c);
    }
    GPU_ROLLED
    for (; row < end; row += COLUMNS_WARPS) {
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            if (c + k < a->width) {
                columns_element(a, s, first + row, c, k);
            }
        }
    }
}

GPU_FN columns_state columns_begin(const tri_gpu_columns_args *a, int shard, int64_t c)
{
    columns_state s;
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const float *const batch = a->batch_stats + 3 * a->width * shard + c + k;
        const int has = c + k < a->width && a->mode > TRI_GPU_MEAN_SUMS;
        s.first[k] = s.second[k] = 0;
        s.mean[k] = has ? batch[0] : 0.0f;
        s.root[k] = has && a->mode == TRI_GPU_BATCH_SUMS ? batch[a->width] : 0.0f;
    }
    return s;
}

GPU_KERNEL(columns)
{
    GPU_SHARED(column_sums, shared);
    const int lane = gpu_tx() % 32, warp = gpu_tx() / 32, shard = gpu_bz();
    const int64_t c = (int64_t)gpu_bx() * TRI_GPU_COLUMNS + lane * TRI_GPU_EACH;
    const int64_t begin = (int64_t)gpu_by() * TRI_GPU_CHUNK, rows = columns_valid(a.valid, a.mode, shard);
    const int64_t last = begin + TRI_GPU_CHUNK < a.rows ? begin + TRI_GPU_CHUNK : a.rows;
    const int64_t chunks = (a.rows + TRI_GPU_CHUNK - 1) / TRI_GPU_CHUNK;
    columns_state s = columns_begin(&a, shard, c);
    if (c < a.width) {
        columns_sums(&a, &s, shard, begin + warp, last < rows ? last : rows, c);
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        shared->sum[0][warp][lane * TRI_GPU_EACH + k] = s.first[k];
        shared->sum[1][warp][lane * TRI_GPU_EACH + k] = s.second[k];
    }
    gpu_sync();
    const int kind = gpu_tx() / TRI_GPU_COLUMNS, column = gpu_tx() % TRI_GPU_COLUMNS;
    const int64_t at = (int64_t)gpu_bx() * TRI_GPU_COLUMNS + column;
    float v[COLUMNS_WARPS];
    GPU_UNROLL
    for (int w = 0; w < COLUMNS_WARPS; w++) {
        v[w] = shared->sum[kind][w][column];
    }
    GPU_UNROLL
    for (int step = COLUMNS_WARPS / 2; step > 0; step /= 2) {
        GPU_UNROLL
        for (int w = 0; w < step; w++) {
            v[w] += v[w + step];
        }
    }
    if (at < a.width) {
        a.partial[((shard * chunks + gpu_by()) * 2 + kind) * a.width + at] = v[0];
    }
}

typedef struct chunk_sums {
    float sum[TRI_GPU_SLICES][TRI_GPU_SLICE_COLUMNS];
} chunk_sums;

/* What becomes of the sum of a column. */
GPU_FN void columns_finish(const tri_gpu_columns_sum_args *a, int kind, int shard, int64_t c, float sum)
{
    const int64_t n = columns_valid(a->valid, a->mode, shard);
    float *const stats = a->batch_stats + 3 * a->width * shard + c;
    if (a->mode == TRI_GPU_MEAN_SUMS) {
        stats[0] = n > 0 ? sum / (float)n : 0.0f;
    } else if (a->mode == TRI_GPU_SQUARE_SUMS) {
        stats[a->width] = n > 0 ? 1.0f / gpu_sqrt(sum / (float)n + a->epsilon) : 0.0f;
        stats[2 * a->width] = sum / (float)(n > 1 ? n - 1 : 1);
    } else {
        float *const out = a->out + ((int64_t)kind * a->shards + shard) * a->width + c;
        *out = sum;
        if (a->mode == TRI_GPU_BATCH_SUMS) { /* kinds 2 and 3: as means */
            out[2 * a->shards * a->width] = sum / (float)(n > 0 ? n : 1);
        }
    }
}

GPU_KERNEL(columns_sum)
{
    GPU_SHARED(chunk_sums, shared);
    const int column = gpu_tx() % TRI_GPU_SLICE_COLUMNS, slice = gpu_tx() / TRI_GPU_SLICE_COLUMNS;
    const int64_t c = (int64_t)gpu_bx() * TRI_GPU_SLICE_COLUMNS + column;
    const int kind = gpu_by(), shard = gpu_bz();
    float sum = 0;
    for (int64_t chunk = slice; chunk < a.chunks && c < a.width; chunk += TRI_GPU_SLICES) {
        sum += a.partial[((shard * a.chunks + chunk) * 2 + kind) * a.width + c];
    }
    shared->sum[slice][column] = sum;
    gpu_sync();
    for (int step = TRI_GPU_SLICES / 2; step > 0; step /= 2) {
        if (slice < step) {
            shared->sum[slice][column] += shared->sum[slice + step][column];
        }
        gpu_sync();
    }
    if (slice == 0 && c < a.width) {
        columns_finish(&a, kind, shard, c, shared->sum[0][column]);
    }
}

/* Of a 32-bit division where that is enough. */
GPU_FN int64_t run_channel(int64_t i, int64_t width)
{
    return ((i | width) >> 32) == 0 ? (int64_t)((uint32_t)i % (uint32_t)width) : i % width;
}

GPU_KERNEL(batch_roots)
{
    const int64_t c = gpu_thread_x();
    if (c < a.width) {
        a.roots[c] = 1.0f / gpu_sqrt(a.variance[c] + a.epsilon);
    }
}

GPU_KERNEL(batch_norm)
{
    const int shard = gpu_by();
    const int64_t i = gpu_run(), have = a.each - i, channel = run_channel(i, a.width);
    float x[TRI_GPU_EACH];
    gpu_load_run(a.x, shard * a.each + i, have, x);
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t c = channel + k < a.width ? channel + k : run_channel(channel + k, a.width);
        const int64_t at = shard * a.stride + c;
        const float v = (x[k] - a.mean[at]) * a.roots[at] * a.scale[c] + a.shift[c];
        x[k] = i + k >= a.valid[shard] || (a.relu && v < 0.0f) ? 0.0f : v;
    }
    gpu_store_run(a.y, shard * a.each + i, have, x);
}

GPU_KERNEL(batch_norm_back)
{
    const int shard = gpu_by();
    const int64_t i = gpu_run(), have = a.each - i, at = shard * a.each + i, channel = run_channel(i, a.width);
    const float *const dots = a.means + (a.shards > 1 ? shard : 0) * a.width, *const sums = dots + a.shards * a.width;
    float x[TRI_GPU_EACH], dy[TRI_GPU_EACH], mask[TRI_GPU_EACH] = {1, 1, 1, 1};
    gpu_load_run(a.x, at, have, x);
    gpu_load_run(a.dy, at, have, dy);
    if (a.mask.data != 0) {
        gpu_load_run(a.mask, at, have, mask);
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t c = channel + k < a.width ? channel + k : run_channel(channel + k, a.width);
        const float *const stats = a.stats + 3 * a.width * shard + c;
        const float g = mask[k] > 0.0f ? dy[k] : 0.0f, h = (x[k] - stats[0]) * stats[a.width];
        const float dx = a.scale[c] * stats[a.width] * (g - sums[c] - h * dots[c]);
        x[k] = i + k < a.valid[shard] ? dx : 0.0f;
    }
    gpu_store_run(a.dx, at, have, x);
}

/* Row of this warp. */
GPU_FN int64_t warp_row(void)
{
    return (int64_t)gpu_bx() * (gpu_nx() / 32) + gpu_tx() / 32;
}

/* Adds n elements of x to a lane's sum. x is left + right where there is a left. */
GPU_FN float norm_sum(const tri_gpu_norm_args *a, int64_t i, float sum, const int n)
{
    float x[GPU_LANE_EACH], right[GPU_LANE_EACH];
    if (a->left.data == 0) {
        gpu_load_lane(a->x, i, x, n);
    } else {
        gpu_load_lane(a->left, i, x, n);
        gpu_load_lane(a->right, i, right, n);
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            x[k] += right[k];
        }
        gpu_store_lane(a->x, i, x, n);
        gpu_round_lane(x, a->x.type, n);
    }
    GPU_UNROLL
    for (int k = 0; k < n; k++) {
        sum += x[k];
    }
    return sum;
}

GPU_FN float norm_squares(const tri_gpu_norm_args *a, int64_t i, float mean, float sum, const int n)
{
    float x[GPU_LANE_EACH];
    gpu_load_lane(a->x, i, x, n);
    GPU_UNROLL
    for (int k = 0; k < n; k++) {
        const float e = x[k] - mean;
        sum += e * e;
    }
    return sum;
}

/* Element i of all rows is c of its row. */
GPU_FN void norm_write(const tri_gpu_norm_args *a, int64_t i, int64_t c, float mean, float root, const int n)
{
    float x[GPU_LANE_EACH], scale[GPU_LANE_EACH], shift[GPU_LANE_EACH];
    gpu_load_lane(gpu_f32(a->scale), c, scale, n);
    if (!a->rms) {
        gpu_load_lane(gpu_f32(a->shift), c, shift, n);
    }
    gpu_load_lane(a->x, i, x, n);
    GPU_UNROLL
    for (int k = 0; k < n; k++) {
        const float h = (x[k] - mean) * root * scale[k];
        x[k] = a->rms ? h : h + shift[k];
    }
    gpu_store_lane(a->y, i, x, n);
}

/* A lane reads what it has written itself. */
GPU_KERNEL(norm)
{
    const int64_t row = warp_row(), first = row * a.width;
    const int lane = gpu_tx() % 32;
    if (row >= a.rows) {
        return;
    }
    float sum = 0, square = 0;
    int64_t c = lane;
    for (; c + GPU_LANE_LAST < a.width; c += GPU_LANE_STEP) {
        sum = norm_sum(&a, first + c, sum, GPU_LANE_EACH);
    }
    for (; c < a.width; c += 32) {
        sum = norm_sum(&a, first + c, sum, 1);
    }
    const float mean = a.rms ? 0.0f : gpu_warp_sum(sum) / (float)a.width;
    for (c = lane; c + GPU_LANE_LAST < a.width; c += GPU_LANE_STEP) {
        square = norm_squares(&a, first + c, mean, square, GPU_LANE_EACH);
    }
    for (; c < a.width; c += 32) {
        square = norm_squares(&a, first + c, mean, square, 1);
    }
    const float root = 1.0f / gpu_sqrt(gpu_warp_sum(square) / (float)a.width + a.epsilon);
    for (c = lane; c + GPU_LANE_LAST < a.width; c += GPU_LANE_STEP) {
        norm_write(&a, first + c, c, mean, root, GPU_LANE_EACH);
    }
    for (; c < a.width; c += 32) {
        norm_write(&a, first + c, c, mean, root, 1);
    }
    if (lane == 0 && a.stats != 0) {
        a.stats[2 * row] = mean;
        a.stats[2 * row + 1] = root;
    }
}

typedef struct norm_row {
    float mean, root, sum, dot;
} norm_row;

/* Adds n elements to a lane's sums. */
GPU_FN void norm_back_sums(const tri_gpu_norm_back_args *a, norm_row *r, int64_t i, int64_t c, const int n)
{
    float dy[GPU_LANE_EACH], x[GPU_LANE_EACH], scale[GPU_LANE_EACH];
    gpu_load_lane(gpu_f32(a->scale), c, scale, n);
    gpu_load_lane(a->dy, i, dy, n);
    gpu_load_lane(a->x, i, x, n);
    GPU_UNROLL
    for (int k = 0; k < n; k++) {
        const float g = dy[k] * scale[k];
        r->sum += g;
        r->dot += g * ((x[k] - r->mean) * r->root);
    }
}

GPU_FN void norm_back_write(const tri_gpu_norm_back_args *a, const norm_row *r, int64_t i, int64_t c, const int n)
{
    float dy[GPU_LANE_EACH], x[GPU_LANE_EACH], scale[GPU_LANE_EACH];
    gpu_load_lane(gpu_f32(a->scale), c, scale, n);
    gpu_load_lane(a->dy, i, dy, n);
    gpu_load_lane(a->x, i, x, n);
    GPU_UNROLL
    for (int k = 0; k < n; k++) {
        const float h = (x[k] - r->mean) * r->root;
        x[k] = r->root * (dy[k] * scale[k] - r->sum - h * r->dot);
    }
    if (a->adds) {
        gpu_round_lane(x, a->dx.type, n);
        gpu_load_lane(a->dx, i, dy, n);
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            x[k] = dy[k] + x[k];
        }
    }
    gpu_store_lane(a->dx, i, x, n);
}

GPU_KERNEL(norm_back)
{
    const int64_t row = warp_row(), first = row * a.width;
    const int lane = gpu_tx() % 32;
    if (row >= a.rows) {
        return;
    }
    norm_row r = {a.stats[2 * row], a.stats[2 * row + 1], 0, 0};
    int64_t c = lane;
    for (; c + GPU_LANE_LAST < a.width; c += GPU_LANE_STEP) {
        norm_back_sums(&a, &r, first + c, c, GPU_LANE_EACH);
    }
    for (; c < a.width; c += 32) {
        norm_back_sums(&a, &r, first + c, c, 1);
    }
    r.sum = a.rms ? 0.0f : gpu_warp_sum(r.sum) / (float)a.width;
    r.dot = gpu_warp_sum(r.dot) / (float)a.width;
    for (c = lane; c + GPU_LANE_LAST < a.width; c += GPU_LANE_STEP) {
        norm_back_write(&a, &r, first + c, c, GPU_LANE_EACH);
    }
    for (; c < a.width; c += 32) {
        norm_back_write(&a, &r, first + c, c, 1);
    }
}

GPU_KERNEL(softmax)
{
    const int64_t row = warp_row(), first = row * a.width;
    const int lane = gpu_tx() % 32;
    if (row >= a.rows) {
        return;
    }
    float top = GPU_LEAST, sum = 0;
    for (int64_t c = lane; c < a.width; c += 32) {
        top = gpu_larger(top, gpu_load(a.x, first + c));
    }
    top = gpu_warp_max(top);
    for (int64_t c = lane; c < a.width; c += 32) {
        sum += gpu_exp(gpu_load(a.x, first + c) - top);
    }
    sum = gpu_warp_sum(sum);
    for (int64_t c = lane; c < a.width; c += 32) {
        gpu_store(a.y, first + c, gpu_exp(gpu_load(a.x, first + c) - top) / sum);
    }
}

GPU_KERNEL(softmax_back)
{
    const int64_t row = warp_row(), first = row * a.width;
    const int lane = gpu_tx() % 32;
    if (row >= a.rows) {
        return;
    }
    float dot = 0;
    for (int64_t c = lane; c < a.width; c += 32) {
        dot += gpu_load(a.y, first + c) * gpu_load(a.dy, first + c);
    }
    dot = gpu_warp_sum(dot);
    for (int64_t c = lane; c < a.width; c += 32) {
        gpu_store(a.dx, first + c, gpu_load(a.y, first + c) * (gpu_load(a.dy, first + c) - dot));
    }
}
