/* SPDX-License-Identifier: Apache-2.0
 *
 * reform.c: a job whose ranks come and go: it is opened without any, and formed again for each generation of them.
 *
 * Weights, optimizer state, data sets and the record of steps stay in memory; graph, sync, loaders and what rank 0 does
 * for all are made for the ranks that there are now (form.c). A step counts once its weights have moved, which no rank
 * begins before it has all sums: so whoever fails earlier is where the step began, and redoes it.
 */
#include <stdio.h>

#include "base/fs.h"
#include "base/log.h"
#include "parallel/compress.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/resume.h"
#include "train/core/build.h"
#include "train/core/evaluate.h"
#include "train/core/features.h"
#include "train/core/step.h"
#include "train/elastic/elastic.h"
#include "train/elastic/reform.h"
#include "train/elastic/reform_assignment.h"
#include "train/features/observers.h"

tri_status tri_elastic_check(const tri_config *config)
{
    const tri_parallel_config *parallel = &config->parallel;
    const struct {
        const char *wanted;
        bool holds;
    } rows[] = {
        {"parallel.data auto", parallel->data == TRI_OPTION_AUTO},
        {"parallel.layout given", parallel->layout == TRI_LAYOUT_GIVEN},
        {"parallel.zero_ranks all", parallel->zero_ranks == TRI_ZERO_RANKS_ALL},
        {"comm.engine host", config->comm.engine == TRI_ENGINE_HOST},
        {"comm.order canonical", config->comm.order == TRI_ORDER_CANONICAL},
    };
    if (parallel->sync == TRI_SYNC_PS)
        return tri_fail(TRI_ECONFIG,
                        "--elastic cannot be combined with parallel.sync ps: workers of servers come and go by "
                        "--servers and --restarts (ps.backup_workers, ps.replicas)");
    if (tri_sync_is_local(parallel) && parallel->outer_delay > 0)
        return tri_fail(TRI_ECONFIG,
                        "--elastic requires parallel.outer_delay 0: what is on its way is lost with a worker, got "
                        "%lld",
                        (long long)parallel->outer_delay);
    if (parallel->tensor == TRI_OPTION_AUTO || parallel->pipeline == TRI_OPTION_AUTO)
        return tri_fail(TRI_ECONFIG, "--elastic: want a number of tensor ranks and stages, got auto");
    if (parallel->tensor != 1 && parallel->tensor_parts == 0)
        return tri_fail(TRI_ECONFIG,
                        "--elastic with parallel.tensor %lld needs parallel.tensor_parts: the bits are not "
                        "to depend on how many ranks are left",
                        (long long)parallel->tensor);
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        if (!rows[i].holds)
            return tri_fail(TRI_ECONFIG, "--elastic requires %s", rows[i].wanted);
    if (parallel->ahead == TRI_AHEAD_ON)
        return tri_fail(TRI_ECONFIG, "--elastic requires parallel.ahead off: a step is redone whole, got on");
    if (tri_guard_copies(config))
        return tri_fail(TRI_ECONFIG,
                        "--elastic requires train.on_nonfinite and train.on_spike stop or skip so far: the "
                        "copies of rollback are in the memory of each worker");
    if (config->net.heartbeat_ms == 0)
        return tri_fail(TRI_ECONFIG, "--elastic needs workers that watch each other: comm.heartbeat_ms above 0");
    return tri_stragglers_check(config, true);
}

/* --- opening --- */

/* What does not depend on the ranks. */
static tri_status store_open(tri_job *job)
{
    TRI_TRY(tri_job_build_store(job, &job->elastic.data->info));
    return tri_job_open_optim(job);
}

static void store_close(tri_job *job)
{
    tri_optim_destroy(job->optim);
    tri_params_destroy(job->params);
    tri_tensors_fini(&job->model.tensors);
    tri_shares_fini(&job->placement.shares);
    tri_free(job->model.frozen);
    job->optim = NULL;
    job->params = NULL;
    job->model.frozen = NULL;
}

