/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pipeline.c: models in stages on several ranks: after some steps the weights, the norm and the sums of an
 * evaluation are those of one process to the bit, for each schedule, number of ranks, micro-batches and parts.
 */
#include "parallel/pipeline_impl.h"

#include <stdio.h>

#include "optim/optim.h"
#include "parallel/sync.h"
#include "ranks/comm_spawn.h"
#include "unit/nn/nn_rig.h"

#define STEPS 3

typedef struct trial {
    rig_model_fn make;
    int64_t classes;
    tri_dtype precision;
    tri_pipe_kind schedule;
    int each, micro_shards;
    int data;         /* pipelines that share the batch; rank r is stage r % stages of pipeline r / stages */
    const char *sync; /* between them */
    int part_count;
    tri_tree_part parts[4];
    const char *frozen; /* parameters whose names begin so stand still */
    int fails_at;       /* the rank whose second step fails; 0: none */
    /* of one process: */
    const rig *whole;
    const float *start;
    double norm;
    const float (*sums)[4];
} trial;

static void freeze(const trial *t, tri_params *params)
{
    for (int e = 0; e < params->entry_count; e++)
        params->entries[e].frozen = t->frozen && strncmp(params->entries[e].name, t->frozen, strlen(t->frozen)) == 0;
}

/* Plain descent over all that is here; statistics are followed as by an optimizer. */
static void weights_move(tri_params *params, const float *sums, tri_sync_slice slice)
{
    const float *tail = sums + tri_params_grad_count(params);
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        for (int64_t i = entry->first; !entry->frozen && i < entry->first + entry->count; i++) {
            if (i < slice.first || i >= slice.first + slice.count)
                continue;
            if (entry->buffer)
                params->values[i] = 0.9f * params->values[i] + 0.1f * (sums[i] / tail[TRI_TAIL_SHARDS]);
            else
                params->values[i] -= 0.1f * (sums[i] / tail[TRI_TAIL_WEIGHT]);
        }
    }
}

static tri_graph_config trial_config(const trial *t)
{
    tri_graph_config config = rig_config("cpu", 1);
    config.precision = t->precision;
    config.shards = t->micro_shards;
    return config;
}

/* --- one rank --- */

typedef struct stage {
    tri_group *pipe_group, *data_group; /* NULL: the world is one pipeline */
    int rank, ranks, replica;
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int part_count;
    tri_batch batch;
    tri_sync *sync; /* NULL: nobody shares the batch */
    tri_model *model;
    tri_params *params;
    tri_pipeline *pipeline;
    float *grads[4];
    double *blocks;
    int seen[64]; /* by `ready` */
    int early;    /* of these, while something was still to be computed */
    int tail;
} stage;

static void seen_ready(void *arg, int number)
{
    stage *s = arg;
    bool open = false;
    for (int c = 0; c < s->pipeline->each; c++)
        open = open || s->pipeline->chunks[c].done[1] < s->pipeline->micro_count;
    s->early += open && number < s->tail;
    s->seen[number]++;
    if (s->sync)
        s->sync->ops->ready(s->sync, number);
}

/* The shards of this pipeline among those that share the batch. */
static void shards_share_out(const trial *t, stage *s)
{
    const tri_value_spec *values = s->model->values.items;
    int64_t each = RIG_ROWS * 4, first = tri_tree_first(RIG_SHARDS, s->replica, t->data);
    int64_t count = tri_tree_count(RIG_SHARDS, s->replica, t->data);
    s->batch = t->whole->batch;
    s->part_count = t->part_count;
    memcpy(s->parts, t->parts, sizeof(t->parts));
    if (t->data == 1)
        return;
    s->part_count = tri_tree_parts(RIG_SHARDS, first, count, s->parts);
    for (int p = 0; p < s->part_count; p++)
        s->parts[p].first -= first;
    s->batch.shards = (int)count;
    s->batch.rows += first;
    s->batch.first_sample += first;
    s->batch.input = (const char *)s->batch.input + each * first * tri_shape_count(values[s->model->input].sample);
    s->batch.target = (const char *)s->batch.target + each * first * tri_shape_count(values[s->model->target].sample);
}

