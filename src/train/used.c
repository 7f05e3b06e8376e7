/* SPDX-License-Identifier: Apache-2.0
 *
 * used.c: which samples a step was made of, by those that computed them: into the tail of the gradient, and into the
 * ledger of the run when the step is made.
 *
 * The loader sums the marks of the samples that it puts into this rank's shards. The lanes of that sum travel in free
 * columns of the tail, where f32 adds them without rounding; so all ranks know the samples of the whole batch, and each
 * can write the ledger, at no message.
 */
#include <stdio.h>

#include "base/log.h"
#include "train/features.h"

#define MOST_RANKS 8192 /* whose lanes of 11 bits f32 adds exactly */
#define LANE_BITS  16

_Static_assert(TRI_TAIL_USED_COUNT == TRI_MARK_LANES, "a column for each lane");

static bool is_kept(const tri_job *job)
{
    return job->run_folder && !job->servers.client && !tri_sync_is_apart(&job->config.parallel) &&
           job->world <= MOST_RANKS;
}

static tri_ledger_plan plan_of(const tri_job *job)
{
    const tri_sampler *sampler = &job->sampler;
    return (tri_ledger_plan){.seed = (int64_t)sampler->seed,
                             .count = sampler->count,
                             .batch = sampler->batch,
                             .shards = sampler->shards,
                             .shuffle = sampler->shuffle,
                             .data = job->data.digest};
}

tri_status tri_job_used_open(tri_job *job)
{
    char path[1200];
    if (!is_kept(job))
        return TRI_OK;
    snprintf(path, sizeof(path), "%s/ledger", job->run_folder);
    return tri_ledger_open(path, &job->used.ledger);
}

tri_status tri_job_used_lead(tri_job *job)
{
    tri_ledger_plan plan = plan_of(job);
    return job->used.ledger ? tri_ledger_lead(job->used.ledger, &plan, job->step) : TRI_OK;
}

/* Tensor ranks have the same samples, stages have none or the same: one rank of a model speaks for it. */
static bool speaks(const tri_job *job)
{
    return job->mesh.tensor_rank == 0 && (!job->pipeline || tri_pipeline_reads_target(job->pipeline));
}

void tri_job_used_tail(tri_job *job)
{
    float *tail = job->sync->tail + TRI_TAIL_USED;
    for (int lane = 0; lane < TRI_MARK_LANES; lane++)
        tail[lane] = speaks(job) ? (float)(job->used.own >> (LANE_BITS * lane) & ((1u << TRI_MARK_BITS) - 1)) : 0;
}

void tri_job_used_read(tri_job *job)
{
    const float *tail = job->sync->tail + TRI_TAIL_USED;
    job->used.sum = 0;
    for (int lane = 0; lane < TRI_MARK_LANES; lane++)
        job->used.sum |= (uint64_t)((uint32_t)tail[lane] & ((1u << TRI_MARK_BITS) - 1)) << (LANE_BITS * lane);
}

void tri_job_used_write(tri_job *job)
{
    if (job->used.ledger && job->step > 0)
        tri_ledger_write(job->used.ledger, job->step - 1, job->used.all, job->elastic.number);
}

static tri_status step_made(tri_job *job)
{
    tri_job_used_write(job);
    return TRI_OK;
}

static void ledger_close(tri_job *job)
{
    if (tri_ledger_close(job->used.ledger) != TRI_OK)
        tri_log(TRI_LOG_WARN, "the ledger is not complete: %s", tri_last_error());
    job->used.ledger = NULL;
}

const tri_feature tri_feature_ledger = {.name = "ledger", .step_made = step_made, .close = ledger_close};
