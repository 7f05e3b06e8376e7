/* SPDX-License-Identifier: Apache-2.0
 *
 * outer.h: the outer step of DiLoCo: every few steps ranks whose weights have gone apart meet at an anchor that
 * moves by Nesterov's momentum along the mean of how far they went.
 *
 * The store is cut into fragments of whole entries that take turns; the sums of a fragment may travel for some steps
 * while the ranks continue. Which fragment does what at a step is a function of the step alone, so all ranks do the
 * same. Sources: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023 (algorithm
 * 1); Douillard et al., "Streaming DiLoCo with overlapping communication", 2025.
 */
#ifndef TRI_PARALLEL_OUTER_H
#define TRI_PARALLEL_OUTER_H

#include "parallel/sync.h"

typedef struct tri_outer tri_outer;

/* values: of the store, as the host sees them. */
tri_status tri_outer_create(const tri_sync_setup *setup, float *values, tri_outer **out);
void tri_outer_destroy(tri_outer *outer);
/* The weights are where all ranks begin. */
void tri_outer_begin(tri_outer *outer);
/* After `steps` steps of this rank: what is due. Where a fragment has come, agreed has the sums over all ranks of what
 * they wished for when it left, and *met is true. Collective; moves values. */
enum { TRI_OUTER_WISHES = 2 };
tri_status tri_outer_step(tri_outer *outer, int64_t steps, const float wishes[TRI_OUTER_WISHES],
                          float agreed[TRI_OUTER_WISHES], bool *met);
/* Waits for what is under way; it is still applied when it is due. */
tri_status tri_outer_settle(tri_outer *outer);

/* State for checkpoints, the same on all ranks once it is settled: "anchor", "momentum", "pending"; NULL past the last.
 */
const char *tri_outer_state_name(int index);
/* Of one entry. */
float *tri_outer_state(tri_outer *outer, int index, int entry);
/* Rank 0 has filled in its state: gives it to all. */
tri_status tri_outer_loaded(tri_outer *outer);
/* Bytes of all that, with the sums of this many ranks. */
tri_status tri_outer_nbytes(const tri_parallel_config *config, const tri_params *params, int ranks, size_t *nbytes);

#endif
