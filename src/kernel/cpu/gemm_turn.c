/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_turn.c: products whose large matrix is read where it is, for a batch with fewer rows than the matrix.
 *
 * The matrix takes the side of the rows of a register tile, the samples, packed, the side of its columns; a block of
 * results is turned on its way out. Each element is the chain over k that tri_gemm_run forms, bit for bit.
 */
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/lanes.h"

/* A task: register tiles of matrix rows times panels. All panels of a usual batch, so that one core alone reads a row:
 * a line that two caches hold is slow to write for the optimizer. */
#define BLOCK_ROWS   INT64_C(64) /* at most, and whole lanes */
#define BLOCK_PANELS 8
#define BLOCK_COUNT  (BLOCK_ROWS * BLOCK_PANELS * TRI_GEMM_MAX_NR)
#define SLAB_PASS    INT64_C(256) /* of k where rows are packed: a panel of samples stays in L1 */
#define LONG_PASS    INT64_C(800) /* where they are not: a panel streams from L2, and sums are taken up as seldom */
#define LINE         16           /* elements of a cache line */
#define SLAB_COUNT   ((BLOCK_ROWS + TRI_GEMM_MAX_MR) * SLAB_PASS) /* whole register tiles */

typedef struct turn_arg {
    const tri_gemm_ops *ops;
    const tri_gemm_turn *turn;
    int64_t rows;           /* of a task */
    int64_t len;            /* of a pass over k */
    int64_t panels, groups; /* of panels */
} turn_arg;

typedef struct put_arg {
    float *to; /* [samples][ldc] = act(from[units][nr] turned + bias) */
    const float *from, *bias;
    int64_t ldc, nr, samples, units;
    bool relu;
} put_arg;

/* `samples` of eight samples of eight units; `count` of the units are stored. */
TRI_LANES_INLINE put_block(const put_arg *v, int64_t sample, int64_t samples, int64_t unit, int64_t count)
{
    const tri_lanes zero = {0};
    const bool relu = v->relu;
    const int64_t ldc = v->ldc;
    tri_lanes block[TRI_LANES], shift = zero;
    if (v->bias != NULL) {
        memcpy(&shift, v->bias + unit, (size_t)count * sizeof(float));
    }
    for (int r = 0; r < TRI_LANES; r++) {
        tri_lanes_load(&block[r], v->from + (unit + r) * v->nr + sample);
    }
    tri_lanes_turn(block);
    float *to = v->to + sample * ldc + unit;
    for (int64_t i = 0; i < samples; i++) {
        tri_lanes y = block[i];
        if (v->bias != NULL) {
            y += shift;
        }
        if (relu) { /* keeps a NaN */
            y = (tri_lanes)((tri_lanes_bits)y & ~(y < zero));
        }
        if (count == TRI_LANES) {
            tri_lanes_store(to + i * ldc, &y);
        } else {
            memcpy(to + i * ldc, &y, (size_t)count * sizeof(float));
        }
    }
}

/* Units before samples, so that the lines of a sample are filled in one go. Whole blocks have a loop of their own, of
 * constants. */
TRI_CLONES static void put_turned(const put_arg *from)
{
    const put_arg v = *from; /* what is stored could be part of it, for all that the compiler knows */
    for (int64_t sample = 0; sample < v.samples; sample += TRI_LANES) {
        const int64_t samples = tri_int64_min(TRI_LANES, v.samples - sample);
        int64_t unit = 0;
        for (; samples == TRI_LANES && unit + TRI_LANES <= v.units; unit += TRI_LANES) {
            put_block(&v, sample, TRI_LANES, unit, TRI_LANES);
        }
        for (; unit < v.units; unit += TRI_LANES) {
            put_block(&v, sample, samples, unit, tri_int64_min(TRI_LANES, v.units - unit));
        }
    }
}

/* What a task reads of the matrix in one pass: `lines` rows of memory of `width` elements each, `stride` apart. */
typedef struct turn_pass {
    const float *at;
    int64_t stride, lines, width;
} turn_pass;

static turn_pass pass_make(const turn_arg *v, int64_t first, int64_t rows, int64_t k)
{
    const tri_gemm_turn *t = v->turn;
    const float *at = t->a + first * t->row_step + k * t->k_step;
    const int64_t len = tri_int64_min(v->len, t->k - k);
    return t->row_step == 1 ? (turn_pass){at, t->k_step, len, rows} : (turn_pass){at, t->row_step, rows, len};
}

/* Asks for share `i` of `count` of the next pass, which is pages apart in memory, while this one is multiplied. */
static void pass_ask(const turn_pass *p, int64_t i, int64_t count)
{
    for (int64_t line = p->lines * i / count; line < p->lines * (i + 1) / count; line++) {
        for (int64_t j = 0; j < p->width; j += LINE) {
            __builtin_prefetch(p->at + line * p->stride + j, 0, 2);
        }
    }
}

