/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c: configuration to objects: model, store, graph, optimizer, sync, data. Everything is sized here; afterwards a
 * step allocates nothing.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/rng.h"
#include "text/tokenizer.h"
#include "train/job.h"
#include "train/layout.h"

/* A starter that binds nobody (mpirun, torchrun) gives every rank all cores: they are shared out then, since ranks that
 * wait for cores cost far more than the threads bring. */
int tri_job_threads(const tri_config *config, int local_count)
{
    int threads = tri_tiles_threads();
    if (config->train.threads > 0)
        return (int)config->train.threads;
    if (local_count > 1 && threads == tri_cores_online())
        threads = threads / local_count > 0 ? threads / local_count : 1;
    return threads;
}

/* What is computed at once, and the levels of the largest part's tree above it: one array each. */
static void split_waves(tri_job *job)
{
    tri_job_waves *waves = &job->waves;
    int64_t largest = 0;
    waves->shards = job->config.train.shards_at_once;
    if (waves->shards == 0 || waves->shards > job->shard_count)
        waves->shards = job->mesh.pipeline > 1 ? 1 : job->shard_count;
    if (job->mesh.pipeline > 1) /* micro-batches, which the pipeline adds up */
        return;
    for (int p = 0; p < job->part_count; p++)
        if (job->parts[p].count > largest)
            largest = job->parts[p].count;
    for (int64_t count = waves->shards; count < largest && waves->shards < job->shard_count; count *= 2)
        waves->levels++;
}

/* Ranks that share each batch out. */
static int sharers_of(const tri_job *job)
{
    return job->servers.client ? job->servers.workers : job->mesh.data;
}

/* Which shards are ours, and as which subtrees. */
void tri_job_split_shards(tri_job *job)
{
    int64_t shards = job->config.train.shards;
    job->sampler = (tri_sampler){.seed = (uint64_t)job->config.train.seed,
                                 .batch = job->config.train.batch,
                                 .shards = shards,
                                 .shuffle = job->config.data.shuffle};
    int sharer = job->servers.client ? job->servers.worker : job->mesh.data_rank, sharers = sharers_of(job);
    job->first_shard = tri_tree_first(shards, sharer, sharers);
    job->shard_count = tri_tree_count(shards, sharer, sharers);
    if (tri_job_deals(job) > 0) { /* of the part that is dealt */
        job->first_shard = 0;
        job->shard_count = shards / tri_job_deals(job);
    }
    job->part_count = job->servers.client
                          ? tri_ps_parts(&job->config.ps, shards, job->first_shard, job->shard_count, job->parts)
                          : tri_tree_parts(shards, job->first_shard, job->shard_count, job->parts);
    for (int p = 0; p < job->part_count; p++)
        job->parts[p].first -= job->first_shard;
    for (int64_t v = 0; v < shards; v++)
        if (tri_sampler_rows(&job->sampler, v) > job->rows)
            job->rows = tri_sampler_rows(&job->sampler, v);
    split_waves(job);
}

static tri_status allocate_waves(tri_job *job)
{
    tri_job_waves *waves = &job->waves;
    if (waves->shards == job->shard_count || job->pipeline)
        return TRI_OK;
    waves->scratch = tri_alloc_zero((size_t)waves->levels + 1, sizeof(float *));
    for (int level = 0; waves->scratch && level < waves->levels; level++) {
        waves->scratch[level] =
            job->params->device->alloc((size_t)(tri_params_grad_count(job->params) + TRI_PARAMS_TAIL) * sizeof(float));
        if (!waves->scratch[level])
            return TRI_ENOMEM;
    }
    return waves->scratch ? TRI_OK : TRI_ENOMEM;
}

/* Whether some rank computes its shards piece by piece, as a pipeline does: all ranks then have whole gradients. */
bool tri_job_is_pieced(const tri_job *job)
{
    if (job->mesh.pipeline > 1)
        return true;
    int64_t most = (job->config.train.shards + sharers_of(job) - 1) / sharers_of(job);
    int64_t at_once = job->config.train.shards_at_once;
    return at_once > 0 && at_once < most;
}

