/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_tree.c: the gradient of a matrix: sums over the rows of each shard, shards added in tree order, no leaf in
 * memory.
 *
 * Short leaves: each register tile runs through all shards of a part, where they lie, and adds them on a stack
 * (gemm.tmpl.h); nothing is packed, since what one core packs another would have to fetch. Long leaves: packed, in
 * passes over k with a panel's tiles in L2, one level of the stack a buffer.
 */
#include "kernel/cpu/gemm.h"

#define LONG_LEAF   96 /* rows of a shard from which on passes over k pay */
#define TASK_ROWS   16 /* register tiles of rows in one task, for long leaves in one pass */
#define LONG_LEVELS 20 /* of the stack */

static int levels_of(int64_t shards)
{
    int levels = 1;
    while (shards > 1) {
        shards /= 2;
        levels++;
    }
    return levels;
}

/* Elements of packed A, and of what each thread has: a packed panel of B, buffers of long leaves. */
static int64_t packed_rows(const tri_gemm_ops *ops, int64_t m, int64_t k, int64_t shards)
{
    return k < LONG_LEAF ? 0 : tri_align_count(tri_int64_ceil(m, ops->mr) * ops->mr * k * shards);
}

static int64_t panel_count(const tri_gemm_ops *ops, int64_t k, int64_t shards)
{
    return tri_align_count(ops->nr * k * shards);
}

static int64_t thread_count(const tri_gemm_ops *ops, int64_t k, int64_t shards)
{
    return panel_count(ops, k, shards) + (k < LONG_LEAF ? 0 : (1 + levels_of(shards)) * TASK_ROWS * ops->mr * ops->nr);
}

int64_t tri_gemm_tree_count(const tri_gemm_ops *ops, int64_t m, int64_t k, int shards, int threads)
{
    return packed_rows(ops, m, k, shards) + threads * thread_count(ops, k, shards);
}

typedef struct tree_arg {
    const tri_gemm_ops *ops;
    const tri_op_call *call;
    const tri_gemm_tree *tree;
    float *const *out;   /* one per part */
    int64_t rows_of_all; /* k of all shards */
    int64_t row_tiles;   /* ceil(m / mr) */
    float *rows;         /* long leaves: A packed [row tile][k of all shards][mr] */
    float *buffers;      /* of the threads: a panel, then accumulators of long leaves */
    int64_t panel_count, buffer_count;
} tree_arg;

static float *buffer_of(const tree_arg *v)
{
    return v->buffers + tri_tile_worker() * v->buffer_count;
}

/* B's panel [k of all shards][nr] in this thread's buffer. */
static const float *pack_panel(const tree_arg *v, int64_t panel)
{
    const tri_gemm_tree *t = v->tree;
    const int64_t nr = v->ops->nr, n = tri_int64_min(nr, t->n - panel * nr);
    tri_gemm_pack(v->ops, buffer_of(v), t->b + panel * nr, v->rows_of_all, n, t->n, 1, 0);
    return buffer_of(v);
}

static void pack_rows_tile(void *arg, int64_t tile)
{
    const tree_arg *v = arg;
    const int64_t mr = v->ops->mr, first = tile * mr, count = tri_int64_min(mr, v->tree->m - first);
    float *to = v->rows + first * v->rows_of_all;
    const float *from = v->tree->a + first;
    for (int64_t i = 0; i < v->rows_of_all; i++) {
        for (int64_t j = 0; j < count; j++) {
            to[i * mr + j] = from[i * v->tree->m + j];
        }
    }
}

/* Short leaves: some rows of one panel; only where whole vectors would read behind a row is the panel packed. */
static void short_tile(void *arg, int64_t tile)
{
    const tree_arg *v = arg;
    const tri_gemm_ops *ops = v->ops;
    const tri_gemm_tree *t = v->tree;
    const int64_t panels = tri_int64_ceil(t->n, ops->nr), panel = tile % panels;
    const int64_t first = tile / panels * TASK_ROWS * ops->mr, n = tri_int64_min(ops->nr, t->n - panel * ops->nr);
    const int64_t last = tri_int64_min(first + TASK_ROWS * ops->mr, t->m);
    const bool whole = tri_gemm_padded(ops, n) == n;
    const int64_t b_step = whole ? t->n : ops->nr;
    const float *b = whole ? t->b + panel * ops->nr : pack_panel(v, panel);
    const tri_gemm_walk walk = {.count = {1, t->k}, .a_step = {t->k * t->m, t->m}, .b_step = {t->k * b_step, b_step}};
    for (int64_t row = first; row < last; row += ops->mr) {
        for (int part = 0; part < v->call->part_count; part++) {
            const tri_tree_part range = v->call->parts[part];
            ops->tree((int)tri_int64_min(ops->mr, last - row), (int)n, range.count, &walk,
                      t->a + range.first * walk.a_step[0] + row, b + range.first * walk.b_step[0],
                      v->out[part] + row * t->n + panel * ops->nr, t->n);
        }
    }
}

