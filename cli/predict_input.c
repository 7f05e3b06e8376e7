/* SPDX-License-Identifier: Apache-2.0
 *
 * predict_input.c: lines are cut out of what has been read so far; a line that is wrong costs only itself.
 */
#include "cli/predict_input.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/containers.h"
#include "base/path.h"
#include "data/npy.h"
#include "tensor/reduce.h"

#define READ_NBYTES (256u << 10)
#define LINE_LIMIT  (256u << 20)

struct predict_input {
    predict_format format;
    const char *path;
    int fd;
    char *text; /* [capacity] what was read; [first, end) is not used up */
    size_t first, end, capacity, searched;
    bool ended, begun; /* begun: the first line is behind */
    int64_t line;
    tri_vector numbers;     /* double */
    const tri_table *table; /* NULL: samples are numbers */
    const char **fields;    /* [columns of the table] of the sample at hand */
    tri_vector at;          /* int64_t: column of each field of a line */
    tri_arena texts;        /* of the sample at hand */
    char separator;
    /* npy: */
    tri_source source;
    tri_stream stream;
    tri_npy_head head;
    int64_t row_count;
    void *row;
};

/* --- opening --- */

static tri_status format_find(const char *path, const char *word, predict_format *out)
{
    static const char *const names[] = {[PREDICT_JSON] = "json", [PREDICT_CSV] = "csv", [PREDICT_NPY] = "npy"};
    *out = tri_path_ends_in(path, ".csv") ? PREDICT_CSV : tri_path_ends_in(path, ".npy") ? PREDICT_NPY : PREDICT_JSON;
    if (!word || strcmp(word, "auto") == 0)
        return TRI_OK;
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
        if (strcmp(names[i], word) == 0) {
            *out = (predict_format)i;
            return TRI_OK;
        }
    return tri_fail(TRI_ECONFIG, "--format: want json, csv, npy or auto, got '%s'", word);
}

static tri_status npy_open(predict_input *input)
{
    TRI_TRY(tri_source_open(&input->source, input->path));
    TRI_TRY(tri_stream_open(&input->stream, &input->source));
    TRI_TRY(tri_npy_head_read(&input->stream, &input->head));
    if (input->head.shape.ndim < 1)
        return tri_fail(TRI_EFORMAT, "%s: want an array of samples, got a single number", input->path);
    tri_shape sample = input->head.shape;
    input->row_count = sample.dim[0];
    sample.dim[0] = 1;
    size_t count = (size_t)tri_shape_count(sample);
    input->row = tri_alloc_zero(count, tri_dtype_nbytes(input->head.dtype));
    input->numbers.each = sizeof(double) * count;
    return input->row && tri_vector_push(&input->numbers, NULL) ? TRI_OK : TRI_ENOMEM;
}

static tri_status text_open(predict_input *input)
{
    input->numbers.each = sizeof(double);
    input->fd = strcmp(input->path, "-") == 0 ? STDIN_FILENO : open(input->path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0)
        return tri_fail(errno == ENOENT ? TRI_ENOTFOUND : TRI_EIO, "%s: %s", input->path, strerror(errno));
    return TRI_OK;
}

tri_status predict_input_open(const char *path, const char *format, predict_input **out)
{
    predict_format kind;
    TRI_TRY(format_find(path, format, &kind));
    if (kind == PREDICT_NPY && strcmp(path, "-") == 0)
        return tri_fail(TRI_ECONFIG, "--format npy requires a file, not standard input");
    predict_input *input = tri_alloc_zero(1, sizeof(*input));
    if (!input)
        return TRI_ENOMEM;
    *input = (predict_input){.format = kind, .path = path, .fd = -1};
    tri_status status = kind == PREDICT_NPY ? npy_open(input) : text_open(input);
    if (status != TRI_OK) {
        predict_input_close(input);
        return status;
    }
    *out = input;
    return TRI_OK;
}

void predict_input_close(predict_input *input)
{
    if (!input)
        return;
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    tri_stream_close(&input->stream);
    tri_source_fini(&input->source);
    tri_vector_fini(&input->numbers);
    tri_vector_fini(&input->at);
    tri_arena_fini(&input->texts);
    tri_free(input->fields);
    tri_free(input->row);
    tri_free(input->text);
    tri_free(input);
}

