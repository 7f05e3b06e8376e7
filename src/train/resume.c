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

/* Named slices of one flat array: in the host, or (values NULL) in pieces. prefix: "" for weights, "momentum" for
 * state. */
static tri_status slices_make(tri_arena *arena, const tri_params *params, const char *prefix, float *values,
                              const tri_checkpoint_pieces *pieces, int64_t at, tri_checkpoint_slice *out)
{
    for (int i = 0; i < params->entry_count; i++) {
        const tri_param *entry = &params->entries[i];
        out[i].name = prefix[0] ? tri_arena_format(arena, "%s.%s", prefix, entry->name) : entry->name;
        if (!out[i].name)
            return TRI_ENOMEM;
        out[i].shape = entry->shape;
        out[i].values = values ? values + entry->first : NULL;
        out[i].pieces = values ? NULL : pieces;
        out[i].at = at + entry->first;
    }
    return TRI_OK;
}

typedef struct job_slices {
    tri_arena arena;
    tri_device_view arrays[1 + TRI_OPTIM_MAX_STATE]; /* weights, state */
    int array_count;
    tri_job_state spread; /* instead of the arrays of state, where each rank has a part */
    tri_checkpoint_slice *model, *state;
    int model_count, state_count;
} job_slices;

/* A trained model that is only looked at has no optimizer. */
static const char *state_name(const tri_job *job, int index)
{
    return job->optim ? tri_optim_state_name(job->optim, index) : NULL;
}

/* The weights (0) and the optimizer's state, if they are all here, as the host sees them; release them whatever is
 * returned. */
static tri_status arrays_open(tri_job *job, tri_device_view *arrays, int *count)
{
    bool with_state = !tri_job_state_is_spread(job);
    *count = 0;
    if (job->spread == TRI_SPREAD_WEIGHTS)
        return TRI_OK;
    for (; *count == 0 || (with_state && state_name(job, *count - 1)); ++*count) {
        float *values = *count == 0 ? job->params->values : tri_optim_state(job->optim, *count - 1);
        TRI_TRY(tri_device_view_open(&arrays[*count], job->params->device, values,
                                     (size_t)job->params->count * sizeof(float)));
    }
    return TRI_OK;
}

static void arrays_write(const tri_device_view *arrays, int count)
{
    for (int i = 0; i < count; i++)
        tri_device_view_write(&arrays[i]);
}

static void arrays_close(tri_device_view *arrays, int count)
{
    for (int i = 0; i < count; i++)
        tri_device_view_close(&arrays[i]);
}

/* Ends with job_slices_fini() whatever is returned. */
static tri_status job_slices_init(tri_job *job, job_slices *slices)
{
    int states = 0;
    while (state_name(job, states))
        states++;
    *slices = (job_slices){.model_count = job->params->entry_count, .state_count = states * job->params->entry_count};
    slices->model = tri_arena_alloc(&slices->arena, (size_t)slices->model_count + 1, sizeof(tri_checkpoint_slice));
    slices->state = tri_arena_alloc(&slices->arena, (size_t)slices->state_count + 1, sizeof(tri_checkpoint_slice));
    if (!slices->model || !slices->state)
        return TRI_ENOMEM;
    TRI_TRY(arrays_open(job, slices->arrays, &slices->array_count));
    if (tri_job_state_is_spread(job))
        TRI_TRY(tri_job_state_open(job, &slices->spread));
    TRI_TRY(slices_make(&slices->arena, job->params, "", slices->array_count > 0 ? slices->arrays[0].host : NULL,
                        &slices->spread.pieces, 0, slices->model));
    for (int s = 0; s < states; s++)
        TRI_TRY(slices_make(&slices->arena, job->params, tri_optim_state_name(job->optim, s),
                            slices->spread.job ? NULL : slices->arrays[1 + s].host, &slices->spread.pieces,
                            (slices->spread.weights + s) * job->params->count,
                            slices->state + s * job->params->entry_count));
    return TRI_OK;
}

static void job_slices_fini(job_slices *slices)
{
    arrays_close(slices->arrays, slices->array_count);
    tri_job_state_close(&slices->spread);
    tri_arena_fini(&slices->arena);
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

tri_status tri_job_save_to(tri_job *job, const char *folder, int64_t keep)
{
    tri_checkpoint_manifest manifest = {.step = job->step, .config_hash = job->config_hash};
    if (job->rank == 0 || job->spread == TRI_SPREAD_WEIGHTS)
        TRI_TRY(tri_job_weights_hash(job, &manifest.weights_hash));
    memcpy(manifest.bits, job->bits, sizeof(manifest.bits));
    job_slices slices;
    if (job->rank != 0)
        return tri_job_state_exchange(job, true);
    tri_status status = job_slices_init(job, &slices);
    if (status == TRI_OK)
        status = tri_checkpoint_save(folder, &manifest, slices.model, slices.model_count, slices.state,
                                     slices.state_count, keep);
    job_slices_fini(&slices);
    TRI_TRY_IN(status, "while saving step %lld", (long long)job->step);
    return TRI_OK;
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
        status = job_slices_init(job, &slices);
    if (status == TRI_OK)
        status =
            tri_checkpoint_load(path, &manifest, slices.model, slices.model_count, slices.state, slices.state_count);
    if (status == TRI_OK) {
        arrays_write(slices.arrays, slices.array_count);
        tri_job_state_written(&slices.spread);
        *step = manifest.step;
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

/* Weights and state of rank 0 to all. */
static tri_status spread(tri_job *job)
{
    tri_device_view arrays[1 + TRI_OPTIM_MAX_STATE];
    int count;
    tri_status status = arrays_open(job, arrays, &count);
    for (int i = 0; status == TRI_OK && i < count; i++)
        status = tri_broadcast(job->group, arrays[i].host, job->params->count, TRI_F32, 0, NULL);
    if (status == TRI_OK)
        arrays_write(arrays, count);
    arrays_close(arrays, count);
    return status;
}

static tri_status load_one(tri_job *job, const char *checkpoint, int64_t *step)
{
    job_slices slices = {0};
    tri_checkpoint_manifest manifest;
    tri_status status = job_slices_init(job, &slices);
    if (status == TRI_OK)
        status = tri_checkpoint_load(checkpoint, &manifest, slices.model, slices.model_count, NULL, 0);
    if (status == TRI_OK) {
        arrays_write(slices.arrays, slices.array_count);
        *step = manifest.step;
    }
    job_slices_fini(&slices);
    return status;
}

tri_status tri_job_load_weights(tri_job *job, const char *checkpoint)
{
    int64_t step = 0;
    TRI_TRY(agree(job, job->rank == 0 ? load_one(job, checkpoint, &step) : TRI_OK));
    if (job->world > 1) {
        TRI_TRY(tri_broadcast(job->group, &step, 1, TRI_I64, 0, NULL));
        TRI_TRY(spread(job));
    }
    job->step = step;
    return TRI_OK;
}

tri_status tri_job_resume(tri_job *job, const char *run_folder)
{
    int64_t step = 0;
    tri_status status = job->rank == 0 ? load_newest(job, run_folder, &step) : tri_job_state_exchange(job, false);
    TRI_TRY_IN(agree(job, status), "while resuming %s", run_folder);
    if (job->world > 1) {
        TRI_TRY(tri_broadcast(job->group, &step, 1, TRI_I64, 0, NULL));
        TRI_TRY(spread(job));
    }
    job->first_step = job->step = job->saved_step = step;
    return TRI_OK;
}
