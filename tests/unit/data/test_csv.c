/* SPDX-License-Identifier: Apache-2.0
 *
 * test_csv.c: tables: headers, quotes, kinds of columns, columns by name, classes and real targets, every kind of wrong
 * line.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/tables/table.h"
#include "unit/data/data_files.h"

/* All rows, as training samples. */
static tri_status parse(const char *text, size_t nbytes, const tri_data_config *config, tri_dataset **out)
{
    tri_source source;
    assert_int_equal(tri_source_init(&source, text, nbytes, "t.csv"), TRI_OK);
    TRI_TRY(tri_csv_parse(config, &source, out));
    const int64_t count = (*out)->info.count;
    int64_t *places = tri_alloc((size_t)count * sizeof(*places));
    for (int64_t i = 0; i < count; i++)
        places[i] = i;
    tri_status status = config->table != NULL ? TRI_OK : (*out)->ops->learn(*out, config, places, count);
    tri_free(places);
    if (status != TRI_OK)
        tri_dataset_close(*out);
    return status;
}

static void expect(const char *text, const tri_data_config *config, int count, int width, const float *want_samples,
                   const void *want_targets)
{
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(parse(text, strlen(text), config, &dataset), TRI_OK);
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
    strcpy(config.test, "0");
    config.normalize = TRI_NORMALIZE_NONE;
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
    assert_int_equal(parse(text, strlen(text), &config, &dataset), TRI_OK);
    assert_int_equal(dataset->names.count, 2);
    assert_string_equal(dataset->names.texts[0], "blue");
    assert_int_equal(tri_dataset_rename(dataset, &(tri_class_names){0}), TRI_OK); /* nobody has names */
    assert_int_equal(tri_dataset_rename(dataset, &unknown), TRI_EFORMAT);
    assert_error_has("t.csv:2: the target 'red' is none of the 1 classes that the model was trained on");
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
    assert_int_equal(parse(numbers, strlen(numbers), &config, &dataset), TRI_OK);
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
    strcpy(config.target, "[kind]");
    expect("kind,x\nversi,1\n\"Aa\",2\nseto,3\nAa,4\n", &config, 4, 1, samples, targets);
}

static void numbers_that_are_not_whole_are_real_targets(void **state)
{
    (void)state;
    tri_data_config config = whole_file();
    const float samples[2] = {1, 2}, targets[2] = {0.5f, 3};
    tri_dataset *dataset;
    config.classes = 2;
    assert_int_equal(parse("1,3\n2,0.5\n", 10, &config, &dataset), TRI_ECONFIG);
    assert_error_has("t.csv:2: the target is a number but no class");
    config.classes = -1;
    expect("1,0.5\n2,3\n", &config, 2, 1, samples, targets);
    config.classes = 0;
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
        {"a,b,c\n1,2,0\n3,,0\n", "t.csv:3: the value of column 'b' is missing"},
        {"a,b,c\n1,2,0\n3,4,\n", "t.csv:3: the value of the target 'c' is missing"},
        {"1,2,0\n\n3,4,0\n", "t.csv:2: an empty line"},
        {"1,2,0\n3,x,0\n", "t.csv:2: column '1': want a finite number as in 1 of 2 rows, got 'x'"},
        {"1,2,0\n3,nan,0\n", "t.csv:2: the value of column '1' is missing"},
        {"1,2,0\n3,1e99,0\n", "column '1': want a finite number"},
        {"1,2,0\n3,0x10,0\n", "column '1': want a finite number"},
        {"a,b,c\n1,2,0\n3,\"4,0\n", "t.csv:3: the quote is not closed"},
        {"1,2,0\n3,4\"5,0\n", "t.csv:2: a quote inside a field"},
        {"1,2,0\n3,\"4\"5,0\n", "t.csv:2: want ',' or the end of the line after a closing quote"},
        {"1,2,0\n3,4\r5,0\n", "t.csv:2: a carriage return that ends no line"},
        {"\"1\n\",b,c\n1,2,0\n3,4,5,6", "t.csv:4: want 3 fields"},
        {"a;b\n1,234;0\n5,678;1\n",
         "t.csv: '5,678' may be a whole number or a fraction, as all numbers with a comma: want "
         "data.decimal=comma"},
        {"", "no rows in it"},
        {"a,b,c\n", "no rows after the header"},
        {"1\n2\n", "want at least 2 columns"},
    };
    tri_data_config config = whole_file();
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_dataset *dataset;
        assert_int_equal(parse(cases[i].text, strlen(cases[i].text), &config, &dataset), TRI_EFORMAT);
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
    assert_int_equal(parse("1,0\n2,1\n3,2\n", 12, &config, &dataset), TRI_OK);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_EFORMAT);
    assert_error_has("t.csv:3: the target '2' of sample 2 is none of the 2 classes");
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    assert_int_equal(parse("1,a\n2,b\n3,c\n", 12, &config, &dataset), TRI_EFORMAT);
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
        strcpy(config.test, "0");
        if (parse(text, i, &config, &dataset) != TRI_OK)
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
    config.split = TRI_SPLIT_CONTIGUOUS;
    config.normalize = TRI_NORMALIZE_NONE;
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
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_EFORMAT);
    assert_error_has("test.csv:2: the target 'z' is none of the 3 classes that the model was trained on");
    write_file(folder, "test.csv", "7,c\n8,b\n", 8);
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_OK);
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){0}, 1, &sample, &target), TRI_OK);
    assert_int_equal(target, 2);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

