/* SPDX-License-Identifier: Apache-2.0
 *
 * llama.c: Touvron et al., "LLaMA", 2023, with grouped queries (Llama 2) and scaled angles (Llama 3); fields and names
 * of parameters as Hugging Face's, but queries, keys and values in one matrix (self_attn.qkv_proj), and gate and up in
 * one (mlp.gate_up_proj), rows in that order.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "nn/models/models.h"
#include "nn/parts.h"

typedef struct llama_form {
    int64_t layers, width, inner, head_width, positions, words, heads, kv_heads;
    double epsilon, deviation, theta, drop;
    tri_rope_options rope;
    bool tied, attention_bias, mlp_bias, checkpoint;
} llama_form;

static tri_status text_check(const tri_yaml *config, const char *name, const char *only)
{
    const tri_yaml *field = tri_yaml_find(config, name);
    char place[32];
    if (!field || (field->kind == TRI_YAML_SCALAR && strcmp(field->text, only) == 0))
        return TRI_OK;
    return tri_fail(TRI_ECONFIG, "%s%s: want %s, got %.60s", tri_field_place(field, place), name, only,
                    field->kind == TRI_YAML_SCALAR ? field->text : "no word");
}

/* Nothing, null, or the map of Llama 3. */
static tri_status scaling_read(const tri_yaml *config, llama_form *form)
{
    static const char *const names[] = {
        "rope_type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL};
    const tri_yaml *field = tri_yaml_find(config, "rope_scaling");
    char place[32];
    double factor = 8, low = 1, high = 4;
    int64_t context = 8192;
    if (!field || (field->kind == TRI_YAML_SCALAR && (!field->text[0] || strcmp(field->text, "null") == 0)))
        return TRI_OK;
    if (field->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "%srope_scaling: want null or a map with rope_type: llama3",
                        tri_field_place(field, place));
    TRI_TRY(tri_fields_check(field, "rope_scaling", names));
    TRI_TRY(text_check(field, "rope_type", "llama3"));
    TRI_TRY(tri_field_real(field, "factor", 1, 1e6, &factor));
    TRI_TRY(tri_field_real(field, "low_freq_factor", 1e-6, 1e6, &low));
    TRI_TRY(tri_field_real(field, "high_freq_factor", 1e-6, 1e6, &high));
    TRI_TRY(tri_field_int(field, "original_max_position_embeddings", 1, 1 << 30, &context));
    form->rope.factor = (float)factor;
    form->rope.low = (float)low;
    form->rope.high = (float)high;
    form->rope.context = context;
    return TRI_OK;
}

static tri_status numbers_read(const tri_model_plan *plan, llama_form *form)
{
    const tri_yaml *config = plan->config;
    TRI_TRY(tri_plan_words(plan, &form->words));
    TRI_TRY(tri_field_int(config, "num_hidden_layers", 1, 10000, &form->layers));
    TRI_TRY(tri_field_int(config, "hidden_size", 1, 1 << 20, &form->width));
    /* Two thirds of four times the width, as whole 64s. */
    form->inner = (8 * form->width / 3 + 63) / 64 * 64;
    TRI_TRY(tri_field_int(config, "intermediate_size", 1, 1 << 24, &form->inner));
    TRI_TRY(tri_field_int(config, "num_attention_heads", 1, 1 << 16, &form->heads));
    form->kv_heads = form->heads;
    TRI_TRY(tri_field_int(config, "num_key_value_heads", 1, 1 << 16, &form->kv_heads));
    form->head_width = form->width / form->heads;
    TRI_TRY(tri_field_int(config, "head_dim", 1, 1 << 16, &form->head_width));
    TRI_TRY(tri_field_int(config, "max_position_embeddings", 1, 1 << 30, &form->positions));
    TRI_TRY(tri_field_real(config, "rms_norm_eps", 1e-12, 1, &form->epsilon));
    TRI_TRY(tri_field_real(config, "rope_theta", 1, 1e12, &form->theta));
    TRI_TRY(tri_field_real(config, "initializer_range", 1e-9, 100, &form->deviation));
    TRI_TRY(tri_field_real(config, "attention_dropout", 0, 0.999, &form->drop));
    TRI_TRY(tri_field_bool(config, "tie_word_embeddings", &form->tied));
    TRI_TRY(tri_field_bool(config, "attention_bias", &form->attention_bias));
    TRI_TRY(tri_field_bool(config, "mlp_bias", &form->mlp_bias));
    return tri_field_bool(config, "checkpoint", &form->checkpoint);
}

static tri_status form_read(const tri_model_plan *plan, llama_form *form)
{
    const tri_yaml *config = plan->config;
    *form = (llama_form){.layers = 8,
                         .width = 512,
                         .heads = 8,
                         .positions = plan->sample.dim[0],
                         .epsilon = 1e-6,
                         .deviation = 0.02,
                         .theta = 10000};
    TRI_TRY(numbers_read(plan, form));
    TRI_TRY(text_check(config, "hidden_act", "silu"));
    TRI_TRY(scaling_read(config, form));
    TRI_TRY(tri_plan_cut(plan, "num_attention_heads", "heads", form->heads));
    TRI_TRY(tri_plan_cut(plan, "num_key_value_heads", "heads of keys and values", form->kv_heads));
    TRI_TRY(tri_plan_cut(plan, "intermediate_size", "inner units", form->inner));
    char place[32];
    if (!tri_yaml_find(config, "head_dim") && form->width % form->heads != 0)
        return tri_fail(TRI_ECONFIG, "%snum_attention_heads: want a divisor of hidden_size (%lld), got %lld",
                        tri_field_place(tri_yaml_find(config, "num_attention_heads"), place), (long long)form->width,
                        (long long)form->heads);
    if (form->positions < plan->sample.dim[0])
        return tri_fail(TRI_ECONFIG, "%smax_position_embeddings: want at least the %lld tokens of a sample, got %lld",
                        tri_field_place(tri_yaml_find(config, "max_position_embeddings"), place),
                        (long long)plan->sample.dim[0], (long long)form->positions);
    form->rope.heads = (int)form->heads;
    form->rope.kv_heads = (int)form->kv_heads;
    form->rope.theta = (float)form->theta;
    return TRI_OK;
}

static tri_value norm(tri_model *m, const llama_form *form, tri_value x, const char *name)
{
    return tri_rms_norm(m, x, (tri_norm_options){.epsilon = (float)form->epsilon, .name = name});
}

static tri_value attend(tri_model *m, const void *of, tri_value x, int parts)
{
    const llama_form *form = of;
    tri_rope_options rope = form->rope;
    rope.heads /= parts;
    rope.kv_heads /= parts;
    return tri_attention(
        m, tri_rope(m, x, rope),
        (tri_attention_options){.heads = rope.heads, .kv_heads = rope.kv_heads, .dropout = (float)form->drop});
}

static tri_value gate(tri_model *m, const void *form, tri_value x, int parts)
{
    (void)form;
    (void)parts;
    return tri_swiglu(m, x);
}

/* x and what `pair` makes of f. The way back to the residual stream has smaller weights, so that the sum over layers
 * keeps its deviation. */
static tri_value branch_add(tri_model *m, const llama_form *form, tri_value x, tri_value f, tri_pair pair)
{
    pair.form = form;
    pair.row.units = form->width;
    pair.row.no_bias = pair.column.no_bias;
    pair.row_deviation = (float)(form->deviation / sqrt(2.0 * (double)form->layers));
    return tri_add(m, x, tri_pair_add(m, f, &pair));
}

static tri_value layer_add(tri_model *m, const void *of, tri_value x)
{
    const llama_form *form = of;
    tri_linear_options qkv = {.units = (form->heads + 2 * form->kv_heads) * form->head_width,
                              .no_bias = !form->attention_bias,
                              .name = "self_attn.qkv_proj"};
    tri_linear_options up = {.units = 2 * form->inner, .no_bias = !form->mlp_bias, .name = "mlp.gate_up_proj"};
    x = branch_add(m, form, x, norm(m, form, x, "input_layernorm"),
                   (tri_pair){.column = qkv,
                              .groups = 3,
                              .lead = (int)(form->heads / form->kv_heads),
                              .between = attend,
                              .row = {.name = "self_attn.o_proj"}});
    return branch_add(m, form, x, norm(m, form, x, "post_attention_layernorm"),
                      (tri_pair){.column = up, .groups = 2, .between = gate, .row = {.name = "mlp.down_proj"}});
}

tri_status tri_llama_build(const tri_model_plan *plan, tri_value *logits)
{
    llama_form form;
    TRI_TRY(form_read(plan, &form));
    tri_model *m = plan->model;
    tri_model_init_normal(m, (float)form.deviation);
    tri_value x = tri_embedding(m, plan->x, form.words, form.width, "model.embed_tokens");
    x = tri_layer_stack_add(m, &(tri_layer_stack){"model.layers.", form.layers, form.checkpoint, layer_add, &form}, x);
    *logits = norm(m, &form, x, "model.norm");
    tri_vocab_loss(m, *logits, plan->y,
                   (tri_vocab_loss_options){.words = form.words,
                                            .smoothing = (float)plan->smoothing,
                                            .forget = form.checkpoint,
                                            .name = "lm_head",
                                            .tied = form.tied ? "model.embed_tokens.weight" : NULL});
    return TRI_OK;
}
