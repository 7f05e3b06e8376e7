/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_move.c: rows of ops that move elements: concat, reshape, transpose, embedding.
 */
#include "kernel/gpu/rows.h"

/* Between the whole tensor and its pieces along the axis; the whole is the source when `split`. */
static void concat_run(const tri_kernel *kernel, const tri_op_call *call, bool split)
{
    const tri_shape *out = &kernel->desc.output;
    const int axis = kernel->desc.attr.axis;
    const int64_t outer = tri_shape_product(out, 0, axis) * call->shards;
    const int64_t row = tri_shape_product(out, axis, out->ndim);
    const tri_gpu_value whole = split ? tri_gpu_doutput(kernel, call) : tri_gpu_output(kernel, call);
    int64_t first = 0;
    for (int i = 0; i < kernel->desc.input_count; i++) {
        const tri_gpu_value piece = split ? tri_gpu_dinput(kernel, call, i) : tri_gpu_input(kernel, call, i);
        const int64_t width = tri_shape_product(&kernel->desc.input[i], axis, out->ndim);
        const tri_gpu_move_args args = {.to = split ? piece : whole,
                                        .from = split ? whole : piece,
                                        .to_stride = split ? width : row,
                                        .from_stride = split ? row : width,
                                        .to_first = split ? 0 : first,
                                        .from_first = split ? first : 0,
                                        .width = width,
                                        .outer = outer};
        if (piece.data != NULL) {
            tri_gpu_move(call, &args);
        }
        first += width;
    }
}

static void concat_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    concat_run(kernel, call, false);
}

static void concat_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    concat_run(kernel, call, true);
}

const tri_kernel_ops tri_gpu_row_concat = {TRI_GPU_ROW, .op = TRI_OP_CONCAT, .forward = concat_forward,
                                           .backward = concat_backward};

static void reshape_run(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_value to, tri_gpu_value from)
{
    if (to.data != NULL && to.data != from.data) {
        tri_gpu_cast(tri_gpu_queue_of(call->device), to, from, tri_shape_count(kernel->desc.output) * call->shards);
    }
}

static void reshape_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    reshape_run(kernel, call, tri_gpu_output(kernel, call), tri_gpu_input(kernel, call, 0));
}

static void reshape_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    reshape_run(kernel, call, tri_gpu_dinput(kernel, call, 0), tri_gpu_doutput(kernel, call));
}

const tri_kernel_ops tri_gpu_row_reshape = {
    TRI_GPU_ROW,
    .op = TRI_OP_RESHAPE,
    .forward = reshape_forward,
    .backward = reshape_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

static void transpose_run(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_value from, tri_gpu_value to,
                          bool back)
{
    const tri_shape *in = &kernel->desc.input[0], *out = &kernel->desc.output;
    tri_gpu_transpose_args args = {.to = to,
                                   .from = from,
                                   .count = tri_shape_count(*out) * call->shards,
                                   .each = tri_shape_count(*out),
                                   .ndim = out->ndim,
                                   .back = back};
    for (int d = 0; d < out->ndim; d++) {
        args.dim[d] = out->dim[d];
        args.stride[d] = tri_shape_product(in, kernel->desc.attr.axes[d] + 1, in->ndim);
    }
    TRI_GPU_RUN(call, transpose, tri_gpu_blocks(args.count), 1, 1, args);
}

static void transpose_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    transpose_run(kernel, call, tri_gpu_input(kernel, call, 0), tri_gpu_output(kernel, call), false);
}

static void transpose_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        transpose_run(kernel, call, tri_gpu_doutput(kernel, call), tri_gpu_dinput(kernel, call, 0), true);
    }
}

const tri_kernel_ops tri_gpu_row_transpose = {TRI_GPU_ROW, .op = TRI_OP_TRANSPOSE, .forward = transpose_forward,
                                              .backward = transpose_backward};

/* Elements of the leaves of an embedding at a time, at most, but for 64 words: 256 MiB. Words are taken in parts, and
 * the bits do not depend on them. */
int64_t tri_gpu_embedding_leaves = INT64_C(1) << 26;

/* Words at a time. */
static int64_t embedding_part(const tri_op_desc *desc)
{
    const int64_t fits = tri_gpu_embedding_leaves / (desc->max_shards * desc->param[0].dim[1]);
    return tri_int64_min(desc->param[0].dim[0], tri_int64_max(fits, 64));
}

/* Scratch: keys of the tokens of each shard, then leaves of a part of the words. */
static int64_t embedding_padded(const tri_op_desc *desc)
{
    int64_t padded = 2;
    while (padded < tri_shape_count(desc->input[0])) {
        padded *= 2;
    }
    return padded;
}

static tri_status embedding_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const size_t leaf = (size_t)(embedding_part(desc) * desc->param[0].dim[1]) * sizeof(float);
    kernel->scratch_nbytes = (size_t)desc->max_shards * ((size_t)embedding_padded(desc) * sizeof(uint64_t) + leaf);
    return tri_gpu_plan(desc, kernel);
}

static void embedding_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_desc *desc = &kernel->desc;
    const tri_gpu_gather_args args = {.y = tri_gpu_output(kernel, call),
                                      .index = call->input[0],
                                      .table = tri_gpu_value_make(call->param[0], TRI_F32),
                                      .count = tri_shape_count(desc->output) * call->shards,
                                      .width = desc->param[0].dim[1],
                                      .first = desc->attr.first,
                                      .words = desc->param[0].dim[0]};
    TRI_GPU_RUN(call, gather, tri_gpu_blocks_each(args.count), 1, 1, args);
}

/* Of words first .. first + words. */
static void embedding_part_back(const tri_kernel *kernel, const tri_op_call *call, const uint64_t *keys, float *leaves,
                                int64_t first, int64_t words)
{
    const tri_op_desc *desc = &kernel->desc;
    const int64_t width = desc->param[0].dim[1];
    const tri_gpu_words_sum_args sum = {.leaves = leaves,
                                        .keys = keys,
                                        .dy = tri_gpu_doutput(kernel, call),
                                        .count = tri_shape_count(desc->input[0]),
                                        .padded = embedding_padded(desc),
                                        .width = width,
                                        .first = first,
                                        .words = words};
    tri_gpu_fill(tri_gpu_queue_of(call->device), leaves, 0, words * width * call->shards);
    TRI_GPU_RUN(call, words_sum, tri_gpu_blocks_rows(sum.count), call->shards,
                (int)tri_int64_ceil(width, TRI_GPU_STRIP), sum);
    tri_gpu_leaves_from(kernel, call, 0, leaves, words * width, first * width, words * width);
}

static void embedding_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_desc *desc = &kernel->desc;
    const int64_t words = desc->param[0].dim[0], part = embedding_part(desc);
    const tri_gpu_words_sort_args sort = {.keys = call->scratch,
                                          .index = call->input[0],
                                          .count = tri_shape_count(desc->input[0]),
                                          .padded = embedding_padded(desc),
                                          .first = desc->attr.first,
                                          .words = words};
    float *const leaves = (float *)(void *)(sort.keys + sort.padded * call->shards);
    if (!tri_call_wants_dparam(call, 0)) {
        return;
    }
    TRI_GPU_RUN(call, words_sort, call->shards, 1, 1, sort);
    for (int64_t first = 0; first < words; first += part) {
        embedding_part_back(kernel, call, sort.keys, leaves, first, tri_int64_min(part, words - first));
    }
}

const tri_kernel_ops tri_gpu_row_embedding = {
    TRI_GPU_ROW,
    .op = TRI_OP_EMBEDDING,
    .plan = embedding_plan,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .backward_input = true,
};
