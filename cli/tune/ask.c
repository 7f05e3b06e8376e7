/* SPDX-License-Identifier: Apache-2.0
 *
 * ask.c: `trireme tune --ask-tell`: one JSON object a line in and out (docs/tune.md).
 *
 * Two roles, which may be mixed: who asks gets options by the sweep's search, tries them and tells the values; who runs
 * gives options (or a trial it has asked for) and gets the values as the run goes. Answers to ask and tell come at
 * once and in order; lines about runs come when something happens.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/runtime.h"
#include "cli/tune/tune.h"
#include "tune/schedule.h"
#include "tune/suggest.h"

#define TURN_MS          50
#define LINE_MOST_NBYTES (1u << 20)

typedef struct queued {
    int number;
    int64_t steps;
} queued;

typedef struct asked {
    tri_tune_work *work;
    tri_string input;
    tri_vector queue; /* runs that wait for room */
    bool is_open;     /* the tuner */
    bool is_over;     /* no more lines */
} asked;

/* --- out --- */

static tri_status line_out(tri_json *json, tri_string *line)
{
    tri_status status = tri_json_end(json);
    if (status == TRI_OK && (puts(tri_string_text(line)) == EOF || fflush(stdout) != 0))
        status = tri_fail(TRI_EIO, "standard output: cannot be written");
    tri_string_fini(line);
    return status;
}

static tri_status answer_error(const char *message)
{
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_text(&json, "error", message);
    return line_out(&json, &line);
}

static tri_status answer_state(const tri_trial *trial)
{
    const tri_trial_point *last = tri_trial_last(trial);
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_int(&json, "trial", trial->number);
    tri_json_text(&json, "state", tri_trial_state_text(trial->state));
    if (trial->state != TRI_TRIAL_RUNNING && last) {
        tri_json_int(&json, "step", last->step);
        tri_json_real(&json, "value", last->value);
    }
    if (trial->error[0])
        tri_json_text(&json, "error", trial->error);
    return line_out(&json, &line);
}

/* Of the tuner; what cannot be written is seen at the next answer. */
static void tell(void *arg, const tri_trial *trial, const tri_trial_point *point)
{
    (void)arg;
    if (!point) {
        (void)answer_state(trial);
        return;
    }
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_int(&json, "trial", trial->number);
    tri_json_int(&json, "step", point->step);
    tri_json_real(&json, "value", point->value);
    (void)line_out(&json, &line);
}

/* --- in --- */

static int next_number(const tri_trials *trials)
{
    int next = 0;
    for (int i = 0; i < tri_trials_count(trials); i++)
        if (tri_trials_at(trials, i)->number >= next)
            next = tri_trials_at(trials, i)->number + 1;
    return next;
}

/* Options are there, and none of them were tried before. */
static tri_status ask(asked *at)
{
    tri_tune_work *work = at->work;
    tri_trial *trial;
    if (work->sweep.space.count == 0)
        return tri_fail(TRI_ECONFIG, "ask: the sweep has no space");
    TRI_TRY(tri_suggest(&work->sweep, &work->trials, next_number(&work->trials), &trial));
    if (!trial)
        return tri_fail(TRI_ENOTFOUND, "ask: the grid has no more points");
    trial->state = TRI_TRIAL_RUNNING;
    TRI_TRY(tri_trials_save(&work->trials, trial));
    const tri_trial_param *params = trial->params.items;
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_int(&json, "trial", trial->number);
    tri_json inner = tri_json_object_in(&json, "params");
    for (size_t i = 0; i < trial->params.count; i++)
        tri_json_text(&inner, params[i].name, params[i].text);
    (void)tri_json_end(&inner); /* the outer one has its failure */
    return line_out(&json, &line);
}

