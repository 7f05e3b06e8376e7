/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: what rows of kind "cuda" share.
 */
#include "kernel/gpu/rows.h"

#include "base/status.h"
#include "kernel/gpu/product.h"

#define WIDE_TILES 64 /* fewer of them leave a card half empty */

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
    TRI_GPU_RUN(call, columns, tri_int64_ceil(args->width, 32), (int)chunks, (int)shards, *args);
    TRI_GPU_RUN(call, columns_sum, tri_gpu_blocks(args->width), kinds, (int)shards, sum);
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

static void *moved(tri_gpu_value value, int64_t elements)
{
    return (char *)value.data + elements * (value.type == TRI_GPU_F32 ? 4 : 2);
}

/* Shards that follow each other and share b are more rows of one product: fewer tiles with an edge. */
static void shards_join(tri_gpu_gemm_args *args, int64_t *shards)
{
    const int64_t rows = args->m;
    if (args->groups == 1 && args->a.source == TRI_GPU_PLAIN && args->b.shard_stride == 0 &&
        args->a.shard_stride == rows * args->a.row && args->c.shard_stride == rows * args->c.row) {
        args->m = (int)(rows * *shards);
        *shards = 1;
    }
}

/* Rows of 16 bytes on multiples of 16, along k or along the factor's rows; 8 elements are 16 bytes or 32. */
static bool lies_wide(const tri_gpu_operand *o, int64_t rows, int64_t k)
{
    const bool along_k = o->column == 1;
    return o->source == TRI_GPU_PLAIN && (along_k || o->row == 1) && (along_k ? o->row : o->column) % 8 == 0 &&
           (along_k ? k : rows) % 8 == 0 && o->shard_stride % 8 == 0 && o->group_stride % 8 == 0 &&
           (uintptr_t)o->value.data % 16 == 0;
}

/* The bits are those of small tiles: so it may depend on how many there are. */
static bool goes_wide(const tri_gpu_gemm_args *args, int64_t products)
{
    const int64_t tiles = tri_int64_ceil(args->m, TRI_GPU_WIDE) * tri_int64_ceil(args->n, TRI_GPU_WIDE) * products;
    return tiles >= WIDE_TILES && args->m >= TRI_GPU_WIDE && args->n >= TRI_GPU_WIDE &&
           lies_wide(&args->a, args->m, args->k) && lies_wide(&args->b, args->n, args->k);
}

void tri_gpu_gemm_own(const tri_op_call *call, const tri_gpu_gemm_args *args, int64_t shards)
{
    tri_gpu_gemm_args part = *args;
    const bool half = args->type != TRI_GPU_F32;
    part.groups = args->groups > 0 ? args->groups : 1;
    shards_join(&part, &shards);
    const tri_gpu_gemm_args all = part;
    const bool wide = half && goes_wide(&part, shards * part.groups);
    const tri_gpu_kernel kernel = wide   ? tri_gpu_kernel_gemm_wide
                                  : half ? tri_gpu_kernel_gemm_half
                                         : tri_gpu_kernel_gemm;
    const int threads = half && !wide ? TRI_GPU_THREADS / 2 : TRI_GPU_THREADS;
    const int tile = wide ? TRI_GPU_WIDE : TRI_GPU_TILE;
    const int64_t tiles_m = tri_int64_ceil(part.m, tile), tiles_n = tri_int64_ceil(part.n, tile);
    const int64_t most = TRI_GPU_MOST_BLOCKS / part.groups;
    for (int64_t first = 0; first < shards; first += most) {
        const int z = (int)(tri_int64_min(most, shards - first) * part.groups);
        part.a.value.data = moved(all.a.value, first * part.a.shard_stride);
        part.b.value.data = moved(all.b.value, first * part.b.shard_stride);
        part.c.value.data = moved(all.c.value, first * part.c.shard_stride);
        tri_gpu_run(tri_gpu_queue_of(call->device), kernel, tiles_m, (int)tiles_n, z, threads, &part, sizeof part);
    }
}

void tri_gpu_gemm(const tri_op_call *call, const tri_gpu_gemm_args *args, const void *bias, int64_t shards)
{
    if (!tri_gpu_product_run(call, args, bias, shards)) {
        tri_gpu_gemm_own(call, args, shards);
    }
}
