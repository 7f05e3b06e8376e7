/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"
#include "net/hub.h"
#include "unit/net/cmocka_all.h"

#define WORLD 40

static void the_first_write_of_many_ranks_allocates_nothing(void **state)
{
    tri_transport *ends[WORLD];
    const char *addresses[WORLD];
    tri_net_config config;
    tri_hub *hub;
    uint64_t live = tri_memory_now().live, calls;
    size_t moved;
    int got;

    (void)state;
    tri_options_defaults(&tri_net_options, &config);
    assert_int_equal(tri_hub_create(&(tri_hub_config){.world = WORLD}, &hub), TRI_OK);
    for (int r = 0; r < WORLD; r++) {
        tri_transport_setup setup = {.config = &config, .rank = r, .world = WORLD, .token = "", .hub = hub};

        assert_int_equal(tri_transport_inproc.open(&setup, &ends[r]), TRI_OK);
        addresses[r] = ends[r]->ops->address(ends[r]);
    }
    for (int r = 0; r < WORLD; r++)
        assert_int_equal(ends[r]->ops->connect(ends[r], addresses, 0), TRI_OK);
    calls = tri_memory_now().calls;
    for (int from = 0; from < WORLD; from++) {
        for (int to = 0; to < WORLD; to++) {
            int what = from * WORLD + to;

            if (from == to)
                continue;
            assert_int_equal(ends[from]->ops->write_some(ends[from], to, &what, sizeof what, &moved), TRI_OK);
            assert_int_equal(moved, sizeof what);
        }
    }
    assert_int_equal(tri_memory_now().calls, calls);
    /* What was written before the sender left is not lost, and no pipe lies in another's memory. */
    tri_hub_endpoint_close(ends[0]);
    for (int to = 1; to < WORLD; to++) {
        for (int from = 0; from < WORLD; from++) {
            if (from == to)
                continue;
            assert_int_equal(ends[to]->ops->read_some(ends[to], from, &got, sizeof got, &moved), TRI_OK);
            assert_int_equal(moved, sizeof got);
            assert_int_equal(got, from * WORLD + to);
        }
        tri_hub_endpoint_close(ends[to]);
    }
    tri_hub_destroy(hub);
    assert_int_equal(tri_memory_now().live, live);
}

static void a_full_memory_leaves_the_hub_whole(void **state)
{
    tri_net_config config;
    tri_transport *end;
    tri_hub *hub;
    uint64_t live = tri_memory_now().live;

    (void)state;
    tri_options_defaults(&tri_net_options, &config);
    for (uint64_t n = 1; n <= 2; n++) {
        assert_int_equal(tri_hub_create(&(tri_hub_config){.world = 2}, &hub), TRI_OK);
        tri_memory_fail_at(n);
        assert_int_equal(
            tri_transport_inproc.open(
                &(tri_transport_setup){.config = &config, .rank = 0, .world = 2, .token = "", .hub = hub}, &end),
            TRI_ENOMEM);
        tri_memory_fail_at(0);
        assert_null(end);
        tri_hub_destroy(hub);
        assert_int_equal(tri_memory_now().live, live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_write_of_many_ranks_allocates_nothing),
        cmocka_unit_test(a_full_memory_leaves_the_hub_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
