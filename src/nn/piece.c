/* SPDX-License-Identifier: Apache-2.0
 *
 * piece.c: the arithmetic of pieces: a piece is a row of runs, one for each group of each index in front of the
 * dimension that is cut.
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

static int64_t lead_of(tri_piece piece)
{
    return piece.lead > 0 ? piece.lead : 1;
}

bool tri_piece_is_sound(tri_piece piece)
{
    return piece.groups >= 1 && piece.part >= 0 && piece.part < piece.parts && piece.lead >= 0 &&
           piece.extent % (lead_of(piece) + piece.groups - 1) == 0;
}

/* In elements: a group in the tensor and its run in the piece, both counted from the first index of the dimension. */
typedef struct piece_run {
    int64_t group, length; /* of the tensor */
    int64_t skip;          /* from there to the piece's */
    int64_t first, count;  /* of the piece */
} piece_run;

/* The group of element `at` of one row of groups, of the tensor or of the piece. */
static piece_run run_find(tri_shape shape, tri_piece piece, int64_t at, bool of_tensor)
{
    int64_t each = piece.extent / (lead_of(piece) + piece.groups - 1), inner = 1;
    piece_run run = {0};
    for (int d = piece.dim + 1; d < shape.ndim; d++)
        inner *= shape.dim[d];
    for (int g = 0; g < piece.groups; g++) {
        run.group += run.length;
        run.first += run.count;
        run.length = g == 0 ? each * lead_of(piece) : each;
        tri_piece_range range = tri_piece_of_group(run.length, 1, piece.part, piece.parts);
        run.length *= inner;
        run.skip = range.first * inner;
        run.count = range.count * inner;
        if (of_tensor ? at < run.group + run.length : at < run.first + run.count)
            break;
    }
    return run;
}

int64_t tri_piece_count(tri_piece piece)
{
    tri_shape line = {.ndim = 1, .dim = {piece.extent}};
    piece.dim = 0;
    piece_run last = run_find(line, piece, piece.extent - 1, true);
    return last.first + last.count;
}

/* Elements of one row of groups of a tensor or piece of that shape. */
static int64_t row_of(tri_shape shape, tri_piece piece)
{
    int64_t row = 1;
    for (int d = piece.dim; d < shape.ndim; d++)
        row *= shape.dim[d];
    return row;
}

int64_t tri_piece_place(tri_shape shape, tri_piece piece, int64_t at, int64_t *count)
{
    if (piece.parts == 0) {
        *count = tri_shape_count(shape) - at;
        return at;
    }
    int64_t row = row_of(shape, piece), whole = row_of(tri_piece_whole(shape, piece), piece);
    piece_run run = run_find(shape, piece, at % row, false);
    int64_t within = at % row - run.first;
    *count = run.count - within;
    return at / row * whole + run.group + run.skip + within;
}

int64_t tri_piece_find(tri_shape shape, tri_piece piece, int64_t place, int64_t *count)
{
    if (piece.parts == 0) {
        *count = tri_shape_count(shape) - place;
        return place;
    }
    int64_t row = row_of(shape, piece), whole = row_of(tri_piece_whole(shape, piece), piece);
    piece_run run = run_find(shape, piece, place % whole, true);
    int64_t within = place % whole - run.group - run.skip;
    if (within >= 0 && within < run.count) {
        *count = run.count - within;
        return place / whole * row + run.first + within;
    }
    *count = within < 0 ? -within : run.length - run.skip - within;
    return -1;
}
