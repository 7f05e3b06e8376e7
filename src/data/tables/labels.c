/* SPDX-License-Identifier: Apache-2.0
 *
 * labels.c: are the values of a target classes or real numbers? Texts are classes; whole numbers are where there are
 * few of them; other numbers are not.
 */
#include "data/tables/labels.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/tables/table.h"

#define MAX_TEXTS ((size_t)100000) /* more distinct values than this are no classes */
#define FEW_CLASSES                                                                                                    \
    ((size_t)20) /* distinct whole numbers that count as classes in the smallest table; else a tenth of the rows */

void tri_labels_init(tri_labels *labels)
{
    *labels = (tri_labels){.values = {.each = sizeof(tri_label)}, .rows = {.each = sizeof(int32_t)}};
}

void tri_labels_fini(tri_labels *labels)
{
    tri_map_fini(&labels->found);
    tri_vector_fini(&labels->values);
    tri_vector_fini(&labels->rows);
    tri_free(labels->classes);
    tri_arena_fini(&labels->arena);
}

static tri_label *value_at(const tri_labels *labels, size_t i)
{
    return tri_vector_at(&labels->values, i);
}

/* How many bytes of a field are its label: "3.0", as programs write whole numbers in a column of floats, is "3". */
static size_t label_nbytes(const char *field)
{
    const char *const point = strchr(field, '.');
    const size_t digits = point != NULL ? (size_t)(point - field) : 0, signs = strspn(field, "+-");
    if (digits > signs && signs < 2 && signs + strspn(field + signs, "0123456789") == digits && point[1] != 0 &&
        point[1 + strspn(point + 1, "0")] == 0)
        return digits;
    return strlen(field);
}

bool tri_label_integer(const char *field, int64_t *out)
{
    char text[24];
    const size_t nbytes = label_nbytes(field);
    if (nbytes >= sizeof(text))
        return false;
    memcpy(text, field, nbytes);
    text[nbytes] = 0;
    return tri_table_integer_read(text, out);
}

/* The label of a field; tri_free(). NULL: no memory. */
static char *label_of(const char *field)
{
    return tri_strndup(field, label_nbytes(field));
}

bool tri_labels_find(const tri_labels *labels, const char *field, int64_t *place)
{
    char *const text = label_of(field);
    const bool found = text != NULL && tri_map_find(&labels->found, text, place);
    tri_free(text);
    return found;
}

static void kind_count(tri_labels *labels, const char *text, char decimal, bool whole, int64_t integer, int64_t line)
{
    double real;
    const bool first = labels->integers == 0, number = whole || tri_table_number_read(text, decimal, &real);
    labels->numbers += number;
    if (whole) {
        labels->least = first || integer < labels->least ? integer : labels->least;
        labels->greatest = first || integer > labels->greatest ? integer : labels->greatest;
        labels->integers++;
    } else if (labels->real_line == 0) {
        labels->real_line = line;
    }
    if (!number && labels->text_line == 0) {
        labels->text_line = line;
        strncpy(labels->text, text, sizeof(labels->text) - 1);
    }
}

tri_status tri_labels_add(tri_labels *labels, const char *field, char decimal, int64_t line)
{
    char *text = label_of(field);
    int64_t place = -1, integer = 0;
    if (text == NULL)
        return TRI_ENOMEM;
    const bool whole = tri_table_integer_read(text, &integer);
    kind_count(labels, text, decimal, whole, integer, line);
    tri_status status = TRI_OK;
    if (!tri_map_find(&labels->found, text, &place) && labels->values.count <= MAX_TEXTS) {
        const tri_label value = {.text = tri_arena_strdup(&labels->arena, text), .line = line};
        place = (int64_t)labels->values.count;
        status = value.text != NULL && tri_vector_push(&labels->values, &value)
                     ? tri_map_set(&labels->found, text, place)
                     : TRI_ENOMEM;
    }
    const int32_t row = (int32_t)place;
    if (status == TRI_OK && !tri_vector_push(&labels->rows, &row))
        status = TRI_ENOMEM;
    tri_free(text);
    return status;
}

static int compare_texts(const void *a, const void *b)
{
    const char *const left = *(char *const *)a, *const right = *(char *const *)b;
    int64_t l, r;
    if (tri_table_integer_read(left, &l) && tri_table_integer_read(right, &r) && l != r)
        return l < r ? -1 : 1;
    return strcmp(left, right);
}

