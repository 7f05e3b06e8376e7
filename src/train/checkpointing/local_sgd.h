/* SPDX-License-Identifier: Apache-2.0
 *
 * local_sgd.h: ranks with weights of their own, between their meetings and in a checkpoint.
 */
#ifndef TRI_TRAIN_LOCAL_SGD_H
#define TRI_TRAIN_LOCAL_SGD_H

#include "train/core/job.h"

tri_status tri_job_meet(tri_job *job);
void tri_job_part(tri_job *job);
typedef struct tri_local_state {
    tri_job *job;
    int own_count, common_count;                 /* arrays: of each rank, weights first; alike on all ranks */
    tri_device_view arrays[TRI_OPTIM_MAX_STATE]; /* the optimizer's */
    float *buffer;                               /* rank 0: a piece on its way */
    tri_checkpoint_pieces pieces;
} tri_local_state;
/* Met (saving) or after rank 0 has read the model (loading). Does not move; ends with close whatever is returned. */
tri_status tri_local_state_open(tri_job *job, tri_local_state *apart);
void tri_local_state_close(tri_local_state *apart);
void tri_local_state_written(const tri_local_state *apart);
/* An entry in an array of this rank. */
const float *tri_local_state_values(const tri_local_state *apart, int array, int entry);
int tri_local_state_slice_count(const tri_local_state *apart);
/* Is it a checkpoint of such ranks? */
bool tri_local_state_saved(const tri_job *job, const char *checkpoint);
tri_status tri_local_state_slices(tri_local_state *apart, tri_arena *arena, tri_checkpoint_slice *out);
/* All ranks but 0, while it saves or loads. */
tri_status tri_local_state_exchange(tri_job *job, bool saves);
/* Collective, after loading: each rank is where it was. */
tri_status tri_local_state_loaded(tri_job *job);

#endif