/* {"tell": N, "value": V}: its end; with "step": on its way. */
static tri_status values_take(asked *at, const json_t *object)
{
    tri_tune_work *work = at->work;
    const json_t *number = json_object_get(object, "tell"), *value = json_object_get(object, "value"),
                 *step = json_object_get(object, "step");
    tri_trial *trial = json_is_integer(number) ? tri_trials_find(&work->trials, (int)json_integer_value(number)) : NULL;
    if (!trial)
        return tri_fail(TRI_ECONFIG, "tell: want the number of a trial that was asked for");
    if (!json_is_number(value) && !json_is_null(value))
        return tri_fail(TRI_ECONFIG, "tell %d: want value, a number (or null: it failed)", trial->number);
    if (step && !(json_is_integer(step) && json_integer_value(step) > 0))
        return tri_fail(TRI_ECONFIG, "tell %d: step: want a whole number above 0", trial->number);
    const tri_trial_point *last = tri_trial_last(trial);
    const bool was_stopped = last && trial->state == TRI_TRIAL_STOPPED;
    int64_t after = last ? last->step + 1 : 1;
    if (step)
        after = json_integer_value(step);
    else if (was_stopped)
        after = last->step;
    else if (after < work->sweep.tune.steps)
        after = work->sweep.tune.steps;
    TRI_TRY(tri_trials_point_add(&work->trials, trial, after,
                                 json_is_number(value) ? json_number_value(value) : (double)NAN));
    if (!step) {
        trial->state = !json_is_number(value) ? TRI_TRIAL_FAILED : was_stopped ? TRI_TRIAL_STOPPED : TRI_TRIAL_DONE;
        trial->target = after;
        TRI_TRY(tri_trials_save(&work->trials, trial));
        return answer_state(trial);
    }
    const bool stops = tri_schedule_stops(&work->sweep, &work->trials, trial);
    const tri_trial_state state = stops ? TRI_TRIAL_STOPPED : TRI_TRIAL_RUNNING;
    if (trial->state != state) { /* what is said of it behind a stop is of that step */
        trial->state = state;
        TRI_TRY(tri_trials_save(&work->trials, trial));
    }
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_int(&json, "trial", trial->number);
    tri_json_int(&json, "step", after);
    tri_json_bool(&json, "stop", stops);
    return line_out(&json, &line);
}

/* As after section.key=. */
static tri_status param_take(const tri_sweep *sweep, tri_trial *trial, const char *name, const json_t *value)
{
    char number[64], *text = NULL;
    tri_status status;
    if (json_is_string(value))
        return tri_trial_param_add(trial, name, json_string_value(value));
    if (json_is_real(value))
        snprintf(number, sizeof(number), "%.17g", json_real_value(value));
    text = json_is_real(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    status = tri_trial_param_add(trial, name, text ? text : number);
    free(text);
    for (int r = 0; r < sweep->space.count && status == TRI_OK; r++)
        if (strcmp(sweep->space.rows[r].name, name) == 0)
            trial->units[r] = tri_space_unit(&sweep->space.rows[r],
                                             ((tri_trial_param *)trial->params.items)[trial->params.count - 1].text);
    return status;
}

static tri_status trial_of_run(asked *at, const json_t *object, tri_trial **trial)
{
    tri_trials *trials = &at->work->trials;
    const json_t *number = json_object_get(object, "run"), *params = json_object_get(object, "params"), *value;
    const char *name;
    if (!json_is_integer(number) && !json_is_true(number))
        return tri_fail(TRI_ECONFIG, "run: want the number of a trial, or true: a new one");
    int wanted = json_is_integer(number) ? (int)json_integer_value(number) : next_number(trials);
    *trial = tri_trials_find(trials, wanted);
    if (*trial && params)
        return tri_fail(TRI_ECONFIG, "run %d: its params are known already", wanted);
    if (*trial)
        return TRI_OK;
    if (!json_is_object(params) || wanted < 0 || wanted > 99999999)
        return tri_fail(TRI_ECONFIG, "run %d: there is no such trial yet: want params, {\"section.key\": value, ...}",
                        wanted);
    TRI_TRY(tri_trials_add(trials, wanted, trial));
    json_object_foreach((json_t *)(uintptr_t)params, name, value)
    {
        if (!strchr(name, '.') || strchr(name, '='))
            return tri_fail(TRI_ECONFIG, "run %d: params: want names of the form section.key, got '%.80s'", wanted,
                            name);
        TRI_TRY(param_take(&at->work->sweep, *trial, name, value));
    }
    return TRI_OK;
}

/* {"run": N, "params": {...}, "steps": S}. */
static tri_status ran(asked *at, const json_t *object)
{
    const json_t *steps = json_object_get(object, "steps");
    tri_tune_work *work = at->work;
    tri_trial *trial;
    if (!work->sweep.tune.config[0])
        return tri_fail(TRI_ECONFIG, "run: the sweep has no config");
    if (steps && !(json_is_integer(steps) && json_integer_value(steps) > 0))
        return tri_fail(TRI_ECONFIG, "run: steps: want a whole number above 0");
    if (!at->is_open) {
        work->tuner.tell = tell;
        TRI_TRY(tri_tuner_open(&work->tuner));
        at->is_open = true;
    }
    TRI_TRY(trial_of_run(at, object, &trial));
    for (int s = 0; s < work->tuner.slot_count; s++)
        if (work->tuner.slots[s].trial == trial)
            return tri_fail(TRI_ECONFIG, "run %d: it is running", trial->number);
    queued one = {trial->number, steps ? json_integer_value(steps) : work->sweep.tune.steps};
    TRI_TRY(tri_trials_save(&work->trials, trial));
    return tri_vector_push(&at->queue, &one) ? TRI_OK : TRI_ENOMEM;
}

static tri_status stopped(asked *at, const json_t *object)
{
    const json_t *number = json_object_get(object, "stop");
    tri_trial *trial =
        json_is_integer(number) ? tri_trials_find(&at->work->trials, (int)json_integer_value(number)) : NULL;
    if (!trial)
        return tri_fail(TRI_ECONFIG, "stop: want the number of a trial");
    for (size_t i = 0; i < at->queue.count; i++) {
        queued *one = tri_vector_at(&at->queue, i);
        if (one->number != trial->number)
            continue;
        memmove(one, one + 1, (at->queue.count - i - 1) * sizeof(*one));
        at->queue.count--;
        trial->state = TRI_TRIAL_STOPPED;
        TRI_TRY(tri_trials_save(&at->work->trials, trial));
        return answer_state(trial);
    }
    tri_tuner_stop(&at->work->tuner, trial); /* its end is reported; one that has ended was reported before */
    return TRI_OK;
}

/* A wrong line is reported, and the next one is read; what is wrong with the database ends it. */
static tri_status line_take(asked *at, const char *line, size_t nbytes)
{
    json_error_t error;
    json_t *object = json_loadb(line, nbytes, JSON_REJECT_DUPLICATES, &error);
    tri_status status;
    if (!json_is_object(object)) {
        char text[320];
        snprintf(text, sizeof(text), "want one JSON object a line: %s", object ? "this is none" : error.text);
        json_decref(object);
        return answer_error(text);
    }
    if (json_object_get(object, "ask"))
        status = ask(at);
    else if (json_object_get(object, "tell"))
        status = values_take(at, object);
    else if (json_object_get(object, "run"))
        status = ran(at, object);
    else if (json_object_get(object, "stop"))
        status = stopped(at, object);
    else
        status = tri_fail(TRI_ECONFIG, "want one of ask, tell, run, stop");
    json_decref(object);
    if (status == TRI_OK || tri_status_scope(status) != TRI_SCOPE_CALL || status == TRI_EIO)
        return status;
    return answer_error(tri_last_error());
}

static tri_status lines_take(asked *at)
{
    char bytes[65536], *end;
    ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got < 0)
        return errno == EINTR ? TRI_OK : tri_fail(TRI_EIO, "standard input: %s", strerror(errno));
    at->is_over = got == 0;
    if (at->is_over && at->input.nbytes > 0)
        TRI_TRY(tri_string_append(&at->input, "\n"));
    TRI_TRY(tri_string_append_bytes(&at->input, bytes, (size_t)got));
    char *start = at->input.text, *stop = at->input.text + at->input.nbytes;
    while (start < stop && (end = memchr(start, '\n', (size_t)(stop - start)))) {
        if (end > start)
            TRI_TRY(line_take(at, start, (size_t)(end - start)));
        start = end + 1;
    }
    if (!at->input.text)
        return TRI_OK;
    at->input.nbytes = (size_t)(stop - start);
    memmove(at->input.text, start, at->input.nbytes + 1);
    if (at->input.nbytes > LINE_MOST_NBYTES)
        return tri_fail(TRI_ECONFIG, "standard input: a line is longer than %u bytes", LINE_MOST_NBYTES);
    return TRI_OK;
}

