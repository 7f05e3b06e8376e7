/* SPDX-License-Identifier: Apache-2.0
 *
 * move.c: ops that move elements: embedding, dropout, transpose; samples or rows of the table are tiles.
 *
 * The gradient of an embedding touches few rows: tokens are sorted by row once (stably), then each row of the table
 * sums its tokens per shard and the shards in tree order. A shard without the token adds nothing: leaves start at +0
 * and are never -0, so leaving a zero out is exact.
 */
#include "base/rng.h"
#include "kernel/cpu/cpu.h"
#include "kernel/half.h"
#include "tensor/half.h"

#define TABLE_TILE INT64_C(64) /* rows of the table */
#define WIDTH_TILE INT64_C(64) /* columns summed at once */
#define LEVELS     24

typedef struct table_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    int64_t rows, width, tokens; /* tokens of a shard */
    int32_t *first, *order;      /* tokens of row r: order[first[r] .. first[r + 1]) */
} table_arg;

static tri_status table_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int64_t tokens = tri_shape_count(desc->input[0]) * desc->max_shards;
    kernel->scratch_nbytes = (size_t)(tri_align_count(desc->param[0].dim[0] + 2) + tokens) * sizeof(int32_t);
    return TRI_OK;
}

static bool table_fits(const tri_op_desc *desc)
{
    return tri_shape_count(desc->input[0]) * desc->max_shards < INT32_MAX;
}

static table_arg table_make(const tri_kernel *kernel, const tri_op_call *call)
{
    table_arg v = {.kernel = kernel, .call = call, .rows = kernel->desc.param[0].dim[0]};
    v.width = kernel->desc.param[0].dim[1];
    v.tokens = tri_shape_count(kernel->desc.input[0]);
    v.first = call->scratch;
    v.order = v.first + tri_align_count(v.rows + 2);
    return v;
}

static void table_forward_tile(void *arg, int64_t tile)
{
    const table_arg *v = arg;
    const int32_t *index = v->call->input[0];
    const bool half = v->kernel->desc.output_dtype == TRI_BF16;
    const size_t nbytes = half ? sizeof(uint16_t) : sizeof(float);
    for (int64_t t = tile * TABLE_TILE; t < tri_int64_min((tile + 1) * TABLE_TILE, v->tokens * v->call->shards); t++) {
        char *y = (char *)v->call->output + (size_t)(t * v->width) * nbytes;
        const int64_t word = tri_part_word(&v->kernel->desc, index[t]);
        const float *row = tri_call_param(v->call, 0) + word * v->width;
        if (word < 0) {
            memset(y, 0, (size_t)v->width * nbytes);
        } else if (half) {
            tri_half_round((uint16_t *)(void *)y, row, v->width);
        } else {
            memcpy(y, row, (size_t)v->width * nbytes);
        }
    }
}

static void table_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    table_arg arg = table_make(kernel, call);
    tri_tiles_run(kernel->desc.threads, tri_int64_ceil(arg.tokens * call->shards, TABLE_TILE), table_forward_tile,
                  &arg);
}

/* Counting sort; first[] is one ahead while it counts. */
static void table_sort(const table_arg *v)
{
    const int32_t *index = v->call->input[0];
    const int64_t total = v->tokens * v->call->shards;
    memset(v->first, 0, (size_t)(v->rows + 2) * sizeof(int32_t));
    for (int64_t t = 0; t < total; t++) {
        const int64_t word = tri_part_word(&v->kernel->desc, index[t]);
        if (word >= 0) {
            v->first[word + 2]++;
        }
    }
    for (int64_t r = 2; r < v->rows + 2; r++) {
        v->first[r] += v->first[r - 1];
    }
    for (int64_t t = 0; t < total; t++) {
        const int64_t word = tri_part_word(&v->kernel->desc, index[t]);
        if (word >= 0) {
            v->order[v->first[word + 1]++] = (int32_t)t;
        }
    }
}

static void add_to(float *sum, const float *x, int64_t count)
{
    for (int64_t c = 0; c < count; c++) {
        sum[c] += x[c];
    }
}

static void add_half_to(float *sum, const uint16_t *x, int64_t count)
{
    for (int64_t c = 0; c < count; c++) {
        sum[c] += half_from_bf16(x[c]);
    }
}

