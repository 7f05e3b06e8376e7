/* SPDX-License-Identifier: Apache-2.0
 *
 * local_sgd.c: where each rank has weights and a state of its own (parallel.sync local, diloco): what others see of
 * them, and their way to the files of rank 0 and back.
 *
 * What is evaluated, hashed and saved as the model is the mean of all ranks' weights. A checkpoint also has each rank's
 * own: they pass through rank 0 in pieces of at most PIECE_COUNT elements, in the order of the file; rank 0 goes along
 * the file, each other rank along its own part of it. A place is a number: array times params->count, plus element of
 * the store, the arrays of rank 0 first. What is alike on all ranks rank 0 saves, and gives to all after loading.
 */
#include <string.h>

#include "base/memory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "parallel/sync_ps.h"
#include "train/checkpointing/local_sgd.h"
#include "train/core/job.h"
#include "train/core/servers.h"

#define PIECE_COUNT (INT64_C(1) << 18)

bool tri_job_has_own_weights(const tri_job *job)
{
    return job->sync && job->sync->ops->meet;
}

tri_status tri_job_meet(tri_job *job)
{
    bool serves = tri_job_servers_meets(job);
    if ((!tri_job_has_own_weights(job) && !serves) || job->met++ > 0)
        return TRI_OK;
    tri_status status = serves ? tri_sync_ps_meet(job->sync) : job->sync->ops->meet(job->sync);
    job->met -= status != TRI_OK;
    return status;
}

void tri_job_part(tri_job *job)
{
    bool serves = tri_job_servers_meets(job);
    if ((!tri_job_has_own_weights(job) && !serves) || --job->met > 0)
        return;
    if (serves)
        tri_sync_ps_part(job->sync);
    else
        job->sync->ops->part(job->sync);
}

/* A rank's own arrays: weights, and the optimizer's. */
static int own_count(const tri_job *job)
{
    int count = 1;
    while (tri_optim_state_name(job->optim, count - 1))
        count++;
    return count;
}

static float *own_place(const tri_local_state *apart, int64_t at)
{
    const tri_job *job = apart->job;
    int64_t array = at / job->params->count % apart->own_count, element = at % job->params->count;
    return (array == 0 ? job->sync->own : (float *)apart->arrays[array - 1].host) + element;
}

static tri_status piece_move(const tri_job *job, float *values, int64_t count, int peer, bool sends)
{
    tri_group_name_next(job->group, "a rank's own state");
    tri_status status = sends ? tri_send(job->group, values, count, TRI_F32, peer, NULL)
                              : tri_receive(job->group, values, count, TRI_F32, peer, NULL);
    tri_group_name_next(job->group, "");
    return status;
}

/* Rank 0, tri_checkpoint_pieces.read. */
static tri_status piece_read(void *arg, int64_t at, int64_t *count, const float **values)
{
    tri_local_state *apart = arg;
    tri_job *job = apart->job;
    int owner = (int)(at / job->params->count / apart->own_count);
    *count = *count < PIECE_COUNT ? *count : PIECE_COUNT;
    *values = owner == job->rank ? own_place(apart, at) : apart->buffer;
    return owner == job->rank ? TRI_OK : piece_move(job, apart->buffer, *count, owner, false);
}

/* Rank 0, tri_checkpoint_pieces.write. */
static tri_status piece_write(void *arg, int64_t at, int64_t left, const float *values)
{
    tri_local_state *apart = arg;
    tri_job *job = apart->job;
    int owner = (int)(at / job->params->count / apart->own_count);
    if (owner == job->rank) {
        memcpy(own_place(apart, at), values, (size_t)left * sizeof(float));
        return TRI_OK;
    }
    for (int64_t count; left > 0; left -= count, values += count) {
        count = left < PIECE_COUNT ? left : PIECE_COUNT;
        TRI_TRY(piece_move(job, (float *)(uintptr_t)values, count, owner, true)); /* only read */
    }
    return TRI_OK;
}

