/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_half.cu: causal attention of values of 16 bits by tensor cores: heads of a multiple of 16 elements, up to
 * 64 or up to 128.
 *
 * A warp has 16 rows: of queries, and of keys in attention_dkv. Their factors stay in registers, those of the other
 * side come through shared memory; weights go from one product to the next in registers, rounded to 16 bits. Fragments
 * as gemm.cu has them: g = lane / 4 is a row, t = lane % 4 a pair of columns. D elements of a head that there is room
 * for: a constant, so that all loops over it unroll.
 */
#include "kernel/gpu/attention.h"

#define KEYS 64 /* of a tile, forward */
#define SOME 32 /* keys or queries of a tile, backward */

/* Words of a row, and of a column of `count` elements: fragments meet no bank twice. */
#define ROW_WORDS(d)        ((d) / 2 + 4)
#define COLUMN_WORDS(count) ((count) / 2 + 4)

/* Rows of one head in memory: row r begins at element base + r * stride; zeros from `length` on. */
typedef struct head_rows {
    tri_gpu_value value;
    int64_t base, stride, length;
    int width;
} head_rows;

GPU_FN gpu_quad head_quad(const head_rows *h, int64_t row, int column)
{
    gpu_quad quad = {{0, 0, 0, 0}};
    return row < h->length ? gpu_load_quad(h->value, h->base + row * h->stride + column) : quad;
}

/* `count` rows from `first` on, as pairs along a row. */
GPU_FN void head_fill(uint32_t *tile, int words, const head_rows *h, int64_t first, int count)
{
    const int quads = h->width / 8;
    for (int i = gpu_tx(); i < count * quads; i += gpu_nx()) {
        *(gpu_quad *)(tile + i / quads * words + i % quads * 4) = head_quad(h, first + i / quads, i % quads * 8);
    }
}

/* The same turned: element e of all rows is a row of the tile, of pairs along the rows. */
GPU_FN void head_turn(uint32_t *tile, int words, const head_rows *h, int64_t first, int count)
{
    for (int i = gpu_tx(); i < count / 2 * (h->width / 8); i += gpu_nx()) {
        const int pair = i % (count / 2), e = i / (count / 2) * 8;
        const gpu_quad a = head_quad(h, first + 2 * pair, e), b = head_quad(h, first + 2 * pair + 1, e);
        GPU_UNROLL
        for (int w = 0; w < 4; w++) {
            tile[(e + 2 * w) * words + pair] = (a.word[w] & 0xffffu) | b.word[w] << 16;
            tile[(e + 2 * w + 1) * words + pair] = a.word[w] >> 16 | (b.word[w] & 0xffff0000u);
        }
    }
}

/* Left factors of a warp's 16 rows from `first` on. */
GPU_FN void head_left(uint32_t left[TRI_GPU_HEAD / 16][4], const head_rows *h, int64_t first, const int most)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    GPU_UNROLL
    for (int k = 0; k < most / 16; k++) {
        GPU_UNROLL
        for (int r = 0; r < 4; r++) {
            const int64_t row = first + g + r % 2 * 8;
            const int column = 16 * k + 2 * t + r / 2 * 8;
            left[k][r] = row < h->length && column < h->width
                             ? ((const uint32_t *)h->value.data)[(h->base + row * h->stride + column) / 2]
                             : 0;
        }
    }
}

/* sum[j] += left times the rows of a tile, over the elements of a head; j: 8 rows each. */
GPU_FN void head_scores(float sum[KEYS / 8][4], int type, uint32_t left[TRI_GPU_HEAD / 16][4], const uint32_t *tile,
                        int width, const int most, const int rows)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    uint32_t right[2];
    GPU_UNROLL
    for (int k = 0; k < most / 16; k++) {
        if (16 * k < width) {
            GPU_UNROLL
            for (int j = 0; j < rows / 8; j++) {
                right[0] = tile[(8 * j + g) * ROW_WORDS(most) + 8 * k + t];
                right[1] = tile[(8 * j + g) * ROW_WORDS(most) + 8 * k + t + 4];
                gpu_mma(type, sum[j], left[k], right);
            }
        }
    }
}

