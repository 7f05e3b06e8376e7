/* SPDX-License-Identifier: Apache-2.0
 *
 * winograd.c: conv2d 3x3 of stride 1 by Winograd's F(4x4, 3x3): a quarter of the multiplications, as 36 products.
 *
 * Forward and the gradient of x (taps turned, padding 2 - p) are one sweep over blocks of tiles of all shards: source
 * transform, products, target transform, all in cache. The gradient of w sums over the tiles of a shard in 36 products,
 * one chain each, and is transformed once a shard; shards in tree order. S, T: channels of the source, the target.
 *
 * With a fused pool neither the output before it nor its gradient is ever in memory (winograd_pool.h).
 */
#include "kernel/cpu/winograd.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/winograd_pool.h"

#define IN     TRI_WINO_IN
#define OUT    TRI_WINO_OUT
#define TAPS   TRI_WINO_TAPS
#define PLACES TRI_WINO_PLACES
#define LANES  TRI_LANES

#define SWEEP_ELEMENTS   2048 /* tiles of a block times channels: transforms of a block stay in L2 */
#define WEIGHTS_ELEMENTS 2048 /* the same for the gradient of w, whose sums move once a block */
#define SKEW             16   /* elements between places: else all 36 fall into the same sets of the cache */

/* One image's grid of tiles and how it reads its source. */
typedef struct grid {
    int64_t area[2], tiles[2], pad[2]; /* of the target */
    int64_t source[2];
    int64_t source_channels, target_channels;
} grid;

/* Where things are in scratch, in elements; transformed weights are at 0. */
typedef struct layout {
    grid up, down;
    int64_t pooled[2];                                    /* of a fused pool's output */
    int64_t batch, channels, units, block, weights_block; /* blocks in tiles */
    int64_t padded;                                       /* units and what a register tile reads behind them */
    int64_t leaves, leaf_count, bias_leaves, zeros, buffers, buffer_count, total;
} layout;

static grid grid_make(const int64_t area[2], const int64_t source[2], const int64_t pad[2], int64_t source_channels,
                      int64_t target_channels)
{
    grid g = {.source_channels = source_channels, .target_channels = target_channels};
    for (int i = 0; i < 2; i++) {
        g.area[i] = area[i];
        g.source[i] = source[i];
        g.pad[i] = pad[i];
        g.tiles[i] = tri_int64_ceil(area[i], OUT);
    }
    return g;
}

static int64_t whole_panels(const tri_gemm_ops *ops, int64_t channels)
{
    return tri_int64_ceil(channels, ops->nr) * ops->nr;
}

/* Elements of the transforms of `tiles` tiles. */
static int64_t place_count(int64_t tiles, int64_t channels)
{
    return tri_align_count(tiles * channels) + SKEW;
}

static layout layout_make(const tri_op_desc *desc)
{
    const tri_gemm_ops *ops = tri_gemm_find();
    const tri_window w = tri_window_make(desc);
    layout l = {
        .batch = w.batch, .channels = w.channels, .units = w.out_channels, .pooled = {w.out[0] / 2, w.out[1] / 2}};
    const int64_t down_pad[2] = {TAPS - 1 - w.pad[0], TAPS - 1 - w.pad[1]}, both = w.channels + w.out_channels;
    l.up = grid_make(w.out, w.in, w.pad, w.channels, w.out_channels);
    l.down = grid_make(w.in, w.out, down_pad, w.out_channels, w.channels);
    l.padded = tri_gemm_padded(ops, l.units);
    l.block = tri_int64_ceil(tri_int64_max(SWEEP_ELEMENTS / both, 2), ops->mr) * ops->mr;
    l.weights_block =
        tri_int64_min(tri_int64_max(WEIGHTS_ELEMENTS / both, 16), w.batch * l.up.tiles[0] * l.up.tiles[1]);
    l.leaf_count = tri_align_count(TAPS * TAPS * l.channels * l.units);
    l.leaves = tri_align_count(
        PLACES * tri_int64_max(l.channels * whole_panels(ops, l.units), l.units * whole_panels(ops, l.channels)));
    l.bias_leaves = l.leaves + l.leaf_count * desc->max_shards;
    l.zeros = l.bias_leaves + tri_align_count(l.units * desc->max_shards);
    l.buffers = l.zeros + tri_align_count(tri_int64_max(l.channels, l.units));
    const int64_t sweep = PLACES * (place_count(l.block, l.channels) + place_count(l.block, l.units));
    const int64_t sums =
        PLACES * tri_align_count(tri_int64_ceil(l.channels, ops->mr) * ops->mr * whole_panels(ops, l.units));
    const int64_t weights =
        PLACES * (place_count(l.weights_block, l.channels) + place_count(l.weights_block, l.padded)) + sums;
    l.buffer_count = tri_align_count(tri_int64_max(sweep, weights));
    l.total = l.buffers + l.buffer_count * desc->threads;
    return l;
}