/* --- lines --- */

/* The end of the first line of [first, end), or NULL. */
static char *line_end(predict_input *input)
{
    char *found =
        memchr(input->text + input->first + input->searched, '\n', input->end - input->first - input->searched);
    if (!found)
        input->searched = input->end - input->first;
    return found;
}

bool predict_input_waits(const predict_input *input)
{
    if (input->format == PREDICT_NPY || input->ended)
        return false;
    if (input->text && memchr(input->text + input->first, '\n', input->end - input->first))
        return false;
    struct pollfd one = {.fd = input->fd, .events = POLLIN};
    return poll(&one, 1, 0) == 0;
}

static tri_status read_more(predict_input *input)
{
    size_t kept = input->end - input->first;
    if (kept > LINE_LIMIT)
        return tri_fail(TRI_EUNSUPPORTED, "%s:%lld: a line of more than %u MiB", input->path,
                        (long long)input->line + 1, LINE_LIMIT >> 20);
    if (input->first > 0) {
        memmove(input->text, input->text + input->first, kept);
        input->first = 0;
        input->end = kept;
    }
    if (input->capacity - kept < READ_NBYTES) {
        size_t capacity = 2 * kept + 2 * READ_NBYTES;
        char *larger = tri_alloc(capacity);
        if (!larger)
            return TRI_ENOMEM;
        if (kept > 0)
            memcpy(larger, input->text, kept);
        tri_free(input->text);
        input->text = larger;
        input->capacity = capacity;
    }
    ssize_t got;
    do
        got = read(input->fd, input->text + input->end, input->capacity - input->end - 1);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return tri_fail(TRI_EIO, "%s: %s", input->path, strerror(errno));
    input->end += (size_t)got;
    input->ended = got == 0;
    return TRI_OK;
}

/* The next line that is not blank, ended by a 0 byte; NULL at the end. */
static tri_status line_next(predict_input *input, char **line, size_t *nbytes)
{
    for (*line = NULL;;) {
        char *end = input->text ? line_end(input) : NULL;
        if (!end && !input->ended) {
            TRI_TRY(read_more(input));
            continue;
        }
        if (!end && input->first == input->end)
            return TRI_OK;
        end = end ? end : input->text + input->end;
        *line = input->text + input->first;
        *nbytes = (size_t)(end - *line);
        *end = 0;
        input->first += *nbytes + (input->first + *nbytes < input->end);
        input->searched = 0;
        input->line++;
        if (strspn(*line, " \t\r") < *nbytes)
            return TRI_OK;
    }
}

/* --- rows of a table --- */

tri_status predict_input_table_set(predict_input *input, const tri_table *table)
{
    input->table = table;
    input->at.each = sizeof(int64_t);
    input->fields = tri_alloc_zero(table->count, sizeof(*input->fields));
    return input->fields ? TRI_OK : TRI_ENOMEM;
}

/* The fields of a line, cut and without quotes in place, in `out` (char *). */
static tri_status fields_cut(char *line, char separator, tri_vector *out)
{
    out->each = sizeof(char *);
    out->count = 0;
    for (char *at = line;; at++) {
        char *field = at, *to = at;
        bool quoted = false;
        for (; *at && (quoted || *at != separator); at++) {
            if (*at == '"' && !(quoted && at[1] == '"'))
                quoted = !quoted;
            else
                *to++ = *(at += *at == '"');
        }
        const bool more = *at != 0;
        *to = 0;
        field = tri_table_trim(field);
        if (!tri_vector_push(out, &field))
            return TRI_ENOMEM;
        if (!more)
            return TRI_OK;
    }
}

/* Columns that are read, or besides them the targets. */
static int64_t columns_count(const tri_table *table, bool with_targets)
{
    int64_t count = 0;
    for (size_t i = 0; i < table->count; i++)
        count += table->columns[i].kind != TRI_COLUMN_UNUSED && (with_targets || !table->columns[i].target);
    return count;
}

