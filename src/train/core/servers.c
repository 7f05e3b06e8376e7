/* SPDX-License-Identifier: Apache-2.0
 *
 * servers.c: a worker of parameter servers: it computes its shards of each batch, and knows no other worker.
 *
 * The first worker leads: it gives the first weights, evaluates, writes checkpoints and tells people. The others begin
 * when the servers have weights, at the step these are after; so does a worker that was started again.
 */

#include "train/core/servers.h"
#include "base/log.h"
#include "base/rng.h"
#include "parallel/sync_ps.h"
#include "ps/client/client.h"
#include "train/core/dataset_info.h"
#include "train/core/features.h"
#include "train/core/job.h"

bool tri_job_follows(const tri_job *job)
{
    return job->servers.client && job->servers.worker > 0;
}

int tri_job_number(const tri_job *job)
{
    return job->servers.client ? job->servers.worker : job->rank;
}

int tri_job_count(const tri_job *job)
{
    return job->servers.client ? job->servers.workers : job->world;
}

int tri_job_servers_local(const tri_job *job)
{
    int local = tri_ps_client_setup_of(job->servers.client)->local_workers;
    return local > 0 ? local : 1;
}

tri_status tri_job_servers_find(tri_job *job, tri_ps_client *client)
{
    bool wanted = job->config.parallel.sync == TRI_SYNC_PS;
    if (!client && wanted)
        return tri_fail(TRI_ECONFIG, "parallel.sync ps: there are no parameter servers: want --servers N beside -n, or "
                                     "TRIREME_SERVERS in the environment of all ranks");
    if (!client)
        return TRI_OK;
    if (!wanted)
        return tri_fail(TRI_ECONFIG, "there are parameter servers, but parallel.sync is %s: want ps",
                        tri_sync_kind_word(job->config.parallel.sync));
    if (job->config.train.precision == TRI_PRECISION_F16)
        return tri_fail(TRI_ECONFIG,
                        "train.precision f16: its loss scale needs all sums at the workers: want f32 or bf16 "
                        "with parallel.sync ps");
    const tri_ps_client_setup *setup = tri_ps_client_setup_of(client);
    if (setup->workers > job->config.train.shards)
        return tri_fail(TRI_ECONFIG, "%d workers but train.shards is %lld: want at least one shard per worker",
                        setup->workers, (long long)job->config.train.shards);
    TRI_TRY(tri_ps_check(&job->config.ps, setup->workers));
    if (job->config.ps.replicas > setup->servers && setup->worker == 0)
        tri_log(TRI_LOG_WARN,
                "ps.replicas %lld with %d server: nobody else can hold its blocks (want --servers 2 or more)",
                (long long)job->config.ps.replicas, setup->servers);
    int64_t shards = (job->config.train.shards + setup->workers - 1) / setup->workers;
    if (job->config.ps.consistency == PS_BSP && tri_ps_is_coded(&job->config.ps) && shards > TRI_TREE_MAX_PARTS)
        return tri_fail(TRI_ECONFIG,
                        "ps.values %s: each shard's gradient travels by itself: want at most %d shards a worker, "
                        "train.shards %lld gives %d workers %lld",
                        ps_values_word(job->config.ps.values), TRI_TREE_MAX_PARTS, (long long)job->config.train.shards,
                        setup->workers, (long long)shards);
    job->servers = (tri_sync_servers){.client = client,
                                      .config = &job->config.ps,
                                      .optim = &job->config.optim,
                                      .worker = setup->worker,
                                      .workers = setup->workers};
    if (tri_job_follows(job)) { /* what the leader does for all */
        job->output.seen_folder = job->output.folder;
        job->output.folder = NULL;
        job->config.train.sample_every = 0;
    }
    return TRI_OK;
}

void tri_job_servers_plan(tri_job *job)
{
    job->servers.steps = job->config.train.epochs * job->progress.steps_per_epoch;
    job->servers.last_step = job->progress.steps;
    job->servers.job = job->identity.config_hash ^ tri_job_classes_hash(job);
    if (job->device->ops->arithmetic) /* workers of other cards push other bits */
        job->servers.job ^= tri_rng_stream(job->device->ops->arithmetic(job->device), 0, 0);
}

tri_status tri_job_servers_start(tri_job *job)
{
    tri_features_servers_begin(job);
    int64_t step = tri_sync_ps_step(job->sync);
    if (step < 0) {
        TRI_TRY(tri_sync_ps_give(job->sync, job->step, job->optim));
    } else {
        job->step = job->progress.saved_step = step;
        TRI_TRY_IN(tri_sync_ps_take(job->sync, step), "while fetching the weights of step %lld", (long long)step);
    }
    TRI_TRY_IN(tri_sync_ps_deal(job->sync, &job->step), "while asking for the first part of a batch");
    job->progress.first_step = job->step;
    return TRI_OK;
}

int64_t tri_job_deals(const tri_job *job)
{
    return job->servers.client ? tri_ps_deals(&job->config.ps, job->servers.workers) : 0;
}

/* Followers need them at the end alone. */
bool tri_job_servers_meets(const tri_job *job)
{
    return job->servers.client && tri_ps_is_coded(&job->config.ps) &&
           (!tri_job_follows(job) || job->step >= job->progress.steps);
}

tri_status tri_job_servers_state(tri_job *job)
{
    if (!job->servers.client || tri_job_follows(job))
        return TRI_OK;
    return tri_sync_ps_state(job->sync, job->optim);
}
