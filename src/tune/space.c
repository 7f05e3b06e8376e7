/* SPDX-License-Identifier: Apache-2.0
 *
 * space.c: reading of spaces, values and their units, grids.
 */
#include "tune/space.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRID_MOST 1000000

static tri_status wrong(const char *origin, const tri_yaml *node, const char *name, const char *wanted)
{
    return tri_fail(TRI_ECONFIG, "%s:%d: space of %s: want %s", origin, node->line, name, wanted);
}

/* A YAML node as one would write it after section.key=. */
static const char *flow_text(tri_arena *arena, const tri_yaml *node)
{
    if (node->kind == TRI_YAML_SCALAR)
        return node->text;
    tri_string text = {0};
    const char *kept = NULL;
    if (tri_yaml_print_flow(node, &text) == TRI_OK)
        kept = tri_arena_strdup(arena, tri_string_text(&text));
    tri_string_fini(&text);
    return kept;
}

/* A list, or one value, as texts. */
static tri_status texts_read(tri_arena *arena, const tri_yaml *node, const char ***texts, int *count)
{
    const bool many = node->kind == TRI_YAML_LIST;
    *count = 0;
    *texts = tri_arena_alloc(arena, (size_t)(many ? tri_yaml_count(node) : 1) + 1, sizeof(char *));
    if (!*texts)
        return TRI_ENOMEM;
    for (const tri_yaml *at = many ? node->child : node; at; at = many ? at->next : NULL)
        if (!((*texts)[(*count)++] = flow_text(arena, at)))
            return TRI_ENOMEM;
    return TRI_OK;
}

static tri_status bounds_read(const tri_yaml *list, const char *origin, tri_space_row *row)
{
    if (list->kind != TRI_YAML_LIST || tri_yaml_count(list) != 2)
        return wrong(origin, list, row->name, "two bounds, [low, high]");
    TRI_TRY_IN(tri_yaml_real(list->child, row->name, -1e300, 1e300, &row->low), "%s", origin);
    TRI_TRY_IN(tri_yaml_real(list->child->next, row->name, -1e300, 1e300, &row->high), "%s", origin);
    if (!(row->low < row->high))
        return wrong(origin, list, row->name, "low < high");
    if (row->log && !(row->low > 0))
        return wrong(origin, list, row->name, "bounds above 0 for a logarithm");
    if (row->kind == TRI_SPACE_INT &&
        (row->low != floor(row->low) || row->high != floor(row->high) || fabs(row->low) > 1e15 || row->high > 1e15))
        return wrong(origin, list, row->name, "whole numbers");
    return TRI_OK;
}

static tri_status when_read(tri_arena *arena, const tri_space *space, const tri_yaml *node, const char *origin,
                            tri_space_row *row)
{
    if (node->kind != TRI_YAML_MAP || tri_yaml_count(node) != 1)
        return wrong(origin, node, row->name, "when: {an earlier row: value or [values]}");
    for (int i = 0; i < space->count; i++)
        if (strcmp(space->rows[i].name, node->child->key) == 0)
            row->when = i;
    if (row->when < 0)
        return wrong(origin, node, row->name, "when: a row above it");
    TRI_TRY(texts_read(arena, node->child, &row->when_values, &row->when_count));
    const tri_space_row *above = &space->rows[row->when];
    for (int i = 0; i < row->when_count; i++)
        if (isnan(tri_space_unit(above, row->when_values[i])))
            return tri_fail(TRI_ECONFIG, "%s:%d: space of %s: when: %s is never '%s'", origin, node->line, row->name,
                            above->name, row->when_values[i]);
    return TRI_OK;
}

