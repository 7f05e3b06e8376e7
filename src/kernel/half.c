/* SPDX-License-Identifier: Apache-2.0
 *
 * half.c: arrays in bf16 and f16: conversions from and to f32, and sums.
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

void tri_half_round_f16(int threads, float *to, const float *from, int64_t count)
{
    convert_arg arg = {type_find(TRI_F16), to, from, count};
    tri_tiles_run(threads, tri_int64_ceil(count, TILE_COUNT), weights_tile, &arg);
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
