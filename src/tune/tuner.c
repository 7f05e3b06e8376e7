/* SPDX-License-Identifier: Apache-2.0
 *
 * tuner.c: starts, watches and ends the processes of trials.
 */
#include "tune/tuner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "checkpoint/checkpoint.h"
#include "plan/measure.h"
#include "train/core/card.h"
#include "train/core/job.h"
#include "train/core/plan.h"
#include "tune/schedule.h"

#define MEMORY_SHARE  0.8
#define STEP_POINTS   20 /* of a trial, where the metric is that of each step */
#define GRACE_NS      (20 * TRI_NS_PER_S)
#define TURN_NS       (50 * TRI_NS_PER_MS)
#define LOG_LIMIT     (64u << 20)
#define WORDS_MOST    (TRI_SPACE_MAX + 1024)
#define STOPPED_CODES 129 /* 128 + the signal: SIGHUP's and up */

void tri_tuner_run_folder(const char *folder, int number, char path[1300])
{
    snprintf(path, 1300, "%s/trial-%04d", folder, number);
}

/* --- what a trial may take --- */

/* `set`, then the middle of each row of the space. */
static tri_status middle_words(const tri_sweep *sweep, tri_arena *arena, const char **words)
{
    int count = 0;
    char text[1024];
    while (sweep->set[count] && count < 1000) {
        words[count] = sweep->set[count];
        count++;
    }
    for (int r = 0; r < sweep->space.count; r++) {
        tri_space_value(&sweep->space.rows[r], 0.5, text);
        words[count] = tri_arena_format(arena, "%s=%s", sweep->space.rows[r].name, text);
        if (!words[count++])
            return TRI_ENOMEM;
    }
    words[count] = NULL;
    return TRI_OK;
}

/* What a worker takes of a card besides its arrays, about: the driver's context, modules, the library's workspace. */
#define CONTEXT_NBYTES ((double)((size_t)512 << 20))

/* Trials that the cards have room for, whose workers take turns with them. */
static double card_slots_of(const tri_device_room *room, const tri_job_memory *memory, int workers)
{
    if (room->cards == 0)
        return INFINITY;
    if (!memory->card) /* layouts that trials choose: it is not known what they need */
        return fmax(1, room->cards / workers);
    const double each = CONTEXT_NBYTES + (double)tri_job_memory_nbytes(memory);
    return floor((double)room->free_nbytes * TRI_CARD_SHARE / each) * room->cards / workers;
}

/* slots: that cards have room for; infinite: there are none. */
static tri_status memory_find(const tri_sweep *sweep, const char *const *words, double *nbytes, double *slots,
                              int *cards)
{
    tri_device_room room = {0};
    tri_config config = {0};
    tri_job_memory memory;
    const int workers = (int)sweep->tune.workers;
    tri_status status = tri_config_load(sweep->config, NULL, words, &config);
    if (status == TRI_OK && config.batch_auto)
        status = tri_batch_fit(&config, workers);
    if (status == TRI_OK)
        status = tri_config_check(&config, workers);
    if (status == TRI_OK)
        status = tri_config_model_find(&config);
    if (status == TRI_OK && !config.model)
        status = tri_fail(TRI_ECONFIG, "%s: model: want a name or layers", sweep->config);
    if (status == TRI_OK && config.parallel.layout != TRI_LAYOUT_AUTO)
        status = tri_job_memory_plan(&config, workers, &memory);
    else
        memory = (tri_job_memory){0};
    if (status == TRI_OK)
        *nbytes = workers * (double)tri_job_memory_host(&memory);
    if (status == TRI_OK)
        status = tri_card_room(&config, &room);
    *slots = card_slots_of(&room, &memory, workers);
    *cards = room.cards;
    tri_config_fini(&config);
    return status;
}

/* As many as have cores of their own, and memory. */
static int slots_find(const tri_tuner *tuner, double nbytes, double card_slots)
{
    const tri_tune_config *tune = &tuner->sweep->tune;
    if (tune->parallel > 0)
        return (int)tune->parallel;
    double most = fmin((double)tuner->cpu_count / (double)(tune->workers * tune->threads), card_slots);
    if (tune->memory_mib > 0)
        nbytes = (double)tune->memory_mib * (1 << 20);
    if (nbytes > 0)
        most = fmin(most, MEMORY_SHARE * tri_plan_host_memory(1) / nbytes);
    return most >= 1 ? (int)fmin(most, 4096) : 1;
}

