/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tensors.c: models in several files, tensors put together from stored ones, and both written anew.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/tensor_save.h"
#include "checkpoint/tensor_set.h"
#include "tensor/reduce.h"
#include "unit/checkpoint/write.h"

static char folder[64];

static void folder_make(void)
{
    strcpy(folder, "/tmp/trireme-tensors-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void folder_remove(void)
{
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
}

static const char *path_of(const char *name)
{
    static char path[160];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* A file of f32 lists of two elements. */
static void file_write(const char *name, const char *const *tensors, int count)
{
    static const float values[2] = {1, 2};
    tri_stored_tensor stored[4];
    for (int i = 0; i < count; i++)
        stored[i] = (tri_stored_tensor){tensors[i], TRI_F32, {1, {2}}, values, sizeof(values)};
    assert_int_equal(safetensors_write(path_of(name), stored, count, NULL), TRI_OK);
}

static void index_write(const char *text)
{
    assert_int_equal(tri_fs_write_atomic(path_of(TRI_INDEX_FILE), text, strlen(text)), TRI_OK);
}

static void expect_open_fails(tri_status code, const char *part)
{
    tri_tensor_set *set;
    assert_int_equal(tri_tensor_set_open(folder, &set), code);
    assert_null(set);
    if (strstr(tri_last_error(), part) == NULL)
        fail_msg("want '%s' in '%s'", part, tri_last_error());
}

static void a_model_in_two_files_is_one_set(void **state)
{
    (void)state;
    folder_make();
    file_write("a.safetensors", (const char *const[]){"x", "y"}, 2);
    file_write("b.safetensors", (const char *const[]){"z"}, 1);
    index_write("{\"metadata\":{\"total_size\":24},\"weight_map\":{\"x\":\"a.safetensors\",\"z\":\"b.safetensors\","
                "\"y\":\"a.safetensors\"}}");
    tri_tensor_set *set;
    assert_int_equal(tri_tensor_set_open(folder, &set), TRI_OK);
    assert_int_equal(tri_tensor_set_count(set), 3);
    assert_int_equal(tri_tensor_set_file_count(set), 2);
    assert_string_equal(tri_tensor_set_find(set, "z")->name, "z");
    assert_null(tri_tensor_set_find(set, "w"));
    tri_tensor_set_close(set);
    folder_remove();
}

static void an_index_is_held_against_its_files(void **state)
{
    (void)state;
    folder_make();
    expect_open_fails(TRI_ENOTFOUND, "no weights: want model.safetensors or model.safetensors.index.json in it");
    file_write("a.safetensors", (const char *const[]){"x", "y"}, 2);
    index_write("{\"weight_map\":{\"x\":\"a.safetensors\"}}");
    expect_open_fails(TRI_EFORMAT, "tensor 'y' of a.safetensors is not in the index");
    index_write("{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"a.safetensors\",\"z\":\"a.safetensors\"}}");
    expect_open_fails(TRI_EFORMAT, "it names 3 tensors, its files hold 2");
    index_write("{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    expect_open_fails(TRI_EFORMAT, "tensor 'y' is in a.safetensors, the index says b.safetensors");
    index_write("{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"a.safetensors\",\"z\":\"b.safetensors\"}}");
    expect_open_fails(TRI_ENOTFOUND, "file 2 of 2");
    /* The same tensor in two files: one of them is not where the index says. */
    file_write("b.safetensors", (const char *const[]){"z", "x"}, 2);
    expect_open_fails(TRI_EFORMAT, "tensor 'x' is in b.safetensors, the index says a.safetensors");
    folder_remove();
}

static void a_damaged_index_says_where(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"weight_map\":{\"x\":\"a\",\n\"x\":\"a\"}}", "i:2: duplicate object key"},
        {"{\"weight_map\":{}}", "i: want weight_map"},
        {"{\"weight_map\":[\"x\"]}", "i: want weight_map"},
        {"[]", "i: want weight_map"},
        {"{\"weight_map\":{\"x\":\"../a\"}}", "tensor 'x': want the name of a file in the same folder, got '../a'"},
        {"{\"weight_map\":{\"x\":\"..\"}}", "got '..'"},
        {"{\"weight_map\":{\"x\":\"/etc/passwd\"}}", "got '/etc/passwd'"},
        {"{\"weight_map\":{\"x\":\"\"}}", "got ''"},
        {"{\"weight_map\":{\"x\":7}}", "got no text"},
        {"{\"weight_map\":", "i:1:"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_tensor_index index;
        assert_int_equal(tri_tensor_index_parse(cases[i].text, strlen(cases[i].text), "i", &index), TRI_EFORMAT);
        if (strstr(tri_last_error(), cases[i].part) == NULL)
            fail_msg("want '%s' in '%s'", cases[i].part, tri_last_error());
        tri_tensor_index_fini(&index);
    }
}

/* Element (r, c) of the stored matrix [rows, columns] is 100 r + c. */
static void matrix_fill(float *values, int rows, int columns)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            values[r * columns + c] = (float)(100 * r + c);
}

static void a_view_reads_any_piece_of_turned_and_stacked_parts(void **state)
{
    (void)state;
    float plain[4 * 3], turned[3 * 5], all[7 * 3], piece[7 * 3];
    matrix_fill(plain, 4, 3);
    matrix_fill(turned, 3, 5);
    const tri_stored_tensor first = {"p", TRI_F32, {2, {4, 3}}, plain, sizeof(plain)};
    const tri_stored_tensor second = {"t", TRI_F32, {2, {3, 5}}, turned, sizeof(turned)};
    const tri_tensor_view view = {
        .name = "v",
        .shape = {2, {7, 3}},
        .parts = {{.from = &first, .first_row = 2, .rows = 2}, {.from = &second, .rows = 5, .transposed = true}},
        .part_count = 2};
    tri_tensor_view_read(&view, 0, 21, all);
    for (int r = 0; r < 7; r++)
        for (int c = 0; c < 3; c++)
            assert_true(all[r * 3 + c] ==
                        (r < 2 ? 100.0f * (float)(r + 2) + (float)c : 100.0f * (float)c + (float)(r - 2)));
    for (int from = 0; from <= 21; from++)
        for (int count = 0; from + count <= 21; count++) {
            tri_tensor_view_read(&view, from, count, piece);
            assert_memory_equal(piece, all + from, (size_t)count * sizeof(float));
        }
}

static void halves_come_out_exact_and_doubles_to_the_nearest(void **state)
{
    (void)state;
    const uint16_t bf16[] = {0x0001, 0x8000, 0x3f80, 0x7f80, 0xff7f};
    const uint16_t f16[] = {0x0001, 0x8000, 0x3c00, 0x7c00, 0xfbff};
    const double f64[] = {1.0 + 1e-9, -0.1, 1e300, 1e-320, 3};
    float out[5];
    unsigned char bytes[64]; /* a file's data may begin at an odd address */
    const tri_stored_tensor tensors[] = {{"b", TRI_BF16, {1, {5}}, bytes + 1, sizeof(bf16)},
                                         {"h", TRI_F16, {1, {5}}, bytes + 1, sizeof(f16)},
                                         {"d", TRI_F64, {1, {5}}, bytes + 1, sizeof(f64)}};
    tri_tensor_view view;
    memcpy(bytes + 1, bf16, sizeof(bf16));
    assert_int_equal(tri_tensor_view_whole(&tensors[0], "b", &view), TRI_OK);
    tri_tensor_view_read(&view, 0, 5, out);
    for (int i = 0; i < 5; i++)
        assert_int_equal(tri_f32_to_bf16(out[i]), bf16[i]);
    memcpy(bytes + 1, f16, sizeof(f16));
    assert_int_equal(tri_tensor_view_whole(&tensors[1], "h", &view), TRI_OK);
    tri_tensor_view_read(&view, 0, 5, out);
    for (int i = 0; i < 5; i++)
        assert_int_equal(tri_f32_to_f16(out[i]), f16[i]);
    memcpy(bytes + 1, f64, sizeof(f64));
    assert_int_equal(tri_tensor_view_whole(&tensors[2], "d", &view), TRI_OK);
    tri_tensor_view_read(&view, 0, 5, out);
    assert_true(out[0] == 1.0f && out[1] == -0.1f && isinf(out[2]) && out[3] == 0.0f && out[4] == 3.0f);
    const tri_stored_tensor whole = {"n", TRI_I64, {0, {0}}, bytes, 8};
    assert_int_equal(tri_tensor_view_whole(&whole, "n", &view), TRI_EUNSUPPORTED);
}

static void shards_hold_what_fits_and_read_back(void **state)
{
    (void)state;
    float values[3][8];
    tri_stored_tensor stored[3];
    tri_tensor_view views[3];
    const char *const names[] = {"a", "b", "c"}, *const metadata[] = {"format", "pt", NULL};
    folder_make();
    for (int i = 0; i < 3; i++) {
        matrix_fill(values[i], 2, 4);
        stored[i] = (tri_stored_tensor){names[i], TRI_F32, {2, {2, 4}}, values[i], sizeof(values[i])};
        assert_int_equal(tri_tensor_view_whole(&stored[i], names[i], &views[i]), TRI_OK);
    }
    /* Two of 32 bytes go into 70; a tensor that is larger than a file has its own. */
    const struct {
        uint64_t shard_nbytes;
        int files;
    } cases[] = {{0, 1}, {70, 2}, {64, 2}, {63, 3}, {1, 3}, {96, 1}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        int files;
        tri_tensor_set *set;
        const tri_tensor_save save = {.dtype = TRI_F32, .shard_nbytes = cases[i].shard_nbytes, .metadata = metadata};
        assert_int_equal(tri_fs_remove(folder), TRI_OK);
        assert_int_equal(tri_fs_make_folder(folder), TRI_OK);
        assert_int_equal(tri_tensor_save_all(folder, views, 3, &save, &files), TRI_OK);
        assert_int_equal(files, cases[i].files);
        assert_int_equal(tri_fs_exists(path_of(TRI_INDEX_FILE)), files > 1);
        assert_int_equal(tri_tensor_set_open(folder, &set), TRI_OK);
        assert_int_equal(tri_tensor_set_file_count(set), files);
        assert_string_equal(tri_tensor_set_metadata(set, "format"), "pt");
        for (int t = 0; t < 3; t++)
            assert_memory_equal(tri_tensor_set_find(set, names[t])->bytes, values[t], sizeof(values[t]));
        tri_tensor_set_close(set);
    }
    folder_remove();
}

static void elements_are_written_to_the_nearest(void **state)
{
    (void)state;
    const float values[4] = {1.0f + 1.0f / 256, 1.0f + 3.0f / 256, 65519.0f, 1e-8f};
    const uint16_t bf16[4] = {0x3f80, 0x3f82, 0x4780, 0x322c}, f16[4] = {0x3c04, 0x3c0c, 0x7bff, 0x0000};
    const tri_stored_tensor stored = {"a", TRI_F32, {1, {4}}, values, sizeof(values)};
    tri_tensor_view view;
    folder_make();
    assert_int_equal(tri_tensor_view_whole(&stored, "a", &view), TRI_OK);
    for (int half = 0; half < 2; half++) {
        tri_tensor_set *set;
        const tri_tensor_save save = {.dtype = half ? TRI_F16 : TRI_BF16};
        assert_int_equal(tri_tensor_save_all(folder, &view, 1, &save, NULL), TRI_OK);
        assert_int_equal(tri_tensor_set_open(folder, &set), TRI_OK);
        assert_memory_equal(tri_tensor_set_at(set, 0)->bytes, half ? f16 : bf16, sizeof(bf16));
        tri_tensor_set_close(set);
    }
    folder_remove();
}

static void tensors_keep_their_types(void **state)
{
    (void)state;
    const uint16_t bf16[4] = {0x4788, 0xff80, 0x7fc1, 0x0001}, f16[4] = {0x7bff, 0x7c00, 0x7e01, 0x8001};
    const double f64[4] = {1.0 / 3, 1e300, -0.0, 5};
    const float f32[4] = {1.0f / 3, 3e38f, 1e-45f, 5};
    const tri_stored_tensor stored[] = {{"a", TRI_BF16, {1, {4}}, bf16, sizeof(bf16)},
                                        {"b", TRI_F16, {2, {2, 2}}, f16, sizeof(f16)},
                                        {"c", TRI_F64, {2, {2, 2}}, f64, sizeof(f64)},
                                        {"d", TRI_F32, {1, {4}}, f32, sizeof(f32)}};
    tri_tensor_view views[TRI_COUNT_OF(stored)];
    const tri_tensor_save save = {.dtype = TRI_DTYPE_COUNT};
    tri_tensor_set *set;
    for (size_t i = 0; i < TRI_COUNT_OF(stored); i++)
        assert_int_equal(tri_tensor_view_whole(&stored[i], stored[i].name, &views[i]), TRI_OK);
    views[2].parts[0].transposed = true;
    folder_make();
    assert_int_equal(tri_tensor_save_all(folder, views, TRI_COUNT_OF(stored), &save, NULL), TRI_OK);
    assert_int_equal(tri_tensor_set_open(folder, &set), TRI_OK);
    for (size_t i = 0; i < TRI_COUNT_OF(stored); i++) {
        const double turned[4] = {f64[0], f64[2], f64[1], f64[3]};
        const tri_stored_tensor *found = tri_tensor_set_find(set, stored[i].name);
        assert_int_equal(found->dtype, stored[i].dtype);
        assert_memory_equal(found->bytes, i == 2 ? (const void *)turned : stored[i].bytes, stored[i].nbytes);
    }
    tri_tensor_set_close(set);
    folder_remove();
}

/* A stack of bf16 and f16 is f32; with f64 it is f64. */
static void a_stack_of_types_is_one_that_holds_them_all(void **state)
{
    (void)state;
    const uint16_t bf16[2] = {0x4788, 0x3f80}, f16[2] = {0x3c01, 0x3c00};
    const double f64[2] = {1.0 / 3, 2};
    const tri_stored_tensor stored[] = {{"a", TRI_BF16, {2, {1, 2}}, bf16, sizeof(bf16)},
                                        {"b", TRI_F16, {2, {1, 2}}, f16, sizeof(f16)},
                                        {"c", TRI_F64, {2, {1, 2}}, f64, sizeof(f64)}};
    tri_tensor_view view = {.name = "x", .shape = {2, {2, 2}}, .part_count = 2};
    double all[6];
    for (int i = 0; i < 3; i++)
        view.parts[i] = (tri_view_part){.from = &stored[i], .rows = 1};
    assert_int_equal(tri_tensor_view_dtype(&view), TRI_F32);
    view.part_count = 3;
    view.shape.dim[0] = 3;
    assert_int_equal(tri_tensor_view_dtype(&view), TRI_F64);
    tri_tensor_view_read_as(&view, TRI_F64, 0, 6, all);
    assert_true(all[0] == 69632 && all[1] == 1 && all[2] == 1 + 1.0 / 1024 && all[4] == 1.0 / 3 && all[5] == 2);
}

static void a_value_that_the_type_cannot_hold_is_refused_by_name(void **state)
{
    (void)state;
    const float f32[3] = {1, -65520.0f, 3.4e38f};
    const double f64[2] = {-1.0 / 0.0, 4e38};
    const struct {
        tri_stored_tensor stored;
        tri_dtype dtype;
        const char *text;
    } cases[] = {
        {{"norm", TRI_F32, {1, {3}}, f32, 12},
         TRI_F16,
         "tensor 'norm': want values that f16 holds, got -65520 at element 1"},
        {{"norm", TRI_F32, {1, {3}}, f32, 12},
         TRI_BF16,
         "want values that bf16 holds, got 3.39999995e+38 at element 2"},
        {{"norm", TRI_F64, {1, {2}}, f64, 16}, TRI_F32, "want values that f32 holds, got 4e+38 at element 1"},
        {{"norm", TRI_F64, {1, {1}}, f64, 8}, TRI_F32, NULL}, /* infinite before */
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_tensor_view view;
        const tri_tensor_save save = {.dtype = cases[i].dtype};
        folder_make();
        assert_int_equal(tri_tensor_view_whole(&cases[i].stored, "norm", &view), TRI_OK);
        assert_int_equal(tri_tensor_save_all(folder, &view, 1, &save, NULL), cases[i].text ? TRI_EFORMAT : TRI_OK);
        if (cases[i].text)
            assert_non_null(strstr(tri_last_error(), cases[i].text));
        folder_remove();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_in_two_files_is_one_set),
        cmocka_unit_test(an_index_is_held_against_its_files),
        cmocka_unit_test(a_damaged_index_says_where),
        cmocka_unit_test(a_view_reads_any_piece_of_turned_and_stacked_parts),
        cmocka_unit_test(halves_come_out_exact_and_doubles_to_the_nearest),
        cmocka_unit_test(shards_hold_what_fits_and_read_back),
        cmocka_unit_test(elements_are_written_to_the_nearest),
        cmocka_unit_test(tensors_keep_their_types),
        cmocka_unit_test(a_stack_of_types_is_one_that_holds_them_all),
        cmocka_unit_test(a_value_that_the_type_cannot_hold_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