typedef struct wino_arg {
    const tri_gemm_ops *ops;
    const tri_kernel *kernel;
    const tri_op_call *call;
    const layout *l;
    const grid *g; /* of the sweep */
    const float *source, *bias;
    float *target, *scratch;
    int64_t tile_count, splits; /* of the sweep; of a shard's gradient of w */
    bool back, relu, pool, mask, sum_bias;
} wino_arg;

/* Weights of the panel's target channels and one source channel to their 36 places. w[D][C][3][3]; back: the target is
 * C and taps are turned. */
TRI_CLONES static void taps_run(float *to, int64_t place_step, const float *w, int64_t target_step, int64_t count,
                                bool back)
{
    tri_lanes g[TAPS * TAPS] = {0}, half[IN * TAPS], u[PLACES];
    for (int64_t j = 0; j < count; j++) {
        for (int t = 0; t < TAPS * TAPS; t++) {
            g[t][j] = w[j * target_step + (back ? TAPS * TAPS - 1 - t : t)];
        }
    }
    for (int j = 0; j < TAPS; j++) {
        tri_wino_taps(half + j, TAPS, g + j, TAPS);
    }
    for (int i = 0; i < IN; i++) {
        tri_wino_taps(u + i * IN, 1, half + i * TAPS, 1);
    }
    for (int p = 0; p < PLACES; p++) {
        tri_lanes_store(to + p * place_step, &u[p]);
    }
}

/* A tile is a panel: packed [place][panel][S][nr]. */
static void taps_tile(void *arg, int64_t panel)
{
    const wino_arg *v = arg;
    const int64_t nr = v->ops->nr, channels = v->l->channels, taps = TAPS * TAPS;
    const int64_t source_step = v->back ? channels * taps : taps, target_step = v->back ? taps : channels * taps;
    const int64_t sources = v->g->source_channels, targets = v->g->target_channels;
    const int64_t place_step = whole_panels(v->ops, targets) * sources;
    for (int64_t s = 0; s < sources; s++) {
        float *to = v->scratch + (panel * sources + s) * nr;
        const float *from = (const float *)v->call->param[0] + s * source_step;
        for (int64_t j = 0; j < nr; j += LANES) {
            const int64_t first = panel * nr + j;
            taps_run(to + j, place_step, from + first * target_step, target_step,
                     tri_int64_max(0, tri_int64_min(LANES, targets - first)), v->back);
        }
    }
}

/* Pointers to the pixels of an `edge` x `edge` square of an image, zeros outside. */
static void point(const float **at, int edge, const float *image, const int64_t area[2], int64_t channels, int64_t h,
                  int64_t w, const float *zeros)
{
    for (int i = 0; i < edge; i++) {
        for (int j = 0; j < edge; j++) {
            const bool inside = h + i >= 0 && h + i < area[0] && w + j >= 0 && w + j < area[1];
            at[i * edge + j] = inside ? image + ((h + i) * area[1] + w + j) * channels : zeros;
        }
    }
}

