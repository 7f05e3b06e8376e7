/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h: the head of every message between two ranks: who calls what, so that ranks that disagree find out at once.
 *
 * 64 bytes, little endian, then `nbytes` of payload, then zeros up to a multiple of 64: so that in a ring every payload
 * is aligned and can be used where it is. docs/formats/wire.md specifies it.
 */
#ifndef TRI_NET_FRAME_H
#define TRI_NET_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define TRI_FRAME_MAGIC  UINT32_C(0x31495254) /* "TRI1" */
#define TRI_FRAME_NBYTES 64
/* No honest frame is longer: protects against garbage in `nbytes`. */
#define TRI_FRAME_LIMIT_NBYTES (UINT64_C(1) << 40)
/* The text of an abort. */
#define TRI_FRAME_ABORT_LIMIT_NBYTES UINT64_C(1024)

typedef enum tri_frame_kind {
    TRI_FRAME_DATA = 1,
    TRI_FRAME_ABORT = 2, /* payload: text of the first cause; `op` holds its tri_status, `count` the rank it began at */
    TRI_FRAME_BYE = 3,   /* the peer leaves in good order: end of file after this is no failure */
    TRI_FRAME_KIND_COUNT
} tri_frame_kind;

typedef struct tri_frame {
    uint16_t kind;
    uint8_t op;     /* tri_comm_op of the call */
    uint8_t dtype;  /* tri_dtype */
    uint16_t roots; /* digest of the roots of the group's calls up to this one */
    uint32_t group; /* id of the group */
    uint32_t generation;
    uint64_t sequence; /* of the call within its group; 48 bits */
    uint64_t count;    /* elements of the call */
    uint64_t name;     /* xxh3 of the tensor's name, 0 = none */
    uint64_t nbytes;   /* of this frame's payload */
    uint32_t reduce;   /* tri_reduce_op */
    uint32_t part;     /* which part of the call this frame is: step of the algorithm, chunk */
    uint64_t check;    /* xxh3 of the 56 bytes before it: a damaged head is found before it is believed */
} tri_frame;

/* Fills check and writes 64 bytes. */
void tri_frame_encode(const tri_frame *frame, unsigned char bytes[TRI_FRAME_NBYTES]);
/* TRI_EFORMAT when magic, check, kind or nbytes cannot be. */
tri_status tri_frame_decode(const unsigned char bytes[TRI_FRAME_NBYTES], tri_frame *frame);
/* Do two ranks talk about the same call? Compares everything but nbytes and check. */
bool tri_frame_agrees(const tri_frame *mine, const tri_frame *theirs);

#endif
