/* SPDX-License-Identifier: Apache-2.0
 *
 * conv.c: conv2d as products without patches: a register tile of pixels follows pointers, one per pixel and segment.
 * A segment is a run of taps of one row, contiguous in memory; at the image's edge a copy with zeros is in.
 *
 * Forward and the gradient of x are the same sweep over a grid of pixels with other offsets; for stride s the pixels of
 * x fall into s * s phases, each with its own taps. The gradient of w sums over the pixels of a shard tap by tap (one
 * chain), shards in tree order. Shape letters: x[B,H,W,C], w[D,C/groups,kh,kw]; S, T: channels per group of the source,
 * the target.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"

#define MAX_TAPS      1024
#define SWEEP_TILES   16  /* register tiles of pixels in one task */
#define MAX_SEGMENTS  64  /* of one pass */
#define MAX_RUN       256 /* elements of a segment of several taps */
#define WEIGHT_PIXELS 128 /* of one pass of the gradient of w: rows of an image up to this many pixels stay in L1 */

/* One product over pixels: target grid, where its pixels are, and the taps that they read. */
typedef struct sweep {
    const tri_gemm_ops *ops;
    const float *source, *packed, *bias, *zeros;
    float *target;
    int64_t images, groups;
    int64_t grid[2], first[2], step[2], target_in[2]; /* pixel (i, j) is at first + i * step of the target image */
    int64_t source_in[2], source_step[2];
    int64_t source_channels, target_channels; /* per group */
    int64_t segment_count, run;               /* run: taps of a segment */
    int64_t (*segments)[2];                   /* offsets of the first tap in the source */
    bool relu;
} sweep;

/* Weights [D, C/groups, kh, kw] as the right side of a sweep: panel of the target's channels, rows (tap, source
 * channel). */
typedef struct pack_arg {
    const tri_gemm_ops *ops;
    const float *weights;
    float *packed;
    int64_t groups, source_channels, target_channels, tap_count, panels;
    int64_t source_step, target_step, group_step; /* elements of w between channels of a group and between groups */
    const int64_t *order;                         /* [tap_count] tap of w */
} pack_arg;

static void pack_tile(void *arg, int64_t tile)
{
    const pack_arg *v = arg;
    const int64_t nr = v->ops->nr, group = tile / v->panels, panel = tile % v->panels;
    const int64_t count = tri_int64_min(nr, v->target_channels - panel * nr);
    float *to = v->packed + tile * v->tap_count * v->source_channels * nr;
    const float *from = v->weights + group * v->group_step + panel * nr * v->target_step;
    for (int64_t t = 0; t < v->tap_count; t++) {
        for (int64_t s = 0; s < v->source_channels; s++, to += nr) {
            const float *w = from + s * v->source_step + v->order[t];
            for (int64_t j = 0; j < nr; j++) {
                to[j] = j < count ? w[j * v->target_step] : 0;
            }
        }
    }
}

/* The source of one segment: in place, or zeros, or a copy with zeros where columns are outside the image. */
static const float *segment_at(const sweep *v, const float *image, int64_t y, int64_t x, float *patch)
{
    const int64_t channels = v->source_channels * v->groups;
    const float *row = image + y * v->source_in[1] * channels;
    if (y < 0 || y >= v->source_in[0] || x >= v->source_in[1] || x + v->run <= 0) {
        return v->zeros;
    }
    if (x >= 0 && x + v->run <= v->source_in[1]) {
        return row + x * channels;
    }
    const int64_t low = tri_int64_max(0, -x), high = tri_int64_min(v->run, v->source_in[1] - x);
    memset(patch, 0, (size_t)(v->run * channels) * sizeof(float));
    memcpy(patch + low * channels, row + (x + low) * channels, (size_t)((high - low) * channels) * sizeof(float));
    return patch;
}

