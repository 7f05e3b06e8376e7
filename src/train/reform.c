/* SPDX-License-Identifier: Apache-2.0
 *
 * reform.c: a job whose ranks come and go: it is opened without any, and formed anew for each generation of them.
 *
 * Weights, optimizer state, data sets and the record of steps stay in memory; graph, sync, loaders and what rank 0 does
 * for all are made for the ranks that there are now (form.c). A step counts once its weights have moved, which no rank
 * begins before it has all sums: so whoever fails earlier is where the step began, and redoes it.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "train/job.h"

tri_status tri_elastic_check(const tri_config *config)
{
    const tri_parallel_config *parallel = &config->parallel;
    const struct {
        const char *option, *found, *wanted;
    } rows[] = {
        {"parallel.sync", parallel->sync, "allreduce"}, {"parallel.compress", parallel->compress, "none"},
        {"parallel.data", parallel->data, "auto"},      {"parallel.tensor", parallel->tensor, "1"},
        {"parallel.pipeline", parallel->pipeline, "1"}, {"parallel.layout", parallel->layout, "given"},
        {"comm.engine", config->comm.engine, "host"},   {"comm.order", config->comm.order, "canonical"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        if (strcmp(rows[i].found, rows[i].wanted) != 0)
            return tri_fail(TRI_ECONFIG, "--elastic goes with %s %s so far, got %s", rows[i].option, rows[i].wanted,
                            rows[i].found);
    if (strcmp(parallel->ahead, "on") == 0)
        return tri_fail(TRI_ECONFIG, "--elastic goes with parallel.ahead off: a step is redone whole, got on");
    if (strcmp(config->train.on_nonfinite, "rollback") == 0 || strcmp(config->train.on_spike, "rollback") == 0)
        return tri_fail(TRI_ECONFIG,
                        "--elastic goes with train.on_nonfinite and train.on_spike stop or skip so far: the "
                        "copies of rollback are in the memory of each worker");
    if (config->net.heartbeat_ms == 0)
        return tri_fail(TRI_ECONFIG, "--elastic wants workers that watch each other: comm.heartbeat_ms above 0");
    return TRI_OK;
}

/* --- opening --- */

/* What does not depend on the ranks. */
static tri_status store_open(tri_job *job)
{
    TRI_TRY(tri_job_build_store(job, &job->elastic.data->info));
    TRI_TRY(tri_job_open_optim(job));
    tri_job_scale_open(job);
    tri_job_guard_open(job);
    return TRI_OK;
}

static void store_close(tri_job *job)
{
    tri_optim_destroy(job->optim);
    tri_params_destroy(job->params);
    tri_tensors_fini(&job->tensors);
    tri_shares_fini(&job->shares);
    tri_free(job->frozen);
    job->optim = NULL;
    job->params = NULL;
    job->frozen = NULL;
}

