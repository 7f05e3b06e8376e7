/* SPDX-License-Identifier: Apache-2.0
 *
 * answer.c: what the page asks for, as JSON: a summary of each run, and stretches of its columns in as many points as a
 * screen can show, whatever the length of the run.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/runtime.h"
#include "cli/page/files.h"
#include "cli/page/page.h"

#define POINTS      1000
#define MOST_POINTS 4000
#define RECENT_ROWS 12 /* of a rank: a minute, by default */

/* --- words of a request --- */

static tri_status run_word(const tri_page *page, const tri_http_request *request, tri_page_run **out)
{
    const char *word = tri_http_word(request, "run");
    char *end;
    const long number = word ? strtol(word, &end, 10) : 0;
    if (word && (end == word || *end || number < 0 || number >= page->count))
        return tri_fail(TRI_ENOTFOUND, "run: want 0 to %d\n", page->count - 1);
    *out = &page->runs[number];
    return TRI_OK;
}

static double real_word(const tri_http_request *request, const char *name, double otherwise)
{
    const char *word = tri_http_word(request, name);
    char *end;
    const double value = word ? strtod(word, &end) : otherwise;
    return word && (end == word || *end || isnan(value)) ? otherwise : value;
}

static size_t points_word(const tri_http_request *request)
{
    const double value = real_word(request, "points", POINTS);
    return value >= 1 && value <= MOST_POINTS ? (size_t)value : POINTS;
}

/* --- numbers --- */

/* Six digits are more than a screen shows. */
static void number(tri_string *out, tri_status *status, double value)
{
    if (*status != TRI_OK)
        return;
    *status = isfinite(value) ? tri_string_appendf(out, "%.6g", value) : tri_string_append(out, "null");
}

static void text(tri_string *out, tri_status *status, const char *words)
{
    if (*status == TRI_OK)
        *status = tri_string_append(out, words);
}

typedef struct stretch {
    const tri_history *history;
    size_t from, to, piece;
} stretch;

static stretch stretch_of(const tri_history *history, const tri_http_request *request)
{
    const double from = real_word(request, "from", -INFINITY), to = real_word(request, "to", INFINITY);
    stretch at = {.history = history, .from = tri_history_find(history, from), .to = tri_history_find(history, to)};
    at.from -= at.from > 0; /* a line that continues to the edge */
    at.to += at.to < tri_history_rows(history);
    at.piece = tri_history_piece(at.to - at.from, points_word(request));
    at.from -= at.from % at.piece;
    return at;
}

static void x_write(const stretch *at, tri_string *out, tri_status *status)
{
    text(out, status, "\"x\":[");
    for (size_t row = at->from; row < at->to && *status == TRI_OK; row += at->piece)
        *status = tri_string_appendf(out, "%s%.13g", row == at->from ? "" : ",", tri_history_x(at->history, row));
    text(out, status, "]");
}

/* "loss":[[low,mean,high],...], or one number where the three are one. */
static void column_write(const stretch *at, const char *name, int column, tri_string *out, tri_status *status)
{
    if (*status == TRI_OK)
        *status = tri_string_appendf(out, ",\"%s\":[", name);
    for (size_t row = at->from; row < at->to && *status == TRI_OK; row += at->piece) {
        const size_t end = row + at->piece < at->to ? row + at->piece : at->to;
        const tri_history_point point = tri_history_fold(at->history, column, row, end);
        text(out, status, row == at->from ? "" : ",");
        if (at->piece > 1) {
            text(out, status, "[");
            number(out, status, (double)point.low);
            text(out, status, ",");
        }
        number(out, status, (double)point.mean);
        if (at->piece > 1) {
            text(out, status, ",");
            number(out, status, (double)point.high);
            text(out, status, "]");
        }
    }
    text(out, status, "]");
}

static bool is_named(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at && (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == 0))
            return true;
    return false;
}

/* --- answers --- */

/* Some columns of a run over its steps; and its tests. */
static tri_status series_make(void *arg, tri_http_request *request, tri_string *out)
{
    tri_page_run *run;
    tri_status status = run_word(arg, request, &run);
    const char *names = tri_http_word(request, "columns");
    if (status != TRI_OK)
        return status;
    static const char *const columns[] = {
#define NAME(name) #name,
        TRI_PAGE_STEP_COLUMNS(NAME)
#undef NAME
    };
    const stretch at = stretch_of(run->steps, request);
    status = tri_string_appendf(out, "{\"rows\":%zu,\"piece\":%zu,", tri_history_rows(run->steps), at.piece);
    x_write(&at, out, &status);
    for (size_t c = 0; c < TRI_COUNT_OF(columns); c++)
        if (!names || is_named(names, columns[c]))
            column_write(&at, columns[c], (int)c, out, &status);
    const stretch test = stretch_of(run->tests, request);
    text(out, &status, ",\"test\":{");
    x_write(&test, out, &status);
    column_write(&test, "test_loss", 0, out, &status);
    column_write(&test, "test_accuracy", 1, out, &status);
    text(out, &status, "}}\n");
    return status;
}

