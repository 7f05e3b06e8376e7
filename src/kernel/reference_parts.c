/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_parts.c: what the ops around layers in parts mean: share_parts on the way in, sum_parts and bias on the way
 * out; or gather_tokens and spread_tokens, where ranks have slices of each sample in between.
 *
 * share_parts and sum_parts copy, where they may not be what they read, and let the ranks that have the other parts add
 * up: one in the backward pass, the other in the forward pass.
 */
#include "kernel/infer.h"

void tri_ranks_sum(const tri_op_call *call, void *data, int64_t count, tri_dtype dtype)
{
    tri_op_ranks *across = call->across;
    if (across->status == TRI_OK) {
        across->status = across->sum(across->arg, data, count, dtype);
    }
}

void tri_ranks_gather(const tri_op_call *call, const void *in, void *out, int64_t count, tri_dtype dtype)
{
    tri_op_ranks *across = call->across;
    if (across->status == TRI_OK) {
        across->status = across->gather(across->arg, in, out, count, dtype);
    }
}

static void add_to(float *sum, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        sum[i] += x[i];
    }
}

void tri_blocks_fold(const tri_kernel *kernel, const tri_op_call *call, float *leaves, int64_t width)
{
    const int64_t samples = kernel->desc.input[0].dim[0], parts = kernel->desc.attr.parts;
    for (int64_t s = 0; parts > 0 && s < call->shards; s++) {
        float *shard = leaves + s * samples * parts * width;
        for (int64_t b = 1; b < samples; b++) {
            add_to(shard, shard + b * parts * width, parts * width);
        }
        for (int64_t step = 1; step < parts; step *= 2) {
            for (int64_t p = 0; p < parts; p += 2 * step) {
                add_to(shard + p * width, shard + (p + step) * width, width);
            }
        }
        memmove(leaves + s * width, shard, (size_t)width * sizeof(float));
    }
    if (parts > 0 && kernel->desc.attr.ranks > 1) {
        tri_ranks_sum(call, leaves, call->shards * width, TRI_F32);
    }
}

static void copy(const tri_kernel *kernel, const tri_op_call *call, void *to, const void *from)
{
    if (to != from) {
        memcpy(to, from,
               (size_t)(tri_shape_count(kernel->desc.output) * call->shards) *
                   tri_dtype_nbytes(kernel->desc.output_dtype));
    }
}

static void add_up(const tri_kernel *kernel, const tri_op_call *call, void *data)
{
    if (kernel->desc.attr.ranks > 1) {
        tri_ranks_sum(call, data, tri_shape_count(kernel->desc.output) * call->shards, kernel->desc.output_dtype);
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

static bool one_type(const tri_op_desc *desc)
{
    return desc->input_dtype[0] == desc->output_dtype;
}

static tri_status infer_ranks(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_same(desc));
    return tri_infer_ranks(desc);
}

static double parts_exchange(const tri_op_desc *desc)
{
    return (double)tri_shape_count(desc->output) * (double)tri_dtype_nbytes(desc->output_dtype);
}

const tri_op_ops tri_op_share_parts = {
    .infer = infer_ranks,
    .exchange = parts_exchange,
    .reference.can = one_type,
    .reference.forward = share_forward,
    .reference.backward = share_backward,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
    .reference.view = true,
    .reference.half = true,
    .reference.f16 = true,
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

const tri_op_ops tri_op_sum_parts = {
    .infer = infer_ranks,
    .exchange = parts_exchange,
    .reference.can = one_type,
    .reference.forward = sum_forward,
    .reference.backward = sum_backward,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
    .reference.half = true,
    .reference.f16 = true,
};

/* --- tokens --- */

typedef struct tokens_arg {
    const char *from;
    char *to;
    size_t slice;           /* bytes of a sample's tokens of one rank */
    int64_t samples, ranks; /* samples of the call */
    int64_t rank;           /* whose slices are taken; -1: all are put together, from [ranks][samples] */
} tokens_arg;

static tokens_arg tokens_make(const tri_kernel *kernel, const tri_op_call *call, const tri_shape *slices)
{
    return (tokens_arg){.slice = (size_t)tri_shape_product(slices, 1, slices->ndim) *
                                 tri_dtype_nbytes(kernel->desc.output_dtype),
                        .samples = slices->dim[0] * call->shards,
                        .ranks = kernel->desc.attr.ranks,
                        .rank = kernel->desc.attr.rank};
}

static void tokens_tile(void *arg, int64_t sample)
{
    const tokens_arg *v = arg;
    const size_t slice = v->slice;
    if (v->rank >= 0) {
        memcpy(v->to + (size_t)sample * slice, v->from + (size_t)(sample * v->ranks + v->rank) * slice, slice);
        return;
    }
    for (int64_t r = 0; r < v->ranks; r++) {
        memcpy(v->to + (size_t)(sample * v->ranks + r) * slice, v->from + (size_t)(r * v->samples + sample) * slice,
               slice);
    }
}

/* The tokens of all ranks, from each one's slices. */
static void tokens_gather(const tri_kernel *kernel, const tri_op_call *call, const tri_shape *slices, const void *from,
                          void *to)
{
    tokens_arg arg = tokens_make(kernel, call, slices);
    tri_ranks_gather(call, from, call->scratch, tri_shape_count(*slices) * call->shards, kernel->desc.output_dtype);
    arg.from = call->scratch;
    arg.to = to;
    arg.rank = -1;
    tri_tiles_run(kernel->desc.threads, arg.samples, tokens_tile, &arg);
}

/* This rank's slices of the sum of all ranks, which `sum` becomes. */
static void tokens_spread(const tri_kernel *kernel, const tri_op_call *call, const tri_shape *slices, void *sum,
                          void *to)
{
    tokens_arg arg = tokens_make(kernel, call, slices);
    tri_ranks_sum(call, sum, tri_shape_count(*slices) * call->shards * arg.ranks, kernel->desc.output_dtype);
    arg.from = sum;
    arg.to = to;
    tri_tiles_run(kernel->desc.threads, arg.samples, tokens_tile, &arg);
}

/* Scratch: the tokens of all ranks. */
static tri_status tokens_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_shape *all = desc->op == TRI_OP_GATHER_TOKENS ? &desc->output : &desc->input[0];
    kernel->scratch_nbytes = (size_t)(tri_shape_count(*all) * desc->max_shards) * tri_dtype_nbytes(desc->output_dtype);
    return TRI_OK;
}

static void gather_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    tokens_gather(kernel, call, &kernel->desc.input[0], call->input[0], call->output);
}