/* Pointers of a register tile of pixels: to its target, and to the source of each segment of [first, last). */
static void point(const sweep *v, int64_t pixel, int m, int64_t group, int64_t first, int64_t last, const float **a,
                  float **c, float *patches)
{
    const int64_t mr = v->ops->mr, channels = v->source_channels * v->groups, area = v->grid[0] * v->grid[1];
    int64_t image = pixel / area, h = pixel % area / v->grid[1], w = pixel % v->grid[1];
    for (int i = 0; i < m; i++) {
        c[i] = v->target + (((image * v->target_in[0] + v->first[0] + h * v->step[0]) * v->target_in[1] + v->first[1] +
                             w * v->step[1]) *
                                v->groups +
                            group) *
                               v->target_channels;
        const float *source =
            v->source + image * v->source_in[0] * v->source_in[1] * channels + group * v->source_channels;
        const int64_t top = h * v->source_step[0], left = w * v->source_step[1];
        for (int64_t s = first; s < last; s++) {
            a[(s - first) * mr + i] = segment_at(v, source, top + v->segments[s][0], left + v->segments[s][1], patches);
            patches += v->run > 1 ? v->run * channels : 0;
        }
        if (++w == v->grid[1]) {
            w = 0;
            if (++h == v->grid[0]) {
                h = 0;
                image++;
            }
        }
    }
}

static void sweep_tile(void *arg, int64_t tile)
{
    const sweep *v = arg;
    const tri_gemm_ops *ops = v->ops;
    const int64_t pixels = v->images * v->grid[0] * v->grid[1], panels = tri_int64_ceil(v->target_channels, ops->nr);
    const int64_t group = tile % v->groups, first = tile / v->groups * SWEEP_TILES * ops->mr;
    const int64_t end = tri_int64_min(first + SWEEP_TILES * ops->mr, pixels), len = v->run * v->source_channels;
    const int64_t pass = tri_int64_max(1, tri_int64_min(MAX_SEGMENTS, MAX_RUN / len));
    const float *packed = v->packed + group * panels * v->segment_count * len * ops->nr;
    const float *a[MAX_SEGMENTS * TRI_GEMM_MAX_MR];
    float *c[TRI_GEMM_MAX_MR], patches[TRI_GEMM_MAX_MR * MAX_RUN];
    int64_t segment = 0;
    do { /* once even without segments: the target is zero then */
        const int64_t last = tri_int64_min(segment + pass, v->segment_count);
        const bool final = last == v->segment_count;
        const unsigned flags = (segment == 0 ? TRI_GEMM_FIRST : 0u) | (final && v->relu ? TRI_GEMM_RELU : 0u);
        for (int64_t pixel = first; pixel < end; pixel += ops->mr) {
            const int m = (int)tri_int64_min(ops->mr, end - pixel);
            point(v, pixel, m, group, segment, last, a, c, patches);
            for (int64_t panel = 0; panel < panels; panel++) {
                const int64_t at = panel * ops->nr;
                const int n = (int)tri_int64_min(ops->nr, v->target_channels - at);
                ops->dot(m, n, last - segment, len, a, packed + (panel * v->segment_count + segment) * len * ops->nr, c,
                         final && v->bias != NULL ? v->bias + group * v->target_channels + at : NULL, flags);
                for (int i = 0; i < m; i++) {
                    c[i] += ops->nr;
                }
            }
        }
        segment = last;
    } while (segment < v->segment_count);
}

/* Taps, sorted by row and column of their offsets, to segments: `run` neighbours each where rows are contiguous. */
static void segments_make(sweep *v, int64_t tap_count, int64_t row_taps, int64_t (*taps)[2])
{
    bool contiguous = v->groups == 1 && row_taps * v->source_channels <= MAX_RUN;
    for (int64_t t = 0; t < tap_count && contiguous; t++) {
        contiguous = t % row_taps == 0 || (taps[t][0] == taps[t - 1][0] && taps[t][1] == taps[t - 1][1] + 1);
    }
    v->run = contiguous ? row_taps : 1;
    v->segment_count = tap_count / v->run;
    v->segments = taps;
    for (int64_t i = 0; i < v->segment_count; i++) {
        taps[i][0] = taps[i * v->run][0];
        taps[i][1] = taps[i * v->run][1];
    }
}