static tri_status groups_open(spawn_rank *self, const trial *t, tri_comm *comm, stage *s)
{
    int pipe[8], data[8];
    s->ranks = self->world / t->data;
    s->rank = self->rank % s->ranks;
    s->replica = self->rank / s->ranks;
    for (int r = 0; r < s->ranks; r++)
        pipe[r] = s->replica * s->ranks + r;
    for (int d = 0; d < t->data; d++)
        data[d] = d * s->ranks + s->rank;
    TRI_TRY(tri_group_create_of(comm, pipe, s->ranks, "pipe", &s->pipe_group));
    return tri_group_create_of(comm, data, t->data, "data", &s->data_group);
}

static tri_status sync_open(const trial *t, stage *s)
{
    tri_parallel_config config;
    tri_options_defaults(&tri_parallel_options, &config);
    TRI_TRY(tri_options_set(&tri_parallel_options, &config, "sync", t->sync));
    config.bucket_kib = 1;
    tri_sync_setup setup = {.config = &config,
                            .group = s->data_group,
                            .zero = s->data_group,
                            .params = s->params,
                            .leaves = RIG_SHARDS,
                            .part_count = s->part_count,
                            .whole_gradients = true,
                            .threads = 1};
    return tri_sync_create(&setup, &s->sync);
}

static bool stage_open(spawn_rank *self, const trial *t, tri_comm *comm, stage *s)
{
    bool wanted[64], frozen[64] = {false};
    tri_sections sections;
    tri_stages stages;
    tri_graph_config config = trial_config(t);
    s->model = t->make();
    tri_status status = tri_model_finish(s->model);
    SPAWN_CHECK(self, groups_open(self, t, comm, s) == TRI_OK);
    shards_share_out(t, s);
    const tri_param_spec *specs = s->model->params.items;
    for (size_t p = 0; t->frozen && p < s->model->params.count; p++)
        frozen[p] = strncmp(specs[p].name, t->frozen, strlen(t->frozen)) == 0;
    config.frozen = frozen;
    SPAWN_CHECK(self, status == TRI_OK && tri_sections_find(s->model, &config, &sections) == TRI_OK);
    status = tri_stages_choose(&sections, s->ranks, t->each, &stages);
    tri_sections_fini(&sections);
    SPAWN_CHECK(self, status == TRI_OK);
    tri_stages_wanted(s->model, &stages, s->ranks, s->rank, wanted);
    SPAWN_CHECK(self, tri_params_create_some(s->model, wanted, tri_device_host(), 1, &s->params) == TRI_OK);
    tri_stages_mark(s->model, &stages, s->ranks, s->rank, s->params);
    freeze(t, s->params);
    tri_pipeline_setup setup = {.group = s->pipe_group,
                                .model = s->model,
                                .stages = &stages,
                                .params = s->params,
                                .graph = &config,
                                .schedule = t->schedule,
                                .parts = s->parts,
                                .part_count = s->part_count,
                                .overlap = t->data > 1,
                                .even = RIG_SHARDS % t->data == 0};
    status = tri_pipeline_create(&setup, &s->pipeline);
    if (status == TRI_OK && t->data > 1)
        status = sync_open(t, s);
    if (status != TRI_OK)
        fprintf(stderr, "rank %d: %s\n", self->rank, tri_last_error());
    SPAWN_CHECK(self, status == TRI_OK);
    for (int p = 0; p < s->part_count; p++) {
        int64_t count = tri_params_grad_count(s->params) + TRI_PARAMS_TAIL;
        s->grads[p] = s->sync ? s->sync->grads[p] : malloc((size_t)count * sizeof(float));
        for (int64_t i = 0; i < count; i++)
            s->grads[p][i] = NAN; /* whatever is not written shows */
    }
    s->blocks = malloc((size_t)s->params->block_count * sizeof(double));
    s->tail = tri_params_tail(s->params);
    return status == TRI_OK;
}

static void stage_close(stage *s)
{
    tri_pipeline_destroy(s->pipeline);
    for (int p = 0; p < 4 && !s->sync; p++)
        free(s->grads[p]);
    tri_sync_destroy(s->sync);
    tri_group_destroy(s->pipe_group);
    tri_group_destroy(s->data_group);
    free(s->blocks);
    tri_params_destroy(s->params);
    tri_model_destroy(s->model);
}

