/* SPDX-License-Identifier: Apache-2.0
 *
 * test_csv.c: tables: headers, quotes, classes, real targets, and every kind of wrong line.
 */
#include <stdio.h>
#include <string.h>

#include "unit/data/data_files.h"

static tri_status parse(const char *text, size_t nbytes, const tri_data_config *config, bool test, tri_dataset **out)
{
    tri_source source;
    assert_int_equal(tri_source_init(&source, text, nbytes, "t.csv"), TRI_OK);
    return tri_csv_parse(config, test, true, &source, NULL, out);
}

static void expect(const char *text, const tri_data_config *config, int count, int width, const float *want_samples,
                   const void *want_targets)
{
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(parse(text, strlen(text), config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, count);
    assert_int_equal(dataset->info.sample.dim[0], width);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    assert_memory_equal(samples, want_samples, (size_t)(count * width) * 4);
    assert_memory_equal(targets, want_targets, (size_t)count * 4);
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
}

static tri_data_config whole_file(void)
{
    tri_data_config config = config_default();
    config.test_part = 0;
    return config;
}

static void header_quotes_and_line_ends_do_not_matter(void **state)
{
    (void)state;
    tri_data_config config = whole_file();
    const float samples[4] = {1, 2.5f, -3, 0.0004f};
    const int32_t targets[2] = {1, 0};
    expect("1,2.5,1\n-3,4e-4,0\n", &config, 2, 2, samples, targets);
    expect("1,2.5,1\r\n-3,4e-4,0", &config, 2, 2, samples, targets);
    expect("a,b,c\n1, 2.5 ,1\n\"-3\",\"4e-4\",\"0\"\n\n\r\n", &config, 2, 2, samples, targets);
    expect("\xef\xbb\xbf\"a, \"\"x\"\"\n\",b,c\r\n1,2.5,1\r\n-3,4e-4,0\r\n", &config, 2, 2, samples, targets);
}

static void classes_are_numbered_as_somebody_else_has_them(void **state)
{
    (void)state;
    const char *const texts[] = {"red", "blue", "a green one"}, *const few[] = {"blue"};
    const tri_class_names wanted = {texts, 3}, unknown = {few, 1};
    const char text[] = "1,blue\n2,red\n3,blue\n";
    tri_data_config config = whole_file();
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(parse(text, strlen(text), &config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->names.count, 2);
    assert_string_equal(dataset->names.texts[0], "blue");
    assert_int_equal(tri_dataset_rename(dataset, &(tri_class_names){0}), TRI_OK); /* nobody has names */
    assert_int_equal(tri_dataset_rename(dataset, &unknown), TRI_EFORMAT);
    assert_error_has("t.csv: the target 'red' is none of the 1 classes that the model was trained on");
    assert_int_equal(tri_dataset_rename(dataset, &wanted), TRI_OK);
    assert_int_equal(dataset->info.classes, 3);
    assert_int_equal(dataset->names.count, 3);
    assert_string_equal(dataset->names.texts[2], "a green one");
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    assert_memory_equal(targets, ((const int32_t[]){1, 0, 1}), 12);
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    const char numbers[] = "1,0\n2,1\n";
    assert_int_equal(parse(numbers, strlen(numbers), &config, false, &dataset), TRI_OK);
    assert_null(dataset->names.texts);
    assert_int_equal(tri_dataset_rename(dataset, &wanted), TRI_ECONFIG);
    assert_error_has("such as 'red'");
    tri_dataset_close(dataset);
}

static void texts_are_classes_in_the_order_of_their_bytes(void **state)
{
    (void)state;
    tri_data_config config = whole_file();
    const float samples[4] = {1, 2, 3, 4};
    const int32_t targets[4] = {2, 0, 1, 0};
    expect("1,versi\n2,\"Aa\"\n3,seto\n4,Aa\n", &config, 4, 1, samples, targets);
    config.target_column = 0;
    expect("kind,x\nversi,1\n\"Aa\",2\nseto,3\nAa,4\n", &config, 4, 1, samples, targets);
}

static void real_targets_need_classes_minus_one(void **state)
{
    (void)state;
    tri_data_config config = whole_file();
    const float samples[2] = {1, 2}, targets[2] = {0.5f, 3};
    tri_dataset *dataset;
    assert_int_equal(parse("1,3\n2,0.5\n", 10, &config, false, &dataset), TRI_ECONFIG);
    assert_error_has("t.csv:2: the target is a number but no class");
    config.classes = -1;
    expect("1,0.5\n2,3\n", &config, 2, 1, samples, targets);
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *error;
    } cases[] = {
        {"1,2,0\n3,0\n", "t.csv:2: want 3 fields as in the first row, got 2"},
        {"1,2,0\n3,4,0,\n", "t.csv:2: want 3 fields as in the first row, got 4"},
        {"a,b,c\n1,2,0\n3,,0\n", "t.csv:3: the value of column 2 is missing"},
        {"a,b,c\n1,2,0\n3,4,\n", "t.csv:3: the value of column 3 is missing"},
        {"1,2,0\n\n3,4,0\n", "t.csv:2: an empty line"},
        {"1,2,0\n3,x,0\n", "t.csv:2: column 2: want a finite number, got 'x'"},
        {"1,2,0\n3,nan,0\n", "column 2: want a finite number"},
        {"1,2,0\n3,1e99,0\n", "column 2: want a finite number"},
        {"1,2,0\n3,0x10,0\n", "column 2: want a finite number"},
        {"a,b,c\n1,2,0\n3,\"4,0\n", "t.csv:3: the quote is not closed"},
        {"1,2,0\n3,4\"5,0\n", "t.csv:2: a quote inside a field"},
        {"1,2,0\n3,\"4\"5,0\n", "t.csv:2: want ',' or the end of the line after a closing quote"},
        {"1,2,0\n3,4\r5,0\n", "t.csv:2: a carriage return that ends no line"},
        {"\"1\n\",b,c\n1,2,0\n3,4,5,6", "t.csv:4: want 3 fields"},
        {"", "no rows in it"},
        {"a,b,c\n", "no rows after the header"},
        {"1\n2\n", "want at least 2 columns"},
    };
    tri_data_config config = whole_file();
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_dataset *dataset;
        assert_int_equal(parse(cases[i].text, strlen(cases[i].text), &config, false, &dataset), TRI_EFORMAT);
        assert_error_has(cases[i].error);
    }
}

