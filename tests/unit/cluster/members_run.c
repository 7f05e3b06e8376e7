/* SPDX-License-Identifier: Apache-2.0
 *
 * members_run.c: see members_run.h.
 */
#include "unit/cluster/members_run.h"

void broke(run *all, const char *what)
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

const tri_store_ops guarded_ops = {.name = "guarded",
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
static tri_member_way is_lost(void *arg, int rank, char *where)
{
    (void)where;
    process *p = arg;
    const tri_generation *now = tri_members_now(p->members);
    return seems_lost(by_id(p->run, now->members[rank].id), now->number) ? TRI_MEMBER_GONE : TRI_MEMBER_HEARD;
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
    all->begun_again += is_founded(all);
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
    if (tri_members_rank(p->members) == 0 &&
        tri_members_sweep(p->members, NULL, NULL, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
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
    while (p->step < STEPS && !tri_members_rescale_requested(p->members)) {
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
                               .listener = all->store,
                               .id = p->id,
                               .host = "here",
                               .initial_members = all->initial_members,
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
    for (int i = 0; i < all->initial_members; i++)
        process_start(all, i, starts[i]++);
    while (left > 0) {
        left = 0;
        tri_sleep_ns(TRI_NS_PER_MS);
        for (int i = 0; i < all->count; i++) {
            process *p = &all->processes[i];
            left += !p->ended;
            if (!p->ended || p->marked_dead)
                continue;
            p->marked_dead = true;
            if (tri_members_mark_dead(all->store, p->id, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
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

run *seed_run(uint64_t seed, run settings)
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

void run_free(run *all)
{
    tri_store_close(all->store);
    for (int g = 0; g < GENERATIONS; g++)
        tri_free(all->meetings[g].list);
    tri_free(all);
}

int finishers(const run *all)
{
    int count = 0;
    for (int i = 0; i < all->count; i++)
        count += all->processes[i].finished && !all->processes[i].dead;
    return count;
}

/* --- what is kept --- */

bool is_kept(run *all, const char *key)
{
    char *text;
    size_t nbytes;
    bool there = tri_store_wait(all->store, key, &text, &nbytes, 0) == TRI_OK;
    if (there)
        tri_free(text);
    return there;
}

int numbered_kept(run *all, const char *before, int count, const char *after)
{
    char key[96];
    int kept = 0;
    for (int i = 1; i <= count; i++) {
        snprintf(key, sizeof key, "%s%d%s", before, i, after);
        kept += is_kept(all, key);
    }
    return kept;
}

int all_kept(run *all, int generations)
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