static void sweep_run(const sweep *v, int threads)
{
    const int64_t pixels = v->images * v->grid[0] * v->grid[1];
    sweep arg = *v;
    tri_tiles_run(threads, tri_int64_ceil(pixels, SWEEP_TILES * v->ops->mr) * v->groups, sweep_tile, &arg);
}

/* Where things are in scratch, in elements; packed weights are at 0. */
typedef struct layout {
    tri_window w;
    int64_t source_channels, target_channels, taps; /* per group, forward */
    int64_t zeros, leaves, bias_leaves, padded, buffers, buffer_count, total;
    int64_t wide_channels, wide_taps; /* gradient of w: taps of a row count as channels where no column is padding */
    int64_t padded_channels;          /* of a copy of doutput whose groups are whole panels, 0: not needed */
} layout;

/* The longest segment. */
static int64_t zero_count(const layout *l)
{
    return tri_int64_max(MAX_RUN, tri_int64_max(l->source_channels, l->target_channels));
}

static layout layout_make(const tri_op_desc *desc)
{
    const tri_gemm_ops *ops = tri_gemm_find();
    layout l = {.w = tri_window_make(desc)};
    const tri_window *w = &l.w;
    l.source_channels = w->channels / w->groups;
    l.target_channels = w->out_channels / w->groups;
    l.taps = w->kernel[0] * w->kernel[1];
    const bool wide = w->groups == 1 && w->pad[1] == 0 && w->dilation[1] == 1;
    l.wide_channels = l.source_channels * (wide ? w->kernel[1] : 1);
    l.wide_taps = wide ? w->kernel[0] : l.taps;
    const int64_t up = tri_gemm_packed_count(ops, l.taps * l.source_channels, l.target_channels);
    const int64_t down = tri_gemm_packed_count(ops, l.taps * l.target_channels, l.source_channels);
    const int64_t whole = tri_int64_ceil(l.target_channels, ops->nr) * ops->nr;
    l.padded_channels = whole == l.target_channels ? 0 : whole * w->groups;
    l.zeros = tri_align_count(tri_int64_max(up, down) * w->groups);
    l.leaves = l.zeros + tri_align_count(zero_count(&l));
    l.bias_leaves = l.leaves + tri_align_count(tri_shape_count(desc->param[0]) * desc->max_shards);
    l.padded = l.bias_leaves + tri_align_count(w->out_channels * desc->max_shards);
    l.buffers = l.padded + tri_align_count(l.padded_channels * w->batch * w->out[0] * w->out[1] * desc->max_shards);
    l.buffer_count = tri_align_count(tri_int64_ceil(l.wide_channels, ops->mr) * ops->mr * whole);
    l.total = l.buffers + l.buffer_count * desc->threads;
    return l;
}

static tri_status conv_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)layout_make(desc).total * sizeof(float);
    return TRI_OK;
}

static void conv_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const layout l = layout_make(&kernel->desc);
    const tri_window *w = &l.w;
    const tri_gemm_ops *ops = tri_gemm_find();
    float *scratch = call->scratch;
    int64_t order[MAX_TAPS], taps[MAX_TAPS][2];
    for (int64_t t = 0; t < l.taps; t++) {
        order[t] = t;
        taps[t][0] = t / w->kernel[1] * w->dilation[0] - w->pad[0];
        taps[t][1] = t % w->kernel[1] * w->dilation[1] - w->pad[1];
    }
    memset(scratch + l.zeros, 0, (size_t)zero_count(&l) * sizeof(float));
    pack_arg pack = {ops,
                     call->param[0],
                     scratch,
                     w->groups,
                     l.source_channels,
                     l.target_channels,
                     l.taps,
                     tri_int64_ceil(l.target_channels, ops->nr),
                     .source_step = l.taps,
                     .target_step = l.source_channels * l.taps,
                     .group_step = l.target_channels * l.source_channels * l.taps,
                     .order = order};
    tri_tiles_run(kernel->desc.threads, w->groups * pack.panels, pack_tile, &pack);
    sweep up = {.ops = ops,
                .source = call->input[0],
                .packed = scratch,
                .bias = kernel->desc.attr.bias ? call->param[1] : NULL,
                .zeros = scratch + l.zeros,
                .target = call->output,
                .images = w->batch * call->shards,
                .groups = w->groups,
                .grid = {w->out[0], w->out[1]},
                .step = {1, 1},
                .target_in = {w->out[0], w->out[1]},
                .source_in = {w->in[0], w->in[1]},
                .source_step = {w->stride[0], w->stride[1]},
                .source_channels = l.source_channels,
                .target_channels = l.target_channels,
                .relu = kernel->desc.attr.relu};
    segments_make(&up, l.taps, w->kernel[1], taps);
    sweep_run(&up, kernel->desc.threads);
}