/* out[j] += weights times a turned tile, over its rows; weights: what head_scores() made room for. */
GPU_FN void head_weigh(float out[TRI_GPU_HEAD / 8][4], int type, float weight[KEYS / 8][4], const uint32_t *tile,
                       int width, const int most, const int rows)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    uint32_t left[4], right[2];
    GPU_UNROLL
    for (int k = 0; k < rows / 16; k++) {
        GPU_UNROLL
        for (int r = 0; r < 4; r++) {
            left[r] = gpu_pair(weight[2 * k + r / 2][r % 2 * 2], weight[2 * k + r / 2][r % 2 * 2 + 1], type);
        }
        GPU_UNROLL
        for (int j = 0; j < most / 8; j++) {
            if (8 * j < width) {
                right[0] = tile[(8 * j + g) * COLUMN_WORDS(rows) + 8 * k + t];
                right[1] = tile[(8 * j + g) * COLUMN_WORDS(rows) + 8 * k + t + 4];
                gpu_mma(type, out[j], left, right);
            }
        }
    }
}

/* A warp's rows, times a factor of rows g and g + 8. */
GPU_FN void head_write(const head_rows *h, int64_t first, float out[TRI_GPU_HEAD / 8][4], const float factor[2],
                       const int most)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    GPU_UNROLL
    for (int j = 0; j < most / 8; j++) {
        GPU_UNROLL
        for (int r = 0; r < 2; r++) {
            const int64_t row = first + g + 8 * r;
            if (8 * j < h->width && row < h->length) {
                ((uint32_t *)h->value.data)[(h->base + row * h->stride + 8 * j + 2 * t) / 2] =
                    gpu_pair(out[j][2 * r] * factor[r], out[j][2 * r + 1] * factor[r], h->value.type);
            }
        }
    }
}

/* Over the four lanes of a row. */
GPU_FN float head_row_sum(float v)
{
    v += gpu_xor(v, 1);
    return v + gpu_xor(v, 2);
}

GPU_FN float head_row_max(float v)
{
    v = gpu_larger(v, gpu_xor(v, 1));
    return gpu_larger(v, gpu_xor(v, 2));
}

/* Rows of queries, or from `at` of keys or values, of one sample. */
GPU_FN head_rows head_input(const tri_gpu_attention_args *a, tri_gpu_value value, int64_t sample, int64_t at)
{
    head_rows h;
    h.value = value;
    h.base = sample * a->length * a->stride + at;
    h.stride = a->stride;
    h.length = a->length;
    h.width = (int)a->width;
    return h;
}

/* Rows of y or dy. */
GPU_FN head_rows head_output(const tri_gpu_attention_args *a, tri_gpu_value value, int64_t sample, int64_t head)
{
    head_rows h;
    h.value = value;
    h.base = (sample * a->length * a->queries + head) * a->width;
    h.stride = a->queries * a->width;
    h.length = a->length;
    h.width = (int)a->width;
    return h;
}

/* Scores become weights; top and sum of the rows so far go on. Returns what earlier sums shrink by. */
GPU_FN void head_softmax(const tri_gpu_attention_args *a, float s[KEYS / 8][4], int64_t first, int64_t u0, float top[2],
                         float sum[2], float shrink[2])
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        const int64_t row = first + g + 8 * r;
        float most = top[r], added = 0;
        GPU_UNROLL
        for (int i = 0; i < KEYS / 4; i++) {
            float *const score = &s[i / 2][2 * r + i % 2];
            *score = u0 + 8 * (i / 2) + 2 * t + i % 2 <= row ? *score * a->scale : GPU_LEAST;
            most = gpu_larger(most, *score);
        }
        most = head_row_max(most);
        GPU_UNROLL
        for (int i = 0; i < KEYS / 4; i++) {
            float *const score = &s[i / 2][2 * r + i % 2];
            const float p = gpu_exp(*score - most);
            added += p;
            *score = p * attention_keep(a, gpu_bz(), gpu_by(), row, u0 + 8 * (i / 2) + 2 * t + i % 2);
        }
        shrink[r] = gpu_exp(top[r] - most);
        sum[r] = sum[r] * shrink[r] + head_row_sum(added);
        top[r] = most;
    }
}

