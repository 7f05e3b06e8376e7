/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c: values, nodes and parameters in the order they were made; the first failure sticks.
 *
 * Every op comes in through tri_model_add(): shapes from tri_op_infer() with a batch of one, names made unique, and
 * only then is anything appended, so that a failed call leaves no half of a node.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "nn/build.h"

tri_status tri_model_create(const char *name, tri_model **out)
{
    tri_model *model = tri_alloc_zero(1, sizeof(*model));
    if (!model)
        return TRI_ENOMEM;
    model->nodes.each = sizeof(tri_node);
    model->values.each = sizeof(tri_value_spec);
    model->params.each = sizeof(tri_param_spec);
    model->ties.each = sizeof(int);
    model->input = model->target = model->logits = model->loss = -1;
    model->conv_init = TRI_INIT_FAN_IN;
    model->name = tri_arena_strdup(&model->arena, name ? name : "model");
    model->scope = tri_arena_strdup(&model->arena, "");
    if (!model->name || !model->scope) {
        tri_model_destroy(model);
        return TRI_ENOMEM;
    }
    *out = model;
    return TRI_OK;
}

void tri_model_destroy(tri_model *model)
{
    if (!model)
        return;
    tri_map_fini(&model->counts);
    tri_vector_fini(&model->ties);
    tri_vector_fini(&model->params);
    tri_vector_fini(&model->values);
    tri_vector_fini(&model->nodes);
    tri_arena_fini(&model->arena);
    tri_free(model);
}

tri_value tri_model_fail(tri_model *model, tri_status status)
{
    if (model->status == TRI_OK) {
        model->status = status;
        snprintf(model->message, sizeof(model->message), "%s", tri_last_error());
    }
    return -1;
}

const tri_value_spec *tri_model_value(const tri_model *model, tri_value value)
{
    if (model->status != TRI_OK || value < 0 || (size_t)value >= model->values.count)
        return NULL;
    return tri_vector_at(&model->values, (size_t)value);
}

tri_value tri_model_image(tri_model *model, tri_op op, tri_value x)
{
    const tri_value_spec *spec = tri_model_value(model, x);
    char text[96];
    if (!spec || spec->sample.ndim == 3)
        return x;
    return tri_model_fail(model, tri_fail(TRI_EINVAL, "%s needs an image sample [H, W, C], got %s", tri_op_name(op),
                                          tri_shape_print(spec->sample, text)));
}

tri_shape tri_shape_batched(tri_shape sample, int64_t rows)
{
    tri_shape shape = {.ndim = sample.ndim + 1, .dim = {rows}};
    memcpy(shape.dim + 1, sample.dim, (size_t)sample.ndim * sizeof(sample.dim[0]));
    return shape;
}

tri_shape tri_model_shape(const tri_model *model, tri_value value)
{
    const tri_value_spec *spec = tri_model_value(model, value);
    return spec ? spec->sample : (tri_shape){0};
}

int64_t tri_model_param_count(const tri_model *model)
{
    int64_t count = 0;
    const tri_param_spec *specs = model->params.items;
    for (size_t i = 0; i < model->params.count; i++)
        count += specs[i].buffer ? 0 : tri_shape_count(specs[i].shape);
    return count;
}

void tri_model_scope(tri_model *model, const char *prefix)
{
    if (model->status != TRI_OK)
        return;
    char *scope = tri_arena_strdup(&model->arena, prefix ? prefix : "");
    if (scope)
        model->scope = scope;
    else
        tri_model_fail(model, TRI_ENOMEM);
}

void tri_model_init_normal(tri_model *model, float deviation)
{
    model->deviation = deviation;
}

void tri_model_sync_batch_norm(tri_model *model, bool sync)
{
    model->sync_norm = sync;
}

int64_t tri_model_sync_channels(const tri_model *model)
{
    const tri_node *nodes = model->nodes.items;
    const tri_param_spec *specs = model->params.items;
    int64_t most = 0;
    for (size_t n = 0; n < model->nodes.count; n++)
        if (nodes[n].attr.sync && specs[nodes[n].param[0]].shape.dim[0] > most)
            most = specs[nodes[n].param[0]].shape.dim[0];
    return most;
}