/* How well a separator cuts the first line: names of columns count most, then the number of fields. */
static tri_status separator_score(const predict_input *input, const char *line, char separator, int64_t *score)
{
    tri_vector fields = {0};
    char *copy = tri_strdup(line);
    tri_status status = copy ? fields_cut(copy, separator, &fields) : TRI_ENOMEM;
    const int64_t count = (int64_t)fields.count;
    *score = count == columns_count(input->table, false) || count == columns_count(input->table, true) ? 1 : 0;
    for (size_t i = 0; status == TRI_OK && i < fields.count && input->table->header; i++)
        *score += tri_table_find(input->table, *(char **)tri_vector_at(&fields, i)) >= 0 ? 2 : 0;
    tri_vector_fini(&fields);
    tri_free(copy);
    return status;
}

static tri_status separator_find(predict_input *input, const char *line, int64_t *best)
{
    *best = -1;
    for (const char *at = ",;\t|"; *at; at++) {
        int64_t score;
        TRI_TRY(separator_score(input, line, *at, &score));
        if (score > *best) {
            *best = score;
            input->separator = *at;
        }
    }
    return TRI_OK;
}

/* Fields without names: those of the columns that are read, or of all columns but unused ones, or of all. */
static tri_status columns_place(predict_input *input, size_t count)
{
    const tri_table *table = input->table;
    const bool features = (int64_t)count == columns_count(table, false), all = count == table->count;
    if (!features && !all && (int64_t)count != columns_count(table, true))
        return tri_fail(TRI_EFORMAT, "want %lld fields, the columns that the model reads, got %zu",
                        (long long)columns_count(table, false), count);
    input->at.count = 0;
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        const int64_t at = (int64_t)i;
        if (features ? !column->target && column->kind != TRI_COLUMN_UNUSED : all || column->kind != TRI_COLUMN_UNUSED)
            if (!tri_vector_push(&input->at, &at))
                return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* The first line: whether it names the columns, and which field is which then. */
static tri_status head_read(predict_input *input, char *line, bool *is_head_line)
{
    tri_vector fields = {0};
    int64_t best;
    double number;
    TRI_TRY(separator_find(input, line, &best));
    tri_status status = fields_cut(line, input->separator, &fields);
    bool numbers = false;
    for (size_t i = 0; status == TRI_OK && i < fields.count; i++)
        numbers |= tri_table_number_read(*(char **)tri_vector_at(&fields, i), ',', &number);
    *is_head_line = input->table->header && (best >= 2 || !numbers);
    for (size_t i = 0; status == TRI_OK && *is_head_line && i < fields.count; i++)
        if (!tri_vector_push(&input->at, NULL))
            status = TRI_ENOMEM;
    const tri_table_place place = {input->path, input->line};
    if (status == TRI_OK && *is_head_line)
        status =
            tri_table_match(input->table, &place, fields.items, fields.count, &(tri_vector){0}, false, input->at.items);
    tri_vector_fini(&fields);
    return status == TRI_EFORMAT ? tri_fail_copy(TRI_ECONFIG, tri_last_error()) : status;
}

/* The same, without the mark that some programs put first and the carriage return; the line stays as it is. */
static tri_status table_head(predict_input *input, const char *line, bool *is_head_line)
{
    char *copy = tri_strdup(strncmp(line, "\xef\xbb\xbf", 3) == 0 ? line + 3 : line);
    if (!copy)
        return TRI_ENOMEM;
    copy[strcspn(copy, "\r")] = 0;
    tri_status status = head_read(input, copy, is_head_line);
    tri_free(copy);
    return status;
}

static tri_status table_line(predict_input *input, char *line, predict_sample *sample)
{
    tri_vector fields = {0};
    const size_t nbytes = strlen(line);
    line[nbytes - (nbytes > 0 && line[nbytes - 1] == '\r')] = 0;
    tri_status status = fields_cut(line, input->separator, &fields);
    if (status == TRI_OK && input->at.count == 0)
        status = columns_place(input, fields.count);
    if (status == TRI_OK && fields.count != input->at.count)
        status = tri_fail(TRI_EFORMAT, "want %zu fields, got %zu", input->at.count, fields.count);
    for (size_t i = 0; status == TRI_OK && i < fields.count; i++) {
        const int64_t at = *(int64_t *)tri_vector_at(&input->at, i);
        if (at >= 0)
            input->fields[at] = *(char **)tri_vector_at(&fields, i);
    }
    sample->decimal = input->separator == ',' ? '.' : ',';
    tri_vector_fini(&fields);
    return status;
}

/* A value of JSON as a field. */
static tri_status value_text(predict_input *input, const json_t *value, const char **out)
{
    *out = json_is_string(value)    ? tri_arena_strdup(&input->texts, json_string_value(value))
           : json_is_null(value)    ? ""
           : json_is_integer(value) ? tri_arena_format(&input->texts, "%lld", (long long)json_integer_value(value))
           : json_is_number(value)  ? tri_arena_format(&input->texts, "%.17g", json_number_value(value))
           : json_is_boolean(value) ? json_is_true(value) ? "True" : "False"
                                    : NULL;
    if (*out)
        return TRI_OK;
    return tri_fail(TRI_EFORMAT, "input: want numbers and texts in a list, or by the names of their columns");
}

/* {"name": value, ...}, or a list of the values of the columns that are read. */
static tri_status table_json(predict_input *input, const json_t *values)
{
    const tri_table *table = input->table;
    size_t next = 0, known = 0;
    if (!json_is_object(values) &&
        (!json_is_array(values) || (int64_t)json_array_size(values) != columns_count(table, false)))
        return tri_fail(TRI_EFORMAT, "input: want %lld values in a list, or by the names of their columns",
                        (long long)columns_count(table, false));
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        const json_t *named = json_object_get(values, column->name);
        known += named != NULL;
        if (column->target || column->kind == TRI_COLUMN_UNUSED)
            continue;
        const json_t *value = json_is_object(values) ? named : json_array_get(values, next++);
        if (!value)
            return tri_fail(TRI_EFORMAT, "input: the value of '%s' is missing (null, where nobody knows it)",
                            column->name);
        TRI_TRY(value_text(input, value, &input->fields[i]));
    }
    if (json_is_object(values) && known < json_object_size(values))
        return tri_fail(TRI_EFORMAT, "input: one of the names is none of a column of the model's table");
    return TRI_OK;
}

