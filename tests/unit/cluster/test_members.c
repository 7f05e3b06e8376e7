/* SPDX-License-Identifier: Apache-2.0
 *
 * test_members.c: generations of members in a simulation: processes that are killed and stopped at any request to the
 * store, and newcomers, while a made-up training goes on.
 *
 * The training is the promise in small: step s is done by all members of a generation or by none that goes on; what a
 * process holds after it is a function of what it held before. At the end all hold what one process would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "cluster/members_impl.h"
#include "cluster/members_text.h"

#define PROCESSES   256  /* of a run, at most */
#define GENERATIONS 2048 /* likewise */
#define STEPS       60
#define STEP_NS     (2 * TRI_NS_PER_MS)
#define SEEN_NS     (3 * TRI_NS_PER_MS)   /* until a death is seen */
#define STOP_NS     (300 * TRI_NS_PER_MS) /* until a stopped one is given up */

typedef struct process {
    struct run *run;
    tri_store store; /* ours, with hazards, over the run's */
    char id[TRI_MEMBER_NBYTES];
    int number;
    int64_t dies_ns, stops_ns, stop_ns; /* 0: not */
    int looks;                          /* after so many more it dies; 0: not */
    bool dead, ended, buried;
    int64_t dead_ns, stopped_ns; /* since when; 0: it runs */
    bool has_state;
    int64_t step;
    uint64_t state;
    int64_t generation; /* that it works in; others see when it has left one */
    tri_members *members;
    tri_thread *thread;
    bool finished; /* all steps */
} process;

/* What all ranks of a generation did together. */
typedef struct meeting {
    char *list; /* as the first that adopted it saw it */
    int formed; /* arrivals */
    int arrived[STEPS];
    uint64_t source_state;
    bool source_known;
} meeting;

typedef struct run {
    tri_store *store;
    int founders, least, most, restarts, kills, stops;
    int64_t step_ns; /* 0: STEP_NS */
    int64_t life_ns; /* nobody lives longer; 0: half of them live on */
    uint64_t seed, drawn;
    process processes[PROCESSES];
    int count;
    meeting meetings[GENERATIONS];
    int64_t newest;             /* generation that somebody worked in */
    uint64_t states[STEPS + 1]; /* after so many steps, as one process would have them */
    int begun_anew;
    int failures; /* of a check; fibers cannot leave by cmocka's way */
    const char *failed;
} run;

static void broke(run *all, const char *what)
{
    all->failures++;
    all->failed = all->failed ? all->failed : what;
}

static uint64_t mixed(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 1;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static uint64_t draw(run *all, uint64_t below)
{
    return mixed(all->seed, all->drawn++) % below;
}

/* --- a store between whose requests a process may die or stand still --- */

static bool hazard(process *p)
{
    int64_t now_ns;
    tri_sleep_ns((int64_t)draw(p->run, 400000));
    now_ns = tri_now_ns();
    if (p->stops_ns > 0 && now_ns >= p->stops_ns) {
        p->stopped_ns = now_ns;
        p->stops_ns = 0;
        tri_sleep_ns(p->stop_ns);
        p->stopped_ns = 0;
    }
    bool counted = p->looks > 0 && --p->looks == 0;
    if ((counted || (p->dies_ns > 0 && now_ns >= p->dies_ns)) && !p->dead) {
        p->dead = true;
        p->dead_ns = now_ns;
    }
    return p->dead;
}

#define GUARDED(p, call)                                                                                               \
    do {                                                                                                               \
        if (hazard(p))                                                                                                 \
            return TRI_EIO;                                                                                            \
        tri_status status_ = (call);                                                                                   \
        return hazard(p) ? TRI_EIO : status_;                                                                          \
    } while (0)

static process *of_store(tri_store *store)
{
    return tri_container_of(store, process, store);
}

static tri_status guarded_set(tri_store *store, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    process *p = of_store(store);
    GUARDED(p, tri_store_set(p->run->store, key, bytes, nbytes, deadline_ns));
}

static tri_status guarded_wait(tri_store *store, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    process *p = of_store(store);
    if (hazard(p))
        return TRI_EIO;
    tri_status status = tri_store_wait(p->run->store, key, bytes, nbytes, deadline_ns);
    if (!hazard(p))
        return status;
    if (status == TRI_OK)
        tri_free(*bytes);
    return TRI_EIO;
}

static tri_status guarded_add(tri_store *store, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    process *p = of_store(store);
    GUARDED(p, tri_store_add(p->run->store, key, amount, after, deadline_ns));
}

static tri_status guarded_raise(tri_store *store, const char *key, int64_t least, int64_t *after, int64_t deadline_ns)
{
    process *p = of_store(store);
    GUARDED(p, tri_store_raise(p->run->store, key, least, after, deadline_ns));
}

static tri_status guarded_remove(tri_store *store, const char *key, int64_t deadline_ns)
{
    process *p = of_store(store);
    GUARDED(p, tri_store_remove(p->run->store, key, deadline_ns));
}

static tri_status guarded_claim(tri_store *store, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                                size_t *nbytes, int64_t deadline_ns)
{
    process *p = of_store(store);
    if (hazard(p))
        return TRI_EIO;
    tri_status status = tri_store_claim(p->run->store, key, mine, mine_nbytes, bytes, nbytes, deadline_ns);
    if (!hazard(p))
        return status;
    if (status == TRI_OK)
        tri_free(*bytes);
    return TRI_EIO;
}

static const tri_store_ops guarded_ops = {.name = "guarded",
                                          .set = guarded_set,
                                          .wait = guarded_wait,
                                          .add = guarded_add,
                                          .raise = guarded_raise,
                                          .remove = guarded_remove,
                                          .claim = guarded_claim};

/* --- a generation's work --- */

static process *by_id(run *all, const char *id)
{
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->processes[i].id, id) == 0)
            return &all->processes[i];
    return NULL;
}