/* The sum over all that share the batch; nobody else: over the parts. */
static tri_status parts_join(stage *s, tri_sync_slice *slice)
{
    tri_tree_step steps[4];
    *slice = (tri_sync_slice){0, s->params->count};
    if (s->sync)
        return s->sync->ops->finish(s->sync, slice);
    int count = tri_tree_plan(s->parts, s->part_count, steps);
    for (int i = 0; i < count; i++)
        tri_vector_add(1, s->grads[steps[i].into], s->grads[steps[i].into], s->grads[steps[i].from],
                       tri_params_grad_count(s->params) + TRI_PARAMS_TAIL);
    return TRI_OK;
}

static float *sum_find(void *arg, int number, int64_t *count)
{
    stage *s = arg;
    const tri_params *params = s->params;
    if (s->sync && s->sync->ops->sum)
        return s->sync->ops->sum(s->sync, number, count);
    int entry = number < params->entry_count ? number : params->ties[number - params->entry_count].entry;
    *count = params->entries[entry].count;
    return s->grads[0] + tri_params_grad_first(params, number);
}

/* Of what this rank has, then of what its data group has. */
static tri_status squares_find(stage *s)
{
    bool pieces = s->sync && s->sync->pieces;
    memset(s->blocks, 0, (size_t)s->params->block_count * sizeof(double));
    if (!pieces)
        tri_clip_squares(s->params, s->grads[0], 0, s->params->count, s->blocks, 1);
    for (int i = 0; pieces && i < s->sync->piece_count; i++) {
        tri_slice slice = s->sync->pieces[i].slice;
        for (int e = 0; e < s->params->entry_count; e++) {
            tri_slice here = tri_param_within(&s->params->entries[e], slice);
            if (here.count > 0)
                tri_clip_squares(s->params, s->grads[0] + here.first, here.first, here.count, s->blocks, 1);
        }
    }
    if (!pieces)
        return TRI_OK;
    return tri_all_reduce(s->data_group, s->blocks, s->blocks, s->params->block_count, TRI_F64, TRI_REDUCE_SUM, NULL);
}

static tri_status fails(void *arg, int entry, const float **values)
{
    (void)entry;
    (void)values;
    return tri_fail(TRI_EIO, "rank %d: the weights cannot be read", *(int *)arg);
}

static tri_status stage_step(spawn_rank *self, const trial *t, stage *s, int step)
{
    memset(s->seen, 0, sizeof(s->seen));
    s->early = 0;
    tri_batch batch = s->batch;
    tri_sync_slice slice;
    if (s->sync)
        TRI_TRY(s->sync->ops->begin(s->sync));
    batch.input = tri_pipeline_reads_input(s->pipeline) ? batch.input : NULL;
    batch.target = tri_pipeline_reads_target(s->pipeline) ? batch.target : NULL;
    TRI_TRY(tri_pipeline_train(s->pipeline, &batch, (uint64_t)step, s->grads, seen_ready, s));
    for (int number = 0; number < s->tail; number++) {
        bool away = number < s->params->entry_count ? s->params->entries[number].away
                                                    : s->params->ties[number - s->params->entry_count].away;
        SPAWN_CHECK(self, s->seen[number] == !away);
    }
    SPAWN_CHECK(self, s->seen[s->tail] == 1);
    bool between = t->each > 1 && RIG_SHARDS % t->data == 0;
    SPAWN_CHECK(self, (s->early > 0) == (t->data > 1 && (s->rank == 0 || between)));
    TRI_TRY(parts_join(s, &slice));
    tri_pipeline_sums sums = {.tail = s->grads[0] + tri_params_grad_count(s->params), .find = sum_find, .arg = s};
    TRI_TRY(tri_pipeline_share(s->pipeline, &sums));
    if (s->sync && s->sync->ops->fold)
        s->sync->ops->fold(s->sync);
    else
        tri_params_fold(s->params, 1, s->grads[0]);
    TRI_TRY(squares_find(s));
    TRI_TRY(tri_all_reduce(s->pipe_group, s->blocks, s->blocks, s->params->block_count, TRI_F64, TRI_REDUCE_SUM, NULL));
    if (step == STEPS - 1)
        SPAWN_CHECK(self, tri_clip_norm(s->blocks, s->params->block_count, 1) == t->norm);
    if (!s->sync || !s->sync->pieces)
        weights_move(s->params, s->grads[0], slice);
    for (int i = 0; s->sync && s->sync->pieces && i < s->sync->piece_count; i++)
        weights_move(s->params, s->grads[0], s->sync->pieces[i].slice);
    if (s->sync && s->sync->ops->publish)
        TRI_TRY(s->sync->ops->publish(s->sync));
    return s->sync && s->sync->ops->settle ? s->sync->ops->settle(s->sync) : TRI_OK;
}

