/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c: a configuration as plan/ needs it, and its answer as lines of the configuration.
 *
 * All ranks plan, since they measure together, and get the same figures; rank 0's choice is everybody's.
 */
#include "train/core/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/cuda/nccl.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "parallel/compress.h"
#include "train/core/build.h"
#include "train/core/card.h"
#include "train/core/isa.h"
#include "train/core/job.h"

static const char *origin_of(const tri_config *config, const char *field)
{
    char key[80];
    int64_t origin;
    snprintf(key, sizeof(key), "parallel.%s", field);
    return tri_map_find(&config->origins, key, &origin) ? config->origin_names[origin] : NULL;
}

/* A size that somebody wrote down; 0: nobody, or auto. */
static int size_wish(const tri_config *config, const char *field, int64_t size)
{
    return origin_of(config, field) && size != TRI_OPTION_AUTO ? (int)size : 0;
}

static tri_plan_wish wish_of(const tri_config *config)
{
    const tri_parallel_config *parallel = &config->parallel;
    static const tri_sync_kind allreduce = TRI_SYNC_ALLREDUCE;
    const tri_sync_kind *fixed = tri_compress_find(parallel) ? &allreduce : NULL; /* compressed sums want it */
    return (tri_plan_wish){.data = size_wish(config, "data", parallel->data),
                           .tensor = size_wish(config, "tensor", parallel->tensor),
                           .pipeline = size_wish(config, "pipeline", parallel->pipeline),
                           .chunks = origin_of(config, "chunks") ? (int)parallel->chunks : 0,
                           .schedule = origin_of(config, "schedule") ? &parallel->schedule : NULL,
                           .sync = origin_of(config, "sync") ? &parallel->sync : fixed,
                           .zero_ranks = origin_of(config, "zero_ranks") ? parallel->zero_ranks : 0};
}

static tri_status setup_fill(const tri_layout_setup *given, const tri_dataset *dataset, tri_plan_setup *setup)
{
    const tri_config *config = given->config;
    tri_sampler sampler = {.batch = config->train.batch, .shards = config->train.shards, .count = dataset->info.count};
    *setup = (tri_plan_setup){.model = config->model,
                              .given = given->given,
                              .sample = dataset->info.sample,
                              .classes = dataset->info.classes,
                              .kernels = tri_device_is_card(config->train.device) ? "cuda"
                                                                                  : tri_kernels_of_host(&config->train),
                              .precision = tri_precision_dtype(config->train.precision),
                              .tensor_parts = (int)config->parallel.tensor_parts,
                              .sequence = config->parallel.sequence,
                              .cut_measured = config->parallel.cut == TRI_CUT_MEASURED,
                              .optim = &config->optim,
                              .progress = given->progress,
                              .progress_arg = given->progress_arg};
    setup->job =
        (tri_plan_job){.batch = config->train.batch,
                       .shards = config->train.shards,
                       .shards_at_once = config->train.shards_at_once,
                       .steps = tri_sampler_steps(&sampler),
                       .states = tri_optim_states(&config->optim),
                       .clips = config->optim.clip_norm > 0 || setup->precision == TRI_F16,
                       .half = setup->precision != TRI_F32,
                       .overlap = config->parallel.overlap,
                       .compress_nbytes = tri_compress_value_nbytes(&config->parallel, tri_sums_may_be_undone(config)),
                       .bucket_nbytes = (double)tri_bucket_nbytes(&config->parallel)};
    return TRI_OK;
}

#define CARD_RATE 0.25 /* of a card's data sheet that our kernels may reach; of nothing measured */

/* Nothing runs on it: what kernels take there follows from their operations. */
static tri_status card_find(const tri_layout_setup *given, tri_plan_card *card)
{
    tri_device *device;
    tri_device_rates rates;
    tri_card_crew crew;
    const bool half = tri_precision_dtype(given->config->train.precision) != TRI_F32;
    TRI_TRY_IN(tri_device_open_of(given->config->train.device, tri_card_place(given->comm), &device), "train.device");
    tri_status status = device->ops->rates(device, &rates);
    if (status == TRI_OK)
        status = tri_card_meet(given->comm, device, &crew);
    tri_device_close(device);
    TRI_TRY(status);
    *card = (tri_plan_card){.flops = CARD_RATE * (half ? rates.half_flops : rates.flops),
                            .memory_rate = rates.memory,
                            .memory_nbytes = crew.free_nbytes / crew.ranks,
                            .workers = crew.ranks};
    return TRI_OK;
}

/* The options leave it to NCCL (card_sums.c). */
static double card_rate(const tri_config *config, int hosts)
{
    const bool nccl = !(config->net.encrypt && hosts > 1) && config->parallel.backend != TRI_BACKEND_HOST &&
                      config->parallel.compress == TRI_COMPRESS_NONE && config->comm.engine == TRI_ENGINE_HOST;
    return nccl ? TRI_PLAN_CARD_RATE : 0;
}

/* A described cluster's memory and speed are those of cards then, and no card is needed here. */
static tri_status cards_check(const tri_config *config, tri_plan_cluster *cluster)
{
    cluster->cards = true;
    cluster->card_rate = card_rate(config, cluster->host_count);
    cluster->copy_rate = TRI_PLAN_COPY_RATE;
    cluster->host_nbytes = INFINITY;
    for (int h = 0; h < cluster->kind_count; h++)
        if (cluster->hosts[h].gflops == 0)
            return tri_fail(TRI_ECONFIG,
                            "train.device cuda: a card is not measured: want 'gflops' of each host of the cluster");
    return TRI_OK;
}