tri_status tri_job_share_out(tri_job *job, tri_slice **own, int *count)
{
    const tri_parallel_config *config = &job->config.parallel;
    *own = NULL;
    *count = 0;
    job->spread = job->forward_only ? TRI_SPREAD_NOTHING : tri_sync_spread(config, job->mesh.zero);
    if (job->spread == TRI_SPREAD_WEIGHTS && tri_job_is_pieced(job) && job->config.train.shards % job->mesh.data != 0)
        return tri_fail(TRI_ECONFIG,
                        "%s: with parallel.sync %s all ranks go through the weights equally often: want "
                        "a number of ranks that divides train.shards, %lld, got %d",
                        job->mesh.pipeline > 1 ? "parallel.pipeline" : "train.shards_at_once", config->sync,
                        (long long)job->config.train.shards, job->mesh.data);
    TRI_TRY(tri_shares_init(&job->shares, config, job->params, job->mesh.zero));
    return job->spread == TRI_SPREAD_WEIGHTS ? tri_shares_of(&job->shares, tri_mesh_zero_rank(&job->mesh), own, count)
                                             : TRI_OK;
}

tri_status tri_job_open_optim(tri_job *job)
{
    tri_slice *own;
    int count;
    TRI_TRY(tri_shares_of(&job->shares, tri_mesh_zero_rank(&job->mesh), &own, &count));
    if (tri_job_follows(job))
        count = 0; /* the servers' */
    tri_status status = tri_optim_create_share(&job->config.optim, job->params, own, count, job->threads, &job->optim);
    tri_free(own);
    return status;
}

tri_sync_setup tri_job_sync_setup(const tri_job *job)
{
    return (tri_sync_setup){.config = &job->config.parallel,
                            .group = job->mesh.data_group,
                            .zero = job->mesh.zero_group,
                            .replicas = job->mesh.replica_group,
                            .params = job->params,
                            .leaves = job->config.train.shards,
                            .part_count = job->part_count,
                            .whole_gradients = tri_job_is_pieced(job),
                            .servers = job->servers.client ? &job->servers : NULL,
                            .threads = job->threads};
}

/* How the graphs find what is on its way or elsewhere. */
static void hooks_set(tri_job *job)
{
    tri_graph_hooks hooks = {.arg = job, .bring = tri_job_entry_bring};
    if (job->sync->ops->hooks)
        job->sync->ops->hooks(job->sync, &hooks);
    if (!job->ahead && !job->sync->ops->hooks)
        return;
    if (job->pipeline)
        tri_pipeline_hooks_set(job->pipeline, &hooks);
    else
        tri_graph_hooks_set(job->graph, &hooks);
}

static tri_status build_moves(tri_job *job)
{
    TRI_TRY(tri_job_open_optim(job));
    tri_job_servers_plan(job);
    tri_sync_setup setup = tri_job_sync_setup(job);
    setup.between_hosts = tri_group_is_between_hosts(job->mesh.data_group);
    TRI_TRY(tri_sync_create(&setup, &job->sync));
    tri_job_scale_open(job);
    TRI_TRY(tri_job_guard_open(job));
    TRI_TRY(tri_job_verify_open(job));
    if (job->config.optim.clip_norm > 0 || job->scale.now > 0 || tri_job_guard_wants_norm(job) || job->rank == 0 ||
        job->mesh.model_group || !job->sync->whole) {
        job->norm_blocks = tri_alloc_zero((size_t)job->params->block_count, sizeof(double));
        if (!job->norm_blocks)
            return TRI_ENOMEM;
    }
    TRI_TRY(allocate_waves(job));
    /* Clipping, the loss scale, guards that skip and ties need all sums at once; pieces of the batch write all
     * gradients before any is ready. */
    bool skips =
        job->scale.now > 0 || job->guard.on_nonfinite >= TRI_GUARD_SKIP || job->guard.on_spike >= TRI_GUARD_SKIP;
    job->ahead = job->sync->ahead && job->config.optim.clip_norm == 0 && !skips && job->params->tie_count == 0 &&
                 job->graph && !job->waves.scratch;
    hooks_set(job);
    return TRI_OK;
}

tri_status tri_job_open_train_data(tri_job *job, tri_dataset **dataset)
{
    TRI_TRY_IN(tri_dataset_open(&job->config.data, false, dataset), "while opening the training data");
    job->sampler.count = (*dataset)->info.count;
    job->steps_per_epoch = tri_sampler_steps(&job->sampler);
    job->steps = job->config.train.epochs * job->steps_per_epoch;
    if (job->config.train.steps > 0 && job->config.train.steps < job->steps)
        job->steps = job->config.train.steps;
    return TRI_OK;
}

