/* SPDX-License-Identifier: Apache-2.0
 *
 * note.h: what a rank tells the others about itself with each beat of its watch: its latest call and what it moved.
 *
 * At most 1,024 bytes, little endian (docs/formats/wire.md). What comes from another rank is checked before it is used.
 */
#ifndef TRI_COMM_NOTE_H
#define TRI_COMM_NOTE_H

#include "comm/board.h"

#define TRI_NOTE_PEERS 40

typedef struct tri_note_peer {
    int rank;
    uint64_t sent, received; /* bytes of frames */
} tri_note_peer;

typedef struct tri_note {
    tri_board_call call; /* begin_ns, end_ns: how long ago, when the note was made; end_ns 0: it runs */
    int64_t made_ns;     /* clock of the host it comes from */
    int peer_count;
    tri_note_peer peers[TRI_NOTE_PEERS]; /* with whom bytes moved in this call; not all, where there are many */
} tri_note;

/* Of this rank, now; returns the bytes written, 0: there is nothing to tell. */
size_t tri_note_write(const tri_board *board, const tri_net *net, unsigned char bytes[TRI_WATCH_NOTE_NBYTES]);
/* False: not a note, or of another world. */
bool tri_note_read(const unsigned char *bytes, size_t nbytes, int world, tri_note *note);

#endif