void tri_model_block_begin(tri_model *model)
{
    model->block = ++model->block_count;
}

void tri_model_block_end(tri_model *model)
{
    model->block = 0;
}

/* --- what comes from the data set --- */

static tri_status check_sample(const char *what, tri_dtype dtype, tri_shape sample)
{
    if (dtype != TRI_F32 && dtype != TRI_I32)
        return tri_fail(TRI_EINVAL, "%s: want elements of type f32 or i32, got %s", what, tri_dtype_name(dtype));
    if (sample.ndim < 0 || sample.ndim >= TRI_MAX_DIMS)
        return tri_fail(TRI_EINVAL, "%s: want a sample of 0 to %d dimensions, got %d", what, TRI_MAX_DIMS - 1,
                        sample.ndim);
    int64_t count = 1;
    for (int i = 0; i < sample.ndim; i++) {
        if (sample.dim[i] < 1 || sample.dim[i] > (INT64_C(1) << 40) / count)
            return tri_fail(TRI_EINVAL, "%s: dimension %d: want 1 or more, and 2^40 elements at most, got %lld", what,
                            i, (long long)sample.dim[i]);
        count *= sample.dim[i];
    }
    return TRI_OK;
}

static tri_value value_add(tri_model *model, tri_dtype dtype, tri_shape sample, int producer)
{
    tri_value_spec spec = {.dtype = dtype, .sample = sample, .producer = producer};
    if (!tri_vector_push(&model->values, &spec))
        return tri_model_fail(model, TRI_ENOMEM);
    return (tri_value)model->values.count - 1;
}

static tri_value source_add(tri_model *model, const char *what, tri_dtype dtype, tri_shape sample, tri_value *slot)
{
    if (model->status != TRI_OK)
        return -1;
    if (*slot >= 0)
        return tri_model_fail(model, tri_fail(TRI_EINVAL, "model %s has one %s already", model->name, what));
    tri_status status = check_sample(what, dtype, sample);
    if (status != TRI_OK)
        return tri_model_fail(model, status);
    *slot = value_add(model, dtype, sample, -1);
    return *slot;
}

tri_value tri_model_input(tri_model *model, tri_dtype dtype, tri_shape sample)
{
    return source_add(model, "input", dtype, sample, &model->input);
}

tri_value tri_model_target(tri_model *model, tri_dtype dtype, tri_shape sample)
{
    return source_add(model, "target", dtype, sample, &model->target);
}

/* --- nodes --- */

static tri_status desc_fill(const tri_model *model, const tri_build *build, tri_op_desc *desc)
{
    *desc = (tri_op_desc){.op = build->op, .attr = build->attr, .input_count = build->input_count};
    for (int i = 0; i < build->input_count; i++) {
        const tri_value_spec *spec = tri_model_value(model, build->input[i]);
        if (!spec)
            return tri_fail(TRI_EINVAL, "%s: input %d: there is no value %d", tri_op_name(build->op), i,
                            build->input[i]);
        if (model->loss >= 0)
            return tri_fail(TRI_EINVAL, "%s: the loss ends a model, nothing may follow it", tri_op_name(build->op));
        if (spec->sample.ndim >= TRI_MAX_DIMS)
            return tri_fail(TRI_EINVAL, "%s: input %d has too many dimensions", tri_op_name(build->op), i);
        desc->input[i] = tri_shape_batched(spec->sample, 1);
        desc->input_dtype[i] = spec->dtype;
    }
    return tri_op_infer(desc);
}

