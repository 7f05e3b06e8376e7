/* SPDX-License-Identifier: Apache-2.0
 *
 * winograd_pool.c: see winograd_pool.h. Which place of a window wins is decided as pool.c does: the first of the
 * largest.
 */
#include "kernel/cpu/winograd_pool.h"

#include <string.h>

#include "base/clones.h"

#define IN     TRI_WINO_IN
#define OUT    TRI_WINO_OUT
#define PLACES TRI_WINO_PLACES
#define LANES  TRI_LANES
#define SUMS   4 /* vectors of channels at once */

typedef uint8_t winner_bytes __attribute__((vector_size(LANES)));

/* The window of rows[2][OUT] whose left place is `left`. */
TRI_LANES_INLINE window_put(const tri_lanes *rows, int left, float *y, uint8_t *winner)
{
    tri_lanes best = rows[left];
    tri_lanes_bits won = {0};
    for (int tap = 1; tap < 4; tap++) {
        const tri_lanes x = rows[tap / 2 * OUT + left + tap % 2];
        const tri_lanes_bits stays = x <= best;
        best = (tri_lanes)(((tri_lanes_bits)best & stays) | ((tri_lanes_bits)x & ~stays));
        won = (won & stays) | (tap & ~stays);
    }
    const winner_bytes bytes = __builtin_convertvector(won, winner_bytes);
    tri_lanes_store(y, &best);
    memcpy(winner, &bytes, sizeof bytes);
}

TRI_CLONES static void target_run(float *const *y, uint8_t *const *winner, const float *from, int64_t place_step,
                                  int64_t channels, const float *bias)
{
    const tri_lanes zero = {0};
    for (int64_t c = 0; c < channels; c += LANES) {
        tri_lanes half[OUT * IN], add = zero;
        if (bias != NULL) {
            tri_lanes_load(&add, bias + c);
        }
        tri_wino_target_half(half, from + c, place_step);
        for (int i = 0; i < OUT / 2; i++) {
            tri_lanes rows[2 * OUT];
            for (int k = 0; k < 2 * OUT; k += OUT) {
                tri_wino_target(rows + k, 1, half + (2 * i + k / OUT) * IN, 1);
            }
            for (int k = 0; k < 2 * OUT; k++) {
                rows[k] += add;
                rows[k] = (tri_lanes)((tri_lanes_bits)rows[k] & ~(rows[k] < zero)); /* keeps a NaN */
            }
            for (int j = 0; j < OUT / 2; j++) {
                if (y[i * OUT / 2 + j] != NULL) {
                    window_put(rows, 2 * j, y[i * OUT / 2 + j] + c, winner[i * OUT / 2 + j] + c);
                }
            }
        }
    }
}

void tri_wino_target_pooled(float *const *y, uint8_t *const *winner, const float *from, int64_t place_step,
                            int64_t channels, const float *bias)
{
    target_run(y, winner, from, place_step, channels, bias);
}

/* What goes down through a window, and to which of its places. */
TRI_LANES_INLINE window_get(tri_lanes *gradient, tri_lanes_bits *won, const tri_wino_window *at, int64_t c)
{
    const tri_lanes zero = {0};
    tri_lanes y, dy;
    winner_bytes bytes;
    tri_lanes_load(&y, at->y + c);
    tri_lanes_load(&dy, at->dy + c);
    memcpy(&bytes, at->winner + c, sizeof bytes);
    *gradient = (tri_lanes)((tri_lanes_bits)dy & (y > zero));
    *won = __builtin_convertvector(bytes, tri_lanes_bits);
}

/* x[edge][edge] of windows[windows][windows], place (i, j) being in window ((i + down) / 2, (j + right) / 2). */
TRI_LANES_INLINE unpool(tri_lanes *x, int edge, const tri_wino_window *at, int windows, int down, int right, int64_t c)
{
    tri_lanes gradient[TRI_WINO_WINDOWS * TRI_WINO_WINDOWS];
    tri_lanes_bits won[TRI_WINO_WINDOWS * TRI_WINO_WINDOWS];
    for (int k = 0; k < windows * windows; k++) {
        window_get(&gradient[k], &won[k], &at[k], c);
    }
    for (int i = 0; i < edge; i++) {
        for (int j = 0; j < edge; j++) {
            const int window = (i + down) / 2 * windows + (j + right) / 2;
            const int tap = (i + down) % 2 * 2 + (j + right) % 2;
            x[i * edge + j] = (tri_lanes)((tri_lanes_bits)gradient[window] & (won[window] == tap));
        }
    }
}