/* What the watch of a real one would say. */
static bool seems_lost(const process *other, int64_t generation)
{
    int64_t now_ns = tri_now_ns();
    return (other->dead && now_ns > other->dead_ns + SEEN_NS) ||
           (other->stopped_ns > 0 && now_ns > other->stopped_ns + STOP_NS) || other->generation > generation;
}

/* As its links: closed once it works in another generation; silent while it only looks for one. */
static bool is_lost(void *arg, int rank)
{
    process *p = arg;
    const tri_generation *now = tri_members_now(p->members);
    return seems_lost(by_id(p->run, now->members[rank].id), now->number);
}

static bool in_trouble(process *p)
{
    const tri_generation *now = tri_members_now(p->members);
    if (atomic_load(tri_members_broken(p->members)))
        return true;
    for (int r = 0; r < now->count; r++) {
        process *other = by_id(p->run, now->members[r].id);
        /* Whoever gives up tells the others. */
        if (r != tri_members_rank(p->members) && (seems_lost(other, now->number) || other->generation == -now->number))
            return true;
    }
    return false;
}

/* All members have come here, or the generation is over. */
static bool all_come(process *p, int *arrived)
{
    ++*arrived;
    while (*arrived < tri_members_now(p->members)->count) {
        if (hazard(p) || in_trouble(p))
            return false;
        tri_sleep_ns(TRI_NS_PER_MS / 4);
    }
    return !hazard(p);
}

static meeting *meeting_of(process *p)
{
    run *all = p->run;
    const tri_generation *now = tri_members_now(p->members);
    if (now->number >= GENERATIONS) {
        broke(all, "too many generations");
        return NULL;
    }
    meeting *at = &all->meetings[now->number];
    tri_string text = {0};
    for (int r = 0; r < now->count; r++)
        tri_string_appendf(&text, "%s %lld\n", now->members[r].id, (long long)now->members[r].progress);
    if (at->list && strcmp(at->list, tri_string_text(&text)) != 0)
        broke(all, "two lists of one generation");
    if (!at->list)
        at->list = tri_strdup(tri_string_text(&text));
    tri_string_fini(&text);
    if (now->count > all->most)
        broke(all, "too many members");
    return at;
}

/* Somebody had a state. */
static bool is_founded(const run *all)
{
    for (int i = 0; i < all->count; i++)
        if (all->processes[i].step > 0)
            return true;
    return false;
}

static void state_begin(process *p)
{
    run *all = p->run;
    int64_t number = tri_members_now(p->members)->number;
    const char *before = number > 1 ? all->meetings[number - 1].list : NULL;
    for (int i = 0; before && i < all->count; i++)
        if (all->processes[i].step > 0 && !all->processes[i].dead && strstr(before, all->processes[i].id))
            broke(all, "a state is thrown away");
    all->begun_anew += is_founded(all);
    p->step = 0;
    p->state = p->run->states[0];
}

