/* SPDX-License-Identifier: Apache-2.0
 *
 * annotation.h: what workers tell each other: each leaves a note on a subject at the first server, and is given those
 * of all.
 *
 * A note is a few figures or rows, in the way of a worker no more than a step's message; the server does not read it.
 * None is kept beyond a server that dies.
 */
#ifndef TRI_PS_ANNOTATION_H
#define TRI_PS_ANNOTATION_H

#include <stddef.h>
#include <stdint.h>

#define PS_NOTE_LIMIT_NBYTES ((size_t)2 << 20)

typedef enum ps_subject {
    PS_SUBJECT_LOOK,  /* train/features/slow_ranks.c: what each did in the last second */
    PS_SUBJECT_TRACE, /* train/features/trace.c: what each did in some steps; those that were given are dropped */
    PS_SUBJECT_COUNT
} ps_subject;

/* In an answer, before each note; zeros follow it up to a multiple of 8 bytes. */
typedef struct ps_note_head {
    uint32_t worker, nbytes;
} ps_note_head;

static inline size_t ps_note_room(size_t nbytes)
{
    return sizeof(ps_note_head) + (nbytes + 7) / 8 * 8;
}

#endif
