/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cost.c: layouts whose figures were worked out by hand. Links carry 1000 bytes a second, the model has 1000
 * values (4000 bytes), a sample takes 10 ms up and 20 ms down.
 */
#include "plan/cost.h"

#include "unit/plan/plan_rig.h"

static tri_plan_host two_hosts = {
    .count = 2, .workers = 2, .threads = 1, .speed = 1, .memory_nbytes = 1e9, .price_per_hour = 3};

static tri_plan_cluster one_host(int workers)
{
    static tri_plan_host host;
    host = two_hosts;
    host.count = 1;
    host.workers = workers;
    return (tri_plan_cluster){.hosts = &host,
                              .kind_count = 1,
                              .host_count = 1,
                              .workers = workers,
                              .local = {0, 1000},
                              .crowd = 1,
                              .optim_s_per_value = 1e-4,
                              .norm_s_per_value = 1e-5};
}

static tri_plan_cluster two_hosts_of_two(void)
{
    return (tri_plan_cluster){.hosts = &two_hosts,
                              .kind_count = 1,
                              .host_count = 2,
                              .workers = 4,
                              .local = {0, 1000},
                              .network = {0, 100},
                              .crowd = 1};
}

static const tri_plan_job job = {
    .batch = 8, .shards = 4, .tokens = 16, .steps = 100, .states = 2, .overlap = true, .bucket_nbytes = 1e9};
static const tri_plan_chunk whole = {.up_s = 0.01, .down_s = 0.02, .values = 1000, .largest = 600, .activations = 500};

static tri_layout layout_of(int data, int tensor, int pipeline, tri_sync_kind sync)
{
    return (tri_layout){data, tensor, pipeline, sync, TRI_PIPE_1F1B, 1, 0};
}

static tri_plan_cost cost_of(const tri_plan_job *of, const tri_plan_cluster *cluster, tri_layout layout,
                             const tri_plan_chunk *chunks)
{
    tri_plan_cost cost;
    OK(tri_plan_cost_find(of, cluster, &layout, chunks, &cost));
    NEAR(cost.step_s, cost.compute_s + cost.tensor_s + cost.bubble_s + cost.sum_s + cost.gather_s + cost.optimizer_s);
    NEAR(cost.memory, cost.weights + cost.gradients + cost.optimizer + cost.activations);
    return cost;
}

static void one_worker_computes_and_moves(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(1);
    tri_plan_cost cost = cost_of(&job, &cluster, layout_of(1, 1, 1, TRI_SYNC_ALLREDUCE), &whole);
    NEAR(cost.compute_s, 8 * 0.03);
    NEAR(cost.optimizer_s, 0.1);
    NEAR(cost.step_s, 0.34);
    NEAR(cost.samples_per_s, 8 / 0.34);
    NEAR(cost.tokens_per_s, 128 / 0.34);
    NEAR(cost.epoch_s, 34);
    NEAR(cost.epoch_price, 34.0 / 3600 * 3);
    NEAR(cost.memory, 4000 + 4000 + 8000 + 500);
    assert_true(cost.wire == 0);
}

static void two_workers_send_a_sum(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(2);
    tri_plan_cost cost = cost_of(&job, &cluster, layout_of(2, 1, 1, TRI_SYNC_ALLREDUCE), &whole);
    NEAR(cost.compute_s, 4 * 0.03);
    NEAR(cost.sum_s, 4); /* 2 x 4000 x 1/2 bytes */
    NEAR(cost.wire, 4000);
    NEAR(cost.memory, 16500);
    tri_plan_job small = job;
    small.compress_nbytes = 11;
    NEAR(cost_of(&small, &cluster, layout_of(2, 1, 1, TRI_SYNC_ALLREDUCE), &whole).memory, 16500 + 11000);
    cluster.local.latency_s = 0.5; /* there and back */
    NEAR(cost_of(&job, &cluster, layout_of(2, 1, 1, TRI_SYNC_ALLREDUCE), &whole).sum_s, 5);
}

