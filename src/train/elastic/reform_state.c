/* SPDX-License-Identifier: Apache-2.0
 *
 * reform_state.c: where every rank has a whole state: the newest becomes everybody's when a generation forms.
 */
#include <stdio.h>

#include "base/fs.h"
#include "base/log.h"
#include "train/checkpointing/resume.h"
#include "train/core/features.h"
#include "train/core/initial.h"
#include "train/core/step.h"
#include "train/elastic/reform.h"
#include "train/elastic/reform_assignment.h"
#include "train/features/verify.h"

bool tri_job_state_is_large(const tri_job *job)
{
    enum { LARGE = 1 << 20 }; /* weights: their pages are a millisecond */
    return !job->assignment.on && tri_device_shares_host(job->device) && job->params->count >= LARGE;
}

tri_status tri_job_state_prepare(tri_job *job, int world, bool one_host)
{
    int64_t shards = job->config.train.shards;
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    if (!tri_job_state_is_large(job) || job->elastic.has_state || world > shards)
        return TRI_OK;
    tri_memory_touch(job->params->values, (size_t)job->params->count * sizeof(float));
    for (int i = 0; i < tri_optim_states(&job->config.optim); i++)
        tri_memory_touch(tri_optim_state(job->optim, i), (size_t)tri_optim_count(job->optim) * sizeof(float));
    int count = tri_tree_parts(shards, tri_tree_first(shards, world - 1, world),
                               tri_tree_count(shards, world - 1, world), parts);
    tri_transport_kind transport = job->config.net.transport;
    bool shared = one_host && (transport == TRI_TRANSPORT_AUTO || transport == TRI_TRANSPORT_SHM);
    return tri_sync_kept_make(&job->elastic.grads, &job->config.parallel, job->params, count, shared);
}

static int64_t step_of(int64_t progress)
{
    return progress < 0 ? -1 : progress / 2;
}

/* --- state: from a rank that has the newest to those that have not --- */

/* The weights that more than half of those with the newest state have: a rank; -1: there are none such. */
static int majority_of(const int64_t *hashes, const bool *has, int count)
{
    int all = 0;
    for (int r = 0; r < count; r++)
        all += has[r];
    for (int r = 0; r < count; r++) {
        int votes = 0;
        for (int k = 0; has[r] && k < count; k++)
            votes += has[k] && hashes[k] == hashes[r];
        if (2 * votes > all)
            return r;
    }
    return -1;
}

/* Who has the newest state: a bit that flipped in one, and was not found before the last generation ended, is not
 * handed on. Without a majority none of them counts. */
static tri_status newest_find(tri_job *job, const int64_t *progress, int64_t newest, bool *has)
{
    int64_t mine = job->elastic.has_state ? (int64_t)tri_params_hash_here(job->params) : 0;
    int64_t *hashes = tri_alloc((size_t)job->world * sizeof(*hashes));
    if (!hashes)
        return TRI_ENOMEM;
    tri_status status = tri_all_gather(job->group, &mine, hashes, 1, TRI_I64, NULL);
    for (int r = 0; r < job->world; r++)
        has[r] = step_of(progress[r]) == newest;
    int most = status == TRI_OK ? majority_of(hashes, has, job->world) : -1;
    if (status == TRI_OK && most < 0)
        status = tri_job_verify_tie(job, "those that are left");
    for (int r = 0; r < job->world && most >= 0; r++) {
        if (!has[r] || hashes[r] == hashes[most])
            continue;
        has[r] = false;
        tri_job_verify_late(job, newest);
        if (job->rank == 0)
            tri_log(TRI_LOG_WARN, "after step %lld weights of rank %d differ from most replicas': repaired from these",
                    (long long)newest, r);
    }
    job->elastic.hash = mine;
    job->elastic.hashed = status == TRI_OK && has[job->rank]; /* they stay what they are */
    tri_free(hashes);
    return status;
}

bool tri_job_state_is_news(const tri_job *job, const int64_t *progress, int64_t newest)
{
    bool is = false;
    for (int r = 0; r < job->world; r++)
        is = is || step_of(progress[r]) < newest - 1; /* who is one step behind hears of that one */
    return is;
}

static int first_of(const bool *has)
{
    int first = 0;
    while (!has[first])
        first++;
    return first;
}

static tri_status state_share(tri_job *job, const int64_t *progress, int64_t newest)
{
    bool *has = tri_alloc((size_t)job->world * sizeof(bool));
    tri_status status = has ? newest_find(job, progress, newest, has) : TRI_ENOMEM;
    if (status == TRI_OK && tri_job_state_is_news(job, progress, newest) && job->rank == first_of(has))
        status = tri_job_lines_settle(job);
    if (status == TRI_OK)
        status = tri_job_state_hand(job, has);
    tri_free(has);
    return status;
}