/* Ranks of this host may share its cores: one is free when all of their threads leave one over. */
static tri_loader_crew crew_of(const tri_job *job)
{
    return (tri_loader_crew){.run = tri_tiles_run,
                             .threads = job->threads,
                             .core_free = tri_cores_online() > job->threads * tri_comm_local_count(job->comm)};
}

/* What the model was not made for. */
static tri_status check_evaluated(const tri_job *job, const tri_dataset_info *found)
{
    const tri_dataset_info *info = &job->info;
    char wanted[96], text[96];
    if (tri_shape_count(found->sample) != tri_shape_count(info->sample))
        return tri_fail(TRI_ECONFIG, "the model wants samples of shape %s, the data to evaluate has %s",
                        tri_shape_print(info->sample, wanted), tri_shape_print(found->sample, text));
    if (found->classes > info->classes || (found->classes == 0) != (info->classes == 0))
        return tri_fail(TRI_ECONFIG, "the model knows %lld classes, the data to evaluate has %lld",
                        (long long)info->classes, (long long)found->classes);
    return TRI_OK;
}

static tri_status open_evaluated(tri_job *job, tri_dataset *dataset)
{
    TRI_TRY(check_evaluated(job, &dataset->info));
    if (job->config.train.eval_batches > 0)
        tri_dataset_thin(dataset, job->config.train.eval_batches * job->config.train.batch);
    job->test.sampler = job->sampler;
    job->test.sampler.count = dataset->info.count;
    job->test.classes = dataset->info.classes > 0;
    bool all = job->servers.client; /* nobody else evaluates */
    job->test.first_shard = all ? 0 : job->first_shard;
    job->test.shard_count = all ? job->sampler.shards : job->shard_count;
    job->test.sampler.shuffle = false;
    job->test.sums = tri_alloc_zero((size_t)job->sampler.shards * TRI_LOSS_COLUMNS, sizeof(double));
    tri_loader_setup setup = {.sampler = job->test.sampler,
                              .first_shard = job->test.first_shard,
                              .shard_count = job->test.shard_count,
                              .rows_max = job->rows,
                              .training = false,
                              .skips_input = job->pipeline && !tri_pipeline_reads_input(job->pipeline),
                              .skips_target = job->pipeline && !tri_pipeline_reads_target(job->pipeline),
                              .first_step = 0,
                              .end_step = INT64_MAX / 2,
                              .crew = crew_of(job)};
    return job->test.sums ? tri_loader_open(dataset, &job->config.data, &setup, &job->test.loader) : TRI_ENOMEM;
}

tri_status tri_job_open_evaluation(tri_job *job, bool test)
{
    tri_dataset *dataset = NULL;
    TRI_TRY(tri_dataset_open(&job->config.data, test, &dataset));
    tri_status status = open_evaluated(job, dataset);
    tri_dataset_close(dataset);
    return status;
}

static tri_status open_test_data(tri_job *job)
{
    tri_dataset *dataset = NULL;
    if (tri_job_follows(job))
        return TRI_OK;
    tri_status status = tri_dataset_open(&job->config.data, true, &dataset);
    if (status == TRI_ENOTFOUND) {
        if (job->rank == 0)
            tri_log(TRI_LOG_WARN, "there is no test set: %s", tri_last_error());
        return TRI_OK;
    }
    if (status == TRI_OK)
        status = open_evaluated(job, dataset);
    tri_dataset_close(dataset);
    TRI_TRY_IN(status, "while opening the test data");
    return TRI_OK;
}

/* A run that has ended already needs no more batches. */
static tri_status open_loader(tri_job *job, tri_dataset *dataset)
{
    if (job->step > job->steps)
        return tri_fail(
            TRI_ECONFIG,
            "the checkpoint is at step %lld but the configuration ends at step %lld (train.epochs, train.steps)",
            (long long)job->step, (long long)job->steps);
    if (job->step == job->steps)
        return TRI_OK;
    tri_data_config data = job->config.data;
    int64_t parts = tri_job_deals(job) > 0 ? tri_job_deals(job) : 1;
    if (tri_job_deals(job) > 0) /* who knows which is next? */
        data.prefetch = 0;
    tri_loader_setup setup = {.sampler = job->sampler,
                              .first_shard = job->first_shard,
                              .shard_count = job->shard_count * parts,
                              .rows_max = job->rows,
                              .training = true,
                              .skips_input = job->pipeline && !tri_pipeline_reads_input(job->pipeline),
                              .skips_target = job->pipeline && !tri_pipeline_reads_target(job->pipeline),
                              .first_step = job->step,
                              .end_step = job->steps,
                              .crew = crew_of(job)};
    return tri_loader_open(dataset, &data, &setup, &job->loader);
}

