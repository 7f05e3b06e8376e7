/* SPDX-License-Identifier: Apache-2.0
 *
 * resume.c: a checkpoint to a run. Rank 0 reads the files; the others get weights and state by broadcast, or their
 * parts of the state piece by piece, so that no shared file system is needed.
 *
 * What a run is at a step: weights, optimizer state, and one number, the step. Everything else is a function of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "storage/storage.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/local_sgd.h"
#include "train/checkpointing/resume.h"
#include "train/core/features.h"
#include "train/core/initial.h"
#include "train/core/job.h"

tri_status tri_job_slices_open(tri_job *job, bool with_state, tri_job_slices *slices)
{
    TRI_TRY(tri_job_slices_open_unread(job, with_state, slices));
    tri_job_arrays_read(&slices->arrays);
    return TRI_OK;
}

tri_status tri_job_slices_open_unread(tri_job *job, bool with_state, tri_job_slices *slices)
{
    int tensors = job->model.tensors.count;
    bool apart = with_state && tri_job_has_own_weights(job);
    *slices = (tri_job_slices){.content.model_count = tensors};
    TRI_TRY(tri_job_arrays_open_unread(job, with_state && !apart, &slices->arrays));
    if (apart)
        TRI_TRY(tri_local_state_open(job, &slices->apart));
    tri_arena *arena = &slices->arrays.arena;
    int states = apart ? tri_local_state_slice_count(&slices->apart) : (slices->arrays.count - 1) * tensors;
    tri_checkpoint_slice *model = tri_arena_alloc(arena, (size_t)tensors + 1, sizeof(*model));
    tri_checkpoint_slice *state = tri_arena_alloc(arena, (size_t)states + 1, sizeof(*state));
    if (!model || !state)
        return TRI_ENOMEM;
    slices->content = (tri_checkpoint_content){model, state, tensors, states};
    TRI_TRY(tri_job_arrays_slices(&slices->arrays, 0, model));
    for (int i = 1; i < slices->arrays.count; i++)
        TRI_TRY(tri_job_arrays_slices(&slices->arrays, i, state + (i - 1) * tensors));
    return apart ? tri_local_state_slices(&slices->apart, arena, state) : TRI_OK;
}

void tri_job_slices_close(tri_job_slices *slices)
{
    tri_local_state_close(&slices->apart);
    tri_job_arrays_close(&slices->arrays);
    *slices = (tri_job_slices){0};
}

tri_status tri_job_slices_follow(tri_job *job, bool with_state, bool saves)
{
    tri_job_arrays arrays;
    bool apart = with_state && tri_job_has_own_weights(job);
    tri_status status = tri_job_arrays_open(job, with_state && !apart, &arrays);
    if (status == TRI_OK)
        status = tri_job_arrays_follow(&arrays, saves);
    if (status == TRI_OK && apart)
        status = tri_local_state_exchange(job, saves);
    if (status == TRI_OK && !saves)
        tri_job_arrays_written(&arrays);
    tri_job_arrays_close(&arrays);
    return status;
}

/* All ranks continue only if rank 0's part went well; else the others fail with its message through the group. */
static tri_status agree(tri_job *job, tri_status status)
{
    if (status != TRI_OK && job->world > 1)
        tri_comm_abort(job->comm, status, tri_last_error());
    return status == TRI_OK ? tri_job_await_all(job) : status;
}

