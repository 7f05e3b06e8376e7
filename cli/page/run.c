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

#define SLICE_NBYTES (1u << 18)           /* read at once, */
#define SLICE_NS     (10 * TRI_NS_PER_MS) /* or about so long, before somebody else has a turn */
#define LOOK_NS      (2 * TRI_NS_PER_S)
#define MOST_EVENTS  20000

enum {
    STEP_COLUMNS = 0
#define COUNT_ONE(name) +1
    TRI_PAGE_STEP_COLUMNS(COUNT_ONE)
#undef COUNT_ONE
};

/* Files that are read anew tell of them again. */
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

static tri_status rank_add(void *arg, int number, const char *path)
{
    tri_page_run *run = arg;
    for (size_t i = 0; i < run->ranks.count; i++)
        if (rank_at(run, i)->rank == number)
            return TRI_OK;
    tri_page_rank *rank = tri_alloc_zero(1, sizeof(*rank));
    if (!rank)
        return TRI_ENOMEM;
    rank->rank = number;
    rank->tail.most = SLICE_NBYTES;
    rank->sent_to.each = sizeof(double);
    snprintf(rank->tail.path, sizeof(rank->tail.path), "%s", path);
    tri_status status = tri_history_create(TRI_PAGE_RANK_COUNT, &rank->history);
    if (status == TRI_OK && !tri_vector_push(&run->ranks, &rank))
        status = TRI_ENOMEM;
    if (status != TRI_OK) {
        tri_history_destroy(rank->history);
        tri_free(rank);
        return status;
    }
    qsort(run->ranks.items, run->ranks.count, sizeof(tri_page_rank *), rank_order);
    return TRI_OK;
}

static tri_status ranks_find(tri_page_run *run)
{
    TRI_TRY(tri_rank_log_visit(run->top.run, rank_add, run));
    if (run->ranks.count > 0 && !run->rank_events) { /* they know the time too */
        run->rank_events = true;
        run->events.count = 0;
    }
    return TRI_OK;
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
    run->top.reader.most = SLICE_NBYTES;
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
    tri_history_destroy(run->steps);
    tri_history_destroy(run->tests);
}

tri_status tri_page_run_read(tri_page_run *run, bool *more)
{
    const int64_t now_ns = tri_now_ns();
    const bool look = run->looked_ns == 0 || now_ns - run->looked_ns >= LOOK_NS;
    if (look) {
        run->looked_ns = now_ns;
        TRI_TRY(ranks_find(run));
        TRI_TRY(tri_top_ranks_look(&run->top));
    }
    const uint64_t before = run->top.reader.at;
    TRI_TRY(tri_metrics_read(&run->top.reader, line_seen, run));
    *more = *more || run->top.reader.at > before + SLICE_NBYTES / 2;
    if (run->top.reader.at != before)
        tri_top_length_find(&run->top);
    for (size_t i = 0; i < run->ranks.count; i++) {
        rank_seen at = {run, rank_at(run, (run->next_rank + i) % run->ranks.count)};
        if (tri_now_ns() - now_ns > SLICE_NS) {
            run->next_rank = (run->next_rank + i) % run->ranks.count;
            *more = true;
            break;
        }
        const uint64_t rank_before = at.rank->tail.at;
        TRI_TRY(tri_metrics_read(&at.rank->tail, rank_line_seen, &at));
        *more = *more || at.rank->tail.at > rank_before + SLICE_NBYTES / 2;
    }
    return TRI_OK;
}
