/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: the ready models by name, and what they have in common: input, target, loss.
 */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "nn/models/models.h"
#include "nn/parts.h"

static const tri_model_row rows[] = {
    {.name = "mlp",
     .does = "linear layers with relu",
     .fields = {"hidden", "dropout", "flatten"},
     .fields_help = "hidden: [512, 256], dropout: 0, flatten: hwc",
     .parts = true,
     .build = tri_mlp_build},
    {.name = "lenet",
     .does = "LeNet-5 with relu and max pooling",
     .fields = {"flatten"},
     .fields_help = "flatten: hwc",
     .build = tri_lenet_build},
    {.name = "cnn",
     .does = "two 3x3 convolutions, pool, two linear layers",
     .fields = {"channels", "hidden", "dropout", "flatten"},
     .fields_help = "channels: [32, 64], hidden: 128, dropout: 0, flatten: hwc",
     .build = tri_cnn_build},
    {.name = "resnet",
     .does = "residual network: depth 20, 32, 44, 56 for small images, 18, 34, 50 for large ones",
     .fields = {"depth", "sync_batch_norm"},
     .fields_help = "depth: 20, sync_batch_norm: true unless train.shards is given",
     .build = tri_resnet_build},
    {.name = "vgg",
     .does = "VGG with 11, 13, 16 or 19 layers",
     .fields = {"depth", "batch_norm", "sync_batch_norm", "dropout", "flatten"},
     .fields_help = "depth: 11, batch_norm: true, sync_batch_norm: as in resnet, dropout: 0.5, up to 64x64 pixels 0, "
                    "flatten: hwc",
     .build = tri_vgg_build},
    {.name = "gpt2",
     .does = "GPT-2 over tokens, fields as Hugging Face",
     .fields = {"n_layer", "n_head", "n_embd", "n_positions", "n_inner", "vocab_size", "activation_function",
                "layer_norm_epsilon", "resid_pdrop", "embd_pdrop", "attn_pdrop", "tie_word_embeddings",
                "initializer_range", "checkpoint"},
     .fields_help = "n_layer: 12, n_head: 12, n_embd: 768, n_positions: the samples', activation_function: gelu_new",
     .parts = true,
     .tokens = true,
     .build = tri_gpt2_build},
    {.name = "llama",
     .does = "Llama over tokens, fields as Hugging Face",
     .fields = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                "head_dim", "max_position_embeddings", "vocab_size", "rms_norm_eps", "rope_theta", "rope_scaling",
                "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act", "attention_dropout",
                "initializer_range", "checkpoint"},
     .fields_help = "hidden_size: 512, num_hidden_layers: 8, num_attention_heads: 8, num_key_value_heads: the same",
     .parts = true,
     .tokens = true,
     .build = tri_llama_build},
    {.name = "layers",
     .does = "a list of layers",
     .fields = {"layers", "sync_batch_norm"},
     .fields_help = "layers: [conv2d: {out: 32, kernel: 3}, relu, flatten, linear: classes]",
     .build = tri_layers_build},
};

int64_t tri_plan_outputs(const tri_model_plan *plan)
{
    return plan->classes > 0 ? plan->classes : plan->numbers;
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

tri_status tri_plan_cut(const tri_model_plan *plan, const char *field, const char *what, int64_t count)
{
    char place[32];
    int parts = tri_model_parts(plan->model);
    if (count % parts == 0)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG, "%s%s: want %s that the %d tensor parts divide, got %lld",
                    tri_field_place(tri_yaml_find(plan->config, field), place), field, what, parts, (long long)count);
}

