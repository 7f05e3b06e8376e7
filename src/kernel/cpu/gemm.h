/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h: register-blocked f32 products whose bits do not depend on how they are cut.
 *
 * `dot` forms sum over k of a[m][k] b[k][n] as ONE chain of fused multiply-adds per element, k ascending, so rows and
 * columns may be cut anywhere and shared out freely. `outer` and `tree` form sums over samples: outer one chain per
 * leaf, tree the leaves of a part added as the canonical tree says. One template, three instruction sets, picked once.
 */
#ifndef TRI_KERNEL_CPU_GEMM_H
#define TRI_KERNEL_CPU_GEMM_H

#include "kernel/isa.h"
#include "kernel/row.h"

#define TRI_GEMM_MAX_MR 12
#define TRI_GEMM_MAX_NR 32
#define TRI_GEMM_LONG   96  /* k of a shard from which on tri_gemm_tree_run takes passes over k, */
#define TRI_GEMM_PAGES  48  /* and where rows are whole pages, which meet in one set of L1 */
#define TRI_GEMM_MANY   512 /* rows from which on packing the weights is soon paid for */
/* Rows that packing asks for ahead: they are too far apart for the processor to see them coming. */
#define TRI_GEMM_AHEAD  16
#define TRI_GEMM_LEVELS 20 /* of a tree over shards, at most */

/* Start at zero (else at c); clip at the end; tiles over pairs of bf16: c is bf16, rounded at the end. */
enum { TRI_GEMM_FIRST = 1, TRI_GEMM_RELU = 2, TRI_GEMM_HALF = 4 };

/* How a sum over samples walks: count0 rows of count1 places of an image; for a tree, leaves of count1 samples. */
typedef struct tri_gemm_walk {
    int64_t count[2];
    int64_t a_step[2], b_step[2]; /* elements */
} tri_gemm_walk;

/* What becomes of a sum that is complete: subtrees to its left are added, nearest first, and it may leave the tiles. */
typedef struct tri_gemm_close {
    int count;
    const float *left[TRI_GEMM_LEVELS]; /* tiles as c, [mr][nr] */
    float *out;                         /* rows of n elements, out_step apart; NULL: to c */
    int64_t out_step;
} tri_gemm_close;

/* Whole row tiles times all panels of a group, over pairs of bf16, from zero. */
typedef struct tri_gemm_band {
    const uint16_t *a; /* rows lda apart */
    const uint32_t *packed;
    const float *bias; /* NULL: none */
    uint16_t *c;       /* rows ldc apart */
    int64_t m, n;      /* m: a multiple of mr */
    int64_t pairs;     /* of k: a multiple of the depth */
    int64_t lda, ldc;  /* elements */
    bool relu;
} tri_gemm_band;

/* Row tiles, one after the other, times one panel, both packed: trees over leaves of pairs of samples. */
typedef struct tri_gemm_column {
    const float *a, *b; /* leaf after leaf; tiles of a a_step apart */
    float *c;           /* tiles [mr][nr] */
    int64_t m, n;       /* rows of all tiles, columns: those that are there */
    int64_t a_step;
    int64_t leaves, pairs;       /* a power of two; pairs of each: a multiple of the depth, zeros fill it up */
    unsigned flags;              /* TRI_GEMM_FIRST */
    const tri_gemm_close *close; /* of the first tile; NULL: the sums of one leaf stay in c */
} tri_gemm_column;

typedef struct tri_gemm_ops {
    const char *name;
    int mr, nr, lanes; /* rows and columns of a register tile; elements of one vector */
    int depth;         /* of k that are taken at once; above 1 outer reads a as turn() has left it */
    /* One tile of m <= mr rows, n <= nr columns. a[segment * mr + row] points to `len` elements, b is a packed panel
     * [segments * len][nr], c[row] points to n elements; bias (NULL: none) has n elements. With a depth above 1 there
     * is one segment, and rows of a, and of c, are equally far apart. */
    void (*dot)(int m, int n, int64_t segments, int64_t len, const float *const *a, const float *b, float *const *c,
                const float *bias, unsigned flags);
    /* What dot does over pairs, of many tiles whose results are bf16. NULL: they go through dot. */
    void (*band)(const tri_gemm_band *band);
    /* c[mr][nr] (+)= sum over the walk of a[0..m) b[0..n), n rounded up to whole vectors; other columns are left.
     * close: NULL, or what comes after. */
    void (*outer)(int m, int n, const tri_gemm_walk *walk, const float *a, const float *b, float *c, unsigned flags,
                  const tri_gemm_close *close);
    /* What outer does with trees over leaves. NULL: each leaf goes through outer. */
    void (*column)(const tri_gemm_column *column);
    /* c[row][0..n) = tree over `leaves` (a power of two), step[0] apart, of the sum over count[1] of a[0..m) b[0..n), n
     * rounded up to whole vectors. NULL: leaves are packed and go through outer, however short they are. */
    void (*tree)(int m, int n, int64_t leaves, const tri_gemm_walk *walk, const float *a, const float *b, float *c,
                 int64_t ldc);
    /* a for outer: to[ceil(k / depth)][mr][depth] = from[k][m], rows `from_step` apart; zeros behind k and m <= mr.
     * NULL: depth is 1, and a is read where it is. */
    void (*turn)(float *to, const float *from, int64_t from_step, int64_t k, int64_t m);
    /* For column, tri_gemm_half_pass() with zeros up to a multiple of the depth; rows turned, tiles of mr. */
    void (*pack_rows)(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count, int64_t step);
    void (*pack_columns)(uint32_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t count, int64_t step);
    /* Around the tiles of a task, on its thread. NULL: registers are always there. */
    void (*enter)(void);
    void (*leave)(void);
} tri_gemm_ops;

