/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hf_config.c: config.json as fields of our models and back; wrong ones are named with what was wanted.
 */
#include "interop/hf_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/status.h"

static void expect_error_has(const char *part)
{
    if (strstr(tri_last_error(), part) == NULL)
        fail_msg("want '%s' in '%s'", part, tri_last_error());
}

static void wrong_fields_say_what_was_wanted(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
        tri_status code;
    } cases[] = {
        {"{\"model_type\":\"gpt2\",", "c:1:", TRI_EFORMAT},
        {"[1]", "c: want an object", TRI_EFORMAT},
        {"{}", "c: want model_type", TRI_EFORMAT},
        {"{\"model_type\":\"bert\"}", "model_type 'bert' is not supported, only gpt2 and llama", TRI_EUNSUPPORTED},
        {"{\"model_type\":\"gpt2\",\"n_layer\":0}", "c: n_layer: want a whole number from 1 to 10000, got 0",
         TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2.0}", "n_layer: want a whole number", TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"n_layer\":\"12\"}", "got \"12\"", TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"n_layer\":9223372036854775807}", "got 9223372036854775807", TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"n_layer\":99999999999999999999}", "c:1: too big integer", TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_layer\":2}", "duplicate object key", TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"layer_norm_epsilon\":-1}", "layer_norm_epsilon: want a number", TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"n_head\":5}", "a width of 768 does not divide by 5 heads", TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"tanh\"}",
         "activation_function: want one of gelu_new|gelu|relu|silu, got \"tanh\"", TRI_EFORMAT},
        {"{\"model_type\":\"gpt2\",\"scale_attn_weights\":false}", "the model gpt2 has only true", TRI_EUNSUPPORTED},
        {"{\"model_type\":\"gpt2\",\"tie_word_embeddings\":1}", "want true or false, got 1", TRI_EFORMAT},
        {"{\"model_type\":\"llama\",\"num_key_value_heads\":5}", "32 heads do not divide by 5 heads of keys",
         TRI_EFORMAT},
        {"{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "hidden_act: the model llama has only silu",
         TRI_EUNSUPPORTED},
        {"{\"model_type\":\"llama\",\"rope_scaling\":[1]}", "rope_scaling: want null or an object", TRI_EFORMAT},
        {"{\"model_type\":\"llama\",\"rope_scaling\":{\"a\":{}}}", "want numbers and texts in it", TRI_EFORMAT},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_hf_config *config;
        tri_status status = tri_hf_config_parse(cases[i].text, strlen(cases[i].text), "c", &config);
        if (status != cases[i].code)
            fail_msg("%s: want %s, got %s", cases[i].text, tri_status_name(cases[i].code), tri_status_name(status));
        expect_error_has(cases[i].part);
        assert_null(config);
    }
}

static tri_hf_config *config_of(const char *text)
{
    tri_hf_config *config;
    if (tri_hf_config_parse(text, strlen(text), "c", &config) != TRI_OK)
        fail_msg("%s", tri_last_error());
    return config;
}

static void fields_of_config_json_become_those_of_the_model(void **state)
{
    (void)state;
    /* rope_parameters is how newer files say it. */
    tri_hf_config *config = config_of(
        "{\"model_type\":\"llama\",\"vocab_size\":61,\"num_key_value_heads\":8,\"rope_parameters\":{\"rope_theta\":5e5,"
        "\"rope_type\":\"llama3\",\"factor\":8.0},\"attention_dropout\":0.25,\"tie_word_embeddings\":true}");
    tri_string text = {0};
    assert_int_equal(tri_hf_config_model(config, &text), TRI_OK);
    assert_string_equal(text.text, "name: llama\nvocab_size: 61\nhidden_size: 4096\nintermediate_size: 11008\n"
                                   "num_hidden_layers: 32\nnum_attention_heads: 32\nnum_key_value_heads: 8\n"
                                   "max_position_embeddings: 2048\ninitializer_range: 0.02\nrms_norm_eps: 1e-06\n"
                                   "rope_theta: 500000\nrope_scaling: {rope_type: \"llama3\", \"factor\": 8.0}\n"
                                   "attention_bias: false\nmlp_bias: false\nattention_dropout: 0.25\n"
                                   "tie_word_embeddings: true\n");
    tri_hf_config_close(config);
    tri_string_fini(&text);
}