static void sums_hide_behind_the_way_down_but_for_the_last(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(2);
    tri_plan_job small = job;
    cluster.hides_local = true;
    small.bucket_nbytes = 1000;
    NEAR(cost_of(&small, &cluster, layout_of(2, 1, 1, TRI_SYNC_ALLREDUCE), &whole).sum_s, 4 - 4 * 0.02);
    cluster.local.bytes_per_s = 1e5; /* 40 ms in all, 10 each */
    NEAR(cost_of(&small, &cluster, layout_of(2, 1, 1, TRI_SYNC_ALLREDUCE), &whole).sum_s, 0.01);
    small.overlap = false;
    NEAR(cost_of(&small, &cluster, layout_of(2, 1, 1, TRI_SYNC_ALLREDUCE), &whole).sum_s, 0.04);
}

static void weights_have_copies_but_where_they_are_spread(void **state)
{
    (void)state;
    tri_plan_cluster alone = one_host(1), pair = one_host(2);
    tri_plan_chunk copied = whole, stages[2] = {whole, whole}, plain[2];
    copied.rounded = stages[1].rounded = 300;
    stages[0].rounded = 200;
    stages[1].values = 900; /* fewer than the stage before */
    for (int s = 0; s < 2; s++) {
        plain[s] = stages[s];
        plain[s].rounded = 0;
    }
    for (tri_sync_kind sync = TRI_SYNC_ALLREDUCE; sync <= TRI_SYNC_ZERO3; sync++) {
        const double more = sync == TRI_SYNC_ZERO3 ? 0 : 300;
        NEAR(cost_of(&job, &alone, layout_of(1, 1, 1, sync), &copied).activations, 500 + 300);
        NEAR(cost_of(&job, &pair, layout_of(2, 1, 1, sync), &copied).activations, 500 + more);
    }
    const tri_layout two = layout_of(1, 1, 2, TRI_SYNC_ALLREDUCE);
    NEAR(cost_of(&job, &pair, two, stages).memory, cost_of(&job, &pair, two, plain).memory + 300);
}

static void sharding_halves_what_it_says(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(2);
    tri_plan_cost one = cost_of(&job, &cluster, layout_of(2, 1, 1, TRI_SYNC_ZERO1), &whole);
    tri_plan_cost two = cost_of(&job, &cluster, layout_of(2, 1, 1, TRI_SYNC_ZERO2), &whole);
    tri_plan_job small = job;
    small.bucket_nbytes = 400; /* units are as long as the largest parameter: 600 values */
    tri_plan_cost three = cost_of(&small, &cluster, layout_of(2, 1, 1, TRI_SYNC_ZERO3), &whole);
    NEAR(one.sum_s, 2);
    NEAR(one.gather_s, 2);
    NEAR(one.optimizer_s, 0.05);
    NEAR(one.optimizer, 4000);
    NEAR(one.gradients, 4000);
    NEAR(one.wire, 4000);
    NEAR(two.gradients, 2000 + 3 * 4 * 1000);
    NEAR(two.weights, 4000);
    NEAR(three.weights, 2000 + 3 * 4 * 600);
    NEAR(three.gradients, 2000 + 3 * 4 * 600);
    NEAR(three.optimizer, 4000);
    NEAR(three.gather_s, 4);
    NEAR(three.wire, 2000 + 2 * 2000);
}

static void tensor_ranks_sum_in_every_layer(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(2);
    tri_plan_chunk half = whole;
    half.sum_count = 4;
    half.sum_nbytes = 100; /* of a sample: 800 bytes of a run, 200 in each */
    tri_plan_cost cost = cost_of(&job, &cluster, layout_of(1, 2, 1, TRI_SYNC_ALLREDUCE), &half);
    NEAR(cost.compute_s, 8 * 0.03);
    NEAR(cost.tensor_s, 4 * 0.2);
    NEAR(cost.wire, 800);
    assert_true(cost.sum_s == 0);
    tri_plan_job pieces = job; /* two shards at once: two runs, as many bytes, twice the messages */
    pieces.shards_at_once = 2;
    cluster.local.latency_s = 0.001;
    NEAR(cost_of(&pieces, &cluster, layout_of(1, 2, 1, TRI_SYNC_ALLREDUCE), &half).tensor_s, 0.8 + 2 * 4 * 0.002);
}

