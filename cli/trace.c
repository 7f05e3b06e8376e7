/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c: `trireme trace`: of a trace, where the time of traced steps went, who set the pace, and what to change.
 *
 * A rank that others wait for waits least itself: in each step the one with the least waiting is on the critical path,
 * with its own phases.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "cli/trace.h"
#include "monitor/trace.h"

#define PHASES        8
#define RANKS_MAX     65536
#define SLOW_MB_PER_S 20 /* bytes a microsecond of calls: less is not the link's rate */

static const char *json_given, *steps_given, *wait_given;
static const tri_flag flags[] = {
    {"--json", NULL, "summarize: one JSON object", &json_given},
    {"--steps", "N", "RUN: how many steps, beginning with the next one (default 10)", &steps_given},
    {"--wait", "SECONDS", "RUN: for the trace (default 60)", &wait_given},
};

typedef struct span {
    int64_t step;
    double start, end; /* microseconds */
    int phase;         /* of tri_trace_phases; -1: communication */
    double nbytes;
} span;

typedef struct rank_view {
    tri_vector spans; /* by start */
    double steps_us;  /* time of all its steps */
    double phases_us[PHASES], comm_us, hidden_us, nbytes;
    double critical_us[PHASES]; /* in steps for which it set the pace */
    int64_t paced, calls;
    double kernels_from, kernels_to; /* equal: it has none */
} rank_view;

typedef struct trace_view {
    rank_view *ranks;
    int count;
    int64_t from, to, steps;
    double critical_us;
    tri_slots slots;
    tri_stages_view stages;
    tri_server_operations operations;
    tri_servers_view servers;
    tri_vector kernels; /* tri_kernel_view */
} trace_view;

enum { PIPELINE = 3, WAITING = 4, PUBLISH = 6 }; /* in tri_trace_phases */

static bool waits(int phase)
{
    return phase == WAITING || phase == PUBLISH;
}

/* --- reading --- */

static int phase_of(const char *name)
{
    for (int i = 0; tri_trace_phases[i]; i++)
        if (strcmp(tri_trace_phases[i], name) == 0)
            return i;
    return -1;
}

static tri_status slot_read(const json_t *args, tri_slot *slot, const char *path, size_t number, trace_view *view)
{
    int64_t stage = json_integer_value(json_object_get(args, "stage"));
    int64_t micro = json_integer_value(json_object_get(args, "micro_batch"));
    if (stage < 0 || stage >= RANKS_MAX || micro < 0 || micro > INT32_MAX)
        return tri_fail(TRI_EFORMAT, "%s: event %zu: want stage and micro_batch, not negative, stage below %d", path,
                        number, RANKS_MAX);
    slot->stage = (int)stage;
    slot->micro = (int)micro;
    slot->step = json_integer_value(json_object_get(args, "step"));
    return tri_vector_push(&view->slots.items, slot) ? TRI_OK : TRI_ENOMEM;
}

static tri_status operation_read(const json_t *event, const char *path, size_t number, trace_view *view)
{
    const json_t *args = json_object_get(event, "args");
    const char *name = json_string_value(json_object_get(event, "name"));
    const int64_t server = json_integer_value(json_object_get(event, "pid")) - view->operations.workers;
    const int64_t worker = json_integer_value(json_object_get(args, "worker"));
    if (server < 0 || server >= view->operations.servers || worker < 0 || worker >= view->operations.workers)
        return tri_fail(TRI_EFORMAT,
                        "%s: event %zu: want pid, the rank of a server (%d to %d), and worker, one below %d", path,
                        number, view->operations.workers, view->operations.workers + view->operations.servers - 1,
                        view->operations.workers);
    const tri_server_operation operation = {.server = (int)server,
                                            .worker = (int)worker,
                                            .step = json_integer_value(json_object_get(args, "step")),
                                            .pulls = name && strcmp(name, "pull") == 0,
                                            .at = json_number_value(json_object_get(event, "ts")),
                                            .took_us = json_number_value(json_object_get(event, "dur")),
                                            .waited_us = json_number_value(json_object_get(args, "waited_us")),
                                            .nbytes = json_number_value(json_object_get(args, "bytes"))};
    return tri_vector_push(&view->operations.items, &operation) ? TRI_OK : TRI_ENOMEM;
}

