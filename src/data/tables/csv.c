/* SPDX-License-Identifier: Apache-2.0
 *
 * csv.c: a table as a data set: each row a sample, one column or several the target.
 *
 * The file is read through once on opening: rows are counted, and every field is checked. The training rows are read a
 * second time for what their columns are (learn.h), unless a plan of the columns is given (data.table). Every message
 * names the line.
 */
#include <inttypes.h>
#include <string.h>

#include "base/path.h"
#include "data/formats.h"
#include "data/lines/lines.h"
#include "data/tables/labels.h"
#include "data/tables/learn.h"

typedef struct csv_dataset {
    tri_dataset base; /* its table is the plan */
    tri_source source;
    char *converted; /* bytes of the source; NULL: they are the file's */
    tri_table_dialect dialect;
    tri_learning learning;
    tri_labels labels;
    const char **fields; /* [columns of the plan] of the row at hand, trimmed; those of unused columns may be NULL */
    int64_t *at;         /* [file_columns] column of the plan; -1: none */
    size_t file_columns;
    const tri_column *target; /* the first one */
    int64_t rows;             /* of the file */
} csv_dataset;

static csv_dataset *csv_of(tri_dataset *dataset)
{
    return tri_container_of(dataset, csv_dataset, base);
}

/* The fields of the row at hand under their columns. */
static tri_status fields_find(csv_dataset *csv, const tri_csv_rows *rows)
{
    const size_t count = tri_csv_rows_count(rows);
    if (count != csv->file_columns)
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want %zu fields as in the first row, got %zu", rows->origin,
                        rows->row_line, csv->file_columns, count);
    for (size_t i = 0; i < count; i++)
        if (csv->at[i] >= 0) /* the rows' own text, until the next row */
            csv->fields[csv->at[i]] = tri_table_trim((char *)(uintptr_t)tri_csv_rows_field(rows, i));
    return TRI_OK;
}

static tri_status row_encode(const csv_dataset *csv, const tri_csv_rows *rows, float *sample)
{
    const tri_table *table = csv->base.table;
    const tri_table_place place = {rows->origin, rows->row_line};
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        if (!column->target && column->width > 0)
            TRI_TRY(
                tri_column_encode(table, column, &place, csv->fields[i], csv->dialect.decimal, sample + column->first));
    }
    return TRI_OK;
}

/* --- opening --- */

static tri_status fields_alloc(csv_dataset *csv, const tri_csv_rows *rows)
{
    csv->file_columns = tri_csv_rows_count(rows);
    csv->at = tri_alloc_zero(csv->file_columns, sizeof(*csv->at));
    csv->fields = tri_alloc_zero(csv->base.table->count + 1, sizeof(*csv->fields));
    return csv->at != NULL && csv->fields != NULL ? TRI_OK : TRI_ENOMEM;
}

static tri_status header_match(csv_dataset *csv, const tri_csv_rows *rows)
{
    const tri_table_place place = {rows->origin, rows->row_line};
    const char **names = tri_alloc_zero(csv->file_columns, sizeof(*names));
    tri_status status = names != NULL ? TRI_OK : TRI_ENOMEM;
    tri_map different = {0};
    for (size_t i = 0; i < csv->file_columns && status == TRI_OK; i++)
        status = tri_table_name_make(&csv->learning.arena, &different,
                                     tri_table_trim((char *)(uintptr_t)tri_csv_rows_field(rows, i)), &names[i]);
    tri_map_fini(&different);
    if (status == TRI_OK)
        status =
            tri_table_match(csv->base.table, &place, names, csv->file_columns, &csv->learning.ignored, true, csv->at);
    tri_free(names);
    return status;
}

