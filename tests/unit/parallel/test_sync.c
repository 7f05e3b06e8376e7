/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sync.c: what each rank owns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/sync.h"

static void expect_shares(const tri_parallel_config *config, int64_t count, int ranks)
{
    const tri_params params = {.count = count};
    int64_t end = 0, least = count, most = 0;
    for (int r = 0; r < ranks; r++) {
        tri_sync_slice slice = tri_sync_owned(config, &params, r, ranks);
        assert_int_equal(slice.first, end);
        assert_int_equal(slice.first % TRI_PARAMS_ALIGN, 0);
        end += slice.count;
        least = slice.count < least ? slice.count : least;
        most = slice.count > most ? slice.count : most;
    }
    assert_int_equal(end, count);
    assert_true(most - least <= TRI_PARAMS_ALIGN);
}

static void zero1_shares_the_store_out_evenly_in_whole_lines(void **state)
{
    (void)state;
    tri_parallel_config config;
    tri_options_defaults(&tri_parallel_options, &config);
    assert_int_equal(tri_options_set(&tri_parallel_options, &config, "sync", "zero1"), TRI_OK);
    assert_true(tri_sync_is_sharded(&config));
    for (int ranks = 1; ranks <= 20; ranks++)
        for (int64_t lines = 0; lines < 60; lines += 7) /* also fewer lines than ranks */
            expect_shares(&config, lines * TRI_PARAMS_ALIGN, ranks);
    expect_shares(&config, INT64_C(40000000000) * TRI_PARAMS_ALIGN, 1000);
}

static void with_allreduce_everybody_owns_everything(void **state)
{
    (void)state;
    tri_parallel_config config;
    const tri_params params = {.count = 112};
    tri_options_defaults(&tri_parallel_options, &config);
    assert_false(tri_sync_is_sharded(&config));
    for (int r = 0; r < 3; r++) {
        tri_sync_slice slice = tri_sync_owned(&config, &params, r, 3);
        assert_int_equal(slice.first, 0);
        assert_int_equal(slice.count, 112);
    }
}

static void a_strategy_that_is_none_is_refused_with_those_that_are(void **state)
{
    (void)state;
    tri_parallel_config config;
    tri_options_defaults(&tri_parallel_options, &config);
    assert_int_equal(tri_options_set(&tri_parallel_options, &config, "sync", "zero9"), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "allreduce|zero1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero1_shares_the_store_out_evenly_in_whole_lines),
        cmocka_unit_test(with_allreduce_everybody_owns_everything),
        cmocka_unit_test(a_strategy_that_is_none_is_refused_with_those_that_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
