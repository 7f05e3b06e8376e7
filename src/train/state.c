/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: what each rank keeps a part of (parallel.sync), the optimizer's state and perhaps the weights, to and from
 * the files of rank 0.
 *
 * No rank ever holds all of it: it passes through rank 0 in pieces of at most PIECE_COUNT elements, in the order of the
 * file. A place in it is a number: array times params->count, plus element of the store. Where a piece ends, and
 * whose it is, follows from its place alone, so rank 0, which goes along the file, and the others, which go along the
 * same places, need not talk about it.
 */
#include <string.h>

#include "train/job.h"

#define PIECE_COUNT (INT64_C(1) << 18)

/* --- who has what --- */

/* Whether some rank computes its shards piece by piece: all ranks then have whole gradients. */
static bool is_pieced(const tri_job *job)
{
    int64_t most = (job->config.train.shards + job->world - 1) / job->world, at_once = job->config.train.shards_at_once;
    return at_once > 0 && at_once < most;
}

tri_status tri_job_fill_weights(tri_job *job, const tri_model *model)
{
    const tri_parallel_config *config = &job->config.parallel;
    tri_slice *own = NULL;
    int count = 0;
    job->spread = job->forward_only ? TRI_SPREAD_NOTHING : tri_sync_spread(config, job->world);
    if (job->spread == TRI_SPREAD_WEIGHTS && is_pieced(job) && job->config.train.shards % job->world != 0)
        return tri_fail(
            TRI_ECONFIG,
            "train.shards_at_once: with parallel.sync %s all ranks go through the weights equally often: want "
            "a number of ranks that divides train.shards, %lld, got %d",
            config->sync, (long long)job->config.train.shards, job->world);
    TRI_TRY(tri_shares_init(&job->shares, config, job->params, job->world));
    if (job->spread == TRI_SPREAD_WEIGHTS)
        TRI_TRY(tri_shares_of(&job->shares, job->rank, &own, &count));
    tri_status status = tri_params_fill(job->params, model, (uint64_t)job->config.train.seed, own, count);
    tri_free(own);
    return status;
}

tri_status tri_job_open_optim(tri_job *job)
{
    tri_slice *own;
    int count;
    TRI_TRY(tri_shares_of(&job->shares, job->rank, &own, &count));
    tri_status status = tri_optim_create_share(&job->config.optim, job->params, own, count, job->threads, &job->optim);
    tri_free(own);
    return status;
}

tri_sync_setup tri_job_sync_setup(const tri_job *job)
{
    return (tri_sync_setup){.config = &job->config.parallel,
                            .group = job->group,
                            .params = job->params,
                            .leaves = job->config.train.shards,
                            .part_count = job->part_count,
                            .whole_gradients = is_pieced(job),
                            .threads = job->threads};
}

/* --- pieces --- */

bool tri_job_state_is_spread(const tri_job *job)
{
    return job->optim && job->spread != TRI_SPREAD_NOTHING;
}

/* The rank that owns element `first` of the store; *count falls to what is the same piece. */
static int piece_owner(const tri_job *job, int64_t first, int64_t *count)
{
    const tri_share *share = tri_shares_find(&job->shares, first);
    int64_t left = share->slice.first + share->slice.count - first;
    if (*count > left)
        *count = left;
    if (*count > PIECE_COUNT)
        *count = PIECE_COUNT;
    return share->rank;
}

/* Where this rank has what is at a place that it owns. */
static float *own_place(const tri_job_state *state, int64_t at)
{
    const tri_job *job = state->job;
    int64_t first = at % job->params->count;
    const tri_share *share = tri_shares_find(&job->shares, first);
    return (float *)state->arrays[at / job->params->count].host + share->at + (first - share->slice.first);
}

/* One piece to another rank or from it. */
static tri_status piece_send(const tri_job *job, const float *values, int64_t count, int to)
{
    tri_group_name_next(job->group, "state");
    tri_status status = tri_send(job->group, values, count, TRI_F32, to, NULL);
    tri_group_name_next(job->group, "");
    return status;
}

static tri_status piece_receive(const tri_job *job, float *values, int64_t count, int from)
{
    tri_group_name_next(job->group, "state");
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

static tri_status array_open(tri_job_state *state, float *values, int64_t count)
{
    return tri_device_view_open(&state->arrays[state->count++], state->job->params->device, values,
                                (size_t)count * sizeof(float));
}

tri_status tri_job_state_open(tri_job *job, tri_job_state *state)
{
    int64_t own = 0;
    *state = (tri_job_state){.job = job, .pieces = {.arg = state, .read = piece_read, .write = piece_write}};
    for (int i = 0; i < job->shares.count; i++)
        own += job->shares.items[i].rank == job->rank ? job->shares.items[i].slice.count : 0;
    if (job->spread == TRI_SPREAD_WEIGHTS)
        TRI_TRY(array_open(state, job->params->values, own));
    state->weights = state->count;
    for (int s = 0; tri_optim_state_name(job->optim, s); s++)
        TRI_TRY(array_open(state, tri_optim_state(job->optim, s), own));
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
    if (!tri_job_state_is_spread(job))
        return TRI_OK;
    tri_group_name_next(job->group, "whether to save");
    tri_status status = tri_broadcast(job->group, &word, 1, TRI_I64, 0, NULL);
    tri_group_name_next(job->group, "");
    *wanted = word != 0;
    return status;
}

/* --- the weights' hash --- */

/* Rank 0 goes through the weights, the others through the same places: whoever owns one sends it there. */
static tri_status hash_read(void *arg, int64_t first, int64_t *count, const float **values)
{
    tri_job_state *state = arg;
    if (state->job->rank == 0)
        return piece_read(arg, first, count, values);
    *values = NULL;
    int owner = piece_owner(state->job, first, count);
    return owner == state->job->rank ? piece_send(state->job, own_place(state, first), *count, 0) : TRI_OK;
}

static tri_status hash_spread(tri_job *job)
{
    tri_job_state state;
    uint64_t hash = 0;
    tri_status status = tri_job_state_open(job, &state);
    if (status == TRI_OK)
        status = tri_params_hash_read(job->params, hash_read, &state, &hash);
    tri_job_state_close(&state);
    TRI_TRY(status);
    int64_t word = (int64_t)hash;
    tri_group_name_next(job->group, "weights' hash");
    status = tri_broadcast(job->group, &word, 1, TRI_I64, 0, NULL);
    tri_group_name_next(job->group, "");
    job->weights_hash = (uint64_t)word;
    job->hash_step = job->step;
    return status;
}

tri_status tri_job_weights_hash(tri_job *job, uint64_t *hash)
{
    TRI_TRY(tri_job_settle(job));
    if (job->spread == TRI_SPREAD_WEIGHTS) {
        if (job->hash_step != job->step)
            TRI_TRY(hash_spread(job));
        *hash = job->weights_hash;
    } else {
        *hash = tri_params_hash(job->params);
    }
    return TRI_OK;
}
