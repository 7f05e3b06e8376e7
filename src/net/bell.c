/* SPDX-License-Identifier: Apache-2.0
 *
 * bell.c: sleeping and waking by futex, across processes.
 */
#include "net/bell.h"

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

void tri_bell_prepare(void)
{
    (void)barrier_call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

void tri_bell_sleep(tri_bell *bell, const _Atomic uint64_t *word, uint64_t value, int64_t limit_ns)
{
    unsigned rings = atomic_load(&bell->rings);

    atomic_store(&bell->sleeping, 1);
    if (barrier_call(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 && limit_ns > BLIND_LIMIT_NS)
        limit_ns = BLIND_LIMIT_NS;

    struct timespec limit = {.tv_sec = (time_t)(limit_ns / TRI_NS_PER_S), .tv_nsec = (long)(limit_ns % TRI_NS_PER_S)};

    if (atomic_load(word) < value)
        syscall(SYS_futex, &bell->rings, FUTEX_WAIT, rings, &limit, NULL, 0);
    atomic_store(&bell->sleeping, 0);
}

void tri_bell_wake(tri_bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
