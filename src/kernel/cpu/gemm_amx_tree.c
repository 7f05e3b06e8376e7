/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_amx_tree.c: sums over samples in AMX's tiles: leaves, trees over them, and packing for both.
 */
#include "kernel/cpu/gemm_amx.h"

/* Adds what is to the left of the sums in c, and puts them where they belong. */
INLINE void outer_close(int m, int n, const tri_gemm_close *close, float *c)
{
    const __mmask16 low = first_columns(n), high = first_columns(n - DEPTH);
    for (int i = 0; i < m; i++) {
        __m512 left = _mm512_loadu_ps(c + i * NR), right = _mm512_loadu_ps(c + i * NR + DEPTH);
        for (int level = 0; level < close->count; level++) {
            left = _mm512_add_ps(_mm512_loadu_ps(close->left[level] + i * NR), left);
            right = _mm512_add_ps(_mm512_loadu_ps(close->left[level] + i * NR + DEPTH), right);
        }
        if (close->out != NULL) {
            _mm512_mask_storeu_ps(close->out + i * close->out_step, low, left);
            _mm512_mask_storeu_ps(close->out + i * close->out_step + DEPTH, high, right);
        } else {
            _mm512_storeu_ps(c + i * NR, left);
            _mm512_storeu_ps(c + i * NR + DEPTH, right);
        }
    }
}

INLINE void outer_body(const bool tall, int m, int n, const tri_gemm_walk *walk, const float *a, const float *b,
                       float *c, unsigned flags, const tri_gemm_close *close)
{
    float columns[DEPTH][NR] __attribute__((aligned(64)));
    const int64_t b_step = walk->b_step[1], len = walk->count[1];
    if ((flags & TRI_GEMM_FIRST) != 0) {
        sums_zero(tall);
    } else {
        sums_load(tall, c, NR * sizeof(float));
    }
    for (int64_t r = 0; r < walk->count[0]; r++) {
        const float *rows = a + r * walk->a_step[0], *right = b + r * walk->b_step[0];
        int64_t k = 0;
        for (; k + DEPTH <= len; k += DEPTH) {
            step(tall, rows + k * MR, DEPTH * sizeof(float), right + k * b_step, b_step * (int64_t)sizeof(float));
        }
        if (k < len) {
            step(tall, rows + k * MR, DEPTH * sizeof(float),
                 columns_filled(columns, right + k * b_step, b_step, len - k), sizeof columns[0]);
        }
    }
    sums_store(tall, c, NR * sizeof(float));
    if (close != NULL) {
        outer_close(m, n, close, c);
    }
}

void tri_gemm_amx_outer(int m, int n, const tri_gemm_walk *walk, const float *a, const float *b, float *c,
                        unsigned flags, const tri_gemm_close *close)
{
    memory_written();
    if (m > DEPTH) {
        outer_body(true, m, n, walk, a, b, c, flags, close);
    } else {
        outer_body(false, m, n, walk, a, b, c, flags, close);
    }
}

/* 16 rows of 16 elements change places with their columns: first within quarters of a vector, then the quarters. */
INLINE void turn_block(float *to, const __m512i *from)
{
    __m512i pair[DEPTH], quad[DEPTH];
    for (int i = 0; i < DEPTH; i += 2) {
        pair[i] = _mm512_unpacklo_epi32(from[i], from[i + 1]);
        pair[i + 1] = _mm512_unpackhi_epi32(from[i], from[i + 1]);
    }
    for (int i = 0; i < DEPTH; i += 4) { /* quad[i + j]: elements j, 4 + j, 8 + j, 12 + j of rows i to i + 3 */
        quad[i] = _mm512_unpacklo_epi64(pair[i], pair[i + 2]);
        quad[i + 1] = _mm512_unpackhi_epi64(pair[i], pair[i + 2]);
        quad[i + 2] = _mm512_unpacklo_epi64(pair[i + 1], pair[i + 3]);
        quad[i + 3] = _mm512_unpackhi_epi64(pair[i + 1], pair[i + 3]);
    }
    for (int j = 0; j < 4; j++) {
        const __m512i low = _mm512_shuffle_i32x4(quad[j], quad[4 + j], 0x88);
        const __m512i low_odd = _mm512_shuffle_i32x4(quad[j], quad[4 + j], 0xdd);
        const __m512i high = _mm512_shuffle_i32x4(quad[8 + j], quad[12 + j], 0x88);
        const __m512i high_odd = _mm512_shuffle_i32x4(quad[8 + j], quad[12 + j], 0xdd);
        _mm512_storeu_si512(to + j * DEPTH, _mm512_shuffle_i32x4(low, high, 0x88));
        _mm512_storeu_si512(to + (4 + j) * DEPTH, _mm512_shuffle_i32x4(low_odd, high_odd, 0x88));
        _mm512_storeu_si512(to + (8 + j) * DEPTH, _mm512_shuffle_i32x4(low, high, 0xdd));
        _mm512_storeu_si512(to + (12 + j) * DEPTH, _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd));
    }
}

