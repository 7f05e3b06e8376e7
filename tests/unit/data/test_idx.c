/* SPDX-License-Identifier: Apache-2.0
 *
 * test_idx.c: IDX files, plain and gzip, whole and damaged.
 */
#include <stdio.h>
#include <string.h>

#include "unit/data/data_files.h"

static void check_small_set(const tri_data_config *config)
{
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 20);
    assert_int_equal(dataset->info.classes, 5);
    assert_int_equal(dataset->info.dtype, TRI_U8);
    assert_true(tri_shape_equal(dataset->info.sample, tri_shape_make(3, (const int64_t[]){4, 3, 1})));
    unsigned char samples[3 * 12];
    int32_t targets[3];
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){1, 7, 19}, 3, samples, targets), TRI_OK);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(samples[i], (unsigned char)(7 * (12 + i) + 3));
        assert_int_equal(samples[24 + i], (unsigned char)(7 * (19 * 12 + i) + 3));
    }
    assert_int_equal(targets[0], 1);
    assert_int_equal(targets[1], 2);
    assert_int_equal(targets[2], 4);
    tri_dataset_close(dataset);
}

static void plain_and_gzip_files_give_the_same_samples(void **state)
{
    (void)state;
    for (int gzip = 0; gzip < 2; gzip++) {
        char *folder = make_folder();
        write_idx_pair(folder, "train", gzip, 20, 4, 3, 5);
        tri_data_config config = config_at(folder, "auto");
        check_small_set(&config);
        drop_folder(folder);
    }
}

static void the_common_start_of_the_names_is_a_path_too(void **state)
{
    (void)state;
    char *folder = make_folder(), path[200];
    write_idx_pair(folder, "letters-train", true, 20, 4, 3, 5);
    snprintf(path, sizeof(path), "%s/letters", folder);
    tri_data_config config = config_at(path, "auto");
    check_small_set(&config);
    drop_folder(folder);
}

static void gzip_of_several_members_is_read_whole(void **state)
{
    (void)state;
    char *folder = make_folder(), path[200];
    write_idx_pair(folder, "train", false, 20, 4, 3, 5);
    char *bytes, *first, *second;
    size_t nbytes, first_nbytes, second_nbytes;
    snprintf(path, sizeof(path), "%s/train-images-idx3-ubyte", folder);
    assert_int_equal(tri_fs_read(path, 0, &bytes, &nbytes), TRI_OK);
    write_gzip(folder, "a", bytes, 100);
    write_gzip(folder, "b", bytes + 100, nbytes - 100);
    assert_int_equal(tri_fs_remove(path), TRI_OK);
    snprintf(path, sizeof(path), "%s/a", folder);
    assert_int_equal(tri_fs_read(path, 0, &first, &first_nbytes), TRI_OK);
    snprintf(path, sizeof(path), "%s/b", folder);
    assert_int_equal(tri_fs_read(path, 0, &second, &second_nbytes), TRI_OK);
    tri_string both = {0};
    assert_int_equal(tri_string_append_bytes(&both, first, first_nbytes), TRI_OK);
    assert_int_equal(tri_string_append_bytes(&both, second, second_nbytes), TRI_OK);
    write_file(folder, "train-images-idx3-ubyte.gz", both.text, both.nbytes);
    tri_data_config config = config_at(folder, "idx");
    check_small_set(&config);
    tri_string_fini(&both);
    tri_free(bytes);
    tri_free(first);
    tri_free(second);
    drop_folder(folder);
}

static tri_status parse(const tri_string *images, size_t images_nbytes, const tri_string *labels, size_t labels_nbytes,
                        tri_dataset **out)
{
    tri_data_config config = config_default();
    tri_source image_source, label_source;
    assert_int_equal(tri_source_init(&image_source, images->text, images_nbytes, "images"), TRI_OK);
    assert_int_equal(tri_source_init(&label_source, labels->text, labels_nbytes, "labels"), TRI_OK);
    return tri_idx_parse(&config, &image_source, &label_source, out);
}

static void every_prefix_of_a_file_is_refused(void **state)
{
    (void)state;
    const unsigned char pixels[12] = {1, 2, 3}, numbers[3] = {0, 1, 2};
    tri_string images = {0}, labels = {0};
    make_idx(&images, 8, 3, (const int32_t[]){3, 2, 2}, pixels, 12);
    make_idx(&labels, 8, 1, (const int32_t[]){3}, numbers, 3);
    tri_dataset *dataset;
    for (size_t i = 0; i < images.nbytes; i++)
        assert_int_equal(parse(&images, i, &labels, labels.nbytes, &dataset), TRI_EFORMAT);
    for (size_t i = 0; i < labels.nbytes; i++)
        assert_int_equal(parse(&images, images.nbytes, &labels, i, &dataset), TRI_EFORMAT);
    assert_int_equal(parse(&images, images.nbytes, &labels, labels.nbytes, &dataset), TRI_OK);
    tri_dataset_close(dataset);
    assert_int_equal(tri_string_append(&images, "x"), TRI_OK);
    assert_int_equal(parse(&images, images.nbytes, &labels, labels.nbytes, &dataset), TRI_EFORMAT);
    assert_error_has("28 bytes, got 29");
    tri_string_fini(&images);
    tri_string_fini(&labels);
}

