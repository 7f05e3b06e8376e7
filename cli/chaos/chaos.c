/* SPDX-License-Identifier: Apache-2.0
 *
 * chaos.c: `trireme chaos`: plays a plan of faults against a job that runs, and tells what the job made of each.
 *
 * One loop, which wakes each half a millisecond: looks how far the job is, ends faults whose time is over, begins those
 * that are due. What it has begun it undoes, also when it is asked to stop, or when nobody reads any more what it
 * tells.
 */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/chaos/chaos.h"
#include "cli/command.h"

#define LOOP_NS    (TRI_NS_PER_MS / 2)
#define LATE_NS    (10 * TRI_NS_PER_S)    /* that a fault waits for a worker whom it may strike */
#define GONE_NS    (3 * TRI_NS_PER_S)     /* without any worker: the job has ended */
#define SETTLED_NS (1500 * TRI_NS_PER_MS) /* a worker that does not say how far it is takes part by then */
#define NEAR_STEPS 2
#define FLIP_STEPS 3 /* that no other worker makes any more while one is stopped */

typedef struct chaos_flags {
    const char *seed, *for_s, *every_s, *faults, *schedule, *limit_s, *dry_run, *json;
} chaos_flags;

static chaos_flags given;
static const tri_flag flags[] = {
    {"--faults", "LIST", "which, such as kill,stop,slow (the default), drawn evenly", &given.faults},
    {"--for", "SECONDS", "how long faults begin (default 60)", &given.for_s},
    {"--every", "SECONDS", "between two faults, on average: from a half to one and a half of it (default 2)",
     &given.every_s},
    {"--seed", "N", "of the schedule: the same seed and words give the same one (default 1)", &given.seed},
    {"--schedule", "FILE", "plays this schedule; one line a fault: SECONDS FAULT WORKER [SECONDS]", &given.schedule},
    {"--limit", "SECONDS", "a job that makes no step for so long hangs: exit code 1 (default 60)", &given.limit_s},
    {"--dry-run", NULL, "print the schedule and stop; it is what --schedule reads", &given.dry_run},
    {"--json", NULL, "one JSON object at the end", &given.json},
};

/* A play of a plan. */
typedef struct chaos_play {
    chaos_job job;
    chaos_plan plan;
    tri_vector strikes;
    size_t due;     /* first event that has not begun */
    size_t printed; /* first strike whose line is not printed */
    int64_t seed, left_out;
    int64_t start_ns, limit_ns, gone_ns;
    double flips_at_s; /* the moment of the latest flips of one moment, and the step before which they happen */
    int64_t flips_step;
    int64_t first_step, step, step_ns; /* the newest, and when it was seen */
    int64_t gap_ns, gap_at_ns;         /* the longest time without one, and when it began */
    bool ended, unheard;               /* unheard: nobody reads what it tells */
} chaos_play;

static chaos_strike *strike_at(chaos_play *play, size_t i)
{
    return tri_vector_at(&play->strikes, i);
}

static double seconds_of(int64_t ns)
{
    return (double)ns / 1e9;
}

static chaos_worker *worker_of(chaos_play *play, pid_t pid)
{
    chaos_worker *workers = play->job.workers.items;
    for (size_t i = 0; i < play->job.workers.count; i++)
        if (workers[i].pid == pid)
            return &workers[i];
    return NULL;
}

/* --- how far the job is --- */

static void strike_tell(chaos_play *play, const chaos_strike *strike)
{
    char after[80] = "no step after it", lasting[32] = "", whom[32];
    if (given.json)
        return;
    if (strike->flip_step > play->step)
        snprintf(after, sizeof(after), "did not happen: the job has not come to step %" PRId64, strike->flip_step);
    if (strike->next_ns >= 0)
        snprintf(after, sizeof(after), "next step after %.0f ms", (double)strike->next_ns / 1e6);
    if (strike->event.for_s > 0)
        snprintf(lasting, sizeof(lasting), "for %.2f s", strike->event.for_s);
    snprintf(whom, sizeof(whom), "worker %d (%ld)", strike->rank, (long)strike->pid);
    printf("%9.3f s  %-9s  %-20s  %-11s  %s\n", seconds_of(strike->began_ns - play->start_ns),
           chaos_kinds[strike->event.kind].name, whom, lasting, after);
    fflush(stdout);
}

