/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c: configuration to objects: model, store, graph, optimizer, sync, data. Everything is sized here; afterwards a
 * step allocates nothing.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "data/tables/table.h"
#include "parallel/compress.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/resume.h"
#include "train/core/build.h"
#include "train/core/card.h"
#include "train/core/dataset_info.h"
#include "train/core/features.h"
#include "train/core/initial.h"
#include "train/core/isa.h"
#include "train/core/layout.h"
#include "train/core/servers.h"
#include "train/core/step.h"

/* A starter that binds nobody (mpirun, torchrun) gives every rank all cores: they are shared out then, since ranks that
 * wait for cores cost far more than the threads bring. */
int tri_job_threads(const tri_config *config, int local_count)
{
    if (config->train.threads > 0)
        return (int)config->train.threads;
    int threads = tri_tiles_threads();
    if (local_count > 1 && threads == tri_cores_online())
        threads = threads / local_count > 0 ? threads / local_count : 1;
    return threads;
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
    job->data.sampler = (tri_sampler){.seed = (uint64_t)job->config.train.seed,
                                      .batch = job->config.train.batch,
                                      .shards = shards,
                                      .shuffle = job->config.data.shuffle};
    tri_job_shards *own = &job->shards;
    int sharer = job->servers.client ? job->servers.worker : job->mesh.data_rank, sharers = sharers_of(job);
    own->first = tri_tree_first(shards, sharer, sharers);
    own->count = tri_tree_count(shards, sharer, sharers);
    if (tri_job_deals(job) > 0) { /* of the part that is dealt */
        own->first = 0;
        own->count = shards / tri_job_deals(job);
    }
    own->part_count = job->servers.client ? tri_ps_parts(&job->config.ps, shards, own->first, own->count, own->parts)
                                          : tri_tree_parts(shards, own->first, own->count, own->parts);
    for (int p = 0; p < own->part_count; p++)
        own->parts[p].first -= own->first;
    for (int64_t v = 0; v < shards; v++)
        if (tri_sampler_rows(&job->data.sampler, v) > own->rows)
            own->rows = tri_sampler_rows(&job->data.sampler, v);
    tri_accumulation_split(job);
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
    job->placement.spread = job->model.forward_only ? TRI_SPREAD_NOTHING : tri_sync_spread(config, job->mesh.zero);
    if (job->placement.spread == TRI_SPREAD_WEIGHTS && tri_job_is_pieced(job) &&
        job->config.train.shards % job->mesh.data != 0)
        return tri_fail(TRI_ECONFIG,
                        "%s: with parallel.sync %s all ranks go through the weights equally often: want "
                        "a number of ranks that divides train.shards, %lld, got %d",
                        job->mesh.pipeline > 1 ? "parallel.pipeline" : "train.shards_at_once",
                        tri_sync_kind_word(config->sync), (long long)job->config.train.shards, job->mesh.data);
    TRI_TRY(tri_shares_init(&job->placement.shares, config, job->params, job->mesh.zero));
    return job->placement.spread == TRI_SPREAD_WEIGHTS
               ? tri_shares_of(&job->placement.shares, tri_mesh_zero_rank(&job->mesh), own, count)
               : TRI_OK;
}

tri_status tri_job_open_optim(tri_job *job)
{
    tri_slice *own;
    int count;
    TRI_TRY(tri_shares_of(&job->placement.shares, tri_mesh_zero_rank(&job->mesh), &own, &count));
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
                            .cards = job->card.sums,
                            .part_count = job->shards.part_count,
                            .whole_gradients = tri_job_is_pieced(job),
                            .undoes = tri_sums_may_be_undone(&job->config),
                            .servers = job->servers.client ? &job->servers : NULL,
                            .threads = job->threads};
}

tri_status tri_job_open_data(const tri_job *job, tri_data_part part, tri_dataset **dataset)
{
    TRI_TRY(tri_dataset_open(&job->config.data, part, dataset));
    tri_status status = tri_dataset_rename(*dataset, &job->data.names);
    if (status == TRI_OK)
        return TRI_OK;
    tri_dataset_close(*dataset);
    *dataset = NULL;
    return status;
}

