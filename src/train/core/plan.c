/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: what a rank would allocate for a run, found out by building its part of the job: nothing is trained, nobody
 * else is needed.
 */

#include "train/core/plan.h"
#include "train/core/build.h"
#include "train/core/features.h"
#include "train/core/isa.h"
#include "train/core/step.h"

#define SLOTS_AUTO 3 /* of a loader, where data.prefetch says nothing (data/loader.c) */

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
    int64_t all = job->config.train.epochs * job->progress.steps_per_epoch;
    TRI_TRY(tri_optim_groups_print(optim, job->params, prefix, notes));
    TRI_TRY(tri_string_appendf(notes, "%slearning rate, %s:\n", prefix, tri_lr_schedule_word(optim->schedule)));
    return tri_schedule_plot(optim, job->progress.steps, all, prefix, notes);
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

/* Bytes of the host that a guard keeps to roll back to. */
static size_t copies_nbytes(const tri_job *job)
{
    const size_t weights = (size_t)tri_params_held(job->params) * sizeof(float);
    return tri_guard_copies(&job->config) ? weights + tri_optim_nbytes(job->optim) : 0;
}

/* Bytes of batches on a card: the loaders of training and of evaluation have some slots each. */
static size_t samples_nbytes(const tri_job *job)
{
    const int64_t ahead = job->config.data.prefetch;
    const size_t slots = ahead < 0 ? SLOTS_AUTO : ahead == 0 ? 2 : (size_t)ahead + 1;
    return 2 * slots * (size_t)job->shards.count * (job->shards.input_nbytes + job->shards.target_nbytes);
}

/* Of a card: what was allocated there so far is the store and the graph. The host keeps what the strategy works on, and
 * has copies of weights and state while a checkpoint is written. */
static void card_memory(const tri_job *job, const tri_sync_bytes *bytes, size_t live, tri_job_memory *memory)
{
    const size_t weights = (size_t)tri_params_held(job->params) * sizeof(float), state = tri_optim_nbytes(job->optim);
    memory->optimizer = state;
    memory->host += bytes->host + bytes->outer + copies_nbytes(job);
    if (memory->snapshot > 0)
        memory->host += weights + state;
    memory->gradients += (size_t)job->params->block_count * sizeof(double);
    if (job->model.graph)
        memory->activations = live - weights;
    memory->activations += samples_nbytes(job);
    if (job->config.train.sample_every > 0) /* rank 0's copy of the weights, features/sample.c */
        memory->activations += (size_t)job->model.tensors.total * sizeof(float);
}

static tri_status rank_memory(tri_job *job, size_t live, tri_job_memory *memory)
{
    tri_sync_setup setup = tri_job_sync_setup(job);
    tri_sync_bytes bytes;
    tri_sync_place place = {job->mesh.data_rank, job->mesh.data, job->mesh.zero};
    TRI_TRY(tri_sync_memory(&setup, place, &bytes));
    tri_accumulation_plan(job);
    size_t level = ((size_t)tri_params_grad_count(job->params) + TRI_PARAMS_TAIL) * sizeof(float);
    *memory = job->model.stage_memory;
    memory->weights = bytes.weights;
    memory->gradients += bytes.gradients + (size_t)job->shards.accumulation.levels * level;
    memory->optimizer = tri_optim_nbytes(job->optim) + bytes.outer;
    TRI_TRY(snapshot_plan(job, bytes.outer, &memory->snapshot));
    if (job->model.graph)
        tri_graph_memory(job->model.graph, &memory->activations, &memory->activations_apart);
    if (memory->card)
        card_memory(job, &bytes, live, memory);
    else if (tri_guard_copies(&job->config)) {
        memory->weights += (size_t)tri_params_held(job->params) * sizeof(float);
        memory->optimizer += tri_optim_nbytes(job->optim);
    }
    return TRI_OK;
}

typedef struct plan_of {
    const tri_config *config; /* borrowed */
    int ranks;
    int rank, stage; /* rank -1: the one of the stage that holds most */
    const tri_model *given;
    const tri_dataset_info *info; /* of the training data; NULL: they are opened for it */
    int threads;                  /* 0: as many as the ranks get on one host */
    const tri_sync_cards *cards;  /* NULL: as it is expected of ranks on this machine */
} plan_of;

