/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tokenizer.c: tokens equal to those of Hugging Face's library (tests/text/compare wrote the fixtures), whole, in
 * pieces, and back; bytes and characters; saved and read again.
 */
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"

static const char *const forms[] = {"gpt2", "llama3", "llama2"};

static void read_fixture(const char *name, const char *ending, char **text, size_t *nbytes)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s%s", TEXT_FIXTURES, name, ending);
    assert_int_equal(tri_fs_read(path, 0, text, nbytes), TRI_OK);
}

static tri_tokenizer *open_fixture(const char *name)
{
    char path[512];
    tri_tokenizer *tokenizer;
    snprintf(path, sizeof(path), "%s/%s.json", TEXT_FIXTURES, name);
    if (tri_tokenizer_open(path, &tokenizer) != TRI_OK)
        fail_msg("%s", tri_last_error());
    return tokenizer;
}

static void encode(const tri_tokenizer *tokenizer, const char *text, size_t nbytes, unsigned flags, tri_ids *ids)
{
    tri_encoder *encoder;
    assert_int_equal(tri_encoder_create(tokenizer, &encoder), TRI_OK);
    if (tri_encode(encoder, text, nbytes, flags, ids) != TRI_OK)
        fail_msg("%s", tri_last_error());
    tri_encoder_destroy(encoder);
}

static void assert_same(const tri_ids *found, const tri_ids *wanted)
{
    for (size_t i = 0; i < wanted->count && i < found->count; i++)
        if (found->items[i] != wanted->items[i])
            fail_msg("token %zu: want %d, got %d", i, wanted->items[i], found->items[i]);
    assert_int_equal(found->count, wanted->count);
}

static void tokens_are_those_of_the_other_library(void **state)
{
    (void)state;
    char *text, *golden;
    size_t nbytes, golden_nbytes;
    read_fixture("mixed", ".txt", &text, &nbytes);
    for (size_t f = 0; f < TRI_COUNT_OF(forms); f++) {
        tri_tokenizer *tokenizer = open_fixture(forms[f]);
        tri_ids wanted = {0}, found = {0};
        read_fixture(forms[f], ".ids", &golden, &golden_nbytes);
        char *at = golden, *end;
        for (long id = strtol(at, &end, 10); end != at; at = end, id = strtol(at, &end, 10))
            assert_int_equal(tri_ids_push(&wanted, (int32_t)id), TRI_OK);
        assert_true(wanted.count > 300);
        encode(tokenizer, text, nbytes, TRI_ENCODE_WHOLE, &found);
        assert_same(&found, &wanted);
        tri_free(golden);
        tri_ids_fini(&wanted);
        tri_ids_fini(&found);
        tri_tokenizer_close(tokenizer);
    }
    tri_free(text);
}

static void pieces_that_are_cut_where_it_is_safe_have_the_same_tokens(void **state)
{
    (void)state;
    char *text;
    size_t nbytes;
    read_fixture("mixed", ".txt", &text, &nbytes);
    for (size_t f = 0; f < TRI_COUNT_OF(forms); f++) {
        tri_tokenizer *tokenizer = open_fixture(forms[f]);
        tri_ids whole = {0}, pieces = {0};
        size_t count = 0;
        encode(tokenizer, text, nbytes, 0, &whole);
        for (size_t at = 0, next; at < nbytes; at = next, count++) {
            next = tri_tokenizer_cut(tokenizer, text, nbytes, at + 23);
            assert_true(next >= at + 23 || next == nbytes);
            encode(tokenizer, text + at, next - at, at > 0 ? TRI_ENCODE_RESUME : 0, &pieces);
        }
        assert_true(count > 10);
        assert_same(&pieces, &whole);
        tri_ids_fini(&whole);
        tri_ids_fini(&pieces);
        tri_tokenizer_close(tokenizer);
    }
    tri_free(text);
}

