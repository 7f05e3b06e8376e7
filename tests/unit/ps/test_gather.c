/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/tables/gather.h"

#include "unit/ps/ps_rig.h"

#define DIM        3
#define KEYS       40 /* different ones */
#define LEAVES     16
#define MOST_PARTS 64

/* Leaf `leaf` touches a key `touches()` times (0: not at all); rows of a leaf add up in their order. */
static int touches(int64_t leaf, uint64_t key)
{
    return (int)(tri_rng_below((tri_rng){5, key}, (uint64_t)leaf, 8) % 4) - 1;
}

static uint64_t key_of(uint64_t number)
{
    return number % 2 ? number << 50 | number : number * 255;
}

static float value(int64_t leaf, uint64_t key, int touch, int element)
{
    tri_rng rng = {6, key * 1000 + (uint64_t)leaf};
    return tri_rng_normal(rng, (uint64_t)(4 * touch + element)) * (float)(1 << (leaf % 11));
}

static bool leaf_sum(int64_t leaf, uint64_t key, float *out)
{
    for (int t = 0; t < touches(leaf, key); t++)
        for (int e = 0; e < DIM; e++)
            out[e] = t == 0 ? value(leaf, key, t, e) : out[e] + value(leaf, key, t, e);
    return touches(leaf, key) > 0;
}

/* T(first, first + count) of a key over the leaves that are here; false: none of them has it. */
static bool tree(const bool *here, uint64_t key, int64_t first, int64_t count, float *out)
{
    float right[DIM];
    if (count == 1)
        return here[first] && leaf_sum(first, key, out);
    bool left = tree(here, key, first, count / 2, out);
    if (!tree(here, key, first + count / 2, count / 2, right))
        return left;
    for (int e = 0; e < DIM; e++)
        out[e] = left ? out[e] + right[e] : right[e];
    return true;
}

static const bool all[LEAVES] = {[0 ... LEAVES - 1] = true};

/* What a worker sends for a part: for one leaf every touch, for more the sum of the subtree. */
static void send(ps_gather *gather, rig_random *random, tri_tree_part part)
{
    uint64_t keys[4 * KEYS];
    float rows[4 * KEYS][DIM];
    int count = 0, order[KEYS];
    rig_shuffle(random, order, KEYS);
    for (int k = 0; k < KEYS; k++) {
        uint64_t number = (uint64_t)order[k];
        if (part.count > 1) {
            if (tree(all, number, part.first, part.count, rows[count]))
                keys[count++] = key_of(number);
            continue;
        }
        for (int t = 0; t < touches(part.first, number); t++) {
            for (int e = 0; e < DIM; e++)
                rows[count][e] = value(part.first, number, t, e);
            keys[count++] = key_of(number);
        }
    }
    assert_false(ps_gather_has(gather, part));
    OK(ps_gather_take(gather, part, keys, rows[0], count));
    assert_true(ps_gather_has(gather, part));
}

static int parts_make(int world, tri_tree_part *parts)
{
    int count = 0;
    for (int rank = 0; rank < world; rank++)
        count += tri_tree_parts(LEAVES, tri_tree_first(LEAVES, rank, world), tri_tree_count(LEAVES, rank, world),
                                parts + count);
    return count;
}

static void expect_sums(const ps_gather *gather, const bool *here)
{
    int64_t found = 0;
    for (int64_t i = 1; i < gather->count; i++)
        assert_true(gather->keys[i - 1] < gather->keys[i]);
    for (uint64_t number = 0; number < KEYS; number++) {
        float expected[DIM];
        if (!tree(here, number, 0, LEAVES, expected))
            continue;
        int64_t at = 0;
        while (at < gather->count && gather->keys[at] != key_of(number))
            at++;
        assert_true(at < gather->count);
        assert_memory_equal(gather->rows + at * DIM, expected, sizeof(expected));
        found++;
    }
    assert_int_equal(gather->count, found);
}

