/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: ops over the last dimension: layer_norm, softmax, cross_entropy. Sums of a row run in fixed lanes, then a
 * tree.
 *
 * Sums over rows (layer_norm's parameters, the loss) run over the rows of a shard in order.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"
#include "tensor/label.h"

#define ROW_TILE    INT64_C(16) /* rows of one tile */
#define ROWS_AHEAD  4           /* rows that are asked for ahead */
#define COLUMN_TILE 64          /* columns of one tile of sums over rows */

/* Declares name(a, b, p, q, count): the sum over i of `term`. */
#define ROW_SUM(name, term)                                                                                            \
    TRI_CLONES static float name(const float *a, const float *b, const float *w, float p, int64_t count)               \
    {                                                                                                                  \
        (void)b;                                                                                                       \
        (void)w;                                                                                                       \
        TRI_ROW_SUM_BODY(term)                                                                                         \
    }
ROW_SUM(sum_square, (a[i] - p) * (a[i] - p))
ROW_SUM(sum_scaled, a[i] * w[i] * (b[i] - p))

typedef struct rows_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    int64_t width, rows, total; /* rows of a shard and of the call */
    int64_t blocks;             /* of rows of a shard, each summed alone */
    float *dscale, *dshift;
} rows_arg;

static rows_arg rows_make(const tri_kernel *kernel, const tri_op_call *call)
{
    rows_arg v = {.kernel = kernel, .call = call, .width = tri_shape_last(&kernel->desc.input[0])};
    v.rows = tri_shape_count(kernel->desc.input[0]) / v.width;
    v.total = v.rows * call->shards;
    v.blocks = tri_leaf_blocks(&kernel->desc);
    v.dscale = call->scratch;
    v.dshift = v.dscale + v.width * call->shards * v.blocks;
    return v;
}

static void rows_run(const tri_kernel *kernel, const tri_op_call *call, tri_tile_fn body)
{
    rows_arg arg = rows_make(kernel, call);
    tri_tiles_run(kernel->desc.threads, tri_int64_ceil(arg.total, ROW_TILE), body, &arg);
}

TRI_CLONES static void norm_map(float *y, const float *x, const float *scale, const float *shift, float mean,
                                float rstd, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        y[i] = (x[i] - mean) * rstd * scale[i] + shift[i];
    }
}

TRI_CLONES static void norm_back(float *dx, const float *dy, const float *x, const float *scale, const float *figure,
                                 int64_t count)
{
    for (int64_t i = 0; i < count; i++) { /* figure: mean, rstd, base, lean */
        dx[i] = figure[1] * (dy[i] * scale[i] - figure[2] - (x[i] - figure[0]) * figure[3]);
    }
}

static void norm_forward_tile(void *arg, int64_t tile)
{
    const rows_arg *v = arg;
    const tri_op_desc *desc = &v->kernel->desc;
    const float epsilon = desc->attr.epsilon == 0 ? 1e-5f : desc->attr.epsilon;
    float *saved = v->call->saved;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        const float *x = (const float *)v->call->input[0] + r * v->width;
        const float mean = tri_row_sum(x, v->width) / (float)v->width;
        const float spread = sum_square(x, NULL, NULL, mean, v->width) / (float)v->width;
        const float rstd = 1.0f / sqrtf(spread + epsilon);
        saved[2 * r] = mean;
        saved[2 * r + 1] = rstd;
        norm_map((float *)v->call->output + r * v->width, x, v->call->param[0], v->call->param[1], mean, rstd,
                 v->width);
    }
}

TRI_CLONES static void norm_columns(float *dscale, float *dshift, const float *dy, const float *x, float mean,
                                    float rstd, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        dscale[i] += dy[i] * ((x[i] - mean) * rstd);
        dshift[i] += dy[i];
    }
}

/* A tile of columns of one block of rows. */
static void norm_params_tile(void *arg, int64_t tile)
{
    const rows_arg *v = arg;
    const int64_t tiles = tri_int64_ceil(v->width, COLUMN_TILE), block = tile / tiles, rows = v->rows / v->blocks;
    const int64_t first = tile % tiles * COLUMN_TILE, count = tri_int64_min(COLUMN_TILE, v->width - first);
    const float *saved = (const float *)v->call->saved;
    float dscale[COLUMN_TILE] = {0}, dshift[COLUMN_TILE] = {0};
    for (int64_t r = block * rows; r < (block + 1) * rows; r++) {
        const int64_t at = r * v->width + first;
        norm_columns(dscale, dshift, (const float *)v->call->doutput + at, (const float *)v->call->input[0] + at,
                     saved[2 * r], saved[2 * r + 1], count);
    }
    memcpy(v->dscale + block * v->width + first, dscale, (size_t)count * sizeof(float));
    memcpy(v->dshift + block * v->width + first, dshift, (size_t)count * sizeof(float));
}