/* A training table and what is asked of it. */
static tri_table *plan_of(const char *text, const tri_data_config *config)
{
    tri_dataset *dataset;
    assert_int_equal(parse(text, strlen(text), config, &dataset), TRI_OK);
    tri_table *const plan = dataset->table;
    tri_table_hold(plan);
    tri_dataset_close(dataset);
    return plan;
}

static void what_pandas_excel_and_people_write_is_understood(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool header;
        const char *names; /* of the columns that are read */
    } cases[] = {
        {"0,1,label\n0.1,1,cat\n2.1,0,dog\n0.3,1,cat\n", true, "0 1 "},
        {"0,1,cat\n0,1,dog\n1,1,cat\n", false, "0 1 "},
        {"0,1,2,3\n1.5,2,3,0\n2.5,2,4,1\n", true, "0 1 2 "},
        {",0,1,label\n0,5,7,1\n1,6,7,0\n", true, "0 1 "},
        {"Unnamed: 0,x,y\n0,5,1\n1,6,0\n2,8,0\n", true, "x "},
        {"a,b,y,\n1,2,0,\n3,4,1,\n", true, "a b "},
        {"a;b;y\n1,5;2;0\n2,5;3;1\n", true, "a b "},
        {"1,5;2;0\n2,5;3;1\n", false, "0 1 "},
        {"a\tb\ty\n1,5\t2\t0\n2,5\t3\t1\n", true, "a b "},
        {"a|b|y\n1.5|2|0\n2.5|3|1\n", true, "a b "},
        {"1.2882,?,0.0663,0\n1,2,3,1\n", false, "0 1 2 "},
        {"color,size,kind\nred,big,x\nblue,big,y\nred,small,x\n", true, "color size "},
        {"red,big,x\nblue,big,y\nred,small,x\n", false, "0 1 "},
        {"a,a,y\n1,2,0\n3,4,1\n", true, "a a.1 "},
        {"\xff\xfe"
         "a\0,\0y\0\n\0"
         "1\0,\0"
         "0\0\n\0"
         "2\0,\0"
         "1\0\n\0",
         true, "a "},
        {"\xfe\xff\0a\0,\0y\0\n\0"
         "1\0,\0"
         "0\0\n",
         true, "a "},
    };
    static const size_t wide[] = {[14] = 2 + 2 * 12, [15] = 2 + 2 * 8};
    tri_data_config config = whole_file();
    config.missing = TRI_MISSING_MEAN;
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const size_t nbytes = i < 14 ? strlen(cases[i].text) : wide[i];
        tri_dataset *dataset;
        tri_string names = {0};
        assert_int_equal(parse(cases[i].text, nbytes, &config, &dataset), TRI_OK);
        const tri_table *table = dataset->table;
        for (size_t c = 0; c < table->count; c++)
            if (!table->columns[c].target && table->columns[c].kind != TRI_COLUMN_UNUSED)
                assert_int_equal(tri_string_appendf(&names, "%s ", table->columns[c].name), TRI_OK);
        assert_string_equal(tri_string_text(&names), cases[i].names);
        assert_int_equal(table->header, cases[i].header);
        tri_string_fini(&names);
        tri_dataset_close(dataset);
    }
}

