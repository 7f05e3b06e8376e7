/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: reads, prints and explains options from their rows; nothing here knows any option by name.
 *
 * A value is parsed and checked completely before the configuration is touched. Numbers are read and printed in the C
 * locale whatever the program's locale is.
 */
#include "base/options.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/status.h"

/* --- texts shared by messages and help --- */

static bool has_bounds(const tri_option *row)
{
    return row->type != TRI_OPTION_PATH && row->type != TRI_OPTION_TEXT && (row->low != 0.0 || row->high != 0.0);
}

/* A bound beyond this is written as no bound. */
#define BOUND_ENDLESS 9e18

/* "0 to 1", "at least 1", "at most 9"; nothing without bounds. */
tri_status tri_option_bounds_print(const tri_option *row, tri_string *out)
{
    bool low = row->low > -BOUND_ENDLESS, high = row->high < BOUND_ENDLESS;
    if (!has_bounds(row) || (!low && !high))
        return TRI_OK;
    if (low && !high)
        TRI_TRY(tri_string_append(out, "at least "));
    if (!low && high)
        TRI_TRY(tri_string_append(out, "at most "));
    if (low)
        TRI_TRY(tri_string_append_real(out, row->low));
    if (low && high)
        TRI_TRY(tri_string_append(out, " to "));
    return high ? tri_string_append_real(out, row->high) : TRI_OK;
}

/* Appends the words with `between` between them. */
static tri_status option_words_print(const tri_option *row, const char *between, tri_string *out)
{
    for (int i = 0; row->words && row->words[i]; i++)
        TRI_TRY(tri_string_appendf(out, "%s%s", i > 0 ? between : "", row->words[i]));
    return TRI_OK;
}

static tri_status append_wanted(const tri_option *row, tri_string *out)
{
    static const char *const texts[] = {
        [TRI_OPTION_BOOL] = "true or false (yes/no, on/off)",
        [TRI_OPTION_INT] = "an integer (k, M, G allowed)",
        [TRI_OPTION_REAL] = "a number",
        [TRI_OPTION_ENUM] = "one of ",
        [TRI_OPTION_COUNT] = " or an integer",
        [TRI_OPTION_NAME] = "a name of at most 63 bytes",
        [TRI_OPTION_TEXT] = "a text of at most 1023 bytes",
        [TRI_OPTION_PATH] = "a path of at most 1023 bytes",
        [TRI_OPTION_LIST] = "a list such as [a, b] of at most 1023 bytes",
    };
    if (row->type == TRI_OPTION_COUNT)
        TRI_TRY(option_words_print(row, ", ", out));
    TRI_TRY(tri_string_append(out, texts[row->type]));
    if (row->type == TRI_OPTION_ENUM)
        return option_words_print(row, "|", out);
    if (has_bounds(row)) {
        TRI_TRY(tri_string_append(out, ", "));
        return tri_option_bounds_print(row, out);
    }
    return TRI_OK;
}

/* --- parsing --- */

static bool parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (size_t i = 0; i < TRI_COUNT_OF(yes); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *out = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool parse_int(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!is_digit(*digits)) /* strtoll would skip blanks */
        return false;
    char *end;
    errno = 0;
    int64_t value = strtoll(text, &end, 10);
    if (errno != 0)
        return false;
    int64_t unit = *end == 'k' ? 1000 : *end == 'M' ? 1000000 : *end == 'G' ? 1000000000 : 1;
    if (unit != 1)
        end++;
    return *end == '\0' && !__builtin_mul_overflow(value, unit, out);
}

static bool parse_real(const char *text, double *out)
{
    const char *start = text + (*text == '-' || *text == '+');
    bool infinite = strcmp(start, "inf") == 0;
    if (!infinite && !is_digit(*start) && !(*start == '.' && is_digit(start[1])))
        return false;
    if (strpbrk(text, "xX")) /* strtod would read hexadecimal */
        return false;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char *end;
    double value = plain ? strtod_l(text, &end, plain) : strtod(text, &end);
    if (plain)
        freelocale(plain);
    if (*end != '\0' || isnan(value) || (isinf(value) && !infinite))
        return false;
    *out = value;
    return true;
}

