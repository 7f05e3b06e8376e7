/* SPDX-License-Identifier: Apache-2.0
 *
 * winograd.h: the transforms of Winograd's F(4x4, 3x3), eight channels at a time, always inlined into cloned loops.
 *
 * Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2016), section 4.3: y = A'[(G g G') * (B' d B)]A,
 * points 0, 1, -1, 2, -2. Gradients by transposing: dg = G'[(B' d B) * (A dy A')]G.
 */
#ifndef TRI_KERNEL_CPU_WINOGRAD_H
#define TRI_KERNEL_CPU_WINOGRAD_H

#include "kernel/cpu/lanes.h"

#define TRI_WINO_IN     6 /* edge of a tile of the source */
#define TRI_WINO_OUT    4 /* edge of a tile of the target */
#define TRI_WINO_TAPS   3
#define TRI_WINO_PLACES (TRI_WINO_IN * TRI_WINO_IN)

/* y[6] = B' x[6], elements `from` and `to` apart. */
TRI_LANES_INLINE tri_wino_source(tri_lanes *y, int to, const tri_lanes *x, int from)
{
    const tri_lanes a = x[4 * from] - 4 * x[2 * from], b = x[3 * from] - 4 * x[from];
    const tri_lanes c = x[4 * from] - x[2 * from], e = 2 * (x[3 * from] - x[from]);
    y[0] = 4 * x[0] - 5 * x[2 * from] + x[4 * from];
    y[to] = a + b;
    y[2 * to] = a - b;
    y[3 * to] = c + e;
    y[4 * to] = c - e;
    y[5 * to] = 4 * x[from] - 5 * x[3 * from] + x[5 * from];
}

/* y[4] = A' x[6] */
TRI_LANES_INLINE tri_wino_target(tri_lanes *y, int to, const tri_lanes *x, int from)
{
    const tri_lanes a = x[from] + x[2 * from], b = x[from] - x[2 * from];
    const tri_lanes c = x[3 * from] + x[4 * from], d = x[3 * from] - x[4 * from];
    y[0] = x[0] + a + c;
    y[to] = b + 2 * d;
    y[2 * to] = a + 4 * c;
    y[3 * to] = b + 8 * d + x[5 * from];
}

/* half[4][6]: A' times the 6 x 6 places of a tile, eight channels of them. */
TRI_LANES_INLINE tri_wino_target_half(tri_lanes *half, const float *from, int64_t place_step)
{
    for (int j = 0; j < TRI_WINO_IN; j++) {
        tri_lanes x[TRI_WINO_IN];
        for (int i = 0; i < TRI_WINO_IN; i++) {
            tri_lanes_load(&x[i], from + (i * TRI_WINO_IN + j) * place_step);
        }
        tri_wino_target(half + j, TRI_WINO_IN, x, 1);
    }
}

/* y[6] = A x[4] */
TRI_LANES_INLINE tri_wino_spread(tri_lanes *y, int to, const tri_lanes *x, int from)
{
    const tri_lanes a = x[0] + x[2 * from], b = x[from] + x[3 * from];
    const tri_lanes c = x[0] + 4 * x[2 * from], d = 2 * x[from] + 8 * x[3 * from];
    y[0] = x[0];
    y[to] = a + b;
    y[2 * to] = a - b;
    y[3 * to] = c + d;
    y[4 * to] = c - d;
    y[5 * to] = x[3 * from];
}

/* y[6] = G x[3] */
TRI_LANES_INLINE tri_wino_taps(tri_lanes *y, int to, const tri_lanes *x, int from)
{
    const tri_lanes a = (x[0] + x[2 * from]) * (-1.0f / 6), b = x[from] * (1.0f / 6);
    const tri_lanes c = x[0] * (1.0f / 24) + x[2 * from] * (1.0f / 6), d = x[from] * (1.0f / 12);
    y[0] = x[0] * 0.25f;
    y[to] = a - b;
    y[2 * to] = a + b;
    y[3 * to] = c + d;
    y[4 * to] = c - d;
    y[5 * to] = x[2 * from];
}

/* y[3] = G' x[6] */
TRI_LANES_INLINE tri_wino_gather(tri_lanes *y, int to, const tri_lanes *x, int from)
{
    const tri_lanes a = (x[from] + x[2 * from]) * (1.0f / 6), b = (x[2 * from] - x[from]) * (1.0f / 6);
    const tri_lanes c = x[3 * from] + x[4 * from], d = x[3 * from] - x[4 * from];
    y[0] = x[0] * 0.25f - a + c * (1.0f / 24);
    y[to] = b + d * (1.0f / 12);
    y[2 * to] = c * (1.0f / 6) - a + x[5 * from];
}

#endif
