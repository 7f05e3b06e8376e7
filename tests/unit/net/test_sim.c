/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
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

static tri_move data_move(int peer, bool send, void *bytes, size_t nbytes)
{
    return (tri_move){.peer = peer, .send = send, .frame = {.kind = TRI_FRAME_DATA, .nbytes = nbytes}, .bytes = bytes};
}

/* Rank 2 talks to nobody and ends, one way or the other, while 1 waits long for 0. */
static void one_of_three(spawn_rank *self, void *arg)
{
    bool fails = *(const bool *)arg;
    char bytes[100] = {0};
    tri_net *net = NULL;
    tri_move move = data_move(1 - self->rank, self->rank == 0, bytes, sizeof bytes);
    tri_status status;

    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 2) {
        tri_sleep_ns(TRI_NS_PER_S);
        if (fails)
            tri_net_abort(net, TRI_ENUMERIC, 2, "the loss is not a number");
        tri_net_close(net);
        return;
    }
    if (self->rank == 0)
        tri_sleep_ns(3 * TRI_NS_PER_S);
    status = tri_net_move(net, &move, 1, tri_deadline_after_ms(20000), NULL, NULL);
    if (self->rank == 1)
        SPAWN_CHECK(self, status == (fails ? TRI_EABORT : TRI_OK));
    if (self->rank == 1 && fails)
        SPAWN_CHECK(self, strcmp(tri_last_error(), "the loss is not a number") == 0);
    tri_net_close(net);
}

static void who_never_wrote_is_heard_when_it_leaves_or_fails(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        spawn_config config = {.kind = SPAWN_SIM, .world = 3, .seed = 4};
        bool arg = fails != 0;

        assert_true(spawn_ranks(&config, one_of_three, &arg));
    }
}

#define CROWD 256

typedef struct crowd_memory {
    uint64_t live_nbytes, most_nbytes;
} crowd_memory;

/* Around a ring. */
static void one_of_many(spawn_rank *self, void *arg)
{
    crowd_memory *memory = arg;
    char out[1000] = {0}, in[1000];
    tri_net *net = NULL;
    tri_move moves[2] = {data_move((self->rank + 1) % CROWD, true, out, sizeof out),
                         data_move((self->rank + CROWD - 1) % CROWD, false, in, sizeof in)};

    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    SPAWN_CHECK(self, tri_net_move(net, moves, 2, tri_deadline_after_ms(20000), NULL, NULL) == TRI_OK);
    spawn_barrier(self);
    if (tri_memory_now().live_nbytes > memory->most_nbytes)
        memory->most_nbytes = tri_memory_now().live_nbytes;
    spawn_barrier(self);
    tri_net_close(net);
}

static void memory_follows_what_is_used(void **state)
{
    spawn_config config = {.kind = SPAWN_SIM, .world = CROWD, .seed = 4, .slot_kib = 512};
    crowd_memory memory = {.live_nbytes = tri_memory_now().live_nbytes};

    (void)state;
    assert_true(spawn_ranks(&config, one_of_many, &memory));
    /* A link that is used costs 300 bytes; of all pairs, and with a window of 512 KiB each, it would be gigabytes. */
    assert_in_range(memory.most_nbytes - memory.live_nbytes, 1, (uint64_t)CROWD * ((64 << 10) + CROWD * 64));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_frame_arrives_after_the_latency),
        cmocka_unit_test(many_bytes_take_the_time_of_the_bandwidth),
        cmocka_unit_test(a_seed_decides_the_jitter),
        cmocka_unit_test(threads_cannot_use_virtual_links),
        cmocka_unit_test(who_never_wrote_is_heard_when_it_leaves_or_fails),
        cmocka_unit_test(memory_follows_what_is_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
