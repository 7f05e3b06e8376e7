/* SPDX-License-Identifier: Apache-2.0
 *
 * card_sums.c: who sums the gradients of ranks on cards: NCCL where all ranks can, else the host. Decided before memory
 * is planned, again in each generation of an elastic run.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "parallel/compress.h"
#include "parallel/nccl_sums.h"
#include "train/core/build.h"
#include "train/core/job.h"

/* What the options alone say against NCCL; "": nothing. */
static void options_ask(const tri_job *job, bool between_hosts, char why[TRI_NCCL_WHY_NBYTES])
{
    const tri_parallel_config *parallel = &job->config.parallel;
    const bool spreads = tri_sync_table[parallel->sync]->spread != TRI_SPREAD_NOTHING;
    why[0] = 0;
    if (!tri_device_is_card(job->config.train.device))
        snprintf(why, TRI_NCCL_WHY_NBYTES, "train.device is %s", job->device->ops->name);
    else if (parallel->backend == TRI_BACKEND_HOST)
        snprintf(why, TRI_NCCL_WHY_NBYTES, "parallel.backend is host");
    else if (parallel->sync != TRI_SYNC_ALLREDUCE && !spreads)
        snprintf(why, TRI_NCCL_WHY_NBYTES, "parallel.sync is %s", tri_sync_kind_word(parallel->sync));
    else if (spreads && job->mesh.zero != job->mesh.data)
        snprintf(why, TRI_NCCL_WHY_NBYTES, "parallel.zero_ranks is not all");
    else if (tri_compress_is_used(parallel, job->mesh.data, between_hosts))
        snprintf(why, TRI_NCCL_WHY_NBYTES, "parallel.compress is %s", tri_compress_kind_word(parallel->compress));
    else if (job->config.comm.engine != TRI_ENGINE_HOST)
        snprintf(why, TRI_NCCL_WHY_NBYTES, "comm.engine is %s", tri_engine_kind_word(job->config.comm.engine));
    else if (job->config.net.encrypt && between_hosts)
        snprintf(why, TRI_NCCL_WHY_NBYTES, "comm.encrypt is on, and NCCL does not encrypt");
}

/* Whether gradients are summed between hosts, of any stage: the same on all ranks. */
static bool is_between_hosts(const tri_job *job)
{
    tri_mesh mesh = job->mesh;
    for (int r = 0; r < job->world; r++) {
        tri_mesh_place(&mesh, r);
        const int first = tri_mesh_rank(&mesh, 0, mesh.tensor_rank, mesh.stage);
        if (tri_group_host_first(job->group, r) != tri_group_host_first(job->group, first))
            return true;
    }
    return false;
}

/* On rank 0, when it has changed. */
static void tell(tri_job *job, const char *why)
{
    char text[sizeof(job->card.sums_line)], name[TRI_NCCL_NBYTES] = "";
    int version = 0;
    if (job->card.sums.nccl)
        (void)tri_nccl_version(&version, name);
    if (job->card.sums.nccl)
        snprintf(text, sizeof(text), "gradient sums: by %s, between cards%s", name,
                 job->card.sums.any_order ? ", in its own order" : "");
    else
        snprintf(text, sizeof(text), "gradient sums: on the host: %s", why);
    if (job->rank == 0 && strcmp(text, job->card.sums_line) != 0)
        tri_log(TRI_LOG_INFO, "%s", text);
    snprintf(job->card.sums_line, sizeof(job->card.sums_line), "%s", text);
}

/* zero1 to zero3 sum in the canonical order, whatever comm.order says. */
static tri_sync_cards cards_of(const tri_config *config)
{
    return (tri_sync_cards){.any_order =
                                config->comm.order == TRI_ORDER_ANY && config->parallel.sync == TRI_SYNC_ALLREDUCE,
                            .limit_ms = (int64_t)(config->net.timeout_s * 1000)};
}

tri_status tri_job_cards_find(tri_job *job)
{
    char why[TRI_NCCL_WHY_NBYTES];
    job->card.sums = cards_of(&job->config);
    job->card.sums.failed = job->card.no_nccl;
    if (job->model.forward_only || job->mesh.data == 1)
        return TRI_OK;
    options_ask(job, is_between_hosts(job), why);
    const bool card = tri_device_is_card(job->config.train.device);
    if (!card && job->config.parallel.backend != TRI_BACKEND_NCCL)
        return TRI_OK;
    if (!why[0])
        TRI_TRY(tri_nccl_sums_check(job->group, job->device, job->card.no_nccl, why));
    if (why[0] && job->config.parallel.backend == TRI_BACKEND_NCCL)
        return tri_fail(TRI_ECONFIG, "parallel.backend nccl: %s", why);
    job->card.sums.nccl = !why[0];
    tell(job, why);
    return TRI_OK;
}

/* All ranks have cards of their own here. */
static bool machine_can(const tri_job *job)
{
    char name[TRI_NCCL_NBYTES];
    int version, driver, count = 0;
    return strcmp(job->config.train.device, "cuda") == 0 && tri_nccl_version(&version, name) == TRI_OK &&
           tri_cuda_cards(NULL, 0, &count, &driver) == TRI_OK && count >= job->world;
}

tri_sync_cards tri_job_cards_expect(const tri_job *job)
{
    char why[TRI_NCCL_WHY_NBYTES];
    tri_sync_cards cards = cards_of(&job->config);
    options_ask(job, false, why);
    cards.nccl =
        job->mesh.data > 1 && !why[0] && (job->config.parallel.backend == TRI_BACKEND_NCCL || machine_can(job));
    return cards;
}

void tri_job_sums_stop(tri_job *job)
{
    if (job->sync && job->sync->ops->stop && tri_group_has_failed(job->group))
        job->sync->ops->stop(job->sync);
}
