/* SPDX-License-Identifier: Apache-2.0
 *
 * uncommitted_step.c: a step that this rank was ready for when it lost the others. Somebody may have made it, and be
 * heard of later: so sums and figures stay beside the state that they move, until a later state has taken its place
 * everywhere (docs/design/recovery.md).
 */
#include <string.h>

#include "base/memory.h"
#include "train/core/job.h"
#include "train/core/step.h"
#include "train/elastic/mirrors_verify.h"
#include "train/elastic/reform.h"
#include "train/elastic/reform_assignment.h"

void tri_uncommitted_step_close(tri_job *job)
{
    tri_uncommitted_step *uncommitted = &job->assignment.uncommitted;
    tri_free(uncommitted->pieces);
    if (uncommitted->own_sums)
        tri_device_free(job->device, uncommitted->own_sums);
    if (uncommitted->sums)
        tri_device_free(job->device, uncommitted->sums);
    *uncommitted = (tri_uncommitted_step){0};
}

tri_status tri_uncommitted_step_keep(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    tri_uncommitted_step *uncommitted = &assignment->uncommitted;
    tri_uncommitted_step_close(job);
    uncommitted->pieces =
        tri_alloc_zero((size_t)(job->sync->piece_count + assignment->piece_count) + 1, sizeof(tri_sync_piece));
    if (!uncommitted->pieces)
        return TRI_ENOMEM;
    uncommitted->generation = assignment->now.what.generation;
    uncommitted->under_way = assignment->under_way;
    uncommitted->update = job->update.scalars;
    uncommitted->own_count = tri_job_own_pieces(job, uncommitted->pieces);
    uncommitted->count = uncommitted->own_count + assignment->piece_count;
    if (assignment->piece_count > 0)
        memcpy(uncommitted->pieces + uncommitted->own_count, assignment->pieces,
               (size_t)assignment->piece_count * sizeof(tri_sync_piece));
    uncommitted->sums = assignment->sums;
    assignment->sums = NULL;
    /* The sums of the own role are in the sync, which ends. */
    int64_t total = 0;
    for (int i = 0; i < uncommitted->own_count; i++)
        total += uncommitted->pieces[i].slice.count;
    float *to = tri_device_alloc(job->device, (size_t)(total + 1) * sizeof(float));
    if (!to)
        return TRI_ENOMEM;
    uncommitted->own_sums = to;
    for (int i = 0; i < uncommitted->own_count; i++) {
        tri_sync_piece *piece = &uncommitted->pieces[i];
        tri_device_copy(job->device, to, piece->sums, (size_t)piece->slice.count * sizeof(float));
        piece->sums = to;
        to += piece->slice.count;
    }
    return TRI_OK;
}

tri_status tri_uncommitted_step_make(tri_job *job, tri_shard_set *set)
{
    tri_uncommitted_step *uncommitted = &job->assignment.uncommitted;
    uncommitted->under_way.saved_step = job->progress.saved_step; /* it may have been given up since */
    TRI_TRY(tri_scalar_state_take(job, &uncommitted->under_way, false));
    for (int i = 0; !job->record.skipped && i < uncommitted->count; i++) {
        const tri_sync_piece *piece = &uncommitted->pieces[i];
        tri_optim_step_at(i < uncommitted->own_count ? set->own.optim : set->mirror.optim, &uncommitted->update,
                          piece->values, piece->sums, piece->slice.first, piece->slice.count);
    }
    if (!job->record.skipped)
        tri_job_mirrors_written(job, set, job->step + 1);
    tri_uncommitted_step_close(job);
    return tri_job_step_end(job);
}
