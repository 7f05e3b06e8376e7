/* SPDX-License-Identifier: Apache-2.0 */
#include "net/fabric.h"
#include <string.h>

#include "unit/net/cmocka_all.h"

#define WORLD 8
#define MIB   ((size_t)1 << 20)
/* 1 GB/s: a byte a nanosecond. */
#define LINK 1000000000

typedef struct trip_test {
    tri_fabric_config config;
    uint64_t seed;
    void (*body)(struct trip_test *test, tri_fabric *fabric);
    int64_t ns[64];
    int count;
} trip_test;

static void trip_fiber(int index, void *arg)
{
    trip_test *test = arg;
    tri_fabric *fabric;

    (void)index;
    if (tri_fabric_create(&test->config, WORLD, NULL, &fabric) == TRI_OK)
        test->body(test, fabric);
    tri_fabric_destroy(fabric);
}

static void trip_run(trip_test *test)
{
    tri_sim_config sim = {.seed = test->seed};

    test->count = 0;
    assert_int_equal(tri_sim_run(&sim, 1, trip_fiber, test), TRI_OK);
}

/* Sent and received at once, as the only one on its way; when it is there. */
static int64_t travel(tri_fabric *fabric, int from, int to, tri_fabric_link *link, size_t nbytes)
{
    tri_fabric_trip trip = tri_fabric_send(fabric, from, to, link, nbytes);
    bool local = tri_fabric_host(fabric, from) == tri_fabric_host(fabric, to);

    return local ? trip.tail_ns : tri_fabric_receive(fabric, to, trip, nbytes);
}

static void one_message(trip_test *test, tri_fabric *fabric)
{
    tri_fabric_link link = {0};

    test->ns[test->count++] = travel(fabric, 0, 1, &link, MIB);
    test->ns[test->count++] = travel(fabric, 0, 1, &link, MIB);
}

static void a_message_takes_the_latency_and_its_bytes(void **state)
{
    trip_test test = {.config = {.latency_us = 50, .bandwidth = LINK, .node_bandwidth = 4 * (int64_t)LINK},
                      .body = one_message};

    (void)state;
    trip_run(&test);
    assert_int_equal(test.ns[0], 50000 + MIB);
    assert_int_equal(test.ns[1], 50000 + 2 * MIB);
    /* The interface may be the slower one. */
    test.config.node_bandwidth = LINK / 2;
    trip_run(&test);
    assert_int_equal(test.ns[0], 50000 + 2 * MIB);
    assert_int_equal(test.ns[1], 50000 + 4 * MIB);
    test.config = (tri_fabric_config){0};
    trip_run(&test);
    assert_int_equal(test.ns[1], 0);
}

static void fan_out(trip_test *test, tri_fabric *fabric)
{
    for (int to = 1; to <= 2; to++) {
        tri_fabric_link link = {0};

        test->ns[test->count++] = travel(fabric, 0, to, &link, MIB);
    }
}

static void fan_in(trip_test *test, tri_fabric *fabric)
{
    for (int from = 1; from <= 2; from++) {
        tri_fabric_link link = {0};

        test->ns[test->count++] = travel(fabric, from, 0, &link, MIB);
    }
}

static void there_and_back(trip_test *test, tri_fabric *fabric)
{
    tri_fabric_link out = {0}, back = {0};

    test->ns[test->count++] = travel(fabric, 0, 1, &out, MIB);
    test->ns[test->count++] = travel(fabric, 1, 0, &back, MIB);
}

static void links_of_a_host_share_its_interface(void **state)
{
    trip_test test = {.config = {.latency_us = 50, .bandwidth = LINK, .node_bandwidth = LINK}, .body = fan_out};

    (void)state;
    trip_run(&test);
    assert_int_equal(test.ns[0], 50000 + MIB);
    assert_int_equal(test.ns[1], 50000 + 2 * MIB);
    test.body = fan_in;
    trip_run(&test);
    assert_int_equal(test.ns[1], 50000 + 2 * MIB);
    /* Each way has its own. */
    test.body = there_and_back;
    trip_run(&test);
    assert_int_equal(test.ns[0], 50000 + MIB);
    assert_int_equal(test.ns[1], 50000 + MIB);
}

static void pairs_of_two_hosts(trip_test *test, tri_fabric *fabric)
{
    tri_fabric_link links[3] = {{0}};

    test->ns[test->count++] = travel(fabric, 0, 1, &links[0], MIB); /* inside */
    test->ns[test->count++] = travel(fabric, 0, 4, &links[1], MIB);
    test->ns[test->count++] = travel(fabric, 1, 5, &links[2], MIB); /* from and to the same hosts */
}