/* What all ranks must have in common before the first step (weights: with those of the same place in the model), and
 * how a message calls it. */
enum { EQUAL_CONFIG, EQUAL_KERNELS, EQUAL_WEIGHTS, EQUAL_COUNT };
static const char *const equal_names[] = {[EQUAL_CONFIG] = "configuration",
                                          [EQUAL_KERNELS] = "instruction set or oneDNN",
                                          [EQUAL_WEIGHTS] = "model or weights"};

/* The first rank that must have what `rank` has. */
static int equal_to(const tri_job *job, int rank, int what)
{
    tri_mesh mesh = job->mesh;
    tri_mesh_place(&mesh, rank);
    return what == EQUAL_WEIGHTS ? tri_mesh_rank(&mesh, 0, mesh.tensor_rank, mesh.stage) : 0;
}

static tri_status check_equal(tri_job *job)
{
    if (job->world == 1)
        return TRI_OK;
    const char *kernels = tri_kernel_arithmetic();
    int64_t mine[EQUAL_COUNT] = {[EQUAL_CONFIG] = (int64_t)job->config_hash,
                                 [EQUAL_KERNELS] = (int64_t)tri_rng_stream(kernels, 0, 0),
                                 [EQUAL_WEIGHTS] = (int64_t)tri_params_hash_here(job->params)};
    int64_t *all = tri_alloc((size_t)job->world * sizeof(mine));
    if (!all)
        return TRI_ENOMEM;
    tri_group_name_next(job->group, "start-up check");
    tri_status status = tri_all_gather(job->group, mine, all, EQUAL_COUNT, TRI_I64, NULL);
    tri_group_name_next(job->group, "");
    for (int i = 0; i < job->world * EQUAL_COUNT && status == TRI_OK; i++) {
        int rank = i / EQUAL_COUNT, what = i % EQUAL_COUNT, first = equal_to(job, rank, what);
        if (all[i] != all[first * EQUAL_COUNT + what])
            status = tri_fail(TRI_EMISMATCH, "rank %d has another %s than rank %d (rank %d: %s)", rank,
                              equal_names[what], first, job->rank, kernels);
    }
    tri_free(all);
    return status;
}

/* Rank 0: the run folder with the resolved configuration. */
static tri_status open_run_folder(tri_job *job)
{
    if (job->rank != 0 || !job->run_folder)
        return TRI_OK;
    char path[1200];
    tri_string text = {0};
    TRI_TRY_IN(tri_fs_make_folder(job->run_folder), "while making the run folder");
    tri_status status = tri_config_print(&job->config, &text);
    snprintf(path, sizeof(path), "%s/config.yaml", job->run_folder);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    TRI_TRY(status);
    TRI_TRY_IN(tri_job_config_write(job), "while writing the run folder");
    snprintf(path, sizeof(path), "%s/dataset.yaml", job->run_folder);
    TRI_TRY(tri_dataset_info_save(&job->info, path));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", job->run_folder);
    return tri_metrics_open(path, job->step, &job->metrics);
}

/* What auto stands for in parallel.layout. */
static tri_status layout_find(tri_job *job, const tri_job_setup *setup)
{
    tri_string text = {0};
    tri_status status = tri_config_layout_find(&job->config, setup->model, job->comm, &text);
    if (status == TRI_OK && text.nbytes > 0 && job->rank == 0)
        tri_log(TRI_LOG_INFO, "%s", text.text);
    tri_string_fini(&text);
    TRI_TRY(status);
    return tri_config_check(&job->config, job->world);
}

