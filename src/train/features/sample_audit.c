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

typedef struct ledger_state {
    uint64_t own;       /* marks of this rank's shards of the step under way */
    uint64_t all;       /* of the batch: of the latest step that the ranks have summed */
    tri_ledger *ledger; /* rank 0, and whoever may become it; NULL: none is kept */
} ledger_state;

static ledger_state *state_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_LEDGER];
}

static bool is_kept(const tri_job *job)
{
    return job->output.folder && !job->servers.client && !tri_sync_is_local(&job->config.parallel);
}

static tri_ledger_plan plan_of(const tri_job_dataset *data)
{
    const tri_sampler *sampler = &data->sampler;
    return (tri_ledger_plan){.seed = (int64_t)sampler->seed,
                             .count = sampler->count,
                             .batch = sampler->batch,
                             .shards = sampler->shards,
                             .shuffle = sampler->shuffle,
                             .block = sampler->block,
                             .buffer = sampler->buffer,
                             .data = data->fingerprint.digest};
}

bool tri_job_ledger_is_kept(const tri_job *job)
{
    return state_of(job)->ledger != NULL;
}

/* RUN/ledger, where this run keeps one. */
static tri_status ledger_follow(tri_job *job)
{
    char path[1200];
    if (!is_kept(job))
        return TRI_OK;
    snprintf(path, sizeof(path), "%s/ledger", job->output.folder);
    return tri_ledger_open(path, &state_of(job)->ledger);
}

static tri_status ledger_lead(tri_job *job)
{
    tri_ledger_plan plan = plan_of(&job->data);
    tri_ledger *ledger = state_of(job)->ledger;
    return ledger ? tri_ledger_lead(ledger, &plan, job->step) : TRI_OK;
}

static tri_status ledger_open(tri_job *job)
{
    if (state_of(job)->ledger)
        return TRI_OK;
    TRI_TRY(ledger_follow(job));
    return ledger_lead(job);
}

static void ledger_yield(tri_job *job)
{
    tri_ledger_yield(state_of(job)->ledger);
}

static void ledger_lost(tri_job *job)
{
    tri_ledger_drop_lead(state_of(job)->ledger);
}

/* Lines of steps that count no more go. */
static tri_status ledger_rewind(tri_job *job, int64_t step)
{
    tri_ledger_rewind(state_of(job)->ledger, step);
    return TRI_OK;
}

static void ledger_flush(tri_job *job)
{
    tri_ledger_flush(state_of(job)->ledger);
}

static void batch_taken(tri_job *job, const tri_loader_batch *batch)
{
    state_of(job)->own = batch->marks;
}

/* Tensor ranks have the same samples, stages have none or the same: one rank of a model speaks for it. */
static bool speaks(const tri_job *job)
{
    return job->mesh.tensor_rank == 0 && (!job->model.pipeline || tri_pipeline_reads_target(job->model.pipeline));
}

static tri_status control_put(tri_job *job, tri_control *own)
{
    for (int lane = 0; lane < TRI_MARK_LANES && speaks(job); lane++)
        own->samples[lane] = (int64_t)(state_of(job)->own >> (LANE_BITS * lane) & ((1u << TRI_MARK_BITS) - 1));
    return TRI_OK;
}

static void control_read(tri_job *job, const tri_control *sum)
{
    ledger_state *state = state_of(job);
    state->all = 0;
    for (int lane = 0; lane < TRI_MARK_LANES; lane++)
        state->all |= ((uint64_t)sum->samples[lane] & ((1u << TRI_MARK_BITS) - 1)) << (LANE_BITS * lane);
}

static void scalars_put(const tri_job *job, tri_scalar_state *scalars)
{
    scalars->samples = state_of(job)->all;
}

static void scalars_take(tri_job *job, const tri_scalar_state *scalars)
{
    state_of(job)->all = scalars->samples;
}

static tri_status step_done(tri_job *job)
{
    const ledger_state *state = state_of(job);
    if (state->ledger && job->step > 0)
        tri_ledger_write(state->ledger, job->step - 1, state->all, job->elastic.number);
    return TRI_OK;
}

static void ledger_close(tri_job *job)
{
    ledger_state *state = state_of(job);
    if (tri_ledger_close(state->ledger) != TRI_OK)
        tri_log(TRI_LOG_WARN, "the ledger is not complete: %s", tri_last_error());
    state->ledger = NULL;
}

const tri_feature tri_feature_ledger = {.state_nbytes = sizeof(ledger_state),
                                        .scalars_put = scalars_put,
                                        .scalars_take = scalars_take,
                                        .control_put = control_put,
                                        .batch_taken = batch_taken,
                                        .files_open = ledger_open,
                                        .files_follow = ledger_follow,
                                        .files_lead = ledger_lead,
                                        .files_yield = ledger_yield,
                                        .files_lost = ledger_lost,
                                        .files_rewind = ledger_rewind,
                                        .files_flush = ledger_flush,
                                        .control_read = control_read,
                                        .step_done = step_done,
                                        .step_missed = step_done,
                                        .close = ledger_close};