/* "<scope><name>" or "<scope><kind><N>". */
static char *layer_name(tri_model *model, const tri_build *build)
{
    if (build->name)
        return tri_arena_format(&model->arena, "%s%s", model->scope, build->name);
    char *key = tri_arena_format(&model->arena, "%s#%s", model->scope, build->kind);
    if (!key)
        return NULL;
    int64_t count = 0;
    (void)tri_map_find(&model->counts, key, &count);
    if (tri_map_set(&model->counts, key, count + 1) != TRI_OK)
        return NULL;
    return tri_arena_format(&model->arena, "%s%s%lld", model->scope, build->kind, (long long)(count + 1));
}

/* fan_in of the op's weight, or fan_out for HE: D and C as in weight[D, C, kh, kw]. */
static int64_t fan_of(tri_shape weight, tri_init init)
{
    int64_t window = 1;
    for (int i = 2; i < weight.ndim; i++)
        window *= weight.dim[i];
    if (init == TRI_INIT_HE)
        return weight.dim[0] * window;
    return weight.ndim > 1 ? weight.dim[1] * window : weight.dim[0];
}

/* The piece has the shape that the op needs. */
static tri_status check_piece(const char *name, tri_shape shape, tri_piece piece)
{
    if (piece.parts == 0)
        return TRI_OK;
    if (piece.dim < 0 || piece.dim >= shape.ndim || !tri_piece_is_sound(piece))
        return tri_fail(TRI_EINVAL, "%s: piece %d of %d of dimension %d in %d groups of %lld is none", name, piece.part,
                        piece.parts, piece.dim, piece.groups, (long long)piece.extent);
    if (tri_piece_count(piece) != shape.dim[piece.dim])
        return tri_fail(TRI_EINVAL, "%s: want %lld in dimension %d of piece %d of %d, got %lld", name,
                        (long long)tri_piece_count(piece), piece.dim, piece.part, piece.parts,
                        (long long)shape.dim[piece.dim]);
    return TRI_OK;
}

static tri_status param_add(tri_model *model, const tri_build *build, const tri_op_desc *desc, int p, const char *layer)
{
    const tri_build_param *wanted = &build->param[p];
    char *taken = tri_arena_format(&model->arena, "=%d/%s.%s", wanted->piece.part, layer, wanted->suffix);
    if (!taken)
        return TRI_ENOMEM;
    char *name = strchr(taken, '/') + 1;
    int64_t before;
    if (tri_map_find(&model->counts, taken, &before))
        return tri_fail(TRI_EINVAL, "two parameters are called %s", name);
    TRI_TRY(tri_map_set(&model->counts, taken, 1));
    TRI_TRY(check_piece(name, desc->param[p], wanted->piece));
    tri_param_spec spec = {
        .name = name,
        .shape = desc->param[p],
        .piece = wanted->piece,
        .init = wanted->init,
        .fan =
            build->fan > 0 ? build->fan : fan_of(tri_piece_whole(desc->param[0], build->param[0].piece), wanted->init),
        .deviation = model->deviation > 0 ? model->deviation : 1.0f,
        .decay = wanted->decay,
        .buffer = wanted->buffer,
        .momentum = build->attr.momentum > 0 ? build->attr.momentum : 0.1f,
        .elsewhere = model->elsewhere,
    };
    return tri_vector_push(&model->params, &spec) ? TRI_OK : TRI_ENOMEM;
}

/* Parameter 0 of the node is one that was made before. */
static tri_status param_tie(tri_model *model, const tri_build *build, const tri_op_desc *desc, tri_node *node)
{
    const tri_param_spec *specs = model->params.items;
    char wanted[96], found[96];
    for (size_t p = 0; p < model->params.count; p++) {
        if (strcmp(specs[p].name, build->tied) != 0 || !tri_piece_equal(specs[p].piece, build->param[0].piece))
            continue;
        if (!tri_shape_equal(specs[p].shape, desc->param[0]))
            return tri_fail(TRI_EINVAL, "%s: want tied weights of shape %s, %s has %s", tri_op_name(build->op),
                            tri_shape_print(desc->param[0], wanted), build->tied,
                            tri_shape_print(specs[p].shape, found));
        node->param[0] = (int)p;
        node->tie = (int)model->ties.count;
        return tri_vector_push(&model->ties, &node->param[0]) ? TRI_OK : TRI_ENOMEM;
    }
    return tri_fail(TRI_EINVAL, "%s: there is no parameter %s to share weights with", tri_op_name(build->op),
                    build->tied);
}

