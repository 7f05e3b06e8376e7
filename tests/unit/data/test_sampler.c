/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sampler.c: every sample once per epoch, whatever the numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/data.h"

/* Walks one epoch as the loader does; counts how often each sample came, and checks the batches' numbers of rows. */
static void check_epoch(const tri_sampler *sampler, int64_t epoch, int32_t *seen)
{
    memset(seen, 0, (size_t)sampler->count * sizeof(*seen));
    int64_t steps = tri_sampler_steps(sampler);
    for (int64_t step = 0; step < steps; step++) {
        int64_t batch = 0;
        for (int64_t v = 0; v < sampler->shards; v++) {
            int64_t rows = tri_sampler_rows(sampler, v), part = tri_sampler_part_count(sampler, v);
            int64_t first = step * rows;
            assert_true(first <= part);
            int64_t valid = part - first < rows ? part - first : rows;
            if (step + 1 < steps)
                assert_int_equal(valid, rows);
            for (int64_t k = first; k < first + valid; k++) {
                int64_t stored = tri_sampler_order(sampler, epoch, v, k);
                assert_true(stored >= 0 && stored < part);
                int64_t index = tri_sampler_part_index(sampler, v, stored);
                assert_true(index >= 0 && index < sampler->count);
                seen[index]++;
                if (!sampler->shuffle) /* the natural order */
                    assert_int_equal(index, step * sampler->batch + batch + (k - first));
            }
            batch += valid;
        }
        int64_t left = sampler->count - step * sampler->batch;
        assert_int_equal(batch, left < sampler->batch ? left : sampler->batch);
    }
    for (int64_t i = 0; i < sampler->count; i++)
        assert_int_equal(seen[i], 1);
}

static void each_sample_comes_exactly_once_per_epoch(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 7, 64, 100, 257, 1000}, batches[] = {1, 3, 8, 10, 32, 100, 300, 2000};
    int32_t seen[1000];
    for (size_t i = 0; i < TRI_COUNT_OF(counts); i++)
        for (size_t j = 0; j < TRI_COUNT_OF(batches); j++)
            for (int64_t shards = 1; shards <= 64; shards *= 2)
                for (int shuffle = 0; shuffle < 2; shuffle++) {
                    tri_sampler sampler = {42, counts[i], batches[j], shards, shuffle, 0, 0};
                    check_epoch(&sampler, (int64_t)(i + j), seen);
                }
}

static void blocks_come_in_random_order_and_are_shuffled_in_buffers(void **state)
{
    (void)state;
    int32_t seen[1000];
    static const int64_t blocks[] = {2, 7, 16, 300, 1200}, buffers[] = {1, 8, 50, 999};
    for (size_t i = 0; i < TRI_COUNT_OF(blocks); i++)
        for (size_t j = 0; j < TRI_COUNT_OF(buffers); j++)
            for (int64_t shards = 1; shards <= 16; shards *= 4) {
                const tri_sampler sampler = {42, 1000, 100, shards, true, blocks[i], buffers[j]};
                check_epoch(&sampler, (int64_t)(i + j), seen);
            }
    const tri_sampler sampler = {3, 1000, 100, 4, true, 10, 50}, whole = {3, 1000, 100, 4, true, 10, 1000},
                      all = {3, 1000, 100, 4, true, 0, 0};
    int next = 0, moved = 0;
    for (int64_t epoch = 0; epoch < 2; epoch++)
        for (int64_t first = 0; first < 250; first += 50) { /* a buffer has samples of few blocks */
            int tens[100] = {0}, different = 0;
            for (int64_t k = first; k < first + 50; k++) {
                const int64_t at = tri_sampler_order(&sampler, epoch, 1, k),
                              index = tri_sampler_part_index(&sampler, 1, at);
                different += tens[index / 10]++ == 0;
                next += k > first &&
                        index == tri_sampler_part_index(&sampler, 1, tri_sampler_order(&sampler, epoch, 1, k - 1)) + 1;
                moved += tri_sampler_order(&sampler, 0, 1, k) != tri_sampler_order(&sampler, 1, 1, k);
                assert_int_equal(tri_sampler_order(&whole, epoch, 1, k), tri_sampler_order(&all, epoch, 1, k));
            }
            assert_in_range(different, 5, 24); /* 50 samples at random: 40 */
        }
    assert_in_range(next, 0, 60);
    assert_in_range(moved, 450, 500);
}

static void epochs_and_seeds_have_different_orders(void **state)
{
    (void)state;
    tri_sampler one = {1, 1000, 100, 4, true, 0, 0}, two = {2, 1000, 100, 4, true, 0, 0};
    int epochs = 0, seeds = 0;
    for (int64_t k = 0; k < 250; k++) {
        epochs += tri_sampler_order(&one, 0, 1, k) != tri_sampler_order(&one, 1, 1, k);
        seeds += tri_sampler_part_index(&one, 1, k) != tri_sampler_part_index(&two, 1, k);
    }
    assert_true(epochs > 230);
    assert_true(seeds > 230);
}

static void huge_counts_do_not_overflow(void **state)
{
    (void)state;
    tri_sampler sampler = {7, INT64_C(1000000000000000), 1 << 20, 1024, true, 0, 0};
    int64_t sum = 0;
    for (int64_t v = 0; v < sampler.shards; v++)
        sum += tri_sampler_part_count(&sampler, v);
    assert_int_equal(sum, sampler.count);
    int64_t last = tri_sampler_part_index(&sampler, 1023, tri_sampler_part_count(&sampler, 1023) - 1);
    assert_true(last >= 0 && last < sampler.count);
}

/* Pins the order: another program (sample_order.py) and later versions must find the same. */
static void the_order_is_the_one_that_the_documents_show(void **state)
{
    (void)state;
    static const int64_t wanted[] = {14, 12, 17, 4, 19};
    tri_sampler sampler = {1, 20, 8, 4, true, 0, 0};
    for (int64_t k = 0; k < 5; k++)
        assert_int_equal(tri_sampler_part_index(&sampler, 1, tri_sampler_order(&sampler, 2, 1, k)), wanted[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_comes_exactly_once_per_epoch),
        cmocka_unit_test(blocks_come_in_random_order_and_are_shuffled_in_buffers),
        cmocka_unit_test(epochs_and_seeds_have_different_orders),
        cmocka_unit_test(huge_counts_do_not_overflow),
        cmocka_unit_test(the_order_is_the_one_that_the_documents_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
