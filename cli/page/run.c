/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c: one run as the page knows it: lines of metrics.jsonl and of ranks/rank-N.jsonl, each read once.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "cli/page/page.h"

#define SLICE_NS    (10 * TRI_NS_PER_MS) /* about so long, before the next run has a turn */
#define LOOK_NS     (2 * TRI_NS_PER_S)
#define MOST_EVENTS 20000

enum {
    STEP_COLUMNS = 0
#define COUNT_ONE(name) +1
    TRI_PAGE_STEP_COLUMNS(COUNT_ONE)
#undef COUNT_ONE
};

/* Files that are read again report them again. */
static bool event_is_known(const tri_page_run *run, const tri_page_event *event)
{
    const tri_page_event *events = run->events.items;
    for (size_t i = run->events.count; i > 0; i--) {
        const tri_page_event *other = &events[i - 1];
        if (other->rank == event->rank && other->step == event->step && strcmp(other->kind, event->kind) == 0 &&
            (other->time == event->time || (isnan(other->time) && isnan(event->time))))
            return true;
    }
    return false;
}

static void event_keep(tri_page_run *run, const tri_metrics_line *line, int rank, double time, const char *kind,
                       const char *text)
{
    tri_page_event event = {.time = time, .step = tri_metrics_line_step(line), .rank = rank};
    snprintf(event.kind, sizeof(event.kind), "%s", kind);
    snprintf(event.text, sizeof(event.text), "%s", text);
    if (run->events.count < MOST_EVENTS && !event_is_known(run, &event))
        (void)tri_vector_push(&run->events, &event);
}

/* --- metrics.jsonl --- */

static void step_keep(tri_page_run *run)
{
    const tri_step_record *now = &run->top.newest;
    const double values[] = {
#define VALUE(name) (double)now->name,
        TRI_PAGE_STEP_COLUMNS(VALUE)
#undef VALUE
    };
    (void)tri_history_add(run->steps, (double)now->step, values);
}

static void line_seen(void *arg, const tri_metrics_line *line)
{
    tri_page_run *run = arg;
    const double nan = (double)NAN;
    if (tri_top_seen(&run->top, line)) {
        step_keep(run);
        return;
    }
    const double test[2] = {tri_metrics_line_real(line, "test_loss"), tri_metrics_line_real(line, "test_accuracy")};
    const char *event = tri_metrics_line_text(line, "event"), *text = tri_metrics_line_text(line, "text"),
               *saved = tri_metrics_line_text(line, "checkpoint"),
               *failed = tri_metrics_line_text(line, "checkpoint_error");
    if (!isnan(test[0]))
        (void)tri_history_add(run->tests, (double)tri_metrics_line_step(line), test);
    else if (!run->rank_events && event)
        event_keep(run, line, 0, nan, event, text ? text : "");
    else if (!run->rank_events && saved)
        event_keep(run, line, 0, nan, failed ? "checkpoint failed" : "checkpoint", failed ? failed : saved);
}

/* --- ranks --- */

static void sent_keep(void *arg, int peer, double nbytes)
{
    tri_page_rank *rank = arg;
    const double none = 0;
    while (rank->sent_to.count <= (size_t)peer && peer < rank->world)
        if (!tri_vector_push(&rank->sent_to, &none))
            return;
    if ((size_t)peer < rank->sent_to.count)
        *(double *)tri_vector_at(&rank->sent_to, (size_t)peer) = nbytes;
}

typedef struct rank_seen {
    tri_page_run *run;
    tri_page_rank *rank;
} rank_seen;

