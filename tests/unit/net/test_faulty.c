/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

static void wrong_texts_are_refused_and_name_the_option(void **state)
{
    static const char *const wrong[] = {"x",      "0",       "0:1",      "0:1:",     "0:1:burn",  ":1:cut",
                                        "0::cut", "7:1:cut", "-1:1:cut", "0:-1:cut", "0:1:cut;;", "0:1:cut;0:1"};
    tri_hub_config figures = {.world = 2};
    tri_net_config config;

    (void)state;
    tri_options_defaults(&tri_net_options, &config);
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        tri_hub *hub;
        tri_net *net;

        assert_int_equal(tri_hub_create(&figures, &hub), TRI_OK);
        assert_int_equal(tri_options_set(&tri_net_options, &config, "faults", wrong[i]), TRI_OK);
        assert_int_equal(tri_net_open(&config, 0, 2, "token", hub, &net), TRI_ECONFIG);
        assert_non_null(strstr(tri_last_error(), "comm.faults"));
        tri_hub_destroy(hub);
    }
}

typedef struct byte_passage {
    unsigned char bytes[20000];
    int64_t took_ns;
    tri_status status;
} byte_passage;

static void pass_bytes(spawn_rank *self, void *arg)
{
    byte_passage *passage = arg;
    static unsigned char zeros[20000];
    tri_net *net = NULL;
    tri_move move = {.peer = 1 - self->rank,
                     .send = self->rank == 0,
                     .frame = {.kind = TRI_FRAME_DATA, .nbytes = sizeof zeros},
                     .bytes = self->rank == 0 ? zeros : passage->bytes};
    int64_t began_ns;

    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    began_ns = tri_now_ns();
    SPAWN_CHECK(self, tri_net_move(net, &move, 1, tri_deadline_after_ms(5000), NULL, NULL) == TRI_OK);
    if (self->rank == 1)
        passage->took_ns = tri_now_ns() - began_ns;
    spawn_barrier(self);
    tri_net_close(net);
}

static void flip_changes_one_bit_at_its_place(void **state)
{
    static const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP, SPAWN_UCX, SPAWN_SIM};
    static byte_passage passage;

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(kinds); i++) {
        spawn_config config = {.kind = kinds[i], .world = 2, .faults = {"1:10064:flip"}};

        if (spawn_is_left_out(kinds[i]))
            continue;
        memset(&passage, 0, sizeof passage);
        assert_true(spawn_ranks(&config, pass_bytes, &passage));
        for (size_t k = 0; k < sizeof passage.bytes; k++)
            assert_int_equal(passage.bytes[k], k == 10000);
    }
}

static void slow_takes_a_millisecond_for_four_kilobytes(void **state)
{
    spawn_config config = {.kind = SPAWN_SIM, .world = 2, .faults = {"*:0:slow"}};
    static byte_passage passage;

    (void)state;
    assert_true(spawn_ranks(&config, pass_bytes, &passage));
    /* 20096 bytes are five pieces: the last starts after four pauses (virtual time: exact up to the link's own). */
    assert_in_range(passage.took_ns, 4 * TRI_NS_PER_MS, 5 * TRI_NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_texts_are_refused_and_name_the_option),
        cmocka_unit_test(flip_changes_one_bit_at_its_place),
        cmocka_unit_test(slow_takes_a_millisecond_for_four_kilobytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
