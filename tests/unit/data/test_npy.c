/* SPDX-License-Identifier: Apache-2.0
 *
 * test_npy.c: NumPy files: types, splits, heads that are damaged or not supported.
 */
#include "data/npy.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "unit/data/data_files.h"

static const float x_values[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const int64_t y_values[6] = {0, 1, 2, 0, 1, 2};
#define X_HEAD "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 2), }"
#define Y_HEAD "{'descr': '<i8', 'fortran_order': False, 'shape': (6,), }"

static void write_npy(const char *folder, const char *name, const char *head, const void *elements, size_t nbytes)
{
    tri_string file = {0};
    make_npy(&file, 1, head, elements, nbytes);
    write_file(folder, name, file.text, file.nbytes);
    tri_string_fini(&file);
}

static tri_status parse(const char *x_bytes, size_t x_nbytes, const tri_string *y, tri_dataset **out)
{
    tri_data_config config = config_default();
    tri_source x_source, y_source;
    assert_int_equal(tri_source_init(&x_source, x_bytes, x_nbytes, "x"), TRI_OK);
    assert_int_equal(tri_source_init(&y_source, y->text, y->nbytes, "y"), TRI_OK);
    return tri_npy_parse(&config, &x_source, &y_source, out);
}

static void one_pair_is_split_by_a_fraction(void **state)
{
    (void)state;
    char *folder = make_folder();
    write_npy(folder, "x.npy", X_HEAD, x_values, sizeof(x_values));
    write_npy(folder, "y.npy", Y_HEAD, y_values, sizeof(y_values));
    tri_data_config config = config_at(folder, "auto");
    strcpy(config.test, "0.4"); /* 2 of 6 */
    config.split = TRI_SPLIT_CONTIGUOUS;
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 2);
    assert_int_equal(dataset->info.classes, 3);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    assert_memory_equal(samples, x_values + 8, 16);
    assert_int_equal(((int32_t *)targets)[0], 1);
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    config.limit = 3;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 3);
    tri_dataset_close(dataset);
    strcpy(config.test, "0.1");
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_ENOTFOUND);
    assert_error_has("data.test");
    drop_folder(folder);
}

static void two_pairs_are_training_and_test(void **state)
{
    (void)state;
    char *folder = make_folder();
    const double targets_wide[4] = {0.5, -1, 2, 3};
    write_npy(folder, "x_train.npy", X_HEAD, x_values, sizeof(x_values));
    write_npy(folder, "y_train.npy", Y_HEAD, y_values, sizeof(y_values));
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_ENOTFOUND);
    assert_error_has("x_test.npy");
    write_npy(folder, "x_test.npy", "{'shape':(2,2),'descr':'|u1','fortran_order':False}", "abcd", 4);
    write_npy(folder, "y_test.npy", "{'shape':(2,2L),'descr':\"<f8\",'fortran_order':False}", targets_wide, 32);
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_OK);
    assert_int_equal(dataset->info.dtype, TRI_U8);
    assert_int_equal(dataset->info.target_dtype, TRI_F32);
    assert_int_equal(dataset->info.classes, 0);
    void *samples, *targets;
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    assert_memory_equal(samples, "abcd", 4);
    assert_true(((float *)targets)[0] == 0.5f && ((float *)targets)[3] == 3.0f);
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (int version = 1; version <= 3; version++) {
        tri_string x = {0}, y = {0};
        make_npy(&x, version, X_HEAD, x_values, sizeof(x_values));
        make_npy(&y, version, Y_HEAD, y_values, sizeof(y_values));
        tri_dataset *dataset;
        for (size_t i = 0; i < x.nbytes; i++)
            assert_int_equal(parse(x.text, i, &y, &dataset), TRI_EFORMAT);
        assert_int_equal(parse(x.text, x.nbytes, &y, &dataset), TRI_OK);
        tri_dataset_close(dataset);
        tri_string_fini(&x);
        tri_string_fini(&y);
    }
}