static void stage_compare(spawn_rank *self, const trial *t, const stage *s)
{
    const tri_params *whole = t->whole->params;
    for (int e = 0; e < s->params->entry_count; e++) {
        const tri_param *entry = &s->params->entries[e], *other = &whole->entries[entry->number];
        bool same = memcmp(s->params->values + entry->first, whole->values + other->first,
                           (size_t)entry->count * sizeof(float)) == 0;
        if (!same)
            fprintf(stderr, "%s, %d ranks x %d, %d shards, %d parts: %s differs on rank %d\n",
                    tri_pipe_kind_word(t->schedule), self->world, t->each, t->micro_shards, t->part_count, entry->name,
                    self->rank);
        SPAWN_CHECK(self, same);
    }
}

static void rank_run(spawn_rank *self, void *arg)
{
    const trial *t = arg;
    stage s = {0};
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    bool opened = stage_open(self, t, comm, &s);
    tri_status status = opened ? TRI_OK : TRI_EINVAL;
    for (int step = 0; status == TRI_OK && step < STEPS; step++) {
        if (step == 1 && t->fails_at > 0 && self->rank == t->fails_at)
            tri_pipeline_hooks_set(s.pipeline, &(tri_graph_hooks){.arg = &self->rank, .bring = fails});
        status = stage_step(self, t, &s, step);
    }
    if (t->fails_at > 0) {
        SPAWN_CHECK(self, status != TRI_OK && strstr(tri_last_error(), "the weights cannot be read"));
        if (self->rank == t->fails_at)
            tri_comm_abort(comm, status, tri_last_error());
    } else if (status != TRI_OK) {
        fprintf(stderr, "rank %d: %s\n", self->rank, tri_last_error());
        SPAWN_CHECK(self, status == TRI_OK);
    }
    if (status == TRI_OK) {
        const float(*sums)[4];
        tri_pipeline_times times[8];
        double bubble;
        tri_pipeline_times of_step = tri_pipeline_last_times(s.pipeline);
        stage_compare(self, t, &s);
        SPAWN_CHECK(self, tri_pipeline_evaluate(s.pipeline, &s.batch, STEPS, &sums) == TRI_OK &&
                              memcmp(sums, t->sums + tri_tree_first(RIG_SHARDS, s.replica, t->data),
                                     (size_t)s.batch.shards * sizeof(*sums)) == 0);
        SPAWN_CHECK(self,
                    tri_pipeline_gather_times(s.pipeline, times, &bubble) == TRI_OK && bubble >= 0 && bubble <= 1);
        SPAWN_CHECK(self, memcmp(&times[tri_group_rank(s.pipe_group)], &of_step, sizeof(of_step)) == 0);
        for (int r = 0; r < self->world / t->data; r++) /* in a simulation computing takes no time */
            SPAWN_CHECK(self, times[r].forward >= 0 && times[r].backward >= 0 && times[r].idle >= 0);
    }
    stage_close(&s);
    tri_comm_leave(comm);
}

/* --- one process --- */