static void left_out_tell(chaos_play *play, const chaos_event *event, const char *why)
{
    play->left_out++;
    if (given.json)
        return;
    printf("%9.3f s  %-9s  left out: %s\n", seconds_of(tri_now_ns() - play->start_ns), chaos_kinds[event->kind].name,
           why);
    fflush(stdout);
}

static void steps_look(chaos_play *play)
{
    int64_t step = chaos_job_step(&play->job), now_ns = tri_now_ns();
    if (play->job.workers.count > 0)
        play->gone_ns = now_ns;
    if (step > play->step) {
        if (now_ns - play->step_ns > play->gap_ns && play->step >= 0) {
            play->gap_ns = now_ns - play->step_ns;
            play->gap_at_ns = play->step_ns;
        }
        play->step = step;
        play->step_ns = now_ns;
    }
    for (size_t i = play->printed; i < play->strikes.count; i++) {
        chaos_strike *strike = strike_at(play, i);
        if (strike->next_ns < 0 && step > strike->step && step > strike->flip_step)
            strike->next_ns = now_ns - strike->began_ns;
    }
    for (; play->printed < play->strikes.count && strike_at(play, play->printed)->next_ns >= 0; play->printed++)
        strike_tell(play, strike_at(play, play->printed));
}

/* --- strikes --- */

/* Takes part, nothing ails it, and the fault can be had there. */
static bool is_settled(const chaos_play *play, const chaos_worker *worker, const chaos_kind *kind)
{
    return worker->struck == 0 && (worker->page || !kind->page) &&
           (worker->page ? atomic_load(&worker->page->step) + NEAR_STEPS >= play->job.step
                         : tri_now_ns() - worker->since_ns >= SETTLED_NS);
}

/* Whom an event strikes: NULL: nobody now, since too few would be left. */
static chaos_worker *victim_find(chaos_play *play, const chaos_event *event)
{
    const chaos_kind *kind = &chaos_kinds[event->kind];
    chaos_worker *workers = play->job.workers.items, *first = NULL;
    uint32_t settled = 0, number = 0;
    for (size_t i = 0; i < play->job.workers.count; i++) {
        settled += is_settled(play, &workers[i], kind);
        if (workers[i].rank == event->rank && !first)
            first = &workers[i];
    }
    if ((int)settled < kind->workers)
        return NULL;
    for (size_t i = 0; i < play->job.workers.count && event->rank < 0; i++)
        if (is_settled(play, &workers[i], kind) && number++ == event->draw % settled)
            return &workers[i];
    return first && is_settled(play, first, kind) ? first : NULL;
}

static bool is_flip(const chaos_event *event)
{
    return strcmp(chaos_kinds[event->kind].name, "corrupt") == 0;
}

static bool are_flips_of_one_moment(const chaos_event *a, const chaos_event *b)
{
    return is_flip(a) && is_flip(b) && a->at_s == b->at_s;
}

/* Flips of one moment happen before the same step, which nobody has begun if a worker is stopped; others at once. */
static int64_t flip_step(chaos_play *play, const chaos_event *event)
{
    const chaos_event *first = play->plan.events.items, *end = first + play->plan.events.count;
    bool with_last = event > first && are_flips_of_one_moment(event - 1, event);
    bool with_next = event + 1 < end && are_flips_of_one_moment(event, event + 1);
    if (!with_last && !with_next)
        return 0;
    if (play->flips_step == 0 || play->flips_at_s != event->at_s) {
        play->flips_at_s = event->at_s;
        play->flips_step = play->job.step + FLIP_STEPS;
    }
    return play->flips_step;
}