int tri_option_word_find(const tri_option *row, const char *word)
{
    for (int i = 0; row->words && row->words[i]; i++)
        if (strcmp(row->words[i], word) == 0)
            return i;
    return -1;
}

static bool is_within(const tri_option *row, double value)
{
    return !has_bounds(row) || (value >= row->low && value <= row->high);
}

/* A value of any type, before it is stored. */
typedef struct option_value {
    bool truth;
    int word;
    int64_t integer;
    double real;
} option_value;

static bool parse_value(const tri_option *row, const char *text, option_value *value)
{
    switch (row->type) {
    case TRI_OPTION_BOOL:
        return parse_bool(text, &value->truth);
    case TRI_OPTION_INT:
        return parse_int(text, &value->integer) && is_within(row, (double)value->integer);
    case TRI_OPTION_REAL:
        return parse_real(text, &value->real) && is_within(row, value->real);
    case TRI_OPTION_ENUM:
        return (value->word = tri_option_word_find(row, text)) >= 0;
    case TRI_OPTION_COUNT:
        value->integer = TRI_OPTION_WORD_COUNT(tri_option_word_find(row, text));
        return value->integer < 0 || (parse_int(text, &value->integer) && is_within(row, (double)value->integer));
    case TRI_OPTION_NAME:
        return strlen(text) < sizeof(tri_option_name);
    case TRI_OPTION_TEXT:
    case TRI_OPTION_PATH:
        return strlen(text) < sizeof(tri_option_path);
    case TRI_OPTION_LIST:
        return strlen(text) + 2 < sizeof(tri_option_path);
    }
    return false;
}

static void store_value(const tri_option *row, void *config, const char *text, const option_value *value)
{
    char *field = (char *)config + row->offset;
    size_t room = row->type == TRI_OPTION_NAME ? sizeof(tri_option_name) : sizeof(tri_option_path);
    size_t nbytes = strlen(text);
    switch (row->type) {
    case TRI_OPTION_BOOL:
        memcpy(field, &value->truth, sizeof(value->truth));
        break;
    case TRI_OPTION_INT:
    case TRI_OPTION_COUNT:
        memcpy(field, &value->integer, sizeof(value->integer));
        break;
    case TRI_OPTION_ENUM:
        memcpy(field, &value->word, sizeof(value->word));
        break;
    case TRI_OPTION_REAL:
        memcpy(field, &value->real, sizeof(value->real));
        break;
    case TRI_OPTION_NAME:
    case TRI_OPTION_TEXT:
    case TRI_OPTION_PATH: /* zeros to the end: equal configurations have equal bytes */
        memmove(field, text, nbytes);
        memset(field + nbytes, 0, room - nbytes);
        break;
    case TRI_OPTION_LIST: /* one text is a list of it */
        memset(field, 0, room);
        snprintf(field, room, text[0] == '[' ? "%s" : "[%s]", text);
        break;
    }
}

/* --- messages --- */

static tri_status fail_value(const tri_option_table *table, const tri_option *row, const char *text)
{
    tri_string wanted = {0};
    size_t count = 0;
    while (row->words && row->words[count])
        count++;
    const char *near = tri_options_nearest(text, row->words, count);
    tri_status status = append_wanted(row, &wanted);
    if (status == TRI_OK)
        status = tri_fail(TRI_ECONFIG, "%s.%s: want %s, got \"%.200s\"%s%s%s", table->section, row->field,
                          tri_string_text(&wanted), text, near ? " (did you mean \"" : "", near ? near : "",
                          near ? "\"?)" : "");
    tri_string_fini(&wanted);
    return status;
}

