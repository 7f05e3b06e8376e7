/* SPDX-License-Identifier: Apache-2.0
 *
 * csv.c: a table of numbers as a data set: each row a sample, one column the target.
 *
 * The file is read through once on opening: every field is checked, rows and classes are counted. Classes are integers
 * from 0, or texts numbered in the order of their bytes. Every message names the line.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/path.h"
#include "data/csv_rows.h"
#include "data/formats.h"

#define MAX_TEXTS ((size_t)100000) /* more distinct texts than this are no classes */

/* The targets that were seen. */
typedef struct csv_labels {
    tri_arena arena;
    tri_map numbers;   /* text -> class */
    tri_vector texts;  /* char *, distinct */
    bool integers;     /* all were */
    bool reals;        /* all were numbers */
    int64_t greatest;  /* integer */
    int64_t real_line; /* where the first that was no integer stands */
} csv_labels;

typedef struct csv_dataset {
    tri_dataset base;
    tri_source source;
    csv_labels labels;
    bool has_header;
    size_t columns, target_column;
    int64_t rows;  /* of the file */
    int64_t first; /* row that is sample 0 */
} csv_dataset;

/* A finite number, spaces around it allowed. */
static bool read_number(const char *text, float *value)
{
    while (*text == ' ' || *text == '\t')
        text++;
    char *end;
    if (strspn(text, "+-.0123456789eE") == 0) /* keeps out "nan", "inf" and hexadecimal */
        return false;
    *value = strtof(text, &end);
    size_t used = (size_t)(end - text);
    if (used == 0 || strspn(text, "+-.0123456789eE") < used)
        return false;
    end += strspn(end, " \t");
    return *end == 0 && isfinite(*value);
}

static bool read_integer(const char *text, int64_t *value)
{
    while (*text == ' ' || *text == '\t')
        text++;
    bool minus = *text == '-';
    text += minus || *text == '+';
    *value = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18)
        return false;
    for (size_t i = 0; i < digits; i++)
        *value = 10 * *value + (*text++ - '0');
    *value = minus ? -*value : *value;
    return text[strspn(text, " \t")] == 0;
}

static bool is_empty(const char *text)
{
    return text[strspn(text, " \t")] == 0;
}

static tri_status check_row(const csv_dataset *csv, const tri_csv_rows *rows)
{
    size_t count = tri_csv_rows_count(rows);
    if (count != csv->columns)
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want %zu fields as in the first row, got %zu", rows->origin,
                        rows->row_line, csv->columns, count);
    for (size_t i = 0; i < count; i++)
        if (is_empty(tri_csv_rows_field(rows, i)))
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": the value of column %zu is missing", rows->origin,
                            rows->row_line, i + 1);
    return TRI_OK;
}

static tri_status read_features(const csv_dataset *csv, const tri_csv_rows *rows, float *sample)
{
    for (size_t i = 0; i < csv->columns; i++) {
        if (i == csv->target_column)
            continue;
        const char *text = tri_csv_rows_field(rows, i);
        float value;
        if (!read_number(text, &value))
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": column %zu: want a finite number, got '%.40s'", rows->origin,
                            rows->row_line, i + 1, text);
        if (sample != NULL)
            *sample++ = value;
    }
    return TRI_OK;
}

/* Learns the shape of the rows from the first one, and whether that is a header: one where a feature is no number. */
static tri_status learn_columns(csv_dataset *csv, const tri_data_config *config, const tri_csv_rows *rows)
{
    csv->columns = tri_csv_rows_count(rows);
    if (csv->columns < 2)
        return tri_fail(TRI_EFORMAT, "%s: want at least 2 columns (a number and the target), got %zu", rows->origin,
                        csv->columns);
    csv->target_column = config->target_column < 0 ? csv->columns - 1 : (size_t)config->target_column;
    if (csv->target_column >= csv->columns)
        return tri_fail(TRI_ECONFIG, "data.target_column: want 0 to %zu for %s, got %" PRId64, csv->columns - 1,
                        rows->origin, config->target_column);
    csv->has_header = false;
    for (size_t i = 0; i < csv->columns; i++) {
        float value;
        csv->has_header |= i != csv->target_column && !read_number(tri_csv_rows_field(rows, i), &value);
    }
    return TRI_OK;
}

