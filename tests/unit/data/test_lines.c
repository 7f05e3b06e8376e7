/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lines.c: JSON lines as texts to learn from and as the rows of a table; what is wrong is said with its line.
 */
#include "data/lines/lines.h"

#include <stdio.h>
#include <string.h>

#include "data/tokens.h"
#include "unit/data/data_files.h"

#define END 256 /* of the byte tokenizer */

static tri_data_config config_of(const char *folder, const char *name)
{
    char path[1200];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    tri_data_config config = config_at(path, "auto");
    strcpy(config.tokenizer, "byte");
    strcpy(config.test, "0");
    config.context = 4;
    config.windows = TRI_WINDOWS_FIXED;
    return config;
}

static void each_line_is_a_text_of_its_own(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf{\"text\": \"a\\u00e4\", \"id\": 1}\r\n\n  \n{\"id\": 2, \"text\": \"\"}\n"
                               "{\"text\": \"b\\nc\"}";
    static const int32_t wanted[] = {'a', 0xc3, 0xa4, END, 'b', '\n', 'c', END};
    char *folder = make_folder();
    tri_dataset *dataset;
    void *samples, *targets;
    write_file(folder, "x.jsonl", text, sizeof(text) - 1);
    tri_data_config config = config_of(folder, "x.jsonl");
    for (int again = 0; again < 2; again++) { /* made, then read */
        assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
        assert_string_equal(dataset->ops->name, "tokens");
        assert_int_equal(dataset->info.count, 1);
        assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
        assert_memory_equal(samples, wanted, 4 * sizeof(int32_t));
        assert_memory_equal(targets, wanted + 1, 4 * sizeof(int32_t));
        tri_free(samples);
        tri_free(targets);
        tri_dataset_close(dataset);
    }
    write_file(folder, "x.jsonl", "{\"text\": \"bbbbbbbb\"}\n", 21); /* another file: other tokens */
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 2);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

/* 2 MiB and more: several pieces. */
static void tokens_depend_on_no_thread(void **state)
{
    (void)state;
    char *folder = make_folder();
    tri_string text = {0};
    void *samples[2], *targets;
    int64_t count = 0;
    for (int i = 0; i < 40000; i++)
        assert_int_equal(tri_string_appendf(&text, "{\"n\": %d, \"text\": \"%d and %.*s\"}\n", i, i * i % 1013, i % 61,
                                            "some words of which there are more and more in a line of text"),
                         TRI_OK);
    write_file(folder, "x.jsonl", text.text, text.nbytes);
    for (int several = 0; several < 2; several++) {
        tri_data_config config = config_of(folder, several ? "*.jsonl" : "x.jsonl");
        tri_dataset *dataset;
        strcpy(config.tokenizer, "char");
        config.context = 1000;
        config.threads = several ? 3 : 1;
        snprintf(config.index, sizeof(config.index), "%s/index%d", folder, several);
        assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
        assert_true(!several || dataset->info.count == count);
        count = dataset->info.count;
        assert_int_equal(read_whole(dataset, &samples[several], &targets), TRI_OK);
        tri_free(targets);
        tri_dataset_close(dataset);
    }
    assert_memory_equal(samples[0], samples[1], (size_t)count * 1000 * sizeof(int32_t));
    tri_free(samples[0]);
    tri_free(samples[1]);
    tri_string_fini(&text);
    drop_folder(folder);
}

static void files_for_the_test_are_read_by_the_training_tokenizer(void **state)
{
    (void)state;
    char *folder = make_folder();
    tri_dataset *dataset;
    write_file(folder, "train-0.jsonl", "{\"text\": \"abcdefg\"}\n", 20);
    write_file(folder, "train-1.jsonl", "{\"text\": \"hijklmn\"}\n", 20);
    write_file(folder, "val.jsonl", "{\"text\": \"nnnmmm\"}\n", 19);
    tri_data_config config = config_of(folder, "");
    strcpy(config.tokenizer, "char");
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
    assert_int_equal(dataset->info.classes, 15);
    assert_int_equal(dataset->info.count, 3);
    tri_dataset_close(dataset);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TEST, &dataset), TRI_OK);
    assert_int_equal(dataset->info.classes, 15);
    assert_int_equal(dataset->info.count, 1);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static void expect_wrong(const char *format, const char *lines, const char *text)
{
    char *folder = make_folder();
    tri_dataset *dataset;
    write_file(folder, "x.jsonl", lines, strlen(lines));
    tri_data_config config = config_of(folder, "x.jsonl");
    (void)tri_options_set(&tri_data_options, &config, "format", format);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_EFORMAT);
    assert_error_has(text);
    drop_folder(folder);
}

static void what_is_wrong_is_said_with_its_line(void **state)
{
    (void)state;
    expect_wrong("tokens", "{\"text\": \"a\"}\n\n{\"text\": 1}\n", "x.jsonl:3: the field 'text' holds a number");
    expect_wrong("tokens", "{\"messages\": [], \"id\": 1}\n",
                 "x.jsonl:1: want a text in the field 'text' (data.text_field), the line has: messages, id");
    expect_wrong("tokens", "{\"text\": \"a\"}\n{\"text\": \"a\n", "x.jsonl:2: bad JSON: ");
    expect_wrong("tokens", "{\"text\": \"a\"}\n{\"text\": \"\xff\"}\n", "x.jsonl:2: bad JSON: ");
    expect_wrong("tokens", "[1]\n", "x.jsonl:1: want an object {...} in each line, got a list");
    expect_wrong("csv", "{\"x\": 1, \"y\": 2}\n{\"x\": {}, \"y\": 2}\n", "x.jsonl:2: the field 'x' holds an object");
    expect_wrong("csv", "{\"x\": 1, \"y\": 2}\n{\"x\": 5}\n", "x.jsonl:2: the value of the target 'y' is missing");
    expect_wrong("csv", "{}\n", "x.jsonl: no line with a field in it");
}

static void fields_are_the_columns_of_a_table(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"a\": 1, \"t\": \"x, \\\"y\\\"\", \"list\": []}\n{\"b\": -0.1, \"a\": null, \"t\": \"z\"}\n"
        "{\"a\": true}\n";
    const char *ignored_name = "list";
    tri_source source;
    tri_vector ignored = {.each = sizeof(char *)};
    tri_string text = {0};
    assert_non_null(tri_vector_push(&ignored, &ignored_name));
    assert_int_equal(tri_source_init(&source, lines, sizeof(lines) - 1, "x"), TRI_OK);
    assert_int_equal(tri_lines_to_csv(&source, &ignored, &text), TRI_OK);
    assert_string_equal(text.text, "\"a\",\"t\",\"list\",\"b\"\n1,\"x, \"\"y\"\"\",,\n,\"z\",,-0.1\ntrue,,,\n");
    tri_source_fini(&source);
    tri_string_fini(&text);
    tri_vector_fini(&ignored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_line_is_a_text_of_its_own),
        cmocka_unit_test(tokens_depend_on_no_thread),
        cmocka_unit_test(files_for_the_test_are_read_by_the_training_tokenizer),
        cmocka_unit_test(what_is_wrong_is_said_with_its_line),
        cmocka_unit_test(fields_are_the_columns_of_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
