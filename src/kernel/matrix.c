/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c: matrices in memory of a device: who stores and multiplies them is found by the device's family of kernels.
 */
#include "kernel/matrix_impl.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernel/cpu/gemm_half.h"

static const tri_matrix_ops *const families[] = {&tri_matrix_cpu, &tri_matrix_cuda};

static const tri_matrix_ops *row_of(const tri_device *device)
{
    size_t i = 0;
    while (strcmp(families[i]->kernels, device->ops->kernels) != 0)
        TRI_ASSERT(++i < TRI_COUNT_OF(families));
    return families[i];
}

static size_t matrix_nbytes(const tri_matrix *matrix)
{
    return matrix->ops->nbytes(matrix);
}

tri_status tri_matrix_create(const tri_device *device, int64_t units, int64_t channels, tri_dtype dtype,
                             tri_matrix **out)
{
    if (dtype != TRI_F32 && dtype != TRI_BF16) {
        return tri_fail(TRI_EINVAL, "matrix: want f32 or bf16, got %s", tri_dtype_name(dtype));
    }
    tri_matrix *matrix = tri_alloc_zero(1, sizeof(*matrix));
    if (matrix == NULL) {
        return TRI_ENOMEM;
    }
    *matrix =
        (tri_matrix){.ops = row_of(device), .device = device, .units = units, .channels = channels, .dtype = dtype};
    matrix->gemm = dtype == TRI_BF16 ? tri_gemm_half_find() : tri_gemm_find();
    matrix->packed = tri_device_alloc(device, matrix_nbytes(matrix));
    if (matrix->packed == NULL) {
        tri_free(matrix);
        return TRI_ENOMEM;
    }
    *out = matrix;
    return TRI_OK;
}

void tri_matrix_destroy(tri_matrix *matrix)
{
    if (matrix != NULL) {
        tri_device_free(matrix->device, matrix->packed);
        tri_free(matrix);
    }
}

tri_status tri_matrix_fill(tri_matrix *matrix, int threads, int64_t first, int64_t count, const float *w)
{
    TRI_ASSERT(first % TRI_MATRIX_ROWS == 0 && first + count <= matrix->units);
    return matrix->ops->fill(matrix, threads, first, count, w);
}

size_t tri_matrix_scratch(int64_t channels, int64_t rows)
{
    return (size_t)(rows * 2 * tri_pairs(channels)) * sizeof(uint16_t);
}

void tri_matrix_apply(const tri_matrix *matrix, const tri_matrix_call *call)
{
    matrix->ops->apply(matrix, call);
}
