/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_amx.c: the tiles of gemm.h over pairs of bf16 for AMX: 32 x 32 in four of the processor's tiles, two hold rows
 * of A and two columns of B. Compiled with -mamx-tile -mamx-bf16 and AVX512_BF16, which all processors with AMX have.
 *
 * TDPBF16PS takes 16 pairs at a time: it adds the products of their lower and of their upper elements in a chain each,
 * from zero, adds the two, and adds that to the tile; subnormal numbers are taken for zero. So a sum depends on where
 * steps of 16 pairs begin, which is where k does, never on which rows and columns are computed together. The tiles are
 * always configured whole: what is missing at an edge is filled up with zeros in memory.
 */
#include "kernel/cpu/gemm_amx.h"

#include <math.h>

/* Intel 64 and IA-32 Architectures Software Developer's Manual, LDTILECFG. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_nbytes[16];
    uint8_t rows[16];
} tile_config;

static void enter(void)
{
    static const tile_config config = {
        .palette = 1, .row_nbytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

static void leave(void)
{
    _tile_release();
}

/* Steps from `k` on whose rows or pairs are not all there. */
INLINE void edge_steps(const bool tall, int m, int64_t k, int64_t len, const float *const *a, const float *b)
{
    float rows[MR][DEPTH] __attribute__((aligned(64))) = {{0}}, columns[DEPTH][NR] __attribute__((aligned(64)));
    for (; k < len; k += DEPTH) {
        const int64_t rest = tri_int64_min(DEPTH, len - k);
        for (int i = 0; i < m; i++) {
            memcpy(rows[i], a[i] + k, (size_t)rest * sizeof(float));
            memset(rows[i] + rest, 0, (size_t)(DEPTH - rest) * sizeof(float));
        }
        memory_written();
        const float *right = rest < DEPTH ? columns_filled(columns, b + k * NR, NR, rest) : b + k * NR;
        step(tall, rows, sizeof rows[0], right, NR * sizeof(float));
    }
}

