/* SPDX-License-Identifier: Apache-2.0
 *
 * arrays.c: the arrays that a run consists of, weights and optimizer state: who holds what of them, and their way
 * between all ranks and the files of rank 0.
 *
 * Rank 0 goes along the tensors of a file; the others, along the same ones, give or take what they hold.
 */
#include <stdlib.h>
#include <string.h>

#include "train/checkpointing/arrays.h"
#include "train/core/job.h"

/* --- who holds what --- */

/* What this rank owns, slice after slice; of several copies, the first is named, and the others get theirs from it. */
static tri_status shares_list(const tri_job *job, tri_vector *list)
{
    tri_slice *own;
    int count;
    int64_t at = 0;
    if (job->mesh.data_rank >= job->mesh.zero)
        return TRI_OK;
    TRI_TRY(tri_shares_of(&job->placement.shares, job->mesh.data_rank, &own, &count));
    tri_status status = TRI_OK;
    for (int i = 0; status == TRI_OK && i < count; at += own[i++].count)
        status = tri_extents_of_slice(job->params, &job->model.tensors, own[i], at, job->mesh.tensor_rank == 0, list);
    tri_free(own);
    return status;
}

/* Of several that have the same weights, the ranks with data rank 0 hold them; others get them by broadcast. */
static tri_status whole_list(const tri_job *job, tri_vector *list)
{
    tri_slice all = {0, job->params->count};
    return job->mesh.data_rank == 0
               ? tri_extents_of_slice(job->params, &job->model.tensors, all, 0, job->mesh.tensor_rank == 0, list)
               : TRI_OK;
}

static tri_status map_open(tri_job *job, tri_status (*list_make)(const tri_job *job, tri_vector *list),
                           tri_shard_map **out)
{
    tri_vector list = {.each = sizeof(tri_extent)};
    tri_status status = list_make(job, &list);
    if (status == TRI_OK)
        status = tri_shard_map_create(job->group, &job->model.tensors, &list, out);
    tri_vector_fini(&list);
    return status;
}

tri_status tri_job_shard_maps_open(tri_job *job)
{
    TRI_TRY(map_open(job, job->placement.spread == TRI_SPREAD_WEIGHTS ? shares_list : whole_list,
                     &job->placement.weights_at));
    job->placement.states_at = job->placement.weights_at;
    bool apart = job->placement.spread == TRI_SPREAD_STATE || job->placement.spread == TRI_SPREAD_GRADIENTS;
    return apart ? map_open(job, shares_list, &job->placement.states_at) : TRI_OK;
}

void tri_job_shard_maps_close(tri_job *job)
{
    tri_job_placement *placement = &job->placement;
    if (placement->states_at != placement->weights_at)
        tri_shard_map_destroy(placement->states_at);
    tri_shard_map_destroy(placement->weights_at);
    placement->weights_at = placement->states_at = NULL;
}

/* Do ranks besides rank 0 have to give what a checkpoint needs? The same on all ranks. */
static bool is_spread(const tri_job_placement *placement)
{
    return tri_shard_map_is_spread(placement->weights_at) || tri_shard_map_is_spread(placement->states_at);
}

/* --- the arrays --- */

tri_shard_map *tri_job_shard_map(const tri_job_placement *placement, int64_t index)
{
    return index == 0 ? placement->weights_at : placement->states_at;
}

static tri_status piece_read(void *arg, int64_t at, int64_t *count, const float **values)
{
    tri_job_arrays *arrays = arg;
    int64_t total = arrays->job->model.tensors.total, index = at / total;
    return tri_shard_map_read(tri_job_shard_map(&arrays->job->placement, index), arrays->views[index].host, at % total,
                              count, values);
}

static tri_status piece_write(void *arg, int64_t at, int64_t count, const float *values)
{
    tri_job_arrays *arrays = arg;
    int64_t total = arrays->job->model.tensors.total, index = at / total;
    (void)count; /* a whole tensor */
    return tri_shard_map_write(tri_job_shard_map(&arrays->job->placement, index), arrays->views[index].host, at % total,
                               values);
}

