/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: the ready models by name, and what they have in common: input, target, loss.
 */
#include <string.h>

#include "base/status.h"
#include "nn/models/models.h"

static const tri_model_row rows[] = {
    {"mlp", "linear layers with relu", {"hidden", "dropout"}, "hidden: [512, 256], dropout: 0", tri_mlp_build},
    {"lenet", "LeNet-5 with relu and max pooling", {NULL}, "none", tri_lenet_build},
    {"cnn",
     "two 3x3 convolutions, pool, two linear layers",
     {"channels", "hidden", "dropout"},
     "channels: [32, 64], hidden: 128, dropout: 0",
     tri_cnn_build},
    {"resnet",
     "residual network: depth 20, 32, 44, 56 for small images, 18, 34, 50 for large ones",
     {"depth"},
     "depth: 20",
     tri_resnet_build},
    {"vgg",
     "VGG with 11, 13, 16 or 19 layers",
     {"depth", "batch_norm", "dropout"},
     "depth: 11, batch_norm: true, dropout: 0.5, up to 64x64 pixels 0",
     tri_vgg_build},
    {"layers",
     "a list of layers",
     {"layers"},
     "layers: [conv2d: {out: 32, kernel: 3}, relu, flatten, linear: classes]",
     tri_layers_build},
};

int64_t tri_plan_outputs(const tri_model_plan *plan)
{
    return plan->classes > 0 ? plan->classes : 1;
}

tri_status tri_plan_image(const tri_model_plan *plan, const char *name, int64_t *height, int64_t *width)
{
    char text[96];
    if (plan->sample.ndim != 2 && plan->sample.ndim != 3)
        return tri_fail(TRI_ECONFIG, "model %s: want images [H, W, C] or [H, W], got samples of shape %s", name,
                        tri_shape_print(plan->sample, text));
    *height = plan->sample.dim[0];
    *width = plan->sample.dim[1];
    return TRI_OK;
}

static tri_status row_find(const tri_yaml *config, const tri_model_row **out)
{
    const char *names[TRI_COUNT_OF(rows) + 1] = {NULL};
    const tri_yaml *name = tri_yaml_find(config, "name"), *layers = tri_yaml_find(config, "layers");
    if (!name && !layers)
        return tri_fail(TRI_ECONFIG, "model: want a name, such as 'name: cnn', or a list 'layers:'");
    if (name && name->kind != TRI_YAML_SCALAR)
        return tri_fail(TRI_ECONFIG, "line %d: model.name: want one name", name->line);
    const char *word = layers ? "layers" : name->text; /* with layers, the name is only a title */
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        names[i] = rows[i].name;
        if (strcmp(rows[i].name, word) == 0)
            *out = &rows[i];
    }
    return *out ? TRI_OK : tri_field_unknown(name, "model", word, names);
}

static tri_status row_check(const tri_model_row *row, const tri_yaml *config)
{
    /* The trainer's come last, and are never there: it takes them out. */
    const char *names[TRI_MODEL_MAX_FIELDS + 6] = {"name", "smoothing"};
    size_t count = 2;
    for (size_t i = 0; i < TRI_MODEL_MAX_FIELDS && row->fields[i]; i++)
        names[count++] = row->fields[i];
    names[count++] = "from";
    names[count++] = "freeze";
    names[count] = "reinit";
    char what[64];
    const tri_yaml *name = tri_yaml_find(config, "name");
    strcpy(what, "model ");
    strncat(what, name && strcmp(row->name, "layers") != 0 ? name->text : row->name, 40);
    return tri_fields_check(config, what, names);
}

/* Cross entropy over classes, or the squared error of real targets. */
static void loss_add(tri_model *model, tri_value logits, int64_t classes, double smoothing)
{
    tri_shape target = tri_model_shape(model, logits);
    if (classes > 0 && target.ndim > 0)
        target.ndim--;
    tri_value y = tri_model_target(model, classes > 0 ? TRI_I32 : TRI_F32, target);
    if (classes > 0)
        tri_cross_entropy(model, logits, y, (float)smoothing);
    else
        tri_mse(model, logits, y);
}

static tri_status check_outputs(const tri_model *model, tri_value logits, int64_t classes)
{
    tri_shape shape = tri_model_shape(model, logits);
    char text[96];
    if (model->status != TRI_OK || classes == 0)
        return TRI_OK;
    if (shape.ndim < 1 || shape.dim[shape.ndim - 1] != classes)
        return tri_fail(TRI_ECONFIG, "model %s: want the last layer to give %lld numbers, one for each class, got %s",
                        model->name, (long long)classes, tri_shape_print(shape, text));
    return TRI_OK;
}

static tri_status model_fill(const tri_model_row *row, const tri_yaml *config, tri_shape sample, int64_t classes,
                             tri_model *model)
{
    double smoothing = 0;
    TRI_TRY(row_check(row, config));
    TRI_TRY(tri_field_real(config, "smoothing", 0, 1, &smoothing));
    tri_model_plan plan = {.model = model, .config = config, .sample = sample, .classes = classes};
    plan.x = tri_model_input(model, tri_layers_read_numbers(config) ? TRI_I32 : TRI_F32, sample);
    tri_value logits = -1;
    TRI_TRY(row->build(&plan, &logits));
    tri_model_scope(model, "");
    TRI_TRY(check_outputs(model, logits, classes));
    loss_add(model, logits, classes, smoothing);
    return tri_model_finish(model);
}

tri_status tri_model_build(const tri_yaml *config, tri_shape sample, int64_t classes, tri_model **out)
{
    const tri_model_row *row = NULL;
    TRI_TRY(row_find(config, &row));
    tri_model *model;
    TRI_TRY(tri_model_create(row->name, &model));
    tri_status status = model_fill(row, config, sample, classes > 0 ? classes : 0, model);
    if (status != TRI_OK) {
        tri_model_destroy(model);
        return status == TRI_EINVAL ? tri_fail_copy(TRI_ECONFIG, tri_last_error()) : status;
    }
    *out = model;
    return TRI_OK;
}

tri_status tri_models_help(tri_string *out)
{
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        TRI_TRY(tri_string_appendf(out, "  %-8s %s (%s)\n", rows[i].name, rows[i].does, rows[i].fields_help));
    return TRI_OK;
}
