/* SPDX-License-Identifier: Apache-2.0
 *
 * test_select.c: the choice of algorithms: by price, by rule, and what --explain says.
 */
#include "comm/run.h"
#include "ranks/comm_spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void choices(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, "all_reduce:1k-2k=direct,2k-3k=halving");
    if (!comm)
        return;
    const tri_group *group = tri_comm_world(comm);
    bool power = (self->world & (self->world - 1)) == 0;
    SPAWN_CHECK(self, strcmp(tri_comm_choice(group, TRI_COMM_ALL_REDUCE, 1500, NULL), "direct") == 0);
    /* A rule that cannot is passed over. */
    SPAWN_CHECK(self, (strcmp(tri_comm_choice(group, TRI_COMM_ALL_REDUCE, 2500, NULL), "halving") == 0) == power);
    SPAWN_CHECK(self, strcmp(tri_comm_choice(group, TRI_COMM_ALL_REDUCE, INT64_C(64) << 20, NULL), "tree") != 0);
    SPAWN_CHECK(self, strcmp(tri_comm_choice(group, TRI_COMM_BARRIER, 0, NULL), "lane") == 0);
    SPAWN_CHECK(self, strcmp(tri_comm_choice(group, TRI_COMM_BATCH, 0, NULL), "?") == 0);
    tri_string text = {0};
    SPAWN_CHECK(self, tri_comm_explain(group, TRI_COMM_ALL_REDUCE, 2500, NULL, &text) == TRI_OK);
    SPAWN_CHECK(self, strstr(tri_string_text(&text), "ring") && strstr(tri_string_text(&text), "comm.order = any"));
    SPAWN_CHECK(self, strstr(tri_string_text(&text), power ? "(by comm.algorithm)" : "no power of two (though"));
    SPAWN_CHECK(self, tri_comm_explain(group, TRI_COMM_ALL_REDUCE, -1, NULL, &text) == TRI_EINVAL);
    for (int op = 1; op < TRI_COMM_BATCH; op++)
        SPAWN_CHECK(self, tri_comm_explain(group, (tri_comm_op)op, 4096, NULL, &text) == TRI_OK);
    SPAWN_CHECK(self,
                strcmp(tri_comm_transport(comm, (self->rank + 1) % self->world), spawn_kind_name(SPAWN_INPROC)) == 0);
    SPAWN_CHECK(self, tri_comm_local_rank(comm) == self->rank && tri_comm_local_count(comm) == self->world);
    int origin = 5;
    SPAWN_CHECK(self, tri_comm_cause(comm, &origin)[0] == 0 && origin == -1);
    tri_string_fini(&text);
    tri_comm_leave(comm);
}

static void the_cheapest_is_taken_unless_a_rule_says_otherwise(void **state)
{
    (void)state;
    for (int world = 2; world <= 5; world++) {
        spawn_config config = {.kind = SPAWN_INPROC, .world = world};
        assert_true(spawn_ranks(&config, choices, NULL));
    }
}

/* As if the ranks were so far apart: the farther, the more a message costs. */
static void far_choices(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, "");
    if (!comm)
        return;
    tri_group *group = comm->world_group;
    SPAWN_CHECK(self, comm->far_us > 0 && comm->far_us < 200000);
    comm->far_us = 60000;
    group->price = tri_price_of_group(group);
    SPAWN_CHECK(self, group->price.latency_us > 29999 && group->price.latency_us < 30001);
    SPAWN_CHECK(self, strcmp(tri_comm_choice(group, TRI_COMM_ALL_REDUCE, 1 << 20, NULL), "exchange") == 0);
    SPAWN_CHECK(self, strcmp(tri_comm_choice(group, TRI_COMM_ALL_REDUCE, 128 << 20, NULL), "halving") == 0);
    comm->far_us = 10;
    group->price = tri_price_of_group(group);
    SPAWN_CHECK(self, strcmp(tri_comm_choice(group, TRI_COMM_ALL_REDUCE, 1024, NULL), "exchange") == 0);
    SPAWN_CHECK(self, strcmp(tri_comm_choice(group, TRI_COMM_ALL_REDUCE, 16 << 20, NULL), "halving") == 0);
    tri_comm_leave(comm);
}

static void far_ranks_send_fewer_messages_of_more_bytes(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_TCP, .world = 2};
    assert_true(spawn_ranks(&config, far_choices, NULL));
}