TRI_LANES_INLINE source_each(float *to, int64_t place_step, const tri_wino_window *at, int down, int right,
                             int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        tri_lanes x[PLACES], half[PLACES];
        unpool(x, IN, at, TRI_WINO_WINDOWS, down, right, c);
        for (int j = 0; j < IN; j++) {
            tri_wino_source(half + j, IN, x + j, IN);
        }
        for (int i = 0; i < IN; i++) {
            tri_lanes y[IN];
            tri_wino_source(y, 1, half + i * IN, 1);
            for (int j = 0; j < IN; j++) {
                tri_lanes_store(to + (i * IN + j) * place_step + c, &y[j]);
            }
        }
    }
}

/* Which place is which is known to the compiler where both are the same, as in most models. */
TRI_CLONES static void source_run(float *to, int64_t place_step, const tri_wino_window *at, const int odd[2],
                                  int64_t channels)
{
    if (odd[0] == 0 && odd[1] == 0) {
        source_each(to, place_step, at, 0, 0, channels);
    } else if (odd[0] == 1 && odd[1] == 1) {
        source_each(to, place_step, at, 1, 1, channels);
    } else {
        source_each(to, place_step, at, odd[0], odd[1], channels);
    }
}

void tri_wino_source_unpooled(float *to, int64_t place_step, const tri_wino_window *at, const int odd[2],
                              int64_t channels)
{
    source_run(to, place_step, at, odd, channels);
}

TRI_CLONES static void spread_run(float *to, int64_t place_step, const tri_wino_window *at, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        tri_lanes x[OUT * OUT], half[IN * OUT];
        unpool(x, OUT, at, OUT / 2, 0, 0, c);
        for (int j = 0; j < OUT; j++) {
            tri_wino_spread(half + j, OUT, x + j, OUT);
        }
        for (int i = 0; i < IN; i++) {
            tri_lanes y[IN];
            tri_wino_spread(y, 1, half + i * OUT, 1);
            for (int j = 0; j < IN; j++) {
                tri_lanes_store(to + (i * IN + j) * place_step + c, &y[j]);
            }
        }
    }
}

void tri_wino_spread_unpooled(float *to, int64_t place_step, const tri_wino_window *at, int64_t channels)
{
    spread_run(to, place_step, at, channels);
}

/* A row of windows is two rows of places: in each, a window adds what its winner has there. `count` vectors of channels
 * at once, so that no addition waits for the one before. */
TRI_LANES_INLINE sum_each(float *sums, const tri_wino_window *all, int64_t rows, int64_t columns, int64_t channels,
                          int count)
{
    tri_lanes sum[SUMS] = {0}, gradient;
    tri_lanes_bits won;
    for (int64_t row = 0; row < rows; row++) {
        for (int upper = 0; upper < 2; upper++) {
            for (int64_t w = row * columns * channels; w < (row + 1) * columns * channels; w += channels) {
                const tri_wino_window at = {all->y + w, all->dy + w, all->winner + w};
                for (int k = 0; k < count; k++) {
                    window_get(&gradient, &won, &at, k * LANES);
                    sum[k] += (tri_lanes)((tri_lanes_bits)gradient & (won >> 1 == upper));
                }
            }
        }
    }
    for (int k = 0; k < count; k++) {
        tri_lanes_store(sums + k * LANES, &sum[k]);
    }
}

TRI_CLONES static void sum_run(float *sums, const tri_wino_window *all, int64_t rows, int64_t columns, int64_t channels)
{
    for (int64_t c = 0; c < channels;) {
        const tri_wino_window at = {all->y + c, all->dy + c, all->winner + c};
        if (channels - c >= SUMS * LANES) {
            sum_each(sums + c, &at, rows, columns, channels, SUMS);
            c += SUMS * LANES;
        } else {
            sum_each(sums + c, &at, rows, columns, channels, 1);
            c += LANES;
        }
    }
}

void tri_wino_sum_unpooled(float *sums, const tri_wino_window *all, int64_t rows, int64_t columns, int64_t channels)
{
    sum_run(sums, all, rows, columns, channels);
}