tri_status tri_local_state_open(tri_job *job, tri_local_state *apart)
{
    size_t nbytes = (size_t)job->params->count * sizeof(float);
    *apart = (tri_local_state){
        .job = job, .own_count = own_count(job), .pieces = {.arg = apart, .read = piece_read, .write = piece_write}};
    for (int a = 1; a < apart->own_count; a++)
        TRI_TRY(tri_device_view_open(&apart->arrays[a - 1], job->params->device, tri_optim_state(job->optim, a - 1),
                                     nbytes));
    while (job->sync->ops->state_name(job->sync, apart->common_count))
        apart->common_count++;
    apart->buffer = job->rank == 0 ? tri_alloc(PIECE_COUNT * sizeof(float)) : NULL;
    return apart->buffer || job->rank != 0 ? TRI_OK : TRI_ENOMEM;
}

void tri_local_state_close(tri_local_state *apart)
{
    for (int a = 1; a < apart->own_count; a++)
        tri_device_view_close(&apart->arrays[a - 1]);
    tri_free(apart->buffer);
    *apart = (tri_local_state){0};
}

void tri_local_state_written(const tri_local_state *apart)
{
    for (int a = 1; a < apart->own_count; a++)
        tri_device_view_write(&apart->arrays[a - 1]);
}

const float *tri_local_state_values(const tri_local_state *apart, int array, int entry)
{
    const tri_params *params = apart->job->params;
    return own_place(apart, array * params->count + params->entries[entry].first);
}

bool tri_local_state_saved(const tri_job *job, const char *checkpoint)
{
    tri_safetensors *file = NULL;
    char *path = tri_format("%s/" TRI_STATE_FILE, checkpoint);
    char *name = tri_format("rank0.weights.%s", job->model.tensors.items[0].name);
    bool saved = path && name && tri_safetensors_open(path, &file) == TRI_OK && tri_safetensors_find(file, name);
    tri_safetensors_close(file);
    tri_free(path);
    tri_free(name);
    return saved;
}

int tri_local_state_slice_count(const tri_local_state *apart)
{
    const tri_job *job = apart->job;
    return (job->world * apart->own_count + apart->common_count) * job->params->entry_count;
}

tri_status tri_local_state_slices(tri_local_state *apart, tri_arena *arena, tri_checkpoint_slice *out)
{
    tri_job *job = apart->job;
    const tri_params *params = job->params;
    for (int64_t array = 0; array < (int64_t)job->world * apart->own_count; array++)
        for (int e = 0; e < params->entry_count; e++, out++) {
            int own = (int)(array % apart->own_count);
            out->name = tri_arena_format(arena, "rank%d.%s.%s", (int)(array / apart->own_count),
                                         own == 0 ? "weights" : tri_optim_state_name(job->optim, own - 1),
                                         params->entries[e].name);
            out->shape = params->entries[e].shape;
            out->pieces = &apart->pieces;
            out->at = array * params->count + params->entries[e].first;
            if (!out->name)
                return TRI_ENOMEM;
        }
    for (int c = 0; c < apart->common_count; c++)
        for (int e = 0; e < params->entry_count; e++, out++) {
            out->name = tri_arena_format(arena, "outer.%s.%s", job->sync->ops->state_name(job->sync, c),
                                         params->entries[e].name);
            out->shape = params->entries[e].shape;
            out->values = job->sync->ops->state(job->sync, c, e);
            if (!out->name)
                return TRI_ENOMEM;
        }
    return TRI_OK;
}

/* This rank's arrays, to rank 0 or from it. */
tri_status tri_local_state_exchange(tri_job *job, bool saves)
{
    const tri_params *params = job->params;
    tri_local_state apart;
    tri_status status = tri_local_state_open(job, &apart);
    for (int a = 0; a < apart.own_count; a++)
        for (int e = 0; e < params->entry_count; e++) {
            float *values = own_place(&apart, a * params->count + params->entries[e].first);
            for (int64_t left = params->entries[e].count, count; left > 0 && status == TRI_OK; left -= count) {
                count = left < PIECE_COUNT ? left : PIECE_COUNT;
                status = piece_move(job, values, count, 0, saves);
                values += count;
            }
        }
    if (status == TRI_OK && !saves)
        tri_local_state_written(&apart);
    tri_local_state_close(&apart);
    return status;
}

tri_status tri_local_state_loaded(tri_job *job)
{
    TRI_TRY(job->sync->ops->loaded(job->sync));
    job->sync->ops->part(job->sync);
    return TRI_OK;
}
