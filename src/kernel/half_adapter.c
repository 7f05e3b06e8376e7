/* SPDX-License-Identifier: Apache-2.0
 *
 * half_adapter.c: runs a row for f32 over values in bf16 and f16.
 *
 * It is for ops without a row of their own, in f16 all but copies: values are kept in half the memory, the f32 copies
 * live in scratch for the time of one call.
 */
#include "kernel/half.h"

/* Where the f32 copies are in scratch, in elements; -1: there is none, the value is f32 itself. */
typedef struct adapter_state {
    tri_kernel inner;
    int64_t input[TRI_OP_MAX_INPUTS], dinput[TRI_OP_MAX_INPUTS], output, doutput;
    int64_t weights; /* parameter 0, rounded */
    int64_t scratch;
} adapter_state;

static bool is_half(tri_dtype dtype)
{
    return dtype == TRI_BF16 || dtype == TRI_F16;
}

bool tri_op_desc_has(const tri_op_desc *desc, tri_dtype dtype)
{
    bool has = desc->output_dtype == dtype;
    for (int i = 0; i < desc->input_count; i++) {
        has = has || desc->input_dtype[i] == dtype;
    }
    return has;
}

bool tri_op_desc_is_half(const tri_op_desc *desc)
{
    return tri_op_desc_has(desc, TRI_BF16) || tri_op_desc_has(desc, TRI_F16);
}

tri_op_desc tri_half_desc_widen(const tri_op_desc *desc)
{
    tri_op_desc wide = *desc;
    for (int i = 0; i < desc->input_count; i++) {
        wide.input_dtype[i] = is_half(desc->input_dtype[i]) ? TRI_F32 : desc->input_dtype[i];
    }
    wide.output_dtype = TRI_F32;
    return wide;
}

/* Makes room for a copy of `count` elements a shard, if the value is of 16 bits. */
static int64_t place(const tri_op_desc *desc, tri_dtype dtype, int64_t count, int64_t *next)
{
    if (!is_half(dtype)) {
        return -1;
    }
    const int64_t at = *next;
    *next += tri_align_count(count * desc->max_shards);
    return at;
}

/* Products whose weights are factors in f16. */
static bool rounds_weights(const tri_op_desc *desc)
{
    return tri_op_desc_has(desc, TRI_F16) && tri_op_row(desc->op)->rounds_weights;
}

static void adapter_lay_out(const tri_op_desc *desc, adapter_state *s)
{
    int64_t next = 0;
    for (int i = 0; i < desc->input_count; i++) {
        const int64_t count = tri_shape_count(desc->input[i]);
        s->input[i] = place(desc, desc->input_dtype[i], count, &next);
        s->dinput[i] = desc->need_dinput[i] ? place(desc, desc->input_dtype[i], count, &next) : -1;
    }
    s->output = place(desc, desc->output_dtype, tri_shape_count(desc->output), &next);
    s->doutput = place(desc, desc->output_dtype, tri_shape_count(desc->output), &next);
    s->weights = -1;
    if (rounds_weights(desc)) {
        s->weights = next;
        next += tri_align_count(tri_shape_count(desc->param[0]));
    }
    s->scratch = next;
}

tri_status tri_half_plan(const char *kind, const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_op_desc wide = tri_half_desc_widen(desc);
    adapter_state *s = tri_alloc_zero(1, sizeof *s);
    if (s == NULL) {
        return TRI_ENOMEM;
    }
    const tri_status status = tri_kernel_plan(kind, &wide, &s->inner);
    if (status != TRI_OK) {
        tri_free(s);
        return status;
    }
    adapter_lay_out(desc, s);
    *kernel = (tri_kernel){.ops = tri_half_adapter(s->inner.ops), .desc = *desc, .state = s};
    kernel->saved_nbytes = s->inner.saved_nbytes;
    kernel->scratch_nbytes = (size_t)s->scratch * sizeof(float) + s->inner.scratch_nbytes;
    return TRI_OK;
}

static void adapter_release(tri_kernel *kernel)
{
    adapter_state *s = kernel->state;
    tri_kernel_release(&s->inner);
    tri_free(s);
}

/* The f32 copy of a value, filled, or the value itself. */
static const void *widened(const tri_kernel *kernel, const tri_op_call *call, int64_t at, const void *value,
                           tri_dtype dtype, tri_shape shape)
{
    if (at < 0 || value == NULL) {
        return value;
    }
    float *to = (float *)call->scratch + at;
    tri_half_widen_all(kernel->desc.threads, dtype, to, value, tri_shape_count(shape) * call->shards);
    return to;
}