static tri_status field_read(tri_arena *arena, const tri_space *space, const tri_yaml *field, const char *origin,
                             tri_space_row *row)
{
    int64_t points = 0;
    if (strcmp(field->key, "when") == 0)
        return when_read(arena, space, field, origin, row);
    if (strcmp(field->key, "points") == 0) {
        TRI_TRY_IN(tri_yaml_int(field, row->name, 1, 100000, &points), "%s", origin);
        row->points = (int)points;
        return TRI_OK;
    }
    if (strcmp(field->key, "step") == 0 && row->kind == TRI_SPACE_INT && !row->log)
        return tri_yaml_real(field, row->name, 1, 1e15, &row->step);
    if (strcmp(field->key, "int") == 0 || strcmp(field->key, "uniform") == 0 || strcmp(field->key, "log") == 0 ||
        strcmp(field->key, "log_int") == 0 || strcmp(field->key, "choice") == 0)
        return wrong(origin, field, row->name, "one of uniform, log, int, log_int, choice; it comes first");
    return wrong(origin, field, row->name,
                 "after uniform, log, int, log_int or choice: when, points, and for int step");
}

/* The first field says what kind of row this is. */
static tri_status kind_read(tri_arena *arena, const tri_yaml *first, const char *origin, tri_space_row *row)
{
    static const struct {
        const char *key;
        tri_space_kind kind;
        bool log;
    } kinds[] = {{"uniform", TRI_SPACE_REAL, false},
                 {"log", TRI_SPACE_REAL, true},
                 {"int", TRI_SPACE_INT, false},
                 {"log_int", TRI_SPACE_INT, true},
                 {"choice", TRI_SPACE_CHOICE, false}};
    for (size_t i = 0; i < TRI_COUNT_OF(kinds); i++) {
        if (strcmp(kinds[i].key, first->key) != 0)
            continue;
        row->kind = kinds[i].kind;
        row->log = kinds[i].log;
        if (row->kind != TRI_SPACE_CHOICE)
            return bounds_read(first, origin, row);
        TRI_TRY(texts_read(arena, first, &row->choices, &row->choice_count));
        return row->choice_count > 0 ? TRI_OK : wrong(origin, first, row->name, "at least one choice");
    }
    return wrong(origin, first, row->name, "uniform, log, int, log_int or choice first");
}

tri_status tri_space_read(tri_arena *arena, const tri_yaml *node, const char *origin, tri_space *out)
{
    *out = (tri_space){0};
    if (!node)
        return TRI_OK;
    if (node->kind != TRI_YAML_MAP || tri_yaml_count(node) > TRI_SPACE_MAX)
        return tri_fail(TRI_ECONFIG, "%s:%d: space: want at most %d options, each with its values", origin, node->line,
                        TRI_SPACE_MAX);
    out->rows = tri_arena_alloc(arena, (size_t)tri_yaml_count(node) + 1, sizeof(*out->rows));
    if (!out->rows)
        return TRI_ENOMEM;
    for (const tri_yaml *at = node->child; at; at = at->next) {
        tri_space_row *row = &out->rows[out->count];
        *row = (tri_space_row){.name = at->key, .when = -1, .step = 1};
        if (!strchr(at->key, '.'))
            return wrong(origin, at, at->key, "a name of the form section.key");
        if (at->kind != TRI_YAML_MAP || !at->child)
            return wrong(origin, at, at->key, "a map such as {log: [1e-4, 1]}");
        TRI_TRY(kind_read(arena, at->child, origin, row));
        for (const tri_yaml *field = at->child->next; field; field = field->next)
            TRI_TRY(field_read(arena, out, field, origin, row));
        out->count++;
    }
    return TRI_OK;
}

static int64_t int_count(const tri_space_row *row)
{
    return (int64_t)floor((row->high - row->low) / row->step) + 1;
}

void tri_space_value(const tri_space_row *row, double unit, char text[1024])
{
    if (row->kind == TRI_SPACE_CHOICE) {
        int index = (int)(unit * row->choice_count);
        snprintf(text, 1024, "%s", row->choices[index < row->choice_count ? index : row->choice_count - 1]);
        return;
    }
    if (row->kind == TRI_SPACE_INT && !row->log) {
        int64_t count = int_count(row), index = (int64_t)(unit * (double)count);
        double value = row->low + row->step * (double)(index < count ? index : count - 1);
        snprintf(text, 1024, "%.0f", value);
        return;
    }
    double value = row->log ? exp(log(row->low) + unit * (log(row->high) - log(row->low)))
                            : row->low + unit * (row->high - row->low);
    if (row->kind == TRI_SPACE_INT)
        snprintf(text, 1024, "%.0f", fmin(fmax(nearbyint(value), row->low), row->high));
    else
        snprintf(text, 1024, "%.6g", value);
}

