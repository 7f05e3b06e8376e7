/* SPDX-License-Identifier: Apache-2.0
 *
 * map.c: activations, add and mul: loops over slices that the compiler vectorises, shared out in fixed tiles.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/half_loops.h"
#include "kernel/cpu/vector_math.h"
#include "kernel/half.h"
#include "tensor/half.h"
#include "tensor/loops.h"

#define MAP_TILE   INT64_C(8192) /* elements */
#define HALF_CHUNK INT64_C(1024) /* elements in f32 at once, where values are bf16 */
#define PIECE      INT64_C(512)  /* in f32 between two looks ahead, */
#define AHEAD      INT64_C(1024) /* and how far ahead that is */
#define SQRT_HALF  0.70710678f

/* One pass over a slice: to[i] from a[i] and b[i], where b is only there backward. */
typedef void (*slice_fn)(float *to, const float *a, const float *b, int64_t count);
typedef void (*half_fn)(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t count);

/* erf(x / sqrt(2)) by the formula 7.1.26 of Abramowitz and Stegun: within 2e-7; bell is exp(-x^2 / 2). */
static inline float erf_of(float x, float bell)
{
    const float t = 1.0f / (1.0f + 0.3275911f * SQRT_HALF * fabsf(x));
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    return copysignf(1.0f - p * t * bell, x);
}

static inline float gelu_erf(float x)
{
    return 0.5f * x * (1.0f + erf_of(x, tri_exp(-0.5f * x * x)));
}

static inline float gelu_erf_slope(float x)
{
    const float bell = tri_exp(-0.5f * x * x);
    return 0.5f * (1.0f + erf_of(x, bell)) + x * bell * (0.5f * TRI_GELU_ROOT);
}

static inline float silu_slope(float x)
{
    const float gate = tri_sigmoid(x);
    return gate * (1.0f + x * (1.0f - gate));
}

/* One formula over f32, and over bf16 where that is no more than a few instructions: with 16 bits in a loop compilers
 * take narrower vectors, so the long formulas run in f32 between two conversions (half NULL). */
typedef struct map_body {
    slice_fn wide;
    half_fn half;
} map_body;

#define SLICE_FORWARD(name, value)                                                                                     \
    TRI_CLONES static void name(float *to, const float *a, const float *b, int64_t count)                              \
    {                                                                                                                  \
        (void)b;                                                                                                       \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const float x = a[i];                                                                                      \
            to[i] = value;                                                                                             \
        }                                                                                                              \
    }
#define SLICE_BACKWARD(name, value)                                                                                    \
    TRI_CLONES static void name(float *to, const float *a, const float *b, int64_t count)                              \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const float v = a[i], dy = b[i];                                                                           \
            to[i] = value;                                                                                             \
        }                                                                                                              \
    }
/* What it writes is apart from what it reads, or the same memory. */
#define HALF_BACKWARD(name, value)                                                                                     \
    TRI_CLONES static void name(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t count)                     \
    {                                                                                                                  \
        TRI_APART                                                                                                      \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const float v = half_from_bf16(a[i]), dy = half_from_bf16(b[i]);                                           \
            to[i] = half_to_bf16(value);                                                                               \
        }                                                                                                              \
    }
SLICE_FORWARD(relu_slice, x < 0 ? 0.0f : x)
SLICE_FORWARD(gelu_slice, x *tri_gelu_gate(x))
SLICE_FORWARD(gelu_erf_slice, gelu_erf(x))
SLICE_FORWARD(silu_slice, x *tri_sigmoid(x))
SLICE_FORWARD(tanh_slice, tri_tanh(x))
SLICE_FORWARD(sigmoid_slice, tri_sigmoid(x))
SLICE_BACKWARD(relu_back, v > 0 ? dy : 0.0f)
SLICE_BACKWARD(gelu_back, dy *tri_gelu_slope(v))
SLICE_BACKWARD(gelu_erf_back, dy *gelu_erf_slope(v))
SLICE_BACKWARD(silu_back, dy *silu_slope(v))
SLICE_BACKWARD(tanh_back, dy *(1.0f - v * v))
SLICE_BACKWARD(sigmoid_back, dy *v *(1.0f - v))
SLICE_BACKWARD(add_slice, v + dy)
SLICE_BACKWARD(add_relu_slice, v + dy < 0 ? 0.0f : v + dy)
SLICE_BACKWARD(mul_slice, v *dy)
SLICE_FORWARD(copy_slice, x)
HALF_BACKWARD(add_half, v + dy)
HALF_BACKWARD(add_relu_half, v + dy < 0 ? 0.0f : v + dy)
HALF_BACKWARD(relu_back_half, v > 0 ? dy : 0.0f)
HALF_BACKWARD(mul_half, v *dy)