/* Sums columns [column, column + count) of one row's tokens over the shards of a part: a stack of left subtrees. */
static void row_sum(const table_arg *v, int64_t row, tri_tree_part part, int64_t column, int64_t count, float *out)
{
    float stack[LEVELS][WIDTH_TILE];
    int32_t at = v->first[row];
    const int32_t last = v->first[row + 1];
    while (at < last && v->order[at] / v->tokens < part.first) {
        at++;
    }
    for (int64_t leaf = 0; leaf < part.count; leaf++) {
        float sum[WIDTH_TILE] = {0};
        for (; at < last && v->order[at] / v->tokens == part.first + leaf; at++) {
            const int64_t from = v->order[at] * v->width + column;
            if (v->kernel->desc.output_dtype == TRI_BF16) {
                add_half_to(sum, (const uint16_t *)v->call->doutput + from, count);
            } else {
                add_to(sum, (const float *)v->call->doutput + from, count);
            }
        }
        int level = 0;
        for (int64_t rest = leaf; (rest & 1) != 0; rest >>= 1, level++) {
            add_to(sum, stack[level], count);
        }
        memcpy(leaf + 1 == part.count ? out : stack[level], sum, (size_t)count * sizeof(float));
    }
}

/* The gradient of one row over the shards of a part. */
static void row_backward(const table_arg *v, int64_t row, tri_tree_part part, float *out)
{
    const bool none = v->first[row] == v->first[row + 1];
    if (none && !v->kernel->desc.adds) {
        memset(out, 0, (size_t)v->width * sizeof(float));
        return;
    }
    for (int64_t c = 0; c < v->width; c += WIDTH_TILE) {
        const int64_t count = tri_int64_min(WIDTH_TILE, v->width - c);
        float sum[WIDTH_TILE] = {0}; /* adding zeros makes +0 of -0, as it does where the two sums are apart */
        if (!none) {
            row_sum(v, row, part, c, count, v->kernel->desc.adds ? sum : out + c);
        }
        if (v->kernel->desc.adds) {
            add_to(out + c, sum, count);
        }
    }
}

static void table_backward_tile(void *arg, int64_t tile)
{
    const table_arg *v = arg;
    for (int64_t r = tile * TABLE_TILE; r < tri_int64_min((tile + 1) * TABLE_TILE, v->rows); r++) {
        for (int part = 0; part < v->call->part_count; part++) {
            row_backward(v, r, v->call->parts[part], v->call->dparam[0][part] + r * v->width);
        }
    }
}

static void table_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    table_arg arg = table_make(kernel, call);
    if (tri_call_wants_dparam(call, 0)) {
        table_sort(&arg);
        tri_tiles_run(kernel->desc.threads, tri_int64_ceil(arg.rows, TABLE_TILE), table_backward_tile, &arg);
    }
}

const tri_kernel_ops tri_cpu_embedding = {
    .op = TRI_OP_EMBEDDING,
    .name = "tiles",
    .can = table_fits,
    .half = true,
    .plan = table_plan,
    .forward = table_forward,
    .backward = table_backward,
    .backward_input = true,
};

#define DROP_BLOCK INT64_C(1024) /* elements of a sample drawn at once */

typedef struct drop_arg {
    const tri_op_desc *desc;
    const tri_op_call *call;
    tri_dropout_rule rule;
    int64_t samples, per_sample; /* of a shard */
    const void *from;
    void *to;
    bool half; /* both are bf16 */
} drop_arg;

TRI_CLONES static void drop_row(float *to, const float *from, const float *u, int64_t count, float rate, float scale)
{
    for (int64_t i = 0; i < count; i++) {
        const float kept = from[i] * scale;
        to[i] = u[i] >= rate ? kept : 0.0f;
    }
}

