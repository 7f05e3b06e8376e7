/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_impl.h: what a matrix of matrix.h is, and the table of those who store and multiply it: one row for each
 * family of kernels (tri_device_ops.kernels). Included by files of kernel/ only.
 */
#ifndef TRI_KERNEL_MATRIX_IMPL_H
#define TRI_KERNEL_MATRIX_IMPL_H

#include "kernel/cpu/gemm.h"
#include "kernel/matrix.h"

typedef struct tri_matrix_ops {
    const char *kernels;
    size_t (*nbytes)(const tri_matrix *matrix);
    tri_status (*fill)(tri_matrix *matrix, int threads, int64_t first, int64_t count, const float *w);
    void (*apply)(const tri_matrix *matrix, const tri_matrix_call *call);
} tri_matrix_ops;

struct tri_matrix {
    const tri_matrix_ops *ops;
    const tri_device *device;
    int64_t units, channels;
    tri_dtype dtype;          /* f32 or bf16 */
    const tri_gemm_ops *gemm; /* of the CPU */
    void *packed;             /* the device's; CPU: panels [units / nr][channels, or pairs of them][nr] of 32 bits;
                                 GPU: [units][channels] of dtype */
};

extern const tri_matrix_ops tri_matrix_cpu, tri_matrix_cuda;

#endif
