/* SPDX-License-Identifier: Apache-2.0
 *
 * space.h: what a sweep may change: options by name, and the values that each may take.
 *
 * Every value of a row has a place in [0, 1), its unit, in which search works: the logarithm of a log row, the middle
 * of its share for a choice. A row may be there only when an earlier one has certain values (`when`).
 */
#ifndef TRI_TUNE_SPACE_H
#define TRI_TUNE_SPACE_H

#include "base/yaml.h"

#define TRI_SPACE_MAX 64

typedef enum tri_space_kind { TRI_SPACE_REAL, TRI_SPACE_INT, TRI_SPACE_CHOICE } tri_space_kind;

typedef struct tri_space_row {
    const char *name; /* "optim.lr" */
    tri_space_kind kind;
    bool log;
    double low, high;     /* REAL, INT; inclusive */
    double step;          /* INT, not log */
    int points;           /* a grid's; 0: not given */
    const char **choices; /* YAML flow, as after section.key= */
    int choice_count;
    int when;                 /* row that this one depends on, -1: always there */
    const char **when_values; /* it is there when that one has one of these */
    int when_count;
} tri_space_row;

typedef struct tri_space {
    tri_space_row *rows; /* in the arena it was read with */
    int count;
} tri_space;

/* Reads `space:`. */
tri_status tri_space_read(tri_arena *arena, const tri_yaml *node, const char *origin, tri_space *out);
/* The value at a unit, as text (at most 1023 bytes). */
void tri_space_value(const tri_space_row *row, double unit, char text[1024]);
/* The unit of a value: NaN: the row cannot have it. */
double tri_space_unit(const tri_space_row *row, const char *text);
/* Whether a row is there, given the units of those before it (NaN: not there). */
bool tri_space_is_active(const tri_space *space, int row, const double *units);
/* Points of the whole grid, each combination once; -1: more than can be counted; fails where a row has no `points`. */
tri_status tri_space_grid(const tri_space *space, int64_t *count);
/* The n-th of them; false: there is none. */
bool tri_space_grid_point(const tri_space *space, int64_t n, double *units);

#endif
