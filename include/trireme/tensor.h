/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor.h: element types, shapes, and views of memory as tensors.
 *
 * A tri_tensor is a plain value that looks at memory; it never owns it. Row-major unless strides say otherwise. Images
 * are N H W C (batch, height, width, channels).
 */
#ifndef TRIREME_TENSOR_H
#define TRIREME_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* id, name, bytes per element, safetensors name. Order is part of the wire format: append only. */
#define TRI_DTYPE_LIST(X)                                                                                              \
    X(TRI_F32, "f32", 4, "F32")                                                                                        \
    X(TRI_F64, "f64", 8, "F64")                                                                                        \
    X(TRI_BF16, "bf16", 2, "BF16")                                                                                     \
    X(TRI_F16, "f16", 2, "F16")                                                                                        \
    X(TRI_I8, "i8", 1, "I8")                                                                                           \
    X(TRI_U8, "u8", 1, "U8")                                                                                           \
    X(TRI_I32, "i32", 4, "I32")                                                                                        \
    X(TRI_I64, "i64", 8, "I64")

typedef enum tri_dtype {
#define TRI_DTYPE_ENUM(id, name, nbytes, stored) id,
    TRI_DTYPE_LIST(TRI_DTYPE_ENUM)
#undef TRI_DTYPE_ENUM
        TRI_DTYPE_COUNT
} tri_dtype;

/* "f32"; "?" for a number that is none. */
TRI_API const char *tri_dtype_name(tri_dtype dtype);
/* Bytes of one element; 0 for a number that is none. */
TRI_API size_t tri_dtype_nbytes(tri_dtype dtype);
/* False when the name is none. */
TRI_API bool tri_dtype_find(const char *name, tri_dtype *dtype);

#define TRI_MAX_DIMS 6

typedef struct tri_shape {
    int ndim; /* 0: a scalar */
    int64_t dim[TRI_MAX_DIMS];
} tri_shape;

TRI_API tri_shape tri_shape_make(int ndim, const int64_t *dim);
/* Product of the dimensions; 1 for a scalar. */
TRI_API int64_t tri_shape_count(tri_shape shape);
TRI_API bool tri_shape_equal(tri_shape a, tri_shape b);
/* "[128, 784]"; returns `text`. */
TRI_API const char *tri_shape_print(tri_shape shape, char text[96]);

typedef struct tri_tensor {
    void *data;
    tri_dtype dtype;
    tri_shape shape;
    int64_t stride[TRI_MAX_DIMS]; /* in elements */
} tri_tensor;

/* A contiguous view. */
TRI_API tri_tensor tri_tensor_make(void *data, tri_dtype dtype, tri_shape shape);
TRI_API bool tri_tensor_is_contiguous(const tri_tensor *tensor);
/* The rows [first, first + count) of the first dimension. */
TRI_API tri_tensor tri_tensor_rows(const tri_tensor *tensor, int64_t first, int64_t count);

/* How elements are combined. PRODUCT and the order of SUM round as the canonical tree says (docs/bits.md). */
typedef enum tri_reduce_op {
    TRI_REDUCE_SUM,
    TRI_REDUCE_AVERAGE, /* sum, then one division by the number of ranks */
    TRI_REDUCE_MIN,
    TRI_REDUCE_MAX,
    TRI_REDUCE_PRODUCT,
    TRI_REDUCE_PREMUL_SUM, /* sum of elements that each rank has multiplied by a factor of its own */
    TRI_REDUCE_COUNT
} tri_reduce_op;
TRI_API const char *tri_reduce_name(tri_reduce_op op);

#ifdef __cplusplus
}
#endif
#endif
