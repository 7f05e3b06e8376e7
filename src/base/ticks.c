/* SPDX-License-Identifier: Apache-2.0
 *
 * ticks.c: time stamps from the processor's own counter, where it counts evenly; from the clock elsewhere.
 *
 * What a tick lasts is worked out when a stamp is read, from two looks at both clocks: the first is kept, the second is
 * taken then. Inside a simulation ticks are its virtual nanoseconds.
 */
#include "base/ticks.h"

#include "base/runtime.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define BOTH_TURNS  8
#define BOTH_GAP_NS 10000

typedef enum tick_source { SOURCE_UNKNOWN, SOURCE_COUNTER, SOURCE_CLOCK } tick_source;

atomic_bool tri_ticks_direct;
static atomic_int source, simulations;
/* Where the counter was at which time; 0: not yet. Written once. */
static _Atomic int64_t first_ns;
static _Atomic uint64_t first_ticks;

/* Counts at one rate, also in deep sleep. */
static bool counter_is_even(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;

    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

/* Again when simulations of several threads began or ended meanwhile. */
static void direct_set(void)
{
    int running;

    do {
        running = atomic_load(&simulations);
        atomic_store(&tri_ticks_direct, running == 0 && atomic_load(&source) == SOURCE_COUNTER);
    } while (atomic_load(&simulations) != running);
}

/* The clock and the counter at the same moment: again where something else ran between the two looks, which would be an
 * error of every stamp. */
static int64_t both_read(uint64_t *ticks)
{
    int64_t best_ns = 0, gap_ns = INT64_MAX;

    for (int turn = 0; turn < BOTH_TURNS && gap_ns > BOTH_GAP_NS; turn++) {
        int64_t before_ns = tri_now_ns();
        uint64_t counter = tri_ticks_counter();
        int64_t after_ns = tri_now_ns();

        if (after_ns - before_ns >= gap_ns)
            continue;
        gap_ns = after_ns - before_ns;
        best_ns = before_ns + gap_ns / 2;
        *ticks = counter;
    }
    return best_ns;
}

/* Threads that come here at once agree on what the first of them saw. */
static tick_source source_find(void)
{
    uint64_t zero = 0, ticks = 0;
    int64_t none = 0, now_ns = both_read(&ticks);

    if (!counter_is_even()) {
        atomic_store(&source, SOURCE_CLOCK);
        return SOURCE_CLOCK;
    }
    if (atomic_compare_exchange_strong(&first_ticks, &zero, ticks))
        atomic_compare_exchange_strong(&first_ns, &none, now_ns);
    while (atomic_load(&first_ns) == 0)
        tri_yield();
    atomic_store(&source, SOURCE_COUNTER);
    direct_set();
    return SOURCE_COUNTER;
}

void tri_ticks_simulated(bool begins)
{
    atomic_fetch_add(&simulations, begins ? 1 : -1);
    direct_set();
}

uint64_t tri_ticks_asked(void)
{
    int from = atomic_load(&source);

    if (tri_sim_active())
        return (uint64_t)tri_now_ns();
    if (from == SOURCE_UNKNOWN)
        from = (int)source_find();
    return from == SOURCE_COUNTER ? tri_ticks_counter() : (uint64_t)tri_now_ns();
}

int64_t tri_ticks_ns(uint64_t ticks)
{
    int64_t now_ns, since_ns;
    uint64_t now_ticks = 0;
    double each;

    if (tri_sim_active() || atomic_load(&source) != SOURCE_COUNTER)
        return (int64_t)ticks;
    now_ns = both_read(&now_ticks);
    since_ns = now_ns - atomic_load(&first_ns);
    if (since_ns <= 0 || now_ticks <= atomic_load(&first_ticks))
        return now_ns;
    each = (double)since_ns / (double)(now_ticks - atomic_load(&first_ticks));
    return now_ns - (int64_t)((double)(int64_t)(now_ticks - ticks) * each);
}
