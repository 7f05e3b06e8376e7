/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding.c: builds the table that turns numbers into rows.
 */
#include "nn/parts.h"

typedef struct table {
    int64_t rows, width;
    const char *name;
} table;

/* Some of the rows: a part gives zeros for the numbers of the others. */
static tri_value table_part(tri_model *model, const void *arg, tri_value index, int part)
{
    const table *t = arg;
    int parts = tri_model_parts(model);
    tri_piece_range range = tri_piece_of_group(t->rows, 1, part, parts);
    tri_build build = {
        .op = TRI_OP_EMBEDDING,
        .attr = {.first = range.first, .units = range.count, .width = t->width},
        .input_count = 1,
        .input = {index},
        .kind = "embed",
        .name = t->name,
        .param = {{"weight", TRI_INIT_NORMAL, true, false, {0}}},
    };
    if (parts > 1)
        build.param[0].piece = (tri_piece){parts, part, 0, 1, t->rows, 0};
    return tri_model_add(model, &build);
}

tri_value tri_embedding(tri_model *model, tri_value index, int64_t rows, int64_t width, const char *name)
{
    table t = {rows, width, name};
    if (tri_model_parts(model) == 1)
        return table_part(model, &t, index, 0);
    return tri_parts_sum(model, tri_parts_add(model, index, &(tri_parts){table_part, &t, TRI_OP_ADD}));
}
