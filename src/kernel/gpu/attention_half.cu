/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_half.cu: causal attention of values of 16 bits by tensor cores: heads of a multiple of 16 elements, up to
 * 64 or up to 128.
 *
 * A warp has 16 rows: of queries, and of keys in attention_dkv. The rows of the other side come through shared memory;
 * weights go from one product to the next in registers, rounded to 16 bits. Fragments as gemm.cu has them: g = lane / 4
 * is a row, t = lane % 4 a pair of columns. `most` elements of a head that there is room for (those that it does not
 * have are zeros), the type and whether weights are dropped are constants, so that all loops unroll and no branch is
 * left. Rows are counted in 32 bits: no launch has more.
 */
#include "kernel/gpu/attention.h"

#define THREADS TRI_GPU_THREADS_HALF
#define KEYS    64                                  /* of a tile; of a block of attention_dkv */
#define SOME    32                                  /* keys that attention_dq multiplies at once */
#define FEWER   16                                  /* queries that attention_dkv multiplies at once */
#define QUADS   (KEYS * TRI_GPU_HEAD / 8 / THREADS) /* most of a tile that a thread fetches */

/* Words of a row: neither the rows of a block nor 16 bytes of eight threads meet a bank twice. */
#define ROW_WORDS(most) ((most) / 2 + 4)

/* Rows of one head in memory: row r begins at element r * stride; zeros from `length` on. */
typedef struct head_rows {
    uint16_t *at;
    int stride, length, width;
} head_rows;

/* A thread's share of two tiles, 16 bytes of some rows of each: the first of them in the next two. */
typedef struct head_share {
    const uint16_t *at[2];
    int row, length; /* length: 0 where a head does not have the column */
} head_share;

/* Rows between two of them. */
#define SHARE_ROWS(most) (THREADS * 8 / (most))

/* From row `first` on. */
GPU_FN head_share head_begin(const head_rows h[2], int first, const int most)
{
    const int column = gpu_tx() % (most / 8) * 8;
    head_share share;
    share.row = first + gpu_tx() / (most / 8);
    share.length = column < h->width ? h->length : 0;
    GPU_UNROLL
    for (int side = 0; side < 2; side++) {
        share.at[side] = h[side].at + (int64_t)share.row * h[side].stride + column;
    }
    return share;
}

/* Those of `count` rows come into registers. */
GPU_FN void head_fetch(gpu_quad quad[QUADS], const head_share *share, const head_rows h[2], int side, const int count,
                       const int most)
{
    const gpu_quad zeros = {{0, 0, 0, 0}};
    const uint16_t *at = share->at[side];
    GPU_UNROLL
    for (int i = 0; i < count / SHARE_ROWS(most); i++) {
        quad[i] = zeros;
        if (share->row + i * SHARE_ROWS(most) < share->length) {
            __builtin_memcpy(&quad[i], gpu_aligned(at), sizeof quad[i]);
        }
        at += (int64_t)h[side].stride * SHARE_ROWS(most);
    }
}

/* Such rows become a tile. */
GPU_FN void head_put(uint32_t *tile, const gpu_quad quad[QUADS], const int count, const int most)
{
    uint32_t *const at = tile + gpu_tx() / (most / 8) * ROW_WORDS(most) + gpu_tx() % (most / 8) * 4;
    GPU_UNROLL
    for (int i = 0; i < count / SHARE_ROWS(most); i++) {
        *(gpu_quad *)(at + i * SHARE_ROWS(most) * ROW_WORDS(most)) = quad[i];
    }
}

/* The next `count` rows of both become tiles; all loads are under way before the first of them is stored. */
GPU_FN void head_fill(uint32_t *tile, uint32_t *other, head_share *share, const head_rows h[2], const int count,
                      const int most)
{
    gpu_quad quad[2][QUADS];
    GPU_UNROLL
    for (int side = 0; side < 2; side++) {
        head_fetch(quad[side], share, h, side, count, most);
        share->at[side] += (int64_t)h[side].stride * count;
    }
    share->row += count;
    head_put(tile, quad[0], count, most);
    head_put(other, quad[1], count, most);
}