static tri_status kernel_read(rank_view *rank, const char *name, double start, double took_us, trace_view *view)
{
    const bool first = rank->kernels_to == rank->kernels_from;
    rank->kernels_from = first || start < rank->kernels_from ? start : rank->kernels_from;
    rank->kernels_to = first || start + took_us > rank->kernels_to ? start + took_us : rank->kernels_to;
    return tri_kernels_add(&view->kernels, name, took_us);
}

static double kernels_us(const trace_view *view)
{
    double all_us = 0;
    for (int r = 0; r < view->count; r++)
        all_us += view->ranks[r].kernels_to - view->ranks[r].kernels_from;
    return all_us;
}

static tri_status event_read(const json_t *event, const char *path, size_t number, trace_view *view)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    const char *kind = json_string_value(json_object_get(event, "cat"));
    const json_t *args = json_object_get(event, "args"), *start = json_object_get(event, "ts");
    const json_t *lasts = json_object_get(event, "dur"), *rank = json_object_get(event, "pid");
    int64_t pid = json_integer_value(rank);
    if (kind && strcmp(kind, "server") == 0 && json_is_number(start) && json_is_number(lasts) &&
        json_number_value(lasts) >= 0)
        return operation_read(event, path, number, view);
    if (!name || !kind || !json_is_number(start) || !json_is_number(lasts) || !json_is_integer(rank) || pid < 0 ||
        pid >= view->count || json_number_value(lasts) < 0)
        return tri_fail(TRI_EFORMAT, "%s: event %zu: want name, cat, ts, dur (not negative) and pid (a rank below %d)",
                        path, number, view->count);
    rank_view *it = &view->ranks[pid];
    if (strcmp(kind, "steps") == 0) {
        it->steps_us += json_number_value(lasts);
        return TRI_OK;
    }
    if (strcmp(kind, "kernels") == 0)
        return kernel_read(it, name, json_number_value(start), json_number_value(lasts), view);
    if (strcmp(kind, "stages") == 0)
        return slot_read(args,
                         &(tri_slot){.rank = (int)pid,
                                     .kind = strcmp(name, "forward") == 0    ? TRI_SLOT_UP
                                             : strcmp(name, "backward") == 0 ? TRI_SLOT_DOWN
                                                                             : TRI_SLOT_WEIGHTS,
                                     .start = json_number_value(start),
                                     .end = json_number_value(start) + json_number_value(lasts)},
                         path, number, view);
    span one = {.step = json_integer_value(json_object_get(args, "step")),
                .start = json_number_value(start),
                .end = json_number_value(start) + json_number_value(lasts),
                .phase = strcmp(kind, "compute") == 0 ? phase_of(name) : -1,
                .nbytes = json_number_value(json_object_get(args, "bytes"))};
    return tri_vector_push(&it->spans, &one) ? TRI_OK : TRI_ENOMEM;
}

static tri_status view_read(const json_t *root, const char *path, trace_view *view)
{
    const json_t *other = json_object_get(root, "otherData"), *events = json_object_get(root, "traceEvents"), *event;
    int64_t ranks = json_integer_value(json_object_get(other, "ranks"));
    size_t number;
    view->from = json_integer_value(json_object_get(other, "from"));
    view->to = json_integer_value(json_object_get(other, "to"));
    if (json_integer_value(json_object_get(other, "trireme_trace")) != 1 || ranks < 1 || ranks > RANKS_MAX ||
        !json_is_array(events) || view->from < 0 || view->to < view->from ||
        view->to - view->from >= TRI_TRACE_MOST_STEPS)
        return tri_fail(TRI_EFORMAT,
                        "%s: not a trace of trireme train --trace (otherData.trireme_trace 1, traceEvents)", path);
    const int64_t workers = json_integer_value(json_object_get(other, "workers"));
    const int64_t servers = json_integer_value(json_object_get(other, "servers"));
    if (workers < 0 || workers > RANKS_MAX || servers < 0 || servers > RANKS_MAX || (servers > 0 && workers == 0))
        return tri_fail(TRI_EFORMAT, "%s: want otherData.workers and servers from 1 to %d, got %lld and %lld", path,
                        RANKS_MAX, (long long)workers, (long long)servers);
    view->operations = (tri_server_operations){
        .items = {.each = sizeof(tri_server_operation)}, .servers = (int)servers, .workers = (int)workers};
    view->ranks = tri_alloc_zero((size_t)ranks, sizeof(*view->ranks));
    if (!view->ranks)
        return TRI_ENOMEM;
    view->count = (int)ranks;
    view->kernels.each = sizeof(tri_kernel_view);
    view->slots = (tri_slots){.items = {.each = sizeof(tri_slot)}, .ranks = view->count};
    for (int r = 0; r < view->count; r++)
        view->ranks[r].spans.each = sizeof(span);
    json_array_foreach(events, number, event)
    {
        const char *ph = json_string_value(json_object_get(event, "ph"));
        if (ph && strcmp(ph, "X") == 0)
            TRI_TRY(event_read(event, path, number, view));
    }
    return TRI_OK;
}

