/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.tmpl.h: the three register-blocked tiles of gemm.h, by include for one instruction set.
 *
 * Before: GEMM_OPS (name of the row), GEMM_NAME, MR, ROWS_TO_MR, NV (vectors a row of a tile), LANES, and vec,
 * vec_zero(), vec_all(x), vec_load(p), vec_store(p, v), vec_fma(a, b, c), vec_add(a, b), vec_max(a, b); of tiles over
 * bf16 vec_store_half(p, v). All loops over i and j unroll.
 */
#include "kernel/cpu/gemm.h"

#define NR     (NV * LANES)
#define INLINE static inline __attribute__((always_inline))
/* Loops over a tile's rows and vectors disappear, before the compiler decides what stays in registers: clang wants to
 * get that in its own words (it is four times slower otherwise). Loops over k are worth some steps at a time. */
#ifdef __clang__
#define UNROLL_ALL  _Pragma("clang loop unroll(full)")
#define UNROLL_SOME _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL_ALL  _Pragma("GCC unroll 12")
#define UNROLL_SOME _Pragma("GCC unroll 4")
#endif

_Static_assert(MR <= TRI_GEMM_MAX_MR && NR <= TRI_GEMM_MAX_NR, "tile too large");

/* n elements of a row to where they belong. */
INLINE void put_row(float *c, const vec *row, const int nv, int n)
{
    if (n == nv * LANES) {
        for (int j = 0; j < nv; j++) {
            vec_store(c + j * LANES, row[j]);
        }
        return;
    }
    float full[NR];
    for (int j = 0; j < nv; j++) {
        vec_store(full + j * LANES, row[j]);
    }
    memcpy(c, full, (size_t)n * sizeof(float));
}

INLINE void take_row(vec *row, const float *c, const int nv, int n)
{
    if (n == nv * LANES) {
        for (int j = 0; j < nv; j++) {
            row[j] = vec_load(c + j * LANES);
        }
        return;
    }
    float full[NR] = {0};
    memcpy(full, c, (size_t)n * sizeof(float));
    for (int j = 0; j < nv; j++) {
        row[j] = vec_load(full + j * LANES);
    }
}

#ifdef vec_store_half
/* The same, rounded to bf16. */
INLINE void put_half_row(float *c, const vec *row, const int nv, int n)
{
    uint16_t full[NR];
    for (int j = 0; j < nv; j++) {
        vec_store_half(full + j * LANES, row[j]);
    }
    if (n == nv * LANES) {
        memcpy(c, full, (size_t)(nv * LANES) * sizeof full[0]);
    } else {
        memcpy(c, full, (size_t)n * sizeof full[0]);
    }
}
#else
#define put_half_row put_row
#endif

INLINE void dot_body(const int m, const int nv, int n, int64_t segments, int64_t len, const float *const *a,
                     const float *b, float *const *c, const float *bias, unsigned flags)
{
    vec acc[MR][NV];
    UNROLL_ALL
    for (int i = 0; i < m; i++) {
        if ((flags & TRI_GEMM_FIRST) != 0) {
            for (int j = 0; j < nv; j++) {
                acc[i][j] = vec_zero();
            }
        } else {
            take_row(acc[i], c[i], nv, n);
        }
    }
    for (int64_t s = 0; s < segments; s++) {
        const float *row[MR];
        UNROLL_ALL
        for (int i = 0; i < m; i++) {
            row[i] = a[s * MR + i];
        }
        UNROLL_SOME
        for (int64_t l = 0; l < len; l++) {
            vec right[NV];
            UNROLL_ALL
            for (int j = 0; j < nv; j++) {
                right[j] = vec_load(b + j * LANES);
            }
            b += NR;
            UNROLL_ALL
            for (int i = 0; i < m; i++) {
                const vec left = vec_all(row[i][l]);
                UNROLL_ALL
                for (int j = 0; j < nv; j++) {
                    acc[i][j] = vec_fma(left, right[j], acc[i][j]);
                }
            }
        }
    }
    vec shift[NV];
    for (int j = 0; j < nv; j++) {
        shift[j] = vec_zero();
    }
    if (bias != NULL) {
        take_row(shift, bias, nv, n);
    }
    UNROLL_ALL
    for (int i = 0; i < m; i++) {
        UNROLL_ALL
        for (int j = 0; j < nv; j++) {
            if (bias != NULL) {
                acc[i][j] = vec_add(acc[i][j], shift[j]);
            }
            if ((flags & TRI_GEMM_RELU) != 0) {
                acc[i][j] = vec_max(acc[i][j], vec_zero());
            }
        }
        if ((flags & TRI_GEMM_HALF) != 0) {
            put_half_row(c[i], acc[i], nv, n);
        } else {
            put_row(c[i], acc[i], nv, n);
        }
    }
}

INLINE void outer_sum(const int m, const int nv, int64_t count, int64_t a_step, int64_t b_step, const float *a,
                      const float *b, vec (*acc)[NV])
{
    UNROLL_SOME
    for (int64_t l = 0; l < count; l++) {
        vec right[NV];
        UNROLL_ALL
        for (int j = 0; j < nv; j++) {
            right[j] = vec_load(b + j * LANES);
        }
        b += b_step;
        UNROLL_ALL
        for (int i = 0; i < m; i++) {
            const vec left = vec_all(a[i]);
            UNROLL_ALL
            for (int j = 0; j < nv; j++) {
                acc[i][j] = vec_fma(left, right[j], acc[i][j]);
            }
        }
        a += a_step;
    }
}

