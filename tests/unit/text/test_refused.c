/* SPDX-License-Identifier: Apache-2.0
 *
 * test_refused.c: tokenizer.json files that are damaged, hostile or not understood: one clear line each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "text/tokenizer.h"

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void assert_refused(const char *json, tri_status status, const char *text)
{
    tri_tokenizer *tokenizer = NULL;
    assert_int_equal(tri_tokenizer_parse(json, strlen(json), "t.json", &tokenizer), status);
    assert_null(tokenizer);
    if (strstr(tri_last_error(), text) == NULL || strstr(tri_last_error(), "t.json") == NULL)
        fail_msg("'%s' is not in: %s", text, tri_last_error());
}

static void models_that_cannot_be_are_refused(void **state)
{
    (void)state;
    assert_refused("", TRI_EFORMAT, "not JSON");
    assert_refused("[1]", TRI_EFORMAT, "want a JSON object");
    assert_refused("{\"a\":1,\"a\":2}", TRI_EFORMAT, "duplicate");
    assert_refused("{}", TRI_EFORMAT, "the field 'model' is missing");
    assert_refused("{\"model\":[]}", TRI_EFORMAT, "want an object as 'model', got a list");
    assert_refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{},\"merges\":[]}}", TRI_EUNSUPPORTED,
                   "want BPE, got WordPiece");
    assert_refused("{\"model\":{\"vocab\":{},\"merges\":[]}}", TRI_EFORMAT, "the vocabulary is empty");
    assert_refused("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", TRI_EFORMAT, "want an id from 0");
    assert_refused("{\"model\":{\"vocab\":{\"a\":2000000000},\"merges\":[]}}", TRI_EFORMAT, "got 2000000000");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0.5},\"merges\":[]}}", TRI_EFORMAT, "token 'a'");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", TRI_EFORMAT, "both have the id 0");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}", TRI_EFORMAT, "merge 0");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}", TRI_EFORMAT, "single space");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", TRI_EFORMAT, "merge 0");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", TRI_EUNSUPPORTED, "dropout");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", TRI_EUNSUPPORTED,
                   "end_of_word_suffix '</w>'");
}

static void steps_that_are_not_understood_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *section;
        tri_status status;
        const char *text;
    } cases[] = {
        {"\"normalizer\":{\"type\":\"NFKC\"}", TRI_EUNSUPPORTED, "normalizer 'NFKC'"},
        {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x+\"},\"content\":\"\"}", TRI_EUNSUPPORTED,
         "x+"},
        {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}", TRI_EFORMAT, "empty"},
        {"\"normalizer\":7", TRI_EFORMAT, "normalizer: want an object"},
        {"\"pre_tokenizer\":{\"type\":\"Whitespace\"}", TRI_EUNSUPPORTED, "pre_tokenizer 'Whitespace'"},
        {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":\"Isolated\"}",
         TRI_EUNSUPPORTED, "none that is known (those of GPT-2, Llama 3 and Qwen2 are): \\w+"},
        {"\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"ByteLevel\"}"
         "]}",
         TRI_EUNSUPPORTED, "ByteLevel"},
        {"\"post_processor\":{\"type\":\"BertProcessing\"}", TRI_EUNSUPPORTED, "post_processor 'BertProcessing'"},
        {"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}", TRI_EFORMAT, "no Sequence"},
        {"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
         "\"special_tokens\":{\"x\":{\"ids\":[9]}}}",
         TRI_EFORMAT, "there is no token 9"},
        {"\"decoder\":{\"type\":\"WordPiece\"}", TRI_EUNSUPPORTED, "decoder 'WordPiece'"},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", TRI_EUNSUPPORTED, "without a pre_tokenizer ByteLevel"},
        {"\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":1}", TRI_EUNSUPPORTED, "stop 0"},
        {"\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]", TRI_EFORMAT, "the vocabulary says 0"},
        {"\"added_tokens\":[{\"id\":5,\"content\":\"\"}]", TRI_EFORMAT, "is empty"},
        {"\"added_tokens\":[{\"id\":5,\"content\":\"x\",\"single_word\":true}]", TRI_EUNSUPPORTED, "single_word"},
        {"\"added_tokens\":[{\"id\":5,\"content\":\"x\",\"lstrip\":1}]", TRI_EFORMAT, "true or false as 'lstrip'"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        char json[1024];
        snprintf(json, sizeof(json), "{" MODEL ",%s}", cases[i].section);
        assert_refused(json, cases[i].status, cases[i].text);
    }
}

static void names_that_lead_nowhere_say_what_was_tried(void **state)
{
    (void)state;
    tri_tokenizer *tokenizer;
    assert_int_equal(tri_tokenizer_open("no/such/file", &tokenizer), TRI_ENOTFOUND);
    assert_non_null(strstr(tri_last_error(), "want byte, char, or the path of a tokenizer.json"));
    assert_int_equal(tri_tokenizer_open("char", &tokenizer), TRI_ECONFIG);
    char folder[] = "/tmp/tri-text-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tri_tokenizer_open(folder, &tokenizer), TRI_ENOTFOUND);
    assert_non_null(strstr(tri_last_error(), "encoder.json"));
    char path[64];
    snprintf(path, sizeof(path), "%s/encoder.json", folder);
    assert_int_equal(tri_fs_write_swap(path, "{\"a\":0,\"b\":1,\"ab\":2}", 20), TRI_OK);
    assert_int_equal(tri_tokenizer_open(folder, &tokenizer), TRI_ENOTFOUND);
    assert_non_null(strstr(tri_last_error(), "vocab.bpe"));
    snprintf(path, sizeof(path), "%s/vocab.bpe", folder);
    assert_int_equal(tri_fs_write_swap(path, "#version: 0.2\na b\nb a\n", 22), TRI_OK);
    assert_int_equal(tri_tokenizer_open(folder, &tokenizer), TRI_EFORMAT);
    assert_non_null(strstr(tri_last_error(), "vocab.bpe:3"));
    assert_int_equal(tri_fs_write_swap(path, "#version: 0.2\na b c\n", 20), TRI_OK);
    assert_int_equal(tri_tokenizer_open(folder, &tokenizer), TRI_EFORMAT);
    assert_non_null(strstr(tri_last_error(), "vocab.bpe:2"));
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
}

static void a_text_that_grows_without_end_is_refused(void **state)
{
    (void)state;
    tri_string json = {0};
    tri_tokenizer *tokenizer;
    tri_encoder *encoder;
    tri_ids ids = {0};
    assert_int_equal(tri_string_append(&json, "{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["),
                     TRI_OK);
    for (int step = 0; step < 8; step++) /* each makes sixteen of one */
        assert_int_equal(tri_string_appendf(&json,
                                            "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
                                            "\"content\":\"aaaaaaaaaaaaaaaa\"}",
                                            step > 0 ? "," : ""),
                         TRI_OK);
    assert_int_equal(tri_string_append(&json, "]}}"), TRI_OK);
    assert_int_equal(tri_tokenizer_parse(json.text, json.nbytes, "t.json", &tokenizer), TRI_OK);
    assert_int_equal(tri_encoder_create(tokenizer, &encoder), TRI_OK);
    assert_int_equal(tri_encode(encoder, "aaaaaaaaaa", 10, 0, &ids), TRI_EFORMAT);
    assert_non_null(strstr(tri_last_error(), "more than 64 times longer"));
    tri_ids_fini(&ids);
    tri_encoder_destroy(encoder);
    tri_tokenizer_close(tokenizer);
    tri_string_fini(&json);
}

