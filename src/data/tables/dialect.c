/* SPDX-License-Identifier: Apache-2.0
 *
 * dialect.c: how a table is written: its encoding, separator and decimal mark, and whether its first line names the
 * columns. What options do not say is learned from the first rows.
 */
#include <errno.h>
#include <iconv.h>
#include <inttypes.h>
#include <string.h>

#include "data/tables/rows.h"
#include "data/tables/table.h"

#define LOOKED_ROWS 200

/* --- encoding --- */

bool tri_table_is_utf8(const char *text)
{
    const unsigned char *const bytes = (const unsigned char *)text;
    const size_t nbytes = strlen(text);
    for (size_t i = 0; i < nbytes;) {
        const unsigned char first = bytes[i];
        const size_t more = first < 0x80                     ? 0
                            : first >= 0xc2 && first <= 0xdf ? 1
                            : (first & 0xf0) == 0xe0         ? 2
                            : first >= 0xf0 && first <= 0xf4 ? 3
                                                             : nbytes;
        if (more >= nbytes - i)
            return false;
        for (size_t k = 1; k <= more; k++)
            if ((bytes[i + k] & 0xc0) != 0x80)
                return false;
        i += more + 1;
    }
    return true;
}

static tri_status bytes_read(const tri_source *source, tri_string *out)
{
    tri_stream stream = {0};
    const unsigned char *bytes;
    size_t nbytes = 0;
    tri_status status = tri_stream_open(&stream, source);
    while (status == TRI_OK && (status = tri_stream_next(&stream, &bytes, &nbytes)) == TRI_OK && nbytes > 0)
        status = tri_string_append_bytes(out, bytes, nbytes);
    tri_stream_close(&stream);
    return status;
}

static tri_status convert(const char *origin, const char *encoding, const tri_string *from, tri_string *out)
{
    char *at = from->text, buffer[16 << 10];
    size_t left = from->nbytes;
    iconv_t converter = iconv_open("UTF-8", encoding);
    if (converter == (iconv_t)-1)
        return tri_fail(TRI_EUNSUPPORTED, "%s: iconv of this system cannot read %s", origin, encoding);
    tri_status status = TRI_OK;
    while (left > 0 && status == TRI_OK) {
        char *to = buffer;
        size_t room = sizeof(buffer);
        const size_t converted = iconv(converter, &at, &left, &to, &room);
        status = tri_string_append_bytes(out, buffer, sizeof(buffer) - room);
        if (status == TRI_OK && converted == (size_t)-1 && errno != E2BIG)
            status = tri_fail(TRI_EFORMAT, "%s: want text in %s, got other bytes at byte %zu", origin, encoding,
                              from->nbytes - left);
    }
    iconv_close(converter);
    return status;
}

/* What iconv calls the encoding; NULL: UTF-8. */
static const char *encoding_of(const tri_data_config *config, const tri_string *text)
{
    const char *const wide = tri_text_wide_encoding(text->text, text->nbytes);
    if (config->encoding == TRI_ENCODING_AUTO)
        return wide;
    if (config->encoding == TRI_ENCODING_UTF8)
        return NULL;
    return config->encoding == TRI_ENCODING_LATIN1 ? "CP1252" : wide != NULL ? wide : "UTF-16LE";
}

/* The first 4 KiB decide, so that a file in UTF-8 is not held in memory. */
static tri_status is_encoded(const tri_data_config *config, const tri_source *source, bool *out)
{
    tri_stream stream = {0};
    const unsigned char *bytes;
    size_t nbytes;
    *out = false;
    TRI_TRY(tri_stream_open(&stream, source));
    tri_status status = tri_stream_next(&stream, &bytes, &nbytes);
    if (status == TRI_OK) {
        const tri_string text = {.text = (char *)(uintptr_t)bytes, .nbytes = nbytes};
        *out = nbytes > 0 && encoding_of(config, &text) != NULL;
    }
    tri_stream_close(&stream);
    return status;
}

tri_status tri_table_decode(const tri_data_config *config, tri_source *source, char **converted)
{
    tri_string from = {0}, to = {0};
    tri_source other = {0};
    bool encoded;
    *converted = NULL;
    TRI_TRY(is_encoded(config, source, &encoded));
    if (!encoded)
        return TRI_OK;
    tri_status status = bytes_read(source, &from);
    if (status == TRI_OK)
        status = convert(source->origin, encoding_of(config, &from), &from, &to);
    if (status == TRI_OK)
        status = tri_source_init(&other, tri_string_text(&to), to.nbytes, source->origin);
    if (status == TRI_OK) {
        other.plain = true;
        tri_source_fini(source);
        *source = other;
        *converted = tri_string_detach(&to);
    }
    tri_string_fini(&from);
    tri_string_fini(&to);
    return status;
}

/* --- the first rows --- */

