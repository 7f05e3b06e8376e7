/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.h: weights that are packed once and read by many products: y[rows][units] = x[rows][channels] w' + b.
 *
 * In f32 or bf16 (half the bytes; x is rounded to bf16, sums are f32). Few rows stream the weights once, threads share
 * the panels. An element of y is one chain over the channels, so it depends neither on the other rows nor on threads.
 */
#ifndef TRI_KERNEL_MATRIX_H
#define TRI_KERNEL_MATRIX_H

#include "kernel/kernel.h"

typedef struct tri_matrix tri_matrix;

/* w[units][channels] in memory of the device, zeros at first; f32 or bf16, else TRI_EINVAL. */
tri_status tri_matrix_create(const tri_device *device, int64_t units, int64_t channels, tri_dtype dtype,
                             tri_matrix **out);
void tri_matrix_destroy(tri_matrix *matrix);
/* Rows that tri_matrix_fill() wants to be given at once, or a multiple of it; the last ones may be less. */
#define TRI_MATRIX_ROWS 256
/* Packs rows [first, first + count) from w[count][channels], the host's. */
tri_status tri_matrix_fill(tri_matrix *matrix, int threads, int64_t first, int64_t count, const float *w);

/* All of the device. */
typedef struct tri_matrix_call {
    const float *x, *bias; /* bias NULL: none */
    float *y;
    void *scratch; /* tri_matrix_scratch() bytes */
    int64_t rows;
    int threads;
    bool relu;
} tri_matrix_call;
size_t tri_matrix_scratch(int64_t channels, int64_t rows);
void tri_matrix_apply(const tri_matrix *matrix, const tri_matrix_call *call);

#endif
