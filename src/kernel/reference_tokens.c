/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_tokens.c: what rms_norm, swiglu, positions and rope mean. Plain loops in double, one row after the other.
 */
#include <math.h>

#include "kernel/infer.h"

static tri_status rms_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes =
        (size_t)(tri_shape_last(&desc->input[0]) * desc->max_shards * tri_leaf_blocks(desc)) * sizeof(float);
    return TRI_OK;
}

static double rms_inverse(const tri_kernel *kernel, const float *x, int64_t width)
{
    const double epsilon = kernel->desc.attr.epsilon == 0 ? 1e-5 : (double)kernel->desc.attr.epsilon;
    double sum = 0;
    for (int64_t c = 0; c < width; c++) {
        sum += (double)x[c] * (double)x[c];
    }
    return 1 / sqrt(sum / (double)width + epsilon);
}

static void rms_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]);
    const int64_t rows = tri_shape_count(kernel->desc.input[0]) / width * call->shards;
    const float *scale = call->param[0];
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)call->input[0] + r * width;
        float *y = (float *)call->output + r * width;
        const double inverse = rms_inverse(kernel, x, width);
        for (int64_t c = 0; c < width; c++) {
            y[c] = (float)((double)x[c] * inverse * (double)scale[c]);
        }
    }
}

static void rms_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.input[0]);
    const int64_t rows = tri_shape_count(kernel->desc.input[0]) / width;
    const int64_t blocks = tri_leaf_blocks(&kernel->desc), block = rows / blocks;
    const float *scale = call->param[0];
    float *dscale = call->scratch;
    memset(dscale, 0, (size_t)(call->shards * blocks * width) * sizeof(float));
    for (int64_t r = 0; r < rows * call->shards; r++) {
        const float *x = (const float *)call->input[0] + r * width, *dy = (const float *)call->doutput + r * width;
        float *dx = call->dinput[0] != NULL ? (float *)call->dinput[0] + r * width : NULL;
        const double inverse = rms_inverse(kernel, x, width);
        double dot = 0;
        for (int64_t c = 0; c < width; c++) {
            const double h = (double)x[c] * inverse;
            dot += (double)dy[c] * (double)scale[c] * h;
            dscale[r / block * width + c] += (float)((double)dy[c] * h);
        }
        for (int64_t c = 0; dx != NULL && c < width; c++) {
            const double g = (double)dy[c] * (double)scale[c];
            dx[c] = (float)(inverse * (g - (double)x[c] * inverse * dot / (double)width));
        }
    }
    tri_blocks_fold(kernel, call, dscale, width);
    tri_leaves_sum(kernel, call, 0, dscale, width, width);
}

static tri_status infer_rms_norm(tri_op_desc *desc)
{
    return tri_infer_norm(desc, 1);
}

const tri_op_ops tri_op_rms_norm = {
    .infer = infer_rms_norm,
    .per_token = true,
    .reference.plan = rms_plan,
    .reference.forward = rms_forward,
    .reference.backward = rms_backward,
    .reference.backward_input = true,
};

static void swiglu_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output);
    const float *x = call->input[0];
    float *y = call->output;
    for (int64_t i = 0; i < tri_shape_count(kernel->desc.output) * call->shards; i++) {
        const int64_t at = i / width * 2 * width + i % width;
        y[i] = (float)((double)x[at] / (1 + exp(-(double)x[at])) * (double)x[at + width]);
    }
}

static void swiglu_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t width = tri_shape_last(&kernel->desc.output);
    const float *x = call->input[0], *dy = call->doutput;
    float *dx = call->dinput[0];
    for (int64_t i = 0; dx != NULL && i < tri_shape_count(kernel->desc.output) * call->shards; i++) {
        const int64_t at = i / width * 2 * width + i % width;
        const double gate = 1 / (1 + exp(-(double)x[at]));
        dx[at] = (float)((double)dy[i] * (double)x[at + width] * gate * (1 + (double)x[at] * (1 - gate)));
        dx[at + width] = (float)((double)dy[i] * (double)x[at] * gate);
    }
}

