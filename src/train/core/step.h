/* SPDX-License-Identifier: Apache-2.0
 *
 * step.h: one training step, and what it calls.
 */
#ifndef TRI_TRAIN_STEP_H
#define TRI_TRAIN_STEP_H

#include "train/core/job.h"

/* gradient_accumulation.c: what is computed at once by the configuration; whether the first steps search for what is
 * fastest (needs the graph); memory for it; what a step has taken. */
void tri_accumulation_split(tri_job *job);
void tri_accumulation_plan(tri_job *job);
tri_status tri_accumulation_open(tri_job *job);
void tri_accumulation_close(tri_job *job);
void tri_accumulation_step(tri_job *job);
/* control.c (control.h): starts the sum of control data over all ranks. */
void tri_job_control_send(tri_job *job);
/* Waits for it. */
tri_status tri_job_control_wait(tri_job *job);
/* Both at once, by this thread. */
tri_status tri_job_control_sum(tri_job *job);
/* All features read the sum. */
void tri_job_control_read(tri_job *job);
void tri_job_control_close(tri_job *job);
/* Whether control data travel with each step. */
bool tri_job_control_travels(const tri_job *job);
/* step.c: the shards [first, first + count) of a batch of this rank, for a graph. */
tri_batch tri_job_batch(const tri_job *job, const tri_loader_batch *loaded, int64_t first, int64_t count);
/* One step. */
tri_status tri_job_step_run(tri_job *job);
/* What follows in a step that was interrupted once the weights had moved. */
tri_status tri_job_step_end(tri_job *job);
/* The weights are those after the last step; a step leaves some to the next one where job->update.ahead. */
tri_status tri_job_settle(tri_job *job);
/* Those of one entry, for tri_graph_hooks. */
tri_status tri_job_entry_bring(void *job, int entry, const float **values);
/* hook.c: the gradients of this rank, to the program's hook. */
tri_status tri_job_hook_run(tri_job *job);
/* batch_sums.c: for a model whose batch norms are over the whole batch, once the graph is there; refuses layouts that
 * compute a batch in pieces. */
tri_status tri_job_batch_sums_make(tri_job *job, const tri_model *model);
void tri_job_batch_sums_close(tri_job *job);
/* model_parallel_reduce.c: collective over the ranks that share one model out. The tail of the whole model's gradient,
 * and gradients of tied weights, once the sums over the data are there: */
tri_status tri_job_sums_meet(tri_job *job);
/* The operations of the whole model from those of its parts. */
tri_status tri_job_flops_meet(tri_job *job);
/* Whether this rank counts an entry that others may have too. */
bool tri_job_counts_entry(const tri_job *job, const tri_param *entry);
/* Norm of the mean gradient, from the sums that the sync has here. */
tri_status tri_job_gradient_norm(tri_job *job, double *norm);
/* scalar_state.c. had_state: one step behind, it has not logged the last one. */
tri_scalar_state tri_scalar_state_of(const tri_job *job);
tri_status tri_scalar_state_take(tri_job *job, const tri_scalar_state *scalars, bool had_state);

#endif