static void columns_are_found_by_their_names(void **state)
{
    (void)state;
    tri_data_config config = whole_file();
    tri_table *const plan = plan_of("length,width,kind\n1,10,0\n2,20,1\n3,30,1\n", &config);
    const float samples[4] = {1, 10, 2, 20};
    const int32_t targets[2] = {1, 0};
    tri_dataset *dataset;
    config.table = plan;
    expect("width;kind;length\n10;1;1\n20;0;2\n", &config, 2, 2, samples, targets);
    const char missing[] = "width,depth,kind\n1,2,0\n";
    assert_int_equal(parse(missing, strlen(missing), &config, &dataset), TRI_EFORMAT);
    assert_error_has("t.csv:1: want the columns that the model was trained on (length, width, kind); missing: length; "
                     "unknown: depth");
    strcpy(config.ignore, "[note]");
    expect("note,width,kind,length\nx,10,1,1\ny,20,0,2\n", &config, 2, 2, samples, targets);
    tri_table_release(plan);
    config.table = NULL; /* of equal names, or none, each column of the file is another one, in their order */
    strcpy(config.ignore, "[]");
    tri_table *const twice = plan_of("a,a,kind\n1,10,0\n2,20,1\n3,30,1\n", &config);
    config.table = twice;
    expect("a,kind,a\n1,1,10\n2,0,20\n", &config, 2, 2, samples, targets);
    const char once[] = "a,kind\n1,0\n";
    assert_int_equal(parse(once, strlen(once), &config, &dataset), TRI_EFORMAT);
    assert_error_has("missing: a.1");
    tri_table_release(twice);
    config.table = NULL;
    tri_table *const unnamed = plan_of(",,kind\n7,10,0\n2,20,1\n3,30,1\n", &config);
    config.table = unnamed;
    expect(",,kind\n1,10,1\n2,20,0\n", &config, 2, 2, samples, targets);
    tri_table_release(unnamed);
}

static void values_of_all_kinds_become_numbers(void **state)
{
    (void)state;
    /* Numbers 1, (2), 3: deviation sqrt(2/3); days 1, 3.5, 1.5: mean 2. */
    const char text[] = "age,city,day,y\n1,Oslo,1970-01-02,0\n,Rome,1970-01-04T12:00,1\n3,Oslo,02.01.1970 12:00,1\n";
    const char more[] = "day,city,y,age\n1970-01-03,Bern,0,NA\n1970-01-03 00:00Z,Oslo,1,2\n";
    const float unknown[5] = {0, 0, 0, 1, 0}, known[5] = {0, 1, 0, 0, 0};
    tri_data_config config = whole_file();
    tri_dataset *dataset;
    void *samples, *targets;
    config.normalize = TRI_NORMALIZE_AUTO;
    config.missing = TRI_MISSING_MEAN;
    tri_table *const plan = plan_of(text, &config);
    assert_true(plan->columns[0].mean == 2);
    assert_true(fabs(plan->columns[0].deviation - sqrt(2.0 / 3)) < 1e-12); /* what is missing counts as the mean */
    config.table = plan;
    assert_int_equal(parse(more, strlen(more), &config, &dataset), TRI_OK);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    assert_memory_equal(samples, unknown, sizeof(unknown));
    assert_memory_equal((float *)samples + 5, known, sizeof(known));
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    tri_table_release(plan);
}

static void targets_are_classes_or_real(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option;
        int64_t classes;
        const char *first; /* name of the first class */
    } cases[] = {
        {"x,y\n1,0\n2,1\n3,1.0\n", "[]", 2, NULL},
        {"x,y\n1,1\n2,2\n3,3\n", "[]", 3, "1"},
        {"x,y\n1,-1\n2,1\n3,1\n", "[]", 2, "-1"},
        {"x,y\n1,0\n2,1000000\n3,0\n", "[]", 2, "0"},
        {"x,y\n1,True\n2,False\n3,True\n", "[]", 2, "False"},
        {"x,y\n1,0.5\n2,1\n3,2\n", "[]", 0, NULL},
        {"a,b,x\n1,2,3\n2,2,4\n", "[a, b]", 0, NULL},
        {"a,b,x\nu,2,3\nv,2,4\n", "[a]", 2, "u"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_data_config config = whole_file();
        tri_dataset *dataset;
        strcpy(config.target, cases[i].option);
        assert_int_equal(parse(cases[i].text, strlen(cases[i].text), &config, &dataset), TRI_OK);
        assert_int_equal(dataset->info.classes, cases[i].classes);
        assert_int_equal(dataset->info.target_dtype, cases[i].classes > 0 ? TRI_I32 : TRI_F32);
        if (cases[i].first != NULL)
            assert_string_equal(dataset->names.texts[0], cases[i].first);
        else
            assert_null(dataset->names.texts);
        tri_dataset_close(dataset);
    }
}