static void trial_run(trial *t, spawn_kind kind, int world)
{
    rig r;
    tri_tree_part all = {0, RIG_SHARDS};
    const float(*sums)[4];
    r = (rig){.model = t->make()};
    OK(tri_model_finish(r.model));
    OK(tri_params_create(r.model, tri_device_host(), 1, &r.params));
    freeze(t, r.params);
    tri_graph_config config = trial_config(t);
    config.shards = RIG_SHARDS;
    OK(tri_graph_compile(r.model, r.params, &config, &r.graph));
    rig_fill_batch(&r, t->classes);
    r.grads[0] = calloc((size_t)(tri_params_grad_count(r.params) + TRI_PARAMS_TAIL), sizeof(float));
    double *blocks = malloc((size_t)r.params->block_count * sizeof(double));
    for (int step = 0; step < STEPS; step++) {
        rig_run(&r, 1, &all, (uint64_t)step);
        tri_params_fold(r.params, 1, r.grads[0]);
        memset(blocks, 0, (size_t)r.params->block_count * sizeof(double));
        tri_clip_squares(r.params, r.grads[0], 0, r.params->count, blocks, 1);
        t->norm = tri_clip_norm(blocks, r.params->block_count, 1);
        weights_move(r.params, r.grads[0], (tri_sync_slice){0, r.params->count});
    }
    OK(tri_graph_forward(r.graph, &r.batch, STEPS, false, &sums));
    t->whole = &r;
    t->sums = sums;
    assert_true(spawn_ranks(&(spawn_config){.kind = kind, .world = world, .seed = 7}, rank_run, t));
    free(blocks);
    rig_close(&r);
}

static const tri_tree_part one_part[] = {{0, 8}};
static const tri_tree_part four_parts[] = {{0, 4}, {4, 2}, {6, 1}, {7, 1}};

static trial trial_of(rig_model_fn make, int64_t classes, tri_pipe_kind schedule, int each, int micro_shards)
{
    trial t = {.make = make, .classes = classes, .schedule = schedule, .each = each, .micro_shards = micro_shards};
    t.data = 1;
    t.part_count = 1;
    t.parts[0] = one_part[0];
    return t;
}

static trial in_parts(trial t)
{
    t.part_count = 4;
    memcpy(t.parts, four_parts, sizeof(four_parts));
    return t;
}

static const struct {
    tri_pipe_kind name;
    int each;
} schedules[] = {{TRI_PIPE_GPIPE, 1}, {TRI_PIPE_1F1B, 1}, {TRI_PIPE_INTERLEAVED, 2}};

static void stages_give_the_weights_of_one_process(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world += world)
        for (size_t k = 0; k < sizeof(schedules) / sizeof(schedules[0]); k++)
            for (int micro = 1; micro <= 8; micro *= 2) {
                if (world == 1 && schedules[k].each > 1)
                    continue;
                trial t = trial_of(rig_gpt, 7, schedules[k].name, schedules[k].each, micro);
                trial_run(&t, SPAWN_INPROC, world);
                t = in_parts(t);
                if (micro < 4)
                    trial_run(&t, SPAWN_INPROC, world);
            }
}

static void every_model_goes_through_stages(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_SPLIT_MODELS; k++)
        for (int half = 0; half < 2; half++) {
            trial t = trial_of(rig_models[k].make, rig_models[k].classes, TRI_PIPE_1F1B, 1, 2);
            t.precision = half ? TRI_BF16 : TRI_F32;
            trial_run(&t, SPAWN_INPROC, 2);
            trial_run(&t, SPAWN_INPROC, 4);
            t = trial_of(rig_models[k].make, rig_models[k].classes, TRI_PIPE_INTERLEAVED, 2, 1);
            trial_run(&t, SPAWN_INPROC, 2);
        }
}

static void stages_run_over_every_transport(void **state)
{
    (void)state;
    for (int kind = 0; kind < SPAWN_KIND_COUNT; kind++)
        for (size_t k = 0; k < sizeof(schedules) / sizeof(schedules[0]); k++) {
            trial t = trial_of(rig_gpt_again, 7, schedules[k].name, schedules[k].each, 1);
            if (spawn_is_left_out((spawn_kind)kind))
                continue;
            trial_run(&t, (spawn_kind)kind, 3);
        }
}

/* The layers below send no gradients: the ranks that hold them have nothing to wait for. */
static void frozen_stages_stand_still(void **state)
{
    (void)state;
    trial t = trial_of(rig_mlp, 5, TRI_PIPE_1F1B, 1, 1);
    t.frozen = "fc1";
    trial_run(&t, SPAWN_INPROC, 2);
    trial_run(&t, SPAWN_INPROC, 4);
}

static void a_rank_that_fails_is_named_by_all(void **state)
{
    (void)state;
    for (int rank = 1; rank < 3; rank++)
        for (size_t k = 0; k < 2; k++) {
            trial t = trial_of(rig_gpt, 7, schedules[k].name, 1, 1);
            t.fails_at = rank;
            trial_run(&t, SPAWN_SHM, 3);
        }
}

