/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c: keys of `trireme top`, and what they change of how it is seen.
 */
#include "base/terminal.h"
#include "cli/top/top.h"

bool tri_top_view_is_chosen(const tri_top_view *view, const tri_top_row *row)
{
    return row->rank == view->chosen && (row->split == NULL) == view->chosen_process;
}

long tri_top_view_place(tri_top_view *view, const tri_vector *rows, size_t page)
{
    long place = -1;
    for (size_t i = 0; i < rows->count && view->chosen >= 0; i++)
        if (tri_top_view_is_chosen(view, tri_vector_at(rows, i)))
            place = (long)i;
    if (place >= 0 && (size_t)place < view->first)
        view->first = (size_t)place;
    if (place >= 0 && (size_t)place >= view->first + page)
        view->first = (size_t)place + 1 - page;
    if (view->first + page > rows->count)
        view->first = rows->count > page ? rows->count - page : 0;
    return place;
}

/* By `rows` rows, from the first one shown if none is chosen. */
static void choose(tri_top_view *view, const tri_vector *rows, size_t page, long by)
{
    const long place = tri_top_view_place(view, rows, page), last = (long)rows->count - 1;
    long next = place >= 0 ? place + by : (long)view->first;
    if (last < 0)
        return;
    next = next < 0 ? 0 : next > last ? last : next;
    const tri_top_row *row = tri_vector_at(rows, (size_t)next);
    view->chosen = row->rank;
    view->chosen_process = row->split == NULL;
    (void)tri_top_view_place(view, rows, page);
}

static void order_next(tri_top_view *view, int by)
{
    view->order = (tri_top_order)(((int)view->order + by + TRI_TOP_ORDER_COUNT) % TRI_TOP_ORDER_COUNT);
    view->reversed = false;
    view->first = 0;
}

static bool moves(tri_top_view *view, int key, const tri_vector *rows, size_t page)
{
    const long all = (long)rows->count, some = page > 1 ? (long)page - 1 : 1;
    if (key == 'k' || key == TRI_KEY_UP)
        choose(view, rows, page, -1);
    else if (key == 'j' || key == TRI_KEY_DOWN)
        choose(view, rows, page, 1);
    else if (key == TRI_KEY_PAGE_UP)
        choose(view, rows, page, -some);
    else if (key == TRI_KEY_PAGE_DOWN)
        choose(view, rows, page, some);
    else if (key == TRI_KEY_HOME || key == TRI_KEY_END) {
        choose(view, rows, page, 0);
        choose(view, rows, page, key == TRI_KEY_HOME ? -all : all);
    } else
        return false;
    return true;
}

bool tri_top_view_key(tri_top_view *view, int key, const tri_vector *rows, size_t page)
{
    if (key == 'q' || key == 'Q')
        return false;
    if (view->help) { /* read */
        view->help = key == TRI_KEY_SCREEN;
        return true;
    }
    if (moves(view, key, rows, page))
        return true;
    if (key == 's' || key == '>' || key == TRI_KEY_RIGHT)
        order_next(view, 1);
    else if (key == '<' || key == TRI_KEY_LEFT)
        order_next(view, -1);
    else if (key == 'r')
        view->reversed = !view->reversed;
    else if (key == 'f') {
        view->only = view->only + 1 < TRI_TOP_DOES_COUNT ? view->only + 1 : -1;
        view->first = 0;
    } else if (key == ' ')
        view->paused = !view->paused;
    else if (key == 'h' || key == '?')
        view->help = true;
    else if (key == TRI_KEY_ESCAPE)
        view->chosen = -1;
    return true;
}
