/* SPDX-License-Identifier: Apache-2.0
 *
 * winograd_pool.h: transforms of a convolution behind which are a relu and a max pool of 2x2, stride 2.
 *
 * A tile of 4x4 of the target is four windows, so they are pooled where they are formed; in the backward pass the
 * gradient before the pool is formed where it is transformed, of what a window has: its largest value, its gradient,
 * and which of its places won. A window of the largest value zero gives no gradient: the relu cut it. The bits are
 * those of the three one after the other.
 */
#ifndef TRI_KERNEL_CPU_WINOGRAD_POOL_H
#define TRI_KERNEL_CPU_WINOGRAD_POOL_H

#include <stdint.h>

#include "kernel/cpu/winograd.h"

#define TRI_WINO_WINDOWS 4 /* edge of the windows that may be met by a tile of a source */

/* Channels of one window: the largest values, their gradients, the places that won (2 row + column). */
typedef struct tri_wino_window {
    const float *y, *dy;
    const uint8_t *winner;
} tri_wino_window;

/* Four windows of a tile to y[] and winner[]; NULL: outside. from[place][channel]. bias NULL: none. */
void tri_wino_target_pooled(float *const *y, uint8_t *const *winner, const float *from, int64_t place_step,
                            int64_t channels, const float *bias);
/* at[4 * 4]: place (i, j) of the tile of 6x6 is in window ((i + odd[0]) / 2, (j + odd[1]) / 2). */
void tri_wino_source_unpooled(float *to, int64_t place_step, const tri_wino_window *at, const int odd[2],
                              int64_t channels);
/* at[2 * 2] */
void tri_wino_spread_unpooled(float *to, int64_t place_step, const tri_wino_window *at, int64_t channels);
/* sums[channels] of what goes down to the places before the pool, row by row. `all`: the first of rows * columns
 * windows. */
void tri_wino_sum_unpooled(float *sums, const tri_wino_window *all, int64_t rows, int64_t columns, int64_t channels);

#endif
