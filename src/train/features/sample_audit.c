/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_audit.c: which samples a step was made of, by those that computed them: into the control data of the step, and
 * into the ledger of the run when the step is made.
 *
 * The loader sums the marks of the samples that it puts into this rank's shards. All ranks get the sum of the lanes, so
 * they know the samples of the whole batch, and each can write the ledger.
 */
#include <stdio.h>

#include "base/log.h"
#include "train/core/features.h"
#include "train/features/sample_audit.h"

#define LANE_BITS 16

static bool is_kept(const tri_job *job)
{
    return job->run_folder && !job->servers.client && !tri_sync_is_apart(&job->config.parallel);
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

static tri_status control_put(tri_job *job, tri_control *own)
{
    for (int lane = 0; lane < TRI_MARK_LANES && speaks(job); lane++)
        own->samples[lane] = (int64_t)(job->used.own >> (LANE_BITS * lane) & ((1u << TRI_MARK_BITS) - 1));
    return TRI_OK;
}

static void control_read(tri_job *job, const tri_control *sum)
{
    job->used.sum = 0;
    for (int lane = 0; lane < TRI_MARK_LANES; lane++)
        job->used.sum |= ((uint64_t)sum->samples[lane] & ((1u << TRI_MARK_BITS) - 1)) << (LANE_BITS * lane);
}

static void rest_put(const tri_job *job, tri_job_rest *rest)
{
    rest->used = job->used.all;
}

/* Lines of steps that count no more go. */
static void rest_take(tri_job *job, const tri_job_rest *rest)
{
    if (rest->step < job->step)
        tri_ledger_rewind(job->used.ledger, rest->step);
    job->used.all = rest->used;
}

static tri_status step_made(tri_job *job)
{
    if (job->used.ledger && job->step > 0)
        tri_ledger_write(job->used.ledger, job->step - 1, job->used.all, job->elastic.number);
    return TRI_OK;
}

static void ledger_close(tri_job *job)
{
    if (tri_ledger_close(job->used.ledger) != TRI_OK)
        tri_log(TRI_LOG_WARN, "the ledger is not complete: %s", tri_last_error());
    job->used.ledger = NULL;
}

const tri_feature tri_feature_ledger = {.name = "ledger",
                                        .rest_put = rest_put,
                                        .rest_take = rest_take,
                                        .control_put = control_put,
                                        .control_read = control_read,
                                        .step_made = step_made,
                                        .step_missed = step_made,
                                        .close = ledger_close};