/* --- reckoning --- */

static int span_order(const void *a, const void *b)
{
    double x = ((const span *)a)->start, y = ((const span *)b)->start;
    return (x > y) - (x < y);
}

static double common(const span *a, const span *b)
{
    double start = a->start > b->start ? a->start : b->start, end = a->end < b->end ? a->end : b->end;
    return end > start ? end - start : 0;
}

/* Communication while the rank computed something is hidden. */
static void rank_reckon(rank_view *rank)
{
    const span *spans = rank->spans.items;
    for (size_t i = 0; i < rank->spans.count; i++) {
        const span *one = &spans[i];
        if (one->phase >= 0) {
            rank->phases_us[one->phase] += one->end - one->start;
            continue;
        }
        rank->comm_us += one->end - one->start;
        rank->nbytes += one->nbytes;
        rank->calls++;
        for (size_t j = i; j-- > 0 && spans[j].end >= one->start;)
            rank->hidden_us += spans[j].phase >= 0 && !waits(spans[j].phase) ? common(one, &spans[j]) : 0;
        for (size_t j = i + 1; j < rank->spans.count && spans[j].start < one->end; j++)
            rank->hidden_us += spans[j].phase >= 0 && !waits(spans[j].phase) ? common(one, &spans[j]) : 0;
    }
}

static double waited_in(const rank_view *rank, int64_t step, double phases_us[PHASES])
{
    double waited = 0;
    memset(phases_us, 0, PHASES * sizeof(double));
    for (size_t i = 0; i < rank->spans.count; i++) {
        const span *one = (const span *)rank->spans.items + i;
        if (one->phase < 0 || one->step != step)
            continue;
        phases_us[one->phase] += one->end - one->start;
        waited += waits(one->phase) ? one->end - one->start : 0;
    }
    return waited;
}

static void steps_reckon(trace_view *view)
{
    for (int64_t step = view->from; step <= view->to; step++) {
        double phases_us[PHASES], least = -1, total = 0, paces[PHASES] = {0};
        int pace = -1;
        for (int r = 0; r < view->count; r++) {
            double waited = waited_in(&view->ranks[r], step, phases_us), all = 0;
            for (int p = 0; p < PHASES; p++)
                all += phases_us[p];
            if (all == 0 || (pace >= 0 && waited >= least))
                continue;
            pace = r;
            least = waited;
            total = all;
            memcpy(paces, phases_us, sizeof(paces));
        }
        if (pace < 0)
            continue;
        view->steps++;
        view->critical_us += total;
        view->ranks[pace].paced++;
        for (int p = 0; p < PHASES; p++)
            view->ranks[pace].critical_us[p] += paces[p];
    }
}

/* --- telling --- */

static double exposed_of(const rank_view *rank)
{
    return rank->phases_us[WAITING] + rank->phases_us[PUBLISH];
}

