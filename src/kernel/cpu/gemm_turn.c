/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_turn.c: products whose large matrix is read where it lies, for a batch with fewer rows than the matrix.
 *
 * The matrix takes the side of the rows of a register tile, the samples, packed, the side of its columns; a block of
 * results is turned on its way out. Each element is the chain over k that tri_gemm_run forms, bit for bit.
 */
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/lanes.h"

/* A task: register tiles of matrix rows times panels. All panels of a usual batch, so that one core alone reads a row:
 * a line that two caches hold is slow to write for the optimizer. */
#define BLOCK_ROWS   24 /* at most, and whole lanes: 16 or 24 */
#define BLOCK_PANELS 4
#define BLOCK_COUNT  ((int64_t)BLOCK_ROWS * BLOCK_PANELS * TRI_GEMM_MAX_NR)

typedef struct turn_arg {
    const tri_gemm_ops *ops;
    const tri_gemm_turn *turn;
    int64_t rows;           /* of a task */
    int64_t panels, groups; /* of panels */
} turn_arg;

typedef struct put_arg {
    float *to; /* [samples][ldc] = act(from[units][nr] turned + bias) */
    const float *from, *bias;
    int64_t ldc, nr, samples, units;
    bool relu;
} put_arg;

/* Eight samples of eight units; `count` of the units are stored. */
TRI_LANES_INLINE put_block(const put_arg *v, int64_t sample, int64_t unit, int64_t count)
{
    const tri_lanes zero = {0};
    tri_lanes block[TRI_LANES], shift = zero;
    if (v->bias != NULL) {
        memcpy(&shift, v->bias + unit, (size_t)count * sizeof(float));
    }
    for (int r = 0; r < TRI_LANES; r++) {
        tri_lanes_load(&block[r], v->from + (unit + r) * v->nr + sample);
    }
    tri_lanes_turn(block);
    for (int64_t i = 0; i < tri_int64_min(TRI_LANES, v->samples - sample); i++) {
        tri_lanes y = block[i];
        float *to = v->to + (sample + i) * v->ldc + unit;
        if (v->bias != NULL) {
            y += shift;
        }
        if (v->relu) { /* keeps a NaN */
            y = (tri_lanes)((tri_lanes_bits)y & ~(y < zero));
        }
        if (count == TRI_LANES) {
            tri_lanes_store(to, &y);
        } else {
            memcpy(to, &y, (size_t)count * sizeof(float));
        }
    }
}

/* Units before samples, so that the lines of a sample are filled in one go. */
TRI_CLONES static void put_turned(const put_arg *v)
{
    for (int64_t sample = 0; sample < v->samples; sample += TRI_LANES) {
        for (int64_t unit = 0; unit < v->units; unit += TRI_LANES) {
            put_block(v, sample, unit, tri_int64_min(TRI_LANES, v->units - unit));
        }
    }
}

/* sums[mr][nr] (+)= over `len` of k for one register tile. */
static void tile_sum(const turn_arg *v, int64_t row, int64_t panel, int64_t k, int64_t len, float *sums)
{
    const tri_gemm_ops *ops = v->ops;
    const tri_gemm_turn *t = v->turn;
    const int m = (int)tri_int64_min(ops->mr, t->m - row), n = (int)tri_int64_min(ops->nr, t->n - panel * ops->nr);
    const float *a = t->a + row * t->row_step + k * t->k_step, *b = t->packed + (panel * t->k + k) * ops->nr;
    const unsigned flags = k == 0 ? TRI_GEMM_FIRST : 0u;
    if (t->row_step == 1) {
        const tri_gemm_walk walk = {.count = {1, len}, .a_step = {0, t->k_step}, .b_step = {0, ops->nr}};
        ops->outer(m, n, &walk, a, b, sums, flags, NULL);
        return;
    }
    const float *from[TRI_GEMM_MAX_MR];
    float *to[TRI_GEMM_MAX_MR];
    for (int i = 0; i < m; i++) {
        from[i] = a + i * t->row_step;
        to[i] = sums + i * ops->nr;
    }
    ops->dot(m, n, 1, len, from, b, to, NULL, flags);
}

static void turn_tile(void *arg, int64_t tile)
{
    const turn_arg *v = arg;
    const tri_gemm_turn *t = v->turn;
    const int64_t nr = v->ops->nr, mr = v->ops->mr, rows = v->rows;
    const int64_t first = tile / v->groups * rows, last = tri_int64_min(first + rows, t->m);
    const int64_t panel = tile % v->groups * BLOCK_PANELS, end = tri_int64_min(panel + BLOCK_PANELS, v->panels);
    _Alignas(64) float sums[BLOCK_COUNT]; /* [panel][rows][nr] */
    for (int64_t k = 0; k < t->k; k += TRI_GEMM_KC) {
        for (int64_t p = panel; p < end; p++) {
            for (int64_t row = first; row < last; row += mr) {
                tile_sum(v, row, p, k, tri_int64_min(TRI_GEMM_KC, t->k - k),
                         sums + ((p - panel) * rows + row - first) * nr);
            }
        }
    }
    for (int64_t p = panel; p < end; p++) {
        put_turned(&(put_arg){.to = t->c + p * nr * t->ldc + first,
                              .from = sums + (p - panel) * rows * nr,
                              .bias = t->bias != NULL ? t->bias + first : NULL,
                              .ldc = t->ldc,
                              .nr = nr,
                              .samples = tri_int64_min(nr, t->n - p * nr),
                              .units = last - first,
                              .relu = t->relu});
    }
}

void tri_gemm_turn_run(const tri_gemm_ops *ops, int threads, const tri_gemm_turn *turn)
{
    turn_arg arg = {.ops = ops, .turn = turn, .panels = tri_int64_ceil(turn->n, ops->nr)};
    arg.rows = 16 % ops->mr == 0 ? 16 : 24;
    arg.groups = tri_int64_ceil(arg.panels, BLOCK_PANELS);
    tri_tiles_run(threads, tri_int64_ceil(turn->m, arg.rows) * arg.groups, turn_tile, &arg);
}
