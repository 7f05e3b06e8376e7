/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rng.c: Philox against the published vectors of Random123, moments of the distributions, permutations in full.
 */
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    /* Random123, kat_vectors, "philox4x32 10". */
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        uint32_t out[4];
        tri_philox(rows[i].counter, rows[i].key, out);
        assert_memory_equal(out, rows[i].want, sizeof(out));
    }
}

static void numbers_are_the_words_of_their_blocks(void **state)
{
    (void)state;
    tri_rng rng = {.seed = UINT64_C(0x1122334455667788), .stream = UINT64_C(0x99aabbccddeeff00)};
    const uint32_t key[2] = {0x55667788, 0x11223344};
    const uint64_t block = UINT64_C(0x300000007);
    const uint32_t counter[4] = {7, 3, 0xddeeff00, 0x99aabbcc};
    uint32_t words[4];
    tri_philox(counter, key, words);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(tri_rng_u32(rng, 4 * block + i), words[i]);
    assert_int_equal(tri_rng_u64(rng, 2 * block), (uint64_t)words[1] << 32 | words[0]);
    assert_int_equal(tri_rng_u64(rng, 2 * block + 1), (uint64_t)words[3] << 32 | words[2]);
}

static void streams_differ_in_purpose_and_numbers(void **state)
{
    (void)state;
    const uint64_t streams[] = {tri_rng_stream("init", 0, 0), tri_rng_stream("init", 1, 0),
                                tri_rng_stream("init", 0, 1), tri_rng_stream("dropout", 0, 0),
                                tri_rng_stream("", 0, 0)};
    for (size_t i = 0; i < TRI_COUNT_OF(streams); i++)
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(streams[i], streams[j]);
    assert_int_equal(tri_rng_stream("init", 1, 0), streams[1]);
}

static void uniform_numbers_have_the_right_moments(void **state)
{
    (void)state;
    const uint64_t count = 200000;
    tri_rng rng = {1, 2};
    double sum = 0, squares = 0, neighbours = 0, last = 0.5;
    for (uint64_t i = 0; i < count; i++) {
        double x = (double)tri_rng_uniform(rng, i);
        assert_true(x >= 0 && x < 1);
        sum += x;
        squares += x * x;
        neighbours += (x - 0.5) * (last - 0.5);
        last = x;
    }
    double n = (double)count; /* five standard deviations each */
    assert_true(fabs(sum / n - 0.5) < 5 * 0.2887 / sqrt(n));
    assert_true(fabs(squares / n - 1.0 / 3) < 5 * 0.2981 / sqrt(n));
    assert_true(fabs(neighbours / n) < 5 * 0.0834 / sqrt(n));
}

static void normal_numbers_have_the_right_moments(void **state)
{
    (void)state;
    const uint64_t count = 200000;
    tri_rng rng = {3, 4};
    double powers[5] = {0}, neighbours = 0, last = 0;
    for (uint64_t i = 0; i < count; i++) {
        double x = (double)tri_rng_normal(rng, i), power = 1;
        assert_true(isfinite(x) && fabs(x) < 6.7);
        for (int p = 0; p < 5; p++, power *= x)
            powers[p] += power;
        neighbours += x * last;
        last = x;
    }
    double n = (double)count;
    assert_true(fabs(powers[1] / n) < 5 / sqrt(n));
    assert_true(fabs(powers[2] / n - 1) < 5 * sqrt(2) / sqrt(n));
    assert_true(fabs(powers[3] / n) < 5 * sqrt(15) / sqrt(n));
    assert_true(fabs(powers[4] / n - 3) < 5 * sqrt(96) / sqrt(n));
    assert_true(fabs(neighbours / n) < 5 / sqrt(n));
}