static void norm_row_back(const rows_arg *v, int64_t r)
{
    const float *saved = v->call->saved, *scale = v->call->param[0];
    const int64_t at = r * v->width;
    const float *x = (const float *)v->call->input[0] + at, *dy = (const float *)v->call->doutput + at;
    const float n = (float)v->width, mean = saved[2 * r], rstd = saved[2 * r + 1];
    const float base = tri_row_product(dy, scale, v->width) / n;
    const float lean = sum_scaled(dy, x, scale, mean, v->width) * rstd * rstd / n;
    norm_back((float *)v->call->dinput[0] + at, dy, x, scale, (const float[]){mean, rstd, base, lean}, v->width);
}

static void norm_input_tile(void *arg, int64_t tile)
{
    const rows_arg *v = arg;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        norm_row_back(v, r);
    }
}

/* Both for one block of rows, in one pass over its values. */
static void norm_block_tile(void *arg, int64_t block)
{
    const rows_arg *v = arg;
    const int64_t rows = v->rows / v->blocks;
    const float *saved = v->call->saved;
    float *dscale = v->dscale + block * v->width, *dshift = v->dshift + block * v->width;
    memset(dscale, 0, (size_t)v->width * sizeof(float));
    memset(dshift, 0, (size_t)v->width * sizeof(float));
    for (int64_t r = block * rows; r < (block + 1) * rows; r++) {
        const float *x = (const float *)v->call->input[0] + r * v->width;
        const float *dy = (const float *)v->call->doutput + r * v->width;
        if (r + ROWS_AHEAD < v->total) {
            tri_ahead(x + ROWS_AHEAD * v->width, (size_t)v->width * sizeof(float));
            tri_ahead(dy + ROWS_AHEAD * v->width, (size_t)v->width * sizeof(float));
        }
        norm_columns(dscale, dshift, dy, x, saved[2 * r], saved[2 * r + 1], v->width);
        if (v->call->dinput[0] != NULL) {
            norm_row_back(v, r);
        }
    }
}

static tri_status norm_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t width = tri_shape_last(&desc->input[0]);
    kernel->saved_nbytes = (size_t)(2 * tri_shape_count(desc->input[0]) / width) * sizeof(float);
    kernel->scratch_nbytes = (size_t)(2 * width * desc->max_shards * tri_leaf_blocks(desc)) * sizeof(float);
    return TRI_OK;
}

static void norm_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    rows_run(kernel, call, norm_forward_tile);
}

static void norm_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    rows_arg arg = rows_make(kernel, call);
    const int64_t blocks = call->shards * arg.blocks;
    const bool once = blocks >= 2 * (int64_t)kernel->desc.threads; /* enough for all; the bits are the same */
    if (once) {
        tri_tiles_run(kernel->desc.threads, blocks, norm_block_tile, &arg);
    } else {
        tri_tiles_run(kernel->desc.threads, blocks * tri_int64_ceil(arg.width, COLUMN_TILE), norm_params_tile, &arg);
    }
    tri_blocks_fold(kernel, call, arg.dscale, arg.width);
    tri_blocks_fold(kernel, call, arg.dshift, arg.width);
    tri_leaves_sum(kernel, call, 0, arg.dscale, arg.width, arg.width);
    tri_leaves_sum(kernel, call, 1, arg.dshift, arg.width, arg.width);
    if (call->dinput[0] != NULL && !once) {
        rows_run(kernel, call, norm_input_tile);
    }
}

const tri_kernel_ops tri_cpu_layer_norm = {
    .op = TRI_OP_LAYER_NORM,
    .name = "tiles",
    .plan = norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
    .dinput_may_alias = true,
    .backward_input = true,
};

TRI_CLONES static void softmax_back(float *dx, const float *dy, const float *y, float dot, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        dx[i] = y[i] * (dy[i] - dot);
    }
}

static void softmax_forward_tile(void *arg, int64_t tile)
{
    const rows_arg *v = arg;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        const float *x = (const float *)v->call->input[0] + r * v->width;
        const float top = tri_row_max(x, v->width), sum = tri_row_exp_sum(x, top, v->width);
        tri_row_exp((float *)v->call->output + r * v->width, x, top, 1.0f / sum, v->width);
    }
}

static void softmax_backward_tile(void *arg, int64_t tile)
{
    const rows_arg *v = arg;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        const float *y = (const float *)v->call->output + r * v->width;
        const float *dy = (const float *)v->call->doutput + r * v->width;
        softmax_back((float *)v->call->dinput[0] + r * v->width, dy, y, tri_row_product(y, dy, v->width), v->width);
    }
}

