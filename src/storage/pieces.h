/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.h: files of a checkpoint at a URL as objects of several writers: each has what one writer put, and where it
 * belongs. The file `pieces` names those that count; joined, they are the files again.
 *
 * A piece: its bytes; of each run of them u64 place in the file and u64 length; u64 number of runs; "TRIPIECE".
 * All numbers little endian.
 */
#ifndef TRI_STORAGE_PIECES_H
#define TRI_STORAGE_PIECES_H

#include "base/containers.h"
#include "base/fs.h"

#define TRI_PIECES_LIST   "pieces"
#define TRI_PIECES_REPORT "report.piece-" /* what a writer says of its pieces, to the first one */

/* One that is being written; zeros are an empty one. */
typedef struct tri_piece {
    tri_vector runs; /* two uint64_t each: place, length */
    uint64_t nbytes;
} tri_piece;
/* Appends bytes to the piece's file that belong to this place. */
tri_status tri_piece_put(tri_piece *piece, tri_fs_file *file, const void *bytes, size_t nbytes, uint64_t place);
/* Appends the table of runs. */
tri_status tri_piece_end(const tri_piece *piece, tri_fs_file *file);
void tri_piece_fini(tri_piece *piece);
/* "FILE.piece-WRITER-MARK", of a save with this mark (tri_free). */
char *tri_piece_name(const char *file, int writer, uint64_t mark);
/* Whether a name is one of these, of any save; `mark` (may be NULL): of this save. */
bool tri_piece_is(const char *name, const char *mark);

/* Writes the list of pieces, a name a line, beside the manifest in a folder; it counts with that manifest alone. */
tri_status tri_pieces_list_write(const char *folder, const char *names);
/* Makes the files of a folder from its pieces, which go with their list. Without a list of this manifest nothing is
 * made. TRI_EFORMAT: a piece is missing or damaged. */
tri_status tri_pieces_join(const char *folder);

#endif
