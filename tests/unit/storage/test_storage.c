/* SPDX-License-Identifier: Apache-2.0
 *
 * test_storage.c: signatures, XML and profiles by published examples; objects of file://; with TRIREME_STORAGE_URL (an
 * empty prefix that tests/process/storage.py sets) the same of a server, and the transfers of large objects.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/path.h"
#include "storage/cache.h"
#include "storage/credentials.h"
#include "storage/pieces.h"
#include "storage/sign.h"
#include "storage/storage_impl.h"
#include "storage/xml.h"

static char folder[64];

static int folder_open(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/trireme-storage-XXXXXX");
    assert_non_null(mkdtemp(folder));
    tri_storage_config config;
    tri_options_defaults(&tri_storage_options, &config);
    snprintf(config.cache, sizeof(config.cache), "%s/cache", folder);
    tri_storage_configure(&config);
    return 0;
}

static int folder_close(void **state)
{
    (void)state;
    return tri_fs_remove(folder) == TRI_OK ? 0 : 1;
}

/* --- by examples --- */

/* "GET Object" of AWS's examples of Signature Version 4, with their keys. */
static void a_signature_is_that_of_the_published_example(void **state)
{
    (void)state;
    static const char empty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const tri_sign_header headers[] = {{"host", "examplebucket.s3.amazonaws.com"},
                                       {"range", "bytes=0-9"},
                                       {"x-amz-content-sha256", empty},
                                       {"x-amz-date", "20130524T000000Z"}};
    const tri_sign sign = {.access = "AKIAIOSFODNN7EXAMPLE",
                           .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                           .region = "us-east-1",
                           .service = "s3",
                           .date = "20130524T000000Z",
                           .method = "GET",
                           .path = "/test.txt",
                           .query = "",
                           .headers = headers,
                           .header_count = TRI_COUNT_OF(headers),
                           .payload = empty};
    tri_string text = {0};
    char hex[65], date[TRI_SIGN_DATE_NBYTES];
    assert_int_equal(tri_sign_authorization(&sign, &text), TRI_OK);
    assert_non_null(strstr(text.text, "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
    assert_int_equal(tri_digest_sha256_hex("", 0, hex), TRI_OK);
    assert_string_equal(hex, empty);
    tri_sign_date(INT64_C(1369353600) * 1000000000, date);
    assert_string_equal(date, "20130524T000000Z");
    tri_string_fini(&text);
}

/* The list of a bucket's objects in AWS's examples, with a query. */
static void a_query_is_signed_in_the_order_of_its_names(void **state)
{
    (void)state;
    static const char empty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const tri_sign_header headers[] = {{"host", "examplebucket.s3.amazonaws.com"},
                                       {"x-amz-content-sha256", empty},
                                       {"x-amz-date", "20130524T000000Z"}};
    const tri_sign sign = {.access = "AKIAIOSFODNN7EXAMPLE",
                           .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                           .region = "us-east-1",
                           .service = "s3",
                           .date = "20130524T000000Z",
                           .method = "GET",
                           .path = "/",
                           .query = "max-keys=2&prefix=J",
                           .headers = headers,
                           .header_count = TRI_COUNT_OF(headers),
                           .payload = empty};
    tri_string text = {0};
    assert_int_equal(tri_sign_authorization(&sign, &text), TRI_OK);
    assert_non_null(strstr(text.text, "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
    tri_string_clear(&text);
    assert_int_equal(tri_sign_encode("a b/c+d~\xc3\xa9", true, &text), TRI_OK);
    assert_string_equal(text.text, "a%20b/c%2Bd~%C3%A9");
    tri_string_fini(&text);
}

static void a_list_comes_in_pages(void **state)
{
    (void)state;
    static const char text[] =
        "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        "<Name>b</Name><IsTruncated>true</IsTruncated><NextContinuationToken>1/x+=</NextContinuationToken>"
        "<Contents><Key>a &amp; b/1.png</Key><ETag>&quot;d41d8&quot;</ETag><Size>12</Size></Contents>"
        "<Contents><Key>c</Key><Size>0</Size></Contents></ListBucketResult>";
    tri_vector entries = {.each = sizeof(tri_storage_entry)};
    tri_s3_page page = {.entries = &entries};
    assert_int_equal(tri_s3_page_read(text, sizeof(text) - 1, "s3://b", &page), TRI_OK);
    assert_int_equal(entries.count, 2);
    const tri_storage_entry *first = entries.items;
    assert_string_equal(first[0].name, "a & b/1.png");
    assert_string_equal(first[0].etag, "d41d8");
    assert_int_equal(first[0].nbytes, 12);
    assert_string_equal(first[1].etag, "");
    assert_string_equal(page.next.text, "1/x+=");
    assert_true(page.is_cut);
    tri_storage_entries_free(&entries);
    tri_string_fini(&page.next);
}

static void xml_that_no_server_sends_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {{"<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>", "DOCTYPE"},
                 {"<a><b></a>", "line 1: mismatched tag"},
                 {"", "no element found"},
                 {"<ListBucketResult><Contents><Key>k</Key><Size>-1</Size></Contents></ListBucketResult>",
                  "an object of '-1' bytes"},
                 {"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "cut short"}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_vector entries = {.each = sizeof(tri_storage_entry)};
        tri_s3_page page = {.entries = &entries};
        assert_int_equal(tri_s3_page_read(cases[i].text, strlen(cases[i].text), "s3://b", &page), TRI_EFORMAT);
        if (!strstr(tri_last_error(), cases[i].why))
            fail_msg("want '%s', got '%s'", cases[i].why, tri_last_error());
        tri_storage_entries_free(&entries);
        tri_string_fini(&page.next);
    }
}

static void a_profile_is_found_as_the_aws_tools_find_it(void **state)
{
    (void)state;
    static const char text[] = "[default]\nregion = eu-west-1\n# region = no\n[profile a b]\n  region=nested\n"
                               "s3 =\n  endpoint_url = nested\nendpoint_url=http://x:1\r\n[other]\nregion = z";
    char value[64];
    assert_true(tri_aws_profile_find(text, "default", "region", value, sizeof(value)));
    assert_string_equal(value, "eu-west-1");
    assert_true(tri_aws_profile_find(text, "profile a b", "endpoint_url", value, sizeof(value)));
    assert_string_equal(value, "http://x:1");
    assert_false(tri_aws_profile_find(text, "profile a b", "region", value, sizeof(value)));
    assert_true(tri_aws_profile_find(text, "other", "region", value, sizeof(value)));
    assert_false(tri_aws_profile_find(text, "default", "aws_access_key_id", value, sizeof(value)));
}

static void names_that_leave_the_folder_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "/a", "a//b", "../a", "a/..", "a/./b", "a/"};
    for (size_t i = 0; i < TRI_COUNT_OF(bad); i++)
        assert_false(tri_storage_name_is_safe(bad[i]));
    assert_true(tri_storage_name_is_safe("a/.b/...c"));
}

static void urls_are_told_from_paths(void **state)
{
    (void)state;
    static const char *const urls[] = {"s3://b/k", "http://h/f", "https://h/f", "file:///f"};
    static const char *const paths[] = {"s3:/b", "a/s3://b", "/s3", "S3", ""};
    for (size_t i = 0; i < TRI_COUNT_OF(urls); i++)
        assert_true(tri_path_is_url(urls[i]));
    for (size_t i = 0; i < TRI_COUNT_OF(paths); i++) {
        assert_false(tri_path_is_url(paths[i]));
        assert_int_equal(tri_place_check(paths[i]), TRI_OK);
    }
    assert_int_equal(tri_place_check("gs://b/k"), TRI_ECONFIG);
    assert_string_equal(tri_last_error(),
                        "gs://b/k: want a path, s3://, http:// or https://, got the URL scheme gs://");
}

/* --- objects --- */

static const char *given_url(void)
{
    return getenv("TRIREME_STORAGE_URL");
}

/* A prefix of this test: on a server, if one is given. */
static char *url_of(const char *name)
{
    char *url = given_url() ? tri_format("%s/%s", given_url(), name) : tri_format("file://%s/%s", folder, name);
    assert_non_null(url);
    return url;
}

static tri_storage *opened(const char *name)
{
    tri_storage *storage;
    char *url = url_of(name);
    tri_status status = tri_storage_open(url, &storage);
    if (status != TRI_OK)
        fail_msg("%s", tri_last_error());
    tri_free(url);
    return storage;
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != TRI_OK)                                                                                          \
            fail_msg("%s", tri_last_error());                                                                          \
    } while (0)

static void what_is_put_is_found_listed_read_and_deleted(void **state)
{
    (void)state;
    tri_storage *storage = opened("basics");
    tri_storage_entry entry;
    tri_vector entries;
    char bytes[8] = "";
    MUST(tri_storage_put(storage, "b/two words+&.txt", "0123456789", 10));
    MUST(tri_storage_put(storage, "a", "", 0));
    MUST(tri_storage_stat(storage, "b/two words+&.txt", &entry));
    assert_int_equal(entry.nbytes, 10);
    entry.name = (char *)(uintptr_t) "b/two words+&.txt";
    MUST(tri_storage_read(storage, &entry, 3, 4, bytes));
    assert_string_equal(bytes, "3456");
    MUST(tri_storage_list(storage, &entries));
    assert_int_equal(entries.count, 2);
    assert_string_equal(((tri_storage_entry *)tri_vector_at(&entries, 0))->name, "a");
    assert_string_equal(((tri_storage_entry *)tri_vector_at(&entries, 1))->name, "b/two words+&.txt");
    assert_string_equal(((tri_storage_entry *)tri_vector_at(&entries, 1))->etag, entry.etag);
    tri_storage_entries_free(&entries);
    MUST(tri_storage_delete(storage, "b/two words+&.txt"));
    MUST(tri_storage_delete(storage, "b/two words+&.txt")); /* fine when absent */
    assert_int_equal(tri_storage_stat(storage, "b/two words+&.txt", &entry), TRI_ENOTFOUND);
    MUST(tri_storage_delete(storage, "a"));
    tri_storage_close(storage);
}

static void a_large_file_goes_up_and_down_in_parts(void **state)
{
    (void)state;
    const size_t nbytes = 2 * TRI_STORAGE_PART_NBYTES + 12345;
    unsigned char *bytes = tri_alloc(nbytes);
    char path[128], back[128], *found;
    tri_storage *storage = opened("large");
    tri_vector entries;
    for (size_t i = 0; i < nbytes; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    snprintf(path, sizeof(path), "%s/file", folder);
    MUST(tri_fs_write_atomic(path, bytes, nbytes));
    MUST(tri_storage_upload(storage, "x/large.bin", path));
    MUST(tri_storage_put(storage, "x/small", "s", 1));
    MUST(tri_storage_list(storage, &entries));
    assert_int_equal(entries.count, 2);
    snprintf(back, sizeof(back), "%s/back", folder);
    MUST(tri_storage_download(storage, entries.items, entries.count, back, ""));
    snprintf(path, sizeof(path), "%s/back/x/large.bin", folder);
    size_t got;
    MUST(tri_fs_read(path, 0, &found, &got));
    assert_int_equal(got, nbytes);
    assert_memory_equal(found, bytes, nbytes);
    MUST(tri_storage_delete(storage, "x/large.bin"));
    MUST(tri_storage_delete(storage, "x/small"));
    tri_storage_entries_free(&entries);
    tri_storage_close(storage);
    tri_free(found);
    tri_free(bytes);
}

static void piece_write(const char *name, const char *bytes, const uint64_t *places, size_t count)
{
    char path[256];
    tri_fs_file *file;
    tri_piece piece = {0};
    snprintf(path, sizeof(path), "%s/p/%s", folder, name);
    MUST(tri_fs_file_open(path, true, &file));
    for (size_t i = 0; i < count; i++)
        MUST(tri_piece_put(&piece, file, bytes + i, 1, places[i]));
    MUST(tri_piece_end(&piece, file));
    MUST(tri_fs_file_close(file));
    tri_piece_fini(&piece);
}

static void pieces_are_files_again_and_what_is_wrong_is_refused(void **state)
{
    (void)state;
    char path[256], manifest[256], *text, *name = tri_piece_name("f", 1, 0xab);
    assert_string_equal(name, "f.piece-1-00000000000000ab");
    assert_true(tri_piece_is(name, NULL) && tri_piece_is(name, "00000000000000ab"));
    assert_false(tri_piece_is(name, "00000000000000ac") || tri_piece_is("model.safetensors", NULL));
    tri_free(name);
    snprintf(path, sizeof(path), "%s/p", folder);
    snprintf(manifest, sizeof(manifest), "%s/p/manifest.json", folder);
    static const struct {
        const char *list, *damage, *wanted; /* damage: of f.piece-1-0's last bytes; wanted: of f, or of the error */
    } cases[] = {{"f.piece-0-0\nf.piece-1-0\n", NULL, "0123456"},
                 {"f.piece-0-0\n", "stale", NULL},
                 {"f.piece-0-0\nf.piece-2-0\n", NULL, "f.piece-2-0"},
                 {"f.piece-0-0\nf.piece-1-0\n", "12345678TRIPIECX", "something else"},
                 {"f.piece-0-0\n../f.piece-1-0\n", NULL, "name of no piece"},
                 {"f.piece-0-0\nmodel\n", NULL, "name of no piece"},
                 {"f.piece-0-0", NULL, "without an end"}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        char file[300];
        MUST(tri_fs_remove(path));
        MUST(tri_fs_make_folder(path));
        MUST(tri_fs_write_atomic(manifest, "m", 1));
        piece_write("f.piece-0-0", "0235", (const uint64_t[]){0, 2, 3, 5}, 4);
        piece_write("f.piece-1-0", "146", (const uint64_t[]){1, 4, 6}, 3);
        MUST(tri_pieces_list_write(path, cases[i].list));
        if (cases[i].damage != NULL && strcmp(cases[i].damage, "stale") == 0)
            MUST(tri_fs_write_atomic(manifest, "another", 7));
        else if (cases[i].damage != NULL) {
            snprintf(file, sizeof(file), "%s/f.piece-1-0", path);
            MUST(tri_fs_write_atomic(file, cases[i].damage, strlen(cases[i].damage)));
        }
        tri_status status = tri_pieces_join(path);
        snprintf(file, sizeof(file), "%s/f", path);
        if (i > 1) {
            assert_int_not_equal(status, TRI_OK);
            assert_non_null(strstr(tri_last_error(), cases[i].wanted));
            continue;
        }
        assert_int_equal(status, TRI_OK);
        assert_int_equal(tri_fs_exists(file), cases[i].wanted != NULL);
        if (cases[i].wanted != NULL) {
            MUST(tri_fs_read(file, 0, &text, NULL));
            assert_string_equal(text, cases[i].wanted);
            tri_free(text);
        }
        snprintf(file, sizeof(file), "%s/f.piece-0-0", path);
        assert_false(tri_fs_exists(file));
    }
    char list[300]; /* of that name, in somebody's data */
    snprintf(list, sizeof(list), "%s/pieces", path);
    MUST(tri_fs_remove(manifest));
    MUST(tri_fs_write_atomic(list, "king queen\n", 11));
    MUST(tri_pieces_join(path));
    assert_true(tri_fs_exists(list));
}

static bool completes;

/* A server whose answer to an earlier try was lost, or that has forgotten the upload. */
static tri_status no_such_upload(tri_storage *storage, const char *name, const char *mark,
                                 char (*etags)[TRI_STORAGE_ETAG_NBYTES], int count)
{
    if (completes)
        MUST(tri_storage_file.parts_end(storage, name, mark, etags, count));
    return tri_fail(TRI_ENOTFOUND, "NoSuchUpload");
}

static void an_upload_that_the_server_does_not_know_counts_if_the_object_has_its_bytes(void **state)
{
    (void)state;
    const size_t nbytes = TRI_STORAGE_PART_NBYTES + 1;
    char path[128], there[128], *bytes = tri_alloc_zero(nbytes, 1);
    tri_storage *storage;
    snprintf(path, sizeof(path), "file://%s/server", folder);
    MUST(tri_storage_open(path, &storage));
    tri_storage_ops ops = *storage->ops;
    ops.parts_end = no_such_upload;
    storage->ops = &ops;
    snprintf(path, sizeof(path), "%s/file", folder);
    snprintf(there, sizeof(there), "%s/server/x", folder);
    MUST(tri_fs_write_atomic(path, bytes, nbytes));
    completes = false;
    assert_int_equal(tri_storage_upload(storage, "x", path), TRI_ENOTFOUND);
    assert_string_equal(tri_last_error(), "NoSuchUpload");
    bytes[nbytes - 1] = 1; /* an earlier object of the same length, in as many parts */
    MUST(tri_fs_write_atomic(there, bytes, nbytes));
    assert_int_equal(tri_storage_upload(storage, "x", path), TRI_ENOTFOUND);
    MUST(tri_fs_write_atomic(there, bytes, nbytes - 1));
    assert_int_equal(tri_storage_upload(storage, "x", path), TRI_ENOTFOUND);
    completes = true;
    MUST(tri_storage_upload(storage, "x", path));
    tri_free(bytes);
    tri_storage_close(storage);
}

/* --- copies: of a server only --- */

static char *fetched(const char *name)
{
    char *url = url_of(name), *path = NULL;
    tri_status status = tri_cache_place(url, NULL, &path);
    tri_free(url);
    return status == TRI_OK ? path : NULL;
}

static void a_copy_is_fetched_once_and_again_when_the_object_changes(void **state)
{
    (void)state;
    if (!given_url())
        skip();
    tri_storage *storage = opened("copies");
    char *first, *second, *third, *text;
    MUST(tri_storage_put(storage, "f/a.csv", "1", 1));
    MUST(tri_storage_put(storage, "f/sub/b.csv", "2", 1));
    assert_non_null(first = fetched("copies/f"));
    assert_non_null(second = fetched("copies/f/"));
    assert_string_equal(first, second);
    assert_true(tri_path_ends_in(first, "/f"));
    MUST(tri_storage_put(storage, "f/a.csv", "3", 1));
    assert_non_null(third = fetched("copies/f"));
    assert_string_not_equal(first, third);
    char *path = tri_format("%s/a.csv", third);
    MUST(tri_fs_read(path, 0, &text, NULL));
    assert_string_equal(text, "3");
    tri_free(path);
    tri_free(text);
    assert_null(fetched("copies/none"));
    assert_non_null(strstr(tri_last_error(), "there is no such object, and none below it"));
    char *one = fetched("copies/f/sub/b.csv");
    assert_non_null(one);
    assert_true(tri_path_ends_in(one, "/b.csv"));
    tri_free(one);
    tri_free(first);
    tri_free(second);
    tri_free(third);
    tri_storage_close(storage);
}

static void copies_in_use_are_kept_and_too_large_ones_refused(void **state)
{
    (void)state;
    if (!given_url())
        skip();
    tri_storage_config config = tri_storage_configured();
    tri_storage *storage = opened("room");
    char bytes[600] = "", *path;
    MUST(tri_storage_put(storage, "a", bytes, sizeof(bytes)));
    MUST(tri_storage_put(storage, "b", bytes, sizeof(bytes)));
    config.cache_bytes = 1000;
    snprintf(config.cache, sizeof(config.cache), "%s/room", folder);
    tri_storage_configure(&config);
    assert_non_null(path = fetched("room/a"));
    tri_free(path);
    assert_null(fetched("room/b"));
    assert_non_null(strstr(tri_last_error(), "storage.cache_bytes: want room for 600 bytes of "));
    tri_storage_close(storage);
}

/* --- mirrors --- */

static void checkpoint_write(const char *run, int step, const char *content)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/checkpoints/step-%08d", run, step);
    MUST(tri_fs_make_folder(path));
    snprintf(path, sizeof(path), "%s/checkpoints/step-%08d/model.safetensors", run, step);
    MUST(tri_fs_write_atomic(path, content, strlen(content)));
    snprintf(path, sizeof(path), "%s/checkpoints/step-%08d/manifest.json", run, step);
    MUST(tri_fs_write_atomic(path, content, strlen(content)));
}

static void pushed(const char *run, int step, int keep, int keep_every)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/checkpoints/step-%08d", run, step);
    MUST(tri_mirror_push(path, keep, keep_every));
}

