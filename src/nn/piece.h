/* SPDX-License-Identifier: Apache-2.0
 *
 * piece.h: which part of a tensor of the model is kept here: a range of one of its dimensions, or of each of several
 * groups of that dimension (queries, keys and values that are in one matrix, where queries may be more).
 *
 * The elements of a piece are in the order of the tensor, without gaps. `parts` pieces make the tensor; whose elements
 * are whose follows from the shapes alone.
 */
#ifndef TRI_NN_PIECE_H
#define TRI_NN_PIECE_H

#include <trireme/tensor.h>

typedef struct tri_piece {
    int parts; /* of the tensor; 0: it is not cut */
    int part;
    int dim;        /* that is cut */
    int groups;     /* of it, alike; each is cut into parts */
    int64_t extent; /* of the tensor in this dimension: a multiple of groups */
    int lead; /* the first group is this many times as long as each of the others: queries of grouped heads; 0: 1 */
} tri_piece;

/* One of `parts` pieces of a dimension in `groups` equal groups: its first index within a group, and how many. Parts of
 * a group that they do not divide differ by one at most. */
typedef struct tri_piece_range {
    int64_t first, count;
} tri_piece_range;
tri_piece_range tri_piece_of_group(int64_t extent, int groups, int part, int parts);

static inline bool tri_piece_equal(tri_piece a, tri_piece b)
{
    if (a.parts == 0 || b.parts == 0)
        return a.parts == b.parts;
    return a.parts == b.parts && a.part == b.part && a.dim == b.dim && a.groups == b.groups && a.extent == b.extent &&
           a.lead == b.lead;
}

/* Whether the dimension can be cut into those groups. */
bool tri_piece_is_sound(tri_piece piece);
/* How many indices of the dimension the piece has. */
int64_t tri_piece_count(tri_piece piece);
/* Shape of the tensor whose piece has `shape`. */
tri_shape tri_piece_whole(tri_shape shape, tri_piece piece);
/* Where element `at` of a piece of `shape` is in the tensor; *count: elements from there that are neighbours in both.
 */
int64_t tri_piece_place(tri_shape shape, tri_piece piece, int64_t at, int64_t *count);
/* The way back: element `place` of the tensor in the piece, or -1 where it is of another; *count: elements from there
 * that are neighbours in both, or of others. */
int64_t tri_piece_find(tri_shape shape, tri_piece piece, int64_t place, int64_t *count);

#endif
