/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: what rows of kind "cuda" share.
 */
#include "kernel/gpu/rows.h"

#include "base/status.h"

tri_status tri_gpu_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const int most = desc->places > 0 ? TRI_GPU_TOKENS : TRI_GPU_SHARDS;
    (void)kernel;
    if (desc->max_shards > most) {
        return tri_fail(TRI_EUNSUPPORTED, "%s: want at most %d shards at once on a GPU, got %d", tri_op_name(desc->op),
                        most, desc->max_shards);
    }
    return TRI_OK;
}

tri_status tri_gpu_rows_check(const tri_op_desc *desc, int64_t rows)
{
    const int64_t most = (int64_t)TRI_GPU_MOST_BLOCKS * TRI_GPU_CHUNK;
    if (rows > most) {
        return tri_fail(TRI_EUNSUPPORTED, "%s: want at most %lld rows in a shard on a GPU, got %lld (train.shards)",
                        tri_op_name(desc->op), (long long)most, (long long)rows);
    }
    return TRI_OK;
}

tri_status tri_gpu_width_check(const tri_op_desc *desc, int64_t width)
{
    const int64_t most = (int64_t)TRI_GPU_MOST_BLOCKS * TRI_GPU_TILE;
    if (width > most) {
        return tri_fail(TRI_EUNSUPPORTED, "%s: want at most %lld columns in a matrix on a GPU, got %lld",
                        tri_op_name(desc->op), (long long)most, (long long)width);
    }
    return TRI_OK;
}

tri_status tri_gpu_refuse(const tri_op_desc *desc)
{
    const char *name = tri_op_name(desc->op);
    if (desc->op == TRI_OP_ATTENTION || desc->op == TRI_OP_ROPE) {
        return tri_fail(TRI_EUNSUPPORTED, "%s: want heads of at most %d elements on a GPU, got %lld", name,
                        TRI_GPU_HEAD, (long long)tri_heads_make(desc).width);
    }
    return tri_fail(TRI_EUNSUPPORTED, "%s is not there yet on a GPU: want train.device=cpu", name);
}

void tri_gpu_valid(const tri_op_call *call, int64_t each, int64_t valid[TRI_GPU_SHARDS])
{
    for (int s = 0; s < call->shards; s++) {
        valid[s] = call->rows[s] * each;
    }
}

void tri_gpu_leaves_from(const tri_kernel *kernel, const tri_op_call *call, int p, const float *leaves, int64_t stride,
                         int64_t first, int64_t count)
{
    float *out[TRI_TREE_MAX_PARTS];
    if (!tri_call_wants_dparam(call, p)) {
        return;
    }
    for (int part = 0; part < call->part_count; part++) {
        out[part] = call->dparam[p][part] + first;
    }
    tri_gpu_fold(tri_gpu_queue_of(call->device), leaves, stride, count, call->parts, call->part_count, out, 1.0f,
                 kernel->desc.adds);
}

void tri_gpu_leaves(const tri_kernel *kernel, const tri_op_call *call, int p, const float *leaves, int64_t stride,
                    int64_t count)
{
    tri_gpu_leaves_from(kernel, call, p, leaves, stride, 0, count);
}

void tri_gpu_move(const tri_op_call *call, const tri_gpu_move_args *args)
{
    TRI_GPU_RUN(call, move, tri_gpu_blocks_each(args->width * args->outer), 1, 1, *args);
}

tri_gpu_window tri_gpu_window_make(const tri_op_desc *desc)
{
    const tri_window w = tri_window_make(desc);
    tri_gpu_window out = {.channels = (int)w.channels, .out_channels = (int)w.out_channels, .groups = (int)w.groups};
    for (int i = 0; i < 2; i++) {
        out.in[i] = (int)w.in[i];
        out.out[i] = (int)w.out[i];
        out.kernel[i] = (int)w.kernel[i];
        out.stride[i] = (int)w.stride[i];
        out.pad[i] = (int)w.pad[i];
        out.dilation[i] = (int)w.dilation[i];
    }
    return out;
}

int64_t tri_gpu_columns_count(int64_t shards, int64_t rows, int64_t width, int kinds)
{
    return tri_align_count(shards * width * (2 * tri_int64_ceil(rows, TRI_GPU_CHUNK) + kinds));
}

float *tri_gpu_columns(const tri_op_call *call, tri_gpu_columns_args *args, int64_t shards, int kinds, float epsilon,
                       float *scratch)
{
    const int64_t chunks = tri_int64_ceil(args->rows, TRI_GPU_CHUNK);
    float *const out = scratch + shards * chunks * 2 * args->width;
    tri_gpu_columns_sum_args sum = {.partial = scratch,
                                    .out = out,
                                    .batch_stats = (float *)(uintptr_t)args->batch_stats,
                                    .mode = args->mode,
                                    .shards = (int)shards,
                                    .chunks = chunks,
                                    .width = args->width,
                                    .epsilon = epsilon};
    args->partial = scratch;
    memcpy(sum.valid, args->valid, sizeof sum.valid);
    TRI_GPU_RUN(call, columns, tri_int64_ceil(args->width, TRI_GPU_COLUMNS), (int)chunks, (int)shards, *args);
    TRI_GPU_RUN(call, columns_sum, tri_int64_ceil(args->width, TRI_GPU_SLICE_COLUMNS), kinds, (int)shards, sum);
    return out;
}