static tri_status learn_label(csv_labels *labels, const char *text, int64_t line)
{
    int64_t integer, number;
    float real;
    bool is_integer = read_integer(text, &integer);
    labels->reals &= is_integer || read_number(text, &real);
    if (!is_integer && labels->real_line == 0)
        labels->real_line = line;
    labels->integers &= is_integer;
    if (is_integer && integer > labels->greatest)
        labels->greatest = integer;
    if (labels->texts.count > MAX_TEXTS || tri_map_find(&labels->numbers, text, &number))
        return TRI_OK;
    char *copy = tri_arena_strdup(&labels->arena, text);
    if (copy == NULL || tri_vector_push(&labels->texts, &copy) == NULL)
        return TRI_ENOMEM;
    return tri_map_set(&labels->numbers, text, -1);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Numbers the texts by the order of their bytes. */
static tri_status number_texts(csv_labels *labels)
{
    qsort(labels->texts.items, labels->texts.count, sizeof(char *), compare_texts);
    for (size_t i = 0; i < labels->texts.count; i++)
        TRI_TRY(tri_map_set(&labels->numbers, *(char **)tri_vector_at(&labels->texts, i), (int64_t)i));
    return TRI_OK;
}

static tri_class_names names_of(const csv_labels *labels)
{
    return (tri_class_names){(const char *const *)labels->texts.items, (int64_t)labels->texts.count};
}

/* Numbers them as `names` says. */
static tri_status rename_texts(csv_labels *labels, const char *origin, const tri_class_names *names)
{
    tri_map numbers = {0};
    tri_vector texts = {.each = sizeof(char *)};
    tri_status status = TRI_OK;
    for (int64_t i = 0; i < names->count && status == TRI_OK; i++) {
        char *copy = tri_arena_strdup(&labels->arena, names->texts[i]);
        status = copy && tri_vector_push(&texts, &copy) ? tri_map_set(&numbers, copy, i) : TRI_ENOMEM;
    }
    for (size_t i = 0; i < labels->texts.count && status == TRI_OK; i++) {
        const char *text = *(char **)tri_vector_at(&labels->texts, i);
        int64_t number;
        if (!tri_map_find(&numbers, text, &number))
            status = tri_fail(TRI_EFORMAT,
                              "%s: the target '%.40s' is none of the %" PRId64 " classes that the model was trained on",
                              origin, text, names->count);
    }
    tri_map_fini(status == TRI_OK ? &labels->numbers : &numbers);
    tri_vector_fini(status == TRI_OK ? &labels->texts : &texts);
    if (status != TRI_OK)
        return status;
    labels->numbers = numbers;
    labels->texts = texts;
    return TRI_OK;
}

/* Reads a whole file: checks every field, counts the rows, learns the targets. */
static tri_status scan_rows(csv_dataset *csv, const tri_data_config *config, tri_csv_rows *rows)
{
    bool more;
    TRI_TRY(tri_csv_rows_next(rows, &more));
    if (!more)
        return tri_fail(TRI_EFORMAT, "%s: no rows in it", rows->origin);
    TRI_TRY(learn_columns(csv, config, rows));
    csv->rows = 0;
    if (csv->has_header)
        TRI_TRY(tri_csv_rows_next(rows, &more));
    for (; more; csv->rows++) {
        TRI_TRY(check_row(csv, rows));
        TRI_TRY(read_features(csv, rows, NULL));
        if (config->classes >= 0)
            TRI_TRY(learn_label(&csv->labels, tri_csv_rows_field(rows, csv->target_column), rows->row_line));
        TRI_TRY(tri_csv_rows_next(rows, &more));
    }
    if (csv->rows == 0)
        return tri_fail(TRI_EFORMAT, "%s: no rows after the header", rows->origin);
    return TRI_OK;
}

static tri_status scan(csv_dataset *csv, const tri_data_config *config, const tri_source *source)
{
    tri_csv_rows rows;
    tri_status status = tri_csv_rows_open(&rows, source);
    if (status == TRI_OK)
        status = scan_rows(csv, config, &rows);
    tri_csv_rows_close(&rows);
    return status;
}

static void labels_begin(csv_labels *labels)
{
    *labels = (csv_labels){.texts = {.each = sizeof(char *)}, .integers = true, .reals = true, .greatest = -1};
}

static void labels_fini(csv_labels *labels)
{
    tri_map_fini(&labels->numbers);
    tri_vector_fini(&labels->texts);
    tri_arena_fini(&labels->arena);
}

static tri_status plan_classes(csv_dataset *csv, const tri_data_config *config, const char *origin)
{
    csv_labels *labels = &csv->labels;
    tri_dataset_info *info = &csv->base.info;
    if (config->classes < 0 || labels->integers)
        return tri_target_plan(info, config, origin, TRI_I64, labels->greatest + 1);
    if (labels->reals)
        return tri_fail(TRI_ECONFIG,
                        "%s:%" PRId64 ": the target is a number but no class; for real targets set "
                        "data.classes to -1",
                        origin, labels->real_line);
    if (labels->texts.count > MAX_TEXTS)
        return tri_fail(TRI_EFORMAT, "%s: more than %zu distinct texts as targets", origin, MAX_TEXTS);
    if (config->classes > 0 && labels->texts.count > (size_t)config->classes)
        return tri_fail(TRI_EFORMAT, "%s: want %" PRId64 " classes, got %zu distinct texts", origin, config->classes,
                        labels->texts.count);
    TRI_TRY(number_texts(labels));
    csv->base.names = names_of(labels);
    return tri_target_plan(info, config, origin, TRI_I64, (int64_t)labels->texts.count);
}

static tri_status store_target(const csv_dataset *csv, const tri_csv_rows *rows, int64_t row, void *out)
{
    const char *text = tri_csv_rows_field(rows, csv->target_column);
    int64_t label = -1;
    if (csv->base.info.target_dtype == TRI_F32) {
        float value;
        if (!read_number(text, &value))
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want a finite number as target, got '%.40s'", rows->origin,
                            rows->row_line, text);
        memcpy(out, &value, sizeof(value));
        return TRI_OK;
    }
    bool known = csv->labels.integers ? read_integer(text, &label) : tri_map_find(&csv->labels.numbers, text, &label);
    if (!known)
        return tri_fail(TRI_EFORMAT,
                        "%s:%" PRId64 ": the target '%.40s' of sample %" PRId64 " is none of the %" PRId64 " classes",
                        rows->origin, rows->row_line, text, row, csv->base.info.classes);
    TRI_TRY_IN(tri_target_store(&csv->base.info, rows->origin, row, TRI_I64, &label, out), "line %" PRId64,
               rows->row_line);
    return TRI_OK;
}

