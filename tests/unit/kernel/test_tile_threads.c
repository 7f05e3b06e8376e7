/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/tile_threads.h"

/* Seconds of a step: alone on the cores, or where one of them belongs to somebody else for most of the time. */
static double quiet_s(int threads)
{
    return 0.001 + 0.01 / threads;
}

static double busy_s(int threads)
{
    return threads == 1 ? 0.011 : 0.1 * threads;
}

static double run(tri_thread_search *search, int steps, double (*seconds)(int))
{
    double sum = 0;
    for (int i = 0; i < steps; i++) {
        double taken = seconds(search->now);
        sum += taken;
        (void)tri_thread_search_step(search, taken);
    }
    return sum;
}

static void free_cores_are_all_taken_at_next_to_no_cost(void **state)
{
    (void)state;
    for (int most = 2; most <= 64; most++) {
        tri_thread_search search;
        tri_thread_search_init(&search, most);
        double taken = run(&search, 20000, quiet_s);
        assert_true(taken < 1.005 * 20000 * quiet_s(most));
        assert_int_equal(search.best, most);
    }
}

static void shared_cores_are_left_within_some_steps(void **state)
{
    (void)state;
    tri_thread_search search;
    tri_thread_search_init(&search, 2);
    (void)run(&search, 8, busy_s);
    assert_int_equal(search.now, 1);
    tri_thread_search_init(&search, 12);
    (void)run(&search, 20, busy_s);
    assert_int_equal(search.now, 1);
}

static void a_machine_that_becomes_quiet_is_used_again(void **state)
{
    (void)state;
    tri_thread_search search;
    tri_thread_search_init(&search, 8);
    (void)run(&search, 20, busy_s);
    assert_int_equal(search.now, 1);
    for (int i = 0; i < 200000 && search.best < 8; i++)
        (void)run(&search, 1, quiet_s);
    assert_int_equal(search.best, 8);
    (void)run(&search, 100, quiet_s);
    assert_int_equal(search.now, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_cores_are_all_taken_at_next_to_no_cost),
        cmocka_unit_test(shared_cores_are_left_within_some_steps),
        cmocka_unit_test(a_machine_that_becomes_quiet_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