static tri_status infer_swiglu(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_input(desc, 0, 2, TRI_MAX_DIMS, TRI_F32));
    const int64_t last = tri_shape_last(&desc->input[0]);
    if (last % 2 != 0) {
        return tri_fail(TRI_EINVAL, "swiglu: want rows of two halves (gate, up), got %lld elements", (long long)last);
    }
    desc->output = desc->input[0];
    desc->output.dim[desc->output.ndim - 1] = last / 2;
    return TRI_OK;
}

const tri_op_ops tri_op_swiglu = {
    .infer = infer_swiglu,
    .per_token = true,
    .reference.forward = swiglu_forward,
    .reference.backward = swiglu_backward,
    .reference.backward_input = true,
};

static tri_status positions_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)(desc->input[0].dim[1] * desc->input[0].dim[2] * desc->max_shards) * sizeof(float);
    return TRI_OK;
}

static void positions_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *shape = &kernel->desc.input[0];
    const int64_t sample = shape->dim[1] * shape->dim[2];
    const float *x = call->input[0], *w = tri_call_param(call, 0) + kernel->desc.attr.first * shape->dim[2];
    float *y = call->output;
    for (int64_t i = 0; i < tri_shape_count(*shape) * call->shards; i++) {
        y[i] = x[i] + w[i % sample];
    }
}

void tri_places_sum(const tri_kernel *kernel, const tri_op_call *call, float *leaves, int64_t sample)
{
    const int64_t whole = tri_shape_count(kernel->desc.param[0]);
    const int64_t first = kernel->desc.attr.first * kernel->desc.input[0].dim[2], last = first + sample;
    float *out[TRI_TREE_MAX_PARTS];
    if (!tri_call_wants_dparam(call, 0)) {
        return;
    }
    for (int part = 0; part < call->part_count; part++) {
        float *all = call->dparam[0][part];
        out[part] = all + first;
        memset(all, 0, (size_t)first * sizeof(float)); /* where nobody here is */
        memset(all + last, 0, (size_t)(whole - last) * sizeof(float));
    }
    tri_op_call mine = *call;
    mine.dparam[0] = out;
    tri_leaves_sum(kernel, &mine, 0, leaves, sample, sample);
    for (int part = 0; kernel->desc.attr.ranks > 1 && part < call->part_count; part++) {
        tri_ranks_gather(call, out[part], call->dparam[0][part], sample, TRI_F32);
    }
}

static void positions_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_shape *shape = &kernel->desc.input[0];
    const int64_t sample = shape->dim[1] * shape->dim[2], count = tri_shape_count(*shape);
    const float *dy = call->doutput;
    float *dw = call->scratch, *dx = call->dinput[0];
    memset(dw, 0, (size_t)(sample * call->shards) * sizeof(float));
    for (int64_t i = 0; i < count * call->shards; i++) {
        dw[i / count * sample + i % count % sample] += dy[i];
    }
    tri_places_sum(kernel, call, dw, sample);
    if (dx != NULL && dx != dy) {
        memcpy(dx, dy, (size_t)(count * call->shards) * sizeof(float));
    }
}

static tri_status infer_positions(tri_op_desc *desc)
{
    const int64_t units = desc->attr.units;
    TRI_TRY(tri_infer_input(desc, 0, 3, 3, TRI_F32));
    TRI_TRY(tri_infer_units(desc, "units (positions)", units));
    const int64_t here = desc->input[0].dim[1], ranks = desc->attr.ranks > 1 ? desc->attr.ranks : 1;
    const int64_t needed = tri_int64_max(desc->places, tri_int64_max(here * ranks, desc->attr.first + here));
    if (desc->attr.first < 0 || needed > units) {
        return tri_fail(TRI_EINVAL, "positions: want samples of at most %lld tokens, got %lld", (long long)units,
                        (long long)needed);
    }
    desc->output = desc->input[0];
    return tri_infer_param(desc, tri_shape_make(2, (int64_t[]){units, desc->input[0].dim[2]}));
}

const tri_op_ops tri_op_positions = {
    .infer = infer_positions,
    .per_token = true,
    .reference.plan = positions_plan,
    .reference.forward = positions_forward,
    .reference.backward = positions_backward,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
};