static tri_page_rank *rank_at(const tri_page_run *run, size_t index)
{
    return *(tri_page_rank **)tri_vector_at(&run->ranks, index);
}

/* It makes no steps, and has no phases. */
static bool serves(const tri_page_rank *rank)
{
    return rank->served.seconds > 0;
}

/* One rank's columns over the time. */
static tri_status rank_make(void *arg, tri_http_request *request, tri_string *out)
{
    tri_page_run *run;
    TRI_TRY(run_word(arg, request, &run));
    const double wanted = real_word(request, "rank", 0);
    static const char *const columns[] = {
#define NAME(name) #name,
        TRI_PAGE_RANK_COLUMNS(NAME)
#undef NAME
    };
    for (size_t i = 0; i < run->ranks.count; i++) {
        if (rank_at(run, i)->rank != (int)wanted)
            continue;
        const stretch at = stretch_of(rank_at(run, i)->history, request);
        tri_status status = tri_string_append(out, "{");
        x_write(&at, out, &status);
        for (int c = 0; c < TRI_PAGE_RANK_COUNT; c++)
            column_write(&at, columns[c], c, out, &status);
        text(out, &status, "}\n");
        return status;
    }
    return tri_fail(TRI_ENOTFOUND, "rank: there is no such rank\n");
}

