/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_shape.c: what concat, reshape, transpose and embedding mean: elements move, nothing is computed.
 */
#include "kernel/row.h"

/* Copies between the one whole tensor and its pieces along the axis; the whole is the source when `split`. */
static void concat_run(const tri_kernel *kernel, const tri_op_call *call, float *whole, void *const *pieces, bool split)
{
    const tri_shape *out = &kernel->desc.output;
    const int axis = kernel->desc.attr.axis;
    const int64_t outer = tri_shape_product(out, 0, axis) * call->shards;
    const int64_t row = tri_shape_product(out, axis, out->ndim);
    int64_t first = 0;
    for (int i = 0; i < kernel->desc.input_count; i++) {
        const int64_t count = tri_shape_product(&kernel->desc.input[i], axis, out->ndim);
        for (int64_t o = 0; pieces[i] != NULL && o < outer; o++) {
            float *piece = (float *)pieces[i] + o * count, *place = whole + o * row + first;
            memcpy(split ? piece : place, split ? place : piece, (size_t)count * sizeof(float));
        }
        first += count;
    }
}

static void concat_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    concat_run(kernel, call, call->output, (void *const *)call->input, false);
}

static void concat_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    concat_run(kernel, call, (float *)call->doutput, call->dinput, true);
}

const tri_kernel_ops tri_reference_concat = {
    .op = TRI_OP_CONCAT,
    .name = "reference",
    .forward = concat_forward,
    .backward = concat_backward,
};

static void copy(const tri_kernel *kernel, const tri_op_call *call, const void *from, void *to)
{
    if (to != NULL && to != from) {
        memcpy(to, from, (size_t)(tri_shape_count(kernel->desc.output) * call->shards) * sizeof(float));
    }
}

static void reshape_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    copy(kernel, call, call->input[0], call->output);
}

static void reshape_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    copy(kernel, call, call->doutput, call->dinput[0]);
}

const tri_kernel_ops tri_reference_reshape = {
    .op = TRI_OP_RESHAPE,
    .name = "reference",
    .forward = reshape_forward,
    .backward = reshape_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
};

/* Walks the output in order and keeps the offset of the element's place in the input. */
static void transpose_run(const tri_kernel *kernel, const tri_op_call *call, const float *from, float *to, bool back)
{
    const tri_shape *in = &kernel->desc.input[0], *out = &kernel->desc.output;
    const int64_t count = tri_shape_count(*out);
    int64_t stride[TRI_MAX_DIMS], at[TRI_MAX_DIMS] = {0}, place = 0;
    for (int d = 0; d < out->ndim; d++) {
        stride[d] = tri_shape_product(in, kernel->desc.attr.axes[d] + 1, in->ndim);
    }
    for (int64_t i = 0; i < count * call->shards; i++) {
        const int64_t other = i / count * count + place;
        to[back ? other : i] = from[back ? i : other];
        for (int d = out->ndim - 1; d >= 0; d--) {
            place += stride[d];
            if (++at[d] < out->dim[d]) {
                break;
            }
            place -= stride[d] * out->dim[d];
            at[d] = 0;
        }
    }
}

static void transpose_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    transpose_run(kernel, call, call->input[0], call->output, false);
}

static void transpose_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        transpose_run(kernel, call, call->doutput, call->dinput[0], true);
    }
}

const tri_kernel_ops tri_reference_transpose = {
    .op = TRI_OP_TRANSPOSE,
    .name = "reference",
    .forward = transpose_forward,
    .backward = transpose_backward,
};

static tri_status embedding_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)(tri_shape_count(desc->param[0]) * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

static void embedding_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = kernel->desc.param[0].dim[1];
    const int32_t *index = call->input[0];
    const float *w = call->param[0];
    float *y = call->output;
    for (int64_t i = 0; i < tri_shape_count(kernel->desc.input[0]) * call->shards; i++) {
        const int64_t word = tri_part_word(&kernel->desc, index[i]);
        for (int64_t c = 0; c < width; c++) {
            y[i * width + c] = word >= 0 ? w[word * width + c] : 0;
        }
    }
}

static void embedding_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t rows = kernel->desc.param[0].dim[0], width = kernel->desc.param[0].dim[1];
    const int64_t count = tri_shape_count(kernel->desc.input[0]);
    const int32_t *index = call->input[0];
    const float *dy = call->doutput;
    float *dw = call->scratch;
    memset(dw, 0, (size_t)(rows * width * call->shards) * sizeof(float));
    for (int64_t i = 0; i < count * call->shards; i++) {
        const int64_t word = tri_part_word(&kernel->desc, index[i]);
        for (int64_t c = 0; word >= 0 && c < width; c++) {
            dw[(i / count * rows + word) * width + c] += dy[i * width + c];
        }
    }
    tri_leaves_sum(kernel, call, 0, dw, rows * width, rows * width);
}

const tri_kernel_ops tri_reference_embedding = {
    .op = TRI_OP_EMBEDDING,
    .name = "reference",
    .plan = embedding_plan,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .backward_input = true,
};
