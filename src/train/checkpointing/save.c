/* SPDX-License-Identifier: Apache-2.0
 *
 * save.c: when a run is saved, and in what order: the ranks agree, and each writes its part: at once, or a thread
 * of it from a copy while training continues (checkpoint.async). Nothing of the training depends on whether that
 * succeeds.
 *
 * By time, and at the ends of epochs, rank 0 decides, since clocks differ: the others hear it at steps that all know.
 *
 * At most one save is under way; the next one waits for it. What the disk says is heard on rank 0, between two steps.
 * Where the ranks do not see the same folder, rank 0 writes what they send, and all wait; or, if the checkpoint goes to
 * a URL, each rank uploads what it holds (checkpoint/draft.h: pieces).
 */
#include "train/checkpointing/save.h"
#include "train/core/features.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"
#include "ps/replication/save.h"
#include "storage/storage.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/local_sgd.h"
#include "train/checkpointing/resume.h"
#include "train/core/servers.h"
#include "train/core/step.h"
#include "train/features/sample_audit.h"

#define COST_FACTOR  20 /* an epoch's end waits for no save that takes more than 1/COST_FACTOR of the training */
#define FAILED_NS    (3 * TRI_NS_PER_S)     /* what a save that failed counts as, at least */
#define PIECES_MS    (INT64_C(3600) * 1000) /* an upload takes as long as it takes; ranks that die are noticed earlier */
#define LOOK_NS      (TRI_NS_PER_S / 4)     /* between looks at the clock, where all ranks hear of them */
#define LOOK_MAX     1000                   /* steps between them */
#define WORD_LOOK_AT 16 /* bits of what rank 0 tells: levels that are due, then steps to the next look */

typedef struct saver_state {
    tri_checkpoint_levels levels;
    int64_t last_ns[TRI_CHECKPOINT_MAX_LEVELS]; /* when each was begun */
    int64_t due;                                /* bits: levels that are due after this step */
    int64_t cost_ns;   /* of the latest save to the run's own folder, until it was on the disk; 0: there was none */
    int64_t look_step; /* the clock is looked at after this step */
    int64_t opened_ns, opened_step;
    float *copy;             /* of this rank's elements; NULL: all saves are complete at once */
    tri_device_event copied; /* elements of a device that are on their way to it */
    tri_thread *thread;      /* that writes; NULL: none */
    atomic_bool done, given_up;
    save_work work; /* of the thread */
    int64_t saved, failed, whole_step;
    int64_t level_step[TRI_CHECKPOINT_MAX_LEVELS]; /* of the newest save of each level, or under way; -1: none */
} saver_state;

/* NULL: nothing is trained. */
static saver_state *saver_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_SAVER];
}

/* Whether this rank writes, or gives what another one writes. */
static bool has_part(const tri_job *job)
{
    return job->rank == 0 || tri_job_saves_together(job);
}

static save_work *work_make(tri_job *job)
{
    save_work *work = tri_alloc_zero(1, sizeof(*work));
    if (work)
        *work = (save_work){.rank = job->rank,
                            .writers = tri_job_saves_together(job) ? job->world : 1,
                            .patience_ms = (int64_t)(job->config.net.timeout_s * 500),
                            .start_ns = tri_now_ns(),
                            .manifest = {.step = job->step,
                                         .config_hash = job->identity.config_hash,
                                         .data_count = job->data.fingerprint.count,
                                         .data_digest = job->data.fingerprint.digest}};
    if (!work)
        return NULL;
    tri_features_manifest_put(job, &work->manifest);
    memcpy(work->manifest.bits, job->identity.bits, sizeof(job->identity.bits));
    memcpy(work->manifest.data_shape, job->data.fingerprint.shape, sizeof(job->data.fingerprint.shape));
    snprintf(work->manifest.kernels, sizeof(work->manifest.kernels), "%s", tri_job_arithmetic(job));
    return work;
}

