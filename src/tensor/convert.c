/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.c: arrays from one element type to another: to the nearest, ties to even, rounded once.
 *
 * An element is loaded as the narrowest of float, double and int64 that holds it exactly, and stored from there: 3
 * loads by 8 stores, put together by the list of types. Where two roundings would follow each other the first is to
 * odd.
 */
#include <math.h>

#include "base/status.h"
#include "tensor/half.h"
#include "tensor/loops.h"
#include "tensor/reduce.h"

#define INLINE static inline __attribute__((always_inline))

float tri_bf16_to_f32(uint16_t bits)
{
    return half_from_bf16(bits);
}

uint16_t tri_f32_to_bf16(float value)
{
    return half_to_bf16(value);
}

float tri_f16_to_f32(uint16_t bits)
{
    return half_from_f16(bits);
}

uint16_t tri_f32_to_f16(float value)
{
    return half_to_f16(value);
}

/* Rounds to odd (Boldo and Melquiond 2008): a later rounding to far fewer bits then equals one from the exact value. */
INLINE float odd_from_double(double value)
{
    float near = (float)value;
    if ((double)near == value || value != value)
        return near;
    uint32_t bits = half_bits(near);
    if (fabs((double)near) > fabs(value))
        bits--; /* towards zero; inf becomes the largest number */
    return half_float(bits | 1u);
}

INLINE float odd_from_int(int64_t value)
{
    uint64_t magnitude = value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
    /* 53 bits are exact in a double: of the lowest 11 of 64 only whether one is set matters. */
    if (magnitude >> 53)
        magnitude = (magnitude & ~UINT64_C(0x7ff)) | ((magnitude & 0x7ff) ? 0x400u : 0u);
    float odd = odd_from_double((double)magnitude);
    return value < 0 ? -odd : odd;
}

/* To the nearest, ties to even; NaN to 0. The bounds are exact in double. */
INLINE int64_t int_from_double(double value, int64_t low, int64_t high)
{
    if (value != value)
        return 0;
    double near = rint(value);
    if (near <= (double)low)
        return low;
    if (near >= (double)high)
        return high;
    return (int64_t)near;
}

INLINE int64_t int_within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

#define SAME(x) (x)
/* id of a type; its type in memory; kind it is loaded as; how. */
#define FLOAT_FROM_F32(x)  (x)
#define INT_FROM(x)        ((int64_t)(x))
#define DOUBLE_FROM_F64(x) (x)

/* Stores: STORE_<to>_<kind>. */
#define STORE_F32_FLOAT(x)   (x)
#define STORE_F32_DOUBLE(x)  ((float)(x))
#define STORE_F32_INT(x)     ((float)(x))
#define STORE_F64_FLOAT(x)   ((double)(x))
#define STORE_F64_DOUBLE(x)  (x)
#define STORE_F64_INT(x)     ((double)(x))
#define STORE_BF16_FLOAT(x)  half_to_bf16(x)
#define STORE_BF16_DOUBLE(x) half_to_bf16(odd_from_double(x))
#define STORE_BF16_INT(x)    half_to_bf16(odd_from_int(x))
#define STORE_F16_FLOAT(x)   half_to_f16(x)
#define STORE_F16_DOUBLE(x)  half_to_f16(odd_from_double(x))
#define STORE_F16_INT(x)     half_to_f16(odd_from_int(x))
#define STORE_I8_FLOAT(x)    ((int8_t)int_from_double((double)(x), INT8_MIN, INT8_MAX))
#define STORE_I8_DOUBLE(x)   ((int8_t)int_from_double((x), INT8_MIN, INT8_MAX))
#define STORE_I8_INT(x)      ((int8_t)int_within((x), INT8_MIN, INT8_MAX))
#define STORE_U8_FLOAT(x)    ((uint8_t)int_from_double((double)(x), 0, UINT8_MAX))
#define STORE_U8_DOUBLE(x)   ((uint8_t)int_from_double((x), 0, UINT8_MAX))
#define STORE_U8_INT(x)      ((uint8_t)int_within((x), 0, UINT8_MAX))
#define STORE_I32_FLOAT(x)   ((int32_t)int_from_double((double)(x), INT32_MIN, INT32_MAX))
#define STORE_I32_DOUBLE(x)  ((int32_t)int_from_double((x), INT32_MIN, INT32_MAX))
#define STORE_I32_INT(x)     ((int32_t)int_within((x), INT32_MIN, INT32_MAX))
#define STORE_I64_FLOAT(x)   int_from_double((double)(x), INT64_MIN, INT64_MAX)
#define STORE_I64_DOUBLE(x)  int_from_double((x), INT64_MIN, INT64_MAX)
#define STORE_I64_INT(x)     (x)