tri_status tri_job_newest_find(tri_job *job, const char *run_folder, char **path)
{
    tri_checkpoint_folders folders;
    tri_string skipped = {0};
    TRI_TRY(tri_checkpoint_folders_find(&job->config.checkpoint, run_folder, &folders));
    for (int i = 0; i < folders.count; i++) {
        tri_status pulled = tri_mirror_pull_newest(folders.items[i]);
        if (pulled != TRI_OK) {
            tri_checkpoint_folders_fini(&folders);
            return pulled;
        }
    }
    for (int i = 0; i < folders.count; i++)
        if (tri_checkpoint_clear(folders.items[i]) != TRI_OK) /* a crash may have left one aside */
            tri_log(TRI_LOG_WARN, "%s: what a crash has left there stays: %s", folders.items[i], tri_last_error());
    tri_status status = tri_checkpoint_newest_of((const char *const *)folders.items, folders.count, path, &skipped);
    if (skipped.nbytes)
        tri_log(TRI_LOG_WARN, "passed over: %s", tri_string_text(&skipped));
    if (status == TRI_OK && (skipped.nbytes || folders.count > 1))
        tri_log(TRI_LOG_WARN, "continuing with %s", *path);
    tri_checkpoint_folders_fini(&folders);
    tri_string_fini(&skipped);
    return status;
}

/* Names that are missing or too many say little of why. */
static tri_status misfit_tell(const tri_job *job, const char *path, tri_status status)
{
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    bool saved_apart = !tri_job_has_own_weights(job) && tri_local_state_saved(job, path);
    status = tri_fail_copy(status, message);
    if (saved_apart)
        status = tri_fail_context(status,
                                  "workers of parallel.sync local or diloco have saved it, each its own weights, "
                                  "from which %s cannot continue (model.from takes weights alone)",
                                  tri_sync_kind_word(job->config.parallel.sync));
    return status;
}

/* Rank 0: checkpoint -> weights, state. */
static tri_status load_all(tri_job *job, const char *path, tri_checkpoint_manifest *manifest)
{
    tri_job_slices slices = {0};
    tri_status status = tri_job_slices_open(job, true, &slices);
    if (status == TRI_OK)
        status = tri_checkpoint_load(path, manifest, &slices.content);
    if (status == TRI_EFORMAT)
        status = misfit_tell(job, path, status);
    if (status == TRI_OK) {
        tri_job_arrays_written(&slices.arrays);
        tri_local_state_written(&slices.apart);
        tri_features_manifest_take(job, manifest);
        if (strcmp(job->identity.bits, "reproducible") == 0) /* what led here has the last word */
            snprintf(job->identity.bits, sizeof(job->identity.bits), "%s", manifest->bits);
    }
    tri_job_slices_close(&slices);
    return status;
}

/* What weights come from is part of them: a run on other data is another one. Test data decide nothing. */
static tri_status data_check(tri_job *job, const char *path, const tri_checkpoint_manifest *manifest)
{
    const tri_data_identity *data = &job->data.fingerprint;
    char what[320] = "as many samples of the same shapes, with another content";
    if (manifest->data_count == 0 || data->count == 0 || manifest->data_digest == data->digest)
        return TRI_OK;
    if (manifest->data_count != data->count || strcmp(manifest->data_shape, data->shape) != 0)
        snprintf(what, sizeof(what), "%" PRId64 " samples (%s) there, %" PRId64 " (%s) here", manifest->data_count,
                 manifest->data_shape, data->count, data->shape);
    if (job->config.checkpoint.other_data == TRI_OTHER_DATA_STOP)
        return tri_fail(TRI_ECONFIG,
                        "%s was made on other training data: %s (checkpoint.other_data=continue uses these, and marks "
                        "the run as not reproducible)",
                        path, what);
    tri_log(TRI_LOG_WARN, "%s was made on other training data: %s", path, what);
    snprintf(job->identity.bits, sizeof(job->identity.bits), "not reproducible (resumed on other training data)");
    return TRI_OK;
}

/* Other kernels add in another order (docs/bits.md). */
static void kernels_check(tri_job *job, const char *path, const tri_checkpoint_manifest *manifest)
{
    const char *kernels = tri_job_arithmetic(job);
    if (!manifest->kernels[0] || strcmp(manifest->kernels, kernels) == 0 ||
        job->config.train.kernels == TRI_KERNELS_REFERENCE)
        return;
    tri_log(TRI_LOG_WARN,
            "%s was made with other kernels (%s) than these (%s): the run is not reproducible (train.isa, "
            "train.device, train.kernels)",
            path, manifest->kernels, kernels);
    snprintf(job->identity.bits, sizeof(job->identity.bits), "not reproducible (resumed with other kernels)");
}