/* The taps that reach the pixels of x with remainder `phase`, for one axis: (phase + pad - k dilation) divisible. */
static bool reaches(const tri_window *w, int axis, int64_t phase, int64_t k, int64_t *offset)
{
    const int64_t reach = phase + w->pad[axis] - k * w->dilation[axis];
    *offset = reach / w->stride[axis];
    return reach % w->stride[axis] == 0;
}

static void input_phase(const tri_kernel *kernel, const tri_op_call *call, const layout *l, int64_t row, int64_t column)
{
    const tri_window *w = &l->w;
    const tri_gemm_ops *ops = tri_gemm_find();
    float *scratch = call->scratch;
    int64_t order[MAX_TAPS], taps[MAX_TAPS][2], count = 0, row_taps = 0;
    for (int64_t t = l->taps - 1; t >= 0; t--) { /* from the last tap to the first: offsets rise */
        if (reaches(w, 0, row, t / w->kernel[1], &taps[count][0]) &&
            reaches(w, 1, column, t % w->kernel[1], &taps[count][1])) {
            order[count++] = t;
            row_taps += taps[count - 1][0] == taps[0][0] ? 1 : 0;
        }
    }
    pack_arg pack = {ops,
                     call->param[0],
                     scratch,
                     w->groups,
                     l->target_channels,
                     l->source_channels,
                     count,
                     tri_int64_ceil(l->source_channels, ops->nr),
                     .source_step = l->source_channels * l->taps,
                     .target_step = l->taps,
                     .group_step = l->target_channels * l->source_channels * l->taps,
                     .order = order};
    tri_tiles_run(kernel->desc.threads, w->groups * pack.panels, pack_tile, &pack);
    sweep down = {
        .ops = ops,
        .source = call->doutput,
        .packed = scratch,
        .zeros = scratch + l->zeros,
        .target = call->dinput[0],
        .images = w->batch * call->shards,
        .groups = w->groups,
        .grid = {tri_int64_ceil(w->in[0] - row, w->stride[0]), tri_int64_ceil(w->in[1] - column, w->stride[1])},
        .first = {row, column},
        .step = {w->stride[0], w->stride[1]},
        .target_in = {w->in[0], w->in[1]},
        .source_in = {w->out[0], w->out[1]},
        .source_step = {1, 1},
        .source_channels = l->target_channels,
        .target_channels = l->source_channels};
    segments_make(&down, count, tri_int64_max(row_taps, 1), taps);
    sweep_run(&down, kernel->desc.threads);
}

typedef struct weights_arg {
    const tri_gemm_ops *ops;
    const layout *l;
    const tri_op_call *call;
    const float *dy;     /* doutput or its padded copy */
    int64_t dy_channels; /* of a pixel of it, and of a group */
    int64_t dy_group;
} weights_arg;

/* Output places [low, high) of an axis whose tap k falls inside the image. */
static void valid_range(const tri_window *w, int axis, int64_t k, int64_t *low, int64_t *high)
{
    const int64_t offset = k * w->dilation[axis] - w->pad[axis], stride = w->stride[axis];
    *low = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    const int64_t room = w->in[axis] - 1 - offset;
    *high = room < 0 ? 0 : tri_int64_min(w->out[axis], room / stride + 1);
}