static void memory_that_runs_out_anywhere_is_given_back(void **state)
{
    (void)state;
    static const char json[] =
        "{" MODEL ",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true,\"normalized\":true}],"
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"a\"},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{"
        "\"Sequence\":{}}],"
        "\"special_tokens\":{\"x\":{\"ids\":[3]}}}}";
    const uint64_t before = tri_memory_now().live;
    tri_status status = TRI_ENOMEM;
    uint64_t n = 1;
    for (; status != TRI_OK; n++) {
        tri_tokenizer *tokenizer = NULL;
        tri_encoder *encoder = NULL;
        tri_ids ids = {0};
        tri_memory_fail_at(n);
        status = tri_tokenizer_parse(json, sizeof(json) - 1, "t.json", &tokenizer);
        if (status == TRI_OK)
            status = tri_encoder_create(tokenizer, &encoder);
        if (status == TRI_OK)
            status = tri_encode(encoder, "abx<s>", 6, TRI_ENCODE_WHOLE, &ids);
        tri_memory_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        if (status == TRI_OK)
            assert_int_equal(ids.count, 4);
        tri_ids_fini(&ids);
        tri_encoder_destroy(encoder);
        tri_tokenizer_close(tokenizer);
        assert_int_equal(tri_memory_now().live, before);
    }
    assert_true(n > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_that_cannot_be_are_refused),
        cmocka_unit_test(steps_that_are_not_understood_are_named),
        cmocka_unit_test(names_that_lead_nowhere_say_what_was_tried),
        cmocka_unit_test(a_text_that_grows_without_end_is_refused),
        cmocka_unit_test(memory_that_runs_out_anywhere_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