/* k, v: tiles of KEYS rows, and turned. */
GPU_FN void head_forward(const tri_gpu_attention_args *a, uint32_t *k, uint32_t *v, const int most)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4, type = a->x.type;
    const int64_t head = gpu_by(), sample = gpu_bz(), t0 = (int64_t)gpu_bx() * (gpu_nx() / 2);
    const int64_t first = t0 + gpu_tx() / 32 * 16, key = attention_key(a, head);
    const head_rows queries = head_input(a, a->x, sample, head * a->width), keys = head_input(a, a->x, sample, key);
    const head_rows values = head_input(a, a->x, sample, key + a->keys * a->width);
    const head_rows y = head_output(a, a->y, sample, head);
    uint32_t q[TRI_GPU_HEAD / 16][4];
    float out[TRI_GPU_HEAD / 8][4] = {{0}}, top[2] = {GPU_LEAST, GPU_LEAST}, sum[2] = {0, 0}, shrink[2];
    head_left(q, &queries, first, most);
    for (int64_t u0 = 0; u0 < t0 + gpu_nx() / 2 && u0 < a->length; u0 += KEYS) {
        head_fill(k, ROW_WORDS(most), &keys, u0, KEYS);
        head_turn(v, COLUMN_WORDS(KEYS), &values, u0, KEYS);
        gpu_sync();
        if (u0 <= first + 15) { /* the whole warp: some row sees some key */
            float s[KEYS / 8][4] = {{0}};
            head_scores(s, type, q, k, (int)a->width, most, KEYS);
            head_softmax(a, s, first, u0, top, sum, shrink);
            GPU_UNROLL
            for (int i = 0; i < most / 2; i++) {
                out[i / 4][i % 4] *= shrink[i % 4 / 2];
            }
            head_weigh(out, type, s, v, (int)a->width, most, KEYS);
        }
        gpu_sync();
    }
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        const int64_t row = first + g + 8 * r;
        if (t == 0 && row < a->length && a->lse != 0) {
            a->lse[(sample * a->length + row) * a->queries + head] = top[r] + gpu_log(sum[r]);
        }
        sum[r] = 1.0f / sum[r];
    }
    head_write(&y, first, out, sum, most);
}

