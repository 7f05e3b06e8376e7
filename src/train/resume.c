/* SPDX-License-Identifier: Apache-2.0
 *
 * resume.c: a run to a checkpoint and back. Rank 0 touches the files; the others get weights and state by broadcast, or
 * their parts of the state piece by piece, so that no shared file system is needed.
 *
 * What a run is at a step: weights, optimizer state, and one number, the step. Everything else is a function of them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "train/job.h"

typedef struct job_slices {
    tri_job_arrays arrays;
    tri_job_apart apart; /* instead of the arrays of state, where each rank has its own */
    tri_checkpoint_slice *model, *state;
    int model_count, state_count;
} job_slices;

/* Ends with job_slices_fini() whatever is returned. */
static tri_status job_slices_init(tri_job *job, bool with_state, job_slices *slices)
{
    int tensors = job->tensors.count;
    bool apart = with_state && tri_job_is_apart(job);
    *slices = (job_slices){.model_count = tensors};
    TRI_TRY(tri_job_arrays_open(job, with_state && !apart, &slices->arrays));
    if (apart)
        TRI_TRY(tri_job_apart_open(job, &slices->apart));
    tri_arena *arena = &slices->arrays.arena;
    slices->state_count = apart ? tri_job_apart_slice_count(&slices->apart) : (slices->arrays.count - 1) * tensors;
    slices->model = tri_arena_alloc(arena, (size_t)slices->model_count + 1, sizeof(tri_checkpoint_slice));
    slices->state = tri_arena_alloc(arena, (size_t)slices->state_count + 1, sizeof(tri_checkpoint_slice));
    if (!slices->model || !slices->state)
        return TRI_ENOMEM;
    TRI_TRY(tri_job_arrays_slices(&slices->arrays, 0, slices->model));
    for (int i = 1; i < slices->arrays.count; i++)
        TRI_TRY(tri_job_arrays_slices(&slices->arrays, i, slices->state + (i - 1) * tensors));
    return apart ? tri_job_apart_slices(&slices->apart, arena, slices->state) : TRI_OK;
}

static void job_slices_fini(job_slices *slices)
{
    tri_job_apart_close(&slices->apart);
    tri_job_arrays_close(&slices->arrays);
}

