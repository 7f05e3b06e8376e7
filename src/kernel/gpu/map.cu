/* SPDX-License-Identifier: Apache-2.0
 *
 * map.cu: activations, add and mul, dropout, bias, SwiGLU, rope, and ops that only move elements.
 */
#include "kernel/gpu/lanes.h"
#include "kernel/gpu/math.h"
#include "kernel/gpu/philox.h"

GPU_FN void map_run(const tri_gpu_map_args *a, int op, const int slopes)
{
    const int64_t i = gpu_run(), have = a->count - i;
    float v[TRI_GPU_EACH], dy[TRI_GPU_EACH];
    gpu_load_run(a->v, i, have, v);
    if (slopes) {
        gpu_load_run(a->dy, i, have, dy);
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        v[k] = slopes ? dy[k] * gpu_map_slope(op, v[k]) : gpu_map_value(op, v[k]);
    }
    gpu_store_run(a->to, i, have, v);
}

/* With code of its own for the op whose elements are the most work. */
GPU_KERNEL(map)
{
    if (a.op == TRI_GPU_GELU && a.dy.data == 0) {
        map_run(&a, TRI_GPU_GELU, 0);
    } else if (a.op == TRI_GPU_GELU) {
        map_run(&a, TRI_GPU_GELU, 1);
    } else if (a.dy.data == 0) {
        map_run(&a, a.op, 0);
    } else {
        map_run(&a, a.op, 1);
    }
}

GPU_KERNEL(relu_cut)
{
    const int64_t i = gpu_run(), have = a.count - i;
    float y[TRI_GPU_EACH], dy[TRI_GPU_EACH];
    gpu_load_run(a.y, i, have, y);
    gpu_load_run(a.dy, i, have, dy);
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        dy[k] = y[k] > 0.0f ? dy[k] : 0.0f;
    }
    gpu_store_run(a.dy, i, have, dy);
}

/* Element of b beside element i. */
GPU_FN int64_t pair_other(int64_t i, int64_t each, int64_t sample)
{
    return sample > 0 ? i / each * sample + i % each % sample : i;
}

/* Those of b beside a thread's elements. */
GPU_FN void pair_load(tri_gpu_value b, int64_t i, int64_t have, int64_t each, int64_t sample, float x[TRI_GPU_EACH])
{
    if (sample == 0) {
        gpu_load_run(b, i, have, x);
        return;
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        x[k] = k < have ? gpu_load(b, pair_other(i + k, each, sample)) : 0.0f;
    }
}

GPU_KERNEL(pair)
{
    const int64_t i = gpu_run(), have = a.count - i;
    float x[TRI_GPU_EACH], other[TRI_GPU_EACH];
    gpu_load_run(a.a, i, have, x);
    pair_load(a.b, i, have, a.each, a.sample, other);
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const float v = a.multiplies ? x[k] * other[k] : x[k] + other[k];
        x[k] = a.relu && v < 0.0f ? 0.0f : v;
    }
    gpu_store_run(a.y, i, have, x);
}

GPU_FN float pair_slope(const tri_gpu_pair_back_args *a, int64_t i)
{
    return a->relu && !(gpu_load(a->y, i) > 0.0f) ? 0.0f : gpu_load(a->dy, i);
}

GPU_KERNEL(pair_back)
{
    const int64_t i = gpu_run(), have = a.count - i;
    float g[TRI_GPU_EACH], y[TRI_GPU_EACH], left[TRI_GPU_EACH], right[TRI_GPU_EACH];
    gpu_load_run(a.dy, i, have, g);
    if (a.relu) {
        gpu_load_run(a.y, i, have, y);
    }
    if (a.multiplies) {
        pair_load(a.b, i, have, a.each, a.sample, left);
        gpu_load_run(a.a, i, have, right);
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        g[k] = a.relu && !(y[k] > 0.0f) ? 0.0f : g[k];
        left[k] = a.multiplies ? g[k] * left[k] : g[k];
        right[k] = a.multiplies ? g[k] * right[k] : g[k];
    }
    if (a.db.data != 0 && a.sample == 0) {
        gpu_store_run(a.db, i, have, right);
    }
    if (a.da.data != 0) {
        gpu_store_run(a.da, i, have, left);
    }
}

