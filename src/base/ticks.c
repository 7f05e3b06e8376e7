/* SPDX-License-Identifier: Apache-2.0
 *
 * ticks.c: time stamps from the processor's own counter, where it counts evenly; from the clock elsewhere.
 *
 * What a tick lasts is worked out when a stamp is read, from two looks at both clocks: the first is kept, the second is
 * taken then. Inside a simulation ticks are its virtual nanoseconds.
 */
#include <stdatomic.h>

#include "base/runtime.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

typedef enum tick_source { SOURCE_UNKNOWN, SOURCE_COUNTER, SOURCE_CLOCK } tick_source;

static atomic_int source;
/* Where the counter was at which time; 0: not yet. Written once. */
static _Atomic int64_t first_ns;
static _Atomic uint64_t first_ticks;

#if defined(__x86_64__)
static uint64_t counter_read(void)
{
    return __rdtsc();
}

/* Counts at one rate, also in deep sleep. */
static bool counter_is_even(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}
#elif defined(__aarch64__)
static uint64_t counter_read(void)
{
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}

static bool counter_is_even(void)
{
    return true;
}
#else
static uint64_t counter_read(void)
{
    return 0;
}

static bool counter_is_even(void)
{
    return false;
}
#endif

/* Threads that come here at once agree on what the first of them saw. */
static tick_source source_find(void)
{
    int64_t none = 0, now_ns = tri_now_ns();
    uint64_t ticks = counter_read();

    if (!counter_is_even()) {
        atomic_store(&source, SOURCE_CLOCK);
        return SOURCE_CLOCK;
    }
    if (atomic_load(&first_ticks) == 0) {
        uint64_t zero = 0;

        if (atomic_compare_exchange_strong(&first_ticks, &zero, ticks))
            atomic_compare_exchange_strong(&first_ns, &none, now_ns);
    }
    while (atomic_load(&first_ns) == 0)
        tri_yield();
    atomic_store(&source, SOURCE_COUNTER);
    return SOURCE_COUNTER;
}

uint64_t tri_ticks(void)
{
    int from = atomic_load_explicit(&source, memory_order_relaxed);

    if (tri_sim_active())
        return (uint64_t)tri_now_ns();
    if (from == SOURCE_UNKNOWN)
        from = (int)source_find();
    return from == SOURCE_COUNTER ? counter_read() : (uint64_t)tri_now_ns();
}

int64_t tri_ticks_ns(uint64_t ticks)
{
    int64_t now_ns, since_ns;
    uint64_t now_ticks;
    double each;

    if (tri_sim_active() || atomic_load(&source) != SOURCE_COUNTER)
        return (int64_t)ticks;
    now_ns = tri_now_ns();
    now_ticks = counter_read();
    since_ns = now_ns - atomic_load(&first_ns);
    if (since_ns <= 0 || now_ticks <= atomic_load(&first_ticks))
        return now_ns;
    each = (double)since_ns / (double)(now_ticks - atomic_load(&first_ticks));
    return now_ns - (int64_t)((double)(int64_t)(now_ticks - ticks) * each);
}