/* Adds what is to the left of the sums, and puts them where they belong. */
INLINE void outer_close(const int m, const int nv, int n, const tri_gemm_close *close, vec (*acc)[NV], float *c)
{
    for (int level = 0; level < close->count; level++) {
        const float *left = close->left[level];
        UNROLL_ALL
        for (int i = 0; i < m; i++) {
            UNROLL_ALL
            for (int j = 0; j < nv; j++) {
                acc[i][j] = vec_add(vec_load(left + i * NR + j * LANES), acc[i][j]);
            }
        }
    }
    UNROLL_ALL
    for (int i = 0; i < m; i++) {
        if (close->out != NULL) {
            put_row(close->out + i * close->out_step, acc[i], nv, n);
        } else {
            put_row(c + i * NR, acc[i], nv, nv * LANES);
        }
    }
}

INLINE void outer_body(const int m, const int nv, int n, const tri_gemm_walk *walk, const float *a, const float *b,
                       float *c, unsigned flags, const tri_gemm_close *close)
{
    vec acc[MR][NV];
    UNROLL_ALL
    for (int i = 0; i < m; i++) {
        UNROLL_ALL
        for (int j = 0; j < nv; j++) {
            acc[i][j] = (flags & TRI_GEMM_FIRST) != 0 ? vec_zero() : vec_load(c + i * NR + j * LANES);
        }
    }
    for (int64_t r = 0; r < walk->count[0]; r++) {
        outer_sum(m, nv, walk->count[1], walk->a_step[1], walk->b_step[1], a + r * walk->a_step[0],
                  b + r * walk->b_step[0], acc);
    }
    if (close != NULL) {
        outer_close(m, nv, n, close, acc, c);
        return;
    }
    UNROLL_ALL
    for (int i = 0; i < m; i++) {
        UNROLL_ALL
        for (int j = 0; j < nv; j++) {
            vec_store(c + i * NR + j * LANES, acc[i][j]);
        }
    }
}

#define MAX_LEVELS 24

INLINE void tree_body(const int m, const int nv, int n, int64_t leaves, const tri_gemm_walk *walk, const float *a,
                      const float *b, float *c, int64_t ldc)
{
    vec stack[MAX_LEVELS][MR][NV]; /* stack[level]: a finished left subtree of 2^level leaves */
    UNROLL_ALL
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < nv; j++) {
            __builtin_prefetch(c + i * ldc + j * LANES, 1, 3);
        }
    }
    for (int64_t leaf = 0; leaf < leaves; leaf++) {
        vec acc[MR][NV];
        UNROLL_ALL
        for (int i = 0; i < m; i++) {
            UNROLL_ALL
            for (int j = 0; j < nv; j++) {
                acc[i][j] = vec_zero();
            }
        }
        outer_sum(m, nv, walk->count[1], walk->a_step[1], walk->b_step[1], a + leaf * walk->a_step[0],
                  b + leaf * walk->b_step[0], acc);
        int level = 0;
        for (int64_t rest = leaf; (rest & 1) != 0; rest >>= 1, level++) {
            UNROLL_ALL
            for (int i = 0; i < m; i++) {
                UNROLL_ALL
                for (int j = 0; j < nv; j++) {
                    acc[i][j] = vec_add(stack[level][i][j], acc[i][j]);
                }
            }
        }
        UNROLL_ALL
        for (int i = 0; i < m; i++) {
            if (leaf + 1 == leaves) {
                put_row(c + i * ldc, acc[i], nv, n);
                continue;
            }
            UNROLL_ALL
            for (int j = 0; j < nv; j++) {
                stack[level][i][j] = acc[i][j];
            }
        }
    }
}

/* One copy of a body for each number of rows, and for a tile's last columns where they fill one vector at most. */
#define ROWS_CASE(M, CALL)                                                                                             \
    case M:                                                                                                            \
        if (n <= LANES) {                                                                                              \
            CALL(M, 1);                                                                                                \
        } else {                                                                                                       \
            CALL(M, NV);                                                                                               \
        }                                                                                                              \
        break;
#define ROWS_TO_4(CALL)  ROWS_CASE(1, CALL) ROWS_CASE(2, CALL) ROWS_CASE(3, CALL) ROWS_CASE(4, CALL)
#define ROWS_TO_6(CALL)  ROWS_TO_4(CALL) ROWS_CASE(5, CALL) ROWS_CASE(6, CALL)
#define ROWS_TO_8(CALL)  ROWS_TO_6(CALL) ROWS_CASE(7, CALL) ROWS_CASE(8, CALL)
#define ROWS_TO_12(CALL) ROWS_TO_8(CALL) ROWS_CASE(9, CALL) ROWS_CASE(10, CALL) ROWS_CASE(11, CALL) ROWS_CASE(12, CALL)

static void dot(int m, int n, int64_t segments, int64_t len, const float *const *a, const float *b, float *const *c,
                const float *bias, unsigned flags)
{
#define DOT_CALL(M, V) dot_body(M, V, n, segments, len, a, b, c, bias, flags)
    switch (m) {
        ROWS_TO_MR(DOT_CALL)
    }
}

static void outer(int m, int n, const tri_gemm_walk *walk, const float *a, const float *b, float *c, unsigned flags,
                  const tri_gemm_close *close)
{
#define OUTER_CALL(M, V) outer_body(M, V, n, walk, a, b, c, flags, close)
    switch (m) {
        ROWS_TO_MR(OUTER_CALL)
    }
}

static void tree(int m, int n, int64_t leaves, const tri_gemm_walk *walk, const float *a, const float *b, float *c,
                 int64_t ldc)
{
#define TREE_CALL(M, V) tree_body(M, V, n, leaves, walk, a, b, c, ldc)
    switch (m) {
        ROWS_TO_MR(TREE_CALL)
    }
}

const tri_gemm_ops GEMM_OPS = {
    .name = GEMM_NAME, .mr = MR, .nr = NR, .lanes = LANES, .depth = 1, .dot = dot, .outer = outer, .tree = tree};
