/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c: choice of the instruction set, packing, and the loops over tiles around the register-blocked kernels.
 *
 * Panels of B are [k][nr] one after the other. A group of panels of one pass over k stays in L2 while rows of A stream.
 */
#include "kernel/cpu/gemm.h"

#include "kernel/cpu/lanes.h"
#include "kernel/isa.h"

#define PASS         INT64_C(3072) /* of k, at most: passing over C costs more than rows of A that do not stay in L1 */
#define GROUP_NBYTES (INT64_C(384) << 10) /* of packed B in one pass, reused for all rows of a task */
#define ROW_TILES    16                   /* register tiles of rows in one task, at most */
#define LINE         16                   /* elements of a cache line */
#define AHEAD        (8 * LINE)           /* of each row that is turned while it is packed */
#define PIECE        INT64_C(64)          /* rows of k in one task of packing where n is together, */
#define PIECE_PANELS INT64_C(8)           /* and panels */

const tri_gemm_ops *tri_gemm_of(tri_isa isa)
{
#ifdef TRI_HAVE_X86
    if (isa >= TRI_ISA_AVX512) {
        return &tri_gemm_wide;
    }
    if (isa == TRI_ISA_AVX2) {
        return &tri_gemm_avx;
    }
#else
    (void)isa;
#endif
    return &tri_gemm_generic;
}

const tri_gemm_ops *tri_gemm_find(void)
{
    return tri_gemm_of(tri_isa_now());
}

int64_t tri_gemm_packed_count(const tri_gemm_ops *ops, int64_t k, int64_t n)
{
    return tri_int64_ceil(n, ops->nr) * ops->nr * k;
}

int64_t tri_gemm_padded(const tri_gemm_ops *ops, int64_t n)
{
    const int64_t rest = n % ops->nr;
    return n - rest + (rest == 0 ? 0 : rest <= ops->lanes ? ops->lanes : ops->nr);
}

TRI_LANES_INLINE turn_block(float *to, const float *from, int64_t from_step, int64_t to_step)
{
    tri_lanes block[TRI_LANES];
    for (int r = 0; r < TRI_LANES; r++) {
        tri_lanes_load(&block[r], from + r * from_step);
    }
    tri_lanes_turn(block);
    for (int c = 0; c < TRI_LANES; c++) {
        tri_lanes_store(to + c * to_step, &block[c]);
    }
}

/* to[k][nr] from whole lines of eight rows of src at a time; what comes AHEAD of them is asked for, since the rows are
 * too far apart for the processor to see them coming. */
TRI_CLONES static void pack_transposed(float *to, const float *src, int64_t k, int64_t n, int64_t n_step, int64_t nr)
{
    int64_t i = 0;
    for (; i + LINE <= k; i += LINE) {
        for (int64_t j = 0; j + TRI_LANES <= n; j += TRI_LANES) {
            const float *from = src + j * n_step + i;
            for (int r = 0; r < TRI_LANES; r++) {
                __builtin_prefetch(from + r * n_step + AHEAD, 0, 2);
            }
            turn_block(to + i * nr + j, from, n_step, nr);
            turn_block(to + (i + TRI_LANES) * nr + j, from + TRI_LANES, n_step, nr);
        }
        for (int64_t j = n - n % TRI_LANES; j < n; j++) {
            for (int c = 0; c < LINE; c++) {
                to[(i + c) * nr + j] = src[j * n_step + i + c];
            }
        }
    }
    for (; i < k; i++) {
        for (int64_t j = 0; j < n; j++) {
            to[i * nr + j] = src[j * n_step + i];
        }
    }
}

void tri_gemm_pack(const tri_gemm_ops *ops, float *packed, const float *src, int64_t k, int64_t n, int64_t k_step,
                   int64_t n_step, int64_t panel)
{
    const int64_t nr = ops->nr, first = panel * nr, count = tri_int64_min(nr, n - first);
    float *to = packed + panel * nr * k;
    src += first * n_step;
    if (count < nr) {
        memset(to, 0, (size_t)(nr * k) * sizeof(float));
    }
    if (n_step != 1) {
        pack_transposed(to, src, k, count, n_step, nr);
        return;
    }
    if (count == TRI_GEMM_MAX_NR) { /* a copy that the compiler knows the length of */
        for (int64_t i = 0; i < k; i++) {
            memcpy(to + i * TRI_GEMM_MAX_NR, src + i * k_step, TRI_GEMM_MAX_NR * sizeof(float));
        }
        return;
    }
    for (int64_t i = 0; i < k; i++) {
        memcpy(to + i * nr, src + i * k_step, (size_t)count * sizeof(float));
    }
}

typedef struct pack_arg {
    const tri_gemm_ops *ops;
    float *packed;
    const float *src;
    int64_t k, n, k_step, n_step;
} pack_arg;

