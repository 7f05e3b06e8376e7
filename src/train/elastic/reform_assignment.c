/* SPDX-License-Identifier: Apache-2.0
 *
 * reform_assignment.c: a generation of a job whose state is spread over its ranks: they take roles in a layout of their
 * own number, and fill them from what those that are left had in theirs and in their mirrors.
 *
 * What a process had stays until it is in the store that all ranks have theirs: whoever dies meanwhile, all that
 * are left have the older one, or all have the newer one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/core/build.h"
#include "train/core/features.h"
#include "train/core/step.h"
#include "train/elastic/elastic.h"
#include "train/elastic/mirrors_verify.h"
#include "train/elastic/reform.h"
#include "train/elastic/reform_assignment.h"

/* --- what the configuration asks for --- */

static bool is_spread(const tri_config *config)
{
    const tri_parallel_config *parallel = &config->parallel;
    return tri_sync_spread(parallel, 2) != TRI_SPREAD_NOTHING || parallel->tensor != 1 || parallel->pipeline != 1;
}

static tri_mesh wish_of(const tri_config *config)
{
    return (tri_mesh){.tensor = (int)config->parallel.tensor, .pipeline = (int)config->parallel.pipeline};
}

/* With zero3 all ranks go through the weights equally often. */
static bool is_even(const tri_config *config)
{
    return tri_sync_spread(&config->parallel, 2) == TRI_SPREAD_WEIGHTS &&
           (config->train.shards_at_once > 0 || config->parallel.pipeline != 1);
}

static tri_status configure(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    assignment->mirrored = -1;
    if (!job->elastic.on)
        return TRI_OK;
    TRI_TRY(tri_elastic_check(&job->config));
    assignment->on = is_spread(&job->config);
    if (!assignment->on)
        return TRI_OK;
    assignment->wish = wish_of(&job->config);
    assignment->even = is_even(&job->config);
    memcpy(assignment->cut_at, job->config.parallel.cut_at, sizeof(assignment->cut_at));
    return tri_job_assignment_lay(job, 1);
}

int tri_job_assignment_fit(const tri_job *job, int ranks)
{
    const tri_job_assignment *assignment = &job->assignment;
    tri_mesh mesh;
    return assignment->on ? tri_assignment_layout(&assignment->wish, ranks, assignment->even, &mesh) : ranks;
}

tri_status tri_job_assignment_lay(tri_job *job, int ranks)
{
    tri_job_assignment *assignment = &job->assignment;
    tri_parallel_config *parallel = &job->config.parallel;
    tri_mesh mesh;
    if (!assignment->on)
        return TRI_OK;
    (void)tri_assignment_layout(&assignment->wish, ranks, assignment->even, &mesh);
    parallel->tensor = mesh.tensor;
    parallel->pipeline = mesh.pipeline;
    memcpy(parallel->cut_at, assignment->cut_at, sizeof(parallel->cut_at));
    if (mesh.pipeline != assignment->wish.pipeline) /* layers to cut at are given for that number of stages */
        snprintf(parallel->cut_at, sizeof(parallel->cut_at), "[]");
    return TRI_OK;
}

/* --- what a process has --- */

/* Is there a step that this set can make? */
static bool is_due(const tri_job *job, const tri_shard_set *set)
{
    return set->what.generation > 0 && job->assignment.uncommitted.generation == set->what.generation;
}

tri_assignment_note tri_job_assignment_note(const tri_job *job)
{
    const tri_job_assignment *assignment = &job->assignment;
    tri_assignment_note note = {{assignment->kept.what}};
    if (assignment->formed) {
        note.sets[1] = assignment->now.what;
        note.sets[1].step = job->step;
        note.sets[1].next = job->progress.phase == TRI_STEP_READY || is_due(job, &assignment->now);
    }
    return note;
}

/* What was here before is all that there is; so are the figures beside it. */
static tri_status kept_take(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    assignment->formed = false;
    if (assignment->kept.what.generation == 0)
        return TRI_OK;
    TRI_TRY(tri_scalar_state_take(job, &assignment->kept_scalars, false));
    job->progress.acted = assignment->kept_acted;
    return TRI_OK;
}

/* All have theirs: what was before is of no use to anybody. */
static void kept_close(tri_job *job)
{
    tri_shard_set_close(&job->assignment.kept);
    tri_uncommitted_step_close(job);
    job->assignment.settled = true;
}