GPU_KERNEL(pair_rows)
{
    const int64_t i = gpu_thread_x();
    if (i < a.count / a.each * a.sample) {
        const int64_t first = i / a.sample * a.each + i % a.sample;
        float sum = 0;
        for (int64_t j = 0; j < a.each; j += a.sample) {
            const float g = pair_slope(&a, first + j);
            sum += a.multiplies ? g * gpu_load(a.a, first + j) : g;
        }
        gpu_store(a.db, i, sum);
    }
}

GPU_KERNEL(dropout)
{
    const int shard = gpu_by();
    const int64_t each = a.samples * a.per_sample, i = gpu_run(), have = each - i;
    float x[TRI_GPU_EACH];
    gpu_load_run(a.from, shard * each + i, have, x);
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const uint64_t sample = (uint64_t)(a.first_sample[shard] + (i + k) / a.per_sample);
        const uint64_t number = sample * (uint64_t)a.whole + (uint64_t)(a.first + (i + k) % a.per_sample);
        const float keep = gpu_uniform(a.seed, a.stream, number) >= a.rate ? a.scale : 0.0f;
        x[k] = keep > 0.0f ? x[k] * keep : 0.0f;
    }
    gpu_store_run(a.to, shard * each + i, have, x);
}

GPU_KERNEL(bias)
{
    const int64_t i = gpu_run(), have = a.count - i;
    float x[TRI_GPU_EACH];
    gpu_load_run(a.x, i, have, x);
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        x[k] += k < have ? a.b[(i + k) % a.width] : 0.0f;
    }
    gpu_store_run(a.y, i, have, x);
}

/* Gates, then values, of a thread's elements of y: in one row where that has a multiple of as many. */
GPU_FN void swiglu_load(tri_gpu_value x, int64_t i, int64_t have, int64_t width, float gate[TRI_GPU_EACH],
                        float up[TRI_GPU_EACH])
{
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t at = (i + k) / width * 2 * width + (i + k) % width;
        if (width % TRI_GPU_EACH != 0) {
            gate[k] = k < have ? gpu_load(x, at) : 0.0f;
            up[k] = k < have ? gpu_load(x, at + width) : 0.0f;
        } else if (k == 0) {
            gpu_load_run(x, at, have, gate);
            gpu_load_run(x, at + width, have, up);
        }
    }
}

GPU_KERNEL(swiglu)
{
    const int64_t i = gpu_run(), have = a.count - i;
    float gate[TRI_GPU_EACH], up[TRI_GPU_EACH];
    swiglu_load(a.x, i, have, a.width, gate, up);
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        gate[k] = gate[k] * gpu_sigmoid(gate[k]) * up[k];
    }
    gpu_store_run(a.y, i, have, gate);
}

GPU_KERNEL(swiglu_back)
{
    const int64_t i = gpu_run(), have = a.count - i, at = i / a.width * 2 * a.width + i % a.width;
    float gate[TRI_GPU_EACH], up[TRI_GPU_EACH], dy[TRI_GPU_EACH];
    swiglu_load(a.x, i, have, a.width, gate, up);
    gpu_load_run(a.dy, i, have, dy);
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const float s = gpu_sigmoid(gate[k]), dgate = dy[k] * up[k] * s * (1.0f + gate[k] * (1.0f - s));
        up[k] = dy[k] * gate[k] * s;
        gate[k] = dgate;
    }
    if (a.width % TRI_GPU_EACH == 0) {
        gpu_store_run(a.dx, at, have, gate);
        gpu_store_run(a.dx, at + a.width, have, up);
        return;
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t place = (i + k) / a.width * 2 * a.width + (i + k) % a.width;
        if (k < have) {
            gpu_store(a.dx, place, gate[k]);
            gpu_store(a.dx, place + a.width, up[k]);
        }
    }
}

