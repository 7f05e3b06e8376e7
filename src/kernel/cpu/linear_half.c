/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_half.c: linear on values in bf16, as linear.c: all shards are rows of one product; the weights are rounded as
 * they are packed, their gradient is a sum in f32 over samples and the canonical tree (gemm_tree.c).
 *
 * Products want pairs of neighbours in k. A value in f32 (the model's input, logits), or with an odd last dimension, is
 * first copied: rounded, and filled up with zero.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_half.h"

/* Where things are in scratch, in elements of 32 bits. */
typedef struct layout {
    int64_t units, channels, rows; /* rows of one shard */
    int64_t x, dy;                 /* copies of bf16; packed weights are at 0 */
    int64_t x_pairs, dy_pairs;     /* pairs of rows, for short shards */
    int64_t tree, leaves, total;
} layout;

static layout layout_make(const tri_op_desc *desc)
{
    const tri_gemm_ops *ops = tri_gemm_half_find();
    layout l = {.units = desc->param[0].dim[0], .channels = desc->param[0].dim[1]};
    l.rows = tri_shape_count(desc->output) / l.units;
    const int64_t all = l.rows * desc->max_shards, pairs = tri_pairs(l.rows);
    const int64_t paired = tri_gemm_tree_may_be_short(ops, pairs) ? pairs * desc->max_shards : 0;
    l.x = tri_align_count(tri_int64_max(tri_gemm_packed_count(ops, tri_pairs(l.channels), l.units),
                                        tri_gemm_packed_count(ops, tri_pairs(l.units), l.channels)));
    l.dy = l.x + tri_align_count(all * tri_pairs(l.channels));
    l.x_pairs = l.dy + tri_align_count(all * tri_pairs(l.units));
    l.dy_pairs = l.x_pairs + tri_align_count(paired * l.channels);
    l.tree = l.dy_pairs + tri_align_count(paired * l.units);
    l.leaves = l.tree + tri_align_count(tri_gemm_tree_count(ops, pairs, desc->max_shards, desc->threads));
    l.total = l.leaves + tri_align_count(l.units * desc->max_shards);
    return l;
}

static tri_status linear_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)layout_make(desc).total * sizeof(float);
    return TRI_OK;
}

typedef struct copy_arg {
    uint16_t *to;
    const void *from;
    bool wide; /* from f32 */
    int64_t columns, stride;
} copy_arg;

static void copy_tile(void *arg, int64_t row)
{
    const copy_arg *v = arg;
    uint16_t *to = v->to + row * v->stride;
    if (v->wide) {
        tri_half_round(to, (const float *)v->from + row * v->columns, v->columns);
    } else {
        memcpy(to, (const uint16_t *)v->from + row * v->columns, (size_t)v->columns * sizeof *to);
    }
    if (v->stride > v->columns) {
        to[v->columns] = 0;
    }
}

/* [rows][columns] as bf16 with rows `stride` apart: the value itself, or a copy at `to`. */
static const uint16_t *operand(int threads, void *to, const void *value, tri_dtype dtype, int64_t rows, int64_t columns,
                               int64_t stride)
{
    if (dtype == TRI_BF16 && stride == columns) {
        return value;
    }
    copy_arg arg = {to, value, dtype != TRI_BF16, columns, stride};
    tri_tiles_run(threads, rows, copy_tile, &arg);
    return to;
}

/* What both factors of a pass are: bf16, rows two elements wide at least. */
typedef struct operands {
    const uint16_t *x, *dy; /* NULL: not asked for */
    int64_t x_stride, dy_stride;
} operands;

static operands operands_make(const tri_kernel *kernel, const tri_op_call *call, const layout *l, int64_t x_stride,
                              int64_t dy_stride)
{
    const tri_op_desc *desc = &kernel->desc;
    float *scratch = call->scratch;
    const int64_t rows = l->rows * call->shards;
    operands o = {.x_stride = x_stride, .dy_stride = dy_stride};
    if (x_stride > 0) {
        o.x = operand(desc->threads, scratch + l->x, call->input[0], desc->input_dtype[0], rows, l->channels, x_stride);
    }
    if (dy_stride > 0) {
        o.dy = operand(desc->threads, scratch + l->dy, call->doutput, desc->output_dtype, rows, l->units, dy_stride);
    }
    return o;
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_desc *desc = &kernel->desc;
    const layout l = layout_make(desc);
    const tri_gemm_ops *ops = tri_gemm_half_find();
    const bool wide = desc->output_dtype != TRI_BF16;
    const operands o = operands_make(kernel, call, &l, 2 * tri_pairs(l.channels), 0);
    tri_gemm_half_pack(ops, desc->threads, call->scratch, call->param[0], l.channels, l.units, 1, l.channels);
    tri_gemm_half_run(ops, desc->threads,
                      &(tri_gemm_half_call){.a = o.x,
                                            .packed = call->scratch,
                                            .bias = desc->attr.bias ? call->param[1] : NULL,
                                            .c = wide ? NULL : call->output,
                                            .c_wide = wide ? call->output : NULL,
                                            .m = l.rows * call->shards,
                                            .n = l.units,
                                            .k = l.channels,
                                            .lda = o.x_stride,
                                            .ldc = l.units,
                                            .relu = desc->attr.relu});
}