void tri_gemm_amx_turn(float *to, const float *from, int64_t from_step, int64_t k, int64_t m)
{
    for (int64_t first = 0; first < k; first += DEPTH) {
        const int64_t count = tri_int64_min(DEPTH, k - first);
        for (int64_t column = 0; column < MR; column += DEPTH, to += DEPTH * DEPTH) {
            const __mmask16 there = first_columns((int)(m - column));
            __m512i rows[DEPTH];
            for (int64_t l = 0; l < DEPTH; l++) {
                rows[l] = l < count ? _mm512_maskz_loadu_epi32(there, from + (first + l) * from_step + column)
                                    : _mm512_setzero_si512();
            }
            turn_block(to, rows);
        }
    }
}

/* A sum that is complete, and where it goes with what is to its left, while the next one is computed. */
typedef struct column_sum {
    const float (*sums)[NR];
    const float *left[2 * TRI_GEMM_LEVELS]; /* nearest first */
    int count;
    int row, rows; /* the next one, and how many there are */
    int n;
    float *to; /* rows step apart */
    int64_t step;
} column_sum;

INLINE void column_put(column_sum *sum, int rows)
{
    const int end = sum->row + rows < sum->rows ? sum->row + rows : sum->rows;
    const __mmask16 low = first_columns(sum->n), high = first_columns(sum->n - DEPTH);
    for (int i = sum->row; i < end; i++) {
        __m512 first = _mm512_load_ps(sum->sums[i]), second = _mm512_load_ps(sum->sums[i] + DEPTH);
        for (int level = 0; level < sum->count; level++) {
            first = _mm512_add_ps(_mm512_loadu_ps(sum->left[level] + i * NR), first);
            second = _mm512_add_ps(_mm512_loadu_ps(sum->left[level] + i * NR + DEPTH), second);
        }
        float *to = sum->to + i * sum->step;
        _mm512_mask_storeu_ps(to, low, first);
        _mm512_mask_storeu_ps(to + DEPTH, high, second);
    }
    sum->row = end;
}

#define STACK 8 /* levels of a tree within a tile: of 256 leaves */

/* Leaf `leaf` of tile `tile`, whose sums are in `sums`: what is added, and where it goes. */
INLINE void column_next(const tri_gemm_column *v, int64_t tile, int64_t leaf, const float (*sums)[NR],
                        float (*stack)[MR * NR], int *height, column_sum *next)
{
    const int64_t area = tile * MR * NR;
    next->sums = sums;
    next->row = next->count = 0;
    next->rows = MR;
    next->n = NR;
    next->step = NR;
    for (int64_t rest = leaf; (rest & 1) != 0; rest >>= 1) {
        next->left[next->count++] = stack[--*height];
    }
    if (leaf + 1 < v->leaves) {
        next->to = stack[(*height)++];
        return;
    }
    for (int level = 0; level < v->close->count; level++) {
        next->left[next->count++] = v->close->left[level] + area;
    }
    next->to = v->c + area;
    if (v->close->out != NULL) {
        next->to = v->close->out + tile * MR * v->close->out_step;
        next->step = v->close->out_step;
        next->n = (int)v->n;
        next->rows = (int)tri_int64_min(MR, v->m - tile * MR);
    }
}