static tri_status elastic_build(tri_job *job, const tri_job_setup *setup)
{
    tri_job_elastic *elastic = &job->elastic;
    elastic->on = true;
    elastic->console = setup->console;
    TRI_TRY(tri_job_configure(job, setup));
    job->config.parallel.ahead = TRI_AHEAD_OFF;
    if (setup->resume && !(elastic->resume = tri_strdup(setup->resume)))
        return TRI_ENOMEM;
    elastic->or_begin = setup->or_begin;
    TRI_TRY(tri_job_open_train_data(job, setup, &elastic->data));
    tri_dataset_keep(elastic->data, TRI_JOB_KEPT_NBYTES);
    TRI_TRY_IN(tri_dataset_identify(elastic->data, TRI_JOB_KEPT_NBYTES, &job->data.fingerprint),
               "while reading the training data");
    if (!job->assignment.on)
        TRI_TRY(store_open(job));
    TRI_TRY(tri_features_open(job));
    job->progress.acted = true;
    elastic->begin = tri_scalar_state_of(job);
    return job->output.folder ? tri_features_files_follow(job) : TRI_OK;
}

tri_status tri_job_open_elastic(const tri_job_setup *setup, tri_job **out)
{
    tri_job *job = NULL;
    TRI_TRY(tri_job_create(NULL, setup->run_folder, &job));
    tri_status status = elastic_build(job, setup);
    if (status != TRI_OK)
        return tri_job_open_failed(job, status);
    tri_mesh_close(&job->mesh); /* of this process alone */
    tri_comm_leave(job->own_comm);
    job->comm = job->own_comm = NULL;
    *out = job;
    return TRI_OK;
}

/* --- progress: twice the step, and 1 where what comes after it (evaluation, checkpoints) is done too --- */

int64_t tri_job_progress_number(const tri_job *job)
{
    const tri_job_assignment *assignment = &job->assignment;
    if (assignment->on && !assignment->formed)
        return assignment->kept.what.generation > 0 ? 2 * assignment->kept.what.step + job->progress.acted : -1;
    return job->elastic.has_state ? 2 * job->step + job->progress.acted : -1;
}

void tri_job_lost_touch(tri_job *job)
{
    tri_features_files_lost(job);
}

/* --- lines of the run: metrics and ledger --- */

tri_status tri_job_lines_settle(tri_job *job)
{
    char path[1200];
    if (job->rank == 0)
        return tri_features_files_lead(job);
    snprintf(path, sizeof(path), "%s/metrics.jsonl", job->output.folder ? job->output.folder : "");
    if (!job->output.metrics || !tri_fs_exists(path)) /* this host does not see the run's folder */
        return TRI_OK;
    TRI_TRY(tri_features_files_lead(job));
    tri_features_files_yield(job);
    return TRI_OK;
}

/* --- generations --- */

static tri_status ranks_take(tri_job *job, tri_comm *comm)
{
    job->comm = comm;
    job->group = tri_comm_world(comm);
    job->rank = tri_group_rank(job->group);
    job->world = tri_group_count(job->group);
    job->progress.stop_wanted = job->elastic.ends = job->elastic.leaves = false;
    TRI_TRY(tri_job_check_spec(job));
    TRI_TRY(tri_job_assignment_lay(job, job->world));
    TRI_TRY(tri_config_check(&job->config, job->world));
    TRI_TRY(tri_mesh_open(&job->config.parallel, comm, &job->mesh));
    job->threads = tri_job_threads(&job->config, tri_comm_local_count(comm));
    tri_job_split_shards(job);
    tri_sampler_cover(&job->data.sampler, job->elastic.data, &job->config.data);
    if (job->rank > 0) {
        tri_console_close(job->output.console);
        job->output.console = NULL;
        job->throughput.peak_flops = 0;
        tri_features_files_yield(job);
    }
    return TRI_OK;
}

/* Where weights were begun with and not ended. */
static tri_status store_renew(tri_job *job)
{
    if (job->elastic.has_state || !job->elastic.touched)
        return TRI_OK;
    store_close(job);
    TRI_TRY(store_open(job));
    tri_features_restart(job);
    job->elastic.touched = false;
    return TRI_OK;
}

