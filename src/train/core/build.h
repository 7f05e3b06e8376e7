/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h: making a job for the ranks that there are: configuration, data, model, optimizer, loaders.
 */
#ifndef TRI_TRAIN_BUILD_H
#define TRI_TRAIN_BUILD_H

#include "train/core/job.h"

/* form.c, for the ranks that there are: the sync; loaders, and files and lines of rank 0 (borrows dataset). */
tri_status tri_job_form_moves(tri_job *job);
tri_status tri_job_form_run(tri_job *job, tri_dataset *dataset);
/* Frees all of that: the ranks part. */
void tri_job_unform(tri_job *job);
/* That all ranks have what they must have in common; collective. */
tri_status tri_job_check_equal(tri_job *job);
/* The same, of a worker that joins, before anything else is done together. */
tri_status tri_job_check_spec(tri_job *job);
/* products.c: that all ranks on cards multiply by the same algorithms, and which: a part of tri_job_arithmetic() from
 * here on; collective. */
tri_status tri_job_products_meet(tri_job *job);
/* card_sums.c: who sums the gradients of ranks on cards (job->card.sums), once the ranks and the device are known;
 * collective. */
tri_status tri_job_cards_find(tri_job *job);
/* Of a plan, whose ranks are not there: what it would be if all ran on this machine. */
tri_sync_cards tri_job_cards_expect(const tri_job *job);
/* build.c */
tri_status tri_job_build(tri_job *job, const tri_job_setup *setup);
/* Reads and checks the configuration; which shards are this rank's. */
tri_status tri_job_configure(tri_job *job, const tri_job_setup *setup);
/* The loader of what tri_job_evaluate() goes through: the test data, or the training data without augmentation. */
tri_status tri_job_open_evaluation(tri_job *job, tri_data_part part);
/* The part that a run evaluates during training. */
tri_data_part tri_job_evaluated_part(const tri_job *job);
/* data_summary.c: what the data are, once in a run, on rank 0: samples, classes, and which of these a part lacks.
 * evaluated NULL: there is no such part. */
tri_status tri_job_data_tell(const tri_job *job, tri_dataset *training, tri_dataset *evaluated);
/* Its parts that need no other rank; config, rank and world of the job are set. */
int tri_job_threads(const tri_config *config, int local_count);
void tri_job_split_shards(tri_job *job);
/* build.c: data whose classes are numbered as the job's are. */
tri_status tri_job_open_data(const tri_job *job, tri_data_part part, tri_dataset **dataset);
/* Also finds the number of steps, and the job's names of classes: those of the run that it resumes, else those of
 * the data. setup NULL: it resumes none. Collective over the job's comm, if it has one. */
tri_status tri_job_open_train_data(tri_job *job, const tri_job_setup *setup, tri_dataset **dataset);
/* For what this rank moves (job->placement.shares). */
tri_status tri_job_open_optim(tri_job *job);
/* Finds out who owns what of the store; the slices of weights that are here (tri_free), NULL: all are. */
tri_status tri_job_share_out(tri_job *job, tri_slice **own, int *count);
/* Whether some rank computes its shards piece by piece: all ranks then have whole gradients. */
bool tri_job_is_pieced(const tri_job *job);
/* Without what is known of hosts. */
tri_sync_setup tri_job_sync_setup(const tri_job *job);
tri_status tri_job_build_model(tri_job *job, const tri_model *given, const tri_dataset_info *info);
/* The same of the configuration's model in two halves: what lasts as long as the job, and what is for these ranks. */
tri_status tri_job_build_store(tri_job *job, const tri_dataset_info *info);
tri_status tri_job_build_graph(tri_job *job);
/* Store and optimizer of another rank's role, its share alone, without values. */
tri_status tri_job_build_mirror(tri_job *job, int rank, tri_state_shard *shard);
/* ids.c, collective: trace_id is found, and the log knows who this is. The span of a rank, or of the steps that it
 * traces from `step` on (-1: of all); the same as what the log's lines belong to. */
tri_status tri_job_ids_meet(tri_job *job);
void tri_job_span_id(const tri_job *job, int rank, int64_t step, char span[TRI_SPAN_ID_NBYTES]);
void tri_job_who_tell(const tri_job *job, int64_t step);

#endif
