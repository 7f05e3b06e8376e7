/* SPDX-License-Identifier: Apache-2.0
 *
 * resume.h: saving a run, and resuming it.
 */
#ifndef TRI_TRAIN_RESUME_H
#define TRI_TRAIN_RESUME_H

#include "train/checkpointing/arrays.h"
#include "train/checkpointing/local_sgd.h"
#include "train/core/job.h"

/* resume.c: all that a checkpoint holds: names and shapes on all ranks; on rank 0 also where it is, or the way there.
 * Does not move; ends with close whatever is returned. */
typedef struct tri_job_slices {
    tri_job_arrays arrays;
    tri_local_state apart; /* instead of the arrays of state, where each rank has its own */
    tri_checkpoint_content content;
} tri_job_slices;
tri_status tri_job_slices_open(tri_job *job, bool with_state, tri_job_slices *slices);
/* The arrays have places, and nothing in them until tri_job_arrays_read(). */
tri_status tri_job_slices_open_unread(tri_job *job, bool with_state, tri_job_slices *slices);
void tri_job_slices_close(tri_job_slices *slices);
/* The other ranks while rank 0 saves or loads by the slices' pieces. */
tri_status tri_job_slices_follow(tri_job *job, bool with_state, bool saves);
/* save.c: checkpoints of a run, when they are due and where; collective, but for tri_job_save_wait(). */
/* Until what is being written beside the training is complete, or has failed. */
void tri_job_save_wait(tri_job *job);
bool tri_job_save_is_due(const tri_job *job);
/* To all places, and it is complete and durable: what was under way, and this step. */
tri_status tri_job_save(tri_job *job);
/* A checkpoint of this step in `folder`, which rank 0 needs to know alone; tri_job_await_all() has to follow. *saved,
 * on rank 0: it is there; if not, the reason was logged. */
tri_status tri_job_save_to(tri_job *job, const char *folder, int64_t keep, bool *saved);
/* The newest whole checkpoint of a run, in all its places; tri_free() *path. TRI_ENOTFOUND: there is none. */
tri_status tri_job_newest_find(tri_job *job, const char *run_folder, char **path);
/* resume.c: the newest whole checkpoint of a run, wherever its places are; rank 0 reads the files. */
tri_status tri_job_resume(tri_job *job, const char *run_folder);
/* Its weights alone, the mean of ranks apart: for any number of them. */
tri_status tri_job_resume_weights(tri_job *job, const char *run_folder);
/* Collective: has the run one? Rank 0 looks. */
tri_status tri_job_can_resume(tri_job *job, const char *run_folder, bool *can);
/* The weights of one checkpoint, whose path rank 0 needs to know alone; job->step becomes its step. */
tri_status tri_job_load_weights(tri_job *job, const char *checkpoint);

#endif
