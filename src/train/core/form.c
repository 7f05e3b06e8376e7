/* SPDX-License-Identifier: Apache-2.0
 *
 * form.c: what of a job is made for the ranks that it has now: the sync, the loaders, and what rank 0 does for all.
 * Where ranks come and go it is made again each time (reform.c).
 */
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/path.h"
#include "base/rng.h"
#include "generate/source.h"
#include "interop/convert.h"
#include "text/tokenizer.h"
#include "train/checkpointing/arrays.h"
#include "train/core/build.h"
#include "train/core/dataset_info.h"
#include "train/core/features.h"
#include "train/core/initial.h"
#include "train/core/job.h"
#include "train/core/regression.h"
#include "train/core/servers.h"
#include "train/core/step.h"

/* How the graphs find what is on its way or elsewhere. */
static void hooks_set(tri_job *job)
{
    tri_graph_hooks hooks = {.arg = job, .bring = tri_job_entry_bring};
    if (job->sync->ops->hooks)
        job->sync->ops->hooks(job->sync, &hooks);
    if (!job->update.ahead && !job->sync->ops->hooks)
        return;
    if (job->model.pipeline)
        tri_pipeline_hooks_set(job->model.pipeline, &hooks);
    else
        tri_graph_hooks_set(job->model.graph, &hooks);
}

static tri_status norm_blocks_open(tri_job *job)
{
    const size_t nbytes = (size_t)job->params->block_count * sizeof(double);
    void *memory = tri_device_alloc(job->device, nbytes);
    return memory ? tri_device_view_open(&job->update.norm_blocks, job->device, memory, nbytes) : TRI_ENOMEM;
}

static void norm_blocks_close(tri_job *job)
{
    void *memory = job->update.norm_blocks.memory;
    tri_device_view_close(&job->update.norm_blocks);
    if (memory)
        tri_device_free(job->device, memory);
}

tri_status tri_job_form_moves(tri_job *job)
{
    tri_sync_setup setup = tri_job_sync_setup(job);
    setup.kept = job->elastic.on ? &job->elastic.grads : NULL;
    setup.between_hosts = tri_group_is_between_hosts(job->mesh.data_group);
    TRI_TRY(tri_sync_create(&setup, &job->sync));
    if (job->config.optim.clip_norm > 0 || tri_features_want_norm(job) || job->rank == 0 || job->elastic.on ||
        job->mesh.model_group || !job->sync->whole) {
        TRI_TRY(norm_blocks_open(job));
    }
    /* Clipping, the loss scale, guards that skip and ties need all sums at once; pieces of the batch write all
     * gradients before any is ready. */
    bool skips = job->config.train.precision == TRI_PRECISION_F16 || tri_guard_skips(&job->config);
    job->update.ahead = job->sync->ahead && job->config.optim.clip_norm == 0 && !skips && job->params->tie_count == 0 &&
                        job->model.graph && job->shards.accumulation.at_once == job->shards.count;
    tri_accumulation_plan(job);
    TRI_TRY(tri_accumulation_open(job));
    hooks_set(job);
    return TRI_OK;
}

/* Ranks of this host share the cores that their threads leave over. */
static tri_loader_crew crew_of(const tri_job *job)
{
    const int ranks = tri_comm_local_count(job->comm), free_cores = tri_cores_online() - job->threads * ranks;
    return (tri_loader_crew){.run = tri_tiles_run,
                             .threads = job->threads,
                             .free_cores = free_cores <= 0      ? 0
                                           : free_cores < ranks ? 1
                                                                : free_cores / ranks};
}

