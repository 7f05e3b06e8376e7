/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens.cu: what generation needs besides the kernels of training: tokens that stand anywhere in their sequences, and
 * attention over the keys and values that these have in the cache.
 *
 * A row of attention reads panels of 32 places from the first on: warp w has the panels w, w + 8, ... and a running
 * maximum; the warps' results are joined in order. So a row depends on its place and on what is before it alone, not on
 * how many rows come together. T places, D width.
 */
#include "kernel/gpu/math.h"

#define MOST_WARPS (TRI_GPU_THREADS / 32)
#define EACH_LANE  (TRI_GPU_HEAD / 32) /* elements of a row that a lane has */
#ifdef GPU_DEVICE
#define TWICE _Pragma("unroll 2") /* of four at a time ptxas spills one for sm_100 */
#else
#define TWICE
#endif

/* Element i of the first half of a head with element i of the second. */
GPU_KERNEL(token_rope)
{
    const int64_t p = gpu_thread_x();
    if (p < a.count) {
        const int i = (int)(p % a.half), head = (int)(p / a.half % a.heads);
        const int64_t row = p / a.half / a.heads, at = (row * a.heads + head) * 2 * a.half + i;
        const float x = a.from[at], y = a.from[at + a.half];
        float cosine, sine;
        gpu_turn((double)a.tokens.place[row] * a.frequency[i], &cosine, &sine);
        a.to[at] = head < a.turned ? gpu_fma(x, cosine, -(y * sine)) : x;
        a.to[at + a.half] = head < a.turned ? gpu_fma(y, cosine, x * sine) : y;
    }
}

GPU_KERNEL(token_positions)
{
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx();
        if (i < a.count) {
            a.y[i] = a.x[i] + a.table[a.tokens.place[i / a.width] * a.width + i % a.width];
        }
    }
}

/* Keys of a head in the cache of a sequence; its values are `keys` heads further. */
GPU_FN float *cache_head(const tri_gpu_cache *cache, int64_t sequence, int64_t head)
{
    return cache->data + sequence * cache->each + head * cache->places * cache->width;
}

GPU_KERNEL(cache_write)
{
    const int64_t i = gpu_thread_x(), width = a.cache.width;
    if (i < a.count) {
        const int64_t c = i % width, head = i / width % a.cache.keys, row = i / width / a.cache.keys;
        const int64_t at = (row * (a.queries + 2 * a.cache.keys) + a.queries + head) * width + c;
        const int64_t place = a.tokens.place[row], first = place / TRI_GPU_PANEL * TRI_GPU_PANEL;
        float *const keys = cache_head(&a.cache, a.tokens.sequence[row], head);
        float *const values = keys + a.cache.keys * a.cache.places * width;
        keys[first * width + c * TRI_GPU_PANEL + place - first] = a.x[at];
        values[place * width + c] = a.x[at + a.cache.keys * width];
    }
}

typedef struct cache_parts {
    float q[TRI_GPU_HEAD], mine[MOST_WARPS][TRI_GPU_HEAD], top[MOST_WARPS], sum[MOST_WARPS];
} cache_parts;

/* What a warp knows of the weights of its panels: their largest logarithm, their sum, the weighted sum of values. */
typedef struct cache_state {
    float top, sum, mine[EACH_LANE];
} cache_state;

/* Panel u0 .. of at most `count` places. */
GPU_FN void cache_panel(cache_state *state, const float *q, const float *keys, const float *values, int count,
                        int64_t width, float scale)
{
    const int lane = gpu_tx() % 32;
    float s = 0;
    for (int c = 0; c < (int)width; c++) {
        s = gpu_fma(q[c], keys[c * TRI_GPU_PANEL + lane], s);
    }
    s = lane < count ? s * scale : GPU_LEAST;
    const float most = gpu_larger(state->top, gpu_warp_max(s)), p = gpu_exp(s - most);
    const float shrink = gpu_exp(state->top - most);
    state->sum = state->sum * shrink + gpu_warp_sum(p);
    state->top = most;
    GPU_UNROLL
    for (int j = 0; j < EACH_LANE; j++) {
        state->mine[j] *= shrink;
    }
    TWICE
    for (int i = 0; i < count; i++) {
        const float weight = gpu_lane(p, i);
        GPU_UNROLL
        for (int j = 0; j < EACH_LANE; j++) {
            if (lane + 32 * j < width) {
                state->mine[j] = gpu_fma(weight, values[i * width + lane + 32 * j], state->mine[j]);
            }
        }
    }
}

GPU_KERNEL(cache_attention)
{
    GPU_SHARED(cache_parts, shared);
    const int tx = gpu_tx(), lane = tx % 32, warp = tx / 32, warps = gpu_nx() / 32;
    const int64_t row = gpu_bx(), head = gpu_by(), width = a.cache.width, places = a.tokens.place[row] + 1;
    const float *const q = a.x + (row * (a.queries + 2 * a.cache.keys) + head) * width;
    const float *const keys = cache_head(&a.cache, a.tokens.sequence[row], head / (a.queries / a.cache.keys));
    const float *const values = keys + a.cache.keys * a.cache.places * width;
    cache_state state = {GPU_LEAST, 0, {0}};
    if (tx < width) {
        shared->q[tx] = q[tx];
    }
    gpu_sync();
    for (int64_t u = (int64_t)warp * TRI_GPU_PANEL; u < places; u += (int64_t)warps * TRI_GPU_PANEL) {
        const int count = places - u < TRI_GPU_PANEL ? (int)(places - u) : TRI_GPU_PANEL;
        cache_panel(&state, shared->q, keys + u * width, values + u * width, count, width, a.scale);
    }
    GPU_UNROLL
    for (int j = 0; j < EACH_LANE; j++) {
        shared->mine[warp][lane + 32 * j] = state.mine[j];
    }
    if (lane == 0) {
        shared->top[warp] = state.top;
        shared->sum[warp] = state.sum;
    }
    gpu_sync();
    if (tx < width) {
        float top = shared->top[0], sum = 0, y = 0;
        for (int w = 1; w < warps; w++) {
            top = gpu_larger(top, shared->top[w]);
        }
        for (int w = 0; w < warps; w++) {
            const float shrink = gpu_exp(shared->top[w] - top); /* a warp without a panel: 0 */
            sum = gpu_fma(shared->sum[w], shrink, sum);
            y = gpu_fma(shared->mine[w][tx], shrink, y);
        }
        a.y[(row * a.queries + head) * width + tx] = y / sum;
    }
}
