/* SPDX-License-Identifier: Apache-2.0
 *
 * arrays.h: weights and optimizer state of all ranks, wherever they are.
 */
#ifndef TRI_TRAIN_ARRAYS_H
#define TRI_TRAIN_ARRAYS_H

#include "train/core/job.h"

/* arrays.c: who holds what; collective, once all objects are there. */
tri_status tri_job_shard_maps_open(tri_job *job);
void tri_job_shard_maps_close(tri_job *job);
/* Of array `index`: 0 is the weights, others are the optimizer's state. */
tri_shard_map *tri_job_shard_map(const tri_job_placement *placement, int64_t index);
/* Weights (0) and the optimizer's state of a rank, as the host sees them. */
typedef struct tri_job_arrays {
    tri_job *job;
    tri_arena arena;
    tri_device_view views[1 + TRI_OPTIM_MAX_STATE];
    int count;
    tri_checkpoint_pieces pieces; /* rank 0's way to the arrays of all */
} tri_job_arrays;
/* Does not move; ends with tri_job_arrays_close() whatever is returned. */
tri_status tri_job_arrays_open(tri_job *job, bool with_state, tri_job_arrays *arrays);
/* Of a device that shares no memory with the host: their places, and nothing in them until tri_job_arrays_read(). */
tri_status tri_job_arrays_open_unread(tri_job *job, bool with_state, tri_job_arrays *arrays);
void tri_job_arrays_read(const tri_job_arrays *arrays);
void tri_job_arrays_close(tri_job_arrays *arrays);
/* The host's view of them has changed. */
void tri_job_arrays_written(const tri_job_arrays *arrays);
/* Rank 0: names, shapes and places of all tensors of one array; texts are the arrays'. */
tri_status tri_job_arrays_slices(tri_job_arrays *arrays, int index, tri_checkpoint_slice *slices);
/* The other ranks, while rank 0 saves (they give) or loads all tensors of all arrays, in order. */
tri_status tri_job_arrays_follow(tri_job_arrays *arrays, bool gives);
/* What ranks that differ in their data alone have in common, from the first of them; collective. */
tri_status tri_job_arrays_spread(tri_job_arrays *arrays);
/* Of the weights after the last step; collective where they are spread, once a step. */
tri_status tri_job_weights_hash(tri_job *job, uint64_t *hash);
/* Are all ranks needed for a checkpoint: is something spread, or are ranks apart? The same on all ranks. */
bool tri_job_saves_together(const tri_job *job);
/* Rank 0's word becomes everybody's; collective. */
tri_status tri_job_first_decides(tri_job *job, int64_t *word);

#endif