static void sums_have_the_bits_of_the_tree_whoever_sends_what_and_when(void **state)
{
    (void)state;
    rig_random random = {{8, 1}, 0};
    ps_gather gather;
    OK(ps_gather_init(&gather, LEAVES, DIM));
    for (int round = 0; round < 100; round++) {
        tri_tree_part parts[MOST_PARTS];
        int order[MOST_PARTS], count = parts_make(1 + (int)rig_below(&random, LEAVES), parts);
        rig_shuffle(&random, order, count);
        for (int i = 0; i < count; i++) {
            assert_false(ps_gather_is_whole(&gather));
            send(&gather, &random, parts[order[i]]);
        }
        assert_true(ps_gather_is_whole(&gather));
        OK(ps_gather_finish(&gather));
        expect_sums(&gather, all);
        ps_gather_reset(&gather);
    }
    ps_gather_fini(&gather);
}

static void what_is_dropped_is_left_out(void **state)
{
    (void)state;
    rig_random random = {{8, 2}, 0};
    ps_gather gather;
    OK(ps_gather_init(&gather, LEAVES, DIM));
    for (int round = 0; round < 100; round++) {
        bool here[LEAVES] = {false};
        tri_tree_part parts[MOST_PARTS];
        int order[MOST_PARTS], count = parts_make(1 + (int)rig_below(&random, LEAVES), parts);
        int taken = (int)rig_below(&random, (uint64_t)count);
        int64_t leaves = 0;
        rig_shuffle(&random, order, count);
        for (int i = 0; i < taken; i++) {
            tri_tree_part part = parts[order[i]];
            send(&gather, &random, part);
            memset(here + part.first, true, (size_t)part.count);
            leaves += part.count;
        }
        ps_gather_drop(&gather);
        FAILS(TRI_EINVAL, "were dropped", ps_gather_take(&gather, parts[order[taken]], NULL, NULL, 0));
        assert_true(ps_gather_is_whole(&gather));
        assert_int_equal(ps_gather_count(&gather), leaves);
        OK(ps_gather_finish(&gather));
        expect_sums(&gather, here);
        ps_gather_reset(&gather);
    }
    ps_gather_fini(&gather);
}

static void what_overlaps_or_cannot_be_is_refused(void **state)
{
    (void)state;
    ps_gather gather;
    FAILS(TRI_EINVAL, "want a power of two of leaves, got 12", ps_gather_init(&gather, 12, 1));
    FAILS(TRI_EINVAL, "want rows of values, got 0", ps_gather_init(&gather, 8, 0));
    OK(ps_gather_init(&gather, 8, DIM));
    FAILS(TRI_EINVAL, "want a whole subtree of 8 leaves",
          ps_gather_take(&gather, (tri_tree_part){1, 2}, NULL, NULL, 0));
    OK(ps_gather_take(&gather, (tri_tree_part){2, 2}, NULL, NULL, 0));
    const tri_tree_part overlapping[] = {{2, 2}, {3, 1}, {0, 4}, {0, 8}};
    for (size_t i = 0; i < TRI_COUNT_OF(overlapping); i++)
        FAILS(TRI_EINVAL, "overlap what is here", ps_gather_take(&gather, overlapping[i], NULL, NULL, 0));
    OK(ps_gather_take(&gather, (tri_tree_part){0, 2}, NULL, NULL, 0));
    OK(ps_gather_take(&gather, (tri_tree_part){4, 4}, NULL, NULL, 0));
    OK(ps_gather_finish(&gather)); /* nobody has touched anything */
    assert_int_equal(gather.count, 0);
    for (size_t i = 0; i < TRI_COUNT_OF(overlapping); i++) /* and one who is late harms nobody */
        FAILS(TRI_EINVAL, "overlap what is here", ps_gather_take(&gather, overlapping[i], NULL, NULL, 0));
    ps_gather_fini(&gather);
}