static void below_reaches_every_value_evenly(void **state)
{
    (void)state;
    tri_rng rng = {5, 6};
    uint64_t hits[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t x = tri_rng_below(rng, i, 7);
        assert_true(x < 7);
        hits[x]++;
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(hits[i], 9500, 10500);
    assert_int_equal(tri_rng_below(rng, 9, 1), 0);
    assert_true(tri_rng_below(rng, 0, UINT64_MAX) != tri_rng_below(rng, 1, UINT64_MAX));
}

static void filling_gives_the_same_numbers_from_any_start(void **state)
{
    (void)state;
    tri_rng rng = {7, 8};
    float out[640];
    for (uint64_t first = 0; first < 6; first++) {
        for (uint64_t count = 0; count < 600; count += count < 20 ? 1 : 37) {
            out[count] = -1;
            tri_rng_fill_uniform(rng, first, count, out);
            assert_true(out[count] == -1);
            for (uint64_t i = 0; i < count; i++)
                assert_true(out[i] == tri_rng_uniform(rng, first + i));
        }
    }
}

static void permutations_are_bijections(void **state)
{
    (void)state;
    enum { MOST = 70000 };
    static const uint64_t large[] = {1000, 1023, 1024, 1025, 65536, 65537, MOST};
    unsigned char *seen = tri_alloc(MOST);
    assert_non_null(seen);
    for (uint64_t row = 1; row <= 130 + TRI_COUNT_OF(large); row++) {
        uint64_t count = row <= 130 ? row : large[row - 131];
        memset(seen, 0, count);
        tri_rng rng = {row, tri_rng_stream("order", 1, 2)};
        for (uint64_t i = 0; i < count; i++) {
            uint64_t place = tri_rng_permute(rng, i, count);
            assert_true(place < count);
            assert_int_equal(seen[place], 0);
            seen[place] = 1;
        }
    }
    tri_free(seen);
}

static void many_places_are_those_of_each(void **state)
{
    (void)state;
    enum { MOST = 300 };
    static const uint64_t bounds[] = {1, 2, 37, MOST, UINT64_C(1) << 62};
    uint64_t places[MOST];
    for (size_t i = 0; i < TRI_COUNT_OF(bounds); i++) {
        tri_rng rng = {5, i};
        uint64_t first = bounds[i] > MOST ? bounds[i] - MOST : bounds[i] / 3, count = bounds[i] - first;
        tri_rng_fill_permute(rng, first, count, bounds[i], places);
        for (uint64_t k = 0; k < count; k++)
            assert_true(places[k] == tri_rng_permute(rng, first + k, bounds[i]));
    }
}

static void permutations_of_huge_ranges_stay_in_them(void **state)
{
    (void)state;
    static const uint64_t counts[] = {UINT64_C(1) << 62, (UINT64_C(1) << 62) + 1, UINT64_MAX};
    for (size_t i = 0; i < TRI_COUNT_OF(counts); i++) {
        uint64_t a = tri_rng_permute((tri_rng){1, 2}, 0, counts[i]);
        uint64_t b = tri_rng_permute((tri_rng){1, 2}, counts[i] - 1, counts[i]);
        assert_true(a < counts[i] && b < counts[i] && a != b);
    }
}

/* All 6 orders of 3 things come up about as often; so do all 24 of 4. */
static void small_permutations_are_equally_likely(void **state)
{
    (void)state;
    for (uint64_t count = 3; count <= 4; count++) {
        unsigned hits[256] = {0};
        for (uint64_t seed = 0; seed < 24000; seed++) {
            unsigned code = 0;
            for (uint64_t i = 0; i < count; i++)
                code = code << 2 | (unsigned)tri_rng_permute((tri_rng){seed, 9}, i, count);
            hits[code]++;
        }
        double orders = count == 3 ? 6 : 24, want = 24000 / orders, chi = 0;
        int met = 0;
        for (int i = 0; i < 256; i++) {
            met += hits[i] != 0;
            chi += hits[i] ? ((double)hits[i] - want) * ((double)hits[i] - want) / want : 0;
        }
        assert_int_equal(met, (int)orders);
        assert_true(chi < 60); /* 23 degrees of freedom: exceeded once in 30,000 seeds of this test */
    }
}

static void permutations_leave_no_trace_of_the_order(void **state)
{
    (void)state;
    const uint64_t count = 50000;
    tri_rng rng = {11, 12};
    double correlation = 0, neighbours = 0, middle = ((double)count - 1) / 2, last = 0;
    for (uint64_t i = 0; i < count; i++) {
        double place = (double)tri_rng_permute(rng, i, count) - middle;
        correlation += place * ((double)i - middle);
        neighbours += place * last;
        last = place;
    }
    double variance = (double)count * (double)count / 12, n = (double)count;
    assert_true(fabs(correlation / n / variance) < 5 / sqrt(n));
    assert_true(fabs(neighbours / n / variance) < 5 / sqrt(n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(numbers_are_the_words_of_their_blocks),
        cmocka_unit_test(streams_differ_in_purpose_and_numbers),
        cmocka_unit_test(uniform_numbers_have_the_right_moments),
        cmocka_unit_test(normal_numbers_have_the_right_moments),
        cmocka_unit_test(below_reaches_every_value_evenly),
        cmocka_unit_test(filling_gives_the_same_numbers_from_any_start),
        cmocka_unit_test(permutations_are_bijections),
        cmocka_unit_test(many_places_are_those_of_each),
        cmocka_unit_test(permutations_of_huge_ranges_stay_in_them),
        cmocka_unit_test(small_permutations_are_equally_likely),
        cmocka_unit_test(permutations_leave_no_trace_of_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
