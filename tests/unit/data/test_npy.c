/* SPDX-License-Identifier: Apache-2.0
 *
 * test_npy.c: NumPy files: types, splits, heads that are damaged or not supported.
 */
#include "data/npy.h"

#include <string.h>

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
    strcpy(config.split, "contiguous");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_pair_is_split_by_a_fraction),
        cmocka_unit_test(two_pairs_are_training_and_test),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(heads_that_cannot_be_are_refused_with_the_reason),
        cmocka_unit_test(counts_of_x_and_y_must_agree),
        cmocka_unit_test(a_negative_label_names_its_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