static void drop_tile(void *arg, int64_t b)
{
    const drop_arg *v = arg;
    const uint64_t sample = (uint64_t)(v->call->first_sample[b / v->samples] + b % v->samples);
    const uint64_t number = tri_dropout_number(v->desc, sample, v->per_sample);
    float u[DROP_BLOCK], x[DROP_BLOCK];
    for (int64_t first = 0; first < v->per_sample; first += DROP_BLOCK) {
        const int64_t count = tri_int64_min(DROP_BLOCK, v->per_sample - first), at = b * v->per_sample + first;
        tri_rng_fill_uniform((tri_rng){v->rule.seed, v->rule.stream}, number + (uint64_t)first, (uint64_t)count, u);
        if (v->half) {
            tri_half_widen(x, (const uint16_t *)v->from + at, count);
            drop_row(x, x, u, count, v->rule.rate, v->rule.scale);
            tri_half_round((uint16_t *)v->to + at, x, count);
        } else {
            drop_row((float *)v->to + at, (const float *)v->from + at, u, count, v->rule.rate, v->rule.scale);
        }
    }
}

static void drop_run(const tri_kernel *kernel, const tri_op_call *call, const void *from, void *to)
{
    drop_arg arg = {
        .desc = &kernel->desc, .call = call, .rule = tri_dropout_rule_make(kernel, call), .from = from, .to = to};
    arg.half = kernel->desc.output_dtype == TRI_BF16;
    arg.samples = kernel->desc.input[0].dim[0];
    arg.per_sample = tri_shape_count(kernel->desc.input[0]) / arg.samples;
    tri_tiles_run(kernel->desc.threads, arg.samples * call->shards, drop_tile, &arg);
}

static void drop_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->training) {
        drop_run(kernel, call, call->input[0], call->output);
    } else if (call->output != call->input[0]) {
        memcpy(call->output, call->input[0],
               (size_t)(tri_shape_count(kernel->desc.output) * call->shards) *
                   tri_dtype_nbytes(kernel->desc.output_dtype));
    }
}

static void drop_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        drop_run(kernel, call, call->doutput, call->dinput[0]);
    }
}

static bool drop_can(const tri_op_desc *desc)
{
    return desc->input_dtype[0] == desc->output_dtype;
}

const tri_kernel_ops tri_cpu_dropout = {
    .op = TRI_OP_DROPOUT,
    .name = "tiles",
    .can = drop_can,
    .half = true,
    .forward = drop_forward,
    .backward = drop_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

typedef struct turn_arg {
    const tri_kernel *kernel;
    const float *from;
    float *to;
    bool back;
} turn_arg;

/* One sample: runs of the last output dimension, contiguous or strided in the input. */
static void turn_tile(void *arg, int64_t b)
{
    const turn_arg *v = arg;
    const tri_shape *in = &v->kernel->desc.input[0], *out = &v->kernel->desc.output;
    const int last = out->ndim - 1;
    const int64_t count = tri_shape_product(out, 1, out->ndim), run = out->dim[last];
    int64_t stride[TRI_MAX_DIMS], at[TRI_MAX_DIMS] = {0}, place = 0;
    for (int d = 0; d < out->ndim; d++) {
        stride[d] = tri_shape_product(in, v->kernel->desc.attr.axes[d] + 1, in->ndim);
    }
    const float *from = v->from + b * count;
    float *to = v->to + b * count;
    for (int64_t i = 0; i < count; i += run) {
        const float *source = from + (v->back ? i : place);
        float *target = to + (v->back ? place : i);
        const int64_t source_step = v->back ? 1 : stride[last], target_step = v->back ? stride[last] : 1;
        if (stride[last] == 1) {
            memcpy(target, source, (size_t)run * sizeof(float));
        } else {
            for (int64_t j = 0; j < run; j++) {
                target[j * target_step] = source[j * source_step];
            }
        }
        for (int d = last - 1; d >= 1; d--) {
            place += stride[d];
            if (++at[d] < out->dim[d]) {
                break;
            }
            place -= stride[d] * out->dim[d];
            at[d] = 0;
        }
    }
}

static void turn_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    turn_arg arg = {kernel, call->input[0], call->output, false};
    tri_tiles_run(kernel->desc.threads, kernel->desc.input[0].dim[0] * call->shards, turn_tile, &arg);
}

static void turn_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    turn_arg arg = {kernel, call->doutput, call->dinput[0], true};
    if (call->dinput[0] != NULL) {
        tri_tiles_run(kernel->desc.threads, kernel->desc.input[0].dim[0] * call->shards, turn_tile, &arg);
    }
}

const tri_kernel_ops tri_cpu_transpose = {
    .op = TRI_OP_TRANSPOSE,
    .name = "tiles",
    .forward = turn_forward,
    .backward = turn_backward,
};