static void tokens_become_the_text_again_as_they_come(void **state)
{
    (void)state;
    static const char text[] =
        "na\xc3\xafve \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac don't  \xe6\xbc\xa2\xe5\xad\x97\n 12";
    for (size_t f = 0; f < TRI_COUNT_OF(forms); f++) {
        tri_tokenizer *tokenizer = open_fixture(forms[f]);
        tri_ids ids = {0};
        tri_string out = {0};
        tri_decoder decoder = tri_decoder_make(tokenizer, false);
        encode(tokenizer, text, sizeof(text) - 1, TRI_ENCODE_WHOLE, &ids);
        for (size_t i = 0; i < ids.count; i++) {
            assert_int_equal(tri_decoder_push(&decoder, ids.items[i], &out), TRI_OK);
            if (out.nbytes > 0 && out.nbytes < sizeof(text) - 1) /* a whole character: the next byte begins one */
                assert_int_not_equal(text[out.nbytes] & 0xc0, 0x80);
        }
        assert_int_equal(tri_decoder_end(&decoder, &out), TRI_OK);
        assert_string_equal(tri_string_text(&out), text);
        tri_string_clear(&out);
        assert_int_equal(tri_decode(tokenizer, ids.items, ids.count, false, &out), TRI_OK);
        assert_string_equal(tri_string_text(&out), text);
        assert_int_equal(tri_decode(tokenizer, (int32_t[]){1 << 20}, 1, false, &out), TRI_EINVAL);
        tri_string_fini(&out);
        tri_ids_fini(&ids);
        tri_tokenizer_close(tokenizer);
    }
}

static void bytes_take_anything(void **state)
{
    (void)state;
    static const char text[] = "a\xff\x00\xc3(<|endoftext|>b";
    tri_tokenizer *tokenizer;
    tri_ids ids = {0};
    tri_string out = {0};
    assert_int_equal(tri_tokenizer_open("byte", &tokenizer), TRI_OK);
    assert_int_equal(tri_tokenizer_count(tokenizer), 257);
    assert_int_equal(tri_tokenizer_end(tokenizer), 256);
    assert_string_equal(tri_tokenizer_kind(tokenizer), "byte");
    encode(tokenizer, text, sizeof(text) - 1, TRI_ENCODE_WHOLE, &ids);
    const int32_t wanted[] = {'a', 255, 0, 0xc3, '(', 256, 'b'};
    assert_int_equal(ids.count, TRI_COUNT_OF(wanted));
    assert_memory_equal(ids.items, wanted, sizeof(wanted));
    assert_int_equal(tri_decode(tokenizer, ids.items, ids.count, true, &out), TRI_OK);
    assert_int_equal(out.nbytes, sizeof(text) - 1);
    assert_memory_equal(out.text, text, sizeof(text) - 1);
    tri_string_clear(&out);
    assert_int_equal(tri_decode(tokenizer, ids.items, ids.count, false, &out), TRI_OK);
    assert_int_equal(out.nbytes, 6);
    tri_string_fini(&out);
    tri_ids_fini(&ids);
    tri_tokenizer_close(tokenizer);
}

static void characters_are_those_of_the_text(void **state)
{
    (void)state;
    static const char text[] = "b\xc3\xa9"
                               "ab\n";
    const size_t nbytes = sizeof(text) - 1;
    tri_tokenizer *tokenizer;
    tri_encoder *encoder;
    tri_ids ids = {0};
    assert_int_equal(tri_tokenizer_chars((const void *const[]){text}, &nbytes, 1, false, &tokenizer), TRI_OK);
    assert_int_equal(tri_tokenizer_count(tokenizer), 4);
    assert_int_equal(tri_tokenizer_end(tokenizer), -1);
    encode(tokenizer, text, nbytes, 0, &ids);
    assert_memory_equal(ids.items, ((int32_t[]){2, 3, 1, 2, 0}), 20);
    size_t name_nbytes;
    assert_string_equal(tri_tokenizer_token(tokenizer, 3, &name_nbytes), "\xc3\xa9");
    assert_int_equal(tri_tokenizer_find(tokenizer, "a"), 1);
    assert_int_equal(tri_tokenizer_cut(tokenizer, text, nbytes, 2), 3);
    assert_int_equal(tri_encoder_create(tokenizer, &encoder), TRI_OK);
    assert_int_equal(tri_encode(encoder, "ab\xe6\xbc\xa2", 5, 0, &ids), TRI_EFORMAT);
    assert_non_null(strstr(tri_last_error(), "U+6F22"));
    tri_encoder_destroy(encoder);
    tri_tokenizer_close(tokenizer);
    assert_int_equal(tri_tokenizer_chars((const void *const[]){"ab\xff"}, &(size_t){3}, 1, false, &tokenizer),
                     TRI_EFORMAT);
    assert_non_null(strstr(tri_last_error(), "0xff at 2"));
    assert_int_equal(tri_tokenizer_chars((const void *const[]){"a\0"}, &(size_t){2}, 1, false, &tokenizer),
                     TRI_EFORMAT);
    tri_ids_fini(&ids);
}