static bool has_nccl(void)
{
    char name[TRI_NCCL_NBYTES];
    int version;
    return tri_nccl_version(&version, name) == TRI_OK;
}

static tri_status cluster_fill(const tri_layout_setup *given, tri_layouts *layouts)
{
    int local = given->comm ? tri_comm_local_count(given->comm) : 1;
    int threads = tri_job_threads(given->config, local);
    const bool cards = tri_device_is_card(given->config->train.device);
    if (!given->described && cards) {
        tri_plan_card card;
        layouts->crew = tri_plan_crew_of(given->comm, threads);
        TRI_TRY(card_find(given, &card));
        TRI_TRY(tri_plan_cluster_of_cards(&layouts->crew, &card, given->price, &layouts->cluster));
        double lacks = !has_nccl();
        TRI_TRY(tri_plan_crew_agree(&layouts->crew, &lacks, 1));
        layouts->cluster.card_rate =
            layouts->cluster.crowd == 1 && lacks == 0 ? card_rate(given->config, layouts->cluster.host_count) : 0;
        return TRI_OK;
    }
    if (!given->described) {
        layouts->crew = tri_plan_crew_of(given->comm, threads);
        return tri_plan_cluster_measure(&layouts->crew, &given->config->optim, given->price, &layouts->cluster);
    }
    layouts->cluster = *given->described;
    *given->described = (tri_plan_cluster){0};
    threads = layouts->cluster.hosts[0].threads;
    if (threads > tri_cores_online())
        threads = tri_cores_online();
    layouts->crew = tri_plan_crew_of(NULL, threads);
    if (cards)
        return cards_check(given->config, &layouts->cluster);
    for (int h = 0; h < layouts->cluster.kind_count; h++)
        if (layouts->cluster.hosts[h].gflops > 0)
            return TRI_OK;
    return tri_plan_optim_measure(&given->config->optim, threads, &layouts->cluster.optim_s_per_value,
                                  &layouts->cluster.norm_s_per_value);
}

tri_status tri_layouts_find(const tri_layout_setup *given, tri_layouts *layouts)
{
    tri_dataset *dataset = NULL;
    *layouts = (tri_layouts){0};
    TRI_TRY(tri_config_isa_plan(given->config));
    tri_plan_wish wish = wish_of(given->config);
    if (given->config->parallel.sync == TRI_SYNC_PS)
        return tri_fail(TRI_ECONFIG, "parallel.sync ps: layouts are planned for ranks without parameter servers: want "
                                     "another strategy, or with servers parallel.layout given");
    TRI_TRY_IN(tri_dataset_open(&given->config->data, false, &dataset), "while opening the training data");
    tri_status status = setup_fill(given, dataset, &layouts->setup);
    tri_dataset_close(dataset);
    TRI_TRY(status);
    TRI_TRY(cluster_fill(given, layouts));
    TRI_TRY(tri_plan_models_open(&layouts->setup, &layouts->crew, &layouts->cluster, &layouts->models));
    return tri_plan_list_make(&layouts->models, &wish, &layouts->plan);
}

void tri_layouts_close(tri_layouts *layouts)
{
    tri_plan_list_fini(&layouts->plan);
    tri_plan_models_close(&layouts->models);
    tri_plan_cluster_fini(&layouts->cluster);
}

/* --- parallel: auto --- */

static void layout_write(tri_config *config, const tri_layout *layout)
{
    tri_parallel_config *parallel = &config->parallel;
    parallel->layout = TRI_LAYOUT_GIVEN;
    parallel->data = layout->data;
    parallel->tensor = layout->tensor;
    parallel->pipeline = layout->pipeline;
    parallel->sync = layout->sync;
    parallel->zero_ranks = layout->zero > 0 ? layout->zero : TRI_ZERO_RANKS_ALL;
    if (layout->pipeline == 1)
        return;
    parallel->chunks = layout->chunks;
    parallel->schedule = layout->schedule;
}

static tri_status why_not(const tri_plan_list *plan)
{
    const tri_plan_row *first = plan->rows.count > 0 ? tri_vector_at(&plan->rows, 0) : NULL;
    char text[96];
    return tri_fail(TRI_ECONFIG, "parallel.layout auto: no layout can be; the nearest, %s: %s (trireme plan shows all)",
                    first ? tri_layout_print(&first->layout, text) : "none",
                    first ? first->refusal : "what is given contradicts the number of ranks");
}

tri_status tri_config_layout_find(tri_config *config, const tri_model *given, tri_comm *comm, tri_string *text)
{
    char layout[96];
    int32_t chosen = -1;
    if (config->parallel.layout != TRI_LAYOUT_AUTO)
        return TRI_OK;
    tri_layouts *layouts = tri_alloc_zero(1, sizeof(*layouts));
    if (!layouts)
        return TRI_ENOMEM;
    tri_layout_setup setup = {.config = config, .given = given, .comm = comm};
    tri_status status = tri_layouts_find(&setup, layouts);
    if (status == TRI_OK) {
        chosen = layouts->plan.chosen;
        status = tri_broadcast(tri_comm_world(comm), &chosen, 1, TRI_I32, 0, NULL);
    }
    if (status == TRI_OK && chosen < 0)
        status = why_not(&layouts->plan);
    if (status == TRI_OK) {
        const tri_plan_row *row = tri_vector_at(&layouts->plan.rows, (size_t)chosen);
        layout_write(config, &row->layout);
        status = tri_string_appendf(text, "layout: %s: %s; predicted %.3g s a step",
                                    tri_layout_print(&row->layout, layout), layouts->plan.why, row->cost.step_s);
    }
    tri_layouts_close(layouts);
    tri_free(layouts);
    return status;
}