static tri_status form(tri_job *job)
{
    saver_state *saver = tri_alloc_zero(1, sizeof(*saver));
    if (!saver)
        return TRI_ENOMEM;
    job->states[TRI_FEATURE_SAVER] = saver;
    saver->whole_step = job->progress.saved_step;
    saver->opened_ns = tri_now_ns();
    saver->opened_step = saver->look_step = job->step;
    TRI_TRY(tri_checkpoint_levels_read(&job->config.checkpoint, &saver->levels));
    for (int i = 0; i < saver->levels.count; i++) {
        saver->last_ns[i] = tri_now_ns();
        saver->level_step[i] = job->progress.saved_step;
    }
    if (!job->output.folder || !has_part(job) || job->servers.client || !job->config.checkpoint.async ||
        !tri_checkpoint_levels_repeat(&saver->levels))
        return TRI_OK;
    save_work *work = work_make(job);
    if (!work)
        return TRI_ENOMEM;
    tri_status status = save_work_fill(job, work);
    int64_t count = save_work_count(work);
    save_work_fini(work);
    tri_free(work);
    TRI_TRY(status);
    TRI_TRY(tri_device_event_create(job->device, &saver->copied));
    saver->copy = tri_device_host_alloc(job->device, (size_t)count * sizeof(float) + 1);
    /* The system gives its pages now, not while the first save holds all up. */
    for (int64_t i = 0; saver->copy && i < count; i += 4096 / (int64_t)sizeof(float))
        *(volatile float *)&saver->copy[i] = 0;
    if (!saver->copy)
        return tri_fail(TRI_ENOMEM,
                        "no memory for the copy that is written during training (%lld bytes): "
                        "checkpoint.async=false does without",
                        (long long)count * (long long)sizeof(float));
    return TRI_OK;
}

/* --- what came of it --- */

