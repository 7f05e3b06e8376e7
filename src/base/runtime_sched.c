/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_sched.c: the scheduler of the simulated runtime: timers, who can run, the clock, and switching between
 * fibers.
 *
 * Idea: whoever blocks picks the next fiber itself, uniformly among those that can run. Code takes no time; the clock
 * jumps to the next timer when nobody can run, or when those who can only spin.
 */
#include "base/runtime_sched.h"

#include "base/log.h"
#include "base/memory.h"

/* Everybody who can run has yielded this many times in a row, with nothing else happening: they spin. Twice, because
 * the second look may see what another fiber did between the two. */
#define SPIN_ROUNDS  2
#define SPIN_STEP_NS INT64_C(1000)
/* This many switches without the clock moving (ping-pong without end) cost a step: about what they cost in reality. */
#define STUCK_SWITCHES      UINT64_C(4096)
#define STUCK_SWITCHES_EACH UINT64_C(64)
#define STUCK_STEP_NS       TRI_NS_PER_MS

_Thread_local tri_fiber *tri_fiber_now;

/* ---- timers: a binary heap; each owner knows its place */

static bool timer_before(const sim_timer *a, const sim_timer *b)
{
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->order < b->order;
}

static void timer_place(tri_sim *sim, const sim_timer *timer, size_t index)
{
    sim->timers[index] = *timer;
    *timer->index = index;
}

static void timer_settle(tri_sim *sim, sim_timer timer, size_t index)
{
    for (; index > 0 && timer_before(&timer, &sim->timers[(index - 1) / 2]); index = (index - 1) / 2)
        timer_place(sim, &sim->timers[(index - 1) / 2], index);
    for (;;) {
        size_t child = 2 * index + 1;

        if (child + 1 < sim->timer_count && timer_before(&sim->timers[child + 1], &sim->timers[child]))
            child++;
        if (child >= sim->timer_count || !timer_before(&sim->timers[child], &timer))
            break;
        timer_place(sim, &sim->timers[child], index);
        index = child;
    }
    timer_place(sim, &timer, index);
}

void tri_timer_set(tri_sim *sim, size_t *index, tri_fiber *fiber, int64_t deadline_ns)
{
    sim_timer timer = {.deadline_ns = deadline_ns, .order = sim->timer_order++, .index = index, .fiber = fiber};

    timer_settle(sim, timer, *index == SIZE_MAX ? sim->timer_count++ : *index);
}

void tri_timer_clear(tri_sim *sim, size_t *owners)
{
    size_t index = *owners;

    if (index == SIZE_MAX)
        return;
    *owners = SIZE_MAX;
    sim->timer_count--;
    if (index < sim->timer_count)
        timer_settle(sim, sim->timers[sim->timer_count], index);
}

void tri_fiber_hasten(tri_fiber *fiber, int64_t deadline_ns)
{
    const tri_sim *sim = fiber->sim;

    if (fiber->timer_index == SIZE_MAX || deadline_ns < sim->timers[fiber->timer_index].deadline_ns)
        tri_timer_set(fiber->sim, &fiber->timer_index, fiber, deadline_ns);
}

/* ---- who can run */

/* Something happened that those who yielded may want to see. */
static void progress_note(tri_sim *sim)
{
    sim->yield_round++;
    sim->yielded_count = 0;
    sim->spin_rounds = 0;
}

void tri_fiber_ready(tri_sim *sim, tri_fiber *fiber)
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

void tri_fiber_unqueue(tri_fiber *fiber)
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

void tri_fiber_wake(tri_sim *sim, tri_fiber *fiber, bool timed_out)
{
    /* That a lock came free is no progress: two fibers that take turns at it may both be spinning. */
    if (fiber->waits != WAIT_LOCK)
        progress_note(sim);
    tri_fiber_unqueue(fiber);
    tri_timer_clear(sim, &fiber->timer_index);
    if (fiber->waits != WAIT_STOP) /* what ended its wait was before it stood still */
        fiber->timed_out = timed_out;
    fiber->waits = WAIT_NONE;
    tri_fiber_ready(sim, fiber);
}

void tri_fiber_wake_one(tri_sim *sim, tri_fiber *queue)
{
    uint64_t count = 0;

    for (tri_fiber *fiber = queue; fiber; fiber = fiber->queue_next)
        count++;
    if (count == 0)
        return;
    for (uint64_t skip = count > 1 ? tri_sim_below(&sim->schedule, count) : 0; skip > 0; skip--)
        queue = queue->queue_next;
    tri_fiber_wake(sim, queue, false);
}

/* ---- the clock and the choice of the next fiber */

static void timer_fire(tri_sim *sim, const sim_timer *timer)
{
    tri_sim_alarm *alarm;

    if (timer->fiber) {
        tri_fiber_wake(sim, timer->fiber, true);
        return;
    }
    alarm = tri_container_of(timer->index, tri_sim_alarm, timer_index);
    tri_timer_clear(sim, &alarm->timer_index);
    alarm->ring(alarm->arg);
}

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
    sim->crowd = sim->live;
    progress_note(sim);
    while (sim->timer_count > 0 && sim->timers[0].deadline_ns <= to_ns)
        timer_fire(sim, &sim->timers[0]);
    return true;
}

