/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu.h: the fast rows of the CPU, in order of preference, and what they share.
 * Ops without a row here run by their reference: most are copies, and as fast as memory.
 */
#ifndef TRI_KERNEL_CPU_CPU_H
#define TRI_KERNEL_CPU_CPU_H

#include "kernel/row.h"

#define TRI_WINO_ROWS(X)                                                                                               \
    X(tri_wino_conv_relu)                                                                                              \
    X(tri_wino_conv)

#ifdef TRI_HAVE_DNNL
#define TRI_DNNL_ROWS(X)                                                                                               \
    X(tri_dnnl_linear_relu_row)                                                                                        \
    X(tri_dnnl_linear_row)                                                                                             \
    X(tri_dnnl_matmul_row)                                                                                             \
    X(tri_dnnl_conv_relu_row)                                                                                          \
    X(tri_dnnl_conv_row)
#else
#define TRI_DNNL_ROWS(X)
#endif

#define TRI_CPU_ROWS(X)                                                                                                \
    X(tri_cpu_linear_half_relu)                                                                                        \
    X(tri_cpu_linear_half)                                                                                             \
    X(tri_cpu_linear_relu)                                                                                             \
    X(tri_cpu_linear)                                                                                                  \
    X(tri_cpu_matmul)                                                                                                  \
    X(tri_cpu_conv_relu)                                                                                               \
    X(tri_cpu_conv)                                                                                                    \
    X(tri_cpu_max_pool)                                                                                                \
    X(tri_cpu_avg_pool)                                                                                                \
    X(tri_cpu_global_pool)                                                                                             \
    X(tri_cpu_batch_norm)                                                                                              \
    X(tri_cpu_layer_norm_half)                                                                                         \
    X(tri_cpu_layer_norm)                                                                                              \
    X(tri_cpu_relu)                                                                                                    \
    X(tri_cpu_gelu)                                                                                                    \
    X(tri_cpu_silu)                                                                                                    \
    X(tri_cpu_tanh)                                                                                                    \
    X(tri_cpu_sigmoid)                                                                                                 \
    X(tri_cpu_softmax)                                                                                                 \
    X(tri_cpu_dropout)                                                                                                 \
    X(tri_cpu_embedding)                                                                                               \
    X(tri_cpu_add_relu)                                                                                                \
    X(tri_cpu_add)                                                                                                     \
    X(tri_cpu_mul)                                                                                                     \
    X(tri_cpu_transpose)                                                                                               \
    X(tri_cpu_cross_entropy)                                                                                           \
    X(tri_cpu_gelu_erf)                                                                                                \
    X(tri_cpu_rms_norm)                                                                                                \
    X(tri_cpu_swiglu)                                                                                                  \
    X(tri_cpu_positions)                                                                                               \
    X(tri_cpu_rope)                                                                                                    \
    X(tri_cpu_attention_half)                                                                                          \
    X(tri_cpu_attention)                                                                                               \
    X(tri_cpu_vocab_half)                                                                                              \
    X(tri_cpu_vocab_loss)                                                                                              \
    X(tri_cpu_vocab_part)                                                                                              \
    X(tri_cpu_bias)

/* Before those of training, where a shard is one token. */
#define TRI_TOKEN_ROWS(X)                                                                                              \
    X(tri_token_linear)                                                                                                \
    X(tri_token_embedding)                                                                                             \
    X(tri_token_positions)                                                                                             \
    X(tri_token_rope)                                                                                                  \
    X(tri_token_attention)

TRI_WINO_ROWS(TRI_ROW_DECLARE)
TRI_TOKEN_ROWS(TRI_ROW_DECLARE)
TRI_DNNL_ROWS(TRI_ROW_DECLARE)
TRI_CPU_ROWS(TRI_ROW_DECLARE)

/* Cuts doutput where the fused relu's output is not above zero (in place, when `relu`), and sums the columns of each
 * shard over its rows, in order, into leaves[shard][columns] (NULL: not wanted). doutput is [shards * rows][columns],
 * f32 or bf16. */
void tri_cpu_mask_columns(const tri_kernel *kernel, const tri_op_call *call, int64_t rows, int64_t columns, bool relu,
                          float *leaves);
/* What tri_cpu_mask_columns() does, of f32, to columns [first, last) of all shards. */
typedef struct tri_cpu_columns {
    float *dy;
    const float *y; /* NULL: not cut */
    float *leaves;  /* NULL: not summed */
    int64_t rows, columns;
    int shards;
} tri_cpu_columns;
void tri_cpu_columns_ready(void *columns, int64_t first, int64_t last);
/* tri_cpu_mask_columns() of one shard, on the calling thread; y NULL: no relu, sums NULL: not wanted. */
void tri_cpu_mask_shard(float *dy, const float *y, float *sums, int64_t rows, int64_t columns);

#endif