static void a_class_out_of_range_names_line_and_sample(void **state)
{
    (void)state;
    tri_data_config config = whole_file();
    config.classes = 2;
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(parse("1,0\n2,1\n3,2\n", 12, &config, false, &dataset), TRI_OK);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_EFORMAT);
    assert_error_has("line 3: t.csv: label 2 of sample 2 is none of the 2 classes");
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    assert_int_equal(parse("1,a\n2,b\n3,c\n", 12, &config, false, &dataset), TRI_EFORMAT);
    assert_error_has("want 2 classes, got 3 distinct texts");
}

static void every_prefix_gives_samples_or_an_error(void **state)
{
    (void)state;
    const char text[] = "a,\"b \"\"x\"\"\",c\r\n1,2.5,\"red\"\r\n\"2\",-1e3,blue\r\n3,4,red\r\n";
    tri_data_config config = config_default();
    int good = 0;
    for (size_t i = 0; i < sizeof(text); i++) {
        tri_dataset *dataset;
        void *samples, *targets;
        config.test_part = 0;
        if (parse(text, i, &config, false, &dataset) != TRI_OK)
            continue;
        good++;
        assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
        tri_free(samples);
        tri_free(targets);
        tri_dataset_close(dataset);
    }
    assert_true(good > 5);
}

static void a_long_file_crosses_the_pieces_of_the_stream(void **state)
{
    (void)state;
    char *folder = make_folder(), path[200];
    tri_string text = {0};
    for (int i = 0; i < 30000; i++)
        assert_int_equal(tri_string_appendf(&text, "%d,\"%d\",%d\n", i, 2 * i, i % 3), TRI_OK);
    write_gzip(folder, "long.csv.gz", text.text, text.nbytes);
    snprintf(path, sizeof(path), "%s/long.csv.gz", folder);
    tri_data_config config = config_at(path, "auto");
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 3000);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    for (int i = 0; i < 3000; i++) {
        assert_true(((float *)samples)[2 * i + 1] == (float)(2 * (27000 + i)));
        assert_int_equal(((int32_t *)targets)[i], i % 3);
    }
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    tri_string_fini(&text);
    drop_folder(folder);
}

static void test_rows_of_a_folder_have_the_classes_of_the_training_rows(void **state)
{
    (void)state;
    char *folder = make_folder();
    write_file(folder, "train.csv", "1,a\n2,b\n3,c\n", 12);
    write_file(folder, "test.csv", "7,c\n8,z\n", 8);
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    float sample;
    int32_t target;
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_OK);
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){0}, 1, &sample, &target), TRI_OK);
    assert_int_equal(target, 2);
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){1}, 1, &sample, &target), TRI_EFORMAT);
    assert_error_has("test.csv:2: the target 'z' of sample 1 is none of the 3 classes");
    tri_dataset_close(dataset);
    drop_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_quotes_and_line_ends_do_not_matter),
        cmocka_unit_test(classes_are_numbered_as_somebody_else_has_them),
        cmocka_unit_test(texts_are_classes_in_the_order_of_their_bytes),
        cmocka_unit_test(real_targets_need_classes_minus_one),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(a_class_out_of_range_names_line_and_sample),
        cmocka_unit_test(every_prefix_gives_samples_or_an_error),
        cmocka_unit_test(a_long_file_crosses_the_pieces_of_the_stream),
        cmocka_unit_test(test_rows_of_a_folder_have_the_classes_of_the_training_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
