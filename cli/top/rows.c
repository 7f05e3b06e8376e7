/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: the table of `trireme top`: what ranks say of themselves, on whatever host, and the processes of this one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/top/top.h"

#define SILENT_S 20 /* longer than monitor.ranks_every is at first, some times over */

const char *tri_top_does_name(tri_top_does does)
{
    static const char *const names[] = {
#define NAME(name) #name,
        TRI_TOP_DOES_LIST(NAME)
#undef NAME
    };
    return names[does];
}

static bool serves(const tri_top_split *split)
{
    return split->served.seconds > 0;
}

static double newest_generation(const tri_top *top)
{
    double newest = 0;
    for (size_t i = 0; i < top->splits.count; i++)
        newest = fmax(newest, ((const tri_top_split *)tri_vector_at(&top->splits, i))->generation);
    return newest;
}

static tri_top_does does_of(const tri_top *top, const tri_top_row *row, double newest, double now_s)
{
    const tri_top_split *split = row->split;
    const double said_s = split ? (serves(split) ? split->served.time : split->time) : now_s;
    if (row->process && row->process->state == 'T')
        return TRI_TOP_stopped;
    if (split && !serves(split) && split->generation < newest)
        return TRI_TOP_left;
    if (strcmp(tri_top_state(top), "ended") == 0)
        return TRI_TOP_ended;
    if (now_s - said_s >= SILENT_S)
        return TRI_TOP_silent;
    return split ? (serves(split) ? TRI_TOP_serving : TRI_TOP_training)
                 : (row->process->serves ? TRI_TOP_serving : TRI_TOP_training);
}

static void row_fill(tri_top_row *row, const tri_top *top, double newest, double now_s)
{
    const tri_top_split *split = row->split;
    row->step = row->wait = row->memory = (double)NAN;
    if (split && !serves(split)) {
        const double all = tri_top_phases(&split->sum);
        row->step = (double)split->step + 1;
        row->wait = all > 0 ? split->sum.comm / all : (double)NAN;
        row->memory = split->memory;
    } else if (split)
        row->memory = split->served.memory_bytes;
    if (row->process)
        row->memory = (double)row->process->memory;
    row->does = does_of(top, row, newest, now_s);
}

static const tri_top_rank *process_of(const tri_top *top, int rank)
{
    for (size_t i = 0; i < top->ranks.count; i++) {
        const tri_top_rank *process = tri_vector_at(&top->ranks, i);
        if (process->rank == rank)
            return process;
    }
    return NULL;
}

static bool has_said(const tri_top *top, int rank)
{
    for (size_t i = 0; i < top->splits.count; i++) {
        const tri_top_split *split = tri_vector_at(&top->splits, i);
        if (split->rank == rank && (split->steps > 0 || serves(split)))
            return true;
    }
    return false;
}

static tri_status row_add(tri_vector *rows, tri_top_row row, const tri_top *top, const tri_top_view *view,
                          double newest, double now_s)
{
    row_fill(&row, top, newest, now_s);
    if (view->only >= 0 && (int)row.does != view->only)
        return TRI_OK;
    return tri_vector_push(rows, &row) ? TRI_OK : TRI_ENOMEM;
}

static double value_of(const tri_top_row *row, tri_top_order order)
{
    switch (order) {
    case TRI_TOP_BY_step:
        return row->step;
    case TRI_TOP_BY_wait:
        return row->wait;
    case TRI_TOP_BY_memory:
        return row->memory;
    case TRI_TOP_BY_rank:
    case TRI_TOP_ORDER_COUNT:
        break;
    }
    return row->rank;
}

/* Rows without a value come last; equal ones by their rank. */
static int row_order(const void *a, const void *b, void *arg)
{
    static const bool greatest_first[] = {
#define FIRST(name, is) is,
        TRI_TOP_ORDER_LIST(FIRST)
#undef FIRST
    };
    const tri_top_row *one = a, *other = b;
    const tri_top_view *view = arg;
    const double x = value_of(one, view->order), y = value_of(other, view->order);
    if (isnan(x) != isnan(y))
        return isnan(x) ? 1 : -1;
    if (isnan(x) || x == y)
        return one->rank != other->rank ? (one->rank > other->rank ? 1 : -1)
                                        : (one->split == NULL) - (other->split == NULL);
    return (x > y) == (greatest_first[view->order] != view->reversed) ? -1 : 1;
}

tri_status tri_top_rows(const tri_top *top, const tri_top_view *view, double now_s, tri_vector *rows)
{
    const double newest = newest_generation(top);
    rows->count = 0;
    for (size_t i = 0; i < top->splits.count; i++) {
        const tri_top_split *split = tri_vector_at(&top->splits, i);
        if (!has_said(top, split->rank))
            continue;
        /* Processes are known by the number they were started as, which is their rank unless they come and go. */
        const tri_top_row row = {
            .rank = split->rank, .split = split, .process = newest > 0 ? NULL : process_of(top, split->rank)};
        TRI_TRY(row_add(rows, row, top, view, newest, now_s));
    }
    for (size_t i = 0; i < top->ranks.count; i++) {
        const tri_top_rank *process = tri_vector_at(&top->ranks, i);
        if (newest > 0 || !has_said(top, process->rank))
            TRI_TRY(row_add(rows, (tri_top_row){.rank = process->rank, .process = process}, top, view, newest, now_s));
    }
    if (rows->count > 1)
        qsort_r(rows->items, rows->count, sizeof(tri_top_row), row_order, (void *)(uintptr_t)view);
    return TRI_OK;
}