GPU_KERNEL(rope_table)
{
    const int64_t i = gpu_thread_x(), count = a.length * a.half;
    if (i < count) {
        gpu_turn((double)(i / a.half) * a.frequency[i % a.half], &a.table[i], &a.table[count + i]);
    }
}

/* Element i of the first half of a head with element i of the second. */
GPU_KERNEL(rope)
{
    const int64_t p = gpu_thread_x();
    if (p < a.count) {
        const int64_t i = p % a.half, head = p / a.half % a.heads, row = p / a.half / a.heads;
        const int64_t at = (row * a.heads + head) * 2 * a.half + i, t = row % a.length * a.half + i;
        const float x = gpu_load(a.from, at), y = gpu_load(a.from, at + a.half);
        const float cosine = a.table[t], sine = a.sign * a.table[a.length * a.half + t];
        gpu_store(a.to, at, head < a.turned ? gpu_fma(x, cosine, -(y * sine)) : x);
        gpu_store(a.to, at + a.half, head < a.turned ? gpu_fma(y, cosine, x * sine) : y);
    }
}

GPU_KERNEL(move)
{
    const int64_t i = gpu_run(), have = a.width * a.outer - i, o = i / a.width, j = i % a.width;
    float x[TRI_GPU_EACH];
    if (a.width % TRI_GPU_EACH == 0) { /* all in one row */
        gpu_load_run(a.from, a.from_first + o * a.from_stride + j, have, x);
        gpu_store_run(a.to, a.to_first + o * a.to_stride + j, have, x);
        return;
    }
    for (int k = 0; k < TRI_GPU_EACH && k < have; k++) {
        const int64_t row = (i + k) / a.width, column = (i + k) % a.width;
        gpu_store(a.to, a.to_first + row * a.to_stride + column,
                  gpu_load(a.from, a.from_first + row * a.from_stride + column));
    }
}

GPU_KERNEL(transpose)
{
    const int64_t i = gpu_thread_x();
    if (i < a.count) {
        int64_t rest = i % a.each, other = i - rest;
        for (int d = TRI_GPU_DIMS - 1; d >= 0; d--) {
            if (d < a.ndim) {
                other += rest % a.dim[d] * a.stride[d];
                rest /= a.dim[d];
            }
        }
        gpu_store(a.to, a.back ? other : i, gpu_load(a.from, a.back ? i : other));
    }
}

GPU_KERNEL(gather)
{
    const int64_t i = gpu_run(), have = a.count - i;
    float x[TRI_GPU_EACH] = {0, 0, 0, 0};
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int in_one_row = a.width % TRI_GPU_EACH == 0;
        if (k >= have || (in_one_row && k > 0)) {
            continue;
        }
        const int32_t index = a.index[(i + k) / a.width];
        const int64_t word = index - a.first, at = word * a.width + (i + k) % a.width;
        if (index < 0 || word < 0 || word >= a.words) {
            continue;
        }
        if (in_one_row) {
            gpu_load_run(a.table, at, have, x);
        } else {
            x[k] = gpu_load(a.table, at);
        }
    }
    gpu_store_run(a.y, i, have, x);
}

#define SORT_TILE 4096 /* keys that shared memory has room for, a power of two */

typedef struct sort_keys {
    uint64_t key[SORT_TILE];
} sort_keys;

GPU_FN uint64_t sort_key(const tri_gpu_words_sort_args *a, const int32_t *index, int64_t i)
{
    const int64_t word = i < a->count && index[i] >= 0 ? index[i] - a->first : -1;
    return word >= 0 && word < a->words ? (uint64_t)(word + 1) << 32 | (uint64_t)i : ~(uint64_t)0;
}

/* One step of a bitonic network over `count` keys, the first of which is number `first` of all; run, step: powers of
 * two. */
GPU_FN void sort_step(uint64_t *keys, uint32_t count, uint32_t first, uint32_t run, uint32_t step)
{
    for (uint32_t i = (uint32_t)gpu_tx(); i < count / 2; i += (uint32_t)gpu_nx()) {
        const uint32_t low = 2 * i - (i & (step - 1));
        const uint64_t x = keys[low], y = keys[low + step];
        if ((x > y) == (((first + low) & run) == 0)) {
            keys[low] = y;
            keys[low + step] = x;
        }
    }
    gpu_sync();
}