/* The newest checkpoint of this run, wherever it is (tri_free); NULL: there is none. */
static char *checkpoint_newest(const tri_job *job)
{
    tri_checkpoint_folders folders;
    char *path = NULL;
    if (!job->output.folder ||
        tri_checkpoint_folders_find(&job->config.checkpoint, job->output.folder, &folders) != TRI_OK)
        return NULL;
    (void)tri_checkpoint_newest_of((const char *const *)folders.items, folders.count, &path, NULL);
    tri_checkpoint_folders_fini(&folders);
    return path;
}

/* The step of the newest checkpoint that is whole, if one is behind `step`; else -1. Only then are files read. */
static int64_t saved_behind(const tri_job *job, int64_t step)
{
    tri_checkpoint_folders folders;
    bool some = false;
    if (!job->output.folder ||
        tri_checkpoint_folders_find(&job->config.checkpoint, job->output.folder, &folders) != TRI_OK)
        return -1;
    for (int i = 0; i < folders.count; i++)
        some = some || tri_checkpoint_last_step(folders.items[i]) > step;
    tri_checkpoint_folders_fini(&folders);
    char *path = some ? checkpoint_newest(job) : NULL;
    int64_t newest = path ? tri_checkpoint_path_step(path) : -1;
    tri_free(path);
    return newest > step ? newest : -1;
}

bool tri_job_is_saved(const tri_job *job, int64_t step)
{
    return saved_behind(job, step - 1) >= 0;
}

tri_status tri_job_is_behind(tri_job *job, int64_t generation, int64_t step, bool *behind)
{
    /* One step is made again sooner than a checkpoint is read. */
    int64_t saved = job->rank == 0 && generation > 1 ? saved_behind(job, step + 1) : -1;
    if (generation > 1)
        TRI_TRY(tri_broadcast(job->group, &saved, 1, TRI_I64, 0, NULL));
    *behind = job->elastic.behind = saved >= 0;
    return TRI_OK;
}

tri_status tri_job_state_begin(tri_job *job, int64_t generation, bool *found)
{
    const char *from = job->elastic.resume;
    bool own = false;
    job->elastic.touched = true;
    TRI_TRY(
        tri_scalar_state_take(job, &job->elastic.begin, false)); /* it may have had a part of a state, or all of one */
    snprintf(job->identity.bits, sizeof(job->identity.bits), "%s", job->elastic.begin.bits);
    if (generation > 1 && job->output.folder)
        TRI_TRY(tri_job_can_resume(job, job->output.folder, &own));
    if (own)
        from = job->output.folder;
    *found = from != NULL;
    if (from && !own && job->elastic.or_begin)
        TRI_TRY(tri_job_can_resume(job, from, found));
    if (*found && tri_job_has_own_weights(job))
        TRI_TRY(tri_job_resume_weights(job, from));
    else
        TRI_TRY(*found ? tri_job_resume(job, from) : tri_job_weights_find(job));
    return tri_features_files_rewind(job, job->step);
}

void tri_job_state_drop(tri_job *job)
{
    job->elastic.has_state = false;
    job->elastic.touched = true;
    job->assignment.formed = false;
    tri_uncommitted_step_close(job);
    if (job->assignment.on)
        tri_shard_set_close(&job->assignment.kept);
}

void tri_job_begin_tell(const tri_job *job, int64_t generation, bool found)
{
    if (generation > 1 && job->rank == 0)
        tri_log(TRI_LOG_WARN, "%s: the run continues from step %lld%s",
                job->elastic.dropped ? "copies that differ without a majority count for nothing"
                : job->elastic.behind
                    ? "the workers that are left had been away, and what they have is older than what is saved"
                    : "none of the workers so far is left",
                (long long)job->step, found ? ", its newest checkpoint" : "");
}

/* Nobody has any. */
static tri_status state_begin(tri_job *job, const tri_job_generation *generation)
{
    bool found;
    TRI_TRY(tri_job_state_begin(job, generation->number, &found));
    tri_job_begin_tell(job, generation->number, found);
    return TRI_OK;
}

tri_status tri_job_state_find(tri_job *job, const tri_job_generation *generation)
{
    int64_t newest = -1;
    bool acted = true, behind = false;
    if (tri_job_has_own_weights(job))
        return tri_local_state_find(job, generation->number);
    for (int r = 0; r < job->world; r++)
        if (step_of(generation->progress[r]) > newest)
            newest = step_of(generation->progress[r]);
    for (int r = 0; r < job->world; r++)
        if (step_of(generation->progress[r]) == newest && newest >= 0 && generation->progress[r] % 2 == 0)
            acted = false;
    if (newest >= 0)
        TRI_TRY(tri_job_is_behind(job, generation->number, newest, &behind));
    acted = acted || behind;
    TRI_TRY(newest < 0 || behind ? state_begin(job, generation) : state_share(job, generation->progress, newest));
    job->progress.acted = acted;
    if (!acted)
        job->progress.saved_step = -1; /* whoever was to save it may be gone */
    return TRI_OK;
}