/* Turns of pair i in one step along the sample; long waves slower where the context was stretched (Llama 3). */
double tri_rope_frequency(const tri_op_desc *desc, int64_t i, int64_t width)
{
    const tri_op_attr *a = &desc->attr;
    const double plain = pow((double)a->theta, -2.0 * (double)i / (double)width);
    if (a->rope_factor == 0) {
        return plain;
    }
    const double turns = (double)a->rope_context * plain / (2 * 3.14159265358979323846);
    const double slow = plain / (double)a->rope_factor, low = (double)a->rope_low, high = (double)a->rope_high;
    if (turns < low || turns > high) {
        return turns < low ? slow : plain;
    }
    const double smooth = (turns - low) / (high - low);
    return (1 - smooth) * slow + smooth * plain;
}

/* Cosines, then sines, of the angles of rope: each [length][width / 2]. */
static void rope_table(const tri_op_desc *desc, float *table)
{
    const tri_heads h = tri_heads_make(desc);
    const int64_t half = h.width / 2;
    for (int64_t i = 0; i < half; i++) {
        const double frequency = tri_rope_frequency(desc, i, h.width);
        for (int64_t t = 0; t < h.length; t++) {
            table[t * half + i] = (float)cos((double)t * frequency);
            table[(h.length + t) * half + i] = (float)sin((double)t * frequency);
        }
    }
}

tri_status tri_rope_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_heads h = tri_heads_make(desc);
    kernel->state = tri_alloc_bulk((size_t)(h.length * h.width) * sizeof(float));
    if (kernel->state == NULL) {
        return TRI_ENOMEM;
    }
    rope_table(desc, kernel->state);
    return TRI_OK;
}

void tri_rope_release(tri_kernel *kernel)
{
    tri_free(kernel->state);
}

/* Element i of the first half with element i of the second; sign -1 turns back. */
static void rope_run(const tri_kernel *kernel, const tri_op_call *call, const float *from, float *to, double sign)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    const int64_t half = h.width / 2;
    const float *cosine = kernel->state, *sine = cosine + h.length * half;
    for (int64_t r = 0; r < h.samples * h.length * call->shards; r++) {
        for (int64_t c = 0; c < h.stride; c++) {
            const int64_t head = c / h.width, i = c % h.width, at = r * h.stride + c, t = r % h.length * half + i;
            if (head >= h.queries + h.keys) {
                to[at] = from[at];
            } else if (i < half) {
                const double a = (double)from[at], b = (double)from[at + half];
                to[at] = (float)(a * (double)cosine[t] - sign * b * (double)sine[t]);
                to[at + half] = (float)(b * (double)cosine[t] + sign * a * (double)sine[t]);
            }
        }
    }
}

static void rope_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    rope_run(kernel, call, call->input[0], call->output, 1);
}

static void rope_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        rope_run(kernel, call, call->doutput, call->dinput[0], -1);
    }
}

static tri_status infer_rope(tri_op_desc *desc)
{
    const tri_op_attr *attr = &desc->attr;
    TRI_TRY(tri_infer_heads(desc));
    const int64_t width = tri_heads_make(desc).width;
    if (width % 2 != 0 || !(attr->theta > 0)) {
        return tri_fail(TRI_EINVAL, "rope: want heads of even width and a base above 0, got %lld and %g",
                        (long long)width, (double)attr->theta);
    }
    if (attr->rope_factor != 0 && !(attr->rope_factor >= 1 && attr->rope_high > attr->rope_low && attr->rope_low > 0 &&
                                    attr->rope_context >= 1)) {
        return tri_fail(
            TRI_EINVAL,
            "rope: want a factor of at least 1, 0 < low < high and a context of at least 1, got %g, %g, %g, %lld",
            (double)attr->rope_factor, (double)attr->rope_low, (double)attr->rope_high, (long long)attr->rope_context);
    }
    return TRI_OK;
}

const tri_op_ops tri_op_rope = {
    .infer = infer_rope,
    .per_token = true,
    .reference.plan = tri_rope_plan,
    .reference.forward = rope_forward,
    .reference.backward = rope_backward,
    .reference.release = tri_rope_release,
    .reference.dinput_may_alias = true,
    .reference.output_may_alias = true,
};
