/* SPDX-License-Identifier: Apache-2.0
 *
 * layers.c: the `layers:` list: one item, one layer; a word, a word with its main figure, or a word with fields.
 *
 *     layers: [conv2d: {out: 32, kernel: 3, relu: true}, max_pool: 2, flatten, dropout: 0.5, linear: classes]
 *
 * A row of the table gives the word, the field that a lone figure means, and all fields; nothing else knows them.
 */
#include <string.h>

#include "base/status.h"
#include "nn/models/models.h"

#define MAX_FIELDS 12

typedef struct layer_row layer_row;
/* `fields` is a map, or NULL for a lone word. A failure of the model itself stays in the model. */
typedef tri_status (*layer_fn)(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x);
struct layer_row {
    const char *name, *figure; /* figure NULL: fields only */
    const char *fields[MAX_FIELDS];
    const char *needed[3]; /* fields that must be there */
    layer_fn add;
    tri_value (*map)(tri_model *model, tri_value x); /* layers without fields */
};

static tri_status list_add(const tri_model_plan *plan, const tri_yaml *list, tri_value *x);

#define MAX_DIM (1 << 24)

/* "3" or "[3, 5]" as height and width. */
static tri_status pair_read(const tri_yaml *fields, const char *name, int low, int out[2])
{
    const tri_yaml *field = tri_yaml_find(fields, name);
    int64_t values[2];
    char place[32];
    if (!field)
        return TRI_OK;
    if (field->kind == TRI_YAML_LIST) {
        if (tri_yaml_count(field) != 2)
            return tri_fail(TRI_ECONFIG, "%s%s: want one number or [height, width]", tri_field_place(field, place),
                            name);
        TRI_TRY(tri_yaml_int(field->child, name, low, MAX_DIM, &values[0]));
        TRI_TRY(tri_yaml_int(field->child->next, name, low, MAX_DIM, &values[1]));
    } else {
        TRI_TRY(tri_yaml_int(field, name, low, MAX_DIM, &values[0]));
        values[1] = values[0];
    }
    out[0] = (int)values[0];
    out[1] = (int)values[1];
    return TRI_OK;
}

static tri_status text_read(const tri_yaml *fields, const char *name, const char **out)
{
    const tri_yaml *field = tri_yaml_find(fields, name);
    char place[32];
    if (field && (field->kind != TRI_YAML_SCALAR || !field->text[0]))
        return tri_fail(TRI_ECONFIG, "%s%s: want a text", tri_field_place(field, place), name);
    if (field)
        *out = field->text;
    return TRI_OK;
}

/* Outputs of a layer: a number, or the word "classes". */
static tri_status out_read(const tri_model_plan *plan, const tri_yaml *fields, int64_t *out)
{
    const tri_yaml *field = tri_yaml_find(fields, "out");
    char place[32];
    if (field->kind != TRI_YAML_SCALAR || strcmp(field->text, "classes") != 0)
        return tri_yaml_int(field, "out", 1, MAX_DIM, out);
    if (plan->classes == 0)
        return tri_fail(TRI_ECONFIG, "%sthe data has no classes: write the number of outputs",
                        tri_field_place(field, place));
    *out = plan->classes;
    return TRI_OK;
}

/* --- the layers --- */

static tri_status conv_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x)
{
    (void)row;
    tri_conv_options options = {0};
    int64_t out = 0, groups = 1;
    bool bias = true;
    TRI_TRY(out_read(plan, fields, &out));
    TRI_TRY(pair_read(fields, "kernel", 1, options.kernel));
    TRI_TRY(pair_read(fields, "stride", 1, options.stride));
    TRI_TRY(pair_read(fields, "pad", 0, options.pad));
    TRI_TRY(pair_read(fields, "dilation", 1, options.dilation));
    TRI_TRY(tri_field_int(fields, "groups", 1, MAX_DIM, &groups));
    TRI_TRY(tri_field_bool(fields, "bias", &bias));
    TRI_TRY(tri_field_bool(fields, "relu", &options.relu));
    TRI_TRY(text_read(fields, "name", &options.name));
    options.channels = (int)out;
    options.groups = (int)groups;
    options.no_bias = !bias;
    *x = tri_conv(plan->model, *x, options);
    return TRI_OK;
}