tri_status tri_job_form(tri_job *job, tri_comm *comm, const tri_job_generation *generation)
{
    job->elastic.number = generation->number;
    job->elastic.misfit = -1;
    job->elastic.given_up = job->elastic.hashed = job->elastic.behind = false;
    TRI_TRY(ranks_take(job, comm));
    TRI_TRY(tri_job_cards_find(job));
    if (generation->number == 1)
        TRI_TRY(tri_features_fit(job, NULL, &job->elastic.data->info));
    TRI_TRY(job->assignment.on ? tri_job_assignment_build(job) : store_renew(job));
    TRI_TRY(tri_job_build_graph(job));
    TRI_TRY(tri_job_products_meet(job));
    TRI_TRY(tri_features_plan(job, NULL, &job->data.info));
    TRI_TRY(tri_job_form_moves(job));
    TRI_TRY(tri_job_shard_maps_open(job));
    TRI_TRY(tri_job_mirror_open(job));
    TRI_TRY(job->assignment.on ? tri_job_assignment_find(job, generation) : tri_job_state_find(job, generation));
    if (job->rank == 0)
        TRI_TRY(tri_features_files_lead(job));
    TRI_TRY(tri_job_check_equal(job)); /* before which no newcomer has a state, which has not seen the lines so far */
    TRI_TRY(tri_job_assignment_settle(job));
    job->elastic.has_state = true;
    job->elastic.dropped = false;
    const tri_compress_ops *compress = tri_compress_find(&job->config.parallel);
    if (generation->number > 1 && job->rank == 0 && !tri_job_has_own_weights(job) && compress && compress->keeps)
        tri_log(TRI_LOG_INFO, "the error feedback of parallel.compress %s is lost: it starts from zero",
                tri_compress_kind_word(job->config.parallel.compress));
    if (job->elastic.place)
        job->elastic.place->stepped(job->elastic.place->arg, job);
    return tri_job_form_run(job, job->elastic.data);
}

bool tri_job_is_over(const tri_job *job)
{
    return job->elastic.has_state && job->progress.acted && job->step >= job->progress.steps;
}

/* After each step: how long everybody was held up. */
static void step_tell(tri_job *job)
{
    tri_job_elastic *elastic = &job->elastic;
    if (elastic->lost_ns > 0 && job->rank == 0)
        tri_log(TRI_LOG_INFO, "generation %lld: resumed, step %lld is done %.0f ms after the loss",
                (long long)elastic->number, (long long)job->step, (double)(tri_now_ns() - elastic->lost_ns) / 1e6);
    elastic->lost_ns = 0;
    int64_t mark_ns = tri_now_ns();
    if (elastic->place)
        elastic->place->stepped(elastic->place->arg, job);
    tri_job_watch_add(job, (double)(tri_now_ns() - mark_ns) / 1e9);
}

/* One generation's part of the run: until its end, or the ranks shall be others. */
static tri_status generation_run(tri_job *job)
{
    bool done = job->step >= job->progress.steps;
    if (!job->progress.acted)
        TRI_TRY(tri_features_run_due(job));
    if (done) /* resumed at its end, or a worker was lost there */
        TRI_TRY(tri_job_evaluate_end(job));
    while (!done && !job->progress.stop_wanted && !job->elastic.ends) {
        TRI_TRY(tri_job_step(job, &done));
        step_tell(job);
    }
    if (done)
        job->elastic.ends = false;
    done = done && !tri_job_evaluation_is_cut(job);
    TRI_TRY(tri_job_sums_end(job));
    if (job->elastic.ends && !job->progress.stop_wanted)
        return tri_job_leave_agree(job);
    if (!done)
        TRI_TRY(tri_job_save(job));
    else
        TRI_TRY(tri_job_print_result(job));
    /* Nobody leaves before rank 0 has done its part: if it cannot, another one does it. */
    if (job->world > 1)
        TRI_TRY(tri_barrier(job->group, NULL));
    return done ? TRI_OK : tri_job_stopped(job);
}

/* What failed came after the weights had moved: the step is made. */
static tri_status moved_end(tri_job *job, tri_status status)
{
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    TRI_TRY(tri_job_step_end(job));
    return tri_fail_copy(status, message);
}

tri_status tri_job_run_generation(tri_job *job)
{
    tri_status status = generation_run(job);
    if (status != TRI_OK && job->world > 1)
        tri_comm_abort(job->comm, status, tri_last_error());
    if (status != TRI_OK && job->progress.phase == TRI_STEP_MOVED) {
        job->elastic.exchange_pending = tri_job_has_own_weights(job);
        return moved_end(job, status);
    }
    return status;
}

tri_status tri_job_give_up(tri_job *job, int least)
{
    TRI_TRY(tri_job_save(job));
    if (tri_stop_signal())
        return tri_job_stopped(job);
    return tri_fail(TRI_EPEER, "%d worker%s left after step %lld, want at least %d (--elastic)%s", job->world,
                    job->world == 1 ? " is" : "s are", (long long)job->step, least,
                    job->output.folder ? "; the step is saved: --resume continues" : "");
}