/* Everybody has the newest state, or nothing was changed. */
static bool form(process *p, meeting *at)
{
    const tri_generation *now = tri_members_now(p->members);
    int64_t newest = -1;
    for (int r = 0; r < now->count; r++)
        newest = now->members[r].progress > newest ? now->members[r].progress : newest;
    if (p->has_state && p->step == newest) {
        at->source_state = p->state;
        at->source_known = true;
    }
    if (!all_come(p, &at->formed))
        return false;
    if (tri_members_rank(p->members) == 0 && tri_members_sweep(p->members, NULL, NULL, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        return false;
    if (newest < 0)
        state_begin(p);
    else if (!at->source_known)
        broke(p->run, "nobody has the state that the list tells of");
    else {
        p->step = newest;
        p->state = at->source_state;
    }
    p->has_state = true;
    return true;
}

static void train(process *p, meeting *at)
{
    while (p->step < STEPS && !tri_members_called(p->members)) {
        tri_sleep_ns(p->run->step_ns > 0 ? p->run->step_ns : STEP_NS);
        if (!all_come(p, &at->arrived[p->step]))
            return;
        p->state = mixed(p->state, (uint64_t)p->step);
        p->step++;
        if (p->state != p->run->states[p->step])
            broke(p->run, "another state than that of one process");
    }
    p->finished = p->step == STEPS;
}

static void process_run(void *arg)
{
    process *p = arg;
    run *all = p->run;
    tri_members_setup setup = {.store = &p->store,
                               .ear = all->store,
                               .id = p->id,
                               .host = "here",
                               .founders = all->founders,
                               .least = all->least,
                               .most = all->most,
                               .wait_ns = 5 * TRI_NS_PER_S};
    if (tri_members_open(&setup, &p->members) != TRI_OK)
        broke(all, "members cannot be opened");
    while (p->members && !p->dead && !p->finished) {
        tri_status status =
            tri_members_next(p->members, p->has_state ? p->step : -1, is_lost, p, tri_now_ns() + 100 * TRI_NS_PER_S);
        if (status != TRI_OK) {
            if (!p->dead && status != TRI_ECANCELED)
                broke(all, tri_last_error());
            break;
        }
        int64_t number = tri_members_now(p->members)->number;
        p->generation = number;
        all->newest = number > all->newest ? number : all->newest;
        meeting *at = meeting_of(p);
        if (!at)
            break;
        if (form(p, at))
            train(p, at);
        p->generation =
            p->dead || p->finished ? p->generation : -number; /* tells the others that it gives this one up */
    }
    if (p->finished && !p->dead)
        (void)tri_members_end(p->members, tri_now_ns() + TRI_NS_PER_S);
    tri_members_close(p->members);
    p->members = NULL;
    p->ended = true;
}

/* --- the launcher --- */

static void process_start(run *all, int number, int starts)
{
    process *p = &all->processes[all->count++];
    *p = (process){.run = all, .store = {.ops = &guarded_ops}, .number = number};
    snprintf(p->id, sizeof p->id, "%d.%d", number, starts);
    int64_t now_ns = tri_now_ns();
    int64_t life_ns = all->life_ns > 0 ? all->life_ns : 100 * TRI_NS_PER_MS;
    if (all->kills > 0 && (all->life_ns > 0 || draw(all, 2))) {
        all->kills--;
        p->dies_ns = now_ns + (int64_t)draw(all, (uint64_t)life_ns) + 1;
    }
    if (all->stops > 0 && draw(all, 3) == 0) {
        all->stops--;
        p->stops_ns = now_ns + (int64_t)draw(all, 100 * TRI_NS_PER_MS) + 1;
        p->stop_ns = (int64_t)draw(all, 900 * TRI_NS_PER_MS);
    }
    if (tri_thread_start(&p->thread, "process", process_run, p) != TRI_OK)
        broke(all, "no thread");
}

static void launcher_run(int index, void *arg)
{
    run *all = arg;
    int starts[64] = {0}, left = 1;
    (void)index;
    for (int i = 0; i < all->founders; i++)
        process_start(all, i, starts[i]++);
    while (left > 0) {
        left = 0;
        tri_sleep_ns(TRI_NS_PER_MS);
        for (int i = 0; i < all->count; i++) {
            process *p = &all->processes[i];
            left += !p->ended;
            if (!p->ended || p->buried)
                continue;
            p->buried = true;
            if (tri_members_bury(all->store, p->id, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
                broke(all, "a dead one cannot be told");
            if (p->dead && all->restarts > 0 && all->count < PROCESSES) {
                all->restarts--;
                left++;
                process_start(all, p->number, starts[p->number]++);
            }
        }
    }
    for (int i = 0; i < all->count; i++)
        tri_thread_join(all->processes[i].thread);
}

/* --- tests --- */

static run *seed_run(uint64_t seed, run settings)
{
    run *all = tri_alloc_zero(1, sizeof *all);
    assert_non_null(all);
    *all = settings;
    all->seed = seed;
    all->states[0] = 1;
    for (int s = 0; s < STEPS; s++)
        all->states[s + 1] = mixed(all->states[s], (uint64_t)s);
    assert_int_equal(tri_store_memory(&all->store), TRI_OK);
    tri_status status = tri_sim_run(&(tri_sim_config){.seed = seed, .stack_nbytes = 64 << 10}, 1, launcher_run, all);
    if (status != TRI_OK)
        broke(all, tri_last_error());
    if (all->failures > 0)
        print_message("seed %llu: %s (%d failures)\n", (unsigned long long)seed, all->failed, all->failures);
    assert_int_equal(all->failures, 0);
    return all;
}

static void run_free(run *all)
{
    tri_store_close(all->store);
    for (int g = 0; g < GENERATIONS; g++)
        tri_free(all->meetings[g].list);
    tri_free(all);
}

static int finishers(const run *all)
{
    int count = 0;
    for (int i = 0; i < all->count; i++)
        count += all->processes[i].finished && !all->processes[i].dead;
    return count;
}

static void a_quiet_run_has_one_generation(void **state)
{
    (void)state;
    run *all = seed_run(1, (run){.founders = 5, .least = 1, .most = 8});
    assert_int_equal(finishers(all), 5);
    assert_int_equal(all->newest, 1);
    run_free(all);
}

static int seeds_wanted(int otherwise)
{
    const char *text = getenv("TRI_SEEDS");
    return text ? atoi(text) : otherwise;
}

static void survivors_go_on_without_the_dead(void **state)
{
    (void)state;
    for (int seed = 1; seed <= seeds_wanted(300); seed++) {
        int founders = 2 + seed % 7;
        run *all = seed_run((uint64_t)seed, (run){.founders = founders, .least = 1, .most = 8, .kills = founders - 1});
        assert_true(finishers(all) >= 1);
        run_free(all);
    }
}

/* Faults of all kinds. */
static run *rough_run(int seed)
{
    int founders = 2 + seed % 7;
    run *all =
        seed_run((uint64_t)seed,
                 (run){.founders = founders, .least = 1, .most = founders, .kills = 10, .stops = 6, .restarts = 1000});
    assert_true(finishers(all) >= 1);
    return all;
}

static void the_dead_are_replaced_and_the_stopped_come_back(void **state)
{
    (void)state;
    int generations = 0, newcomers = 0, begun_anew = 0;
    for (int seed = 1; seed <= seeds_wanted(300); seed++) {
        run *all = rough_run(seed);
        generations += (int)all->newest;
        newcomers += all->count - all->founders;
        begun_anew += all->begun_anew > 0;
        run_free(all);
    }
    print_message("%d generations, %d newcomers, %d runs begun anew\n", generations, newcomers, begun_anew);
}

/* 251: a newcomer slept while the others came to the end, found all of them gone, and began the run anew. 791: one died
 * between its ticket and its name, and those after it waited for it for ever. */
static void what_was_found_once_stays_found(void **state)
{
    const int seeds[] = {251, 791};
    (void)state;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++)
        run_free(rough_run(seeds[i]));
}

/* --- the order of ranks --- */

static int named(tri_member *members, const char *names)
{
    int count = (int)strlen(names);
    for (int i = 0; i < count; i++)
        members[i] = (tri_member){.id = {names[i]}};
    return count;
}

static void order_check(const char *before, const char *given, const char *wanted)
{
    tri_member old[16], list[16];
    tri_generation generation = {.count = named(old, before), .members = old};
    int count = named(list, given);
    assert_int_equal(tri_members_spread(&generation, list, count), TRI_OK);
    for (int i = 0; i < count; i++)
        if (list[i].id[0] != wanted[i])
            fail_msg("%s, now %s: rank %d is %s, want %s", before, given, i, list[i].id, wanted);
}

/* Letters have been there, digits come. */
static void who_stays_keeps_its_place_and_newcomers_take_those_of_the_dead(void **state)
{
    (void)state;
    order_check("abcd", "abcd", "abcd");
    order_check("abcd", "abd", "abd");
    order_check("abcd", "acd1", "a1cd");
    order_check("abcd", "abc1", "abc1");
    order_check("abcd", "bcd1", "b1cd"); /* rank 0 has what a newcomer has not */
    order_check("abcd", "d123", "d123");
    order_check("abcd", "bd12", "b12d");
    order_check("abcd", "bd1", "b1d");
    order_check("abc", "abc1", "a1bc");
    order_check("abcd", "abcd1234", "a1b23c4d");
    order_check("ab", "ab1234", "a1234b");
    order_check("a", "a12", "a12");
    order_check("abcd", "1234", "1234");
    order_check("abcd", "ab1c", "ab1c"); /* c was given up, and has registered all the same */
    order_check("", "12", "12");
}

/* --- what is forgotten --- */

static bool is_kept(run *all, const char *key)
{
    char *text;
    size_t nbytes;
    bool there = tri_store_wait(all->store, key, &text, &nbytes, 0) == TRI_OK;
    if (there)
        tri_free(text);
    return there;
}

static int numbered_kept(run *all, const char *before, int count, const char *after)
{
    char key[96];
    int kept = 0;
    for (int i = 1; i <= count; i++) {
        snprintf(key, sizeof key, "%s%d%s", before, i, after);
        kept += is_kept(all, key);
    }
    return kept;
}

/* Ends that are told, and generations, with what they were made with. */
static int all_kept(run *all, int generations)
{
    char key[64];
    int kept = numbered_kept(all, "news/", 4 * PROCESSES, "") + numbered_kept(all, "gen/", generations, "") +
               numbered_kept(all, "gen/", generations, "/newcomers");
    for (int i = 0; i < all->count; i++) {
        snprintf(key, sizeof key, "gone/%s", all->processes[i].id);
        kept += is_kept(all, key);
    }
    for (int g = 1; g <= generations; g++) {
        snprintf(key, sizeof key, "gen/%d/new/", g);
        kept += numbered_kept(all, key, 20, "");
        for (int i = 0; i < all->count; i++) {
            snprintf(key, sizeof key, "gen/%d/in/%s", g, all->processes[i].id);
            kept += is_kept(all, key);
        }
    }
    return kept;
}

/* Somebody dies all the time, and comes back: what the store holds in the end is a matter of the last generations, not
 * of how many there were (it was 2.5 keys for each death). Whoever dies while it takes something away may leave it. */
static void a_store_holds_no_more_after_many_deaths(void **state)
{
    const run settings = {.founders = 4,
                          .least = 1,
                          .most = 4,
                          .step_ns = 40 * TRI_NS_PER_MS,
                          .life_ns = TRI_NS_PER_S,
                          .kills = 150,
                          .restarts = 1000};
    int born = 0;
    (void)state;
    for (int seed = 1; seed <= 20; seed++) {
        run one = settings;
        one.stops = seed % 2 ? 0 : 30;
        run *all = seed_run((uint64_t)seed, one);
        int kept = all_kept(all, (int)all->newest + 2);
        if (kept > 32)
            print_message("seed %d: %d generations of %d processes: %d keys\n", seed, (int)all->newest, all->count,
                          kept);
        assert_true(kept <= 32);
        born += all->count;
        run_free(all);
    }
    assert_true(born > 1000);
}

/* --- news --- */

#define REQUESTS 5 /* gone/<id>, news/count, news/<i>, news/oldest, news/count */

/* One dies after `looks` looks at the clock while it tells that 7.0 has ended; then the launcher tells of 1.0. */
static void news_run(int index, void *arg)
{
    run *all = arg;
    (void)index;
    process *teller = &all->processes[0];
    tri_members *listener = NULL;
    int64_t late_ns = tri_now_ns() + 2 * TRI_NS_PER_S;
    tri_members_setup setup = {
        .store = all->store, .ear = all->store, .id = "0.0", .host = "here", .founders = 2, .least = 1, .most = 2};
    if (tri_members_open(&setup, &listener) != TRI_OK)
        broke(all, "members cannot be opened");
    tri_status told = tri_members_bury(&teller->store, "7.0", late_ns);
    if (teller->dead != (told != TRI_OK))
        broke(all, "a request of a dead one was answered");
    if (tri_members_bury(all->store, "1.0", late_ns) != TRI_OK)
        broke(all, "news cannot be told");
    while (listener && !atomic_load(tri_members_broken(listener)) && tri_now_ns() < late_ns)
        tri_sleep_ns(TRI_NS_PER_MS);
    if (tri_now_ns() >= late_ns)
        broke(all, "what was told after somebody died is not heard");
    tri_members_close(listener);
}

static void who_dies_while_it_tells_news_makes_nobody_deaf(void **state)
{
    (void)state;
    for (int looks = 1; looks <= 2 * REQUESTS + 1; looks++) {
        run *all = tri_alloc_zero(1, sizeof *all);
        assert_non_null(all);
        all->processes[0] = (process){.run = all, .store = {.ops = &guarded_ops}, .looks = looks};
        assert_int_equal(tri_store_memory(&all->store), TRI_OK);
        assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, news_run, all), TRI_OK);
        if (all->failures > 0)
            print_message("dies at look %d: %s\n", looks, all->failed);
        assert_int_equal(all->failures, 0);
        assert_true(all->processes[0].dead == (looks <= 2 * REQUESTS));
        run_free(all);
    }
}

/* --- has a generation formed? --- */

#define ASKERS 3

static void generation_join(void *arg)
{
    process *p = arg;
    if (tri_members_next(p->members, 0, NULL, NULL, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(p->run, tri_last_error());
}

/* Those from `first` on are in generation `number`. */
static void generation_meet(run *all, int first, int64_t number)
{
    for (int i = first; i < ASKERS; i++)
        if (tri_thread_start(&all->processes[i].thread, "asker", generation_join, &all->processes[i]) != TRI_OK)
            broke(all, "no thread");
    for (int i = first; i < ASKERS; i++) {
        tri_thread_join(all->processes[i].thread);
        if (tri_members_now(all->processes[i].members)->number != number)
            broke(all, "another generation");
    }
}

static void word_check(process *p, bool word, bool wanted)
{
    bool stands = !wanted;
    if (tri_members_formed(p->members, word, &stands, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(p->run, tri_last_error());
    if (stands != wanted)
        broke(p->run, "one is told another word than that of the first who said one");
}

static void askers_open(run *all)
{
    process *p = all->processes;
    for (int i = 0; i < ASKERS; i++) {
        p[i] = (process){.run = all, .store = {.ops = &guarded_ops}, .number = i};
        snprintf(p[i].id, sizeof p[i].id, "%d.0", i);
        tri_members_setup setup = {.store = &p[i].store,
                                   .ear = all->store,
                                   .id = p[i].id,
                                   .host = "here",
                                   .founders = ASKERS,
                                   .least = 1,
                                   .most = ASKERS};
        if (tri_members_open(&setup, &p[i].members) != TRI_OK)
            broke(all, "members cannot be opened");
    }
}

/* 0.0 says yes, and dies before its word is there (looks 1), or before it is answered (2); the others say no, then, of
 * the next generation, 2.0 first. */
static void formed_run(int index, void *arg)
{
    run *all = arg;
    process *p = all->processes;
    bool stands = false;
    int looks = p[0].looks;
    (void)index;
    p[0].looks = 0;
    askers_open(all);
    generation_meet(all, 0, 1);
    p[0].looks = looks;
    tri_status told = tri_members_formed(p[0].members, true, &stands, tri_now_ns() + TRI_NS_PER_S);
    if (p[0].dead != (told != TRI_OK) || (!p[0].dead && !stands))
        broke(all, "the first who says a word is told that one");
    word_check(&p[1], false, looks != 1);
    word_check(&p[2], looks == 1, looks != 1);
    if (tri_members_bury(all->store, "0.0", tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(all, "a dead one cannot be told");
    generation_meet(all, 1, 2);
    word_check(&p[2], false, false);
    word_check(&p[1], true, false);
    for (int i = 0; i < ASKERS; i++)
        tri_members_close(p[i].members);
}

static void the_first_word_on_a_generation_is_everybodys(void **state)
{
    (void)state;
    for (int looks = 0; looks <= 2; looks++) {
        run *all = tri_alloc_zero(1, sizeof *all);
        assert_non_null(all);
        all->processes[0].looks = looks;
        assert_int_equal(tri_store_memory(&all->store), TRI_OK);
        assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, formed_run, all), TRI_OK);
        if (all->failures > 0)
            print_message("dies at look %d: %s\n", looks, all->failed);
        assert_int_equal(all->failures, 0);
        assert_true(all->processes[0].dead == (looks > 0));
        run_free(all);
    }
}

static void others_give_up(run *all, int64_t number)
{
    for (int i = 1; i < ASKERS; i++)
        tri_members_silence(all->processes[i].members, tri_now_ns() + 100 * TRI_NS_PER_MS);
    generation_meet(all, 1, number);
}

/* 0.0 is cut off so that what it says is heard and what it hears is nothing: it has registered for generation 2, which
 * cannot form, and its links tell nobody. Then it hears again. */
static void deaf_run(int index, void *arg)
{
    static const char registered[] = "0.0 here 0 -\n";
    const int ranks[ASKERS] = {1, 0, 2};
    run *all = arg;
    (void)index;
    askers_open(all);
    generation_meet(all, 0, 1);
    if (tri_store_set(all->store, "gen/2/in/0.0", registered, strlen(registered), tri_now_ns() + TRI_NS_PER_S) !=
        TRI_OK)
        broke(all, "nothing can be set");
    others_give_up(all, 2);
    others_give_up(all, 3);
    if (tri_members_now(all->processes[1].members)->count != 2)
        broke(all, "who did not register is in the generation");
    if (tri_thread_start(&all->processes[0].thread, "asker", generation_join, &all->processes[0]) != TRI_OK)
        broke(all, "no thread");
    tri_sleep_ns(200 * TRI_NS_PER_MS); /* it finds generation 2, and is done with it */
    generation_meet(all, 1, 4);
    tri_thread_join(all->processes[0].thread);
    for (int i = 0; i < ASKERS; i++) {
        if (tri_members_rank(all->processes[i].members) != ranks[i])
            broke(all, "who was given up is the newcomer");
        tri_members_close(all->processes[i].members);
    }
}

static void who_says_nothing_after_a_generation_did_not_form_is_done_without(void **state)
{
    (void)state;
    run *all = tri_alloc_zero(1, sizeof *all);
    assert_non_null(all);
    assert_int_equal(tri_store_memory(&all->store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, deaf_run, all), TRI_OK);
    if (all->failures > 0)
        print_message("%s\n", all->failed);
    assert_int_equal(all->failures, 0);
    run_free(all);
}

static void generation_sweep(process *p)
{
    if (tri_members_rank(p->members) != 0)
        broke(p->run, "another one is the first");
    if (tri_members_sweep(p->members, NULL, NULL, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(p->run, tri_last_error());
}

static bool all_are_lost(void *arg, int rank)
{
    (void)arg;
    (void)rank;
    return true;
}

static void late_join(void *arg)
{
    process *p = arg;
    if (tri_members_next(p->members, 0, all_are_lost, NULL, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(p->run, tri_last_error());
}

/* 0.0 stands still in generation 1 until there are three more, and 2 and 3 are forgotten. It takes itself for the last
 * one that is left, and claims generation 2. */
static void late_run(int index, void *arg)
{
    run *all = arg;
    process *p = all->processes;
    (void)index;
    askers_open(all);
    generation_meet(all, 0, 1);
    generation_sweep(&p[0]);
    for (int64_t number = 2; number <= 4; number++) {
        others_give_up(all, number);
        generation_sweep(&p[1]);
    }
    if (numbered_kept(all, "gen/", 9, "") != 1 || !is_kept(all, "gen/4"))
        broke(all, "what is over is not forgotten");
    word_check(&p[0], true, false); /* whatever it was */
    if (tri_thread_start(&p[0].thread, "late", late_join, &p[0]) != TRI_OK)
        broke(all, "no thread");
    tri_sleep_ns(200 * TRI_NS_PER_MS);
    if (tri_members_rank(p[0].members) >= 0)
        broke(all, "two generations at once");
    generation_meet(all, 1, 5);
    tri_thread_join(p[0].thread);
    if (tri_members_now(p[0].members)->number != 5 || tri_members_rank(p[0].members) != 1)
        broke(all, "who was late is no newcomer");
    if (numbered_kept(all, "gen/", 3, "") + numbered_kept(all, "gen/", 3, "/formed") + is_kept(all, "gen/2/in/0.0") > 0)
        broke(all, "what a late one says stays");
    for (int i = 0; i < ASKERS; i++)
        tri_members_close(p[i].members);
}

static void a_late_one_learns_that_it_was_left_out(void **state)
{
    (void)state;
    run *all = tri_alloc_zero(1, sizeof *all);
    assert_non_null(all);
    assert_int_equal(tri_store_memory(&all->store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, late_run, all), TRI_OK);
    if (all->failures > 0)
        print_message("%s\n", all->failed);
    assert_int_equal(all->failures, 0);
    run_free(all);
}

/* The ear of 0.0 hears again when what it missed is forgotten. */
static void ear_run(int index, void *arg)
{
    run *all = arg;
    process *p = all->processes;
    int64_t after, late_ns = tri_now_ns() + 5 * TRI_NS_PER_S;
    (void)index;
    askers_open(all);
    generation_meet(all, 0, 1);
    /* as of a sweep of others, while the ear stood still */
    if (tri_store_raise(all->store, "news/count", 20, &after, late_ns) != TRI_OK ||
        tri_store_raise(all->store, "news/oldest", 21, &after, late_ns) != TRI_OK)
        broke(all, "nothing can be raised");
    tri_sleep_ns(3 * TRI_NS_PER_S);
    if (atomic_load(tri_members_broken(p[0].members)))
        broke(all, "its generation is the newest, and nobody of it has ended");
    if (tri_members_tell(all->store, "call 2", late_ns) != TRI_OK || !is_kept(all, "news/21"))
        broke(all, "what is told after it is not where it should be");
    tri_sleep_ns(TRI_NS_PER_S);
    if (!tri_members_called(p[0].members))
        broke(all, "an ear is deaf");
    if (tri_store_raise(all->store, "gen/now", 3, &after, late_ns + TRI_NS_PER_S) != TRI_OK ||
        tri_store_raise(all->store, "news/oldest", 40, &after, late_ns + TRI_NS_PER_S) != TRI_OK)
        broke(all, "nothing can be raised");
    tri_sleep_ns(2 * TRI_NS_PER_S);
    if (!atomic_load(tri_members_broken(p[0].members)))
        broke(all, "a generation that others have left is taken for whole");
    /* whoever tells had asked for the count before that */
    if (tri_members_tell(all->store, "call 4", late_ns + 9 * TRI_NS_PER_S) != TRI_OK || !is_kept(all, "news/40") ||
        is_kept(all, "news/22"))
        broke(all, "something is told where nobody listens");
    for (int i = 0; i < ASKERS; i++)
        tri_members_close(p[i].members);
}

static void an_ear_hears_again_behind_what_is_forgotten(void **state)
{
    (void)state;
    run *all = tri_alloc_zero(1, sizeof *all);
    assert_non_null(all);
    assert_int_equal(tri_store_memory(&all->store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, ear_run, all), TRI_OK);
    if (all->failures > 0)
        print_message("%s\n", all->failed);
    assert_int_equal(all->failures, 0);
    run_free(all);
}

static void of_64_members_half_are_lost(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 3; seed++) {
        run *all = seed_run((uint64_t)seed, (run){.founders = 64, .least = 1, .most = 64, .kills = 32, .stops = 8});
        assert_true(finishers(all) >= 1);
        run_free(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_run_has_one_generation),
        cmocka_unit_test(survivors_go_on_without_the_dead),
        cmocka_unit_test(the_dead_are_replaced_and_the_stopped_come_back),
        cmocka_unit_test(what_was_found_once_stays_found),
        cmocka_unit_test(who_stays_keeps_its_place_and_newcomers_take_those_of_the_dead),
        cmocka_unit_test(a_store_holds_no_more_after_many_deaths),
        cmocka_unit_test(who_dies_while_it_tells_news_makes_nobody_deaf),
        cmocka_unit_test(the_first_word_on_a_generation_is_everybodys),
        cmocka_unit_test(who_says_nothing_after_a_generation_did_not_form_is_done_without),
        cmocka_unit_test(a_late_one_learns_that_it_was_left_out),
        cmocka_unit_test(an_ear_hears_again_behind_what_is_forgotten),
        cmocka_unit_test(of_64_members_half_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
