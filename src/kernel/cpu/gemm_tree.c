/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_tree.c: the gradient of a matrix: sums over the rows of each shard, shards added in tree order, no leaf in
 * memory.
 *
 * Short leaves: each register tile runs through all shards of a part and adds them on a stack (gemm.tmpl.h). Where many
 * panels follow, a task packs its rows once for all of them: where they are, they are a few elements of a line each, in
 * few sets of L1. Long leaves: a task packs what it needs for one pass over k, a block of rows for L2 and one panel
 * after the other for L1; a level of the stack is a buffer. What the next pass packs is asked for while this one
 * multiplies, and the sums of columns (a bias's gradient) are formed where rows are packed. Rows that are whole pages
 * apart meet in one set of L1, so these are packed from half that length on. The bits are the same: a chain a leaf,
 * then the tree.
 */
#include "kernel/cpu/gemm_half.h"
#include "kernel/cpu/half_loops.h"
#include "tensor/loops.h"

#define INLINE static inline __attribute__((always_inline))

#define SHORT_ROWS   16    /* register tiles of rows in one task of short leaves that packs no rows */
#define SHORT_TILES  8     /* register tiles of rows for each thread, and ... */
#define SHORT_PANELS 8     /* ... panels, from which on packing rows pays */
#define SHORT_COUNT  49152 /* elements of such rows: they are in L2 */
#define SHORT_EVEN   4     /* rows of a task are a multiple of it */
#define SHORT_PAD    16    /* between two tiles of them, so that they do not meet in one set of L1 */
#define SUM_AHEAD    8     /* rows of bf16 that sums of columns ask for ahead */
#define TASK_ROWS    384   /* rows in one task of long leaves, and register tiles of them, at most */
#define TASK_TILES   32
#define TASK_PANELS  12  /* panels in one task of long leaves */
#define PASS         128 /* of k: a panel of B and two row tiles are in L1 */
/* Where leaves go through `column`: a leaf of 512 samples is one pass, so its sums leave the tiles once; a task's rows,
 * columns and levels are in an L2 of 2 MiB. */
#define COLUMN_PASS  256
#define COLUMN_BLOCK 128 /* of k: a panel and a tile of it are in L1 */
#define COLUMN_TILES 12

static int levels_of(int64_t shards)
{
    int levels = 1;
    while (shards > 1) {
        shards /= 2;
        levels++;
    }
    return levels;
}

static int64_t pass_of(const tri_gemm_ops *ops)
{
    return ops->column != NULL ? COLUMN_PASS : PASS;
}

/* Register tiles of rows in one task of long leaves, at most. */
static int64_t task_tiles(const tri_gemm_ops *ops)
{
    return ops->column != NULL ? COLUMN_TILES : tri_int64_min(TASK_TILES, TASK_ROWS / ops->mr);
}

/* Elements of a level of the stack of long leaves: [panel][row tile][mr][nr]. */
static int64_t level_count(const tri_gemm_ops *ops)
{
    return TASK_PANELS * task_tiles(ops) * ops->mr * ops->nr;
}

/* From one tile or panel of `width` to the next: more than it takes, so that they do not meet in one set of L1. */
static int64_t pass_step(const tri_gemm_ops *ops, int64_t width)
{
    return pass_of(ops) * width + 32;
}

/* k of a leaf as it is packed: whole steps. */
static int64_t leaf_len(const tri_gemm_ops *ops, int64_t k)
{
    return ops->column != NULL ? tri_int64_ceil(k, ops->depth) * ops->depth : k;
}

/* Leaves of a part of `count` that one pass takes: a power of two. */
static int64_t leaves_at_once(const tri_gemm_ops *ops, int64_t k, int64_t count)
{
    int64_t leaves = 1;
    while (ops->column != NULL && 2 * leaves <= count && 2 * leaves * leaf_len(ops, k) <= COLUMN_BLOCK) {
        leaves *= 2;
    }
    return leaves;
}

static bool is_pages(int64_t count)
{
    return count % (4096 / (int64_t)sizeof(float)) == 0;
}

bool tri_gemm_tree_is_short(const tri_gemm_ops *ops, const tri_gemm_tree *tree)
{
    const bool pages = is_pages(tree->lda > 0 ? tree->lda : tree->m) || is_pages(tree->n);
    return tri_gemm_tree_may_be_short(ops, tree->k) && !(pages && tree->k >= TRI_GEMM_PAGES);
}

/* Of what each thread has: a packed panel of B; or the rows and panels of one pass, and the stack. */
static int64_t thread_count(const tri_gemm_ops *ops, int64_t k, int64_t shards)
{
    const int64_t panel = tri_align_count(ops->nr * k * shards) + SHORT_COUNT;
    const int64_t passes = task_tiles(ops) * pass_step(ops, ops->mr) + TASK_PANELS * pass_step(ops, ops->nr) +
                           (1 + levels_of(shards)) * level_count(ops);
    if (!tri_gemm_tree_may_be_short(ops, k)) {
        return passes;
    }
    return k < TRI_GEMM_PAGES ? panel : tri_int64_max(panel, passes);
}

int64_t tri_gemm_tree_count(const tri_gemm_ops *ops, int64_t k, int shards, int threads)
{
    return threads * thread_count(ops, k, shards);
}

typedef struct tree_arg {
    const tri_gemm_ops *ops;
    const tri_op_call *call;
    const tri_gemm_tree *tree;
    float *const *out;   /* one per part */
    int64_t rows_of_all; /* k of all shards */
    int64_t lda;         /* of a */
    int64_t row_tiles;   /* ceil(m / mr) */
    int64_t panels;      /* ceil(n / nr) */
    int64_t group;       /* register tiles of rows in one task of long leaves, */
    int64_t short_rows;  /* rows in one of short leaves */
    bool packs_rows;     /* short leaves */
    float *buffers;      /* of the threads */
    int64_t buffer_count;
} tree_arg;

static float *buffer_of(const tree_arg *v)
{
    return v->buffers + tri_tile_worker() * v->buffer_count;
}

/* From one packed tile of short leaves' rows to the next. */
static int64_t short_step(const tree_arg *v)
{
    return v->rows_of_all * v->ops->mr + SHORT_PAD;
}

/* Register tiles of short leaves' rows, of `count` samples in all, that a thread's buffer takes. */
static int64_t short_fit(const tri_gemm_ops *ops, int64_t count)
{
    return SHORT_COUNT / (count * ops->mr + SHORT_PAD);
}

bool tri_gemm_tree_packs(const tri_gemm_ops *ops, int threads, int shards, const tri_gemm_tree *tree)
{
    return tri_gemm_tree_is_short(ops, tree) && tri_int64_ceil(tree->n, ops->nr) >= SHORT_PANELS &&
           tri_int64_ceil(tree->m, ops->mr) >= SHORT_TILES * threads && short_fit(ops, tree->k * shards) >= SHORT_TILES;
}

/* B's panel [k of all shards][nr] in this thread's buffer. */
static const float *pack_panel(const tree_arg *v, int64_t panel)
{
    const tri_gemm_tree *t = v->tree;
    const int64_t nr = v->ops->nr, n = tri_int64_min(nr, t->n - panel * nr);
    tri_gemm_pack(v->ops, buffer_of(v), t->b + panel * nr, v->rows_of_all, n, t->n, 1, 0);
    return buffer_of(v);
}

/* A's rows [first, last) of all shards, tile after tile, behind this thread's panel. */
static const float *pack_rows(const tree_arg *v, int64_t first, int64_t last)
{
    float *rows = buffer_of(v) + tri_align_count(v->ops->nr * v->rows_of_all);
    tri_gemm_pass(rows, v->tree->a + first, v->lda, v->rows_of_all, last - first, v->ops->mr, short_step(v));
    return rows;
}

/* The tiles of rows [first, last) of one panel; `rows`: packed, or NULL. Only where whole vectors would read behind a
 * row is the panel packed. */
static void short_panel(const tree_arg *v, int64_t panel, int64_t first, int64_t last, const float *rows)
{
    const tri_gemm_ops *ops = v->ops;
    const tri_gemm_tree *t = v->tree;
    const int64_t n = tri_int64_min(ops->nr, t->n - panel * ops->nr);
    const bool whole = tri_gemm_padded(ops, n) == n;
    const int64_t b_step = whole ? t->n : ops->nr, a_step = rows != NULL ? ops->mr : v->lda;
    const float *b = whole ? t->b + panel * ops->nr : pack_panel(v, panel);
    const tri_gemm_walk walk = {
        .count = {1, t->k}, .a_step = {t->k * a_step, a_step}, .b_step = {t->k * b_step, b_step}};
    for (int64_t row = first; row < last; row += ops->mr) {
        const float *a = rows != NULL ? rows + (row - first) / ops->mr * short_step(v) : t->a + row;
        for (int part = 0; part < v->call->part_count; part++) {
            const tri_tree_part range = v->call->parts[part];
            ops->tree((int)tri_int64_min(ops->mr, last - row), (int)n, range.count, &walk,
                      a + range.first * walk.a_step[0], b + range.first * walk.b_step[0],
                      v->out[part] + row * t->n + panel * ops->nr, t->n);
        }
    }
}

/* Short leaves: some rows of one panel, or of all. */
static void short_tile(void *arg, int64_t tile)
{
    const tree_arg *v = arg;
    const int64_t first = (v->packs_rows ? tile : tile / v->panels) * v->short_rows;
    const int64_t last = tri_int64_min(first + v->short_rows, v->tree->m);
    if (!v->packs_rows) {
        short_panel(v, tile % v->panels, first, last, NULL);
        return;
    }
    if (v->tree->ready != NULL) {
        v->tree->ready(v->tree->arg, first, last);
    }
    const float *rows = pack_rows(v, first, last);
    for (int64_t panel = 0; panel < v->panels; panel++) {
        short_panel(v, panel, first, last, rows);
    }
}

/* What one task of long leaves works on: row tiles [tile, last_tile), panels [panel, last_panel). */
typedef struct long_task {
    const tree_arg *v;
    int64_t tile, last_tile, panel, last_panel;
    float *rows, *columns, *levels; /* of this thread: row tiles and panels of one pass, the stack */
} long_task;

/* tri_gemm_pass(). Whole lines are read. */
INLINE void pack_pass(float *to, const float *from, int64_t stride, int64_t len, int64_t count, const int64_t width,
                      int64_t step)
{
    const int64_t whole = count / width, rest = count % width;
    for (int64_t i = 0; i < len; i++) {
        for (int64_t j = 0; j < count; j += 16) {
            __builtin_prefetch(from + TRI_GEMM_AHEAD * stride + j, 0, 2);
        }
        for (int64_t part = 0; part < whole; part++) {
            memcpy(to + part * step, from + part * width, (size_t)width * sizeof(float));
        }
        if (rest > 0) {
            memcpy(to + whole * step, from + whole * width, (size_t)rest * sizeof(float));
            memset(to + whole * step + rest, 0, (size_t)(width - rest) * sizeof(float));
        }
        from += stride;
        to += width;
    }
}

/* The widths that matter are constants for the compiler. */
void tri_gemm_pass(float *to, const float *from, int64_t stride, int64_t len, int64_t count, int64_t width,
                   int64_t step)
{
    if (width == 8) {
        pack_pass(to, from, stride, len, count, 8, step);
    } else if (width == 12) {
        pack_pass(to, from, stride, len, count, 12, step);
    } else if (width == 32) {
        pack_pass(to, from, stride, len, count, 32, step);
    } else {
        pack_pass(to, from, stride, len, count, width, step);
    }
}

/* Rows and columns of one pass over pairs [k, k + len) of a leaf of bf16, behind `at` others. */
static void pack_half(const long_task *l, int64_t leaf, int64_t k, int64_t len, int64_t at)
{
    const tri_gemm_ops *ops = l->v->ops;
    const tri_gemm_tree *t = l->v->tree;
    const int64_t first = l->tile * ops->mr, rows = tri_int64_min(l->last_tile * ops->mr, t->m) - first;
    const int64_t left = l->panel * ops->nr, columns = tri_int64_min(l->last_panel * ops->nr, t->n) - left;
    const int64_t row = leaf * t->rows + 2 * k, count = tri_int64_min(2 * len, t->rows - 2 * k);
    const uint16_t *a = t->half_a + row * l->v->lda + first, *b = t->half_b + row * t->n + left;
    uint32_t *to_rows = (uint32_t *)(void *)(l->rows + at * ops->mr);
    uint32_t *to_columns = (uint32_t *)(void *)(l->columns + at * ops->nr);
    if (ops->column != NULL) {
        ops->pack_rows(to_rows, a, l->v->lda, count, rows, pass_step(ops, ops->mr));
        ops->pack_columns(to_columns, b, t->n, count, columns, pass_step(ops, ops->nr));
        return;
    }
    tri_gemm_half_pass(to_rows, a, l->v->lda, count, rows, ops->mr, pass_step(ops, ops->mr));
    tri_gemm_half_pass(to_columns, b, t->n, count, columns, ops->nr, pass_step(ops, ops->nr));
}

/* The same in f32. */
static void pack_wide(const long_task *l, int64_t leaf, int64_t k, int64_t len)
{
    const tri_gemm_ops *ops = l->v->ops;
    const tri_gemm_tree *t = l->v->tree;
    const int64_t first = l->tile * ops->mr, rows = tri_int64_min(l->last_tile * ops->mr, t->m) - first;
    const int64_t left = l->panel * ops->nr, columns = tri_int64_min(l->last_panel * ops->nr, t->n) - left;
    const int64_t row = leaf * t->k + k;
    tri_gemm_pass(l->rows, t->a + row * l->v->lda + first, l->v->lda, len, rows, ops->mr, pass_step(ops, ops->mr));
    tri_gemm_pass(l->columns, t->b + row * t->n + left, t->n, len, columns, ops->nr, pass_step(ops, ops->nr));
}

TRI_CLONES static void row_add(float *sums, const float *row, int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        sums[i] += row[i];
    }
}