tri_status tri_tuner_open(tri_tuner *tuner)
{
    tri_arena arena = {0};
    const char **words = tri_alloc_zero(WORDS_MOST + 1, sizeof(*words));
    double nbytes = 0, card_slots = INFINITY;
    char path[1300];
    if (!words)
        return TRI_ENOMEM;
    tri_status status = middle_words(tuner->sweep, &arena, words);
    if (status == TRI_OK &&
        (status = memory_find(tuner->sweep, words, &nbytes, &card_slots, &tuner->card_count)) != TRI_OK)
        status = tri_fail_context(status, "the configuration with the middle of the space");
    tri_arena_fini(&arena);
    tri_free(words);
    TRI_TRY(status);
    TRI_TRY(tri_child_cores(&tuner->cpus, &tuner->cpu_count));
    tuner->slot_count = slots_find(tuner, nbytes, card_slots);
    snprintf(path, sizeof(path), "%s/log", tuner->folder);
    TRI_TRY(tri_fs_make_folder(path));
    tuner->slots = tri_alloc_zero((size_t)tuner->slot_count, sizeof(*tuner->slots));
    return tuner->slots ? TRI_OK : TRI_ENOMEM;
}

/* --- one trial --- */

static tri_tuner_slot *slot_free(const tri_tuner *tuner)
{
    for (int i = 0; i < tuner->slot_count; i++)
        if (!tuner->slots[i].trial)
            return &tuner->slots[i];
    return NULL;
}

bool tri_tuner_has_room(const tri_tuner *tuner)
{
    return slot_free(tuner) != NULL;
}

bool tri_tuner_is_idle(const tri_tuner *tuner)
{
    for (int i = 0; i < tuner->slot_count; i++)
        if (tuner->slots[i].trial)
            return false;
    return true;
}

typedef struct seen_by {
    tri_tuner *tuner;
    tri_tuner_slot *slot;
} seen_by;

/* Of the values of each step a few are kept. */
static bool is_kept(const tri_sweep *sweep, const tri_trial *trial, int64_t done)
{
    const int64_t every = trial->target / STEP_POINTS > 0 ? trial->target / STEP_POINTS : 1;
    return !sweep->each_step || done % every == 0 || done == trial->target;
}

/* NaN: this line says nothing of the metric, or nothing that is kept. */
static double value_find(const tri_sweep *sweep, tri_tuner_slot *slot, const tri_metrics_line *line, int64_t done)
{
    const bool is_step = !isnan(tri_metrics_line_real(line, "samples_per_s"));
    slot->steps = slot->steps || is_step;
    if (is_step && sweep->wants_pace)
        slot->status = tri_pace_add(&slot->pace, line);
    if (done < 1 || slot->status != TRI_OK || !is_kept(sweep, slot->trial, done))
        return NAN;
    if (sweep->wants_pace)
        return is_step ? tri_pace_median(&slot->pace) : NAN;
    return tri_metrics_line_real(line, tri_sweep_metric_word(sweep->tune.metric));
}

static void line_seen(void *arg, const tri_metrics_line *line)
{
    const seen_by *by = arg;
    tri_trial *trial = by->slot->trial;
    const tri_sweep *sweep = by->tuner->sweep;
    if (by->slot->status != TRI_OK)
        return;
    const int64_t done = tri_metrics_line_step(line) + 1; /* lines count steps from 0 */
    const double value = value_find(sweep, by->slot, line, done);
    const size_t before = trial->points.count;
    if (!isnan(value))
        by->slot->status = tri_trials_point_add(by->tuner->trials, trial, done, value);
    if (by->slot->status != TRI_OK || trial->points.count == before)
        return;
    by->tuner->tell(by->tuner->arg, trial, tri_trial_last(trial));
    if (sweep->tune.schedule == TRI_SWEEP_MEDIAN && !by->slot->stops && done != trial->target &&
        by->slot->child.pid > 0 && tri_schedule_stops(sweep, by->tuner->trials, trial))
        tri_tuner_stop(by->tuner, trial);
}

static tri_status points_read(tri_tuner *tuner, tri_tuner_slot *slot)
{
    seen_by by = {tuner, slot};
    TRI_TRY(tri_metrics_read(&slot->reader, line_seen, &by));
    return slot->status;
}

