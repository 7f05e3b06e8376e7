/* SPDX-License-Identifier: Apache-2.0
 *
 * family.c: the tables of gpt2 and llama.
 *
 * GPT-2's linear layers are Conv1D there, [in, out]; Llama's query, key and value, and gate and up, are one tensor each
 * here. Fallbacks are the defaults of transformers' GPT2Config and LlamaConfig.
 */
#include "interop/family.h"

#include <string.h>

#include "base/status.h"

#define MOST 2147483647.0

static const tri_name_rule gpt2_rules[] = {
    {.ours = "wte.weight", .theirs = {"@wte.weight"}},
    {.ours = "wpe.weight", .theirs = {"@wpe.weight"}},
    {.ours = "h.#.ln_1.weight", .theirs = {"@h.#.ln_1.weight"}},
    {.ours = "h.#.ln_1.bias", .theirs = {"@h.#.ln_1.bias"}},
    {.ours = "h.#.attn.c_attn.weight", .theirs = {"@h.#.attn.c_attn.weight"}, .transposed = true},
    {.ours = "h.#.attn.c_attn.bias", .theirs = {"@h.#.attn.c_attn.bias"}},
    {.ours = "h.#.attn.c_proj.weight", .theirs = {"@h.#.attn.c_proj.weight"}, .transposed = true},
    {.ours = "h.#.attn.c_proj.bias", .theirs = {"@h.#.attn.c_proj.bias"}},
    {.ours = "h.#.ln_2.weight", .theirs = {"@h.#.ln_2.weight"}},
    {.ours = "h.#.ln_2.bias", .theirs = {"@h.#.ln_2.bias"}},
    {.ours = "h.#.mlp.c_fc.weight", .theirs = {"@h.#.mlp.c_fc.weight"}, .transposed = true},
    {.ours = "h.#.mlp.c_fc.bias", .theirs = {"@h.#.mlp.c_fc.bias"}},
    {.ours = "h.#.mlp.c_proj.weight", .theirs = {"@h.#.mlp.c_proj.weight"}, .transposed = true},
    {.ours = "h.#.mlp.c_proj.bias", .theirs = {"@h.#.mlp.c_proj.bias"}},
    {.ours = "ln_f.weight", .theirs = {"@ln_f.weight"}},
    {.ours = "ln_f.bias", .theirs = {"@ln_f.bias"}},
    {.ours = "lm_head.weight", .theirs = {"lm_head.weight"}, .when = TRI_WHEN_UNTIED},
    {.theirs = {"lm_head.weight"}, .when = TRI_WHEN_TIED},
    {.theirs = {"@h.#.attn.bias"}},
    {.theirs = {"@h.#.attn.masked_bias"}},
};

static const tri_family_field gpt2_fields[] = {
    {"vocab_size", TRI_FIELD_INT, TRI_ROLE_VOCABULARY, 1, MOST, "50257", NULL, TRI_FIELD_USED, NULL},
    {"n_positions", TRI_FIELD_INT, TRI_ROLE_POSITIONS, 1, 1 << 30, "1024", NULL, TRI_FIELD_USED, NULL},
    {"n_embd", TRI_FIELD_INT, TRI_ROLE_WIDTH, 1, 1 << 20, "768", NULL, TRI_FIELD_USED, NULL},
    {"n_layer", TRI_FIELD_INT, TRI_ROLE_LAYERS, 1, 10000, "12", NULL, TRI_FIELD_USED, NULL},
    {"n_head", TRI_FIELD_INT, TRI_ROLE_HEADS, 1, 65536, "12", NULL, TRI_FIELD_USED, NULL},
    {"n_inner", TRI_FIELD_INT, TRI_ROLE_INNER, 1, 1 << 24, NULL, NULL, TRI_FIELD_USED, NULL},
    {"activation_function", TRI_FIELD_TEXT, TRI_ROLE_NONE, 0, 0, "gelu_new", "gelu_new|gelu|relu|silu", TRI_FIELD_USED,
     NULL},
    {"resid_pdrop", TRI_FIELD_REAL, TRI_ROLE_NONE, 0, 0.999, "0.1", NULL, TRI_FIELD_USED, "0"},
    {"embd_pdrop", TRI_FIELD_REAL, TRI_ROLE_NONE, 0, 0.999, "0.1", NULL, TRI_FIELD_USED, "0"},
    {"attn_pdrop", TRI_FIELD_REAL, TRI_ROLE_NONE, 0, 0.999, "0.1", NULL, TRI_FIELD_USED, "0"},
    {"layer_norm_epsilon", TRI_FIELD_REAL, TRI_ROLE_NONE, 1e-12, 1, "1e-5", NULL, TRI_FIELD_USED, NULL},
    {"initializer_range", TRI_FIELD_REAL, TRI_ROLE_NONE, 1e-9, 100, "0.02", NULL, TRI_FIELD_USED, NULL},
    {"tie_word_embeddings", TRI_FIELD_BOOL, TRI_ROLE_TIED, 0, 0, "true", NULL, TRI_FIELD_USED, NULL},
    {"scale_attn_weights", TRI_FIELD_BOOL, TRI_ROLE_NONE, 0, 0, "true", NULL, TRI_FIELD_FIXED, NULL},
    {"scale_attn_by_inverse_layer_idx", TRI_FIELD_BOOL, TRI_ROLE_NONE, 0, 0, "false", NULL, TRI_FIELD_FIXED, NULL},
    {"add_cross_attention", TRI_FIELD_BOOL, TRI_ROLE_NONE, 0, 0, "false", NULL, TRI_FIELD_FIXED, NULL},
};