static void heads_that_cannot_be_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        tri_status status;
        const char *text;
    } cases[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (6, 2)}", TRI_EUNSUPPORTED, "big endian"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (6, 2)}", TRI_EUNSUPPORTED, "<c8"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (6, 2)}", TRI_EUNSUPPORTED, "|O"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6, 2)}", TRI_EUNSUPPORTED, "structured"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (6, 2)}", TRI_EUNSUPPORTED, "Fortran"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (6, 2)}", TRI_EFORMAT, "True or False"},
        {"{'descr': '<f4', 'fortran_order': False}", TRI_EFORMAT, "'shape' is missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6, 2)}", TRI_EFORMAT, "repeated key"},
        {"{'descr': '<f4', 'other': False, 'shape': (6, 2)}", TRI_EFORMAT, "unknown key"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6, -2)}", TRI_EFORMAT, "a number >= 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()}", TRI_EFORMAT, "single number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2)}", TRI_EFORMAT, "no samples"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 99999999999999999999)}", TRI_EFORMAT, "2^63"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 4611686018427387904)}", TRI_EFORMAT, "2^62"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1)}", TRI_EUNSUPPORTED, "dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (7, 2)}", TRI_EFORMAT, "its head asks for"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 2)} x", TRI_EFORMAT, "nothing more"},
        {"{'descr': '<f4' 'fortran_order': False}", TRI_EFORMAT, "',' or '}'"},
        {"", TRI_EFORMAT, "'{'"},
    };
    tri_string y = {0};
    make_npy(&y, 1, Y_HEAD, y_values, sizeof(y_values));
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_string x = {0};
        tri_dataset *dataset;
        make_npy(&x, 1, cases[i].head, x_values, sizeof(x_values));
        assert_int_equal(parse(x.text, x.nbytes, &y, &dataset), cases[i].status);
        assert_error_has(cases[i].text);
        tri_string_fini(&x);
    }
    tri_string_fini(&y);
}

static void counts_of_x_and_y_must_agree(void **state)
{
    (void)state;
    tri_string x = {0}, y = {0};
    make_npy(&x, 1, X_HEAD, x_values, sizeof(x_values));
    make_npy(&y, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (5,)}", y_values, 40);
    tri_dataset *dataset;
    assert_int_equal(parse(x.text, x.nbytes, &y, &dataset), TRI_EFORMAT);
    assert_error_has("x has 6 samples, but y has 5");
    tri_string_fini(&x);
    tri_string_fini(&y);
}

static void a_negative_label_names_its_sample(void **state)
{
    (void)state;
    const int8_t labels[6] = {0, 1, 2, -1, 1, 0};
    tri_string x = {0}, y = {0};
    make_npy(&x, 1, X_HEAD, x_values, sizeof(x_values));
    make_npy(&y, 1, "{'descr': '|i1', 'fortran_order': False, 'shape': (6,)}", labels, 6);
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(parse(x.text, x.nbytes, &y, &dataset), TRI_OK);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_EFORMAT);
    assert_error_has("label -1 of sample 3");
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    tri_string_fini(&x);
    tri_string_fini(&y);
}

static void put(tri_string *out, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) {
        const char byte = (char)(value >> (8 * i));
        assert_int_equal(tri_string_append_bytes(out, &byte, 1), TRI_OK);
    }
}

