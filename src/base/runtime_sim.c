/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_sim.c: the simulated runtime: fibers on one OS thread, virtual time, a seeded scheduler.
 *
 * Idea: whoever blocks picks the next fiber itself, uniformly among those that can run. Code takes no time; the clock
 * jumps to the next timer when nobody can run, or when those who can only spin. Invariant: each fiber is running, in
 * `runnable`, or waiting (in a queue of a lock or condition, in `timers`, in both, or for another's end). Everything
 * depends on the seed and the bodies alone: no addresses, no real time.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/runtime_impl.h"

#define LABEL_NBYTES         32
#define DEFAULT_STACK_NBYTES ((size_t)512 << 10)
#define DEFAULT_LIMIT_NS     (INT64_C(86400) * TRI_NS_PER_S)
/* One lock in so many gives way to others first, to show races. */
#define SWITCH_AT_LOCK 4
/* Everybody who can run has yielded so many times in a row, with nothing else happening: they spin. Twice, because the
 * second look may see what another fiber did between the two. */
#define SPIN_ROUNDS  2
#define SPIN_STEP_NS INT64_C(1000)
/* So many switches without the clock moving (ping-pong without end) cost a step: about what they cost in reality. */
#define STUCK_SWITCHES      UINT64_C(4096)
#define STUCK_SWITCHES_EACH UINT64_C(64)
#define STUCK_STEP_NS       TRI_NS_PER_MS

typedef struct tri_fiber tri_fiber;
typedef struct tri_sim tri_sim;

typedef enum wait_kind { WAIT_NONE, WAIT_LOCK, WAIT_WAKE, WAIT_JOIN, WAIT_SLEEP } wait_kind;

struct tri_fiber {
    tri_thread base;
    tri_context context;
    tri_sim *sim;
    tri_fiber *next, **link;         /* all fibers of the simulation, latest first */
    tri_fiber *queue_next, **queued; /* the queue it waits in; queued NULL: none */
    tri_fiber *joiner;               /* who waits for its end */
    tri_mutex *held;                 /* locks it holds, latest first */
    wait_kind waits;
    const void *waits_for; /* the lock, or the fiber to join */
    int64_t deadline_ns;   /* while it has a timer */
    uint64_t timer_order;  /* of equal deadlines, the earlier set fires first */
    size_t timer_index;    /* in timers, SIZE_MAX: none */
    uint64_t yield_round;  /* of the simulation, when it last yielded */
    bool timed_out;
    bool ended;
    char error[TRI_ERROR_NBYTES];
    char label[LABEL_NBYTES];
};

/* One of the seeded streams. */
typedef struct sim_dice {
    tri_rng rng;
    uint64_t index;
} sim_dice;

struct tri_sim {
    tri_context main;
    tri_sim_config config;
    sim_dice schedule, models, bytes;
    int64_t now_ns;
    tri_fiber *fibers;
    tri_fiber *spent; /* ended, its stack still to be freed */
    size_t live;      /* fibers that have not ended */
    size_t started;   /* fibers so far */
    size_t capacity;  /* of the next two; at least `live` */
    tri_fiber **runnable;
    tri_fiber **timers; /* a heap, the earliest first */
    size_t runnable_count, timer_count;
    uint64_t timer_order;
    uint64_t yield_round; /* starts at 1, so that a new fiber has not yielded */
    size_t yielded_count; /* of `runnable`, those that have yielded in this round */
    int spin_rounds;      /* full rounds since something happened */
    uint64_t switches;    /* since the clock last moved */
    tri_status verdict;
};

/* The fiber this OS thread runs; NULL outside simulations. */
static _Thread_local tri_fiber *fiber_now;

static uint64_t dice_throw(sim_dice *dice)
{
    return tri_rng_u64(dice->rng, dice->index++);
}

static uint64_t dice_below(sim_dice *dice, uint64_t bound)
{
    return tri_rng_below(dice->rng, dice->index++, bound);
}

/* ---- timers: a binary heap; each fiber knows its place */

static bool timer_before(const tri_fiber *a, const tri_fiber *b)
{
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->timer_order < b->timer_order;
}

static void timer_place(tri_sim *sim, tri_fiber *fiber, size_t index)
{
    sim->timers[index] = fiber;
    fiber->timer_index = index;
}

static void timer_settle(tri_sim *sim, tri_fiber *fiber, size_t index)
{
    for (; index > 0 && timer_before(fiber, sim->timers[(index - 1) / 2]); index = (index - 1) / 2)
        timer_place(sim, sim->timers[(index - 1) / 2], index);
    for (;;) {
        size_t child = 2 * index + 1;

        if (child + 1 < sim->timer_count && timer_before(sim->timers[child + 1], sim->timers[child]))
            child++;
        if (child >= sim->timer_count || !timer_before(sim->timers[child], fiber))
            break;
        timer_place(sim, sim->timers[child], index);
        index = child;
    }
    timer_place(sim, fiber, index);
}

static void timer_set(tri_sim *sim, tri_fiber *fiber, int64_t deadline_ns)
{
    fiber->deadline_ns = deadline_ns;
    fiber->timer_order = sim->timer_order++;
    timer_settle(sim, fiber, sim->timer_count++);
}

static void timer_clear(tri_sim *sim, tri_fiber *fiber)
{
    size_t index = fiber->timer_index;

    if (index == SIZE_MAX)
        return;
    fiber->timer_index = SIZE_MAX;
    sim->timer_count--;
    if (index < sim->timer_count)
        timer_settle(sim, sim->timers[sim->timer_count], index);
}

/* ---- who can run */

/* Something happened that those who yielded may want to see. */
static void progress_note(tri_sim *sim)
{
    sim->yield_round++;
    sim->yielded_count = 0;
    sim->spin_rounds = 0;
}

static void runnable_add(tri_sim *sim, tri_fiber *fiber)
{
    sim->runnable[sim->runnable_count++] = fiber;
    sim->yielded_count += fiber->yield_round == sim->yield_round;
}

static tri_fiber *runnable_take(tri_sim *sim, size_t index)
{
    tri_fiber *fiber = sim->runnable[index];

    sim->runnable[index] = sim->runnable[--sim->runnable_count];
    sim->yielded_count -= fiber->yield_round == sim->yield_round;
    return fiber;
}

static void queue_leave(tri_fiber *fiber)
{
    if (!fiber->queued)
        return;
    *fiber->queued = fiber->queue_next;
    if (fiber->queue_next)
        fiber->queue_next->queued = fiber->queued;
    fiber->queued = NULL;
}

static void queue_enter(tri_fiber **queue, tri_fiber *fiber)
{
    fiber->queue_next = *queue;
    if (*queue)
        (*queue)->queued = &fiber->queue_next;
    fiber->queued = queue;
    *queue = fiber;
}

static void fiber_wake(tri_sim *sim, tri_fiber *fiber, bool timed_out)
{
    /* That a lock came free is no progress: two fibers that take turns at it may both be spinning. */
    if (fiber->waits != WAIT_LOCK)
        progress_note(sim);
    queue_leave(fiber);
    timer_clear(sim, fiber);
    fiber->waits = WAIT_NONE;
    fiber->timed_out = timed_out;
    runnable_add(sim, fiber);
}

/* Any one of the queue, so that nobody comes to rely on an order. */
static void queue_wake_one(tri_sim *sim, tri_fiber *queue)
{
    uint64_t count = 0;

    for (tri_fiber *fiber = queue; fiber; fiber = fiber->queue_next)
        count++;
    if (count == 0)
        return;
    for (uint64_t skip = count > 1 ? dice_below(&sim->schedule, count) : 0; skip > 0; skip--)
        queue = queue->queue_next;
    fiber_wake(sim, queue, false);
}

/* ---- the clock and the choice of the next fiber */

/* False: the limit is reached, and that is the verdict. */
static bool clock_move(tri_sim *sim, int64_t to_ns)
{
    if (to_ns > sim->config.limit_ns) {
        sim->now_ns = sim->config.limit_ns;
        sim->verdict = TRI_ETIMEOUT;
        return false;
    }
    sim->now_ns = to_ns;
    sim->switches = 0;
    progress_note(sim);
    while (sim->timer_count > 0 && sim->timers[0]->deadline_ns <= to_ns)
        fiber_wake(sim, sim->timers[0], true);
    return true;
}

/* Time passes for those who can run but get nowhere. */
static bool clock_push(tri_sim *sim)
{
    int64_t timer_ns = sim->timer_count > 0 ? sim->timers[0]->deadline_ns : TRI_FOREVER;
    int64_t step_ns;

    if (++sim->switches > STUCK_SWITCHES + STUCK_SWITCHES_EACH * sim->live) {
        step_ns = sim->now_ns + STUCK_STEP_NS;
        return clock_move(sim, timer_ns < step_ns ? timer_ns : step_ns);
    }
    if (sim->yielded_count < sim->runnable_count)
        return true;
    sim->yield_round++;
    sim->yielded_count = 0;
    if (++sim->spin_rounds < SPIN_ROUNDS)
        return true;
    return clock_move(sim, timer_ns < TRI_FOREVER ? timer_ns : sim->now_ns + SPIN_STEP_NS);
}

/* NULL: the run is over, one way or another. */
static tri_fiber *fiber_pick(tri_sim *sim)
{
    if (sim->live == 0)
        return NULL;
    if (sim->runnable_count > 0) {
        if (!clock_push(sim))
            return NULL;
    } else if (sim->timer_count == 0) {
        sim->verdict = TRI_EINTERNAL;
        return NULL;
    } else if (!clock_move(sim, sim->timers[0]->deadline_ns)) {
        return NULL;
    }
    return runnable_take(sim, sim->runnable_count > 1 ? (size_t)dice_below(&sim->schedule, sim->runnable_count) : 0);
}

/* What each context does first when it is back; the one before may have ended. */
static void fiber_resume(tri_sim *sim, tri_fiber *fiber)
{
    fiber_now = fiber;
    tri_error_slot_swap(fiber ? fiber->error : NULL);
    tri_log_label_swap(fiber ? fiber->label : NULL);
    if (sim->spent) {
        tri_context_destroy(&sim->spent->context);
        sim->spent = NULL;
    }
}

/* Lets the next one run; the caller has put `self` where it will be found again. */
static void fiber_switch(tri_sim *sim, tri_fiber *self)
{
    tri_fiber *next = fiber_pick(sim);

    if (next == self)
        return;
    fiber_now = next; /* a new fiber learns here who it is */
    tri_context_switch(self ? &self->context : &sim->main, next ? &next->context : &sim->main, self && self->ended);
    fiber_resume(sim, self);
}

/* queue NULL: none; deadline TRI_FOREVER: no timer. False when the deadline passed. */
static bool fiber_wait(tri_fiber *self, wait_kind kind, const void *subject, tri_fiber **queue, int64_t deadline_ns)
{
    self->waits = kind;
    self->waits_for = subject;
    if (queue)
        queue_enter(queue, self);
    if (deadline_ns != TRI_FOREVER)
        timer_set(self->sim, self, deadline_ns);
    fiber_switch(self->sim, self);
    return !self->timed_out;
}

/* ---- fibers */

static void fiber_main(void)
{
    tri_fiber *self;
    tri_sim *sim;

    tri_context_entered();
    self = fiber_now;
    sim = self->sim;
    fiber_resume(sim, self);
    self->base.body(self->base.arg);

    TRI_ASSERT(!self->held);
    self->ended = true;
    sim->live--;
    sim->spent = self;
    if (self->joiner)
        fiber_wake(sim, self->joiner, false);
    progress_note(sim);
    fiber_switch(sim, self);
    tri_assert_failed(__FILE__, __LINE__, "an ended fiber does not run again");
}

static tri_status capacity_grow(tri_sim *sim)
{
    size_t capacity = sim->capacity ? 2 * sim->capacity : 16;
    tri_fiber **grown;

    if (sim->live < sim->capacity)
        return TRI_OK;
    if (!(grown = tri_realloc(sim->runnable, capacity * sizeof(*grown))))
        return TRI_ENOMEM;
    sim->runnable = grown;
    if (!(grown = tri_realloc(sim->timers, capacity * sizeof(*grown))))
        return TRI_ENOMEM;
    sim->timers = grown;
    sim->capacity = capacity;
    return TRI_OK;
}

static tri_status fiber_create(tri_sim *sim, tri_fiber **out, const char *name, void (*body)(void *arg), void *arg)
{
    tri_fiber *fiber;
    tri_status status;

    TRI_TRY(capacity_grow(sim));
    fiber = tri_alloc_zero(1, sizeof *fiber);
    if (!fiber)
        return TRI_ENOMEM;
    tri_thread_init(&fiber->base, &tri_runtime_sim, name, body, arg);
    fiber->sim = sim;
    fiber->timer_index = SIZE_MAX;
    status = tri_context_create(&fiber->context, sim->config.stack_nbytes, fiber_main);
    if (status != TRI_OK) {
        tri_free(fiber);
        return tri_fail_context(status, "thread %s", name);
    }
    fiber->next = sim->fibers;
    fiber->link = &sim->fibers;
    if (fiber->next)
        fiber->next->link = &fiber->next;
    sim->fibers = fiber;
    sim->live++;
    sim->started++;
    progress_note(sim);
    runnable_add(sim, fiber);
    *out = fiber;
    return TRI_OK;
}

static void fiber_destroy(tri_fiber *fiber)
{
    *fiber->link = fiber->next;
    if (fiber->next)
        fiber->next->link = fiber->link;
    tri_context_destroy(&fiber->context);
    tri_free(fiber);
}

/* ---- the calls of the runtime */

static int64_t sim_now_ns(void)
{
    return fiber_now->sim->now_ns;
}

static void sim_yield(void)
{
    tri_fiber *self = fiber_now;

    self->yield_round = self->sim->yield_round;
    runnable_add(self->sim, self);
    fiber_switch(self->sim, self);
}

static void sim_sleep_ns(int64_t ns)
{
    tri_fiber *self = fiber_now;
    int64_t until_ns;

    if (ns <= 0) {
        sim_yield();
        return;
    }
    if (__builtin_add_overflow(self->sim->now_ns, ns, &until_ns))
        until_ns = TRI_FOREVER;
    fiber_wait(self, WAIT_SLEEP, NULL, NULL, until_ns);
}

static void sim_entropy(void *bytes, size_t nbytes)
{
    char *at = bytes;

    while (nbytes > 0) {
        uint64_t number = dice_throw(&fiber_now->sim->bytes);
        size_t part = nbytes < sizeof number ? nbytes : sizeof number;

        memcpy(at, &number, part);
        at += part;
        nbytes -= part;
    }
}

static tri_status sim_thread_start(tri_thread **out, const char *name, void (*body)(void *arg), void *arg)
{
    tri_fiber *fiber;

    TRI_TRY(fiber_create(fiber_now->sim, &fiber, name, body, arg));
    *out = &fiber->base;
    return TRI_OK;
}

static void sim_thread_join(tri_thread *thread)
{
    tri_fiber *fiber = tri_container_of(thread, tri_fiber, base);
    tri_fiber *self = fiber_now;

    TRI_ASSERT(self && self->sim == fiber->sim && !fiber->joiner);
    fiber->joiner = self;
    if (!fiber->ended)
        fiber_wait(self, WAIT_JOIN, fiber, NULL, TRI_FOREVER);
    fiber_destroy(fiber);
}

static void mutex_take(tri_fiber *self, tri_mutex *mutex)
{
    /* The pthread lock is taken as well: a lock of the process may be shared with threads and other simulations. */
    while (pthread_mutex_trylock(&mutex->real) != 0) {
        if (__atomic_load_n(&mutex->sim, __ATOMIC_RELAXED) == self->sim) {
            fiber_wait(self, WAIT_LOCK, mutex, &mutex->waiters, TRI_FOREVER);
            continue;
        }
        /* Its holder needs none of our fibers to go on, so the whole simulation may wait. */
        TRI_ASSERT(pthread_mutex_lock(&mutex->real) == 0);
        break;
    }
    __atomic_store_n(&mutex->sim, self->sim, __ATOMIC_RELAXED);
    mutex->holder = self;
    mutex->held = self->held;
    self->held = mutex;
}

static void sim_mutex_lock(tri_mutex *mutex)
{
    tri_fiber *self = fiber_now;

    if (dice_below(&self->sim->schedule, SWITCH_AT_LOCK) == 0 && self->sim->runnable_count > 0) {
        runnable_add(self->sim, self);
        fiber_switch(self->sim, self);
    }
    mutex_take(self, mutex);
}

static void mutex_release(tri_fiber *holder, tri_mutex *mutex)
{
    tri_mutex **at = &holder->held;

    while (*at != mutex) {
        TRI_ASSERT(*at);
        at = &(*at)->held;
    }
    *at = mutex->held;
    mutex->held = NULL;
    mutex->holder = NULL;
    __atomic_store_n(&mutex->sim, NULL, __ATOMIC_RELAXED);
}

static void sim_mutex_unlock(tri_mutex *mutex)
{
    tri_fiber *self = fiber_now;

    mutex_release(self, mutex);
    /* All, and while the lock is still held: the queue belongs to the simulation that holds the lock. */
    while (mutex->waiters)
        fiber_wake(self->sim, mutex->waiters, false);
    TRI_ASSERT(pthread_mutex_unlock(&mutex->real) == 0);
}

static bool sim_cond_wait(tri_cond *cond, tri_mutex *mutex, int64_t deadline_ns)
{
    tri_fiber *self = fiber_now;
    bool woken = false;

    sim_mutex_unlock(mutex);
    /* A deadline in the past is a yield: loops that poll so must not stop the clock. */
    if (deadline_ns <= self->sim->now_ns)
        sim_yield();
    else
        woken = fiber_wait(self, WAIT_WAKE, NULL, &cond->waiters, deadline_ns);
    mutex_take(self, mutex);
    return woken;
}

static void sim_cond_wake(tri_cond *cond, bool everybody)
{
    tri_sim *sim = fiber_now->sim;

    if (!everybody)
        queue_wake_one(sim, cond->waiters);
    while (everybody && cond->waiters)
        fiber_wake(sim, cond->waiters, false);
}

const tri_runtime_ops tri_runtime_sim = {
    .name = "sim",
    .now_ns = sim_now_ns,
    .wall_ns = sim_now_ns,
    .sleep_ns = sim_sleep_ns,
    .yield = sim_yield,
    .entropy = sim_entropy,
    .thread_start = sim_thread_start,
    .thread_join = sim_thread_join,
    .mutex_lock = sim_mutex_lock,
    .mutex_unlock = sim_mutex_unlock,
    .cond_wait = sim_cond_wait,
    .cond_wake = sim_cond_wake,
};

bool tri_sim_active(void)
{
    return fiber_now != NULL;
}

uint64_t tri_sim_random(void)
{
    TRI_ASSERT(fiber_now);
    return dice_throw(&fiber_now->sim->models);
}

/* ---- a run */

/* "rank 3 (fiber 3) waits for a lock held by fiber 1" */
static int fiber_describe(const tri_fiber *fiber, char *text, size_t nbytes)
{
    char who[TRI_THREAD_NAME_NBYTES + LABEL_NBYTES + 4];
    const char *name = fiber->base.name;

    if (fiber->label[0])
        snprintf(who, sizeof who, "%s (%s)", name, fiber->label);
    else
        snprintf(who, sizeof who, "%s", name);
    switch (fiber->waits) {
    case WAIT_LOCK: {
        const tri_fiber *holder = ((const tri_mutex *)fiber->waits_for)->holder;

        return snprintf(text, nbytes, "%s waits for a lock held by %s", who, holder ? holder->base.name : "nobody");
    }
    case WAIT_WAKE:
        return snprintf(text, nbytes, "%s waits to be woken", who);
    case WAIT_JOIN:
        return snprintf(text, nbytes, "%s waits for the end of %s", who,
                        ((const tri_fiber *)fiber->waits_for)->base.name);
    case WAIT_SLEEP:
        return snprintf(text, nbytes, "%s sleeps", who);
    case WAIT_NONE:
        break;
    }
    return snprintf(text, nbytes, "%s could run", who);
}

/* Names as many as a message holds. */
static tri_status sim_report(tri_sim *sim)
{
    char text[TRI_ERROR_NBYTES - 192], line[192];
    size_t used = 0, named = 0;
    const tri_fiber *fiber = sim->fibers;

    text[0] = 0;
    /* The first started are the ones the caller knows; they lie last. */
    while (fiber && fiber->next)
        fiber = fiber->next;
    for (; fiber; fiber = fiber->link == &sim->fibers ? NULL : tri_container_of(fiber->link, tri_fiber, next)) {
        int nbytes = fiber->ended ? 0 : fiber_describe(fiber, line, sizeof line);

        if (fiber->ended)
            continue;
        if (nbytes < 0 || used + (size_t)nbytes + 3 > sizeof text)
            break;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", named ? "; " : "", line);
        named++;
    }
    if (named < sim->live)
        snprintf(line, sizeof line, "; and %zu more", sim->live - named);
    else
        line[0] = 0;
    return tri_fail(sim->verdict, "simulation (seed %llu): %s at %.9f s with %zu of %zu threads left: %s%s",
                    (unsigned long long)sim->config.seed,
                    sim->verdict == TRI_ETIMEOUT ? "reached its limit" : "everybody waits for ever",
                    (double)sim->now_ns * 1e-9, sim->live, sim->started, text, line);
}

/* Takes an abandoned fiber out of what may outlive it: queues, and the locks it holds. */
static void fiber_abandon(tri_sim *sim, tri_fiber *fiber)
{
    queue_leave(fiber);
    if (!fiber->held)
        return;
    tri_context_pose(&fiber->context);
    while (fiber->held) {
        tri_mutex *mutex = fiber->held;

        mutex_release(fiber, mutex);
        TRI_ASSERT(pthread_mutex_unlock(&mutex->real) == 0);
    }
    tri_context_pose(&sim->main);
}

static void sim_fini(tri_sim *sim)
{
    for (tri_fiber *fiber = sim->fibers; fiber; fiber = fiber->next)
        fiber_abandon(sim, fiber);
    while (sim->fibers)
        fiber_destroy(sim->fibers);
    tri_context_destroy(&sim->main);
    tri_free(sim->runnable);
    tri_free(sim->timers);
}

typedef struct first_body {
    void (*body)(int index, void *arg);
    void *arg;
    int index;
} first_body;

static void first_main(void *arg)
{
    const first_body *first = arg;

    first->body(first->index, first->arg);
}

static sim_dice dice_make(uint64_t seed, const char *purpose)
{
    return (sim_dice){.rng = {.seed = seed, .stream = tri_rng_stream(purpose, 0, 0)}};
}

static tri_status sim_init(tri_sim *sim, first_body *firsts, int count)
{
    TRI_TRY(tri_context_adopt(&sim->main));
    for (int i = 0; i < count; i++) {
        char name[TRI_THREAD_NAME_NBYTES];
        tri_fiber *fiber;

        snprintf(name, sizeof name, "fiber %d", i);
        TRI_TRY(fiber_create(sim, &fiber, name, first_main, &firsts[i]));
    }
    return TRI_OK;
}

tri_status tri_sim_run(const tri_sim_config *config, int count, void (*body)(int index, void *arg), void *arg)
{
    tri_sim sim = {.config = *config, .yield_round = 1};
    first_body *firsts;
    tri_status status;

    if (fiber_now)
        return tri_fail(TRI_EINVAL, "simulation: cannot run inside another one");
    if (count < 0 || config->limit_ns < 0)
        return tri_fail(TRI_EINVAL, "simulation: want a count and a limit of 0 or more, got %d and %lld ns", count,
                        (long long)config->limit_ns);
    if (sim.config.limit_ns == 0)
        sim.config.limit_ns = DEFAULT_LIMIT_NS;
    if (sim.config.limit_ns > TRI_FOREVER / 2) /* so that the clock can always take another step */
        sim.config.limit_ns = TRI_FOREVER / 2;
    if (sim.config.stack_nbytes == 0)
        sim.config.stack_nbytes = DEFAULT_STACK_NBYTES;
    sim.schedule = dice_make(config->seed, "sim.schedule");
    sim.models = dice_make(config->seed, "sim.models");
    sim.bytes = dice_make(config->seed, "sim.entropy");
    firsts = tri_alloc_zero((size_t)count, sizeof *firsts);
    if (!firsts)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++)
        firsts[i] = (first_body){.body = body, .arg = arg, .index = i};

    status = sim_init(&sim, firsts, count);
    if (status == TRI_OK) {
        if (count > 0)
            fiber_switch(&sim, NULL);
        if (sim.verdict != TRI_OK)
            status = sim_report(&sim);
    }
    sim_fini(&sim);
    tri_free(firsts);
    return status;
}
