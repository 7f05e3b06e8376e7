/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens.c: builds what transformers are made of: positions, rotations, attention.
 */
#include "nn/parts.h"

tri_value tri_positions(tri_model *model, tri_value x, int64_t count, const char *name)
{
    tri_build build = {
        .op = TRI_OP_POSITIONS,
        .attr = {.units = count},
        .input_count = 1,
        .input = {x},
        .kind = "pos",
        .name = name,
        .param = {{"weight", TRI_INIT_NORMAL, true, false, {0}}},
    };
    if (model->split.sequence) {
        build.attr.ranks = tri_model_ranks(model);
        build.attr.rank = model->split.rank;
        build.attr.first = model->split.rank * tri_model_shape(model, x).dim[0];
    }
    return tri_model_add(model, &build);
}

tri_value tri_rope(tri_model *model, tri_value x, tri_rope_options options)
{
    tri_build build = {
        .op = TRI_OP_ROPE,
        .attr = {.heads = options.heads,
                 .kv_heads = options.kv_heads,
                 .theta = options.theta == 0 ? 10000.0f : options.theta,
                 .rope_factor = options.factor,
                 .rope_low = options.low,
                 .rope_high = options.high,
                 .rope_context = options.context},
        .input_count = 1,
        .input = {x},
    };
    return tri_model_add(model, &build);
}

tri_value tri_attention(tri_model *model, tri_value x, tri_attention_options options)
{
    tri_build build = {
        .op = TRI_OP_ATTENTION,
        .attr = {.heads = options.heads, .kv_heads = options.kv_heads, .rate = options.dropout},
        .input_count = 1,
        .input = {x},
    };
    if (options.dropout >
        0) { /* all parts have one number and their heads in one row, so masks are those of the whole */
        if (model->part == 0 && !tri_model_number(model, "#attention", &model->attention))
            return -1;
        build.attr.key = model->attention;
        build.attr.first = model->part * options.heads;
        build.attr.whole = (model->part_count > 0 ? model->part_count : 1) * options.heads;
    }
    return tri_model_add(model, &build);
}
