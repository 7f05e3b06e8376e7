/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: what a rank would allocate for a run, found out by building its part of the job: nothing is trained, nobody
 * else is needed.
 */

#include "train/core/plan.h"
#include "train/core/build.h"
#include "train/core/features.h"
#include "train/core/step.h"

/* The rank with most shards, and among those with most parts, which are gradients of their own. */
static int largest_rank(const tri_config *config, int ranks)
{
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int64_t shards = config->train.shards, most = 0;
    int largest = 0, most_parts = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t count = tri_tree_count(shards, r, ranks);
        int part_count = tri_tree_parts(shards, tri_tree_first(shards, r, ranks), count, parts);
        if (count < most || (count == most && part_count <= most_parts))
            continue;
        most = count;
        most_parts = part_count;
        largest = r;
    }
    return largest;
}

/* Groups and schedule; the steps of the run are known from the count of its samples. */
static tri_status describe_optimizer(tri_job *job, const char *prefix, tri_string *notes)
{
    const tri_optim_config *optim = &job->config.optim;
    int64_t all = job->config.train.epochs * job->steps_per_epoch;
    TRI_TRY(tri_optim_groups_print(optim, job->params, prefix, notes));
    TRI_TRY(tri_string_appendf(notes, "%slearning rate, %s:\n", prefix, tri_lr_schedule_word(optim->schedule)));
    return tri_schedule_plot(optim, job->steps, all, prefix, notes);
}

/* What a rank copies for each save: its weights, or its share, and its state. Of ranks that are alike the first one
 * alone does. */
static tri_status snapshot_plan(const tri_job *job, size_t outer, size_t *nbytes)
{
    const tri_params *params = job->params;
    tri_checkpoint_levels levels;
    TRI_TRY(tri_checkpoint_levels_read(&job->config.checkpoint, &levels));
    *nbytes = 0;
    bool served = job->config.parallel.sync == TRI_SYNC_PS; /* the servers copy */
    if (served || !job->config.checkpoint.async || !tri_checkpoint_levels_repeat(&levels))
        return TRI_OK;
    size_t weights = (size_t)(params->share ? params->share_elements : params->count) * sizeof(float);
    *nbytes = weights * (tri_sync_is_local(&job->config.parallel) ? 2 : 1) + tri_optim_nbytes(job->optim) + outer;
    return TRI_OK;
}

static tri_status plan_rank(tri_job *job, tri_job_memory *memory, const char *prefix, tri_string *notes)
{
    tri_dataset *dataset = NULL;
    job->threads = tri_job_threads(&job->config, job->world);
    tri_job_split_shards(job);
    TRI_TRY(tri_job_open_train_data(job, NULL, &dataset));
    tri_status status = tri_job_build_model(job, NULL, &dataset->info);
    tri_dataset_close(dataset);
    TRI_TRY(status);
    TRI_TRY(tri_job_open_optim(job));
    tri_sync_setup setup = tri_job_sync_setup(job);
    tri_sync_bytes bytes;
    tri_sync_place place = {job->mesh.data_rank, job->mesh.data, job->mesh.zero};
    TRI_TRY(tri_sync_memory(&setup, place, &bytes));
    tri_accumulation_plan(job);
    size_t level = ((size_t)tri_params_grad_count(job->params) + TRI_PARAMS_TAIL) * sizeof(float);
    memory->weights = bytes.weights;
    memory->gradients = bytes.gradients + (size_t)job->accumulation.levels * level + job->stage_memory.gradients;
    memory->optimizer = tri_optim_nbytes(job->optim) + bytes.outer;
    if (tri_guard_copies(&job->config)) {
        memory->weights += (size_t)tri_params_held(job->params) * sizeof(float);
        memory->optimizer += tri_optim_nbytes(job->optim);
    }
    memory->activations = job->stage_memory.activations;
    memory->activations_apart = job->stage_memory.activations_apart;
    if (job->graph)
        tri_graph_memory(job->graph, &memory->activations, &memory->activations_apart);
    TRI_TRY(snapshot_plan(job, bytes.outer, &memory->snapshot));
    return notes ? describe_optimizer(job, prefix, notes) : TRI_OK;
}

static tri_status stage_describe(const tri_config *config, int ranks, int stage, tri_job_memory *memory,
                                 const char *prefix, tri_string *notes)
{
    *memory = (tri_job_memory){0};
    tri_job *job = tri_alloc_zero(1, sizeof(*job));
    if (!job)
        return TRI_ENOMEM;
    job->config = *config; /* borrowed */
    job->world = ranks;
    tri_status status = tri_features_create(job);
    if (status == TRI_OK)
        status = tri_device_open(config->train.device, &job->device);
    if (status == TRI_OK)
        status = tri_mesh_shape(&config->parallel, ranks, &job->mesh);
    if (status == TRI_OK) {
        job->rank = tri_mesh_rank(&job->mesh, largest_rank(config, job->mesh.data), 0, stage);
        tri_mesh_place(&job->mesh, job->rank);
        status = plan_rank(job, memory, prefix, notes);
    }
    job->config = (tri_config){0};
    tri_job_close(job);
    return status;
}

tri_status tri_job_stage_plan(const tri_config *config, int ranks, int stage, tri_job_memory *memory)
{
    return stage_describe(config, ranks, stage, memory, "", NULL);
}

tri_status tri_job_memory_plan(const tri_config *config, int ranks, tri_job_memory *memory)
{
    return tri_job_describe(config, ranks, memory, "", NULL);
}

static size_t all_of(const tri_job_memory *memory)
{
    return memory->weights + memory->gradients + memory->optimizer + memory->activations + memory->snapshot;
}

tri_status tri_job_describe(const tri_config *config, int ranks, tri_job_memory *memory, const char *prefix,
                            tri_string *notes)
{
    tri_mesh mesh;
    TRI_TRY(tri_mesh_shape(&config->parallel, ranks, &mesh));
    TRI_TRY(stage_describe(config, ranks, 0, memory, prefix, notes));
    for (int stage = 1; stage < mesh.pipeline; stage++) {
        tri_job_memory other;
        TRI_TRY(tri_job_stage_plan(config, ranks, stage, &other));
        if (all_of(&other) > all_of(memory))
            *memory = other;
    }
    return TRI_OK;
}