/* Over far links rounds are longer, and the sums the same. */
static void far_direct(spawn_rank *self, void *arg)
{
    enum { COUNT = 2000003 };
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, "all_reduce:0-=direct");
    if (!comm)
        return;
    tri_group *group = comm->world_group;
    comm->far_us = 60000;
    group->price = tri_price_of_group(group);
    float *data = malloc(COUNT * sizeof(*data));
    for (int64_t i = 0; i < COUNT; i++)
        data[i] = (float)(i % 1000 + self->rank);
    SPAWN_CHECK(self, tri_all_reduce(group, data, data, COUNT, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    int64_t wrong = 0;
    for (int64_t i = 0; i < COUNT; i++)
        wrong += data[i] != (float)(i % 1000 * 3 + 3);
    SPAWN_CHECK(self, wrong == 0);
    free(data);
    tri_comm_leave(comm);
}

static void direct_is_right_over_far_links(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_TCP, .world = 3};
    assert_true(spawn_ranks(&config, far_direct, NULL));
}

static void bad_rules(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = NULL;
    SPAWN_CHECK(self, comm_spawn_try(self, NULL, "all_reduce:0-=rng", &comm) == TRI_ECONFIG);
    SPAWN_CHECK(self, comm == NULL && strstr(tri_last_error(), "comm.algorithm"));
}

static void a_wrong_rule_does_not_open(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_INPROC, .world = 2};
    assert_true(spawn_ranks(&config, bad_rules, NULL));
}

static void offers_of(spawn_rank *self, void *arg)
{
    int64_t nbytes = *(const int64_t *)arg;
    tri_comm_offer offers[16];
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    const tri_group *group = tri_comm_world(comm);
    int count = tri_comm_offers(group, TRI_COMM_ALL_REDUCE, nbytes, true, offers, 16), cheapest = 0, able = 0;
    for (int i = 0; i < count; i++) {
        SPAWN_CHECK(self, strcmp(offers[i].name, tri_comm_algorithm_name(TRI_COMM_ALL_REDUCE, i)) == 0);
        if (strcmp(offers[i].name, "ring") == 0)
            SPAWN_CHECK(self, offers[i].cannot && strstr(offers[i].cannot, "comm.order = any"));
        able += !offers[i].cannot && offers[i].price_us > 0;
        cheapest += offers[i].cheapest;
        if (offers[i].cheapest)
            SPAWN_CHECK(self, strcmp(offers[i].name, tri_comm_choice(group, TRI_COMM_ALL_REDUCE, nbytes, NULL)) == 0);
    }
    SPAWN_CHECK(self, able >= 2 && cheapest == 1 && !tri_comm_algorithm_name(TRI_COMM_ALL_REDUCE, count));
    SPAWN_CHECK(self, tri_comm_offers(group, TRI_COMM_ALL_REDUCE, nbytes, true, offers, 1) == 1);
    tri_comm_leave(comm);
}

static void offers_are_what_the_selector_sees(void **state)
{
    (void)state;
    for (int64_t nbytes = 4; nbytes < INT64_C(1) << 30; nbytes *= 100) {
        spawn_config config = {.kind = SPAWN_INPROC, .world = 4};
        assert_true(spawn_ranks(&config, offers_of, &nbytes));
    }
    assert_true(tri_comm_needs_any(TRI_COMM_ALL_REDUCE, "ring"));
    assert_true(tri_comm_needs_any(TRI_COMM_REDUCE_SCATTER, "ring"));
    assert_false(tri_comm_needs_any(TRI_COMM_ALL_GATHER, "ring"));
    assert_false(tri_comm_needs_any(TRI_COMM_ALL_REDUCE, "tree"));
    assert_false(tri_comm_needs_any(TRI_COMM_ALL_REDUCE, "none of them"));
}

static void price_take(spawn_rank *self, void *arg)
{
    double *price_us = arg;
    tri_comm_offer offers[16];
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    int count = tri_comm_offers(tri_comm_world(comm), TRI_COMM_BROADCAST, 1000000, true, offers, 16);
    for (int i = 0; i < count; i++) {
        if (strcmp(offers[i].name, "direct") == 0)
            *price_us = offers[i].price_us;
    }
    tri_comm_leave(comm);
}