/* What other steps of an epoch, and other ones in all, mean for a run that continues at `step`. */
static void schedule_tell(const tri_job *job, const tri_config *before, int64_t step)
{
    tri_sampler sampler = job->data.sampler;
    sampler.batch = before->train.batch;
    sampler.shards = before->train.shards;
    const int64_t epoch = tri_sampler_steps(&sampler);
    const int64_t all = before->train.epochs * epoch,
                  all_now = job->config.train.epochs * job->progress.steps_per_epoch;
    const double rate = tri_schedule_rate(&before->optim, step, all);
    const double rate_now = tri_schedule_rate(&job->config.optim, step, all_now);
    const double at = (double)step / (double)epoch, at_now = (double)step / (double)job->progress.steps_per_epoch;
    char keeps[96] = "";
    if (all != all_now)
        snprintf(keeps, sizeof(keeps), " (optim.schedule_steps=%" PRId64 " keeps the earlier schedule)", all);
    if (rate != rate_now)
        tri_log(TRI_LOG_WARN,
                "the learning rate of step %" PRId64
                " is %.6g, and was to be %.6g: the schedule is that of a run of %" PRId64
                " steps, and was that of %" PRId64 "%s",
                step, rate_now, rate, all_now, all, keeps);
    if (epoch != job->progress.steps_per_epoch)
        tri_log(TRI_LOG_WARN,
                "an epoch has %" PRId64 " steps, and had %" PRId64
                ": the run was at epoch %.4g and continues at epoch %.4g, so "
                "that samples of %.4g epochs are %s",
                job->progress.steps_per_epoch, epoch, at, at_now, at_now < at ? at - at_now : at_now - at,
                at_now < at ? "used again" : "left out");
}

/* What the run was configured with is in its folder. */
static tri_status changes_tell(const tri_job *job, const char *run_folder, const char *path,
                               const tri_checkpoint_manifest *manifest)
{
    tri_config before = {0};
    tri_string changes = {0};
    uint64_t hash = 0;
    char *file = tri_format("%s/config.yaml", run_folder);
    tri_status status = file ? tri_config_load(file, NULL, NULL, &before) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_config_hash(&before, &hash);
    bool known = status == TRI_OK && hash == manifest->config_hash;
    if (known)
        status = tri_config_changes(&before, &job->config, &changes);
    tri_log(TRI_LOG_WARN, "the configuration is not the one that %s was made with%s%s: the run is not reproducible",
            path, changes.nbytes > 0 ? ": " : "", tri_string_text(&changes));
    if (known)
        schedule_tell(job, &before, manifest->step);
    tri_string_fini(&changes);
    tri_config_fini(&before);
    tri_free(file);
    return status == TRI_ENOMEM ? status : TRI_OK;
}

/* The newest one. */
static tri_status load_newest(tri_job *job, const char *run_folder, int64_t *step)
{
    char *path = NULL;
    tri_checkpoint_manifest manifest = {0};
    tri_status status = tri_job_newest_find(job, run_folder, &path);
    if (status == TRI_OK)
        status = load_all(job, path, &manifest);
    if (status == TRI_OK)
        status = data_check(job, path, &manifest);
    if (status == TRI_OK)
        kernels_check(job, path, &manifest);
    if (status == TRI_OK && manifest.config_hash != job->identity.config_hash) {
        snprintf(job->identity.bits, sizeof(job->identity.bits),
                 "not reproducible (resumed with another configuration)");
        status = changes_tell(job, run_folder, path, &manifest);
    }
    *step = manifest.step;
    tri_free(path);
    return status;
}

