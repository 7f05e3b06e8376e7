/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_sched.h: fibers, and who of them runs next: what runtime_sim.c and runtime_sched.c share.
 *
 * Invariant: each fiber is running, in `runnable`, or waiting (in a queue of a lock or condition, in `timers`, in both,
 * or for another's end). Everything depends on the seed and the bodies alone: no addresses, no real time.
 */
#ifndef TRI_BASE_RUNTIME_SCHED_H
#define TRI_BASE_RUNTIME_SCHED_H

#include "base/rng.h"
#include "base/runtime_impl.h"
#include "base/sim_process.h"
#include "base/sim_wait.h"

#define TRI_FIBER_LABEL_NBYTES 32

typedef struct tri_fiber tri_fiber;
typedef struct tri_sim tri_sim;

typedef enum wait_kind { WAIT_NONE, WAIT_LOCK, WAIT_WAKE, WAIT_JOIN, WAIT_SLEEP, WAIT_STOP } wait_kind;

/* In the heap, with what orders it, so that sifting reads nothing else. */
typedef struct sim_timer {
    int64_t deadline_ns;
    uint64_t order;   /* of equal deadlines, the earlier set fires first */
    size_t *index;    /* its owner's: where in the heap it is, SIZE_MAX: nowhere */
    tri_fiber *fiber; /* that wakes; NULL: an alarm rings */
} sim_timer;

struct tri_fiber {
    tri_thread base;
    tri_context context;
    tri_sim *sim;
    tri_fiber *next, **link;         /* all fibers of the simulation, latest first */
    tri_fiber *queue_next, **queued; /* the queue it waits in; queued NULL: none */
    tri_fiber *joiner;               /* who waits for its end */
    tri_mutex *held;                 /* locks it holds, latest first */
    wait_kind waits;
    const void *waits_for;    /* the lock, or the fiber to join */
    size_t timer_index;       /* in timers, SIZE_MAX: none */
    uint64_t yield_round;     /* of the simulation, when it last yielded */
    tri_sim_process *process; /* NULL: none */
    double add_rate;          /* bytes a second, 0: no limit */
    double owed_ns;           /* of adding: below 1 */
    bool timed_out;
    bool ended;
    char error[TRI_ERROR_NBYTES];
    char label[TRI_FIBER_LABEL_NBYTES];
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
    size_t crowd;     /* the most of them since the clock last moved */
    size_t started;   /* fibers so far */
    size_t alarms;    /* that are open */
    size_t capacity;  /* of the next three; at least `live` and `alarms` */
    tri_fiber **runnable;
    sim_timer *timers;   /* a heap, the earliest first */
    tri_context *spares; /* stacks of fibers that have ended, for the next ones: at most `capacity` */
    size_t spare_count;
    size_t runnable_count, timer_count;
    uint64_t timer_order;
    uint64_t yield_round; /* starts at 1, so that a new fiber has not yielded */
    size_t yielded_count; /* of `runnable`, those that have yielded in this round */
    int spin_rounds;      /* full rounds since something happened */
    uint64_t switches;    /* since the clock last moved */
    tri_status verdict;
};

/* The fiber this OS thread runs; NULL outside simulations. */
extern _Thread_local tri_fiber *tri_fiber_now;

static inline uint64_t tri_sim_throw(sim_dice *dice)
{
    return tri_rng_u64(dice->rng, dice->index++);
}

static inline uint64_t tri_sim_below(sim_dice *dice, uint64_t bound)
{
    return tri_rng_below(dice->rng, dice->index++, bound);
}

/* Sets or moves what `index`, its owner's, stands for; fiber NULL: an alarm. There is room. */
void tri_timer_set(tri_sim *sim, size_t *index, tri_fiber *fiber, int64_t deadline_ns);
void tri_timer_clear(tri_sim *sim, size_t *index);
/* For one more fiber or alarm. */
tri_status tri_sim_room_make(tri_sim *sim);
/* A fiber that can run; the simulation has room for all that live. */
tri_status tri_fiber_create(tri_sim *sim, tri_fiber **out, const char *name, void (*body)(void *arg), void *arg);
void tri_fiber_destroy(tri_fiber *fiber);
/* It can run from now on. */
void tri_fiber_ready(tri_sim *sim, tri_fiber *fiber);
/* Ends the wait of a fiber. */
void tri_fiber_wake(tri_sim *sim, tri_fiber *fiber, bool timed_out);
/* Any one of the queue, so that nobody comes to rely on an order. */
void tri_fiber_wake_one(tri_sim *sim, tri_fiber *queue);
/* Takes it out of the queue it waits in. */
void tri_fiber_unqueue(tri_fiber *fiber);
/* queue NULL: none; deadline TRI_FOREVER: no timer. False when the deadline passed. */
bool tri_fiber_wait(tri_fiber *self, wait_kind kind, const void *subject, tri_fiber **queue, int64_t deadline_ns);
/* It waits no longer than that. */
void tri_fiber_hasten(tri_fiber *fiber, int64_t deadline_ns);
/* Lets the next one run; the caller has put `self` (NULL: the simulation's caller) where it will be found again. */
void tri_fiber_switch(tri_sim *sim, tri_fiber *self);

#endif
