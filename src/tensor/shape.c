/* SPDX-License-Identifier: Apache-2.0
 *
 * shape.c: shapes as plain values.
 */
#include <trireme/tensor.h>

#include <inttypes.h>
#include <stdio.h>

#include "base/status.h"

tri_shape tri_shape_make(int ndim, const int64_t *dim)
{
    TRI_ASSERT(ndim >= 0 && ndim <= TRI_MAX_DIMS);
    tri_shape shape = {.ndim = ndim};
    for (int i = 0; i < ndim; i++)
        shape.dim[i] = dim[i];
    return shape;
}

int64_t tri_shape_count(tri_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.ndim; i++)
        count *= shape.dim[i];
    return count;
}

bool tri_shape_equal(tri_shape a, tri_shape b)
{
    if (a.ndim != b.ndim)
        return false;
    for (int i = 0; i < a.ndim; i++) {
        if (a.dim[i] != b.dim[i])
            return false;
    }
    return true;
}

const char *tri_shape_print(tri_shape shape, char text[96])
{
    size_t at = 0, capacity = 96;
    text[at++] = '[';
    for (int i = 0; i < shape.ndim && at < capacity; i++) {
        int wrote = snprintf(text + at, capacity - at, "%s%" PRId64, i ? ", " : "", shape.dim[i]);
        at += (size_t)wrote;
    }
    /* Six dimensions of twenty digits do not fit: such a shape is nobody's, its text is cut. */
    if (at > capacity - 2)
        at = capacity - 2;
    text[at] = ']';
    text[at + 1] = 0;
    return text;
}