static void what_others_wrote_stays_in_config_json(void **state)
{
    (void)state;
    tri_hf_config *config =
        config_of("{\"model_type\":\"gpt2\",\"n_layer\":2,\"ours\":{\"a\":[1,0.1,null,\"\\u00e4\\n\"]},"
                  "\"torch_dtype\":\"float32\",\"eos_token_id\":7,\"resid_pdrop\":0.1}");
    tri_arena arena = {0};
    tri_yaml *fields;
    tri_string text = {0};
    const tri_hf_facts facts = {.numbers = {[TRI_ROLE_VOCABULARY] = 61}};
    const char *const model = "{name: gpt2, n_layer: 2, resid_pdrop: 0}";
    assert_int_equal(tri_yaml_parse(&arena, model, strlen(model), "m", &fields), TRI_OK);
    assert_int_equal(tri_hf_config_update(config, fields, &facts), TRI_OK);
    assert_int_equal(tri_hf_config_print(config, TRI_BF16, &text), TRI_OK);
    assert_string_equal(text.text, "{\n  \"model_type\": \"gpt2\",\n  \"n_layer\": 2,\n  \"ours\": {\n    \"a\": [\n"
                                   "      1,\n      0.1,\n      null,\n      \"\xc3\xa4\\n\"\n    ]\n  },\n"
                                   "  \"torch_dtype\": \"bfloat16\",\n  \"eos_token_id\": 7,\n"
                                   "  \"resid_pdrop\": 0.0,\n  \"vocab_size\": 61\n}\n");
    tri_hf_config_close(config);
    tri_arena_fini(&arena);
    tri_string_fini(&text);
}

static void fields_that_come_back_unchanged_keep_their_spelling(void **state)
{
    (void)state;
    const char *const given = "{ \"model_type\":\"llama\", \"rms_norm_eps\":0.00001, \"torch_dtype\":\"float32\",\n"
                              "\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,\"rope_type\":\"llama3\","
                              "\"original_max_position_embeddings\":8192}}";
    tri_hf_config *config = config_of(given);
    tri_arena arena = {0};
    tri_yaml *fields;
    tri_string model = {0}, text = {0};
    assert_int_equal(tri_hf_config_model(config, &model), TRI_OK);
    assert_int_equal(tri_yaml_parse(&arena, model.text, model.nbytes, "m", &fields), TRI_OK);
    for (tri_yaml *field = fields->child; field != NULL && field->next != NULL; field = field->next)
        if (strcmp(field->next->key, "rope_scaling") == 0) /* the others were not in the file and will be */
            fields->child = field->next, field->next->next = NULL;
    assert_int_equal(tri_hf_config_update(config, fields, &(tri_hf_facts){{0}}), TRI_OK);
    assert_int_equal(tri_hf_config_print(config, TRI_F32, &text), TRI_OK);
    assert_string_equal(text.text, given);
    tri_hf_config_close(config);
    tri_arena_fini(&arena);
    tri_string_fini(&model);
    tri_string_fini(&text);
}