/* Adds the pixels of output rows [row, last_row) of one image under one tap to the register tiles of a group. */
static void weights_rows(const weights_arg *v, int64_t image, int64_t group, const int64_t tap[2], int64_t row,
                         int64_t last_row, const int64_t columns[2], float *acc, unsigned flags)
{
    const layout *l = v->l;
    const tri_window *w = &l->w;
    const int64_t tiles = tri_int64_ceil(l->wide_channels, v->ops->mr), nr = v->ops->nr, mr = v->ops->mr;
    const int64_t h = row * w->stride[0] - w->pad[0] + tap[0] * w->dilation[0];
    const int64_t at = columns[0] * w->stride[1] - w->pad[1] + tap[1] * w->dilation[1];
    const float *a = (const float *)v->call->input[0] + ((image * w->in[0] + h) * w->in[1] + at) * w->channels +
                     group * l->source_channels;
    const float *b =
        v->dy + ((image * w->out[0] + row) * w->out[1] + columns[0]) * v->dy_channels + group * v->dy_group;
    const tri_gemm_walk walk = {.count = {last_row - row, columns[1] - columns[0]},
                                .a_step = {w->stride[0] * w->in[1] * w->channels, w->stride[1] * w->channels},
                                .b_step = {w->out[1] * v->dy_channels, v->dy_channels}};
    for (int64_t panel = 0; panel * nr < l->target_channels; panel++) {
        const int n = (int)tri_int64_min(nr, l->target_channels - panel * nr);
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t first = tile * l->wide_channels / tiles, last = (tile + 1) * l->wide_channels / tiles;
            v->ops->outer((int)(last - first), n, &walk, a + first, b + panel * nr,
                          acc + (panel * tiles + tile) * mr * nr, flags, NULL);
        }
    }
}

/* Register tiles of a group and tap to their places in the leaf [D, C/groups, kh, kw]. */
static void weights_put(const weights_arg *v, int64_t group, int64_t tap, const float *acc, float *leaf)
{
    const layout *l = v->l;
    const int64_t tiles = tri_int64_ceil(l->wide_channels, v->ops->mr), nr = v->ops->nr, mr = v->ops->mr;
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t first = tile * l->wide_channels / tiles, last = (tile + 1) * l->wide_channels / tiles;
        for (int64_t d = 0; d < l->target_channels; d++) {
            const float *from = acc + (d / nr * tiles + tile) * mr * nr + d % nr;
            float *to = leaf + (group * l->target_channels + d) * l->source_channels * l->taps + tap;
            for (int64_t c = first; c < last; c++) {
                to[c % l->source_channels * l->taps + c / l->source_channels] = from[(c - first) * nr];
            }
        }
    }
}

static void weights_tile(void *arg, int64_t tile)
{
    const weights_arg *v = arg;
    const layout *l = v->l;
    const tri_window *w = &l->w;
    const int64_t shard = tile / l->wide_taps, row_taps = l->taps / l->wide_taps;
    const int64_t t = tile % l->wide_taps * row_taps, tap[2] = {t / w->kernel[1], t % w->kernel[1]};
    float *acc = (float *)v->call->scratch + l->buffers + tri_tile_worker() * l->buffer_count;
    float *leaf = (float *)v->call->scratch + l->leaves + shard * w->out_channels * l->source_channels * l->taps;
    int64_t rows[2], columns[2];
    valid_range(w, 0, tap[0], &rows[0], &rows[1]);
    valid_range(w, 1, tap[1], &columns[0], &columns[1]);
    const bool empty = rows[0] >= rows[1] || columns[0] >= columns[1];
    for (int64_t group = 0; group < w->groups; group++) {
        unsigned flags = TRI_GEMM_FIRST;
        memset(acc, 0, empty ? (size_t)l->buffer_count * sizeof(float) : 0);
        const int64_t pass = empty ? 1 : tri_int64_max(1, WEIGHT_PIXELS / (columns[1] - columns[0]));
        for (int64_t b = shard * w->batch; !empty && b < (shard + 1) * w->batch; b++) {
            for (int64_t row = rows[0]; row < rows[1]; row += pass, flags = 0) {
                weights_rows(v, b, group, tap, row, tri_int64_min(row + pass, rows[1]), columns, acc, flags);
            }
        }
        weights_put(v, group, t, acc, leaf);
    }
}

