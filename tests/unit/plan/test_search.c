/* SPDX-License-Identifier: Apache-2.0
 *
 * test_search.c: which layouts are found, refused and chosen, on described clusters; and what measuring alone gives.
 */
#include "plan/search.h"

#include "unit/plan/plan_rig.h"

#define GPT "{name: gpt2, n_layer: 2, n_head: 4, n_embd: 64}"

typedef struct rig {
    tri_arena arena;
    tri_optim_config optim;
    tri_plan_setup setup;
    tri_plan_crew crew;
    tri_plan_cluster cluster;
    tri_plan_models models;
    tri_plan_list plan;
} rig;

static void rig_open(rig *r, const char *model, const char *cluster, int shards)
{
    tri_yaml *root;
    int64_t length = 32;
    *r = (rig){0};
    tri_options_defaults(&tri_optim_options, &r->optim);
    OK(tri_yaml_parse(&r->arena, model, strlen(model), "model", &root));
    OK(tri_plan_cluster_parse(cluster, strlen(cluster), "cluster", &r->cluster));
    r->crew = tri_plan_crew_of(NULL, 1);
    r->setup = (tri_plan_setup){
        .model = root,
        .sample = tri_shape_make(1, &length),
        .classes = 64,
        .kernels = "cpu",
        .optim = &r->optim,
        .job = {.batch = 16, .shards = shards, .steps = 10, .states = 2, .overlap = true, .bucket_nbytes = 1 << 20}};
}

static void rig_plan(rig *r, const tri_plan_wish *wish)
{
    OK(tri_plan_models_open(&r->setup, &r->crew, &r->cluster, &r->models));
    OK(tri_plan_list_make(&r->models, wish, &r->plan));
}

static void rig_close(rig *r)
{
    tri_plan_list_fini(&r->plan);
    tri_plan_models_close(&r->models);
    tri_plan_cluster_fini(&r->cluster);
    tri_arena_fini(&r->arena);
}

static const tri_plan_row *row_of(const rig *r, const char *layout)
{
    char text[96];
    for (size_t i = 0; i < r->plan.rows.count; i++) {
        const tri_plan_row *row = tri_vector_at(&r->plan.rows, i);
        if (strcmp(tri_layout_print(&row->layout, text), layout) == 0)
            return row;
    }
    fail_msg("there is no row '%s'", layout);
    return NULL;
}

#define FAST "hosts: [{workers: 4, gflops: 10, memory_gib: 8}]\nlinks: {local: {gb_s: 100, latency_us: 1}}"

static void fast_links_take_the_plain_way(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, GPT, FAST, 8);
    rig_plan(&r, &(tri_plan_wish){0});
    const tri_plan_row *chosen = tri_vector_at(&r.plan.rows, (size_t)r.plan.chosen);
    assert_int_equal(chosen->layout.data, 4);
    assert_int_equal(chosen->layout.sync, TRI_SYNC_ALLREDUCE);
    assert_true(row_of(&r, "data 1 x tensor 4")->moves_bits);
    assert_false(row_of(&r, "data 4, zero1")->refusal[0]);
    assert_int_equal(tri_plan_models_tokens(&r.models), 32);
    for (int i = 1; i < r.plan.feasible; i++)
        assert_true(((tri_plan_row *)tri_vector_at(&r.plan.rows, (size_t)i - 1))->cost.step_s <=
                    ((tri_plan_row *)tri_vector_at(&r.plan.rows, (size_t)i))->cost.step_s);
    rig_close(&r);
}

static void what_cannot_be_says_why(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "{name: gpt2, n_layer: 2, n_head: 2, n_embd: 64}",
             "hosts: [{workers: 12, gflops: 10, memory_gib: 8}]\nlinks: {local: {gb_s: 100, latency_us: 1}}", 4);
    rig_plan(&r, &(tri_plan_wish){0});
    assert_non_null(strstr(row_of(&r, "data 12")->refusal, "data 12: want at least one shard per worker, "
                                                           "train.shards is 4"));
    assert_non_null(strstr(row_of(&r, "data 4 x tensor 3")->refusal, "tensor 3: want a power of two"));
    assert_non_null(strstr(row_of(&r, "data 3 x tensor 4")->refusal, "n_head"));
    rig_close(&r);
}

