/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_attention.c: the row of attention. Saved: the logarithm of the sum of the exponentials of each row and head.
 */
#include <math.h>

#include "base/status.h"
#include "kernel/gpu/rows.h"

static bool attention_can(const tri_op_desc *desc)
{
    return tri_heads_make(desc).width <= TRI_GPU_HEAD;
}

static tri_status attention_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_heads h = tri_heads_make(desc);
    kernel->saved_nbytes = (size_t)(h.samples * h.length * h.queries) * sizeof(float);
    kernel->scratch_nbytes = kernel->saved_nbytes * (size_t)desc->max_shards;
    if (h.queries > UINT16_MAX) {
        return tri_fail(TRI_EUNSUPPORTED, "attention: want at most 65535 heads on a GPU, got %lld",
                        (long long)h.queries);
    }
    if (h.samples * desc->max_shards > UINT16_MAX) {
        return tri_fail(TRI_EUNSUPPORTED, "attention: want at most 65535 samples at once on a GPU, got %lld",
                        (long long)(h.samples * desc->max_shards));
    }
    return tri_gpu_plan(desc, kernel);
}

static tri_gpu_attention_args args_make(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    const tri_attention_drop drop = tri_attention_drop_make(kernel, call);
    tri_gpu_attention_args args = {.x = tri_gpu_input(kernel, call, 0),
                                   .y = tri_gpu_output(kernel, call),
                                   .lse = call->training ? call->saved : NULL,
                                   .length = h.length,
                                   .stride = h.stride,
                                   .width = h.width,
                                   .queries = (int)h.queries,
                                   .keys = (int)h.keys,
                                   .scale = (float)(1 / sqrt((double)h.width)),
                                   .drops = drop.on,
                                   .rate = drop.rule.rate,
                                   .keep = drop.rule.scale,
                                   .seed = drop.rule.seed,
                                   .stream = drop.rule.stream,
                                   .samples = h.samples,
                                   .heads = drop.heads,
                                   .first_head = drop.first_head};
    for (int s = 0; s < call->shards; s++) {
        args.first_sample[s] = call->first_sample[s];
    }
    return args;
}

/* Tensor cores multiply 16 elements at a time. */
static bool by_tensor_cores(const tri_op_desc *desc)
{
    return desc->input_dtype[0] != TRI_F32 && desc->output_dtype == desc->input_dtype[0] &&
           tri_heads_make(desc).width % 16 == 0;
}

/* A kernel for heads of at most 64 elements, or the next one, for more; those with dropout follow. */
static void run_half(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_kernel small, int64_t heads, int drops,
                     const void *args, size_t args_nbytes)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    tri_gpu_run(tri_gpu_queue_of(call->device), (tri_gpu_kernel)((int)small + (h.width > 64) + 2 * (drops != 0)),
                tri_int64_ceil(h.length, TRI_GPU_QUERIES_HALF), (int)heads, (int)(h.samples * call->shards),
                TRI_GPU_THREADS_HALF, args, args_nbytes);
}

static void attention_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_attention_args args = args_make(kernel, call);
    if (by_tensor_cores(&kernel->desc)) {
        run_half(kernel, call, tri_gpu_kernel_attention_64, args.queries, args.drops, &args, sizeof args);
        return;
    }
    TRI_GPU_RUN(call, attention, tri_int64_ceil(args.length, TRI_GPU_QUERIES), args.queries,
                (int)(args.samples * call->shards), args);
}

static void attention_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_gpu_attention_dq_args args = {.forward = args_make(kernel, call),
                                            .dx = tri_gpu_dinput(kernel, call, 0),
                                            .dy = tri_gpu_doutput(kernel, call),
                                            .dot = call->scratch};
    const tri_gpu_attention_args *f = &args.forward;
    const int samples = (int)(f->samples * call->shards);
    const int64_t tiles = tri_int64_ceil(f->length, TRI_GPU_QUERIES);
    const tri_gpu_attention_dot_args dot = {
        .y = f->y, .dy = args.dy, .dot = call->scratch, .rows = samples * f->length * f->queries, .width = f->width};
    if (args.dx.data == NULL) {
        return;
    }
    TRI_GPU_RUN(call, attention_dot, tri_gpu_blocks_rows(tri_int64_ceil(dot.rows, TRI_GPU_DOTS)), 1, 1, dot);
    if (by_tensor_cores(&kernel->desc)) {
        run_half(kernel, call, tri_gpu_kernel_attention_dq_64, f->queries, f->drops, &args, sizeof args);
        run_half(kernel, call, tri_gpu_kernel_attention_dkv_64, f->keys, f->drops, &args, sizeof args);
        return;
    }
    TRI_GPU_RUN(call, attention_dq, tiles, f->queries, samples, args);
    TRI_GPU_RUN(call, attention_dkv, tiles, f->keys, samples, args);
}

const tri_kernel_ops tri_gpu_row_attention = {
    TRI_GPU_ROW,
    .op = TRI_OP_ATTENTION,
    .can = attention_can,
    .plan = attention_plan,
    .forward = attention_forward,
    .backward = attention_backward,
    .backward_input = true,
    .backward_output = true,
};