/* A trial that has its steps, or that was stopped, is over; one on a rung may be continued. */
static void state_find(const tri_tuner *tuner, tri_tuner_slot *slot)
{
    tri_trial *trial = slot->trial;
    const tri_trial_point *last = tri_trial_last(trial);
    const int64_t whole = tuner->sweep->tune.steps;
    trial->error[0] = 0;
    if (slot->stops && (!last || last->step != trial->target)) {
        trial->state = TRI_TRIAL_STOPPED;
        return;
    }
    if (!last || (trial->target > 0 && last->step < trial->target)) {
        trial->state = TRI_TRIAL_FAILED;
        snprintf(trial->error, sizeof(trial->error), "its last %s is of step %lld, want one of step %lld: %s",
                 tri_sweep_metric_word(tuner->sweep->tune.metric), last ? (long long)last->step : 0LL,
                 (long long)trial->target,
                 trial->target > 0 ? "train.epochs are over before" : "the run evaluates nothing");
        return;
    }
    trial->state = trial->target == 0 || trial->target >= whole ? TRI_TRIAL_DONE : TRI_TRIAL_WAITING;
}

/* The last line of its log that begins with "error: ". */
static void error_find(const tri_tuner *tuner, tri_trial *trial, int code)
{
    char path[1400], *text = NULL;
    size_t nbytes;
    const char *found = NULL;
    snprintf(path, sizeof(path), "%s/log/trial-%04d.log", tuner->folder, trial->number);
    if (tri_fs_read(path, LOG_LIMIT, &text, &nbytes) == TRI_OK)
        for (const char *at = text; (at = strstr(at, "error: ")); at++)
            if (at == text || at[-1] == '\n')
                found = at + strlen("error: ");
    if (found)
        snprintf(trial->error, sizeof(trial->error), "%.*s", (int)strcspn(found, "\n"), found);
    else
        snprintf(trial->error, sizeof(trial->error), "ended with exit code %d (%.300s)", code, path);
    tri_free(text);
    trial->state = TRI_TRIAL_FAILED;
}

static tri_status slot_end(tri_tuner *tuner, tri_tuner_slot *slot, int code)
{
    tri_trial *trial = slot->trial;
    trial->seconds += (double)(tri_now_ns() - slot->start_ns) / 1e9;
    if (code == 0 || (slot->stops && code >= STOPPED_CODES))
        state_find(tuner, slot);
    else
        error_find(tuner, trial, code);
    tuner->failures = trial->state == TRI_TRIAL_FAILED && !slot->steps ? tuner->failures + 1 : 0;
    slot->trial = NULL;
    tri_pace_fini(&slot->pace);
    TRI_TRY(tri_trials_save(tuner->trials, trial));
    tuner->tell(tuner->arg, trial, NULL);
    if (tuner->failures < tuner->sweep->tune.failures)
        return TRI_OK;
    return tri_fail(TRI_EIO, "%d trials one after the other made no step (failures); the last, %d: %s", tuner->failures,
                    trial->number, trial->error);
}

/* The words of a new run, or of one that continues. Texts are the arena's. */
static tri_status words_make(const tri_tuner *tuner, const tri_trial *trial, const char *run, bool resumes,
                             tri_arena *arena, char **words)
{
    const tri_tune_config *tune = &tuner->sweep->tune;
    const tri_trial_param *params = trial->params.items;
    int count = 0;
#define WORD(...) words[count++] = tri_arena_format(arena, __VA_ARGS__)
    WORD("trireme");
    WORD("train");
    if (resumes)
        WORD("--resume");
    else {
        WORD("%s", tuner->sweep->config);
        WORD("--out");
    }
    WORD("%s", run);
    WORD("-n");
    WORD("%lld", (long long)tune->workers);
    if (!resumes)
        WORD("checkpoint.keep=1");
    for (int i = 0; !resumes && tuner->sweep->set[i] && i < 1000; i++)
        WORD("%s", tuner->sweep->set[i]);
    for (size_t i = 0; !resumes && i < trial->params.count && i < 1000; i++)
        WORD("%s=%s", params[i].name, params[i].text);
    WORD("train.threads=%lld", (long long)tune->threads);
    if (trial->target > 0)
        WORD("train.steps=%lld", (long long)trial->target);
#undef WORD
    for (int i = 0; i < count; i++)
        if (!words[i])
            return TRI_ENOMEM;
    words[count] = NULL;
    return TRI_OK;
}

