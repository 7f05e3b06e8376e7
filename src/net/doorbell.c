/* SPDX-License-Identifier: Apache-2.0
 *
 * doorbell.c: sleeping and waking by futex, across processes.
 */
#include "net/doorbell.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/runtime.h"

#define BLIND_LIMIT_NS INT64_C(200000) /* of a sleep that a ringer may overlook */

static int barrier_call(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

void tri_doorbell_prepare(void)
{
    (void)barrier_call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

void tri_doorbell_sleep(tri_doorbell *doorbell, const _Atomic uint64_t *word, uint64_t value, int64_t limit_ns)
{
    unsigned rings = atomic_load(&doorbell->rings);

    atomic_store(&doorbell->sleeping, 1);
    if (barrier_call(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 && limit_ns > BLIND_LIMIT_NS)
        limit_ns = BLIND_LIMIT_NS;

    struct timespec limit = {.tv_sec = (time_t)(limit_ns / TRI_NS_PER_S), .tv_nsec = (long)(limit_ns % TRI_NS_PER_S)};

    if (atomic_load(word) < value)
        syscall(SYS_futex, &doorbell->rings, FUTEX_WAIT, rings, &limit, NULL, 0);
    atomic_store(&doorbell->sleeping, 0);
}

void tri_doorbell_wake(tri_doorbell *doorbell)
{
    atomic_fetch_add(&doorbell->rings, 1);
    syscall(SYS_futex, &doorbell->rings, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
