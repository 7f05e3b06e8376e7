/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: the plan of a table: who holds it, its columns by name, and its form in dataset.yaml.
 */
#include "data/tables/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#define NAMES_SHOWN 20

tri_table *tri_table_create(void)
{
    tri_table *table = tri_alloc_zero(1, sizeof(*table));
    if (table != NULL)
        table->missing.each = sizeof(char *);
    return table;
}

void tri_table_hold(tri_table *table)
{
    table->holders++;
}

void tri_table_release(tri_table *table)
{
    if (table == NULL || table->holders-- > 0)
        return;
    for (size_t i = 0; i < table->count; i++) {
        tri_vector_fini(&table->columns[i].texts);
        tri_map_fini(&table->columns[i].numbers);
    }
    tri_vector_fini(&table->missing);
    tri_arena_fini(&table->arena);
    tri_free(table);
}

tri_status tri_column_text_add(tri_table *table, tri_column *column, const char *text)
{
    const char *copy = tri_arena_strdup(&table->arena, text);
    column->texts.each = sizeof(char *);
    if (copy == NULL || !tri_vector_push(&column->texts, &copy))
        return TRI_ENOMEM;
    return tri_map_set(&column->numbers, copy, (int64_t)column->texts.count - 1);
}

void tri_table_lay(tri_table *table)
{
    table->width = table->targets = 0;
    for (size_t i = 0; i < table->count; i++) {
        tri_column *column = &table->columns[i];
        int64_t *const end = column->target ? &table->targets : &table->width;
        column->width = column->kind == TRI_COLUMN_UNUSED ? 0
                        : column->kind == TRI_COLUMN_TEXT ? (int64_t)column->texts.count + 1
                                                          : 1;
        column->first = *end;
        *end += column->width;
    }
}

void tri_table_targets_restore(const tri_table *table, double *targets)
{
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        if (column->target)
            targets[column->first] = targets[column->first] * column->deviation + column->mean;
    }
}

int64_t tri_table_find(const tri_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->columns[i].name, name) == 0)
            return (int64_t)i;
    return -1;
}

static bool list_has(const tri_vector *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(*(const char **)tri_vector_at(list, i), text) == 0)
            return true;
    return false;
}

