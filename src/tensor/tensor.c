/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor.c: views of memory.
 */
#include <trireme/tensor.h>

#include "base/status.h"

tri_tensor tri_tensor_make(void *data, tri_dtype dtype, tri_shape shape)
{
    tri_tensor tensor = {.data = data, .dtype = dtype, .shape = shape};
    int64_t stride = 1;
    for (int i = shape.ndim - 1; i >= 0; i--) {
        tensor.stride[i] = stride;
        stride *= shape.dim[i];
    }
    return tensor;
}

bool tri_tensor_is_contiguous(const tri_tensor *tensor)
{
    int64_t stride = 1;
    for (int i = tensor->shape.ndim - 1; i >= 0; i--) {
        int64_t dim = tensor->shape.dim[i];
        if (dim == 0)
            return true; /* of no elements every order is right */
        /* The stride of a dimension of one element is never used. */
        if (dim != 1 && tensor->stride[i] != stride)
            return false;
        stride *= dim;
    }
    return true;
}

tri_tensor tri_tensor_rows(const tri_tensor *tensor, int64_t first, int64_t count)
{
    TRI_ASSERT(tensor->shape.ndim >= 1 && first >= 0 && count >= 0 && first + count <= tensor->shape.dim[0]);
    tri_tensor rows = *tensor;
    rows.shape.dim[0] = count;
    if (rows.data)
        rows.data = (char *)rows.data + first * tensor->stride[0] * (int64_t)tri_dtype_nbytes(tensor->dtype);
    return rows;
}
