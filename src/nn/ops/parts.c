/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c: builds layers in parts. Parts of other ranks are gone through as well, for the order and the names of their
 * parameters and the numbers of their dropouts; no node comes of them.
 */
#include "nn/parts.h"

#include "base/status.h"

static bool is_power_of_two(int number)
{
    return number > 0 && (number & (number - 1)) == 0;
}

tri_status tri_split_check(tri_model_split split)
{
    int parts = split.parts ? split.parts : 1, ranks = split.ranks ? split.ranks : 1;
    if (!is_power_of_two(parts) || parts > TRI_SPLIT_MAX_PARTS)
        return tri_fail(TRI_EINVAL, "model: want tensor parts that are a power of two from 1 to %d, got %d",
                        TRI_SPLIT_MAX_PARTS, parts);
    if (!is_power_of_two(ranks) || ranks > parts)
        return tri_fail(TRI_EINVAL,
                        "model: want tensor ranks that are a power of two and divide the %d tensor parts, got %d",
                        parts, ranks);
    if (split.rank < 0 || split.rank >= ranks)
        return tri_fail(TRI_EINVAL, "model: want a tensor rank below %d, got %d", ranks, split.rank);
    return TRI_OK;
}

/* It is the input, perhaps in another shape. */
static bool is_given(const tri_model *model, tri_value x)
{
    const tri_node *nodes = model->nodes.items;
    const tri_value_spec *spec = tri_model_value(model, x);
    while (spec && spec->producer >= 0 && tri_op_row(nodes[spec->producer].op)->renames) {
        x = nodes[spec->producer].input[0];
        spec = tri_model_value(model, x);
    }
    return x == model->input;
}

/* Between the layers that are cut, this rank has some of the tokens. */
static bool has_slices(const tri_model *model)
{
    return model->split.sequence && tri_model_ranks(model) > 1;
}

/* x as those read it who are one branch of a tree; the root of the tree also adds up over the ranks. */
static tri_value share(tri_model *model, tri_value x, bool root)
{
    if (is_given(model, x))
        return x; /* has no gradient, and so needs no tree */
    tri_build build = {.op = TRI_OP_SHARE_PARTS, .input_count = 1, .input = {x}};
    if (root) {
        build.op = has_slices(model) ? TRI_OP_GATHER_TOKENS : TRI_OP_SHARE_PARTS;
        build.attr.ranks = tri_model_ranks(model);
        build.attr.rank = model->split.rank;
    }
    return tri_model_add(model, &build);
}

/* Parts [first, first + count), count a power of two; -1: none of them is here. */
static tri_value tree(tri_model *model, tri_value x, const tri_parts *parts, int first, int count)
{
    int each = tri_model_parts(model) / tri_model_ranks(model), here = model->split.rank * each;
    bool mine = first >= here && first + count <= here + each;
    if (count == 1) {
        model->elsewhere = !mine;
        model->part = first;
        model->part_count = tri_model_parts(model);
        tri_value part = parts->add(model, parts->arg, x, first);
        model->part = model->part_count = 0;
        model->elsewhere = false;
        return mine ? part : -1;
    }
    tri_value a = tree(model, mine ? share(model, x, false) : x, parts, first, count / 2);
    tri_value b = tree(model, mine ? share(model, x, false) : x, parts, first + count / 2, count / 2);
    if (!mine)
        return a >= 0 ? a : b;
    tri_build build = {.op = parts->join, .input_count = 2, .input = {a, b}};
    return tri_model_add(model, &build);
}

tri_value tri_parts_add(tri_model *model, tri_value x, const tri_parts *parts)
{
    return tree(model, share(model, x, true), parts, 0, tri_model_parts(model));
}

tri_value tri_parts_sum(tri_model *model, tri_value x)
{
    tri_build build = {.op = has_slices(model) ? TRI_OP_SPREAD_TOKENS : TRI_OP_SUM_PARTS,
                       .attr = {.ranks = tri_model_ranks(model), .rank = model->split.rank},
                       .input_count = 1,
                       .input = {x}};
    return tri_model_add(model, &build);
}

/* --- two linear layers --- */

static tri_value pair_part(tri_model *model, const void *arg, tri_value x, int part)
{
    const tri_pair *pair = arg;
    int parts = tri_model_parts(model);
    tri_linear_options column = pair->column, row = pair->row;
    tri_piece cut = {parts, part, 0, pair->groups > 0 ? pair->groups : 1, column.units, pair->lead};
    column.units = tri_piece_count(cut);
    x = tri_linear_piece(model, x, column, cut, cut);
    tri_value between = pair->between ? pair->between(model, pair->form, x, parts) : x;
    tri_shape shape = tri_model_shape(model, between);
    if (shape.ndim < 1)
        return -1;
    row.no_bias = true;
    row.relu = false;
    float deviation = model->deviation;
    if (pair->row_deviation > 0)
        model->deviation = pair->row_deviation;
    x = tri_linear_piece(model, between, row, (tri_piece){parts, part, 1, 1, shape.dim[shape.ndim - 1] * parts, 0},
                         (tri_piece){0});
    model->deviation = deviation;
    return x;
}

/* fan: inputs of the layer that it belongs to. */
static tri_value bias_add(tri_model *model, tri_value x, const char *name, int64_t fan)
{
    tri_build build = {.op = TRI_OP_BIAS,
                       .input_count = 1,
                       .input = {x},
                       .kind = "fc",
                       .name = name,
                       .fan = fan,
                       .param = {{"bias", model->deviation > 0 ? TRI_INIT_ZERO : TRI_INIT_FAN_IN, false, false, {0}}}};
    tri_tokens_attr(model, &build.attr);
    return tri_model_add(model, &build);
}

static tri_value pair_whole(tri_model *model, tri_value x, const tri_pair *pair)
{
    float deviation = model->deviation;
    x = tri_linear(model, x, pair->column);
    if (pair->between)
        x = pair->between(model, pair->form, x, 1);
    if (pair->row_deviation > 0)
        model->deviation = pair->row_deviation;
    x = tri_linear(model, x, pair->row);
    model->deviation = deviation;
    return x;
}

tri_value tri_pair_add(tri_model *model, tri_value x, const tri_pair *pair)
{
    const tri_param_spec *specs;
    if (tri_model_parts(model) == 1)
        return pair_whole(model, x, pair);
    x = tri_parts_sum(model, tri_parts_add(model, x, &(tri_parts){pair_part, pair, TRI_OP_ADD}));
    if (model->status != TRI_OK)
        return -1;
    specs = model->params.items; /* the last one is the last part of the second layer's weight */
    if (!pair->row.no_bias)
        x = bias_add(model, x, pair->row.name, specs[model->params.count - 1].piece.extent);
    return pair->row.relu ? tri_relu(model, x) : x;
}