static void every_prefix_of_a_gzip_file_gives_an_error_and_no_crash(void **state)
{
    (void)state;
    char *folder = make_folder(), path[200];
    write_idx_pair(folder, "train", true, 20, 4, 3, 5);
    char *bytes;
    size_t nbytes;
    snprintf(path, sizeof(path), "%s/train-images-idx3-ubyte.gz", folder);
    assert_int_equal(tri_fs_read(path, 0, &bytes, &nbytes), TRI_OK);
    tri_data_config config = config_at(folder, "idx");
    for (size_t i = 0; i < nbytes; i++) {
        write_file(folder, "train-images-idx3-ubyte.gz", bytes, i);
        tri_dataset *dataset;
        assert_int_not_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    }
    tri_free(bytes);
    drop_folder(folder);
}

static void heads_that_cannot_be_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        int type, ndim;
        int32_t dims[6];
        tri_status status;
        const char *text;
    } cases[] = {
        {7, 3, {3, 2, 2}, TRI_EFORMAT, "element type"},
        {11, 3, {3, 2, 2}, TRI_EUNSUPPORTED, "16 bits"},
        {8, 0, {0}, TRI_EFORMAT, "dimensions, got 0"},
        {8, 200, {0}, TRI_EFORMAT, "dimensions, got 200"},
        {8, 3, {0, 2, 2}, TRI_EFORMAT, "holds no samples"},
        {8, 3, {3, 0, 2}, TRI_EFORMAT, "holds no samples"},
        {8, 3, {4, 2, 2}, TRI_EFORMAT, "its head asks for"},
        {8, 6, {-1, -1, -1, -1, -1, -1}, TRI_EFORMAT, "more than 2^62"},
        {8, 1, {12}, TRI_EFORMAT, "labels has 3 labels"},
    };
    const unsigned char pixels[12] = {0}, numbers[3] = {0, 1, 2};
    tri_string labels = {0};
    make_idx(&labels, 8, 1, (const int32_t[]){3}, numbers, 3);
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_string images = {0};
        tri_dataset *dataset;
        make_idx(&images, cases[i].type, cases[i].ndim < 6 ? cases[i].ndim : 6, cases[i].dims, pixels, 12);
        images.text[3] = (char)cases[i].ndim;
        assert_int_equal(parse(&images, images.nbytes, &labels, labels.nbytes, &dataset), cases[i].status);
        assert_error_has(cases[i].text);
        tri_string_fini(&images);
    }
    tri_string_fini(&labels);
}

static void wide_elements_are_turned_to_this_machines_order(void **state)
{
    (void)state;
    const unsigned char values[8] = {0x3f, 0x80, 0, 0, 0xc0, 0x20, 0, 0}; /* 1.0, -2.5 */
    const unsigned char numbers[8] = {0, 0, 0, 1, 0, 0, 0, 0};            /* i32: 1, 0 */
    tri_string images = {0}, labels = {0};
    make_idx(&images, 13, 1, (const int32_t[]){2}, values, 8);
    make_idx(&labels, 12, 1, (const int32_t[]){2}, numbers, 8);
    tri_dataset *dataset;
    assert_int_equal(parse(&images, images.nbytes, &labels, labels.nbytes, &dataset), TRI_OK);
    void *samples, *targets;
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    assert_true(((float *)samples)[0] == 1.0f && ((float *)samples)[1] == -2.5f);
    assert_int_equal(((int32_t *)targets)[0], 1);
    assert_int_equal(dataset->info.classes, 2);
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    tri_string_fini(&images);
    tri_string_fini(&labels);
}

static void a_label_out_of_range_names_its_sample(void **state)
{
    (void)state;
    char *folder = make_folder();
    write_idx_pair(folder, "train", false, 20, 4, 3, 5);
    write_idx_pair(folder, "t10k", true, 9, 4, 3, 7);
    tri_data_config config = config_at(folder, "idx");
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_OK);
    assert_int_equal(dataset->info.classes, 5); /* those of the training set */
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_EFORMAT);
    assert_error_has("label 5 of sample 5");
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static void a_missing_test_set_says_what_was_looked_for(void **state)
{
    (void)state;
    char *folder = make_folder();
    write_idx_pair(folder, "train", false, 20, 4, 3, 5);
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_ENOTFOUND);
    assert_error_has("t10k-images-idx3-ubyte");
    drop_folder(folder);
}

static void fashion_mnist_has_its_counts_and_labels(void **state)
{
    (void)state;
    if (!tri_fs_is_folder("/usr/share/datasets/fashion-mnist"))
        skip();
    tri_data_config config = config_default();
    strcpy(config.name, "fashion-mnist");
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 60000);
    assert_int_equal(dataset->info.classes, 10);
    assert_true(dataset->info.mean[0] == 0.2860f && dataset->info.deviation[0] == 0.3530f);
    unsigned char sample[784];
    int32_t target;
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){0}, 1, sample, &target), TRI_OK);
    assert_int_equal(target, 9);
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){59999}, 1, sample, &target), TRI_OK);
    assert_int_equal(target, 5);
    tri_dataset_close(dataset);
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 10000);
    tri_dataset_close(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_gzip_files_give_the_same_samples),
        cmocka_unit_test(the_common_start_of_the_names_is_a_path_too),
        cmocka_unit_test(gzip_of_several_members_is_read_whole),
        cmocka_unit_test(every_prefix_of_a_file_is_refused),
        cmocka_unit_test(every_prefix_of_a_gzip_file_gives_an_error_and_no_crash),
        cmocka_unit_test(heads_that_cannot_be_are_refused_with_the_reason),
        cmocka_unit_test(wide_elements_are_turned_to_this_machines_order),
        cmocka_unit_test(a_label_out_of_range_names_its_sample),
        cmocka_unit_test(a_missing_test_set_says_what_was_looked_for),
        cmocka_unit_test(fashion_mnist_has_its_counts_and_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
