/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_heap.h: things by the time at which they happen, the earliest first, of equal times the one pushed first.
 *
 * For sim.c and sim_pipe.c only.
 */
#ifndef TRI_NET_SIM_HEAP_H
#define TRI_NET_SIM_HEAP_H

#include <stdint.h>

#include "base/memory.h"
#include "base/runtime.h"

typedef struct sim_event {
    int64_t at_ns;
    uint64_t order; /* of equal times */
    uint64_t key;
    void *subject;
} sim_event;

typedef struct sim_heap {
    sim_event *events;
    size_t count, capacity;
    uint64_t pushed;
} sim_heap;

static inline void sim_heap_fini(sim_heap *heap)
{
    tri_free(heap->events);
    *heap = (sim_heap){0};
}

/* TRI_FOREVER: empty. */
static inline int64_t sim_heap_first_ns(const sim_heap *heap)
{
    return heap->count > 0 ? heap->events[0].at_ns : TRI_FOREVER;
}

static inline bool sim_event_before(const sim_event *a, const sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

/* Room for `count` more. */
static inline tri_status sim_heap_reserve(sim_heap *heap, size_t more)
{
    size_t capacity = heap->capacity ? 2 * heap->capacity : 8;
    sim_event *grown;

    if (heap->count + more <= heap->capacity)
        return TRI_OK;
    while (heap->count + more > capacity)
        capacity *= 2;
    grown = tri_realloc(heap->events, capacity * sizeof *grown);
    if (!grown)
        return TRI_ENOMEM;
    heap->events = grown;
    heap->capacity = capacity;
    return TRI_OK;
}

/* There is room. */
static inline void sim_heap_push(sim_heap *heap, int64_t at_ns, uint64_t key, void *subject)
{
    sim_event event = {.at_ns = at_ns, .order = heap->pushed++, .key = key, .subject = subject};
    size_t at = heap->count++;

    for (; at > 0 && sim_event_before(&event, &heap->events[(at - 1) / 2]); at = (at - 1) / 2)
        heap->events[at] = heap->events[(at - 1) / 2];
    heap->events[at] = event;
}

/* Of a heap that is not empty. */
static inline sim_event sim_heap_pop(sim_heap *heap)
{
    sim_event first = heap->events[0], last = heap->events[--heap->count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < heap->count && sim_event_before(&heap->events[child + 1], &heap->events[child]))
            child++;
        if (child >= heap->count || !sim_event_before(&heap->events[child], &last))
            break;
        heap->events[at] = heap->events[child];
        at = child;
    }
    heap->events[at] = last;
    return first;
}

#endif