/* A folder with GPT-2's two files, as small as they can be. */
static tri_tokenizer *open_small_gpt(const char *folder)
{
    tri_string text = {0};
    tri_tokenizer *tokenizer, *bytes;
    char path[64];
    assert_int_equal(tri_tokenizer_open("byte", &bytes), TRI_OK);
    assert_int_equal(tri_string_append(&text, "{"), TRI_OK);
    for (int32_t id = 0; id < 256; id++) {
        size_t nbytes;
        const char *name = tri_tokenizer_token(bytes, id, &nbytes);
        const bool escaped = *name == '"' || *name == '\\';
        assert_int_equal(tri_string_appendf(&text, "\"%s%s\":%d,", escaped ? "\\" : "", name, id), TRI_OK);
    }
    tri_tokenizer_close(bytes);
    assert_int_equal(
        tri_string_append(&text, "\"\xc4\xa0t\":256,\"he\":257,\"\xc4\xa0the\":258,\"<|endoftext|>\":259}"), TRI_OK);
    snprintf(path, sizeof(path), "%s/encoder.json", folder);
    assert_int_equal(tri_fs_write_swap(path, text.text, text.nbytes), TRI_OK);
    snprintf(path, sizeof(path), "%s/vocab.bpe", folder);
    static const char merges[] = "#version: 0.2\n\xc4\xa0 t\nh e\r\n\xc4\xa0t he\n";
    assert_int_equal(tri_fs_write_swap(path, merges, sizeof(merges) - 1), TRI_OK);
    assert_int_equal(tri_tokenizer_open(folder, &tokenizer), TRI_OK);
    tri_string_fini(&text);
    return tokenizer;
}

static void files_of_gpt_are_read_and_saved_as_one(void **state)
{
    (void)state;
    static const char text[] = "the the<|endoftext|> th\xff";
    const int32_t wanted[] = {'t', 257, 258, 259, 256, 'h', 255};
    char folder[] = "/tmp/tri-text-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    tri_tokenizer *tokenizer = open_small_gpt(folder);
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    assert_int_equal(tri_tokenizer_save(tokenizer, path), TRI_OK);
    assert_string_equal(tri_tokenizer_kind(tokenizer), "gpt2");
    for (int round = 0; round < 2; round++) {
        tri_ids ids = {0};
        encode(tokenizer, text, sizeof(text) - 1, TRI_ENCODE_WHOLE, &ids);
        assert_int_equal(ids.count, TRI_COUNT_OF(wanted));
        assert_memory_equal(ids.items, wanted, sizeof(wanted));
        assert_int_equal(tri_tokenizer_end(tokenizer), 259);
        assert_int_equal(tri_tokenizer_count(tokenizer), 260);
        assert_true(tri_tokenizer_is_special(tokenizer, 259));
        tri_ids_fini(&ids);
        tri_tokenizer_close(tokenizer);
        if (round == 0)
            assert_int_equal(tri_tokenizer_open(path, &tokenizer), TRI_OK);
    }
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
}

static void what_was_saved_is_the_file_that_was_read(void **state)
{
    (void)state;
    char path[] = "/tmp/tri-text-XXXXXX", *saved, *source;
    size_t saved_nbytes, source_nbytes;
    assert_true(mkstemp(path) >= 0);
    tri_tokenizer *tokenizer = open_fixture("llama2");
    assert_int_equal(tri_tokenizer_save(tokenizer, path), TRI_OK);
    tri_tokenizer_close(tokenizer);
    assert_int_equal(tri_fs_read(path, 0, &saved, &saved_nbytes), TRI_OK);
    read_fixture("llama2", ".json", &source, &source_nbytes);
    assert_int_equal(saved_nbytes, source_nbytes);
    assert_memory_equal(saved, source, saved_nbytes);
    tri_free(saved);
    tri_free(source);
    assert_int_equal(tri_fs_remove(path), TRI_OK);
}

#define ENDS_MAX 4

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(tri_fs_write_atomic(path, text, strlen(text)), TRI_OK);
}

/* Ids of SMALL: a 0, b 1, [X] 2, [Y] 3, </s> 4. */
#define SMALL                                                                                                          \
    "{\"added_tokens\": [{\"id\": 2, \"content\": \"[X]\", \"special\": true}, {\"id\": 3, \"content\": \"[Y]\", "     \
    "\"special\": true}, {\"id\": 4, \"content\": \"</s>\", \"special\": true}], \"model\": {\"type\": \"BPE\", "      \
    "\"vocab\": "                                                                                                      \
    "{\"a\": 0, \"b\": 1}, \"merges\": []}}"

