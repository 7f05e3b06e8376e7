/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.h: a flat array of f32 that lies in several places, such as a sum whose parts stay with those who added them.
 *
 * Pieces stand in order and without gaps, the first one at element 0 of the array.
 */
#ifndef TRI_TENSOR_PIECES_H
#define TRI_TENSOR_PIECES_H

#include <stdint.h>
#include <string.h>

typedef struct tri_piece {
    const float *at;      /* of element `first` */
    int64_t first, count; /* elements of the array */
} tri_piece;

typedef struct tri_pieces {
    const tri_piece *items;
    int count;
} tri_pieces;

/* The piece that holds the element. */
static inline const tri_piece *tri_pieces_find(const tri_pieces *pieces, int64_t element)
{
    int low = 0, high = pieces->count - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (pieces->items[middle].first <= element)
            low = middle;
        else
            high = middle - 1;
    }
    return &pieces->items[low];
}

/* Where element `first` lies, and in *count how many of the next `limit` elements lie behind it. */
static inline const float *tri_pieces_at(const tri_pieces *pieces, int64_t first, int64_t limit, int64_t *count)
{
    const tri_piece *piece = tri_pieces_find(pieces, first);
    int64_t left = piece->first + piece->count - first;
    *count = left < limit ? left : limit;
    return piece->at + (first - piece->first);
}

/* `count` elements in one row: where they lie, or copied to `room` if that is several places. */
static inline const float *tri_pieces_row(const tri_pieces *pieces, int64_t first, int64_t count, float *room)
{
    int64_t here;
    const float *at = tri_pieces_at(pieces, first, count, &here);
    if (here == count)
        return at;
    for (int64_t done = 0; done < count; done += here) {
        at = tri_pieces_at(pieces, first + done, count - done, &here);
        memcpy(room + done, at, (size_t)here * sizeof(float));
    }
    return room;
}

#endif