/* Adds the rows of one pass to the sums of their columns, before they are packed: they are in L2. */
static void sum_rows(const long_task *l, int64_t leaf, int64_t k, int64_t len)
{
    const tri_gemm_tree *t = l->v->tree;
    const tri_half_loops *loops = tri_half_loops_find();
    const bool half = t->half_a != NULL;
    const int64_t first = l->tile * l->v->ops->mr, count = tri_int64_min(l->last_tile * l->v->ops->mr, t->m) - first;
    const int64_t height = half ? t->rows : t->k, begin = half ? 2 * k : k;
    const int64_t end = tri_int64_min(begin + (half ? 2 * len : len), height);
    float *sums = t->sums + leaf * t->m + first;
    if (k == 0) {
        memset(sums, 0, (size_t)count * sizeof *sums);
    }
    for (int64_t row = leaf * height + begin; row < leaf * height + end; row++) {
        if (half) {
            const uint16_t *from = t->half_a + row * l->v->lda + first;
            if (row + SUM_AHEAD < leaf * height + end) {
                tri_ahead(from + SUM_AHEAD * l->v->lda, (size_t)count * sizeof *from);
            }
            loops->add(sums, from, count);
        } else {
            row_add(sums, t->a + row * l->v->lda + first, count);
        }
    }
}