/* The columns of the file: as the plan has them, or the plan's as the file has them. */
static tri_status columns_find(csv_dataset *csv, tri_csv_rows *rows, bool plan_is_given)
{
    tri_table *table = csv->base.table;
    for (size_t i = 0; csv->dialect.header && i < tri_csv_rows_count(rows); i++) {
        char *const name = (char *)(uintptr_t)tri_csv_rows_field(rows, i), *const trimmed = tri_table_trim(name);
        memmove(name, trimmed, strlen(trimmed) + 1);
    }
    if (!plan_is_given)
        TRI_TRY(tri_learning_begin(&csv->learning, table, rows, csv->dialect.header));
    TRI_TRY(fields_alloc(csv, rows));
    if (plan_is_given && table->header)
        return header_match(csv, rows);
    if (csv->file_columns != table->count)
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want %zu columns as in the training table, got %zu", rows->origin,
                        rows->row_line, table->count, csv->file_columns);
    for (size_t i = 0; i < csv->file_columns; i++)
        csv->at[i] = (int64_t)i;
    return TRI_OK;
}

static void target_find(csv_dataset *csv)
{
    const tri_table *table = csv->base.table;
    for (size_t i = table->count; i-- > 0;)
        if (table->columns[i].target)
            csv->target = &table->columns[i];
}

static const char *target_field(const csv_dataset *csv)
{
    return csv->fields[csv->target - csv->base.table->columns];
}

static tri_status label_add(csv_dataset *csv, const tri_csv_rows *rows)
{
    const char *const field = target_field(csv);
    if (tri_table_is_missing(&csv->base.table->missing, field))
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": the value of the target '%s' is missing", rows->origin,
                        rows->row_line, csv->target->name);
    return tri_labels_add(&csv->labels, field, csv->dialect.decimal, rows->row_line);
}

/* One column whose values may be classes. */
static bool may_be_classes(const csv_dataset *csv, bool plan_is_given)
{
    if (plan_is_given)
        return csv->base.table->classes > 0;
    return csv->learning.config->classes >= 0 && csv->learning.targets.count < 2;
}

/* Reads the whole file. */
static tri_status rows_scan(csv_dataset *csv, tri_csv_rows *rows, bool plan_is_given)
{
    bool more;
    TRI_TRY(tri_csv_rows_next(rows, &more));
    if (!more)
        return tri_fail(TRI_EFORMAT, "%s: no rows in it", rows->origin);
    TRI_TRY(columns_find(csv, rows, plan_is_given));
    target_find(csv);
    float *sample = tri_alloc_zero((size_t)csv->base.table->width + 1, sizeof(float));
    if (sample == NULL)
        return TRI_ENOMEM;
    tri_status status = csv->dialect.header ? tri_csv_rows_next(rows, &more) : TRI_OK;
    for (; status == TRI_OK && more; csv->rows++) {
        status = fields_find(csv, rows);
        if (status == TRI_OK && plan_is_given)
            status = row_encode(csv, rows, sample);
        else if (status == TRI_OK)
            tri_learning_row(&csv->learning, csv->base.table, csv->fields, csv->dialect.decimal, rows->row_line);
        if (status == TRI_OK && may_be_classes(csv, plan_is_given))
            status = label_add(csv, rows);
        if (status == TRI_OK)
            status = tri_csv_rows_next(rows, &more);
    }
    tri_free(sample);
    if (status == TRI_OK && csv->rows == 0)
        return tri_fail(TRI_EFORMAT, "%s: no rows after the header", rows->origin);
    return status;
}

static tri_status scan(csv_dataset *csv, bool plan_is_given)
{
    tri_csv_rows rows;
    tri_status status = tri_csv_rows_open(&rows, &csv->source, csv->dialect.separator);
    if (status == TRI_OK)
        status = rows_scan(csv, &rows, plan_is_given);
    tri_csv_rows_close(&rows);
    return status;
}

/* The kinds of columns, as far as all rows say them. */
static tri_status kinds_settle(csv_dataset *csv)
{
    tri_table *table = csv->base.table;
    const tri_data_config *config = csv->learning.config;
    if (may_be_classes(csv, false))
        TRI_TRY(tri_labels_settle(&csv->labels, csv->source.origin, config->classes, &table->classes));
    else if (config->classes > 0)
        return tri_fail(TRI_ECONFIG, "data.classes: several targets are real numbers: want 0 or -1, got %" PRId64,
                        config->classes);
    TRI_TRY(tri_learning_kinds(&csv->learning, table));
    tri_column *const target = &table->columns[csv->target - table->columns];
    for (int64_t i = 0; i < csv->labels.names.count; i++)
        TRI_TRY(tri_column_text_add(table, target, csv->labels.names.texts[i]));
    return TRI_OK;
}