/* Weights, and state, of the ranks with data rank 0 to those with another. */
static tri_status spread(tri_job *job, bool with_state)
{
    tri_job_arrays arrays;
    tri_status status = tri_job_arrays_open(job, with_state && !tri_job_has_own_weights(job), &arrays);
    if (status == TRI_OK)
        status = tri_job_arrays_spread(&arrays);
    if (status == TRI_OK)
        tri_job_arrays_written(&arrays);
    tri_job_arrays_close(&arrays);
    return status;
}

static tri_status load_one(tri_job *job, const char *checkpoint, tri_checkpoint_manifest *manifest)
{
    tri_job_slices slices = {0};
    tri_status status = tri_job_slices_open(job, false, &slices);
    if (status == TRI_OK)
        status = tri_checkpoint_load(checkpoint, manifest, &slices.content);
    if (status == TRI_OK)
        tri_job_arrays_written(&slices.arrays);
    tri_job_slices_close(&slices);
    return status;
}

/* Rank 0 has loaded (status says how); everybody has what it should have, and the step. */
static tri_status loaded(tri_job *job, tri_status status, bool with_state, int64_t *step)
{
    TRI_TRY(agree(job, status));
    if (job->world == 1)
        return TRI_OK;
    TRI_TRY(tri_broadcast(job->group, step, 1, TRI_I64, 0, NULL));
    return spread(job, with_state);
}

tri_status tri_job_load_weights(tri_job *job, const char *checkpoint)
{
    tri_checkpoint_manifest manifest = {0};
    tri_status status =
        job->rank == 0 ? load_one(job, checkpoint, &manifest) : tri_job_slices_follow(job, false, false);
    int64_t step = manifest.step;
    TRI_TRY(loaded(job, status, false, &step));
    job->step = step;
    return TRI_OK;
}

tri_status tri_job_can_resume(tri_job *job, const char *run_folder, bool *can)
{
    int64_t found = 0;
    char *path = NULL;
    tri_status status = job->rank == 0 ? tri_job_newest_find(job, run_folder, &path) : TRI_OK;
    if (job->rank == 0 && status == TRI_OK)
        found = 1;
    else if (status == TRI_ENOTFOUND)
        status = TRI_OK;
    tri_free(path);
    TRI_TRY_IN(agree(job, status), "while looking for checkpoints of %s", run_folder);
    if (job->world > 1)
        TRI_TRY(tri_broadcast(job->group, &found, 1, TRI_I64, 0, NULL));
    *can = found != 0;
    return TRI_OK;
}

tri_status tri_job_resume_weights(tri_job *job, const char *run_folder)
{
    tri_checkpoint_manifest manifest = {0};
    char *path = NULL;
    tri_status status =
        job->rank == 0 ? tri_job_newest_find(job, run_folder, &path) : tri_job_slices_follow(job, false, false);
    if (status == TRI_OK && job->rank == 0)
        status = load_one(job, path, &manifest);
    if (status == TRI_OK && job->rank == 0)
        status = data_check(job, path, &manifest);
    int64_t step = manifest.step;
    tri_free(path);
    TRI_TRY_IN(loaded(job, status, false, &step), "while resuming %s", run_folder);
    if (job->rank == 0)
        tri_log(TRI_LOG_WARN,
                "all workers begin with the mean of the weights of step %lld; what parallel.sync %s and "
                "the optimizer know besides starts again",
                (long long)step, tri_sync_kind_word(job->config.parallel.sync));
    job->progress.first_step = job->step = job->progress.saved_step = step;
    return TRI_OK;
}

/* --- what a rollback goes back to --- */

enum { COPY_HERE = -1, COPY_GONE = -2 };

/* Rank 0: the step before which the run that is resumed had made its copy, with the checkpoint of that step; 0: before
 * its first one; COPY_HERE: where it continues; COPY_GONE: that checkpoint is not there. */
