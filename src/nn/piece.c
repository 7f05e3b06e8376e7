/* SPDX-License-Identifier: Apache-2.0
 *
 * piece.c: the arithmetic of pieces: a piece is a row of runs of one length, one run for each group of each index in
 * front of the dimension that is cut.
 */
#include "nn/piece.h"

tri_piece_range tri_piece_of_group(int64_t extent, int groups, int part, int parts)
{
    int64_t each = extent / groups, first = each * part / parts;
    return (tri_piece_range){first, each * (part + 1) / parts - first};
}

tri_shape tri_piece_whole(tri_shape shape, tri_piece piece)
{
    if (piece.parts > 0)
        shape.dim[piece.dim] = piece.extent;
    return shape;
}

/* In elements: of a run of the piece, of a group of the tensor, and how far into each group the piece begins. */
typedef struct piece_runs {
    int64_t run, group, skip;
} piece_runs;

static piece_runs runs_of(tri_shape shape, tri_piece piece)
{
    tri_piece_range range = tri_piece_of_group(piece.extent, piece.groups, piece.part, piece.parts);
    int64_t inner = 1;
    for (int d = piece.dim + 1; d < shape.ndim; d++)
        inner *= shape.dim[d];
    return (piece_runs){range.count * inner, piece.extent / piece.groups * inner, range.first * inner};
}

int64_t tri_piece_place(tri_shape shape, tri_piece piece, int64_t at, int64_t *count)
{
    if (piece.parts == 0) {
        *count = tri_shape_count(shape) - at;
        return at;
    }
    piece_runs runs = runs_of(shape, piece);
    *count = runs.run - at % runs.run;
    return at / runs.run * runs.group + runs.skip + at % runs.run;
}

int64_t tri_piece_find(tri_shape shape, tri_piece piece, int64_t place, int64_t *count)
{
    if (piece.parts == 0) {
        *count = tri_shape_count(shape) - place;
        return place;
    }
    piece_runs runs = runs_of(shape, piece);
    int64_t group = place / runs.group, within = place % runs.group - runs.skip;
    if (within >= 0 && within < runs.run) {
        *count = runs.run - within;
        return group * runs.run + within;
    }
    *count = within < 0 ? -within : runs.group - (within + runs.skip);
    return -1;
}