/* What the model was not made for. */
static tri_status check_evaluated(const tri_job *job, const tri_dataset_info *found)
{
    const tri_dataset_info *info = &job->data.info;
    char wanted[96], text[96];
    if (tri_shape_count(found->sample) != tri_shape_count(info->sample))
        return tri_fail(TRI_ECONFIG, "the model needs samples of shape %s, the data to evaluate has %s",
                        tri_shape_print(info->sample, wanted), tri_shape_print(found->sample, text));
    if (tri_is_whole(found->dtype) != tri_is_whole(info->dtype))
        return tri_fail(TRI_ECONFIG, "the model was made for samples of %s, the data to evaluate has %s",
                        tri_dtype_name(info->dtype), tri_dtype_name(found->dtype));
    if ((found->dtype == TRI_U8) != (info->dtype == TRI_U8) && job->config.data.normalize != TRI_NORMALIZE_NONE)
        return tri_fail(TRI_ECONFIG,
                        "the model was made for samples of %s, the data to evaluate has %s, which data.normalize %s "
                        "normalises in another way: want the same type",
                        tri_dtype_name(info->dtype), tri_dtype_name(found->dtype),
                        tri_normalize_word(job->config.data.normalize));
    if (!tri_shape_equal(found->target, info->target) || found->target_dtype != info->target_dtype)
        return tri_fail(TRI_ECONFIG, "the model needs targets of shape %s, the data to evaluate has %s",
                        tri_shape_print(info->target, wanted), tri_shape_print(found->target, text));
    if (found->classes > info->classes || (found->classes == 0) != (info->classes == 0))
        return tri_fail(TRI_ECONFIG, "the model knows %lld classes, the data to evaluate has %lld",
                        (long long)info->classes, (long long)found->classes);
    return TRI_OK;
}

/* Whether ids mean the same to the data and to who trained the weights at `path`; so they do where either does not
 * say. Rank 0. */
static tri_status tokens_compare(const char *path, const tri_dataset *dataset, bool *same)
{
    tri_tokenizer *own = NULL;
    *same = true;
    if (!dataset->tokenizer)
        return TRI_OK;
    tri_status status = tri_text_tokenizer_find(path, &own);
    if (status == TRI_OK)
        *same = tri_tokenizer_same(own, dataset->tokenizer);
    tri_tokenizer_close(own);
    return status == TRI_ENOMEM ? status : TRI_OK; /* a damaged one says nothing */
}

static tri_status check_tokens(const char *path, const tri_dataset *dataset)
{
    bool same;
    TRI_TRY(tokens_compare(path, dataset, &same));
    if (same)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG,
                    "data.tokenizer: the data's tokens are others than those that the weights of %s were trained on: "
                    "want the path of their tokenizer.json",
                    path);
}

static tri_status open_evaluated(tri_job *job, tri_dataset *dataset)
{
    TRI_TRY(check_evaluated(job, &dataset->info));
    if (job->data.info.deviation[0] > 0) { /* as the model learned */
        memcpy(dataset->info.mean, job->data.info.mean, sizeof(job->data.info.mean));
        memcpy(dataset->info.deviation, job->data.info.deviation, sizeof(job->data.info.deviation));
    }
    if (job->rank == 0 && job->model.weights_path[0])
        TRI_TRY(check_tokens(job->model.weights_path, dataset));
    if (job->config.train.eval_batches > 0)
        tri_dataset_thin(dataset, job->config.train.eval_batches * job->config.train.batch);
    job->test.sampler = job->data.sampler;
    job->test.sampler.count = dataset->info.count;
    job->test.classes = dataset->info.classes > 0;
    bool all = job->servers.client; /* nobody else evaluates */
    job->test.first_shard = all ? 0 : job->shards.first;
    job->test.shard_count = all ? job->data.sampler.shards : job->shards.count;
    job->test.sampler.shuffle = false;
    job->test.columns = TRI_LOSS_COLUMNS + tri_job_regression_columns(job);
    job->test.sums = tri_alloc_zero((size_t)(job->data.sampler.shards * job->test.columns), sizeof(double));
    tri_loader_setup setup = {.sampler = job->test.sampler,
                              .first_shard = job->test.first_shard,
                              .shard_count = job->test.shard_count,
                              .rows_max = job->shards.rows,
                              .rows = job->model.sample_rows,
                              .training = false,
                              .skips_input = job->model.pipeline && !tri_pipeline_reads_input(job->model.pipeline),
                              .skips_target = job->model.pipeline && !tri_pipeline_reads_target(job->model.pipeline),
                              .first_step = 0,
                              .end_step = INT64_MAX / 2,
                              .held = job->elastic.on ? &job->elastic.held[1] : NULL,
                              .crew = crew_of(job),
                              .device = job->device};
    return job->test.sums ? tri_loader_open(dataset, &job->config.data, &setup, &job->test.loader) : TRI_ENOMEM;
}

