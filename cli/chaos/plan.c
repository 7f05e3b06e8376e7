/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: which fault when, against whom, for how long: drawn from a seed, or read from a file; the same text either
 * way, so that what was drawn can be kept, cut down and played again.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/rng.h"
#include "cli/chaos/chaos.h"

#define PLAN_MOST 1000000

int chaos_kind_find(const char *name, size_t nbytes)
{
    for (int i = 0; i < CHAOS_KINDS; i++)
        if (strlen(chaos_kinds[i].name) == nbytes && memcmp(chaos_kinds[i].name, name, nbytes) == 0)
            return i;
    return -1;
}

static tri_status kind_unknown(const char *where, const char *name, size_t nbytes)
{
    char names[256] = "";
    for (int i = 0; i < CHAOS_KINDS; i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i ? ", " : "", chaos_kinds[i].name);
    return tri_fail(TRI_ECONFIG, "%s: want faults among %s, got '%.*s'", where, names, (int)nbytes, name);
}

static tri_status kinds_read(const char *text, int kinds[CHAOS_KINDS], uint64_t *count)
{
    *count = 0;
    for (const char *at = text;;) {
        size_t nbytes = strcspn(at, ",");
        int kind = chaos_kind_find(at, nbytes);
        if (kind < 0)
            return kind_unknown("--faults", at, nbytes);
        if (*count == CHAOS_KINDS)
            return tri_fail(TRI_ECONFIG, "--faults: want each fault once, got '%s'", text);
        kinds[(*count)++] = kind;
        if (!at[nbytes])
            return TRI_OK;
        at += nbytes + 1;
    }
}

tri_status chaos_plan_draw(const char *faults, uint64_t seed, double for_s, double every_s, chaos_plan *plan)
{
    tri_rng rng = {seed, tri_rng_stream("chaos", 0, 0)};
    int kinds[CHAOS_KINDS];
    uint64_t count, number = 0;
    *plan = (chaos_plan){.events = {.each = sizeof(chaos_event)}, .for_s = for_s};
    TRI_TRY(kinds_read(faults, kinds, &count));
    for (double at_s = 0;;) {
        at_s += every_s * (0.5 + (double)tri_rng_uniform(rng, number++));
        if (at_s >= for_s)
            return TRI_OK;
        chaos_event event = {.at_s = round(at_s * 1000) / 1000, .rank = -1};
        event.kind = kinds[tri_rng_below(rng, number++, count)];
        event.draw = (uint32_t)tri_rng_below(rng, number++, 1000);
        const chaos_kind *kind = &chaos_kinds[event.kind];
        double span = kind->most_s - kind->least_s;
        event.for_s = round(1000 * (kind->least_s + span * (double)tri_rng_uniform(rng, number++))) / 1000;
        if (plan->events.count == PLAN_MOST)
            return tri_fail(TRI_ECONFIG, "want at most %d faults, got more (--for, --every)", PLAN_MOST);
        if (!tri_vector_push(&plan->events, &event))
            return TRI_ENOMEM;
    }
}

static bool number_read(const char *word, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(word, &end);
    return end != word && *end == 0 && errno == 0 && isfinite(*value) && *value >= 0 && *value < 1e9;
}

/* "2" or "#17". */
static bool whom_read(const char *word, chaos_event *event)
{
    char *end;
    bool drawn = word[0] == '#';
    errno = 0;
    unsigned long value = strtoul(word + drawn, &end, 10);
    if (word[drawn] < '0' || word[drawn] > '9' || *end || errno || value > INT32_MAX)
        return false;
    event->rank = drawn ? -1 : (int64_t)value;
    event->draw = (uint32_t)value;
    return true;
}

static tri_status line_read(const char *where, int number, char *line, chaos_plan *plan)
{
    char *words[5], *rest = NULL;
    int count = 0;
    chaos_event event = {.line = number};
    for (char *word = strtok_r(line, " \t\r", &rest); word && count < 5; word = strtok_r(NULL, " \t\r", &rest))
        words[count++] = word;
    if (count == 0 || words[0][0] == '#') /* a remark */
        return TRI_OK;
    if (count < 3 || count > 4 || !number_read(words[0], &event.at_s) || !whom_read(words[2], &event) ||
        (count == 4 && !number_read(words[3], &event.for_s)))
        return tri_fail(TRI_ECONFIG, "%s: want 'SECONDS FAULT RANK [SECONDS]', RANK a number or #NUMBER, got '%s%s%s'",
                        where, words[0], count > 1 ? " " : "", count > 1 ? words[1] : "");
    event.kind = chaos_kind_find(words[1], strlen(words[1]));
    if (event.kind < 0)
        return kind_unknown(where, words[1], strlen(words[1]));
    const chaos_kind *kind = &chaos_kinds[event.kind];
    if ((kind->most_s > 0) != (count == 4))
        return tri_fail(TRI_ECONFIG, "%s: %s %s", where, kind->name,
                        count == 4 ? "takes no time: want no fourth word" : "lasts: want its seconds as fourth word");
    return tri_vector_push(&plan->events, &event) ? TRI_OK : TRI_ENOMEM;
}

static int event_order(const void *a, const void *b)
{
    const chaos_event *left = a, *right = b;
    int by_time = (left->at_s > right->at_s) - (left->at_s < right->at_s);
    return by_time != 0 ? by_time : left->line - right->line;
}

tri_status chaos_plan_read(const char *path, chaos_plan *plan)
{
    char *text, *rest = NULL, where[320];
    tri_status status = TRI_OK;
    int number = 0;
    *plan = (chaos_plan){.events = {.each = sizeof(chaos_event)}};
    TRI_TRY(tri_fs_read(path, 64u << 20, &text, NULL));
    for (char *line = text; line && status == TRI_OK; line = rest) {
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = 0;
        snprintf(where, sizeof(where), "%.240s:%d", path, ++number);
        status = line_read(where, number, line, plan);
    }
    tri_free(text);
    if (status == TRI_OK && plan->events.count == 0)
        status = tri_fail(TRI_ECONFIG, "%s: holds no fault", path);
    if (status != TRI_OK)
        return status;
    chaos_event *events = plan->events.items;
    qsort(events, plan->events.count, sizeof(*events), event_order);
    for (size_t i = 0; i < plan->events.count; i++) {
        double end_s = events[i].at_s + events[i].for_s;
        plan->for_s = end_s > plan->for_s ? end_s : plan->for_s;
    }
    return TRI_OK;
}

tri_status chaos_plan_print(const chaos_plan *plan, tri_string *text)
{
    const chaos_event *events = plan->events.items;
    for (size_t i = 0; i < plan->events.count; i++) {
        const chaos_event *event = &events[i];
        TRI_TRY(tri_string_appendf(text, "%.3f %s %s%lld", event->at_s, chaos_kinds[event->kind].name,
                                   event->rank < 0 ? "#" : "",
                                   (long long)(event->rank < 0 ? event->draw : event->rank)));
        TRI_TRY(event->for_s > 0 ? tri_string_appendf(text, " %.3f\n", event->for_s) : tri_string_append(text, "\n"));
    }
    return TRI_OK;
}

void chaos_plan_fini(chaos_plan *plan)
{
    tri_vector_fini(&plan->events);
}
