/* SPDX-License-Identifier: Apache-2.0
 *
 * kinds.c: one field as numbers, for each kind of column.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/tables/table.h"

#define NUMBER_LIMIT 64 /* bytes of one with a decimal comma */

/* What pandas and people write where nothing is known. */
static const char *const missing_marks[] = {"NA", "N/A", "#N/A", "NaN", "-NaN", "null", "None", "<NA>", "?"};

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

char *tri_table_trim(char *field)
{
    char *first = field + strspn(field, " \t");
    size_t nbytes = strlen(first);
    while (nbytes > 0 && (first[nbytes - 1] == ' ' || first[nbytes - 1] == '\t'))
        nbytes--;
    first[nbytes] = 0;
    return first;
}

/* A finite number in the usual notation; keeps out "nan", "inf" and hexadecimal. */
/* A decimal number whose digits make a whole number below 2^53 and whose power of ten is exact: then one operation
 * rounds as strtod() does (Clinger, PLDI 1990). *end NULL: strtod() has to read it. */
static double short_number_read(const char *text, const char **end)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const bool minus = *text == '-';
    int64_t value = 0;
    int digits = 0, behind = 0;
    text += minus || *text == '+';
    for (; *text >= '0' && *text <= '9' && digits <= 15; digits++)
        value = 10 * value + (*text++ - '0');
    if (*text == '.')
        for (text++; *text >= '0' && *text <= '9' && digits <= 15; digits++, behind++)
            value = 10 * value + (*text++ - '0');
    *end = digits == 0 || digits > 15 || *text == 'e' || *text == 'E' || *text == '.' ? NULL : text;
    const double exact = (double)value / powers[behind];
    return minus ? -exact : exact;
}

static bool point_number_read(const char *text, double *out)
{
    const char *behind;
    char *end;
    *out = short_number_read(text, &behind);
    if (behind != NULL)
        return *skip_blanks(behind) == 0 && isfinite((float)*out);
    if (strspn(text, "+-.0123456789eE") == 0)
        return false;
    *out = strtod(text, &end);
    const size_t used = (size_t)(end - text);
    return used > 0 && strspn(text, "+-.0123456789eE") >= used && *skip_blanks(end) == 0 && isfinite((float)*out);
}

bool tri_table_number_read(const char *field, char decimal, double *out)
{
    char copy[NUMBER_LIMIT];
    const char *text = skip_blanks(field), *comma = decimal == ',' ? strchr(text, ',') : NULL;
    if (comma == NULL)
        return point_number_read(text, out);
    if (strlen(text) >= sizeof(copy) || strchr(text, '.') != NULL)
        return false;
    strcpy(copy, text);
    copy[comma - text] = '.';
    return point_number_read(copy, out);
}

bool tri_table_integer_read(const char *field, int64_t *out)
{
    const char *text = skip_blanks(field);
    const bool minus = *text == '-';
    int64_t value = 0;
    text += minus || *text == '+';
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18)
        return false;
    for (size_t i = 0; i < digits; i++)
        value = 10 * value + (*text++ - '0');
    *out = minus ? -value : value;
    return *skip_blanks(text) == 0;
}

/* --- dates --- */

typedef struct date_parts {
    int64_t year, month, day, hour, minute, second;
} date_parts;

/* Reads at most `most` digits at *text. */
static bool digits_read(const char **text, int most, int64_t *out)
{
    int count = 0;
    for (*out = 0; count < most && (*text)[count] >= '0' && (*text)[count] <= '9'; count++)
        *out = 10 * *out + ((*text)[count] - '0');
    *text += count;
    return count > 0;
}

/* %Y %m %d %H %M %S of strptime, everything else as it is. */
static bool format_read(const char **text, const char *format, date_parts *parts)
{
    for (; *format != 0; format++) {
        if (*format != '%') {
            if (*(*text)++ != *format)
                return false;
            continue;
        }
        int64_t *const part = *++format == 'Y' ? &parts->year
                              : *format == 'm' ? &parts->month
                              : *format == 'd' ? &parts->day
                              : *format == 'H' ? &parts->hour
                              : *format == 'M' ? &parts->minute
                              : *format == 'S' ? &parts->second
                                               : NULL;
        if (part == NULL || !digits_read(text, *format == 'Y' ? 4 : 2, part))
            return false;
    }
    return true;
}

/* Days since 1970-01-01 in the Gregorian calendar (H. Hinnant, chrono-compatible low-level date algorithms). */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    const int64_t era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
    const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool is_date(const date_parts *p)
{
    if (p->month < 1 || p->month > 12 || p->hour > 24 || p->minute > 59 || p->second > 60)
        return false;
    const int64_t begin = days_of(p->year, p->month, 1);
    const int64_t end = p->month == 12 ? days_of(p->year + 1, 1, 1) : days_of(p->year, p->month + 1, 1);
    return p->day >= 1 && p->day <= end - begin;
}