extern const tri_gemm_ops tri_gemm_generic;
#ifdef TRI_HAVE_X86
extern const tri_gemm_ops tri_gemm_avx;
extern const tri_gemm_ops tri_gemm_wide;
#endif
/* The fastest set that this machine has. */
const tri_gemm_ops *tri_gemm_find(void);
/* That of an instruction set. */
const tri_gemm_ops *tri_gemm_of(tri_isa isa);

static inline void tri_gemm_enter(const tri_gemm_ops *ops)
{
    if (ops->enter != NULL) {
        ops->enter();
    }
}

static inline void tri_gemm_leave(const tri_gemm_ops *ops)
{
    if (ops->leave != NULL) {
        ops->leave();
    }
}

/* Elements of a matrix [k][n] packed in panels [n / nr][k][nr]. */
int64_t tri_gemm_packed_count(const tri_gemm_ops *ops, int64_t k, int64_t n);
/* Columns that tiles of [..][n] read and write: n and the rest of the last vector or pair of them. */
int64_t tri_gemm_padded(const tri_gemm_ops *ops, int64_t n);
/* Packs panel `panel` of src[k * k_step + n * n_step]; columns behind n are zeros. One step must be 1. */
void tri_gemm_pack(const tri_gemm_ops *ops, float *packed, const float *src, int64_t k, int64_t n, int64_t k_step,
                   int64_t n_step, int64_t panel);
/* to[part][len][width], parts `step` elements apart, from `count` elements of each of `len` rows, `stride` apart; the
 * last part is filled up with zeros. */
void tri_gemm_pass(float *to, const float *from, int64_t stride, int64_t len, int64_t count, int64_t width,
                   int64_t step);
/* All panels of a matrix, on threads. */
void tri_gemm_pack_all(const tri_gemm_ops *ops, int threads, float *packed, const float *src, int64_t k, int64_t n,
                       int64_t k_step, int64_t n_step);
/* c[m][n] = act(a[m][k] packed + bias), rows of a and c lda and ldc apart. */
typedef struct tri_gemm_call {
    const float *a, *packed, *bias;
    float *c;
    int64_t m, n, k, lda, ldc;
    bool relu;
    bool add; /* the chains continue from what c holds */
} tri_gemm_call;
void tri_gemm_run(const tri_gemm_ops *ops, int threads, const tri_gemm_call *call);
/* Rows of one task of a product whose columns are cut into `groups`: equal chunks, enough for the threads. Bits do not
 * depend on the cut. */
int64_t tri_gemm_rows(const tri_gemm_ops *ops, int threads, int64_t m, int64_t groups);
/* The same on the calling thread. */
void tri_gemm_block(const tri_gemm_ops *ops, const tri_gemm_call *call);

/* c[n][m] = act(packed turned * a turned + bias), rows of c ldc apart: a[m * row_step + k * k_step], one step is 1,
 * packed holds the n samples [n / nr][k][nr], bias (NULL: none) m elements. The same bits as tri_gemm_run. */
typedef struct tri_gemm_turn {
    const float *a, *packed, *bias;
    float *c;
    int64_t m, n, k, row_step, k_step, ldc;
    bool relu;
} tri_gemm_turn;
void tri_gemm_turn_run(const tri_gemm_ops *ops, int threads, const tri_gemm_turn *turn);

/* dparam[p][part][m][n] = tree over the shards of the part of sum over `k` rows of a[row][m] b[row][n]; a and b hold
 * the rows of all shards. scratch: tri_gemm_tree_count() elements. */
typedef struct tri_gemm_tree {
    const float *a, *b;
    int64_t m, n, k;                 /* k: of one shard */
    int64_t lda;                     /* from one row of a to the next; 0: m */
    const uint16_t *half_a, *half_b; /* not NULL: a and b in bf16, `rows` of a shard, and k pairs of them; the tiles are
                                        those for pairs. a and b: the same as pairs of rows, for short shards */
    int64_t rows;
    float *scratch;
    float *sums; /* NULL, or [shards][m]: the columns of a of each shard, rows in order; only where shards are long */
    /* NULL, or makes columns [first, last) of a ready, for who packs them; only where tri_gemm_tree_packs(). */
    void (*ready)(void *arg, int64_t first, int64_t last);
    void *arg;
} tri_gemm_tree;
int64_t tri_gemm_tree_count(const tri_gemm_ops *ops, int64_t k, int shards, int threads);
/* Shards may be so short that both factors are read where they are, those of bf16 as pairs of rows; and they are. */
static inline bool tri_gemm_tree_may_be_short(const tri_gemm_ops *ops, int64_t k)
{
    return ops->tree != NULL && k < TRI_GEMM_LONG;
}
bool tri_gemm_tree_is_short(const tri_gemm_ops *ops, const tri_gemm_tree *tree);
/* Shards are short, and each column of a is packed once, by one task. */
bool tri_gemm_tree_packs(const tri_gemm_ops *ops, int threads, int shards, const tri_gemm_tree *tree);
void tri_gemm_tree_run(const tri_gemm_ops *ops, const tri_kernel *kernel, const tri_op_call *call, int p,
                       const tri_gemm_tree *tree);

#endif
