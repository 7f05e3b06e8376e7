/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_process.c: processes of a simulation. That a stopped one does not run is the scheduler's work (runtime_sched.c).
 */
#include "base/sim_process.h"

#include "base/runtime_sched.h"

/* Of TCP: after how long a lost packet is sent again that others behind it have reported, or that nothing has (Linux:
 * 200 ms, twice as long each time). */
#define SEEN_NS     TRI_NS_PER_MS
#define TIMEOUT_NS  (200 * TRI_NS_PER_MS)
#define RESENDS_MAX 4

bool tri_sim_process_is_dead(void)
{
    const tri_sim_process *process = tri_sim_process_now();
    return process && process->dead;
}

void tri_sim_process_enter(tri_sim_process *process)
{
    TRI_ASSERT(tri_fiber_now);
    tri_fiber_now->process = process;
}

tri_sim_process *tri_sim_process_now(void)
{
    return tri_fiber_now ? tri_fiber_now->process : NULL;
}

void tri_sim_process_stop(tri_sim_process *process, int64_t ns)
{
    int64_t now_ns = tri_now_ns();

    if (process->wake_ns <= now_ns)
        process->stopped_ns = now_ns;
    process->wake_ns = now_ns + ns;
}

void tri_sim_process_kill(tri_sim_process *process)
{
    if (process->dead)
        return;
    process->dead = true;
    process->wake_ns = 0;
    while (process->listeners) {
        tri_sim_listener *listener = process->listeners;

        process->listeners = listener->next;
        listener->killed(listener->arg);
    }
}

void tri_sim_process_hear(tri_sim_process *process, tri_sim_listener *listener)
{
    listener->next = process->listeners;
    process->listeners = listener;
}

void tri_sim_process_unhear(tri_sim_process *process, tri_sim_listener *listener)
{
    for (tri_sim_listener **at = &process->listeners; *at; at = &(*at)->next) {
        if (*at == listener) {
            *at = listener->next;
            return;
        }
    }
}

static void cut_note(tri_sim_process *process, const tri_sim_process *other, int64_t from_ns, int64_t to_ns)
{
    process->cuts[process->cut_next].other = other;
    process->cuts[process->cut_next].from_ns = from_ns;
    process->cuts[process->cut_next].to_ns = to_ns;
    process->cut_next = (process->cut_next + 1) % TRI_SIM_CUTS;
}

void tri_sim_process_cut(tri_sim_process *a, tri_sim_process *b, int64_t ns)
{
    int64_t now_ns = tri_now_ns();

    /* By the one that has fewer to remember, so that one can be cut off from many. */
    if (a->cuts[a->cut_next].to_ns <= now_ns)
        cut_note(a, b, now_ns, now_ns + ns);
    else
        cut_note(b, a, now_ns, now_ns + ns);
}

/* Of those in force that `from` remembers; since when, and until when. */
static void cut_find(const tri_sim_process *from, const tri_sim_process *to, int64_t *since_ns, int64_t *until_ns)
{
    int64_t now_ns = tri_now_ns();

    for (int i = 0; i < TRI_SIM_CUTS; i++) {
        if (from->cuts[i].other != to || from->cuts[i].to_ns <= now_ns)
            continue;
        if (from->cuts[i].from_ns < *since_ns)
            *since_ns = from->cuts[i].from_ns;
        if (from->cuts[i].to_ns > *until_ns)
            *until_ns = from->cuts[i].to_ns;
    }
}

int64_t tri_sim_process_reach_ns(const tri_sim_process *from, const tri_sim_process *to)
{
    int64_t since_ns = TRI_FOREVER, until_ns = tri_now_ns();

    if (from && to) {
        cut_find(from, to, &since_ns, &until_ns);
        cut_find(to, from, &since_ns, &until_ns);
    }
    return until_ns;
}

static int64_t delayed_ns(const tri_sim_process *process, int64_t now_ns)
{
    if (!process || process->delay_until_ns <= now_ns)
        return 0;
    return process->delay_ns + (int64_t)(tri_sim_random() % (uint64_t)(process->delay_ns + 1));
}

/* A stream is whole and in order, whatever is lost: what is behind a lost packet waits until it has come again. */
static int64_t resent_ns(const tri_sim_process *process, int64_t now_ns)
{
    int64_t late_ns = 0, timeout_ns = TIMEOUT_NS;

    if (!process || process->loss_until_ns <= now_ns)
        return 0;
    for (int i = 0; i < RESENDS_MAX && tri_sim_random() % 1000 < (uint64_t)process->loss_permille; i++) {
        bool seen = tri_sim_random() % 4 > 0; /* by later ones that came, which the last ones of a row do not have */

        late_ns += seen ? SEEN_NS : timeout_ns;
        timeout_ns *= seen ? 1 : 2;
    }
    return late_ns;
}

int64_t tri_sim_process_late_ns(const tri_sim_process *from, const tri_sim_process *to)
{
    int64_t now_ns = tri_now_ns();

    return delayed_ns(from, now_ns) + delayed_ns(to, now_ns) + resent_ns(from, now_ns) + resent_ns(to, now_ns);
}

int64_t tri_sim_process_silent_ns(const tri_sim_process *here, const tri_sim_process *there)
{
    int64_t now_ns = tri_now_ns(), since_ns = now_ns, until_ns = 0;

    if (!here || !there)
        return 0;
    cut_find(here, there, &since_ns, &until_ns);
    cut_find(there, here, &since_ns, &until_ns);
    if (there->wake_ns > now_ns && there->stopped_ns < since_ns)
        since_ns = there->stopped_ns;
    return now_ns - since_ns;
}