TRI_CLONES static void source_run(float *to, int64_t place_step, const float *const *at, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        tri_lanes half[PLACES];
        for (int j = 0; j < IN; j++) {
            tri_lanes x[IN];
            for (int i = 0; i < IN; i++) {
                tri_lanes_load(&x[i], at[i * IN + j] + c);
            }
            tri_wino_source(half + j, IN, x, 1);
        }
        for (int i = 0; i < IN; i++) {
            tri_lanes y[IN];
            tri_wino_source(y, 1, half + i * IN, 1);
            for (int j = 0; j < IN; j++) {
                tri_lanes_store(to + (i * IN + j) * place_step + c, &y[j]);
            }
        }
    }
}

/* A dy A' of one tile. */
TRI_CLONES static void spread_run(float *to, int64_t place_step, const float *const *at, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        tri_lanes half[IN * OUT];
        for (int j = 0; j < OUT; j++) {
            tri_lanes x[OUT];
            for (int i = 0; i < OUT; i++) {
                tri_lanes_load(&x[i], at[i * OUT + j] + c);
            }
            tri_wino_spread(half + j, OUT, x, 1);
        }
        for (int i = 0; i < IN; i++) {
            tri_lanes y[IN];
            tri_wino_spread(y, 1, half + i * OUT, 1);
            for (int j = 0; j < IN; j++) {
                tri_lanes_store(to + (i * IN + j) * place_step + c, &y[j]);
            }
        }
    }
}

/* One tile of the target; pixel[]: where each goes, NULL outside. */
TRI_CLONES static void target_run(float *const *pixel, const float *from, int64_t place_step, int64_t channels,
                                  const float *bias, bool relu)
{
    const tri_lanes zero = {0};
    for (int64_t c = 0; c < channels; c += LANES) {
        tri_lanes half[OUT * IN], add = zero;
        if (bias != NULL) {
            tri_lanes_load(&add, bias + c);
        }
        tri_wino_target_half(half, from + c, place_step);
        for (int i = 0; i < OUT; i++) {
            tri_lanes y[OUT];
            tri_wino_target(y, 1, half + i * IN, 1);
            for (int j = 0; j < OUT; j++) {
                y[j] += add;
                if (relu) { /* keeps a NaN */
                    y[j] = (tri_lanes)((tri_lanes_bits)y[j] & ~(y[j] < zero));
                }
                if (pixel[i * OUT + j] != NULL) {
                    tri_lanes_store(pixel[i * OUT + j] + c, &y[j]);
                }
            }
        }
    }
}

/* Image, top and left of target tile `tile`. */
static int64_t tile_place(const grid *g, int64_t tile, int64_t *top, int64_t *left)
{
    const int64_t each = g->tiles[0] * g->tiles[1];
    *top = tile % each / g->tiles[1] * OUT;
    *left = tile % g->tiles[1] * OUT;
    return tile / each;
}

/* What is known of `edge` x `edge` windows of a pool's image from h, v on, in the backward pass; zeros outside. */
static void windows_point(const wino_arg *v, tri_wino_window *at, int edge, int64_t image, int64_t h, int64_t w)
{
    const int64_t *area = v->l->pooled, units = v->l->units;
    const float *zeros = v->scratch + v->l->zeros;
    const tri_wino_window outside = {zeros, zeros, (const uint8_t *)zeros};
    for (int i = 0; i < edge; i++) {
        for (int j = 0; j < edge; j++) {
            const bool inside = h + i >= 0 && h + i < area[0] && w + j >= 0 && w + j < area[1];
            const int64_t first = ((image * area[0] + h + i) * area[1] + w + j) * units;
            at[i * edge + j] = inside ? (tri_wino_window){(const float *)v->call->output + first,
                                                          (const float *)v->call->doutput + first,
                                                          (const uint8_t *)v->call->saved + first}
                                      : outside;
        }
    }
}

