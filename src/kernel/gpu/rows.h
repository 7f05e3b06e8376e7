/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: the rows of kind "cuda": they work out arguments and launch; nothing here touches memory of a device.
 */
#ifndef TRI_KERNEL_GPU_ROWS_H
#define TRI_KERNEL_GPU_ROWS_H

#include "kernel/gpu/flat.h"
#include "kernel/row.h"

#define TRI_GPU_ROWS(X)                                                                                                \
    X(tri_gpu_row_linear)                                                                                              \
    X(tri_gpu_row_matmul)                                                                                              \
    X(tri_gpu_row_conv)                                                                                                \
    X(tri_gpu_row_max_pool)                                                                                            \
    X(tri_gpu_row_avg_pool)                                                                                            \
    X(tri_gpu_row_global_pool)                                                                                         \
    X(tri_gpu_row_batch_norm)                                                                                          \
    X(tri_gpu_row_layer_norm)                                                                                          \
    X(tri_gpu_row_rms_norm)                                                                                            \
    X(tri_gpu_row_relu)                                                                                                \
    X(tri_gpu_row_gelu)                                                                                                \
    X(tri_gpu_row_gelu_erf)                                                                                            \
    X(tri_gpu_row_silu)                                                                                                \
    X(tri_gpu_row_tanh)                                                                                                \
    X(tri_gpu_row_sigmoid)                                                                                             \
    X(tri_gpu_row_softmax)                                                                                             \
    X(tri_gpu_row_dropout)                                                                                             \
    X(tri_gpu_row_embedding)                                                                                           \
    X(tri_gpu_row_add)                                                                                                 \
    X(tri_gpu_row_mul)                                                                                                 \
    X(tri_gpu_row_concat)                                                                                              \
    X(tri_gpu_row_reshape)                                                                                             \
    X(tri_gpu_row_transpose)                                                                                           \
    X(tri_gpu_row_cross_entropy)                                                                                       \
    X(tri_gpu_row_mse)                                                                                                 \
    X(tri_gpu_row_swiglu)                                                                                              \
    X(tri_gpu_row_positions)                                                                                           \
    X(tri_gpu_row_rope)                                                                                                \
    X(tri_gpu_row_attention)                                                                                           \
    X(tri_gpu_row_vocab_loss)                                                                                          \
    X(tri_gpu_row_bias)                                                                                                \
    X(tri_gpu_row_share_parts)                                                                                         \
    X(tri_gpu_row_sum_parts)                                                                                           \
    X(tri_gpu_row_gather_tokens)                                                                                       \
    X(tri_gpu_row_spread_tokens)                                                                                       \
    X(tri_gpu_row_vocab_part)                                                                                          \
    X(tri_gpu_row_vocab_join)                                                                                          \
    X(tri_gpu_row_vocab_sums)

/* Before those of training, where desc.places says that a shard is a token of a sequence. */
#define TRI_GPU_TOKEN_ROWS(X)                                                                                          \
    X(tri_gpu_token_linear)                                                                                            \
    X(tri_gpu_token_embedding)                                                                                         \
    X(tri_gpu_token_positions)                                                                                         \
    X(tri_gpu_token_rope)                                                                                              \
    X(tri_gpu_token_attention)

TRI_GPU_TOKEN_ROWS(TRI_ROW_DECLARE)
TRI_GPU_ROWS(TRI_ROW_DECLARE)