double tri_space_unit(const tri_space_row *row, const char *text)
{
    if (row->kind == TRI_SPACE_CHOICE) {
        for (int i = 0; i < row->choice_count; i++)
            if (strcmp(row->choices[i], text) == 0)
                return (i + 0.5) / row->choice_count;
        return (double)NAN;
    }
    char *end;
    double value = strtod(text, &end), slack = 1e-5 * fmax(fabs(row->low), fabs(row->high));
    if (end == text || *end || !(value >= row->low - slack && value <= row->high + slack))
        return (double)NAN;
    if (row->kind == TRI_SPACE_INT && !row->log)
        return (floor((value - row->low) / row->step) + 0.5) / (double)int_count(row);
    double unit = row->log ? (log(value) - log(row->low)) / (log(row->high) - log(row->low))
                           : (value - row->low) / (row->high - row->low);
    return fmin(fmax(unit, 0), 1);
}

bool tri_space_is_active(const tri_space *space, int row, const double *units)
{
    const tri_space_row *at = &space->rows[row];
    if (at->when < 0)
        return true;
    if (isnan(units[at->when]))
        return false;
    char text[1024];
    tri_space_value(&space->rows[at->when], units[at->when], text);
    for (int i = 0; i < at->when_count; i++)
        if (strcmp(at->when_values[i], text) == 0)
            return true;
    return false;
}

/* Values of a row on a grid; 0: the number of points was not given. */
static int grid_count(const tri_space_row *row)
{
    if (row->kind == TRI_SPACE_CHOICE)
        return row->choice_count;
    if (row->points > 0)
        return row->points;
    return row->kind == TRI_SPACE_INT && !row->log && int_count(row) <= GRID_MOST ? (int)int_count(row) : 0;
}

static double grid_unit(const tri_space_row *row, int index)
{
    int count = grid_count(row);
    if (row->kind == TRI_SPACE_CHOICE || (row->kind == TRI_SPACE_INT && !row->log && row->points == 0))
        return (index + 0.5) / count;
    return count > 1 ? (double)index / (count - 1) : 0.5; /* both bounds are on the grid */
}

/* Points of rows from `row` on, given those before; with n >= 0 the n-th of them is left in units. */
static int64_t grid_walk(const tri_space *space, int row, int64_t n, double *units)
{
    if (row == space->count)
        return 1;
    if (!tri_space_is_active(space, row, units)) {
        units[row] = (double)NAN;
        return grid_walk(space, row + 1, n, units);
    }
    int64_t count = 0;
    for (int i = 0; i < grid_count(&space->rows[row]) && count <= GRID_MOST; i++) {
        units[row] = grid_unit(&space->rows[row], i);
        int64_t below = grid_walk(space, row + 1, n < 0 ? n : n - count, units);
        if (n >= 0 && n < count + below)
            return count + below;
        count += below;
    }
    return count;
}

tri_status tri_space_grid(const tri_space *space, int64_t *count)
{
    double units[TRI_SPACE_MAX];
    for (int i = 0; i < space->count; i++)
        if (grid_count(&space->rows[i]) == 0)
            return tri_fail(TRI_ECONFIG, "space of %s: a grid needs points: N beside its bounds", space->rows[i].name);
    *count = grid_walk(space, 0, -1, units);
    if (*count > GRID_MOST)
        return tri_fail(TRI_ECONFIG, "space: the grid has more than %d points", GRID_MOST);
    return TRI_OK;
}

bool tri_space_grid_point(const tri_space *space, int64_t n, double *units)
{
    return n >= 0 && grid_walk(space, 0, n, units) > n;
}