static double price_over(const tri_fabric_config *fabric)
{
    spawn_config config = {.kind = SPAWN_SIM, .world = 3, .seed = 1, .fabric = fabric};
    double price_us = -1;
    assert_true(spawn_ranks(&config, price_take, &price_us));
    return price_us;
}

/* Direct: a latency, and for each of two others a message and its bytes. */
static void a_simulated_network_says_its_prices(void **state)
{
    (void)state;
    tri_fabric_config fabric = {.latency_us = 100, .bandwidth = 1000000000, .message_us = 3, .local_bandwidth = 10};
    double want_us = 103 + 2 * (3 + 1000), found_us = price_over(&fabric);
    assert_true(found_us > want_us - 0.01 && found_us < want_us + 0.01);
    fabric.node_bandwidth = 500000000;
    want_us = 103 + 2 * (3 + 2000);
    found_us = price_over(&fabric);
    assert_true(found_us > want_us - 0.01 && found_us < want_us + 0.01);
    /* All on one host. */
    fabric.ranks_per_host = 3;
    fabric.local_latency_us = 2;
    fabric.local_bandwidth = 4000000000;
    want_us = 5 + 2 * (3 + 250);
    found_us = price_over(&fabric);
    assert_true(found_us > want_us - 0.01 && found_us < want_us + 0.01);
}

static void traffic_taken(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, "broadcast:0-=direct");
    float data[100] = {0};
    if (!comm)
        return;
    tri_net_traffic before = tri_comm_traffic(comm);
    SPAWN_CHECK(self, tri_broadcast(tri_comm_world(comm), data, 100, TRI_F32, 1, NULL) == TRI_OK);
    tri_net_traffic after = tri_comm_traffic(comm);
    SPAWN_CHECK(self, after.moves - before.moves == 1);
    SPAWN_CHECK(self, after.sent_frames - before.sent_frames == (self->rank == 1 ? 4 : 0));
    SPAWN_CHECK(self, after.sent_nbytes - before.sent_nbytes == (self->rank == 1 ? 1600 : 0));
    tri_comm_leave(comm);
}

static void traffic_counts_what_a_rank_sends(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_SIM, .world = 5, .seed = 1};
    assert_true(spawn_ranks(&config, traffic_taken, NULL));
}

/* What links cost is measured when a comm opens, and all ranks price alike, in groups of it too. */
static void measured_prices(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_group *half = NULL;
    SPAWN_CHECK(self, tri_group_split(tri_comm_world(comm), self->rank % 2, 0, &half) == TRI_OK);
    tri_price world = tri_comm_world(comm)->price, part = half->price;
    double most[3] = {world.us_per_byte, world.us_per_byte_reduced, world.latency_us};
    SPAWN_CHECK(self, most[0] > 0 && most[1] > 0 && most[2] > 0);
    SPAWN_CHECK(self, part.us_per_byte == most[0] && part.us_per_byte_reduced == most[1]);
    SPAWN_CHECK(self, part.latency_us == most[2] && comm->latency_us == most[2]);
    SPAWN_CHECK(self, comm->us_per_byte == most[0] && comm->us_per_byte_reduced == most[1]);
    SPAWN_CHECK(self, tri_all_reduce(tri_comm_world(comm), most, most, 3, TRI_F64, TRI_REDUCE_MAX, NULL) == TRI_OK);
    SPAWN_CHECK(self, world.us_per_byte == most[0] && world.us_per_byte_reduced == most[1]);
    SPAWN_CHECK(self, world.latency_us == most[2]);
    tri_group_destroy(half);
    tri_comm_leave(comm);
}

static void prices_between_hosts_are_measured_and_alike(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_TCP, .world = 4};
    assert_true(spawn_ranks(&config, measured_prices, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prices_between_hosts_are_measured_and_alike),
        cmocka_unit_test(the_cheapest_is_taken_unless_a_rule_says_otherwise),
        cmocka_unit_test(far_ranks_send_fewer_messages_of_more_bytes),
        cmocka_unit_test(direct_is_right_over_far_links),
        cmocka_unit_test(a_wrong_rule_does_not_open),
        cmocka_unit_test(offers_are_what_the_selector_sees),
        cmocka_unit_test(a_simulated_network_says_its_prices),
        cmocka_unit_test(traffic_counts_what_a_rank_sends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