static void target_tell(tri_job *job, const save_work *work, const save_target *target)
{
    saver_state *saver = saver_of(job);
    bool good = target->status == TRI_OK;
    saver->saved += good;
    saver->failed += !good;
    if (target->level == 0)
        saver->cost_ns = good || work->took_ns > FAILED_NS ? work->took_ns : FAILED_NS;
    if (good && work->manifest.step > saver->whole_step)
        saver->whole_step = work->manifest.step;
    tri_counter_add(good ? TRI_COUNT_SAVES : TRI_COUNT_SAVE_FAILURES, 1);
    tri_counter_add(TRI_COUNT_SAVED_NBYTES, good ? work->nbytes : 0);
    if (!good) {
        char newest[48] = "there is none yet";
        if (saver->whole_step >= 0)
            snprintf(newest, sizeof(newest), "the newest is of step %" PRId64, saver->whole_step);
        tri_log(TRI_LOG_WARN, "checkpoint of step %" PRId64 " not saved (%" PRId64 " so far; %s): %s",
                work->manifest.step, saver->failed, newest, target->message);
    }
    tri_save_record record = {.step = work->manifest.step - 1,
                              .folder = target->folder,
                              .nbytes = good ? (int64_t)work->nbytes : 0,
                              .paused_s = (double)work->paused_ns / 1e9,
                              .took_s = (double)work->took_ns / 1e9,
                              .failed = saver->failed,
                              .error = good ? NULL : target->message};
    char event_text[1400];
    snprintf(event_text, sizeof(event_text), "checkpoint of step %" PRId64 "%s%.1200s", work->manifest.step,
             good ? "" : " not saved: ", good ? "" : target->message);
    tri_features_event(job, good ? "checkpoint" : "checkpoint failed", event_text);
    if (job->output.metrics && tri_metrics_write_save(job->output.metrics, &record) != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s", tri_last_error());
}

/* Rank 0 tells people of it; every rank lets go of it. */
static void work_end(tri_job *job, save_work *work)
{
    for (int i = 0; i < work->target_count; i++) {
        const save_target *target = &work->targets[i];
        if (job->rank == 0)
            target_tell(job, work, target);
        else if (target->status != TRI_OK)
            tri_log(TRI_LOG_WARN, "this rank's part of the checkpoint of step %" PRId64 " is not saved: %s",
                    work->manifest.step, target->message);
        if (target->status != TRI_OK && target->level >= 0)
            saver_of(job)->level_step[target->level] = -1;
        if (target->status != TRI_OK && target->level == 0 && job->progress.saved_step == work->manifest.step)
            job->progress.saved_step = -1; /* which is sent to ranks that join */
    }
    save_work_fini(work);
}

/* Waits for the save under way. */
static void previous_end(tri_job *job)
{
    saver_state *saver = saver_of(job);
    if (!saver->thread)
        return;
    tri_thread_join(saver->thread);
    saver->thread = NULL;
    if (saver->work.served)
        tri_ps_client_saved(job->servers.client);
    work_end(job, &saver->work);
}

void tri_job_save_wait(tri_job *job)
{
    if (saver_of(job))
        previous_end(job);
}

static void saver_close(tri_job *job)
{
    saver_state *saver = saver_of(job);
    if (!saver)
        return;
    atomic_store(&saver->given_up, true);
    previous_end(job);
    tri_device_host_free(job->device, saver->copy);
    tri_device_event_destroy(job->device, &saver->copied);
    tri_free(saver);
    job->states[TRI_FEATURE_SAVER] = NULL;
}

/* --- the ranks agree --- */

/* Asked by the thread that writes. Where a worker is gone, or has left, its part does not come any more, and the others
 * wait for this rank to form the next generation. */
static bool has_lost(void *arg, int rank)
{
    const tri_job *job = arg;
    return tri_comm_has_lost(job->comm, rank);
}

void save_target_begin(const tri_job *job, const save_work *work, save_target *target, bool first)
{
    const tri_checkpoint_draft_setup setup = {.place = {target->folder, target->keep, target->keep_every},
                                              .step = work->manifest.step,
                                              .content = work->slices.content,
                                              .mark = target->mark,
                                              .writers = work->served ? "server" : "rank",
                                              .writers_from = work->served,
                                              .pieces = work->pieces,
                                              .writer = job->rank,
                                              .writer_count = work->writers,
                                              .given_up = &saver_of(job)->given_up,
                                              .lost =
                                                  (job->elastic.on || work->pieces != 0) && job->comm ? has_lost : NULL,
                                              .arg = (void *)(uintptr_t)job};
    tri_status status =
        first ? tri_checkpoint_draft_create(&setup, &target->draft) : tri_checkpoint_draft_join(&setup, &target->draft);
    if (status != TRI_OK && (first || work->pieces != 0))
        save_target_fail(target, status);
}

/* What rank 0 says of one place. */
typedef struct save_order {
    int64_t begun;
    uint64_t mark;
    char folder[SAVE_FOLDER_NBYTES], url[SAVE_FOLDER_NBYTES];
} save_order;

/* Of a place at a URL each rank has a folder of its own, in the cache of its host. */
static tri_status order_take(const save_order *order, save_target *target)
{
    target->mark = order->mark;
    if (order->url[0] && strcmp(order->url, target->url) == 0)
        return TRI_OK;
    memcpy(target->folder, order->folder, sizeof(order->folder));
    memcpy(target->url, order->url, sizeof(order->url));
    if (!order->url[0])
        return TRI_OK;
    char *folder;
    TRI_TRY(tri_mirror_folder(order->url, &folder));
    snprintf(target->folder, sizeof(target->folder), "%s", folder);
    tri_free(folder);
    return TRI_OK;
}

/* All hear where to write; *shared: all see the folder. */
static tri_status order_exchange(tri_job *job, const save_work *work, save_target *target, bool *shared)
{
    save_order order = {.begun = target->draft != NULL, .mark = target->mark};
    memcpy(order.folder, target->folder, sizeof(order.folder));
    memcpy(order.url, target->url, sizeof(order.url));
    tri_group_name_next(job->group, "where to save");
    tri_status status = tri_broadcast(job->group, &order, sizeof(order), TRI_U8, 0, NULL);
    tri_group_name_next(job->group, "");
    TRI_TRY(status);
    order.folder[sizeof(order.folder) - 1] = 0;
    order.url[sizeof(order.url) - 1] = 0;
    if (job->rank != 0 && order_take(&order, target) != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s: no folder here: %s", order.url, tri_last_error());
    if (!order.begun) {
        target->status = TRI_EIO;
        return TRI_OK;
    }
    if (job->rank != 0)
        save_target_begin(job, work, target, false);
    int64_t sees = target->draft != NULL;
    tri_group_name_next(job->group, "who sees the folder");
    status = tri_all_reduce(job->group, &sees, &sees, 1, TRI_I64, TRI_REDUCE_MIN, NULL);
    tri_group_name_next(job->group, "");
    *shared = *shared && sees;
    return status;
}

/* Whether each rank can upload what it holds: all places are in object stores. What a file:// URL names is also read
 * where it is, so it has whole files. */
static bool pieces_can(const tri_job *job, const save_work *work)
{
    bool can = !tri_job_has_own_weights(job);
    for (int i = 0; i < work->target_count; i++)
        can = can && work->targets[i].level >= 0 && strncmp(work->targets[i].url, "s3://", 5) == 0;
    return can;
}

/* Rank 0 has the whole model where weights are not spread: that stays a file. */
static bool has_model(const save_work *work)
{
    int64_t own = 0, all = 0;
    for (int i = 0; i < work->item_count; i++)
        if (work->items[i].slice < work->slices.content.model_count)
            own += work->items[i].extent.high - work->items[i].extent.low;
    for (int i = 0; i < work->slices.content.model_count; i++)
        all += tri_shape_count(work->slices.content.model[i].shape);
    return own == all;
}

/* Drafts of pieces, in place of those that not all see. */
static tri_status pieces_begin(tri_job *job, save_work *work)
{
    int64_t pieces = has_model(work) ? 2 : 3;
    tri_group_name_next(job->group, "who uploads what");
    tri_status status = tri_broadcast(job->group, &pieces, 1, TRI_I64, 0, NULL);
    tri_group_name_next(job->group, "");
    TRI_TRY(status);
    TRI_TRY(tri_job_weights_hash(job, &work->manifest.weights_hash));
    work->pieces = (unsigned)pieces;
    work->patience_ms = PIECES_MS;
    for (int i = 0; i < work->target_count; i++) {
        save_target *target = &work->targets[i];
        if (target->status != TRI_OK)
            continue;
        tri_checkpoint_draft_close(target->draft);
        target->draft = NULL;
        save_target_begin(job, work, target, job->rank == 0);
        int64_t begun = target->draft != NULL;
        tri_group_name_next(job->group, "who can upload");
        status = tri_all_reduce(job->group, &begun, &begun, 1, TRI_I64, TRI_REDUCE_MIN, NULL);
        tri_group_name_next(job->group, "");
        TRI_TRY(status);
        if (begun)
            continue;
        tri_checkpoint_draft_close(target->draft);
        target->draft = NULL;
        save_target_fail(target, tri_fail(TRI_EIO, "a rank could not begin its part, and says why"));
    }
    return TRI_OK;
}

/* Drafts are open on all who write; *collects: rank 0 writes for all. */
static tri_status work_begin(tri_job *job, save_work *work, bool *collects)
{
    bool shared = true;
    TRI_TRY(save_work_fill(job, work));
    for (int i = 0; i < work->target_count; i++) {
        tri_entropy(&work->targets[i].mark, sizeof(work->targets[i].mark));
        if (job->rank == 0)
            save_target_begin(job, work, &work->targets[i], true);
    }
    for (int i = 0; work->writers > 1 && i < work->target_count; i++)
        TRI_TRY(order_exchange(job, work, &work->targets[i], &shared));
    *collects = !shared && !pieces_can(job, work);
    return shared || *collects ? TRI_OK : pieces_begin(job, work);
}

/* --- writing --- */

static void thread_body(void *arg)
{
    saver_state *saver = arg;
    save_work_run(&saver->work);
    atomic_store(&saver->done, true);
}

static tri_status collect(tri_job *job, save_work *work)
{
    work->writers = 1;
    for (int i = 0; i < work->target_count; i++) {
        save_target *target = &work->targets[i];
        if (target->status != TRI_OK)
            continue;
        TRI_TRY(job->rank == 0 ? save_work_collect(work, target) : tri_job_slices_follow(job, true, true));
        tri_checkpoint_draft_close(target->draft);
        target->draft = NULL;
    }
    return TRI_OK;
}

/* Beside the training, if it can. */
static void saver_write(saver_state *saver, save_work *work, bool beside)
{
    atomic_store(&saver->done, false);
    if (beside && tri_thread_start(&saver->thread, "save", thread_body, saver) == TRI_OK)
        return;
    if (beside)
        saver->thread = NULL;
    save_work_run(work);
}

/* A part that may have another bit is given to no checkpoint. */
static void copy_make(tri_job *job, save_work *work)
{
    save_work_copy(work, job->device, saver_of(job)->copied, saver_of(job)->copy);
    tri_status status = tri_features_copied(job);
    for (int i = 0; status != TRI_OK && i < work->target_count; i++)
        save_target_fail(&work->targets[i], status);
}

/* The weights are the run's. lasting: all is done when it returns. */
static tri_status write_met(tri_job *job, save_work *work, bool lasting)
{
    saver_state *saver = saver_of(job);
    bool collects = false;
    TRI_TRY(work_begin(job, work, &collects));
    const bool beside = !collects && !lasting && work == &saver->work && saver->copy;
    if (!beside)
        save_work_read(work);
    if (collects)
        return collect(job, work);
    work->memory = beside ? NULL : job;
    work->look = tri_features_copied;
    if (beside)
        copy_make(job, work);
    saver_write(saver, work, beside);
    return TRI_OK;
}

/* By the parameter servers, if there are any and they can. What is to be kept as the best is what this worker has
 * evaluated: it writes that itself. */
static tri_status write_served(tri_job *job, save_work *work, bool lasting, bool *served)
{
    saver_state *saver = saver_of(job);
    if (!job->servers.client || tri_job_follows(job) || work != &saver->work || !job->output.folder)
        return TRI_OK;
    if (lasting) /* then servers have all pushes of this worker, and at the end of all */
        TRI_TRY(tri_job_settle(job));
    TRI_TRY(save_work_ask(job, work, &saver->given_up, served));
    if (!*served)
        return TRI_OK;
    saver_write(saver, work, !lasting && job->config.checkpoint.async);
    if (!saver->thread)
        tri_ps_client_saved(job->servers.client);
    work->paused_ns = tri_now_ns() - work->start_ns;
    return TRI_OK;
}

static tri_status write_all(tri_job *job, save_work *work, bool lasting)
{
    bool served = false;
    TRI_TRY(write_served(job, work, lasting, &served));
    if (served)
        return TRI_OK;
    TRI_TRY(tri_job_settle(job));
    TRI_TRY(tri_job_servers_state(job));
    TRI_TRY(tri_job_meet(job));
    const double limit_s = tri_job_patience_begin(job); /* for one that ends an earlier save, or writes for all */
    tri_status status = write_met(job, work, lasting);
    (void)tri_group_limit(job->group, limit_s);
    work->paused_ns = tri_now_ns() - work->start_ns;
    tri_job_part(job);
    TRI_TRY_IN(status, "while saving step %lld", (long long)job->step);
    return TRI_OK;
}

static tri_status level_target(const tri_job *job, int i, save_target *target)
{
    const tri_checkpoint_level *level = &saver_of(job)->levels.items[i];
    *target = (save_target){.level = i, .keep = level->keep, .keep_every = level->keep_every};
    if (!job->output.folder)
        return TRI_OK;
    char *folder;
    TRI_TRY(tri_checkpoint_level_folder(level, job->output.folder, &folder));
    char *url = tri_mirror_url(folder);
    snprintf(target->folder, sizeof(target->folder), "%s", folder);
    snprintf(target->url, sizeof(target->url), "%s", url ? url : "");
    tri_free(folder);
    tri_free(url);
    return TRI_OK;
}

/* The levels whose bits are set. */
static tri_status save_levels(tri_job *job, int64_t wanted, bool lasting)
{
    saver_state *saver = saver_of(job);
    save_work *work = &saver->work, *made = work_make(job);
    if (!made)
        return TRI_ENOMEM;
    previous_end(job); /* its time counts: training stands still */
    *work = *made;
    tri_free(made);
    for (int i = 0; i < saver->levels.count; i++)
        if (wanted >> i & 1) {
            TRI_TRY(level_target(job, i, &work->targets[work->target_count++]));
            saver->last_ns[i] = tri_now_ns();
            saver->level_step[i] = job->step;
        }
    job->progress.saved_step = job->step;
    /* A run that resumes from here has the lines and the entries so far. */
    tri_features_files_flush(job);
    if (job->rank == 0 && tri_job_ledger_is_kept(job))
        snprintf(work->ledger, sizeof(work->ledger), "%s/ledger", job->output.folder);
    tri_status status = write_all(job, work, lasting);
    if (saver->thread)
        return status;
    save_target first = work->targets[0];
    if (status == TRI_OK)
        work_end(job, work);
    else
        save_work_fini(work);
    if (status == TRI_OK && lasting && job->rank == 0 && first.status != TRI_OK)
        return tri_fail(first.status, "checkpoint of step %lld not saved: %s", (long long)job->step, first.message);
    return status;
}

/* --- when --- */

static bool epoch_ends(const tri_job *job)
{
    int64_t every = saver_of(job)->levels.every_epochs;
    return every > 0 && tri_job_is_due(job, every * job->progress.steps_per_epoch);
}

/* Whether something may be due now; the same on all ranks. */
static bool looks(const tri_job *job)
{
    const saver_state *saver = saver_of(job);
    bool is = epoch_ends(job);
    for (int i = 0; i < saver->levels.count; i++) {
        const tri_checkpoint_level *level = &saver->levels.items[i];
        is = is || tri_job_is_due(job, level->every_steps) || (level->every_s > 0 && job->step >= saver->look_step);
    }
    return is;
}

/* By this rank's clock. */
static bool level_is_due(const tri_job *job, int i, int64_t now_ns)
{
    const saver_state *saver = saver_of(job);
    const tri_checkpoint_level *level = &saver->levels.items[i];
    const int64_t since_ns = now_ns - saver->last_ns[i];
    bool by_time = level->every_s > 0 && (double)since_ns / 1e9 >= level->every_s;
    bool by_epoch = i == 0 && epoch_ends(job) && !saver->thread && since_ns / COST_FACTOR >= saver->cost_ns;
    return tri_job_is_due(job, level->every_steps) || by_time || by_epoch;
}

/* How many steps take about LOOK_NS. */
static int64_t look_steps(const tri_job *job, int64_t now_ns)
{
    const saver_state *saver = saver_of(job);
    int64_t made = job->step - saver->opened_step, spent_ns = now_ns - saver->opened_ns;
    int64_t steps = made > 0 && spent_ns > 0 ? (int64_t)((double)LOOK_NS * (double)made / (double)spent_ns) : 1;
    return steps < 1 ? 1 : steps < LOOK_MAX ? steps : LOOK_MAX;
}

static tri_status look(tri_job *job)
{
    saver_state *saver = saver_of(job);
    if (saver->thread && atomic_load(&saver->done))
        previous_end(job);
    saver->due = 0;
    if (!looks(job))
        return TRI_OK;
    const int64_t now_ns = tri_now_ns();
    int64_t word = look_steps(job, now_ns) << WORD_LOOK_AT;
    for (int i = 0; job->output.folder && job->progress.saved_step != job->step && i < saver->levels.count; i++)
        word |= (int64_t)level_is_due(job, i, now_ns) << i;
    TRI_TRY(tri_job_first_decides(job, &word));
    saver->due = word & ((1 << WORD_LOOK_AT) - 1);
    saver->look_step = job->step + (word >> WORD_LOOK_AT);
    return TRI_OK;
}

bool tri_job_save_is_due(const tri_job *job)
{
    return saver_of(job)->due != 0;
}

/* The others wait behind it. */
static tri_status save_due(tri_job *job)
{
    return has_part(job) ? save_levels(job, saver_of(job)->due, job->step == job->progress.steps) : TRI_OK;
}

tri_status tri_job_save(tri_job *job)
{
    saver_state *saver = saver_of(job);
    previous_end(job);
    int64_t wanted = 0;
    for (int i = 0; job->output.folder && i < saver->levels.count; i++)
        wanted |= (int64_t)(job->progress.saved_step != job->step || saver->level_step[i] != job->step) << i;
    if (tri_job_saves_together(job)) { /* elsewhere rank 0 saves, whatever became of the others */
        TRI_TRY(tri_job_await_all(job));
        TRI_TRY(tri_job_first_decides(job, &wanted));
    }
    if (wanted && has_part(job))
        TRI_TRY(save_levels(job, wanted, true));
    return tri_job_await_all(job);
}

tri_status tri_job_save_to(tri_job *job, const char *folder, int64_t keep, bool *saved)
{
    *saved = false;
    if (!has_part(job))
        return TRI_OK;
    save_work *work = work_make(job);
    if (!work)
        return TRI_ENOMEM;
    work->target_count = 1;
    work->targets[0].level = -1;
    work->targets[0].keep = keep;
    snprintf(work->targets[0].folder, sizeof(work->targets[0].folder), "%s", folder);
    tri_status status = write_all(job, work, true);
    *saved = status == TRI_OK && job->rank == 0 && work->targets[0].status == TRI_OK;
    if (status == TRI_OK)
        work_end(job, work);
    else
        save_work_fini(work);
    tri_free(work);
    return status;
}

static void part(tri_job *job)
{
    if (saver_of(job) && job->elastic.on) /* what is being saved may be given up */
        job->progress.saved_step = -1;
    saver_close(job);
}

const tri_feature tri_feature_saver = {
    .form = form, .look = look, .is_due = tri_job_save_is_due, .run = save_due, .part = part, .close = saver_close};