/* The same as source_tile() of the gradient before the pool. A source's place 2 h + odd is in window h. */
static void unpooled_tile(const wino_arg *v, int64_t tile, float *to, int64_t step)
{
    const grid *g = &v->l->down;
    tri_wino_window at[TRI_WINO_WINDOWS * TRI_WINO_WINDOWS];
    int64_t top, left;
    const int64_t image = tile_place(g, tile, &top, &left);
    const int64_t h = top - g->pad[0], w = left - g->pad[1];
    const int odd[2] = {(int)(h & 1), (int)(w & 1)};
    windows_point(v, at, TRI_WINO_WINDOWS, image, (h - odd[0]) / 2, (w - odd[1]) / 2);
    tri_wino_source_unpooled(to, step, at, odd, g->source_channels);
}

static void source_tile(const wino_arg *v, const grid *g, const float *source, int64_t tile, float *to, int64_t step)
{
    const float *at[PLACES];
    int64_t top, left;
    const int64_t image = tile_place(g, tile, &top, &left);
    point(at, IN, source + image * g->source[0] * g->source[1] * g->source_channels, g->source, g->source_channels,
          top - g->pad[0], left - g->pad[1], v->scratch + v->l->zeros);
    source_run(to, step, at, g->source_channels);
}

static void pooled_tile(const wino_arg *v, int64_t tile, const float *from, int64_t step)
{
    const grid *g = v->g;
    const int64_t *area = v->l->pooled;
    float *window[OUT / 2 * OUT / 2];
    uint8_t *winner[OUT / 2 * OUT / 2];
    int64_t top, left;
    const int64_t image = tile_place(g, tile, &top, &left);
    for (int i = 0; i < OUT / 2; i++) {
        for (int j = 0; j < OUT / 2; j++) {
            const bool inside = top / 2 + i < area[0] && left / 2 + j < area[1];
            const int64_t at = ((image * area[0] + top / 2 + i) * area[1] + left / 2 + j) * g->target_channels;
            window[i * OUT / 2 + j] = inside ? v->target + at : NULL;
            winner[i * OUT / 2 + j] = inside ? (uint8_t *)v->call->saved + at : NULL;
        }
    }
    tri_wino_target_pooled(window, winner, from, step, g->target_channels, v->bias);
}

static void target_tile(const wino_arg *v, int64_t tile, const float *from, int64_t step)
{
    const grid *g = v->g;
    float *pixel[OUT * OUT];
    int64_t top, left;
    const int64_t image = tile_place(g, tile, &top, &left);
    for (int i = 0; i < OUT; i++) {
        for (int j = 0; j < OUT; j++) {
            const bool inside = top + i < g->area[0] && left + j < g->area[1];
            const int64_t at = ((image * g->area[0] + top + i) * g->area[1] + left + j) * g->target_channels;
            pixel[i * OUT + j] = inside ? v->target + at : NULL;
        }
    }
    target_run(pixel, from, step, g->target_channels, v->bias, v->relu);
}

static float *buffer_of(const wino_arg *v)
{
    return v->scratch + v->l->buffers + tri_tile_worker() * v->l->buffer_count;
}

static void sweep_tile(void *arg, int64_t block)
{
    const wino_arg *v = arg;
    const grid *g = v->g;
    const int64_t sources = g->source_channels, targets = g->target_channels;
    const int64_t first = block * v->l->block, count = tri_int64_min(v->l->block, v->tile_count - first);
    const int64_t in_step = place_count(v->l->block, sources), out_step = place_count(v->l->block, targets);
    const int64_t packed_step = whole_panels(v->ops, targets) * sources;
    float *in = buffer_of(v), *out = in + PLACES * in_step;
    for (int64_t i = 0; i < count; i++) {
        if (v->pool && v->back) {
            unpooled_tile(v, first + i, in + i * sources, in_step);
        } else {
            source_tile(v, g, v->source, first + i, in + i * sources, in_step);
        }
    }
    for (int p = 0; p < PLACES; p++) {
        tri_gemm_block(v->ops, &(tri_gemm_call){.a = in + p * in_step,
                                                .packed = v->scratch + p * packed_step,
                                                .c = out + p * out_step,
                                                .m = count,
                                                .n = targets,
                                                .k = sources,
                                                .lda = sources,
                                                .ldc = targets});
    }
    for (int64_t i = 0; i < count; i++) {
        if (v->pool && !v->back) {
            pooled_tile(v, first + i, out + i * targets, out_step);
        } else {
            target_tile(v, first + i, out + i * targets, out_step);
        }
    }
}