static void names_are(const char *name, const char *const *wanted, size_t count)
{
    tri_storage *storage = opened(name);
    tri_vector entries;
    MUST(tri_storage_list(storage, &entries));
    for (size_t i = 0; i < entries.count; i++)
        if (i >= count || strcmp(((tri_storage_entry *)tri_vector_at(&entries, i))->name, wanted[i]) != 0)
            fail_msg("object %zu is '%s'", i, ((tri_storage_entry *)tri_vector_at(&entries, i))->name);
    assert_int_equal(entries.count, count);
    tri_storage_entries_free(&entries);
    tri_storage_close(storage);
}

#define NAMES(name, ...)                                                                                               \
    names_are(name, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void a_run_at_a_url_keeps_whole_checkpoints_and_comes_back(void **state)
{
    (void)state;
    char *url = url_of("runs/r"), *run, path[256], *text;
    bool has;
    MUST(tri_mirror_folder(url, &run));
    MUST(tri_mirror_has_run(run, &has));
    assert_false(has);
    snprintf(path, sizeof(path), "%s/metrics.jsonl", run);
    MUST(tri_fs_write_atomic(path, "m\n", 2));
    snprintf(path, sizeof(path), "%s/launcher.journal", run); /* has the token of the job */
    MUST(tri_fs_write_atomic(path, "secret", 6));
    tri_storage *killed = opened("runs/r/checkpoints"); /* a save in pieces of the same content was killed at its end */
    MUST(tri_storage_put(killed, "step-00000030/pieces", "manifest xxh3 of it\n", 20));
    MUST(tri_storage_put(killed, "step-00000030/model.safetensors.piece-0-00000000000000ab", "half", 4));
    tri_storage_close(killed);
    checkpoint_write(run, 30, "s30");
    pushed(run, 30, 2, 20);
    NAMES("runs/r/checkpoints", "step-00000030/manifest.json", "step-00000030/model.safetensors");
    for (int step = 10; step <= 40; step += 10) {
        char content[16];
        snprintf(content, sizeof(content), "s%d", step);
        checkpoint_write(run, step, content);
        pushed(run, step, 2, 20);
    }
    NAMES("runs/r", "checkpoints/step-00000020/manifest.json", "checkpoints/step-00000020/model.safetensors",
          "checkpoints/step-00000030/manifest.json", "checkpoints/step-00000030/model.safetensors",
          "checkpoints/step-00000040/manifest.json", "checkpoints/step-00000040/model.safetensors", "metrics.jsonl");
    /* A save that was killed leaves objects without a manifest; another host has only what is at the URL. */
    tri_storage *storage = opened("runs/r/checkpoints");
    MUST(tri_storage_put(storage, "step-00000050/model.safetensors", "half", 4));
    checkpoint_write(run, 60, "never sent");
    MUST(tri_fs_remove(path));
    snprintf(path, sizeof(path), "%s/checkpoints/step-00000040", run);
    MUST(tri_fs_remove(path));
    snprintf(path, sizeof(path), "%s/checkpoints", run);
    MUST(tri_mirror_pull_newest(path));
    snprintf(path, sizeof(path), "%s/checkpoints/step-00000040/model.safetensors", run);
    MUST(tri_fs_read(path, 0, &text, NULL));
    assert_string_equal(text, "s40");
    tri_free(text);
    snprintf(path, sizeof(path), "%s/checkpoints/step-00000060", run);
    assert_false(tri_fs_exists(path));
    MUST(tri_mirror_has_run(run, &has));
    assert_true(has);
    /* The same step with other bytes replaces it; the next one clears what was left. */
    checkpoint_write(run, 40, "other");
    pushed(run, 40, 1, 0);
    NAMES("runs/r", "checkpoints/step-00000040/manifest.json", "checkpoints/step-00000040/model.safetensors",
          "metrics.jsonl");
    tri_storage_close(storage);
    tri_free(url);
    tri_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_is_that_of_the_published_example),
        cmocka_unit_test(a_query_is_signed_in_the_order_of_its_names),
        cmocka_unit_test(a_list_comes_in_pages),
        cmocka_unit_test(xml_that_no_server_sends_is_refused),
        cmocka_unit_test(a_profile_is_found_as_the_aws_tools_find_it),
        cmocka_unit_test(names_that_leave_the_folder_are_refused),
        cmocka_unit_test(urls_are_told_from_paths),
        cmocka_unit_test(what_is_put_is_found_listed_read_and_deleted),
        cmocka_unit_test(a_large_file_goes_up_and_down_in_parts),
        cmocka_unit_test(an_upload_that_the_server_does_not_know_counts_if_the_object_has_its_bytes),
        cmocka_unit_test(pieces_are_files_again_and_what_is_wrong_is_refused),
        cmocka_unit_test(a_copy_is_fetched_once_and_again_when_the_object_changes),
        cmocka_unit_test(copies_in_use_are_kept_and_too_large_ones_refused),
        cmocka_unit_test(a_run_at_a_url_keeps_whole_checkpoints_and_comes_back),
    };
    return cmocka_run_group_tests(tests, folder_open, folder_close);
}
