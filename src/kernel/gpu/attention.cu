/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.cu: causal attention of heads of up to 128 elements, in f32 whatever the values are: forward with a running
 * maximum, backward in two passes: each query sums over its keys, each key over its queries, both in order.
 *
 * A block has 32 rows; 8 threads share a row: they have every 8th key of a tile, and every 8th element of the result.
 * T length, D width; grid: tiles of rows, heads, samples of all shards.
 */
#include "kernel/gpu/attention.h"

#define ROWS   TRI_GPU_QUERIES
#define FEW    16                 /* rows of the other side, backward */
#define STRIDE (TRI_GPU_HEAD + 1) /* of a tile's row: neighbours in different banks */
#define MINE   (TRI_GPU_HEAD / 8) /* elements of a row that a thread has */

/* rows [first, first + count) of one head, from offset `at` of x's rows; zeros behind the last. */
GPU_FN void attention_fill(float *tile, tri_gpu_value v, int64_t base, int64_t stride, int64_t first, int64_t length,
                           int count, int64_t width)
{
    for (int i = gpu_tx(); i < count * (int)width; i += TRI_GPU_THREADS) {
        const int r = i / (int)width, c = i % (int)width;
        tile[r * STRIDE + c] = first + r < length ? gpu_load(v, base + (first + r) * stride + c) : 0.0f;
    }
}

GPU_FN float attention_product(const float *x, const float *y, int64_t width)
{
    float sum = 0;
    for (int c = 0; c < (int)width; c++) {
        sum = gpu_fma(x[c], y[c], sum);
    }
    return sum;
}

/* mine[j] += weight[i] tile[i][part + 8 j] over i */
GPU_FN void attention_add(float *mine, const float *weight, const float *tile, int count, int64_t width)
{
    const int part = gpu_tx() % 8;
    for (int i = 0; i < count; i++) {
        GPU_UNROLL
        for (int j = 0; j < MINE; j++) {
            if (part + 8 * j < width) {
                mine[j] = gpu_fma(weight[i], tile[i * STRIDE + part + 8 * j], mine[j]);
            }
        }
    }
}

GPU_FN void attention_write(tri_gpu_value to, int64_t at, const float *mine, float factor, int64_t width)
{
    const int part = gpu_tx() % 8;
    GPU_UNROLL
    for (int j = 0; j < MINE; j++) {
        if (part + 8 * j < width) {
            gpu_store(to, at + part + 8 * j, mine[j] * factor);
        }
    }
}

/* Over the 8 threads of a row. */
GPU_FN float attention_row_sum(float v)
{
    v += gpu_xor(v, 1);
    v += gpu_xor(v, 2);
    return v + gpu_xor(v, 4);
}

GPU_FN float attention_row_max(float v)
{
    v = gpu_larger(v, gpu_xor(v, 1));
    v = gpu_larger(v, gpu_xor(v, 2));
    return gpu_larger(v, gpu_xor(v, 4));
}

typedef struct attention_tiles {
    float q[ROWS * STRIDE], kv[ROWS * STRIDE], p[ROWS * (ROWS + 1)];
} attention_tiles;

GPU_KERNEL(attention)
{
    GPU_SHARED(attention_tiles, shared);
    const int r = gpu_tx() / 8, part = gpu_tx() % 8;
    const int64_t head = gpu_by(), sample = gpu_bz(), t0 = (int64_t)gpu_bx() * ROWS, t = t0 + r;
    const int64_t base = sample * a.length * a.stride, key = base + attention_key(&a, head);
    float *const weight = shared->p + r * (ROWS + 1);
    float mine[MINE] = {0}, top = GPU_LEAST, sum = 0, s[ROWS / 8];
    attention_fill(shared->q, a.x, base + head * a.width, a.stride, t0, a.length, ROWS, a.width);
    for (int64_t u0 = 0; u0 < t0 + ROWS && u0 < a.length; u0 += ROWS) {
        attention_fill(shared->kv, a.x, key, a.stride, u0, a.length, ROWS, a.width);
        gpu_sync();
        float most = top, added = 0;
        GPU_UNROLL
        for (int j = 0; j < ROWS / 8; j++) {
            const int u = part + 8 * j;
            s[j] = attention_product(shared->q + r * STRIDE, shared->kv + u * STRIDE, a.width) * a.scale;
            s[j] = u0 + u <= t ? s[j] : GPU_LEAST;
            most = gpu_larger(most, s[j]);
        }
        most = attention_row_max(most);
        GPU_UNROLL
        for (int j = 0; j < ROWS / 8; j++) {
            const float p = gpu_exp(s[j] - most);
            added += p;
            weight[part + 8 * j] = p * attention_keep(&a, sample, head, t, u0 + part + 8 * j);
        }
        const float shrink = gpu_exp(top - most);
        sum = sum * shrink + attention_row_sum(added);
        top = most;
        gpu_sync();
        attention_fill(shared->kv, a.x, key + a.keys * a.width, a.stride, u0, a.length, ROWS, a.width);
        gpu_sync();
        GPU_UNROLL
        for (int j = 0; j < MINE; j++) {
            mine[j] *= shrink;
        }
        attention_add(mine, weight, shared->kv, ROWS, a.width);
        gpu_sync();
    }
    if (t < a.length) {
        const int64_t row = (sample * a.length + t) * a.queries + head;
        attention_write(a.y, row * a.width, mine, 1.0f / sum, a.width);
        if (part == 0 && a.lse != 0) {
            a.lse[row] = top + gpu_log(sum);
        }
    }
}