/* k, v, turned: tiles of SOME keys. */
GPU_FN void head_back_queries(const tri_gpu_attention_dq_args *a, uint32_t *k, uint32_t *v, uint32_t *turned,
                              const int most)
{
    const tri_gpu_attention_args *const f = &a->forward;
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4, type = f->x.type, width = (int)f->width;
    const int64_t head = gpu_by(), sample = gpu_bz(), t0 = (int64_t)gpu_bx() * (gpu_nx() / 2);
    const int64_t first = t0 + gpu_tx() / 32 * 16, key = attention_key(f, head);
    const head_rows queries = head_input(f, f->x, sample, head * f->width), keys = head_input(f, f->x, sample, key);
    const head_rows values = head_input(f, f->x, sample, key + f->keys * f->width);
    const head_rows gradient = head_output(f, a->dy, sample, head), dx = head_input(f, a->dx, sample, head * f->width);
    const float whole[2] = {1, 1};
    uint32_t q[TRI_GPU_HEAD / 16][4], dy[TRI_GPU_HEAD / 16][4];
    float out[TRI_GPU_HEAD / 8][4] = {{0}}, lse[2], dot[2];
    head_left(q, &queries, first, most);
    head_left(dy, &gradient, first, most);
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        const int64_t row = first + g + 8 * r, at = (sample * f->length + row) * f->queries + head;
        lse[r] = row < f->length ? f->lse[at] : 0.0f;
        dot[r] = row < f->length ? a->dot[at] : 0.0f;
    }
    for (int64_t u0 = 0; u0 < t0 + gpu_nx() / 2 && u0 < f->length; u0 += SOME) {
        head_fill(k, ROW_WORDS(most), &keys, u0, SOME);
        head_fill(v, ROW_WORDS(most), &values, u0, SOME);
        head_turn(turned, COLUMN_WORDS(SOME), &keys, u0, SOME);
        gpu_sync();
        if (u0 <= first + 15) { /* the whole warp */
            float s[KEYS / 8][4] = {{0}}, dp[KEYS / 8][4] = {{0}};
            head_scores(s, type, q, k, width, most, SOME);
            head_scores(dp, type, dy, v, width, most, SOME);
            GPU_UNROLL
            for (int i = 0; i < SOME / 2; i++) {
                const int r = i % 4 / 2;
                const int64_t row = first + g + 8 * r, u = u0 + 8 * (i / 4) + 2 * t + i % 2;
                const float p = u <= row ? gpu_exp(s[i / 4][i % 4] * f->scale - lse[r]) : 0.0f;
                const float slope = dp[i / 4][i % 4] * attention_keep(f, sample, head, row, u) - dot[r];
                s[i / 4][i % 4] = p * slope * f->scale;
            }
            head_weigh(out, type, s, turned, width, most, SOME);
        }
        gpu_sync();
    }
    head_write(&dx, first, out, whole, most);
}

/* Logarithms and products of a tile's queries. */
typedef struct head_figures {
    float lse[SOME], dot[SOME];
} head_figures;

/* Weights of 16 keys for SOME queries: of the values (keeps), or their gradients. */
GPU_FN void head_key_weights(const tri_gpu_attention_args *f, float s[KEYS / 8][4], float dp[KEYS / 8][4],
                             const head_figures *figures, int64_t head, int64_t first, int64_t t0, int slopes)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    GPU_UNROLL
    for (int i = 0; i < SOME / 2; i++) {
        const int column = 8 * (i / 4) + 2 * t + i % 2;
        const int64_t u = first + g + 8 * (i % 4 / 2), row = t0 + column;
        const float keep = attention_keep(f, gpu_bz(), head, row, u);
        const float p = row < f->length && u <= row ? gpu_exp(s[i / 4][i % 4] * f->scale - figures->lse[column]) : 0.0f;
        s[i / 4][i % 4] = slopes ? p * (dp[i / 4][i % 4] * keep - figures->dot[column]) * f->scale : p * keep;
    }
}

/* The first half of the warps has the gradients of values, the second those of keys: both at once need more registers
 * than there are. q, dy: tiles of SOME queries; turned ones beside them. */