/* Where thread tx's pairs of row g and of row g + 8 of 16 rows from `first` on begin. */
GPU_FN uint16_t *head_place(const head_rows *h, int first, int tx, int r)
{
    return h->at + (int64_t)(first + tx % 32 / 4 + 8 * r) * h->stride + 2 * (tx % 4);
}

GPU_FN int head_has(const head_rows *h, int first, int tx, int r)
{
    return first + tx % 32 / 4 + 8 * r < h->length;
}

/* Left factors of a warp's 16 rows from `first` on. */
GPU_FN void head_left(uint32_t left[TRI_GPU_HEAD / 16][4], const head_rows *h, int first, const int most)
{
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        const uint16_t *const at = head_place(h, first, gpu_tx(), r);
        const int there = head_has(h, first, gpu_tx(), r);
        GPU_UNROLL
        for (int k = 0; k < most / 16; k++) {
            const int loads = there && 16 * k < h->width;
            left[k][r] = loads ? *(const gpu_two *)(at + 16 * k) : 0;
            left[k][r + 2] = loads ? *(const gpu_two *)(at + 16 * k + 8) : 0;
        }
    }
}

/* sum[j] += left factors times `rows` rows of a tile, over the elements of a head; j: 8 rows each. The factors are in
 * registers, or where `own` is not NULL 16 rows of a tile. */
GPU_FN void head_scores(float sum[KEYS / 8][4], const int type, uint32_t left[TRI_GPU_HEAD / 16][4],
                        const uint32_t *own, const int owns, const uint32_t *tile, const int most, const int rows)
{
    uint32_t right[4];
    GPU_UNROLL
    for (int k = 0; k < most / 16; k++) {
        if (owns) {
            gpu_load_left(left[k], own + 8 * k, ROW_WORDS(most));
        }
        GPU_UNROLL
        for (int j = 0; j < rows / 8; j += 2) {
            gpu_load_right(right, tile + 8 * j * ROW_WORDS(most) + 8 * k, ROW_WORDS(most));
            gpu_mma(type, sum[j], left[k], right);
            gpu_mma(type, sum[j + 1], left[k], right + 2);
        }
    }
}

/* out[j] += weights times `rows` rows of a tile, over these rows; weights: what head_scores() made room for. */
GPU_FN void head_weigh(float out[TRI_GPU_HEAD / 8][4], const int type, float weight[KEYS / 8][4], const uint32_t *tile,
                       const int most, const int rows)
{
    uint32_t left[4], right[4];
    GPU_UNROLL
    for (int k = 0; k < rows / 16; k++) {
        GPU_UNROLL
        for (int r = 0; r < 4; r++) {
            left[r] = gpu_pair(weight[2 * k + r / 2][r % 2 * 2], weight[2 * k + r / 2][r % 2 * 2 + 1], type);
        }
        GPU_UNROLL
        for (int j = 0; j < most / 8; j += 2) {
            gpu_load_turned(right, tile + 16 * k * ROW_WORDS(most) + 4 * j, ROW_WORDS(most));
            gpu_mma(type, out[j], left, right);
            gpu_mma(type, out[j + 1], left, right + 2);
        }
    }
}