/* As numpy.savez and savez_compressed write it: the local header has Zip64 lengths; `wide`: the directory, too. */
static void zip_add(tri_string *archive, tri_string *directory, const char *name, const tri_string *file, bool deflates,
                    bool wide)
{
    unsigned char packed[4096];
    uLongf nbytes = file->nbytes;
    const uint64_t local = archive->nbytes;
    const unsigned char *bytes = (const unsigned char *)file->text;
    if (deflates) {
        z_stream zlib = {0};
        assert_int_equal(deflateInit2(&zlib, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
        zlib.next_in = (unsigned char *)file->text;
        zlib.avail_in = (unsigned)file->nbytes;
        zlib.next_out = packed;
        zlib.avail_out = sizeof(packed);
        assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
        nbytes = zlib.total_out;
        bytes = packed;
        deflateEnd(&zlib);
    }
    const uint64_t sum = crc32_z(0, (const unsigned char *)file->text, file->nbytes);
    put(archive, 0x04034b50, 4);
    put(archive, 45, 2);
    put(archive, 0, 2);
    put(archive, deflates ? 8 : 0, 2);
    put(archive, 0, 4);
    put(archive, sum, 4);
    put(archive, UINT32_MAX, 4);
    put(archive, UINT32_MAX, 4);
    put(archive, strlen(name), 2);
    put(archive, 20, 2);
    assert_int_equal(tri_string_append(archive, name), TRI_OK);
    put(archive, 1, 2);
    put(archive, 16, 2);
    put(archive, file->nbytes, 8);
    put(archive, nbytes, 8);
    assert_int_equal(tri_string_append_bytes(archive, bytes, nbytes), TRI_OK);
    put(directory, 0x02014b50, 4);
    put(directory, 45 | (uint64_t)45 << 16, 4);
    put(directory, 0, 2);
    put(directory, deflates ? 8 : 0, 2);
    put(directory, 0, 4);
    put(directory, sum, 4);
    put(directory, wide ? UINT32_MAX : nbytes, 4);
    put(directory, wide ? UINT32_MAX : file->nbytes, 4);
    put(directory, strlen(name), 2);
    put(directory, wide ? 28 : 0, 2);
    put(directory, 0, 10);
    put(directory, wide ? UINT32_MAX : local, 4);
    assert_int_equal(tri_string_append(directory, name), TRI_OK);
    if (!wide)
        return;
    put(directory, 1, 2);
    put(directory, 24, 2);
    put(directory, file->nbytes, 8);
    put(directory, nbytes, 8);
    put(directory, local, 8);
}

static void npz_make(tri_string *archive, bool deflates, bool wide)
{
    tri_string x = {0}, y = {0}, directory = {0};
    make_npy(&x, 1, X_HEAD, x_values, sizeof(x_values));
    make_npy(&y, 1, Y_HEAD, y_values, sizeof(y_values));
    tri_string_clear(archive);
    zip_add(archive, &directory, "X.npy", &x, deflates, wide);
    zip_add(archive, &directory, "y.npy", &y, deflates, wide);
    const uint64_t first = archive->nbytes;
    assert_int_equal(tri_string_append_bytes(archive, directory.text, directory.nbytes), TRI_OK);
    put(archive, 0x06054b50, 4);
    put(archive, 0, 4);
    put(archive, 2 | 2u << 16, 4);
    put(archive, directory.nbytes, 4);
    put(archive, first, 4);
    put(archive, 0, 2);
    tri_string_fini(&x);
    tri_string_fini(&y);
    tri_string_fini(&directory);
}

static void arrays_of_an_archive_are_read_stored_or_deflated(void **state)
{
    (void)state;
    char *folder = make_folder(), path[200];
    snprintf(path, sizeof(path), "%s/all.npz", folder);
    for (int i = 0; i < 4; i++) {
        tri_string archive = {0};
        tri_dataset *dataset;
        void *samples, *targets;
        npz_make(&archive, i % 2 > 0, i / 2 > 0);
        write_file(folder, "all.npz", archive.text, archive.nbytes);
        tri_data_config config = config_at(path, "auto");
        strcpy(config.test, "0");
        assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
        assert_int_equal(dataset->info.classes, 3);
        assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
        assert_memory_equal(samples, x_values, sizeof(x_values));
        tri_free(samples);
        tri_free(targets);
        tri_dataset_close(dataset);
        tri_string_fini(&archive);
    }
    drop_folder(folder);
}

/* Each byte of an array, stored or deflated. */
static void a_changed_byte_of_an_array_is_noticed(void **state)
{
    (void)state;
    for (int deflates = 0; deflates < 2; deflates++) {
        tri_string archive = {0}, plain = {0};
        make_npy(&plain, 1, X_HEAD, x_values, sizeof(x_values));
        npz_make(&archive, deflates, false);
        const size_t first = 30 + strlen("X.npy") + 20;
        for (size_t i = first; i < first + (deflates ? 40 : plain.nbytes); i++) {
            tri_data_config config = config_at("a.npz", "npy");
            tri_source x, y;
            tri_dataset *dataset = NULL;
            archive.text[i] = (char)(archive.text[i] ^ 4);
            assert_int_equal(tri_source_init(&x, archive.text, archive.nbytes, "a.npz"), TRI_OK);
            assert_int_equal(tri_source_init(&y, archive.text, archive.nbytes, "a.npz"), TRI_OK);
            tri_status status = tri_npz_narrow(&x, "x.npy");
            if (status == TRI_OK && tri_npz_narrow(&y, "y.npy") == TRI_OK) {
                void *samples = NULL, *targets = NULL;
                status = tri_npy_parse(&config, &x, &y, &dataset);
                if (status == TRI_OK)
                    status = read_whole(dataset, &samples, &targets);
                tri_free(samples);
                tri_free(targets);
                tri_dataset_close(dataset);
            } else {
                tri_source_fini(&x);
                tri_source_fini(&y);
            }
            if (status != TRI_EFORMAT)
                fail_msg("deflates %d, byte %zu: status %d", deflates, i - first, status);
            assert_error_has("a.npz: X.npy: ");
            archive.text[i] = (char)(archive.text[i] ^ 4);
        }
        tri_string_fini(&plain);
        tri_string_fini(&archive);
    }
}

static void damaged_archives_do_no_harm(void **state)
{
    (void)state;
    tri_string archive = {0};
    npz_make(&archive, true, true);
    for (size_t i = 0; i < archive.nbytes; i++) {
        for (int change = 0; change < 2; change++) { /* cut off, or one byte is another one */
            char *copy = malloc(archive.nbytes);
            tri_source x, y;
            tri_dataset *dataset;
            tri_data_config config = config_default();
            const size_t nbytes = change ? archive.nbytes : i;
            memcpy(copy, archive.text, archive.nbytes);
            copy[i] = (char)(change ? copy[i] ^ 0xff : copy[i]);
            assert_int_equal(tri_source_init(&x, copy, nbytes, "a"), TRI_OK);
            assert_int_equal(tri_source_init(&y, copy, nbytes, "a"), TRI_OK);
            if (tri_npz_narrow(&x, "x.npy") == TRI_OK && tri_npz_narrow(&y, "y.npy") == TRI_OK) {
                void *samples, *targets;
                if (tri_npy_parse(&config, &x, &y, &dataset) == TRI_OK) {
                    (void)read_whole(dataset, &samples, &targets);
                    tri_free(samples);
                    tri_free(targets);
                    tri_dataset_close(dataset);
                }
            } else {
                tri_source_fini(&x);
                tri_source_fini(&y);
            }
            free(copy);
        }
    }
    tri_source source;
    assert_int_equal(tri_source_init(&source, archive.text, archive.nbytes, "a.npz"), TRI_OK);
    assert_int_equal(tri_npz_narrow(&source, "x_train.npy"), TRI_ENOTFOUND);
    assert_error_has("a.npz: want the array x_train, it has: X, y");
    tri_source_fini(&source);
    tri_string_fini(&archive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_an_archive_are_read_stored_or_deflated),
        cmocka_unit_test(a_changed_byte_of_an_array_is_noticed),
        cmocka_unit_test(damaged_archives_do_no_harm),
        cmocka_unit_test(one_pair_is_split_by_a_fraction),
        cmocka_unit_test(two_pairs_are_training_and_test),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(heads_that_cannot_be_are_refused_with_the_reason),
        cmocka_unit_test(counts_of_x_and_y_must_agree),
        cmocka_unit_test(a_negative_label_names_its_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
