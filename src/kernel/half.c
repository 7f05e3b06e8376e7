/* SPDX-License-Identifier: Apache-2.0
 *
 * half.c: bf16 and f16 by way of f32: conversions of arrays, and the adapter that runs a row for f32 over such values.
 *
 * The adapter is for ops without a row of their own, in f16 all but copies: values are kept in half the memory, the f32
 * copies live in scratch for the time of one call.
 */
#include "kernel/half.h"

#ifdef TRI_HAVE_X86
#include <cpuid.h>
#endif

#include "tensor/half.h"
#include "tensor/loops.h"

#define TILE_COUNT INT64_C(16384) /* elements of one tile of a conversion */

TRI_CLONES void tri_half_round(uint16_t *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = half_to_bf16(from[i]);
    }
}

TRI_CLONES void tri_half_widen(float *to, const uint16_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = half_from_bf16(from[i]);
    }
}

TRI_CLONES static void f16_round(uint16_t *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = half_to_f16(from[i]);
    }
}

TRI_CLONES static void f16_widen(float *to, const uint16_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = half_from_f16(from[i]);
    }
}

/* Rows of conversions, by type. */
typedef struct half_type {
    void (*round)(uint16_t *to, const float *from, int64_t count);
    void (*widen)(float *to, const uint16_t *from, int64_t count);
} half_type;

#ifdef TRI_HAVE_X86
/* clang's __builtin_cpu_supports() does not know it. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static half_type type_find(tri_dtype dtype)
{
    if (dtype == TRI_BF16) {
        return (half_type){tri_half_round, tri_half_widen};
    }
#ifdef TRI_HAVE_X86
    if (has_f16c()) {
        return (half_type){tri_f16c_round, tri_f16c_widen};
    }
#endif
    return (half_type){f16_round, f16_widen};
}

typedef struct convert_arg {
    half_type type;
    void *to;
    const void *from;
    int64_t count;
} convert_arg;

static void round_tile(void *arg, int64_t tile)
{
    const convert_arg *v = arg;
    const int64_t first = tile * TILE_COUNT;
    v->type.round((uint16_t *)v->to + first, (const float *)v->from + first,
                  tri_int64_min(TILE_COUNT, v->count - first));
}

static void widen_tile(void *arg, int64_t tile)
{
    const convert_arg *v = arg;
    const int64_t first = tile * TILE_COUNT;
    v->type.widen((float *)v->to + first, (const uint16_t *)v->from + first,
                  tri_int64_min(TILE_COUNT, v->count - first));
}

void tri_half_round_all(int threads, tri_dtype dtype, uint16_t *to, const float *from, int64_t count)
{
    convert_arg arg = {type_find(dtype), to, from, count};
    tri_tiles_run(threads, tri_int64_ceil(count, TILE_COUNT), round_tile, &arg);
}

void tri_half_widen_all(int threads, tri_dtype dtype, float *to, const uint16_t *from, int64_t count)
{
    convert_arg arg = {type_find(dtype), to, from, count};
    tri_tiles_run(threads, tri_int64_ceil(count, TILE_COUNT), widen_tile, &arg);
}

#define CHUNK INT64_C(512) /* elements in f32 at once */

/* to = f32 of f16 of from, on the way through a chunk. */
static void weights_tile(void *arg, int64_t tile)
{
    const convert_arg *v = arg;
    const int64_t end = tri_int64_min((tile + 1) * TILE_COUNT, v->count);
    uint16_t half[CHUNK];
    for (int64_t at = tile * TILE_COUNT; at < end; at += CHUNK) {
        const int64_t count = tri_int64_min(CHUNK, end - at);
        v->type.round(half, (const float *)v->from + at, count);
        v->type.widen((float *)v->to + at, half, count);
    }
}

typedef struct add_arg {
    half_type type;
    bool bf16;
    uint16_t *out;
    const uint16_t *a, *b;
    int64_t count;
} add_arg;

TRI_CLONES static void add_chunk(float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        a[i] += b[i];
    }
}

/* out may be a. */
TRI_CLONES static void add_pairs(uint16_t *out, const uint16_t *a, const uint16_t *b, int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        out[i] = half_to_bf16(half_from_bf16(a[i]) + half_from_bf16(b[i]));
    }
}

static void add_tile(void *arg, int64_t tile)
{
    const add_arg *v = arg;
    const int64_t end = tri_int64_min((tile + 1) * TILE_COUNT, v->count);
    float a[CHUNK], b[CHUNK];
    for (int64_t at = tile * TILE_COUNT; at < end; at += CHUNK) {
        const int64_t count = tri_int64_min(CHUNK, end - at), more = tri_int64_min(CHUNK, v->count - at - count);
        tri_ahead(v->a + at + count, (size_t)more * sizeof *v->a);
        tri_ahead(v->b + at + count, (size_t)more * sizeof *v->b);
        if (v->bf16) {
            add_pairs(v->out + at, v->a + at, v->b + at, count);
            continue;
        }
        v->type.widen(a, v->a + at, count);
        v->type.widen(b, v->b + at, count);
        add_chunk(a, b, count);
        v->type.round(v->out + at, a, count);
    }
}

void tri_vector_add_half(int threads, tri_dtype dtype, uint16_t *out, const uint16_t *a, const uint16_t *b,
                         int64_t count)
{
    add_arg arg = {type_find(dtype), dtype == TRI_BF16, out, a, b, count};
    tri_tiles_run(threads, tri_int64_ceil(count, TILE_COUNT), add_tile, &arg);
}

/* --- the adapter --- */

/* Where the f32 copies lie in scratch, in elements; -1: there is none, the value is f32 itself. */
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
        convert_arg arg = {type_find(TRI_F16), copy, call->param[0], tri_shape_count(kernel->desc.param[0])};
        tri_tiles_run(kernel->desc.threads, tri_int64_ceil(arg.count, TILE_COUNT), weights_tile, &arg);
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
