/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_restore.c: the leader of workers gives a parameter server that was lost without a backup its blocks as they are in
 * the run's newest checkpoint, while the others continue (ps.consistency ssp, async).
 */
#include <inttypes.h>

#include "base/log.h"
#include "parallel/sync_ps.h"
#include "ps/client/client.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/resume.h"
#include "train/core/features.h"
#include "train/core/job.h"
#include "train/core/servers.h"

/* Arrays as long as the store's, beside those that the training uses. */
typedef struct refill {
    float *arrays[1 + TRI_OPTIM_MAX_STATE];
    int count;
} refill;

static void refill_fini(refill *at)
{
    for (int i = 0; i < at->count; i++)
        tri_free(at->arrays[i]);
}

/* The slices of a checkpoint, to be in those arrays. */
static tri_status slices_turn(const tri_job *job, const tri_job_slices *slices, tri_checkpoint_slice *out, refill *at)
{
    const tri_job_arrays *arrays = &slices->arrays;
    int tensors = slices->content.model_count;
    for (; at->count < arrays->count; at->count++) {
        at->arrays[at->count] = tri_alloc_zero((size_t)job->params->count, sizeof(float));
        if (!at->arrays[at->count])
            return TRI_ENOMEM;
    }
    for (int i = 0; i < arrays->count * tensors; i++) {
        out[i] = i < tensors ? slices->content.model[i] : slices->content.state[i - tensors];
        if (!out[i].values)
            return tri_fail(TRI_EINTERNAL, "'%s' is not in one piece", out[i].name);
        out[i].values = at->arrays[i / tensors] + (out[i].values - (const float *)arrays->views[i / tensors].host);
    }
    return TRI_OK;
}

static tri_status checkpoint_read(tri_job *job, const char *path, refill *at, tri_checkpoint_manifest *manifest)
{
    tri_job_slices slices = {0};
    tri_status status = tri_job_slices_open(job, true, &slices);
    int model = slices.content.model_count, all = model + slices.content.state_count;
    tri_checkpoint_slice *turned = status == TRI_OK ? tri_alloc((size_t)all * sizeof(*turned) + 1) : NULL;
    if (status == TRI_OK)
        status = turned ? slices_turn(job, &slices, turned, at) : TRI_ENOMEM;
    tri_checkpoint_content content = {turned, turned + model, model, all - model};
    if (status == TRI_OK)
        status = tri_checkpoint_load(path, manifest, &content);
    tri_free(turned);
    tri_job_slices_close(&slices);
    return status;
}

static tri_status server_refill(void *arg, int server)
{
    tri_job *job = arg;
    refill at = {0};
    char *path = NULL;
    tri_checkpoint_manifest manifest = {0};
    int blocks = 0;
    int64_t now = 0;
    tri_job_save_wait(job); /* what is being written is no crash's */
    tri_status status = job->output.folder ? tri_job_newest_find(job, job->output.folder, &path) : TRI_ENOTFOUND;
    if (status == TRI_ENOTFOUND)
        return tri_fail(
            TRI_EPEER,
            "parameter server %d was lost with what it held, and there is no checkpoint in %s yet to take it "
            "from: checkpoint.every_steps or every_s makes some, ps.replicas 2 has a copy of everything",
            server, job->output.folder ? job->output.folder : "a run folder");
    if (status == TRI_OK)
        status = checkpoint_read(job, path, &at, &manifest);
    int64_t known = manifest.has_pushes && manifest.pushes_most > manifest.step ? manifest.pushes_most : manifest.step;
    if (status == TRI_OK)
        status = tri_sync_ps_refill(job->sync, server, manifest.step, known, at.arrays[0],
                                    (const float *const *)at.arrays + 1, at.count - 1, &blocks, &now);
    if (status == TRI_OK)
        tri_log(TRI_LOG_WARN,
                "parameter server %d was lost: its %d blocks go back to step %" PRId64
                " (%s), the others stay; lost are the pushes to them of %" PRId64 " steps, to step %" PRId64,
                server, blocks, manifest.step, path, now > manifest.step ? now - manifest.step : 0, now);
    tri_free(path);
    refill_fini(&at);
    return status;
}

/* A server may be found empty as soon as one is asked. */
static void servers_begin(tri_job *job)
{
    bool leads = job->servers.client && !tri_job_follows(job);
    if (leads && job->config.ps.consistency != PS_BSP && job->config.ps.replicas < 2)
        tri_ps_client_refill_set(job->servers.client, server_refill, job);
}

static void restore_close(tri_job *job)
{
    if (job->servers.client && job->sync)
        tri_ps_client_refill_set(job->servers.client, NULL, NULL);
}

const tri_feature tri_feature_ps_restore = {.servers_begin = servers_begin, .close = restore_close};