static const tri_name_rule llama_rules[] = {
    {.ours = "model.embed_tokens.weight", .theirs = {"@embed_tokens.weight"}},
    {.ours = "model.layers.#.input_layernorm.weight", .theirs = {"@layers.#.input_layernorm.weight"}},
    {.ours = "model.layers.#.self_attn.qkv_proj.weight",
     .theirs = {"@layers.#.self_attn.q_proj.weight", "@layers.#.self_attn.k_proj.weight",
                "@layers.#.self_attn.v_proj.weight"},
     .rows = {TRI_ROWS_QUERY, TRI_ROWS_KEY, TRI_ROWS_KEY}},
    {.ours = "model.layers.#.self_attn.qkv_proj.bias",
     .theirs = {"@layers.#.self_attn.q_proj.bias", "@layers.#.self_attn.k_proj.bias",
                "@layers.#.self_attn.v_proj.bias"},
     .rows = {TRI_ROWS_QUERY, TRI_ROWS_KEY, TRI_ROWS_KEY},
     .when = TRI_WHEN_ATTENTION_BIAS},
    {.ours = "model.layers.#.self_attn.o_proj.weight", .theirs = {"@layers.#.self_attn.o_proj.weight"}},
    {.ours = "model.layers.#.self_attn.o_proj.bias",
     .theirs = {"@layers.#.self_attn.o_proj.bias"},
     .when = TRI_WHEN_ATTENTION_BIAS},
    {.ours = "model.layers.#.post_attention_layernorm.weight", .theirs = {"@layers.#.post_attention_layernorm.weight"}},
    {.ours = "model.layers.#.mlp.gate_up_proj.weight",
     .theirs = {"@layers.#.mlp.gate_proj.weight", "@layers.#.mlp.up_proj.weight"},
     .rows = {TRI_ROWS_INNER, TRI_ROWS_INNER}},
    {.ours = "model.layers.#.mlp.gate_up_proj.bias",
     .theirs = {"@layers.#.mlp.gate_proj.bias", "@layers.#.mlp.up_proj.bias"},
     .rows = {TRI_ROWS_INNER, TRI_ROWS_INNER},
     .when = TRI_WHEN_MLP_BIAS},
    {.ours = "model.layers.#.mlp.down_proj.weight", .theirs = {"@layers.#.mlp.down_proj.weight"}},
    {.ours = "model.layers.#.mlp.down_proj.bias",
     .theirs = {"@layers.#.mlp.down_proj.bias"},
     .when = TRI_WHEN_MLP_BIAS},
    {.ours = "model.norm.weight", .theirs = {"@norm.weight"}},
    {.ours = "lm_head.weight", .theirs = {"lm_head.weight"}, .when = TRI_WHEN_UNTIED},
    {.theirs = {"lm_head.weight"}, .when = TRI_WHEN_TIED},
    {.theirs = {"@layers.#.self_attn.rotary_emb.inv_freq"}},
};