tri_status tri_table_list_read(tri_arena *arena, const char *option, const char *what, tri_vector *out)
{
    tri_yaml *root = NULL;
    *out = (tri_vector){.each = sizeof(char *)};
    TRI_TRY(tri_yaml_parse(arena, option, strlen(option), what, &root));
    for (const tri_yaml *node = root->child; node != NULL; node = node->next) {
        if (root->kind != TRI_YAML_LIST || node->kind != TRI_YAML_SCALAR)
            return tri_fail(TRI_ECONFIG, "%s: want names of columns, such as [a, b], got %s", what, option);
        if (!tri_vector_push(out, &node->text))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* --- columns by name --- */

static tri_status name_add(tri_string *list, size_t *count, const char *name)
{
    if (++*count > NAMES_SHOWN)
        return *count == NAMES_SHOWN + 1 ? tri_string_append(list, ", ...") : TRI_OK;
    return tri_string_appendf(list, "%s%s", list->nbytes > 0 ? ", " : "", name);
}

static tri_status fail_match(const tri_table *table, const tri_table_place *place, const tri_string *missing,
                             const tri_string *foreign)
{
    tri_string all = {0};
    size_t count = 0;
    tri_status status = TRI_OK;
    for (size_t i = 0; i < table->count && status == TRI_OK; i++)
        if (table->columns[i].kind != TRI_COLUMN_UNUSED)
            status = name_add(&all, &count, table->columns[i].name);
    if (status == TRI_OK)
        status = tri_fail(TRI_EFORMAT, "%s:%" PRId64 ": want the columns that the model was trained on (%s)%s%s%s%s%s",
                          place->origin, place->line, tri_string_text(&all), missing->nbytes > 0 ? "; missing: " : "",
                          tri_string_text(missing), foreign->nbytes > 0 ? "; unknown: " : "", tri_string_text(foreign),
                          foreign->nbytes > 0 ? " (data.ignore passes over columns)" : "");
    tri_string_fini(&all);
    return status;
}

/* The first column from `from` on that has its name and is not found yet; -1: there is none. */
static int64_t next_named(const tri_table *table, const bool *found, int64_t from)
{
    const char *const name = table->columns[from].name;
    for (size_t i = (size_t)from; i < table->count; i++)
        if (!found[i] && strcmp(table->columns[i].name, name) == 0)
            return (int64_t)i;
    return -1;
}

tri_status tri_table_match(const tri_table *table, const tri_table_place *place, const char *const *fields,
                           size_t count, const tri_vector *ignored, bool needs_targets, int64_t *at)
{
    tri_string missing = {0}, foreign = {0};
    size_t missing_count = 0, foreign_count = 0;
    tri_map places = {0};
    tri_status status = TRI_OK;
    bool *const found = tri_alloc_zero(table->count + 1, sizeof(*found));
    if (found == NULL)
        return TRI_ENOMEM;
    for (size_t i = table->count; i-- > 0 && status == TRI_OK;) /* of equal names the first */
        status = tri_map_set(&places, table->columns[i].name, (int64_t)i);
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        at[i] = -1;
        if (tri_map_find(&places, fields[i], &at[i]))
            at[i] = next_named(table, found, at[i]);
        if (at[i] >= 0)
            found[at[i]] = true;
        else if (fields[i][0] != 0 && !list_has(ignored, fields[i]))
            status = name_add(&foreign, &foreign_count, fields[i]);
    }
    for (size_t i = 0; i < table->count && status == TRI_OK; i++) {
        const tri_column *column = &table->columns[i];
        if (column->kind != TRI_COLUMN_UNUSED && (needs_targets || !column->target) && !found[i])
            status = name_add(&missing, &missing_count, column->name);
    }
    if (status == TRI_OK && missing_count + foreign_count > 0)
        status = fail_match(table, place, &missing, &foreign);
    tri_free(found);
    tri_map_fini(&places);
    tri_string_fini(&missing);
    tri_string_fini(&foreign);
    return status;
}

/* --- texts --- */

static tri_status columns_describe(const tri_table *table, bool target, tri_string *out)
{
    size_t shown = 0;
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        if (column->kind == TRI_COLUMN_UNUSED || column->target != target)
            continue;
        if (++shown > NAMES_SHOWN)
            return tri_string_append(out, ", ...");
        TRI_TRY(tri_string_appendf(out, "%s%s (%s", shown > 1 ? ", " : "", column->name,
                                   column->target && column->kind == TRI_COLUMN_INTEGER
                                       ? tri_column_kind_name(TRI_COLUMN_REAL)
                                       : tri_column_kind_name(column->kind)));
        if (column->kind == TRI_COLUMN_TEXT)
            TRI_TRY(tri_string_appendf(out, ", %zu values", column->texts.count));
        if (column->kind == TRI_COLUMN_CLASS)
            TRI_TRY(tri_string_appendf(out, ", %" PRId64, table->classes));
        TRI_TRY(tri_string_append(out, ")"));
    }
    return TRI_OK;
}

tri_status tri_table_describe(const tri_table *table, tri_string *out)
{
    size_t unused = 0;
    TRI_TRY(tri_string_appendf(out, "%zu columns, header: %s, target: ", table->count, table->header ? "yes" : "no"));
    TRI_TRY(columns_describe(table, true, out));
    TRI_TRY(tri_string_append(out, "; reads "));
    TRI_TRY(columns_describe(table, false, out));
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        if (column->kind == TRI_COLUMN_UNUSED && ++unused <= NAMES_SHOWN)
            TRI_TRY(tri_string_appendf(out, "%s%s", unused > 1 ? ", " : "; leaves out ",
                                       column->name[0] != 0 ? column->name : "a column without a name"));
    }
    return TRI_OK;
}