/* A warp's rows, times a factor of rows g and g + 8. */
GPU_FN void head_write(const head_rows *h, int first, float out[TRI_GPU_HEAD / 8][4], const float factor[2],
                       const int type, const int most)
{
    const int tx = gpu_again(gpu_tx());
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        uint16_t *const at = head_place(h, first, tx, r);
        const int there = head_has(h, first, tx, r);
        GPU_UNROLL
        for (int j = 0; j < most / 8; j++) {
            if (there && 8 * j < h->width) {
                *(gpu_two *)(at + 8 * j) = gpu_pair(out[j][2 * r] * factor[r], out[j][2 * r + 1] * factor[r], type);
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
    v = gpu_most(v, gpu_xor(v, 1));
    return gpu_most(v, gpu_xor(v, 2));
}

/* Rows of queries, or from `at` of keys or values, of one sample. */
GPU_FN head_rows head_input(const tri_gpu_attention_args *a, tri_gpu_value value, int64_t at)
{
    head_rows h;
    h.at = (uint16_t *)value.data + gpu_bz() * a->length * a->stride + at;
    h.stride = (int)a->stride;
    h.length = (int)a->length;
    h.width = (int)a->width;
    return h;
}

/* Rows of y or dy. */
GPU_FN head_rows head_output(const tri_gpu_attention_args *a, tri_gpu_value value, int head)
{
    head_rows h;
    h.at = (uint16_t *)value.data + (gpu_bz() * a->length * a->queries + head) * a->width;
    h.stride = a->queries * (int)a->width;
    h.length = (int)a->length;
    h.width = (int)a->width;
    return h;
}

/* Bit i: dropout keeps the weight of score s[i / 4][i % 4], of `count` of them. The weight of the first score has
 * number `first` in the stream, that of the next row of the fragment is `row` further, of the next column `column`. One
 * draw after the other, as one loop: with a copy of it for each score kernels need twice the code, and more registers.
 */
GPU_FN uint32_t head_kept(const tri_gpu_attention_args *a, int64_t first, int64_t row, int64_t column, const int count)
{
    uint32_t kept = 0;
    GPU_ROLLED
    for (int i = 0; i < count; i++) {
        const int64_t number = first + (8 * (i / 4) + i % 2) * column + 8 * (i % 4 / 2) * row;
        kept |= gpu_uniform_here(a->seed, a->stream, (uint64_t)number) >= a->rate ? 1u << i : 0;
    }
    return kept;
}

/* For rows of queries from `first` on and columns of keys from u0 on; drawn: attention_first() of the head. */
GPU_FN uint32_t head_kept_keys(const tri_gpu_attention_args *a, int64_t drawn, int first, int u0, const int count)
{
    const int tx = gpu_again(gpu_tx()), g = tx % 32 / 4, t = tx % 4;
    return head_kept(a, drawn + (first + g) * a->length + u0 + 2 * t, a->length, 1, count);
}

/* For rows of keys from u0 on and columns of queries from t0 on. */
GPU_FN uint32_t head_kept_queries(const tri_gpu_attention_args *a, int64_t drawn, int t0, int u0, const int count)
{
    const int tx = gpu_again(gpu_tx()), g = tx % 32 / 4, t = tx % 4;
    return head_kept(a, drawn + (t0 + 2 * t) * a->length + u0 + g, 1, a->length, count);
}

/* What the weight of score i is multiplied with. */
GPU_FN float head_keep(const tri_gpu_attention_args *a, uint32_t kept, int i)
{
    return kept >> i & 1 ? a->keep : 0.0f;
}

/* Scores of KEYS keys from u0 on become weights; top and sum of the rows so far continue. Returns what earlier sums
 * shrink by. A zero of either sign in `top` gives the same bits. */
GPU_FN void head_softmax(const tri_gpu_attention_args *a, float s[KEYS / 8][4], int first, int u0, float top[2],
                         float sum[2], float shrink[2], uint32_t kept, const int drops)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    GPU_UNROLL
    for (int i = 0; i < KEYS / 2; i++) {
        s[i / 4][i % 4] *= a->scale;
    }
    if (u0 + KEYS - 1 > first) { /* some row does not see some key */
        GPU_UNROLL
        for (int i = 0; i < KEYS / 2; i++) {
            const int seen = 8 * (i / 4) + i % 2 <= first + g + 8 * (i % 4 / 2) - u0 - 2 * t;
            s[i / 4][i % 4] = seen ? s[i / 4][i % 4] : GPU_LEAST;
        }
    }
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        float most = top[r], added = 0;
        GPU_UNROLL
        for (int i = 0; i < KEYS / 4; i++) {
            most = gpu_most(most, s[i / 2][2 * r + i % 2]);
        }
        most = head_row_max(most);
        GPU_UNROLL
        for (int i = 0; i < KEYS / 4; i++) {
            float *const score = &s[i / 2][2 * r + i % 2];
            *score = gpu_exp_below(*score - most);
            added += *score;
            if (drops) {
                *score *= head_keep(a, kept, i / 2 * 4 + 2 * r + i % 2);
            }
        }
        shrink[r] = gpu_exp_below(top[r] - most);
        sum[r] = sum[r] * shrink[r] + head_row_sum(added);
        top[r] = most;
    }
}

