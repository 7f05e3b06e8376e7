/* SPDX-License-Identifier: Apache-2.0
 *
 * norm_half.c: layer_norm over values in bf16: one pass over the rows each way, by the loops of half_loops.h.
 *
 * The gradients of scale and shift are sums over the rows of a block, in order, then over the blocks of a shard, in
 * order (or, where ranks have some tokens each, as tri_blocks_fold() adds them), then the canonical tree.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/half_loops.h"

#define ROW_TILE INT64_C(64) /* rows of a block */
#define AHEAD    2           /* rows that are asked for ahead */

typedef struct norm_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    const tri_half_loops *loops;
    int64_t width, rows, blocks; /* rows and blocks of a shard */
    int64_t tall;                /* rows of a block */
    float *dscale, *dshift;      /* [shards * blocks][width] */
} norm_arg;

/* Sizes alone. */
static norm_arg norm_size(const tri_op_desc *desc)
{
    norm_arg v = {.width = tri_shape_last(&desc->input[0])};
    v.rows = tri_shape_count(desc->input[0]) / v.width;
    v.tall = desc->attr.parts > 0 ? v.rows / tri_leaf_blocks(desc) : ROW_TILE;
    v.blocks = tri_int64_ceil(v.rows, v.tall);
    return v;
}

static norm_arg norm_make(const tri_kernel *kernel, const tri_op_call *call)
{
    norm_arg v = norm_size(&kernel->desc);
    v.kernel = kernel;
    v.call = call;
    v.loops = tri_half_loops_find();
    v.dscale = call->scratch;
    v.dshift = v.dscale + call->shards * v.blocks * v.width;
    return v;
}

static void norm_run(const norm_arg *v, tri_tile_fn body)
{
    tri_tiles_run(v->kernel->desc.threads, v->blocks * v->call->shards, body, (void *)v);
}

static void row_ahead(const norm_arg *v, const void *value, int64_t row)
{
    if (row + AHEAD < v->rows * v->call->shards) {
        tri_ahead((const uint16_t *)value + (row + AHEAD) * v->width, (size_t)v->width * sizeof(uint16_t));
    }
}

static void forward_tile(void *arg, int64_t tile)
{
    const norm_arg *v = arg;
    const tri_op_attr *attr = &v->kernel->desc.attr;
    const float epsilon = attr->epsilon == 0 ? 1e-5f : attr->epsilon;
    const int64_t base = tile / v->blocks * v->rows, first = tile % v->blocks * v->tall;
    for (int64_t r = base + first; r < base + tri_int64_min(first + v->tall, v->rows); r++) {
        row_ahead(v, v->call->input[0], r);
        v->loops->norm((uint16_t *)v->call->output + r * v->width, (const uint16_t *)v->call->input[0] + r * v->width,
                       v->call->param[0], v->call->param[1], epsilon, (float *)v->call->saved + 2 * r, v->width);
    }
}

static void backward_tile(void *arg, int64_t tile)
{
    const norm_arg *v = arg;
    const int64_t base = tile / v->blocks * v->rows, first = tile % v->blocks * v->tall;
    float *dscale = v->dscale + tile * v->width, *dshift = v->dshift + tile * v->width;
    uint16_t *dx = v->call->dinput[0];
    memset(dscale, 0, (size_t)v->width * sizeof(float));
    memset(dshift, 0, (size_t)v->width * sizeof(float));
    for (int64_t r = base + first; r < base + tri_int64_min(first + v->tall, v->rows); r++) {
        const int64_t at = r * v->width;
        row_ahead(v, v->call->input[0], r);
        row_ahead(v, v->call->doutput, r);
        v->loops->norm_back(dx != NULL ? dx + at : NULL, dscale, dshift, (const uint16_t *)v->call->doutput + at,
                            (const uint16_t *)v->call->input[0] + at, v->call->param[0],
                            (const float *)v->call->saved + 2 * r, v->width);
    }
}

/* The blocks of a shard into its first. */
static void fold_tile(void *arg, int64_t shard)
{
    const norm_arg *v = arg;
    const int64_t first = shard * v->blocks * v->width;
    for (int64_t at = first + v->width; at < first + v->blocks * v->width; at += v->width) {
        tri_vector_add(1, v->dscale + first, v->dscale + first, v->dscale + at, v->width);
        tri_vector_add(1, v->dshift + first, v->dshift + first, v->dshift + at, v->width);
    }
}

static tri_status norm_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const norm_arg v = norm_size(desc);
    kernel->saved_nbytes = (size_t)(2 * v.rows) * sizeof(float);
    kernel->scratch_nbytes = (size_t)(2 * v.width * v.blocks * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

static void norm_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const norm_arg arg = norm_make(kernel, call);
    norm_run(&arg, forward_tile);
}

static void norm_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const norm_arg v = norm_make(kernel, call);
    const bool tokens = kernel->desc.attr.parts > 0;
    norm_run(&v, backward_tile);
    if (tokens) {
        tri_blocks_fold(kernel, call, v.dscale, v.width);
        tri_blocks_fold(kernel, call, v.dshift, v.width);
    } else {
        tri_tiles_run(kernel->desc.threads, call->shards, fold_tile, (void *)&v);
    }
    tri_leaves_sum(kernel, call, 0, v.dscale, tokens ? v.width : v.width * v.blocks, v.width);
    tri_leaves_sum(kernel, call, 1, v.dshift, tokens ? v.width : v.width * v.blocks, v.width);
}

static bool norm_can(const tri_op_desc *desc)
{
    return desc->input_dtype[0] == TRI_BF16 && desc->output_dtype == TRI_BF16;
}

const tri_kernel_ops tri_cpu_layer_norm_half = {
    .op = TRI_OP_LAYER_NORM,
    .name = "tiles",
    .can = norm_can,
    .plan = norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
    .dinput_may_alias = true,
    .backward_input = true,
    .half = true,
};