static tri_status text_print(const char *key, const char *text, tri_string *out)
{
    const tri_yaml node = {.kind = TRI_YAML_SCALAR, .text = text};
    TRI_TRY(tri_string_append(out, key));
    if (text[0] == 0)
        return tri_string_append(out, "\"\"");
    return tri_yaml_print_flow(&node, out);
}

static tri_status list_print(const char *key, const tri_vector *texts, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "%s[", key));
    for (size_t i = 0; i < texts->count; i++)
        TRI_TRY(text_print(i > 0 ? ", " : "", *(const char **)tri_vector_at(texts, i), out));
    return tri_string_append(out, "]");
}

static tri_status real_print(const char *key, double value, tri_string *out)
{
    TRI_TRY(tri_string_append(out, key));
    return tri_string_append_real(out, value);
}

static tri_status column_print(const tri_column *column, tri_string *out)
{
    TRI_TRY(text_print("    - {name: ", column->name, out));
    TRI_TRY(tri_string_appendf(out, ", kind: %s", tri_column_kind_name(column->kind)));
    if (column->target)
        TRI_TRY(tri_string_append(out, ", target: true"));
    if (tri_column_is_number(column->kind)) {
        TRI_TRY(real_print(", mean: ", column->mean, out));
        TRI_TRY(real_print(", deviation: ", column->deviation, out));
    }
    if (column->fills)
        TRI_TRY(real_print(", fill: ", column->fill, out));
    if (column->texts.count > 0 || column->kind == TRI_COLUMN_TEXT)
        TRI_TRY(list_print(", texts: ", &column->texts, out));
    return tri_string_append(out, "}\n");
}

tri_status tri_table_print(const tri_table *table, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "table:\n  header: %s\n", table->header ? "true" : "false"));
    if (table->classes > 0)
        TRI_TRY(tri_string_appendf(out, "  classes: %" PRId64 "\n", table->classes));
    if (table->date_format[0] != 0) {
        TRI_TRY(text_print("  date_format: ", table->date_format, out));
        TRI_TRY(tri_string_append(out, "\n"));
    }
    if (table->missing.count > 0) {
        TRI_TRY(list_print("  missing_texts: ", &table->missing, out));
        TRI_TRY(tri_string_append(out, "\n"));
    }
    TRI_TRY(tri_string_append(out, "  columns:\n"));
    for (size_t i = 0; i < table->count; i++)
        TRI_TRY(column_print(&table->columns[i], out));
    return TRI_OK;
}

uint64_t tri_table_hash(const tri_table *table)
{
    tri_string text = {0};
    const uint64_t hash =
        table != NULL && tri_table_print(table, &text) == TRI_OK ? XXH3_64bits(text.text, text.nbytes) : 0;
    tri_string_fini(&text);
    return hash;
}

/* --- reading --- */

static tri_status text_read(tri_table *table, const tri_yaml *node, const char *what, const char **out)
{
    if (node == NULL || node->kind != TRI_YAML_SCALAR)
        return tri_fail(TRI_EFORMAT, "table: %s: want a text", what);
    *out = tri_arena_strdup(&table->arena, node->text);
    return *out != NULL ? TRI_OK : TRI_ENOMEM;
}

static tri_status kind_read(const tri_yaml *node, tri_column_kind *kind)
{
    for (int k = 0; node != NULL && node->text != NULL && k < TRI_COLUMN_KIND_COUNT; k++)
        if (strcmp(node->text, tri_column_kind_name((tri_column_kind)k)) == 0) {
            *kind = (tri_column_kind)k;
            return TRI_OK;
        }
    return tri_fail(TRI_EFORMAT, "table: kind: want a kind of column");
}