tri_data_part tri_job_evaluated_part(const tri_job *job)
{
    return tri_dataset_has(&job->config.data, TRI_PART_VALIDATION) ? TRI_PART_VALIDATION : TRI_PART_TEST;
}

tri_status tri_job_open_evaluation(tri_job *job, tri_data_part part)
{
    tri_dataset *dataset = NULL;
    job->test.part = part;
    TRI_TRY(tri_job_open_data(job, part, &dataset));
    tri_status status = open_evaluated(job, dataset);
    tri_dataset_close(dataset);
    return status;
}

static tri_status open_test_data(tri_job *job, tri_dataset *training)
{
    tri_dataset *dataset = job->elastic.test;
    if (tri_job_follows(job))
        return TRI_OK;
    job->test.part = tri_job_evaluated_part(job);
    if (dataset)
        tri_dataset_hold(dataset);
    tri_status status = dataset ? TRI_OK : tri_job_open_data(job, job->test.part, &dataset);
    if (status == TRI_ENOTFOUND) {
        if (job->rank == 0)
            tri_log(TRI_LOG_WARN, "there is no %s set: %s", tri_data_part_name(job->test.part), tri_last_error());
        return tri_job_data_tell(job, training, NULL);
    }
    if (status == TRI_OK && job->elastic.on && !job->elastic.test) {
        tri_dataset_keep(dataset, TRI_JOB_KEPT_NBYTES);
        tri_dataset_hold(dataset);
        job->elastic.test = dataset;
    }
    if (status == TRI_OK)
        status = tri_job_data_tell(job, training, dataset);
    if (status == TRI_OK)
        status = open_evaluated(job, dataset);
    tri_dataset_close(dataset);
    TRI_TRY_IN(status, "while opening the %s data", tri_data_part_name(job->test.part));
    return TRI_OK;
}

/* A run that has ended already needs no more batches. */
static tri_status open_loader(tri_job *job, tri_dataset *dataset)
{
    if (job->step > job->progress.steps)
        return tri_fail(
            TRI_ECONFIG,
            "the checkpoint is at step %lld but the configuration ends at step %lld (train.epochs, train.steps)",
            (long long)job->step, (long long)job->progress.steps);
    if (job->step == job->progress.steps)
        return TRI_OK;
    tri_data_config data = job->config.data;
    int64_t parts = tri_job_deals(job) > 0 ? tri_job_deals(job) : 1;
    if (tri_job_deals(job) > 0) /* who knows which is next? */
        data.prefetch = 0;
    tri_loader_setup setup = {.sampler = job->data.sampler,
                              .first_shard = job->shards.first,
                              .shard_count = job->shards.count * parts,
                              .rows_max = job->shards.rows,
                              .rows = job->model.sample_rows,
                              .training = true,
                              .skips_input = job->model.pipeline && !tri_pipeline_reads_input(job->model.pipeline),
                              .skips_target = job->model.pipeline && !tri_pipeline_reads_target(job->model.pipeline),
                              .first_step = job->step,
                              .end_step = job->progress.steps,
                              .held = job->elastic.on ? &job->elastic.held[0] : NULL,
                              .crew = crew_of(job),
                              .device = job->device};
    return tri_loader_open(dataset, &data, &setup, &job->data.loader);
}

/* What all ranks must have in common before the first step (weights: with those of the same place in the model), and
 * how a message calls it. */