static void sweep_run(wino_arg *v)
{
    const int threads = v->kernel->desc.threads;
    const grid *g = v->g;
    v->tile_count = v->l->batch * v->call->shards * g->tiles[0] * g->tiles[1];
    memset(v->scratch + v->l->zeros, 0, (size_t)tri_int64_max(v->l->channels, v->l->units) * sizeof(float));
    tri_tiles_run(threads, tri_int64_ceil(g->target_channels, v->ops->nr), taps_tile, v);
    tri_tiles_run(threads, tri_int64_ceil(v->tile_count, v->l->block), sweep_tile, v);
}

static void wino_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const layout l = layout_make(&kernel->desc);
    wino_arg arg = {.ops = tri_gemm_find(),
                    .kernel = kernel,
                    .call = call,
                    .l = &l,
                    .g = &l.up,
                    .source = call->input[0],
                    .bias = kernel->desc.attr.bias ? call->param[1] : NULL,
                    .target = call->output,
                    .scratch = call->scratch,
                    .relu = kernel->desc.attr.relu,
                    .pool = kernel->desc.attr.pool};
    sweep_run(&arg);
}

/* The sums of 36 places to the taps of leaf[3][3][C][D]. */
TRI_CLONES static void gather_run(float *leaf, int64_t tap_step, const float *sums, int64_t place_step)
{
    tri_lanes half[TAPS * IN], taps[TAPS];
    for (int j = 0; j < IN; j++) {
        tri_lanes x[IN];
        for (int i = 0; i < IN; i++) {
            tri_lanes_load(&x[i], sums + (i * IN + j) * place_step);
        }
        tri_wino_gather(half + j, IN, x, 1);
    }
    for (int i = 0; i < TAPS; i++) {
        tri_wino_gather(taps, 1, half + i * IN, 1);
        for (int j = 0; j < TAPS; j++) {
            tri_lanes_store(leaf + (i * TAPS + j) * tap_step, &taps[j]);
        }
    }
}

/* sums[place][panel][row tile][mr][nr] (+)= over the tiles of a block. */
static void sums_add(const wino_arg *v, const float *x, int64_t x_step, const float *dy, int64_t dy_step, int64_t count,
                     const int64_t panels[2], float *sums, int64_t sums_step, unsigned flags)
{
    const int64_t mr = v->ops->mr, nr = v->ops->nr, channels = v->l->channels, rows = tri_int64_ceil(channels, mr);
    const tri_gemm_walk walk = {.count = {1, count}, .a_step = {0, channels}, .b_step = {0, v->l->padded}};
    for (int p = 0; p < PLACES; p++) {
        for (int64_t panel = panels[0]; panel < panels[1]; panel++) {
            const int n = (int)tri_int64_min(nr, v->l->units - panel * nr);
            for (int64_t row = 0; row < rows; row++) {
                v->ops->outer((int)tri_int64_min(mr, channels - row * mr), n, &walk, x + p * x_step + row * mr,
                              dy + p * dy_step + panel * nr, sums + p * sums_step + (panel * rows + row) * mr * nr,
                              flags, NULL);
            }
        }
    }
}

/* Transforms of the tiles of dy, columns behind the units are zeros. */
static void spread_tile(const wino_arg *v, int64_t tile, float *to, int64_t step)
{
    const grid *g = &v->l->up;
    const float *at[OUT * OUT];
    int64_t top, left;
    const int64_t image = tile_place(g, tile, &top, &left), units = v->l->units;
    if (v->pool) {
        tri_wino_window window[OUT / 2 * OUT / 2];
        windows_point(v, window, OUT / 2, image, top / 2, left / 2);
        tri_wino_spread_unpooled(to, step, window, units);
    } else {
        point(at, OUT, (const float *)v->call->doutput + image * g->area[0] * g->area[1] * units, g->area, units, top,
              left, v->scratch + v->l->zeros);
        spread_run(to, step, at, units);
    }
    for (int p = 0; p < PLACES && units < v->l->padded; p++) {
        memset(to + p * step + units, 0, (size_t)(v->l->padded - units) * sizeof(float));
    }
}

