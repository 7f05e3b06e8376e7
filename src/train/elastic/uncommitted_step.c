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

void tri_job_due_close(tri_job *job)
{
    tri_job_due *due = &job->roles.due;
    tri_free(due->pieces);
    tri_free(due->own_sums);
    tri_free(due->sums);
    *due = (tri_job_due){0};
}

/* The sums of the own role lie in the sync, which ends. */
static tri_status own_sums_copy(tri_job_due *due)
{
    int64_t total = 0;
    for (int i = 0; i < due->own_count; i++)
        total += due->pieces[i].slice.count;
    float *to = tri_alloc_bulk((size_t)(total + 1) * sizeof(float));
    if (!to)
        return TRI_ENOMEM;
    due->own_sums = to;
    for (int i = 0; i < due->own_count; i++) {
        tri_sync_piece *piece = &due->pieces[i];
        memcpy(to, piece->sums, (size_t)piece->slice.count * sizeof(float));
        piece->sums = to;
        to += piece->slice.count;
    }
    return TRI_OK;
}

tri_status tri_job_due_keep(tri_job *job)
{
    tri_job_roles *roles = &job->roles;
    tri_job_due *due = &roles->due;
    tri_job_due_close(job);
    due->pieces = tri_alloc_zero((size_t)(job->sync->piece_count + roles->piece_count) + 1, sizeof(tri_sync_piece));
    if (!due->pieces)
        return TRI_ENOMEM;
    due->generation = roles->now.what.generation;
    due->under_way = roles->under_way;
    due->moves = job->moves;
    due->own_count = tri_job_own_pieces(job, due->pieces);
    due->count = due->own_count + roles->piece_count;
    if (roles->piece_count > 0)
        memcpy(due->pieces + due->own_count, roles->pieces, (size_t)roles->piece_count * sizeof(tri_sync_piece));
    due->sums = roles->sums;
    roles->sums = NULL;
    return own_sums_copy(due);
}

tri_status tri_job_due_make(tri_job *job, tri_stock_set *set)
{
    tri_job_due *due = &job->roles.due;
    due->under_way.saved_step = job->saved_step; /* it may have been given up since */
    TRI_TRY(tri_job_rest_take(job, &due->under_way, false));
    for (int i = 0; !job->record.skipped && i < due->count; i++) {
        const tri_sync_piece *piece = &due->pieces[i];
        tri_optim_step_at(i < due->own_count ? set->own.optim : set->mirror.optim, &due->moves, piece->values,
                          piece->sums, piece->slice.first, piece->slice.count);
    }
    if (!job->record.skipped)
        tri_job_mirrors_written(job, set, job->step + 1);
    tri_job_due_close(job);
    return tri_job_step_end(job);
}