typedef struct sample_rows {
    tri_arena arena;
    tri_vector fields;    /* char *: row after row */
    size_t rows, columns; /* of the first row; 0: rows differ */
} sample_rows;

static const char *field_at(const sample_rows *sample, size_t row, size_t column)
{
    return *(const char **)tri_vector_at(&sample->fields, row * sample->columns + column);
}

static void sample_fini(sample_rows *sample)
{
    tri_vector_fini(&sample->fields);
    tri_arena_fini(&sample->arena);
}

/* The first rows as they are with this separator, up to one that is wrong or of another length. */
static tri_status sample_read(const tri_source *source, char separator, sample_rows *sample)
{
    tri_csv_rows rows;
    bool more = true, same = true;
    *sample = (sample_rows){.fields = {.each = sizeof(char *)}};
    tri_status status = tri_csv_rows_open(&rows, source, separator);
    while (status == TRI_OK && more && same && sample->rows < LOOKED_ROWS) {
        tri_status next = tri_csv_rows_next(&rows, &more);
        if (next == TRI_ENOMEM)
            status = next;
        if (next != TRI_OK || !more)
            break;
        const size_t count = tri_csv_rows_count(&rows);
        same = sample->rows == 0 || count == sample->columns;
        sample->columns = sample->rows == 0 ? count : sample->columns;
        for (size_t i = 0; i < count && same && status == TRI_OK; i++) {
            char *copy = tri_arena_strdup(&sample->arena, tri_csv_rows_field(&rows, i));
            copy = copy != NULL ? tri_table_trim(copy) : NULL;
            status = copy != NULL && tri_vector_push(&sample->fields, &copy) ? TRI_OK : TRI_ENOMEM;
        }
        sample->rows += same;
    }
    tri_csv_rows_close(&rows);
    return status;
}

static bool is_number(const char *field)
{
    double value;
    return tri_table_number_read(field, '.', &value) || tri_table_number_read(field, ',', &value);
}

/* How good a separator is: rows of one length and at least 2 fields, of which many are numbers. */
static double separator_score(const sample_rows *sample, const tri_vector *missing)
{
    size_t numbers = 0, texts = 0;
    if (sample->rows == 0 || sample->columns < 2)
        return 0;
    for (size_t i = 0; i < sample->fields.count; i++) {
        const char *const field = *(const char **)tri_vector_at(&sample->fields, i);
        const bool number = is_number(field);
        numbers += number;
        texts += !number && !tri_table_is_missing(missing, field);
    }
    const double share = numbers + texts > 0 ? (double)numbers / (double)(numbers + texts) : 0;
    return (double)sample->rows * (1 + share) + (double)sample->columns * 1e-6;
}

static tri_status separator_find(const tri_data_config *config, const tri_source *source, const tri_vector *missing,
                                 char *out)
{
    static const char known[] = {[TRI_SEPARATOR_COMMA] = ',',
                                 [TRI_SEPARATOR_SEMICOLON] = ';',
                                 [TRI_SEPARATOR_TAB] = '\t',
                                 [TRI_SEPARATOR_PIPE] = '|'};
    double best = 0;
    *out = config->separator == TRI_SEPARATOR_AUTO ? ',' : known[config->separator];
    for (size_t i = TRI_SEPARATOR_COMMA; i < sizeof(known) && config->separator == TRI_SEPARATOR_AUTO; i++) {
        sample_rows sample;
        tri_status status = sample_read(source, known[i], &sample);
        const double score = separator_score(&sample, missing);
        sample_fini(&sample);
        TRI_TRY(status);
        if (score > best) {
            best = score;
            *out = known[i];
        }
    }
    return TRI_OK;
}

/* "1,234": a whole number whose thousands are marked, or one with a decimal comma; not "0,123". */
static bool is_unclear(const char *field)
{
    const char *text = field + strspn(field, " \t+-");
    const size_t before = strspn(text, "0123456789");
    return before >= 1 && before <= 3 && text[0] != '0' && text[before] == ',' &&
           strspn(text + before + 1, "0123456789") == 3;
}

/* A comma is the decimal mark where some field is a number with one, and none is one with a point. */
static tri_status decimal_find(const tri_data_config *config, const sample_rows *sample, const char *origin,
                               char separator, char *out)
{
    size_t commas = 0, points = 0, clear = 0;
    const char *unclear = "";
    double value;
    *out = config->decimal == TRI_DECIMAL_COMMA ? ',' : '.';
    if (config->decimal != TRI_DECIMAL_AUTO)
        return TRI_OK;
    for (size_t i = 0; i < sample->fields.count && separator != ','; i++) {
        const char *const field = *(const char **)tri_vector_at(&sample->fields, i);
        const bool number = tri_table_number_read(field, '.', &value);
        const bool comma = !number && tri_table_number_read(field, ',', &value);
        points += number && strchr(field, '.') != NULL;
        commas += comma;
        clear += comma && !is_unclear(field);
        unclear = comma && is_unclear(field) ? field : unclear;
    }
    if (clear == 0 && commas > points)
        return tri_fail(TRI_EFORMAT,
                        "%s: '%.20s' may be a whole number or a fraction, as all numbers with a comma: want "
                        "data.decimal=comma (fractions), or no marks between thousands",
                        origin, unclear);
    *out = commas > points ? ',' : '.';
    return TRI_OK;
}