/* Tile `tile` of panel `panel` of what comes after a leaf: the same tile of each level, and its place in the gradient.
 */
static void close_at(const long_task *l, const tri_gemm_close *leaf, int64_t panel, int64_t tile, tri_gemm_close *close)
{
    const tri_gemm_ops *ops = l->v->ops;
    const int64_t at = ((panel - l->panel) * (l->last_tile - l->tile) + tile) * ops->mr * ops->nr;
    close->count = leaf->count;
    for (int level = 0; level < leaf->count; level++) {
        close->left[level] = leaf->left[level] + at;
    }
    close->out = leaf->out != NULL ? leaf->out + (l->tile + tile) * ops->mr * leaf->out_step + panel * ops->nr : NULL;
    close->out_step = leaf->out_step;
}

/* Rows that the next pass packs, and how far they have been asked for: a few lines a tile, so that packing finds them
 * in L2. */
typedef struct pass_ahead {
    const char *from; /* of the next row */
    int64_t stride;   /* bytes */
    int64_t rows, lines, line;
    int64_t each; /* lines a tile */
} pass_ahead;

static void ahead_step(pass_ahead *ahead)
{
    for (int64_t count = ahead->each; count > 0 && ahead->rows > 0; count--) {
        __builtin_prefetch(ahead->from + 64 * ahead->line, 0, 2);
        if (++ahead->line == ahead->lines) {
            ahead->line = 0;
            ahead->from += ahead->stride;
            ahead->rows--;
        }
    }
}