static tri_status node_add(tri_model *model, const tri_build *build, const tri_op_desc *desc, const char *layer)
{
    tri_node node = {.op = desc->op,
                     .attr = desc->attr,
                     .input_count = desc->input_count,
                     .param_count = desc->param_count,
                     .tie = -1,
                     .block = model->block};
    memcpy(node.input, build->input, sizeof(node.input));
    if (build->tied)
        TRI_TRY(param_tie(model, build, desc, &node));
    for (int p = build->tied ? 1 : 0; p < desc->param_count; p++) {
        node.param[p] = (int)model->params.count;
        TRI_TRY(param_add(model, build, desc, p, layer));
    }
    tri_shape sample = {0};
    if (!tri_op_row(desc->op)->loss) {
        sample.ndim = desc->output.ndim - 1;
        memcpy(sample.dim, desc->output.dim + 1, (size_t)sample.ndim * sizeof(sample.dim[0]));
    }
    node.output = value_add(model, desc->output_dtype, sample, model->elsewhere ? -1 : (int)model->nodes.count);
    if (model->elsewhere)
        return node.output >= 0 ? TRI_OK : TRI_ENOMEM;
    return node.output >= 0 && tri_vector_push(&model->nodes, &node) ? TRI_OK : TRI_ENOMEM;
}

bool tri_model_number(tri_model *model, const char *kind, uint64_t *number)
{
    int64_t count = 0;
    if (model->status != TRI_OK)
        return false;
    (void)tri_map_find(&model->counts, kind, &count);
    if (tri_map_set(&model->counts, kind, count + 1) != TRI_OK) {
        tri_model_fail(model, TRI_ENOMEM);
        return false;
    }
    *number = (uint64_t)count + 1;
    return true;
}

tri_value tri_model_add(tri_model *model, const tri_build *build)
{
    if (model->status != TRI_OK)
        return -1;
    tri_op_desc desc;
    const char *layer = build->name ? build->name : tri_op_name(build->op);
    tri_status status = desc_fill(model, build, &desc);
    if (status == TRI_OK && desc.param_count > 0) {
        layer = layer_name(model, build);
        status = layer ? TRI_OK : TRI_ENOMEM;
    }
    if (status == TRI_OK)
        status = node_add(model, build, &desc, layer);
    if (status == TRI_OK)
        return (tri_value)model->values.count - 1;
    if (status != TRI_ENOMEM)
        (void)tri_fail_context(status, "model %s, node %zu", model->name, model->nodes.count + 1);
    return tri_model_fail(model, status);
}

/* --- the end --- */

tri_status tri_model_check(const tri_model *model)
{
    if (model->status != TRI_OK)
        return tri_fail_copy(model->status, model->message);
    if (model->input < 0 || model->target < 0 || model->loss < 0)
        return tri_fail(TRI_EINVAL, "model %s: want an input, a target and a loss, got no %s", model->name,
                        model->input < 0    ? "input"
                        : model->target < 0 ? "target"
                                            : "loss");
    const tri_node *nodes = model->nodes.items;
    for (size_t n = 0; n < model->nodes.count; n++) {
        bool used = nodes[n].output == model->loss;
        for (size_t later = n + 1; !used && later < model->nodes.count; later++)
            for (int i = 0; i < nodes[later].input_count; i++)
                used = used || nodes[later].input[i] == nodes[n].output;
        if (!used)
            return tri_fail(TRI_EINVAL, "model %s: nothing uses the output of node %zu (%s)", model->name, n + 1,
                            tri_op_name(nodes[n].op));
    }
    return TRI_OK;
}

tri_status tri_model_finish(tri_model *model)
{
    return tri_model_check(model);
}
