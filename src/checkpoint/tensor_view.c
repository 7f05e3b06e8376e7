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

/* Elements of a stored tensor from `first` on. The bytes of a file may lie at any address: they are copied first. */
static void read_run(const tri_stored_tensor *from, int64_t first, int64_t count, float *out)
{
    size_t each = tri_dtype_nbytes(from->dtype);
    const char *bytes = (const char *)from->bytes + (size_t)first * each;
    if (from->dtype == TRI_F32) {
        memcpy(out, bytes, (size_t)count * each);
        return;
    }
    double aligned[RUN_COUNT]; /* of the widest type */
    for (int64_t at = 0, run; at < count; at += run) {
        run = count - at < RUN_COUNT ? count - at : RUN_COUNT;
        memcpy(aligned, bytes + (size_t)at * each, (size_t)run * each);
        tri_status status = tri_convert(out + at, TRI_F32, aligned, from->dtype, run);
        TRI_ASSERT(status == TRI_OK);
    }
}

/* Elements [first, first + count) of the transposed matrix [rows, columns], which is stored as [columns, rows]: the
 * rows that they touch in strips, each strip column by column. */
static void read_turned(const tri_view_part *part, int64_t columns, int64_t first, int64_t count, float *out)
{
    float run[RUN_COUNT];
    int64_t rows = part->rows, end = first + count;
    int64_t last_row = (end - 1) / columns + 1;
    for (int64_t row = first / columns, strip; row < last_row; row += strip) {
        strip = last_row - row < RUN_COUNT ? last_row - row : RUN_COUNT;
        for (int64_t column = 0; column < columns; column++) {
            read_run(part->from, column * rows + row, strip, run);
            for (int64_t i = 0; i < strip; i++) {
                int64_t at = (row + i) * columns + column;
                if (at >= first && at < end)
                    out[at - first] = run[i];
            }
        }
    }
}

void tri_tensor_view_read(const tri_tensor_view *view, int64_t first, int64_t count, float *out)
{
    int64_t rows = 0, all = tri_shape_count(view->shape);
    TRI_ASSERT(first >= 0 && count >= 0 && first + count <= all);
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
            read_turned(part, columns, first, taken, out);
        else
            read_run(part->from, part->first_row * columns + first, taken, out);
        out += taken;
        count -= taken;
        first = 0;
    }
}