static tri_status read_rows(const csv_dataset *csv, tri_csv_rows *rows, const int64_t *indices, int64_t count,
                            float *samples, unsigned char *targets)
{
    bool more;
    int64_t at = csv->has_header ? -1 : 0;
    for (int64_t i = 0; i < count; at++) {
        TRI_TRY(tri_csv_rows_next(rows, &more));
        if (!more)
            return tri_fail(TRI_EFORMAT, "%s: the file has become shorter: no row %" PRId64, rows->origin, indices[i]);
        if (at != csv->first + indices[i])
            continue;
        TRI_TRY(check_row(csv, rows));
        TRI_TRY(read_features(csv, rows, samples + i * ((int64_t)csv->columns - 1)));
        TRI_TRY(store_target(csv, rows, at, targets + 4 * i));
        i++;
    }
    return TRI_OK;
}

static tri_status csv_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets)
{
    csv_dataset *csv = tri_container_of(dataset, csv_dataset, base);
    tri_csv_rows rows;
    tri_status status = tri_csv_rows_open(&rows, &csv->source);
    if (status == TRI_OK)
        status = read_rows(csv, &rows, indices, count, samples, targets);
    tri_csv_rows_close(&rows);
    return status;
}

static tri_status csv_rename(tri_dataset *dataset, const tri_class_names *names)
{
    csv_dataset *csv = tri_container_of(dataset, csv_dataset, base);
    TRI_TRY(rename_texts(&csv->labels, csv->source.origin, names));
    dataset->names = names_of(&csv->labels);
    if (dataset->info.classes < names->count)
        dataset->info.classes = names->count;
    return TRI_OK;
}