/* k, v: tiles of KEYS rows. */
GPU_FN void head_forward(const tri_gpu_attention_args *a, uint32_t *k, uint32_t *v, const int most, const int type,
                         const int drops)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4, head = gpu_by(), length = (int)a->length;
    const int t0 = gpu_bx() * TRI_GPU_QUERIES_HALF, first = t0 + gpu_tx() / 32 * 16;
    const int64_t key = attention_key(a, head), drawn = drops ? attention_first(a, gpu_bz(), head) : 0;
    const head_rows queries = head_input(a, a->x, head * a->width);
    const head_rows both[2] = {head_input(a, a->x, key), head_input(a, a->x, key + a->keys * a->width)};
    head_share share = head_begin(both, 0, most);
    uint32_t q[TRI_GPU_HEAD / 16][4];
    float out[TRI_GPU_HEAD / 8][4] = {{0}}, top[2] = {GPU_LEAST, GPU_LEAST}, sum[2] = {0, 0}, shrink[2];
    head_left(q, &queries, first, most);
    for (int u0 = 0; u0 < t0 + TRI_GPU_QUERIES_HALF && u0 < length; u0 += KEYS) {
        head_fill(k, v, &share, both, KEYS, most);
        gpu_sync();
        if (u0 <= first + 15) { /* the whole warp: some row sees some key */
            const uint32_t kept = drops ? head_kept_keys(a, drawn, first, u0, KEYS / 2) : 0;
            float s[KEYS / 8][4] = {{0}};
            head_scores(s, type, q, 0, 0, k, most, KEYS);
            head_softmax(a, s, first, u0, top, sum, shrink, kept, drops);
            GPU_UNROLL
            for (int i = 0; i < most / 2; i++) {
                out[i / 4][i % 4] *= shrink[i % 4 / 2];
            }
            head_weigh(out, type, s, v, most, KEYS);
        }
        gpu_sync();
    }
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        const int row = first + g + 8 * r;
        if (t == 0 && row < length && a->lse != 0) {
            a->lse[(gpu_bz() * a->length + row) * a->queries + head] = top[r] + gpu_log(sum[r]);
        }
        sum[r] = 1.0f / sum[r];
    }
    const head_rows y = head_output(a, a->y, gpu_again(head));
    head_write(&y, gpu_again(first), out, sum, type, most);
}

/* Scores s and products dp of SOME keys from u0 on become gradients of the scores, in s. */
GPU_FN void head_query_slopes(const tri_gpu_attention_args *f, float s[KEYS / 8][4], float dp[KEYS / 8][4],
                              const float lse[2], const float dot[2], int first, int u0, uint32_t kept, const int drops)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    GPU_UNROLL
    for (int i = 0; i < SOME / 2; i++) {
        s[i / 4][i % 4] = gpu_exp_below(s[i / 4][i % 4] * f->scale - lse[i % 4 / 2]);
    }
    if (u0 + SOME - 1 > first) { /* some row does not see some key */
        GPU_UNROLL
        for (int i = 0; i < SOME / 2; i++) {
            const int seen = 8 * (i / 4) + i % 2 <= first + g + 8 * (i % 4 / 2) - u0 - 2 * t;
            s[i / 4][i % 4] = seen ? s[i / 4][i % 4] : 0.0f;
        }
    }
    GPU_UNROLL
    for (int i = 0; i < SOME / 2; i++) {
        const int r = i % 4 / 2;
        float slope = dp[i / 4][i % 4];
        if (drops) {
            slope *= head_keep(f, kept, i);
        }
        s[i / 4][i % 4] = s[i / 4][i % 4] * (slope - dot[r]) * f->scale;
    }
}

