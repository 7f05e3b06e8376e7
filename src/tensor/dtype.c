/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.c: the names and widths of element types and the names of reductions, from the one list in tensor.h.
 */
#include <trireme/tensor.h>

#include <string.h>

#include "base/status.h"

typedef struct dtype_row {
    const char *name;
    size_t nbytes;
} dtype_row;

static const dtype_row rows[TRI_DTYPE_COUNT] = {
#define DTYPE_ROW(id, text, width, stored) [id] = {.name = (text), .nbytes = (width)},
    TRI_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

static const char *const reduce_names[TRI_REDUCE_COUNT] = {
    [TRI_REDUCE_SUM] = "sum", [TRI_REDUCE_AVERAGE] = "average", [TRI_REDUCE_MIN] = "min",
    [TRI_REDUCE_MAX] = "max", [TRI_REDUCE_PRODUCT] = "product", [TRI_REDUCE_PREMUL_SUM] = "premul_sum",
};

const char *tri_dtype_name(tri_dtype dtype)
{
    return (unsigned)dtype < TRI_DTYPE_COUNT ? rows[dtype].name : "?";
}

size_t tri_dtype_nbytes(tri_dtype dtype)
{
    return (unsigned)dtype < TRI_DTYPE_COUNT ? rows[dtype].nbytes : 0;
}

bool tri_dtype_find(const char *name, tri_dtype *dtype)
{
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *dtype = (tri_dtype)i;
            return true;
        }
    }
    return false;
}

const char *tri_reduce_name(tri_reduce_op op)
{
    return (unsigned)op < TRI_REDUCE_COUNT ? reduce_names[op] : "?";
}
