/* SPDX-License-Identifier: Apache-2.0
 *
 * reform_assignment.h: a sharded state whose ranks come and go: who holds which shard, mirrors, uncommitted steps.
 */
#ifndef TRI_TRAIN_REFORM_ASSIGNMENT_H
#define TRI_TRAIN_REFORM_ASSIGNMENT_H

#include "train/elastic/reform.h"

/* What this process has of a sharded state. */
tri_assignment_note tri_job_assignment_note(const tri_job *job);
/* Before unform(): a step for which this rank was ready is made if somebody has made it, and else kept. */
tri_status tri_job_decide(tri_job *job, const tri_job_generation *generation);
/* reform_assignment.c, where job->assignment.on: how many of `ranks` ranks can work
 * together (all, where it is not on); the layout of `ranks` ranks, into the configuration, which from then on does not
 * say what was asked for; stores and optimizer for it, of the own role and of the mirror; their contents (collective);
 * and once all ranks have them (collective). */
int tri_job_assignment_fit(const tri_job *job, int ranks);
tri_status tri_job_assignment_lay(tri_job *job, int ranks);
tri_status tri_job_assignment_build(tri_job *job);
tri_status tri_job_assignment_find(tri_job *job, const tri_job_generation *generation);
tri_status tri_job_assignment_settle(tri_job *job);
/* Before a process says what it has: it finds out whether the generation had formed that it was in. */
tri_status tri_job_assignment_resolve(tri_job *job);
/* Collective where several want to leave at once: job->elastic.leaves. */
tri_status tri_job_leave_agree(tri_job *job);
/* mirrors.c: once the sync is there; collective. */
tri_status tri_job_mirror_open(tri_job *job);
void tri_job_mirror_close(tri_job *job);
/* Between the sums of a step and the moving of the weights, where job->assignment.on: nothing moves anywhere before all
 * ranks have all that moves. *same is true before, and becomes false if a part of the state and its mirror differ. */
tri_status tri_job_commit(tri_job *job, bool *same);
/* What this rank moves in a step, as the sync has it: into room for its pieces and one; returns how many. */
int tri_job_own_pieces(const tri_job *job, tri_sync_piece *pieces);
/* The mirror moves as its owner does. */
void tri_job_mirror_move(tri_job *job);
/* uncommitted_step.c: the step under way, for which this rank is ready, is kept for when it is known whether to make
 * it; making it, of the set that has it. */
tri_status tri_uncommitted_step_keep(tri_job *job);
tri_status tri_uncommitted_step_make(tri_job *job, tri_shard_set *set);
void tri_uncommitted_step_close(tri_job *job);

#endif