/* k, v: tiles of KEYS rows. */
GPU_FN void head_back_queries(const tri_gpu_attention_dq_args *a, uint32_t *k, uint32_t *v, const int most,
                              const int type, const int drops)
{
    const tri_gpu_attention_args *const f = &a->forward;
    const int g = gpu_tx() % 32 / 4, head = gpu_by(), length = (int)f->length;
    const int t0 = gpu_bx() * TRI_GPU_QUERIES_HALF, first = t0 + gpu_tx() / 32 * 16;
    const int64_t key = attention_key(f, head);
    const int64_t drawn = drops ? attention_first(f, gpu_bz(), head) : 0;
    const head_rows queries = head_input(f, f->x, head * f->width), gradient = head_output(f, a->dy, head);
    const head_rows both[2] = {head_input(f, f->x, key), head_input(f, f->x, key + f->keys * f->width)};
    head_share share = head_begin(both, 0, most);
    const float whole[2] = {1, 1};
    uint32_t q[TRI_GPU_HEAD / 16][4], dy[TRI_GPU_HEAD / 16][4];
    float out[TRI_GPU_HEAD / 8][4] = {{0}}, lse[2], dot[2];
    head_left(q, &queries, first, most);
    head_left(dy, &gradient, first, most);
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        const int row = first + g + 8 * r;
        const int64_t at = (gpu_bz() * f->length + row) * f->queries + head;
        lse[r] = row < length ? f->lse[at] : 0.0f;
        dot[r] = row < length ? a->dot[at] : 0.0f;
    }
    for (int u0 = 0; u0 < t0 + TRI_GPU_QUERIES_HALF && u0 < length; u0 += KEYS) {
        head_fill(k, v, &share, both, KEYS, most);
        gpu_sync();
        GPU_ROLLED
        for (int u = 0; u < KEYS && u0 + u <= first + 15; u += SOME) { /* the whole warp */
            const uint32_t kept = drops ? head_kept_keys(f, drawn, first, u0 + u, SOME / 2) : 0;
            float s[KEYS / 8][4] = {{0}}, dp[KEYS / 8][4] = {{0}};
            head_scores(s, type, q, 0, 0, k + u * ROW_WORDS(most), most, SOME);
            head_scores(dp, type, dy, 0, 0, v + u * ROW_WORDS(most), most, SOME);
            head_query_slopes(f, s, dp, lse, dot, first, u0 + u, kept, drops);
            head_weigh(out, type, s, k + u * ROW_WORDS(most), most, SOME);
        }
        gpu_sync();
    }
    const head_rows dx = head_input(f, a->dx, gpu_again(head) * f->width);
    head_write(&dx, gpu_again(first), out, whole, type, most);
}

/* Scores s and products dp of 16 keys from u0 on with FEWER queries from t0 on become weights, in s, and gradients of
 * the scores, in dp. */
GPU_FN void head_key_slopes(const tri_gpu_attention_args *f, float s[KEYS / 8][4], float dp[KEYS / 8][4],
                            const float *lse, const float *dot, int u0, int t0, uint32_t kept, const int drops)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4, length = (int)f->length;
    GPU_UNROLL
    for (int i = 0; i < FEWER / 2; i++) {
        s[i / 4][i % 4] = gpu_exp_below(s[i / 4][i % 4] * f->scale - lse[8 * (i / 4) + 2 * t + i % 2]);
    }
    if (t0 < u0 + 15 || t0 + FEWER > length) { /* some query does not see some key, or is not there */
        GPU_UNROLL
        for (int i = 0; i < FEWER / 2; i++) {
            const int row = t0 + 8 * (i / 4) + 2 * t + i % 2;
            s[i / 4][i % 4] = row < length && u0 + g + 8 * (i % 4 / 2) <= row ? s[i / 4][i % 4] : 0.0f;
        }
    }
    GPU_UNROLL
    for (int i = 0; i < FEWER / 2; i++) {
        const float p = s[i / 4][i % 4];
        float slope = dp[i / 4][i % 4];
        if (drops) {
            slope *= head_keep(f, kept, i);
            s[i / 4][i % 4] = p * head_keep(f, kept, i);
        }
        dp[i / 4][i % 4] = p * (slope - dot[8 * (i / 4) + 2 * t + i % 2]) * f->scale;
    }
}