static void rank_line_seen(void *arg, const tri_metrics_line *line)
{
    const rank_seen *at = arg;
    const double world = tri_metrics_line_real(line, "world"), time = tri_metrics_line_real(line, "time");
    const char *event = isnan(world) ? tri_metrics_line_text(line, "event") : NULL;
    if (isnan(time))
        return;
    if (event) {
        const char *text = tri_metrics_line_text(line, "text");
        event_keep(at->run, line, at->rank->rank, time, event, text ? text : "");
        return;
    }
    tri_served served = {0};
    if (isnan(world)) {
        if (tri_served_read(line, &served))
            at->rank->served = served;
        return;
    }
    at->rank->served = served;
    const double values[TRI_PAGE_RANK_COUNT] = {
#define VALUE(name) tri_metrics_line_real(line, #name),
        TRI_PAGE_RANK_COLUMNS(VALUE)
#undef VALUE
    };
    at->rank->has_card = false;
#define READ(name)                                                                                                     \
    at->rank->card.name = tri_metrics_line_real(line, "gpu_" #name);                                                   \
    at->rank->has_card = at->rank->has_card || !isnan(at->rank->card.name);
    TRI_PAGE_CARD_COLUMNS(READ)
#undef READ
    at->rank->world = world >= 0 && world <= TRI_RANK_LOG_RANKS ? (int)world : 0;
    (void)tri_history_add(at->rank->history, time, values);
    at->rank->sent_to.count = 0;
    tri_metrics_line_numbered(line, "to_", sent_keep, at->rank);
}

static tri_page_rank *rank_at(const tri_page_run *run, size_t index)
{
    return *(tri_page_rank **)tri_vector_at(&run->ranks, index);
}

static int rank_order(const void *a, const void *b)
{
    return (*(tri_page_rank *const *)a)->rank - (*(tri_page_rank *const *)b)->rank;
}

typedef struct rank_search {
    tri_page *page;
    tri_page_run *run;
} rank_search;

static tri_status rank_add(void *arg, int number, const char *path)
{
    const rank_search *at = arg;
    tri_page_run *run = at->run;
    for (size_t i = 0; i < run->ranks.count; i++)
        if (rank_at(run, i)->rank == number)
            return TRI_OK;
    tri_page_rank *rank = tri_alloc_zero(1, sizeof(*rank));
    if (!rank)
        return TRI_ENOMEM;
    rank->rank = number;
    rank->sent_to.each = sizeof(double);
    snprintf(rank->tail.path, sizeof(rank->tail.path), "%s", path);
    tri_status status = tri_history_create(TRI_PAGE_RANK_COUNT, &rank->history);
    tri_page_write_begin(at->page);
    if (status == TRI_OK && !tri_vector_push(&run->ranks, &rank))
        status = TRI_ENOMEM;
    if (status == TRI_OK)
        qsort(run->ranks.items, run->ranks.count, sizeof(tri_page_rank *), rank_order);
    if (status == TRI_OK && !run->rank_events) { /* they know the time too */
        run->rank_events = true;
        run->events.count = 0;
    }
    tri_page_write_end(at->page);
    if (status != TRI_OK) {
        tri_history_destroy(rank->history);
        tri_free(rank);
    }
    return status;
}

/* --- all --- */

tri_status tri_page_run_open(const char *folder, tri_page_run *run)
{
    char path[1200];
    *run = (tri_page_run){.top = {.tested = -1, .ranks = {.each = sizeof(tri_top_rank)}},
                          .ranks = {.each = sizeof(tri_page_rank *)},
                          .events = {.each = sizeof(tri_page_event)}};
    if (!tri_fs_is_folder(folder))
        return tri_fail(TRI_ECONFIG, "%s: there is no such folder of a run", folder);
    if (snprintf(run->top.run, sizeof(run->top.run), "%s", folder) >= (int)sizeof(run->top.run) - 64)
        return tri_fail(TRI_ECONFIG, "%.60s...: the name is too long", folder);
    for (size_t length = strlen(run->top.run); length > 1 && run->top.run[length - 1] == '/'; length--)
        run->top.run[length - 1] = 0;
    snprintf(path, sizeof(path), "%s/sweep.yaml", folder);
    run->is_sweep = tri_fs_exists(path);
    snprintf(run->top.reader.path, sizeof(run->top.reader.path), "%s/metrics.jsonl", run->top.run);
    TRI_TRY(tri_history_create(STEP_COLUMNS, &run->steps));
    return tri_history_create(2, &run->tests);
}

void tri_page_run_close(tri_page_run *run)
{
    for (size_t i = 0; i < run->ranks.count; i++) {
        tri_page_rank *rank = rank_at(run, i);
        tri_history_destroy(rank->history);
        tri_vector_fini(&rank->sent_to);
        tri_free(rank);
    }
    tri_vector_fini(&run->ranks);
    tri_vector_fini(&run->events);
    tri_vector_fini(&run->top.ranks);
    tri_string_fini(&run->trials);
    tri_history_destroy(run->steps);
    tri_history_destroy(run->tests);
}

/* Files of ranks that are new, processes, and how long the run will be. */
static tri_status look(tri_page *page, tri_page_run *run)
{
    rank_search search = {page, run};
    tri_vector found = {.each = sizeof(tri_top_rank)};
    int64_t epochs = 0, steps = 0;
    TRI_TRY(tri_rank_log_visit(run->top.run, rank_add, &search));
    const bool planned = !run->top.has_config && tri_top_planned(run->top.run, &epochs, &steps);
    tri_status status = tri_top_ranks_find(&run->top, &found);
    tri_page_write_begin(page);
    if (planned) {
        run->top.has_config = true;
        run->top.epochs = epochs;
        run->top.steps = steps;
        tri_top_length_reckon(&run->top);
    }
    const tri_vector before = run->top.ranks;
    run->top.ranks = found;
    tri_page_write_end(page);
    found = before;
    tri_vector_fini(&found);
    return status;
}

/* Its database, if it has changed since. */
static tri_status trials_look(tri_page *page, tri_page_run *run)
{
    tri_string text = {0};
    char path[1200];
    int64_t changed_ns = 0, log_ns = 0;
    snprintf(path, sizeof(path), "%.1100s/trials.sqlite", run->top.run);
    if (!tri_fs_exists(path)) /* its tuner is about to begin */
        return TRI_OK;
    TRI_TRY(tri_fs_changed(path, &changed_ns));
    snprintf(path, sizeof(path), "%.1100s/trials.sqlite-wal", run->top.run); /* where it is written first */
    if (tri_fs_exists(path) && tri_fs_changed(path, &log_ns) == TRI_OK && log_ns > changed_ns)
        changed_ns = log_ns;
    if (changed_ns == run->trials_ns)
        return TRI_OK;
    tri_status status = tri_page_trials(run, &text);
    if (status == TRI_OK) {
        const tri_string before = run->trials;
        tri_page_write_begin(page);
        run->trials = text;
        tri_page_write_end(page);
        text = before;
        run->trials_ns = changed_ns;
    }
    tri_string_fini(&text);
    return status;
}

/* A piece of the newest lines of a file. */
static tri_status piece_read(tri_page *page, tri_metrics_tail *tail, tri_metrics_seen seen, void *arg, bool *more)
{
    TRI_TRY(tri_metrics_fetch(tail, &page->piece));
    *more = *more || (page->piece.nbytes > 0 && tail->at < tail->all);
    tri_page_write_begin(page);
    tri_metrics_give(&page->piece, seen, arg);
    tri_page_write_end(page);
    return TRI_OK;
}

tri_status tri_page_run_read(tri_page *page, tri_page_run *run, bool *more)
{
    const int64_t now_ns = tri_now_ns();
    const tri_metrics_tail *tail = &run->top.reader;
    TRI_TRY(piece_read(page, &run->top.reader, line_seen, run, more));
    tri_page_write_begin(page);
    run->read = tail->all > 0 ? (double)tail->at / (double)tail->all : 1;
    if (page->piece.nbytes > 0)
        tri_top_length_reckon(&run->top);
    tri_page_write_end(page);
    if (run->looked_ns == 0 || now_ns - run->looked_ns >= LOOK_NS) {
        run->looked_ns = now_ns;
        TRI_TRY(look(page, run));
        if (run->is_sweep)
            TRI_TRY(trials_look(page, run));
    }
    for (size_t i = 0; i < run->ranks.count; i++) {
        rank_seen at = {run, rank_at(run, (run->next_rank + i) % run->ranks.count)};
        if (tri_now_ns() - now_ns > SLICE_NS) {
            run->next_rank = (run->next_rank + i) % run->ranks.count;
            *more = true;
            break;
        }
        TRI_TRY(piece_read(page, &at.rank->tail, rank_line_seen, &at, more));
    }
    return TRI_OK;
}