/* A run that was begun and has a whole checkpoint continues; any other starts again. */
static tri_status process_start(tri_tuner *tuner, tri_tuner_slot *slot, const char *run)
{
    char *words[2100], path[1400], cards[TRI_CHILD_CARDS_NBYTES], *checkpoint = NULL;
    tri_arena arena = {0};
    const tri_tune_config *tune = &tuner->sweep->tune;
    const int cores = (int)(tune->workers * tune->threads), place = (int)(slot - tuner->slots);
    const bool own = (int64_t)tuner->slot_count * cores <= tuner->cpu_count;
    snprintf(path, sizeof(path), "%s/checkpoints", run);
    tri_string skipped = {0};
    tri_status status = tri_checkpoint_newest(path, &checkpoint, &skipped);
    const bool resumes = status == TRI_OK;
    tri_string_fini(&skipped);
    tri_free(checkpoint);
    if (status == TRI_ENOTFOUND)
        status = tri_fs_remove(run);
    if (status == TRI_OK)
        status = words_make(tuner, slot->trial, run, resumes, &arena, words);
    snprintf(path, sizeof(path), "%s/log/trial-%04d.log", tuner->folder, slot->trial->number);
    if (tuner->card_count > 1)
        tri_child_cards((int)(place * tune->workers % tuner->card_count), tuner->card_count, cards, sizeof(cards));
    tri_child_setup setup = {.argv = words,
                             .program = NULL,
                             .output = path,
                             .threads = (int)tune->threads,
                             .cpus = own ? tuner->cpus + place * cores : NULL,
                             .cpu_count = own ? cores : 0,
                             .cards = tuner->card_count > 1 ? cards : NULL};
    if (status == TRI_OK)
        status = tri_child_start(&setup, &slot->child);
    tri_arena_fini(&arena);
    return status;
}

tri_status tri_tuner_start(tri_tuner *tuner, tri_trial *trial, int64_t target)
{
    tri_tuner_slot *slot = slot_free(tuner);
    char run[1300];
    TRI_ASSERT(slot);
    *slot = (tri_tuner_slot){.trial = trial, .start_ns = tri_now_ns()};
    tri_tuner_run_folder(tuner->folder, trial->number, run);
    snprintf(slot->reader.path, sizeof(slot->reader.path), "%.1150s/metrics.jsonl", run);
    trial->state = TRI_TRIAL_RUNNING;
    trial->target = target;
    TRI_TRY(tri_trials_save(tuner->trials, trial));
    TRI_TRY(points_read(tuner, slot));
    const tri_trial_point *last = tri_trial_last(trial);
    if (target > 0 && last && last->step >= target) /* it had come there when the tuner was killed */
        return slot_end(tuner, slot, 0);
    return process_start(tuner, slot, run);
}

void tri_tuner_stop(tri_tuner *tuner, const tri_trial *trial)
{
    for (int i = 0; i < tuner->slot_count; i++) {
        if (tuner->slots[i].trial != trial || tuner->slots[i].stops)
            continue;
        tuner->slots[i].stops = true;
        tri_child_ask_to_stop(&tuner->slots[i].child);
    }
}

tri_status tri_tuner_turn(tri_tuner *tuner)
{
    for (int i = 0; i < tuner->slot_count; i++) {
        tri_tuner_slot *slot = &tuner->slots[i];
        int code;
        if (!slot->trial)
            continue;
        const bool ended = tri_child_has_ended(&slot->child, &code); /* first: what it wrote is there then */
        TRI_TRY(points_read(tuner, slot));
        if (ended)
            TRI_TRY(slot_end(tuner, slot, code));
    }
    return TRI_OK;
}

void tri_tuner_close(tri_tuner *tuner)
{
    const int64_t limit_ns = tri_now_ns() + GRACE_NS;
    int left = tuner->slots ? tuner->slot_count : 0, code;
    for (int i = 0; i < left; i++)
        tri_child_ask_to_stop(&tuner->slots[i].child);
    for (bool runs = left > 0; runs && tri_now_ns() < limit_ns;) {
        runs = false;
        for (int i = 0; i < left; i++)
            runs = (tuner->slots[i].child.pid > 0 && !tri_child_has_ended(&tuner->slots[i].child, &code)) || runs;
        if (runs)
            tri_sleep_ns(TURN_NS);
    }
    for (int i = 0; i < left; i++)
        tri_child_kill(&tuner->slots[i].child);
    for (int i = 0; i < left; i++)
        tri_pace_fini(&tuner->slots[i].pace);
    tri_free(tuner->slots);
    tri_free(tuner->cpus);
    tuner->slots = NULL;
    tuner->cpus = NULL;
}
