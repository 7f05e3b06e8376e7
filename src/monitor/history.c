/* SPDX-License-Identifier: Apache-2.0
 *
 * history.c: rows, and above them levels of summaries. Only whole summaries are kept: what is behind the last one is
 * folded when somebody asks, and a history is cut by counting.
 */
#include "monitor/history.h"

#include <math.h>

#include "base/memory.h"

#define FAN    8
#define LEVELS 12

struct tri_history {
    int columns;
    size_t rows, capacity;
    double *x;
    float *values; /* [capacity][columns] */
    struct {
        size_t count, capacity;
        tri_history_point *points; /* [capacity][columns] */
    } levels[LEVELS];              /* of FAN^(index + 1) rows each */
};

tri_status tri_history_create(int columns, tri_history **out)
{
    *out = tri_alloc_zero(1, sizeof(**out));
    if (!*out)
        return TRI_ENOMEM;
    (*out)->columns = columns;
    return TRI_OK;
}

void tri_history_destroy(tri_history *history)
{
    if (!history)
        return;
    for (int k = 0; k < LEVELS; k++)
        tri_free(history->levels[k].points);
    tri_free(history->x);
    tri_free(history->values);
    tri_free(history);
}

/* Room for one more; *bytes holds `capacity` items. */
static tri_status grow(void **bytes, size_t count, size_t capacity, size_t item_nbytes)
{
    if (count < capacity)
        return TRI_OK;
    void *larger = tri_realloc(*bytes, (capacity > 0 ? 2 * capacity : 256) * item_nbytes);
    if (!larger)
        return TRI_ENOMEM;
    *bytes = larger;
    return TRI_OK;
}

typedef struct fold {
    double sum, rows;
    float low, high;
} fold;

static void fold_add(fold *into, const tri_history_point *point, double rows)
{
    if (isnan(point->mean))
        return;
    into->low = into->rows == 0 || point->low < into->low ? point->low : into->low;
    into->high = into->rows == 0 || point->high > into->high ? point->high : into->high;
    into->sum += (double)point->mean * rows;
    into->rows += rows;
}

/* The largest whole summary that begins at a row and does not go beyond `to`; -1: only the row itself. */
static int level_at(const tri_history *history, size_t from, size_t to, size_t *nbytes)
{
    int level = -1;
    *nbytes = 1;
    for (size_t each = FAN; level + 1 < LEVELS && from % each == 0 && from + each <= to; each *= FAN) {
        if (from / each >= history->levels[level + 1].count)
            break;
        level++;
        *nbytes = each;
    }
    return level;
}

tri_history_point tri_history_fold(const tri_history *history, int column, size_t from, size_t to)
{
    fold all = {0};
    const size_t columns = (size_t)history->columns, c = (size_t)column;
    to = to < history->rows ? to : history->rows;
    while (from < to) {
        size_t each;
        const int level = level_at(history, from, to, &each);
        if (level >= 0) {
            fold_add(&all, &history->levels[level].points[from / each * columns + c], (double)each);
        } else {
            const float value = history->values[from * columns + c];
            fold_add(&all, &(tri_history_point){value, value, value}, 1);
        }
        from += each;
    }
    if (all.rows == 0)
        return (tri_history_point){NAN, NAN, NAN};
    return (tri_history_point){all.low, (float)(all.sum / all.rows), all.high};
}

static void history_cut(tri_history *history, size_t rows)
{
    size_t each = FAN;
    history->rows = rows < history->rows ? rows : history->rows;
    for (int k = 0; k < LEVELS; k++, each *= FAN)
        if (history->levels[k].count > history->rows / each)
            history->levels[k].count = history->rows / each;
}

tri_status tri_history_add(tri_history *history, double x, const double *values)
{
    if (history->rows > 0 && !(x > history->x[history->rows - 1]))
        history_cut(history, tri_history_find(history, x));
    void *xs = history->x, *rows = history->values;
    TRI_TRY(grow(&xs, history->rows, history->capacity, sizeof(double)));
    history->x = xs;
    TRI_TRY(grow(&rows, history->rows, history->capacity, (size_t)history->columns * sizeof(float)));
    history->values = rows;
    if (history->rows == history->capacity)
        history->capacity = history->capacity > 0 ? 2 * history->capacity : 256;
    history->x[history->rows] = x;
    for (int c = 0; c < history->columns; c++)
        history->values[history->rows * (size_t)history->columns + (size_t)c] = (float)values[c];
    history->rows++;
    /* Summaries that the newest row has made whole. */
    size_t each = FAN;
    for (int k = 0; k < LEVELS && history->rows % each == 0; k++, each *= FAN) {
        void *points = history->levels[k].points;
        const size_t count = history->levels[k].count, capacity = history->levels[k].capacity;
        TRI_TRY(grow(&points, count, capacity, (size_t)history->columns * sizeof(tri_history_point)));
        history->levels[k].points = points;
        history->levels[k].capacity = count < capacity ? capacity : capacity > 0 ? 2 * capacity : 256;
        for (int c = 0; c < history->columns; c++)
            history->levels[k].points[count * (size_t)history->columns + (size_t)c] =
                tri_history_fold(history, c, history->rows - each, history->rows);
        history->levels[k].count++;
    }
    return TRI_OK;
}

size_t tri_history_rows(const tri_history *history)
{
    return history->rows;
}

double tri_history_x(const tri_history *history, size_t row)
{
    return history->x[row];
}

size_t tri_history_find(const tri_history *history, double x)
{
    size_t low = 0, high = history->rows;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (history->x[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t tri_history_piece(size_t rows, size_t most)
{
    size_t piece = 1;
    while (rows / piece > most)
        piece *= 2;
    return piece;
}