/* Which of the two sets counts. */
static tri_status sets_resolve(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    bool stands = true;
    if (assignment->settled)
        return TRI_OK;
    if (assignment->formed)
        TRI_TRY(job->elastic.formed(job->elastic.called_arg, false, &stands));
    if (!assignment->formed || !stands)
        return kept_take(job);
    kept_close(job);
    if (job->elastic.place) /* nobody has reported it, so nothing was logged then */
        job->elastic.place->stepped(job->elastic.place->arg, job);
    return TRI_OK;
}

tri_status tri_job_assignment_resolve(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    if (!assignment->on)
        return TRI_OK;
    TRI_TRY(sets_resolve(job));
    if (assignment->formed)
        tri_job_mirrors_check(job, &assignment->now, job->step);
    if (assignment->kept.what.generation > 0)
        tri_job_mirrors_check(job, &assignment->kept, assignment->kept.what.step);
    return TRI_OK;
}

/* The set that is kept is that after job->step. */
static void kept_note(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    assignment->kept.what.step = job->step;
    assignment->kept.what.next = is_due(job, &assignment->kept);
    assignment->kept_scalars = tri_scalar_state_of(job);
    assignment->kept_acted = job->progress.acted;
}

tri_status tri_job_decide(tri_job *job, const tri_job_generation *generation)
{
    tri_job_assignment *assignment = &job->assignment;
    if (!assignment->on)
        return TRI_OK;
    assignment->state = tri_assignment_find(generation->notes, generation->count);
    if (assignment->formed && job->progress.phase == TRI_STEP_READY)
        TRI_TRY(tri_uncommitted_step_keep(job));
    job->progress.phase = TRI_STEP_OPEN;
    bool made = assignment->state.generation == assignment->uncommitted.generation &&
                assignment->state.step == assignment->uncommitted.under_way.step + 1;
    if (assignment->uncommitted.generation == 0 || !made)
        return TRI_OK;
    if (assignment->formed && is_due(job, &assignment->now))
        return tri_uncommitted_step_make(job, &assignment->now);
    TRI_TRY(tri_uncommitted_step_make(job, &assignment->kept));
    kept_note(job);
    return TRI_OK;
}

/* The job's own store is the set's. */
static void now_close(tri_job *job)
{
    tri_shard_set_close(&job->assignment.now);
    job->assignment.formed = false;
    job->params = NULL;
    job->optim = NULL;
    tri_shares_fini(&job->placement.shares);
}

/* What was of use before becomes what is kept; of two, the one that the generation continues, or the newer. */
static void sets_keep(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    bool older =
        assignment->kept.what.generation > 0 && assignment->kept.what.generation == assignment->state.generation;
    if (!assignment->formed || older) {
        now_close(job);
        return;
    }
    tri_shard_set_close(&assignment->kept);
    assignment->kept = assignment->now;
    assignment->now = (tri_shard_set){0};
    kept_note(job);
    now_close(job);
}

static void assignment_free(tri_job *job)
{
    if (!job->assignment.on)
        return;
    now_close(job);
    tri_shard_set_close(&job->assignment.kept);
    tri_uncommitted_step_close(job);
}

/* --- a layout --- */

/* Do ranks give each other the rest of the weights, as after a step? What nobody moves does not travel then. */
static bool is_gathered(const tri_job *job)
{
    bool gathered = job->placement.spread == TRI_SPREAD_STATE || job->placement.spread == TRI_SPREAD_GRADIENTS;
    for (int e = 0; e < job->params->entry_count; e++)
        gathered = gathered && !job->params->entries[e].frozen;
    return gathered;
}

/* Of this rank's role; the mirror's. */
static tri_status shards_build(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    tri_slice *share;
    int count;
    tri_tensors_fini(&job->model.tensors);
    tri_free(job->model.frozen);
    job->model.frozen = NULL;
    TRI_TRY(tri_job_build_store(job, &job->elastic.data->info));
    TRI_TRY(tri_job_open_optim(job));
    TRI_TRY(tri_shares_of(&job->placement.shares, tri_mesh_zero_rank(&job->mesh), &share, &count));
    TRI_TRY(tri_state_shard_make(&job->model.tensors, job->params, job->optim, share, count, !is_gathered(job),
                                 &assignment->now.own));
    return assignment->mirrored < 0 ? TRI_OK : tri_job_build_mirror(job, assignment->mirrored, &assignment->now.mirror);
}

