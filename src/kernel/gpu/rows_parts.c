/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_parts.c: rows of the ops around layers in parts: share_parts, sum_parts, gather_tokens, spread_tokens.
 */
#include "kernel/gpu/rows.h"

static size_t nbytes_of(int64_t count, tri_dtype dtype)
{
    return (size_t)count * tri_dtype_nbytes(dtype);
}

static bool one_type(const tri_op_desc *desc)
{
    return desc->input_dtype[0] == desc->output_dtype;
}

static tri_status parts_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    if (desc->attr.ranks > 1) {
        kernel->host_nbytes = nbytes_of(tri_shape_count(desc->output) * desc->max_shards, desc->output_dtype);
    }
    return TRI_OK;
}

static void copy(const tri_kernel *kernel, const tri_op_call *call, void *to, const void *from)
{
    if (to != from) {
        tri_device_copy(call->device, to, from,
                        nbytes_of(tri_shape_count(kernel->desc.output) * call->shards, kernel->desc.output_dtype));
    }
}

static void add_up(const tri_kernel *kernel, const tri_op_call *call, void *data)
{
    if (kernel->desc.attr.ranks > 1) {
        tri_gpu_ranks_sum(call, data, tri_shape_count(kernel->desc.output) * call->shards, kernel->desc.output_dtype);
    }
}

static void share_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    copy(kernel, call, call->output, call->input[0]);
}

static void share_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        copy(kernel, call, call->dinput[0], call->doutput);
        add_up(kernel, call, call->dinput[0]);
    }
}

const tri_kernel_ops tri_gpu_row_share_parts = {
    TRI_GPU_ROW,
    .op = TRI_OP_SHARE_PARTS,
    .can = one_type,
    .plan = parts_plan,
    .forward = share_forward,
    .backward = share_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
    .view = true,
};

static void sum_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    copy(kernel, call, call->output, call->input[0]);
    add_up(kernel, call, call->output);
}

static void sum_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        copy(kernel, call, call->dinput[0], call->doutput);
    }
}

const tri_kernel_ops tri_gpu_row_sum_parts = {
    TRI_GPU_ROW,
    .op = TRI_OP_SUM_PARTS,
    .can = one_type,
    .plan = parts_plan,
    .forward = sum_forward,
    .backward = sum_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

/* --- tokens: `slices` is the shape of those of one rank, x[B,T,C] --- */

static void run_move(const tri_kernel *kernel, const tri_op_call *call, const void *from, int64_t from_first,
                     int64_t from_stride, void *to, int64_t to_first, int64_t to_stride, const tri_shape *slices)
{
    const tri_dtype dtype = kernel->desc.output_dtype;
    const tri_gpu_move_args args = {.to = tri_gpu_value_make(to, dtype),
                                    .from = tri_gpu_value_make(from, dtype),
                                    .to_stride = to_stride,
                                    .from_stride = from_stride,
                                    .to_first = to_first,
                                    .from_first = from_first,
                                    .width = slices->dim[1] * slices->dim[2],
                                    .outer = slices->dim[0] * call->shards};
    tri_gpu_move(call, &args);
}

/* The tokens of all ranks, from each one's slices. */
static void tokens_gather(const tri_kernel *kernel, const tri_op_call *call, const tri_shape *slices, const void *from,
                          void *to)
{
    const int64_t ranks = kernel->desc.attr.ranks, slice = slices->dim[1] * slices->dim[2];
    const int64_t count = slices->dim[0] * call->shards * slice;
    tri_gpu_ranks_gather(kernel, call, from, call->scratch, count, kernel->desc.output_dtype);
    for (int64_t r = 0; r < ranks; r++) {
        run_move(kernel, call, call->scratch, r * count, slice, to, r * slice, ranks * slice, slices);
    }
}

/* This rank's slices of the sum of all ranks. */
static void tokens_spread(const tri_kernel *kernel, const tri_op_call *call, const tri_shape *slices, const void *from,
                          void *to)
{
    const int64_t ranks = kernel->desc.attr.ranks, slice = slices->dim[1] * slices->dim[2];
    const int64_t samples = slices->dim[0] * call->shards;
    const size_t nbytes = nbytes_of(slice, kernel->desc.output_dtype);
    char *const host = call->host;
    tri_device_to_host(call->device, host, from, nbytes * (size_t)(samples * ranks));
    tri_ranks_sum(call, host, samples * ranks * slice, kernel->desc.output_dtype);
    for (int64_t b = 0; b < samples; b++) {
        memmove(host + nbytes * (size_t)b, host + nbytes * (size_t)(b * ranks + kernel->desc.attr.rank), nbytes);
    }
    tri_device_from_host(call->device, to, host, nbytes * (size_t)samples);
}

static tri_status tokens_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_shape *all = desc->op == TRI_OP_GATHER_TOKENS ? &desc->output : &desc->input[0];
    kernel->host_nbytes = nbytes_of(tri_shape_count(*all) * desc->max_shards, desc->output_dtype);
    kernel->scratch_nbytes = kernel->host_nbytes;
    return TRI_OK;
}

static void gather_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    tokens_gather(kernel, call, &kernel->desc.input[0], call->input[0], call->output);
}

static void gather_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        tokens_spread(kernel, call, &kernel->desc.input[0], call->doutput, call->dinput[0]);
    }
}

const tri_kernel_ops tri_gpu_row_gather_tokens = {
    TRI_GPU_ROW,         .op = TRI_OP_GATHER_TOKENS, .can = one_type,
    .plan = tokens_plan, .forward = gather_forward,  .backward = gather_backward,
};

static void spread_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    tokens_spread(kernel, call, &kernel->desc.output, call->input[0], call->output);
}

static void spread_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        tokens_gather(kernel, call, &kernel->desc.output, call->doutput, call->dinput[0]);
    }
}

const tri_kernel_ops tri_gpu_row_spread_tokens = {
    TRI_GPU_ROW,         .op = TRI_OP_SPREAD_TOKENS, .can = one_type,
    .plan = tokens_plan, .forward = spread_forward,  .backward = spread_backward,
};
