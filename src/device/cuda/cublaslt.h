/* SPDX-License-Identifier: Apache-2.0
 *
 * cublaslt.h: products of matrices by NVIDIA's cublasLt: asks for algorithms, and multiplies by a given one.
 *
 * A product is of one shard's shape, so it and its algorithms are the same in every layout of a run; a call multiplies
 * one to TRI_PRODUCT_BATCH shards as a strided batch. Which algorithm may be used: kernel/gpu/product.h.
 */
#ifndef TRI_DEVICE_CUDA_CUBLASLT_H
#define TRI_DEVICE_CUDA_CUBLASLT_H

#include <stdbool.h>

#include "device/cuda/cublaslt_library.h"
#include "device/cuda/kernel_times.h"

#define TRI_PRODUCT_BATCH     8 /* shards of a call, at most: of large products fewer */
#define TRI_ALGORITHM_NBYTES  128
#define TRI_CUBLASLT_NBYTES   32 /* of "cublasLt 13.1.0" */
#define TRI_PRODUCT_ALIGNMENT 64 /* bytes: of the first shard's matrices, at least */

/* c[i][j] = sum over l < k of a(i, l) b(j, l), plus bias[j], with relu; or the sum is added to c; row by row, without
 * gaps. The fields are all of one type, so that two products are equal if their bytes are. */
typedef struct tri_gpu_product {
    int64_t m, n, k;
    int64_t type, c_type;       /* CUBLASLT_F32 .. */
    int64_t a_along, b_along;   /* 1: elements along l are neighbours; 0: those along i (j) */
    int64_t a_step, b_step;     /* elements from one such row to the next */
    int64_t a_stride, b_stride; /* from one shard to the next, 0: it has the same; c's is m n */
    int64_t adds, bias, relu;
} tri_gpu_product;

typedef struct tri_gpu_algorithm {
    cublaslt_algorithm record;
    size_t workspace_nbytes;
    char text[TRI_ALGORITHM_NBYTES]; /* all that distinguishes it, in numbers */
} tri_gpu_algorithm;

typedef struct tri_cublaslt_plan tri_cublaslt_plan; /* a product's descriptors */

/* What was decided for a product. */
typedef struct tri_product_choice {
    tri_gpu_product product;
    tri_cublaslt_plan *plan;
    int batch;   /* shards of a call, at most */
    bool own;    /* no algorithm is fit: our own kernel multiplies */
    int refused; /* algorithms that the probe refused */
    tri_gpu_algorithm algorithm;
} tri_product_choice;

typedef struct tri_cublaslt {
    char name[TRI_CUBLASLT_NBYTES];
    const tri_cublaslt_calls *calls;
    const tri_cuda_calls *driver;
    cuda_context context;
    cuda_stream stream;
    cublaslt_handle handle;
    cuda_memory workspace;
    tri_cuda_times *times;       /* of its launches; NULL: nobody asks */
    int index;                   /* of the card */
    tri_product_choice *choices; /* of all products that were planned: kernel/gpu/product.c */
    int choice_count;
} tri_cublaslt;

/* "cublasLt 13.1.0" of this machine, without a card. */
tri_status tri_cublaslt_name(char text[TRI_CUBLASLT_NBYTES]);
/* For a card's context and its stream. TRI_EUNSUPPORTED: one sentence says why it cannot be used. */
tri_status tri_cublaslt_open(const tri_cuda_calls *driver, int index, cuda_context context, cuda_stream stream,
                             tri_cublaslt **out);
/* NULL is fine. */
void tri_cublaslt_close(tri_cublaslt *library);

/* TRI_EUNSUPPORTED: cublasLt knows no such product. */
tri_status tri_cublaslt_plan_create(tri_cublaslt *library, const tri_gpu_product *product, tri_cublaslt_plan **out);
void tri_cublaslt_plan_destroy(const tri_cublaslt *library, tri_cublaslt_plan *plan);
/* Algorithms in the order of the heuristic for `batch` shards, at most `capacity`; cuts: also those that cut
 * the sum over k. */
int tri_cublaslt_find(const tri_cublaslt *library, tri_cublaslt_plan *plan, int batch, bool cuts,
                      tri_gpu_algorithm *found, int capacity);
/* Queues the products of `batch` shards; bias: of c's type, where the product has one. TRI_EUNSUPPORTED: the algorithm
 * refuses. */
tri_status tri_cublaslt_multiply(const tri_cublaslt *library, tri_cublaslt_plan *plan,
                                 const tri_gpu_algorithm *algorithm, int batch, const void *a, const void *b,
                                 const void *bias, void *c);

#endif
