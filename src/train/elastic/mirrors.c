/* SPDX-License-Identifier: Apache-2.0
 *
 * mirrors.c: each role of a sharded state is also in the memory of another rank, which moves it as its owner does: by
 * the sums of the role's gradient, which come to it in each step.
 *
 * Nothing moves before all ranks have all sums, their own and those of their mirror: so whoever is left can make a step
 * that anybody has made, and all that a rank has is of one step (docs/design/recovery.md).
 */
#include "train/core/job.h"

#include "base/memory.h"
#include "comm/comm.h"
#include "train/elastic/mirrors_verify.h"
#include "train/elastic/reform_assignment.h"

/* Nothing in a stage of layers without weights. */
int tri_job_own_pieces(const tri_job *job, tri_sync_piece *pieces)
{
    const tri_sync *sync = job->sync;
    const tri_sync_piece all = {
        .slice = {0, job->params->count}, .values = job->params->values, .sums = sync->pieces ? NULL : sync->grads[0]};
    const tri_sync_piece *from = sync->pieces ? sync->pieces : &all;
    int given = sync->pieces ? sync->piece_count : 1, count = 0;
    for (int i = 0; i < given; i++)
        if (from[i].slice.count > 0)
            pieces[count++] = from[i];
    return count;
}

/* Pieces of all ranks, as pairs of first and count; those of rank r begin at firsts[r]. */
static tri_status pieces_gather(tri_job *job, const tri_sync_piece *own, int count, int64_t *counts, int64_t **all)
{
    int64_t mine = 2 * count, total = 0, *pairs = tri_alloc_zero((size_t)mine + 1, sizeof(int64_t));
    *all = NULL;
    tri_status status = pairs ? tri_all_gather(job->group, &mine, counts, 1, TRI_I64, NULL) : TRI_ENOMEM;
    for (int i = 0; status == TRI_OK && i < count; i++) {
        pairs[2 * i] = own[i].slice.first;
        pairs[2 * i + 1] = own[i].slice.count;
    }
    for (int r = 0; status == TRI_OK && r < job->world; r++)
        total += counts[r];
    if (status == TRI_OK && !(*all = tri_alloc((size_t)(total + 1) * sizeof(int64_t))))
        status = TRI_ENOMEM;
    tri_blocks blocks = {counts, NULL};
    if (status == TRI_OK)
        status = tri_all_gather_v(job->group, pairs, *all, &blocks, TRI_I64, NULL);
    tri_free(pairs);
    return status;
}

/* The mirror's pieces, with room for their sums. */
static tri_status mirror_pieces(tri_job *job, const int64_t *pairs, int count)
{
    tri_job_assignment *assignment = &job->assignment;
    const tri_state_shard *shard = &assignment->now.mirror;
    int64_t total = 0, at = 0;
    assignment->pieces = tri_alloc_zero((size_t)count + 1, sizeof(tri_sync_piece));
    for (int i = 0; i < count; i++)
        total += pairs[2 * i + 1];
    assignment->sums = tri_device_alloc(job->device, (size_t)(total + 1) * sizeof(float));
    if (!assignment->pieces || !assignment->sums)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++) {
        tri_slice slice = {pairs[2 * i], pairs[2 * i + 1]};
        int64_t place = tri_state_shard_at(shard, slice.first),
                last = tri_state_shard_at(shard, slice.first + slice.count - 1);
        if (slice.count < 1 || place < 0 || last != place + slice.count - 1)
            return tri_fail(TRI_EMISMATCH, "rank %d moves elements %lld to %lld, which its mirror does not have",
                            assignment->mirrored, (long long)slice.first, (long long)(slice.first + slice.count));
        assignment->pieces[assignment->piece_count++] =
            (tri_sync_piece){.slice = slice, .values = shard->params->values + place, .sums = assignment->sums + at};
        at += slice.count;
    }
    return TRI_OK;
}

/* What travels, as the host sees it. */
static tri_status views_open(tri_job *job, const tri_sync_piece *own, int count)
{
    tri_job_assignment *assignment = &job->assignment;
    int64_t total = 0;
    for (int i = 0; i < assignment->piece_count; i++)
        total += assignment->pieces[i].slice.count;
    assignment->views = tri_alloc_zero((size_t)count + 1, sizeof(*assignment->views));
    if (!assignment->views)
        return TRI_ENOMEM;
    assignment->view_count = count + 1;
    for (int i = 0; i < count; i++)
        TRI_TRY(tri_device_view_open(&assignment->views[i], job->device, own[i].sums,
                                     (size_t)own[i].slice.count * sizeof(float)));
    return tri_device_view_open(&assignment->views[count], job->device, assignment->sums,
                                (size_t)total * sizeof(float));
}