/* TRI_GPU_DOTS rows of a warp; y and dy are of that type, which is a constant: all loads of a turn are under way at
 * once. */
GPU_FN void attention_dots(const tri_gpu_attention_dot_args *a, const int type)
{
    const int64_t first = ((int64_t)gpu_bx() * (gpu_nx() / 32) + gpu_tx() / 32) * TRI_GPU_DOTS;
    const tri_gpu_value y = {a->y.data, type}, dy = {a->dy.data, type};
    float sum[TRI_GPU_DOTS] = {0}, left[TRI_GPU_DOTS], right[TRI_GPU_DOTS];
    for (int c = gpu_tx() % 32; c < (int)a->width; c += 32) {
        GPU_UNROLL
        for (int r = 0; r < TRI_GPU_DOTS; r++) {
            const int64_t at = (first + r) * a->width + c;
            left[r] = first + r < a->rows ? gpu_load(y, at) : 0.0f;
            right[r] = first + r < a->rows ? gpu_load(dy, at) : 0.0f;
        }
        GPU_UNROLL
        for (int r = 0; r < TRI_GPU_DOTS; r++) {
            sum[r] += left[r] * right[r];
        }
    }
    GPU_UNROLL
    for (int r = 0; r < TRI_GPU_DOTS; r++) {
        sum[r] = gpu_warp_sum(sum[r]);
        if (gpu_tx() % 32 == r && first + r < a->rows) {
            a->dot[first + r] = sum[r];
        }
    }
}

GPU_KERNEL(attention_dot)
{
    if (a.y.type == TRI_GPU_BF16) {
        attention_dots(&a, TRI_GPU_BF16);
    } else if (a.y.type == TRI_GPU_F16) {
        attention_dots(&a, TRI_GPU_F16);
    } else {
        attention_dots(&a, TRI_GPU_F32);
    }
}

typedef struct attention_dq_tiles {
    float q[ROWS * STRIDE], dy[ROWS * STRIDE], kv[FEW * STRIDE], ds[ROWS * (FEW + 1)];
} attention_dq_tiles;

GPU_KERNEL(attention_dq)
{
    GPU_SHARED(attention_dq_tiles, shared);
    const tri_gpu_attention_args *const f = &a.forward;
    const int r = gpu_tx() / 8, part = gpu_tx() % 8;
    const int64_t head = gpu_by(), sample = gpu_bz(), t0 = (int64_t)gpu_bx() * ROWS, t = t0 + r;
    const int64_t base = sample * f->length * f->stride, key = base + attention_key(f, head);
    const int64_t row = (sample * f->length + t) * f->queries + head, width = f->width;
    float *const ds = shared->ds + r * (FEW + 1);
    float mine[MINE] = {0}, s[FEW / 8];
    attention_fill(shared->q, f->x, base + head * width, f->stride, t0, f->length, ROWS, width);
    attention_fill(shared->dy, a.dy, (sample * f->length * f->queries + head) * width, f->queries * width, t0,
                   f->length, ROWS, width);
    const float lse = t < f->length ? f->lse[row] : 0.0f, dot = t < f->length ? a.dot[row] : 0.0f;
    for (int64_t u0 = 0; u0 < t0 + ROWS && u0 < f->length; u0 += FEW) {
        attention_fill(shared->kv, f->x, key, f->stride, u0, f->length, FEW, width);
        gpu_sync();
        GPU_UNROLL
        for (int j = 0; j < FEW / 8; j++) {
            s[j] = attention_product(shared->q + r * STRIDE, shared->kv + (part + 8 * j) * STRIDE, width) * f->scale;
        }
        gpu_sync();
        attention_fill(shared->kv, f->x, key + f->keys * width, f->stride, u0, f->length, FEW, width);
        gpu_sync();
        GPU_UNROLL
        for (int j = 0; j < FEW / 8; j++) {
            const int64_t u = u0 + part + 8 * j;
            const float p = u <= t ? gpu_exp(s[j] - lse) : 0.0f;
            const float dp = attention_product(shared->dy + r * STRIDE, shared->kv + (part + 8 * j) * STRIDE, width);
            ds[part + 8 * j] = p * (dp * attention_keep(f, sample, head, t, u) - dot) * f->scale;
        }
        gpu_sync();
        attention_fill(shared->kv, f->x, key, f->stride, u0, f->length, FEW, width);
        gpu_sync();
        attention_add(mine, ds, shared->kv, FEW, width);
        gpu_sync();
    }
    if (t < f->length) {
        attention_write(a.dx, base + t * f->stride + head * width, mine, 1.0f, width);
    }
}