static tri_status linear_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x)
{
    (void)row;
    tri_linear_options options = {0};
    bool bias = true;
    TRI_TRY(out_read(plan, fields, &options.units));
    TRI_TRY(tri_field_bool(fields, "bias", &bias));
    TRI_TRY(tri_field_bool(fields, "relu", &options.relu));
    TRI_TRY(text_read(fields, "name", &options.name));
    options.no_bias = !bias;
    *x = tri_linear(plan->model, *x, options);
    return TRI_OK;
}

static tri_status pool_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x)
{
    tri_pool_options options = {0};
    TRI_TRY(pair_read(fields, "kernel", 1, options.kernel));
    TRI_TRY(pair_read(fields, "stride", 1, options.stride));
    TRI_TRY(pair_read(fields, "pad", 0, options.pad));
    bool max = strcmp(row->name, "max_pool") == 0;
    *x = max ? tri_max_pool(plan->model, *x, options) : tri_avg_pool(plan->model, *x, options);
    return TRI_OK;
}

static tri_status norm_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x)
{
    tri_norm_options options = {0};
    double epsilon = 1e-5, momentum = 0.1;
    TRI_TRY(tri_field_real(fields, "epsilon", 1e-12, 1, &epsilon));
    TRI_TRY(tri_field_real(fields, "momentum", 1e-6, 1, &momentum));
    TRI_TRY(tri_field_bool(fields, "relu", &options.relu));
    TRI_TRY(text_read(fields, "name", &options.name));
    options.epsilon = (float)epsilon;
    options.momentum = (float)momentum;
    bool batch = strcmp(row->name, "batch_norm") == 0;
    *x = batch ? tri_batch_norm(plan->model, *x, options) : tri_layer_norm(plan->model, *x, options);
    return TRI_OK;
}

static tri_status dropout_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x)
{
    (void)row;
    double rate = 0;
    TRI_TRY(tri_field_real(fields, "rate", 0, 0.999, &rate));
    *x = tri_dropout(plan->model, *x, (float)rate);
    return TRI_OK;
}

/* Reads a list of whole numbers. */
static tri_status dims_read(const tri_yaml *fields, const char *name, int64_t low, int64_t out[TRI_MAX_DIMS],
                            int *count)
{
    const tri_yaml *field = tri_yaml_find(fields, name);
    char place[32];
    *count = 0;
    if (field->kind != TRI_YAML_LIST || tri_yaml_count(field) < 1 || tri_yaml_count(field) >= TRI_MAX_DIMS)
        return tri_fail(TRI_ECONFIG, "%s%s: want a list of 1 to %d numbers", tri_field_place(field, place), name,
                        TRI_MAX_DIMS - 1);
    for (const tri_yaml *item = field->child; item; item = item->next)
        TRI_TRY(tri_yaml_int(item, name, low, MAX_DIM, &out[(*count)++]));
    return TRI_OK;
}

static tri_status reshape_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x)
{
    (void)row;
    int64_t dims[TRI_MAX_DIMS];
    int count;
    TRI_TRY(dims_read(fields, "shape", 1, dims, &count));
    *x = tri_reshape(plan->model, *x, tri_shape_make(count, dims));
    return TRI_OK;
}

static tri_status transpose_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields,
                                  tri_value *x)
{
    (void)row;
    int64_t dims[TRI_MAX_DIMS];
    int count, axes[TRI_MAX_DIMS];
    char place[32];
    TRI_TRY(dims_read(fields, "axes", 0, dims, &count));
    if (count != tri_model_shape(plan->model, *x).ndim)
        return tri_fail(TRI_ECONFIG, "%saxes: want the %d dimensions of a sample in their new order, got %d",
                        tri_field_place(fields, place), tri_model_shape(plan->model, *x).ndim, count);
    for (int i = 0; i < count; i++)
        axes[i] = (int)dims[i];
    *x = tri_transpose(plan->model, *x, axes);
    return TRI_OK;
}

