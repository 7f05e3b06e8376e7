/* SPDX-License-Identifier: Apache-2.0
 *
 * resume.c: a run to a checkpoint and back. Rank 0 touches the files; the others get weights and state by broadcast, so
 * that no shared file system is needed.
 *
 * What a run is at a step: weights, optimizer state, and one number, the step. Everything else is a function of them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "train/job.h"

/* Named views of one flat array. prefix: "" for weights, "momentum." for state. */
static tri_status slices_make(tri_arena *arena, const tri_params *params, const char *prefix, float *values,
                              tri_checkpoint_slice *out)
{
    for (int i = 0; i < params->entry_count; i++) {
        const tri_param *entry = &params->entries[i];
        out[i].name = prefix[0] ? tri_arena_format(arena, "%s.%s", prefix, entry->name) : entry->name;
        if (!out[i].name)
            return TRI_ENOMEM;
        out[i].shape = entry->shape;
        out[i].values = values + entry->first;
    }
    return TRI_OK;
}

typedef struct job_slices {
    tri_arena arena;
    tri_checkpoint_slice *model, *state;
    int model_count, state_count;
} job_slices;

static tri_status job_slices_init(tri_job *job, job_slices *slices)
{
    int states = 0;
    while (tri_optim_state_name(job->optim, states))
        states++;
    *slices = (job_slices){.model_count = job->params->entry_count, .state_count = states * job->params->entry_count};
    slices->model = tri_arena_alloc(&slices->arena, (size_t)slices->model_count + 1, sizeof(tri_checkpoint_slice));
    slices->state = tri_arena_alloc(&slices->arena, (size_t)slices->state_count + 1, sizeof(tri_checkpoint_slice));
    if (!slices->model || !slices->state)
        return TRI_ENOMEM;
    TRI_TRY(slices_make(&slices->arena, job->params, "", job->params->values, slices->model));
    for (int s = 0; s < states; s++)
        TRI_TRY(slices_make(&slices->arena, job->params, tri_optim_state_name(job->optim, s),
                            tri_optim_state(job->optim, s), slices->state + s * job->params->entry_count));
    return TRI_OK;
}

/* Everybody goes on only if rank 0's part went well; the others fail with its message through the group. */
static tri_status agree(tri_job *job, tri_status status)
{
    if (status != TRI_OK && job->world > 1)
        tri_comm_abort(job->comm, status, tri_last_error());
    if (status == TRI_OK && job->world > 1)
        status = tri_barrier(job->group, NULL);
    return status;
}

tri_status tri_job_save(tri_job *job)
{
    if (!job->run_folder || job->saved_step == job->step)
        return TRI_OK;
    if (job->rank == 0) {
        char folder[1200];
        snprintf(folder, sizeof(folder), "%s/checkpoints", job->run_folder);
        tri_checkpoint_manifest manifest = {
            .step = job->step, .weights_hash = tri_params_hash(job->params), .config_hash = job->config_hash};
        memcpy(manifest.bits, job->bits, sizeof(manifest.bits));
        job_slices slices;
        tri_status status = job_slices_init(job, &slices);
        if (status == TRI_OK)
            status = tri_checkpoint_save(folder, &manifest, slices.model, slices.model_count, slices.state,
                                         slices.state_count, job->config.checkpoint.keep);
        tri_arena_fini(&slices.arena);
        TRI_TRY_IN(status, "while saving step %lld", (long long)job->step);
    }
    job->saved_step = job->step;
    return TRI_OK;
}

/* Rank 0: newest checkpoint -> weights, state; step into *step. */
static tri_status load_newest(tri_job *job, const char *run_folder, int64_t *step)
{
    char folder[1200], *path = NULL;
    snprintf(folder, sizeof(folder), "%s/checkpoints", run_folder);
    tri_string skipped = {0};
    job_slices slices = {0};
    tri_checkpoint_manifest manifest;
    tri_status status = tri_checkpoint_newest(folder, &path, &skipped);
    if (skipped.nbytes)
        tri_log(TRI_LOG_WARN, "passed over: %s", tri_string_text(&skipped));
    if (status == TRI_OK)
        status = job_slices_init(job, &slices);
    if (status == TRI_OK)
        status =
            tri_checkpoint_load(path, &manifest, slices.model, slices.model_count, slices.state, slices.state_count);
    if (status == TRI_OK) {
        *step = manifest.step;
        if (manifest.config_hash != job->config_hash) {
            snprintf(job->bits, sizeof(job->bits), "not reproducible (resumed with another configuration)");
            tri_log(TRI_LOG_WARN, "the configuration is not the one that %s was made with", path);
        }
    }
    tri_arena_fini(&slices.arena);
    tri_string_fini(&skipped);
    tri_free(path);
    return status;
}

tri_status tri_job_resume(tri_job *job, const char *run_folder)
{
    int64_t step = 0;
    tri_status status = job->rank == 0 ? load_newest(job, run_folder, &step) : TRI_OK;
    TRI_TRY_IN(agree(job, status), "while resuming %s", run_folder);
    if (job->world > 1) {
        TRI_TRY(tri_broadcast(job->group, &step, 1, TRI_I64, 0, NULL));
        TRI_TRY(tri_broadcast(job->group, job->params->values, job->params->count, TRI_F32, 0, NULL));
        for (int s = 0; tri_optim_state_name(job->optim, s); s++)
            TRI_TRY(tri_broadcast(job->group, tri_optim_state(job->optim, s), job->params->count, TRI_F32, 0, NULL));
    }
    job->first_step = job->step = job->saved_step = step;
    return TRI_OK;
}
