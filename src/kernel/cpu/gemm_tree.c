/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_tree.c: the gradient of a matrix: sums over the rows of each shard, shards added in tree order, no leaf in
 * memory.
 *
 * A task is one panel of columns. Short leaves: each register tile runs through all shards of a part and adds them on a
 * stack (gemm.tmpl.h). Long leaves: passes over k with the panel's tiles in L2, one level of the stack a buffer.
 */
#include "kernel/cpu/gemm.h"

#define LONG_LEAF   96 /* rows of a shard from which on passes over k pay */
#define LONG_ROWS   16 /* register tiles of rows in one task of long leaves */
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

/* Elements of packed A, packed panels of B and buffers of one thread. */
static int64_t packed_rows(const tri_gemm_ops *ops, int64_t m, int64_t k, int64_t shards)
{
    return tri_align_count(tri_int64_ceil(m, ops->mr) * ops->mr * k * shards);
}

static int64_t thread_count(const tri_gemm_ops *ops, int64_t k, int64_t shards)
{
    const int64_t panel = tri_align_count(ops->nr * k * shards);
    return k < LONG_LEAF ? panel : panel + (1 + levels_of(shards)) * LONG_ROWS * ops->mr * ops->nr;
}

int64_t tri_gemm_tree_count(const tri_gemm_ops *ops, int64_t m, int64_t n, int64_t k, int shards, int threads)
{
    (void)n;
    return packed_rows(ops, m, k, shards) + threads * thread_count(ops, k, shards);
}

typedef struct tree_arg {
    const tri_gemm_ops *ops;
    const tri_op_call *call;
    const tri_gemm_tree *tree;
    float *const *out; /* one per part */
    float *rows;       /* A packed [m / mr][k of all shards][mr] */
    float *buffers;    /* of the threads */
    int64_t buffer_count;
} tree_arg;

static void pack_rows_tile(void *arg, int64_t tile)
{
    const tree_arg *v = arg;
    const int64_t mr = v->ops->mr, k = v->tree->k * v->call->shards, first = tile * mr;
    const int64_t count = tri_int64_min(mr, v->tree->m - first);
    float *to = v->rows + tile * mr * k;
    const float *from = v->tree->a + first;
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < count; j++) {
            to[i * mr + j] = from[i * v->tree->m + j];
        }
    }
}

static void short_panel(const tree_arg *v, int64_t panel, const float *b)
{
    const tri_gemm_ops *ops = v->ops;
    const tri_gemm_tree *t = v->tree;
    const int n = (int)tri_int64_min(ops->nr, t->n - panel * ops->nr);
    for (int64_t row = 0; row < t->m; row += ops->mr) {
        const float *a = v->rows + row * t->k * v->call->shards;
        for (int part = 0; part < v->call->part_count; part++) {
            const tri_tree_part range = v->call->parts[part];
            ops->tree((int)tri_int64_min(ops->mr, t->m - row), n, range.count, t->k, a + range.first * t->k * ops->mr,
                      b + range.first * t->k * ops->nr, v->out[part] + row * t->n + panel * ops->nr, t->n);
        }
    }
}

/* acc[count] = sum over one leaf's rows for the register tiles [first_tile, last_tile). */
static void long_leaf(const tree_arg *v, int64_t leaf, int64_t first_tile, int64_t last_tile, const float *b,
                      float *acc)
{
    const tri_gemm_ops *ops = v->ops;
    const tri_gemm_tree *t = v->tree;
    for (int64_t k = 0; k < t->k; k += TRI_GEMM_KC) {
        const tri_gemm_walk walk = {
            .count = {1, tri_int64_min(TRI_GEMM_KC, t->k - k)}, .a_step = {0, ops->mr}, .b_step = {0, ops->nr}};
        for (int64_t tile = first_tile; tile < last_tile; tile++) {
            const float *a = v->rows + (tile * t->k * v->call->shards + leaf * t->k + k) * ops->mr;
            ops->outer((int)tri_int64_min(ops->mr, t->m - tile * ops->mr), &walk, a, b + (leaf * t->k + k) * ops->nr,
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
    const int64_t each = LONG_ROWS * ops->mr * ops->nr, used = (last_tile - first_tile) * ops->mr * ops->nr;
    float *slot[LONG_LEVELS + 2]; /* slot[level] of the stack, the last one is being filled */
    const int top = levels_of(range.count);
    for (int i = 0; i <= top; i++) {
        slot[i] = buffers + i * each;
    }
    for (int64_t leaf = 0; leaf < range.count; leaf++) {
        float *acc = slot[top];
        long_leaf(v, range.first + leaf, first_tile, last_tile, b, acc);
        int level = 0;
        for (int64_t rest = leaf; (rest & 1) != 0; rest >>= 1, level++) {
            tri_vector_add(1, acc, slot[level], acc, used);
        }
        slot[top] = slot[level];
        slot[level] = acc;
    }
    const float *root = slot[top - 1];
    const int64_t n = tri_int64_min(ops->nr, t->n - panel * ops->nr);
    const int64_t last_row = tri_int64_min(last_tile * ops->mr, t->m);
    for (int64_t row = first_tile * ops->mr; row < last_row; row++) {
        memcpy(v->out[part] + row * t->n + panel * ops->nr, root + (row - first_tile * ops->mr) * ops->nr,
               (size_t)n * sizeof(float));
    }
}

static void panel_tile(void *arg, int64_t panel)
{
    const tree_arg *v = arg;
    const tri_gemm_tree *t = v->tree;
    float *buffer = v->buffers + tri_tile_worker() * v->buffer_count;
    const int64_t k = t->k * v->call->shards, nr = v->ops->nr;
    tri_gemm_pack(v->ops, buffer, t->b + panel * nr, k, tri_int64_min(nr, t->n - panel * nr), t->n, 1, 0);
    if (t->k < LONG_LEAF) {
        short_panel(v, panel, buffer);
        return;
    }
    const int64_t tiles = tri_int64_ceil(t->m, v->ops->mr);
    for (int64_t tile = 0; tile < tiles; tile += LONG_ROWS) {
        for (int part = 0; part < v->call->part_count; part++) {
            long_part(v, panel, tile, tri_int64_min(tile + LONG_ROWS, tiles), buffer, part,
                      buffer + tri_align_count(nr * k));
        }
    }
}

void tri_gemm_tree_run(const tri_gemm_ops *ops, const tri_kernel *kernel, const tri_op_call *call, int p,
                       const tri_gemm_tree *tree)
{
    if (!tri_call_wants_dparam(call, p)) {
        return;
    }
    const int threads = kernel->desc.threads;
    tree_arg arg = {.ops = ops, .call = call, .tree = tree, .out = call->dparam[p], .rows = tree->scratch};
    arg.buffers = tree->scratch + packed_rows(ops, tree->m, tree->k, kernel->desc.max_shards);
    arg.buffer_count = thread_count(ops, tree->k, kernel->desc.max_shards);
    tri_tiles_run(threads, tri_int64_ceil(tree->m, ops->mr), pack_rows_tile, &arg);
    tri_tiles_run(threads, tri_int64_ceil(tree->n, ops->nr), panel_tile, &arg);
}