/* --- sums over rows --- */

/* Parts of all samples of a shard that are summed each on its own; 0: the rows are one sum. */
static int64_t blocks_of(const tri_op_desc *desc)
{
    return desc->attr.parts > 0 ? tri_leaf_blocks(desc) : 0;
}

/* Scratch where there are parts: sums of all blocks, sums over samples [kinds][shards][parts][width]; what comes out
 * lies where the first ones' partial sums were. */
static int64_t blocks_count(const tri_op_desc *desc, int64_t rows, int64_t width, int kinds)
{
    const int64_t blocks = blocks_of(desc), parts = desc->attr.parts, shards = desc->max_shards;
    return tri_gpu_columns_count(shards * blocks, rows / blocks, width, kinds) +
           tri_gpu_columns_count(shards * kinds, desc->input[0].dim[0], parts * width, 1);
}

tri_status tri_gpu_rows_plan(const tri_op_desc *desc, tri_kernel *kernel, int64_t rows, int64_t width, int kinds)
{
    const int64_t blocks = blocks_of(desc), shards = desc->max_shards;
    const int64_t count =
        blocks > 0 ? blocks_count(desc, rows, width, kinds) : tri_gpu_columns_count(shards, rows, width, kinds);
    kernel->scratch_nbytes = (size_t)count * sizeof(float);
    if (desc->attr.parts > TRI_GPU_SHARDS || blocks * shards > TRI_GPU_MOST_BLOCKS) {
        return tri_fail(TRI_EUNSUPPORTED,
                        "%s: want at most %d parts of a sample on a rank, and %d of all samples on a GPU, got %d and "
                        "%lld (parallel.tensor_parts)",
                        tri_op_name(desc->op), TRI_GPU_SHARDS, TRI_GPU_MOST_BLOCKS, desc->attr.parts,
                        (long long)(blocks * shards));
    }
    if (blocks > 0 && desc->attr.ranks > 1) {
        kernel->host_nbytes = (size_t)(kinds * shards * width) * sizeof(float);
    }
    TRI_TRY(tri_gpu_rows_check(desc, rows));
    return tri_gpu_plan(desc, kernel);
}

/* What ranks exchange goes through the host's memory: copied there, exchanged as the reference does, copied back. */

void tri_gpu_ranks_sum(const tri_op_call *call, void *data, int64_t count, tri_dtype dtype)
{
    const size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype);
    tri_device_to_host(call->device, call->host, data, nbytes);
    tri_ranks_sum(call, call->host, count, dtype);
    tri_device_from_host(call->device, data, call->host, nbytes);
}

void tri_gpu_ranks_gather(const tri_kernel *kernel, const tri_op_call *call, const void *in, void *out, int64_t count,
                          tri_dtype dtype)
{
    const size_t nbytes = (size_t)count * tri_dtype_nbytes(dtype);
    char *const mine = (char *)call->host + nbytes * (size_t)kernel->desc.attr.rank;
    tri_device_to_host(call->device, mine, in, nbytes);
    tri_ranks_gather(call, mine, call->host, count, dtype);
    tri_device_from_host(call->device, out, call->host, nbytes * (size_t)kernel->desc.attr.ranks);
}

/* Sums of blocks [kinds][shards][samples][parts][width] become [kinds][shards][width]. */
static void blocks_fold(const tri_kernel *kernel, const tri_op_call *call, const float *sums, int64_t width, int kinds,
                        float *scratch, float *out)
{
    const int64_t samples = kernel->desc.input[0].dim[0], parts = kernel->desc.attr.parts;
    tri_gpu_columns_args args = {.g = tri_gpu_value_make(sums, TRI_F32), .rows = samples, .width = parts * width};
    const float *leaves = tri_gpu_columns(call, &args, kinds * call->shards, 1, 0, scratch);
    for (int kind = 0; kind < kinds; kind++) {
        tri_tree_part trees[TRI_GPU_SHARDS];
        float *to[TRI_GPU_SHARDS];
        for (int s = 0; s < call->shards; s++) {
            trees[s] = (tri_tree_part){s * parts, parts};
            to[s] = out + (kind * call->shards + s) * width;
        }
        tri_gpu_fold(tri_gpu_queue_of(call->device), leaves + kind * call->shards * parts * width, width, width, trees,
                     call->shards, to, 1.0f, false);
    }
}

float *tri_gpu_rows_sum(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_columns_args *args, int kinds)
{
    const tri_op_desc *desc = &kernel->desc;
    const int64_t blocks = blocks_of(desc), width = args->width;
    float *const scratch = call->scratch;
    if (blocks == 0) {
        return tri_gpu_columns(call, args, call->shards, kinds, 0, scratch);
    }
    args->rows /= blocks;
    const float *sums = tri_gpu_columns(call, args, call->shards * blocks, kinds, 0, scratch);
    blocks_fold(kernel, call, sums, width, kinds,
                scratch + tri_gpu_columns_count(desc->max_shards * blocks, args->rows, width, kinds), scratch);
    if (desc->attr.ranks > 1) {
        tri_gpu_ranks_sum(call, scratch, kinds * call->shards * width, TRI_F32);
    }
    return scratch;
}