/* Only looks: others may be writing there. */
static bool has_checkpoints(const tri_job *job, const char *run_folder)
{
    tri_checkpoint_folders folders;
    bool has = false;
    if (tri_checkpoint_folders_find(&job->config.checkpoint, run_folder, &folders) != TRI_OK)
        return false;
    for (int i = 0; i < folders.count && !has; i++)
        has = tri_checkpoint_last_step(folders.items[i]) >= 0;
    tri_checkpoint_folders_fini(&folders);
    return has;
}

/* dataset.yaml of the run that it resumes; nothing, where that has no checkpoint and another begins. Rank 0. */
static tri_status info_read(tri_job *job, const tri_job_setup *setup, const char *path, tri_string *out)
{
    char *text = NULL;
    size_t nbytes;
    if ((setup->or_begin && !has_checkpoints(job, setup->resume)) || !tri_fs_exists(path))
        return TRI_OK;
    TRI_TRY(tri_fs_read(path, TRI_DATASET_INFO_LIMIT, &text, &nbytes));
    tri_status status = tri_string_append_bytes(out, text, nbytes);
    tri_free(text);
    return status;
}

/* Classes keep their numbers, whatever data there are now. */
static tri_status names_find(tri_job *job, const tri_job_setup *setup, tri_dataset_info *info)
{
    char path[1200];
    tri_string text = {0};
    snprintf(path, sizeof(path), "%s/dataset.yaml", setup->resume);
    tri_status status = job->rank == 0 ? info_read(job, setup, path, &text) : TRI_OK;
    if (status == TRI_OK && job->world > 1)
        status = tri_job_text_spread(job, &text, TRI_DATASET_INFO_LIMIT, path);
    if (status == TRI_OK && text.nbytes > 0)
        status = tri_dataset_info_parse(text.text, text.nbytes, path, info, &job->data.names_arena, &job->data.names);
    tri_string_fini(&text);
    return status;
}

