/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare.c: texts to shards: the same bytes for any threads, boundaries between documents, all or nothing.
 */
#include "data/prepare.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "unit/data/data_files.h"

#define DOCUMENT_NBYTES ((size_t)1300 << 10) /* more than one piece */

/* Words of letters, lines, punctuation. */
static void write_document(const char *folder, const char *name, size_t nbytes, uint64_t seed)
{
    const tri_rng rng = {seed, 1};
    char *text = tri_alloc(nbytes);
    for (size_t i = 0; i < nbytes; i++) {
        uint64_t pick = tri_rng_below(rng, i, 40);
        text[i] = pick < 30 ? (char)('a' + pick % 26) : pick < 37 ? ' ' : pick < 38 ? '\n' : '.';
    }
    write_file(folder, name, text, nbytes);
    tri_free(text);
}

static tri_prepare_setup setup_for(const char *const *files, int count, const char *folder)
{
    return (tri_prepare_setup){.files = files,
                               .file_count = count,
                               .tokenizer = TEXT_FIXTURES "/llama3.json",
                               .folder = folder,
                               .validation = 0.25,
                               .threads = 1,
                               .shard_tokens = 300000};
}

/* All bytes of a folder's files, one after the other, with their names. */
static void read_folder(const char *folder, tri_string *all)
{
    char **names;
    size_t count;
    assert_int_equal(tri_fs_list(folder, &names, &count), TRI_OK);
    for (size_t i = 0; i < count; i++) {
        char path[512], *text;
        size_t nbytes;
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(tri_fs_read(path, 0, &text, &nbytes), TRI_OK);
        assert_int_equal(tri_string_append(all, names[i]), TRI_OK);
        assert_int_equal(tri_string_append_bytes(all, text, nbytes), TRI_OK);
        tri_free(text);
    }
    tri_fs_list_free(names, count);
}

static void any_number_of_threads_writes_the_same_bytes(void **state)
{
    (void)state;
    char *folder = make_folder(), first[256], second[256], out[256];
    tri_string one = {0}, many = {0};
    snprintf(first, sizeof(first), "%s/a.txt", folder);
    snprintf(second, sizeof(second), "%s/b.txt", folder);
    write_document(folder, "a.txt", DOCUMENT_NBYTES, 1);
    write_document(folder, "b.txt", DOCUMENT_NBYTES, 2);
    const char *files[] = {first, second};
    for (int threads = 1; threads <= 5; threads += 2) {
        tri_prepare_counts counts;
        snprintf(out, sizeof(out), "%s/out%d", folder, threads);
        tri_prepare_setup setup = setup_for(files, 2, out);
        setup.threads = threads;
        assert_int_equal(tri_prepare(&setup, &counts), TRI_OK);
        assert_true(counts.shards[0] > 1);
        assert_int_equal(counts.nbytes, 2 * DOCUMENT_NBYTES);
        tri_string_clear(&many);
        read_folder(out, threads == 1 ? &one : &many);
        assert_true(threads == 1 || (one.nbytes == many.nbytes && memcmp(one.text, many.text, one.nbytes) == 0));
    }
    tri_string_fini(&one);
    tri_string_fini(&many);
    drop_folder(folder);
}

/* The shards hold the tokens of the whole texts, each begun and ended. */
static void documents_follow_each_other_with_their_boundaries(void **state)
{
    (void)state;
    char *folder = make_folder(), first[256], second[256], out[256], *text;
    size_t nbytes;
    snprintf(first, sizeof(first), "%s/a.txt", folder);
    snprintf(second, sizeof(second), "%s/b.txt", folder);
    snprintf(out, sizeof(out), "%s/out", folder);
    write_document(folder, "a.txt", DOCUMENT_NBYTES, 3);
    write_document(folder, "b.txt", 5000, 4);
    const char *files[] = {first, second};
    tri_prepare_counts counts;
    tri_prepare_setup setup = setup_for(files, 2, out);
    setup.threads = 2;
    assert_int_equal(tri_prepare(&setup, &counts), TRI_OK);
    tri_tokenizer *tokenizer;
    tri_encoder *encoder;
    tri_ids ids = {0};
    assert_int_equal(tri_tokenizer_open(out, &tokenizer), TRI_OK);
    assert_int_equal(tri_encoder_create(tokenizer, &encoder), TRI_OK);
    for (int f = 0; f < 2; f++) {
        assert_int_equal(tri_fs_read(files[f], 0, &text, &nbytes), TRI_OK);
        assert_int_equal(tri_encode(encoder, text, nbytes, TRI_ENCODE_WHOLE, &ids), TRI_OK);
        assert_int_equal(tri_ids_push(&ids, tri_tokenizer_end(tokenizer)), TRI_OK);
        tri_free(text);
    }
    size_t at = 0;
    for (int s = 0; s < 2; s++) {
        char **paths;
        size_t count;
        tri_token_files shards;
        assert_int_equal(tri_tokens_find(out, s == 1, &paths, &count), TRI_OK);
        assert_int_equal(count, counts.shards[s]);
        assert_int_equal(tri_tokens_open_files(paths, count, &shards), TRI_OK);
        for (int f = 0; f < shards.count; f++) {
            assert_int_equal(shards.items[f].vocabulary, tri_tokenizer_count(tokenizer));
            assert_int_equal(shards.items[f].end, tri_tokenizer_end(tokenizer));
            for (int64_t i = 0; i < shards.items[f].count; i++)
                assert_int_equal((int32_t)tri_token_at(&shards.items[f], i), ids.items[at++]);
        }
        tri_token_files_close(&shards);
        tri_fs_list_free(paths, count);
    }
    assert_int_equal(at, ids.count);
    assert_true(counts.tokens[1] * 5 > counts.tokens[0]); /* a quarter of the text */
    tri_ids_fini(&ids);
    tri_encoder_destroy(encoder);
    tri_tokenizer_close(tokenizer);
    drop_folder(folder);
}