/* sums[mr][nr] (+)= over one pass of a register tile: rows [row, row + m) of what the task reads. slab: its rows as
 * tiles [len][mr] where the matrix has rows together; else they are read where they are. */
static void tile_sum(const turn_arg *v, const turn_pass *pass, const float *slab, int64_t row, int m, const float *b,
                     int n, float *sums, unsigned flags)
{
    const tri_gemm_ops *ops = v->ops;
    if (v->turn->row_step == 1) {
        const tri_gemm_walk walk = {.count = {1, pass->lines}, .a_step = {0, ops->mr}, .b_step = {0, ops->nr}};
        ops->outer(m, n, &walk, slab + row * SLAB_PASS, b, sums, flags, NULL);
        return;
    }
    const float *from[TRI_GEMM_MAX_MR];
    float *to[TRI_GEMM_MAX_MR];
    for (int i = 0; i < m; i++) {
        from[i] = pass->at + (row + i) * pass->stride;
        to[i] = sums + i * ops->nr;
    }
    ops->dot(m, n, 1, pass->width, from, b, to, NULL, flags);
}

/* A task: rows [first, first + count) of the matrix, panels [panel, end). */
typedef struct turn_task {
    int64_t first, count, panel, end;
} turn_task;

/* sums[panel][rows][nr] (+)= over the pass that begins at k. */
static void task_pass(const turn_arg *v, const turn_task *task, int64_t k, float *slab, float *sums)
{
    const tri_gemm_turn *t = v->turn;
    const int64_t nr = v->ops->nr, mr = v->ops->mr, after = task->first + task->count;
    const bool more = k + v->len < t->k;
    const turn_pass pass = pass_make(v, task->first, task->count, k);
    const turn_pass next = more ? pass_make(v, task->first, task->count, k + v->len)
                                : pass_make(v, after, tri_int64_min(v->rows, t->m - after), 0);
    const int64_t tiles = tri_int64_ceil(task->count, mr), calls = (task->end - task->panel) * tiles;
    if (t->row_step == 1) {
        tri_gemm_pass(slab, pass.at, pass.stride, pass.lines, pass.width, mr, SLAB_PASS * mr);
    }
    for (int64_t i = 0; i < calls; i++) {
        const int64_t p = task->panel + i / tiles, row = i % tiles * mr;
        pass_ask(&next, i, calls);
        tile_sum(v, &pass, slab, row, (int)tri_int64_min(mr, task->count - row), t->packed + (p * t->k + k) * nr,
                 (int)tri_int64_min(nr, t->n - p * nr), sums + ((p - task->panel) * v->rows + row) * nr,
                 k == 0 ? TRI_GEMM_FIRST : 0u);
    }
}

static void turn_tile(void *arg, int64_t tile)
{
    const turn_arg *v = arg;
    const tri_gemm_turn *t = v->turn;
    const int64_t nr = v->ops->nr, first = tile / v->groups * v->rows, panel = tile % v->groups * BLOCK_PANELS;
    const turn_task task = {.first = first,
                            .count = tri_int64_min(v->rows, t->m - first),
                            .panel = panel,
                            .end = tri_int64_min(panel + BLOCK_PANELS, v->panels)};
    _Alignas(64) float sums[BLOCK_COUNT], slab[SLAB_COUNT];
    for (int64_t k = 0; k < t->k; k += v->len) {
        task_pass(v, &task, k, slab, sums);
    }
    for (int64_t p = panel; p < task.end; p++) {
        put_turned(&(put_arg){.to = t->c + p * nr * t->ldc + first,
                              .from = sums + (p - panel) * v->rows * nr,
                              .bias = t->bias != NULL ? t->bias + first : NULL,
                              .ldc = t->ldc,
                              .nr = nr,
                              .samples = tri_int64_min(nr, t->n - p * nr),
                              .units = task.count,
                              .relu = t->relu});
    }
}

void tri_gemm_turn_run(const tri_gemm_ops *ops, int threads, const tri_gemm_turn *turn)
{
    turn_arg arg = {.ops = ops, .turn = turn, .panels = tri_int64_ceil(turn->n, ops->nr)};
    /* As many tasks for each thread: what does not fill a register tile costs less than a thread that waits. */
    const int64_t tasks = tri_int64_ceil(turn->m, threads * BLOCK_ROWS) * threads;
    arg.rows = tri_int64_ceil(tri_int64_ceil(turn->m, tasks), TRI_LANES) * TRI_LANES;
    arg.groups = tri_int64_ceil(arg.panels, BLOCK_PANELS);
    const int64_t pass = turn->row_step == 1 ? SLAB_PASS : LONG_PASS, passes = tri_int64_ceil(turn->k, pass);
    arg.len = tri_int64_min(pass, tri_int64_ceil(tri_int64_ceil(turn->k, passes), LINE) * LINE);
    tri_tiles_run(threads, tri_int64_ceil(turn->m, arg.rows) * arg.groups, turn_tile, &arg);
}
