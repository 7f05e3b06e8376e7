/* SPDX-License-Identifier: Apache-2.0
 *
 * product.h: products that a library of the card multiplies (device/cuda/cublaslt.h), where one is open.
 *
 * Which algorithm is decided when an op is planned, from the shape of one shard alone: the first one of the library's
 * list that the probe accepts. It cuts no sum over k, gives a shard the same bytes alone and among others, and leaves
 * out no term. Where there is none, our own kernel multiplies.
 */
#ifndef TRI_KERNEL_GPU_PRODUCT_H
#define TRI_KERNEL_GPU_PRODUCT_H

#include "device/cuda/cublaslt.h"
#include "kernel/gpu/rows.h"

/* Bytes of the results of one call of the library, at most, unless it is of one shard; tests set fewer. */
extern int64_t tri_gpu_product_nbytes;

/* While an op is planned: decides who multiplies; of args only shapes, strides and types are read. Does nothing without
 * a library. TRI_ENOMEM: the card has no room for the probe. */
tri_status tri_gpu_product_plan(const tri_op_desc *desc, const tri_gpu_gemm_args *args);
/* Multiplies `shards` products by the library; bias: that of args, rounded to the type of c. false: our own kernel has
 * to. */
bool tri_gpu_product_run(const tri_op_call *call, const tri_gpu_gemm_args *args, const void *bias, int64_t shards);

/* What the probe finds of an algorithm. */
typedef enum tri_product_finding {
    TRI_PRODUCT_PASSES,
    TRI_PRODUCT_REFUSES, /* the library does, for some batch */
    TRI_PRODUCT_SUM_DIFFERS,
    TRI_PRODUCT_BATCH_DIFFERS
} tri_product_finding;
/* Probes one more algorithm of a product that was planned with these arguments. */
tri_status tri_gpu_product_probe(const tri_device *device, const tri_gpu_gemm_args *args,
                                 const tri_product_choice *choice, const tri_gpu_algorithm *algorithm,
                                 tri_product_finding *finding);

#endif
