/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.c: see lines.h.
 */
#include "data/lines/lines.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/json.h"

#define LINE_LIMIT  ((size_t)256 << 20)
#define NAMES_SHOWN 10
#define NAMES_LIMIT 100000
#define CODE_POINTS 0x110000u
#define MARK        "\xef\xbb\xbf"

static bool is_blank(const char *line, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

bool tri_lines_next(tri_lines *lines, const char **line, size_t *nbytes)
{
    const char *text = (const char *)lines->source->bytes;
    if (lines->at == 0 && lines->end >= 3 && memcmp(text, MARK, 3) == 0)
        lines->at = 3;
    while (lines->at < lines->end) {
        const size_t left = lines->end - lines->at;
        const char *end = memchr(text + lines->at, '\n', left);
        *line = text + lines->at;
        *nbytes = end != NULL ? (size_t)(end - *line) : left;
        lines->at += *nbytes + (end != NULL);
        if (!is_blank(*line, *nbytes))
            return true;
    }
    return false;
}

size_t tri_lines_cut(const tri_source *source, size_t at)
{
    if (at == 0 || at >= source->nbytes)
        return at < source->nbytes ? at : source->nbytes;
    const unsigned char *end = memchr(source->bytes + at - 1, '\n', source->nbytes - at + 1);
    return end != NULL ? (size_t)(end - source->bytes) + 1 : source->nbytes;
}

/* From 1. */
static int64_t line_number(const tri_source *source, const char *line)
{
    int64_t number = 1;
    for (const unsigned char *at = source->bytes; at < (const unsigned char *)line; at++)
        number += *at == '\n';
    return number;
}

static tri_status object_read(const tri_source *source, const char *line, size_t nbytes, json_t **out)
{
    json_error_t error = {.text = "longer than 256 MiB"};
    *out = nbytes <= LINE_LIMIT ? json_loadb(line, nbytes, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (json_is_object(*out))
        return TRI_OK;
    tri_status status = *out != NULL
                            ? tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want an object {...} in each line, got a list",
                                       source->origin, line_number(source, line))
                            : tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": bad JSON: %.120s", source->origin,
                                       line_number(source, line), error.text);
    json_decref(*out);
    *out = NULL;
    return status;
}

/* --- texts --- */

static tri_status fail_no_text(const tri_source *source, const char *line, const char *field, json_t *object)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list", [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",
        [JSON_TRUE] = "true",        [JSON_FALSE] = "false",  [JSON_NULL] = "null"};
    tri_string names = {0};
    const char *name;
    json_t *value = json_object_get(object, field);
    int count = 0;
    if (value != NULL)
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": the field '%s' holds %s: want a text (data.text_field)",
                        source->origin, line_number(source, line), field, kinds[json_typeof(value)]);
    json_object_foreach(object, name, value) if (count++ < NAMES_SHOWN)(void)
        tri_string_appendf(&names, "%s%.60s", count > 1 ? ", " : "", name);
    tri_status status =
        tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want a text in the field '%s' (data.text_field), the line has: %s",
                 source->origin, line_number(source, line), field, names.nbytes > 0 ? names.text : "nothing");
    tri_string_fini(&names);
    return status;
}

tri_status tri_line_text(const tri_source *source, const char *line, size_t nbytes, const char *field, tri_string *out)
{
    json_t *object;
    TRI_TRY(object_read(source, line, nbytes, &object));
    const json_t *text = json_object_get(object, field);
    tri_status status = json_is_string(text)
                            ? tri_string_append_bytes(out, json_string_value(text), json_string_length(text))
                            : fail_no_text(source, line, field, object);
    json_decref(object);
    return status;
}

bool tri_lines_have_text(const char *path, const char *field)
{
    tri_source source = {0};
    tri_string text = {0};
    const char *line;
    size_t nbytes;
    bool have = false;
    if (tri_source_open(&source, path) == TRI_OK) {
        tri_lines lines = {&source, 0, source.nbytes};
        have = tri_lines_next(&lines, &line, &nbytes) && tri_line_text(&source, line, nbytes, field, &text) == TRI_OK;
    }
    tri_string_fini(&text);
    tri_source_fini(&source);
    return have;
}

/* The number of a character of valid UTF-8. */
static uint32_t code_of(const unsigned char *at, size_t nbytes)
{
    uint32_t code = nbytes == 1 ? at[0] : at[0] & (0xffu >> (nbytes + 1));
    for (size_t i = 1; i < nbytes; i++)
        code = code << 6 | (at[i] & 0x3fu);
    return code;
}

static tri_status characters_add(const tri_string *text, unsigned char *seen, tri_string *out)
{
    size_t nbytes;
    for (size_t at = 0; at < text->nbytes; at += nbytes) {
        nbytes = tri_utf8_nbytes(text->text + at); /* JSON's texts are valid */
        const uint32_t code = code_of((const unsigned char *)text->text + at, nbytes);
        if (seen[code >> 3] >> (code & 7) & 1)
            continue;
        seen[code >> 3] |= (unsigned char)(1u << (code & 7));
        TRI_TRY(tri_string_append_bytes(out, text->text + at, nbytes));
    }
    return TRI_OK;
}