/* Data ranks over which nothing is spread are replicas: they have the same role. */
static tri_mesh mesh_of_roles(const tri_job *job)
{
    tri_mesh mesh = job->mesh;
    if (tri_sync_spread(&job->config.parallel, 2) == TRI_SPREAD_NOTHING)
        mesh.zero = 1;
    return mesh;
}

static tri_status mirrored_find(tri_job *job, const tri_mesh *mesh)
{
    int *host = tri_alloc((size_t)job->world * 3 * sizeof(int)), *room = host + job->world, *of = room + job->world;
    if (!host)
        return TRI_ENOMEM;
    tri_status status = tri_group_hosts_first(job->group, host);
    if (status == TRI_OK) {
        (void)tri_assignment_mirror(mesh, host, room, of);
        job->assignment.mirrored = of[job->rank];
    }
    tri_free(host);
    return status;
}

tri_status tri_job_assignment_build(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    const tri_mesh mesh = mesh_of_roles(job);
    sets_keep(job);
    assignment->settled = false;
    TRI_TRY(mirrored_find(job, &mesh));
    int mirror = assignment->mirrored < 0 ? -1 : tri_role_of(&mesh, assignment->mirrored);
    assignment->now.what = (tri_assignment_set){.generation = job->elastic.number,
                                                .roles = tri_role_count(&mesh),
                                                .own = tri_role_of(&mesh, job->rank),
                                                .mirror = mirror};
    tri_status status = shards_build(job);
    if (status != TRI_OK && !assignment->now.own.params) { /* not the set's yet */
        tri_optim_destroy(job->optim);
        tri_params_destroy(job->params);
    }
    return status;
}

/* --- its contents --- */

static int states_of(const tri_job *job)
{
    int count = 0;
    while (tri_optim_state_name(job->optim, count))
        count++;
    return count;
}

static const tri_state_shard *shard_of(const tri_state_shard *shard)
{
    return shard->params ? shard : NULL;
}

/* What has changed in memory (role -1) is not given. */
static const tri_state_shard *source_of(bool gives, const tri_state_shard *shard, int role)
{
    return gives && role >= 0 ? shard_of(shard) : NULL;
}

/* From all that have something of the state to all. */
static tri_status state_take(tri_job *job, const tri_job_generation *generation)
{
    tri_job_assignment *assignment = &job->assignment;
    bool gives = assignment->kept.what.generation == assignment->state.generation &&
                 assignment->kept.what.step == assignment->state.step;
    bool had = assignment->kept.what.generation > 0, acted = true;
    const tri_state_shard *from[2] = {source_of(gives, &assignment->kept.own, assignment->kept.what.own),
                                      source_of(gives, &assignment->kept.mirror, assignment->kept.what.mirror)};
    const tri_state_shard *to[2] = {shard_of(&assignment->now.own), shard_of(&assignment->now.mirror)};
    int first = -1;
    for (int r = 0; r < job->world; r++) {
        const tri_assignment_set *source = tri_assignment_source(&generation->notes[r], &assignment->state);
        if (!source)
            continue;
        bool done = source->step == assignment->state.step && generation->progress[r] % 2 == 1;
        first = first < 0 ? r : first;
        acted = acted && done;
    }
    tri_scalar_state scalars = tri_scalar_state_of(job);
    if (job->rank == first && tri_job_state_is_news(job, generation->progress, assignment->state.step))
        TRI_TRY(tri_job_lines_settle(job));
    TRI_TRY(tri_state_shards_move(job->group, &job->model.tensors, from, to, states_of(job)));
    if (is_gathered(job)) {
        TRI_TRY(job->sync->ops->publish(job->sync));
        TRI_TRY(tri_job_settle(job));
    }
    TRI_TRY(tri_broadcast(job->group, &scalars, sizeof(scalars), TRI_U8, first, NULL));
    if (!gives)
        TRI_TRY(tri_scalar_state_take(job, &scalars, had));
    job->placement.hashed_step = -1;
    job->progress.acted = acted;
    if (!job->progress.acted)
        job->progress.saved_step = -1; /* whoever was to save it may be gone */
    return TRI_OK;
}