static tri_status plan_rank(tri_job *job, const plan_of *of, tri_job_memory *memory)
{
    tri_dataset *dataset = NULL;
    tri_job_split_shards(job);
    if (of->info)
        job->data.sampler.count = of->info->count;
    else
        TRI_TRY(tri_job_open_train_data(job, NULL, &dataset));
    job->model.stage_memory.card = tri_device_has_memory(job->device);
    tri_status status = tri_job_build_model(job, of->given, of->info ? of->info : &dataset->info);
    tri_dataset_close(dataset);
    TRI_TRY(status);
    const size_t live = job->model.stage_memory.card ? tri_device_live(job->device) : 0;
    TRI_TRY(tri_job_open_optim(job));
    return rank_memory(job, live, memory);
}

static tri_status plan_job(tri_job *job, const plan_of *of, tri_job_memory *memory)
{
    TRI_TRY(tri_features_create(job));
    TRI_TRY(tri_device_plan(of->config->train.device, &job->device));
    TRI_TRY(tri_mesh_shape(&of->config->parallel, of->ranks, &job->mesh));
    job->rank =
        of->rank >= 0 ? of->rank : tri_mesh_rank(&job->mesh, largest_rank(of->config, job->mesh.data), 0, of->stage);
    tri_mesh_place(&job->mesh, job->rank);
    job->card.sums = of->cards ? *of->cards : tri_job_cards_expect(job);
    job->threads = of->threads > 0 ? of->threads : tri_job_threads(&job->config, job->world);
    return plan_rank(job, of, memory);
}

static tri_status stage_describe(const plan_of *of, tri_job_memory *memory, const char *prefix, tri_string *notes)
{
    *memory = (tri_job_memory){0};
    tri_job *job = tri_alloc_zero(1, sizeof(*job));
    if (!job)
        return TRI_ENOMEM;
    job->config = *of->config; /* borrowed */
    job->world = of->ranks;
    job->output.quiet = of->info != NULL;
    if (job->output.quiet) /* sections are measured by the run itself */
        job->config.parallel.cut = TRI_CUT_FLOPS;
    tri_status status = plan_job(job, of, memory);
    if (status == TRI_OK && notes)
        status = describe_optimizer(job, prefix, notes);
    job->config = (tri_config){0};
    tri_job_close(job);
    return status;
}

tri_status tri_job_own_plan(const tri_job *job, const tri_model *given, const tri_dataset_info *info,
                            tri_job_memory *memory)
{
    const plan_of of = {.config = &job->config,
                        .ranks = tri_job_count(job),
                        .rank = tri_job_number(job),
                        .given = given,
                        .info = info,
                        .threads = job->threads,
                        .cards = &job->card.sums};
    return stage_describe(&of, memory, "", NULL);
}

tri_status tri_job_stage_plan(const tri_config *config, int ranks, int stage, tri_job_memory *memory)
{
    return stage_describe(&(plan_of){.config = config, .ranks = ranks, .rank = -1, .stage = stage}, memory, "", NULL);
}

tri_status tri_job_memory_plan(const tri_config *config, int ranks, tri_job_memory *memory)
{
    return tri_job_describe(config, ranks, memory, "", NULL);
}

size_t tri_job_memory_nbytes(const tri_job_memory *memory)
{
    return memory->weights + memory->gradients + memory->optimizer + memory->activations +
           (memory->card ? 0 : memory->snapshot);
}

size_t tri_job_memory_host(const tri_job_memory *memory)
{
    return memory->card ? memory->host + memory->snapshot : tri_job_memory_nbytes(memory);
}

tri_status tri_job_describe(const tri_config *config, int ranks, tri_job_memory *memory, const char *prefix,
                            tri_string *notes)
{
    tri_mesh mesh;
    TRI_TRY(tri_config_isa_plan(config));
    TRI_TRY(tri_mesh_shape(&config->parallel, ranks, &mesh));
    TRI_TRY(stage_describe(&(plan_of){.config = config, .ranks = ranks, .rank = -1}, memory, prefix, notes));
    for (int stage = 1; stage < mesh.pipeline; stage++) {
        tri_job_memory other;
        TRI_TRY(tri_job_stage_plan(config, ranks, stage, &other));
        if (tri_job_memory_nbytes(&other) > tri_job_memory_nbytes(memory))
            *memory = other;
    }
    return TRI_OK;
}
