/* SPDX-License-Identifier: Apache-2.0
 *
 * test_parts.c: training, validation and test samples of one source: disjoint, of each class alike, by seed; or files
 * and paths of their own.
 */
#include <stdio.h>
#include <string.h>

#include "unit/data/data_files.h"

#define ROWS 200

/* Row i has the value i; a tenth is of class "rare", and all are sorted by class. */
static char *table_make(void)
{
    char *folder = make_folder();
    tri_string text = {0};
    assert_int_equal(tri_string_append(&text, "x,kind\n"), TRI_OK);
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(tri_string_appendf(&text, "%d,%s\n", i, i < 20 ? "rare" : i < 110 ? "ant" : "bee"), TRI_OK);
    write_file(folder, "t.csv", text.text, text.nbytes);
    tri_string_fini(&text);
    return folder;
}

static tri_data_config config_of(const char *folder, const char *name)
{
    char path[200];
    snprintf(path, sizeof(path), "%s%s%s", folder, name[0] != 0 ? "/" : "", name);
    tri_data_config config = config_at(path, "auto");
    config.normalize = TRI_NORMALIZE_NONE;
    strcpy(config.test, "0.2");
    strcpy(config.validation, "0.1");
    return config;
}

/* Adds 1 to part + 1 of `of` for each sample; returns how many samples of the first class there are. */
static int64_t part_read(const tri_data_config *config, tri_data_part part, int of[ROWS], int64_t want)
{
    tri_dataset *dataset;
    void *samples, *targets;
    int64_t rare = 0;
    assert_int_equal(tri_dataset_open(config, part, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, want);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    for (int64_t i = 0; i < want; i++) {
        const int row = (int)((float *)samples)[i];
        assert_int_equal(of[row], 0);
        of[row] = (int)part + 1;
        rare += row < 20;
        assert_int_equal(((int32_t *)targets)[i], row < 20 ? 2 : row < 110 ? 0 : 1);
    }
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    return rare;
}

static void parts_are_disjoint_and_have_all_classes_alike(void **state)
{
    (void)state;
    char *folder = table_make();
    tri_data_config config = config_of(folder, "t.csv");
    int of[ROWS] = {0}, again[ROWS] = {0}, other[ROWS] = {0};
    assert_int_equal(part_read(&config, TRI_PART_TEST, of, 40), 4);
    assert_int_equal(part_read(&config, TRI_PART_VALIDATION, of, 20), 2);
    assert_int_equal(part_read(&config, TRI_PART_TRAIN, of, 140), 14);
    part_read(&config, TRI_PART_TRAIN, again, 140);
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(of[i] == 1, again[i] == 1);
    config.split_seed = 7;
    part_read(&config, TRI_PART_TEST, other, 40);
    int same = 0;
    for (int i = 0; i < ROWS; i++)
        same += of[i] == 2 && other[i] == 2;
    assert_true(same < 20);
    drop_folder(folder);
}

static void contiguous_parts_are_the_last_samples(void **state)
{
    (void)state;
    char *folder = table_make();
    tri_data_config config = config_of(folder, "t.csv");
    int of[ROWS] = {0};
    config.split = TRI_SPLIT_CONTIGUOUS;
    part_read(&config, TRI_PART_TEST, of, 40);
    part_read(&config, TRI_PART_VALIDATION, of, 20);
    part_read(&config, TRI_PART_TRAIN, of, 140);
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(of[i], i < 140 ? 1 : i < 160 ? 3 : 2);
    drop_folder(folder);
}

static void arrays_are_split_in_the_same_way(void **state)
{
    (void)state;
    char *folder = make_folder();
    tri_string x = {0}, y = {0};
    float values[ROWS];
    int32_t classes[ROWS];
    int of[ROWS] = {0};
    for (int i = 0; i < ROWS; i++) {
        values[i] = (float)i;
        classes[i] = i < 20 ? 2 : i < 110 ? 0 : 1;
    }
    make_npy(&x, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (200, 1), }", values, sizeof(values));
    make_npy(&y, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (200,), }", classes, sizeof(classes));
    write_file(folder, "x.npy", x.text, x.nbytes);
    write_file(folder, "y.npy", y.text, y.nbytes);
    tri_data_config config = config_of(folder, "");
    assert_int_equal(part_read(&config, TRI_PART_TEST, of, 40), 4);
    assert_int_equal(part_read(&config, TRI_PART_VALIDATION, of, 20), 2);
    assert_int_equal(part_read(&config, TRI_PART_TRAIN, of, 140), 14);
    tri_string_fini(&x);
    tri_string_fini(&y);
    drop_folder(folder);
}

/* A set with a test of its own gives a part of its training samples for validation. */
static void what_has_files_is_not_split(void **state)
{
    (void)state;
    char *folder = make_folder();
    tri_dataset *dataset;
    write_idx_pair(folder, "train", false, 60, 2, 2, 3);
    write_idx_pair(folder, "t10k", false, 12, 2, 2, 3);
    tri_data_config config = config_of(folder, "");
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 54);
    tri_dataset_close(dataset);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_VALIDATION, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 6);
    tri_dataset_close(dataset);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TEST, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 12);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static void a_path_is_a_part_with_the_columns_and_classes_of_the_training_table(void **state)
{
    (void)state;
    char *folder = table_make(), path[200];
    tri_data_config config = config_of(folder, "t.csv");
    int of[ROWS] = {0};
    tri_dataset *dataset;
    int64_t *counts;
    write_file(folder, "other.csv", "kind;x\nrare;3\nbee;150\n", 22);
    snprintf(path, sizeof(path), "%s/other.csv", folder);
    strcpy(config.test, path);
    part_read(&config, TRI_PART_TEST, of, 2);
    assert_int_equal(of[3], 2);
    assert_true(tri_dataset_has(&config, TRI_PART_VALIDATION));
    strcpy(config.validation, "0");
    assert_false(tri_dataset_has(&config, TRI_PART_VALIDATION));
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TEST, &dataset), TRI_OK);
    assert_int_equal(tri_dataset_count_classes(dataset, &counts), TRI_OK);
    assert_int_equal(counts[0], 0); /* ant */
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 1);
    tri_free(counts);
    tri_dataset_close(dataset);
    strcpy(config.test, "1.5");
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TEST, &dataset), TRI_ECONFIG);
    assert_error_has("data.test: want a fraction from 0 to 0.9, or a path, got '1.5'");
    drop_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_disjoint_and_have_all_classes_alike),
        cmocka_unit_test(contiguous_parts_are_the_last_samples),
        cmocka_unit_test(arrays_are_split_in_the_same_way),
        cmocka_unit_test(what_has_files_is_not_split),
        cmocka_unit_test(a_path_is_a_part_with_the_columns_and_classes_of_the_training_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
