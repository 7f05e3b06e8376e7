/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c: elementwise combination of two arrays, one template instance per element type.
 *
 * Every operation is commutative to the bit, so that only the tree of additions matters and not who is left or right:
 * min and max order -0 below +0, and a NaN on either side gives the one quiet NaN. (The payload of NaN + NaN is the
 * processor's choice.) Integers wrap; their division truncates.
 */
#include "tensor/reduce.h"

#include "base/status.h"
#include "tensor/half.h"
#include "tensor/loops.h"

#define INLINE static inline __attribute__((always_inline))

/* Floats as integers of the same order, -0 < +0. */
INLINE int32_t order_f32(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits ^ ((bits >> 31) & INT32_MAX);
}

INLINE int64_t order_f64(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits ^ ((bits >> 63) & INT64_MAX);
}

INLINE float min_f32(float a, float b)
{
    float lower = order_f32(a) < order_f32(b) ? a : b;
    return a != a || b != b ? __builtin_nanf("") : lower;
}

INLINE float max_f32(float a, float b)
{
    float upper = order_f32(a) > order_f32(b) ? a : b;
    return a != a || b != b ? __builtin_nanf("") : upper;
}

INLINE double min_f64(double a, double b)
{
    double lower = order_f64(a) < order_f64(b) ? a : b;
    return a != a || b != b ? __builtin_nan("") : lower;
}

INLINE double max_f64(double a, double b)
{
    double upper = order_f64(a) > order_f64(b) ? a : b;
    return a != a || b != b ? __builtin_nan("") : upper;
}

#define SAME(x)              (x)
#define FLOAT_ADD(a, b)      ((a) + (b))
#define FLOAT_MULTIPLY(a, b) ((a) * (b))
/* Unsigned arithmetic wraps; the conversion back is modulo 2^n in gcc and clang. */
#define INT_ADD(a, b)      ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define INT_MULTIPLY(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define INT_MIN_OF(a, b)   ((a) < (b) ? (a) : (b))
#define INT_MAX_OF(a, b)   ((a) > (b) ? (a) : (b))
/* INT64_MIN / -1 cannot occur: the divisor is a number of ranks. */
#define INT_DIVIDE(a, divisor) ((int64_t)(a) / (divisor))

#define T                  float
#define A                  float
#define NAME(op)           f32_##op
#define LOAD               SAME
#define STORE              SAME
#define SUM                FLOAT_ADD
#define PRODUCT            FLOAT_MULTIPLY
#define MIN                min_f32
#define MAX                max_f32
#define DIVIDE(a, divisor) ((a) / (float)(divisor))
#include "tensor/reduce.tmpl.h"

#define T                  double
#define A                  double
#define NAME(op)           f64_##op
#define LOAD               SAME
#define STORE              SAME
#define SUM                FLOAT_ADD
#define PRODUCT            FLOAT_MULTIPLY
#define MIN                min_f64
#define MAX                max_f64
#define DIVIDE(a, divisor) ((a) / (double)(divisor))
#include "tensor/reduce.tmpl.h"

#define T                  uint16_t
#define A                  float
#define NAME(op)           bf16_##op
#define LOAD               half_from_bf16
#define STORE              half_to_bf16
#define SUM                FLOAT_ADD
#define PRODUCT            FLOAT_MULTIPLY
#define MIN                min_f32
#define MAX                max_f32
#define DIVIDE(a, divisor) ((a) / (float)(divisor))
#include "tensor/reduce.tmpl.h"

#define T                  uint16_t
#define A                  float
#define NAME(op)           f16_##op
#define LOAD               half_from_f16
#define STORE              half_to_f16
#define SUM                FLOAT_ADD
#define PRODUCT            FLOAT_MULTIPLY
#define MIN                min_f32
#define MAX                max_f32
#define DIVIDE(a, divisor) ((a) / (float)(divisor))
#include "tensor/reduce.tmpl.h"

#define T        int8_t
#define A        int64_t
#define NAME(op) i8_##op
#define LOAD     SAME
#define STORE    (int8_t)
#define SUM      INT_ADD
#define PRODUCT  INT_MULTIPLY
#define MIN      INT_MIN_OF
#define MAX      INT_MAX_OF
#define DIVIDE   INT_DIVIDE
#include "tensor/reduce.tmpl.h"

#define T        uint8_t
#define A        int64_t
#define NAME(op) u8_##op
#define LOAD     SAME
#define STORE    (uint8_t)
#define SUM      INT_ADD
#define PRODUCT  INT_MULTIPLY
#define MIN      INT_MIN_OF
#define MAX      INT_MAX_OF
#define DIVIDE   INT_DIVIDE
#include "tensor/reduce.tmpl.h"

#define T        int32_t
#define A        int64_t
#define NAME(op) i32_##op
#define LOAD     SAME
#define STORE    (int32_t)
#define SUM      INT_ADD
#define PRODUCT  INT_MULTIPLY
#define MIN      INT_MIN_OF
#define MAX      INT_MAX_OF
#define DIVIDE   INT_DIVIDE
#include "tensor/reduce.tmpl.h"

#define T        int64_t
#define A        int64_t
#define NAME(op) i64_##op
#define LOAD     SAME
#define STORE    SAME
#define SUM      INT_ADD
#define PRODUCT  INT_MULTIPLY
#define MIN      INT_MIN_OF
#define MAX      INT_MAX_OF
#define DIVIDE   INT_DIVIDE
#include "tensor/reduce.tmpl.h"

typedef void (*divide_fn)(void *data, int64_t count, int64_t divisor);

typedef struct reduce_row {
    tri_reduce_fn combine[TRI_REDUCE_COUNT];
    tri_reduce_both_fn sum_both;
    divide_fn divide;
} reduce_row;

#define REDUCE_ROW(id, prefix)                                                                                         \
    [id] = {.combine = {[TRI_REDUCE_SUM] = prefix##_sum,                                                               \
                        [TRI_REDUCE_AVERAGE] = prefix##_sum,                                                           \
                        [TRI_REDUCE_PREMUL_SUM] = prefix##_sum,                                                        \
                        [TRI_REDUCE_MIN] = prefix##_min,                                                               \
                        [TRI_REDUCE_MAX] = prefix##_max,                                                               \
                        [TRI_REDUCE_PRODUCT] = prefix##_product},                                                      \
            .sum_both = prefix##_sum_both,                                                                             \
            .divide = prefix##_divide}

static const reduce_row rows[TRI_DTYPE_COUNT] = {
    REDUCE_ROW(TRI_F32, f32), REDUCE_ROW(TRI_F64, f64), REDUCE_ROW(TRI_BF16, bf16), REDUCE_ROW(TRI_F16, f16),
    REDUCE_ROW(TRI_I8, i8),   REDUCE_ROW(TRI_U8, u8),   REDUCE_ROW(TRI_I32, i32),   REDUCE_ROW(TRI_I64, i64),
};

tri_reduce_fn tri_reduce_find(tri_reduce_op op, tri_dtype dtype)
{
    if ((unsigned)op >= TRI_REDUCE_COUNT || (unsigned)dtype >= TRI_DTYPE_COUNT)
        return NULL;
    return rows[dtype].combine[op];
}

tri_reduce_both_fn tri_reduce_both_find(tri_reduce_op op, tri_dtype dtype)
{
    bool sums = op == TRI_REDUCE_SUM || op == TRI_REDUCE_PREMUL_SUM;
    return sums && (unsigned)dtype < TRI_DTYPE_COUNT ? rows[dtype].sum_both : NULL;
}

tri_status tri_reduce_divide(void *data, tri_dtype dtype, int64_t count, int64_t divisor)
{
    if ((unsigned)dtype >= TRI_DTYPE_COUNT)
        return tri_fail(TRI_EINVAL, "divide: there is no element type %d", (int)dtype);
    if (divisor <= 0)
        return tri_fail(TRI_EINVAL, "divide: want a divisor of at least 1, got %lld", (long long)divisor);
    if (divisor > 1)
        rows[dtype].divide(data, count, divisor);
    return TRI_OK;
}

enum { MULTIPLY_BLOCK = 512 };

tri_status tri_reduce_multiply(void *out, const void *in, tri_dtype dtype, int64_t count, double factor)
{
    if ((unsigned)dtype >= TRI_DTYPE_COUNT)
        return tri_fail(TRI_EINVAL, "multiply: there is no element type %d", (int)dtype);
    size_t each = tri_dtype_nbytes(dtype);
    bool narrow = dtype == TRI_F32 || dtype == TRI_F16 || dtype == TRI_BF16;
    tri_dtype wide = narrow ? TRI_F32 : TRI_F64;
    float floats[MULTIPLY_BLOCK];
    double doubles[MULTIPLY_BLOCK];
    void *block = narrow ? (void *)floats : (void *)doubles;
    for (int64_t first = 0; first < count; first += MULTIPLY_BLOCK) {
        int64_t some = count - first < MULTIPLY_BLOCK ? count - first : MULTIPLY_BLOCK;
        TRI_TRY(tri_convert(block, wide, (const char *)in + (size_t)first * each, dtype, some));
        for (int64_t i = 0; narrow && i < some; i++)
            floats[i] *= (float)factor;
        for (int64_t i = 0; !narrow && i < some; i++)
            doubles[i] *= factor;
        TRI_TRY(tri_convert((char *)out + (size_t)first * each, dtype, block, wide, some));
    }
    return TRI_OK;
}
