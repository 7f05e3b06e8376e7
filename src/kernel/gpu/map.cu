/* SPDX-License-Identifier: Apache-2.0
 *
 * map.cu: activations, add and mul, dropout, bias, SwiGLU, rope, and ops that only move elements.
 */
#include "kernel/gpu/math.h"
#include "kernel/gpu/philox.h"

GPU_KERNEL(map)
{
    const int64_t i = gpu_run(), have = a.count - i;
    float v[TRI_GPU_EACH], dy[TRI_GPU_EACH];
    gpu_load_run(a.v, i, have, v);
    if (a.dy.data != 0) {
        gpu_load_run(a.dy, i, have, dy);
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        v[k] = a.dy.data == 0 ? gpu_map_value(a.op, v[k]) : dy[k] * gpu_map_slope(a.op, v[k]);
    }
    gpu_store_run(a.to, i, have, v);
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

/* A bitonic network over keys in memory. */
GPU_KERNEL(words_sort)
{
    uint64_t *const keys = a.keys + gpu_bx() * a.padded;
    const int32_t *const index = a.index + gpu_bx() * a.count;
    for (int64_t i = gpu_tx(); i < a.padded; i += gpu_nx()) {
        const int64_t word = i < a.count && index[i] >= 0 ? index[i] - a.first : -1;
        keys[i] = word >= 0 && word < a.words ? (uint64_t)(word + 1) << 32 | (uint64_t)i : ~(uint64_t)0;
    }
    gpu_sync();
    for (int64_t run = 2; run <= a.padded; run *= 2) {
        for (int64_t step = run / 2; step > 0; step /= 2) {
            for (int64_t i = gpu_tx(); i < a.padded / 2; i += gpu_nx()) {
                const int64_t low = i / step * 2 * step + i % step;
                const uint64_t x = keys[low], y = keys[low + step];
                if ((x > y) == ((low & run) == 0)) {
                    keys[low] = y;
                    keys[low + step] = x;
                }
            }
            gpu_sync();
        }
    }
}

GPU_KERNEL(words_sum)
{
    const int64_t i = gpu_thread_x() / 32, lane = gpu_tx() % 32;
    const int shard = gpu_by();
    const uint64_t *const keys = a.keys + shard * a.padded;
    if (i >= a.count || keys[i] == ~(uint64_t)0 || (i > 0 && keys[i - 1] >> 32 == keys[i] >> 32)) {
        return; /* the whole warp: no word begins here */
    }
    const uint64_t word = keys[i] >> 32;
    const int64_t place = (int64_t)word - 1 - a.first;
    if (place < 0 || place >= a.words) {
        return; /* the whole warp: another part of the table */
    }
    float *const leaf = a.leaves + (shard * a.words + place) * a.width;
    for (int64_t c = lane; c < a.width; c += 32) {
        float sum = 0;
        for (int64_t j = i; j < a.count && keys[j] >> 32 == word; j++) {
            sum += gpu_load(a.dy, (shard * a.count + (int64_t)(keys[j] & 0xffffffffu)) * a.width + c);
        }
        leaf[c] = sum;
    }
}