typedef struct pad_arg {
    const layout *l;
    const float *from;
    float *to;
} pad_arg;

static void pad_tile(void *arg, int64_t image)
{
    const pad_arg *v = arg;
    const layout *l = v->l;
    const int64_t groups = l->w.groups, area = l->w.out[0] * l->w.out[1] * groups, whole = l->padded_channels / groups;
    for (int64_t i = image * area; i < (image + 1) * area; i++) {
        memcpy(v->to + i * whole, v->from + i * l->target_channels, (size_t)l->target_channels * sizeof(float));
        memset(v->to + i * whole + l->target_channels, 0, (size_t)(whole - l->target_channels) * sizeof(float));
    }
}

static void weights_run(const tri_kernel *kernel, const tri_op_call *call, const layout *l)
{
    const int threads = kernel->desc.threads;
    float *scratch = call->scratch;
    weights_arg arg = {tri_gemm_find(), l, call, call->doutput, l->w.out_channels, l->target_channels};
    if (l->padded_channels > 0) {
        pad_arg pad = {l, call->doutput, scratch + l->padded};
        tri_tiles_run(threads, l->w.batch * call->shards, pad_tile, &pad);
        arg.dy = scratch + l->padded;
        arg.dy_channels = l->padded_channels;
        arg.dy_group = l->padded_channels / l->w.groups;
    }
    const int64_t count = tri_shape_count(kernel->desc.param[0]);
    tri_tiles_run(threads, l->wide_taps * call->shards, weights_tile, &arg);
    tri_leaves_sum(kernel, call, 0, scratch + l->leaves, count, count);
}

static void conv_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const layout l = layout_make(&kernel->desc);
    const tri_window *w = &l.w;
    float *scratch = call->scratch, *leaves = scratch + l.bias_leaves;
    const bool bias = kernel->desc.attr.bias && tri_call_wants_dparam(call, 1);
    tri_cpu_mask_columns(kernel, call, w->batch * w->out[0] * w->out[1], w->out_channels, kernel->desc.attr.relu,
                         bias ? leaves : NULL);
    if (bias) {
        tri_leaves_sum(kernel, call, 1, leaves, w->out_channels, w->out_channels);
    }
    if (tri_call_wants_dparam(call, 0)) {
        weights_run(kernel, call, &l);
    }
    if (call->dinput[0] == NULL) {
        return;
    }
    memset(scratch + l.zeros, 0, (size_t)zero_count(&l) * sizeof(float));
    for (int64_t row = 0; row < tri_int64_min(w->stride[0], w->in[0]); row++) {
        for (int64_t column = 0; column < tri_int64_min(w->stride[1], w->in[1]); column++) {
            input_phase(kernel, call, &l, row, column);
        }
    }
}

static bool fits(const tri_op_desc *desc)
{
    return desc->attr.kernel[0] <= MAX_TAPS / desc->attr.kernel[1] && !desc->attr.pool;
}

static bool fits_relu(const tri_op_desc *desc)
{
    return desc->attr.relu && fits(desc);
}

const tri_kernel_ops tri_cpu_conv_relu = {
    .op = TRI_OP_CONV,
    .name = "tiles",
    .can = fits_relu,
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
};

const tri_kernel_ops tri_cpu_conv = {
    .op = TRI_OP_CONV,
    .name = "tiles",
    .can = fits,
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .backward_input = true,
    .input_for_weight = true,
};
