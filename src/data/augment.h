/* SPDX-License-Identifier: Apache-2.0
 *
 * augment.h: an image moved and mirrored at random; how, is a pure function of (seed, epoch, index of the sample).
 */
#ifndef TRI_DATA_AUGMENT_H
#define TRI_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_augment {
    uint64_t seed;
    int64_t crop; /* moved by at most this many pixels each way; what comes in from outside is black */
    bool flip;    /* mirrored left to right in half of the cases */
    int64_t height, width, channels;
} tri_augment;

typedef struct tri_augment_move {
    int64_t down, right; /* the pixel at (y, x) comes from (y + down, x + right), mirrored afterwards */
    bool mirror;
} tri_augment_move;

tri_augment_move tri_augment_draw(const tri_augment *augment, int64_t epoch, int64_t index);
/* from, to: [height, width, channels], not the same memory; black: [channels]. */
void tri_augment_apply(const tri_augment *augment, tri_augment_move move, const float *from, const float *black,
                       float *to);

#endif
