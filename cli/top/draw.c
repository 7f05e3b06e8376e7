/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.c: the screen of `trireme top`: how far the run is, where the time of one rank's steps goes, the table of all
 * ranks, and at the foot how it is seen.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/runtime.h"
#include "cli/top/top.h"

#define BAR_COLUMNS  40
#define WIDE_COLUMNS 113 /* where parts of all ranks' steps fit */
#define LEAST_ROWS   3   /* of the table, however low the screen is */
#define INVERSE      "\033[7m"
#define PLAIN        "\033[m"

static tri_status head_draw(const tri_top *top, const tri_top_view *view, tri_string *out)
{
    const tri_step_record *last = &top->last;
    char spark[TRI_SPARK_NBYTES];
    TRI_TRY(tri_string_appendf(out, "%s: %s%s\n", top->run, tri_top_state(top), view->paused ? "  (paused)" : ""));
    if (top->seen == 0)
        return tri_string_append(out, "no step yet\n");
    TRI_TRY(tri_string_appendf(out, "epoch %.2f/%lld  step %lld", last->epoch, (long long)top->epochs,
                               (long long)last->step + 1));
    if (top->steps > 0) {
        TRI_TRY(tri_string_appendf(out, "/%lld  %.0f %%  %.0f s left", (long long)top->steps,
                                   100 * (double)(last->step + 1) / (double)top->steps, tri_top_left_s(top)));
    }
    TRI_TRY(tri_string_appendf(out, "\nloss %.4f  %s\n", last->loss, tri_spark_print(&top->loss, spark)));
    if (top->tested >= 0)
        TRI_TRY(tri_string_appendf(out, "test loss %.4f  accuracy %.4f  (step %lld)\n", top->test_loss,
                                   top->test_accuracy, (long long)top->tested + 1));
    TRI_TRY(tri_string_appendf(out, "%.0f samples/s", last->samples_per_s));
    if (last->tokens_per_s > 0)
        TRI_TRY(tri_string_appendf(out, "  %.0f tokens/s", last->tokens_per_s));
    if (last->mfu > 0)
        TRI_TRY(tri_string_appendf(out, "  mfu %.0f %%", 100 * last->mfu));
    return tri_string_appendf(out, "  lr %.4g  %.1f MB sent a step\n", last->lr, (double)last->sent_bytes / 1e6);
}

static tri_status phase_draw(const char *name, double seconds, double all, tri_string *out)
{
    const int filled = all > 0 ? (int)lround(BAR_COLUMNS * seconds / all) : 0;
    TRI_TRY(tri_string_appendf(out, "  %-10s %9.3f ms %4.0f %%  ", name, 1e3 * seconds,
                               all > 0 ? 100 * seconds / all : 0.0));
    for (int i = 0; i < filled && i < BAR_COLUMNS; i++)
        TRI_TRY(tri_string_append(out, "#"));
    return tri_string_append(out, "\n");
}

/* Phases of `steps` steps. */
static tri_status phases_draw(const tri_step_record *sum, double steps, tri_string *out)
{
    const double all = tri_top_phases(sum) / steps;
#define PHASE_DRAW(name) TRI_TRY(phase_draw(#name, sum->name / steps, all, out));
    TRI_PHASE_LIST(PHASE_DRAW)
#undef PHASE_DRAW
    return TRI_OK;
}

static tri_status process_draw(const tri_top_rank *process, tri_string *out)
{
    return tri_string_appendf(out, "  pid %d  state %c  %d threads\n", process->pid, process->state, process->threads);
}

/* Of the row that is chosen; rank 0's newest steps, as they come, if none is. */
static tri_status detail_draw(const tri_top *top, const tri_top_row *row, tri_string *out)
{
    const tri_top_split *split = row ? row->split : NULL;
    if (!row && top->seen > 0) {
        TRI_TRY(tri_string_appendf(out, "\nstep of rank 0: %.3f ms\n", 1e3 * tri_top_phases(&top->last)));
        return phases_draw(&top->last, 1, out);
    }
    if (split && split->served.seconds > 0) {
        const tri_served *at = &split->served;
        TRI_TRY(tri_string_appendf(out, "\nparameter server, rank %d:\n  %9.1f pushes/s %9.1f pulls/s\n", row->rank,
                                   at->pushes / at->seconds, at->pulls / at->seconds));
        TRI_TRY(tri_string_appendf(out, "  %9.2f MB/s in  %9.2f MB/s out\n", at->taken_bytes / at->seconds / 1e6,
                                   at->served_bytes / at->seconds / 1e6));
    } else if (split) {
        TRI_TRY(tri_string_appendf(out, "\nstep of rank %d: %.3f ms, mean of %lld\n", row->rank,
                                   1e3 * tri_top_phases(&split->sum) / (double)split->steps, (long long)split->steps));
        TRI_TRY(phases_draw(&split->sum, (double)split->steps, out));
    } else if (row)
        TRI_TRY(tri_string_appendf(out, "\nprocess %d:\n", row->rank));
    return row && row->process ? process_draw(row->process, out) : TRI_OK;
}