static bool stop_at_once(void *arg, const tri_prepare_counts *counts)
{
    (void)arg;
    (void)counts;
    return false;
}

static void assert_empty(const char *folder)
{
    char **names;
    size_t count;
    assert_int_equal(tri_fs_list(folder, &names, &count), TRI_OK);
    assert_int_equal(count, 0);
    tri_fs_list_free(names, count);
}

static void what_fails_leaves_nothing(void **state)
{
    (void)state;
    char *folder = make_folder(), first[256], out[256];
    snprintf(first, sizeof(first), "%s/a.txt", folder);
    snprintf(out, sizeof(out), "%s/out", folder);
    const char *files[] = {first};
    tri_prepare_counts counts;
    tri_prepare_setup setup = setup_for(files, 1, out);
    assert_int_equal(tri_prepare(&setup, &counts), TRI_ENOTFOUND);
    assert_error_has("a.txt");
    write_file(folder, "a.txt", "", 0);
    assert_int_equal(tri_prepare(&setup, &counts), TRI_EFORMAT);
    assert_error_has("there is no text");
    write_file(folder, "a.txt", "some text", 9);
    setup.progress = stop_at_once;
    assert_int_equal(tri_prepare(&setup, &counts), TRI_ECANCELED);
    assert_empty(out);
    setup.progress = NULL;
    setup.tokenizer = "char";
    write_file(folder, "a.txt", "some \xff text", 11);
    assert_int_equal(tri_prepare(&setup, &counts), TRI_EFORMAT);
    assert_error_has("0xff at 5");
    assert_empty(out);
    setup.tokenizer = "byte";
    assert_int_equal(tri_prepare(&setup, &counts), TRI_OK);
    assert_int_equal(tri_prepare(&setup, &counts), TRI_EINVAL);
    assert_error_has("train-00000.tokens is there already");
    drop_folder(folder);
}

static void characters_of_all_texts_are_one_vocabulary(void **state)
{
    (void)state;
    char *folder = make_folder(), first[256], second[256], out[256];
    snprintf(first, sizeof(first), "%s/a.txt", folder);
    snprintf(second, sizeof(second), "%s/b.txt", folder);
    snprintf(out, sizeof(out), "%s/out", folder);
    write_file(folder, "a.txt", "abab", 4);
    write_file(folder, "b.txt", "cc", 2);
    const char *files[] = {first, second};
    tri_prepare_counts counts;
    tri_prepare_setup setup = setup_for(files, 2, out);
    setup.tokenizer = "char";
    setup.validation = 0;
    assert_int_equal(tri_prepare(&setup, &counts), TRI_OK);
    assert_int_equal(counts.vocabulary, 4); /* with the end of a text */
    assert_int_equal(counts.tokens[0], 8);
    assert_int_equal(counts.tokens[1], 0);
    assert_int_equal(counts.shards[1], 0);
    drop_folder(folder);
}

static void a_shard_that_is_lost_is_named(void **state)
{
    (void)state;
    char *folder = make_folder(), path[1100], **paths;
    size_t count;
    static const char *const names[] = {"train-00000.tokens", "train-00001.tokens", "train-00003.tokens"};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(tri_fs_write_atomic(path, "", 0), TRI_OK);
        tri_status wanted = i < 2 ? TRI_OK : TRI_EFORMAT;
        assert_int_equal(tri_tokens_find(folder, false, &paths, &count), wanted);
        tri_fs_list_free(paths, count);
    }
    assert_non_null(strstr(tri_last_error(), "train-00002.tokens is not there, but train-00003.tokens is"));
    drop_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_that_is_lost_is_named),
        cmocka_unit_test(any_number_of_threads_writes_the_same_bytes),
        cmocka_unit_test(documents_follow_each_other_with_their_boundaries),
        cmocka_unit_test(what_fails_leaves_nothing),
        cmocka_unit_test(characters_of_all_texts_are_one_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
