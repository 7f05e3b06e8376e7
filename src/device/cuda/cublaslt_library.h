/* SPDX-License-Identifier: Apache-2.0
 *
 * cublaslt_library.h: the functions of libcublasLt that are used here, loaded when a card is opened.
 *
 * The few types and numbers of its interface are declared here, so that no CUDA header is needed. Matrices of cublasLt
 * are stored column by column.
 */
#ifndef TRI_DEVICE_CUDA_CUBLASLT_LIBRARY_H
#define TRI_DEVICE_CUDA_CUBLASLT_LIBRARY_H

#include <stdbool.h>

#include "device/cuda/library.h"

typedef int cublaslt_result; /* 0: done */
typedef struct cublaslt_handle_object *cublaslt_handle;
typedef struct cublaslt_desc_object *cublaslt_desc;             /* of a product */
typedef struct cublaslt_layout_object *cublaslt_layout;         /* of a matrix */
typedef struct cublaslt_preference_object *cublaslt_preference; /* of a search for algorithms */

typedef struct cublaslt_algorithm {
    uint64_t words[8];
} cublaslt_algorithm;

typedef struct cublaslt_found {
    cublaslt_algorithm algorithm;
    size_t workspace_nbytes;
    cublaslt_result state; /* 0: the other fields are filled */
    float waves;
    int reserved[4];
} cublaslt_found;

enum {
    CUBLASLT_INVALID_VALUE = 7,
    CUBLASLT_NOT_SUPPORTED = 15,
    /* types of values and of sums */
    CUBLASLT_F32 = 0,
    CUBLASLT_F16 = 2,
    CUBLASLT_BF16 = 14,
    CUBLASLT_COMPUTE_32F = 68,
    CUBLASLT_COMPUTE_32F_PEDANTIC = 69, /* never by TF32, whatever the environment says */
    /* of a product */
    CUBLASLT_DESC_TRANSA = 3, /* int32_t: 0, or 1 */
    CUBLASLT_DESC_TRANSB = 4,
    CUBLASLT_DESC_EPILOGUE = 7, /* uint32_t: those below, added */
    CUBLASLT_DESC_BIAS = 8,     /* const void *: one value of c's type for each row of c as it is stored here */
    CUBLASLT_EPILOGUE_RELU = 2,
    CUBLASLT_EPILOGUE_BIAS = 4,
    /* of a matrix */
    CUBLASLT_LAYOUT_BATCH = 5,  /* int32_t */
    CUBLASLT_LAYOUT_STRIDE = 6, /* int64_t elements */
    /* of a search */
    CUBLASLT_PREFERENCE_WORKSPACE = 1,  /* uint64_t bytes */
    CUBLASLT_PREFERENCE_REDUCTIONS = 3, /* uint32_t mask; 0: no sum over k is cut */
    CUBLASLT_PREFERENCE_ALIGN_A = 5,    /* uint32_t bytes; then B, C, D */
    CUBLASLT_ALL_REDUCTIONS = 7,
    /* of an algorithm: int32_t or uint32_t each, but for two of uint16_t */
    CUBLASLT_ALGORITHM_ID = 0,
    CUBLASLT_ALGORITHM_SPLIT_K = 2,
    CUBLASLT_ALGORITHM_REDUCTION = 3,
    CUBLASLT_ALGORITHM_INNER_SHAPE = 7, /* uint16_t */
    CUBLASLT_ALGORITHM_CLUSTER = 8,     /* uint16_t */
    CUBLASLT_ALGORITHM_VALUES = 9,
    CUBLASLT_WORKSPACE_ALIGN = 256 /* bytes */
};

/* result, symbol, name here, arguments */
#define TRI_CUBLASLT_CALLS(X)                                                                                          \
    X(size_t, cublasLtGetVersion, version, (void))                                                                     \
    X(cublaslt_result, cublasLtCreate, create, (cublaslt_handle * handle))                                             \
    X(cublaslt_result, cublasLtDestroy, destroy, (cublaslt_handle handle))                                             \
    X(cublaslt_result, cublasLtMatmulDescCreate, desc_create, (cublaslt_desc * desc, int compute, int scale_type))     \
    X(cublaslt_result, cublasLtMatmulDescDestroy, desc_destroy, (cublaslt_desc desc))                                  \
    X(cublaslt_result, cublasLtMatmulDescSetAttribute, desc_set,                                                       \
      (cublaslt_desc desc, int attribute, const void *value, size_t nbytes))                                           \
    X(cublaslt_result, cublasLtMatrixLayoutCreate, layout_create,                                                      \
      (cublaslt_layout * layout, int type, uint64_t rows, uint64_t columns, int64_t column_step))                      \
    X(cublaslt_result, cublasLtMatrixLayoutDestroy, layout_destroy, (cublaslt_layout layout))                          \
    X(cublaslt_result, cublasLtMatrixLayoutSetAttribute, layout_set,                                                   \
      (cublaslt_layout layout, int attribute, const void *value, size_t nbytes))                                       \
    X(cublaslt_result, cublasLtMatmulPreferenceCreate, preference_create, (cublaslt_preference * preference))          \
    X(cublaslt_result, cublasLtMatmulPreferenceDestroy, preference_destroy, (cublaslt_preference preference))          \
    X(cublaslt_result, cublasLtMatmulPreferenceSetAttribute, preference_set,                                           \
      (cublaslt_preference preference, int attribute, const void *value, size_t nbytes))                               \
    X(cublaslt_result, cublasLtMatmulAlgoGetHeuristic, find,                                                           \
      (cublaslt_handle handle, cublaslt_desc desc, cublaslt_layout a, cublaslt_layout b, cublaslt_layout c,            \
       cublaslt_layout d, cublaslt_preference preference, int capacity, cublaslt_found *found, int *count))            \
    X(cublaslt_result, cublasLtMatmulAlgoConfigGetAttribute, algorithm_value,                                          \
      (const cublaslt_algorithm *algorithm, int attribute, void *value, size_t nbytes, size_t *written))               \
    X(cublaslt_result, cublasLtMatmul, multiply,                                                                       \
      (cublaslt_handle handle, cublaslt_desc desc, const void *alpha, const void *a, cublaslt_layout a_layout,         \
       const void *b, cublaslt_layout b_layout, const void *beta, const void *c, cublaslt_layout c_layout, void *d,    \
       cublaslt_layout d_layout, const cublaslt_algorithm *algorithm, void *workspace, size_t workspace_nbytes,        \
       cuda_stream stream))

typedef struct tri_cublaslt_calls {
#define TRI_CUBLASLT_FIELD(result, symbol, name, args) result(*name) args;
    TRI_CUBLASLT_CALLS(TRI_CUBLASLT_FIELD)
#undef TRI_CUBLASLT_FIELD
} tri_cublaslt_calls;

/* The newest known version that this machine has; emulated: that of the tests, beside their driver. Stays loaded.
 * TRI_EUNSUPPORTED: one sentence says why there is none. */
tri_status tri_cublaslt_load(bool emulated, const tri_cublaslt_calls **out);

#endif
