/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes.h: eight floats at once, for cloned loops whose small arrays should live in registers.
 *
 * The compiler's own vectors: one register where it has 256 bits, two halves elsewhere; the same bits in both. Values
 * are passed by pointer, so that no calling convention depends on the instruction set; everything is inlined.
 */
#ifndef TRI_KERNEL_CPU_LANES_H
#define TRI_KERNEL_CPU_LANES_H

#include "kernel/row.h"

#define TRI_LANES        8
#define TRI_LANES_INLINE static inline __attribute__((always_inline)) void

typedef float tri_lanes __attribute__((vector_size(TRI_LANES * sizeof(float))));
typedef int32_t tri_lanes_bits __attribute__((vector_size(TRI_LANES * sizeof(float)))); /* of a comparison: 0 or -1 */
typedef float tri_lanes_loose
    __attribute__((vector_size(TRI_LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

TRI_LANES_INLINE tri_lanes_load(tri_lanes *to, const float *from)
{
    *to = *(const tri_lanes_loose *)from;
}

TRI_LANES_INLINE tri_lanes_store(float *to, const tri_lanes *from)
{
    *(tri_lanes_loose *)to = *from;
}

/* Transposes an 8 x 8 block in place: neighbours, pairs, then halves change places. */
TRI_LANES_INLINE tri_lanes_turn(tri_lanes x[TRI_LANES])
{
    tri_lanes pair[TRI_LANES], quad[TRI_LANES];
    for (int i = 0; i < TRI_LANES; i += 2) {
        pair[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pair[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < TRI_LANES; i += 4) {
        for (int j = 0; j < 2; j++) {
            quad[i + 2 * j] = __builtin_shufflevector(pair[i + j], pair[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            quad[i + 2 * j + 1] = __builtin_shufflevector(pair[i + j], pair[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    for (int i = 0; i < TRI_LANES / 2; i++) {
        x[i] = __builtin_shufflevector(quad[i], quad[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        x[i + 4] = __builtin_shufflevector(quad[i], quad[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

#endif