enum { EQUAL_CONFIG, EQUAL_KERNELS, EQUAL_CLASSES, EQUAL_SAVES, EQUAL_WEIGHTS, EQUAL_COUNT };
static const char *const equal_names[] = {[EQUAL_CONFIG] = "configuration",
                                          [EQUAL_KERNELS] = "instruction set or oneDNN",
                                          [EQUAL_CLASSES] = "numbering of classes or columns of its table",
                                          [EQUAL_SAVES] = "checkpoint.every_..., levels or keep_best",
                                          [EQUAL_WEIGHTS] = "model or weights"};

/* The first rank that must have what `rank` has. */
static int equal_to(const tri_job *job, int rank, int what)
{
    tri_mesh mesh = job->mesh;
    tri_mesh_place(&mesh, rank);
    return what == EQUAL_WEIGHTS ? tri_mesh_rank(&mesh, 0, mesh.tensor_rank, mesh.stage) : 0;
}

/* One that claims to fit (cluster/members.h) and does not: it ends, and the others continue without it. */
static tri_status misfit_found(tri_job *job, int rank)
{
    job->elastic.misfit = rank;
    if (rank == job->rank)
        return tri_fail(TRI_EMISMATCH, "this worker cannot join this run: it has another configuration than it claims");
    job->elastic.given_up = true;
    return tri_fail(TRI_EPEER, "rank %d is refused: it has another configuration than it claims", rank);
}

tri_status tri_job_check_spec(tri_job *job)
{
    if (job->world == 1)
        return job->elastic.spec_hash == job->elastic.claimed_hash ? TRI_OK : misfit_found(job, 0);
    int64_t mine = (int64_t)job->elastic.spec_hash;
    int64_t *all = tri_alloc((size_t)job->world * sizeof(*all));
    if (!all)
        return TRI_ENOMEM;
    tri_group_name_next(job->group, "description of the run");
    tri_status status = tri_all_gather(job->group, &mine, all, 1, TRI_I64, NULL);
    tri_group_name_next(job->group, "");
    for (int r = 0; r < job->world && status == TRI_OK; r++)
        if (all[r] != (int64_t)job->elastic.claimed_hash)
            status = misfit_found(job, r);
    tri_free(all);
    return status;
}

/* Of when checkpoints are made, at which all ranks meet. */
static tri_status saves_hash(const tri_job *job, int64_t *hash)
{
    tri_checkpoint_levels levels;
    tri_string text = {0};
    TRI_TRY(tri_checkpoint_levels_read(&job->config.checkpoint, &levels));
    tri_status status =
        tri_string_appendf(&text, "%d %lld", job->config.checkpoint.keep_best, (long long)levels.every_epochs);
    for (int i = 0; i < levels.count && status == TRI_OK; i++)
        status =
            tri_string_appendf(&text, " %lld %.17g", (long long)levels.items[i].every_steps, levels.items[i].every_s);
    *hash = (int64_t)tri_rng_stream(tri_string_text(&text), 0, 0);
    tri_string_fini(&text);
    return status;
}

tri_status tri_job_check_equal(tri_job *job)
{
    if (job->world == 1)
        return TRI_OK;
    const char *kernels = tri_job_arithmetic(job);
    int64_t saves;
    TRI_TRY(saves_hash(job, &saves));
    int64_t mine[EQUAL_COUNT] = {[EQUAL_CONFIG] = (int64_t)job->identity.config_hash,
                                 [EQUAL_KERNELS] = (int64_t)tri_rng_stream(kernels, 0, 0),
                                 [EQUAL_CLASSES] = (int64_t)tri_job_classes_hash(job),
                                 [EQUAL_SAVES] = saves,
                                 [EQUAL_WEIGHTS] = job->elastic.hashed ? job->elastic.hash
                                                                       : (int64_t)tri_params_hash_here(job->params)};
    int64_t *all = tri_alloc((size_t)job->world * sizeof(mine));
    if (!all)
        return TRI_ENOMEM;
    tri_group_name_next(job->group, "start-up check");
    tri_status status = tri_all_gather(job->group, mine, all, EQUAL_COUNT, TRI_I64, NULL);
    tri_group_name_next(job->group, "");
    for (int i = 0; i < job->world * EQUAL_COUNT && status == TRI_OK; i++) {
        int rank = i / EQUAL_COUNT, what = i % EQUAL_COUNT, first = equal_to(job, rank, what);
        bool own = what == EQUAL_WEIGHTS && job->elastic.on && tri_job_has_own_weights(job); /* and of a resumed run */
        const char *name =
            what == EQUAL_KERNELS && job->device->ops->arithmetic ? "card, build or library" : equal_names[what];
        if (!own && all[i] != all[first * EQUAL_COUNT + what])
            status = tri_fail(TRI_EMISMATCH, "rank %d has another %s than rank %d (rank %d: %s)", rank, name, first,
                              job->rank, kernels);
    }
    tri_free(all);
    return status;
}