/* The gradient of the bias where it is not there as an array: sums over the places before the pool, in order. */
static void bias_tile(void *arg, int64_t shard)
{
    const wino_arg *v = arg;
    const layout *l = v->l;
    const int64_t count = l->batch * l->pooled[0] * l->pooled[1], first = shard * count * l->units;
    tri_wino_sum_unpooled(v->scratch + l->bias_leaves + shard * l->units,
                          &(tri_wino_window){(const float *)v->call->output + first,
                                             (const float *)v->call->doutput + first,
                                             (const uint8_t *)v->call->saved + first},
                          l->batch * l->pooled[0], l->pooled[1], l->units);
}

static void weights_tile(void *arg, int64_t tile)
{
    const wino_arg *v = arg;
    const layout *l = v->l;
    const int64_t mr = v->ops->mr, nr = v->ops->nr, shard = tile / v->splits, part = tile % v->splits;
    const int64_t rows = tri_int64_ceil(l->channels, mr), panel_count = tri_int64_ceil(l->units, nr);
    const int64_t panels[2] = {panel_count * part / v->splits, panel_count * (part + 1) / v->splits};
    const int64_t each = l->batch * l->up.tiles[0] * l->up.tiles[1];
    const int64_t x_step = place_count(l->weights_block, l->channels),
                  dy_step = place_count(l->weights_block, l->padded);
    const int64_t sums_step = tri_align_count(rows * mr * panel_count * nr);
    float *x = buffer_of(v), *dy = x + PLACES * x_step, *sums = dy + PLACES * dy_step;
    if (v->pool && v->sum_bias && part == 0) { /* what it reads is wanted again at once */
        bias_tile(arg, shard);
    }
    if (v->mask) {
        tri_cpu_mask_shard(tri_call_doutput(v->kernel, v->call, shard),
                           v->kernel->desc.attr.relu ? tri_call_output(v->kernel, v->call, shard) : NULL,
                           v->sum_bias ? v->scratch + l->bias_leaves + shard * l->units : NULL,
                           l->batch * l->up.area[0] * l->up.area[1], l->units);
    }
    for (int64_t first = 0; first < each; first += l->weights_block) {
        const int64_t count = tri_int64_min(l->weights_block, each - first);
        for (int64_t i = 0; i < count; i++) {
            source_tile(v, &l->up, v->call->input[0], shard * each + first + i, x + i * l->channels, x_step);
            spread_tile(v, shard * each + first + i, dy + i * l->padded, dy_step);
        }
        sums_add(v, x, x_step, dy, dy_step, count, panels, sums, sums_step, first == 0 ? TRI_GEMM_FIRST : 0);
    }
    float *leaf = v->scratch + l->leaves + shard * l->leaf_count;
    for (int64_t c = 0; c < l->channels; c++) {
        for (int64_t d = panels[0] * nr; d < tri_int64_min(panels[1] * nr, l->units); d += LANES) {
            gather_run(leaf + c * l->units + d, l->channels * l->units,
                       sums + ((d / nr * rows + c / mr) * mr + c % mr) * nr + d % nr, sums_step);
        }
    }
}

/* A part's sum [3][3][C][D] to the store's [D][C][3][3], a few units a tile. */
static void turn_tile(void *arg, int64_t unit)
{
    const wino_arg *v = arg;
    const layout *l = v->l;
    for (int part = 0; part < v->call->part_count; part++) {
        const float *from = v->scratch + l->leaves + v->call->parts[part].first * l->leaf_count + unit;
        float *to = v->call->dparam[0][part] + unit * l->channels * TAPS * TAPS;
        for (int64_t c = 0; c < l->channels; c++) {
            for (int64_t t = 0; t < TAPS * TAPS; t++) {
                to[c * TAPS * TAPS + t] = from[(t * l->channels + c) * l->units];
            }
        }
    }
}