static void a_pipeline_idles_at_its_ends(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(2);
    tri_plan_chunk chunks[2] = {whole, whole};
    chunks[0].values = 400;
    chunks[1].values = 600;
    for (int c = 0; c < 2; c++) { /* alone a run shares more */
        chunks[c].activations_shared = 280;
        chunks[c].activations_slot = 240;
    }
    tri_plan_cost cost = cost_of(&job, &cluster, layout_of(1, 1, 2, TRI_SYNC_ALLREDUCE), chunks);
    NEAR(cost.compute_s, 8 * 0.03 + 3 * 600 * 3e-5); /* and three sums of 600 values */
    NEAR(cost.bubble_s, 0.06);                       /* (stages - 1) x a micro-batch of two samples */
    NEAR(cost.weights, 2400);
    NEAR(cost.activations, 280 + 2 * 240); /* the first stage has two micro-batches under way */
    NEAR(cost.optimizer_s, 0.06);
    NEAR(cost.gradients, 3 * 2400); /* the sum, and one for each level above a micro-batch */
    chunks[1].in_up_nbytes = 50;    /* room for two that leave and two that come back, of two samples each */
    chunks[1].in_down_nbytes = 40;
    NEAR(cost_of(&job, &cluster, layout_of(1, 1, 2, TRI_SYNC_ALLREDUCE), chunks).activations,
         280 + 2 * 240 + 2 * (2 * 50 + 2 * 40));
}

static void a_crowd_computes_more_slowly(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(4);
    cluster.crowd = 2;
    tri_plan_cost cost = cost_of(&job, &cluster, layout_of(4, 1, 1, TRI_SYNC_ALLREDUCE), &whole);
    NEAR(cost.compute_s, 2 * 2 * 0.03);
    NEAR(cost.optimizer_s, 0.2);
}

static void clipping_looks_at_every_value(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(1);
    tri_plan_job clipped = job;
    clipped.clips = true;
    NEAR(cost_of(&clipped, &cluster, layout_of(1, 1, 1, TRI_SYNC_ALLREDUCE), &whole).optimizer_s, 0.11);
}

static void odd_workers_hold_several_parts(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(3);
    tri_plan_job wide = job;
    wide.shards = 8;
    wide.batch = 16; /* 3 shards are 2 + 1, or 1 + 2: two arrays of gradients */
    tri_plan_cost cost = cost_of(&wide, &cluster, layout_of(3, 1, 1, TRI_SYNC_ALLREDUCE), &whole);
    NEAR(cost.gradients, 2 * 4000);
    NEAR(cost.compute_s, 3 * 2 * 0.03);
}

static void groups_of_a_host_share_its_interface(void **state)
{
    (void)state;
    tri_plan_cluster cluster = two_hosts_of_two();
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){4, 1}, TRI_PLAN_SUM, 1000), 1 + 10);
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){4, 1}, TRI_PLAN_SCATTER, 1000), 0.5 + 2 * 5); /* from each rank */
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){2, 1}, TRI_PLAN_SUM, 1000), 1);
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){2, 2}, TRI_PLAN_SUM, 1000), 2 * 10);
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){2, 2}, TRI_PLAN_GATHER, 1000), 2 * 5);
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){2, 2}, TRI_PLAN_MESSAGE, 1000), 2 * 10);
    assert_true(tri_plan_call_s(&cluster, (tri_plan_edge){1, 1}, TRI_PLAN_SUM, 1000) == 0);
    NEAR(tri_plan_price(&cluster), 6);
}