static tri_status strike_begin(chaos_play *play, const chaos_event *event, chaos_worker *worker)
{
    const chaos_kind *kind = &chaos_kinds[event->kind];
    int64_t now_ns = tri_now_ns();
    chaos_strike *strike = tri_vector_push(&play->strikes, NULL);
    if (!strike)
        return TRI_ENOMEM;
    *strike = (chaos_strike){.event = *event,
                             .job = &play->job,
                             .rank = worker->rank,
                             .pid = worker->pid,
                             .began_ns = now_ns,
                             .ends_ns = now_ns + (int64_t)(event->for_s * 1e9),
                             .next_ns = -1};
    strike->step = chaos_job_step(&play->job);
    strike->flip_step = flip_step(play, event);
    worker = worker_of(play, strike->pid); /* it may have moved, or gone */
    tri_status status = worker ? kind->begin(strike, worker) : TRI_ENOTFOUND;
    if (status != TRI_OK) {
        play->strikes.count--;
        return status;
    }
    strike->lasts = event->for_s > 0;
    worker->struck += strike->lasts;
    play->job.looked_ns = 0; /* it may be gone */
    return TRI_OK;
}

static void strike_end(chaos_play *play, chaos_strike *strike)
{
    const chaos_kind *kind = &chaos_kinds[strike->event.kind];
    chaos_worker *worker = worker_of(play, strike->pid);
    strike->lasts = false;
    if (kind->end)
        kind->end(strike, worker);
    if (worker)
        worker->struck--;
}

/* Ends what is over (all: everything), and gives the others their turn. */
static void strikes_go_on(chaos_play *play, bool all)
{
    int64_t now_ns = tri_now_ns();
    for (size_t i = 0; i < play->strikes.count; i++) {
        chaos_strike *strike = strike_at(play, i);
        const chaos_kind *kind = &chaos_kinds[strike->event.kind];
        chaos_worker *worker = strike->lasts ? worker_of(play, strike->pid) : NULL;
        if (strike->lasts && (all || now_ns >= strike->ends_ns))
            strike_end(play, strike);
        else if (worker && kind->turn && now_ns >= strike->turn_ns)
            kind->turn(strike, worker);
    }
}

static bool has_flip_to_come(const chaos_worker *worker, const chaos_event *event)
{
    return worker && is_flip(event) && atomic_load(&worker->page->flip) != 0;
}

/* Events wait for each other: their order is that of the plan. */
static tri_status events_begin(chaos_play *play)
{
    const chaos_event *events = play->plan.events.items;
    while (play->due < play->plan.events.count) {
        const chaos_event *event = &events[play->due];
        int64_t late_ns = tri_now_ns() - play->start_ns - (int64_t)(event->at_s * 1e9);
        chaos_worker *worker = late_ns >= 0 ? victim_find(play, event) : NULL;
        if ((!worker && late_ns < LATE_NS) || has_flip_to_come(worker, event))
            return TRI_OK;
        tri_status status = worker ? strike_begin(play, event, worker) : TRI_ENOTFOUND;
        if (status != TRI_OK && status != TRI_ENOTFOUND)
            return status;
        if (status != TRI_OK)
            left_out_tell(play, event, worker ? tri_last_error() : "for 10 s no worker was fit for it");
        play->due++;
    }
    return TRI_OK;
}

/* --- the play --- */

static bool is_asked_to_end(chaos_play *play)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    play->unheard = play->unheard || (poll(&out, 1, 0) == 1 && (out.revents & POLLERR));
    return play->unheard || tri_stop_signal();
}

static bool is_over(chaos_play *play)
{
    int64_t now_ns = tri_now_ns();
    bool all_begun = play->due == play->plan.events.count;
    play->ended = now_ns - play->gone_ns > GONE_NS;
    if (play->ended || is_asked_to_end(play) || now_ns - play->step_ns > play->limit_ns)
        return true;
    for (size_t i = 0; i < play->strikes.count; i++)
        if (strike_at(play, i)->lasts)
            return false;
    return all_begun && play->printed == play->strikes.count &&
           now_ns - play->start_ns >= (int64_t)(play->plan.for_s * 1e9);
}

static tri_status play_run(chaos_play *play)
{
    tri_status status = TRI_OK;
    tri_stop_catch(); /* nothing may end this process before its faults are undone */
    play->start_ns = play->step_ns = play->gone_ns = tri_now_ns();
    play->first_step = play->step = chaos_job_step(&play->job);
    for (;;) {
        steps_look(play); /* just before it is judged: this program may have had no core for a while */
        if (status != TRI_OK || is_over(play))
            break;
        strikes_go_on(play, false);
        status = events_begin(play);
        tri_sleep_ns(LOOP_NS);
    }
    strikes_go_on(play, true);
    for (; play->printed < play->strikes.count; play->printed++)
        strike_tell(play, strike_at(play, play->printed));
    return status;
}

