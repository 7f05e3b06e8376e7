/* SPDX-License-Identifier: Apache-2.0
 *
 * history.h: columns of numbers over a rising x (a step, a time), which tell of any stretch as few points: the least,
 * the mean and the greatest of each piece of it, whatever the number of rows.
 *
 * Above the rows are summaries of 8, 64, 512, ... of them, made as rows come: a million rows are asked for their whole
 * length by looking at some thousand numbers.
 */
#ifndef TRI_MONITOR_HISTORY_H
#define TRI_MONITOR_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct tri_history_point {
    float low, mean, high; /* NaN: nothing is known there. mean of means, where some rows have no value */
} tri_history_point;

typedef struct tri_history tri_history;
tri_status tri_history_create(int columns, tri_history **out);
void tri_history_destroy(tri_history *history);
/* values[columns]; NaN: none. Rows from the first one with an x that is not less are forgotten before: it continues
 * from there. */
tri_status tri_history_add(tri_history *history, double x, const double *values);
size_t tri_history_rows(const tri_history *history);
double tri_history_x(const tri_history *history, size_t row);
/* The first row whose x is not less; all rows: none. */
size_t tri_history_find(const tri_history *history, double x);
/* Of the rows from `from` up to and without `to`. */
tri_history_point tri_history_fold(const tri_history *history, int column, size_t from, size_t to);
/* How many rows, a power of two, a piece has, so that there are at most `most` pieces: they begin at its multiples. */
size_t tri_history_piece(size_t rows, size_t most);

#endif
