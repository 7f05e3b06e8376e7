/* SPDX-License-Identifier: Apache-2.0
 *
 * flat.c: launches over flat arrays.
 */
#include "kernel/gpu/flat.h"

#include "base/status.h"
#include "kernel/kernel.h"

#define SPAN ((int64_t)TRI_GPU_THREADS * TRI_GPU_EACH) /* elements of a block of an elementwise kernel */

static const char *const symbols[] = {
#define SYMBOL(name) "tri_cuda_" #name,
    TRI_GPU_KERNELS(SYMBOL)
#undef SYMBOL
};
_Static_assert(TRI_GPU_SQUARES == TRI_NORM_BLOCK, "blocks of the norm are those of the CPU");
_Static_assert(TRI_GPU_KERNEL_COUNT <= TRI_LAUNCH_KERNELS, "a module has room for all kernels");

tri_gpu_value tri_gpu_value_make(const void *data, tri_dtype dtype)
{
    return (tri_gpu_value){(void *)(uintptr_t)data, dtype == TRI_BF16  ? TRI_GPU_BF16
                                                    : dtype == TRI_F16 ? TRI_GPU_F16
                                                                       : TRI_GPU_F32};
}

void tri_gpu_run(tri_gpu_queue *queue, tri_gpu_kernel kernel, int64_t blocks, int y, int z, int threads,
                 const void *args, size_t args_nbytes)
{
    const tri_gpu_launch launch = {.kernel = (int)kernel,
                                   .symbol = symbols[kernel],
                                   .grid = {blocks, y, z},
                                   .threads = threads,
                                   .args = args,
                                   .args_nbytes = args_nbytes};
    if (queue->status == TRI_OK && blocks > 0 && y > 0 && z > 0) {
        queue->status = queue->launch(queue->arg, &launch);
    }
}

void tri_gpu_load(tri_gpu_queue *queue)
{
    for (int k = 0; k < TRI_GPU_KERNEL_COUNT && queue->status == TRI_OK; k++) {
        const tri_gpu_launch load = {.kernel = k, .symbol = symbols[k]};
        queue->status = queue->launch(queue->arg, &load);
    }
}

static void run_flat(tri_gpu_queue *queue, tri_gpu_kernel kernel, int64_t count, const void *args, size_t args_nbytes)
{
    tri_gpu_run(queue, kernel, (count + SPAN - 1) / SPAN, 1, 1, TRI_GPU_THREADS, args, args_nbytes);
}

void tri_gpu_fill(tri_gpu_queue *queue, float *out, float value, int64_t count)
{
    const tri_gpu_fill_args args = {out, value, count};
    run_flat(queue, tri_gpu_kernel_fill, count, &args, sizeof args);
}

void tri_gpu_cast(tri_gpu_queue *queue, tri_gpu_value to, tri_gpu_value from, int64_t count)
{
    const tri_gpu_cast_args args = {to, from, count};
    run_flat(queue, tri_gpu_kernel_cast, count, &args, sizeof args);
}

void tri_gpu_add(tri_gpu_queue *queue, tri_gpu_value out, tri_gpu_value a, tri_gpu_value b, int64_t count)
{
    const tri_gpu_add_args args = {out, a, b, count};
    run_flat(queue, tri_gpu_kernel_add, count, &args, sizeof args);
}

void tri_gpu_fold(tri_gpu_queue *queue, const float *leaves, int64_t stride, int64_t count, const tri_tree_part *parts,
                  int part_count, float *const *out, float factor, bool adds)
{
    tri_gpu_fold_args args = {.leaves = leaves, .stride = stride, .count = count, .factor = factor, .adds = adds};
    TRI_ASSERT(part_count <= TRI_GPU_SHARDS);
    for (int part = 0; part < part_count; part++) {
        args.first[part] = (int32_t)parts[part].first;
        args.leaf_count[part] = (int32_t)parts[part].count;
        args.out[part] = out[part];
    }
    tri_gpu_run(queue, tri_gpu_kernel_fold, (count + TRI_GPU_THREADS - 1) / TRI_GPU_THREADS, part_count, 1,
                TRI_GPU_THREADS, &args, sizeof args);
}

void tri_gpu_squares(tri_gpu_queue *queue, const float *x, int64_t count, double *blocks)
{
    const tri_gpu_squares_args args = {x, count, blocks};
    const int64_t each = (int64_t)TRI_GPU_SQUARES * (TRI_GPU_THREADS / TRI_GPU_SQUARE_LANES);
    tri_gpu_run(queue, tri_gpu_kernel_squares, (count + each - 1) / each, 1, 1, TRI_GPU_THREADS, &args, sizeof args);
}

void tri_gpu_step(tri_gpu_queue *queue, const tri_gpu_step_args *args)
{
    run_flat(queue, tri_gpu_kernel_step, args->count, args, sizeof *args);
}

void tri_gpu_digest(tri_gpu_queue *queue, const tri_gpu_digest_args *args)
{
    tri_gpu_run(queue, tri_gpu_kernel_digest, (8 * args->count + TRI_GPU_THREADS - 1) / TRI_GPU_THREADS, 1, 1,
                TRI_GPU_THREADS, args, sizeof *args);
}