/* --- output --- */

static bool hangs(const chaos_play *play)
{
    return !play->ended && !play->unheard && !tri_stop_signal() && tri_now_ns() - play->step_ns > play->limit_ns;
}

static const char *verdict(const chaos_play *play)
{
    return hangs(play) ? "the job makes no step any more" : play->ended ? "the job has ended" : "the job continues";
}

static void summary_print(chaos_play *play)
{
    int64_t counts[CHAOS_KINDS] = {0};
    const char *comma = "";
    for (size_t i = 0; i < play->strikes.count; i++)
        counts[strike_at(play, i)->event.kind]++;
    printf("%zu faults in %.1f s (", play->strikes.count, seconds_of(tri_now_ns() - play->start_ns));
    for (int i = 0; i < CHAOS_KINDS; i++) {
        if (counts[i] > 0)
            printf("%s%s %" PRId64, comma, chaos_kinds[i].name, counts[i]);
        comma = counts[i] > 0 ? ", " : comma;
    }
    printf("), %" PRId64 " left out; %" PRId64 " steps, the longest time without one %.3f s (at %.3f s); %s\n",
           play->left_out + (int64_t)(play->plan.events.count - play->due), play->step - play->first_step,
           seconds_of(play->gap_ns), seconds_of(play->gap_ns ? play->gap_at_ns - play->start_ns : 0), verdict(play));
}

static void strike_json(tri_json *list, const chaos_play *play, const chaos_strike *strike)
{
    tri_json one = tri_json_object_in(list, NULL);
    tri_json_real(&one, "planned_s", strike->event.at_s);
    tri_json_real(&one, "at_s", seconds_of(strike->began_ns - play->start_ns));
    tri_json_text(&one, "fault", chaos_kinds[strike->event.kind].name);
    tri_json_int(&one, "worker", strike->rank);
    tri_json_int(&one, "pid", strike->pid);
    tri_json_real(&one, "for_s", strike->event.for_s);
    tri_json_int(&one, "step", strike->step);
    tri_json_real(&one, "next_step_s", strike->next_ns >= 0 ? seconds_of(strike->next_ns) : (double)NAN);
    tri_json_end(&one);
}

