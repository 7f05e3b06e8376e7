/* SPDX-License-Identifier: Apache-2.0
 *
 * bell.h: a place in shared memory where one process or thread sleeps until another rings.
 *
 * The sleeper says so, looks once more at what it waits for, and sleeps; whoever changes what is waited for rings
 * afterwards. Ringing an empty bell is one load and no barrier, which would cost the ringer as much as a message: the
 * barrier is the sleeper's, for all (membarrier(2)); where the kernel has none, sleeps are short.
 */
#ifndef TRI_NET_BELL_H
#define TRI_NET_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tri_bell {
    _Alignas(64) atomic_uint rings; /* futex: changes at each ring */
    atomic_uint sleeping;           /* its owner sleeps, or is about to */
} tri_bell;

/* Once in each process that rings or sleeps. */
void tri_bell_prepare(void);
/* The owner: sleeps at most limit_ns, unless *word is at least `value` already. May wake for no reason. */
void tri_bell_sleep(tri_bell *bell, const _Atomic uint64_t *word, uint64_t value, int64_t limit_ns);
void tri_bell_wake(tri_bell *bell);

/* After a release store of what is waited for. */
static inline void tri_bell_ring(tri_bell *bell)
{
    atomic_signal_fence(memory_order_seq_cst); /* the compiler keeps the order */
    if (atomic_load_explicit(&bell->sleeping, memory_order_relaxed))
        tri_bell_wake(bell);
}

#endif
