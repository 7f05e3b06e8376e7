/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_ps.h: parallel.sync ps: what the trainer says to it besides the calls of every strategy.
 */
#ifndef TRI_PARALLEL_SYNC_PS_H
#define TRI_PARALLEL_SYNC_PS_H

#include "optim/optim.h"
#include "parallel/sync.h"

/* The step that the servers' weights are after; -1: they have none, and this worker must give them. */
int64_t tri_sync_ps_step(const tri_sync *sync);
/* The weights of the store and the state of an optimizer over all of it, after `step` steps. */
tri_status tri_sync_ps_give(tri_sync *sync, int64_t step, tri_optim *optim);
/* Weights after `step` steps come to the store. */
tri_status tri_sync_ps_take(tri_sync *sync, int64_t step);
/* A server that was lost, to hold what it held after `clock` steps (tri_ps_dense_refill). */
tri_status tri_sync_ps_refill(tri_sync *sync, int server, int64_t clock, int64_t known, const float *values,
                              const float *const *state, int state_count, int *blocks, int64_t *now);
/* ps.schedule dynamic, before the first step: the first part, whose step is *step; sync->part says which. Else nothing.
 */
tri_status tri_sync_ps_deal(tri_sync *sync, int64_t *step);
/* The weights as the servers have them, where ps.values rounds them on their way; and as they are computed with. */
tri_status tri_sync_ps_meet(tri_sync *sync);
void tri_sync_ps_part(tri_sync *sync);
/* The servers' state comes to that of an optimizer over all of the store. */
tri_status tri_sync_ps_state(tri_sync *sync, tri_optim *optim);

#endif
