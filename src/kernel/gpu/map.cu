/* SPDX-License-Identifier: Apache-2.0
 *
 * map.cu: activations, add and mul, dropout, bias, SwiGLU, rope, and ops that only move elements.
 */
#include "kernel/gpu/math.h"
#include "kernel/gpu/philox.h"

GPU_KERNEL(map)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count) {
            const float v = gpu_load(a.v, i);
            gpu_store(a.to, i, a.dy.data == 0 ? gpu_map_value(a.op, v) : gpu_load(a.dy, i) * gpu_map_slope(a.op, v));
        }
    }
}

GPU_KERNEL(relu_cut)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count && !(gpu_load(a.y, i) > 0.0f)) {
            gpu_store(a.dy, i, 0.0f);
        }
    }
}

/* Element of b beside element i. */
GPU_FN int64_t pair_other(int64_t i, int64_t each, int64_t sample)
{
    return sample > 0 ? i / each * sample + i % each % sample : i;
}

GPU_KERNEL(pair)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count) {
            const float x = gpu_load(a.a, i), other = gpu_load(a.b, pair_other(i, a.each, a.sample));
            const float v = a.multiplies ? x * other : x + other;
            gpu_store(a.y, i, a.relu && v < 0.0f ? 0.0f : v);
        }
    }
}

GPU_FN float pair_slope(const tri_gpu_pair_back_args *a, int64_t i)
{
    return a->relu && !(gpu_load(a->y, i) > 0.0f) ? 0.0f : gpu_load(a->dy, i);
}

GPU_KERNEL(pair_back)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i >= a.count) {
            continue;
        }
        const float g = pair_slope(&a, i);
        const float left = a.multiplies ? g * gpu_load(a.b, pair_other(i, a.each, a.sample)) : g;
        if (a.db.data != 0 && a.sample == 0) {
            gpu_store(a.db, i, a.multiplies ? g * gpu_load(a.a, i) : g);
        }
        if (a.da.data != 0) {
            gpu_store(a.da, i, left);
        }
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
    const int64_t each = a.samples * a.per_sample;
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < each) {
            const uint64_t sample = (uint64_t)(a.first_sample[shard] + i / a.per_sample);
            const uint64_t number = sample * (uint64_t)a.whole + (uint64_t)(a.first + i % a.per_sample);
            const int64_t at = shard * each + i;
            const float keep = gpu_uniform(a.seed, a.stream, number) >= a.rate ? a.scale : 0.0f;
            gpu_store(a.to, at, keep > 0.0f ? gpu_load(a.from, at) * keep : 0.0f);
        }
    }
}

GPU_KERNEL(bias)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count) {
            gpu_store(a.y, i, gpu_load(a.x, i) + a.b[i % a.width]);
        }
    }
}

GPU_KERNEL(swiglu)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count) {
            const int64_t at = i / a.width * 2 * a.width + i % a.width;
            const float gate = gpu_load(a.x, at);
            gpu_store(a.y, i, gate * gpu_sigmoid(gate) * gpu_load(a.x, at + a.width));
        }
    }
}

GPU_KERNEL(swiglu_back)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count) {
            const int64_t at = i / a.width * 2 * a.width + i % a.width;
            const float gate = gpu_load(a.x, at), up = gpu_load(a.x, at + a.width), dy = gpu_load(a.dy, i);
            const float s = gpu_sigmoid(gate);
            gpu_store(a.dx, at, dy * up * s * (1.0f + gate * (1.0f - s)));
            gpu_store(a.dx, at + a.width, dy * gate * s);
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
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.width * a.outer) {
            const int64_t o = i / a.width, j = i % a.width;
            gpu_store(a.to, a.to_first + o * a.to_stride + j, gpu_load(a.from, a.from_first + o * a.from_stride + j));
        }
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
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count) {
            const int32_t index = a.index[i / a.width];
            const int64_t word = index - a.first;
            const int there = index >= 0 && word >= 0 && word < a.words;
            gpu_store(a.y, i, there ? gpu_load(a.table, word * a.width + i % a.width) : 0.0f);
        }
    }
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