GPU_FN void head_back_keys(const tri_gpu_attention_dq_args *a, uint32_t *q, uint32_t *dy, uint32_t *q_turned,
                           uint32_t *dy_turned, head_figures *figures, const int most)
{
    const tri_gpu_attention_args *const f = &a->forward;
    const int type = f->x.type, width = (int)f->width, rows = gpu_nx() / 4, slopes = gpu_tx() >= gpu_nx() / 2;
    const int64_t sample = gpu_bz(), u0 = (int64_t)gpu_bx() * rows, group = f->queries / f->keys;
    const int64_t first = u0 + gpu_tx() / 32 * 16 % rows, begin = gpu_by() * group, key = attention_key(f, begin);
    const int64_t value = key + f->keys * f->width;
    const head_rows keys = head_input(f, f->x, sample, key), values = head_input(f, f->x, sample, value);
    const head_rows dx = head_input(f, a->dx, sample, slopes ? key : value);
    const float whole[2] = {1, 1};
    uint32_t k[TRI_GPU_HEAD / 16][4], v[TRI_GPU_HEAD / 16][4];
    float out[TRI_GPU_HEAD / 8][4] = {{0}};
    head_left(k, &keys, first, most);
    head_left(v, &values, first, most);
    for (int64_t head = begin; head < begin + group; head++) {
        const head_rows queries = head_input(f, f->x, sample, head * f->width);
        const head_rows gradient = head_output(f, a->dy, sample, head);
        for (int64_t t0 = u0; t0 < f->length; t0 += SOME) {
            head_fill(q, ROW_WORDS(most), &queries, t0, SOME);
            head_fill(dy, ROW_WORDS(most), &gradient, t0, SOME);
            head_turn(q_turned, COLUMN_WORDS(SOME), &queries, t0, SOME);
            head_turn(dy_turned, COLUMN_WORDS(SOME), &gradient, t0, SOME);
            if (gpu_tx() < SOME) {
                const int64_t row = t0 + gpu_tx(), at = (sample * f->length + row) * f->queries + head;
                figures->lse[gpu_tx()] = row < f->length ? f->lse[at] : 0.0f;
                figures->dot[gpu_tx()] = row < f->length ? a->dot[at] : 0.0f;
            }
            gpu_sync();
            if (first <= t0 + SOME - 1) { /* the whole warp */
                float s[KEYS / 8][4] = {{0}}, dp[KEYS / 8][4] = {{0}};
                head_scores(s, type, k, q, width, most, SOME);
                if (slopes) {
                    head_scores(dp, type, v, dy, width, most, SOME);
                }
                head_key_weights(f, s, dp, figures, head, first, t0, slopes);
                head_weigh(out, type, s, slopes ? q_turned : dy_turned, width, most, SOME);
            }
            gpu_sync();
        }
    }
    head_write(&dx, first, out, whole, most);
}

#define ATTENTION_OF(d)                                                                                                \
    typedef struct attention_tiles_##d {                                                                               \
        gpu_quad k[KEYS * ROW_WORDS(d) / 4], v[d * COLUMN_WORDS(KEYS) / 4];                                            \
    } attention_tiles_##d;                                                                                             \
    GPU_KERNEL(attention_##d)                                                                                          \
    {                                                                                                                  \
        GPU_SHARED(attention_tiles_##d, shared);                                                                       \
        head_forward(&a, (uint32_t *)shared->k, (uint32_t *)shared->v, d);                                             \
    }                                                                                                                  \
    typedef struct attention_dq_tiles_##d {                                                                            \
        gpu_quad k[SOME * ROW_WORDS(d) / 4], v[SOME * ROW_WORDS(d) / 4], turned[d * COLUMN_WORDS(SOME) / 4];           \
    } attention_dq_tiles_##d;                                                                                          \
    GPU_KERNEL(attention_dq_##d)                                                                                       \
    {                                                                                                                  \
        GPU_SHARED(attention_dq_tiles_##d, shared);                                                                    \
        head_back_queries(&a, (uint32_t *)shared->k, (uint32_t *)shared->v, (uint32_t *)shared->turned, d);            \
    }                                                                                                                  \
    typedef struct attention_dkv_tiles_##d {                                                                           \
        gpu_quad q[SOME * ROW_WORDS(d) / 4], dy[SOME * ROW_WORDS(d) / 4];                                              \
        gpu_quad q_turned[d * COLUMN_WORDS(SOME) / 4], dy_turned[d * COLUMN_WORDS(SOME) / 4];                          \
        head_figures figures;                                                                                          \
    } attention_dkv_tiles_##d;                                                                                         \
    GPU_KERNEL(attention_dkv_##d)                                                                                      \
    {                                                                                                                  \
        GPU_SHARED(attention_dkv_tiles_##d, shared);                                                                   \
        head_back_keys(&a, (uint32_t *)shared->q, (uint32_t *)shared->dy, (uint32_t *)shared->q_turned,                \
                       (uint32_t *)shared->dy_turned, &shared->figures, d);                                            \
    }
ATTENTION_OF(64)
ATTENTION_OF(128)
