/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_hf_config.c: a config.json; what is accepted becomes the fields of a model and is written back.
 */
#include "base/status.h"
#include "fuzz/fuzz.h"
#include "interop/hf_config.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_hf_config *config, *again;
    tri_string model = {0}, text = {0};
    tri_arena arena = {0};
    tri_yaml *fields;
    const tri_hf_facts facts = {.numbers = {[TRI_ROLE_VOCABULARY] = 7}};
    if (tri_hf_config_parse((const char *)bytes, nbytes, "f", &config) != TRI_OK)
        return 0;
    tri_fuzz_accepted++;
    TRI_ASSERT(tri_hf_config_number(config, TRI_ROLE_LAYERS) > 0);
    TRI_ASSERT(tri_hf_config_number(config, TRI_ROLE_KEY_HEADS) > 0);
    TRI_ASSERT(tri_hf_config_model(config, &model) == TRI_OK);
    /* What nn/ gets is YAML; only rope_scaling may hold texts that it refuses. */
    if (tri_yaml_parse(&arena, model.text, model.nbytes, "m", &fields) == TRI_OK)
        (void)tri_hf_config_update(config, fields, &facts);
    if (tri_hf_config_print(config, TRI_BF16, &text) == TRI_OK) {
        TRI_ASSERT(tri_hf_config_parse(text.text, text.nbytes, "g", &again) == TRI_OK);
        tri_hf_config_close(again);
    }
    tri_hf_config_close(config);
    tri_arena_fini(&arena);
    tri_string_fini(&model);
    tri_string_fini(&text);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2,\"n_embd\":16,"
                  "\"n_head\":2,\"vocab_size\":61,\"n_inner\":null,\"attn_pdrop\":0.1,\"torch_dtype\":\"float32\"}"),
    TRI_FUZZ_SEED("{\"model_type\":\"llama\",\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                  "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0},\"rope_theta\":500000.0,"
                  "\"tie_word_embeddings\":true,\"hidden_act\":\"silu\"}"),
    TRI_FUZZ_SEED("{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_theta\":1e4,\"rope_type\":\"default\"}}"),
    TRI_FUZZ_REFUSED("{\"model_type\":\"bert\"}"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\"n_layer\":",
                                      "\"rope_scaling\":",
                                      "9223372036854775807",
                                      "1e308",
                                      "-1",
                                      "null",
                                      "\"dtype\":null",
                                      "\"head_dim\":3",
                                      "true",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      ",",
                                      "\"\\u0000\""};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