static void csv_close(tri_dataset *dataset)
{
    csv_dataset *csv = tri_container_of(dataset, csv_dataset, base);
    labels_fini(&csv->labels);
    tri_source_fini(&csv->source);
    tri_free(csv);
}

/* `classes`: where the classes are found, when not in the file itself. */
static tri_status plan(csv_dataset *csv, const tri_data_config *config, bool test, bool split,
                       const tri_source *classes)
{
    const char *origin = csv->source.origin;
    tri_dataset_info *info = &csv->base.info;
    TRI_TRY(scan(csv, config, classes != NULL ? classes : &csv->source));
    TRI_TRY(plan_classes(csv, config, classes != NULL ? classes->origin : origin));
    if (classes != NULL) {
        tri_data_config no_classes = *config;
        no_classes.classes = -1; /* those are known by now */
        size_t columns = csv->columns;
        TRI_TRY(scan(csv, &no_classes, &csv->source));
        if (csv->columns != columns)
            return tri_fail(TRI_EFORMAT, "%s: want %zu columns as in %s, got %zu", origin, columns, classes->origin,
                            csv->columns);
    }
    int64_t kept = split ? tri_data_test_count(csv->rows, config->test_part) : 0;
    csv->first = split && test ? csv->rows - kept : 0;
    info->count = split && test ? kept : csv->rows - kept;
    info->sample = tri_shape_make(1, (const int64_t[]){(int64_t)csv->columns - 1});
    info->dtype = TRI_F32;
    return TRI_OK;
}

tri_status tri_csv_parse(const tri_data_config *config, bool test, bool split, tri_source *source,
                         const tri_source *classes, tri_dataset **out)
{
    csv_dataset *csv = tri_alloc_zero(1, sizeof(*csv));
    if (csv == NULL) {
        tri_source_fini(source);
        return TRI_ENOMEM;
    }
    csv->base.ops = &tri_dataset_csv;
    csv->source = *source;
    *source = (tri_source){0};
    labels_begin(&csv->labels);
    tri_status status = plan(csv, config, test, split, classes);
    if (status != TRI_OK) {
        csv_close(&csv->base);
        return status;
    }
    *out = &csv->base;
    return TRI_OK;
}

static tri_status open_source(const tri_data_config *config, const char *name, tri_source *source)
{
    char *start = tri_format("%s/", config->path), *path = NULL;
    if (start == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_data_find((const char *const[]){start, NULL}, (const char *const[]){name, NULL}, &path);
    if (status == TRI_OK)
        status = tri_source_open(source, path);
    tri_free(start);
    tri_free(path);
    return status;
}

static bool csv_can(const tri_data_config *config)
{
    if (!tri_fs_is_folder(config->path))
        return tri_fs_exists(config->path) &&
               (tri_path_ends_in(config->path, ".csv") || tri_path_ends_in(config->path, ".csv.gz"));
    tri_source source = {0};
    bool can = open_source(config, "train.csv", &source) == TRI_OK;
    tri_source_fini(&source);
    return can;
}

static tri_status csv_open(const tri_data_config *config, bool test, tri_dataset **out)
{
    tri_source source = {0}, training = {0};
    if (!tri_fs_is_folder(config->path)) {
        TRI_TRY(tri_source_open(&source, config->path));
        return tri_csv_parse(config, test, true, &source, NULL, out);
    }
    TRI_TRY(open_source(config, test ? "test.csv" : "train.csv", &source));
    tri_status status = test ? open_source(config, "train.csv", &training) : TRI_OK;
    if (status == TRI_OK)
        status = tri_csv_parse(config, test, false, &source, test ? &training : NULL, out);
    tri_source_fini(&training);
    tri_source_fini(&source);
    return status;
}

const tri_dataset_ops tri_dataset_csv = {
    .name = "csv",
    .does = "a table of numbers, .csv or .csv.gz; or a folder with train.csv and test.csv",
    .can = csv_can,
    .open = csv_open,
    .read = csv_read,
    .rename = csv_rename,
    .close = csv_close,
};