static void expect_ends(const tri_tokenizer *tokenizer, const int *ends, const char *what)
{
    if (tri_tokenizer_end(tokenizer) != ends[0])
        fail_msg("%s: want %d between documents, got %d", what, ends[0], tri_tokenizer_end(tokenizer));
    for (int id = 0; id < 5; id++) {
        bool wanted = false;
        for (int i = 0; i < ENDS_MAX; i++)
            wanted = wanted || ends[i] == id;
        if (tri_tokenizer_is_end(tokenizer, id) != wanted)
            fail_msg("%s: token %d", what, id);
    }
}

static void ends_are_those_that_the_files_beside_state(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *other, *other_text;
        int ends[ENDS_MAX];
    } cases[] = {
        {NULL, NULL, NULL, NULL, {4, -1, -1, -1}}, /* by its name */
        {"config.json", "{\"eos_token_id\": 2}", NULL, NULL, {2, -1, -1, -1}},
        {"config.json", "{\"eos_token_id\": [3, 2]}", NULL, NULL, {3, 2, -1, -1}},
        {"config.json", "{\"eos_token_id\": null}", NULL, NULL, {4, -1, -1, -1}},
        {"config.json", "{\"eos_token_id\": 0}", NULL, NULL, {4, -1, -1, -1}}, /* of another vocabulary */
        {"generation_config.json", "{\"eos_token_id\": [3]}", "config.json", "{\"eos_token_id\": 2}", {3, 2, -1, -1}},
        {"tokenizer_config.json",
         "{\"eos_token\": \"[X]\"}",
         "generation_config.json",
         "{\"eos_token_id\": [4, 3]}",
         {2, 3, 4, -1}},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": \"[Y]\"}}", NULL, NULL, {3, -1, -1, -1}},
        {"special_tokens_map.json", "{\"eos_token\": \"[Y]\"}", NULL, NULL, {3, -1, -1, -1}},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        char folder[64] = "/tmp/trireme-ends-XXXXXX", saved[128], path[160];
        tri_tokenizer *tokenizer;
        assert_non_null(mkdtemp(folder));
        snprintf(saved, sizeof(saved), "%s/saved", folder);
        assert_int_equal(tri_fs_make_folder(saved), TRI_OK);
        write_text(folder, "tokenizer.json", SMALL);
        if (cases[i].file != NULL)
            write_text(folder, cases[i].file, cases[i].text);
        if (cases[i].other != NULL)
            write_text(folder, cases[i].other, cases[i].other_text);
        snprintf(path, sizeof(path), "%s/tokenizer.json", saved);
        for (int round = 0; round < 2; round++) { /* of what is saved, too */
            if (tri_tokenizer_open(round == 0 ? folder : saved, &tokenizer) != TRI_OK)
                fail_msg("%s", tri_last_error());
            expect_ends(tokenizer, cases[i].ends, cases[i].text);
            if (round == 0)
                assert_int_equal(tri_tokenizer_save(tokenizer, path), TRI_OK);
            tri_tokenizer_close(tokenizer);
        }
        assert_int_equal(tri_fs_remove(folder), TRI_OK);
    }
}

static void wrong_ends_are_refused_with_the_name_of_the_file(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"config.json", "{\"eos_token_id\": \"x\"}",
         "/config.json: eos_token_id: want a whole number or a list of them"},
        {"generation_config.json", "{\"eos_token_id\": [1.5]}", "/generation_config.json: eos_token_id: want a whole"},
        {"tokenizer_config.json", "{\"eos_token\": 3}", "/tokenizer_config.json: eos_token: want a text"},
        {"tokenizer_config.json", "{", "/tokenizer_config.json:1: not JSON"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        char folder[64] = "/tmp/trireme-ends-XXXXXX";
        tri_tokenizer *tokenizer;
        assert_non_null(mkdtemp(folder));
        write_text(folder, "tokenizer.json", SMALL);
        write_text(folder, cases[i][0], cases[i][1]);
        assert_int_equal(tri_tokenizer_open(folder, &tokenizer), TRI_EFORMAT);
        assert_non_null(strstr(tri_last_error(), cases[i][2]));
        assert_null(tokenizer);
        assert_int_equal(tri_fs_remove(folder), TRI_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_the_other_library),
        cmocka_unit_test(pieces_that_are_cut_where_it_is_safe_have_the_same_tokens),
        cmocka_unit_test(tokens_become_the_text_again_as_they_come),
        cmocka_unit_test(bytes_take_anything),
        cmocka_unit_test(characters_are_those_of_the_text),
        cmocka_unit_test(files_of_gpt_are_read_and_saved_as_one),
        cmocka_unit_test(what_was_saved_is_the_file_that_was_read),
        cmocka_unit_test(ends_are_those_that_the_files_beside_state),
        cmocka_unit_test(wrong_ends_are_refused_with_the_name_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