static tri_status summary_json(chaos_play *play)
{
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json_text(&json, "run", play->job.folder);
    tri_json_int(&json, "seed", play->seed);
    tri_json_real(&json, "seconds", seconds_of(tri_now_ns() - play->start_ns));
    tri_json_int(&json, "steps", play->step - play->first_step);
    tri_json_int(&json, "left_out", play->left_out + (int64_t)(play->plan.events.count - play->due));
    tri_json_real(&json, "longest_gap_s", seconds_of(play->gap_ns));
    tri_json_bool(&json, "ended", play->ended);
    tri_json_bool(&json, "hangs", hangs(play));
    tri_json list = tri_json_array_in(&json, "faults");
    for (size_t i = 0; i < play->strikes.count; i++)
        strike_json(&list, play, strike_at(play, i));
    tri_json_end(&list);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

/* --- the command --- */

static int print_help(void)
{
    if (!tri_flags_help(tri_command_of(cmd_chaos), flags, TRI_COUNT_OF(flags)))
        return 0;
    puts("\nFaults:\n");
    for (int i = 0; i < CHAOS_KINDS; i++) {
        const chaos_kind *kind = &chaos_kinds[i];
        printf("  %-10s %s%s%s%s\n", kind->name, kind->does,
               kind->workers > 2   ? "; while 3 workers are at work"
               : kind->workers > 1 ? "; while 2 are at work"
                                   : "",
               kind->page ? "; needs comm.chaos=on" : "", kind->root ? "; needs root" : "");
    }
    puts("\nRUN is the folder of a run, or the process id of its launcher. WORKER in a schedule is the number that a "
         "worker was\nstarted as, or #N: the N-th (modulo) of those that are at work then. Lines that begin with # are "
         "remarks.\n\nTry, in two terminals (docs/reliability.md has more):\n\n"
         "  trireme train run.yaml -n 4 --elastic 2:4 --restarts 1000 --out r comm.chaos=on\n"
         "  trireme chaos r --seed 7 --for 30 --faults kill,stop,corrupt,full-disk\n\n"
         "The run ends with the weights that it would have had without.");
    return 0;
}

static tri_status seconds_read(const char *flag, const char *text, double low, double *value)
{
    char *end;
    if (!text)
        return TRI_OK;
    *value = strtod(text, &end);
    if (end != text && strcmp(end, "s") == 0)
        end++;
    if (end == text || *end || !isfinite(*value) || *value < low || *value > 1e8)
        return tri_fail(TRI_ECONFIG, "%s: want seconds from %g to 1e8, got '%s'", flag, low, text);
    return TRI_OK;
}

static tri_status plan_find(chaos_play *play)
{
    double for_s = 60, every_s = 2, limit_s = 60;
    play->seed = 1;
    if (given.schedule && (given.faults || given.for_s || given.every_s || given.seed))
        return tri_fail(TRI_ECONFIG,
                        "--schedule says all that --faults, --for, --every and --seed would: want one or the other");
    TRI_TRY(seconds_read("--for", given.for_s, 0.1, &for_s));
    TRI_TRY(seconds_read("--every", given.every_s, 0.01, &every_s));
    TRI_TRY(seconds_read("--limit", given.limit_s, 0.1, &limit_s));
    if (given.seed)
        TRI_TRY(tri_flag_int("--seed", given.seed, 0, INT64_MAX, &play->seed));
    play->limit_ns = (int64_t)(limit_s * 1e9);
    if (given.schedule)
        return chaos_plan_read(given.schedule, &play->plan);
    return chaos_plan_draw(given.faults ? given.faults : "kill,stop,slow", (uint64_t)play->seed, for_s, every_s,
                           &play->plan);
}

static tri_status plan_show(const chaos_plan *plan)
{
    tri_string text = {0};
    tri_status status = chaos_plan_print(plan, &text);
    fputs(tri_string_text(&text), stdout);
    tri_string_fini(&text);
    return status;
}

static tri_status kinds_check(const chaos_play *play)
{
    bool seen[CHAOS_KINDS] = {false};
    const chaos_event *events = play->plan.events.items;
    for (size_t i = 0; i < play->plan.events.count; i++)
        seen[events[i].kind] = true;
    for (int i = 0; i < CHAOS_KINDS; i++)
        if (seen[i])
            TRI_TRY(chaos_kind_check(&chaos_kinds[i], &play->job));
    return TRI_OK;
}

static tri_status job_strike(chaos_play *play, const char *what)
{
    signal(SIGPIPE, SIG_IGN); /* of nft too: where it is not to be had, that shall be said */
    TRI_TRY(chaos_job_find(what, &play->job));
    TRI_TRY(kinds_check(play));
    if (!given.json)
        printf("%s: %zu workers, %zu faults in %.1f s\n", play->job.folder, play->job.workers.count,
               play->plan.events.count, play->plan.for_s);
    fflush(stdout);
    TRI_TRY(play_run(play));
    if (given.json)
        TRI_TRY(summary_json(play));
    else
        summary_print(play);
    return TRI_OK;
}

static int chaos_run(int count, char **argv)
{
    chaos_play play = {.strikes = {.each = sizeof(chaos_strike)}};
    tri_status status = plan_find(&play);
    if (status == TRI_OK && (given.dry_run ? count > 1 : count != 1))
        status =
            tri_fail(TRI_ECONFIG, "chaos: want one run: its folder, or the process id of its launcher, got %d", count);
    if (status == TRI_OK)
        status = given.dry_run ? plan_show(&play.plan) : job_strike(&play, argv[0]);
    int code = status != TRI_OK                 ? tri_command_fail(status)
               : play.unheard                   ? 128 + SIGPIPE
               : !given.dry_run && hangs(&play) ? 1
                                                : 0;
    chaos_job_close(&play.job);
    chaos_plan_fini(&play.plan);
    tri_vector_fini(&play.strikes);
    return code;
}

int cmd_chaos(int argc, char **argv)
{
    int count;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help();
    tri_status status = tri_flags_parse(tri_command_of(cmd_chaos), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    return status == TRI_OK ? chaos_run(count, argv) : tri_command_fail(status);
}
