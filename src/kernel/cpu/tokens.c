/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens.c: the light ops of transformers: rms_norm, swiglu, positions, rope. A few rows (tokens) are a tile.
 *
 * Sums over rows run over the rows of a shard in order, then over shards in tree order.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/row_math.h"
#include "kernel/cpu/vector_math.h"

#define ROW_TILE    INT64_C(16) /* rows of one tile */
#define COLUMN_TILE 64          /* columns of one tile of sums over rows */

typedef struct tokens_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    int64_t width, rows, total; /* elements of a row; rows of a shard and of the call */
    const float *from;
    float *to;
    float sign;
} tokens_arg;

static tokens_arg tokens_make(const tri_kernel *kernel, const tri_op_call *call)
{
    tokens_arg v = {.kernel = kernel, .call = call, .width = tri_shape_last(&kernel->desc.input[0])};
    v.rows = tri_shape_count(kernel->desc.input[0]) / v.width;
    v.total = v.rows * call->shards;
    return v;
}

static void tokens_run(const tokens_arg *arg, tri_tile_fn body)
{
    tri_tiles_run(arg->kernel->desc.threads, tri_int64_ceil(arg->total, ROW_TILE), body, (void *)arg);
}

/* --- rms_norm; saved per row: 1 / root of the mean square --- */

static tri_status rms_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t width = tri_shape_last(&desc->input[0]);
    kernel->saved_nbytes = (size_t)(tri_shape_count(desc->input[0]) / width) * sizeof(float);
    kernel->scratch_nbytes = (size_t)(width * desc->max_shards * tri_leaf_blocks(desc)) * sizeof(float);
    return TRI_OK;
}

TRI_CLONES static void rms_map(float *y, const float *x, const float *scale, float inverse, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        y[i] = x[i] * inverse * scale[i];
    }
}

static void rms_forward_tile(void *arg, int64_t tile)
{
    const tokens_arg *v = arg;
    const float epsilon = v->kernel->desc.attr.epsilon == 0 ? 1e-5f : v->kernel->desc.attr.epsilon;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        const float *x = (const float *)v->call->input[0] + r * v->width;
        const float inverse = 1.0f / sqrtf(tri_row_product(x, x, v->width) / (float)v->width + epsilon);
        ((float *)v->call->saved)[r] = inverse;
        rms_map((float *)v->call->output + r * v->width, x, v->call->param[0], inverse, v->width);
    }
}

TRI_CLONES static float rms_dot(const float *dy, const float *scale, const float *x,
                                int64_t count){TRI_ROW_SUM_BODY(dy[i] * scale[i] * x[i])}

TRI_CLONES static void rms_back(float *dx, const float *dy, const float *x, const float *scale, float inverse,
                                float lean, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        dx[i] = inverse * (dy[i] * scale[i]) - x[i] * lean;
    }
}

static void rms_input_tile(void *arg, int64_t tile)
{
    const tokens_arg *v = arg;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        const float *x = (const float *)v->call->input[0] + r * v->width, *scale = v->call->param[0];
        const float *dy = (const float *)v->call->doutput + r * v->width;
        const float inverse = ((const float *)v->call->saved)[r];
        const float lean = rms_dot(dy, scale, x, v->width) * inverse * inverse * inverse / (float)v->width;
        rms_back((float *)v->call->dinput[0] + r * v->width, dy, x, scale, inverse, lean, v->width);
    }
}

TRI_CLONES static void rms_columns(float *sum, const float *dy, const float *x, float inverse, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        sum[i] += dy[i] * (x[i] * inverse);
    }
}

/* A tile of columns of one block of rows: a shard, or part of it. */
static void rms_scale_tile(void *arg, int64_t tile)
{
    const tokens_arg *v = arg;
    const int64_t tiles = tri_int64_ceil(v->width, COLUMN_TILE), block = tile / tiles;
    const int64_t rows = v->rows / tri_leaf_blocks(&v->kernel->desc);
    const int64_t first = tile % tiles * COLUMN_TILE, count = tri_int64_min(COLUMN_TILE, v->width - first);
    float sum[COLUMN_TILE] = {0};
    for (int64_t r = block * rows; r < (block + 1) * rows; r++) {
        const int64_t at = r * v->width + first;
        rms_columns(sum, (const float *)v->call->doutput + at, (const float *)v->call->input[0] + at,
                    ((const float *)v->call->saved)[r], count);
    }
    memcpy((float *)v->call->scratch + block * v->width + first, sum, (size_t)count * sizeof(float));
}

static void rms_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tokens_arg arg = tokens_make(kernel, call);
    tokens_run(&arg, rms_forward_tile);
}

static void rms_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    tokens_arg arg = tokens_make(kernel, call);
    tri_tiles_run(kernel->desc.threads,
                  call->shards * tri_leaf_blocks(&kernel->desc) * tri_int64_ceil(arg.width, COLUMN_TILE),
                  rms_scale_tile, &arg);
    tri_blocks_fold(kernel, call, call->scratch, arg.width);
    tri_leaves_sum(kernel, call, 0, call->scratch, arg.width, arg.width);
    if (call->dinput[0] != NULL) {
        tokens_run(&arg, rms_input_tile);
    }
}

const tri_kernel_ops tri_cpu_rms_norm = {
    .op = TRI_OP_RMS_NORM,
    .name = "tiles",
    .plan = rms_plan,
    .forward = rms_forward,
    .backward = rms_backward,
    .dinput_may_alias = true,
    .backward_input = true,
};

/* --- swiglu; count: of one half of a row --- */

TRI_CLONES static void swiglu_row(float *y, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        y[i] = x[i] * tri_sigmoid(x[i]) * x[count + i];
    }
}

