/* SPDX-License-Identifier: Apache-2.0
 *
 * array.c: the rows of loops over arrays, and calls of ops whose memory the CPU's kernels find at other addresses.
 */
#include "kernel/array.h"

#include <string.h>

#include "base/status.h"
#include "kernel/gpu/flat.h"
#include "kernel/row.h"

static void cpu_add(const tri_device *device, int threads, float *out, const float *a, const float *b, int64_t count)
{
    tri_vector_add(threads, tri_device_mapped(device, out), tri_device_mapped(device, a), tri_device_mapped(device, b),
                   count);
}

static void cpu_add_half(const tri_device *device, int threads, tri_dtype dtype, uint16_t *out, const uint16_t *a,
                         const uint16_t *b, int64_t count)
{
    tri_vector_add_half(threads, dtype, tri_device_mapped(device, out), tri_device_mapped(device, a),
                        tri_device_mapped(device, b), count);
}

static void cpu_square_blocks(const tri_device *device, int threads, const float *x, int64_t count, double *blocks)
{
    tri_vector_square_blocks(threads, tri_device_mapped(device, x), count, tri_device_mapped(device, blocks));
}

static float leaves_sum(const float *leaves, int64_t stride, int64_t count)
{
    return count == 1
               ? *leaves
               : leaves_sum(leaves, stride, count / 2) + leaves_sum(leaves + count / 2 * stride, stride, count / 2);
}

static void cpu_fold(const tri_device *device, const float *leaves, int64_t stride, int64_t count,
                     const tri_tree_part *parts, int part_count, float *const *out)
{
    const float *from = tri_device_mapped(device, leaves);
    for (int p = 0; p < part_count; p++) {
        float *to = tri_device_mapped(device, out[p]);
        for (int64_t i = 0; i < count; i++)
            to[i] = leaves_sum(from + parts[p].first * stride + i, stride, parts[p].count);
    }
}

static void cpu_fill(const tri_device *device, float *out, float value, int64_t count)
{
    float *to = tri_device_mapped(device, out);
    for (int64_t i = 0; i < count; i++)
        to[i] = value;
}

static void gpu_add(const tri_device *device, int threads, float *out, const float *a, const float *b, int64_t count)
{
    (void)threads;
    tri_gpu_add(tri_gpu_queue_of(device), tri_gpu_value_make(out, TRI_F32), tri_gpu_value_make(a, TRI_F32),
                tri_gpu_value_make(b, TRI_F32), count);
}

static void gpu_add_half(const tri_device *device, int threads, tri_dtype dtype, uint16_t *out, const uint16_t *a,
                         const uint16_t *b, int64_t count)
{
    (void)threads;
    tri_gpu_add(tri_gpu_queue_of(device), tri_gpu_value_make(out, dtype), tri_gpu_value_make(a, dtype),
                tri_gpu_value_make(b, dtype), count);
}

static void gpu_square_blocks(const tri_device *device, int threads, const float *x, int64_t count, double *blocks)
{
    (void)threads;
    tri_gpu_squares(tri_gpu_queue_of(device), x, count, blocks);
}

static void gpu_fold(const tri_device *device, const float *leaves, int64_t stride, int64_t count,
                     const tri_tree_part *parts, int part_count, float *const *out)
{
    tri_gpu_fold(tri_gpu_queue_of(device), leaves, stride, count, parts, part_count, out, 1.0f, false);
}

static void gpu_fill(const tri_device *device, float *out, float value, int64_t count)
{
    tri_gpu_fill(tri_gpu_queue_of(device), out, value, count);
}

static const tri_array_ops rows[] = {
    {.kernels = "cpu",
     .add = cpu_add,
     .add_half = cpu_add_half,
     .square_blocks = cpu_square_blocks,
     .fold = cpu_fold,
     .fill = cpu_fill},
    {.kernels = "cuda",
     .add = gpu_add,
     .add_half = gpu_add_half,
     .square_blocks = gpu_square_blocks,
     .fold = gpu_fold,
     .fill = gpu_fill},
};

static const tri_array_ops *row_of(const tri_device *device)
{
    size_t i = 0;
    while (strcmp(rows[i].kernels, device->ops->kernels) != 0)
        TRI_ASSERT(++i < TRI_COUNT_OF(rows));
    return &rows[i];
}

void tri_array_add(const tri_device *device, int threads, float *out, const float *a, const float *b, int64_t count)
{
    tri_device_written(device, out, (size_t)count * sizeof(float));
    row_of(device)->add(device, threads, out, a, b, count);
}

void tri_array_add_half(const tri_device *device, int threads, tri_dtype dtype, uint16_t *out, const uint16_t *a,
                        const uint16_t *b, int64_t count)
{
    row_of(device)->add_half(device, threads, dtype, out, a, b, count);
}

void tri_array_square_blocks(const tri_device *device, int threads, const float *x, int64_t count, double *blocks)
{
    row_of(device)->square_blocks(device, threads, x, count, blocks);
}

void tri_array_fold(const tri_device *device, const float *leaves, int64_t stride, int64_t count,
                    const tri_tree_part *parts, int part_count, float *const *out)
{
    for (int p = 0; p < part_count; p++)
        tri_device_written(device, out[p], (size_t)count * sizeof(float));
    row_of(device)->fold(device, leaves, stride, count, parts, part_count, out);
}

void tri_array_fill(const tri_device *device, float *out, float value, int64_t count)
{
    tri_device_written(device, out, (size_t)count * sizeof(float));
    row_of(device)->fill(device, out, value, count);
}

/* --- ops --- */

const tri_op_call *tri_call_mapped(const tri_kernel *kernel, const tri_op_call *call, tri_mapped_call *room)
{
    const tri_device *device = call->device;
    const tri_op_desc *desc = &kernel->desc;
    tri_op_call *seen = &room->call;
    if (device == NULL || device->ops->mapped == NULL)
        return call;
    *seen = *call;
    seen->device = NULL; /* ops within this one have the addresses already */
    for (int i = 0; i < desc->input_count; i++) {
        seen->input[i] = tri_device_mapped(device, call->input[i]);
        seen->dinput[i] = tri_device_mapped(device, call->dinput[i]);
    }
    for (int p = 0; p < desc->param_count; p++) {
        const bool packed = p == 0 && desc->places > 0 && tri_op_row(desc->op)->packs;
        seen->param[p] = packed ? call->param[p] : tri_device_mapped(device, call->param[p]);
        for (int part = 0; call->dparam[p] != NULL && part < call->part_count; part++)
            room->dparam[p][part] = tri_device_mapped(device, call->dparam[p][part]);
        seen->dparam[p] = call->dparam[p] != NULL ? room->dparam[p] : NULL;
    }
    seen->output = tri_device_mapped(device, call->output);
    seen->doutput = tri_device_mapped(device, call->doutput);
    seen->saved = tri_device_mapped(device, call->saved);
    seen->scratch = tri_device_mapped(device, call->scratch);
    seen->kept = tri_device_mapped(device, call->kept);
    return seen;
}