/* Tiles of attention_dkv; keys and values of narrow heads stay in registers, and there is room for more queries. */
typedef struct head_tiles {
    uint32_t *k, *v, *q, *dy; /* k, v: KEYS rows, NULL: in registers; q, dy: `rows` rows */
    float *lse, *dot;         /* of `rows` queries */
} head_tiles;

/* Gradients of keys and values of each warp; q and dy come in tiles of `rows` queries. */
GPU_FN void head_back_keys(const tri_gpu_attention_dq_args *a, head_tiles tiles, const int rows, const int most,
                           const int type, const int drops)
{
    const tri_gpu_attention_args *const f = &a->forward;
    const int length = (int)f->length, u0 = gpu_bx() * KEYS, warp = gpu_tx() / 32 * 16, first = u0 + warp;
    const int begin = gpu_by() * (f->queries / f->keys);
    const int64_t key = (f->queries + gpu_by()) * f->width;
    int64_t drawn = drops ? attention_first(f, gpu_bz(), begin) : 0;
    const head_rows own[2] = {head_input(f, f->x, key), head_input(f, f->x, key + f->keys * f->width)};
    const uint32_t *const own_k = most > 64 ? tiles.k + warp * ROW_WORDS(most) : 0;
    const uint32_t *const own_v = most > 64 ? tiles.v + warp * ROW_WORDS(most) : 0;
    const float whole[2] = {1, 1};
    uint32_t k[TRI_GPU_HEAD / 16][4] = {{0}}, v[TRI_GPU_HEAD / 16][4] = {{0}};
    float dk[TRI_GPU_HEAD / 8][4] = {{0}}, dv[TRI_GPU_HEAD / 8][4] = {{0}};
    if (most > 64) {
        head_share share = head_begin(own, u0, most);
        head_fill(tiles.k, tiles.v, &share, own, KEYS, most); /* seen behind the first barrier */
    } else {
        head_left(k, &own[0], first, most);
        head_left(v, &own[1], first, most);
    }
    for (int head = begin; head < (gpu_by() + 1) * (gpu_again(f->queries) / f->keys); head++) {
        const head_rows both[2] = {head_input(f, f->x, head * f->width), head_output(f, a->dy, head)};
        head_share share = head_begin(both, u0, most);
        for (int t0 = u0; t0 < length; t0 += rows) {
            head_fill(tiles.q, tiles.dy, &share, both, rows, most);
            if (gpu_tx() < rows) {
                const int row = t0 + gpu_tx();
                const int64_t at = (gpu_bz() * f->length + row) * f->queries + head;
                tiles.lse[gpu_tx()] = row < length ? f->lse[at] : 0.0f;
                tiles.dot[gpu_tx()] = row < length ? a->dot[at] : 0.0f;
            }
            gpu_sync();
            GPU_ROLLED
            for (int i = 0; i < rows; i += FEWER) {
                if (first <= t0 + i + FEWER - 1 && t0 + i < length) { /* the whole warp */
                    const uint32_t kept = drops ? head_kept_queries(f, drawn, t0 + i, first, FEWER / 2) : 0;
                    float s[KEYS / 8][4] = {{0}}, dp[KEYS / 8][4] = {{0}};
                    head_scores(s, type, k, own_k, most > 64, tiles.q + i * ROW_WORDS(most), most, FEWER);
                    head_scores(dp, type, v, own_v, most > 64, tiles.dy + i * ROW_WORDS(most), most, FEWER);
                    head_key_slopes(f, s, dp, tiles.lse + i, tiles.dot + i, first, t0 + i, kept, drops);
                    head_weigh(dv, type, s, tiles.dy + i * ROW_WORDS(most), most, FEWER);
                    head_weigh(dk, type, dp, tiles.q + i * ROW_WORDS(most), most, FEWER);
                }
            }
            gpu_sync();
        }
        drawn += f->length * f->length;
    }
    const int64_t dkey = (f->queries + gpu_again(gpu_by())) * f->width;
    const head_rows dkeys = head_input(f, a->dx, dkey), dvalues = head_input(f, a->dx, dkey + f->keys * f->width);
    head_write(&dkeys, gpu_again(first), dk, whole, type, most);
    head_write(&dvalues, gpu_again(first), dv, whole, type, most);
}