static tri_status fail_field(const tri_option_table *table, const char *field)
{
    const char *near = NULL;
    const char **names = tri_alloc_zero(table->count, sizeof(*names));
    if (!names)
        return TRI_ENOMEM;
    for (size_t i = 0; i < table->count; i++)
        names[i] = table->rows[i].field;
    near = tri_options_nearest(field, names, table->count);
    tri_free((void *)names);
    return tri_fail(TRI_ECONFIG, "%s.%.200s: want an option of section %s, got an unknown name%s%s%s%s%s",
                    table->section, field, table->section, near ? " (did you mean \"" : "", near ? table->section : "",
                    near ? "." : "", near ? near : "", near ? "\"?)" : "");
}

/* --- calls --- */

void tri_options_defaults(const tri_option_table *table, void *config)
{
    memset(config, 0, table->nbytes);
    for (size_t i = 0; i < table->count; i++) {
        const tri_option *row = &table->rows[i];
        option_value value = {0};
        if (!parse_value(row, row->fallback, &value)) {
            fail_value(table, row, row->fallback);
            tri_assert_failed(__FILE__, __LINE__, tri_last_error());
        }
        store_value(row, config, row->fallback, &value);
    }
}

const tri_option *tri_options_find(const tri_option_table *table, const char *field)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].field, field) == 0)
            return &table->rows[i];
    return NULL;
}

tri_status tri_options_set(const tri_option_table *table, void *config, const char *field, const char *value)
{
    const tri_option *row = tri_options_find(table, field);
    if (!row)
        return fail_field(table, field);
    option_value parsed = {0};
    if (!value || !parse_value(row, value, &parsed))
        return fail_value(table, row, value ? value : "");
    if (row->type == TRI_OPTION_PATH || (row->type == TRI_OPTION_TEXT && row->high > 0))
        TRI_TRY_IN(row->high > 0 ? tri_place_check(value) : tri_path_check(value), "%s.%s", table->section, field);
    store_value(row, config, value, &parsed);
    return TRI_OK;
}

tri_status tri_options_print(const tri_option *row, const void *config, tri_string *out)
{
    const char *field = (const char *)config + row->offset;
    option_value value = {0};
    switch (row->type) {
    case TRI_OPTION_BOOL:
        memcpy(&value.truth, field, sizeof(value.truth));
        return tri_string_append(out, value.truth ? "true" : "false");
    case TRI_OPTION_INT:
    case TRI_OPTION_COUNT:
        memcpy(&value.integer, field, sizeof(value.integer));
        return value.integer < 0 && row->words
                   ? tri_string_append(out, row->words[TRI_OPTION_WORD_COUNT(value.integer)])
                   : tri_string_appendf(out, "%lld", (long long)value.integer);
    case TRI_OPTION_ENUM:
        memcpy(&value.word, field, sizeof(value.word));
        return tri_string_append(out, row->words[value.word]);
    case TRI_OPTION_REAL:
        memcpy(&value.real, field, sizeof(value.real));
        return tri_string_append_real(out, value.real);
    case TRI_OPTION_NAME:
    case TRI_OPTION_TEXT:
    case TRI_OPTION_PATH:
    case TRI_OPTION_LIST:
        return tri_string_append(out, field);
    }
    return tri_fail(TRI_EINVAL, "option %s: want a known type, got %d", row->field, (int)row->type);
}

/* --- help --- */

#define HELP_COLUMNS ((size_t)100)

/* Appends text from column `indent` on, broken at blanks (and after the bars of choices) so that lines end before
 * HELP_COLUMNS; a piece longer than a line stays whole. */