/* The rows behind those of leaf `leaf` from k on: of a (first: of its tiles) or of b. */
static pass_ahead ahead_make(const long_task *l, bool is_a, int64_t leaf, int64_t k)
{
    const tri_gemm_ops *ops = l->v->ops;
    const tri_gemm_tree *t = l->v->tree;
    const bool half = t->half_a != NULL;
    const int64_t nbytes = half ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float), height = half ? t->rows : t->k;
    const int64_t first = is_a ? l->tile * ops->mr : l->panel * ops->nr, width = is_a ? t->m : t->n;
    const int64_t last = tri_int64_min(is_a ? l->last_tile * ops->mr : l->last_panel * ops->nr, width);
    const int64_t stride = is_a ? l->v->lda : t->n, row = leaf * height + (half ? 2 * k : k);
    const char *from = is_a ? (half ? (const char *)t->half_a : (const char *)t->a)
                            : (half ? (const char *)t->half_b : (const char *)t->b);
    pass_ahead ahead = {.from = from + (row * stride + first) * nbytes,
                        .stride = stride * nbytes,
                        .rows =
                            tri_int64_min(half ? 2 * pass_of(ops) : pass_of(ops), l->v->call->shards * height - row),
                        .lines = tri_int64_ceil((last - first) * nbytes, 64)};
    const int64_t tiles = (l->last_panel - l->panel) * (l->last_tile - l->tile);
    ahead.each = tri_int64_ceil(ahead.rows * ahead.lines, tiles);
    return ahead;
}