typedef struct attention_dkv_tiles {
    float k[ROWS * STRIDE], v[ROWS * STRIDE], other[FEW * STRIDE], p[ROWS * (FEW + 1)], ds[ROWS * (FEW + 1)];
} attention_dkv_tiles;

/* The weights of keys u0 .. for queries t0 .. of one head, and their gradients. */
GPU_FN void attention_weights(attention_dkv_tiles *shared, const tri_gpu_attention_dq_args *a, int64_t head, int64_t u0,
                              int64_t t0)
{
    const tri_gpu_attention_args *const f = &a->forward;
    const int r = gpu_tx() / 8, part = gpu_tx() % 8;
    const int64_t sample = gpu_bz(), base = sample * f->length * f->stride, width = f->width;
    float s[FEW / 8];
    attention_fill(shared->other, f->x, base + head * width, f->stride, t0, f->length, FEW, width);
    gpu_sync();
    GPU_UNROLL
    for (int j = 0; j < FEW / 8; j++) {
        s[j] = attention_product(shared->k + r * STRIDE, shared->other + (part + 8 * j) * STRIDE, width) * f->scale;
    }
    gpu_sync();
    attention_fill(shared->other, a->dy, (sample * f->length * f->queries + head) * width, f->queries * width, t0,
                   f->length, FEW, width);
    gpu_sync();
    GPU_UNROLL
    for (int j = 0; j < FEW / 8; j++) {
        const int64_t t = t0 + part + 8 * j, u = u0 + r, row = (sample * f->length + t) * f->queries + head;
        const int seen = t < f->length && u <= t;
        const float p = seen ? gpu_exp(s[j] - f->lse[row]) : 0.0f, keep = attention_keep(f, sample, head, t, u);
        const float dp = attention_product(shared->v + r * STRIDE, shared->other + (part + 8 * j) * STRIDE, width);
        shared->p[r * (FEW + 1) + part + 8 * j] = p * keep;
        shared->ds[r * (FEW + 1) + part + 8 * j] = seen ? p * (dp * keep - a->dot[row]) * f->scale : 0.0f;
    }
    gpu_sync();
}

GPU_KERNEL(attention_dkv)
{
    GPU_SHARED(attention_dkv_tiles, shared);
    const tri_gpu_attention_args *const f = &a.forward;
    const int r = gpu_tx() / 8;
    const int64_t sample = gpu_bz(), u0 = (int64_t)gpu_bx() * ROWS, u = u0 + r, group = f->queries / f->keys;
    const int64_t base = sample * f->length * f->stride, width = f->width, first = gpu_by() * group;
    const int64_t key = base + attention_key(f, first), value = key + f->keys * width;
    float dk[MINE] = {0}, dv[MINE] = {0};
    attention_fill(shared->k, f->x, key, f->stride, u0, f->length, ROWS, width);
    attention_fill(shared->v, f->x, value, f->stride, u0, f->length, ROWS, width);
    for (int64_t head = first; head < first + group; head++) {
        for (int64_t t0 = u0; t0 < f->length; t0 += FEW) {
            attention_weights(shared, &a, head, u0, t0);
            attention_add(dv, shared->p + r * (FEW + 1), shared->other, FEW, width);
            gpu_sync();
            attention_fill(shared->other, f->x, base + head * width, f->stride, t0, f->length, FEW, width);
            gpu_sync();
            attention_add(dk, shared->ds + r * (FEW + 1), shared->other, FEW, width);
            gpu_sync();
        }
    }
    if (u < f->length) {
        attention_write(a.dx, key + u * f->stride, dk, 1.0f, width);
        attention_write(a.dx, value + u * f->stride, dv, 1.0f, width);
    }
}
