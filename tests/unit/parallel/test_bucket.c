/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/bucket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Four entries of 32, 16, 48 and 16 elements. */
static tri_param entries[] = {{.name = "a", .first = 0, .count = 32},
                              {.name = "b", .first = 32, .count = 16},
                              {.name = "c", .first = 48, .count = 48},
                              {.name = "d", .first = 96, .count = 16}};
static const tri_params params = {.entries = entries, .entry_count = 4, .count = 112};

static void buckets_cover_the_store_and_the_tail_from_the_end(void **state)
{
    (void)state;
    for (int64_t nbytes = 1; nbytes < 1000; nbytes += 37) {
        tri_buckets buckets;
        assert_int_equal(tri_buckets_init(&buckets, &params, nbytes), TRI_OK);
        int64_t end = params.count + TRI_PARAMS_TAIL;
        int entry_count = 0;
        for (int i = 0; i < buckets.count; i++) {
            assert_int_equal(buckets.items[i].first + buckets.items[i].count, end);
            assert_true(buckets.items[i].count > 0);
            end = buckets.items[i].first;
            entry_count += buckets.items[i].entry_count;
        }
        assert_int_equal(end, 0);
        assert_int_equal(entry_count, params.entry_count + 1);
        tri_buckets_fini(&buckets);
    }
}

static void a_bucket_is_released_when_full_and_only_in_order(void **state)
{
    (void)state;
    tri_buckets buckets;
    assert_int_equal(tri_buckets_init(&buckets, &params, 1), TRI_OK);
    assert_int_equal(buckets.count, 5);
    for (int step = 0; step < 2; step++) {
        tri_buckets_begin(&buckets);
        tri_bucket_ready(&buckets, 2);
        assert_null(tri_buckets_release(&buckets));
        tri_bucket_ready(&buckets, 4);
        assert_ptr_equal(tri_buckets_release(&buckets), &buckets.items[0]);
        assert_null(tri_buckets_release(&buckets));
        tri_bucket_ready(&buckets, 3);
        assert_ptr_equal(tri_buckets_release(&buckets), &buckets.items[1]);
        assert_ptr_equal(tri_buckets_release(&buckets), &buckets.items[2]);
        tri_bucket_ready(&buckets, 0);
        assert_null(tri_buckets_release(&buckets));
        tri_bucket_ready(&buckets, 1);
        assert_ptr_equal(tri_buckets_release(&buckets), &buckets.items[3]);
        assert_ptr_equal(tri_buckets_release(&buckets), &buckets.items[4]);
        assert_null(tri_buckets_release(&buckets));
    }
    tri_buckets_fini(&buckets);
}

static void a_large_limit_makes_one_bucket(void **state)
{
    (void)state;
    tri_buckets buckets;
    assert_int_equal(tri_buckets_init(&buckets, &params, 1 << 20), TRI_OK);
    assert_int_equal(buckets.count, 1);
    assert_int_equal(buckets.items[0].count, params.count + TRI_PARAMS_TAIL);
    tri_buckets_fini(&buckets);
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        tri_buckets buckets;
        tri_memory_fail_at(n);
        assert_int_equal(tri_buckets_init(&buckets, &params, 64), TRI_ENOMEM);
    }
    tri_memory_fail_at(0);
}

static void frozen_runs_that_would_fill_a_bucket_do_not_travel(void **state)
{
    (void)state;
    tri_buckets buckets;
    /* c (48) fills a bucket of 192 bytes: what lies around it is cut there. */
    entries[2].frozen = true;
    assert_int_equal(tri_buckets_init(&buckets, &params, 192), TRI_OK);
    assert_int_equal(buckets.count, 2);
    assert_int_equal(buckets.items[0].first, 96);
    assert_int_equal(buckets.items[0].count, 16 + TRI_PARAMS_TAIL);
    assert_int_equal(buckets.items[1].first + buckets.items[1].count, 48);
    tri_buckets_begin(&buckets);
    for (int entry = 4; entry >= 0; entry--)
        tri_bucket_ready(&buckets, entry);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(tri_buckets_release(&buckets), &buckets.items[i]);
    tri_buckets_fini(&buckets);
    /* It does not fill one of 256: it lies within. */
    assert_int_equal(tri_buckets_init(&buckets, &params, 256), TRI_OK);
    assert_true(buckets.bucket_of[2] >= 0);
    tri_buckets_fini(&buckets);
    /* At the start of the store. */
    entries[2].frozen = false;
    entries[0].frozen = entries[1].frozen = true;
    assert_int_equal(tri_buckets_init(&buckets, &params, 1), TRI_OK);
    assert_int_equal(buckets.count, 3);
    assert_int_equal(buckets.items[2].first, 48);
    tri_buckets_fini(&buckets);
    entries[0].frozen = entries[1].frozen = false;
}

/* The entry of a tied weight on one stage, its tie on the other. */
static void gradients_made_elsewhere_do_not_travel(void **state)
{
    (void)state;
    tri_tie tie = {.entry = 1, .first = 112};
    tri_params tied = params;
    tri_buckets buckets;
    tied.ties = &tie;
    tied.tie_count = 1;
    for (int at = 0; at < 5; at++) {
        if (at < 4)
            entries[at].away = true;
        else
            tie.away = true;
        assert_int_equal(tri_buckets_init(&buckets, &tied, 1 << 20), TRI_OK);
        assert_int_equal(buckets.count, at == 0 ? 1 : 2);
        assert_int_equal(buckets.bucket_of[at], -1);
        assert_int_equal(buckets.items[0].first, at < 4 ? entries[at].first + entries[at].count : 128);
        if (at > 0) {
            assert_int_equal(buckets.items[1].first, 0);
            assert_int_equal(buckets.items[1].count, at < 4 ? entries[at].first : 112);
        }
        tri_buckets_begin(&buckets);
        for (int number = 0; number < 6; number++)
            if (number != at)
                tri_bucket_ready(&buckets, number);
        for (int b = 0; b < buckets.count; b++)
            assert_ptr_equal(tri_buckets_release(&buckets), &buckets.items[b]);
        tri_buckets_fini(&buckets);
        if (at < 4)
            entries[at].away = false;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_the_store_and_the_tail_from_the_end),
        cmocka_unit_test(a_bucket_is_released_when_full_and_only_in_order),
        cmocka_unit_test(a_large_limit_makes_one_bucket),
        cmocka_unit_test(failed_allocations_are_reported),
        cmocka_unit_test(frozen_runs_that_would_fill_a_bucket_do_not_travel),
        cmocka_unit_test(gradients_made_elsewhere_do_not_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