/* Also with shards that the pipelines do not divide, and weights that are moved in slices. */
static void several_pipelines_share_the_batch(void **state)
{
    (void)state;
    for (int data = 2; data <= 3; data++)
        for (size_t k = 0; k < sizeof(schedules) / sizeof(schedules[0]); k++)
            for (int zero = 0; zero < 3; zero++) {
                static const char *const syncs[] = {"allreduce", "zero1", "zero2"};
                trial t = trial_of(zero ? rig_gpt : rig_resnet, zero ? 7 : 5, schedules[k].name, schedules[k].each, 1);
                t.data = data;
                t.sync = syncs[zero];
                trial_run(&t, SPAWN_SHM, 2 * data);
                t.make = rig_gpt_again;
                t.classes = 7;
                trial_run(&t, SPAWN_INPROC, 2 * data);
            }
}

/* --- what is refused --- */

static void refused(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_model *model = rig_mlp();
    tri_params *params = NULL;
    tri_pipeline *pipeline = NULL;
    tri_graph_config config = rig_config("cpu", 1);
    tri_stages stages = {3, {0, 1, 2, (int)model->nodes.count}};
    tri_pipeline_setup setup = {.group = tri_comm_world(comm),
                                .model = model,
                                .stages = &stages,
                                .graph = &config,
                                .schedule = TRI_PIPE_1F1B,
                                .parts = one_part,
                                .part_count = 1};
    SPAWN_CHECK(self, tri_model_finish(model) == TRI_OK);
    SPAWN_CHECK(self, tri_params_create(model, tri_device_host(), 1, &params) == TRI_OK);
    setup.params = params;
    SPAWN_CHECK(self, tri_pipeline_create(&setup, &pipeline) == TRI_ECONFIG);
    SPAWN_CHECK(self, strstr(tri_last_error(), "as many stages as ranks (2) or a multiple of it, got 3") != NULL);
    stages = (tri_stages){2, {0, 2, (int)model->nodes.count}};
    config.shards = 3;
    SPAWN_CHECK(self, tri_pipeline_create(&setup, &pipeline) == TRI_ECONFIG);
    SPAWN_CHECK(self, strstr(tri_last_error(), "a power of two of shards in a micro-batch, got 3") != NULL);
    config.shards = 2;
    setup.schedule = TRI_PIPE_INTERLEAVED;
    SPAWN_CHECK(self, tri_pipeline_create(&setup, &pipeline) == TRI_ECONFIG);
    SPAWN_CHECK(self, strstr(tri_last_error(), "2 or more chunks each, got 2 and 1") != NULL);
    setup.schedule = TRI_PIPE_GPIPE;
    SPAWN_CHECK(self, tri_pipeline_create(&setup, &pipeline) == TRI_OK);
    const float(*sums)[4];
    tri_batch batch = {.shards = 3};
    SPAWN_CHECK(self, tri_pipeline_evaluate(pipeline, &batch, 0, &sums) == TRI_EINVAL);
    SPAWN_CHECK(self, strstr(tri_last_error(), "want a batch of 8 shards, got 3") != NULL);
    tri_pipeline_destroy(pipeline);
    config.training = false;
    SPAWN_CHECK(self, tri_pipeline_create(&setup, &pipeline) == TRI_OK);
    batch.shards = 8;
    SPAWN_CHECK(self, tri_pipeline_train(pipeline, &batch, 0, NULL, NULL, NULL) == TRI_EINVAL);
    SPAWN_CHECK(self, strstr(tri_last_error(), "for evaluation only") != NULL);
    tri_pipeline_destroy(pipeline);
    tri_params_destroy(params);
    tri_model_destroy(model);
    tri_comm_leave(comm);
}

static void what_does_not_fit_is_refused_with_both_numbers(void **state)
{
    (void)state;
    assert_true(spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = 2}, refused, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_give_the_weights_of_one_process),
        cmocka_unit_test(every_model_goes_through_stages),
        cmocka_unit_test(stages_run_over_every_transport),
        cmocka_unit_test(several_pipelines_share_the_batch),
        cmocka_unit_test(frozen_stages_stand_still),
        cmocka_unit_test(a_rank_that_fails_is_named_by_all),
        cmocka_unit_test(what_does_not_fit_is_refused_with_both_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
