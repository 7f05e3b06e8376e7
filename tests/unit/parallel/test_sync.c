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

#include "base/memory.h"
#include "parallel/sync.h"

/* Three entries: 1000 elements, three blocks of the norm and a bit, and 40. */
static tri_param entries[] = {{.name = "a", .first = 0, .count = 1000},
                              {.name = "b", .first = 1008, .count = 3 * 4096 + 100},
                              {.name = "c", .first = 13408, .count = 40}};
static const tri_params params = {.entries = entries, .entry_count = 3, .count = 13456};

/* Every element has one owner, shares begin where blocks or entries do, and those of a rank follow one another. */
static void expect_shares(const tri_parallel_config *config, int ranks)
{
    tri_shares shares;
    int64_t end = 0, owned[8] = {0};
    assert_int_equal(tri_shares_init(&shares, config, &params, ranks), TRI_OK);
    for (int i = 0; i < shares.count; i++) {
        const tri_share *share = &shares.items[i];
        int64_t first = share->slice.first;
        assert_int_equal(first, end);
        assert_true(share->slice.count > 0);
        assert_in_range(share->rank, 0, ranks - 1);
        assert_true(first == 0 || first == entries[2].first ||
                    (first >= entries[1].first && (first - entries[1].first) % 4096 == 0));
        assert_int_equal(share->at, owned[share->rank]);
        owned[share->rank] += share->slice.count;
        end += share->slice.count;
    }
    assert_int_equal(end, params.count);
    for (int r = 0; r < ranks; r++) {
        tri_slice *slices;
        int count;
        assert_int_equal(tri_shares_of(&shares, r, &slices, &count), TRI_OK);
        for (int i = 0; i < count; i++)
            owned[r] -= slices[i].count;
        assert_int_equal(owned[r], 0);
        tri_free(slices);
    }
    tri_shares_fini(&shares);
}

static void sharded_state_has_one_owner_for_every_element(void **state)
{
    (void)state;
    static const char *const names[] = {"zero1", "zero2", "zero3"}, *const kib[] = {"1", "20", "100000"};
    tri_parallel_config config;
    tri_options_defaults(&tri_parallel_options, &config);
    for (int n = 0; n < 3; n++)
        for (int k = 0; k < 3; k++) {
            assert_int_equal(tri_options_set(&tri_parallel_options, &config, "sync", names[n]), TRI_OK);
            assert_int_equal(tri_options_set(&tri_parallel_options, &config, "bucket_kib", kib[k]), TRI_OK);
            assert_int_equal(tri_sync_spread(&config, 2), TRI_SPREAD_STATE + n);
            assert_int_equal(tri_sync_spread(&config, 1), TRI_SPREAD_NOTHING);
            for (int ranks = 2; ranks <= 8; ranks++)
                expect_shares(&config, ranks);
        }
}

static void every_rank_has_all_with_allreduce_or_alone(void **state)
{
    (void)state;
    tri_parallel_config config;
    tri_options_defaults(&tri_parallel_options, &config);
    for (int ranks = 3; ranks >= 1; ranks -= 2) {
        tri_shares shares;
        tri_slice *slices;
        int count;
        assert_int_equal(tri_sync_spread(&config, ranks), TRI_SPREAD_NOTHING);
        assert_int_equal(tri_shares_init(&shares, &config, &params, ranks), TRI_OK);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(tri_shares_of(&shares, r, &slices, &count), TRI_OK);
            assert_int_equal(count, 1);
            assert_int_equal(slices[0].first, 0);
            assert_int_equal(slices[0].count, params.count);
            tri_free(slices);
        }
        tri_shares_fini(&shares);
        assert_int_equal(tri_options_set(&tri_parallel_options, &config, "sync", "zero3"), TRI_OK);
    }
}

static void what_a_rank_keeps_falls_with_each_stage(void **state)
{
    (void)state;
    static const char *const names[] = {"allreduce", "zero1", "zero2", "zero3"};
    tri_parallel_config config;
    tri_sync_bytes bytes[4];
    tri_options_defaults(&tri_parallel_options, &config);
    assert_int_equal(tri_options_set(&tri_parallel_options, &config, "bucket_kib", "1"), TRI_OK);
    const tri_sync_setup setup = {.config = &config, .params = &params, .part_count = 1, .leaves = 8};
    const size_t whole = (size_t)params.count * sizeof(float), tail = TRI_PARAMS_TAIL * sizeof(float);
    for (int n = 0; n < 4; n++) {
        assert_int_equal(tri_options_set(&tri_parallel_options, &config, "sync", names[n]), TRI_OK);
        assert_int_equal(tri_sync_memory(&setup, (tri_sync_place){0, 2, 2}, &bytes[n]), TRI_OK);
    }
    for (int n = 0; n < 2; n++)
        assert_int_equal(bytes[n].gradients, whole + tail);
    for (int n = 0; n < 3; n++)
        assert_int_equal(bytes[n].weights, whole);
    /* All units pass through at once here; what is owned comes to them. */
    assert_in_range(bytes[2].gradients, whole + tail + 4096 * sizeof(float), 2 * whole);
    assert_int_equal(bytes[3].gradients, bytes[2].gradients);
    assert_int_equal(bytes[3].weights + tail, bytes[2].gradients);
}

static void a_strategy_that_is_none_is_refused_with_those_that_are(void **state)
{
    (void)state;
    tri_parallel_config config;
    tri_options_defaults(&tri_parallel_options, &config);
    assert_int_equal(tri_options_set(&tri_parallel_options, &config, "sync", "zero9"), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "allreduce|zero1|zero2|zero3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharded_state_has_one_owner_for_every_element),
        cmocka_unit_test(every_rank_has_all_with_allreduce_or_alone),
        cmocka_unit_test(what_a_rank_keeps_falls_with_each_stage),
        cmocka_unit_test(a_strategy_that_is_none_is_refused_with_those_that_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