/* acc[count] = sum over one leaf's rows for the register tiles [first_tile, last_tile). */
static void long_leaf(const tree_arg *v, int64_t leaf, int64_t first_tile, int64_t last_tile, int n, const float *b,
                      float *acc)
{
    const tri_gemm_ops *ops = v->ops;
    const tri_gemm_tree *t = v->tree;
    for (int64_t k = 0; k < t->k; k += TRI_GEMM_KC) {
        const tri_gemm_walk walk = {
            .count = {1, tri_int64_min(TRI_GEMM_KC, t->k - k)}, .a_step = {0, ops->mr}, .b_step = {0, ops->nr}};
        for (int64_t tile = first_tile; tile < last_tile; tile++) {
            const float *a = v->rows + (tile * t->k * v->call->shards + leaf * t->k + k) * ops->mr;
            ops->outer((int)tri_int64_min(ops->mr, t->m - tile * ops->mr), n, &walk, a, b + (leaf * t->k + k) * ops->nr,
                       acc + (tile - first_tile) * ops->mr * ops->nr, k == 0 ? TRI_GEMM_FIRST : 0);
        }
    }
}

static void long_part(const tree_arg *v, int64_t panel, int64_t first_tile, int64_t last_tile, const float *b, int part,
                      float *buffers)
{
    const tri_gemm_ops *ops = v->ops;
    const tri_gemm_tree *t = v->tree;
    const tri_tree_part range = v->call->parts[part];
    const int64_t each = TASK_ROWS * ops->mr * ops->nr, used = (last_tile - first_tile) * ops->mr * ops->nr;
    float *slot[LONG_LEVELS + 2]; /* slot[level] of the stack, the last one is being filled */
    const int top = levels_of(range.count), n = (int)tri_int64_min(ops->nr, t->n - panel * ops->nr);
    for (int i = 0; i <= top; i++) {
        slot[i] = buffers + i * each;
    }
    for (int64_t leaf = 0; leaf < range.count; leaf++) {
        float *acc = slot[top];
        long_leaf(v, range.first + leaf, first_tile, last_tile, n, b, acc);
        int level = 0;
        for (int64_t rest = leaf; (rest & 1) != 0; rest >>= 1, level++) {
            tri_vector_add(1, acc, slot[level], acc, used);
        }
        slot[top] = slot[level];
        slot[level] = acc;
    }
    const float *root = slot[top - 1];
    const int64_t last_row = tri_int64_min(last_tile * ops->mr, t->m);
    for (int64_t row = first_tile * ops->mr; row < last_row; row++) {
        memcpy(v->out[part] + row * t->n + panel * ops->nr, root + (row - first_tile * ops->mr) * ops->nr,
               (size_t)n * sizeof(float));
    }
}

static void panel_tile(void *arg, int64_t panel)
{
    const tree_arg *v = arg;
    const float *packed = pack_panel(v, panel);
    for (int64_t tile = 0; tile < v->row_tiles; tile += TASK_ROWS) {
        for (int part = 0; part < v->call->part_count; part++) {
            long_part(v, panel, tile, tri_int64_min(tile + TASK_ROWS, v->row_tiles), packed, part,
                      buffer_of(v) + v->panel_count);
        }
    }
}

void tri_gemm_tree_run(const tri_gemm_ops *ops, const tri_kernel *kernel, const tri_op_call *call, int p,
                       const tri_gemm_tree *tree)
{
    if (!tri_call_wants_dparam(call, p)) {
        return;
    }
    const int threads = kernel->desc.threads, shards = kernel->desc.max_shards;
    const int64_t panels = tri_int64_ceil(tree->n, ops->nr);
    tree_arg arg = {.ops = ops,
                    .call = call,
                    .tree = tree,
                    .out = call->dparam[p],
                    .rows_of_all = tree->k * call->shards,
                    .row_tiles = tri_int64_ceil(tree->m, ops->mr),
                    .rows = tree->scratch,
                    .buffers = tree->scratch + packed_rows(ops, tree->m, tree->k, shards),
                    .panel_count = panel_count(ops, tree->k, shards),
                    .buffer_count = thread_count(ops, tree->k, shards)};
    if (tree->k < LONG_LEAF) {
        tri_tiles_run(threads, panels * tri_int64_ceil(arg.row_tiles, TASK_ROWS), short_tile, &arg);
        return;
    }
    tri_tiles_run(threads, arg.row_tiles, pack_rows_tile, &arg);
    tri_tiles_run(threads, panels, panel_tile, &arg);
}