/* Newer files have it in rope_parameters, where both readers look. */
static void other_angles_are_written_where_they_are_read(void **state)
{
    (void)state;
    static const char newer[] = "\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\",\"factor\":8.0}";
    static const char older[] = "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0}";
    static const struct {
        const char *file, *model, *wants, *other;
    } cases[] = {
        {newer, "rope_theta: 10000, rope_scaling: {rope_type: llama3, factor: 16}", "\"factor\": 16", "rope_scaling"},
        {newer, "rope_theta: 10000", "\"rope_theta\": 10000.0", "500000"},
        {newer, "rope_scaling: null", "\"rope_type\": \"default\",\n    \"rope_theta\": 500000.0", "factor"},
        {newer, "rope_scaling: {rope_type: llama3, factor: 8}", newer, "rope_scaling"},
        {older, "rope_scaling: null", "\"rope_scaling\": null", "factor"},
        {older, "rope_scaling: {rope_type: llama3, factor: 16}", "\"factor\": 16", "8.0"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        char given[300], model[200];
        tri_arena arena = {0};
        tri_yaml *fields;
        tri_string text = {0};
        snprintf(given, sizeof(given), "{\"model_type\":\"llama\",\"torch_dtype\":\"float32\",%s}", cases[i].file);
        snprintf(model, sizeof(model), "{name: llama, %s}", cases[i].model);
        tri_hf_config *config = config_of(given);
        assert_int_equal(tri_yaml_parse(&arena, model, strlen(model), "m", &fields), TRI_OK);
        assert_int_equal(tri_hf_config_update(config, fields, &(tri_hf_facts){{0}}), TRI_OK);
        assert_int_equal(tri_hf_config_print(config, TRI_F32, &text), TRI_OK);
        if (!strstr(text.text, cases[i].wants) || strstr(text.text, cases[i].other))
            fail_msg("%s: want %s and no %s in %s", model, cases[i].wants, cases[i].other, text.text);
        tri_hf_config_close(config);
        tri_arena_fini(&arena);
        tri_string_fini(&text);
    }
}

static void a_model_from_nowhere_gets_our_defaults(void **state)
{
    (void)state;
    tri_arena arena = {0};
    tri_yaml *fields;
    tri_hf_config *config;
    const tri_hf_facts facts = {
        .numbers = {[TRI_ROLE_VOCABULARY] = 61, [TRI_ROLE_INNER] = 128, [TRI_ROLE_POSITIONS] = 32}};
    const char *const model = "{name: llama, num_hidden_layers: 3, max_position_embeddings: 64}";
    assert_int_equal(tri_yaml_parse(&arena, model, strlen(model), "m", &fields), TRI_OK);
    assert_int_equal(tri_hf_config_make(tri_family_find("llama"), fields, &facts, &config), TRI_OK);
    assert_int_equal(tri_hf_config_number(config, TRI_ROLE_LAYERS), 3);
    assert_int_equal(tri_hf_config_number(config, TRI_ROLE_WIDTH), 512);
    assert_int_equal(tri_hf_config_number(config, TRI_ROLE_INNER), 128);
    assert_int_equal(tri_hf_config_number(config, TRI_ROLE_POSITIONS), 64);
    assert_int_equal(tri_hf_config_number(config, TRI_ROLE_VOCABULARY), 61);
    assert_int_equal(tri_hf_config_number(config, TRI_ROLE_HEAD_WIDTH), 64);
    assert_true(tri_hf_config_has_prefix(config));
    tri_hf_config_close(config);
    /* Attention there has dropout unless it is told otherwise. */
    tri_string text = {0};
    assert_int_equal(tri_hf_config_make(tri_family_find("gpt2"), NULL, &facts, &config), TRI_OK);
    assert_int_equal(tri_hf_config_model(config, &text), TRI_OK);
    assert_non_null(strstr(text.text, "attn_pdrop: 0\n"));
    tri_hf_config_close(config);
    tri_string_fini(&text);
    tri_arena_fini(&arena);
}

static void kinds_of_rope_that_no_model_has_are_refused_with_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *rope;
        tri_status status;
    } cases[] = {
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}", TRI_EUNSUPPORTED},
        {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}", TRI_EUNSUPPORTED},
        {"\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 4.0}", TRI_EUNSUPPORTED},
        {"\"rope_scaling\": {\"rope_type\": 3}", TRI_EFORMAT},
        {"\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}", TRI_OK},
        {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}", TRI_OK},
        {"\"rope_scaling\": null", TRI_OK},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        char text[200];
        tri_hf_config *config;
        snprintf(text, sizeof(text), "{\"model_type\": \"llama\", %s}", cases[i].rope);
        assert_int_equal(tri_hf_config_parse(text, strlen(text), "there/config.json", &config), cases[i].status);
        if (cases[i].status != TRI_OK)
            assert_non_null(strstr(tri_last_error(), "there/config.json: rope_scaling: want "));
        tri_hf_config_close(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_fields_say_what_was_wanted),
        cmocka_unit_test(fields_of_config_json_become_those_of_the_model),
        cmocka_unit_test(what_others_wrote_stays_in_config_json),
        cmocka_unit_test(fields_that_come_back_unchanged_keep_their_spelling),
        cmocka_unit_test(other_angles_are_written_where_they_are_read),
        cmocka_unit_test(a_model_from_nowhere_gets_our_defaults),
        cmocka_unit_test(kinds_of_rope_that_no_model_has_are_refused_with_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
