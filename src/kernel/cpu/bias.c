/* SPDX-License-Identifier: Apache-2.0
 *
 * bias.c: a row added to each row; its gradient is the sums of columns, over the rows of a shard (or of its blocks) in
 * order, then over shards in tree order.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/half.h"
#include "tensor/half.h"

#define ROW_TILE INT64_C(16)

typedef struct bias_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    int64_t width, rows; /* of the call */
} bias_arg;

static tri_status bias_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes =
        (size_t)(tri_shape_last(&desc->output) * desc->max_shards * tri_leaf_blocks(desc)) * sizeof(float);
    return TRI_OK;
}

TRI_CLONES static void bias_half(uint16_t *y, const uint16_t *x, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        y[i] = half_to_bf16(half_from_bf16(x[i]) + b[i]);
    }
}

static void bias_tile(void *arg, int64_t tile)
{
    const bias_arg *v = arg;
    const bool half = v->kernel->desc.output_dtype == TRI_BF16;
    for (int64_t r = tile * ROW_TILE; r < tri_int64_min((tile + 1) * ROW_TILE, v->rows); r++) {
        const int64_t at = r * v->width;
        if (half) {
            bias_half((uint16_t *)v->call->output + at, (const uint16_t *)v->call->input[0] + at, v->call->param[0],
                      v->width);
        } else {
            tri_vector_add(1, (float *)v->call->output + at, (const float *)v->call->input[0] + at, v->call->param[0],
                           v->width);
        }
    }
}

static void bias_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    bias_arg arg = {kernel, call, .width = tri_shape_last(&kernel->desc.output)};
    arg.rows = tri_shape_count(kernel->desc.output) / arg.width * call->shards;
    tri_tiles_run(kernel->desc.threads, tri_int64_ceil(arg.rows, ROW_TILE), bias_tile, &arg);
}

static void bias_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output), count = tri_shape_count(kernel->desc.output);
    if (tri_call_wants_dparam(call, 0)) {
        const int64_t blocks = tri_leaf_blocks(&kernel->desc);
        tri_op_call each = *call;
        each.shards *= (int)blocks;
        tri_cpu_mask_columns(kernel, &each, count / width / blocks, width, false, call->scratch);
        tri_blocks_fold(kernel, call, call->scratch, width);
        tri_leaves_sum(kernel, call, 0, call->scratch, width, width);
    }
    if (call->dinput[0] != NULL && call->dinput[0] != call->doutput) {
        memcpy(call->dinput[0], call->doutput,
               (size_t)(count * call->shards) * tri_dtype_nbytes(kernel->desc.output_dtype));
    }
}

static bool bias_can(const tri_op_desc *desc)
{
    return desc->input_dtype[0] == desc->output_dtype;
}

const tri_kernel_ops tri_cpu_bias = {
    .op = TRI_OP_BIAS,
    .name = "tiles",
    .can = bias_can,
    .half = true,
    .plan = bias_plan,
    .forward = bias_forward,
    .backward = bias_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};