static const tri_family_field llama_fields[] = {
    {"vocab_size", TRI_FIELD_INT, TRI_ROLE_VOCABULARY, 1, MOST, "32000", NULL, TRI_FIELD_USED, NULL},
    {"hidden_size", TRI_FIELD_INT, TRI_ROLE_WIDTH, 1, 1 << 20, "4096", NULL, TRI_FIELD_USED, "512"},
    {"intermediate_size", TRI_FIELD_INT, TRI_ROLE_INNER, 1, 1 << 24, "11008", NULL, TRI_FIELD_USED, NULL},
    {"num_hidden_layers", TRI_FIELD_INT, TRI_ROLE_LAYERS, 1, 10000, "32", NULL, TRI_FIELD_USED, "8"},
    {"num_attention_heads", TRI_FIELD_INT, TRI_ROLE_HEADS, 1, 65536, "32", NULL, TRI_FIELD_USED, "8"},
    {"num_key_value_heads", TRI_FIELD_INT, TRI_ROLE_KEY_HEADS, 1, 65536, NULL, NULL, TRI_FIELD_USED, NULL},
    {"head_dim", TRI_FIELD_INT, TRI_ROLE_HEAD_WIDTH, 1, 65536, NULL, NULL, TRI_FIELD_USED, NULL},
    {"hidden_act", TRI_FIELD_TEXT, TRI_ROLE_NONE, 0, 0, "silu", NULL, TRI_FIELD_FIXED, NULL},
    {"max_position_embeddings", TRI_FIELD_INT, TRI_ROLE_POSITIONS, 1, 1 << 30, "2048", NULL, TRI_FIELD_USED, NULL},
    {"initializer_range", TRI_FIELD_REAL, TRI_ROLE_NONE, 1e-9, 100, "0.02", NULL, TRI_FIELD_USED, NULL},
    {"rms_norm_eps", TRI_FIELD_REAL, TRI_ROLE_NONE, 1e-12, 1, "1e-6", NULL, TRI_FIELD_USED, NULL},
    {"rope_theta", TRI_FIELD_REAL, TRI_ROLE_NONE, 1, 1e12, "10000", NULL, TRI_FIELD_USED, NULL},
    {"rope_scaling", TRI_FIELD_ROPE, TRI_ROLE_NONE, 0, 0, NULL, NULL, TRI_FIELD_USED, NULL},
    {"attention_bias", TRI_FIELD_BOOL, TRI_ROLE_ATTENTION_BIAS, 0, 0, "false", NULL, TRI_FIELD_USED, NULL},
    {"mlp_bias", TRI_FIELD_BOOL, TRI_ROLE_MLP_BIAS, 0, 0, "false", NULL, TRI_FIELD_USED, NULL},
    {"attention_dropout", TRI_FIELD_REAL, TRI_ROLE_NONE, 0, 0.999, "0", NULL, TRI_FIELD_USED, NULL},
    {"tie_word_embeddings", TRI_FIELD_BOOL, TRI_ROLE_TIED, 0, 0, "false", NULL, TRI_FIELD_USED, NULL},
};

const tri_family tri_families[] = {
    {.name = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .prefix = "transformer.",
     .embedding = "wte.weight",
     .rules = gpt2_rules,
     .rule_count = TRI_COUNT_OF(gpt2_rules),
     .fields = gpt2_fields,
     .field_count = TRI_COUNT_OF(gpt2_fields)},
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .prefix = "model.",
     .embedding = "model.embed_tokens.weight",
     .gate_up = "model.layers.0.mlp.gate_up_proj.weight",
     .rules = llama_rules,
     .rule_count = TRI_COUNT_OF(llama_rules),
     .fields = llama_fields,
     .field_count = TRI_COUNT_OF(llama_fields)},
};
const int tri_family_count = TRI_COUNT_OF(tri_families);
_Static_assert(TRI_COUNT_OF(gpt2_fields) <= TRI_FAMILY_MAX_FIELDS &&
                   TRI_COUNT_OF(llama_fields) <= TRI_FAMILY_MAX_FIELDS,
               "values of a configuration have room for this many fields");

const tri_family *tri_family_find(const char *name)
{
    for (int i = 0; i < tri_family_count; i++)
        if (strcmp(tri_families[i].name, name) == 0)
            return &tri_families[i];
    return NULL;
}
