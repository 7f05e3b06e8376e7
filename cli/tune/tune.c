/* SPDX-License-Identifier: Apache-2.0
 *
 * tune.c: `trireme tune`: trials of a sweep, side by side, until there are no more; and `trireme tune report`.
 *
 * Which trial is next is decided in every turn from the trials as they are in the database, so a sweep that was
 * killed continues by being started again.
 */
#include "cli/tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "tune/schedule.h"
#include "tune/suggest.h"

#define TURN_NS (50 * TRI_NS_PER_MS)

static struct {
    const char *out, *ask, *json;
} given;
static const tri_flag flags[] = {
    {"--out", "FOLDER",
     "where trials and their database are (default: runs/NAME of the sweep's file); one that is "
     "there continues",
     &given.out},
    {"--ask-tell", NULL, "another program says what is tried: JSON lines on standard input and output (docs/tune.md)",
     &given.ask},
    {"--json", NULL, "one JSON object a line for each end of a trial; of report: one object", &given.json},
};

static int print_help(void)
{
    tri_string text = {0};
    tri_flags_help(tri_command_of(cmd_tune), flags, TRI_COUNT_OF(flags));
    tri_status status = tri_options_help(&tri_tune_options, &text);
    printf(
        "\nThe file of a sweep has, without 'tune.':\n\n%s\n"
        "  space: {section.key: {log: [1e-4, 1]}, ...}   uniform, log, int, log_int: [low, high]; choice: [values];\n"
        "                                                points: N of a grid; when: {an earlier one: values}\n"
        "  set: {section.key: value, ...}                of all trials\n",
        tri_string_text(&text));
    tri_string_fini(&text);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}

/* --- what people see --- */

static void tell_json(const tri_trial *trial, const tri_trial_point *last)
{
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_int(&json, "trial", trial->number);
    tri_json_text(&json, "state", tri_trial_state_text(trial->state));
    tri_json_int(&json, "step", last ? last->step : 0);
    tri_json_real(&json, "value", last ? last->value : (double)NAN);
    if (trial->error[0])
        tri_json_text(&json, "error", trial->error);
    if (tri_json_end(&json) == TRI_OK)
        puts(tri_string_text(&line));
    tri_string_fini(&line);
}

/* The end of a trial's process. */
static void tell(void *arg, const tri_trial *trial, const tri_trial_point *point)
{
    const tri_tune_work *work = arg;
    const tri_trial_point *last = tri_trial_last(trial);
    if (point)
        return;
    if (given.json) {
        tell_json(trial, last);
    } else {
        printf("trial %-4d %-8s", trial->number, tri_trial_state_text(trial->state));
        if (last)
            printf(" step %-7lld %s %-10.6g", (long long)last->step, tri_sweep_metric_word(work->sweep.tune.metric),
                   last->value);
        const tri_trial_param *params = trial->params.items;
        for (size_t i = 0; i < trial->params.count; i++)
            printf(" %s=%s", params[i].name, params[i].text);
        printf("%s%s\n", trial->error[0] ? "  " : "", trial->error);
    }
    fflush(stdout);
}

/* --- the loop --- */

/* Those that ran when an earlier tuner was killed, or asked to stop, continue first. */
static tri_status restart(tri_tune_work *work)
{
    for (int i = 0; i < tri_trials_count(&work->trials); i++) {
        tri_trial *trial = tri_trials_at(&work->trials, i);
        bool runs = false;
        if (trial->state != TRI_TRIAL_RUNNING)
            continue;
        for (int s = 0; s < work->tuner.slot_count; s++)
            runs = runs || work->tuner.slots[s].trial == trial;
        if (!runs && tri_tuner_has_room(&work->tuner))
            TRI_TRY(tri_tuner_start(&work->tuner, trial, trial->target));
    }
    return TRI_OK;
}

/* A trial that continues comes before a new one. *none: nothing is left to start now. */
static tri_status start_next(tri_tune_work *work, bool *none)
{
    int64_t target = tri_schedule_first(&work->sweep);
    const int count = tri_trials_count(&work->trials);
    const bool all = count >= work->sweep.tune.trials;
    tri_trial *next =
        tri_schedule_promote(&work->sweep, &work->trials, all && tri_tuner_is_idle(&work->tuner), &target);
    if (!next && !all)
        TRI_TRY(tri_suggest(&work->sweep, &work->trials, count, &next));
    *none = next == NULL;
    return next ? tri_tuner_start(&work->tuner, next, target) : TRI_OK;
}