static tri_status elastic_build(tri_job *job, const tri_job_setup *setup)
{
    char path[1200];
    tri_job_elastic *elastic = &job->elastic;
    elastic->on = true;
    elastic->console = setup->console;
    TRI_TRY(tri_job_configure(job, setup));
    TRI_TRY(tri_elastic_check(&job->config));
    snprintf(job->config.parallel.ahead, sizeof(job->config.parallel.ahead), "off");
    if (setup->resume && !(elastic->resume = tri_strdup(setup->resume)))
        return TRI_ENOMEM;
    TRI_TRY(tri_job_open_train_data(job, &elastic->data));
    TRI_TRY(store_open(job));
    job->acted = true;
    if (!job->run_folder)
        return TRI_OK;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", job->run_folder);
    return tri_metrics_follow(path, &job->metrics);
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

int64_t tri_job_progress(const tri_job *job)
{
    return job->elastic.has_state ? 2 * job->step + job->acted : -1;
}

static int64_t step_of(int64_t progress)
{
    return progress < 0 ? -1 : progress / 2;
}

void tri_job_lost_touch(tri_job *job)
{
    if (job->metrics)
        tri_metrics_forget(job->metrics);
    tri_job_show_yield(job);
}

/* --- state: from a rank that has the newest to those that have not --- */

/* All but the arrays. */
typedef struct state_rest {
    int64_t step, step_before, first_step, saved_step;
    tri_job_scale scale;
    double guard[3];
    tri_step_record record;
    double test[4];
} state_rest;

static state_rest rest_of(const tri_job *job)
{
    const tri_job_test *test = &job->test;
    return (state_rest){.step = job->step,
                        .step_before = job->step_before,
                        .guard = {job->guard.loss, (double)job->guard.steps, (double)job->guard.acts},
                        .first_step = job->first_step,
                        .saved_step = job->saved_step,
                        .scale = job->scale,
                        .record = job->record,
                        .test = {test->loss, test->accuracy, test->perplexity, test->weight}};
}

static tri_status rest_take(tri_job *job, const state_rest *rest)
{
    tri_job_test *test = &job->test;
    bool behind = job->elastic.has_state;
    job->step = rest->step;
    job->step_before = rest->step_before;
    job->guard.loss = rest->guard[0];
    job->guard.steps = (int64_t)rest->guard[1];
    job->guard.acts = (int64_t)rest->guard[2];
    job->first_step = rest->first_step;
    job->saved_step = rest->saved_step;
    job->scale = rest->scale;
    job->record = rest->record;
    test->loss = rest->test[0];
    test->accuracy = rest->test[1];
    test->perplexity = rest->test[2];
    test->weight = rest->test[3];
    job->hashed_step = -1;
    /* The line of the step that this rank did not see the end of. */
    return behind && job->metrics ? tri_metrics_write(job->metrics, &job->record) : TRI_OK;
}

static int64_t count_of(const tri_job *job, int array)
{
    return array == 0 ? job->params->count : tri_optim_count(job->optim);
}

/* A rank that is a step behind keeps what it has until everything is there: it may be the last that has anything. A
 * newcomer has nothing to lose. */
static tri_status arrays_move(tri_job *job, tri_group *group, tri_job_arrays *arrays, float **rooms)
{
    bool stages = job->elastic.has_state && tri_group_rank(group) > 0;
    for (int i = 0; stages && i < arrays->count; i++)
        if (!(rooms[i] = tri_alloc_bulk((size_t)count_of(job, i) * sizeof(float))))
            return TRI_ENOMEM;
    if (tri_group_rank(group) > 0 && !stages)
        job->elastic.touched = true;
    state_rest rest = rest_of(job);
    TRI_TRY(tri_broadcast(group, &rest, sizeof(rest), TRI_U8, 0, NULL));
    for (int i = 0; i < arrays->count; i++)
        TRI_TRY(tri_broadcast(group, stages ? rooms[i] : arrays->views[i].host, count_of(job, i), TRI_F32, 0, NULL));
    for (int i = 0; stages && i < arrays->count; i++)
        memcpy(arrays->views[i].host, rooms[i], (size_t)count_of(job, i) * sizeof(float));
    if (tri_group_rank(group) == 0)
        return TRI_OK;
    tri_job_arrays_written(arrays);
    return rest_take(job, &rest);
}

static tri_status state_move(tri_job *job, tri_group *group)
{
    tri_job_arrays arrays;
    float *rooms[1 + TRI_OPTIM_MAX_STATE] = {NULL};
    tri_status status = tri_job_arrays_open(job, true, &arrays);
    tri_group_name_next(group, "state");
    if (status == TRI_OK)
        status = arrays_move(job, group, &arrays, rooms);
    tri_group_name_next(group, "");
    tri_job_arrays_close(&arrays);
    for (size_t i = 0; i < TRI_COUNT_OF(rooms); i++)
        tri_free(rooms[i]);
    return status;
}

/* The ranks that go behind the newest state, and in front of them one that has it. */
static int needy_find(const tri_job *job, const int64_t *progress, int64_t newest, int *ranks, bool *own)
{
    int count = 1;
    ranks[0] = -1;
    *own = false;
    for (int r = 0; r < job->world; r++) {
        bool needs = step_of(progress[r]) < newest;
        if (needs)
            ranks[count++] = r;
        else if (ranks[0] < 0)
            ranks[0] = r;
        *own = *own || (r == job->rank && (needs || ranks[0] == r));
    }
    return count;
}

static tri_status state_share(tri_job *job, const int64_t *progress, int64_t newest)
{
    bool own;
    tri_group *group;
    int *ranks = tri_alloc((size_t)(job->world + 1) * sizeof(int));
    if (!ranks)
        return TRI_ENOMEM;
    int count = needy_find(job, progress, newest, ranks, &own);
    tri_status status = TRI_OK;
    if (own && count > 1) {
        status = tri_group_create_of(job->comm, ranks, count, "state", &group);
        if (status == TRI_OK) {
            status = state_move(job, group);
            tri_group_destroy(group);
        }
    }
    tri_free(ranks);
    return status;
}

/* Nobody has a state: that of the seed, of model.from, or the newest checkpoint. */
static tri_status state_begin(tri_job *job, const tri_job_generation *generation)
{
    char folder[1200];
    const char *from = job->elastic.resume;
    int64_t found = from != NULL;
    job->elastic.touched = true;
    if (!from && job->run_folder && generation->number > 1) {
        char *path = NULL;
        from = job->run_folder;
        snprintf(folder, sizeof(folder), "%s/checkpoints", from);
        if (job->rank == 0 && tri_fs_exists(folder) && tri_checkpoint_newest(folder, &path, NULL) == TRI_OK)
            found = 1;
        tri_free(path);
        TRI_TRY(tri_broadcast(job->group, &found, 1, TRI_I64, 0, NULL));
    }
    if (found)
        TRI_TRY(tri_job_resume(job, from));
    else
        TRI_TRY(tri_job_weights_find(job));
    if (generation->number > 1 && job->rank == 0)
        tri_log(TRI_LOG_WARN, "none of the workers so far is left: the run goes on from step %lld%s",
                (long long)job->step, found ? ", its newest checkpoint" : "");
    return TRI_OK;
}

static tri_status state_find(tri_job *job, const tri_job_generation *generation)
{
    int64_t newest = -1;
    bool acted = true;
    for (int r = 0; r < job->world; r++)
        if (step_of(generation->progress[r]) > newest)
            newest = step_of(generation->progress[r]);
    for (int r = 0; r < job->world; r++)
        if (step_of(generation->progress[r]) == newest && newest >= 0 && generation->progress[r] % 2 == 0)
            acted = false;
    TRI_TRY(newest < 0 ? state_begin(job, generation) : state_share(job, generation->progress, newest));
    job->acted = acted;
    if (!acted)
        job->saved_step = -1; /* whoever was to save it may be gone */
    return TRI_OK;
}

/* --- generations --- */

void tri_job_unform(tri_job *job)
{
    if (job->saver && job->elastic.on) /* what is being saved may be given up */
        job->saved_step = -1;
    tri_job_saver_close(job);
    tri_loader_close(job->loader);
    tri_loader_close(job->test.loader);
    tri_free(job->test.sums);
    tri_job_verify_close(job);
    tri_sync_destroy(job->sync);
    tri_graph_destroy(job->graph);
    tri_pipeline_destroy(job->pipeline);
    tri_tensor_ranks_destroy(job->tensor);
    tri_job_inventories_close(job);
    for (int level = 0; job->waves.scratch && level < job->waves.levels; level++)
        job->params->device->free(job->waves.scratch[level]);
    tri_free(job->waves.scratch);
    tri_job_sample_close(job);
    tri_free(job->norm_blocks);
    tri_job_batch_sums_close(job);
    tri_mesh_close(&job->mesh);
    job->loader = job->test.loader = NULL;
    job->test.sums = job->norm_blocks = NULL;
    job->sync = NULL;
    job->graph = NULL;
    job->pipeline = NULL;
    job->tensor = NULL;
    job->waves = (tri_job_waves){0};
    job->waited_ns = 0;
    job->comm = NULL;
    job->group = NULL;
}

static tri_status ranks_take(tri_job *job, tri_comm *comm)
{
    job->comm = comm;
    job->group = tri_comm_world(comm);
    job->rank = tri_group_rank(job->group);
    job->world = tri_group_count(job->group);
    job->stop_wanted = job->elastic.ends = false;
    TRI_TRY(tri_config_check(&job->config, job->world));
    TRI_TRY(tri_mesh_open(&job->config.parallel, comm, &job->mesh));
    job->threads = tri_job_threads(&job->config, tri_comm_local_count(comm));
    tri_job_split_shards(job);
    job->sampler.count = job->elastic.data->info.count;
    if (job->rank > 0) {
        tri_console_close(job->console);
        job->console = NULL;
        job->figures.peak = 0;
        if (job->metrics)
            tri_metrics_yield(job->metrics);
        tri_job_show_yield(job);
    }
    return TRI_OK;
}

tri_status tri_job_form(tri_job *job, tri_comm *comm, const tri_job_generation *generation)
{
    job->elastic.number = generation->number;
    TRI_TRY(ranks_take(job, comm));
    if (!job->elastic.has_state && job->elastic.touched) {
        store_close(job);
        TRI_TRY(store_open(job));
        job->elastic.touched = false;
    }
    TRI_TRY(tri_job_build_graph(job));
    TRI_TRY(tri_job_sample_plan(job, NULL, &job->info));
    TRI_TRY(tri_job_form_moves(job));
    TRI_TRY(tri_job_inventories_open(job));
    TRI_TRY(state_find(job, generation));
    if (job->metrics && job->rank == 0)
        TRI_TRY(tri_metrics_lead(job->metrics, job->step));
    TRI_TRY(tri_job_check_equal(job)); /* before which no newcomer has a state, which has not seen the lines so far */
    job->elastic.has_state = true;
    return tri_job_form_run(job, job->elastic.data, job->elastic.console);
}

bool tri_job_is_over(const tri_job *job)
{
    return job->elastic.has_state && job->acted && job->step >= job->steps;
}

/* How long everybody was held up. */
static void first_step_tell(tri_job *job)
{
    tri_job_elastic *elastic = &job->elastic;
    if (elastic->lost_ns > 0 && job->rank == 0)
        tri_log(TRI_LOG_INFO, "generation %lld goes on: step %lld is made, %.0f ms after it was called",
                (long long)elastic->number, (long long)job->step, (double)(tri_now_ns() - elastic->lost_ns) / 1e6);
    elastic->lost_ns = 0;
}

/* One generation's part of the run: until its end, or the ranks shall be others. */
static tri_status generation_run(tri_job *job)
{
    bool done = job->step >= job->steps;
    if (!job->acted)
        TRI_TRY(tri_job_actions_run(job));
    while (!done && !job->stop_wanted && !job->elastic.ends) {
        TRI_TRY(tri_job_step(job, &done));
        first_step_tell(job);
    }
    if (done)
        job->elastic.ends = false;
    if (job->elastic.ends && !job->stop_wanted)
        return TRI_OK;
    if (!done)
        TRI_TRY(tri_job_save(job));
    else
        TRI_TRY(tri_job_print_result(job));
    /* Nobody leaves before rank 0 has done its part: if it cannot, another one does it. */
    if (job->world > 1)
        TRI_TRY(tri_barrier(job->group, NULL));
    return done ? TRI_OK : tri_job_stopped(job);
}

tri_status tri_job_run_generation(tri_job *job)
{
    tri_status status = generation_run(job);
    if (status != TRI_OK && job->world > 1)
        tri_comm_abort(job->comm, status, tri_last_error());
    return status;
}

tri_status tri_job_give_up(tri_job *job, int least)
{
    TRI_TRY(tri_job_save(job));
    if (tri_stop_signal())
        return tri_job_stopped(job);
    return tri_fail(TRI_EPEER, "%d worker%s left after step %lld, want at least %d (--elastic)%s", job->world,
                    job->world == 1 ? " is" : "s are", (long long)job->step, least,
                    job->run_folder ? "; the step is saved: --resume goes on" : "");
}