/* --- the table --- */

static tri_status cell_draw(const char *format, int width, double value, tri_string *out)
{
    if (isnan(value))
        return tri_string_appendf(out, " %*s", width, "-");
    TRI_TRY(tri_string_append(out, " "));
    char text[40];
    snprintf(text, sizeof(text), format, value);
    return tri_string_appendf(out, "%*s", width, text);
}

static const char *role_of(const tri_top_row *row)
{
    if (!row->split)
        return row->process->serves ? "server" : "worker";
    return row->split->served.seconds > 0 ? "server" : "worker";
}

/* Columns that are not always there. */
typedef struct table_shape {
    bool wide, cards;
} table_shape;

/* Parts of its steps beside that in which it waits, where there is room. */
static tri_status parts_draw(const tri_top_row *row, tri_string *out)
{
    const double none = (double)NAN;
    const tri_step_record *sum = row->split && !(row->split->served.seconds > 0) ? &row->split->sum : NULL;
    const double all = sum ? tri_top_phases(sum) : none;
#define PART_DRAW(name)                                                                                                \
    if (strcmp(#name, "comm") != 0)                                                                                    \
        TRI_TRY(cell_draw("%.0f", (int)sizeof(#name) - 1, sum && all > 0 ? 100 * sum->name / all : none, out));
    TRI_PHASE_LIST(PART_DRAW)
#undef PART_DRAW
    return TRI_OK;
}

static tri_status card_draw(const tri_top_row *row, tri_string *out)
{
    static const tri_card_figures nothing;
    const bool known = row->split && row->split->has_card;
    const tri_card_figures *card = known ? &row->split->card : &nothing;
    const double none = (double)NAN;
    TRI_TRY(cell_draw("%.0f", 6, known ? 100 * card->utilization_ratio : none, out));
    TRI_TRY(cell_draw("%.0f MiB", 10, known ? card->memory_used_bytes / (1 << 20) : none, out));
    TRI_TRY(cell_draw("%.0f", 5, known ? card->power_watts : none, out));
    TRI_TRY(
        cell_draw(known && card->throttled > 0 ? "%.0f!" : "%.0f", 6, known ? card->sm_clock_hertz / 1e6 : none, out));
    return cell_draw("%.0f", 4, known ? card->ecc_uncorrected_total : none, out);
}

static tri_status row_draw(const tri_top_row *row, bool chosen, table_shape shape, double now_s, tri_string *out)
{
    const tri_top_split *split = row->split;
    const double none = (double)NAN;
    const bool serves = split && split->served.seconds > 0;
    const double time = split ? (serves ? split->served.time : split->time) : none;
    TRI_TRY(tri_string_appendf(out, "%s%5d  %-6s  %-8s", chosen ? INVERSE : "", row->rank, role_of(row),
                               tri_top_does_name(row->does)));
    TRI_TRY(cell_draw("%.0f", 9, row->step, out));
    TRI_TRY(
        cell_draw("%.3f", 9, split && !serves ? 1e3 * tri_top_phases(&split->sum) / (double)split->steps : none, out));
    TRI_TRY(cell_draw("%.0f", 6, 100 * row->wait, out));
    if (shape.wide)
        TRI_TRY(parts_draw(row, out));
    TRI_TRY(cell_draw("%.0f MiB", 10, row->memory / (1 << 20), out));
    if (shape.cards)
        TRI_TRY(card_draw(row, out));
    TRI_TRY(cell_draw("%.0f", 6, row->process ? 100 * row->process->cpu : none, out));
    TRI_TRY(cell_draw("%.0f", 6, now_s > time ? now_s - time : isnan(time) ? none : 0, out));
    return tri_string_appendf(out, "%s\n", chosen ? PLAIN : "");
}

/* Where the table's rows begin and end, and how they are seen. */
static tri_status foot_draw(const tri_top_view *view, size_t shown, size_t count, tri_string *out)
{
    static const char *const orders[] = {
#define NAME(name, greatest_first) #name,
        TRI_TOP_ORDER_LIST(NAME)
#undef NAME
    };
    static const bool greatest_first[] = {
#define FIRST(name, is) is,
        TRI_TOP_ORDER_LIST(FIRST)
#undef FIRST
    };
    TRI_TRY(tri_string_appendf(out, "by %s, %s first; ", orders[view->order],
                               greatest_first[view->order] != view->reversed ? "greatest" : "least"));
    TRI_TRY(view->only >= 0 ? tri_string_appendf(out, "only %s; ", tri_top_does_name((tri_top_does)view->only))
                            : tri_string_append(out, "all; "));
    if (count == 0)
        TRI_TRY(tri_string_append(out, "none"));
    else
        TRI_TRY(tri_string_appendf(out, "%zu to %zu of %zu", view->first + 1, view->first + shown, count));
    return view->keys ? tri_string_append(out, "; h: keys, q: quit\n") : tri_string_append(out, "\n");
}

static bool has_cards(const tri_vector *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        const tri_top_row *row = tri_vector_at(rows, i);
        if (row->split && row->split->has_card)
            return true;
    }
    return false;
}

static tri_status table_draw(const tri_top_view *view, const tri_vector *rows, size_t page, bool wide, double now_s,
                             tri_string *out)
{
    const table_shape shape = {wide, has_cards(rows)};
    size_t shown = 0;
    TRI_TRY(tri_string_append(out, "\n rank  role    state         step   step ms wait %"));
#define NAME_DRAW(name)                                                                                                \
    if (wide && strcmp(#name, "comm") != 0)                                                                            \
        TRI_TRY(tri_string_append(out, " " #name));
    TRI_PHASE_LIST(NAME_DRAW)
#undef NAME_DRAW
    TRI_TRY(tri_string_append(out, "     memory"));
    if (shape.cards)
        TRI_TRY(tri_string_append(out, "  gpu %    gpu mem     W    MHz  ecc"));
    TRI_TRY(tri_string_append(out, "  cpu %  s ago\n"));
    for (; shown < page && view->first + shown < rows->count; shown++) {
        const tri_top_row *row = tri_vector_at(rows, view->first + shown);
        TRI_TRY(row_draw(row, tri_top_view_is_chosen(view, row), shape, now_s, out));
    }
    return foot_draw(view, shown, rows->count, out);
}

static const char help_text[] =
    "keys of trireme top\n\n"
    "  up, down, k, j       choose a rank: where the time of its steps goes\n"
    "  page up, page down, home, end\n"
    "  escape               choose none: rank 0, step by step\n"
    "  s, >, right; <, left sort by rank, step, wait, memory\n"
    "  r                    the other way around\n"
    "  f                    only ranks that train, serve, are stopped, ...; all again\n"
    "  space                pause: nothing is read; go on\n"
    "  h, ?                 these lines\n"
    "  q                    quit\n\n"
    "wait: part of its steps in which a rank waits for others; who waits least is waited for.\n"
    "any key: back\n";

/* --- the screen --- */

/* No line is longer than the screen is wide, and there are no more of them: one that is wrapped would push the others
 * down. Blocks count as one column, the sequences above as none. */
static tri_status cut_append(const char *text, int columns, int lines, tri_string *out)
{
    int column = 0, line = 1;
    bool sequence = false;
    for (; *text; text++) {
        const bool begins = ((unsigned char)*text & 0xC0) != 0x80, last = *text == '\n';
        sequence = sequence || *text == '\033';
        column = last ? 0 : column + (begins && !sequence);
        if (last)
            TRI_TRY(tri_string_append(out, "\033[K"));
        if (last && line++ == lines)
            return TRI_OK;
        if (sequence || column <= columns)
            TRI_TRY(tri_string_append_bytes(out, text, 1));
        sequence = sequence && *text != 'm';
    }
    return TRI_OK;
}

static size_t lines_of(const tri_string *text)
{
    size_t count = 0;
    for (size_t i = 0; i < text->nbytes; i++)
        count += text->text[i] == '\n';
    return count;
}

static tri_status screen_draw(const tri_top *top, tri_top_view *view, const tri_vector *rows, double now_s, int columns,
                              int lines, size_t *page, tri_string *out)
{
    const long chosen = tri_top_view_place(view, rows, *page);
    TRI_TRY(head_draw(top, view, out));
    TRI_TRY(detail_draw(top, chosen >= 0 ? tri_vector_at(rows, (size_t)chosen) : NULL, out));
    const size_t around = lines_of(out) + 3 + (top->event[0] ? 2 : 0); /* the head of the table, and its foot */
    *page = lines <= 0 ? rows->count : (size_t)lines > around + LEAST_ROWS ? (size_t)lines - around : LEAST_ROWS;
    (void)tri_top_view_place(view, rows, *page);
    TRI_TRY(table_draw(view, rows, *page, columns >= WIDE_COLUMNS, now_s, out));
    return top->event[0] ? tri_string_appendf(out, "\n%s\n", top->event) : TRI_OK;
}

tri_status tri_top_draw(const tri_top *top, tri_top_view *view, int columns, int lines, size_t *page, tri_string *out)
{
    const double now_s = (double)tri_wall_ns() / 1e9;
    tri_vector rows = {.each = sizeof(tri_top_row)};
    tri_string text = {0};
    tri_status status = view->help ? tri_string_append(&text, help_text) : tri_top_rows(top, view, now_s, &rows);
    if (status == TRI_OK && !view->help)
        status = screen_draw(top, view, &rows, now_s, columns, lines, page, &text);
    if (status == TRI_OK)
        status = cut_append(tri_string_text(&text), columns, lines, out);
    tri_string_fini(&text);
    tri_vector_fini(&rows);
    return status;
}