static int compare_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of all values, in the order of their bytes, whole numbers in that of the numbers. */
static tri_status names_make(tri_labels *labels, bool whole, tri_class_names *out)
{
    const char **texts = tri_arena_alloc(&labels->arena, labels->values.count, sizeof(*texts));
    if (texts == NULL)
        return TRI_ENOMEM;
    for (size_t i = 0; i < labels->values.count; i++)
        texts[i] = value_at(labels, i)->text;
    qsort(texts, labels->values.count, sizeof(*texts), whole ? compare_texts : compare_bytes);
    *out = (tri_class_names){texts, (int64_t)labels->values.count};
    return TRI_OK;
}

static bool are_few(const tri_labels *labels)
{
    return labels->values.count <= FEW_CLASSES || labels->values.count * 10 <= labels->rows.count;
}

static tri_status texts_check(const tri_labels *labels, const char *origin, int64_t wanted)
{
    const size_t count = labels->values.count;
    if (labels->numbers * 2 > (int64_t)labels->rows.count && !are_few(labels))
        return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": the target: want a number as in most rows, got '%s'", origin,
                        labels->text_line, labels->text);
    if (count > MAX_TEXTS)
        return tri_fail(TRI_EFORMAT, "%s: more than %zu distinct texts as targets", origin, MAX_TEXTS);
    if (wanted > 0 && count > (size_t)wanted)
        return tri_fail(TRI_EFORMAT, "%s: want %" PRId64 " classes, got %zu distinct texts", origin, wanted, count);
    for (size_t i = 0; i < count; i++)
        if (!tri_table_is_utf8(value_at(labels, i)->text))
            return tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want text in UTF-8, got other bytes (data.encoding=latin-1)",
                            origin, value_at(labels, i)->line);
    return TRI_OK;
}

/* Whole numbers: classes 0, 1, ..., named ones, or real numbers. */
static tri_status integers_settle(tri_labels *labels, int64_t wanted, int64_t *classes)
{
    if (wanted == 0 && !are_few(labels))
        return TRI_OK;
    const bool counted = labels->least == 0 && labels->greatest < 2 * (int64_t)labels->values.count;
    *classes = wanted > 0 ? wanted : counted ? labels->greatest + 1 : (int64_t)labels->values.count;
    return wanted > 0 || counted ? TRI_OK : names_make(labels, true, &labels->names);
}

tri_status tri_labels_settle(tri_labels *labels, const char *origin, int64_t wanted, int64_t *classes)
{
    const int64_t rows = (int64_t)labels->rows.count;
    *classes = 0;
    if (labels->integers == rows)
        TRI_TRY(integers_settle(labels, wanted, classes));
    else if (labels->numbers < rows) {
        TRI_TRY(texts_check(labels, origin, wanted));
        TRI_TRY(names_make(labels, false, &labels->names));
        *classes = wanted > 0 ? wanted : labels->names.count;
    } else if (wanted > 0) {
        return tri_fail(TRI_ECONFIG,
                        "%s:%" PRId64 ": the target is a number but no class; data.classes=-1 is for real targets",
                        origin, labels->real_line);
    }
    return *classes > 0 ? tri_labels_name(labels, origin, &labels->names) : TRI_OK;
}

tri_status tri_labels_name(tri_labels *labels, const char *origin, const tri_class_names *names)
{
    tri_map numbers = {0};
    tri_status status = TRI_OK;
    int32_t *classes = tri_alloc_zero(labels->values.count + 1, sizeof(*classes));
    if (classes == NULL)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < names->count && status == TRI_OK; i++)
        status = tri_map_set(&numbers, names->texts[i], i);
    for (size_t i = 0; i < labels->values.count && status == TRI_OK; i++) {
        const tri_label *const value = value_at(labels, i);
        int64_t number = -1;
        if (names->texts == NULL) {
            (void)tri_table_integer_read(value->text, &number);
            number = number >= 0 && number <= INT32_MAX ? number : -1;
        } else if (!tri_map_find(&numbers, value->text, &number)) {
            status = tri_fail(TRI_EFORMAT,
                              "%s:%" PRId64 ": the target '%.40s' is none of the %" PRId64
                              " classes that the model was trained on",
                              origin, value->line, value->text, names->count);
        }
        classes[i] = (int32_t)number;
    }
    if (status == TRI_OK && names->texts != labels->names.texts)
        status = tri_class_names_copy(&labels->arena, names, &labels->names);
    tri_map_fini(&numbers);
    tri_free(status == TRI_OK ? labels->classes : classes);
    if (status == TRI_OK)
        labels->classes = classes;
    return status;
}