tri_status tri_plan_words(const tri_model_plan *plan, int64_t *words)
{
    char place[32];
    *words = plan->classes;
    TRI_TRY(tri_field_int(plan->config, "vocab_size", 1, INT32_MAX, words));
    if (*words < 1)
        return tri_fail(TRI_ECONFIG, "model: want a vocab_size, the data has no number of tokens");
    if (*words < plan->classes)
        return tri_fail(TRI_ECONFIG, "%svocab_size: want at least the %lld tokens of the data, got %lld",
                        tri_field_place(tri_yaml_find(plan->config, "vocab_size"), place), (long long)plan->classes,
                        (long long)*words);
    if (*words < tri_model_parts(plan->model))
        return tri_fail(TRI_ECONFIG, "vocab_size: want at least one word for each of the %d tensor parts, got %lld",
                        tri_model_parts(plan->model), (long long)*words);
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
    const char *word = layers ? "layers" : name->text; /* with layers, another name is only a title */
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        names[i] = rows[i].name;
        if (strcmp(rows[i].name, word) == 0)
            *out = &rows[i];
        if (layers && name && strcmp(name->text, "layers") != 0 && strcmp(name->text, rows[i].name) == 0)
            return tri_fail(TRI_ECONFIG, "model: want either name: %s or layers, got both", name->text);
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

/* Models of tokens make their loss themselves. */
static tri_status tokens_fill(const tri_model_row *row, tri_model_plan *plan)
{
    char text[96];
    tri_value logits = -1;
    if (plan->sample.ndim != 1)
        return tri_fail(TRI_ECONFIG, "model %s: want samples of tokens [T], got samples of shape %s", row->name,
                        tri_shape_print(plan->sample, text));
    if (plan->model->split.sequence && plan->sample.dim[0] % tri_model_parts(plan->model) != 0)
        return tri_fail(TRI_ECONFIG, "model %s: want samples of tokens that the %d tensor parts divide, got %lld",
                        row->name, tri_model_parts(plan->model), (long long)plan->sample.dim[0]);
    plan->x = tri_model_input(plan->model, TRI_I32, plan->sample);
    plan->y = tri_model_target(plan->model, TRI_I32, plan->sample);
    TRI_TRY(row->build(plan, &logits));
    tri_model_scope(plan->model, "");
    return tri_model_finish(plan->model);
}

/* Whether a layer of this name is somewhere in a list of layers. */
static bool has_layer(const tri_yaml *node, const char *name)
{
    for (; node; node = node->next)
        if ((node->key && strcmp(node->key, name) == 0) ||
            (node->kind == TRI_YAML_SCALAR && node->text && strcmp(node->text, name) == 0) ||
            (node->kind != TRI_YAML_SCALAR && has_layer(node->child, name)))
            return true;
    return false;
}

bool tri_model_has_batch_norms(const tri_yaml *config)
{
    const tri_yaml *name = tri_yaml_find(config, "name"), *layers = tri_yaml_find(config, "layers");
    bool norms = true;
    if (layers)
        return has_layer(layers->child, "batch_norm");
    if (!name || name->kind != TRI_YAML_SCALAR)
        return false;
    if (strcmp(name->text, "vgg") == 0)
        return tri_field_bool(config, "batch_norm", &norms) == TRI_OK && norms;
    return strcmp(name->text, "resnet") == 0;
}

static tri_status model_fill(const tri_model_row *row, const tri_yaml *config, tri_shape sample, int64_t outputs,
                             tri_model *model)
{
    const int64_t classes = outputs > 0 ? outputs : 0;
    double smoothing = 0;
    bool sync = false;
    TRI_TRY(row_check(row, config));
    TRI_TRY(tri_field_real(config, "smoothing", 0, 1, &smoothing));
    TRI_TRY(tri_field_bool(config, "sync_batch_norm", &sync));
    tri_model_sync_batch_norm(model, sync);
    tri_model_plan plan = {
        .model = model, .config = config, .sample = sample, .classes = classes, .smoothing = smoothing};
    plan.numbers = outputs < 0 ? -outputs : 1;
    if (row->tokens)
        return tokens_fill(row, &plan);
    plan.x = tri_model_input(model, tri_layers_read_numbers(config) ? TRI_I32 : TRI_F32, sample);
    tri_value logits = -1;
    TRI_TRY(row->build(&plan, &logits));
    tri_model_scope(model, "");
    TRI_TRY(check_outputs(model, logits, classes));
    if (sync && model->status == TRI_OK && tri_model_sync_channels(model) == 0)
        return tri_fail(TRI_ECONFIG, "model.sync_batch_norm: want a model with batch norms, %s has none here",
                        row->name);
    if (smoothing > 0 && classes == 0)
        return tri_fail(TRI_ECONFIG, "model.smoothing: want targets that are classes, got real numbers");
    /* Cross entropy over classes, or the squared error of real targets. */
    tri_shape target = tri_model_shape(model, logits);
    if (classes > 0 && target.ndim > 0)
        target.ndim--;
    tri_value y = tri_model_target(model, classes > 0 ? TRI_I32 : TRI_F32, target);
    if (classes > 0)
        tri_cross_entropy(model, logits, y, (float)smoothing);
    else
        tri_mse(model, logits, y);
    return tri_model_finish(model);
}

tri_status tri_model_build(const tri_yaml *config, tri_shape sample, int64_t classes, tri_model **out)
{
    return tri_model_build_split(config, (tri_model_split){0}, sample, classes, out);
}

/* Models that can be cut, in words. */
static const char *cut_names(char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0, used = 0; i < TRI_COUNT_OF(rows) && used < size; i++)
        if (rows[i].parts)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", rows[i].name);
    return text;
}

tri_status tri_model_build_split(const tri_yaml *config, tri_model_split split, tri_shape sample, int64_t classes,
                                 tri_model **out)
{
    const tri_model_row *row = NULL;
    char names[64];
    TRI_TRY(row_find(config, &row));
    tri_status sound = tri_split_check(split);
    if (sound != TRI_OK)
        return tri_fail_copy(TRI_ECONFIG, tri_last_error());
    if (split.parts > 1 && !row->parts)
        return tri_fail(TRI_ECONFIG, "model %s: cannot be cut into %d tensor parts, only %s can", row->name,
                        split.parts, cut_names(names, sizeof(names)));
    if (split.sequence && !row->tokens)
        return tri_fail(TRI_ECONFIG, "model %s: has no tokens that tensor ranks could share out", row->name);
    split.sequence = split.sequence && split.parts > 1;
    tri_model *model;
    TRI_TRY(tri_model_create(row->name, &model));
    model->split = split;
    tri_status status = model_fill(row, config, sample, classes, model);
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