static double other_of(const rank_view *rank)
{
    double all = 0;
    for (int p = 0; p < PHASES; p++)
        all += rank->phases_us[p];
    return rank->steps_us > all ? rank->steps_us - all : 0;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* The rank that sets the pace in most steps, if that is clearly one. */
static int straggler_of(const trace_view *view)
{
    for (int r = 0; r < view->count && view->count > 1; r++) {
        double mean = 0;
        for (int o = 0; o < view->count; o++)
            mean += o == r ? 0 : exposed_of(&view->ranks[o]) / (view->count - 1);
        if (view->ranks[r].paced * 3 >= view->steps * 2 && view->steps > 0 &&
            mean - exposed_of(&view->ranks[r]) > 0.1 * view->ranks[r].steps_us)
            return r;
    }
    return -1;
}

/* The phase in which it takes longest, compared with the others. */
static int excess_phase(const trace_view *view, int rank)
{
    int worst = 0;
    double most = -1;
    for (int p = 0; p < PHASES; p++) {
        double mean = 0;
        for (int o = 0; o < view->count; o++)
            mean += o == rank ? 0 : view->ranks[o].phases_us[p] / (view->count - 1);
        double excess = view->ranks[rank].phases_us[p] - mean;
        if (!waits(p) && excess > most) {
            most = excess;
            worst = p;
        }
    }
    return worst;
}

static void advice_put(tri_string *out, const char *text)
{
    (void)tri_string_appendf(out, "- %s\n", text);
}

static void advise(const trace_view *view, tri_string *out)
{
    double steps = 0, exposed = 0, data = 0, other = 0, comm = 0, hidden = 0, nbytes = 0;
    char line[600];
    for (int r = 0; r < view->count; r++) {
        const rank_view *rank = &view->ranks[r];
        steps += rank->steps_us;
        exposed += exposed_of(rank);
        data += rank->phases_us[0];
        other += other_of(rank);
        comm += rank->comm_us;
        hidden += rank->hidden_us;
        nbytes += rank->nbytes;
    }
    int slow = straggler_of(view);
    if (slow >= 0) {
        int phase = excess_phase(view, slow);
        snprintf(
            line, sizeof(line),
            "rank %d is slow: the others wait for it, longest in its %s. Look at its host first ('trireme doctor': "
            "stolen or shared cores, swap, clock)%s",
            slow, tri_trace_phases[phase], phase == 0 ? ", and at the disk its data are on" : "");
        advice_put(out, line);
    } else if (view->servers.count == 0 && percent(exposed, steps) > 15 && nbytes < SLOW_MB_PER_S * comm)
        advice_put(out, "all wait for each other and send little: ways that take long, or cores that are shared with "
                        "something else ('trireme doctor'); more samples a step ask for fewer exchanges");
    else if (view->servers.count == 0 && percent(exposed, steps) > 15)
        advice_put(out, percent(hidden, comm) < 30
                            ? "communication is hardly hidden: parallel.overlap=true, a smaller parallel.bucket_kib, "
                              "parallel.ahead=on"
                            : "communication takes longer than what it could hide behind: more samples a worker, "
                              "parallel.compress, fewer and nearer workers");
    if (percent(data, steps) > 10)
        advice_put(out, "steps wait for data: data.prefetch, and a core that is free for it (train.threads one less)");
    if (percent(other, steps) > 15)
        advice_put(out, "much time is in no phase of a step: cores that are shared with something else ('trireme "
                        "doctor')");
    tri_stages_advise(&view->stages, line, sizeof(line));
    if (line[0])
        advice_put(out, line);
    tri_servers_advise(&view->servers, line, sizeof(line));
    if (line[0])
        advice_put(out, line);
    if (out->nbytes == 0)
        advice_put(out, "nothing stands out: what is left is computing (train.precision=bf16, more workers)");
}

static void print_text(const trace_view *view)
{
    printf("%lld steps of %d rank%s\n\n", (long long)view->steps, view->count, view->count == 1 ? "" : "s");
    printf(
        "rank  step ms   data   forward  backward  optimizer  exposed  other   comm ms/step  hidden  MB/step  sets the "
        "pace\n");
    for (int r = 0; r < view->count; r++) {
        const rank_view *rank = &view->ranks[r];
        double steps = view->steps > 0 ? (double)view->steps : 1, all = rank->steps_us;
        printf(
            "%4d  %7.2f  %3.0f %%  %5.0f %%  %6.0f %%  %7.0f %%  %5.0f %%  %3.0f %%  %11.2f  %4.0f %%  %7.2f  %lld of "
            "%lld\n",
            r, all / steps / 1e3, percent(rank->phases_us[0], all),
            percent(rank->phases_us[1] + rank->phases_us[3], all), percent(rank->phases_us[2], all),
            percent(rank->phases_us[5], all), percent(exposed_of(rank), all), percent(other_of(rank), all),
            rank->comm_us / steps / 1e3, percent(rank->hidden_us, rank->comm_us), rank->nbytes / steps / 1e6,
            (long long)rank->paced, (long long)view->steps);
    }
    printf("\ncritical path:");
    for (int r = 0; r < view->count; r++)
        for (int p = 0; tri_trace_phases[p]; p++)
            if (percent(view->ranks[r].critical_us[p], view->critical_us) >= 5)
                printf(" rank %d %s %.0f %%;", r, tri_trace_phases[p],
                       percent(view->ranks[r].critical_us[p], view->critical_us));
    putchar('\n');
    tri_stages_print(&view->stages);
    tri_servers_print(&view->servers);
    tri_kernels_print(&view->kernels, view->steps, kernels_us(view));
    tri_string advice = {0};
    advise(view, &advice);
    printf("\nwhat to change:\n%s", tri_string_text(&advice));
    tri_string_fini(&advice);
}

static tri_status print_json(const trace_view *view)
{
    tri_string text = {0}, advice = {0};
    advise(view, &advice);
    tri_json all = tri_json_object(&text), ranks, one;
    tri_json_int(&all, "steps", view->steps);
    tri_json_int(&all, "slow_rank", straggler_of(view));
    ranks = tri_json_array_in(&all, "ranks");
    for (int r = 0; r < view->count; r++) {
        const rank_view *rank = &view->ranks[r];
        one = tri_json_object_in(&ranks, NULL);
        tri_json_real(&one, "steps_us", rank->steps_us);
        for (int p = 0; tri_trace_phases[p]; p++)
            tri_json_real(&one, tri_trace_phases[p], rank->phases_us[p]);
        tri_json_real(&one, "other", other_of(rank));
        tri_json_real(&one, "comm", rank->comm_us);
        tri_json_real(&one, "hidden", rank->hidden_us);
        tri_json_real(&one, "bytes", rank->nbytes);
        tri_json_int(&one, "calls", rank->calls);
        tri_json_int(&one, "sets_the_pace", rank->paced);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&ranks);
    tri_stages_json(&view->stages, &all);
    tri_servers_json(&view->servers, &all);
    tri_kernels_json(&view->kernels, kernels_us(view), &all);
    tri_json_text(&all, "advice", tri_string_text(&advice));
    tri_status status = tri_json_end(&all);
    puts(tri_string_text(&text));
    tri_string_fini(&text);
    tri_string_fini(&advice);
    return status;
}

static tri_status stages_reckon(trace_view *view)
{
    double *pipeline_us = tri_alloc_zero((size_t)view->count, sizeof(*pipeline_us));
    if (!pipeline_us)
        return TRI_ENOMEM;
    for (int r = 0; r < view->count; r++)
        pipeline_us[r] = view->ranks[r].phases_us[PIPELINE];
    view->slots.pipeline_us = pipeline_us;
    tri_status status = tri_stages_reckon(&view->slots, &view->stages);
    view->slots.pipeline_us = NULL;
    tri_free(pipeline_us);
    return status;
}

static tri_status summarize(const char *path)
{
    json_error_t error;
    trace_view view = {0};
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        return error.line < 0 ? tri_fail(TRI_EFORMAT, "%s", error.text)
                              : tri_fail(TRI_EFORMAT, "%s:%d: %s", path, error.line, error.text);
    tri_status status = view_read(root, path, &view);
    json_decref(root);
    for (int r = 0; r < view.count && status == TRI_OK; r++) {
        if (view.ranks[r].spans.count > 1)
            qsort(view.ranks[r].spans.items, view.ranks[r].spans.count, sizeof(span), span_order);
        rank_reckon(&view.ranks[r]);
    }
    if (status == TRI_OK)
        status = stages_reckon(&view);
    if (status == TRI_OK)
        status = tri_servers_reckon(&view.operations, &view.servers);
    if (status == TRI_OK) {
        tri_kernels_reckon(&view.kernels);
        steps_reckon(&view);
        if (json_given)
            status = print_json(&view);
        else
            print_text(&view);
    }
    for (int r = 0; r < view.count; r++)
        tri_vector_fini(&view.ranks[r].spans);
    tri_vector_fini(&view.slots.items);
    tri_stages_view_fini(&view.stages);
    tri_vector_fini(&view.operations.items);
    tri_servers_view_fini(&view.servers);
    tri_vector_fini(&view.kernels);
    tri_free(view.ranks);
    return status;
}

static tri_status run(int count, char **argv)
{
    const bool asks = count == 1 && strcmp(argv[0], "summarize") != 0;
    if (!asks && (count != 2 || strcmp(argv[0], "summarize") != 0))
        return tri_fail(TRI_ECONFIG, "want: trireme trace summarize FILE, or trireme trace RUN");
    if ((steps_given || wait_given || json_given) && asks == (json_given != NULL))
        return tri_fail(TRI_ECONFIG, "--steps and --wait require trireme trace RUN, --json requires summarize FILE");
    tri_stop_catch();
    return asks ? tri_trace_ask(argv[0], steps_given, wait_given) : summarize(argv[1]);
}

int cmd_trace(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_trace), flags, TRI_COUNT_OF(flags), argc, argv, run);
}