static void gelu_half(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t count)
{
    (void)b;
    tri_half_loops_find()->gelu(to, a, count);
}

static void gelu_back_half(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t count)
{
    tri_half_loops_find()->gelu_back(to, a, b, count);
}

static void copy_half(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t count)
{
    (void)b;
    memmove(to, a, (size_t)count * sizeof *to);
}

static const map_body add_body = {add_slice, add_half}, add_relu_body = {add_relu_slice, add_relu_half};
static const map_body mul_body = {mul_slice, mul_half}, copy_body = {copy_slice, copy_half};
static const map_body relu_body = {.wide = relu_slice}, relu_back_body = {relu_back, relu_back_half};
static const map_body gelu_body = {gelu_slice, gelu_half}, gelu_back_body = {gelu_back, gelu_back_half};
static const map_body gelu_erf_body = {.wide = gelu_erf_slice}, gelu_erf_back_body = {.wide = gelu_erf_back};
static const map_body silu_body = {.wide = silu_slice}, silu_back_body = {.wide = silu_back};
static const map_body tanh_body = {.wide = tanh_slice}, tanh_back_body = {.wide = tanh_back};
static const map_body sigmoid_body = {.wide = sigmoid_slice}, sigmoid_back_body = {.wide = sigmoid_back};

typedef struct map_value {
    const void *data;
    bool half; /* bf16 */
} map_value;

typedef struct map_arg {
    const map_body *body;
    map_value to, a, b;
    int64_t count;
    bool half;     /* any of them is */
    bool all_half; /* all that are there, and the body has a loop for them */
} map_arg;

/* Elements [first, first + count) in f32: where they are, or at `copy`. */
static const float *map_view(map_value value, float *copy, int64_t first, int64_t count)
{
    if (value.data == NULL) {
        return NULL;
    }
    if (!value.half) {
        return (const float *)value.data + first;
    }
    tri_half_widen(copy, (const uint16_t *)value.data + first, count);
    return copy;
}

static void half_chunk(const map_arg *v, int64_t first, int64_t count)
{
    float a[HALF_CHUNK], b[HALF_CHUNK], sum[HALF_CHUNK];
    const float *left = map_view(v->a, a, first, count), *right = map_view(v->b, b, first, count);
    if (!v->to.half) {
        v->body->wide((float *)(uintptr_t)v->to.data + first, left, right, count);
        return;
    }
    v->body->wide(sum, left, right, count);
    tri_half_round((uint16_t *)(uintptr_t)v->to.data + first, sum, count);
}

/* A piece of values in f32; what is AHEAD of it is asked for. */
static void wide_piece(const map_arg *v, int64_t first, int64_t count)
{
    const int64_t next = tri_int64_min(first + AHEAD, v->count);
    const size_t nbytes = (size_t)tri_int64_min(PIECE, v->count - next) * sizeof(float);
    const float *a = v->a.data, *b = v->b.data;
    tri_ahead(a + next, nbytes);
    if (b != NULL) {
        tri_ahead(b + next, nbytes);
        b += first;
    }
    v->body->wide((float *)(uintptr_t)v->to.data + first, a + first, b, count);
}

static void map_tile(void *arg, int64_t tile)
{
    const map_arg *v = arg;
    const int64_t first = tile * MAP_TILE, count = tri_int64_min(MAP_TILE, v->count - first);
    if (v->all_half) {
        v->body->half((uint16_t *)(uintptr_t)v->to.data + first, (const uint16_t *)v->a.data + first,
                      v->b.data != NULL ? (const uint16_t *)v->b.data + first : NULL, count);
        return;
    }
    const int64_t piece = v->half ? HALF_CHUNK : PIECE;
    for (int64_t at = 0; at < count; at += piece) {
        (v->half ? half_chunk : wide_piece)(v, first + at, tri_int64_min(piece, count - at));
    }
}

static void map_run(const tri_kernel *kernel, const tri_op_call *call, const map_body *body, map_value to, map_value a,
                    map_value b)
{
    map_arg arg = {body, to, a, b, .count = tri_shape_count(kernel->desc.output) * call->shards};
    arg.half = to.half || a.half || b.half;
    arg.all_half = body->half != NULL && to.half && a.half && (b.half || b.data == NULL);
    tri_tiles_run(kernel->desc.threads, tri_int64_ceil(arg.count, MAP_TILE), map_tile, &arg);
}

static map_value value_of(const void *data, tri_dtype dtype)
{
    return (map_value){data, dtype == TRI_BF16};
}

static map_value input_of(const tri_kernel *kernel, const tri_op_call *call, int i)
{
    return value_of(call->input[i], kernel->desc.input_dtype[i]);
}

static map_value dinput_of(const tri_kernel *kernel, const tri_op_call *call, int i)
{
    return value_of(call->dinput[i], kernel->desc.input_dtype[i]);
}

