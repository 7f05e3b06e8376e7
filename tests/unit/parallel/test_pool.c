/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pool.c: which buffer is taken.
 */
#include "parallel/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"

static int take(tri_pool *pool, int64_t count)
{
    int number;
    assert_int_equal(tri_pool_take(pool, count, &number), TRI_OK);
    for (int a = 0; a < pool->arrays; a++)
        for (int64_t i = 0; i < count; i++)
            tri_pool_array(pool, number, a)[i] = (float)i;
    return number;
}

static void the_least_free_buffer_that_is_large_enough_is_taken(void **state)
{
    (void)state;
    tri_pool pool;
    tri_pool_init(&pool, NULL, 2, 3, NULL);
    int large = take(&pool, 100), small = take(&pool, 10), middle = take(&pool, 50);
    float *place = tri_pool_array(&pool, middle, 1);
    tri_pool_give(&pool, large);
    tri_pool_give(&pool, middle);
    assert_int_equal(take(&pool, 20), middle);
    assert_ptr_equal(tri_pool_array(&pool, middle, 1), place);
    assert_int_equal(take(&pool, 20), large);
    tri_pool_give(&pool, small);
    assert_int_equal(take(&pool, 10), small);
    tri_pool_fini(&pool);
}

static void a_free_one_that_is_too_small_makes_room_when_there_are_as_many_as_may_be(void **state)
{
    (void)state;
    tri_pool pool;
    tri_pool_init(&pool, NULL, 1, 2, NULL);
    int first = take(&pool, 10), second = take(&pool, 20);
    tri_pool_give(&pool, first);
    assert_int_equal(take(&pool, 30), first);
    /* More are in use than may be: it grows all the same. */
    assert_int_equal(take(&pool, 5), 2);
    assert_int_equal(pool.buffers.count, 3);
    tri_pool_give(&pool, second);
    assert_int_equal(take(&pool, 15), second);
    tri_pool_fini(&pool);
}

static void a_full_memory_is_reported(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        tri_pool pool;
        int number;
        tri_pool_init(&pool, NULL, 2, 2, NULL);
        tri_memory_fail_at(n);
        assert_int_equal(tri_pool_take(&pool, 10, &number), TRI_ENOMEM);
        tri_memory_fail_at(0);
        tri_pool_fini(&pool);
    }
}

static void the_next_pool_takes_what_is_kept(void **state)
{
    (void)state;
    tri_pool pool;
    tri_kept kept = {0};
    const size_t wanted[] = {tri_pool_nbytes(20), tri_pool_nbytes(30)};
    tri_pool_init(&pool, NULL, 2, 3, &kept);
    take(&pool, 10);
    const float *place = tri_pool_array(&pool, take(&pool, 20), 1);
    tri_pool_fini(&pool);
    assert_int_equal(kept.count, 4);
    tri_kept_drop_others(&kept, wanted, 2);
    assert_int_equal(kept.count, 2);
    tri_pool_init(&pool, NULL, 2, 3, &kept);
    take(&pool, 30);
    assert_int_equal(kept.count, 2);
    int number = take(&pool, 20);
    assert_true(tri_pool_array(&pool, number, 0) == place || tri_pool_array(&pool, number, 1) == place);
    assert_int_equal(kept.count, 0);
    tri_pool_fini(&pool);
    assert_int_equal(kept.count, 4);
    tri_kept_fini(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_free_buffer_that_is_large_enough_is_taken),
        cmocka_unit_test(a_free_one_that_is_too_small_makes_room_when_there_are_as_many_as_may_be),
        cmocka_unit_test(a_full_memory_is_reported),
        cmocka_unit_test(the_next_pool_takes_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
