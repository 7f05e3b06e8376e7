/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding.c: builds the table that turns numbers into rows.
 */
#include "nn/build.h"

tri_value tri_embedding(tri_model *model, tri_value index, int64_t rows, int64_t width, const char *name)
{
    tri_build build = {
        .op = TRI_OP_EMBEDDING,
        .input_count = 1,
        .input = {index},
        .units = rows,
        .width = width,
        .kind = "embed",
        .name = name,
        .param = {{"weight", TRI_INIT_NORMAL, true, false}},
    };
    return tri_model_add(model, &build);
}