/* A bitonic network. Steps that stay within a tile run in shared memory. */
GPU_KERNEL(words_sort)
{
    GPU_SHARED(sort_keys, shared);
    uint64_t *const keys = a.keys + gpu_bx() * a.padded;
    const int32_t *const index = a.index + gpu_bx() * a.count;
    const uint32_t padded = (uint32_t)a.padded, tile = padded < SORT_TILE ? padded : SORT_TILE;
    for (uint32_t run = tile; run <= padded; run *= 2) {
        for (uint32_t step = run / 2; step >= tile; step /= 2) {
            sort_step(keys, padded, 0, run, step);
        }
        for (uint32_t first = 0; first < padded; first += tile) {
            for (uint32_t i = (uint32_t)gpu_tx(); i < tile; i += (uint32_t)gpu_nx()) {
                shared->key[i] = run == tile ? sort_key(&a, index, first + i) : keys[first + i];
            }
            gpu_sync();
            for (uint32_t part = run == tile ? 2 : tile; part <= tile; part *= 2) {
                for (uint32_t step = part / 2; step > 0; step /= 2) {
                    sort_step(shared->key, tile, first, run == tile ? part : run, step);
                }
            }
            for (uint32_t i = (uint32_t)gpu_tx(); i < tile; i += (uint32_t)gpu_nx()) {
                keys[first + i] = shared->key[i];
            }
        }
        gpu_sync();
    }
}

/* Sums of n columns, 32 apart, over the rows of a word: those of its keys, from key i on. */
GPU_FN void words_columns(const tri_gpu_words_sum_args *a, const uint64_t *keys, int64_t i, float *leaf, int64_t c,
                          const int n)
{
    const uint64_t word = keys[i] >> 32;
    uint64_t key = keys[i];
    float sum[GPU_LANE_EACH], x[GPU_LANE_EACH];
    GPU_UNROLL
    for (int k = 0; k < n; k++) {
        sum[k] = 0;
    }
    for (int64_t j = i + 1; key >> 32 == word; j++) {
        const uint64_t next = j < a->count ? keys[j] : ~(uint64_t)0; /* under way beside the row */
        const int64_t row = gpu_by() * a->count + (int64_t)(key & 0xffffffffu);
        gpu_load_lane(a->dy, row * a->width + c, x, n);
        GPU_UNROLL
        for (int k = 0; k < n; k++) {
            sum[k] += x[k];
        }
        key = next;
    }
    GPU_UNROLL
    for (int k = 0; k < n; k++) {
        leaf[c + 32 * k] = sum[k];
    }
}

GPU_KERNEL(words_sum)
{
    const int64_t i = gpu_thread_x() / 32, first = (int64_t)gpu_bz() * TRI_GPU_STRIP;
    const int64_t end = first + TRI_GPU_STRIP < a.width ? first + TRI_GPU_STRIP : a.width;
    const int shard = gpu_by();
    const uint64_t *const keys = a.keys + shard * a.padded;
    if (i >= a.count || keys[i] == ~(uint64_t)0 || (i > 0 && keys[i - 1] >> 32 == keys[i] >> 32)) {
        return; /* the whole warp: no word begins here */
    }
    const int64_t place = (int64_t)(keys[i] >> 32) - 1 - a.first;
    if (place < 0 || place >= a.words) {
        return; /* the whole warp: another part of the table */
    }
    float *const leaf = a.leaves + (shard * a.words + place) * a.width;
    int64_t c = first + gpu_tx() % 32;
    for (; c + GPU_LANE_LAST < end; c += GPU_LANE_STEP) {
        words_columns(&a, keys, i, leaf, c, GPU_LANE_EACH);
    }
    for (; c < end; c += 32) {
        words_columns(&a, keys, i, leaf, c, 1);
    }
}
