/* SPDX-License-Identifier: Apache-2.0
 *
 * learn.c: two passes over a table: the first counts what the fields of each column are, the second, over the training
 * rows alone, takes mean and deviation of numbers and the texts of texts.
 *
 * Both go through the rows in their order, so that every worker learns the same bits.
 */
#include "data/tables/learn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LIMIT  200 /* bytes of a column's name in messages and files */
#define IDENTIFIERS 20  /* rows above which texts that are all different are none of a category */

tri_status tri_learning_init(tri_learning *learning, const tri_data_config *config, const char *origin)
{
    const struct {
        const char *option, *what;
        tri_vector *out;
    } lists[] = {{config->target, "data.target", &learning->targets},
                 {config->columns, "data.columns", &learning->columns},
                 {config->ignore, "data.ignore", &learning->ignored},
                 {config->real_columns, "data.real_columns", &learning->reals},
                 {config->date_columns, "data.date_columns", &learning->dates},
                 {config->text_columns, "data.text_columns", &learning->texts}};
    *learning = (tri_learning){.config = config, .origin = origin};
    for (size_t i = 0; i < TRI_COUNT_OF(lists); i++)
        TRI_TRY(tri_table_list_read(&learning->arena, lists[i].option, lists[i].what, lists[i].out));
    return TRI_OK;
}

void tri_learning_fini(tri_learning *learning)
{
    tri_vector *const lists[] = {&learning->targets, &learning->columns, &learning->ignored,
                                 &learning->reals,   &learning->dates,   &learning->texts};
    for (size_t i = 0; i < TRI_COUNT_OF(lists); i++)
        tri_vector_fini(lists[i]);
    tri_free(learning->seen);
    tri_arena_fini(&learning->arena);
}

/* --- columns --- */

tri_status tri_table_name_make(tri_arena *arena, tri_map *names, const char *text, const char **out)
{
    int64_t number;
    *out = tri_arena_strdup(arena, text);
    for (int i = 1; *out != NULL && text[0] != 0 && tri_map_find(names, *out, &number); i++)
        *out = tri_arena_format(arena, "%s.%d", text, i);
    return *out != NULL ? tri_map_set(names, *out, 0) : TRI_ENOMEM;
}

static tri_status names_make(const tri_learning *learning, tri_table *table, const tri_csv_rows *first)
{
    tri_map names = {0};
    char number[24];
    tri_status status = TRI_OK;
    for (size_t i = 0; i < table->count && status == TRI_OK; i++) {
        const char *text = table->header ? tri_csv_rows_field(first, i) : number;
        snprintf(number, sizeof(number), "%zu", i);
        if (!tri_table_is_utf8(text) || strlen(text) > NAME_LIMIT)
            status = tri_fail(TRI_EFORMAT,
                              "%s:%" PRId64 ": the name of column %zu: want at most %d bytes of UTF-8 "
                              "(data.encoding=latin-1, data.header=no)",
                              learning->origin, first->row_line, i + 1, NAME_LIMIT);
        else
            status = tri_table_name_make(&table->arena, &names, text, &table->columns[i].name);
        table->columns[i].deviation = 1;
    }
    tri_map_fini(&names);
    return status;
}

/* A column by its name, or else by its number from 0, -1: the last. */
static int64_t column_find(const tri_table *table, const char *name)
{
    const int64_t found = tri_table_find(table, name);
    int64_t number;
    if (found >= 0 || !tri_table_integer_read(name, &number))
        return found;
    number = number < 0 ? number + (int64_t)table->count : number;
    return number >= 0 && number < (int64_t)table->count ? number : -1;
}

static tri_status fail_column(const tri_table *table, const char *option, const char *name)
{
    tri_string all = {0};
    tri_status status = TRI_OK;
    for (size_t i = 0; i < table->count && i < 40 && status == TRI_OK; i++)
        status = tri_string_appendf(&all, "%s%s", i > 0 ? ", " : "", table->columns[i].name);
    if (status == TRI_OK)
        status = tri_fail(TRI_ECONFIG, "%s: want names of columns (%s%s), got '%s'", option, tri_string_text(&all),
                          table->count > 40 ? ", ..." : "", name);
    tri_string_fini(&all);
    return status;
}