static void info_fill(csv_dataset *csv)
{
    const tri_table *table = csv->base.table;
    tri_dataset_info *info = &csv->base.info;
    info->sample = tri_shape_make(1, &table->width);
    info->dtype = TRI_F32;
    info->target_dtype = table->classes > 0 ? TRI_I32 : TRI_F32;
    info->target = tri_shape_make(table->targets > 1 ? 1 : 0, &table->targets);
    info->classes = table->classes;
    info->table = table;
}

static tri_status settings_read(csv_dataset *csv, const tri_data_config *config)
{
    tri_table *table = config->table;
    const tri_normalize how = config->normalize;
    if (how == TRI_NORMALIZE_UNIT || how == TRI_NORMALIZE_IMAGENET)
        return tri_fail(TRI_ECONFIG, "data.normalize: %s is for bytes: want auto, standard or none for a table",
                        tri_normalize_word(how));
    TRI_TRY(tri_learning_init(&csv->learning, config, csv->source.origin));
    if (table != NULL) {
        tri_table_hold(table);
        csv->base.table = table;
        return TRI_OK;
    }
    table = csv->base.table = tri_table_create();
    if (table == NULL)
        return TRI_ENOMEM;
    if (strlen(config->date_format) >= sizeof(table->date_format))
        return tri_fail(TRI_ECONFIG, "data.date_format: want at most %zu bytes", sizeof(table->date_format) - 1);
    strcpy(table->date_format, config->date_format);
    return tri_table_list_read(&table->arena, config->missing_texts, "data.missing_texts", &table->missing);
}

static tri_status csv_plan(csv_dataset *csv, const tri_data_config *config)
{
    const bool plan_is_given = config->table != NULL;
    TRI_TRY(settings_read(csv, config));
    TRI_TRY(tri_table_decode(config, &csv->source, &csv->converted));
    TRI_TRY(tri_table_dialect_find(config, &csv->source, &csv->base.table->missing, &csv->dialect));
    if (plan_is_given)
        csv->dialect.header = csv->base.table->header;
    TRI_TRY(scan(csv, plan_is_given));
    if (!plan_is_given)
        TRI_TRY(kinds_settle(csv));
    else if (csv->base.table->classes > 0)
        TRI_TRY(tri_labels_name(&csv->labels, csv->source.origin,
                                &(tri_class_names){csv->target->texts.items, (int64_t)csv->target->texts.count}));
    csv->base.names = csv->labels.names;
    csv->base.info.count = csv->rows;
    tri_table_lay(csv->base.table);
    info_fill(csv);
    return TRI_OK;
}

static void csv_close(tri_dataset *dataset)
{
    csv_dataset *csv = csv_of(dataset);
    tri_labels_fini(&csv->labels);
    tri_learning_fini(&csv->learning);
    tri_table_release(csv->base.table);
    tri_source_fini(&csv->source);
    tri_free(csv->converted);
    tri_free(csv->fields);
    tri_free(csv->at);
    tri_free(csv);
}

tri_status tri_csv_parse(const tri_data_config *config, tri_source *source, tri_dataset **out)
{
    csv_dataset *csv = tri_alloc_zero(1, sizeof(*csv));
    if (csv == NULL) {
        tri_source_fini(source);
        return TRI_ENOMEM;
    }
    csv->base.ops = &tri_dataset_csv;
    csv->source = *source;
    *source = (tri_source){0};
    tri_labels_init(&csv->labels);
    tri_status status = csv_plan(csv, config);
    if (status != TRI_OK) {
        csv_close(&csv->base);
        return status;
    }
    csv->learning.config = NULL; /* the caller's */
    *out = &csv->base;
    return TRI_OK;
}

/* --- rows --- */