/* Where the time of the rows went that begin in [from, to): seconds of each phase a step. False: there are none. */
static bool phases_of(const tri_history *history, size_t from, size_t to, double phases[], double *step_s)
{
    const double steps = (double)tri_history_fold(history, TRI_PAGE_RANK_steps, from, to).mean;
    int count = 0;
    *step_s = 0;
#define PHASE(name)                                                                                                    \
    phases[count] = (double)tri_history_fold(history, TRI_PAGE_RANK_##name, from, to).mean / steps;                    \
    *step_s += phases[count++];
    TRI_PHASE_LIST(PHASE)
#undef PHASE
    return steps > 0 && isfinite(*step_s);
}

#define PHASES_MOST 16

/* The rows that tell of [start, end): a row tells of the time before it, as long as its steps took. */
static void rows_of(const tri_history *history, double start, double end, size_t *from, size_t *to)
{
    double phases[PHASES_MOST], step_s;
    *from = tri_history_find(history, start);
    *to = tri_history_find(history, end);
    if (*from < *to || *from == tri_history_rows(history))
        return;
    const double steps = (double)tri_history_fold(history, TRI_PAGE_RANK_steps, *from, *from + 1).mean;
    if (phases_of(history, *from, *from + 1, phases, &step_s) && tri_history_x(history, *from) - steps * step_s < end)
        *to = *from + 1;
}

/* A part of the step of each rank, over the time: a picture of all of them. */
static tri_status ranks_make(void *arg, tri_http_request *request, tri_string *out)
{
    static const char *const names[] = {
#define NAME(name) #name,
        TRI_PHASE_LIST(NAME)
#undef NAME
    };
    tri_page_run *run;
    TRI_TRY(run_word(arg, request, &run));
    const char *phase = tri_http_word(request, "phase");
    size_t p = 0;
    while (p < TRI_COUNT_OF(names) && (!phase || strcmp(names[p], phase) != 0))
        p++;
    if (p == TRI_COUNT_OF(names))
        return tri_fail(TRI_ECONFIG, "phase: want one such as comm\n");
    double first = INFINITY, last = -INFINITY;
    for (size_t i = 0; i < run->ranks.count; i++) {
        const tri_history *history = rank_at(run, i)->history;
        const size_t rows = tri_history_rows(history);
        first = rows > 0 && tri_history_x(history, 0) < first ? tri_history_x(history, 0) : first;
        last = rows > 0 && tri_history_x(history, rows - 1) > last ? tri_history_x(history, rows - 1) : last;
    }
    if (!(first <= last)) /* nobody has said anything */
        first = last = 0;
    first = fmax(first, real_word(request, "from", first));
    last = fmin(last, real_word(request, "to", last));
    const size_t points = points_word(request);
    const double each = (last - first) / (double)points > 0 ? (last - first) / (double)points : 1;
    tri_status status = tri_string_appendf(out, "{\"from\":%.13g,\"each\":%.6g,\"ranks\":[", first, each);
    const char *comma = "";
    for (size_t i = 0; i < run->ranks.count && status == TRI_OK; i++) {
        const tri_page_rank *rank = rank_at(run, i);
        if (serves(rank))
            continue;
        status = tri_string_appendf(out, "%s{\"rank\":%d,\"parts\":[", comma, rank->rank);
        comma = ",";
        for (size_t b = 0; b < points && status == TRI_OK; b++) {
            double phases[PHASES_MOST], step_s;
            size_t from, to;
            rows_of(rank->history, first + (double)b * each, first + (double)(b + 1) * each, &from, &to);
            text(out, &status, b == 0 ? "" : ",");
            number(out, &status,
                   from < to && phases_of(rank->history, from, to, phases, &step_s) ? floor(1e3 * phases[p] / step_s)
                                                                                    : (double)NAN);
        }
        text(out, &status, "]}");
    }
    text(out, &status, "]}\n");
    return status;
}

static tri_status events_make(void *arg, tri_http_request *request, tri_string *out)
{
    tri_page_run *run;
    TRI_TRY(run_word(arg, request, &run));
    tri_json json = tri_json_object(out), list = tri_json_array_in(&json, "events");
    for (size_t i = 0; i < run->events.count; i++) {
        const tri_page_event *event = tri_vector_at(&run->events, i);
        tri_json one = tri_json_object_in(&list, NULL);
        tri_json_real(&one, "time", event->time);
        tri_json_int(&one, "step", event->step);
        tri_json_text(&one, "kind", event->kind);
        tri_json_text(&one, "text", event->text);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&list);
    return tri_json_end(&json);
}

static tri_status trials_make(void *arg, tri_http_request *request, tri_string *out)
{
    tri_page_run *run;
    TRI_TRY(run_word(arg, request, &run));
    if (run->trials.nbytes == 0)
        return tri_fail(TRI_ENOTFOUND,
                        run->is_sweep ? "the sweep's trials are not read yet\n" : "this is no folder of a sweep\n");
    return tri_string_append_bytes(out, run->trials.text, run->trials.nbytes);
}

/* --- what all watch --- */

static void rank_tell(const tri_page_rank *rank, tri_json *list)
{
    const size_t rows = tri_history_rows(rank->history), from = rows > RECENT_ROWS ? rows - RECENT_ROWS : 0;
    double phases[PHASES_MOST], step_s;
    if (rows == 0 || serves(rank))
        return;
    tri_json one = tri_json_object_in(list, NULL);
    tri_json_int(&one, "rank", rank->rank);
    tri_json_int(&one, "world", rank->world);
    tri_json_real(&one, "time", tri_history_x(rank->history, rows - 1));
#define LAST(name)                                                                                                     \
    tri_json_real(&one, #name, (double)tri_history_fold(rank->history, TRI_PAGE_RANK_##name, rows - 1, rows).mean);
    LAST(step)
    LAST(generation)
    LAST(memory_bytes)
#undef LAST
    if (rank->has_card) {
        tri_json card = tri_json_object_in(&one, "gpu");
#define CARD(name)                                                                                                     \
    if (!isnan(rank->card.name))                                                                                       \
        tri_json_real(&card, #name, rank->card.name);
        TRI_PAGE_CARD_COLUMNS(CARD)
#undef CARD
        (void)tri_json_end(&card);
    }
    if (phases_of(rank->history, from, rows, phases, &step_s)) {
        int p = 0;
        tri_json step = tri_json_object_in(&one, "step_s");
#define PHASE(name) tri_json_real(&step, #name, phases[p++]);
        TRI_PHASE_LIST(PHASE)
#undef PHASE
        (void)tri_json_end(&step);
    }
    tri_json sent = tri_json_array_in(&one, "sent_to");
    for (size_t i = 0; i < rank->sent_to.count; i++)
        tri_json_real(&sent, NULL, *(const double *)tri_vector_at(&rank->sent_to, i));
    (void)tri_json_end(&sent);
    (void)tri_json_end(&one);
}

static tri_status run_tell(const tri_page *page, int number, tri_string *out)
{
    const tri_page_run *run = &page->runs[number];
    TRI_TRY(tri_string_append(out, "event: run\ndata: "));
    tri_json json = tri_json_object(out);
    tri_json_int(&json, "number", number);
    tri_json_int(&json, "runs", page->count);
    tri_json_bool(&json, "sweep", run->trials.nbytes > 0);
    tri_json_real(&json, "now", (double)(tri_wall_ns() / TRI_NS_PER_MS) / 1e3);
    tri_json_int(&json, "rows", (int64_t)tri_history_rows(run->steps));
    tri_json_int(&json, "tests", (int64_t)tri_history_rows(run->tests));
    tri_json_int(&json, "events", (int64_t)run->events.count);
    tri_json_real(&json, "read", run->read);
    tri_json summary = tri_json_object_in(&json, "top");
    tri_top_fields(&run->top, &summary);
    (void)tri_json_end(&summary);
    tri_json list = tri_json_array_in(&json, "ranks");
    for (size_t i = 0; i < run->ranks.count; i++)
        rank_tell(rank_at(run, i), &list);
    (void)tri_json_end(&list);
    tri_json servers = tri_json_array_in(&json, "servers");
    for (size_t i = 0; i < run->ranks.count; i++)
        if (serves(rank_at(run, i)))
            tri_top_served_fields(&rank_at(run, i)->served, rank_at(run, i)->rank, &servers);
    (void)tri_json_end(&servers);
    TRI_TRY(tri_json_end(&json));
    return tri_string_append(out, "\n\n");
}

tri_status tri_page_tell(tri_page *page, tri_string *out)
{
    tri_status status = TRI_OK;
    tri_page_answer_begin(page);
    for (int i = 0; i < page->count && status == TRI_OK; i++)
        status = run_tell(page, i, out);
    tri_page_answer_end(page);
    return status;
}

static tri_status watch_make(void *arg, tri_http_request *request, tri_string *out)
{
    (void)request;
    TRI_TRY(tri_string_append(out, "retry: 2000\n\n"));
    return tri_page_tell(arg, out);
}

/* --- files --- */

#define OWN_FILE(name)                                                                                                 \
    static tri_status name##_make(void *arg, tri_http_request *request, tri_string *out)                               \
    {                                                                                                                  \
        (void)arg;                                                                                                     \
        (void)request;                                                                                                 \
        return tri_string_append_bytes(out, tri_page_file_##name, sizeof(tri_page_file_##name));                       \
    }
OWN_FILE(index_html)
OWN_FILE(page_css)
OWN_FILE(page_js)
OWN_FILE(charts_js)
#undef OWN_FILE

static tri_status dygraph_js_make(void *arg, tri_http_request *request, tri_string *out)
{
    const tri_page *page = arg;
    (void)request;
    return tri_string_append_bytes(out, page->dygraph_js.text, page->dygraph_js.nbytes);
}

static tri_status dygraph_css_make(void *arg, tri_http_request *request, tri_string *out)
{
    const tri_page *page = arg;
    (void)request;
    return tri_string_append_bytes(out, page->dygraph_css.text, page->dygraph_css.nbytes);
}

/* --- all of them --- */

#define UNDER_LOCK(name)                                                                                               \
    static tri_status name##_answer(void *arg, tri_http_request *request, tri_string *out)                             \
    {                                                                                                                  \
        tri_page_answer_begin(arg);                                                                                    \
        const tri_status status = name##_make(arg, request, out);                                                      \
        tri_page_answer_end(arg);                                                                                      \
        return status;                                                                                                 \
    }
UNDER_LOCK(series)
UNDER_LOCK(rank)
UNDER_LOCK(ranks)
UNDER_LOCK(events)
UNDER_LOCK(trials)
#undef UNDER_LOCK

#define JSON       "application/json"
#define JAVASCRIPT "text/javascript; charset=utf-8"
#define CSS        "text/css; charset=utf-8"
const tri_http_page tri_page_pages[] = {
    {"/", "text/html; charset=utf-8", index_html_make, false},
    {"/page.css", CSS, page_css_make, false},
    {"/page.js", JAVASCRIPT, page_js_make, false},
    {"/charts.js", JAVASCRIPT, charts_js_make, false},
    {"/dygraph.js", JAVASCRIPT, dygraph_js_make, false},
    {"/dygraph.css", CSS, dygraph_css_make, false},
    {"/watch", "text/event-stream", watch_make, true},
    {"/series", JSON, series_answer, false},
    {"/rank", JSON, rank_answer, false},
    {"/ranks", JSON, ranks_answer, false},
    {"/events", JSON, events_answer, false},
    {"/trials", JSON, trials_answer, false},
    {NULL, NULL, NULL, false},
};