static tri_status flatten_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x)
{
    (void)row;
    tri_flatten_order order = TRI_FLATTEN_UNSTATED;
    TRI_TRY(tri_field_order(fields, "order", &order));
    *x = tri_flatten_in_order(plan->model, *x, order);
    return TRI_OK;
}

static tri_status embedding_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields,
                                  tri_value *x)
{
    (void)row;
    int64_t rows = 0, width = 0;
    const char *name = NULL;
    TRI_TRY(tri_field_int(fields, "rows", 1, INT32_MAX, &rows));
    TRI_TRY(tri_field_int(fields, "width", 1, MAX_DIM, &width));
    TRI_TRY(text_read(fields, "name", &name));
    *x = tri_embedding(plan->model, *x, rows, width, name);
    return TRI_OK;
}

/* x + f(x), or shortcut(x) + f(x). */
static tri_status residual_layer(const tri_model_plan *plan, const layer_row *row, const tri_yaml *fields, tri_value *x)
{
    (void)row;
    const tri_yaml *shortcut = tri_yaml_find(fields, "shortcut");
    tri_value inner = *x, outer = *x;
    bool relu = false;
    TRI_TRY(tri_field_bool(fields, "relu", &relu));
    TRI_TRY(list_add(plan, tri_yaml_find(fields, "layers"), &inner));
    if (shortcut)
        TRI_TRY(list_add(plan, shortcut, &outer));
    *x = tri_add(plan->model, inner, outer);
    if (relu)
        *x = tri_relu(plan->model, *x);
    return TRI_OK;
}

static const layer_row rows[] = {
    {"conv2d",
     NULL,
     {"out", "kernel", "stride", "pad", "dilation", "groups", "bias", "relu", "name"},
     {"out", "kernel"},
     conv_layer,
     NULL},
    {"linear", "out", {"out", "bias", "relu", "name"}, {"out"}, linear_layer, NULL},
    {"max_pool", "kernel", {"kernel", "stride", "pad"}, {"kernel"}, pool_layer, NULL},
    {"avg_pool", "kernel", {"kernel", "stride", "pad"}, {"kernel"}, pool_layer, NULL},
    {"batch_norm", NULL, {"epsilon", "momentum", "relu", "name"}, {NULL}, norm_layer, NULL},
    {"layer_norm", NULL, {"epsilon", "name"}, {NULL}, norm_layer, NULL},
    {"dropout", "rate", {"rate"}, {"rate"}, dropout_layer, NULL},
    {"embedding", NULL, {"rows", "width", "name"}, {"rows", "width"}, embedding_layer, NULL},
    {"residual", "layers", {"layers", "shortcut", "relu"}, {"layers"}, residual_layer, NULL},
    {"reshape", "shape", {"shape"}, {"shape"}, reshape_layer, NULL},
    {"transpose", "axes", {"axes"}, {"axes"}, transpose_layer, NULL},
    {"flatten", "order", {"order"}, {NULL}, flatten_layer, NULL},
    {.name = "global_pool", .map = tri_global_pool},
    {.name = "relu", .map = tri_relu},
    {.name = "gelu", .map = tri_gelu},
    {.name = "silu", .map = tri_silu},
    {.name = "tanh", .map = tri_tanh},
    {.name = "sigmoid", .map = tri_sigmoid},
    {.name = "softmax", .map = tri_softmax},
};

static const layer_row *row_find(const char *word, const char *names[TRI_COUNT_OF(rows) + 1])
{
    const layer_row *found = NULL;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        names[i] = rows[i].name;
        if (strcmp(word, rows[i].name) == 0)
            found = &rows[i];
    }
    names[TRI_COUNT_OF(rows)] = NULL;
    return found;
}