static void memory_that_cannot_suffice_is_worked_out(void **state)
{
    (void)state;
    rig r;
    /* 100,000 values of 16 bytes, and activations; half a MiB for each of two workers, less a tenth */
    rig_open(&r, GPT, "hosts: [{workers: 2, gflops: 10, memory_gib: 0.001}]\nlinks: {local: {gb_s: 1, latency_us: 1}}",
             8);
    rig_plan(&r, &(tri_plan_wish){0});
    assert_int_equal(r.plan.feasible, 0);
    assert_int_equal(r.plan.chosen, -1);
    const tri_plan_row *row = row_of(&r, "data 2");
    assert_true(row->costed);
    NEAR(row->cost.optimizer, 2 * row->cost.weights);
    assert_non_null(strstr(row->refusal, "memory: a worker needs "));
    assert_non_null(strstr(row->refusal, "and has 472 KiB"));
    rig_close(&r);
}

static void a_wish_is_kept(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, GPT, FAST, 8);
    rig_plan(&r, &(tri_plan_wish){.tensor = 2, .pipeline = 1, .sync = &(tri_sync_kind){TRI_SYNC_ZERO1}});
    assert_int_equal(r.plan.rows.count, 1);
    assert_false(row_of(&r, "data 2 x tensor 2, zero1")->refusal[0]);
    assert_int_equal(r.plan.chosen, 0); /* though its bits move: there is nothing else */
    assert_non_null(strstr(r.plan.why, "parallel.tensor_parts"));
    rig_close(&r);
}

#define HOSTS                                                                                                          \
    "hosts: [{name: a, workers: 4, gflops: 1000, memory_gib: 8}, {name: b, workers: 4, gflops: 1000, memory_gib: "     \
    "8}]\n"                                                                                                            \
    "links: {local: {gb_s: 100, latency_us: 1}, network: {gb_s: 0.1, latency_us: 50}}"

static void hosts_may_have_a_copy_each(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, GPT, HOSTS, 8);
    rig_plan(&r, &(tri_plan_wish){.pipeline = 1});
    const tri_plan_row *of_hosts = row_of(&r, "data 8, zero3 over 4"), *all = row_of(&r, "data 8, zero3");
    assert_false(of_hosts->refusal[0]);
    assert_true(of_hosts->cost.gather_s < all->cost.gather_s / 10);
    assert_true(of_hosts->cost.optimizer == 2 * all->cost.optimizer);
    (void)row_of(&r, "data 4 x tensor 2, zero1 over 2");
    rig_close(&r);
    rig_open(&r, GPT, HOSTS, 8);
    rig_plan(&r, &(tri_plan_wish){.pipeline = 1, .tensor = 1, .zero_ranks = 2});
    assert_int_equal(r.plan.rows.count, 3); /* the three strategies that spread */
    assert_false(row_of(&r, "data 8, zero2 over 2")->refusal[0]);
    rig_close(&r);
    rig_open(&r, GPT, HOSTS, 8);
    rig_plan(&r, &(tri_plan_wish){.pipeline = 1, .tensor = 1, .zero_ranks = 3});
    assert_int_equal(r.plan.chosen, -1);
    assert_non_null(strstr(row_of(&r, "data 8, zero1")->refusal, "2 or more that divide the 8 data ranks, got 3"));
    rig_close(&r);
}

static void stages_may_spread_their_weights(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, GPT, "hosts: [{workers: 6, gflops: 10, memory_gib: 8}]\nlinks: {local: {gb_s: 1, latency_us: 1}}", 8);
    r.setup.tensor_parts = 1;
    rig_plan(&r, &(tri_plan_wish){.data = 2});
    const tri_plan_row *weights = row_of(&r, "data 2 x pipeline 3, zero3, 1f1b");
    const tri_plan_row *state_alone = row_of(&r, "data 2 x pipeline 3, zero1, 1f1b");
    NEAR(weights->cost.gather_s, 8 * state_alone->cost.gather_s); /* for four micro-batches, up and down */
    rig_close(&r);
    rig_open(&r, GPT, "hosts: [{workers: 6, gflops: 10, memory_gib: 8}]\nlinks: {local: {gb_s: 1, latency_us: 1}}", 8);
    rig_plan(&r, &(tri_plan_wish){.data = 3, .pipeline = 2, .sync = &(tri_sync_kind){TRI_SYNC_ZERO3}});
    assert_non_null(strstr(row_of(&r, "data 3 x pipeline 2, zero3, 1f1b")->refusal, "divides train.shards"));
    rig_close(&r);
}