/* The tiles of one panel in one pass. */
static void pass_tiles(const long_task *l, int64_t panel, const tri_gemm_walk *walk, float *acc, unsigned flags,
                       const tri_gemm_close *after, pass_ahead *ahead)
{
    const tri_gemm_ops *ops = l->v->ops;
    const tri_gemm_tree *t = l->v->tree;
    const int64_t n = tri_int64_min(ops->nr, t->n - panel * ops->nr), area = ops->mr * ops->nr;
    const float *columns = l->columns + (panel - l->panel) * pass_step(ops, ops->nr);
    for (int64_t tile = 0; tile < l->last_tile - l->tile; tile++) {
        tri_gemm_close close;
        if (after != NULL) {
            close_at(l, after, panel, tile, &close);
        }
        ops->outer((int)tri_int64_min(ops->mr, t->m - (l->tile + tile) * ops->mr), (int)n, walk,
                   l->rows + tile * pass_step(ops, ops->mr), columns, acc + tile * area, flags,
                   after != NULL ? &close : NULL);
        ahead_step(&ahead[0]);
        ahead_step(&ahead[1]);
    }
}

/* The same by `column`, of some leaves, or of one in blocks of k. */
static void pass_column(const long_task *l, int64_t panel, int64_t leaves, int64_t len, float *acc, unsigned flags,
                        const tri_gemm_close *after)
{
    const tri_gemm_ops *ops = l->v->ops;
    const tri_gemm_tree *t = l->v->tree;
    const int64_t all = leaf_len(ops, len), block = leaves > 1 ? all : COLUMN_BLOCK;
    tri_gemm_close close;
    if (after != NULL) {
        close_at(l, after, panel, 0, &close);
    }
    for (int64_t k = 0; k < all; k += block) {
        ops->column(&(tri_gemm_column){.a = l->rows + k * ops->mr,
                                       .b = l->columns + (panel - l->panel) * pass_step(ops, ops->nr) + k * ops->nr,
                                       .c = acc,
                                       .m = tri_int64_min(l->last_tile * ops->mr, t->m) - l->tile * ops->mr,
                                       .n = tri_int64_min(ops->nr, t->n - panel * ops->nr),
                                       .a_step = pass_step(ops, ops->mr),
                                       .leaves = leaves,
                                       .pairs = tri_int64_min(block, all - k),
                                       .flags = k == 0 ? flags : 0,
                                       .close = k + block >= all && after != NULL ? &close : NULL});
    }
}