/* Launches `args` of the kernel of that name. */
#define TRI_GPU_RUN(call, name, blocks, y, z, args)                                                                    \
    tri_gpu_run(tri_gpu_queue_of((call)->device), tri_gpu_kernel_##name, blocks, y, z, TRI_GPU_THREADS, &(args),       \
                sizeof(tri_gpu_##name##_args))

/* Blocks of kernels with one element a thread, with TRI_GPU_EACH, with a row for each warp. */
static inline int64_t tri_gpu_blocks(int64_t count)
{
    return tri_int64_ceil(count, TRI_GPU_THREADS);
}
static inline int64_t tri_gpu_blocks_each(int64_t count)
{
    return tri_int64_ceil(count, (int64_t)TRI_GPU_THREADS * TRI_GPU_EACH);
}
static inline int64_t tri_gpu_blocks_rows(int64_t rows)
{
    return tri_int64_ceil(rows, TRI_GPU_THREADS / 32);
}

static inline tri_gpu_value tri_gpu_input(const tri_kernel *kernel, const tri_op_call *call, int i)
{
    return tri_gpu_value_make(call->input[i], kernel->desc.input_dtype[i]);
}
static inline tri_gpu_value tri_gpu_dinput(const tri_kernel *kernel, const tri_op_call *call, int i)
{
    return tri_gpu_value_make(call->dinput[i], kernel->desc.input_dtype[i]);
}
static inline tri_gpu_value tri_gpu_output(const tri_kernel *kernel, const tri_op_call *call)
{
    return tri_gpu_value_make(call->output, kernel->desc.output_dtype);
}
static inline tri_gpu_value tri_gpu_doutput(const tri_kernel *kernel, const tri_op_call *call)
{
    return tri_gpu_value_make(call->doutput, kernel->desc.output_dtype);
}

/* Element `first` of an array, which is NULL while an op is planned. */
static inline float *tri_gpu_place(const void *array, int64_t first)
{
    return (float *)((uintptr_t)array + (uintptr_t)first * sizeof(float));
}

static inline void *tri_gpu_moved(tri_gpu_value value, int64_t elements)
{
    return (char *)value.data + elements * (value.type == TRI_GPU_F32 ? 4 : 2);
}

static inline tri_gpu_operand tri_gpu_operand_make(tri_gpu_value value, int64_t shard_stride, int64_t row,
                                                   int64_t column)
{
    return (tri_gpu_operand){.value = value, .shard_stride = shard_stride, .row = row, .column = column};
}

/* Floats of room for a copy in 16 bits; none where values are f32 anyway. */
static inline int64_t tri_gpu_half_count(tri_dtype dtype, int64_t count)
{
    return dtype == TRI_F32 ? 0 : tri_align_count((count + 1) / 2);
}

/* Factor of the gradients that begin at a loss. */
static inline float tri_gpu_loss_scale(const tri_op_call *call)
{
    return call->loss_scale == 0 ? 1.0f : call->loss_scale;
}

/* Valid rows of each shard times `each`. */
void tri_gpu_valid(const tri_op_call *call, int64_t each, int64_t valid[TRI_GPU_SHARDS]);

/* Gradient of parameter p, if it is wanted: leaves of all shards, `stride` apart, by the tree of each part. */
void tri_gpu_leaves(const tri_kernel *kernel, const tri_op_call *call, int p, const float *leaves, int64_t stride,
                    int64_t count);
/* The same of `count` elements of the gradient, from element `first` on. */
void tri_gpu_leaves_from(const tri_kernel *kernel, const tri_op_call *call, int p, const float *leaves, int64_t stride,
                         int64_t first, int64_t count);

void tri_gpu_move(const tri_op_call *call, const tri_gpu_move_args *args);
/* Of a convolution or a pool. */
tri_gpu_window tri_gpu_window_make(const tri_op_desc *desc);

/* Floats that sums of columns need in scratch: of chunks, then [kinds][shards][width] for what comes out. */
int64_t tri_gpu_columns_count(int64_t shards, int64_t rows, int64_t width, int kinds);
/* Runs both stages over args (all but partial is filled); returns what came out, within scratch. */
float *tri_gpu_columns(const tri_op_call *call, tri_gpu_columns_args *args, int64_t shards, int kinds, float epsilon,
                       float *scratch);

/* Rows whose gradients of parameters are sums over `rows` rows of a shard, or as attr.parts and attr.ranks have it: the
 * whole plan, and the sums [kinds][shards][width], within call->scratch. */
tri_status tri_gpu_rows_plan(const tri_op_desc *desc, tri_kernel *kernel, int64_t rows, int64_t width, int kinds);
float *tri_gpu_rows_sum(const tri_kernel *kernel, const tri_op_call *call, tri_gpu_columns_args *args, int kinds);

/* What the ranks of the call exchange (tri_ranks_sum(), tri_ranks_gather()), by way of call->host; out has what is of
 * all ranks. */
void tri_gpu_ranks_sum(const tri_op_call *call, void *data, int64_t count, tri_dtype dtype);
void tri_gpu_ranks_gather(const tri_kernel *kernel, const tri_op_call *call, const void *in, void *out, int64_t count,
                          tri_dtype dtype);

/* Products: how many there are (shards), each with args->groups; in f32, or of values rounded to args->type. bias: that
 * of args in the type of c, which a library reads. */
void tri_gpu_gemm(const tri_op_call *call, const tri_gpu_gemm_args *args, const void *bias, int64_t shards);
/* The same by our own kernel, in which a row depends on nothing but itself. */
void tri_gpu_gemm_own(const tri_op_call *call, const tri_gpu_gemm_args *args, int64_t shards);

/* TRI_EUNSUPPORTED where a grid has no room for sums over this many rows of a shard, or for a product with this width.
 */
tri_status tri_gpu_rows_check(const tri_op_desc *desc, int64_t rows);
tri_status tri_gpu_width_check(const tri_op_desc *desc, int64_t width);

/* TRI_EUNSUPPORTED where one call has more shards, or tokens, than launches have room for. */
tri_status tri_gpu_plan(const tri_op_desc *desc, tri_kernel *kernel);

/* Floats of an embedding's scratch, about; tests set another one. */
extern int64_t tri_gpu_embedding_leaves;

/* Words of the vocabulary at a time; tests set fewer. */
extern int64_t tri_gpu_vocab_words;

/* TRI_EUNSUPPORTED: the option that asks for what no row does. */
tri_status tri_gpu_refuse(const tri_op_desc *desc);

/* What all rows have. */
#define TRI_GPU_ROW .name = "cuda", .gpu = true, .half = true, .f16 = true

#endif