/* The other ranks while rank 0 saves or loads. */
static tri_status follow(tri_job *job, bool with_state, bool saves)
{
    tri_job_arrays arrays;
    bool apart = with_state && tri_job_is_apart(job);
    tri_status status = tri_job_arrays_open(job, with_state && !apart, &arrays);
    if (status == TRI_OK)
        status = tri_job_arrays_follow(&arrays, saves);
    if (status == TRI_OK && apart)
        status = tri_job_apart_exchange(job, saves);
    if (status == TRI_OK && !saves)
        tri_job_arrays_written(&arrays);
    tri_job_arrays_close(&arrays);
    return status;
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

/* Weights that ranks have apart have met. */
static tri_status save_met(tri_job *job, const char *folder, int64_t keep)
{
    tri_checkpoint_manifest manifest = {.step = job->step,
                                        .config_hash = job->config_hash,
                                        .loss_scale = job->scale.now,
                                        .loss_scale_good = job->scale.good,
                                        .loss_scale_lost = job->scale.lost,
                                        .guard_loss = job->guard.loss,
                                        .guard_steps = job->guard.steps,
                                        .guard_acts = job->guard.acts};
    memcpy(manifest.bits, job->bits, sizeof(manifest.bits));
    TRI_TRY_IN(tri_job_weights_hash(job, &manifest.weights_hash), "while saving step %lld", (long long)job->step);
    if (job->rank != 0)
        return follow(job, true, true);
    job_slices slices;
    tri_status status = job_slices_init(job, true, &slices);
    if (status == TRI_OK)
        status = tri_checkpoint_save(folder, &manifest, slices.model, slices.model_count, slices.state,
                                     slices.state_count, keep);
    job_slices_fini(&slices);
    TRI_TRY_IN(status, "while saving step %lld", (long long)job->step);
    return TRI_OK;
}

tri_status tri_job_save_to(tri_job *job, const char *folder, int64_t keep)
{
    TRI_TRY(tri_job_servers_state(job));
    TRI_TRY(tri_job_meet(job));
    tri_status status = save_met(job, folder, keep);
    tri_job_part(job);
    return status;
}

tri_status tri_job_save(tri_job *job)
{
    char folder[1200];
    bool wanted = job->run_folder && job->saved_step != job->step;
    TRI_TRY(tri_job_first_decides(job, &wanted));
    if (!wanted)
        return TRI_OK;
    TRI_TRY(tri_job_settle(job));
    snprintf(folder, sizeof(folder), "%s/checkpoints", job->run_folder ? job->run_folder : "");
    TRI_TRY(tri_job_save_to(job, folder, job->config.checkpoint.keep));
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
        status = job_slices_init(job, true, &slices);
    if (status == TRI_OK)
        status =
            tri_checkpoint_load(path, &manifest, slices.model, slices.model_count, slices.state, slices.state_count);
    if (status == TRI_OK) {
        tri_job_arrays_written(&slices.arrays);
        tri_job_apart_written(&slices.apart);
        *step = manifest.step;
        if (job->scale.now > 0 && job->config.train.loss_scale == 0 && manifest.loss_scale > 0)
            job->scale = (tri_job_scale){manifest.loss_scale, manifest.loss_scale_good, manifest.loss_scale_lost};
        job->guard.loss = manifest.guard_loss;
        job->guard.steps = manifest.guard_steps;
        job->guard.acts = manifest.guard_acts;
        if (manifest.config_hash != job->config_hash) {
            snprintf(job->bits, sizeof(job->bits), "not reproducible (resumed with another configuration)");
            tri_log(TRI_LOG_WARN, "the configuration is not the one that %s was made with", path);
        }
    }
    job_slices_fini(&slices);
    tri_string_fini(&skipped);
    tri_free(path);
    return status;
}

/* Weights, and state, of the ranks with data rank 0 to those with another. */
static tri_status spread(tri_job *job, bool with_state)
{
    tri_job_arrays arrays;
    tri_status status = tri_job_arrays_open(job, with_state && !tri_job_is_apart(job), &arrays);
    if (status == TRI_OK)
        status = tri_job_arrays_spread(&arrays);
    if (status == TRI_OK)
        tri_job_arrays_written(&arrays);
    tri_job_arrays_close(&arrays);
    return status;
}

static tri_status load_one(tri_job *job, const char *checkpoint, int64_t *step)
{
    job_slices slices = {0};
    tri_checkpoint_manifest manifest;
    tri_status status = job_slices_init(job, false, &slices);
    if (status == TRI_OK)
        status = tri_checkpoint_load(checkpoint, &manifest, slices.model, slices.model_count, NULL, 0);
    if (status == TRI_OK) {
        tri_job_arrays_written(&slices.arrays);
        *step = manifest.step;
    }
    job_slices_fini(&slices);
    return status;
}

/* Rank 0 has loaded (status says how); everybody has what it should have, and the step. */
static tri_status loaded(tri_job *job, tri_status status, bool with_state, int64_t *step)
{
    TRI_TRY(agree(job, status));
    if (job->world == 1)
        return TRI_OK;
    TRI_TRY(tri_broadcast(job->group, step, 1, TRI_I64, 0, NULL));
    return spread(job, with_state);
}

tri_status tri_job_load_weights(tri_job *job, const char *checkpoint)
{
    int64_t step = 0;
    tri_status status = job->rank == 0 ? load_one(job, checkpoint, &step) : follow(job, false, false);
    TRI_TRY(loaded(job, status, false, &step));
    job->step = step;
    return TRI_OK;
}

tri_status tri_job_resume(tri_job *job, const char *run_folder)
{
    int64_t step = 0;
    tri_status status = job->rank == 0 ? load_newest(job, run_folder, &step) : follow(job, true, false);
    if (tri_job_is_apart(job) && job->rank == 0 && status != TRI_OK)
        status =
            tri_fail_context(status, "parallel.sync %s goes on with the ranks it had (model.from takes weights alone)",
                             job->config.parallel.sync);
    TRI_TRY_IN(loaded(job, status, true, &step), "while resuming %s", run_folder);
    TRI_TRY(tri_job_scale_spread(job));
    TRI_TRY(tri_job_guard_spread(job));
    job->first_step = job->step = job->saved_step = step;
    return tri_job_is_apart(job) ? tri_job_apart_loaded(job) : TRI_OK;
}