static tri_status copy_find(tri_job *job, const char *run_folder, int64_t *copied, char **path)
{
    const int64_t every = job->config.checkpoint.every_steps;
    tri_checkpoint_folders folders;
    char *newest = NULL;
    TRI_TRY(tri_job_newest_find(job, run_folder, &newest));
    const int64_t step = tri_checkpoint_path_step(newest);
    tri_free(newest);
    *copied = every > 0 ? step - step % every : 0;
    if (step < 0 || *copied == step) {
        *copied = COPY_HERE;
        return TRI_OK;
    }
    TRI_TRY(tri_checkpoint_folders_find(&job->config.checkpoint, run_folder, &folders));
    const int places = *copied > 0 ? folders.count : 0;
    tri_status status = TRI_OK;
    for (int i = 0; i < places && !*path && status == TRI_OK; i++) {
        *path = tri_format("%s/step-%08" PRId64, folders.items[i], *copied);
        status = *path ? tri_checkpoint_verify(*path) : TRI_ENOMEM;
        if (*path && status != TRI_OK) {
            tri_free(*path);
            *path = NULL;
        }
        status = tri_checkpoint_is_damage(status) ? TRI_OK : status;
    }
    tri_checkpoint_folders_fini(&folders);
    TRI_TRY(status);
    if (*copied > 0 && !*path) {
        tri_log(TRI_LOG_WARN,
                "a rollback before step %" PRId64 " would go back to the weights before step %" PRId64
                ", whose checkpoint is not there: it goes back to those of step %" PRId64
                " (checkpoint.keep, checkpoint.keep_every)",
                (step / every + 1) * every, *copied, step);
        *copied = COPY_GONE;
    }
    return TRI_OK;
}

/* The copy is part of what the run is: it is made of the checkpoint, or of the initial weights, before the newest
 * state is loaded over them. */
static tri_status copy_restore(tri_job *job, const char *run_folder)
{
    int64_t copied = COPY_HERE;
    tri_checkpoint_manifest manifest;
    char *path = NULL;
    tri_status status = job->rank == 0 ? copy_find(job, run_folder, &copied, &path) : TRI_OK;
    TRI_TRY_IN(agree(job, status), "while looking for checkpoints of %s", run_folder);
    if (job->world > 1)
        TRI_TRY(tri_broadcast(job->group, &copied, 1, TRI_I64, 0, NULL));
    if (copied == COPY_GONE)
        snprintf(job->identity.bits, sizeof(job->identity.bits),
                 "not reproducible (resumed without what a rollback goes back to)");
    if (copied < 0)
        return TRI_OK;
    if (copied == 0) {
        TRI_TRY(tri_job_weights_find(job));
        return tri_features_rollback_set(job, 0);
    }
    status = job->rank == 0 ? load_all(job, path, &manifest) : tri_job_slices_follow(job, true, false);
    tri_free(path);
    TRI_TRY_IN(loaded(job, status, true, &copied), "while resuming %s", run_folder);
    TRI_TRY(tri_features_spread(job));
    return tri_features_rollback_set(job, copied);
}

tri_status tri_job_resume(tri_job *job, const char *run_folder)
{
    int64_t step = 0;
    if (tri_guard_copies(&job->config))
        TRI_TRY(copy_restore(job, run_folder));
    tri_status status = job->rank == 0 ? load_newest(job, run_folder, &step) : tri_job_slices_follow(job, true, false);
    if (tri_job_has_own_weights(job) && job->rank == 0 && status != TRI_OK)
        status =
            tri_fail_context(status, "parallel.sync %s resumes with the ranks it had (model.from takes weights alone)",
                             tri_sync_kind_word(job->config.parallel.sync));
    TRI_TRY_IN(loaded(job, status, true, &step), "while resuming %s", run_folder);
    TRI_TRY(tri_features_spread(job));
    if (job->world > 1)
        TRI_TRY(tri_broadcast(job->group, job->identity.bits, sizeof(job->identity.bits), TRI_U8, 0, NULL));
    job->progress.first_step = job->step = job->progress.saved_step = step;
    return tri_job_has_own_weights(job) ? tri_local_state_loaded(job) : TRI_OK;
}