/* acc = tree over the sums of some leaves' rows, by passes, and what comes after it. More than one leaf are one pass.
 */
static void long_leaves(const long_task *l, int64_t first, int64_t leaves, float *acc, const tri_gemm_close *after)
{
    const tri_gemm_ops *ops = l->v->ops;
    const tri_gemm_tree *t = l->v->tree;
    const int64_t pass = pass_of(ops);
    for (int64_t k = 0; k < t->k; k += pass) {
        const int64_t len = tri_int64_min(pass, t->k - k);
        const tri_gemm_close *close = k + len == t->k ? after : NULL;
        const unsigned flags = k == 0 ? TRI_GEMM_FIRST : 0;
        const tri_gemm_walk walk = {.count = {1, len}, .a_step = {0, ops->mr}, .b_step = {0, ops->nr}};
        for (int64_t leaf = 0; leaf < leaves && t->sums != NULL && l->panel == 0; leaf++) {
            sum_rows(l, first + leaf, k, len);
        }
        for (int64_t leaf = 0; leaf < leaves && t->half_a != NULL; leaf++) {
            pack_half(l, first + leaf, k, len, leaf * leaf_len(ops, len));
        }
        if (t->half_a == NULL) {
            pack_wide(l, first, k, len);
        }
        pass_ahead ahead[2] = {ahead_make(l, true, first + leaves - 1, k + len),
                               ahead_make(l, false, first + leaves - 1, k + len)};
        for (int64_t panel = l->panel; panel < l->last_panel; panel++) {
            float *sums = acc + (panel - l->panel) * (l->last_tile - l->tile) * ops->mr * ops->nr;
            if (ops->column != NULL) {
                pass_column(l, panel, leaves, len, sums, flags, close);
            } else {
                pass_tiles(l, panel, &walk, sums, flags, close, ahead);
            }
        }
    }
}

static void long_part(const long_task *l, int part)
{
    const tree_arg *v = l->v;
    const tri_tree_part range = v->call->parts[part];
    float *slot[TRI_GEMM_LEVELS + 2]; /* slot[level] of the stack, the last one is being filled */
    const int top = levels_of(range.count);
    for (int i = 0; i <= top; i++) {
        slot[i] = l->levels + i * level_count(v->ops);
    }
    const int64_t leaves = leaves_at_once(v->ops, v->tree->k, range.count);
    for (int64_t leaf = 0; leaf < range.count; leaf += leaves) {
        float *acc = slot[top];
        tri_gemm_close after = {.out_step = v->tree->n};
        for (int64_t rest = leaf / leaves; (rest & 1) != 0; rest >>= 1) {
            after.left[after.count] = slot[after.count];
            after.count++;
        }
        after.out = leaf + leaves == range.count ? v->out[part] : NULL;
        long_leaves(l, range.first + leaf, leaves, acc, &after);
        slot[top] = slot[after.count];
        slot[after.count] = acc;
    }
}

