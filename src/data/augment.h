/* SPDX-License-Identifier: Apache-2.0
 *
 * augment.h: images changed at random; how, is a pure function of (seed, epoch, index of the sample).
 *
 * In this order: a window of the image is scaled to the sample (random resized crop), colors of the bytes change, then,
 * after normalization, pixels move and mirror, and a rectangle is erased. Last, two images of a shard are mixed.
 */
#ifndef TRI_DATA_AUGMENT_H
#define TRI_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_augment {
    uint64_t seed;
    int64_t crop;      /* moved by at most this many pixels each way; what comes in from outside is black */
    bool flip;         /* mirrored left to right in half of the cases */
    double least_area; /* of the window, as a fraction of the image; 0: no window */
    double brightness, contrast, saturation, hue;
    double mixup, cutmix; /* of Beta(x, x); 0: off */
    double erase;         /* probability of the rectangle */
    int64_t height, width, channels;
} tri_augment;

typedef struct tri_augment_move {
    int64_t down, right; /* the pixel at (y, x) comes from (y + down, x + right), mirrored afterwards */
    bool mirror;
} tri_augment_move;

struct tri_image_window;
/* The window of an image of this size: least_area to 1 of it, sides 3/4 to 4/3 of each other. */
void tri_augment_window(const tri_augment *augment, int64_t epoch, int64_t index, int64_t height, int64_t width,
                        struct tri_image_window *out);
/* Brightness, contrast, saturation and hue of bytes [height, width, channels], in place. */
void tri_augment_colors(const tri_augment *augment, int64_t epoch, int64_t index, uint8_t *pixels);
/* Sets a rectangle of 2 to 33 % of the image to 0, sides 0.3 to 3.3 of each other. */
void tri_augment_erase(const tri_augment *augment, int64_t epoch, int64_t index, float *image);
tri_augment_move tri_augment_draw(const tri_augment *augment, int64_t epoch, int64_t index);
/* from, to: [height, width, channels], not the same memory; black: [channels]. */
void tri_augment_apply(const tri_augment *augment, tri_augment_move move, const float *from, const float *black,
                       float *to);

/* How much of a sample stays, and where: outside [top, bottom) x [left, right) `weight` of each pixel, inside nothing.
 * share: of its class, in 1024ths. */
typedef struct tri_augment_mix {
    float weight;
    int64_t top, bottom, left, right;
    int32_t share;
} tri_augment_mix;
tri_augment_mix tri_augment_mix_draw(const tri_augment *augment, int64_t epoch, int64_t index);
/* Both images [height, width, channels] become mixtures of what they were. */
void tri_augment_mix_apply(const tri_augment *augment, const tri_augment_mix mixes[2], float *one, float *other);

#endif
