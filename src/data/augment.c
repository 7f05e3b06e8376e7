/* SPDX-License-Identifier: Apache-2.0
 *
 * augment.c: padding, random crop and mirroring in one copy: the same as cutting a window out of the padded image.
 */
#include "data/augment.h"

#include <string.h>

#include "base/rng.h"

tri_augment_move tri_augment_draw(const tri_augment *augment, int64_t epoch, int64_t index)
{
    tri_rng rng = {augment->seed, tri_rng_stream("data augment", (uint64_t)epoch, (uint64_t)index)};
    uint64_t places = 2 * (uint64_t)augment->crop + 1;
    return (tri_augment_move){
        .down = (int64_t)tri_rng_below(rng, 0, places) - augment->crop,
        .right = (int64_t)tri_rng_below(rng, 1, places) - augment->crop,
        .mirror = augment->flip && tri_rng_below(rng, 2, 2) == 1,
    };
}

void tri_augment_apply(const tri_augment *augment, tri_augment_move move, const float *from, const float *black,
                       float *to)
{
    int64_t height = augment->height, width = augment->width, channels = augment->channels;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            int64_t source_y = y + move.down, source_x = (move.mirror ? width - 1 - x : x) + move.right;
            bool inside = source_y >= 0 && source_y < height && source_x >= 0 && source_x < width;
            const float *pixel = inside ? from + (source_y * width + source_x) * channels : black;
            memcpy(to, pixel, (size_t)channels * sizeof(float));
            to += channels;
        }
}