typedef void (*convert_fn)(void *to, const void *from, int64_t count);

#define LOOP(to_id, to_type, from_id, from_type, kind, LOAD)                                                           \
    TRI_CLONES static void convert_##from_id##_to_##to_id(void *to, const void *from, int64_t count)                   \
    {                                                                                                                  \
        to_type *out = to;                                                                                             \
        const from_type *in = from;                                                                                    \
        TRI_APART                                                                                                      \
        for (int64_t i = 0; i < count; i++)                                                                            \
            out[i] = STORE_##to_id##_##kind(LOAD(in[i]));                                                              \
    }

#define LOOPS_TO(to_id, to_type)                                                                                       \
    LOOP(to_id, to_type, F32, float, FLOAT, FLOAT_FROM_F32)                                                            \
    LOOP(to_id, to_type, F64, double, DOUBLE, DOUBLE_FROM_F64)                                                         \
    LOOP(to_id, to_type, BF16, uint16_t, FLOAT, half_from_bf16)                                                        \
    LOOP(to_id, to_type, F16, uint16_t, FLOAT, half_from_f16)                                                          \
    LOOP(to_id, to_type, I8, int8_t, INT, INT_FROM)                                                                    \
    LOOP(to_id, to_type, U8, uint8_t, INT, INT_FROM)                                                                   \
    LOOP(to_id, to_type, I32, int32_t, INT, INT_FROM)                                                                  \
    LOOP(to_id, to_type, I64, int64_t, INT, INT_FROM)

LOOPS_TO(F32, float)
LOOPS_TO(F64, double)
LOOPS_TO(BF16, uint16_t)
LOOPS_TO(F16, uint16_t)
LOOPS_TO(I8, int8_t)
LOOPS_TO(U8, uint8_t)
LOOPS_TO(I32, int32_t)
LOOPS_TO(I64, int64_t)

#define CONVERT_ROW(from_id)                                                                                           \
    [TRI_##from_id] = {[TRI_F32] = convert_##from_id##_to_F32,   [TRI_F64] = convert_##from_id##_to_F64,               \
                       [TRI_BF16] = convert_##from_id##_to_BF16, [TRI_F16] = convert_##from_id##_to_F16,               \
                       [TRI_I8] = convert_##from_id##_to_I8,     [TRI_U8] = convert_##from_id##_to_U8,                 \
                       [TRI_I32] = convert_##from_id##_to_I32,   [TRI_I64] = convert_##from_id##_to_I64}

static const convert_fn rows[TRI_DTYPE_COUNT][TRI_DTYPE_COUNT] = {
    CONVERT_ROW(F32), CONVERT_ROW(F64), CONVERT_ROW(BF16), CONVERT_ROW(F16),
    CONVERT_ROW(I8),  CONVERT_ROW(U8),  CONVERT_ROW(I32),  CONVERT_ROW(I64),
};

tri_status tri_convert(void *to, tri_dtype to_dtype, const void *from, tri_dtype from_dtype, int64_t count)
{
    if ((unsigned)to_dtype >= TRI_DTYPE_COUNT || (unsigned)from_dtype >= TRI_DTYPE_COUNT)
        return tri_fail(TRI_EINVAL, "convert: there is no element type %d",
                        (unsigned)to_dtype >= TRI_DTYPE_COUNT ? (int)to_dtype : (int)from_dtype);
    if (to_dtype == from_dtype)
        memmove(to, from, (size_t)count * tri_dtype_nbytes(to_dtype));
    else
        rows[from_dtype][to_dtype](to, from, count);
    return TRI_OK;
}