/* A run in whose folder an earlier one may have left its own. */
static bool begins(const tri_job *job)
{
    return job->step == 0 && job->progress.saved_step != 0;
}

/* A place of checkpoints is this run's, and those of an earlier one that it does not continue from are set aside. */
static tri_status place_open(const tri_job *job, const char *folder, bool further)
{
    if (begins(job) && !(further && tri_checkpoint_is_others(folder, job->output.folder)))
        TRI_TRY(tri_checkpoint_set_aside(folder));
    return further ? tri_checkpoint_own(folder, job->output.folder) : TRI_OK;
}

/* Files of an earlier run that made steps, which this one writes again. Its checkpoints have a call of their own. */
static tri_status files_set_aside(const char *run_folder)
{
    static const char *const names[] = {"metrics.jsonl", "config.yaml", "ledger"};
    char path[1200], *to;
    bool has;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", run_folder);
    TRI_TRY(tri_metrics_has_steps(path, &has));
    for (size_t i = 0; has && i < TRI_COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", run_folder, names[i]);
        if (!tri_fs_exists(path))
            continue;
        TRI_TRY(tri_path_set_aside(path, &to));
        tri_log(TRI_LOG_WARN, "%s belongs to an earlier run, and this one starts from step 0: it is now %s", path, to);
        tri_free(to);
    }
    return TRI_OK;
}

/* A further place that cannot be written now is reported here and at every save. */
static tri_status places_open(const tri_job *job)
{
    tri_checkpoint_levels levels;
    tri_status status = tri_checkpoint_levels_read(&job->config.checkpoint, &levels);
    for (int i = 0; i < levels.count && status == TRI_OK; i++) {
        char *folder;
        status = tri_checkpoint_level_folder(&levels.items[i], job->output.folder, &folder);
        if (status == TRI_OK)
            status = place_open(job, folder, i > 0);
        if (i > 0 && status != TRI_OK && status != TRI_ECONFIG && status != TRI_ENOMEM) {
            tri_log(TRI_LOG_WARN, "checkpoint.levels: %s", tri_last_error());
            status = TRI_OK;
        }
        tri_free(folder);
    }
    if (status == TRI_OK && begins(job)) {
        char best[1200];
        snprintf(best, sizeof(best), "%s/best", job->output.folder);
        status = tri_checkpoint_set_aside(best);
        if (status == TRI_OK)
            status = files_set_aside(job->output.folder);
    }
    return status;
}

/* Rank 0: the run folder with the resolved configuration. */
static tri_status open_run_folder(tri_job *job)
{
    if (job->rank != 0 || !job->output.folder)
        return TRI_OK;
    char path[1200];
    tri_string text = {0};
    snprintf(path, sizeof(path), "%s/dataset.yaml", job->output.folder);
    if (job->elastic.number > 1 && tri_fs_exists(path)) /* by an earlier rank 0 */
        return TRI_OK;
    TRI_TRY_IN(tri_fs_make_folder(job->output.folder), "while making the run folder");
    TRI_TRY(places_open(job));
    tri_status status = tri_config_print(&job->config, &text);
    snprintf(path, sizeof(path), "%s/config.yaml", job->output.folder);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    TRI_TRY(status);
    TRI_TRY_IN(tri_job_config_write(job), "while writing the run folder");
    snprintf(path, sizeof(path), "%s/dataset.yaml", job->output.folder);
    TRI_TRY(tri_dataset_info_save(&job->data.info, &job->data.names, path));
    return tri_features_files_open(job);
}

