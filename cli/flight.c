/* SPDX-License-Identifier: Apache-2.0
 *
 * flight.c: `trireme flight FILE...`: the flight records of a job's ranks, merged: who parted from the others, and
 * where.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/command.h"
#include "comm/flight_read.h"
#include "comm/run.h"

#define ROWS_DEFAULT  8
#define ROWS_MAX      1024
#define RANKS_PRINTED 16

typedef struct flight_flags {
    const char *json, *last;
} flight_flags;

static flight_flags given;
static const tri_flag flags[] = {
    {"--json", NULL, "one JSON object", &given.json},
    {"--last", "N", "operations to show, the divergence at the end (8)", &given.last},
};

typedef struct flight_view {
    tri_flight_record *records; /* [count], by rank */
    size_t count;
    tri_flight_merge merge;
    int64_t rows;
} flight_view;

static void describe(const tri_board_call *call, char text[192])
{
    tri_call_describe_as(&call->frame, call->name, text);
}

static const char *state_of(const tri_board_call *call)
{
    if (!call)
        return "never began";
    if (call->runs)
        return "running";
    return call->status == TRI_OK ? "ok" : "failed";
}

/* The rank whose failure the others report; its own record says most. */
static const tri_flight_record *cause_find(const flight_view *view)
{
    const tri_flight_record *first = &view->records[0];
    for (size_t i = 0; i < view->count; i++) {
        if (view->records[i].origin == view->records[i].rank)
            return &view->records[i];
        if (view->records[i].written_ns < first->written_ns)
            first = &view->records[i];
    }
    return first;
}

static bool has_record(const flight_view *view, int rank)
{
    for (size_t i = 0; i < view->count; i++) {
        if (view->records[i].rank == rank)
            return true;
    }
    return false;
}

/* "1, 2 and 5 more": ranks without a record. */
static void missing_print(const flight_view *view, char *text, size_t capacity)
{
    size_t used = 0;
    int more = 0, shown = 0;
    text[0] = 0;
    for (int rank = 0; rank < view->records[0].world; rank++) {
        if (has_record(view, rank))
            continue;
        if (shown++ >= RANKS_PRINTED || used + 12 >= capacity) {
            more++;
            continue;
        }
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", used ? ", " : "", rank);
    }
    if (more > 0 && used < capacity)
        snprintf(text + used, capacity - used, " and %d more", more);
}

/* ---- the verdict */

static void verdict_print(const flight_view *view, char *text, size_t capacity)
{
    const tri_flight_merge *merge = &view->merge;
    const tri_flight_record *late = merge->late >= 0 ? &view->records[merge->late] : NULL;
    const tri_board_call *latest = late ? tri_flight_latest(late) : NULL, *other = NULL;
    char mine[192] = "", theirs[192] = "", missing[128];
    missing_print(view, missing, sizeof(missing));
    switch (merge->kind) {
    case TRI_DIVERGENCE_DIFFERENT:
        for (size_t i = 0; i < view->count && !other; i++) {
            const tri_board_call *call = tri_flight_find(&view->records[i], merge->group, merge->sequence);
            if (call && (int)i != merge->late)
                other = call;
            if (other)
                describe(other, theirs);
        }
        describe(tri_flight_find(late, merge->group, merge->sequence), mine);
        snprintf(text, capacity, "rank %d called %s where others called %s", late->rank, mine, theirs);
        break;
    case TRI_DIVERGENCE_NEVER_BEGAN:
        if (latest)
            describe(latest, mine);
        snprintf(text, capacity,
                 "rank %d never came to call #%" PRIu64 " of group %08" PRIx32 "; its latest is %s (%s)", late->rank,
                 merge->sequence, merge->group, mine[0] ? mine : "none", state_of(latest));
        break;
    case TRI_DIVERGENCE_NEVER_ENDED:
        describe(tri_flight_find(late, merge->group, merge->sequence), mine);
        if (missing[0])
            snprintf(text, capacity, "all ranks that left a record came to %s and did not get through: look at rank %s",
                     mine, missing);
        else
            snprintf(text, capacity, "all ranks came to %s, rank %d last, and did not get through", mine, late->rank);
        break;
    default:
        snprintf(text, capacity, "all ranks agree in every call of these records");
        break;
    }
}

/* ---- for people */

static void row_print(const flight_view *view, uint64_t sequence)
{
    const tri_board_call *one = NULL;
    int64_t first_ns = INT64_MAX;
    char what[192];
    for (size_t i = 0; i < view->count; i++) {
        const tri_board_call *call = tri_flight_find(&view->records[i], view->merge.group, sequence);
        one = one ? one : call;
        if (call && call->begin_ns < first_ns)
            first_ns = call->begin_ns;
    }
    if (!one)
        return;
    describe(one, what);
    printf("%s\n", what);
    for (size_t i = 0; i < view->count && i < RANKS_PRINTED; i++) {
        const tri_board_call *call = tri_flight_find(&view->records[i], view->merge.group, sequence);
        bool member =
            call || tri_flight_is_member(view->records, view->count, view->merge.group, view->records[i].rank);
        if (!member)
            continue;
        printf("  rank %-4d %-11s", view->records[i].rank, state_of(call));
        if (call)
            printf(" began +%.3f ms", (double)(call->begin_ns - first_ns) * 1e-6);
        if (call && !call->runs)
            printf(", took %.3f ms", (double)(call->end_ns - call->begin_ns) * 1e-6);
        if (call && !tri_frame_agrees(&call->frame, &one->frame)) {
            describe(call, what);
            printf("  called %s", what);
        }
        putchar('\n');
    }
    if (view->count > RANKS_PRINTED)
        printf("  and %zu more ranks\n", view->count - RANKS_PRINTED);
}