static void inside_a_host_other_figures_hold(void **state)
{
    trip_test test = {.config = {.latency_us = 50,
                                 .bandwidth = LINK,
                                 .node_bandwidth = LINK,
                                 .ranks_per_host = 4,
                                 .local_latency_us = 1,
                                 .local_bandwidth = 4 * (int64_t)LINK},
                      .body = pairs_of_two_hosts};

    (void)state;
    trip_run(&test);
    assert_int_equal(test.ns[0], 1000 + MIB / 4);
    assert_int_equal(test.ns[1], 50000 + MIB);
    assert_int_equal(test.ns[2], 50000 + 2 * MIB);
}

static void many_messages(trip_test *test, tri_fabric *fabric)
{
    tri_fabric_link link = {0};

    while (test->count < 64)
        test->ns[test->count++] = travel(fabric, 0, 1, &link, 64 << 10);
}

static void loss_delays_and_keeps_the_order(void **state)
{
    trip_test test = {.config = {.latency_us = 50, .bandwidth = LINK, .loss = 0.01, .resend_us = 300},
                      .seed = 5,
                      .body = many_messages};
    int delayed = 0;

    (void)state;
    trip_run(&test);
    for (int i = 0; i < 64; i++) {
        int64_t late_ns = test.ns[i] - (50000 + (i + 1) * (64 << 10));

        assert_true(late_ns >= 0);
        assert_true(i == 0 || test.ns[i] >= test.ns[i - 1]);
        delayed += late_ns > 0;
    }
    /* A third of the messages of 44 packets. */
    assert_in_range(delayed, 10, 64);
    test.config.loss = 0;
    trip_run(&test);
    assert_int_equal(test.ns[63], 50000 + 64 * (64 << 10));
}

static void a_seed_decides_all_chances(void **state)
{
    trip_test one = {.config = {.latency_us = 50, .jitter_us = 10, .loss = 0.001, .resend_us = 300},
                     .seed = 5,
                     .body = many_messages};
    trip_test same = one, other = one;

    (void)state;
    other.seed = 6;
    trip_run(&one);
    trip_run(&same);
    trip_run(&other);
    assert_memory_equal(one.ns, same.ns, sizeof one.ns);
    assert_memory_not_equal(one.ns, other.ns, sizeof one.ns);
}

static void who_is_slow(trip_test *test, tri_fabric *fabric)
{
    for (int rank = 0; rank < WORLD; rank++) {
        tri_fabric_link link = {0};
        double slowness = tri_fabric_slowness(fabric, rank);

        test->ns[rank] = (int64_t)slowness;
        test->count += slowness > 1;
        /* A message costs its processor so much more. */
        if (travel(fabric, rank, (rank + 1) % WORLD, &link, 0) != (int64_t)(2000 * slowness))
            test->count = -WORLD;
    }
}

static void stragglers_are_as_many_as_asked_for(void **state)
{
    static const struct {
        double asked;
        int want;
    } cases[] = {{0, 0}, {0.25, 2}, {0.01, 1}, {1, 1}, {3, 3}, {100, WORLD}};
    trip_test test = {.config = {.message_us = 2, .slowdown = 7}, .body = who_is_slow};
    int64_t first[64];
    bool differs = false;

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        test.config.stragglers = cases[i].asked;
        trip_run(&test);
        assert_int_equal(test.count, cases[i].want);
    }
    test.config.stragglers = 2;
    trip_run(&test);
    memcpy(first, test.ns, sizeof first);
    for (test.seed = 1; test.seed < 20; test.seed++) {
        trip_run(&test);
        differs |= memcmp(first, test.ns, sizeof first) != 0;
    }
    assert_true(differs);
}

static void figures_out_of_bounds_are_refused(void **state)
{
    tri_fabric *fabric;
    tri_fabric_config config = {.loss = 0.6};

    (void)state;
    assert_int_equal(tri_fabric_create(&config, WORLD, NULL, &fabric), TRI_EINVAL);
    assert_string_equal(tri_last_error(), "sim.loss: want 0 to 0.5, got 0.6");
    config = (tri_fabric_config){.bandwidth = -1};
    assert_int_equal(tri_fabric_create(&config, WORLD, NULL, &fabric), TRI_EINVAL);
    assert_null(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_takes_the_latency_and_its_bytes),
        cmocka_unit_test(links_of_a_host_share_its_interface),
        cmocka_unit_test(inside_a_host_other_figures_hold),
        cmocka_unit_test(loss_delays_and_keeps_the_order),
        cmocka_unit_test(a_seed_decides_all_chances),
        cmocka_unit_test(stragglers_are_as_many_as_asked_for),
        cmocka_unit_test(figures_out_of_bounds_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