/* The class that a row's label is. */
static tri_status class_store(const csv_dataset *csv, const tri_csv_rows *rows, int64_t row, void *out)
{
    const char *const field = target_field(csv);
    int64_t place, label = -1;
    const int64_t classes = csv->base.info.classes;
    if (csv->labels.names.texts == NULL)
        (void)tri_label_integer(field, &label);
    else if (tri_labels_find(&csv->labels, field, &place))
        label = csv->labels.classes[place];
    if (label < 0 || label >= classes)
        return tri_fail(TRI_EFORMAT,
                        "%s:%" PRId64 ": the target '%.40s' of sample %" PRId64 " is none of the %" PRId64 " classes",
                        rows->origin, rows->row_line, field, row, classes);
    const int32_t stored = (int32_t)label;
    memcpy(out, &stored, sizeof(stored));
    return TRI_OK;
}

static tri_status target_store(const csv_dataset *csv, const tri_csv_rows *rows, int64_t row, unsigned char *out)
{
    const tri_table *table = csv->base.table;
    const tri_table_place place = {rows->origin, rows->row_line};
    if (table->classes > 0)
        return class_store(csv, rows, row, out);
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        float value;
        if (!column->target)
            continue;
        TRI_TRY(tri_column_encode(table, column, &place, csv->fields[i], csv->dialect.decimal, &value));
        memcpy(out + (size_t)column->first * sizeof(value), &value, sizeof(value));
    }
    return TRI_OK;
}

/* Calls `visit` for the i-th of these rows of the file, ascending. */
static tri_status rows_visit(csv_dataset *csv, const int64_t *places, int64_t count,
                             tri_status (*visit)(void *arg, csv_dataset *csv, const tri_csv_rows *rows, int64_t i),
                             void *arg)
{
    tri_csv_rows rows;
    bool more;
    tri_status status = tri_csv_rows_open(&rows, &csv->source, csv->dialect.separator);
    int64_t at = csv->dialect.header ? -1 : 0;
    for (int64_t i = 0; i < count && status == TRI_OK; at++) {
        status = tri_csv_rows_next(&rows, &more);
        if (status == TRI_OK && !more)
            status = tri_fail(TRI_EFORMAT, "%s: the file has become shorter: no row %" PRId64, rows.origin, places[i]);
        if (status != TRI_OK || at != places[i])
            continue;
        status = fields_find(csv, &rows);
        if (status == TRI_OK)
            status = visit(arg, csv, &rows, i++);
    }
    tri_csv_rows_close(&rows);
    return status;
}

typedef struct read_state {
    const int64_t *places;
    float *samples;
    unsigned char *targets;
} read_state;

static tri_status row_read(void *arg, csv_dataset *csv, const tri_csv_rows *rows, int64_t i)
{
    const read_state *state = arg;
    const tri_table *table = csv->base.table;
    TRI_TRY(row_encode(csv, rows, state->samples + i * table->width));
    return target_store(csv, rows, state->places[i], state->targets + (size_t)(i * table->targets) * sizeof(float));
}

static tri_status csv_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets)
{
    read_state state = {indices, samples, targets};
    return rows_visit(csv_of(dataset), indices, count, row_read, &state);
}

static tri_status row_learn(void *arg, csv_dataset *csv, const tri_csv_rows *rows, int64_t i)
{
    (void)arg;
    (void)i;
    return tri_learning_values(&csv->learning, csv->base.table, csv->fields, csv->dialect.decimal, rows->row_line);
}

static tri_status csv_learn(tri_dataset *dataset, const tri_data_config *config, const int64_t *places, int64_t count)
{
    csv_dataset *csv = csv_of(dataset);
    csv->learning.config = config;
    tri_status status = rows_visit(csv, places, count, row_learn, NULL);
    if (status == TRI_OK)
        status = tri_learning_end(&csv->learning, csv->base.table);
    csv->learning.config = NULL;
    info_fill(csv);
    return status;
}

static tri_status csv_classes(tri_dataset *dataset, int32_t *classes)
{
    const csv_dataset *csv = csv_of(dataset);
    const int32_t *const places = csv->labels.rows.items;
    for (int64_t i = 0; i < csv->rows; i++)
        classes[i] = places[i] >= 0 ? csv->labels.classes[places[i]] : -1;
    return TRI_OK;
}

