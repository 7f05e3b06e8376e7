/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.tmpl.h: the three register-blocked tiles of gemm.h, by include for one instruction set.
 *
 * Before: GEMM_OPS (name of the row), GEMM_NAME, MR, NV (vectors a row of a tile), LANES, and vec, vec_zero(),
 * vec_all(x), vec_load(p), vec_store(p, v), vec_fma(a, b, c), vec_add(a, b), vec_max(a, b). All loops over i and j
 * unroll.
 */
#include "kernel/cpu/gemm.h"

#define NR     (NV * LANES)
#define INLINE static inline __attribute__((always_inline))

_Static_assert(MR <= TRI_GEMM_MAX_MR && NR <= TRI_GEMM_MAX_NR, "tile too large");

/* n elements of a row to where they belong. */
INLINE void put_row(float *c, const vec *row, int n)
{
    if (n == NR) {
        for (int j = 0; j < NV; j++) {
            vec_store(c + j * LANES, row[j]);
        }
        return;
    }
    float full[NR];
    for (int j = 0; j < NV; j++) {
        vec_store(full + j * LANES, row[j]);
    }
    memcpy(c, full, (size_t)n * sizeof(float));
}

INLINE void take_row(vec *row, const float *c, int n)
{
    if (n == NR) {
        for (int j = 0; j < NV; j++) {
            row[j] = vec_load(c + j * LANES);
        }
        return;
    }
    float full[NR] = {0};
    memcpy(full, c, (size_t)n * sizeof(float));
    for (int j = 0; j < NV; j++) {
        row[j] = vec_load(full + j * LANES);
    }
}

INLINE void dot_body(const int m, int n, int64_t segments, int64_t len, const float *const *a, const float *b,
                     float *const *c, const float *bias, unsigned flags)
{
    vec acc[MR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
        if ((flags & TRI_GEMM_FIRST) != 0) {
            for (int j = 0; j < NV; j++) {
                acc[i][j] = vec_zero();
            }
        } else {
            take_row(acc[i], c[i], n);
        }
    }
    for (int64_t s = 0; s < segments; s++) {
        const float *row[MR];
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            row[i] = a[s * MR + i];
        }
        for (int64_t l = 0; l < len; l++) {
            vec right[NV];
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) {
                right[j] = vec_load(b + j * LANES);
            }
            b += NR;
#pragma GCC unroll 8
            for (int i = 0; i < m; i++) {
                const vec left = vec_all(row[i][l]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; j++) {
                    acc[i][j] = vec_fma(left, right[j], acc[i][j]);
                }
            }
        }
    }
    vec shift[NV];
    for (int j = 0; j < NV; j++) {
        shift[j] = vec_zero();
    }
    if (bias != NULL) {
        take_row(shift, bias, n);
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) {
            if (bias != NULL) {
                acc[i][j] = vec_add(acc[i][j], shift[j]);
            }
            if ((flags & TRI_GEMM_RELU) != 0) {
                acc[i][j] = vec_max(acc[i][j], vec_zero());
            }
        }
        put_row(c[i], acc[i], n);
    }
}

INLINE void outer_sum(const int m, int64_t count, int64_t a_step, int64_t b_step, const float *a, const float *b,
                      vec (*acc)[NV])
{
    for (int64_t l = 0; l < count; l++) {
        vec right[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) {
            right[j] = vec_load(b + j * LANES);
        }
        b += b_step;
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            const vec left = vec_all(a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) {
                acc[i][j] = vec_fma(left, right[j], acc[i][j]);
            }
        }
        a += a_step;
    }
}

INLINE void outer_body(const int m, const tri_gemm_walk *walk, const float *a, const float *b, float *c, unsigned flags)
{
    vec acc[MR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) {
            acc[i][j] = (flags & TRI_GEMM_FIRST) != 0 ? vec_zero() : vec_load(c + i * NR + j * LANES);
        }
    }
    for (int64_t r = 0; r < walk->count[0]; r++) {
        outer_sum(m, walk->count[1], walk->a_step[1], walk->b_step[1], a + r * walk->a_step[0], b + r * walk->b_step[0],
                  acc);
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) {
            vec_store(c + i * NR + j * LANES, acc[i][j]);
        }
    }
}

