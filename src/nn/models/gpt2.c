/* SPDX-License-Identifier: Apache-2.0
 *
 * gpt2.c: Radford et al., "Language models are unsupervised multitask learners", 2019; fields and names of parameters
 * as Hugging Face's GPT-2, matrices [out, in]. Initial weights as nanoGPT's.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "nn/models/models.h"
#include "nn/parts.h"

typedef struct gpt2_form {
    int64_t layers, heads, width, positions, inner, words;
    tri_value (*activation)(tri_model *model, tri_value x);
    double epsilon, deviation, residual_drop, embedding_drop, attention_drop;
    bool tied, checkpoint;
} gpt2_form;

static const struct {
    const char *name;
    tri_value (*add)(tri_model *model, tri_value x);
} activations[] = {{"gelu_new", tri_gelu}, {"gelu", tri_gelu_erf}, {"relu", tri_relu}, {"silu", tri_silu}};

static tri_status activation_read(const tri_yaml *config, gpt2_form *form)
{
    const tri_yaml *field = tri_yaml_find(config, "activation_function");
    const char *names[TRI_COUNT_OF(activations) + 1] = {NULL};
    const char *word = field && field->kind == TRI_YAML_SCALAR ? field->text : field ? "" : "gelu_new";
    form->activation = NULL;
    for (size_t i = 0; i < TRI_COUNT_OF(activations); i++) {
        names[i] = activations[i].name;
        if (strcmp(word, activations[i].name) == 0)
            form->activation = activations[i].add;
    }
    return form->activation ? TRI_OK : tri_field_unknown(field, "activation_function", word, names);
}

static tri_status form_read(const tri_model_plan *plan, gpt2_form *form)
{
    const tri_yaml *config = plan->config;
    *form = (gpt2_form){.layers = 12,
                        .heads = 12,
                        .width = 768,
                        .positions = plan->sample.dim[0],
                        .epsilon = 1e-5,
                        .deviation = 0.02,
                        .tied = true};
    TRI_TRY(tri_plan_words(plan, &form->words));
    TRI_TRY(tri_field_int(config, "n_layer", 1, 10000, &form->layers));
    TRI_TRY(tri_field_int(config, "n_head", 1, 1 << 16, &form->heads));
    TRI_TRY(tri_field_int(config, "n_embd", 1, 1 << 20, &form->width));
    TRI_TRY(tri_field_int(config, "n_positions", 1, 1 << 30, &form->positions));
    form->inner = 4 * form->width;
    TRI_TRY(tri_field_int(config, "n_inner", 1, 1 << 24, &form->inner));
    TRI_TRY(tri_field_real(config, "layer_norm_epsilon", 1e-12, 1, &form->epsilon));
    TRI_TRY(tri_field_real(config, "initializer_range", 1e-9, 100, &form->deviation));
    TRI_TRY(tri_field_real(config, "resid_pdrop", 0, 0.999, &form->residual_drop));
    TRI_TRY(tri_field_real(config, "embd_pdrop", 0, 0.999, &form->embedding_drop));
    TRI_TRY(tri_field_real(config, "attn_pdrop", 0, 0.999, &form->attention_drop));
    TRI_TRY(tri_field_bool(config, "tie_word_embeddings", &form->tied));
    TRI_TRY(tri_field_bool(config, "checkpoint", &form->checkpoint));
    TRI_TRY(activation_read(config, form));
    TRI_TRY(tri_plan_cut(plan, "n_head", "heads", form->heads));
    TRI_TRY(tri_plan_cut(plan, "n_inner", "inner units", form->inner));
    char place[32];
    if (form->width % form->heads != 0)
        return tri_fail(TRI_ECONFIG, "%sn_head: want a divisor of n_embd (%lld), got %lld",
                        tri_field_place(tri_yaml_find(config, "n_head"), place), (long long)form->width,
                        (long long)form->heads);
    if (form->positions < plan->sample.dim[0])
        return tri_fail(TRI_ECONFIG, "%sn_positions: want at least the %lld tokens of a sample, got %lld",
                        tri_field_place(tri_yaml_find(config, "n_positions"), place), (long long)plan->sample.dim[0],
                        (long long)form->positions);
    return TRI_OK;
}

static tri_value norm(tri_model *m, const gpt2_form *form, tri_value x, const char *name)
{
    return tri_layer_norm(m, x, (tri_norm_options){.epsilon = (float)form->epsilon, .name = name});
}

static tri_value attend(tri_model *m, const void *form, tri_value x, int parts)
{
    const gpt2_form *of = form;
    return tri_attention(
        m, x, (tri_attention_options){.heads = (int)of->heads / parts, .dropout = (float)of->attention_drop});
}

static tri_value activate(tri_model *m, const void *form, tri_value x, int parts)
{
    (void)parts;
    return ((const gpt2_form *)form)->activation(m, x);
}

/* x and what `pair` makes of f. The way back to the residual stream has smaller weights, so that the sum over layers
 * keeps its deviation. */
static tri_value branch_add(tri_model *m, const gpt2_form *form, tri_value x, tri_value f, tri_pair pair)
{
    pair.form = form;
    pair.row.units = form->width;
    pair.row_deviation = (float)(form->deviation / sqrt(2.0 * (double)form->layers));
    f = tri_pair_add(m, f, &pair);
    return tri_add(m, x, form->residual_drop > 0 ? tri_dropout(m, f, (float)form->residual_drop) : f);
}

static tri_value layer_add(tri_model *m, const void *of, tri_value x)
{
    const gpt2_form *form = of;
    x = branch_add(m, form, x, norm(m, form, x, "ln_1"),
                   (tri_pair){.column = {.units = 3 * form->width, .name = "attn.c_attn"},
                              .groups = 3,
                              .between = attend,
                              .row = {.name = "attn.c_proj"}});
    return branch_add(m, form, x, norm(m, form, x, "ln_2"),
                      (tri_pair){.column = {.units = form->inner, .name = "mlp.c_fc"},
                                 .between = activate,
                                 .row = {.name = "mlp.c_proj"}});
}

tri_status tri_gpt2_build(const tri_model_plan *plan, tri_value *logits)
{
    gpt2_form form;
    TRI_TRY(form_read(plan, &form));
    tri_model *m = plan->model;
    tri_model_init_normal(m, (float)form.deviation);
    tri_value x = tri_embedding(m, plan->x, form.words, form.width, "wte");
    x = tri_positions(m, x, form.positions, "wpe");
    if (form.embedding_drop > 0)
        x = tri_dropout(m, x, (float)form.embedding_drop);
    x = tri_layer_stack_add(m, &(tri_layer_stack){"h.", form.layers, form.checkpoint, layer_add, &form}, x);
    *logits = norm(m, &form, x, "ln_f");
    tri_vocab_loss(m, *logits, plan->y,
                   (tri_vocab_loss_options){.words = form.words,
                                            .smoothing = (float)plan->smoothing,
                                            .forget = form.checkpoint,
                                            .name = "lm_head",
                                            .tied = form.tied ? "wte.weight" : NULL});
    return TRI_OK;
}
