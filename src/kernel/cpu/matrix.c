/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c: the products of matrix.h on the tiles of gemm.h and gemm_half.h. Rows that fit a register tile meet each
 * panel from its begin to its end, so that memory is read in order.
 */
#include "kernel/matrix_impl.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_half.h"

#define GROUP_NBYTES (INT64_C(128) << 10) /* of packed weights that a thread takes at a time */

static int64_t depth(const tri_matrix *matrix)
{
    return matrix->dtype == TRI_BF16 ? tri_pairs(matrix->channels) : matrix->channels;
}

static uint32_t *packed_of(const tri_matrix *matrix)
{
    return tri_device_mapped(matrix->device, matrix->packed);
}

static size_t matrix_nbytes(const tri_matrix *matrix)
{
    return (size_t)tri_gemm_packed_count(matrix->gemm, depth(matrix), matrix->units) * sizeof(float);
}

_Static_assert(TRI_MATRIX_ROWS % TRI_GEMM_MAX_NR == 0, "whole panels");

static tri_status matrix_fill(tri_matrix *matrix, int threads, int64_t first, int64_t count, const float *w)
{
    void *packed = packed_of(matrix) + first * depth(matrix);
    if (matrix->dtype == TRI_BF16) {
        tri_gemm_half_pack(matrix->gemm, threads, packed, w, matrix->channels, count, 1, matrix->channels);
    } else {
        tri_gemm_pack_all(matrix->gemm, threads, packed, w, matrix->channels, count, 1, matrix->channels);
    }
    return TRI_OK;
}

/* One row back, as it is stored: what an embedding is. */
static void matrix_row(const tri_matrix *matrix, int64_t row, float *out)
{
    const int64_t nr = matrix->gemm->nr;
    const uint32_t *at = packed_of(matrix) + row / nr * nr * depth(matrix) + row % nr;
    for (int64_t c = 0; c < matrix->channels; c++) {
        const uint32_t bits = matrix->dtype == TRI_BF16 ? (at[c / 2 * nr] >> 16 * (c % 2)) << 16 : at[c * nr];
        memcpy(out + c, &bits, sizeof bits);
    }
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
    const tri_gemm_ops *ops = matrix->gemm;
    const int64_t nr = ops->nr, end = tri_int64_min((tile + 1) * v->group * nr, matrix->units);
    const float *a[TRI_GEMM_MAX_MR];
    float *c[TRI_GEMM_MAX_MR];
    for (int64_t first = tile * v->group * nr; first < end; first += nr) {
        for (int i = 0; i < v->call->rows; i++) {
            a[i] = v->call->x + i * matrix->channels;
            c[i] = v->call->y + i * matrix->units + first;
        }
        ops->dot((int)v->call->rows, (int)tri_int64_min(nr, matrix->units - first), 1, matrix->channels, a,
                 (const float *)(const void *)packed_of(matrix) + first * matrix->channels, c,
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
    tri_gemm_half_run(matrix->gemm, call->threads,
                      &(tri_gemm_half_call){.a = call->scratch,
                                            .packed = (const void *)packed_of(matrix),
                                            .bias = call->bias,
                                            .c_wide = call->y,
                                            .m = call->rows,
                                            .n = matrix->units,
                                            .k = matrix->channels,
                                            .lda = 2 * tri_pairs(matrix->channels),
                                            .ldc = matrix->units,
                                            .relu = call->relu});
}

/* What the call points to is where this processor finds it. */
static void apply_here(const tri_matrix *matrix, const tri_matrix_call *call)
{
    const int64_t panel_nbytes = matrix->channels * matrix->gemm->nr * (int64_t)sizeof(float);
    apply_arg arg = {matrix, call, tri_int64_max(1, GROUP_NBYTES / panel_nbytes)};
    if (matrix->dtype == TRI_BF16) {
        apply_half(matrix, call);
    } else if (call->rows <= matrix->gemm->mr) {
        tri_tiles_run(call->threads, tri_int64_ceil(tri_int64_ceil(matrix->units, matrix->gemm->nr), arg.group),
                      few_tile, &arg);
    } else {
        tri_gemm_run(matrix->gemm, call->threads,
                     &(tri_gemm_call){.a = call->x,
                                      .packed = (const void *)packed_of(matrix),
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

static void matrix_apply(const tri_matrix *matrix, const tri_matrix_call *call)
{
    tri_matrix_call here = *call;
    here.x = tri_device_mapped(matrix->device, call->x);
    here.bias = tri_device_mapped(matrix->device, call->bias);
    here.y = tri_device_mapped(matrix->device, call->y);
    here.scratch = tri_device_mapped(matrix->device, call->scratch);
    apply_here(matrix, &here);
}

const tri_matrix_ops tri_matrix_cpu = {
    .kernels = "cpu", .nbytes = matrix_nbytes, .fill = matrix_fill, .apply = matrix_apply};

/* --- rows for tokens --- */

static tri_status linear_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = tri_matrix_scratch(desc->param[0].dim[1], desc->max_shards);
    return TRI_OK;
}

static void linear_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_op_attr *attr = &kernel->desc.attr;
    apply_here(call->param[0], &(tri_matrix_call){.x = call->input[0],
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
        matrix_row(call->param[0], index[r], (float *)call->output + r * kernel->desc.param[0].dim[1]);
    }
}

const tri_kernel_ops tri_token_embedding = {
    .op = TRI_OP_EMBEDDING,
    .name = "tokens",
    .forward = embedding_forward,
};
