/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs_move.h: blocks of state between the ranks that have some for each other.
 */
#ifndef TRI_TRAIN_PAIRS_MOVE_H
#define TRI_TRAIN_PAIRS_MOVE_H

#include "comm/comm.h"

/* As tri_all_to_all_v of f32, but that ranks without anything for each other do not meet: what `to` of rank a says of
 * rank b is what `from` of rank b says of rank a, by what both know; its own block is not moved. Blocks the caller. */
tri_status tri_pairs_move(tri_group *group, int rank, int ranks, const float *values, const tri_blocks *to,
                          float *received, const tri_blocks *from);

#endif