/* Sums of m rows to where they belong. */
INLINE void rows_put(int m, int n, const float (*sums)[NR], float *const *c, const float *bias, unsigned flags)
{
    const __mmask16 low = first_columns(n), high = first_columns(n - DEPTH);
    __m512 shift[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (bias != NULL) {
        shift[0] = _mm512_maskz_loadu_ps(low, bias);
        shift[1] = _mm512_maskz_loadu_ps(high, bias + DEPTH);
    }
    const __m512 least = (flags & TRI_GEMM_RELU) != 0 ? _mm512_setzero_ps() : _mm512_set1_ps(-INFINITY);
    for (int i = 0; i < m; i++) {
        __m512 left = _mm512_load_ps(sums[i]), right = _mm512_load_ps(sums[i] + DEPTH);
        if (bias != NULL) {
            left = _mm512_add_ps(left, shift[0]);
            right = _mm512_add_ps(right, shift[1]);
        }
        left = _mm512_max_ps(least, left); /* keeps a NaN */
        right = _mm512_max_ps(least, right);
        if ((flags & TRI_GEMM_HALF) != 0) {
            const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(right, left);
            _mm512_mask_storeu_epi16(c[i], (__mmask32)low | (__mmask32)high << DEPTH, both);
        } else {
            _mm512_mask_storeu_ps(c[i], low, left);
            _mm512_mask_storeu_ps(c[i] + DEPTH, high, right);
        }
    }
}

/* A whole tile of sums is in c, row by row, and leaves as it is. */
INLINE bool is_plain(int m, int n, const float *bias, unsigned flags)
{
    return m % DEPTH == 0 && n == NR && bias == NULL && (flags & (TRI_GEMM_RELU | TRI_GEMM_HALF)) == 0;
}

/* Bytes from one row to the next; rows are equally far apart. */
INLINE int64_t stride_of(int m, const void *first, const void *second)
{
    return m > 1 ? (const char *)second - (const char *)first : 0;
}

INLINE void dot_body(const bool tall, int m, int n, int64_t len, const float *const *a, const float *b, float *const *c,
                     const float *bias, unsigned flags)
{
    const bool plain = is_plain(m, n, bias, flags);
    float sums[MR][NR] __attribute__((aligned(64)));
    if ((flags & TRI_GEMM_FIRST) != 0) {
        sums_zero(tall);
    } else if (plain) {
        sums_load(tall, c[0], stride_of(m, c[0], c[1]));
    } else {
        for (int i = 0; i < m; i++) {
            memcpy(sums[i], c[i], (size_t)n * sizeof(float));
        }
        sums_load(tall, sums[0], sizeof sums[0]);
    }
    int64_t k = 0;
    if (m % DEPTH == 0) {
        const int64_t stride = stride_of(m, a[0], a[1]);
        for (; k + DEPTH <= len; k += DEPTH) {
            step(tall, a[0] + k, stride, b + k * NR, NR * sizeof(float));
        }
    }
    if (k < len) {
        edge_steps(tall, m, k, len, a, b);
    }
    if (plain) {
        sums_store(tall, c[0], stride_of(m, c[0], c[1]));
        return;
    }
    sums_store(tall, sums[0], sizeof sums[0]);
    rows_put(m, n, (const float(*)[NR])sums, c, bias, flags);
}

static void dot(int m, int n, int64_t segments, int64_t len, const float *const *a, const float *b, float *const *c,
                const float *bias, unsigned flags)
{
    TRI_DASSERT(segments == 1);
    (void)segments;
    if (m > DEPTH) {
        dot_body(true, m, n, len, a, b, c, bias, flags);
    } else {
        dot_body(false, m, n, len, a, b, c, bias, flags);
    }
}

/* A tile of sums that leaves while the next one is computed. */
typedef struct band_tile {
    const float (*sums)[NR];
    uint16_t *c;
    int n;
    int row; /* rows from here on are still there */
    const float *bias;
} band_tile;

INLINE void band_put(band_tile *tile, int end, int64_t ldc, unsigned flags)
{
    float *c[MR];
    const int count = end - tile->row;
    for (int i = 0; i < count; i++) {
        c[i] = (float *)(void *)(tile->c + (tile->row + i) * ldc);
    }
    rows_put(count, tile->n, tile->sums + tile->row, c, tile->bias, flags);
    tile->row = end;
}

/* The sums of a tile leave a few rows at a time, between the steps of the next: so conversion and stores cost little,
 * and loads of tiles do not queue up behind each other. */
static void band(const tri_gemm_band *v)
{
    float sums[2][MR][NR] __attribute__((aligned(64)));
    band_tile last = {.row = MR};
    const unsigned flags = TRI_GEMM_HALF | (v->relu ? TRI_GEMM_RELU : 0u);
    const int each = (int)((MR * DEPTH + v->pairs - 1) / v->pairs);
    int turn = 0;
    for (int64_t row = 0; row < v->m; row += MR) {
        for (int64_t first = 0; first < v->n; first += NR) {
            const uint16_t *a = v->a + row * v->lda;
            const int64_t ahead = row + MR < v->m ? MR : 0; /* each panel asks for some of the next tile's rows */
            const int64_t begin = ahead * first / v->n, end = ahead * tri_int64_min(first + NR, v->n) / v->n;
            const float *b = (const float *)(const void *)(v->packed + first * v->pairs);
            sums_zero(true);
            for (int64_t k = 0; k < v->pairs; k += DEPTH) {
                step(true, a + 2 * k, 2 * v->lda, b + k * NR, NR * sizeof(float));
                for (int64_t next = MR + begin; next < MR + end; next++) {
                    _mm_prefetch((const char *)(a + next * v->lda + 2 * k), _MM_HINT_T1);
                }
                if (last.row < MR) {
                    band_put(&last, last.row + each < MR ? last.row + each : MR, v->ldc, flags);
                }
            }
            sums_store(true, sums[turn][0], sizeof sums[0][0]);
            memory_written();
            last = (band_tile){.sums = (const float(*)[NR])sums[turn],
                               .c = v->c + row * v->ldc + first,
                               .n = (int)tri_int64_min(NR, v->n - first),
                               .bias = v->bias != NULL ? v->bias + first : NULL};
            turn ^= 1;
        }
    }
    band_put(&last, MR, v->ldc, flags);
}

const tri_gemm_ops tri_gemm_amx = {.name = "amx_bf16",
                                   .mr = MR,
                                   .nr = NR,
                                   .lanes = NR,
                                   .depth = DEPTH,
                                   .dot = dot,
                                   .band = band,
                                   .outer = tri_gemm_amx_outer,
                                   .column = tri_gemm_amx_column,
                                   .pack_rows = tri_gemm_amx_pack_rows,
                                   .pack_columns = tri_gemm_amx_pack_columns,
                                   .turn = tri_gemm_amx_turn,
                                   .enter = enter,
                                   .leave = leave};