/* Every name of an option must be one of a column. */
static tri_status list_check(const tri_table *table, const char *option, const tri_vector *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (column_find(table, *(const char **)tri_vector_at(list, i)) < 0)
            return fail_column(table, option, *(const char **)tri_vector_at(list, i));
    return TRI_OK;
}

static bool list_names(const tri_table *table, const tri_vector *list, size_t column)
{
    for (size_t i = 0; i < list->count; i++)
        if (column_find(table, *(const char **)tri_vector_at(list, i)) == (int64_t)column)
            return true;
    return false;
}

static tri_status targets_find(const tri_learning *learning, tri_table *table)
{
    size_t last = table->count - 1;
    if (learning->targets.count == 0) {
        while (last > 0 && table->columns[last].name[0] == 0) /* of a line that ends in a separator */
            last--;
        table->columns[last].target = true;
    }
    for (size_t i = 0; i < table->count && learning->targets.count > 0; i++)
        table->columns[i].target = list_names(table, &learning->targets, i);
    return TRI_OK;
}

tri_status tri_learning_begin(tri_learning *learning, tri_table *table, const tri_csv_rows *first, bool header)
{
    const size_t count = tri_csv_rows_count(first);
    if (count < 2)
        return tri_fail(TRI_EFORMAT,
                        "%s: want at least 2 columns, a feature and the target, got %zu (data.separator says what is "
                        "between them)",
                        learning->origin, count);
    learning->seen = tri_alloc_zero(count, sizeof(*learning->seen));
    table->columns = tri_arena_alloc(&table->arena, count, sizeof(*table->columns));
    if (learning->seen == NULL || table->columns == NULL)
        return TRI_ENOMEM;
    table->count = count;
    table->header = header;
    TRI_TRY(names_make(learning, table, first));
    TRI_TRY(list_check(table, "data.target", &learning->targets));
    TRI_TRY(list_check(table, "data.columns", &learning->columns));
    TRI_TRY(list_check(table, "data.ignore", &learning->ignored));
    TRI_TRY(list_check(table, "data.real_columns", &learning->reals));
    TRI_TRY(list_check(table, "data.date_columns", &learning->dates));
    TRI_TRY(list_check(table, "data.text_columns", &learning->texts));
    return targets_find(learning, table);
}

/* --- the first pass --- */

static void other_note(tri_column_seen *seen, const char *field, int64_t line)
{
    if (seen->others++ > 0)
        return;
    seen->other_line = line;
    strncpy(seen->other, field, sizeof(seen->other) - 1);
}

void tri_learning_row(tri_learning *learning, const tri_table *table, const char *const *fields, char decimal,
                      int64_t line)
{
    for (size_t i = 0; i < table->count; i++) {
        tri_column_seen *seen = &learning->seen[i];
        int64_t integer = 0;
        double value;
        bool whole = false;
        if (tri_table_number_read(fields[i], decimal, &value)) {
            whole = tri_table_integer_read(fields[i], &integer);
            seen->numbers++;
            seen->integers += whole;
        } else if (tri_table_is_missing(&table->missing, fields[i])) {
            seen->missing_line = seen->missing++ == 0 ? line : seen->missing_line;
        } else if (tri_table_date_read(fields[i], table->date_format, &value)) {
            seen->dates++;
            other_note(seen, fields[i], line);
        } else {
            other_note(seen, fields[i], line);
        }
        if (learning->rows == 0) {
            seen->first = integer;
            seen->counts = whole && (integer == 0 || integer == 1);
        }
        seen->counts = seen->counts && whole && integer == seen->first + learning->rows;
    }
    learning->rows++;
}

/* --- kinds --- */

static tri_status fail_other(const tri_learning *learning, const tri_column *column, const tri_column_seen *seen,
                             tri_column_kind kind)
{
    return tri_fail(
        TRI_EFORMAT,
        "%s:%" PRId64 ": column '%s': want %s as in %" PRId64 " of %" PRId64
        " rows, got '%s' (data.text_columns=[%s]: one of several texts; data.missing_texts: it is missing; "
        "data.ignore=[%s]: not read)",
        learning->origin, seen->other_line, column->name, kind == TRI_COLUMN_DATE ? "a date" : "a finite number",
        kind == TRI_COLUMN_DATE ? seen->dates : seen->numbers, learning->rows, seen->other, column->name, column->name);
}