static tri_status sweep_run(tri_tune_work *work)
{
    for (;;) {
        bool none = false;
        if (tri_stop_signal())
            return tri_fail(TRI_ECANCELED, "stopped by a signal; the same command continues");
        TRI_TRY(tri_tuner_turn(&work->tuner));
        TRI_TRY(restart(work));
        while (!none && tri_tuner_has_room(&work->tuner))
            TRI_TRY(start_next(work, &none));
        if (none && tri_tuner_is_idle(&work->tuner))
            return TRI_OK;
        tri_sleep_ns(TURN_NS);
    }
}

/* --- words --- */

/* "runs/cnn_asha" of "examples/tune/cnn_asha.yaml". */
static void folder_name(const char *path, char folder[1200])
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    const char *dot = strrchr(name, '.');
    snprintf(folder, 1200, "runs/%.*s", (int)(dot ? dot - name : (long)strlen(name)), name);
}

/* A copy of the sweep's file, for report and for those who read. */
static tri_status copy_keep(const tri_tune_work *work, const char *path)
{
    char copy[1300], *text;
    size_t nbytes;
    snprintf(copy, sizeof(copy), "%s/sweep.yaml", work->folder);
    TRI_TRY(tri_fs_read(path, 0, &text, &nbytes));
    tri_status status = tri_fs_write_atomic(copy, text, nbytes);
    tri_free(text);
    return status;
}

static tri_status work_run(tri_tune_work *work, const char *path)
{
    work->tuner =
        (tri_tuner){.sweep = &work->sweep, .trials = &work->trials, .folder = work->folder, .tell = tell, .arg = work};
    TRI_TRY_IN(tri_fs_make_folder(work->folder), "while making the folder of the sweep");
    if (!given.ask) /* before there is a database: what is wrong can be put right under the same name */
        TRI_TRY(tri_tuner_open(&work->tuner));
    TRI_TRY(tri_trials_open(work->folder, &work->sweep, false, &work->trials));
    TRI_TRY(copy_keep(work, path));
    if (given.ask)
        return tri_tune_ask(work);
    fprintf(stderr, "tune: %lld trials (%d known), %d at once, in %s\n", (long long)work->sweep.tune.trials,
            tri_trials_count(&work->trials), work->tuner.slot_count, work->folder);
    TRI_TRY(sweep_run(work));
    if (!given.json)
        TRI_TRY(tri_tune_report(work, false));
    if (tri_trials_count(&work->trials) > 0 && !tri_trials_best(&work->trials, &work->sweep))
        return tri_fail(TRI_EIO, "no trial came to a %s: %s/log has what each has said",
                        tri_sweep_metric_word(work->sweep.tune.metric), work->folder);
    return TRI_OK;
}

tri_status tri_tune_open(const char *folder, tri_tune_work *work)
{
    char path[1300];
    snprintf(work->folder, sizeof(work->folder), "%s", folder);
    snprintf(path, sizeof(path), "%s/sweep.yaml", folder);
    if (!tri_fs_exists(path))
        return tri_fail(TRI_ECONFIG, "%s: this is no folder of a sweep (it has no sweep.yaml)", folder);
    TRI_TRY(tri_sweep_load(path, true, &work->sweep));
    return tri_trials_open(work->folder, &work->sweep, true, &work->trials);
}

static tri_status report(tri_tune_work *work, int count, char **argv)
{
    if (count != 1 || given.ask || given.out)
        return tri_fail(TRI_ECONFIG, "trireme tune report: want the folder of one sweep");
    TRI_TRY(tri_tune_open(argv[0], work));
    return tri_tune_report(work, given.json != NULL);
}

static tri_status run(tri_tune_work *work, int count, char **argv)
{
    if (count > 0 && strcmp(argv[0], "report") == 0)
        return report(work, count - 1, argv + 1);
    if (count != 1)
        return tri_fail(TRI_ECONFIG, "want the file of one sweep, such as examples/tune/cnn_asha.yaml, got %d words",
                        count);
    if (given.out)
        snprintf(work->folder, sizeof(work->folder), "%s", given.out);
    else
        folder_name(argv[0], work->folder);
    TRI_TRY(tri_sweep_load(argv[0], given.ask != NULL, &work->sweep));
    return work_run(work, argv[0]);
}

int cmd_tune(int argc, char **argv)
{
    int count;
    tri_tune_work work = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help();
    tri_status status = tri_flags_parse(tri_command_of(cmd_tune), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status != TRI_OK)
        return tri_command_fail(status);
    tri_stop_catch();
    status = run(&work, count, argv);
    int code = status == TRI_OK ? 0 : tri_command_fail(status);
    tri_tuner_close(&work.tuner);
    tri_trials_close(&work.trials);
    tri_sweep_fini(&work.sweep);
    return code;
}