/* Calls of one batch travel at the same time. */
static tri_status batch_make(tri_job *job, const tri_sync_piece *own, int count, int holder)
{
    tri_job_assignment *assignment = &job->assignment;
    TRI_TRY(views_open(job, own, count));
    float *sums = assignment->views[count].host;
    tri_status status = tri_batch_begin(job->group);
    tri_group_name_next(job->group, "mirrors");
    for (int i = 0; status == TRI_OK && i < count; i++) {
        status = tri_send(job->group, assignment->views[i].host, own[i].slice.count, TRI_F32, holder, NULL);
        assignment->nbytes += own[i].slice.count * (int64_t)sizeof(float);
    }
    for (int i = 0; status == TRI_OK && i < assignment->piece_count; sums += assignment->pieces[i++].slice.count)
        status = tri_receive(job->group, sums, assignment->pieces[i].slice.count, TRI_F32, assignment->mirrored, NULL);
    tri_group_name_next(job->group, "");
    tri_status ended = tri_batch_end(job->group, &assignment->batch);
    return status == TRI_OK ? ended : status;
}

static tri_status mirror_make(tri_job *job, tri_sync_piece *own, int64_t *counts, int64_t *holders)
{
    tri_job_assignment *assignment = &job->assignment;
    int64_t *all = NULL, at = 0;
    int count = tri_job_own_pieces(job, own), holder = -1;
    int64_t mirrored = assignment->mirrored;
    TRI_TRY(tri_all_gather(job->group, &mirrored, holders, 1, TRI_I64, NULL));
    for (int r = 0; r < job->world; r++)
        if (holders[r] == job->rank)
            holder = r;
    tri_status status = pieces_gather(job, own, count, counts, &all);
    for (int r = 0; status == TRI_OK && r < assignment->mirrored; r++)
        at += counts[r];
    if (status == TRI_OK)
        status = mirror_pieces(job, all + at, (int)counts[assignment->mirrored] / 2);
    if (status == TRI_OK)
        status = batch_make(job, own, count, holder);
    tri_free(all);
    return status;
}

tri_status tri_job_mirror_open(tri_job *job)
{
    size_t most = (size_t)job->sync->piece_count + 1, ranks = (size_t)job->world;
    if (!job->assignment.on || job->assignment.mirrored < 0)
        return TRI_OK;
    tri_sync_piece *own = tri_alloc_zero(most, sizeof(*own));
    int64_t *counts = tri_alloc_zero(2 * ranks, sizeof(int64_t));
    tri_status status = own && counts ? mirror_make(job, own, counts, counts + ranks) : TRI_ENOMEM;
    tri_free(own);
    tri_free(counts);
    return status == TRI_OK ? tri_job_mirrors_verify_open(job) : status;
}

void tri_job_mirror_close(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    tri_batch_destroy(assignment->batch);
    for (int i = 0; i < assignment->view_count; i++)
        tri_device_view_close(&assignment->views[i]);
    tri_free(assignment->views);
    tri_free(assignment->pieces);
    if (assignment->sums)
        tri_device_free(job->device, assignment->sums);
    assignment->batch = NULL;
    assignment->views = NULL;
    assignment->view_count = 0;
    assignment->pieces = NULL;
    assignment->sums = NULL;
    assignment->piece_count = 0;
    assignment->nbytes = 0;
    assignment->every = 0;
}

tri_status tri_job_commit(tri_job *job, bool *same)
{
    tri_job_assignment *assignment = &job->assignment;
    const bool due = tri_job_mirrors_due(job, job->step);
    if (!assignment->on || job->world == 1)
        return TRI_OK;
    if (assignment->batch && (!job->record.skipped || due)) { /* a rank whose bits have flipped may judge alone */
        for (int i = 0; i + 1 < assignment->view_count; i++)
            tri_device_view_read(&assignment->views[i]);
        TRI_TRY_IN(tri_batch_run(assignment->batch, NULL), "while mirrors get the sums");
        tri_device_view_write(&assignment->views[assignment->view_count - 1]);
    }
    job->progress.phase = TRI_STEP_READY;
    if (due) {
        TRI_TRY(tri_job_mirrors_compare(job, "commit", same));
        if (!*same)
            job->progress.phase = TRI_STEP_OPEN;
        return TRI_OK;
    }
    tri_group_name_next(job->group, "commit");
    tri_status status = tri_barrier(job->group, NULL);
    tri_group_name_next(job->group, "");
    return status;
}

void tri_job_mirror_move(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    if (!assignment->on)
        return;
    for (int i = 0; !job->record.skipped && i < assignment->piece_count; i++) {
        const tri_sync_piece *piece = &assignment->pieces[i];
        tri_optim_step_at(assignment->now.mirror.optim, &job->update.scalars, piece->values, piece->sums,
                          piece->slice.first, piece->slice.count);
    }
    job->progress.phase = TRI_STEP_MOVED;
    if (!job->record.skipped)
        tri_job_mirrors_written(job, &assignment->now, job->step + 1);
}