static map_value output_of(const tri_kernel *kernel, const tri_op_call *call)
{
    return value_of(call->output, kernel->desc.output_dtype);
}

static map_value doutput_of(const tri_kernel *kernel, const tri_op_call *call)
{
    return value_of(call->doutput, kernel->desc.output_dtype);
}

#define MAP_ROW(id, row, forward_slice, backward_slice, from_output)                                                   \
    static void row##_forward(const tri_kernel *kernel, const tri_op_call *call)                                       \
    {                                                                                                                  \
        map_run(kernel, call, forward_slice, output_of(kernel, call), input_of(kernel, call, 0), (map_value){0});      \
    }                                                                                                                  \
    static void row##_backward(const tri_kernel *kernel, const tri_op_call *call)                                      \
    {                                                                                                                  \
        if (call->dinput[0] != NULL) {                                                                                 \
            map_run(kernel, call, backward_slice, dinput_of(kernel, call, 0),                                          \
                    (from_output) ? output_of(kernel, call) : input_of(kernel, call, 0), doutput_of(kernel, call));    \
        }                                                                                                              \
    }                                                                                                                  \
    const tri_kernel_ops row = {                                                                                       \
        .op = id,                                                                                                      \
        .name = "tiles",                                                                                               \
        .forward = row##_forward,                                                                                      \
        .backward = row##_backward,                                                                                    \
        .dinput_may_alias = true,                                                                                      \
        .output_may_alias = from_output,                                                                               \
        .backward_input = !(from_output),                                                                              \
        .backward_output = from_output,                                                                                \
        .half = true,                                                                                                  \
    }
MAP_ROW(TRI_OP_RELU, tri_cpu_relu, &relu_body, &relu_back_body, true);
MAP_ROW(TRI_OP_TANH, tri_cpu_tanh, &tanh_body, &tanh_back_body, true);
MAP_ROW(TRI_OP_SIGMOID, tri_cpu_sigmoid, &sigmoid_body, &sigmoid_back_body, true);
MAP_ROW(TRI_OP_GELU, tri_cpu_gelu, &gelu_body, &gelu_back_body, false);
MAP_ROW(TRI_OP_GELU_ERF, tri_cpu_gelu_erf, &gelu_erf_body, &gelu_erf_back_body, false);
MAP_ROW(TRI_OP_SILU, tri_cpu_silu, &silu_body, &silu_back_body, false);

static bool same_shapes(const tri_op_desc *desc)
{
    return tri_shape_equal(desc->input[0], desc->input[1]);
}

static bool same_shapes_relu(const tri_op_desc *desc)
{
    return desc->attr.relu && same_shapes(desc);
}

static void add_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    map_run(kernel, call, kernel->desc.attr.relu ? &add_relu_body : &add_body, output_of(kernel, call),
            input_of(kernel, call, 0), input_of(kernel, call, 1));
}

/* The second gradient first: the first may take the place of doutput. */
static void add_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    for (int i = 1; i >= 0; i--) {
        if (call->dinput[i] == NULL) {
            continue;
        }
        if (kernel->desc.attr.relu) {
            map_run(kernel, call, &relu_back_body, dinput_of(kernel, call, i), output_of(kernel, call),
                    doutput_of(kernel, call));
        } else if (call->dinput[i] != call->doutput) {
            map_run(kernel, call, &copy_body, dinput_of(kernel, call, i), doutput_of(kernel, call), (map_value){0});
        }
    }
}

const tri_kernel_ops tri_cpu_add_relu = {
    .op = TRI_OP_ADD,
    .name = "tiles",
    .can = same_shapes_relu,
    .forward = add_forward,
    .backward = add_backward,
    .dinput_may_alias = true,
    .backward_output = true,
    .half = true,
};

const tri_kernel_ops tri_cpu_add = {
    .op = TRI_OP_ADD,
    .name = "tiles",
    .can = same_shapes,
    .forward = add_forward,
    .backward = add_backward,
    .dinput_may_alias = true,
    .output_may_alias = true,
    .half = true,
};

static void mul_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    map_run(kernel, call, &mul_body, output_of(kernel, call), input_of(kernel, call, 0), input_of(kernel, call, 1));
}

static void mul_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    for (int i = 1; i >= 0; i--) {
        if (call->dinput[i] != NULL) {
            map_run(kernel, call, &mul_body, dinput_of(kernel, call, i), input_of(kernel, call, 1 - i),
                    doutput_of(kernel, call));
        }
    }
}

const tri_kernel_ops tri_cpu_mul = {
    .op = TRI_OP_MUL,
    .name = "tiles",
    .can = same_shapes,
    .forward = mul_forward,
    .backward = mul_backward,
    .dinput_may_alias = true,
    .backward_input = true,
    .half = true,
};
