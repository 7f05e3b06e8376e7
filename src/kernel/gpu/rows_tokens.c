/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_tokens.c: rows of kind "cuda" for generation: a shard is a token of a sequence, values are f32, weights of
 * products are in f32 or bf16. Matrices: matrix.h.
 */
#include <math.h>

#include "base/status.h"
#include "kernel/gpu/rows.h"
#include "kernel/matrix_impl.h"
#include "tensor/reduce.h"

static bool tokens_can(const tri_op_desc *desc)
{
    return desc->places > 0;
}

/* Values are f32. */
#define TOKEN_ROW .name = "cuda", .gpu = true

/* --- products --- */

static tri_gpu_value stored(const tri_matrix *matrix, int64_t row)
{
    const size_t each = tri_dtype_nbytes(matrix->dtype) * (size_t)matrix->channels;
    return tri_gpu_value_make((const char *)matrix->packed + (size_t)row * each, matrix->dtype);
}

static size_t matrix_nbytes(const tri_matrix *matrix)
{
    return (size_t)(matrix->units * matrix->channels) * tri_dtype_nbytes(matrix->dtype);
}

static tri_status matrix_fill(tri_matrix *matrix, int threads, int64_t first, int64_t count, const float *w)
{
    const int64_t elements = count * matrix->channels;
    const size_t nbytes = (size_t)elements * tri_dtype_nbytes(matrix->dtype);
    const void *from = w;
    void *halves = NULL;
    tri_status status = TRI_OK;
    (void)threads;
    if (matrix->dtype != TRI_F32) {
        from = halves = tri_alloc(nbytes);
        status = halves != NULL ? tri_convert(halves, matrix->dtype, w, TRI_F32, elements) : TRI_ENOMEM;
    }
    if (status == TRI_OK) {
        tri_device_from_host(matrix->device, stored(matrix, first).data, from, nbytes);
    }
    tri_free(halves);
    return status;
}

/* With weights in bf16 what they are multiplied with is rounded to bf16 too; sums are f32. */
static void matrix_apply(const tri_matrix *matrix, const tri_matrix_call *call)
{
    const tri_op_call at = {.device = matrix->device};
    const tri_gpu_gemm_args args = {
        .a = {.value = tri_gpu_value_make(call->x, TRI_F32), .row = matrix->channels, .column = 1},
        .b = {.value = stored(matrix, 0), .row = matrix->channels, .column = 1},
        .c = {.value = tri_gpu_value_make(call->y, TRI_F32), .row = matrix->units, .column = 1},
        .m = (int)call->rows,
        .n = (int)matrix->units,
        .k = (int)matrix->channels,
        .relu = call->relu,
        .type = stored(matrix, 0).type,
        .bias = call->bias};
    tri_gpu_gemm_own(&at, &args, 1);
}

const tri_matrix_ops tri_matrix_cuda = {
    .kernels = "cuda", .nbytes = matrix_nbytes, .fill = matrix_fill, .apply = matrix_apply};

static tri_status linear_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    TRI_TRY(tri_gpu_width_check(desc, desc->param[0].dim[0]));
    return tri_gpu_plan(desc, kernel);
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_attr *attr = &kernel->desc.attr;
    tri_matrix_apply(call->param[0], &(tri_matrix_call){.x = call->input[0],
                                                        .bias = attr->bias ? call->param[1] : NULL,
                                                        .y = call->output,
                                                        .rows = call->shards,
                                                        .relu = attr->relu});
}

const tri_kernel_ops tri_gpu_token_linear = {
    TOKEN_ROW, .op = TRI_OP_LINEAR, .can = tokens_can, .plan = linear_plan, .forward = linear_forward,
};

static void embedding_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_desc *desc = &kernel->desc;
    const int64_t width = desc->param[0].dim[1];
    const tri_gpu_gather_args args = {.y = tri_gpu_output(kernel, call),
                                      .index = call->input[0],
                                      .table = stored(call->param[0], 0),
                                      .count = width * call->shards,
                                      .width = width,
                                      .words = desc->param[0].dim[0]};
    TRI_GPU_RUN(call, gather, tri_gpu_blocks_each(args.count), 1, 1, args);
}

