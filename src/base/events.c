/* SPDX-License-Identifier: Apache-2.0
 *
 * events.c: a ring of slots, each with a stamp of its own that tells readers whether what they copied is whole.
 *
 * Stamp 2t+2: holds event number t; 2t+1: event t is being written. A writer that meets a slot that is being written or
 * already newer (it slept for a whole lap) drops its event rather than wait. All fields are atomics with release stores
 * and acquire loads: no fence is needed, and ThreadSanitizer can follow.
 */
#include "base/events.h"

#include <stdatomic.h>

#include "base/status.h"

#define RING_COUNT UINT64_C(65536)

typedef struct event_slot {
    _Alignas(64) _Atomic uint64_t stamp;
    _Atomic int64_t start_ns, duration_ns;
    _Atomic(const char *) what;
    _Atomic uint64_t rank_sequence; /* rank in the high half */
    _Atomic uint64_t nbytes;
} event_slot;

typedef struct counter_slot {
    _Alignas(64) _Atomic uint64_t value; /* lines of their own: ranks in one process count at the same time */
} counter_slot;

static event_slot ring[RING_COUNT];
static _Atomic uint64_t written; /* events so far */
static counter_slot counters[TRI_COUNTER_COUNT];

void tri_counter_add(tri_counter counter, uint64_t amount)
{
    TRI_ASSERT((unsigned)counter < TRI_COUNTER_COUNT);
    atomic_fetch_add_explicit(&counters[counter].value, amount, memory_order_relaxed);
}

uint64_t tri_counter_now(tri_counter counter)
{
    TRI_ASSERT((unsigned)counter < TRI_COUNTER_COUNT);
    return atomic_load_explicit(&counters[counter].value, memory_order_relaxed);
}

const char *tri_counter_name(tri_counter counter)
{
    static const char *const names[] = {
#define COUNTER_NAME(id, name, help) [id] = name,
        TRI_COUNTER_LIST(COUNTER_NAME)
#undef COUNTER_NAME
    };
    TRI_ASSERT((unsigned)counter < TRI_COUNTER_COUNT);
    return names[counter];
}

void tri_event_write(const tri_event *event)
{
    uint64_t ticket = atomic_fetch_add_explicit(&written, 1, memory_order_relaxed);
    event_slot *slot = &ring[ticket % RING_COUNT];
    uint64_t stamp = atomic_load_explicit(&slot->stamp, memory_order_relaxed);
    if (stamp % 2 != 0 || stamp > 2 * ticket ||
        !atomic_compare_exchange_strong_explicit(&slot->stamp, &stamp, 2 * ticket + 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    uint64_t rank_sequence = (uint64_t)(uint32_t)event->rank << 32 | event->sequence;
    atomic_store_explicit(&slot->start_ns, event->start_ns, memory_order_release);
    atomic_store_explicit(&slot->duration_ns, event->duration_ns, memory_order_release);
    atomic_store_explicit(&slot->what, event->what, memory_order_release);
    atomic_store_explicit(&slot->rank_sequence, rank_sequence, memory_order_release);
    atomic_store_explicit(&slot->nbytes, event->nbytes, memory_order_release);
    atomic_store_explicit(&slot->stamp, 2 * ticket + 2, memory_order_release);
}

/* Copies event number `ticket`; false when it is not (or no longer) whole. */
static bool copy_event(uint64_t ticket, tri_event *out)
{
    event_slot *slot = &ring[ticket % RING_COUNT];
    if (atomic_load_explicit(&slot->stamp, memory_order_acquire) != 2 * ticket + 2)
        return false;
    uint64_t rank_sequence = atomic_load_explicit(&slot->rank_sequence, memory_order_acquire);
    out->start_ns = atomic_load_explicit(&slot->start_ns, memory_order_acquire);
    out->duration_ns = atomic_load_explicit(&slot->duration_ns, memory_order_acquire);
    out->what = atomic_load_explicit(&slot->what, memory_order_acquire);
    out->rank = (int32_t)(uint32_t)(rank_sequence >> 32);
    out->sequence = (uint32_t)rank_sequence;
    out->nbytes = atomic_load_explicit(&slot->nbytes, memory_order_acquire);
    return atomic_load_explicit(&slot->stamp, memory_order_relaxed) == 2 * ticket + 2;
}

uint64_t tri_event_read(tri_event *out, uint64_t limit)
{
    uint64_t end = atomic_load_explicit(&written, memory_order_acquire);
    uint64_t span = limit < RING_COUNT ? limit : RING_COUNT;
    uint64_t count = 0;
    for (uint64_t ticket = end > span ? end - span : 0; ticket < end; ticket++)
        count += copy_event(ticket, &out[count]);
    return count;
}
