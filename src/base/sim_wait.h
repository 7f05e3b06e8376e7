/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_wait.h: what happens in a simulation at a time of its own, and fibers that wait for it.
 *
 * For what a simulation is made of, such as its network: a message that arrives costs no switch to a fiber that only
 * looks when the next one will. Only inside a simulation; a few words of the scheduler (runtime_sched.c).
 */
#ifndef TRI_BASE_SIM_WAIT_H
#define TRI_BASE_SIM_WAIT_H

#include "base/runtime.h"

/* Rings once at a time, between two fibers: it may wake others, and neither waits nor locks. */
typedef struct tri_sim_alarm {
    void (*ring)(void *arg);
    void *arg;
    size_t timer_index; /* the scheduler's */
} tri_sim_alarm;

tri_status tri_sim_alarm_open(tri_sim_alarm *alarm, void (*ring)(void *arg), void *arg);
/* Also after the simulation. */
void tri_sim_alarm_close(tri_sim_alarm *alarm);
/* From now on at that time alone. */
void tri_sim_alarm_set(tri_sim_alarm *alarm, int64_t at_ns);

/* A place where one fiber waits. */
typedef struct tri_sim_sleeper {
    struct tri_fiber *fiber; /* NULL: nobody is there */
} tri_sim_sleeper;

void tri_sim_doze(tri_sim_sleeper *sleeper, int64_t until_ns);
/* It waits until at_ns at most. */
void tri_sim_rouse(const tri_sim_sleeper *sleeper, int64_t at_ns);

#endif