static tri_status texts_read(tri_table *table, const tri_yaml *list, tri_column *column)
{
    int64_t number;
    for (const tri_yaml *node = list != NULL ? list->child : NULL; node != NULL; node = node->next) {
        if (node->kind != TRI_YAML_SCALAR || tri_map_find(&column->numbers, node->text, &number))
            return tri_fail(TRI_EFORMAT, "table: texts: want texts, each once");
        TRI_TRY(tri_column_text_add(table, column, node->text));
    }
    return TRI_OK;
}

static tri_status column_read(tri_table *table, const tri_yaml *node, tri_column *column)
{
    const tri_yaml *fill = tri_yaml_find(node, "fill"), *target = tri_yaml_find(node, "target");
    column->deviation = 1;
    TRI_TRY(text_read(table, tri_yaml_find(node, "name"), "name", &column->name));
    TRI_TRY(kind_read(tri_yaml_find(node, "kind"), &column->kind));
    if (target != NULL)
        TRI_TRY(tri_yaml_bool(target, "target", &column->target));
    column->fills = fill != NULL;
    if (fill != NULL)
        TRI_TRY(tri_yaml_real(fill, "fill", -1e300, 1e300, &column->fill));
    if (tri_column_is_number(column->kind)) {
        TRI_TRY(tri_yaml_real(tri_yaml_find(node, "mean"), "mean", -1e300, 1e300, &column->mean));
        TRI_TRY(tri_yaml_real(tri_yaml_find(node, "deviation"), "deviation", 1e-300, 1e300, &column->deviation));
    }
    return texts_read(table, tri_yaml_find(node, "texts"), column);
}

static tri_status table_read(const tri_yaml *node, tri_table *table)
{
    const tri_yaml *columns = tri_yaml_find(node, "columns"), *format = tri_yaml_find(node, "date_format");
    const tri_yaml *classes = tri_yaml_find(node, "classes"), *missing = tri_yaml_find(node, "missing_texts");
    TRI_TRY(tri_yaml_bool(tri_yaml_find(node, "header"), "table: header", &table->header));
    if (classes != NULL)
        TRI_TRY(tri_yaml_int(classes, "table: classes", 1, INT32_MAX, &table->classes));
    if (format != NULL && format->text != NULL && strlen(format->text) < sizeof(table->date_format))
        strcpy(table->date_format, format->text);
    for (const tri_yaml *mark = missing != NULL ? missing->child : NULL; mark != NULL; mark = mark->next) {
        const char *text;
        TRI_TRY(text_read(table, mark, "missing_texts", &text));
        if (!tri_vector_push(&table->missing, &text))
            return TRI_ENOMEM;
    }
    if (columns == NULL || columns->kind != TRI_YAML_LIST || columns->child == NULL)
        return tri_fail(TRI_EFORMAT, "table: columns: want a list of columns");
    table->columns = tri_arena_alloc(&table->arena, (size_t)tri_yaml_count(columns), sizeof(tri_column));
    if (table->columns == NULL)
        return TRI_ENOMEM;
    for (const tri_yaml *column = columns->child; column != NULL; column = column->next)
        TRI_TRY(column_read(table, column, &table->columns[table->count++]));
    tri_table_lay(table);
    size_t classes_found = 0, texts_found = 0;
    for (size_t i = 0; i < table->count; i++) {
        classes_found += table->columns[i].kind == TRI_COLUMN_CLASS;
        texts_found += table->columns[i].kind == TRI_COLUMN_TEXT && table->columns[i].target;
    }
    if (table->width < 1 || table->targets < 1 || texts_found > 0 ||
        (table->classes > 0 ? table->targets != 1 || classes_found != 1 : classes_found > 0))
        return tri_fail(TRI_EFORMAT, "table: columns: want features, and real targets or one class");
    return TRI_OK;
}

tri_status tri_table_parse(const tri_yaml *node, tri_table **out)
{
    tri_table *table = tri_table_create();
    tri_status status = table != NULL ? table_read(node, table) : TRI_ENOMEM;
    if (status != TRI_OK) {
        tri_table_release(table);
        return status;
    }
    *out = table;
    return TRI_OK;
}
