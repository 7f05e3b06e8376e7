/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c: the products of matrix.h on the tiles of gemm.h and gemm_half.h. Rows that fit a register tile meet each
 * panel from its begin to its end, so that memory is read in order.
 */
#include "kernel/matrix.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_half.h"

#define GROUP_NBYTES (INT64_C(128) << 10) /* of packed weights that a thread takes at a time */

struct tri_matrix {
    const tri_gemm_ops *ops;
    int64_t units, channels;
    bool half;
    void *packed; /* panels [units / nr][channels, or pairs of them][nr] of 32 bits */
};

static int64_t depth(const tri_matrix *matrix)
{
    return matrix->half ? tri_pairs(matrix->channels) : matrix->channels;
}

size_t tri_matrix_nbytes(const tri_matrix *matrix)
{
    return (size_t)tri_gemm_packed_count(matrix->ops, depth(matrix), matrix->units) * sizeof(float);
}

tri_status tri_matrix_create(int64_t units, int64_t channels, tri_dtype dtype, tri_matrix **out)
{
    if (dtype != TRI_F32 && dtype != TRI_BF16) {
        return tri_fail(TRI_EINVAL, "matrix: want f32 or bf16, got %s", tri_dtype_name(dtype));
    }
    tri_matrix *matrix = tri_alloc_zero(1, sizeof(*matrix));
    if (matrix == NULL) {
        return TRI_ENOMEM;
    }
    *matrix = (tri_matrix){.units = units, .channels = channels, .half = dtype == TRI_BF16};
    matrix->ops = matrix->half ? tri_gemm_half_find() : tri_gemm_find();
    matrix->packed = tri_alloc_bulk(tri_matrix_nbytes(matrix));
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
        tri_free(matrix->packed);
        tri_free(matrix);
    }
}

_Static_assert(TRI_MATRIX_ROWS % TRI_GEMM_MAX_NR == 0, "whole panels");

void tri_matrix_fill(tri_matrix *matrix, int threads, int64_t first, int64_t count, const float *w)
{
    TRI_ASSERT(first % TRI_MATRIX_ROWS == 0 && first + count <= matrix->units);
    void *packed = (uint32_t *)matrix->packed + first * depth(matrix);
    if (matrix->half) {
        tri_gemm_half_pack(matrix->ops, threads, packed, w, matrix->channels, count, 1, matrix->channels);
    } else {
        tri_gemm_pack_all(matrix->ops, threads, packed, w, matrix->channels, count, 1, matrix->channels);
    }
}

void tri_matrix_row(const tri_matrix *matrix, int64_t row, float *out)
{
    const int64_t nr = matrix->ops->nr;
    const uint32_t *at = (const uint32_t *)matrix->packed + row / nr * nr * depth(matrix) + row % nr;
    for (int64_t c = 0; c < matrix->channels; c++) {
        const uint32_t bits = matrix->half ? (at[c / 2 * nr] >> 16 * (c % 2)) << 16 : at[c * nr];
        memcpy(out + c, &bits, sizeof bits);
    }
}

size_t tri_matrix_scratch(int64_t channels, int64_t rows)
{
    return (size_t)(rows * 2 * tri_pairs(channels)) * sizeof(uint16_t);
}

typedef struct apply_arg {
    const tri_matrix *matrix;
    const tri_matrix_call *call;
    int64_t group; /* panels of a tile */
} apply_arg;