static tri_status row_apply(const tri_model_plan *plan, const layer_row *row, const tri_yaml *place_node,
                            const tri_yaml *fields, tri_value *x)
{
    char place[32];
    tri_field_place(place_node, place);
    if (row->map) {
        if (fields)
            return tri_fail(TRI_ECONFIG, "%slayer %s has no fields", place, row->name);
        *x = row->map(plan->model, *x);
    } else {
        TRI_TRY(tri_fields_check(fields, row->name, row->fields));
        for (size_t i = 0; i < TRI_COUNT_OF(row->needed) && row->needed[i]; i++)
            if (!tri_yaml_find(fields, row->needed[i]))
                return tri_fail(TRI_ECONFIG, "%slayer %s needs the field '%s'", place, row->name, row->needed[i]);
        TRI_TRY_IN(row->add(plan, row, fields, x), "layer %s", row->name);
    }
    if (*x < 0)
        return tri_fail(plan->model->status == TRI_ENOMEM ? TRI_ENOMEM : TRI_ECONFIG, "%s%s", place,
                        plan->model->message);
    return TRI_OK;
}

/* One item of the list: a word, or a map of one word to a figure, a list, or fields. */
static tri_status item_add(const tri_model_plan *plan, const tri_yaml *item, tri_value *x)
{
    const char *names[TRI_COUNT_OF(rows) + 1];
    char place[32];
    bool lone = item->kind == TRI_YAML_SCALAR;
    if (!lone && (item->kind != TRI_YAML_MAP || tri_yaml_count(item) != 1))
        return tri_fail(TRI_ECONFIG, "%swant one layer, such as 'relu' or 'linear: 128', got %s",
                        tri_field_place(item, place),
                        item->kind == TRI_YAML_LIST ? "a list" : "a map of another length than one");
    const char *word = lone ? item->text : item->child->key;
    const tri_yaml *value = lone ? NULL : item->child;
    const layer_row *row = row_find(word, names);
    if (!row)
        return tri_field_unknown(item, "layer", word, names);
    if (!value || value->kind == TRI_YAML_MAP || (value->kind == TRI_YAML_SCALAR && !value->text[0]))
        return row_apply(plan, row, item, value && value->child ? value : NULL, x);
    if (!row->figure)
        return tri_fail(TRI_ECONFIG, "%slayer %s needs %s", tri_field_place(item, place), word,
                        row->map ? "no fields" : "its fields by name, such as {out: 32}");
    tri_yaml figure = *value; /* "linear: 128" is short for "linear: {out: 128}" */
    figure.key = row->figure;
    figure.next = NULL;
    tri_yaml fields = {.kind = TRI_YAML_MAP, .line = value->line, .child = &figure};
    return row_apply(plan, row, item, &fields, x);
}

/* A list of layers, or one layer. */
static tri_status list_add(const tri_model_plan *plan, const tri_yaml *list, tri_value *x)
{
    if (list->kind != TRI_YAML_LIST)
        return item_add(plan, list, x);
    for (const tri_yaml *item = list->child; item; item = item->next)
        TRI_TRY(item_add(plan, item, x));
    return TRI_OK;
}

bool tri_layers_read_numbers(const tri_yaml *config)
{
    const tri_yaml *list = tri_yaml_find(config, "layers");
    return list && list->kind == TRI_YAML_LIST && list->child && tri_yaml_find(list->child, "embedding");
}

tri_status tri_layers_build(const tri_model_plan *plan, tri_value *logits)
{
    const tri_yaml *list = tri_yaml_find(plan->config, "layers");
    char place[32];
    if (!list || list->kind != TRI_YAML_LIST || !list->child)
        return tri_fail(TRI_ECONFIG, "%slayers: want a list of layers", tri_field_place(list, place));
    *logits = plan->x;
    return list_add(plan, list, logits);
}