tri_status tri_job_configure(tri_job *job, const tri_job_setup *setup)
{
    char why[TRI_SYNC_BITS_NBYTES];
    TRI_TRY(tri_config_load(setup->config, setup->config_text, setup->overrides, &job->config));
    TRI_TRY(tri_config_check(&job->config, job->world));
    TRI_TRY(tri_job_servers_find(job, setup->servers));
    TRI_TRY(tri_job_model_find(job, setup));
    TRI_TRY(layout_find(job, setup));
    TRI_TRY(tri_mesh_open(&job->config.parallel, job->comm, &job->mesh));
    bool parts_open = job->config.parallel.tensor_parts == 0;
    if (parts_open)
        job->config.parallel.tensor_parts = job->mesh.tensor;
    TRI_TRY(tri_config_hash(&job->config, &job->config_hash));
    job->threads = tri_job_threads(&job->config,
                                   job->servers.client ? tri_job_servers_local(job) : tri_comm_local_count(job->comm));
    snprintf(job->bits, sizeof(job->bits), "reproducible");
    if (strcmp(tri_comm_engine(job->comm), "host") != 0)
        snprintf(job->bits, sizeof(job->bits), "not reproducible (comm.engine %s adds in an order of its own)",
                 tri_comm_engine(job->comm));
    else if (strcmp(job->config.comm.order, "canonical") != 0)
        snprintf(job->bits, sizeof(job->bits), "not reproducible (comm.order is %s)", job->config.comm.order);
    else if (job->servers.client && job->servers.workers > 1 && tri_ps_consistency(&job->config.ps) != PS_BSP)
        snprintf(job->bits, sizeof(job->bits), "not reproducible (ps.consistency %s)", job->config.ps.consistency);
    else if (job->servers.client && job->config.ps.backup_workers > 0)
        snprintf(job->bits, sizeof(job->bits), "not reproducible (ps.backup_workers)");
    else if (tri_sync_bits(&job->config.parallel, job->mesh.data, tri_group_is_between_hosts(job->mesh.data_group),
                           why)[0])
        snprintf(job->bits, sizeof(job->bits), "%s", why);
    else if (parts_open && job->mesh.tensor > 1)
        snprintf(job->bits, sizeof(job->bits),
                 "not reproducible (parallel.tensor_parts is not set: %d, as "
                 "parallel.tensor)",
                 job->mesh.tensor);
    tri_job_split_shards(job);
    return TRI_OK;
}

/* What the weights' tokens mean lies beside them: RUN/tokenizer.json. */
static tri_status save_tokenizer(const tri_job *job, const tri_dataset *dataset)
{
    if (job->rank != 0 || !job->run_folder || !dataset->tokenizer)
        return TRI_OK;
    char path[1200];
    snprintf(path, sizeof(path), "%s/tokenizer.json", job->run_folder);
    TRI_TRY_IN(tri_fs_make_folder(job->run_folder), "while making the run folder");
    return tri_tokenizer_save(dataset->tokenizer, path);
}

tri_status tri_job_build(tri_job *job, const tri_job_setup *setup)
{
    TRI_TRY(tri_job_configure(job, setup));
    tri_dataset *dataset = NULL;
    tri_status status = tri_job_open_train_data(job, &dataset);
    if (status == TRI_OK)
        status = tri_job_build_model(job, setup->model, &dataset->info);
    if (status == TRI_OK)
        status = tri_job_sample_plan(job, setup->model, &dataset->info);
    if (status == TRI_OK)
        status = build_moves(job);
    if (status == TRI_OK)
        status = tri_job_inventories_open(job);
    if (status == TRI_OK && !setup->resume && !tri_job_follows(job))
        status = tri_job_weights_find(job);
    if (status == TRI_OK)
        status = check_equal(job);
    if (status == TRI_OK && setup->resume && !tri_job_follows(job))
        status = tri_job_resume(job, setup->resume);
    if (status == TRI_OK && job->servers.client)
        status = tri_job_servers_start(job);
    if (status == TRI_OK)
        status = open_loader(job, dataset);
    if (status == TRI_OK)
        status = save_tokenizer(job, dataset);
    tri_dataset_close(dataset);
    if (status == TRI_OK)
        status = open_test_data(job);
    if (status == TRI_OK)
        status = open_run_folder(job);
    if (status == TRI_OK)
        status = tri_job_sample_open(job);
    if (status == TRI_OK && setup->console && job->rank == 0)
        status = tri_console_open(job->step, job->steps, job->steps_per_epoch, job->config.train.epochs, &job->console);
    if (status == TRI_OK && job->console)
        tri_job_initial_print(job, job->console);
    tri_pretrained_close(job->source);
    job->source = NULL;
    if (status == TRI_OK)
        status = tri_job_best_open(job);
    if (status == TRI_OK)
        status = tri_job_saver_open(job);
    if (status == TRI_OK)
        status = tri_job_measure_peak(job);
    job->sent_nbytes = tri_counter_now(TRI_COUNT_SENT_NBYTES);
    return status;
}
