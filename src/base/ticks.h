/* SPDX-License-Identifier: Apache-2.0
 *
 * ticks.h: time stamps that cost one read of the processor's counter, for records of what happens often.
 *
 * A stamp is only a number; what tri_now_ns() was then is worked out when somebody reads it.
 */
#ifndef TRI_BASE_TICKS_H
#define TRI_BASE_TICKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The counter may be read at once: it counts evenly, and no simulation runs. */
extern atomic_bool tri_ticks_direct;
/* The same with a look at where the call comes from: in a simulation, its virtual nanoseconds. */
uint64_t tri_ticks_asked(void);
/* A simulation begins or has ended. */
void tri_ticks_simulated(bool begins);

static inline uint64_t tri_ticks_counter(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc(); /* __rdtsc() of x86intrin.h, whose reading takes half a second */
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

static inline uint64_t tri_ticks(void)
{
    if (__builtin_expect(atomic_load_explicit(&tri_ticks_direct, memory_order_relaxed), true))
        return tri_ticks_counter();
    return tri_ticks_asked();
}

/* What tri_now_ns() was at a stamp: exact to some microseconds. */
int64_t tri_ticks_ns(uint64_t ticks);

#endif
