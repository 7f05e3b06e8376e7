/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: the optimizer's state where each rank keeps a part of it (parallel.sync), to and from the files of rank 0.
 *
 * No rank ever holds all of it: it passes through rank 0 in pieces of at most PIECE_COUNT elements, in the order of the
 * file. A place in the state is a number: array times params->count, plus element of the store. Where a piece ends, and
 * whose it is, follows from its place alone, so rank 0, which goes along the file, and the others, which go along the
 * same places, need not talk about it.
 */
#include <string.h>

#include "train/job.h"

#define PIECE_COUNT (INT64_C(1) << 18)

bool tri_job_state_is_spread(const tri_job *job)
{
    return job->optim && job->world > 1 && tri_sync_is_sharded(&job->config.parallel);
}

/* The rank that owns element `first` of the store; *count falls to what is the same piece. */
static int piece_owner(const tri_job *job, int64_t first, int64_t *count)
{
    int r = 0;
    tri_sync_slice slice = tri_sync_owned(&job->config.parallel, job->params, r, job->world);
    while (first >= slice.first + slice.count)
        slice = tri_sync_owned(&job->config.parallel, job->params, ++r, job->world);
    int64_t left = slice.first + slice.count - first;
    if (*count > left)
        *count = left;
    if (*count > PIECE_COUNT)
        *count = PIECE_COUNT;
    return r;
}

/* Where this rank has what is at a place that it owns. */
static float *own_place(const tri_job_state *state, int64_t at)
{
    const tri_job *job = state->job;
    tri_sync_slice own = tri_sync_owned(&job->config.parallel, job->params, job->rank, job->world);
    return (float *)state->arrays[at / job->params->count].host + (at % job->params->count - own.first);
}

/* One piece to another rank or from it. */
static tri_status piece_send(const tri_job *job, const float *values, int64_t count, int to)
{
    tri_group_name_next(job->group, "optimizer state");
    tri_status status = tri_send(job->group, values, count, TRI_F32, to, NULL);
    tri_group_name_next(job->group, "");
    return status;
}

static tri_status piece_receive(const tri_job *job, float *values, int64_t count, int from)
{
    tri_group_name_next(job->group, "optimizer state");
    tri_status status = tri_receive(job->group, values, count, TRI_F32, from, NULL);
    tri_group_name_next(job->group, "");
    return status;
}

/* Rank 0, tri_checkpoint_pieces.read. */
static tri_status piece_read(void *arg, int64_t at, int64_t *count, const float **values)
{
    tri_job_state *state = arg;
    tri_job *job = state->job;
    int owner = piece_owner(job, at % job->params->count, count);
    *values = owner == job->rank ? own_place(state, at) : state->buffer;
    return owner == job->rank ? TRI_OK : piece_receive(job, state->buffer, *count, owner);
}

/* Rank 0, tri_checkpoint_pieces.write. */
static tri_status piece_write(void *arg, int64_t at, int64_t left, const float *values)
{
    tri_job_state *state = arg;
    tri_job *job = state->job;
    for (int64_t count; left > 0; left -= count, at += count, values += count) {
        count = left;
        int owner = piece_owner(job, at % job->params->count, &count);
        if (owner == job->rank)
            memcpy(own_place(state, at), values, (size_t)count * sizeof(float));
        else
            TRI_TRY(piece_send(job, values, count, owner));
    }
    return TRI_OK;
}

tri_status tri_job_state_open(tri_job *job, tri_job_state *state)
{
    tri_sync_slice own = tri_sync_owned(&job->config.parallel, job->params, job->rank, job->world);
    *state = (tri_job_state){.job = job, .pieces = {.arg = state, .read = piece_read, .write = piece_write}};
    for (; tri_optim_state_name(job->optim, state->count); state->count++)
        TRI_TRY(tri_device_view_open(&state->arrays[state->count], job->params->device,
                                     tri_optim_state(job->optim, state->count), (size_t)own.count * sizeof(float)));
    state->buffer = job->rank == 0 ? tri_alloc(PIECE_COUNT * sizeof(float)) : NULL;
    return state->buffer || job->rank != 0 ? TRI_OK : TRI_ENOMEM;
}

void tri_job_state_close(tri_job_state *state)
{
    for (int s = 0; s < state->count; s++)
        tri_device_view_close(&state->arrays[s]);
    tri_free(state->buffer);
    *state = (tri_job_state){0};
}

void tri_job_state_written(const tri_job_state *state)
{
    for (int s = 0; s < state->count; s++)
        tri_device_view_write(&state->arrays[s]);
}

/* This rank's pieces of one entry in one array, to rank 0 or from it. */
static tri_status entry_exchange(tri_job_state *state, int64_t at, int64_t left, bool saves)
{
    tri_job *job = state->job;
    for (int64_t count; left > 0; left -= count, at += count) {
        count = left;
        if (piece_owner(job, at % job->params->count, &count) != job->rank)
            continue;
        TRI_TRY(saves ? piece_send(job, own_place(state, at), count, 0)
                      : piece_receive(job, own_place(state, at), count, 0));
    }
    return TRI_OK;
}

tri_status tri_job_state_exchange(tri_job *job, bool saves)
{
    if (!tri_job_state_is_spread(job))
        return TRI_OK;
    const tri_params *params = job->params;
    tri_job_state state;
    tri_status status = tri_job_state_open(job, &state);
    for (int s = 0; s < state.count; s++)
        for (int e = 0; e < params->entry_count && status == TRI_OK; e++)
            status =
                entry_exchange(&state, s * params->count + params->entries[e].first, params->entries[e].count, saves);
    if (status == TRI_OK && !saves)
        tri_job_state_written(&state);
    tri_job_state_close(&state);
    return status;
}

tri_status tri_job_first_decides(tri_job *job, bool *wanted)
{
    int64_t word = *wanted;
    if (!tri_job_state_is_spread(job) && !tri_job_is_apart(job))
        return TRI_OK;
    tri_group_name_next(job->group, "whether to save");
    tri_status status = tri_broadcast(job->group, &word, 1, TRI_I64, 0, NULL);
    tri_group_name_next(job->group, "");
    *wanted = word != 0;
    return status;
}
