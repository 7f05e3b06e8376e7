/* SPDX-License-Identifier: Apache-2.0
 *
 * loss.cu: losses over words, a part of the vocabulary at a time, and mean squared errors.
 */
#include "kernel/gpu/math.h"

GPU_FN int64_t loss_row(void)
{
    return (int64_t)gpu_bx() * (gpu_nx() / 32) + gpu_tx() / 32;
}

/* tensor/label.h: two classes and the weight of the first. */
typedef struct loss_label {
    int64_t first, second, main;
    float weight;
    int counts; /* both are among the words */
} loss_label;

GPU_FN loss_label loss_label_read(int32_t target, int mixes, int64_t words)
{
    loss_label label;
    label.first = label.second = target;
    label.weight = 1.0f;
    if (mixes && target >= 1 << 30) {
        label.first = target & 1023;
        label.second = target >> 10 & 1023;
        label.weight = (float)(target >> 20 & 1023) / 1024.0f;
    }
    label.main = label.weight >= 0.5f ? label.first : label.second;
    label.counts = label.first >= 0 && label.first < words && label.second < words;
    return label;
}

/* Logit of a word, 0 where it is not in this part. */
GPU_FN float loss_logit(tri_gpu_value logits, int64_t row, int64_t width, int64_t word)
{
    return word >= 0 && word < width ? gpu_load(logits, row + word) : 0.0f;
}

/* Of a lane's logits: the largest, that before the label's, sums of exponentials below the largest and of all. */
typedef struct loss_lane {
    float top, before, sum, total;
} loss_lane;

/* What exponentials are taken below: any finite number where there is no logit yet. */
GPU_FN float loss_below(float top)
{
    return top == GPU_LEAST ? 0.0f : top;
}

/* The same array; its type is a constant where `type` is. */
GPU_FN tri_gpu_value loss_typed(tri_gpu_value logits, const int type)
{
    logits.type = type;
    return logits;
}

/* In one pass: earlier sums shrink where a larger logit comes. type: that of logits, a constant. */
GPU_FN loss_lane loss_read_as(tri_gpu_value logits, int64_t row, int64_t width, int64_t here, const int type)
{
    loss_lane l = {GPU_LEAST, GPU_LEAST, 0, 0};
    for (int64_t v = gpu_tx() % 32 * TRI_GPU_EACH; v < width; v += 32 * TRI_GPU_EACH) {
        const float last = l.top;
        float x[TRI_GPU_EACH], most = GPU_LEAST;
        gpu_load_run(loss_typed(logits, type), row + v, width - v, x);
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            l.total += x[k];
        }
        if (v + TRI_GPU_EACH > width) {
            GPU_UNROLL
            for (int k = 0; k < TRI_GPU_EACH; k++) {
                x[k] = v + k < width ? x[k] : GPU_LEAST;
            }
        }
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            most = gpu_most(most, x[k]);
        }
        l.top = gpu_most(l.top, most);
        if (v + TRI_GPU_EACH <= here) {
            l.before = gpu_most(l.before, most);
        } else if (v < here) {
            GPU_UNROLL
            for (int k = 0; k < TRI_GPU_EACH; k++) {
                l.before = v + k < here ? gpu_most(l.before, x[k]) : l.before;
            }
        }
        l.sum *= gpu_exp_below(last - loss_below(l.top));
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            l.sum += gpu_exp_below(x[k] - loss_below(l.top));
        }
    }
    return l;
}

GPU_FN loss_lane loss_read(tri_gpu_value logits, int64_t row, int64_t width, int64_t here)
{
    return logits.type == TRI_GPU_F32    ? loss_read_as(logits, row, width, here, TRI_GPU_F32)
           : logits.type == TRI_GPU_BF16 ? loss_read_as(logits, row, width, here, TRI_GPU_BF16)
                                         : loss_read_as(logits, row, width, here, TRI_GPU_F16);
}

