/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_sim.c: the simulated runtime: fibers on one OS thread, virtual time, a seeded scheduler (runtime_sched.c).
 *
 * Locks and conditions are queues of fibers; a lock gives way to others now and then, to show races. When a run cannot
 * continue, its report names who waits for what.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime_sched.h"

#ifdef __SANITIZE_ADDRESS__ /* frames of kernels are many times as large */
#define DEFAULT_STACK_NBYTES ((size_t)4 << 20)
#else
#define DEFAULT_STACK_NBYTES ((size_t)512 << 10)
#endif
#define DEFAULT_LIMIT_NS (INT64_C(86400) * TRI_NS_PER_S)
/* One lock in this many gives way to others first, to show races. */
#define SWITCH_AT_LOCK 4

/* ---- the calls of the runtime */

static int64_t sim_now_ns(void)
{
    return tri_fiber_now->sim->now_ns;
}

/* That of a process may be wrong. */
static int64_t sim_wall_ns(void)
{
    const tri_sim_process *process = tri_fiber_now->process;
    int64_t now_ns = sim_now_ns();

    return now_ns + (process && now_ns < process->clock_until_ns ? process->clock_ns : 0);
}

static void sim_yield(void)
{
    tri_fiber *self = tri_fiber_now;

    self->yield_round = self->sim->yield_round;
    tri_fiber_ready(self->sim, self);
    tri_fiber_switch(self->sim, self);
}

static void sim_sleep_ns(int64_t ns)
{
    tri_fiber *self = tri_fiber_now;
    int64_t until_ns;

    if (ns <= 0) {
        sim_yield();
        return;
    }
    if (__builtin_add_overflow(self->sim->now_ns, ns, &until_ns))
        until_ns = TRI_FOREVER;
    tri_fiber_wait(self, WAIT_SLEEP, NULL, NULL, until_ns);
}

static void sim_added(size_t nbytes)
{
    tri_fiber *self = tri_fiber_now;
    int64_t whole_ns;

    if (self->add_rate <= 0)
        return;
    self->owed_ns += (double)nbytes / self->add_rate * 1e9;
    whole_ns = (int64_t)self->owed_ns;
    self->owed_ns -= (double)whole_ns;
    if (whole_ns > 0)
        sim_sleep_ns(whole_ns);
}

static void sim_entropy(void *bytes, size_t nbytes)
{
    char *at = bytes;

    while (nbytes > 0) {
        uint64_t number = tri_sim_throw(&tri_fiber_now->sim->bytes);
        size_t part = nbytes < sizeof number ? nbytes : sizeof number;

        memcpy(at, &number, part);
        at += part;
        nbytes -= part;
    }
}

static tri_status sim_thread_start(tri_thread **out, const char *name, void (*body)(void *arg), void *arg)
{
    tri_fiber *fiber;

    TRI_TRY(tri_fiber_create(tri_fiber_now->sim, &fiber, name, body, arg));
    *out = &fiber->base;
    return TRI_OK;
}

static void sim_thread_join(tri_thread *thread)
{
    tri_fiber *fiber = tri_container_of(thread, tri_fiber, base);
    tri_fiber *self = tri_fiber_now;

    TRI_ASSERT(self && self->sim == fiber->sim && !fiber->joiner);
    fiber->joiner = self;
    if (!fiber->ended)
        tri_fiber_wait(self, WAIT_JOIN, fiber, NULL, TRI_FOREVER);
    tri_fiber_destroy(fiber);
}

