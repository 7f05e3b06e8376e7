/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: what rows of kind "cuda" share.
 */
#include "kernel/gpu/rows.h"

#include "base/status.h"

tri_status tri_gpu_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    (void)kernel;
    if (desc->max_shards > TRI_GPU_SHARDS) {
        return tri_fail(TRI_EUNSUPPORTED, "%s: want at most %d shards at once on a GPU, got %d", tri_op_name(desc->op),
                        TRI_GPU_SHARDS, desc->max_shards);
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
    if (desc->attr.sync) {
        return tri_fail(TRI_EUNSUPPORTED,
                        "%s over the whole batch is not there yet on a GPU: want "
                        "model.sync_batch_norm=false, or train.device=cpu",
                        name);
    }
    if (desc->attr.ranks > 1 || desc->attr.parts > 0) {
        return tri_fail(TRI_EUNSUPPORTED,
                        "%s in parts is not there yet on a GPU: want parallel.tensor=1 and "
                        "parallel.sequence=false, or train.device=cpu",
                        name);
    }
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

void tri_gpu_leaves(const tri_kernel *kernel, const tri_op_call *call, int p, const float *leaves, int64_t stride,
                    int64_t count)
{
    if (tri_call_wants_dparam(call, p)) {
        tri_gpu_fold(tri_gpu_queue_of(call->device), leaves, stride, count, call->parts, call->part_count,
                     call->dparam[p], 1.0f, kernel->desc.adds);
    }
}

int64_t tri_gpu_columns_count(const tri_op_desc *desc, int64_t rows, int64_t width, int kinds)
{
    return tri_align_count(desc->max_shards * width * (2 * tri_int64_ceil(rows, TRI_GPU_CHUNK) + kinds));
}

float *tri_gpu_columns(const tri_op_call *call, tri_gpu_columns_args *args, int kinds, float epsilon, float *scratch)
{
    const int64_t chunks = tri_int64_ceil(args->rows, TRI_GPU_CHUNK);
    float *const out = scratch + call->shards * chunks * 2 * args->width;
    tri_gpu_columns_sum_args sum = {.partial = scratch,
                                    .out = out,
                                    .batch_stats = (float *)(uintptr_t)args->batch_stats,
                                    .mode = args->mode,
                                    .shards = call->shards,
                                    .chunks = chunks,
                                    .width = args->width,
                                    .epsilon = epsilon};
    args->partial = scratch;
    memcpy(sum.valid, args->valid, sizeof sum.valid);
    TRI_GPU_RUN(call, columns, tri_int64_ceil(args->width, 32), (int)chunks, call->shards, *args);
    TRI_GPU_RUN(call, columns_sum, tri_gpu_blocks(args->width), kinds, call->shards, sum);
    return out;
}

static void *moved(tri_gpu_value value, int64_t elements)
{
    return (char *)value.data + elements * (value.type == TRI_GPU_F32 ? 4 : 2);
}

void tri_gpu_gemm(const tri_op_call *call, const tri_gpu_gemm_args *args, bool half, int64_t shards)
{
    tri_gpu_gemm_args part = *args;
    part.groups = args->groups > 0 ? args->groups : 1;
    const int64_t tiles_m = tri_int64_ceil(part.m, TRI_GPU_TILE), tiles_n = tri_int64_ceil(part.n, TRI_GPU_TILE);
    const int64_t most = TRI_GPU_MOST_BLOCKS / part.groups;
    for (int64_t first = 0; first < shards; first += most) {
        const int z = (int)(tri_int64_min(most, shards - first) * part.groups);
        part.a.value.data = moved(args->a.value, first * args->a.shard_stride);
        part.b.value.data = moved(args->b.value, first * args->b.shard_stride);
        part.c.value.data = moved(args->c.value, first * args->c.shard_stride);
        tri_gpu_run(tri_gpu_queue_of(call->device), half ? tri_gpu_kernel_gemm_half : tri_gpu_kernel_gemm, tiles_m,
                    (int)tiles_n, z, half ? TRI_GPU_THREADS / 2 : TRI_GPU_THREADS, &part, sizeof part);
    }
}