static void long_tile(void *arg, int64_t tile)
{
    const tree_arg *v = arg;
    const int64_t groups = tri_int64_ceil(v->row_tiles, v->group);
    long_task l = {.v = v, .tile = tile % groups * v->group, .panel = tile / groups * TASK_PANELS};
    l.last_tile = tri_int64_min(l.tile + v->group, v->row_tiles);
    l.last_panel = tri_int64_min(l.panel + TASK_PANELS, v->panels);
    l.rows = buffer_of(v);
    l.columns = l.rows + task_tiles(v->ops) * pass_step(v->ops, v->ops->mr);
    l.levels = l.columns + TASK_PANELS * pass_step(v->ops, v->ops->nr);
    tri_gemm_enter(v->ops);
    for (int part = 0; part < v->call->part_count; part++) {
        long_part(&l, part);
    }
    tri_gemm_leave(v->ops);
}

/* Groups of rows that fit the buffer, equal, and as many for each thread: a register tile that is not full costs less
 * than a thread that waits. */
static void run_short(tree_arg *v, int threads)
{
    v->packs_rows = tri_gemm_tree_packs(v->ops, threads, v->call->shards, v->tree);
    TRI_ASSERT(v->packs_rows || v->tree->ready == NULL);
    v->short_rows = SHORT_ROWS * v->ops->mr;
    if (v->packs_rows) {
        const int64_t most = short_fit(v->ops, v->rows_of_all) * v->ops->mr / SHORT_EVEN * SHORT_EVEN;
        const int64_t groups = tri_int64_ceil(tri_int64_ceil(v->tree->m, most), threads) * threads;
        v->short_rows = tri_int64_ceil(tri_int64_ceil(v->tree->m, groups), SHORT_EVEN) * SHORT_EVEN;
        TRI_ASSERT(v->short_rows <= most);
    }
    const int64_t tasks = tri_int64_ceil(v->tree->m, v->short_rows);
    tri_tiles_run(threads, tasks * (v->packs_rows ? 1 : v->panels), short_tile, v);
}

void tri_gemm_tree_run(const tri_gemm_ops *ops, const tri_kernel *kernel, const tri_op_call *call, int p,
                       const tri_gemm_tree *tree)
{
    if (!tri_call_wants_dparam(call, p)) {
        return;
    }
    const int threads = kernel->desc.threads;
    tree_arg arg = {.ops = ops,
                    .call = call,
                    .tree = tree,
                    .out = call->dparam[p],
                    .rows_of_all = tree->k * call->shards,
                    .lda = tree->lda > 0 ? tree->lda : tree->m,
                    .row_tiles = tri_int64_ceil(tree->m, ops->mr),
                    .panels = tri_int64_ceil(tree->n, ops->nr),
                    .buffers = tree->scratch,
                    .buffer_count = thread_count(ops, tree->k, kernel->desc.max_shards)};
    if (tri_gemm_tree_is_short(ops, tree)) {
        run_short(&arg, threads);
        return;
    }
    /* Equal groups, as many for each thread: bits do not depend on the cut. */
    const int64_t wide = tri_int64_ceil(arg.panels, TASK_PANELS),
                  least = tri_int64_ceil(arg.row_tiles, task_tiles(ops));
    const int64_t groups = tri_int64_ceil(least * wide, threads) * threads;
    arg.group = tri_int64_ceil(arg.row_tiles, tri_int64_ceil(groups, wide));
    tri_tiles_run(threads, tri_int64_ceil(arg.row_tiles, arg.group) * wide, long_tile, &arg);
}