tri_status tri_lines_characters(const tri_source *source, const char *field, tri_string *out)
{
    tri_lines lines = {source, 0, source->nbytes};
    tri_string text = {0};
    const char *line;
    size_t nbytes;
    unsigned char *seen = tri_alloc_zero(CODE_POINTS / 8, 1);
    tri_status status = seen != NULL ? TRI_OK : TRI_ENOMEM;
    while (status == TRI_OK && tri_lines_next(&lines, &line, &nbytes)) {
        tri_string_clear(&text);
        status = tri_line_text(source, line, nbytes, field, &text);
        if (status == TRI_OK)
            status = characters_add(&text, seen, out);
    }
    tri_string_fini(&text);
    tri_free(seen);
    return status;
}

/* --- tables --- */

typedef struct table_writing {
    const tri_source *source;
    const tri_vector *ignored;
    tri_map places;   /* name -> column */
    tri_vector names; /* char * */
    tri_string *out;
} table_writing;

static bool is_ignored(const table_writing *table, const char *name)
{
    for (size_t i = 0; i < table->ignored->count; i++)
        if (strcmp(name, *(const char **)tri_vector_at(table->ignored, i)) == 0)
            return true;
    return false;
}

static tri_status text_write(const char *text, tri_string *out)
{
    TRI_TRY(tri_string_append(out, "\""));
    for (const char *quote; (quote = strchr(text, '"')) != NULL; text = quote + 1) {
        TRI_TRY(tri_string_append_bytes(out, text, (size_t)(quote - text)));
        TRI_TRY(tri_string_append(out, "\"\""));
    }
    TRI_TRY(tri_string_append(out, text));
    return tri_string_append(out, "\"");
}

static tri_status value_write(const table_writing *table, const char *line, const char *name, const json_t *value)
{
    if (value == NULL || json_is_null(value) || is_ignored(table, name))
        return TRI_OK;
    if (json_is_string(value))
        return text_write(json_string_value(value), table->out);
    if (json_is_integer(value))
        return tri_string_appendf(table->out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (json_is_real(value))
        return tri_string_append_real(table->out, json_real_value(value));
    if (json_is_boolean(value))
        return tri_string_append(table->out, json_is_true(value) ? "true" : "false");
    return tri_fail(
        TRI_EFORMAT,
        "%s:%" PRId64 ": the field '%.60s' holds %s: want a number, a text, true, false or null (data.ignore "
        "leaves a field out)",
        table->source->origin, line_number(table->source, line), name, json_is_array(value) ? "a list" : "an object");
}

static tri_status names_add(table_writing *table, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        int64_t place;
        if (tri_map_find(&table->places, name, &place))
            continue;
        char *copy = tri_strdup(name);
        if (copy == NULL || tri_vector_push(&table->names, &copy) == NULL) {
            tri_free(copy);
            return TRI_ENOMEM;
        }
        if (table->names.count > NAMES_LIMIT)
            return tri_fail(TRI_EFORMAT, "%s: more than %d names of fields", table->source->origin, NAMES_LIMIT);
        TRI_TRY(tri_map_set(&table->places, name, (int64_t)table->names.count - 1));
    }
    return TRI_OK;
}

static tri_status row_write(table_writing *table, const char *line, json_t *object)
{
    for (size_t i = 0; i < table->names.count; i++) {
        const char *name = *(const char **)tri_vector_at(&table->names, i);
        TRI_TRY(tri_string_append(table->out, i > 0 ? "," : ""));
        TRI_TRY(value_write(table, line, name, json_object_get(object, name)));
    }
    if (table->names.count == 1 && table->out->nbytes > 0 && table->out->text[table->out->nbytes - 1] == '\n')
        TRI_TRY(tri_string_append(table->out, "\"\"")); /* else it would be an empty line */
    return tri_string_append(table->out, "\n");
}

/* All lines: names are gathered, or rows are written. */
static tri_status lines_walk(table_writing *table, bool writes)
{
    tri_lines lines = {table->source, 0, table->source->nbytes};
    const char *line;
    size_t nbytes;
    while (tri_lines_next(&lines, &line, &nbytes)) {
        json_t *object;
        TRI_TRY(object_read(table->source, line, nbytes, &object));
        tri_status status = writes ? row_write(table, line, object) : names_add(table, object);
        json_decref(object);
        TRI_TRY(status);
    }
    return TRI_OK;
}

static tri_status header_write(const table_writing *table)
{
    for (size_t i = 0; i < table->names.count; i++) {
        TRI_TRY(tri_string_append(table->out, i > 0 ? "," : ""));
        TRI_TRY(text_write(*(const char **)tri_vector_at(&table->names, i), table->out));
    }
    return tri_string_append(table->out, "\n");
}

tri_status tri_lines_to_csv(const tri_source *source, const tri_vector *ignored, tri_string *out)
{
    table_writing table = {.source = source, .ignored = ignored, .names = {.each = sizeof(char *)}, .out = out};
    tri_status status = lines_walk(&table, false);
    if (status == TRI_OK && table.names.count == 0)
        status = tri_fail(TRI_EFORMAT, "%s: no line with a field in it", source->origin);
    if (status == TRI_OK)
        status = header_write(&table);
    if (status == TRI_OK)
        status = lines_walk(&table, true);
    for (size_t i = 0; i < table.names.count; i++)
        tri_free(*(char **)tri_vector_at(&table.names, i));
    tri_vector_fini(&table.names);
    tri_map_fini(&table.places);
    return status;
}