static void pairs_make(const tri_op_call *call, uint32_t *to, const uint16_t *from, int64_t rows, int64_t columns)
{
    for (int64_t s = 0; s < call->shards; s++) {
        tri_half_pair(to + s * tri_pairs(rows) * columns, from + s * rows * columns, rows, columns);
    }
}

static tri_gemm_tree tree_make(const tri_op_call *call, const layout *l)
{
    return (tri_gemm_tree){.m = l->units,
                           .n = l->channels,
                           .k = tri_pairs(l->rows),
                           .rows = l->rows,
                           .scratch = (float *)call->scratch + l->tree};
}

/* The sums of dy's columns can be formed where the weights' gradient packs it. */
static bool tree_sums(const tri_kernel *kernel, const tri_op_call *call, const layout *l)
{
    const tri_gemm_tree tree = tree_make(call, l);
    return !kernel->desc.attr.relu && kernel->desc.output_dtype == TRI_BF16 && tri_call_wants_dparam(call, 0) &&
           !tri_gemm_tree_is_short(tri_gemm_half_find(), &tree);
}

/* The weights' gradient: both factors dense. sums: NULL, or where those of dy's columns go. */
static void weights_backward(const tri_kernel *kernel, const tri_op_call *call, const layout *l, float *sums)
{
    float *scratch = call->scratch;
    const operands o = operands_make(kernel, call, l, l->channels, l->units);
    tri_gemm_tree tree = tree_make(call, l);
    tree.half_a = o.dy;
    tree.half_b = o.x;
    tree.sums = sums;
    if (tri_gemm_tree_is_short(tri_gemm_half_find(), &tree)) {
        pairs_make(call, (uint32_t *)(void *)(scratch + l->dy_pairs), o.dy, l->rows, l->units);
        pairs_make(call, (uint32_t *)(void *)(scratch + l->x_pairs), o.x, l->rows, l->channels);
        tree.a = scratch + l->dy_pairs;
        tree.b = scratch + l->x_pairs;
    }
    tri_gemm_tree_run(tri_gemm_half_find(), kernel, call, 0, &tree);
}

static void linear_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_desc *desc = &kernel->desc;
    const layout l = layout_make(desc);
    const tri_gemm_ops *ops = tri_gemm_half_find();
    float *leaves = (float *)call->scratch + l.leaves;
    const bool bias = desc->attr.bias && tri_call_wants_dparam(call, 1), sums = bias && tree_sums(kernel, call, &l);
    if (!sums) {
        tri_cpu_mask_columns(kernel, call, l.rows, l.units, desc->attr.relu, bias ? leaves : NULL);
    }
    if (tri_call_wants_dparam(call, 0)) {
        weights_backward(kernel, call, &l, sums ? leaves : NULL);
    }
    if (bias) {
        tri_leaves_sum(kernel, call, 1, leaves, l.units, l.units);
    }
    if (call->dinput[0] != NULL) {
        const operands o = operands_make(kernel, call, &l, 0, 2 * tri_pairs(l.units));
        const bool wide = desc->input_dtype[0] != TRI_BF16;
        tri_gemm_half_pack(ops, desc->threads, call->scratch, call->param[0], l.units, l.channels, l.channels, 1);
        tri_gemm_half_run(ops, desc->threads,
                          &(tri_gemm_half_call){.a = o.dy,
                                                .packed = call->scratch,
                                                .c = wide ? NULL : call->dinput[0],
                                                .c_wide = wide ? call->dinput[0] : NULL,
                                                .m = l.rows * call->shards,
                                                .n = l.channels,
                                                .k = l.units,
                                                .lda = o.dy_stride,
                                                .ldc = l.channels});
    }
}

static bool is_half(const tri_op_desc *desc)
{
    return !desc->attr.relu && tri_op_desc_is_half(desc);
}

static bool is_half_relu(const tri_op_desc *desc)
{
    return desc->attr.relu && tri_op_desc_is_half(desc);
}

const tri_kernel_ops tri_cpu_linear_half_relu = {
    .op = TRI_OP_LINEAR,
    .name = "tiles",
    .can = is_half_relu,
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .backward_input = true,
    .input_for_weight = true,
    .backward_output = true,
    .half = true,
};

const tri_kernel_ops tri_cpu_linear_half = {
    .op = TRI_OP_LINEAR,
    .name = "tiles",
    .can = is_half,
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .backward_input = true,
    .input_for_weight = true,
    .half = true,
};
