/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.h: a ring of bytes between one writer and one reader that share memory: threads, or processes.
 *
 * `tail` counts the bytes ever written, `head` those ever read; each has one owner and cache lines of its own. Stores
 * and loads are seq_cst where a sleeper may be waiting: "store tail, load sleeping" and "store sleeping, load tail"
 * must not pass each other. Counters out of range (a broken peer) never lead outside the ring.
 */
#ifndef TRI_NET_RING_H
#define TRI_NET_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cache.h"

/* What is copied before the other side hears of it: both sides then work at the same time, within their caches. */
#define TRI_RING_PIECE_NBYTES ((size_t)32 << 10)

typedef struct tri_ring_ends {
    _Alignas(TRI_LINES_APART) _Atomic uint64_t tail;
    _Alignas(TRI_LINES_APART) _Atomic uint64_t head;
} tri_ring_ends;

/* One side's view. */
typedef struct tri_ring {
    tri_ring_ends *ends;
    unsigned char *bytes;
    uint64_t capacity; /* bytes, a multiple of 64 */
} tri_ring;

/* Bytes to read. */
static inline uint64_t tri_ring_used(const tri_ring *ring)
{
    uint64_t head = atomic_load(&ring->ends->head);
    uint64_t used = atomic_load(&ring->ends->tail) - head;

    return used < ring->capacity ? used : ring->capacity;
}

static inline uint64_t tri_ring_free(const tri_ring *ring)
{
    return ring->capacity - tri_ring_used(ring);
}

static inline size_t tri_ring_write(const tri_ring *ring, const void *bytes, size_t nbytes)
{
    uint64_t tail = atomic_load_explicit(&ring->ends->tail, memory_order_relaxed);
    uint64_t space = tri_ring_free(ring);
    size_t done = 0;

    if (nbytes > space)
        nbytes = (size_t)space;
    while (done < nbytes) {
        uint64_t at = (tail + done) % ring->capacity;
        size_t piece = nbytes - done < TRI_RING_PIECE_NBYTES ? nbytes - done : TRI_RING_PIECE_NBYTES;

        if (piece > ring->capacity - at)
            piece = (size_t)(ring->capacity - at);
        tri_copy_out(ring->bytes + at, (const unsigned char *)bytes + done, piece);
        done += piece;
        atomic_store(&ring->ends->tail, tail + done);
    }
    return nbytes;
}

/* The bytes that are in one piece at the front, at most `limit`. */
static inline size_t tri_ring_peek(const tri_ring *ring, uint64_t limit, const void **bytes)
{
    uint64_t at = atomic_load_explicit(&ring->ends->head, memory_order_relaxed) % ring->capacity;
    uint64_t used = tri_ring_used(ring);

    if (used > limit)
        used = limit;
    *bytes = ring->bytes + at;
    return (size_t)(used < ring->capacity - at ? used : ring->capacity - at);
}

/* Lets go of bytes at the front; they may be in two pieces. */
static inline void tri_ring_consume(const tri_ring *ring, size_t nbytes)
{
    uint64_t head = atomic_load_explicit(&ring->ends->head, memory_order_relaxed), at = head % ring->capacity;
    size_t before = nbytes < ring->capacity - at ? nbytes : (size_t)(ring->capacity - at);

    tri_take_lines(ring->bytes + at, before);
    tri_take_lines(ring->bytes, nbytes - before);
    atomic_store(&ring->ends->head, head + nbytes);
}

/* Copies out up to nbytes, of the first `limit`. */
static inline size_t tri_ring_read(const tri_ring *ring, uint64_t limit, void *bytes, size_t nbytes)
{
    uint64_t used = tri_ring_used(ring);
    uint64_t head = atomic_load_explicit(&ring->ends->head, memory_order_relaxed);
    size_t done = 0;

    if (used > limit)
        used = limit;
    if (nbytes > used)
        nbytes = (size_t)used;
    while (done < nbytes) {
        uint64_t at = (head + done) % ring->capacity;
        size_t piece = nbytes - done < TRI_RING_PIECE_NBYTES ? nbytes - done : TRI_RING_PIECE_NBYTES;

        if (piece > ring->capacity - at)
            piece = (size_t)(ring->capacity - at);
        memcpy((unsigned char *)bytes + done, ring->bytes + at, piece);
        tri_ring_consume(ring, piece);
        done += piece;
    }
    return nbytes;
}

#endif