static tri_column_kind kind_found(const tri_column_seen *seen)
{
    const int64_t texts = seen->others - seen->dates;
    if (seen->dates > seen->numbers && seen->dates >= texts)
        return TRI_COLUMN_DATE;
    if (seen->numbers == 0 || seen->numbers < seen->others)
        return TRI_COLUMN_TEXT;
    return seen->integers == seen->numbers ? TRI_COLUMN_INTEGER : TRI_COLUMN_REAL;
}

/* Left out: what no option names where some do; a column without values; and one without a name that counts the rows,
 * as pandas writes its index. */
static bool is_unused(const tri_learning *learning, const tri_table *table, size_t i)
{
    const tri_column_seen *seen = &learning->seen[i];
    const char *const name = table->columns[i].name;
    const bool named = list_names(table, &learning->columns, i);
    if (table->columns[i].target || named)
        return false;
    if (learning->columns.count > 0 || list_names(table, &learning->ignored, i))
        return true;
    const bool nameless = table->header && (name[0] == 0 || strncmp(name, "Unnamed: ", 9) == 0);
    return seen->missing == learning->rows || (nameless && seen->counts);
}

static tri_status column_settle(tri_learning *learning, tri_table *table, size_t i)
{
    const tri_column_seen *seen = &learning->seen[i];
    tri_column *column = &table->columns[i];
    column->kind = list_names(table, &learning->texts, i)   ? TRI_COLUMN_TEXT
                   : list_names(table, &learning->dates, i) ? TRI_COLUMN_DATE
                   : list_names(table, &learning->reals, i) ? TRI_COLUMN_REAL
                                                            : kind_found(seen);
    const int64_t wrong = column->kind == TRI_COLUMN_TEXT   ? 0
                          : column->kind == TRI_COLUMN_DATE ? seen->numbers + seen->others - seen->dates
                                                            : seen->others;
    if (wrong > 0 && seen->others > 0)
        return fail_other(learning, column, seen, column->kind);
    column->fills = learning->config->missing != TRI_MISSING_REFUSE && !column->target;
    if (seen->missing > 0 && !column->fills)
        return tri_fail(TRI_EFORMAT,
                        "%s:%" PRId64 ": the value of column '%s' is missing, as in %" PRId64 " of %" PRId64 " rows%s",
                        learning->origin, seen->missing_line, column->name, seen->missing, learning->rows,
                        column->target ? "; a target must be there" : " (data.missing=mean or constant fills it)");
    return TRI_OK;
}

tri_status tri_learning_kinds(tri_learning *learning, tri_table *table)
{
    int64_t features = 0;
    for (size_t i = 0; i < table->count; i++) {
        tri_column *column = &table->columns[i];
        if (is_unused(learning, table, i)) {
            column->kind = TRI_COLUMN_UNUSED;
            continue;
        }
        if (!column->target || table->classes == 0)
            TRI_TRY(column_settle(learning, table, i));
        else
            column->kind = TRI_COLUMN_CLASS;
        if (column->target && column->kind == TRI_COLUMN_TEXT)
            return tri_fail(TRI_EFORMAT,
                            "%s: the target '%s' is a text: several targets, and those of data.classes=-1, must be "
                            "real numbers",
                            learning->origin, column->name);
        features += !column->target;
    }
    if (features == 0)
        return tri_fail(TRI_EFORMAT, "%s: want at least one column besides the target to read", learning->origin);
    return TRI_OK;
}

/* --- the second pass --- */

static tri_status text_see(const tri_learning *learning, tri_table *table, tri_column *column, const char *field,
                           int64_t line)
{
    int64_t number;
    if (tri_map_find(&column->numbers, field, &number))
        return TRI_OK;
    if (!tri_table_is_utf8(field))
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want text in UTF-8, got other bytes (data.encoding=latin-1)",
                        learning->origin, line);
    if ((int64_t)column->texts.count == learning->config->max_categories)
        return tri_fail(TRI_EFORMAT,
                        "%s:%" PRId64 ": column '%s' has more than %" PRId64 " different texts, each of which would be "
                        "an input of the model (data.ignore=[%s] leaves it out, data.max_categories allows more)",
                        learning->origin, line, column->name, learning->config->max_categories, column->name);
    return tri_column_text_add(table, column, field);
}