static tri_status csv_rename(tri_dataset *dataset, const tri_class_names *names)
{
    csv_dataset *csv = csv_of(dataset);
    TRI_TRY(tri_labels_name(&csv->labels, csv->source.origin, names));
    dataset->names = csv->labels.names;
    if (dataset->info.classes < names->count)
        dataset->info.classes = names->count;
    return TRI_OK;
}

static tri_status csv_describe(const tri_dataset *dataset, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "%" PRId64 " rows, ", tri_container_of(dataset, csv_dataset, base)->rows));
    return tri_table_describe(dataset->table, out);
}

/* --- files --- */

static tri_status open_source(const tri_data_config *config, tri_data_part part, tri_source *source)
{
    static const char *const names[][10] = {
        [TRI_PART_TRAIN] = {"train.csv", "train.tsv", "training.csv", "train.jsonl", NULL},
        [TRI_PART_TEST] = {"test.csv", "test.tsv", "test.jsonl", NULL},
        [TRI_PART_VALIDATION] = {"validation.csv", "validation.tsv", "val.csv", "val.tsv", "valid.csv", "dev.csv",
                                 "validation.jsonl", "val.jsonl", NULL}};
    char *start = tri_format("%s/", config->path), *path = NULL;
    if (start == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_data_find((const char *const[]){start, NULL}, names[part], &path);
    if (status == TRI_OK)
        status = tri_source_open(source, path);
    tri_free(start);
    tri_free(path);
    return status;
}

static bool csv_has(const tri_data_config *config, tri_data_part part)
{
    tri_source source = {0};
    const bool has =
        tri_fs_is_folder(config->path) ? open_source(config, part, &source) == TRI_OK : part == TRI_PART_TRAIN;
    tri_source_fini(&source);
    return has;
}

static bool csv_can(const tri_data_config *config)
{
    static const char *const endings[] = {".csv", ".csv.gz", ".tsv", ".tsv.gz", TRI_LINES_ENDING};
    if (tri_fs_is_folder(config->path))
        return csv_has(config, TRI_PART_TRAIN);
    for (size_t i = 0; i < TRI_COUNT_OF(endings); i++)
        if (tri_path_ends_in(config->path, endings[i]))
            return tri_fs_exists(config->path);
    return false;
}

tri_status tri_lines_parse(const tri_data_config *config, tri_source *source, tri_dataset **out)
{
    tri_arena arena = {0};
    tri_vector ignored = {.each = sizeof(char *)};
    tri_string text = {0};
    tri_source table = {0};
    tri_data_config plain = *config;
    plain.separator = TRI_SEPARATOR_COMMA;
    plain.decimal = TRI_DECIMAL_POINT;
    plain.header = TRI_HEADER_YES;
    plain.encoding = TRI_ENCODING_UTF8;
    tri_status status = tri_table_list_read(&arena, config->ignore, "data.ignore", &ignored);
    if (status == TRI_OK)
        status = tri_lines_to_csv(source, &ignored, &text);
    if (status == TRI_OK)
        status = tri_source_init(&table, text.text, text.nbytes, source->origin);
    tri_source_fini(source);
    tri_vector_fini(&ignored);
    tri_arena_fini(&arena);
    table.lines_before = -1; /* the header is ours */
    if (status == TRI_OK)
        status = tri_csv_parse(&plain, &table, out);
    if (status == TRI_OK)
        csv_of(*out)->converted = tri_string_detach(&text);
    tri_string_fini(&text);
    return status;
}

static tri_status csv_open(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    tri_source source = {0};
    TRI_TRY(tri_fs_is_folder(config->path) ? open_source(config, part, &source)
                                           : tri_source_open(&source, config->path));
    return tri_path_ends_in(source.origin, TRI_LINES_ENDING) ? tri_lines_parse(config, &source, out)
                                                             : tri_csv_parse(config, &source, out);
}

const tri_dataset_ops tri_dataset_csv = {
    .name = "csv",
    .does = "a table, .csv or .tsv, also .gz, or .jsonl; or a folder with train.csv, test.csv and validation.csv",
    .can = csv_can,
    .has = csv_has,
    .open = csv_open,
    .read = csv_read,
    .classes = csv_classes,
    .learn = csv_learn,
    .describe = csv_describe,
    .rename = csv_rename,
    .close = csv_close,
};
