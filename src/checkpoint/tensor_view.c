/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_view.c: elements of a view in its own order. Transposed parts are gathered a run of a stored row at a time.
 */
#include "checkpoint/tensor_view.h"

#include <string.h>

#include "base/status.h"
#include "tensor/reduce.h"

#define RUN_COUNT 2048 /* elements that are converted at once */

bool tri_tensor_view_reads(tri_dtype dtype)
{
    return dtype == TRI_F32 || dtype == TRI_F16 || dtype == TRI_BF16 || dtype == TRI_F64;
}

tri_status tri_tensor_view_whole(const tri_stored_tensor *from, const char *name, tri_tensor_view *view)
{
    if (!tri_tensor_view_reads(from->dtype))
        return tri_fail(TRI_EUNSUPPORTED, "tensor '%.100s': want elements f32, bf16, f16 or f64, got %s", from->name,
                        tri_dtype_name(from->dtype));
    *view = (tri_tensor_view){.name = name, .shape = from->shape, .part_count = 1};
    view->parts[0] = (tri_view_part){.from = from, .rows = from->shape.ndim > 0 ? from->shape.dim[0] : 1};
    return TRI_OK;
}

tri_dtype tri_tensor_view_dtype(const tri_tensor_view *view)
{
    tri_dtype dtype = view->part_count > 0 ? view->parts[0].from->dtype : TRI_F32;
    for (int p = 1; p < view->part_count; p++) {
        tri_dtype other = view->parts[p].from->dtype;
        if (dtype != other)
            dtype = dtype == TRI_F64 || other == TRI_F64 ? TRI_F64 : TRI_F32;
    }
    return dtype;
}

/* Elements of a stored tensor from `first` on. The bytes of a file may be at any address: they are copied first. */
static void read_run(const tri_stored_tensor *from, tri_dtype dtype, int64_t first, int64_t count, char *out)
{
    size_t each = tri_dtype_nbytes(from->dtype), out_each = tri_dtype_nbytes(dtype);
    const char *bytes = (const char *)from->bytes + (size_t)first * each;
    if (from->dtype == dtype) {
        memcpy(out, bytes, (size_t)count * each);
        return;
    }
    double aligned[RUN_COUNT]; /* of the widest type */
    for (int64_t at = 0, run; at < count; at += run) {
        run = count - at < RUN_COUNT ? count - at : RUN_COUNT;
        memcpy(aligned, bytes + (size_t)at * each, (size_t)run * each);
        tri_status status = tri_convert(out + (size_t)at * out_each, dtype, aligned, from->dtype, run);
        TRI_ASSERT(status == TRI_OK);
    }
}

/* One element of 2, 4 or 8 bytes. */
static inline void copy_element(char *to, const char *from, size_t nbytes)
{
    if (nbytes == 2)
        memcpy(to, from, 2);
    else if (nbytes == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, 8);
}

/* Elements [first, first + count) of the transposed matrix [rows, columns], which is stored as [columns, rows]: the
 * rows that they touch in strips, each strip column by column. */
static void read_turned(const tri_view_part *part, tri_dtype dtype, int64_t columns, int64_t first, int64_t count,
                        char *out)
{
    double aligned[RUN_COUNT];
    char *run = (char *)aligned;
    int64_t rows = part->rows, end = first + count;
    int64_t last_row = (end - 1) / columns + 1;
    size_t each = tri_dtype_nbytes(dtype);
    for (int64_t row = first / columns, strip; row < last_row; row += strip) {
        strip = last_row - row < RUN_COUNT ? last_row - row : RUN_COUNT;
        for (int64_t column = 0; column < columns; column++) {
            read_run(part->from, dtype, column * rows + row, strip, run);
            for (int64_t i = 0; i < strip; i++) {
                int64_t at = (row + i) * columns + column;
                if (at >= first && at < end)
                    copy_element(out + (size_t)(at - first) * each, run + (size_t)i * each, each);
            }
        }
    }
}

void tri_tensor_view_read_as(const tri_tensor_view *view, tri_dtype dtype, int64_t first, int64_t count, void *out)
{
    int64_t rows = 0, all = tri_shape_count(view->shape);
    char *to = out;
    TRI_ASSERT(first >= 0 && count >= 0 && first + count <= all && tri_tensor_view_reads(dtype));
    for (int p = 0; p < view->part_count; p++)
        rows += view->parts[p].rows;
    int64_t columns = rows > 0 ? all / rows : 0;
    for (int p = 0; p < view->part_count && count > 0; p++) {
        const tri_view_part *part = &view->parts[p];
        int64_t held = part->rows * columns, taken = held - first < count ? held - first : count;
        if (first >= held) {
            first -= held;
            continue;
        }
        if (part->transposed)
            read_turned(part, dtype, columns, first, taken, to);
        else
            read_run(part->from, dtype, part->first_row * columns + first, taken, to);
        to += (size_t)taken * tri_dtype_nbytes(dtype);
        count -= taken;
        first = 0;
    }
}

void tri_tensor_view_read(const tri_tensor_view *view, int64_t first, int64_t count, float *out)
{
    tri_tensor_view_read_as(view, TRI_F32, first, count, out);
}