const tri_kernel_ops tri_gpu_token_embedding = {
    TOKEN_ROW, .op = TRI_OP_EMBEDDING, .can = tokens_can, .plan = tri_gpu_plan, .forward = embedding_forward,
};

/* --- places --- */

static tri_gpu_tokens tokens_of(const tri_op_call *call)
{
    tri_gpu_tokens tokens = {.place = {0}};
    for (int s = 0; s < call->span_count; s++) {
        const tri_place_span *span = &call->spans[s];
        for (int64_t r = 0; r < span->count; r++) {
            tokens.sequence[span->row + r] = (int32_t)span->sequence;
            tokens.place[span->row + r] = (int32_t)(span->place + r);
        }
    }
    return tokens;
}

static void positions_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output);
    const tri_gpu_token_positions_args args = {.y = call->output,
                                               .x = call->input[0],
                                               .table = call->param[0],
                                               .count = width * call->shards,
                                               .width = width,
                                               .tokens = tokens_of(call)};
    TRI_GPU_RUN(call, token_positions, tri_gpu_blocks_each(args.count), 1, 1, args);
}

const tri_kernel_ops tri_gpu_token_positions = {
    TOKEN_ROW,
    .op = TRI_OP_POSITIONS,
    .can = tokens_can,
    .plan = tri_gpu_plan,
    .forward = positions_forward,
    .output_may_alias = true,
};

/* Wider heads are refused by name: no row of training takes them either. */
static bool heads_can(const tri_op_desc *desc)
{
    return tokens_can(desc) && tri_heads_make(desc).width <= TRI_GPU_HEAD;
}

static void rope_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    tri_gpu_token_rope_args args = {.to = call->output,
                                    .from = call->input[0],
                                    .count = h.stride / 2 * call->shards,
                                    .heads = (int)(h.stride / h.width),
                                    .turned = (int)(h.queries + h.keys),
                                    .half = (int)h.width / 2,
                                    .tokens = tokens_of(call)};
    for (int i = 0; i < args.half; i++) {
        args.frequency[i] = tri_rope_frequency(&kernel->desc, i, h.width);
    }
    TRI_GPU_RUN(call, token_rope, tri_gpu_blocks(args.count), 1, 1, args);
}

const tri_kernel_ops tri_gpu_token_rope = {
    TOKEN_ROW,
    .op = TRI_OP_ROPE,
    .can = heads_can,
    .plan = tri_gpu_plan,
    .forward = rope_forward,
    .output_may_alias = true,
};

/* --- attention over the cache --- */

static int64_t cache_places(const tri_op_desc *desc)
{
    return tri_int64_ceil(desc->places, TRI_GPU_PANEL) * TRI_GPU_PANEL;
}

static tri_status attention_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_heads h = tri_heads_make(desc);
    kernel->kept_count = 2 * h.keys * cache_places(desc) * h.width;
    if (h.queries > TRI_GPU_MOST_BLOCKS) {
        return tri_fail(TRI_EUNSUPPORTED, "attention: want at most %d heads on a GPU, got %lld", TRI_GPU_MOST_BLOCKS,
                        (long long)h.queries);
    }
    return tri_gpu_plan(desc, kernel);
}

static void attention_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    const tri_gpu_cache cache = {.data = call->kept + call->kept_first,
                                 .each = call->kept_each,
                                 .places = cache_places(&kernel->desc),
                                 .width = h.width,
                                 .keys = (int)h.keys};
    const tri_gpu_cache_write_args write = {.cache = cache,
                                            .x = call->input[0],
                                            .count = h.keys * h.width * call->shards,
                                            .queries = (int)h.queries,
                                            .tokens = tokens_of(call)};
    const tri_gpu_cache_attention_args args = {.cache = cache,
                                               .x = call->input[0],
                                               .y = call->output,
                                               .scale = (float)(1 / sqrt((double)h.width)),
                                               .queries = (int)h.queries,
                                               .tokens = write.tokens};
    TRI_GPU_RUN(call, cache_write, tri_gpu_blocks(write.count), 1, 1, write);
    TRI_GPU_RUN(call, cache_attention, call->shards, (int)h.queries, 1, args);
}

const tri_kernel_ops tri_gpu_token_attention = {
    TOKEN_ROW, .op = TRI_OP_ATTENTION, .can = heads_can, .plan = attention_plan, .forward = attention_forward,
};
