/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c: launches our own products: tiles of 64 x 64 or 128 x 128.
 */
#include "kernel/gpu/rows.h"

#define WIDE_TILES 64 /* fewer of them leave a card half empty */

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

/* Neighbours of a factor lie together, along k or along its rows, by eights on multiples of 16 bytes; 8 elements are 16
 * bytes or 32. Those of a window are channels, or units, of a group. */
static bool has_eights(const tri_gpu_operand *o, const tri_gpu_window *w, int64_t rows, int64_t k)
{
    const bool along_k = o->column == 1;
    if (o->shard_stride % 8 != 0 || o->group_stride % 8 != 0 || (uintptr_t)o->value.data % 16 != 0) {
        return false;
    }
    if (o->source != TRI_GPU_PLAIN) {
        return (o->source == TRI_GPU_PATCHES_DY ? w->out_channels : w->channels) / w->groups % 8 == 0;
    }
    return (along_k || o->row == 1) && (along_k ? o->row : o->column) % 8 == 0 && (along_k ? k : rows) % 8 == 0;
}

/* Two elements are 4 bytes or 8. */
static bool has_pairs(const tri_gpu_gemm_args *args)
{
    const tri_gpu_operand *c = &args->c;
    const int64_t steps =
        c->row | c->shard_stride | c->group_stride | args->n | (args->chunks > 1 ? args->chunk_stride : 0);
    return c->source == TRI_GPU_PLAIN && c->column == 1 && steps % 2 == 0 && (uintptr_t)c->value.data % 8 == 0;
}

/* The bits are those of small tiles: so it may depend on how many there are. */
static bool goes_wide(const tri_gpu_gemm_args *args, int64_t products)
{
    const int64_t tiles = tri_int64_ceil(args->m, TRI_GPU_WIDE) * tri_int64_ceil(args->n, TRI_GPU_WIDE) * products;
    return tiles >= WIDE_TILES && args->m >= TRI_GPU_WIDE && args->n >= TRI_GPU_WIDE && args->chunks == 1 &&
           args->a.source == TRI_GPU_PLAIN && args->b.source == TRI_GPU_PLAIN && args->a.eights && args->b.eights &&
           args->a.value.type != TRI_GPU_F32 && args->b.value.type != TRI_GPU_F32;
}

void tri_gpu_gemm_own(const tri_op_call *call, const tri_gpu_gemm_args *args, int64_t shards)
{
    tri_gpu_gemm_args part = *args;
    const bool half = args->type != TRI_GPU_F32;
    part.groups = args->groups > 0 ? args->groups : 1;
    part.chunks = args->chunks > 1 ? args->chunks : 1;
    part.chunk = args->chunks > 1 ? args->chunk : args->k;
    shards_join(&part, &shards);
    part.a.eights = has_eights(&part.a, &part.w, part.m, part.k);
    part.b.eights = has_eights(&part.b, &part.w, part.n, part.k);
    part.c.pairs = has_pairs(&part);
    const tri_gpu_gemm_args all = part;
    const bool wide = half && goes_wide(&part, shards * part.groups);
    const tri_gpu_kernel kernel = wide   ? tri_gpu_kernel_gemm_wide
                                  : half ? tri_gpu_kernel_gemm_half
                                         : tri_gpu_kernel_gemm;
    const int threads = half && !wide ? TRI_GPU_THREADS / 2 : TRI_GPU_THREADS;
    const int tile = wide ? TRI_GPU_WIDE : TRI_GPU_TILE;
    const int64_t tiles_m = tri_int64_ceil(part.m, tile), tiles_n = tri_int64_ceil(part.n, tile);
    const int each = part.groups * part.chunks;
    const int64_t most = TRI_GPU_MOST_BLOCKS / each;
    for (int64_t first = 0; first < shards; first += most) {
        const int z = (int)(tri_int64_min(most, shards - first) * each);
        part.a.value.data = tri_gpu_moved(all.a.value, first * part.a.shard_stride);
        part.b.value.data = tri_gpu_moved(all.b.value, first * part.b.shard_stride);
        part.c.value.data = tri_gpu_moved(all.c.value, first * part.c.shard_stride);
        tri_gpu_run(tri_gpu_queue_of(call->device), kernel, tiles_m, (int)tiles_n, z, threads, &part, sizeof part);
    }
}