/* A panel; where n is together, a piece of some panels: rows of src are read in long stretches. */
static void pack_tile(void *arg, int64_t tile)
{
    const pack_arg *v = arg;
    if (v->n_step != 1) {
        tri_gemm_pack(v->ops, v->packed, v->src, v->k, v->n, v->k_step, v->n_step, tile);
        return;
    }
    const int64_t pieces = tri_int64_ceil(v->k, PIECE), nr = v->ops->nr;
    const int64_t k = tile % pieces * PIECE, left = tile / pieces * PIECE_PANELS * nr;
    tri_gemm_pass(v->packed + left * v->k + k * nr, v->src + k * v->k_step + left, v->k_step,
                  tri_int64_min(PIECE, v->k - k), tri_int64_min(PIECE_PANELS * nr, v->n - left), nr, v->k * nr);
}

void tri_gemm_pack_all(const tri_gemm_ops *ops, int threads, float *packed, const float *src, int64_t k, int64_t n,
                       int64_t k_step, int64_t n_step)
{
    pack_arg arg = {ops, packed, src, k, n, k_step, n_step};
    const int64_t panels = tri_int64_ceil(n, ops->nr);
    const int64_t pieces = tri_int64_ceil(panels, PIECE_PANELS) * tri_int64_ceil(k, PIECE);
    tri_tiles_run(threads, n_step != 1 ? panels : pieces, pack_tile, &arg);
}

/* Passes over k are equally long. */
static int64_t pass_len(int64_t k)
{
    return tri_int64_ceil(tri_int64_ceil(k, tri_int64_max(1, tri_int64_ceil(k, PASS))), LINE) * LINE;
}

/* Rows [0, m) of the call times the panels [first_panel, last_panel). */
static void dot_block(const tri_gemm_ops *ops, const tri_gemm_call *call, int64_t first_row, int64_t last_row,
                      int64_t first_panel, int64_t last_panel)
{
    const int64_t nr = ops->nr, pass = pass_len(call->k);
    for (int64_t k = 0; k < call->k; k += pass) {
        const int64_t len = tri_int64_min(pass, call->k - k);
        const bool last = k + len == call->k;
        const unsigned flags = (k == 0 && !call->add ? TRI_GEMM_FIRST : 0u) | (last && call->relu ? TRI_GEMM_RELU : 0u);
        for (int64_t row = first_row; row < last_row; row += ops->mr) {
            const int m = (int)tri_int64_min(ops->mr, last_row - row);
            const float *a[TRI_GEMM_MAX_MR];
            for (int i = 0; i < m; i++) {
                a[i] = call->a + (row + i) * call->lda + k;
            }
            for (int64_t panel = first_panel; panel < last_panel; panel++) {
                const int n = (int)tri_int64_min(nr, call->n - panel * nr);
                float *c[TRI_GEMM_MAX_MR];
                for (int i = 0; i < m; i++) { /* and what the next panel's sums go to is asked for */
                    c[i] = call->c + (row + i) * call->ldc + panel * nr;
                    __builtin_prefetch(c[i] + nr, 1, 3);
                    __builtin_prefetch(c[i] + nr + LINE, 1, 3);
                }
                ops->dot(m, n, 1, len, a, call->packed + (panel * call->k + k) * nr, c,
                         last && call->bias != NULL ? call->bias + panel * nr : NULL, flags);
            }
        }
    }
}

typedef struct run_arg {
    const tri_gemm_ops *ops;
    const tri_gemm_call *call;
    int64_t panels, group, groups, rows;
} run_arg;

static void run_tile(void *arg, int64_t tile)
{
    const run_arg *v = arg;
    const int64_t group = tile % v->groups, row = tile / v->groups * v->rows;
    dot_block(v->ops, v->call, row, tri_int64_min(row + v->rows, v->call->m), group * v->group,
              tri_int64_min((group + 1) * v->group, v->panels));
}

int64_t tri_gemm_rows(const tri_gemm_ops *ops, int threads, int64_t m, int64_t groups)
{
    const int64_t tiles = tri_int64_ceil(m, ops->mr);
    int64_t chunks = tri_int64_ceil(tiles, ROW_TILES);
    while (chunks < tiles && chunks * groups < 3 * (int64_t)threads && threads > 1) {
        chunks = tri_int64_min(2 * chunks, tiles);
    }
    return tri_int64_ceil(tiles, chunks) * ops->mr;
}

void tri_gemm_run(const tri_gemm_ops *ops, int threads, const tri_gemm_call *call)
{
    const int64_t panels = tri_int64_ceil(call->n, ops->nr), kc = pass_len(call->k);
    run_arg arg = {.ops = ops, .call = call, .panels = panels};
    arg.group = tri_int64_max(1, tri_int64_min(panels, GROUP_NBYTES / (kc * ops->nr * (int64_t)sizeof(float))));
    arg.groups = tri_int64_ceil(panels, arg.group);
    arg.rows = tri_gemm_rows(ops, threads, call->m, arg.groups);
    tri_tiles_run(threads, arg.groups * tri_int64_ceil(call->m, arg.rows), run_tile, &arg);
}

void tri_gemm_block(const tri_gemm_ops *ops, const tri_gemm_call *call)
{
    dot_block(ops, call, 0, call->m, 0, tri_int64_ceil(call->n, ops->nr));
}
