/* SPDX-License-Identifier: Apache-2.0
 *
 * test_safetensors.c: what is written is what the format says, and no header is believed unchecked.
 */
#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "unit/checkpoint/write.h"

static void assert_error_has(const char *text)
{
    if (strstr(tri_last_error(), text) == NULL)
        fail_msg("want '%s' in '%s'", text, tri_last_error());
}

/* A file in memory: length, header, data. */
static void make_file(tri_string *out, const char *header, size_t data_nbytes)
{
    uint64_t length = strlen(header);
    tri_string_clear(out);
    assert_int_equal(tri_string_append_bytes(out, &length, 8), TRI_OK);
    assert_int_equal(tri_string_append(out, header), TRI_OK);
    for (size_t i = 0; i < data_nbytes; i++)
        assert_int_equal(tri_string_append_bytes(out, "\x2a", 1), TRI_OK);
}

static tri_status parse_header(const char *header, size_t data_nbytes)
{
    tri_string file = {0};
    tri_safetensors *parsed = NULL;
    make_file(&file, header, data_nbytes);
    tri_status status = tri_safetensors_parse(file.text, file.nbytes, "f", &parsed);
    tri_safetensors_close(parsed);
    tri_string_fini(&file);
    return status;
}

static char *make_path(char folder[64], const char *name)
{
    static char path[128];
    strcpy(folder, "/tmp/trireme-safetensors-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void a_written_file_reads_back(void **state)
{
    (void)state;
    char folder[64], *path = make_path(folder, "t.safetensors");
    const float weights[6] = {1, 2, 3, 4, 5, 6};
    const int64_t step = 77;
    const tri_stored_tensor tensors[] = {
        {"step", TRI_I64, {0, {0}}, &step, 8},
        {"a \"quoted\" \xc3\xa4 name", TRI_F32, {2, {2, 3}}, weights, 24},
        {"empty", TRI_BF16, {1, {0}}, NULL, 0},
    };
    const char *const metadata[] = {"format", "pt", "note", "a\nb", NULL};
    assert_int_equal(safetensors_write(path, tensors, 3, metadata), TRI_OK);
    tri_safetensors *file;
    assert_int_equal(tri_safetensors_open(path, &file), TRI_OK);
    assert_int_equal(tri_safetensors_count(file), 3);
    for (int i = 0; i < 3; i++) {
        const tri_stored_tensor *found = tri_safetensors_find(file, tensors[i].name);
        assert_non_null(found);
        assert_int_equal(found->dtype, tensors[i].dtype);
        assert_true(tri_shape_equal(found->shape, tensors[i].shape));
        assert_int_equal(found->nbytes, tensors[i].nbytes);
        if (found->nbytes > 0)
            assert_memory_equal(found->bytes, tensors[i].bytes, found->nbytes);
    }
    assert_string_equal(tri_safetensors_at(file, 0)->name, "step");
    assert_null(tri_safetensors_find(file, "other"));
    assert_string_equal(tri_safetensors_metadata(file, "note"), "a\nb");
    assert_null(tri_safetensors_metadata(file, "other"));
    tri_safetensors_close(file);
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
}

/* An independent look at the bytes, by the text of the format: 8 bytes of length, '{', spaces at the end, aligned data,
 * and the header word for word. */
static void the_bytes_are_those_of_the_format(void **state)
{
    (void)state;
    char folder[64], *path = make_path(folder, "t.safetensors"), *bytes;
    size_t nbytes;
    const float w[2] = {1, -2};
    const uint8_t mask[3] = {7, 8, 9};
    const tri_stored_tensor tensors[] = {{"w", TRI_F32, {1, {2}}, w, 8}, {"m", TRI_U8, {2, {3, 1}}, mask, 3}};
    assert_int_equal(safetensors_write(path, tensors, 2, NULL), TRI_OK);
    assert_int_equal(tri_fs_read(path, 0, &bytes, &nbytes), TRI_OK);
    static const char wanted[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                 "\"m\":{\"dtype\":\"U8\",\"shape\":[3,1],\"data_offsets\":[8,11]}}";
    uint64_t length;
    memcpy(&length, bytes, 8);
    assert_int_equal(length % 8, 0);
    assert_int_equal(length, (sizeof(wanted) - 1 + 7) / 8 * 8);
    assert_int_equal(nbytes, 8 + length + 11);
    assert_memory_equal(bytes + 8, wanted, sizeof(wanted) - 1);
    for (size_t i = 8 + sizeof(wanted) - 1; i < 8 + length; i++)
        assert_int_equal(bytes[i], ' ');
    assert_memory_equal(bytes + 8 + length, w, 8);
    assert_memory_equal(bytes + 8 + length + 8, mask, 3);
    tri_free(bytes);
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
}

#define T(name, shape, from, to)                                                                                       \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void hostile_headers_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_nbytes;
        tri_status status;
        const char *text;
    } cases[] = {
        {"{" T("a", "[2]", "0", "8") "}", 8, TRI_OK, ""},
        {"{}", 0, TRI_OK, ""},
        {"{\"__metadata__\":{\"a\":\"b\"}}   ", 0, TRI_OK, ""},
        {"{" T("a", "[]", "0", "4") "," T("b", "[0,9]", "4", "4") "}", 4, TRI_OK, ""},
        {"{}", 1, TRI_EFORMAT, "take 0 bytes"},
        {"{" T("a", "[2]", "0", "8") "," T("b", "[2]", "4", "12") "}", 12, TRI_EFORMAT, "'b': overlaps"},
        {"{" T("a", "[2]", "0", "8") "," T("b", "[2]", "0", "8") "}", 8, TRI_EFORMAT, "overlaps"},
        {"{" T("a", "[2]", "0", "8") "," T("b", "[2]", "12", "20") "}", 20, TRI_EFORMAT, "'b': there is a hole"},
        {"{" T("a", "[2]", "4", "12") "}", 12, TRI_EFORMAT, "'a': there is a hole"},
        {"{" T("a", "[2]", "0", "8") "}", 9, TRI_EFORMAT, "take 8 bytes of data, the file holds 9"},
        {"{" T("a", "[2]", "0", "8") "}", 7, TRI_EFORMAT, "are not within"},
        {"{" T("a", "[3]", "0", "8") "}", 8, TRI_EFORMAT, "want 12 bytes, data_offsets give 8"},
        {"{" T("a", "[2]", "8", "0") "}", 8, TRI_EFORMAT, "are not within"},
        {"{" T("a", "[2]", "-8", "0") "}", 8, TRI_EFORMAT, "are not within"},
        {"{" T("a", "[4611686018427387904,4]", "0", "0") "}", 0, TRI_EFORMAT, "larger than a machine"},
        {"{" T("a", "[4294967296,4294967296]", "0", "0") "}", 0, TRI_EFORMAT, "larger than a machine"},
        {"{" T("a", "[-1]", "0", "0") "}", 0, TRI_EFORMAT, ">= 0"},
        {"{" T("a", "[1.5]", "0", "0") "}", 0, TRI_EFORMAT, ">= 0"},
        {"{" T("a", "[99999999999999999999]", "0", "0") "}", 0, TRI_EFORMAT, "too big"},
        {"{" T("a", "[1,1,1,1,1,1,1]", "0", "4") "}", 4, TRI_EUNSUPPORTED, "7 dimensions"},
        {"{" T("a", "[2]", "0", "8") "," T("a", "[2]", "0", "8") "}", 8, TRI_EFORMAT, "duplicate"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, TRI_EUNSUPPORTED, "'F33'"},
        {"{\"a\":{\"dtype\":4,\"shape\":[],\"data_offsets\":[0,4]}}", 4, TRI_EFORMAT, "dtype as a text"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, TRI_EFORMAT, "want an object of"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":1}}", 4, TRI_EFORMAT,
         "want an object of"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}", 4, TRI_EFORMAT, "shape as a list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 4, TRI_EFORMAT, "two numbers"},
        {"{\"a\":[]}", 0, TRI_EFORMAT, "want an object of"},
        {"{\"__metadata__\":{\"a\":1}}", 0, TRI_EFORMAT, "want a text"},
        {"{\"__metadata__\":[]}", 0, TRI_EFORMAT, "object of texts"},
        {"{\"a\\u0000b\":1}", 0, TRI_EFORMAT, "NUL"},
        {"[]", 0, TRI_EFORMAT, "begin with '{'"},
        {" {}", 0, TRI_EFORMAT, "begin with '{'"},
        {"{} x", 0, TRI_EFORMAT, "end of file expected"},
        {"{\"\xff\":1}", 0, TRI_EFORMAT, "unable to decode"},
        {"", 0, TRI_EFORMAT, "begin with '{'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tri_status status = parse_header(cases[i].header, cases[i].data_nbytes);
        if (status != cases[i].status)
            fail_msg("case %zu: want %s, got %s: %s", i, tri_status_name(cases[i].status), tri_status_name(status),
                     tri_last_error());
        if (status != TRI_OK)
            assert_error_has(cases[i].text);
    }
}

static void lengths_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0, 1, 3, 100000001, UINT64_C(1) << 32, UINT64_MAX, UINT64_MAX - 7};
    tri_string file = {0};
    tri_safetensors *parsed;
    make_file(&file, "{}", 0);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        memcpy(file.text, &lengths[i], 8);
        assert_int_equal(tri_safetensors_parse(file.text, file.nbytes, "f", &parsed), TRI_EFORMAT);
    }
    make_file(&file, "{" T("a", "[2]", "0", "8") "}", 8);
    for (size_t i = 0; i < file.nbytes; i++)
        assert_int_equal(tri_safetensors_parse(file.text, i, "f", &parsed), TRI_EFORMAT);
    tri_string_fini(&file);
}