tri_status tri_job_open_train_data(tri_job *job, const tri_job_setup *setup, tri_dataset **dataset)
{
    tri_dataset_info resumed = {0};
    if (setup && setup->resume)
        TRI_TRY(names_find(job, setup, &resumed));
    if (resumed.table)
        tri_job_info_take(job, &resumed);
    TRI_TRY_IN(tri_job_open_data(job, TRI_PART_TRAIN, dataset), "while opening the training data");
    if (resumed.sample.ndim > 0 && !resumed.table && (*dataset)->table) { /* the run read the numbers as they are */
        tri_dataset_close(*dataset);
        *dataset = NULL;
        tri_job_info_take(job, &resumed);
        TRI_TRY_IN(tri_job_open_data(job, TRI_PART_TRAIN, dataset), "while opening the training data");
    }
    tri_dataset_info *info = &(*dataset)->info;
    if (resumed.deviation[0] > 0) { /* other data are normalized as those of the run */
        memcpy(info->mean, resumed.mean, sizeof(info->mean));
        memcpy(info->deviation, resumed.deviation, sizeof(info->deviation));
    }
    if (!job->data.table && (*dataset)->table) {
        tri_table_hold((*dataset)->table);
        tri_job_table_set(job, (*dataset)->table);
    }
    tri_status status = tri_dataset_measure(*dataset, &job->config.data);
    if (status == TRI_OK && !job->data.names.texts)
        status = tri_class_names_copy(&job->data.names_arena, &(*dataset)->names, &job->data.names);
    if (status != TRI_OK) {
        tri_dataset_close(*dataset);
        *dataset = NULL;
        return status;
    }
    tri_sampler_cover(&job->data.sampler, *dataset, &job->config.data);
    job->progress.steps_per_epoch = tri_sampler_steps(&job->data.sampler);
    job->progress.steps = job->config.train.epochs * job->progress.steps_per_epoch;
    if (job->config.train.steps > 0 && job->config.train.steps < job->progress.steps)
        job->progress.steps = job->config.train.steps;
    return TRI_OK;
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

const char *tri_job_kernels(const tri_job *job)
{
    return job->config.train.kernels == TRI_KERNELS_REFERENCE ? tri_kernels_of_host(&job->config.train)
                                                              : job->device->ops->kernels;
}

const char *tri_job_arithmetic(const tri_job *job)
{
    if (job->identity.arithmetic[0])
        return job->identity.arithmetic;
    return job->device->ops->arithmetic ? job->device->ops->arithmetic(job->device) : tri_kernel_arithmetic();
}

static tri_status device_open(tri_job *job)
{
    const tri_kernels kernels = job->config.train.kernels;
    TRI_TRY_IN(tri_device_open_of(job->config.train.device, tri_card_place(job->comm), &job->device), "train.device");
    if (kernels == TRI_KERNELS_REFERENCE && job->device->ops->arithmetic)
        return tri_fail(TRI_ECONFIG, "train.kernels: reference is of the CPU, cannot be combined with train.device=%s",
                        job->config.train.device);
    if ((kernels == TRI_KERNELS_CUDA || kernels == TRI_KERNELS_CUDA_OWN) && !job->device->ops->library_open)
        return tri_fail(TRI_ECONFIG, "train.kernels: %s is of an NVIDIA card, cannot be combined with train.device=%s",
                        tri_kernels_word(kernels), job->config.train.device);
    if (kernels == TRI_KERNELS_CUDA_OWN || !job->device->ops->library_open)
        return TRI_OK;
    tri_status status = job->device->ops->library_open(job->device);
    if (status == TRI_EUNSUPPORTED)
        snprintf(job->card.no_library, sizeof(job->card.no_library), "%s", tri_last_error());
    return status == TRI_EUNSUPPORTED ? TRI_OK : status;
}

tri_status tri_job_configure(tri_job *job, const tri_job_setup *setup)
{
    char why[TRI_SYNC_BITS_NBYTES];
    TRI_TRY(tri_config_load(setup->config, setup->config_text, setup->overrides, &job->config));
    if (setup->resume && !setup->model && !job->config.model && !job->config.from)
        return tri_fail(
            TRI_ECONFIG,
            "%s: the program that began this run built its model in C, so config.yaml does not have it: want "
            "that program to evaluate, ask or resume the run",
            setup->resume);
    TRI_TRY(tri_features_configure(job));
    TRI_TRY(tri_config_check(&job->config, job->world));
    TRI_TRY(device_open(job));
    if (job->config.train.kernels == TRI_KERNELS_CUDA) /* on a card the same as cpu: one word for hashes and resumes */
        job->config.train.kernels = TRI_KERNELS_CPU;
    TRI_TRY(tri_job_isa_settle(job, setup->resume));
    TRI_TRY(tri_checkpoint_levels_settle(&job->config.checkpoint));
    TRI_TRY(tri_job_servers_find(job, setup->servers));
    TRI_TRY(tri_job_model_find(job, setup));
    TRI_TRY(tri_job_tokenizer_find(job, setup));
    TRI_TRY(layout_find(job, setup));
    TRI_TRY(tri_mesh_open(&job->config.parallel, job->comm, &job->mesh));
    bool parts_open = job->config.parallel.tensor_parts == 0;
    if (parts_open)
        job->config.parallel.tensor_parts = job->mesh.tensor;
    TRI_TRY(tri_config_hash(&job->config, &job->identity.config_hash));
    job->threads = tri_job_threads(&job->config,
                                   job->servers.client ? tri_job_servers_local(job) : tri_comm_local_count(job->comm));
    snprintf(job->identity.bits, sizeof(job->identity.bits), "reproducible");
    if (strcmp(tri_comm_engine(job->comm), "host") != 0)
        snprintf(job->identity.bits, sizeof(job->identity.bits),
                 "not reproducible (comm.engine %s adds in an order of its own)", tri_comm_engine(job->comm));
    else if (job->config.comm.order != TRI_ORDER_CANONICAL)
        snprintf(job->identity.bits, sizeof(job->identity.bits), "not reproducible (comm.order is %s)",
                 tri_sum_order_word(job->config.comm.order));
    else if (job->servers.client && job->servers.workers > 1 && job->config.ps.consistency != PS_BSP)
        snprintf(job->identity.bits, sizeof(job->identity.bits), "not reproducible (ps.consistency %s)",
                 ps_consistency_word(job->config.ps.consistency));
    else if (job->servers.client && job->config.ps.backup_workers > 0)
        snprintf(job->identity.bits, sizeof(job->identity.bits), "not reproducible (ps.backup_workers)");
    else if (job->elastic.on && (tri_sync_is_local(&job->config.parallel) || tri_compress_find(&job->config.parallel)))
        snprintf(job->identity.bits, sizeof(job->identity.bits),
                 "not reproducible (parallel.%s %.16s with --elastic: as workers come and go)",
                 tri_sync_is_local(&job->config.parallel) ? "sync" : "compress",
                 tri_sync_is_local(&job->config.parallel) ? tri_sync_kind_word(job->config.parallel.sync)
                                                          : tri_compress_kind_word(job->config.parallel.compress));
    else if (tri_sync_bits(&job->config.parallel, job->mesh.data, tri_group_is_between_hosts(job->mesh.data_group),
                           why)[0])
        snprintf(job->identity.bits, sizeof(job->identity.bits), "%s", why);
    else if (parts_open && job->mesh.tensor > 1)
        snprintf(job->identity.bits, sizeof(job->identity.bits),
                 "not reproducible (parallel.tensor_parts is not set: %d, as "
                 "parallel.tensor)",
                 job->mesh.tensor);
    tri_job_split_shards(job);
    return TRI_OK;
}

/* What is read for it is not read again by the loader. */
static tri_status identify(tri_job *job, tri_dataset *dataset)
{
    tri_dataset_keep(dataset, TRI_JOB_KEPT_NBYTES);
    TRI_TRY_IN(tri_dataset_identify(dataset, TRI_JOB_KEPT_NBYTES, &job->data.fingerprint),
               "while reading the training data");
    return TRI_OK;
}

tri_status tri_job_build(tri_job *job, const tri_job_setup *setup)
{
    job->elastic.console = setup->console;
    TRI_TRY(tri_job_configure(job, setup));
    TRI_TRY(tri_stragglers_check(&job->config, false));
    tri_dataset *dataset = NULL;
    tri_status status = tri_job_open_train_data(job, setup, &dataset);
    if (status == TRI_OK && job->rank == 0 && !tri_job_follows(job))
        tri_config_unused_tell(&job->config, dataset->ops->name, setup->overrides);
    if (status == TRI_OK && job->rank == 0 && !tri_job_follows(job) && (setup->run_folder || setup->resume))
        status = identify(job, dataset);
    if (status == TRI_OK)
        status = tri_job_cards_find(job);
    if (status == TRI_OK)
        status = tri_features_fit(job, setup->model, &dataset->info);
    if (status == TRI_OK)
        status = tri_job_build_model(job, setup->model, &dataset->info);
    if (status == TRI_OK) /* groups of the mesh are not as patient */
        status = tri_job_await_all(job);
    if (status == TRI_OK)
        status = tri_features_plan(job, setup->model, &dataset->info);
    if (status == TRI_OK)
        status = tri_job_open_optim(job);
    if (status == TRI_OK)
        tri_job_servers_plan(job);
    if (status == TRI_OK)
        status = tri_features_open(job);
    if (status == TRI_OK)
        status = tri_job_form_moves(job);
    if (status == TRI_OK)
        status = tri_job_shard_maps_open(job);
    bool resumes = setup->resume != NULL;
    if (status == TRI_OK && resumes && setup->or_begin && !tri_job_follows(job))
        status = tri_job_can_resume(job, setup->resume, &resumes);
    if (status == TRI_OK && !resumes && !tri_job_follows(job))
        status = tri_job_weights_find(job);
    if (status == TRI_OK)
        status = tri_job_check_equal(job);
    if (status == TRI_OK)
        status = tri_job_products_meet(job);
    if (status == TRI_OK && resumes && !tri_job_follows(job))
        status = tri_job_resume(job, setup->resume);
    if (status == TRI_OK && job->servers.client)
        status = tri_job_servers_start(job);
    if (status == TRI_OK)
        status = tri_job_form_run(job, dataset);
    tri_dataset_close(dataset);
    return status;
}