TRI_CLONES static void swiglu_row_back(float *dx, const float *x, const float *dy, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float a = x[i], up = x[count + i], g = dy[i], gate = tri_sigmoid(a);
        dx[i] = g * up * gate * (1.0f + a * (1.0f - gate));
        dx[count + i] = g * a * gate;
    }
}

static void swiglu_tile(void *arg, int64_t tile)
{
    const tokens_arg *v = arg;
    const int64_t half = v->width / 2;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        swiglu_row((float *)v->call->output + r * half, (const float *)v->call->input[0] + r * v->width, half);
    }
}

static void swiglu_back_tile(void *arg, int64_t tile)
{
    const tokens_arg *v = arg;
    const int64_t half = v->width / 2;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        swiglu_row_back((float *)v->call->dinput[0] + r * v->width, (const float *)v->call->input[0] + r * v->width,
                        (const float *)v->call->doutput + r * half, half);
    }
}

static void swiglu_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tokens_arg arg = tokens_make(kernel, call);
    tokens_run(&arg, swiglu_tile);
}

static void swiglu_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tokens_arg arg = tokens_make(kernel, call);
    if (call->dinput[0] != NULL) {
        tokens_run(&arg, swiglu_back_tile);
    }
}

const tri_kernel_ops tri_cpu_swiglu = {
    .op = TRI_OP_SWIGLU,
    .name = "tiles",
    .forward = swiglu_forward,
    .backward = swiglu_backward,
    .backward_input = true,
};

/* --- positions --- */

static tri_status positions_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t sample = desc->input[0].dim[1] * desc->input[0].dim[2];
    kernel->scratch_nbytes = (size_t)(sample * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

static void positions_tile(void *arg, int64_t tile)
{
    const tokens_arg *v = arg;
    const int64_t length = v->kernel->desc.input[0].dim[1];
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        const float *x = (const float *)v->call->input[0] + r * v->width;
        tri_vector_add(1, (float *)v->call->output + r * v->width, x,
                       tri_call_param(v->call, 0) + (v->kernel->desc.attr.first + r % length) * v->width, v->width);
    }
}

/* One place of one shard: its samples in order. */
static void positions_back_tile(void *arg, int64_t tile)
{
    const tokens_arg *v = arg;
    const int64_t length = v->kernel->desc.input[0].dim[1], shard = tile / length, t = tile % length;
    const float *dy = (const float *)v->call->doutput + (shard * v->rows + t) * v->width;
    float *sum = (float *)v->call->scratch + tile * v->width;
    memcpy(sum, dy, (size_t)v->width * sizeof(float));
    for (int64_t r = length; r < v->rows; r += length) {
        tri_vector_add(1, sum, sum, dy + r * v->width, v->width);
    }
}

static void positions_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tokens_arg arg = tokens_make(kernel, call);
    tokens_run(&arg, positions_tile);
}

static void positions_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    tokens_arg arg = tokens_make(kernel, call);
    const int64_t sample = kernel->desc.input[0].dim[1] * arg.width;
    tri_tiles_run(kernel->desc.threads, call->shards * kernel->desc.input[0].dim[1], positions_back_tile, &arg);
    tri_places_sum(kernel, call, call->scratch, sample);
    if (call->dinput[0] != NULL && call->dinput[0] != call->doutput) {
        memcpy(call->dinput[0], call->doutput, (size_t)(arg.total * arg.width) * sizeof(float));
    }
}

const tri_kernel_ops tri_cpu_positions = {
    .op = TRI_OP_POSITIONS,
    .name = "tiles",
    .plan = positions_plan,
    .forward = positions_forward,
    .backward = positions_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

/* --- rope --- */

/* One head; from and to may be the same. */
TRI_CLONES static void rope_head(float *to, const float *from, const float *cosine, const float *sine, float sign,
                                 int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        const float a = from[i], b = from[half + i], s = sign * sine[i];
        to[i] = a * cosine[i] - b * s;
        to[half + i] = b * cosine[i] + a * s;
    }
}

void tri_rope_row(const tri_heads *h, const float *table, int64_t place, const float *from, float *to, float sign)
{
    const int64_t half = h->width / 2, turned = (h->queries + h->keys) * h->width;
    const float *cosine = table + place * half, *sine = cosine + h->length * half;
    for (int64_t c = 0; c < turned; c += h->width) {
        rope_head(to + c, from + c, cosine, sine, sign, half);
    }
    if (to != from) {
        memcpy(to + turned, from + turned, (size_t)(h->stride - turned) * sizeof(float));
    }
}

static void rope_tile(void *arg, int64_t tile)
{
    const tokens_arg *v = arg;
    const tri_heads h = tri_heads_make(&v->kernel->desc);
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->total); r++) {
        tri_rope_row(&h, v->kernel->state, r % h.length, v->from + r * v->width, v->to + r * v->width, v->sign);
    }
}

static void rope_run(const tri_kernel *kernel, const tri_op_call *call, const float *from, float *to, float sign)
{
    tokens_arg arg = tokens_make(kernel, call);
    arg.from = from;
    arg.to = to;
    arg.sign = sign;
    tokens_run(&arg, rope_tile);
}

static void rope_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    rope_run(kernel, call, call->input[0], call->output, 1.0f);
}

static void rope_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        rope_run(kernel, call, call->doutput, call->dinput[0], -1.0f);
    }
}

const tri_kernel_ops tri_cpu_rope = {
    .op = TRI_OP_ROPE,
    .name = "tiles",
    .plan = tri_rope_plan,
    .forward = rope_forward,
    .backward = rope_backward,
    .release = tri_rope_release,
    .dinput_may_alias = true,
    .output_may_alias = true,
};