/* 640 = 0x280: the length is the bytes 80 02, as a pickle begins. */
static void a_header_of_any_length_is_no_other_kind_of_file(void **state)
{
    (void)state;
    char header[641];
    memset(header, ' ', 640);
    header[640] = 0;
    memcpy(header, "{}", 2);
    assert_int_equal(parse_header(header, 0), TRI_OK);
}

static void wrong_tensors_are_not_written(void **state)
{
    (void)state;
    tri_string out = {0};
    const float w[2] = {1, 2};
    const tri_stored_tensor short_one = {"w", TRI_F32, {1, {3}}, w, 8};
    const tri_stored_tensor reserved = {"__metadata__", TRI_F32, {1, {2}}, w, 8};
    const tri_stored_tensor twice[] = {{"w", TRI_F32, {1, {2}}, w, 8}, {"w", TRI_F32, {1, {2}}, w, 8}};
    assert_int_equal(tri_safetensors_print_header("f", &short_one, 1, NULL, &out), TRI_EINVAL);
    assert_int_equal(tri_safetensors_print_header("f", &reserved, 1, NULL, &out), TRI_EINVAL);
    assert_int_equal(tri_safetensors_print_header("f", twice, 2, NULL, &out), TRI_EINVAL);
    assert_int_equal(out.nbytes, 0);
    tri_string_fini(&out);
}

static void every_failing_allocation_gives_an_error_and_no_leak(void **state)
{
    (void)state;
    tri_string file = {0};
    make_file(&file, "{\"__metadata__\":{\"a\":\"b\"}," T("a", "[2]", "0", "8") "," T("b", "[]", "8", "12") "}", 12);
    uint64_t live = tri_memory_now().live;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        tri_safetensors *parsed = NULL;
        tri_memory_fail_at(n);
        tri_status status = tri_safetensors_parse(file.text, file.nbytes, "f", &parsed);
        tri_memory_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        done = status == TRI_OK;
        assert_true(n > 3 || !done);
        tri_safetensors_close(parsed);
        assert_int_equal(tri_memory_now().live, live);
    }
    tri_string_fini(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_file_reads_back),
        cmocka_unit_test(the_bytes_are_those_of_the_format),
        cmocka_unit_test(hostile_headers_are_refused_with_the_reason),
        cmocka_unit_test(lengths_that_cannot_be_are_refused),
        cmocka_unit_test(a_header_of_any_length_is_no_other_kind_of_file),
        cmocka_unit_test(wrong_tensors_are_not_written),
        cmocka_unit_test(every_failing_allocation_gives_an_error_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
