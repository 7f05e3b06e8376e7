/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: what a rank would allocate for a run, found out by building its part of the job: nothing is trained, nobody
 * else is needed.
 */
#include <string.h>

#include "train/job.h"

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

static tri_status plan_rank(tri_job *job, tri_job_memory *memory)
{
    tri_dataset *dataset = NULL;
    job->threads = tri_job_threads(&job->config, job->world);
    tri_job_split_shards(job);
    TRI_TRY_IN(tri_dataset_open(&job->config.data, false, &dataset), "while opening the training data");
    tri_status status = tri_job_build_model(job, NULL, &dataset->info);
    tri_dataset_close(dataset);
    TRI_TRY(status);
    TRI_TRY(tri_optim_create(&job->config.optim, job->params, job->threads, &job->optim));
    size_t values = (size_t)job->params->count, arrays = (size_t)(job->part_count + job->waves.levels);
    memory->weights = values * sizeof(float);
    memory->gradients = arrays * ((size_t)tri_params_grad_count(job->params) + TRI_PARAMS_TAIL) * sizeof(float);
    for (int s = 0; tri_optim_state_name(job->optim, s); s++)
        memory->optimizer += values * sizeof(float);
    tri_graph_memory(job->graph, &memory->activations, &memory->activations_apart);
    return TRI_OK;
}

tri_status tri_job_memory_plan(const tri_config *config, int ranks, tri_job_memory *memory)
{
    *memory = (tri_job_memory){0};
    tri_job *job = tri_alloc_zero(1, sizeof(*job));
    if (!job)
        return TRI_ENOMEM;
    job->config = *config; /* borrowed */
    job->world = ranks;
    job->rank = largest_rank(config, ranks);
    tri_status status = plan_rank(job, memory);
    job->config = (tri_config){0};
    tri_job_close(job);
    return status;
}
