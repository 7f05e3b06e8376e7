/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_pool.c: rows of max_pool, avg_pool and global_pool.
 */
#include "base/status.h"
#include "kernel/gpu/rows.h"

static tri_status pool_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    if (tri_int64_max(tri_shape_count(desc->input[0]), tri_shape_count(desc->output)) * desc->max_shards > INT32_MAX) {
        return tri_fail(TRI_EUNSUPPORTED, "%s: want at most 2^31 elements at once on a GPU", tri_op_name(desc->op));
    }
    return tri_gpu_plan(desc, kernel);
}

static void pool_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_pool_args args = {.y = tri_gpu_output(kernel, call),
                                    .x = tri_gpu_input(kernel, call, 0),
                                    .w = tri_gpu_window_make(&kernel->desc),
                                    .average = kernel->desc.op == TRI_OP_AVG_POOL,
                                    .count = (int)(tri_shape_count(kernel->desc.output) * call->shards)};
    TRI_GPU_RUN(call, pool, tri_gpu_blocks(args.count), 1, 1, args);
}

static void pool_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_pool_back_args args = {.dx = tri_gpu_dinput(kernel, call, 0),
                                         .x = tri_gpu_input(kernel, call, 0),
                                         .dy = tri_gpu_doutput(kernel, call),
                                         .w = tri_gpu_window_make(&kernel->desc),
                                         .average = kernel->desc.op == TRI_OP_AVG_POOL,
                                         .count = (int)(tri_shape_count(kernel->desc.input[0]) * call->shards)};
    if (args.dx.data != NULL) {
        TRI_GPU_RUN(call, pool_back, tri_gpu_blocks(args.count), 1, 1, args);
    }
}

const tri_kernel_ops tri_gpu_row_max_pool = {
    TRI_GPU_ROW,
    .op = TRI_OP_MAX_POOL,
    .plan = pool_plan,
    .forward = pool_forward,
    .backward = pool_backward,
    .backward_input = true,
};
const tri_kernel_ops tri_gpu_row_avg_pool = {TRI_GPU_ROW, .op = TRI_OP_AVG_POOL, .plan = pool_plan,
                                             .forward = pool_forward, .backward = pool_backward};

static void global_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *in = &kernel->desc.input[0];
    const tri_gpu_global_pool_args args = {.y = tri_gpu_output(kernel, call),
                                           .x = tri_gpu_input(kernel, call, 0),
                                           .count = tri_shape_count(kernel->desc.output) * call->shards,
                                           .area = in->dim[1] * in->dim[2],
                                           .channels = in->dim[3]};
    TRI_GPU_RUN(call, global_pool, tri_gpu_blocks(args.count), 1, 1, args);
}

static void global_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *in = &kernel->desc.input[0];
    const tri_gpu_global_back_args args = {.dx = tri_gpu_dinput(kernel, call, 0),
                                           .dy = tri_gpu_doutput(kernel, call),
                                           .count = tri_shape_count(*in) * call->shards,
                                           .area = in->dim[1] * in->dim[2],
                                           .channels = in->dim[3]};
    if (args.dx.data != NULL) {
        TRI_GPU_RUN(call, global_back, tri_gpu_blocks(args.count), 1, 1, args);
    }
}

const tri_kernel_ops tri_gpu_row_global_pool = {TRI_GPU_ROW, .op = TRI_OP_GLOBAL_POOL, .forward = global_forward,
                                                .backward = global_backward};