static void gather_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        tokens_spread(kernel, call, &kernel->desc.input[0], (void *)(uintptr_t)call->doutput, call->dinput[0]);
    }
}

/* x[B,T,C] */
static tri_status infer_gather(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_ranks(desc));
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    desc->output = desc->input[0];
    desc->output.dim[1] *= desc->attr.ranks > 1 ? desc->attr.ranks : 1;
    return TRI_OK;
}

/* A gather is half a sum. */
static double gather_exchange(const tri_op_desc *desc)
{
    return 1.5 * parts_exchange(desc);
}

const tri_op_ops tri_op_gather_tokens = {
    .infer = infer_gather,
    .exchange = gather_exchange,
    .exchanges = 2,
    .reference.can = one_type,
    .reference.plan = tokens_plan,
    .reference.forward = gather_forward,
    .reference.backward = gather_backward,
    .reference.half = true,
    .reference.f16 = true,
};

static void spread_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    memcpy(call->scratch, call->input[0],
           (size_t)(tri_shape_count(kernel->desc.input[0]) * call->shards) *
               tri_dtype_nbytes(kernel->desc.output_dtype));
    tokens_spread(kernel, call, &kernel->desc.output, call->scratch, call->output);
}

static void spread_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        tokens_gather(kernel, call, &kernel->desc.output, call->doutput, call->dinput[0]);
    }
}

static tri_status infer_spread(tri_op_desc *desc)
{
    const int64_t ranks = desc->attr.ranks > 1 ? desc->attr.ranks : 1;
    TRI_TRY(tri_infer_ranks(desc));
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    if (desc->input[0].dim[1] % ranks != 0) {
        return tri_fail(TRI_EINVAL, "spread_tokens: want tokens that the %lld ranks divide, got %lld", (long long)ranks,
                        (long long)desc->input[0].dim[1]);
    }
    desc->output = desc->input[0];
    desc->output.dim[1] /= ranks;
    return TRI_OK;
}

static double spread_exchange(const tri_op_desc *desc)
{
    return 1.5 * (double)tri_shape_count(desc->input[0]) * (double)tri_dtype_nbytes(desc->output_dtype);
}

const tri_op_ops tri_op_spread_tokens = {
    .infer = infer_spread,
    .exchange = spread_exchange,
    .exchanges = 2,
    .reference.can = one_type,
    .reference.plan = tokens_plan,
    .reference.forward = spread_forward,
    .reference.backward = spread_backward,
    .reference.half = true,
    .reference.f16 = true,
};

/* --- bias --- */

static tri_status bias_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes =
        (size_t)(tri_shape_last(&desc->output) * desc->max_shards * tri_leaf_blocks(desc)) * sizeof(float);
    return TRI_OK;
}

static void bias_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output);
    const float *x = call->input[0], *b = call->param[0];
    for (int64_t i = 0; i < tri_shape_count(kernel->desc.output) * call->shards; i++) {
        ((float *)call->output)[i] = x[i] + b[i % width];
    }
}

static void bias_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output), count = tri_shape_count(kernel->desc.output);
    const float *dy = call->doutput;
    const int64_t blocks = tri_leaf_blocks(&kernel->desc), block = count / blocks;
    float *leaves = call->scratch;
    memset(leaves, 0, (size_t)(width * call->shards * blocks) * sizeof(float));
    for (int64_t i = 0; i < count * call->shards; i++) {
        leaves[i / block * width + i % width] += dy[i];
    }
    tri_blocks_fold(kernel, call, leaves, width);
    tri_leaves_sum(kernel, call, 0, leaves, width, width);
    if (call->dinput[0] != NULL) {
        copy(kernel, call, call->dinput[0], dy);
    }
}

static tri_status infer_bias(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_same(desc));
    TRI_TRY(tri_infer_token_parts(desc));
    return tri_infer_param(desc, tri_shape_vector(tri_shape_last(&desc->input[0])));
}

const tri_op_ops tri_op_bias = {
    .infer = infer_bias,
    .reference.plan = bias_plan,
    .reference.forward = bias_forward,
    .reference.backward = bias_backward,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
};
