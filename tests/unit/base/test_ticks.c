/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/runtime.h"

static void a_stamp_reads_as_the_time_at_which_it_was_taken(void **state)
{
    int64_t before_ns[3], after_ns[3];
    uint64_t stamps[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        before_ns[i] = tri_now_ns();
        stamps[i] = tri_ticks();
        after_ns[i] = tri_now_ns();
        tri_sleep_ns(20 * TRI_NS_PER_MS);
    }
    for (int i = 0; i < 3; i++) {
        /* One part in a thousand of 60 ms, for the noise of looking at two clocks. */
        assert_true(tri_ticks_ns(stamps[i]) > before_ns[i] - 60000);
        assert_true(tri_ticks_ns(stamps[i]) < after_ns[i] + 60000);
    }
}

static void stamps_never_go_back(void **state)
{
    uint64_t last = tri_ticks();

    (void)state;
    for (int i = 0; i < 100000; i++) {
        uint64_t now = tri_ticks();

        assert_true(now >= last);
        last = now;
    }
}

static void fiber(int index, void *arg)
{
    uint64_t *stamps = arg;

    (void)index;
    stamps[0] = tri_ticks();
    tri_sleep_ns(5 * TRI_NS_PER_S);
    stamps[1] = tri_ticks();
    stamps[2] = tri_ticks_ns(stamps[1]) == tri_now_ns();
}

static void a_simulation_has_stamps_of_its_own(void **state)
{
    uint64_t stamps[3];
    tri_sim_config config = {.seed = 1};

    (void)state;
    assert_int_equal(tri_sim_run(&config, 1, fiber, stamps), TRI_OK);
    assert_int_equal(stamps[1] - stamps[0], 5 * TRI_NS_PER_S);
    assert_int_equal(stamps[2], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stamp_reads_as_the_time_at_which_it_was_taken),
        cmocka_unit_test(stamps_never_go_back),
        cmocka_unit_test(a_simulation_has_stamps_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