static void rounded(const tri_kernel *kernel, const tri_op_call *call, int64_t at, void *value, tri_dtype dtype,
                    tri_shape shape)
{
    if (at >= 0 && value != NULL) {
        tri_half_round_all(kernel->desc.threads, dtype, value, (const float *)call->scratch + at,
                           tri_shape_count(shape) * call->shards);
    }
}

/* The call of the row for f32, but for its values. */
static tri_op_call inner_make(const tri_kernel *kernel, const tri_op_call *call)
{
    const adapter_state *s = kernel->state;
    tri_op_call inner = *call;
    inner.scratch = (float *)call->scratch + s->scratch;
    if (s->weights >= 0) {
        float *copy = (float *)call->scratch + s->weights;
        tri_half_round_f16(kernel->desc.threads, copy, call->param[0], tri_shape_count(kernel->desc.param[0]));
        inner.param[0] = copy;
    }
    return inner;
}

static void adapter_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const adapter_state *s = kernel->state;
    const tri_op_desc *desc = &kernel->desc;
    tri_op_call inner = inner_make(kernel, call);
    for (int i = 0; i < desc->input_count; i++) {
        inner.input[i] = widened(kernel, call, s->input[i], call->input[i], desc->input_dtype[i], desc->input[i]);
    }
    inner.output = s->output < 0 ? call->output : (float *)call->scratch + s->output;
    tri_kernel_forward(&s->inner, &inner);
    rounded(kernel, call, s->output, call->output, desc->output_dtype, desc->output);
}

static void adapter_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const adapter_state *s = kernel->state;
    const tri_op_desc *desc = &kernel->desc;
    tri_op_call inner = inner_make(kernel, call);
    const tri_kernel_ops *ops = s->inner.ops;
    const bool reads = ops->backward_input && (!ops->input_for_weight || tri_call_wants_dparam(call, 0));
    for (int i = 0; i < desc->input_count; i++) {
        if (reads) {
            inner.input[i] = widened(kernel, call, s->input[i], call->input[i], desc->input_dtype[i], desc->input[i]);
        }
        inner.dinput[i] =
            s->dinput[i] < 0 || call->dinput[i] == NULL ? call->dinput[i] : (float *)call->scratch + s->dinput[i];
    }
    if (s->inner.ops->backward_output) {
        inner.output =
            (void *)(uintptr_t)widened(kernel, call, s->output, call->output, desc->output_dtype, desc->output);
    }
    inner.doutput = widened(kernel, call, s->doutput, call->doutput, desc->output_dtype, desc->output);
    tri_kernel_backward(&s->inner, &inner);
    for (int i = 0; i < desc->input_count; i++) {
        rounded(kernel, call, s->dinput[i], call->dinput[i], desc->input_dtype[i], desc->input[i]);
    }
}

/* One row for each set of flags that a row for f32 can have. */
enum { DINPUT = 1, OUTPUT = 2, READS_INPUT = 4, READS_OUTPUT = 8, BACK = 16, FOR_WEIGHT = 32, ROWS = 64 };
#define ADAPTER(bits)                                                                                                  \
    {                                                                                                                  \
        .name = "f32", .forward = adapter_forward, .backward = (bits)&BACK ? adapter_backward : NULL,                  \
        .release = adapter_release, .dinput_may_alias = ((bits)&DINPUT) != 0,                                          \
        .output_may_alias = ((bits)&OUTPUT) != 0, .backward_input = ((bits)&READS_INPUT) != 0,                         \
        .backward_output = ((bits)&READS_OUTPUT) != 0, .input_for_weight = ((bits)&FOR_WEIGHT) != 0, .half = true,     \
        .f16 = true                                                                                                    \
    }
#define ADAPTERS_4(bits)  ADAPTER(bits), ADAPTER((bits) + 1), ADAPTER((bits) + 2), ADAPTER((bits) + 3)
#define ADAPTERS_16(bits) ADAPTERS_4(bits), ADAPTERS_4((bits) + 4), ADAPTERS_4((bits) + 8), ADAPTERS_4((bits) + 12)
static const tri_kernel_ops adapters[ROWS] = {ADAPTERS_16(0), ADAPTERS_16(16), ADAPTERS_16(32), ADAPTERS_16(48)};

const tri_kernel_ops *tri_half_adapter(const tri_kernel_ops *ops)
{
    return &adapters[(ops->dinput_may_alias ? DINPUT : 0) | (ops->output_may_alias ? OUTPUT : 0) |
                     (ops->backward_input ? READS_INPUT : 0) | (ops->backward_output ? READS_OUTPUT : 0) |
                     (ops->backward != NULL ? BACK : 0) | (ops->input_for_weight ? FOR_WEIGHT : 0)];
}