/* Welford's recurrence. */
static void value_see(tri_column_seen *seen, double value)
{
    const double step = value - seen->mean;
    seen->count++;
    seen->mean += step / (double)seen->count;
    seen->squares += step * (value - seen->mean);
    seen->greatest = fabs(value) > seen->greatest ? fabs(value) : seen->greatest;
}

static bool value_read(const tri_table *table, const tri_column *column, const char *field, char decimal, double *out)
{
    return column->kind == TRI_COLUMN_DATE ? tri_table_date_read(field, table->date_format, out)
                                           : tri_table_number_read(field, decimal, out);
}

tri_status tri_learning_values(tri_learning *learning, tri_table *table, const char *const *fields, char decimal,
                               int64_t line)
{
    const bool constant = learning->config->missing == TRI_MISSING_CONSTANT;
    learning->trained++;
    for (size_t i = 0; i < table->count; i++) {
        tri_column *column = &table->columns[i];
        tri_column_seen *seen = &learning->seen[i];
        double value;
        if (column->kind == TRI_COLUMN_UNUSED || column->kind == TRI_COLUMN_CLASS)
            continue;
        const bool missing = tri_table_is_missing(&table->missing, fields[i]);
        seen->filled += missing;
        if (column->kind == TRI_COLUMN_TEXT && !missing)
            TRI_TRY(text_see(learning, table, column, fields[i], line));
        else if (column->kind != TRI_COLUMN_TEXT && !missing && value_read(table, column, fields[i], decimal, &value))
            value_see(seen, value);
        else if (missing && constant)
            value_see(seen, learning->config->missing_value);
    }
    return TRI_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Texts of which each is another tell rows apart, and say nothing of the next table. */
static tri_status texts_check(const tri_learning *learning, const tri_table *table, size_t i)
{
    const tri_column *column = &table->columns[i];
    if (column->texts.count < IDENTIFIERS ||
        (int64_t)column->texts.count + learning->seen[i].filled < learning->trained ||
        list_names(table, &learning->texts, i))
        return TRI_OK;
    return tri_fail(TRI_EFORMAT,
                    "%s: column '%s' has another text in each of %" PRId64 " rows, an identifier or a free text "
                    "(data.ignore=[%s] leaves it out, data.text_columns=[%s] takes it)",
                    learning->origin, column->name, learning->trained, column->name, column->name);
}

static tri_status texts_sort(tri_column *column)
{
    if (column->texts.count > 0)
        qsort(column->texts.items, column->texts.count, sizeof(char *), compare_texts);
    for (size_t i = 0; i < column->texts.count; i++)
        TRI_TRY(tri_map_set(&column->numbers, *(char **)tri_vector_at(&column->texts, i), (int64_t)i));
    return TRI_OK;
}

tri_status tri_learning_end(tri_learning *learning, tri_table *table)
{
    const bool constant = learning->config->missing == TRI_MISSING_CONSTANT;
    const bool standard = learning->config->normalize != TRI_NORMALIZE_NONE;
    for (size_t i = 0; i < table->count; i++) {
        tri_column *column = &table->columns[i];
        const tri_column_seen *seen = &learning->seen[i];
        if (column->kind == TRI_COLUMN_TEXT) {
            TRI_TRY(texts_check(learning, table, i));
            TRI_TRY(texts_sort(column));
        }
        if (!tri_column_is_number(column->kind))
            continue;
        /* A value that was filled in by the mean changes the deviation, not the mean. */
        const int64_t count = seen->count + (constant ? 0 : seen->filled);
        const double deviation = count > 0 ? sqrt(seen->squares / (double)count) : 0;
        column->fill = !column->fills ? 0 : constant ? learning->config->missing_value : seen->mean;
        column->mean = standard ? seen->mean : 0;
        column->deviation = standard && deviation > 1e-12 * seen->greatest ? deviation : 1;
    }
    tri_table_lay(table);
    return TRI_OK;
}