/* At most a register tile of rows times some panels. */
static void few_tile(void *arg, int64_t tile)
{
    const apply_arg *v = arg;
    const tri_matrix *matrix = v->matrix;
    const tri_gemm_ops *ops = matrix->ops;
    const int64_t nr = ops->nr, end = tri_int64_min((tile + 1) * v->group * nr, matrix->units);
    const float *a[TRI_GEMM_MAX_MR];
    float *c[TRI_GEMM_MAX_MR];
    for (int64_t first = tile * v->group * nr; first < end; first += nr) {
        for (int i = 0; i < v->call->rows; i++) {
            a[i] = v->call->x + i * matrix->channels;
            c[i] = v->call->y + i * matrix->units + first;
        }
        ops->dot((int)v->call->rows, (int)tri_int64_min(nr, matrix->units - first), 1, matrix->channels, a,
                 (const float *)matrix->packed + first * matrix->channels, c,
                 v->call->bias != NULL ? v->call->bias + first : NULL,
                 TRI_GEMM_FIRST | (v->call->relu ? TRI_GEMM_RELU : 0u));
    }
}

static void round_row(void *arg, int64_t row)
{
    const apply_arg *v = arg;
    const int64_t channels = v->matrix->channels, stride = 2 * tri_pairs(channels);
    uint16_t *to = (uint16_t *)v->call->scratch + row * stride;
    tri_half_round(to, v->call->x + row * channels, channels);
    if (stride > channels) {
        to[channels] = 0;
    }
}

static void apply_half(const tri_matrix *matrix, const tri_matrix_call *call)
{
    apply_arg arg = {matrix, call, 0};
    tri_tiles_run(call->rows > 16 ? call->threads : 1, call->rows, round_row, &arg);
    tri_gemm_half_run(matrix->ops, call->threads,
                      &(tri_gemm_half_call){.a = call->scratch,
                                            .packed = matrix->packed,
                                            .bias = call->bias,
                                            .c_wide = call->y,
                                            .m = call->rows,
                                            .n = matrix->units,
                                            .k = matrix->channels,
                                            .lda = 2 * tri_pairs(matrix->channels),
                                            .ldc = matrix->units,
                                            .relu = call->relu});
}

void tri_matrix_apply(const tri_matrix *matrix, const tri_matrix_call *call)
{
    const int64_t panel_nbytes = matrix->channels * matrix->ops->nr * (int64_t)sizeof(float);
    apply_arg arg = {matrix, call, tri_int64_max(1, GROUP_NBYTES / panel_nbytes)};
    if (matrix->half) {
        apply_half(matrix, call);
    } else if (call->rows <= matrix->ops->mr) {
        tri_tiles_run(call->threads, tri_int64_ceil(tri_int64_ceil(matrix->units, matrix->ops->nr), arg.group),
                      few_tile, &arg);
    } else {
        tri_gemm_run(matrix->ops, call->threads,
                     &(tri_gemm_call){.a = call->x,
                                      .packed = matrix->packed,
                                      .bias = call->bias,
                                      .c = call->y,
                                      .m = call->rows,
                                      .n = matrix->units,
                                      .k = matrix->channels,
                                      .lda = matrix->channels,
                                      .ldc = matrix->units,
                                      .relu = call->relu});
    }
}

/* --- rows for tokens --- */

static tri_status linear_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = tri_matrix_scratch(desc->param[0].dim[1], desc->max_shards);
    return TRI_OK;
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_attr *attr = &kernel->desc.attr;
    tri_matrix_apply(call->param[0], &(tri_matrix_call){.x = call->input[0],
                                                        .bias = attr->bias ? call->param[1] : NULL,
                                                        .y = call->output,
                                                        .scratch = call->scratch,
                                                        .rows = call->shards,
                                                        .threads = kernel->desc.threads,
                                                        .relu = attr->relu});
}

const tri_kernel_ops tri_token_linear = {
    .op = TRI_OP_LINEAR,
    .name = "tokens",
    .plan = linear_plan,
    .forward = linear_forward,
};

static void embedding_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int32_t *index = call->input[0];
    for (int64_t r = 0; r < call->shards; r++) {
        tri_matrix_row(call->param[0], index[r], (float *)call->output + r * kernel->desc.param[0].dim[1]);
    }
}

const tri_kernel_ops tri_token_embedding = {
    .op = TRI_OP_EMBEDDING,
    .name = "tokens",
    .forward = embedding_forward,
};