/* The group to show: of the divergence, else of the latest call. */
static void rows_choose(flight_view *view, uint64_t *from, uint64_t *to)
{
    *to = view->merge.sequence;
    if (view->merge.kind == TRI_DIVERGENCE_NONE) {
        const tri_board_call *latest = tri_flight_latest(&view->records[0]);
        view->merge.group = latest ? latest->frame.group : 0;
        *to = latest && latest->frame.op != TRI_COMM_SEND_RECV ? latest->frame.sequence : 0;
    }
    *from = *to > (uint64_t)view->rows ? *to - (uint64_t)view->rows + 1 : 1;
}

static void print_text(flight_view *view)
{
    const tri_flight_record *cause = cause_find(view);
    char text[1024];
    uint64_t from, to;
    printf("job %s: %zu of %d ranks left a record\n", view->records[0].job, view->count, view->records[0].world);
    missing_print(view, text, sizeof(text));
    if (text[0])
        printf("no record  of rank %s\n", text);
    printf("cause      (rank %d, %s) %s\n", cause->rank, cause->host, cause->cause);
    verdict_print(view, text, sizeof(text));
    printf("verdict    %s\n\n", text);
    rows_choose(view, &from, &to);
    printf("latest operations of group %08" PRIx32 ":\n", view->merge.group);
    for (uint64_t sequence = from; sequence <= to && to > 0; sequence++)
        row_print(view, sequence);
}

/* ---- for programs */

static void json_call(tri_json *list, const flight_view *view, size_t index)
{
    const tri_flight_record *record = &view->records[index];
    const tri_board_call *call = tri_flight_find(record, view->merge.group, view->merge.sequence);
    char what[192] = "";
    if (call)
        describe(call, what);
    tri_json one = tri_json_object_in(list, NULL);
    tri_json_int(&one, "rank", record->rank);
    tri_json_text(&one, "call", what);
    tri_json_text(&one, "state", state_of(call));
    if (call)
        tri_json_real(&one, "late_ms", (double)(call->begin_ns - view->merge.first_ns) * 1e-6);
    tri_json_end(&one); /* the failure stays in the list */
}

static tri_status print_json(const flight_view *view)
{
    tri_string text = {0};
    char verdict[1024];
    tri_json json = tri_json_object(&text);
    tri_json_text(&json, "job", view->records[0].job);
    tri_json_int(&json, "world", view->records[0].world);
    tri_json list = tri_json_array_in(&json, "records");
    for (size_t i = 0; i < view->count; i++) {
        const tri_flight_record *record = &view->records[i];
        tri_json one = tri_json_object_in(&list, NULL);
        tri_json_int(&one, "rank", record->rank);
        tri_json_text(&one, "host", record->host);
        tri_json_text(&one, "status", tri_status_name(record->status));
        tri_json_int(&one, "origin", record->origin);
        tri_json_text(&one, "cause", record->cause);
        tri_json_int(&one, "calls", record->calls);
        tri_json_end(&one);
    }
    tri_json_end(&list);
    list = tri_json_array_in(&json, "missing");
    for (int rank = 0; rank < view->records[0].world; rank++) {
        if (!has_record(view, rank))
            tri_json_int(&list, NULL, rank);
    }
    tri_json_end(&list);
    tri_json_text(&json, "divergence", tri_divergence_name(view->merge.kind));
    if (view->merge.kind != TRI_DIVERGENCE_NONE) {
        tri_json_int(&json, "group", view->merge.group);
        tri_json_int(&json, "sequence", (int64_t)view->merge.sequence);
        list = tri_json_array_in(&json, "calls");
        for (size_t i = 0; i < view->count; i++)
            json_call(&list, view, i);
        tri_json_end(&list);
    }
    verdict_print(view, verdict, sizeof(verdict));
    tri_json_text(&json, "verdict", verdict);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

static int rank_order(const void *a, const void *b)
{
    return ((const tri_flight_record *)a)->rank - ((const tri_flight_record *)b)->rank;
}

static tri_status flight_run(int count, char **paths)
{
    flight_view view = {.rows = ROWS_DEFAULT};
    tri_status status = TRI_OK;
    if (given.last)
        TRI_TRY(tri_flag_int("--last", given.last, 1, ROWS_MAX, &view.rows));
    view.records = tri_alloc_zero((size_t)count, sizeof(*view.records));
    if (!view.records)
        return TRI_ENOMEM;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        status = tri_flight_load(paths[i], &view.records[i]);
        view.count += status == TRI_OK;
    }
    qsort(view.records, view.count, sizeof(*view.records), rank_order);
    if (status == TRI_OK)
        status = tri_flight_merge_find(view.records, view.count, &view.merge);
    if (status == TRI_OK && given.json)
        status = print_json(&view);
    else if (status == TRI_OK)
        print_text(&view);
    for (size_t i = 0; i < view.count; i++)
        tri_flight_fini(&view.records[i]);
    tri_free(view.records);
    return status;
}

static const tri_command *own_command(void)
{
    const tri_command *command = tri_commands;
    while (command->run != cmd_flight)
        command++;
    return command;
}

int cmd_flight(int argc, char **argv)
{
    int count;
    tri_status status = tri_flags_parse(own_command(), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED)
        return 0;
    if (status == TRI_OK && count == 0)
        status = tri_fail(TRI_ECONFIG, "flight: want the records that ranks left (trireme flight --help)");
    if (status == TRI_OK)
        status = flight_run(count, argv);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