static void a_plan_is_written_and_read(void **state)
{
    (void)state;
    tri_data_config config = whole_file();
    tri_string text = {0};
    tri_arena arena = {0};
    tri_yaml *root;
    tri_table *copy;
    config.normalize = TRI_NORMALIZE_AUTO;
    config.missing = TRI_MISSING_CONSTANT;
    strcpy(config.missing_texts, "[none, \"-\"]");
    tri_table *const plan = plan_of("a,\"b: \"\"{c}\"\"\",y\n1,\"x, y\",u\nnone,z,v\n0.3,-,u\n", &config);
    assert_int_equal(tri_table_print(plan, &text), TRI_OK);
    assert_int_equal(tri_yaml_parse(&arena, text.text, text.nbytes, "plan", &root), TRI_OK);
    assert_int_equal(tri_table_parse(tri_yaml_find(root, "table"), &copy), TRI_OK);
    assert_true(tri_table_hash(copy) == tri_table_hash(plan));
    assert_int_equal(copy->width, 1 + 3);
    assert_true(tri_table_is_missing(&copy->missing, " NONE "));
    assert_false(tri_table_is_missing(&copy->missing, "NA"));
    tri_table_release(copy);
    tri_table_release(plan);
    tri_arena_fini(&arena);
    tri_string_fini(&text);
}

static void what_cannot_be_read_names_the_option(void **state)
{
    (void)state;
    static const struct {
        const char *text, *target, *error;
    } cases[] = {
        {"a,b,y\n1,x,0\n2,3,0\n3,4,1\n", "[]", "data.text_columns=[b]"},
        {"a,b,y\n1,2,0\n2,,1\n", "[]", "t.csv:3: the value of column 'b' is missing, as in 1 of 2 rows (data.missing="},
        {"a,y\ncaf\xe9,0\nx,1\ncaf\xe9,1\n", "[]", "data.encoding=latin-1"},
        {"a,y\n1,0\n2,1\n", "[price]", "data.target: want names of columns (a, y), got 'price'"},
        {"a,y\n1,u\n2,v\n", "[a, y]", "the target 'y' is a text"},
        {"a b\n1 2\n", "[]", "data.separator"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_data_config config = whole_file();
        tri_dataset *dataset;
        strcpy(config.target, cases[i].target);
        assert_int_not_equal(parse(cases[i].text, strlen(cases[i].text), &config, &dataset), TRI_OK);
        assert_error_has(cases[i].error);
    }
    tri_string text = {0};
    tri_data_config config = whole_file();
    tri_dataset *dataset;
    for (int i = 0; i < 40; i++)
        assert_int_equal(tri_string_appendf(&text, "name %d,%d,%d\n", i, i, i % 2), TRI_OK);
    assert_int_equal(parse(text.text, text.nbytes, &config, &dataset), TRI_EFORMAT);
    assert_error_has("column '0' has another text in each of 40 rows");
    strcpy(config.text_columns, "[0]");
    assert_int_equal(parse(text.text, text.nbytes, &config, &dataset), TRI_OK);
    tri_dataset_close(dataset);
    config.max_categories = 39;
    assert_int_equal(parse(text.text, text.nbytes, &config, &dataset), TRI_EFORMAT);
    assert_error_has("t.csv:40: column '0' has more than 39 different texts");
    tri_string_fini(&text);
}

/* 31/03/24: of the year 31 for who reads it from the left. */
static void dates_that_may_begin_with_their_day_are_none(void **state)
{
    static const struct {
        const char *field, *format;
        bool is;
    } cases[] = {{"31/03/24", "", false},   {"31-03-24", "", false},       {"24.03.31", "", false},
                 {"2024/03/31", "", true},  {"31.03.2024", "", true},      {"2024-3-1 12:30", "", true},
                 {"2023-02-29", "", false}, {"2024-02-29", "", true},      {"2024-04-31", "", false},
                 {"2024-12-31", "", true},  {"31/03/24", "%d/%m/%Y", true}};
    double days;
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        if (tri_table_date_read(cases[i].field, cases[i].format, &days) != cases[i].is)
            fail_msg("%s '%s': want %s date", cases[i].field, cases[i].format, cases[i].is ? "a" : "no");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_quotes_and_line_ends_do_not_matter),
        cmocka_unit_test(classes_are_numbered_as_somebody_else_has_them),
        cmocka_unit_test(texts_are_classes_in_the_order_of_their_bytes),
        cmocka_unit_test(numbers_that_are_not_whole_are_real_targets),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(a_class_out_of_range_names_line_and_sample),
        cmocka_unit_test(every_prefix_gives_samples_or_an_error),
        cmocka_unit_test(a_long_file_crosses_the_pieces_of_the_stream),
        cmocka_unit_test(what_pandas_excel_and_people_write_is_understood),
        cmocka_unit_test(columns_are_found_by_their_names),
        cmocka_unit_test(values_of_all_kinds_become_numbers),
        cmocka_unit_test(targets_are_classes_or_real),
        cmocka_unit_test(a_plan_is_written_and_read),
        cmocka_unit_test(what_cannot_be_read_names_the_option),
        cmocka_unit_test(test_rows_of_a_folder_have_the_classes_of_the_training_rows),
        cmocka_unit_test(dates_that_may_begin_with_their_day_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