#define MAX_LEVELS 24

INLINE void tree_body(const int m, int n, int64_t leaves, int64_t k, const float *a, const float *b, float *c,
                      int64_t ldc)
{
    vec stack[MAX_LEVELS][MR][NV]; /* stack[level]: a finished left subtree of 2^level leaves */
    for (int64_t leaf = 0; leaf < leaves; leaf++) {
        vec acc[MR][NV];
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) {
                acc[i][j] = vec_zero();
            }
        }
        outer_sum(m, k, MR, NR, a + leaf * k * MR, b + leaf * k * NR, acc);
        int level = 0;
        for (int64_t rest = leaf; (rest & 1) != 0; rest >>= 1, level++) {
#pragma GCC unroll 8
            for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
                for (int j = 0; j < NV; j++) {
                    acc[i][j] = vec_add(stack[level][i][j], acc[i][j]);
                }
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            if (leaf + 1 == leaves) {
                put_row(c + i * ldc, acc[i], n);
                continue;
            }
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) {
                stack[level][i][j] = acc[i][j];
            }
        }
    }
}

/* One copy of a body for each number of rows. */
#define ROWS_CASE(M, call)                                                                                             \
    case M:                                                                                                            \
        call;                                                                                                          \
        break;
#if MR == 4
#define SWITCH_ROWS(m, CALL)                                                                                           \
    switch (m) {                                                                                                       \
        ROWS_CASE(1, CALL(1)) ROWS_CASE(2, CALL(2)) ROWS_CASE(3, CALL(3)) default : CALL(4);                           \
        break;                                                                                                         \
    }
#elif MR == 6
#define SWITCH_ROWS(m, CALL)                                                                                           \
    switch (m) {                                                                                                       \
        ROWS_CASE(1, CALL(1))                                                                                          \
        ROWS_CASE(2, CALL(2))                                                                                          \
        ROWS_CASE(3, CALL(3)) ROWS_CASE(4, CALL(4)) ROWS_CASE(5, CALL(5)) default : CALL(6);                           \
        break;                                                                                                         \
    }
#else
#define SWITCH_ROWS(m, CALL)                                                                                           \
    switch (m) {                                                                                                       \
        ROWS_CASE(1, CALL(1))                                                                                          \
        ROWS_CASE(2, CALL(2))                                                                                          \
        ROWS_CASE(3, CALL(3))                                                                                          \
        ROWS_CASE(4, CALL(4))                                                                                          \
        ROWS_CASE(5, CALL(5)) ROWS_CASE(6, CALL(6)) ROWS_CASE(7, CALL(7)) default : CALL(8);                           \
        break;                                                                                                         \
    }
#endif

static void dot(int m, int n, int64_t segments, int64_t len, const float *const *a, const float *b, float *const *c,
                const float *bias, unsigned flags)
{
#define DOT_CALL(M) dot_body(M, n, segments, len, a, b, c, bias, flags)
    SWITCH_ROWS(m, DOT_CALL)
}

static void outer(int m, const tri_gemm_walk *walk, const float *a, const float *b, float *c, unsigned flags)
{
#define OUTER_CALL(M) outer_body(M, walk, a, b, c, flags)
    SWITCH_ROWS(m, OUTER_CALL)
}

static void tree(int m, int n, int64_t leaves, int64_t k, const float *a, const float *b, float *c, int64_t ldc)
{
#define TREE_CALL(M) tree_body(M, n, leaves, k, a, b, c, ldc)
    SWITCH_ROWS(m, TREE_CALL)
}

const tri_gemm_ops GEMM_OPS = {.name = GEMM_NAME, .mr = MR, .nr = NR, .dot = dot, .outer = outer, .tree = tree};