/* The rest of a known format: " 12:30", "T12:30:59.5", "Z", "+02:00"; adds what it is in days. */
static bool time_read(const char *text, date_parts *parts, double *days)
{
    int64_t hours, minutes = 0;
    if ((*text == ' ' || *text == 'T') && text[1] >= '0' && text[1] <= '9') {
        text++;
        if (!format_read(&text, "%H:%M", parts))
            return false;
        if (*text == ':' && !format_read(&text, ":%S", parts))
            return false;
        if (*text == '.') {
            char *end;
            *days += strtod(text, &end) / 86400;
            text = end;
        }
    }
    if (*text == 'Z')
        text++;
    else if (*text == '+' || *text == '-') {
        const double sign = *text++ == '-' ? 1 : -1;
        if (!digits_read(&text, 2, &hours))
            return false;
        text += *text == ':';
        (void)digits_read(&text, 2, &minutes);
        *days += sign * (double)(60 * hours + minutes) / 1440;
    }
    return *skip_blanks(text) == 0;
}

bool tri_table_date_read(const char *field, const char *format, double *out)
{
    static const char *const known[] = {"%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y"};
    const char *const text = skip_blanks(field);
    const bool stated = format[0] != 0;
    for (size_t i = 0; i < (stated ? 1 : TRI_COUNT_OF(known)); i++) {
        date_parts parts = {.month = 1, .day = 1};
        const char *at = text;
        double days = 0;
        if (!format_read(&at, stated ? format : known[i], &parts) ||
            !(stated ? *skip_blanks(at) == 0 : time_read(at, &parts, &days)) || !is_date(&parts))
            continue;
        if (!stated && parts.year < 1000) /* 31/03/24 may begin with its day */
            continue;
        *out = days + (double)days_of(parts.year, parts.month, parts.day) +
               (double)(3600 * parts.hour + 60 * parts.minute + parts.second) / 86400;
        return true;
    }
    return false;
}

/* --- fields --- */

bool tri_table_is_missing(const tri_vector *missing, const char *field)
{
    const char *const text = skip_blanks(field);
    size_t nbytes = strlen(text);
    while (nbytes > 0 && (text[nbytes - 1] == ' ' || text[nbytes - 1] == '\t'))
        nbytes--;
    if (nbytes == 0)
        return true;
    const bool stated = missing->count > 0;
    for (size_t i = 0; i < (stated ? missing->count : TRI_COUNT_OF(missing_marks)); i++) {
        const char *const mark = stated ? *(const char **)tri_vector_at(missing, i) : missing_marks[i];
        if (strlen(mark) == nbytes && strncasecmp(mark, text, nbytes) == 0)
            return true;
    }
    return false;
}

static bool real_read(const tri_table *table, const char *field, char decimal, double *out)
{
    (void)table;
    return tri_table_number_read(field, decimal, out);
}

static bool date_read(const tri_table *table, const char *field, char decimal, double *out)
{
    (void)decimal;
    return tri_table_date_read(field, table->date_format, out);
}

#define KIND_ROW(id, name, wanted, read) [TRI_COLUMN_##id] = {name, wanted, read},
static const struct {
    const char *name, *wanted;
    bool (*read)(const tri_table *table, const char *field, char decimal, double *out);
} kinds[] = {TRI_COLUMN_KINDS(KIND_ROW)};

const char *tri_column_kind_name(tri_column_kind kind)
{
    return kinds[kind].name;
}

bool tri_column_is_number(tri_column_kind kind)
{
    return kinds[kind].read != NULL;
}

static tri_status fail_missing(const tri_column *column, const tri_table_place *place)
{
    return tri_fail(TRI_EFORMAT,
                    "%s:%" PRId64 ": the value of column '%s' is missing (data.missing=mean or constant fills it)",
                    place->origin, place->line, column->name);
}

tri_status tri_column_encode(const tri_table *table, const tri_column *column, const tri_table_place *place,
                             const char *field, char decimal, float *out)
{
    const bool missing = tri_table_is_missing(&table->missing, field);
    double value = column->fill;
    if (missing && column->target)
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": the value of the target '%s' is missing", place->origin,
                        place->line, column->name);
    if (missing && !column->fills)
        return fail_missing(column, place);
    if (kinds[column->kind].read == NULL) {
        int64_t number = column->width - 1; /* unknown */
        memset(out, 0, (size_t)column->width * sizeof(float));
        if (!missing)
            (void)tri_map_find(&column->numbers, field, &number);
        out[number] = 1;
        return TRI_OK;
    }
    if (!missing && !kinds[column->kind].read(table, field, decimal, &value))
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": column '%s': want %s, got '%.40s'", place->origin, place->line,
                        column->name, kinds[column->kind].wanted, field);
    *out = (float)((value - column->mean) / column->deviation);
    return TRI_OK;
}