/* Two hosts of two: a copy of the state on each. */
static void copies_send_the_sums_of_their_shares(void **state)
{
    (void)state;
    tri_plan_cluster cluster = two_hosts_of_two();
    cluster.optim_s_per_value = 1e-4;
    tri_layout layout = layout_of(4, 1, 1, TRI_SYNC_ZERO1);
    layout.zero = 2;
    tri_plan_cost cost = cost_of(&job, &cluster, layout, &whole);
    NEAR(cost.sum_s, 2 + 40); /* 4000 bytes to the owners on the host; 2000 there and back, two groups on a wire */
    NEAR(cost.gather_s, 2);
    NEAR(cost.wire, 2000 + 2000 + 2000);
    NEAR(cost.optimizer, 8000.0 / 2);
    NEAR(cost.optimizer_s, 0.05);
    layout.sync = TRI_SYNC_ZERO3;
    NEAR(cost_of(&job, &cluster, layout, &whole).gather_s, 4);
    layout.zero = 0;
    assert_true(cost_of(&job, &cluster, layout, &whole).gather_s > 40);
    char text[96];
    layout.zero = 2;
    assert_string_equal(tri_layout_print(&layout, text), "data 4, zero3 over 2");
}

static void measured_groups_come_before_links(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(4);
    cluster.group_count = 2;
    cluster.groups[0] = (tri_plan_group){.count = 2};
    cluster.groups[0].rate[0][TRI_PLAN_SUM] = (tri_plan_rate){1, 0.5};
    cluster.groups[1] = (tri_plan_group){.count = 4};
    cluster.groups[1].rate[0][TRI_PLAN_SUM] = (tri_plan_rate){2, 0.25};
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){2, 1}, TRI_PLAN_SUM, 10), 1 + 5);
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){4, 1}, TRI_PLAN_SUM, 10), 2 + 2.5);
    NEAR(tri_plan_call_s(&cluster, (tri_plan_edge){3, 1}, TRI_PLAN_SUM, 10), 2 + 2.5);
}

/* Those of a layer are in a rank's own memory, those of gradients where all reach them. */
static void sums_of_layers_and_of_gradients_have_rates_of_their_own(void **state)
{
    (void)state;
    tri_plan_cluster cluster = one_host(4);
    tri_plan_chunk cut = whole;
    cut.sum_count = 2;
    cut.sum_nbytes = 20;
    cluster.group_count = 1;
    cluster.groups[0] = (tri_plan_group){.count = 2};
    cluster.groups[0].rate[0][TRI_PLAN_SUM] = (tri_plan_rate){1, 0.5};
    cluster.groups[0].rate[0][TRI_PLAN_OWN_SUM] = (tri_plan_rate){3, 0.25};
    tri_plan_cost cost = cost_of(&job, &cluster, layout_of(2, 2, 1, TRI_SYNC_ALLREDUCE), &cut);
    double samples = (double)job.batch / 2;
    NEAR(cost.tensor_s, 2 * (3 + 0.25 * 10 * samples));
    NEAR(cost.sum_s, 1 + 0.5 * 4 * cut.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_computes_and_moves),
        cmocka_unit_test(two_workers_send_a_sum),
        cmocka_unit_test(sums_hide_behind_the_way_down_but_for_the_last),
        cmocka_unit_test(weights_have_copies_but_where_they_are_spread),
        cmocka_unit_test(sharding_halves_what_it_says),
        cmocka_unit_test(tensor_ranks_sum_in_every_layer),
        cmocka_unit_test(a_pipeline_idles_at_its_ends),
        cmocka_unit_test(a_crowd_computes_more_slowly),
        cmocka_unit_test(clipping_looks_at_every_value),
        cmocka_unit_test(odd_workers_hold_several_parts),
        cmocka_unit_test(groups_of_a_host_share_its_interface),
        cmocka_unit_test(copies_send_the_sums_of_their_shares),
        cmocka_unit_test(measured_groups_come_before_links),
        cmocka_unit_test(sums_of_layers_and_of_gradients_have_rates_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
