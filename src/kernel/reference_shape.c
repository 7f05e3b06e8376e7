/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_shape.c: what concat, reshape, transpose and embedding mean: elements move, nothing is computed.
 */
#include <stdio.h>

#include "kernel/infer.h"

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

static tri_status infer_concat(tri_op_desc *desc)
{
    const int axis = desc->attr.axis;
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    if (axis < 1 || axis >= desc->input[0].ndim) {
        return tri_fail(TRI_EINVAL, "concat: want an axis from 1 to %d, got %d", desc->input[0].ndim - 1, axis);
    }
    desc->output = desc->input[0];
    for (int i = 1; i < desc->input_count; i++) {
        TRI_TRY(tri_infer_input(desc, i, 2, TRI_MAX_DIMS, TRI_F32));
        tri_shape like = desc->input[i];
        like.dim[axis] = desc->input[0].dim[axis];
        if (!tri_shape_equal(like, desc->input[0])) {
            char text[96], wanted[160], thing[32];
            snprintf(thing, sizeof thing, "input %d", i);
            snprintf(wanted, sizeof wanted, "%s but for dimension %d", tri_shape_print(desc->input[0], text), axis);
            return tri_infer_fail(desc, wanted, thing, desc->input[i]);
        }
        desc->output.dim[axis] += desc->input[i].dim[axis];
    }
    return TRI_OK;
}

const tri_op_ops tri_op_concat = {
    .inputs = 2,
    .max_inputs = TRI_OP_MAX_INPUTS,
    .infer = infer_concat,
    .reference.forward = concat_forward,
    .reference.backward = concat_backward,
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

static tri_status infer_reshape(tri_op_desc *desc)
{
    const tri_shape sample = desc->attr.to;
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS, TRI_F32));
    if (sample.ndim < 0 || sample.ndim >= TRI_MAX_DIMS) {
        return tri_fail(TRI_EINVAL, "reshape: want a sample of 0 to %d dimensions, got %d", TRI_MAX_DIMS - 1,
                        sample.ndim);
    }
    bool fits = true;
    tri_shape to = {.ndim = sample.ndim + 1, .dim = {desc->input[0].dim[0]}};
    for (int d = 0; d < sample.ndim; d++) {
        to.dim[d + 1] = sample.dim[d];
        fits = fits && sample.dim[d] >= 1 && sample.dim[d] <= TRI_INFER_MAX_COUNT;
    }
    if (!fits || tri_shape_count(to) != tri_shape_count(desc->input[0])) {
        char text[96], wanted[160];
        snprintf(wanted, sizeof wanted, "as many samples and elements as %s", tri_shape_print(desc->input[0], text));
        return tri_infer_fail(desc, wanted, "new shape", to);
    }
    desc->output = to;
    return TRI_OK;
}

const tri_op_ops tri_op_reshape = {
    .infer = infer_reshape,
    .renames = true,
    .reference.forward = reshape_forward,
    .reference.backward = reshape_backward,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
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

static tri_status infer_transpose(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    const tri_shape *in = &desc->input[0];
    unsigned seen = 0;
    for (int d = 0; d < in->ndim; d++) {
        const int axis = desc->attr.axes[d];
        if (axis < 0 || axis >= in->ndim || (seen & 1u << axis) != 0 || (d == 0 && axis != 0)) {
            return tri_fail(TRI_EINVAL,
                            "transpose: want axes that permute %d dimensions with the batch first, got %d at place %d",
                            in->ndim, axis, d);
        }
        seen |= 1u << axis;
        desc->output.dim[d] = in->dim[axis];
    }
    desc->output.ndim = in->ndim;
    return TRI_OK;
}

const tri_op_ops tri_op_transpose = {
    .infer = infer_transpose,
    .reference.forward = transpose_forward,
    .reference.backward = transpose_backward,
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

static tri_status infer_embedding(tri_op_desc *desc)
{
    const int64_t units = desc->attr.units, width = desc->attr.width;
    TRI_TRY(tri_infer_input(desc, 0, 1, TRI_MAX_DIMS - 1, TRI_I32));
    TRI_TRY(tri_infer_units(desc, "units (rows)", units));
    TRI_TRY(tri_infer_units(desc, "width", width));
    TRI_TRY(tri_infer_param(desc, tri_shape_make(2, (int64_t[]){units, width})));
    desc->output = desc->input[0];
    desc->output.dim[desc->output.ndim++] = width;
    return TRI_OK;
}

const tri_op_ops tri_op_embedding = {
    .infer = infer_embedding,
    .gives_half = true,
    .reads_table = true,
    .per_token = true,
    .packs = true,
    .reference.plan = embedding_plan,
    .reference.forward = embedding_forward,
    .reference.backward = embedding_backward,
    .reference.backward_input = true,
};