static tri_status append_wrapped(tri_string *out, const char *text, size_t indent)
{
    size_t column = indent;
    while (*text) {
        size_t piece = strcspn(text, " |");
        bool bar = text[piece] == '|';
        piece += bar;
        if (column > indent && column + piece > HELP_COLUMNS) {
            TRI_TRY(tri_string_appendf(out, "\n%*s", (int)indent, ""));
            column = indent;
        }
        TRI_TRY(tri_string_append_bytes(out, text, piece));
        column += piece;
        text += piece;
        if (*text == ' ' && !bar) {
            text++;
            if (column + 1 + strcspn(text, " |") <= HELP_COLUMNS) { /* else the line breaks here anyway */
                TRI_TRY(tri_string_append(out, " "));
                column++;
            } else if (column > indent && *text) {
                TRI_TRY(tri_string_appendf(out, "\n%*s", (int)indent, ""));
                column = indent;
            }
        }
    }
    return tri_string_append(out, "\n");
}

/* Help, what is allowed, and in which settings the option applies. */
static tri_status append_explanation(const tri_option *row, tri_string *text)
{
    tri_string allowed = {0};
    tri_status status = option_words_print(row, "|", &allowed);
    if (status == TRI_OK && allowed.nbytes && has_bounds(row))
        status = tri_string_append(&allowed, "|");
    if (status == TRI_OK)
        status = tri_option_bounds_print(row, &allowed);
    if (status == TRI_OK)
        status = tri_string_append(text, row->help);
    if (status == TRI_OK && allowed.nbytes)
        status = tri_string_appendf(text, " (%s)", tri_string_text(&allowed));
    if (status == TRI_OK && row->applies)
        status = tri_string_appendf(text, " [%s]", row->applies);
    tri_string_fini(&allowed);
    return status;
}

static tri_status append_row_help(const tri_option_table *table, const tri_option *row, const size_t widths[2],
                                  tri_string *out)
{
    const char *fallback = row->fallback[0] ? row->fallback : "-";
    TRI_TRY(tri_string_appendf(out, "  %s.%-*s  %-*s  ", table->section, (int)widths[0], row->field, (int)widths[1],
                               fallback));
    size_t indent = 2 + strlen(table->section) + 1 + widths[0] + 2 + widths[1] + 2;
    if (strlen(fallback) > widths[1])
        TRI_TRY(tri_string_appendf(out, "\n%*s", (int)indent, ""));
    tri_string text = {0};
    tri_status status = append_explanation(row, &text);
    if (status == TRI_OK)
        status = append_wrapped(out, tri_string_text(&text), indent);
    tri_string_fini(&text);
    return status;
}

tri_status tri_options_help(const tri_option_table *table, tri_string *out)
{
    size_t widths[2] = {0, 0}; /* field, default */
    for (size_t i = 0; i < table->count; i++) {
        size_t field = strlen(table->rows[i].field), fallback = strlen(table->rows[i].fallback);
        widths[0] = field > widths[0] ? field : widths[0];
        widths[1] = fallback > widths[1] && fallback <= 20 ? fallback : widths[1];
    }
    if (widths[1] == 0)
        widths[1] = 1;
    TRI_TRY(tri_string_appendf(out, "%s: %s\n", table->section, table->help));
    for (size_t i = 0; i < table->count; i++)
        TRI_TRY(append_row_help(table, &table->rows[i], widths, out));
    return TRI_OK;
}

/* --- the nearest word --- */

#define WORD_NBYTES 128

/* Damerau-Levenshtein distance (optimal string alignment: neighbours swapped count 1). Both at most WORD_NBYTES long.
 */
static size_t distance_of(const char *a, const char *b)
{
    size_t rows[3][WORD_NBYTES + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    size_t width = strlen(b), height = strlen(a);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; i <= height; i++) {
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return row[width];
}

const char *tri_options_nearest(const char *word, const char *const *candidates, size_t count)
{
    size_t nbytes = strlen(word);
    if (nbytes == 0 || nbytes > WORD_NBYTES)
        return NULL;
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        if (strlen(candidates[i]) > WORD_NBYTES)
            continue;
        size_t distance = distance_of(word, candidates[i]);
        if (distance < least) {
            least = distance;
            best = candidates[i];
        }
    }
    const size_t most = nbytes <= 3 ? 1 : nbytes <= 8 ? 2 : 3;
    return best && least <= most ? best : NULL;
}