typedef struct attention_tiles_64 {
    gpu_quad k[KEYS * ROW_WORDS(64) / 4], v[KEYS * ROW_WORDS(64) / 4];
} attention_tiles_64;
typedef struct attention_tiles_128 {
    gpu_quad k[KEYS * ROW_WORDS(128) / 4], v[KEYS * ROW_WORDS(128) / 4];
} attention_tiles_128;
typedef struct attention_dkv_tiles_64 {
    gpu_quad q[32 * ROW_WORDS(64) / 4], dy[32 * ROW_WORDS(64) / 4];
    float lse[32], dot[32];
} attention_dkv_tiles_64;
typedef struct attention_dkv_tiles_128 {
    gpu_quad k[KEYS * ROW_WORDS(128) / 4], v[KEYS * ROW_WORDS(128) / 4];
    gpu_quad q[16 * ROW_WORDS(128) / 4], dy[16 * ROW_WORDS(128) / 4];
    float lse[16], dot[16];
} attention_dkv_tiles_128;

GPU_FN head_tiles head_tiles_64(attention_dkv_tiles_64 *shared)
{
    head_tiles tiles = {0, 0, (uint32_t *)shared->q, (uint32_t *)shared->dy, shared->lse, shared->dot};
    return tiles;
}

GPU_FN head_tiles head_tiles_128(attention_dkv_tiles_128 *shared)
{
    head_tiles tiles = {(uint32_t *)shared->k,  (uint32_t *)shared->v, (uint32_t *)shared->q,
                        (uint32_t *)shared->dy, shared->lse,           shared->dot};
    return tiles;
}

/* Kernels of heads of up to d elements: `name` with a type of values each; blocks that a multiprocessor has at once. */
#define ATTENTION_OF(name, d, drops, blocks, dq_blocks, dkv_blocks, rows)                                              \
    GPU_KERNEL_OF(attention_##name, THREADS, blocks)                                                                   \
    {                                                                                                                  \
        GPU_SHARED(attention_tiles_##d, shared);                                                                       \
        uint32_t *const k = (uint32_t *)shared->k, *const v = (uint32_t *)shared->v;                                   \
        if (a.x.type == TRI_GPU_BF16) {                                                                                \
            head_forward(&a, k, v, d, TRI_GPU_BF16, drops);                                                            \
        } else {                                                                                                       \
            head_forward(&a, k, v, d, TRI_GPU_F16, drops);                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    GPU_KERNEL_OF(attention_dq_##name, THREADS, dq_blocks)                                                             \
    {                                                                                                                  \
        GPU_SHARED(attention_tiles_##d, shared);                                                                       \
        uint32_t *const k = (uint32_t *)shared->k, *const v = (uint32_t *)shared->v;                                   \
        if (a.forward.x.type == TRI_GPU_BF16) {                                                                        \
            head_back_queries(&a, k, v, d, TRI_GPU_BF16, drops);                                                       \
        } else {                                                                                                       \
            head_back_queries(&a, k, v, d, TRI_GPU_F16, drops);                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    GPU_KERNEL_OF(attention_dkv_##name, THREADS, dkv_blocks)                                                           \
    {                                                                                                                  \
        GPU_SHARED(attention_dkv_tiles_##d, shared);                                                                   \
        if (a.forward.x.type == TRI_GPU_BF16) {                                                                        \
            head_back_keys(&a, head_tiles_##d(shared), rows, d, TRI_GPU_BF16, drops);                                  \
        } else {                                                                                                       \
            head_back_keys(&a, head_tiles_##d(shared), rows, d, TRI_GPU_F16, drops);                                   \
        }                                                                                                              \
    }
ATTENTION_OF(64, 64, 0, 3, 3, 3, 32)
ATTENTION_OF(drop_64, 64, 1, 2, 2, 2, 32)
ATTENTION_OF(128, 128, 0, 2, 2, 2, 16)
ATTENTION_OF(drop_128, 128, 1, 2, 2, 2, 16)