GPU_KERNEL(words_state)
{
    const int64_t r = loss_row();
    const int lane = gpu_tx() % 32;
    if (r >= a.rows) {
        return;
    }
    const loss_label label = loss_label_read(a.targets[r], a.mixes, a.words);
    const int64_t here = label.main - a.first, row = r * a.width;
    const int counts = r % a.each < a.valid[r / a.each] && label.counts;
    tri_gpu_word_state *const state = &a.state[r];
    if (!counts) { /* the whole warp */
        if (lane == 0) {
            state->top = state->sum = state->right = state->before = state->total = state->main = 0;
        }
        return;
    }
    const loss_lane l = loss_read(a.logits, row, a.width, here);
    const float top = gpu_warp_max(l.top), before = gpu_warp_max(l.before), total = gpu_warp_sum(l.total);
    const float sum = gpu_warp_sum(l.sum * gpu_exp_below(l.top - loss_below(top)));
    if (lane == 0) {
        const float left = loss_logit(a.logits, row, a.width, label.first - a.first);
        const float other = loss_logit(a.logits, row, a.width, label.second - a.first);
        const float right = label.weight * left + (1.0f - label.weight) * other;
        const float main = loss_logit(a.logits, row, a.width, here);
        if (a.begins) {
            state->top = top;
            state->sum = sum;
            state->right = right;
            state->main = main;
            state->before = before;
            state->total = total;
        } else {
            const float most = gpu_larger(state->top, top);
            state->sum = state->sum * gpu_exp(state->top - most) + sum * gpu_exp(top - most);
            state->top = most;
            state->right += right;
            state->main += main;
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
        const int64_t row = shard * a.each + r;
        const tri_gpu_word_state s = a.state[row];
        float log_sum = 0;
        if (r < a.valid[shard] && loss_label_read(a.targets[row], a.mixes, a.words).counts) {
            log_sum = s.top + gpu_log(s.sum);
            /* without smoothing a logit that became minus infinity in f16 counts for nothing */
            const float even = a.smoothing > 0.0f ? a.smoothing * (log_sum - s.total / (float)a.words) : 0.0f;
            loss += (1.0f - a.smoothing) * (log_sum - s.right) + even;
            weight += 1.0f;
            right += s.main >= s.top && !(s.before >= s.main) ? 1.0f : 0.0f;
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

/* What is taken off the softmax of a word, before smoothing. */
GPU_FN float loss_share(loss_label label, int64_t word)
{
    return (word == label.first ? label.weight : 0.0f) + (word == label.second ? 1.0f - label.weight : 0.0f);
}

/* A row that counts; type: that of logits, a constant. */
GPU_FN void slope_write(const tri_gpu_words_slope_args *a, loss_label label, int64_t r, const int type)
{
    const float even = a->smoothing / (float)a->words, rest = 1.0f - a->smoothing, log_sum = a->log_sums[r];
    /* where the neighbours of both classes begin */
    const int64_t first = (label.first - a->first) & -TRI_GPU_EACH, second = (label.second - a->first) & -TRI_GPU_EACH;
    for (int64_t v = gpu_tx() % 32 * TRI_GPU_EACH; v < a->width; v += 32 * TRI_GPU_EACH) {
        float x[TRI_GPU_EACH];
        gpu_load_run(loss_typed(a->logits, type), r * a->width + v, a->width - v, x);
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            x[k] = gpu_exp_below(x[k] - log_sum);
        }
        if (v == first || v == second) {
            GPU_UNROLL
            for (int k = 0; k < TRI_GPU_EACH; k++) {
                x[k] -= even + loss_share(label, v + k + a->first) * rest;
            }
        } else {
            GPU_UNROLL
            for (int k = 0; k < TRI_GPU_EACH; k++) {
                x[k] -= even;
            }
        }
        GPU_UNROLL
        for (int k = 0; k < TRI_GPU_EACH; k++) {
            x[k] *= a->factor;
        }
        gpu_store_run(loss_typed(a->to, type), r * a->width + v, a->width - v, x);
    }
}

/* One that does not. */
GPU_FN void slope_clear(const tri_gpu_words_slope_args *a, int64_t r)
{
    const float zeros[TRI_GPU_EACH] = {0};
    for (int64_t v = gpu_tx() % 32 * TRI_GPU_EACH; v < a->width; v += 32 * TRI_GPU_EACH) {
        gpu_store_run(a->to, r * a->width + v, a->width - v, zeros);
    }
}

GPU_KERNEL(words_slope)
{
    const int64_t r = loss_row();
    if (r >= a.rows) {
        return;
    }
    const loss_label label = loss_label_read(a.targets[r], a.mixes, a.words);
    if (r % a.each >= a.valid[r / a.each] || !label.counts) {
        slope_clear(&a, r);
    } else if (a.logits.type == TRI_GPU_F32) {
        slope_write(&a, label, r, TRI_GPU_F32);
    } else if (a.logits.type == TRI_GPU_BF16) {
        slope_write(&a, label, r, TRI_GPU_BF16);
    } else {
        slope_write(&a, label, r, TRI_GPU_F16);
    }
}

/* Top, sum, right, before, total; either order of the parts gives the same bits. */
GPU_KERNEL(words_join)
{
    const int64_t r = gpu_thread_x();
    if (r < a.rows) {
        const float *const x = a.left + TRI_GPU_VOCAB_STATE * r, *const y = a.right + TRI_GPU_VOCAB_STATE * r;
        float *const out = a.out + TRI_GPU_VOCAB_STATE * r;
        const float top = gpu_larger(x[0], y[0]);
        out[1] = x[1] * gpu_exp(x[0] - top) + y[1] * gpu_exp(y[0] - top);
        out[0] = top;
        out[2] = x[2] + y[2];
        out[3] = gpu_larger(x[3], y[3]);
        out[4] = x[4] + y[4];
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