static tri_status view_place(tri_device_view *view, const tri_device *device, void *memory, size_t nbytes)
{
    *view = (tri_device_view){.device = device, .memory = memory, .host = memory, .nbytes = nbytes};
    if (!tri_device_shares_host(device))
        view->host = tri_alloc_bulk(nbytes);
    return view->host ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_job_arrays_open_unread(tri_job *job, bool with_state, tri_job_arrays *arrays)
{
    const tri_params *params = job->params;
    *arrays = (tri_job_arrays){.job = job, .pieces = {arrays, piece_read, piece_write}};
    TRI_TRY(
        view_place(&arrays->views[0], params->device, params->values, (size_t)tri_params_held(params) * sizeof(float)));
    arrays->count = 1;
    for (int s = 0; with_state && job->optim && tri_optim_state_name(job->optim, s); s++, arrays->count++)
        TRI_TRY(view_place(&arrays->views[1 + s], params->device, tri_optim_state(job->optim, s),
                           (size_t)tri_optim_count(job->optim) * sizeof(float)));
    return TRI_OK;
}

void tri_job_arrays_read(const tri_job_arrays *arrays)
{
    for (int i = 0; i < arrays->count; i++)
        tri_device_view_read(&arrays->views[i]);
}

tri_status tri_job_arrays_open(tri_job *job, bool with_state, tri_job_arrays *arrays)
{
    TRI_TRY(tri_job_arrays_open_unread(job, with_state, arrays));
    tri_job_arrays_read(arrays);
    return TRI_OK;
}

void tri_job_arrays_written(const tri_job_arrays *arrays)
{
    for (int i = 0; i < arrays->count; i++)
        tri_device_view_write(&arrays->views[i]);
}

void tri_job_arrays_close(tri_job_arrays *arrays)
{
    for (int i = 0; i < arrays->count; i++)
        tri_device_view_close(&arrays->views[i]);
    tri_arena_fini(&arrays->arena);
}

/* "momentum.fc1.weight"; of weights "fc1.weight". */
tri_status tri_job_arrays_slices(tri_job_arrays *arrays, int index, tri_checkpoint_slice *slices)
{
    const tri_job *job = arrays->job;
    for (int i = 0; i < job->model.tensors.count; i++) {
        const tri_tensor_row *row = &job->model.tensors.items[i];
        const char *name = row->name;
        if (index > 0)
            name = tri_arena_format(&arrays->arena, "%s.%s", tri_optim_state_name(job->optim, index - 1), name);
        if (!name)
            return TRI_ENOMEM;
        float *values =
            tri_shard_map_alone(tri_job_shard_map(&arrays->job->placement, index), arrays->views[index].host, i);
        slices[i] = (tri_checkpoint_slice){.name = name,
                                           .shape = row->shape,
                                           .values = values,
                                           .pieces = values ? NULL : &arrays->pieces,
                                           .at = index * job->model.tensors.total + row->first};
    }
    return TRI_OK;
}

tri_status tri_job_arrays_follow(tri_job_arrays *arrays, bool gives)
{
    tri_job *job = arrays->job;
    for (int index = 0; index < arrays->count; index++) {
        tri_shard_map *map = tri_job_shard_map(&arrays->job->placement, index);
        float *array = arrays->views[index].host;
        for (int i = 0; i < job->model.tensors.count; i++)
            TRI_TRY(gives ? tri_shard_map_give(map, array, i) : tri_shard_map_take(map, array, i));
    }
    return TRI_OK;
}

tri_status tri_job_arrays_spread(tri_job_arrays *arrays)
{
    tri_job *job = arrays->job;
    for (int index = 0; job->mesh.data > 1 && index < arrays->count; index++) {
        bool whole =
            index == 0 ? job->placement.spread != TRI_SPREAD_WEIGHTS : job->placement.spread == TRI_SPREAD_NOTHING;
        tri_group *group = whole ? job->mesh.data_group : job->mesh.replica_group;
        int64_t count = index > 0 ? tri_optim_count(job->optim)
                        : whole   ? job->params->count
                                  : job->params->share_elements;
        if (group)
            TRI_TRY(tri_broadcast(group, arrays->views[index].host, count, TRI_F32, 0, NULL));
    }
    return TRI_OK;
}

/* --- the hash of weights that are spread --- */

static int by_name(const void *a, const void *b)
{
    const tri_tensor_row *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

/* One tensor: rank 0 hashes it, the others give it. */
static tri_status tensor_hash(tri_job *job, const tri_tensor_row *row, float *array, tri_params_hasher *hasher)
{
    if (job->rank != 0)
        return tri_shard_map_give(job->placement.weights_at, array, (int)(row - job->model.tensors.items));
    tri_params_hasher_begin(hasher, row->name, row->shape);
    for (int64_t at = 0, count; at < row->count; at += count) {
        const float *values;
        count = row->count - at;
        TRI_TRY(tri_shard_map_read(job->placement.weights_at, array, row->first + at, &count, &values));
        tri_params_hasher_put(hasher, values, count);
    }
    return TRI_OK;
}

static tri_status spread_hash(tri_job *job, uint64_t *hash)
{
    tri_job_arrays arrays;
    tri_params_hasher hasher;
    const tri_tensor_row **rows = tri_alloc((size_t)job->model.tensors.count * sizeof(*rows));
    tri_status status = tri_job_arrays_open(job, false, &arrays);
    if (!rows)
        status = TRI_ENOMEM;
    for (int i = 0; rows && i < job->model.tensors.count; i++)
        rows[i] = &job->model.tensors.items[i];
    if (rows)
        qsort(rows, (size_t)job->model.tensors.count, sizeof(*rows), by_name);
    tri_params_hasher_init(&hasher);
    for (int i = 0; status == TRI_OK && i < job->model.tensors.count; i++)
        status = tensor_hash(job, rows[i], arrays.views[0].host, &hasher);
    *hash = tri_params_hasher_end(&hasher);
    if (status == TRI_OK)
        status = tri_broadcast(job->group, hash, 1, TRI_I64, 0, NULL);
    tri_job_arrays_close(&arrays);
    tri_free(rows);
    return status;
}

tri_status tri_job_weights_hash(tri_job *job, uint64_t *hash)
{
    if (!tri_shard_map_is_spread(job->placement.weights_at)) {
        *hash = tri_params_hash(job->params);
        return TRI_OK;
    }
    if (job->placement.hashed_step != job->step) {
        TRI_TRY(spread_hash(job, &job->placement.weights_hash));
        job->placement.hashed_step = job->step;
    }
    *hash = job->placement.weights_hash;
    return TRI_OK;
}

bool tri_job_saves_together(const tri_job *job)
{
    return is_spread(&job->placement) || tri_job_has_own_weights(job);
}

tri_status tri_job_first_decides(tri_job *job, int64_t *word)
{
    tri_group_name_next(job->group, "whether to save");
    tri_status status = tri_broadcast(job->group, word, 1, TRI_I64, 0, NULL);
    tri_group_name_next(job->group, "");
    return status;
}
