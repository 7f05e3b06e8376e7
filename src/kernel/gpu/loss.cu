/* SPDX-License-Identifier: Apache-2.0
 *
 * loss.cu: losses over words, a part of the vocabulary at a time, and mean squared errors.
 */
#include "kernel/gpu/math.h"

GPU_FN int64_t loss_row(void)
{
    return (int64_t)gpu_bx() * (gpu_nx() / 32) + gpu_tx() / 32;
}

GPU_KERNEL(words_state)
{
    const int64_t r = loss_row();
    const int lane = gpu_tx() % 32;
    if (r >= a.rows) {
        return;
    }
    const int64_t target = a.targets[r], here = target - a.first;
    const int counts = r % a.each < a.valid[r / a.each] && target >= 0 && target < a.words;
    tri_gpu_word_state *const state = &a.state[r];
    float top = GPU_LEAST, before = GPU_LEAST, sum = 0, total = 0;
    if (!counts) { /* the whole warp */
        if (lane == 0) {
            state->top = state->sum = state->right = state->before = state->total = 0;
        }
        return;
    }
    for (int64_t v = lane; v < a.width; v += 32) {
        const float x = gpu_load(a.logits, r * a.width + v);
        top = gpu_larger(top, x);
        before = v < here ? gpu_larger(before, x) : before;
        total += x;
    }
    top = gpu_warp_max(top);
    before = gpu_warp_max(before);
    total = gpu_warp_sum(total);
    for (int64_t v = lane; v < a.width; v += 32) {
        sum += gpu_exp(gpu_load(a.logits, r * a.width + v) - top);
    }
    sum = gpu_warp_sum(sum);
    if (lane == 0) {
        const float right = here >= 0 && here < a.width ? gpu_load(a.logits, r * a.width + here) : 0.0f;
        if (a.begins) {
            state->top = top;
            state->sum = sum;
            state->right = right;
            state->before = before;
            state->total = total;
        } else {
            const float most = gpu_larger(state->top, top);
            state->sum = state->sum * gpu_exp(state->top - most) + sum * gpu_exp(top - most);
            state->top = most;
            state->right += right;
            state->before = gpu_larger(state->before, before);
            state->total += total;
        }
    }
}

typedef struct loss_sums {
    float part[32];
} loss_sums;

GPU_KERNEL(words_loss)
{
    GPU_SHARED(loss_sums, shared);
    const int shard = gpu_bx();
    float loss = 0, weight = 0, right = 0;
    for (int64_t r = gpu_tx(); r < a.each; r += gpu_nx()) {
        const int64_t row = shard * a.each + r, target = a.targets[row];
        const tri_gpu_word_state s = a.state[row];
        float log_sum = 0;
        if (r < a.valid[shard] && target >= 0 && target < a.words) {
            log_sum = s.top + gpu_log(s.sum);
            loss += (1.0f - a.smoothing) * (log_sum - s.right) + a.smoothing * (log_sum - s.total / (float)a.words);
            weight += 1.0f;
            right += s.right >= s.top && !(s.before >= s.right) ? 1.0f : 0.0f;
        }
        a.log_sums[row] = log_sum;
    }
    loss = gpu_block_sum(loss, shared->part);
    weight = gpu_block_sum(weight, shared->part);
    right = gpu_block_sum(right, shared->part);
    if (gpu_tx() == 0) {
        float *const out = a.out + 4 * shard;
        out[0] = loss;
        out[1] = weight;
        out[2] = right;
        out[3] = 0;
    }
}

GPU_KERNEL(words_slope)
{
    const int64_t r = loss_row();
    const int lane = gpu_tx() % 32;
    if (r >= a.rows) {
        return;
    }
    const int64_t target = a.targets[r];
    const int counts = r % a.each < a.valid[r / a.each] && target >= 0 && target < a.words;
    const float even = a.smoothing / (float)a.words, log_sum = a.log_sums[r];
    for (int64_t v = lane; v < a.width; v += 32) {
        const int64_t i = r * a.width + v;
        const float wanted = even + (v + a.first == target ? 1.0f - a.smoothing : 0.0f);
        gpu_store(a.to, i, counts ? (gpu_exp(gpu_load(a.logits, i) - log_sum) - wanted) * a.factor : 0.0f);
    }
}

GPU_KERNEL(mse)
{
    GPU_SHARED(loss_sums, shared);
    const int shard = gpu_bx();
    float loss = 0, absolute = 0;
    for (int64_t i = gpu_tx(); i < a.valid[shard]; i += gpu_nx()) {
        const float e = gpu_load(a.x, shard * a.each + i) - gpu_load(a.t, shard * a.each + i);
        loss += e * e;
        absolute += gpu_abs(e);
    }
    loss = gpu_block_sum(loss, shared->part);
    absolute = gpu_block_sum(absolute, shared->part);
    if (gpu_tx() == 0) {
        float *const out = a.out + 4 * shard;
        out[0] = loss;
        out[1] = (float)a.valid[shard];
        out[2] = 0;
        out[3] = absolute;
    }
}

GPU_KERNEL(mse_back)
{
    const int shard = gpu_by();
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        const int64_t i = gpu_first() + (int64_t)k * gpu_nx(), at = shard * a.each + i;
        if (i < a.each) {
            const float e = gpu_load(a.x, at) - gpu_load(a.t, at);
            const float g = i < a.valid[shard] ? 2.0f * e * a.factor : 0.0f;
            if (a.dx.data != 0) {
                gpu_store(a.dx, at, g);
            }
            if (a.dt.data != 0) {
                gpu_store(a.dt, at, -g);
            }
        }
    }
}