static void a_sum_goes_on_elsewhere_from_its_bytes(void **state)
{
    (void)state;
    rig_random random = {{8, 3}, 0};
    ps_gather gather, copy;
    tri_string bytes = {0}, again = {0};
    OK(ps_gather_init(&gather, LEAVES, DIM));
    OK(ps_gather_init(&copy, LEAVES, DIM));
    send(&gather, &random, (tri_tree_part){8, 4});
    send(&gather, &random, (tri_tree_part){3, 1});
    OK(ps_gather_write(&gather, &bytes));
    OK(ps_gather_read(&copy, bytes.text, bytes.nbytes));
    OK(ps_gather_write(&copy, &again));
    assert_int_equal(again.nbytes, bytes.nbytes);
    assert_memory_equal(again.text, bytes.text, bytes.nbytes);
    const tri_tree_part rest[] = {{12, 4}, {0, 2}, {2, 1}, {4, 4}};
    for (size_t i = 0; i < TRI_COUNT_OF(rest); i++)
        send(&copy, &random, rest[i]);
    OK(ps_gather_finish(&copy));
    expect_sums(&copy, all);
    for (size_t nbytes = 0; nbytes < bytes.nbytes; nbytes += 1 + nbytes / 50) {
        assert_int_equal(ps_gather_read(&copy, bytes.text, nbytes), TRI_EFORMAT);
        assert_int_equal(ps_gather_count(&copy), 0);
    }
    for (int round = 0; round < 3000; round++) {
        memcpy(again.text, bytes.text, bytes.nbytes);
        for (uint64_t i = 0; i <= rig_below(&random, 3); i++)
            again.text[rig_below(&random, 64)] = (char)rig_below(&random, 256);
        tri_status status = ps_gather_read(&copy, again.text, again.nbytes);
        assert_true(status == TRI_OK || status == TRI_EFORMAT);
    }
    ps_gather_fini(&gather);
    ps_gather_fini(&copy);
    tri_string_fini(&bytes);
    tri_string_fini(&again);
}

static void keys_are_sorted_and_equal_ones_keep_their_order(void **state)
{
    (void)state;
    rig_random random = {{8, 4}, 0};
    enum { COUNT = 3000 };
    static ps_pair pairs[2 * COUNT];
    for (int wide = 0; wide < 2; wide++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < COUNT; i++) {
            pairs[i] = (ps_pair){rig_below(&random, 500) * (wide ? UINT64_C(0x9e3779b97f4a7c15) : 1), 7, i};
            sum += pairs[i].key * (i + 1);
        }
        ps_pairs_sort(pairs, pairs + COUNT, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            sum -= pairs[i].key * (pairs[i].at + 1);
            assert_int_equal(pairs[i].part, 7);
            assert_true(i == 0 || pairs[i - 1].key < pairs[i].key ||
                        (pairs[i - 1].key == pairs[i].key && pairs[i - 1].at < pairs[i].at));
        }
        assert_int_equal(sum, 0);
    }
    ps_pairs_sort(pairs, pairs, 0);
}

static void running_out_of_memory_loses_nothing(void **state)
{
    (void)state;
    uint64_t live = tri_memory_now().live;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        ps_gather gather;
        uint64_t key = key_of(1);
        float row[DIM] = {1, 2, 3};
        OK(ps_gather_init(&gather, 2, DIM));
        done = true;
        tri_memory_fail_at(n);
        for (int64_t i = 0; i < 2; i++)
            if (ps_gather_take(&gather, (tri_tree_part){i, 1}, &key, row, 1) != TRI_OK) {
                done = false;
                OK(ps_gather_take(&gather, (tri_tree_part){i, 1}, &key, row, 1));
            }
        if (ps_gather_finish(&gather) != TRI_OK) {
            done = false;
            OK(ps_gather_finish(&gather));
        }
        tri_memory_fail_at(0);
        assert_int_equal(gather.count, 1);
        assert_true(gather.keys[0] == key && gather.rows[2] == 6);
        ps_gather_fini(&gather);
    }
    assert_int_equal(tri_memory_now().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_the_tree_whoever_sends_what_and_when),
        cmocka_unit_test(what_is_dropped_is_left_out),
        cmocka_unit_test(what_overlaps_or_cannot_be_is_refused),
        cmocka_unit_test(a_sum_goes_on_elsewhere_from_its_bytes),
        cmocka_unit_test(keys_are_sorted_and_equal_ones_keep_their_order),
        cmocka_unit_test(running_out_of_memory_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