/* Time passes for those who can run but get nowhere. */
static bool clock_push(tri_sim *sim)
{
    int64_t timer_ns = sim->timer_count > 0 ? sim->timers[0].deadline_ns : TRI_FOREVER;
    int64_t step_ns;

    if (++sim->switches > STUCK_SWITCHES + STUCK_SWITCHES_EACH * sim->crowd) {
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

/* Its process stands still: it runs when that wakes. */
static bool is_stopped(tri_sim *sim, tri_fiber *fiber)
{
    if (!fiber->process || fiber->process->wake_ns <= sim->now_ns)
        return false;
    fiber->waits = WAIT_STOP;
    tri_timer_set(sim, &fiber->timer_index, fiber, fiber->process->wake_ns);
    return true;
}

/* NULL: the run is over, one way or another. */
static tri_fiber *fiber_pick(tri_sim *sim)
{
    tri_fiber *next;

    if (sim->live == 0)
        return NULL;
    do {
        if (sim->runnable_count > 0 && !clock_push(sim))
            return NULL;
        while (sim->runnable_count == 0) { /* an alarm may wake nobody */
            if (sim->timer_count == 0) {
                sim->verdict = TRI_EINTERNAL;
                return NULL;
            }
            if (!clock_move(sim, sim->timers[0].deadline_ns))
                return NULL;
        }
        next = runnable_take(sim,
                             sim->runnable_count > 1 ? (size_t)tri_sim_below(&sim->schedule, sim->runnable_count) : 0);
    } while (is_stopped(sim, next));
    return next;
}

static void fiber_main(void);

/* For the next fiber: mapping one, and the kernel's zeros on it, take longer than what many a fiber does. */
static void stack_keep(tri_sim *sim, tri_context *context)
{
    if (sim->spare_count == sim->capacity) {
        tri_context_destroy(context);
        return;
    }
    sim->spares[sim->spare_count++] = *context;
    *context = (tri_context){.stack = NULL};
}

static tri_status stack_take(tri_sim *sim, tri_context *context)
{
    if (sim->spare_count == 0)
        return tri_context_create(context, sim->config.stack_nbytes, fiber_main);
    *context = sim->spares[--sim->spare_count];
    tri_context_renew(context, fiber_main);
    return TRI_OK;
}

/* What each context does first when it is back; the one before may have ended. */
static void fiber_resume(tri_sim *sim, tri_fiber *fiber)
{
    tri_fiber_now = fiber;
    tri_error_slot_swap(fiber ? fiber->error : NULL);
    tri_log_label_swap(fiber ? fiber->label : NULL);
    if (sim->spent) {
        stack_keep(sim, &sim->spent->context);
        sim->spent = NULL;
    }
}

void tri_fiber_switch(tri_sim *sim, tri_fiber *self)
{
    tri_fiber *next = fiber_pick(sim);

    if (next == self)
        return;
    tri_fiber_now = next; /* a new fiber learns here who it is */
    tri_context_switch(self ? &self->context : &sim->main, next ? &next->context : &sim->main, self && self->ended);
    fiber_resume(sim, self);
}

bool tri_fiber_wait(tri_fiber *self, wait_kind kind, const void *subject, tri_fiber **queue, int64_t deadline_ns)
{
    self->waits = kind;
    self->waits_for = subject;
    if (queue)
        queue_enter(queue, self);
    if (deadline_ns != TRI_FOREVER)
        tri_timer_set(self->sim, &self->timer_index, self, deadline_ns);
    tri_fiber_switch(self->sim, self);
    return !self->timed_out;
}

/* ---- fibers */

static void fiber_main(void)
{
    tri_fiber *self;
    tri_sim *sim;

    tri_context_entered();
    self = tri_fiber_now;
    sim = self->sim;
    fiber_resume(sim, self);
    self->base.body(self->base.arg);

    TRI_ASSERT(!self->held);
    self->ended = true;
    sim->live--;
    sim->spent = self;
    if (self->joiner)
        tri_fiber_wake(sim, self->joiner, false);
    progress_note(sim);
    tri_fiber_switch(sim, self);
    tri_assert_failed(__FILE__, __LINE__, "an ended fiber does not run again");
}

tri_status tri_sim_room_make(tri_sim *sim)
{
    size_t capacity = sim->capacity ? 2 * sim->capacity : 16;
    tri_fiber **runnable;
    sim_timer *timers;
    tri_context *spares;

    if (sim->live + sim->alarms < sim->capacity)
        return TRI_OK;
    if (!(runnable = tri_realloc(sim->runnable, capacity * sizeof(*runnable))))
        return TRI_ENOMEM;
    sim->runnable = runnable;
    if (!(timers = tri_realloc(sim->timers, capacity * sizeof(*timers))))
        return TRI_ENOMEM;
    sim->timers = timers;
    if (!(spares = tri_realloc(sim->spares, capacity * sizeof(*spares))))
        return TRI_ENOMEM;
    sim->spares = spares;
    sim->capacity = capacity;
    return TRI_OK;
}

tri_status tri_fiber_create(tri_sim *sim, tri_fiber **out, const char *name, void (*body)(void *arg), void *arg)
{
    tri_fiber *fiber;
    tri_status status;

    TRI_TRY(tri_sim_room_make(sim));
    fiber = tri_alloc_zero(1, sizeof *fiber);
    if (!fiber)
        return TRI_ENOMEM;
    tri_thread_init(&fiber->base, &tri_runtime_sim, name, body, arg);
    fiber->sim = sim;
    fiber->process = tri_fiber_now ? tri_fiber_now->process : NULL;
    fiber->add_rate = tri_fiber_now ? tri_fiber_now->add_rate : 0;
    fiber->timer_index = SIZE_MAX;
    status = stack_take(sim, &fiber->context);
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
    if (sim->crowd < sim->live)
        sim->crowd = sim->live;
    sim->started++;
    progress_note(sim);
    tri_fiber_ready(sim, fiber);
    *out = fiber;
    return TRI_OK;
}

void tri_fiber_destroy(tri_fiber *fiber)
{
    *fiber->link = fiber->next;
    if (fiber->next)
        fiber->next->link = fiber->link;
    tri_context_destroy(&fiber->context);
    tri_free(fiber);
}