/* What is here of a state that cannot be had is of no use. */
static void lost_tell(const tri_job *job, bool found)
{
    const tri_assignment_state *state = &job->assignment.state;
    char first[32] = "", outcome[96];
    if (job->rank != 0)
        return;
    if (state->lost < state->roles)
        snprintf(first, sizeof(first), " (%d%s)", state->first_lost, state->lost > 1 ? ", ..." : "");
    if (found)
        snprintf(outcome, sizeof(outcome), ": the run continues from step %lld, its newest checkpoint",
                 (long long)job->step);
    else
        snprintf(outcome, sizeof(outcome),
                 ", and there is no checkpoint (checkpoint.every_steps): the run starts again from step 0");
    tri_log(TRI_LOG_WARN,
            "%d of the %d parts%s of the state after step %lld are lost with the workers that held them and their "
            "mirrors%s",
            state->lost, state->roles, first, (long long)state->lost_step, outcome);
}

/* Nobody has a state, or not all of one. */
static tri_status state_begin(tri_job *job, const tri_job_generation *generation)
{
    tri_job_assignment *assignment = &job->assignment;
    bool found, partial = assignment->state.lost_step > 0;
    const tri_state_shard *own[2] = {shard_of(&assignment->now.own), NULL};
    const tri_state_shard *mirror[2] = {shard_of(&assignment->now.mirror), NULL};
    TRI_TRY(tri_job_state_begin(job, generation->number, &found));
    if (partial)
        lost_tell(job, found);
    else
        tri_job_begin_tell(job, generation->number, found);
    job->progress.acted = true;
    return tri_state_shards_move(job->group, &job->model.tensors, own, mirror, states_of(job));
}

tri_status tri_job_assignment_find(tri_job *job, const tri_job_generation *generation)
{
    tri_job_assignment *assignment = &job->assignment;
    bool behind = false;
    if (assignment->state.generation > 0)
        TRI_TRY(tri_job_is_behind(job, generation->number, assignment->state.step, &behind));
    TRI_TRY(assignment->state.generation > 0 && !behind ? state_take(job, generation) : state_begin(job, generation));
    assignment->formed = true;
    tri_job_mirrors_written(job, &assignment->now, job->step);
    return TRI_OK;
}

/* The rank that asks has heard that all have theirs. */
tri_status tri_job_assignment_settle(tri_job *job)
{
    int64_t word = 1;
    bool stands = true;
    if (!job->assignment.on)
        return TRI_OK;
    if (job->world > 1 && job->rank == 0)
        TRI_TRY(job->elastic.formed(job->elastic.called_arg, true, &stands));
    word = stands;
    if (job->world > 1)
        TRI_TRY(tri_broadcast(job->group, &word, 1, TRI_I64, 0, NULL));
    job->elastic.given_up = word == 0;
    if (word == 0)
        return tri_fail(TRI_EPEER, "generation %lld is given up: one of it has lost another before all had their parts",
                        (long long)job->elastic.number);
    kept_close(job);
    return TRI_OK;
}

/* --- leaving --- */

/* Where several want to leave, partners take turns. */
static tri_status turns_agree(tri_job *job)
{
    tri_job_elastic *elastic = &job->elastic;
    size_t ranks = (size_t)job->world;
    int64_t mine[3] = {job->assignment.now.what.own, job->assignment.now.what.mirror, elastic->wished};
    int64_t *all = tri_alloc(ranks * sizeof(mine));
    tri_assignment_set *sets = tri_alloc_zero(ranks, sizeof(*sets));
    bool *leaves = tri_alloc_zero(ranks, sizeof(*leaves));
    tri_status status = all && sets && leaves ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_all_gather(job->group, mine, all, 3, TRI_I64, NULL);
    for (int r = 0; status == TRI_OK && r < job->world; r++) {
        sets[r] = (tri_assignment_set){.own = (int)all[3 * r], .mirror = (int)all[3 * r + 1]};
        leaves[r] = all[3 * r + 2] != 0;
    }
    if (status == TRI_OK) {
        tri_assignment_leave(sets, job->world, leaves);
        elastic->leaves = leaves[job->rank];
    }
    tri_free(all);
    tri_free(sets);
    tri_free(leaves);
    return status;
}

tri_status tri_job_leave_agree(tri_job *job)
{
    tri_job_elastic *elastic = &job->elastic;
    elastic->leaves = tri_job_has_own_weights(job) ? job->sync->called >= 1 : elastic->wished;
    if (job->assignment.on && elastic->leavers > 1)
        TRI_TRY(turns_agree(job));
    if (!elastic->leaves)
        return TRI_OK;
    tri_features_files_yield(job); /* the others continue as soon as it says that it leaves */
    return TRI_OK;
}

const tri_feature tri_feature_assignment = {.configure = configure, .free = assignment_free};
