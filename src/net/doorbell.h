/* SPDX-License-Identifier: Apache-2.0
 *
 * doorbell.h: a place in shared memory where one process or thread sleeps until another rings.
 *
 * The sleeper says so, looks once more at what it waits for, and sleeps; whoever changes what is waited for rings
 * afterwards. Ringing an empty doorbell is one load and no barrier, which would cost the ringer as much as a message:
 * the barrier is the sleeper's, for all (membarrier(2)); where the kernel has none, sleeps are short.
 */
#ifndef TRI_NET_DOORBELL_H
#define TRI_NET_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tri_doorbell {
    _Alignas(64) atomic_uint rings; /* futex: changes at each ring */
    atomic_uint sleeping;           /* its owner sleeps, or is about to */
} tri_doorbell;

/* Once in each process that rings or sleeps. */
void tri_doorbell_prepare(void);
/* The owner: sleeps at most limit_ns, unless *word is at least `value` already. May wake for no reason. */
void tri_doorbell_sleep(tri_doorbell *doorbell, const _Atomic uint64_t *word, uint64_t value, int64_t limit_ns);
void tri_doorbell_wake(tri_doorbell *doorbell);

/* After a release store of what is waited for. */
static inline void tri_doorbell_ring(tri_doorbell *doorbell)
{
    atomic_signal_fence(memory_order_seq_cst); /* the compiler keeps the order */
    if (atomic_load_explicit(&doorbell->sleeping, memory_order_relaxed))
        tri_doorbell_wake(doorbell);
}

#endif