void tri_gemm_amx_column(const tri_gemm_column *v)
{
    float sums[2][MR][NR] __attribute__((aligned(64))), stack[STACK][MR * NR] __attribute__((aligned(64)));
    column_sum last = {0};
    const int each = (int)((MR * DEPTH + v->pairs - 1) / v->pairs);
    int turn = 0, height = 0;
    TRI_DASSERT(v->leaves <= INT64_C(1) << STACK && (v->leaves == 1 || v->close != NULL));
    memory_written();
    for (int64_t tile = 0; tile * MR < v->m; tile++) {
        for (int64_t leaf = 0; leaf < v->leaves; leaf++) {
            const float *a = v->a + tile * v->a_step + leaf * v->pairs * MR, *b = v->b + leaf * v->pairs * NR;
            if ((v->flags & TRI_GEMM_FIRST) != 0) {
                sums_zero(true);
            } else {
                sums_load(true, v->c + tile * MR * NR, NR * sizeof(float));
            }
            for (int64_t k = 0; k < v->pairs; k += DEPTH) {
                step(true, a + k * MR, DEPTH * sizeof(float), b + k * NR, NR * sizeof(float));
                column_put(&last, each);
            }
            if (v->close == NULL) {
                sums_store(true, v->c + tile * MR * NR, NR * sizeof(float));
                continue;
            }
            sums_store(true, sums[turn][0], sizeof sums[0][0]);
            memory_written();
            column_next(v, tile, leaf, (const float(*)[NR])sums[turn], stack, &height, &last);
            turn ^= 1;
        }
    }
    column_put(&last, MR);
}

/* Two rows of 32 elements become pairs: the lower and upper halves of each quarter of a vector. */
INLINE void pair_halves(const uint16_t *low, const uint16_t *high, __mmask32 there, __m512i *first, __m512i *second)
{
    const __m512i a = _mm512_maskz_loadu_epi16(there, low);
    const __m512i b = high != NULL ? _mm512_maskz_loadu_epi16(there, high) : _mm512_setzero_si512();
    *first = _mm512_unpacklo_epi16(a, b);
    *second = _mm512_unpackhi_epi16(a, b);
}

INLINE __mmask32 elements_of(int64_t count)
{
    return count >= 2 * DEPTH ? 0xffffffffu : (__mmask32)((1u << count) - 1);
}

/* The row of a tile that element i of a turned half is: 4 of each 8. */
INLINE int row_of(int i, int half)
{
    return i / 4 * 8 + half * 4 + i % 4;
}

void tri_gemm_amx_pack_rows(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count,
                            int64_t step)
{
    for (int64_t row = 0; row < rows; row += 2 * DEPTH, to += MR * DEPTH) {
        for (int64_t first = 0; first < count; first += MR) {
            const __mmask32 there = elements_of(count - first);
            const uint16_t *block = from + row * stride + first;
            __m512i half[2][DEPTH], turned[DEPTH];
            for (int64_t l = 0; l < DEPTH; l++) {
                const uint16_t *low = block + 2 * l * stride;
                half[0][l] = half[1][l] = _mm512_setzero_si512();
                if (row + 2 * l < rows) {
                    _mm_prefetch((const char *)(low + 2 * DEPTH * stride), _MM_HINT_T0);
                    _mm_prefetch((const char *)(low + (2 * DEPTH + 1) * stride), _MM_HINT_T0);
                    pair_halves(low, row + 2 * l + 1 < rows ? low + stride : NULL, there, &half[0][l], &half[1][l]);
                }
            }
            for (int h = 0; h < 2; h++) {
                turn_block((float *)(void *)turned, half[h]);
                for (int i = 0; i < DEPTH; i++) {
                    _mm512_storeu_si512(to + first / MR * step + row_of(i, h) * DEPTH, turned[i]);
                }
            }
        }
    }
}

void tri_gemm_amx_pack_columns(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count,
                               int64_t step)
{
    const __m512i left = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i right = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    int64_t row = 0;
    for (; row < rows; row += 2, to += NR) {
        const uint16_t *low = from + row * stride, *high = row + 1 < rows ? low + stride : NULL;
        for (int64_t first = 0; first < count; first += NR) {
            __m512i a, b;
            _mm_prefetch((const char *)(low + TRI_GEMM_AHEAD * stride + first), _MM_HINT_T0);
            _mm_prefetch((const char *)(low + (TRI_GEMM_AHEAD + 1) * stride + first), _MM_HINT_T0);
            pair_halves(low + first, high != NULL ? high + first : NULL, elements_of(count - first), &a, &b);
            _mm512_storeu_si512(to + first / NR * step, _mm512_permutex2var_epi32(a, left, b));
            _mm512_storeu_si512(to + first / NR * step + DEPTH, _mm512_permutex2var_epi32(a, right, b));
        }
    }
    for (; row % (2 * DEPTH) != 0; row += 2, to += NR) {
        for (int64_t first = 0; first < count; first += NR) {
            memset(to + first / NR * step, 0, NR * sizeof *to);
        }
    }
}
