/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

#define ROUNDS 20

typedef struct sim_trip {
    tri_hub *hub;
    size_t nbytes;
    int64_t arrived_ns[ROUNDS];
    tri_status status[2];
} sim_trip;

static tri_status trip_run(sim_trip *trip, int rank)
{
    tri_net_config config;
    tri_net *net;
    char *bytes = calloc(1, trip->nbytes + 1);
    tri_status status;

    tri_options_defaults(&tri_net_options, &config);
    TRI_TRY(tri_net_open(&config, rank, 2, "", trip->hub, &net));
    status = tri_net_connect(net, NULL, TRI_FOREVER);
    for (int i = 0; status == TRI_OK && i < ROUNDS; i++) {
        tri_move move = {.peer = 1 - rank,
                         .send = rank == 0,
                         .frame = {.kind = TRI_FRAME_DATA, .nbytes = trip->nbytes},
                         .bytes = bytes};

        status = tri_net_move(net, &move, 1, tri_deadline_after_ms(10000), NULL, NULL);
        if (rank == 1)
            trip->arrived_ns[i] = tri_now_ns();
    }
    tri_net_close(net);
    free(bytes);
    return status;
}

static void trip_body(int index, void *arg)
{
    sim_trip *trip = arg;

    trip->status[index] = trip_run(trip, index);
}

static sim_trip trip_make(const tri_hub_config *figures, size_t nbytes, uint64_t seed)
{
    sim_trip trip = {.nbytes = nbytes};
    tri_sim_config sim = {.seed = seed};

    assert_int_equal(tri_hub_create(figures, &trip.hub), TRI_OK);
    assert_int_equal(tri_sim_run(&sim, 2, trip_body, &trip), TRI_OK);
    tri_hub_destroy(trip.hub);
    assert_int_equal(trip.status[0], TRI_OK);
    assert_int_equal(trip.status[1], TRI_OK);
    return trip;
}

static void a_small_frame_arrives_after_the_latency(void **state)
{
    tri_hub_config figures = {.world = 2, .fabric = {.latency_us = 50}};
    sim_trip trip = trip_make(&figures, 8, 1);

    (void)state;
    /* Opening may wait a millisecond for the other, on either side. */
    assert_in_range(trip.arrived_ns[0], 50000, 50000 + 2 * TRI_NS_PER_MS);
}

static void many_bytes_take_the_time_of_the_bandwidth(void **state)
{
    tri_hub_config figures = {.world = 2, .fabric = {.bandwidth = 1000000000}};
    sim_trip trip = trip_make(&figures, 1000000 - 64, 1);
    int64_t took_ns = trip.arrived_ns[ROUNDS - 1] - trip.arrived_ns[0];

    (void)state;
    /* 19 frames of a million bytes: 19 ms, one after the other. */
    assert_in_range(took_ns, 19 * TRI_NS_PER_MS - 1000, 19 * TRI_NS_PER_MS + TRI_NS_PER_MS);
}

static void a_seed_decides_the_jitter(void **state)
{
    tri_hub_config figures = {.world = 2, .fabric = {.latency_us = 1, .jitter_us = 100}};
    sim_trip one = trip_make(&figures, 100, 7), same = trip_make(&figures, 100, 7), other = trip_make(&figures, 100, 8);
    bool differs = false;

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        assert_true(one.arrived_ns[i] == same.arrived_ns[i]);
        differs |= one.arrived_ns[i] != other.arrived_ns[i];
        assert_true(i == 0 || one.arrived_ns[i] >= one.arrived_ns[i - 1]);
    }
    assert_true(differs);
}

static void threads_cannot_use_virtual_links(void **state)
{
    tri_hub_config figures = {.world = 2};
    tri_net_config config;
    tri_hub *hub;
    tri_net *net;

    (void)state;
    tri_options_defaults(&tri_net_options, &config);
    assert_int_equal(tri_options_set(&tri_net_options, &config, "transport", "sim"), TRI_OK);
    assert_int_equal(tri_hub_create(&figures, &hub), TRI_OK);
    assert_int_equal(tri_net_open(&config, 0, 2, "", hub, &net), TRI_EINVAL);
    tri_hub_destroy(hub);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_frame_arrives_after_the_latency),
        cmocka_unit_test(many_bytes_take_the_time_of_the_bandwidth),
        cmocka_unit_test(a_seed_decides_the_jitter),
        cmocka_unit_test(threads_cannot_use_virtual_links),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