static void fixed_parts_may_be_chosen(void **state)
{
    (void)state;
    rig r;
    /* Eight shards are too few for data alone; the sums of tensor ranks cost nothing here. */
    rig_open(&r, GPT,
             "hosts: [{workers: 16, gflops: 0.1, memory_gib: 8}]\nlinks: {local: {gb_s: 1e5, latency_us: 1e-3}}", 8);
    r.setup.tensor_parts = 4;
    rig_plan(&r, &(tri_plan_wish){.pipeline = 1});
    const tri_plan_row *chosen = tri_vector_at(&r.plan.rows, (size_t)r.plan.chosen);
    assert_true(chosen->layout.tensor > 1);
    assert_false(chosen->moves_bits);
    assert_non_null(strstr(row_of(&r, "data 2 x tensor 8")->refusal, "parallel.tensor_parts 4"));
    rig_close(&r);
}

static void halves_have_half_of_the_layers(void **state)
{
    (void)state;
    rig r;
    tri_plan_chunk one, two;
    rig_open(&r, GPT, FAST, 8);
    OK(tri_plan_models_open(&r.setup, &r.crew, &r.cluster, &r.models));
    OK(tri_plan_models_chunks(&r.models, &(tri_layout){4, 1, 1, TRI_SYNC_ALLREDUCE, TRI_PIPE_1F1B, 1, 0}, &one));
    OK(tri_plan_models_chunks(&r.models, &(tri_layout){2, 2, 1, TRI_SYNC_ALLREDUCE, TRI_PIPE_1F1B, 1, 0}, &two));
    assert_true(one.sum_count == 0);
    assert_true(two.sum_count > 4); /* two up and two down in each of two layers */
    assert_true(two.values > 0.5 * one.values && two.values < 0.6 * one.values);
    assert_true(two.up_s > 0.4 * one.up_s && two.up_s < 0.6 * one.up_s);
    rig_close(&r);
}

static void what_is_measured_takes_time(void **state)
{
    (void)state;
    rig r;
    tri_plan_chunk chunk;
    rig_open(&r, GPT, "hosts: [{speed: 2}]", 8);
    OK(tri_plan_models_open(&r.setup, &r.crew, &r.cluster, &r.models));
    OK(tri_plan_models_chunks(&r.models, &(tri_layout){1, 1, 1, TRI_SYNC_ALLREDUCE, TRI_PIPE_1F1B, 1, 0}, &chunk));
    assert_true(chunk.up_s > 0 && chunk.up_s < 1);
    NEAR(chunk.down_s, 2 * chunk.up_s);
    assert_false(r.models.estimated);
    rig_close(&r);
}

static void models_far_too_large_are_worked_out(void **state)
{
    (void)state;
    rig r;
    tri_plan_chunk chunk;
    /* 100 layers of 12 x 12288^2 values: 180 G values, 720 GB */
    rig_open(&r, "{name: gpt2, n_layer: 100, n_head: 96, n_embd: 12288}", FAST, 8);
    OK(tri_plan_models_open(&r.setup, &r.crew, &r.cluster, &r.models));
    OK(tri_plan_models_chunks(&r.models, &(tri_layout){1, 1, 1, TRI_SYNC_ALLREDUCE, TRI_PIPE_1F1B, 1, 0}, &chunk));
    assert_true(chunk.values > 1.7e11 && chunk.values < 1.9e11);
    assert_true(chunk.up_s + chunk.down_s > 6 * 1.8e11 * 32 / 10e9);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_links_take_the_plain_way),
        cmocka_unit_test(what_cannot_be_says_why),
        cmocka_unit_test(memory_that_cannot_suffice_is_worked_out),
        cmocka_unit_test(a_wish_is_kept),
        cmocka_unit_test(hosts_may_have_a_copy_each),
        cmocka_unit_test(stages_may_spread_their_weights),
        cmocka_unit_test(fixed_parts_may_be_chosen),
        cmocka_unit_test(halves_have_half_of_the_layers),
        cmocka_unit_test(what_is_measured_takes_time),
        cmocka_unit_test(models_far_too_large_are_worked_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
