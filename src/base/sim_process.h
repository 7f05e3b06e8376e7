/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_process.h: a process of a simulation: fibers that stand still, continue and end together, and links that are cut.
 *
 * Stopped, none of its fibers runs until it wakes, as after SIGSTOP. Killed, it says nothing to anybody any more: its
 * links close and its requests fail (net/sim.c and whoever simulates a store look), so that its fibers unwind unseen:
 * between two of its words nobody can tell where it was. Its files fail then too, or while its disk is full (fs.c).
 * Only inside a simulation.
 */
#ifndef TRI_BASE_SIM_PROCESS_H
#define TRI_BASE_SIM_PROCESS_H

#include "base/runtime.h"

#define TRI_SIM_CUTS 4

typedef struct tri_sim_process tri_sim_process;

/* Who wants to know of its end, on the fiber that kills it. */
typedef struct tri_sim_listener {
    void (*killed)(void *arg);
    void *arg;
    struct tri_sim_listener *next;
} tri_sim_listener;

struct tri_sim_process {
    bool dead;
    int signal;                  /* that it was sent: what tri_stop_signal() says there; 0: none */
    int64_t stopped_ns, wake_ns; /* it stands still from, to */
    struct {
        const tri_sim_process *other;
        int64_t from_ns, to_ns;
    } cuts[TRI_SIM_CUTS]; /* of links to others, the latest ones */
    int cut_next;
    int64_t delay_until_ns, delay_ns; /* what it says and hears is late by once to twice as much */
    int64_t loss_until_ns;            /* and by packets that are sent again, */
    int loss_permille;                /* of this share */
    int64_t disk_until_ns;            /* its disk is full */
    int64_t clock_until_ns, clock_ns; /* its wall clock is wrong by so much */
    bool damages;                     /* a bit of the head of its next frame flips */
    tri_sim_listener *listeners;
};

/* This fiber, and those that it starts from now on, belong to it, which outlives them. NULL: to none. */
void tri_sim_process_enter(tri_sim_process *process);
/* Of this fiber; NULL: it has none, or is none. */
tri_sim_process *tri_sim_process_now(void);
/* For so long. */
void tri_sim_process_stop(tri_sim_process *process, int64_t ns);
void tri_sim_process_kill(tri_sim_process *process);
void tri_sim_process_hear(tri_sim_process *process, tri_sim_listener *listener);
/* Was the caller part of one that is dead? Its fibers still unwind, but nothing of that is seen. */
bool tri_sim_process_is_dead(void);
void tri_sim_process_unhear(tri_sim_process *process, tri_sim_listener *listener);
/* Nothing passes between the two for so long, either way. */
void tri_sim_process_cut(tri_sim_process *a, tri_sim_process *b, int64_t ns);
/* When what is said now by one gets to the other, apart from the time that it takes: now, unless they are cut. */
int64_t tri_sim_process_reach_ns(const tri_sim_process *from, const tri_sim_process *to);
/* How much later than by its distance what one says to the other now gets there: both may have links that are late, or
 * lose packets. NULL: nobody's. Throws dice only where there is such trouble. */
int64_t tri_sim_process_late_ns(const tri_sim_process *from, const tri_sim_process *to);
/* For how long nothing has come from the other side: cut, or stopped. */
int64_t tri_sim_process_silent_ns(const tri_sim_process *here, const tri_sim_process *there);

#endif