static void weights_run(wino_arg *v)
{
    const layout *l = v->l;
    const int threads = v->kernel->desc.threads;
    tri_tiles_run(threads, v->call->shards * v->splits, weights_tile, v);
    tri_leaves_fold(v->kernel, v->call, v->scratch + l->leaves, l->leaf_count);
    tri_tiles_run(threads, l->units, turn_tile, v);
}

static void wino_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const layout l = layout_make(&kernel->desc);
    const int threads = kernel->desc.threads;
    const bool dweights = tri_call_wants_dparam(call, 0);
    float *bias_leaves = (float *)call->scratch + l.bias_leaves;
    wino_arg arg = {.ops = tri_gemm_find(),
                    .kernel = kernel,
                    .call = call,
                    .l = &l,
                    .g = &l.down,
                    .source = call->doutput,
                    .target = call->dinput[0],
                    .scratch = call->scratch,
                    .splits = 1,
                    .back = true,
                    .pool = kernel->desc.attr.pool,
                    .sum_bias = kernel->desc.attr.bias && tri_call_wants_dparam(call, 1)};
    if (call->shards < threads) {
        arg.splits = tri_int64_min(tri_int64_ceil(l.units, arg.ops->nr), tri_int64_ceil(threads, call->shards));
    }
    arg.mask = dweights && arg.splits == 1 && !arg.pool;
    memset(arg.scratch + l.zeros, 0, (size_t)tri_int64_max(l.channels, l.units) * sizeof(float));
    if (arg.pool) {
        tri_tiles_run(threads, arg.sum_bias && !dweights ? call->shards : 0, bias_tile, &arg);
    } else if (!arg.mask) {
        tri_cpu_mask_columns(kernel, call, l.batch * l.up.area[0] * l.up.area[1], l.units, kernel->desc.attr.relu,
                             arg.sum_bias ? bias_leaves : NULL);
    }
    if (dweights) {
        weights_run(&arg);
    }
    if (arg.sum_bias) {
        tri_leaves_sum(kernel, call, 1, bias_leaves, l.units, l.units);
    }
    if (call->dinput[0] != NULL) {
        sweep_run(&arg);
    }
}

static tri_status wino_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)layout_make(desc).total * sizeof(float);
    kernel->saved_nbytes = desc->attr.pool ? (size_t)tri_shape_count(desc->output) : 0; /* winners */
    return TRI_OK;
}

/* 3x3 and stride 1, whole lanes, and images that waste little of the last tiles. */
static bool pays(const tri_op_desc *desc)
{
    const tri_window w = tri_window_make(desc);
    bool fits = w.groups == 1 && w.channels >= 16 && w.out_channels >= 16 && w.channels % LANES == 0 &&
                w.out_channels % LANES == 0;
    for (int i = 0; i < 2; i++) {
        fits = fits && w.kernel[i] == TAPS && w.stride[i] == 1 && w.dilation[i] == 1 && w.pad[i] < TAPS;
    }
    const int64_t tiles = tri_int64_ceil(w.out[0], OUT) * tri_int64_ceil(w.out[1], OUT);
    return fits && w.out[0] * w.out[1] * TAPS * TAPS * 5 >= PLACES * tiles * 8;
}

static bool pays_relu(const tri_op_desc *desc)
{
    return desc->attr.relu && pays(desc);
}

const tri_kernel_ops tri_wino_conv_relu = {
    .op = TRI_OP_CONV,
    .name = "winograd",
    .can = pays_relu,
    .plan = wino_plan,
    .forward = wino_forward,
    .backward = wino_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
    .pools = true,
};

const tri_kernel_ops tri_wino_conv = {
    .op = TRI_OP_CONV,
    .name = "winograd",
    .can = pays,
    .plan = wino_plan,
    .forward = wino_forward,
    .backward = wino_backward,
    .backward_input = true,
    .input_for_weight = true,
};
