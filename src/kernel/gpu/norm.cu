/* SPDX-License-Identifier: Apache-2.0
 *
 * norm.cu: sums of columns in two stages, batch norm, layer norm, RMS norm, softmax.
 *
 * A sum over rows is cut into chunks of TRI_GPU_CHUNK rows of one shard; inside a chunk each of 8 warps has every 8th
 * row, then a tree over the warps; then each of 32 threads has every 32nd chunk, and there is a tree over them.
 */
#include "kernel/gpu/math.h"

typedef struct column_sums {
    float sum[2][8][33];
} column_sums;

/* The two terms of one element. */
GPU_FN void columns_terms(const tri_gpu_columns_args *a, int shard, int64_t row, int64_t c, float *first, float *second)
{
    const int64_t r = shard * a->rows + row, i = r * a->width + c;
    const float *const batch = a->batch_stats + 3 * a->width * shard + c;
    float g, x;
    *first = *second = 0;
    if (a->mode >= TRI_GPU_MEAN_SUMS && row >= a->valid[shard]) {
        return;
    }
    if (a->mode >= TRI_GPU_MEAN_SUMS && a->mode <= TRI_GPU_SPREAD_SUMS) {
        x = gpu_load(a->x, i);
        *first = a->mode == TRI_GPU_MEAN_SUMS ? x : (x - batch[0]) * (x - batch[0]);
        return;
    }
    g = a->mask.data != 0 && !(gpu_load(a->mask, i) > 0.0f) ? 0.0f : gpu_load(a->g, i);
    if (a->mode == TRI_GPU_SUM) {
        *first = g;
        return;
    }
    x = gpu_load(a->x, i);
    *first = g * (a->mode == TRI_GPU_BATCH_SUMS ? (x - batch[0]) * batch[a->width]
                                                : (x - a->rows_stats[2 * r]) * a->rows_stats[2 * r + 1]);
    *second = g;
}

GPU_KERNEL(columns)
{
    GPU_SHARED(column_sums, shared);
    const int lane = gpu_tx() % 32, warp = gpu_tx() / 32, shard = gpu_bz();
    const int64_t c = (int64_t)gpu_bx() * 32 + lane, begin = (int64_t)gpu_by() * TRI_GPU_CHUNK;
    const int64_t end = begin + TRI_GPU_CHUNK < a.rows ? begin + TRI_GPU_CHUNK : a.rows;
    const int64_t chunks = (a.rows + TRI_GPU_CHUNK - 1) / TRI_GPU_CHUNK;
    float first = 0, second = 0, x, y;
    for (int64_t row = begin + warp; row < end && c < a.width; row += 8) {
        columns_terms(&a, shard, row, c, &x, &y);
        first += x;
        second += y;
    }
    shared->sum[0][warp][lane] = first;
    shared->sum[1][warp][lane] = second;
    gpu_sync();
    for (int step = 4; step > 0; step /= 2) {
        if (warp < step) {
            shared->sum[0][warp][lane] += shared->sum[0][warp + step][lane];
            shared->sum[1][warp][lane] += shared->sum[1][warp + step][lane];
        }
        gpu_sync();
    }
    if (warp < 2 && c < a.width) {
        a.partial[((shard * chunks + gpu_by()) * 2 + warp) * a.width + c] = shared->sum[warp][0][lane];
    }
}

typedef struct chunk_sums {
    float sum[TRI_GPU_SLICES][TRI_GPU_SLICE_COLUMNS];
} chunk_sums;

/* What becomes of the sum of a column. */
GPU_FN void columns_finish(const tri_gpu_columns_sum_args *a, int kind, int shard, int64_t c, float sum)
{
    const int64_t n = a->mode >= TRI_GPU_MEAN_SUMS ? a->valid[shard] : 0; /* other modes may have more shards */
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

GPU_KERNEL(norm)
{
    const int64_t row = warp_row(), first = row * a.width;
    const int lane = gpu_tx() % 32;
    if (row >= a.rows) {
        return;
    }
    float sum = 0, square = 0;
    for (int64_t c = lane; c < a.width && a.left.data != 0; c += 32) {
        gpu_store(a.x, first + c, gpu_load(a.left, first + c) + gpu_load(a.right, first + c));
    }
    for (int64_t c = lane; c < a.width; c += 32) { /* of which a lane has written what it reads */
        sum += gpu_load(a.x, first + c);
    }
    const float mean = a.rms ? 0.0f : gpu_warp_sum(sum) / (float)a.width;
    for (int64_t c = lane; c < a.width; c += 32) {
        const float e = gpu_load(a.x, first + c) - mean;
        square += e * e;
    }
    const float root = 1.0f / gpu_sqrt(gpu_warp_sum(square) / (float)a.width + a.epsilon);
    for (int64_t c = lane; c < a.width; c += 32) {
        const float h = (gpu_load(a.x, first + c) - mean) * root * a.scale[c];
        gpu_store(a.y, first + c, a.rms ? h : h + a.shift[c]);
    }
    if (lane == 0 && a.stats != 0) {
        a.stats[2 * row] = mean;
        a.stats[2 * row + 1] = root;
    }
}

GPU_KERNEL(norm_back)
{
    const int64_t row = warp_row(), first = row * a.width;
    const int lane = gpu_tx() % 32;
    if (row >= a.rows) {
        return;
    }
    const float mean = a.stats[2 * row], root = a.stats[2 * row + 1];
    float sum = 0, dot = 0;
    for (int64_t c = lane; c < a.width; c += 32) {
        const float g = gpu_load(a.dy, first + c) * a.scale[c];
        sum += g;
        dot += g * ((gpu_load(a.x, first + c) - mean) * root);
    }
    sum = a.rms ? 0.0f : gpu_warp_sum(sum) / (float)a.width;
    dot = gpu_warp_sum(dot) / (float)a.width;
    for (int64_t c = lane; c < a.width; c += 32) {
        const float h = (gpu_load(a.x, first + c) - mean) * root;
        const float dx = root * (gpu_load(a.dy, first + c) * a.scale[c] - sum - h * dot);
        gpu_store(a.dx, first + c, a.adds ? gpu_load(a.dx, first + c) + gpu_round(dx, a.dx.type) : dx);
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
