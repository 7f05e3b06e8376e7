/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: CSV as a machine of five states over bytes, text within a field at once; only the row at hand is in memory,
 * at most 64 MiB.
 */
#include "data/tables/rows.h"

#include <inttypes.h>
#include <string.h>

#define ROW_LIMIT_NBYTES ((size_t)64 << 20)

enum csv_state {
    CSV_START,     /* of a field */
    CSV_PLAIN,     /* in a field without quotes */
    CSV_QUOTED,    /* between quotes */
    CSV_QUOTE,     /* after a quote that closes or is the first of two */
    CSV_RETURN,    /* after CR: LF must follow */
    CSV_ROW_ENDED, /* a whole row has been read */
};

tri_status tri_csv_rows_open(tri_csv_rows *rows, const tri_source *source, char separator)
{
    *rows = (tri_csv_rows){.origin = source->origin,
                           .separator = separator,
                           .line = 1 + source->lines_before,
                           .first = {.each = sizeof(size_t)}};
    rows->ends[0] = rows->ends['"'] = rows->ends['\n'] = rows->ends['\r'] = rows->ends[(unsigned char)separator] = true;
    TRI_TRY(tri_stream_open(&rows->stream, source));
    TRI_TRY(tri_stream_next(&rows->stream, &rows->bytes, &rows->left));
    if (rows->left >= 3 && memcmp(rows->bytes, "\xef\xbb\xbf", 3) == 0) { /* the mark that some programs put first */
        rows->bytes += 3;
        rows->left -= 3;
    }
    return TRI_OK;
}

void tri_csv_rows_close(tri_csv_rows *rows)
{
    tri_stream_close(&rows->stream);
    tri_vector_fini(&rows->first);
    tri_free(rows->text);
    *rows = (tri_csv_rows){0};
}

size_t tri_csv_rows_count(const tri_csv_rows *rows)
{
    return rows->first.count;
}

const char *tri_csv_rows_field(const tri_csv_rows *rows, size_t index)
{
    return rows->text + *(const size_t *)tri_vector_at(&rows->first, index);
}

static tri_status put_bytes(tri_csv_rows *rows, const void *bytes, size_t nbytes)
{
    if (nbytes > rows->text_capacity - rows->text_nbytes) {
        size_t capacity = rows->text_capacity > 0 ? 2 * rows->text_capacity : 256;
        while (capacity - rows->text_nbytes < nbytes && capacity <= ROW_LIMIT_NBYTES)
            capacity *= 2;
        if (capacity > ROW_LIMIT_NBYTES)
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": the row is longer than %zu bytes (a quote left open?)",
                            rows->origin, rows->row_line, ROW_LIMIT_NBYTES);
        char *text = tri_realloc(rows->text, capacity);
        if (text == NULL)
            return TRI_ENOMEM;
        rows->text = text;
        rows->text_capacity = capacity;
    }
    memcpy(rows->text + rows->text_nbytes, bytes, nbytes);
    rows->text_nbytes += nbytes;
    return TRI_OK;
}

static tri_status put(tri_csv_rows *rows, char byte)
{
    return put_bytes(rows, &byte, 1);
}

static tri_status begin_field(tri_csv_rows *rows)
{
    return tri_vector_push(&rows->first, &rows->text_nbytes) != NULL ? TRI_OK : TRI_ENOMEM;
}

/* What ends a field: the separator begins the next one, LF ends the row. */
static tri_status end_field(tri_csv_rows *rows, unsigned char byte, enum csv_state *state)
{
    if (byte == '\r') {
        *state = CSV_RETURN;
        return TRI_OK;
    }
    TRI_TRY(put(rows, 0));
    if (byte == (unsigned char)rows->separator) {
        *state = CSV_START;
        return begin_field(rows);
    }
    rows->line++;
    *state = CSV_ROW_ENDED;
    return TRI_OK;
}

static tri_status step(tri_csv_rows *rows, unsigned char byte, enum csv_state *state)
{
    bool separates = byte == (unsigned char)rows->separator || byte == '\n' || byte == '\r';
    if (byte == 0)
        return tri_fail(TRI_EFORMAT,
                        "%s:%" PRId64 ": want text, got a zero byte (data.encoding says how the file is encoded)",
                        rows->origin, rows->line);
    switch (*state) {
    case CSV_START:
        if (byte == '"') {
            *state = CSV_QUOTED;
            return TRI_OK;
        }
        *state = CSV_PLAIN;
        return separates ? end_field(rows, byte, state) : put(rows, (char)byte);
    case CSV_PLAIN:
        if (byte == '"')
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": a quote inside a field that does not begin with one",
                            rows->origin, rows->line);
        return separates ? end_field(rows, byte, state) : put(rows, (char)byte);
    case CSV_QUOTED:
        if (byte == '"') {
            *state = CSV_QUOTE;
            return TRI_OK;
        }
        rows->line += byte == '\n';
        return put(rows, (char)byte);
    case CSV_QUOTE:
        if (separates)
            return end_field(rows, byte, state);
        if (byte != '"')
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want '%c' or the end of the line after a closing quote",
                            rows->origin, rows->line, rows->separator);
        *state = CSV_QUOTED;
        return put(rows, '"');
    default:
        if (byte != '\n')
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": a carriage return that ends no line", rows->origin,
                            rows->line);
        return end_field(rows, byte, state);
    }
}

/* How many of the next bytes are text and nothing else. */
static size_t plain_span(const tri_csv_rows *rows, enum csv_state state)
{
    const unsigned char *at = rows->bytes, *end = at + rows->left;
    if (state == CSV_QUOTED)
        while (at < end && *at != '"' && *at != '\n' && *at != 0)
            at++;
    else if (state == CSV_START || state == CSV_PLAIN)
        while (at < end && !rows->ends[*at])
            at++;
    return (size_t)(at - rows->bytes);
}

/* Reads up to the end of one row; *any: there was at least one byte. */
static tri_status read_row(tri_csv_rows *rows, bool *any)
{
    enum csv_state state = CSV_START;
    rows->first.count = 0;
    rows->text_nbytes = 0;
    rows->row_line = rows->line;
    *any = false;
    TRI_TRY(begin_field(rows));
    while (state != CSV_ROW_ENDED) {
        if (rows->left == 0)
            TRI_TRY(tri_stream_next(&rows->stream, &rows->bytes, &rows->left));
        if (rows->left == 0)
            break;
        *any = true;
        const size_t plain = plain_span(rows, state);
        if (plain > 0) {
            TRI_TRY(put_bytes(rows, rows->bytes, plain));
            rows->bytes += plain;
            rows->left -= plain;
            state = state == CSV_START ? CSV_PLAIN : state;
            continue;
        }
        rows->left--;
        TRI_TRY(step(rows, *rows->bytes++, &state));
    }
    if (state == CSV_QUOTED)
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": the quote is not closed before the end of the file", rows->origin,
                        rows->row_line);
    return state == CSV_ROW_ENDED ? TRI_OK : put(rows, 0);
}

tri_status tri_csv_rows_next(tri_csv_rows *rows, bool *more)
{
    for (;;) {
        bool any;
        TRI_TRY(read_row(rows, &any));
        *more = false;
        if (!any)
            return TRI_OK;
        bool blank = rows->first.count == 1 && rows->text_nbytes == 1;
        if (!blank && rows->blank_line != 0)
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": an empty line in the middle of the rows", rows->origin,
                            rows->blank_line);
        *more = !blank;
        if (!blank)
            return TRI_OK;
        if (rows->blank_line == 0)
            rows->blank_line = rows->row_line;
    }
}
