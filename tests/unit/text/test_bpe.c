/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bpe.c: merging by the plain rule, by scanning and by heap gives the same.
 */
#include "text/bpe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

#define MERGES 60
#define LETTER 6

/* Letters 0 to 5, and merges of random tokens that are there before them; their ranks are shuffled. */
static void make_merges(tri_bpe *bpe, tri_merge *merges, uint64_t seed)
{
    const tri_rng rng = {seed, 1};
    assert_int_equal(tri_bpe_init(bpe, MERGES), TRI_OK);
    for (int i = 0; i < MERGES; i++) {
        const uint64_t known = (uint64_t)(LETTER + i);
        merges[i] = (tri_merge){.left = (int32_t)tri_rng_below(rng, 2 * (uint64_t)i, known),
                                .right = (int32_t)tri_rng_below(rng, 2 * (uint64_t)i + 1, known),
                                .rank = (uint32_t)tri_rng_permute(rng, (uint64_t)i, MERGES),
                                .merged = LETTER + i};
        for (int j = 0; j < i; j++)
            if (merges[j].left == merges[i].left && merges[j].right == merges[i].right)
                merges[j].left = -1; /* the later one counts */
        tri_bpe_add(bpe, merges[i]);
    }
}

/* The rule as it is written down. */
static size_t merge_plainly(const tri_merge *merges, int32_t *tokens, size_t count)
{
    for (;;) {
        const tri_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++)
            for (int m = 0; m < MERGES; m++)
                if (merges[m].left == tokens[i] && merges[m].right == tokens[i + 1] &&
                    (best == NULL || merges[m].rank < best->rank)) {
                    best = &merges[m];
                    at = i;
                }
        if (best == NULL)
            return count;
        tokens[at] = best->merged;
        memmove(tokens + at + 1, tokens + at + 2, (count - at - 2) * sizeof(*tokens));
        count--;
    }
}

static void any_length_merges_as_the_rule_says(void **state)
{
    (void)state;
    tri_bpe_scratch scratch = {0};
    for (uint64_t seed = 0; seed < 20; seed++) {
        tri_bpe bpe;
        tri_merge merges[MERGES];
        make_merges(&bpe, merges, seed);
        for (size_t length = 0; length < 260; length += length < 8 ? 1 : 21) {
            int32_t wanted[260], tokens[260];
            for (size_t i = 0; i < length; i++)
                tokens[i] = wanted[i] = (int32_t)tri_rng_below((tri_rng){seed, 2 + length}, i, LETTER);
            const size_t count = merge_plainly(merges, wanted, length);
            size_t left = length;
            assert_int_equal(tri_bpe_run(&bpe, &scratch, tokens, &left), TRI_OK);
            assert_int_equal(left, count);
            assert_memory_equal(tokens, wanted, count * sizeof(*tokens));
        }
        tri_bpe_fini(&bpe);
    }
    tri_bpe_scratch_fini(&scratch);
}

static void a_pair_that_comes_again_takes_the_later_rank(void **state)
{
    (void)state;
    tri_bpe bpe;
    tri_bpe_scratch scratch = {0};
    int32_t tokens[] = {0, 1, 2};
    size_t count = 3;
    assert_int_equal(tri_bpe_init(&bpe, 3), TRI_OK);
    tri_bpe_add(&bpe, (tri_merge){0, 1, 0, 3});
    tri_bpe_add(&bpe, (tri_merge){1, 2, 1, 4});
    tri_bpe_add(&bpe, (tri_merge){0, 1, 2, 3});
    assert_int_equal(bpe.count, 2);
    assert_int_equal(tri_bpe_run(&bpe, &scratch, tokens, &count), TRI_OK);
    assert_int_equal(count, 2);
    assert_int_equal(tokens[1], 4);
    tri_bpe_fini(&bpe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_length_merges_as_the_rule_says),
        cmocka_unit_test(a_pair_that_comes_again_takes_the_later_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