static tri_status queue_start(asked *at)
{
    while (at->queue.count > 0 && tri_tuner_has_room(&at->work->tuner)) {
        queued *first = at->queue.items, one = *first;
        memmove(first, first + 1, --at->queue.count * sizeof(one));
        tri_trial *trial = tri_trials_find(&at->work->trials, one.number);
        trial->state = TRI_TRIAL_RUNNING;
        trial->error[0] = 0;
        TRI_TRY(answer_state(trial));
        TRI_TRY(tri_tuner_start(&at->work->tuner, trial, one.steps));
    }
    return TRI_OK;
}

static tri_status asked_run(asked *at)
{
    tri_tuner *tuner = &at->work->tuner;
    for (;;) {
        if (tri_stop_signal())
            return tri_fail(TRI_ECANCELED, "stopped by a signal");
        struct pollfd input = {.fd = at->is_over ? -1 : STDIN_FILENO, .events = POLLIN};
        if (poll(&input, 1, TURN_MS) > 0)
            TRI_TRY(lines_take(at));
        if (at->is_open)
            TRI_TRY(tri_tuner_turn(tuner));
        TRI_TRY(queue_start(at));
        if (at->is_over && at->queue.count == 0 && tri_tuner_is_idle(tuner))
            return TRI_OK;
    }
}

tri_status tri_tune_ask(tri_tune_work *work)
{
    asked at = {.work = work, .queue = {.each = sizeof(queued)}};
    tri_status status = asked_run(&at);
    tri_string_fini(&at.input);
    tri_vector_fini(&at.queue);
    return status;
}
