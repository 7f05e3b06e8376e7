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
#include "data/data.h"
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
    tri_vector numbers; /* double */
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
    return tri_fail(TRI_ECONFIG, "--format wants json, csv, npy or auto, found '%s'", word);
}

static tri_status npy_open(predict_input *input)
{
    TRI_TRY(tri_source_open(&input->source, input->path));
    TRI_TRY(tri_stream_open(&input->stream, &input->source));
    TRI_TRY(tri_npy_head_read(&input->stream, &input->head));
    if (input->head.shape.ndim < 1)
        return tri_fail(TRI_EFORMAT, "%s: want an array of samples, found a single number", input->path);
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
        return tri_fail(TRI_ECONFIG, "--format npy wants a file, not standard input");
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
        return add_numbers(input, numbers);
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
            return tri_fail(TRI_EFORMAT, "column %lld: want a number, found '%.*s'", (long long)column,
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

tri_status predict_input_next(predict_input *input, predict_sample *sample, bool *end)
{
    char *line;
    size_t nbytes = 0;
    *end = false;
    *sample = (predict_sample){.index = -1};
    if (input->format == PREDICT_NPY)
        return npy_row(input, sample, end);
    TRI_TRY(line_next(input, &line, &nbytes));
    if (line && input->format == PREDICT_CSV && !input->begun && is_head(line))
        TRI_TRY(line_next(input, &line, &nbytes));
    input->begun = true;
    *end = line == NULL;
    if (*end)
        return TRI_OK;
    sample->line = input->line;
    input->numbers.count = 0;
    TRI_TRY(input->format == PREDICT_JSON ? json_line(input, line, nbytes, sample) : csv_line(input, line));
    sample->numbers = input->numbers.items;
    sample->count = (int64_t)input->numbers.count;
    return TRI_OK;
}