/* --- the header --- */

typedef struct column_votes {
    size_t numbers, texts, dates, repeats; /* of the rows below the first; repeats: texts that equal the first row's */
    bool real;                             /* one of the numbers has a decimal mark or an exponent */
} column_votes;

static column_votes votes_count(const sample_rows *sample, size_t column, const tri_vector *missing, char decimal)
{
    column_votes votes = {0};
    const char *const first = field_at(sample, 0, column);
    for (size_t r = 1; r < sample->rows; r++) {
        const char *const field = field_at(sample, r, column);
        int64_t integer;
        double value;
        votes.repeats += strcmp(field, first) == 0;
        if (tri_table_is_missing(missing, field))
            continue;
        const bool number = tri_table_number_read(field, decimal, &value);
        votes.numbers += number;
        votes.dates += !number && tri_table_date_read(field, "", &value);
        votes.texts += !number;
        votes.real |= number && !tri_table_integer_read(field, &integer);
    }
    votes.texts -= votes.dates;
    return votes;
}

/* Fields 0, 1, 2, ... of a first line, as pandas numbers columns that have no names; the first may have none (an
 * index), and texts may be at other places (a target that has a name). Returns how many numbers there are. */
static size_t counted_names(const sample_rows *sample)
{
    size_t count = 0;
    for (size_t c = 0; c < sample->columns; c++) {
        int64_t value;
        double real;
        const char *const field = field_at(sample, 0, c);
        if (tri_table_integer_read(field, &value)) {
            if (value != (int64_t)count)
                return 0;
            count++;
        } else if (tri_table_number_read(field, '.', &real) || tri_table_number_read(field, ',', &real)) {
            return 0;
        }
    }
    return count;
}

/* Whether the first line names the columns: a text above numbers or dates; 0, 1, 2, ... where the rows below are not
 * like that; or texts of which none is found again in its column. */
static bool header_find(const sample_rows *sample, const tri_vector *missing, char decimal)
{
    size_t above = 0, reals = 0, new_texts = 0, texts = 0, real_columns = 0, new_numbers = 0;
    if (sample->rows < 2) { /* alone: names, unless there is a number */
        for (size_t c = 0; c < sample->columns; c++)
            if (is_number(field_at(sample, 0, c)))
                return false;
        return sample->rows == 1;
    }
    for (size_t c = 0; c < sample->columns; c++) {
        const char *const field = field_at(sample, 0, c);
        int64_t integer;
        double value;
        const column_votes votes = votes_count(sample, c, missing, decimal);
        const bool number = tri_table_number_read(field, decimal, &value),
                   date = tri_table_date_read(field, "", &value);
        const bool text = !number && !date && !tri_table_is_missing(missing, field);
        reals += number && !tri_table_integer_read(field, &integer);
        real_columns += votes.real;
        new_numbers += number && votes.repeats == 0;
        above += text && votes.numbers + votes.dates > votes.texts;
        texts += text && votes.texts > 0;
        new_texts += text && votes.texts > 0 && votes.repeats == 0;
    }
    if (reals > 0) /* a value, not a name */
        return false;
    const size_t counted = counted_names(sample);
    if (field_at(sample, 0, 0)[0] == 0 && counted + above + texts == sample->columns - 1 && counted + above + texts > 0)
        return true; /* an index without a name, then names */
    if (counted == sample->columns)
        return counted > 2 || real_columns > 0;
    if (counted > 0 && new_texts + above > 0 && counted + texts + above >= sample->columns)
        return above > 0 || real_columns > 0 || new_numbers > 0 || counted > 2;
    return above > 0 || (texts == sample->columns && new_texts == texts && sample->rows > 3);
}

tri_status tri_table_dialect_find(const tri_data_config *config, const tri_source *source, const tri_vector *missing,
                                  tri_table_dialect *out)
{
    sample_rows sample;
    *out = (tri_table_dialect){.separator = ',', .decimal = '.'};
    TRI_TRY(separator_find(config, source, missing, &out->separator));
    tri_status status = sample_read(source, out->separator, &sample);
    if (status == TRI_OK)
        status = decimal_find(config, &sample, source->origin, out->separator, &out->decimal);
    if (status == TRI_OK) {
        out->header = config->header == TRI_HEADER_AUTO ? header_find(&sample, missing, out->decimal)
                                                        : config->header == TRI_HEADER_YES;
    }
    sample_fini(&sample);
    return status;
}