/* --- one sample of a line --- */

static tri_status add_number(predict_input *input, double number)
{
    return tri_vector_push(&input->numbers, &number) ? TRI_OK : TRI_ENOMEM;
}

static tri_status add_numbers(predict_input *input, const json_t *value)
{
    size_t i;
    const json_t *item;
    if (json_is_number(value))
        return add_number(input, json_number_value(value));
    if (!json_is_array(value))
        return tri_fail(TRI_EFORMAT, "input: want numbers in lists");
    json_array_foreach(value, i, item) TRI_TRY(add_numbers(input, item));
    return TRI_OK;
}

static tri_status json_read(predict_input *input, const json_t *object, predict_sample *sample)
{
    const json_t *numbers = json_object_get(object, "input"), *index = json_object_get(object, "index");
    if (!json_is_object(object) || !numbers == !index)
        return tri_fail(TRI_EFORMAT, "want {\"input\": [numbers]} or {\"index\": a number}");
    if (numbers)
        return input->table ? table_json(input, numbers) : add_numbers(input, numbers);
    if (!json_is_integer(index) || json_integer_value(index) < 0)
        return tri_fail(TRI_EFORMAT, "index: want a whole number from 0 on");
    sample->index = json_integer_value(index);
    return TRI_OK;
}

static tri_status json_line(predict_input *input, const char *line, size_t nbytes, predict_sample *sample)
{
    json_error_t error;
    json_t *object = json_loadb(line, nbytes, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        return tri_fail(TRI_EFORMAT, "no JSON: %s, at byte %d", error.text, error.position);
    tri_status status = json_read(input, object, sample);
    json_decref(object);
    return status;
}

/* The end of the field that begins here: a comma between quotes is none. */
static const char *field_end(const char *at)
{
    for (bool quoted = false; *at && (quoted || *at != ','); at++)
        quoted ^= *at == '"';
    return at;
}

/* The field at *at, with or without quotes; *at is moved to its end. */
static bool csv_number(const char **at, double *number)
{
    const char *text = *at + strspn(*at, " \t");
    bool quoted = *text == '"';
    char *end;
    text += quoted;
    *number = strtod(text, &end);
    bool is = end > text && (!quoted || *end == '"');
    end += is && quoted;
    end += strspn(end, " \t\r");
    is = is && (!*end || *end == ',');
    *at = is ? end : field_end(*at);
    return is;
}

/* Names of columns, as a first line may have them: no field is a number. */
static bool is_head(const char *line)
{
    double number;
    for (const char *at = line;; at++) {
        if (csv_number(&at, &number))
            return false;
        if (!*at)
            return true;
    }
}

static tri_status csv_line(predict_input *input, const char *line)
{
    for (int64_t column = 1;; column++, line++) {
        const char *field = line;
        double number;
        if (!csv_number(&line, &number)) {
            int nbytes = (int)(line - field);
            nbytes -= nbytes > 0 && field[nbytes - 1] == '\r';
            return tri_fail(TRI_EFORMAT, "column %lld: want a number, got '%.*s'", (long long)column,
                            nbytes < 40 ? nbytes : 40, field);
        }
        TRI_TRY(add_number(input, number));
        if (!*line)
            return TRI_OK;
    }
}

static tri_status npy_row(predict_input *input, predict_sample *sample, bool *end)
{
    int64_t count = (int64_t)(input->numbers.each / sizeof(double));
    *end = input->line == input->row_count;
    if (*end)
        return TRI_OK;
    sample->line = ++input->line;
    tri_status status =
        tri_stream_read(&input->stream, input->row, (size_t)count * tri_dtype_nbytes(input->head.dtype));
    if (status != TRI_OK) /* what follows is not there either */
        return status == TRI_EFORMAT ? tri_fail_copy(TRI_EIO, tri_last_error()) : status;
    TRI_TRY(tri_convert(input->numbers.items, TRI_F64, input->row, input->head.dtype, count));
    sample->numbers = input->numbers.items;
    sample->count = count;
    return TRI_OK;
}

/* Numbers of the columns that are read, as fields. */
static tri_status numbers_fields(predict_input *input, predict_sample *sample)
{
    int64_t next = 0;
    tri_arena_fini(&input->texts);
    if (sample->count != columns_count(input->table, false))
        return tri_fail(TRI_EFORMAT, "want %lld numbers, those of the columns that the model reads, got %lld",
                        (long long)columns_count(input->table, false), (long long)sample->count);
    for (size_t i = 0; i < input->table->count; i++) {
        const tri_column *column = &input->table->columns[i];
        if (column->target || column->kind == TRI_COLUMN_UNUSED)
            continue;
        input->fields[i] = tri_arena_format(&input->texts, "%.17g", sample->numbers[next++]);
        if (!input->fields[i])
            return TRI_ENOMEM;
    }
    sample->fields = input->fields;
    sample->decimal = '.';
    return TRI_OK;
}

tri_status predict_input_next(predict_input *input, predict_sample *sample, bool *end)
{
    char *line;
    size_t nbytes = 0;
    *end = false;
    *sample = (predict_sample){.index = -1};
    if (input->format == PREDICT_NPY) {
        TRI_TRY(npy_row(input, sample, end));
        return input->table && !*end ? numbers_fields(input, sample) : TRI_OK;
    }
    TRI_TRY(line_next(input, &line, &nbytes));
    bool head = line && input->format == PREDICT_CSV && !input->begun;
    input->begun = true;
    if (head && input->table)
        TRI_TRY(table_head(input, line, &head));
    else
        head = head && is_head(line);
    if (head)
        TRI_TRY(line_next(input, &line, &nbytes));
    *end = line == NULL;
    if (*end)
        return TRI_OK;
    sample->line = input->line;
    input->numbers.count = 0;
    if (input->table) {
        tri_arena_fini(&input->texts);
        sample->fields = input->fields;
        sample->decimal = '.';
    }
    TRI_TRY(input->format == PREDICT_JSON ? json_line(input, line, nbytes, sample)
            : input->table                ? table_line(input, line, sample)
                                          : csv_line(input, line));
    sample->numbers = input->numbers.items;
    sample->count = (int64_t)input->numbers.count;
    return TRI_OK;
}