static void softmax_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    rows_run(kernel, call, softmax_forward_tile);
}

static void softmax_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        rows_run(kernel, call, softmax_backward_tile);
    }
}

const tri_kernel_ops tri_cpu_softmax = {
    .op = TRI_OP_SOFTMAX,
    .name = "tiles",
    .forward = softmax_forward,
    .backward = softmax_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
    .backward_output = true,
};

/* Saved per row: the maximum, and the log of the sum of exponentials above it. */
static tri_status loss_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->saved_nbytes = (size_t)(2 * tri_shape_count(desc->input[1])) * sizeof(float);
    kernel->scratch_nbytes = (size_t)(2 * tri_shape_count(desc->input[1]) * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

static bool row_counts(const rows_arg *v, int64_t r)
{
    const int64_t per_sample = v->rows / v->kernel->desc.input[0].dim[0];
    const tri_label label = tri_label_read(((const int32_t *)v->call->input[1])[r]);
    return r % v->rows < v->call->rows[r / v->rows] * per_sample && label.first >= 0 && label.first < v->width &&
           label.second < v->width;
}

/* Of one class. */
static float class_loss(const rows_arg *v, const float *x, int64_t class, float top, float rest)
{
    const float smoothing = v->kernel->desc.attr.smoothing;
    const float loss = top - x[class] + rest;
    if (smoothing <= 0)
        return loss;
    const float mean = tri_row_sum(x, v->width) / (float)v->width;
    return (1 - smoothing) * loss + smoothing * (top - mean + rest);
}

static void loss_forward_tile(void *arg, int64_t tile)
{
    const rows_arg *v = arg;
    float *saved = v->call->saved, *row = v->call->scratch; /* row: loss and hit */
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        if (!row_counts(v, r)) {
            continue;
        }
        const float *x = (const float *)v->call->input[0] + r * v->width;
        const int32_t given = ((const int32_t *)v->call->input[1])[r];
        const tri_label label = tri_label_read(given);
        const int64_t target = tri_label_main(given);
        const float top = tri_row_max(x, v->width), rest = logf(tri_row_exp_sum(x, top, v->width));
        float loss = class_loss(v, x, label.first, top, rest);
        if (label.second != label.first) {
            loss = label.weight * loss + (1 - label.weight) * class_loss(v, x, label.second, top, rest);
        }
        int64_t best = 0;
        while (best < target && !(x[best] >= top)) {
            best++;
        }
        saved[2 * r] = top;
        saved[2 * r + 1] = rest;
        row[2 * r] = loss;
        row[2 * r + 1] = best == target && x[target] >= top ? 1.0f : 0.0f;
    }
}

static void loss_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const rows_arg v = rows_make(kernel, call);
    const float *row = call->scratch;
    rows_run(kernel, call, loss_forward_tile);
    for (int64_t s = 0; s < call->shards; s++) {
        double sum = 0, weight = 0, right = 0;
        for (int64_t r = s * v.rows; r < (s + 1) * v.rows; r++) {
            if (row_counts(&v, r)) {
                sum += (double)row[2 * r];
                right += (double)row[2 * r + 1];
                weight += 1;
            }
        }
        float *out = (float *)call->output + s * TRI_LOSS_COLUMNS;
        out[0] = (float)sum;
        out[1] = (float)weight;
        out[2] = (float)right;
        out[3] = 0;
    }
}

TRI_CLONES static void loss_back(float *dx, const float *x, float top, float scale, float even, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        dx[i] = tri_exp(x[i] - top) * scale - even;
    }
}

static void loss_backward_tile(void *arg, int64_t tile)
{
    const rows_arg *v = arg;
    const float *saved = v->call->saved, smoothing = v->kernel->desc.attr.smoothing;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        float *dx = (float *)v->call->dinput[0] + r * v->width;
        if (!row_counts(v, r)) {
            memset(dx, 0, (size_t)v->width * sizeof(float));
            continue;
        }
        loss_back(dx, (const float *)v->call->input[0] + r * v->width, saved[2 * r], expf(-saved[2 * r + 1]),
                  smoothing / (float)v->width, v->width);
        const tri_label label = tri_label_read(((const int32_t *)v->call->input[1])[r]);
        dx[label.first] -= (1.0f - smoothing) * label.weight;
        if (label.second != label.first) {
            dx[label.second] -= (1.0f - smoothing) * (1.0f - label.weight);
        }
    }
}

static void loss_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        rows_run(kernel, call, loss_backward_tile);
    }
}

const tri_kernel_ops tri_cpu_cross_entropy = {
    .op = TRI_OP_CROSS_ENTROPY,
    .name = "tiles",
    .plan = loss_plan,
    .forward = loss_forward,
    .backward = loss_backward,
    .backward_input = true,
};
