/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime.h: threads, locks, waits, the clock and sleep; nothing else in the tree blocks or reads a clock.
 *
 * Two runtimes behind one set of calls. Real: pthreads and the monotonic clock. Sim: inside tri_sim_run() every thread
 * is a fiber, time is virtual and jumps to the next deadline when nobody can run, and a seeded scheduler picks who runs
 * next, so that a run of a thousand ranks is one process, takes no waiting, and can be replayed from its seed.
 * Which one a call meets is decided by where it is made (a fiber or not).
 */
#ifndef TRI_BASE_RUNTIME_H
#define TRI_BASE_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/ticks.h"

#define TRI_FOREVER   INT64_MAX
#define TRI_NS_PER_MS INT64_C(1000000)
#define TRI_NS_PER_S  INT64_C(1000000000)

/* Monotonic (or virtual) nanoseconds. */
int64_t tri_now_ns(void);
/* Nanoseconds since 1970 (virtual time starts at 0 there too). */
int64_t tri_wall_ns(void);
/* Processor time of this thread, which stays while it waits, or is stopped, or others have its core; 0 in a
 * simulation. */
int64_t tri_thread_cpu_ns(void);
/* now + ms, without overflow; ms < 0: TRI_FOREVER. */
int64_t tri_deadline_after_ms(int64_t ms);
void tri_sleep_ns(int64_t ns);
/* Cores of the machine that are switched on, whoever may use them. */
int tri_cores_online(void);
/* Lets others run. */
void tri_yield(void);
/* The caller has added nbytes to others: inside a simulation the time for it passes now, elsewhere it has passed. */
void tri_added(size_t nbytes);
/* Random bytes from the system (from the seed in a simulation): job tokens, names of runs. */
void tri_entropy(void *bytes, size_t nbytes);

/* A thread or fiber. Signals are blocked in it: the main thread receives them. */
typedef struct tri_thread tri_thread;
tri_status tri_thread_start(tri_thread **out, const char *name, void (*body)(void *arg), void *arg);
/* Waits for its end and frees it; NULL does nothing. */
void tri_thread_join(tri_thread *thread);

/* Fields are the runtime's own. Not recursive. */
typedef struct tri_mutex {
    pthread_mutex_t real;
    struct tri_sim *sim;       /* the simulation that holds it, NULL: none */
    struct tri_fiber *holder;  /* its fiber that does */
    struct tri_fiber *waiters; /* fibers of that simulation */
    struct tri_mutex *held;    /* the next one that the holder holds */
} tri_mutex;
void tri_mutex_init(tri_mutex *mutex);
void tri_mutex_fini(tri_mutex *mutex);
void tri_mutex_lock(tri_mutex *mutex);
void tri_mutex_unlock(tri_mutex *mutex);

typedef struct tri_cond {
    pthread_cond_t real;
    struct tri_fiber *waiters; /* sim */
} tri_cond;
void tri_cond_init(tri_cond *cond);
void tri_cond_fini(tri_cond *cond);
/* Waits until woken or the deadline (tri_now_ns() scale, TRI_FOREVER = none); false when the deadline passed. May wake
 * for no reason: loop on the condition. */
bool tri_cond_wait(tri_cond *cond, tri_mutex *mutex, int64_t deadline_ns);
void tri_cond_signal(tri_cond *cond);
void tri_cond_broadcast(tri_cond *cond);

typedef struct tri_sim_config {
    uint64_t seed;       /* of the scheduler and of tri_entropy */
    int64_t limit_ns;    /* virtual time at which the run is given up, 0 = one virtual day */
    size_t stack_nbytes; /* of each fiber, 0 = 512 KiB (4 MiB under AddressSanitizer) */
} tri_sim_config;

/* Runs body(i, arg) for i in [0, count) as fibers until all (and the threads they started) ended. TRI_EINTERNAL when
 * everybody waits for ever, TRI_ETIMEOUT at the limit; both name who waits. Not to be nested. */
tri_status tri_sim_run(const tri_sim_config *config, int count, void (*body)(int index, void *arg), void *arg);
bool tri_sim_active(void);
/* Bytes a second that this fiber and those it starts from now on add, 0 (at first): in no time. */
void tri_sim_add_rate_set(double bytes_per_second);
/* A seeded number for models of networks and faults; only inside a simulation. */
uint64_t tri_sim_random(void);

/* Signals that ask the process to stop (INT, TERM, USR1, and HUP unless it was ignored): the first one sets the flag. A
 * second INT or TERM kills as usual. */
void tri_stop_catch(void);
/* 0, or the number of the signal that came; in a process of a simulation (sim_process.h), to that. */
int tri_stop_signal(void);

#endif