/* Its config.json, which may state ends of texts, stays with the model. */
static tri_status keep_ends(const char *from, const char *path)
{
    tri_tokenizer *own = NULL;
    tri_status status = tri_text_tokenizer_find(from, &own);
    if (status != TRI_OK) /* of a kind that is not known here, or damaged: it is kept as it is */
        return status == TRI_ENOMEM ? status : TRI_OK;
    status = tri_tokenizer_save_ends(own, path);
    tri_tokenizer_close(own);
    return status;
}

/* What came with the model that the run begins with is the run's, unless its data have other tokens. path: of
 * RUN/tokenizer.json; *taken: the model has one. */
static tri_status take_companions(const tri_job *job, const tri_dataset *dataset, const char *path, bool *taken)
{
    bool same;
    TRI_TRY(tokens_compare(job->config.from, dataset, &same));
    if (same && job->model.source) {
        TRI_TRY(tri_companions_copy(job->model.source, job->output.folder));
        *taken = tri_fs_exists(path);
        return *taken ? keep_ends(job->config.from, path) : TRI_OK;
    }
    if (same)
        return TRI_OK;
    tri_log(TRI_LOG_WARN,
            "model.from %s has a tokenizer.json, and the data have other tokens: the same ids mean something else "
            "(data.tokenizer)",
            job->config.from);
    return TRI_OK;
}

/* What the weights' tokens mean is beside them: RUN/tokenizer.json. */
static tri_status save_tokenizer(const tri_job *job, const tri_dataset *dataset)
{
    if (job->rank != 0 || !job->output.folder || (!dataset->tokenizer && !job->config.from))
        return TRI_OK;
    char path[1200];
    snprintf(path, sizeof(path), "%s/tokenizer.json", job->output.folder);
    if (job->elastic.number > 1 && tri_fs_exists(path)) /* by an earlier rank 0 */
        return TRI_OK;
    TRI_TRY_IN(tri_fs_make_folder(job->output.folder), "while making the run folder");
    if (job->step > 0)
        TRI_TRY(check_tokens(job->output.folder, dataset));
    bool taken = false;
    if (job->step == 0 && job->config.from)
        TRI_TRY(take_companions(job, dataset, path, &taken));
    return dataset->tokenizer && !taken ? tri_tokenizer_save(dataset->tokenizer, path) : TRI_OK;
}

tri_status tri_job_form_run(tri_job *job, tri_dataset *dataset)
{
    TRI_TRY(tri_job_ids_meet(job));
    TRI_TRY(open_loader(job, dataset));
    TRI_TRY(save_tokenizer(job, dataset));
    TRI_TRY(open_test_data(job, dataset));
    TRI_TRY(open_run_folder(job));
    TRI_TRY(tri_features_form(job));
    tri_pretrained_close(job->model.source);
    job->model.source = NULL;
    job->throughput.sent_nbytes = tri_counter_now(TRI_COUNT_SENT_NBYTES);
    return TRI_OK;
}

void tri_job_unform(tri_job *job)
{
    tri_job_sums_stop(job);
    tri_job_control_close(job);
    tri_features_part(job);
    tri_loader_close(job->data.loader);
    tri_loader_close(job->test.loader);
    tri_free(job->test.sums);
    tri_sync_destroy(job->sync);
    tri_graph_destroy(job->model.graph);
    tri_pipeline_destroy(job->model.pipeline);
    tri_tensor_ranks_destroy(job->model.tensor);
    tri_job_shard_maps_close(job);
    tri_accumulation_close(job);
    norm_blocks_close(job);
    tri_job_batch_sums_close(job);
    tri_mesh_close(&job->mesh);
    job->data.loader = job->test.loader = NULL;
    job->test.sums = NULL;
    job->sync = NULL;
    job->model.graph = NULL;
    job->model.pipeline = NULL;
    job->model.tensor = NULL;
    job->throughput.waited_ns = 0;
    job->comm = NULL;
    job->group = NULL;
}