static void mutex_take(tri_fiber *self, tri_mutex *mutex)
{
    /* The pthread lock is taken as well: a lock of the process may be shared with threads and other simulations. */
    while (pthread_mutex_trylock(&mutex->real) != 0) {
        if (__atomic_load_n(&mutex->sim, __ATOMIC_RELAXED) == self->sim) {
            tri_fiber_wait(self, WAIT_LOCK, mutex, &mutex->waiters, TRI_FOREVER);
            continue;
        }
        /* Its holder needs none of our fibers to continue, so the whole simulation may wait. */
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
    tri_fiber *self = tri_fiber_now;

    if (tri_sim_below(&self->sim->schedule, SWITCH_AT_LOCK) == 0 && self->sim->runnable_count > 0) {
        tri_fiber_ready(self->sim, self);
        tri_fiber_switch(self->sim, self);
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
    tri_fiber *self = tri_fiber_now;

    mutex_release(self, mutex);
    /* All, and while the lock is still held: the queue belongs to the simulation that holds the lock. */
    while (mutex->waiters)
        tri_fiber_wake(self->sim, mutex->waiters, false);
    TRI_ASSERT(pthread_mutex_unlock(&mutex->real) == 0);
}

static bool sim_cond_wait(tri_cond *cond, tri_mutex *mutex, int64_t deadline_ns)
{
    tri_fiber *self = tri_fiber_now;
    bool woken = false;

    sim_mutex_unlock(mutex);
    /* A deadline in the past is a yield: loops that poll so must not stop the clock. */
    if (deadline_ns <= self->sim->now_ns)
        sim_yield();
    else
        woken = tri_fiber_wait(self, WAIT_WAKE, NULL, &cond->waiters, deadline_ns);
    mutex_take(self, mutex);
    return woken;
}

static void sim_cond_wake(tri_cond *cond, bool everybody)
{
    tri_sim *sim = tri_fiber_now->sim;

    if (!everybody)
        tri_fiber_wake_one(sim, cond->waiters);
    while (everybody && cond->waiters)
        tri_fiber_wake(sim, cond->waiters, false);
}

const tri_runtime_ops tri_runtime_sim = {
    .name = "sim",
    .now_ns = sim_now_ns,
    .wall_ns = sim_wall_ns,
    .sleep_ns = sim_sleep_ns,
    .yield = sim_yield,
    .added = sim_added,
    .entropy = sim_entropy,
    .thread_start = sim_thread_start,
    .thread_join = sim_thread_join,
    .mutex_lock = sim_mutex_lock,
    .mutex_unlock = sim_mutex_unlock,
    .cond_wait = sim_cond_wait,
    .cond_wake = sim_cond_wake,
};

void tri_sim_add_rate_set(double bytes_per_second)
{
    TRI_ASSERT(tri_fiber_now);
    tri_fiber_now->add_rate = bytes_per_second;
}

uint64_t tri_sim_random(void)
{
    TRI_ASSERT(tri_fiber_now);
    return tri_sim_throw(&tri_fiber_now->sim->models);
}

/* ---- a run */

/* "rank 3 (fiber 3) waits for a lock held by fiber 1" */
static int fiber_describe(const tri_fiber *fiber, char *text, size_t nbytes)
{
    char who[TRI_THREAD_NAME_NBYTES + TRI_FIBER_LABEL_NBYTES + 4];
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
    case WAIT_STOP:
        return snprintf(text, nbytes, "%s stands still with its process", who);
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
    /* The first started are the ones the caller knows; they are last. */
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
    tri_fiber_unqueue(fiber);
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
        tri_fiber_destroy(sim->fibers);
    tri_context_destroy(&sim->main);
    while (sim->spare_count > 0)
        tri_context_destroy(&sim->spares[--sim->spare_count]);
    tri_free(sim->spares);
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
        TRI_TRY(tri_fiber_create(sim, &fiber, name, first_main, &firsts[i]));
    }
    return TRI_OK;
}

tri_status tri_sim_run(const tri_sim_config *config, int count, void (*body)(int index, void *arg), void *arg)
{
    tri_sim sim = {.config = *config, .yield_round = 1};
    first_body *firsts;
    tri_status status;

    if (tri_fiber_now)
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

    tri_ticks_simulated(true);
    status = sim_init(&sim, firsts, count);
    if (status == TRI_OK) {
        if (count > 0)
            tri_fiber_switch(&sim, NULL);
        if (sim.verdict != TRI_OK)
            status = sim_report(&sim);
    }
    sim_fini(&sim);
    tri_ticks_simulated(false);
    tri_free(firsts);
    return status;
}
