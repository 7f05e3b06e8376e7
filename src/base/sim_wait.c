/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_wait.c: alarms of a simulation, and fibers that wait for what one brings.
 */
#include "base/sim_wait.h"

#include "base/runtime_sched.h"

tri_status tri_sim_alarm_open(tri_sim_alarm *alarm, void (*ring)(void *arg), void *arg)
{
    tri_sim *sim = tri_fiber_now->sim;

    *alarm = (tri_sim_alarm){.ring = ring, .arg = arg, .timer_index = SIZE_MAX};
    TRI_TRY(tri_sim_room_make(sim));
    sim->alarms++;
    return TRI_OK;
}

void tri_sim_alarm_close(tri_sim_alarm *alarm)
{
    if (!tri_fiber_now) { /* the simulation is over, and with it all alarms */
        alarm->timer_index = SIZE_MAX;
        return;
    }
    tri_timer_clear(tri_fiber_now->sim, &alarm->timer_index);
    tri_fiber_now->sim->alarms--;
}

void tri_sim_alarm_set(tri_sim_alarm *alarm, int64_t at_ns)
{
    tri_timer_set(tri_fiber_now->sim, &alarm->timer_index, NULL, at_ns);
}

void tri_sim_doze(tri_sim_sleeper *sleeper, int64_t until_ns)
{
    sleeper->fiber = tri_fiber_now;
    tri_fiber_wait(tri_fiber_now, WAIT_WAKE, NULL, NULL, until_ns);
    sleeper->fiber = NULL;
}

void tri_sim_rouse(const tri_sim_sleeper *sleeper, int64_t at_ns)
{
    tri_fiber *fiber = sleeper->fiber;

    if (!fiber || fiber->waits != WAIT_WAKE) /* it runs soon, or its process stands still */
        return;
    if (at_ns <= fiber->sim->now_ns)
        tri_fiber_wake(fiber->sim, fiber, false);
    else
        tri_fiber_hasten(fiber, at_ns);
}
