/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/tables/sum.h"

#include "unit/ps/ps_rig.h"

#define ELEMENTS   5
#define MOST_PARTS 64

static float leaf_value(int64_t leaf, int element)
{
    tri_rng rng = {7, (uint64_t)leaf};
    return tri_rng_normal(rng, 2 * (uint64_t)element) * (float)(1 << (leaf % 13));
}

/* T(first, first + count) over the leaves of `here`; false where none is. */
static bool tree(const bool *here, int64_t first, int64_t count, float *out)
{
    float right[ELEMENTS];
    if (count == 1) {
        for (int e = 0; e < ELEMENTS; e++)
            out[e] = leaf_value(first, e);
        return here[first];
    }
    bool left = tree(here, first, count / 2, out);
    if (!tree(here, first + count / 2, count / 2, right))
        return left;
    for (int e = 0; e < ELEMENTS; e++)
        out[e] = left ? out[e] + right[e] : right[e];
    return true;
}

static const bool all[MOST_PARTS] = {[0 ... MOST_PARTS - 1] = true};

static void send(ps_sum *sum, tri_tree_part part)
{
    float *room;
    OK(ps_sum_room(sum, part, &room));
    assert_false(ps_sum_has(sum, part));
    assert_true((uintptr_t)room % 64 == 0);
    assert_true(tree(all, part.first, part.count, room));
    OK(ps_sum_take(sum, part, room));
}

/* Parts of `world` workers. */
static int parts_make(int64_t leaves, int world, tri_tree_part *parts)
{
    int count = 0;
    for (int rank = 0; rank < world; rank++)
        count += tri_tree_parts(leaves, tri_tree_first(leaves, rank, world), tri_tree_count(leaves, rank, world),
                                parts + count);
    return count;
}

static void the_root_has_the_bits_of_the_tree_in_whatever_order_parts_come(void **state)
{
    (void)state;
    rig_random random = {{1, 1}, 0};
    for (int64_t leaves = 1; leaves <= 64; leaves *= 2) {
        ps_sum sum;
        float expected[ELEMENTS];
        OK(ps_sum_init(&sum, leaves, ELEMENTS));
        tree(all, 0, leaves, expected);
        for (int round = 0; round < 60; round++) {
            tri_tree_part parts[2 * MOST_PARTS];
            int order[2 * MOST_PARTS], world = 1 + (int)rig_below(&random, (uint64_t)leaves);
            int count = parts_make(leaves, world, parts);
            rig_shuffle(&random, order, count);
            for (int i = 0; i < count; i++) {
                assert_false(ps_sum_is_whole(&sum));
                assert_null(ps_sum_root(&sum));
                send(&sum, parts[order[i]]);
                assert_true(ps_sum_has(&sum, parts[order[i]]));
            }
            assert_true(ps_sum_is_whole(&sum));
            assert_int_equal(ps_sum_count(&sum), leaves);
            assert_memory_equal(ps_sum_root(&sum), expected, sizeof(expected));
            ps_sum_reset(&sum);
        }
        ps_sum_fini(&sum);
    }
}

static void rooms_may_be_open_side_by_side_and_buffers_are_used_again(void **state)
{
    (void)state;
    ps_sum sum;
    float *rooms[8], expected[ELEMENTS];
    uint64_t calls = 0;
    OK(ps_sum_init(&sum, 8, ELEMENTS));
    tree(all, 0, 8, expected);
    for (int step = 0; step < 3; step++) {
        for (int64_t i = 0; i < 8; i++)
            OK(ps_sum_room(&sum, (tri_tree_part){i, 1}, &rooms[i]));
        for (int64_t i = 7; i >= 0; i--) {
            tree(all, i, 1, rooms[i]);
            OK(ps_sum_take(&sum, (tri_tree_part){i, 1}, rooms[i]));
        }
        assert_memory_equal(ps_sum_root(&sum), expected, sizeof(expected));
        ps_sum_reset(&sum);
        if (step == 0)
            calls = tri_memory_now().calls;
    }
    assert_int_equal(tri_memory_now().calls, calls);
    ps_sum_fini(&sum);
}

static void what_overlaps_or_cannot_be_is_refused(void **state)
{
    (void)state;
    ps_sum sum;
    float *room, *other;
    FAILS(TRI_EINVAL, "want a power of two of leaves, got 6", ps_sum_init(&sum, 6, 1));
    FAILS(TRI_EINVAL, "want a power of two of leaves, got 0", ps_sum_init(&sum, 0, 1));
    FAILS(TRI_EINVAL, "want elements, got 0", ps_sum_init(&sum, 8, 0));
    OK(ps_sum_init(&sum, 8, ELEMENTS));
    const tri_tree_part none[] = {{0, 0},  {0, 3},         {1, 2},  {0, 16},        {8, 1},         {-1, 1},
                                  {-2, 2}, {INT64_MAX, 1}, {0, -8}, {INT64_MIN, 8}, {0, INT64_MIN}, {4, 8}};
    for (size_t i = 0; i < TRI_COUNT_OF(none); i++) {
        FAILS(TRI_EINVAL, "want a whole subtree of 8 leaves", ps_sum_room(&sum, none[i], &room));
        assert_false(ps_sum_has(&sum, none[i]));
    }
    OK(ps_sum_room(&sum, (tri_tree_part){4, 2}, &room));
    const tri_tree_part overlapping[] = {{4, 2}, {4, 1}, {5, 1}, {4, 4}, {0, 8}};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < TRI_COUNT_OF(overlapping); i++)
            FAILS(TRI_EINVAL, round ? "overlap 4 to 5, which are here" : "overlap 4 to 5, which are on their way",
                  ps_sum_room(&sum, overlapping[i], &other));
        if (round == 0) {
            FAILS(TRI_EINVAL, "nobody awaits leaves 4 to 4", ps_sum_take(&sum, (tri_tree_part){4, 1}, room));
            FAILS(TRI_EINVAL, "nobody awaits leaves 4 to 5", ps_sum_take(&sum, (tri_tree_part){4, 2}, room + 1));
            tree(all, 4, 2, room);
            OK(ps_sum_take(&sum, (tri_tree_part){4, 2}, room));
        }
        FAILS(TRI_EINVAL, "nobody awaits leaves 0 to 7", ps_sum_take(&sum, (tri_tree_part){0, 8}, room));
    }
    FAILS(TRI_EINVAL, "nobody awaits leaves 4 to 5", ps_sum_take(&sum, (tri_tree_part){4, 2}, room));
    ps_sum_fini(&sum);
}

static void a_room_that_is_left_can_be_asked_for_again(void **state)
{
    (void)state;
    ps_sum sum;
    float *room, expected[ELEMENTS];
    OK(ps_sum_init(&sum, 2, ELEMENTS));
    OK(ps_sum_room(&sum, (tri_tree_part){0, 1}, &room));
    memset(room, 0x7f, ELEMENTS * sizeof(float));
    OK(ps_sum_leave(&sum, (tri_tree_part){0, 1}, room));
    FAILS(TRI_EINVAL, "nobody awaits", ps_sum_leave(&sum, (tri_tree_part){0, 1}, room));
    send(&sum, (tri_tree_part){1, 1});
    send(&sum, (tri_tree_part){0, 1});
    tree(all, 0, 2, expected);
    assert_memory_equal(ps_sum_root(&sum), expected, sizeof(expected));
    ps_sum_fini(&sum);
}

static void what_is_dropped_is_left_out(void **state)
{
    (void)state;
    rig_random random = {{1, 2}, 0};
    ps_sum sum;
    OK(ps_sum_init(&sum, 32, ELEMENTS));
    for (int round = 0; round < 300; round++) {
        tri_tree_part parts[2 * MOST_PARTS];
        int order[2 * MOST_PARTS], count = parts_make(32, 1 + (int)rig_below(&random, 32), parts);
        int taken = (int)rig_below(&random, (uint64_t)count + 1), early = (int)rig_below(&random, (uint64_t)taken + 1);
        bool here[MOST_PARTS] = {false};
        float expected[ELEMENTS], *rooms[2 * MOST_PARTS];
        rig_shuffle(&random, order, count);
        for (int i = 0; i < taken; i++) {
            const tri_tree_part *part = &parts[order[i]];
            OK(ps_sum_room(&sum, *part, &rooms[i]));
            tree(all, part->first, part->count, rooms[i]);
            bool leaves = i > early && i % 5 == 0; /* some are left after the drop */
            memset(here + part->first, !leaves, (size_t)part->count);
            if (i < early)
                OK(ps_sum_take(&sum, *part, rooms[i]));
        }
        ps_sum_drop(&sum);
        if (taken < count)
            FAILS(TRI_EINVAL, early == taken && taken > 0 ? "part of a sum" : "were dropped",
                  ps_sum_room(&sum, parts[order[taken]], &rooms[taken]));
        for (int i = early; i < taken; i++) {
            assert_false(ps_sum_is_whole(&sum));
            if (here[parts[order[i]].first])
                OK(ps_sum_take(&sum, parts[order[i]], rooms[i]));
            else
                OK(ps_sum_leave(&sum, parts[order[i]], rooms[i]));
        }
        assert_true(ps_sum_is_whole(&sum));
        int64_t leaves = 0;
        for (int i = 0; i < 32; i++)
            leaves += here[i];
        assert_int_equal(ps_sum_count(&sum), leaves);
        if (tree(here, 0, 32, expected))
            assert_memory_equal(ps_sum_root(&sum), expected, sizeof(expected));
        else
            assert_null(ps_sum_root(&sum));
        ps_sum_reset(&sum);
    }
    ps_sum_fini(&sum);
}

/* Workers are chosen while parts of others are here, on their way or still to come; rooms outlive the step. */
static void parts_of_those_who_were_not_chosen_are_forgone(void **state)
{
    (void)state;
    enum { OWNERS = 8, EACH = 4 };
    rig_random random = {{1, 5}, 0};
    ps_sum sum;
    OK(ps_sum_init(&sum, OWNERS * EACH, ELEMENTS));
    sum.apart = true;
    for (int round = 0; round < 200; round++) {
        bool here[MOST_PARTS] = {false};
        float expected[ELEMENTS], *late[OWNERS] = {NULL};
        int order[OWNERS], chosen = 1 + (int)rig_below(&random, OWNERS - 1);
        rig_shuffle(&random, order, OWNERS);
        for (int i = 0; i < OWNERS; i++) {
            tri_tree_part part = {order[i] * EACH, EACH};
            bool is_late = i >= chosen && i % 2 == 0;
            if (i >= chosen && i % 4 == 3)
                continue;
            memset(here + part.first, i < chosen, EACH);
            if (!is_late) {
                send(&sum, part);
                continue;
            }
            OK(ps_sum_room(&sum, part, &late[i]));
            tree(all, part.first, part.count, late[i]);
        }
        assert_false(ps_sum_is_whole(&sum));
        for (int i = chosen; i < OWNERS; i++)
            ps_sum_forgo(&sum, order[i] * EACH, EACH);
        assert_int_equal(ps_sum_count(&sum), chosen * EACH);
        ps_sum_drop(&sum);
        assert_true(ps_sum_is_whole(&sum));
        assert_true(tree(here, 0, OWNERS * EACH, expected));
        assert_memory_equal(ps_sum_root(&sum), expected, sizeof(expected));
        ps_sum_reset(&sum);
        for (int i = 0; i < OWNERS; i++) {
            tri_tree_part part = {order[i] * EACH, EACH};
            if (late[i] && i % 3 == 0)
                OK(ps_sum_leave(&sum, part, late[i]));
            else if (late[i])
                OK(ps_sum_take(&sum, part, late[i]));
            if (late[i])
                FAILS(TRI_EINVAL, "nobody awaits", ps_sum_take(&sum, part, late[i]));
        }
        assert_int_equal(ps_sum_count(&sum), 0);
    }
    ps_sum_fini(&sum);
}

static void a_sum_goes_on_elsewhere_from_its_bytes(void **state)
{
    (void)state;
    rig_random random = {{1, 3}, 0};
    ps_sum sum, copy;
    float expected[ELEMENTS], *room;
    OK(ps_sum_init(&sum, 16, ELEMENTS));
    OK(ps_sum_init(&copy, 16, ELEMENTS));
    tree(all, 0, 16, expected);
    for (int round = 0; round < 40; round++) {
        tri_tree_part parts[2 * MOST_PARTS];
        int order[2 * MOST_PARTS], count = parts_make(16, 1 + (int)rig_below(&random, 16), parts);
        int before = (int)rig_below(&random, (uint64_t)count);
        tri_string bytes = {0}, again = {0};
        rig_shuffle(&random, order, count);
        for (int i = 0; i < before; i++)
            send(&sum, parts[order[i]]);
        OK(ps_sum_room(&sum, parts[order[before]], &room)); /* on its way: the copy knows nothing of it */
        OK(ps_sum_write(&sum, &bytes));
        OK(ps_sum_read(&copy, bytes.text, bytes.nbytes));
        OK(ps_sum_write(&copy, &again));
        assert_int_equal(again.nbytes, bytes.nbytes);
        assert_memory_equal(again.text, bytes.text, bytes.nbytes);
        for (int i = before; i < count; i++)
            send(&copy, parts[order[i]]);
        assert_memory_equal(ps_sum_root(&copy), expected, sizeof(expected));
        OK(ps_sum_leave(&sum, parts[order[before]], room));
        ps_sum_reset(&sum);
        tri_string_fini(&bytes);
        tri_string_fini(&again);
    }
    ps_sum_fini(&sum);
    ps_sum_fini(&copy);
}

static void two_sums_that_heard_different_senders_become_one(void **state)
{
    (void)state;
    rig_random random = {{1, 5}, 0};
    ps_sum sum, other;
    float expected[ELEMENTS];
    OK(ps_sum_init(&sum, 16, ELEMENTS));
    OK(ps_sum_init(&other, 16, ELEMENTS));
    tree(all, 0, 16, expected);
    for (int round = 0; round < 400; round++) {
        tri_tree_part parts[2 * MOST_PARTS];
        int order[2 * MOST_PARTS], count = parts_make(16, 1 + (int)rig_below(&random, 16), parts);
        bool heard[2 * MOST_PARTS] = {0};
        int64_t leaves = 0;
        rig_shuffle(&random, order, count);
        for (int i = 0; i < count; i++) {
            uint64_t who = rig_below(&random, 4); /* both, one of them, nobody */
            if (who <= 1)
                send(&sum, parts[order[i]]);
            if (who == 0 || who == 2)
                send(&other, parts[order[i]]);
            heard[i] = who <= 2;
            leaves += heard[i] ? parts[order[i]].count : 0;
        }
        OK(ps_sum_merge(&sum, &other));
        assert_int_equal(ps_sum_count(&sum), leaves);
        for (int i = 0; i < count; i++)
            if (heard[i])
                assert_true(ps_sum_has(&sum, parts[order[i]]));
            else
                send(&sum, parts[order[i]]);
        assert_memory_equal(ps_sum_root(&sum), expected, sizeof(expected));
        ps_sum_reset(&sum);
        ps_sum_reset(&other);
    }
    ps_sum_fini(&sum);
    ps_sum_fini(&other);
}

static void bytes_that_are_no_sum_are_refused(void **state)
{
    (void)state;
    rig_random random = {{1, 4}, 0};
    ps_sum sum, copy;
    tri_string bytes = {0};
    OK(ps_sum_init(&sum, 8, ELEMENTS));
    OK(ps_sum_init(&copy, 8, ELEMENTS));
    send(&sum, (tri_tree_part){0, 2});
    send(&sum, (tri_tree_part){5, 1});
    OK(ps_sum_write(&sum, &bytes));
    for (size_t nbytes = 0; nbytes < bytes.nbytes; nbytes++) {
        assert_int_equal(ps_sum_read(&copy, bytes.text, nbytes), TRI_EFORMAT);
        assert_int_equal(ps_sum_count(&copy), 0);
        send(&copy, (tri_tree_part){0, 8}); /* and it is as good as new */
    }
    /* Heads that were spoilt; the first 64 bytes are all but the elements. */
    for (int round = 0; round < 3000; round++) {
        char spoilt[256];
        memcpy(spoilt, bytes.text, bytes.nbytes);
        for (uint64_t i = 0; i <= rig_below(&random, 3); i++)
            spoilt[rig_below(&random, 56)] = (char)rig_below(&random, 256);
        tri_status status = ps_sum_read(&copy, spoilt, bytes.nbytes);
        assert_true(status == TRI_OK || status == TRI_EFORMAT);
        if (status != TRI_OK)
            assert_int_equal(ps_sum_count(&copy), 0);
    }
    OK(tri_string_append_bytes(&bytes, "x", 1));
    FAILS(TRI_EFORMAT, "1 bytes too many", ps_sum_read(&copy, bytes.text, bytes.nbytes));
    ps_sum other;
    OK(ps_sum_init(&other, 16, ELEMENTS));
    FAILS(TRI_EFORMAT, "want 16 leaves and 5 elements, got 8 and 5", ps_sum_read(&other, bytes.text, bytes.nbytes));
    ps_sum_fini(&other);
    ps_sum_fini(&sum);
    ps_sum_fini(&copy);
    tri_string_fini(&bytes);
}

static void running_out_of_memory_loses_nothing(void **state)
{
    (void)state;
    uint64_t live = tri_memory_now().live;
    float expected[ELEMENTS];
    tree(all, 0, 8, expected);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        ps_sum sum;
        float *rooms[8];
        OK(ps_sum_init(&sum, 8, ELEMENTS));
        done = true;
        tri_memory_fail_at(n);
        for (int64_t i = 0; i < 8; i++) {
            tri_status status = ps_sum_room(&sum, (tri_tree_part){i, 1}, &rooms[i]);
            if (status != TRI_OK) { /* it works the second time */
                assert_int_equal(status, TRI_ENOMEM);
                done = false;
                OK(ps_sum_room(&sum, (tri_tree_part){i, 1}, &rooms[i]));
            }
            tree(all, i, 1, rooms[i]);
        }
        tri_memory_fail_at(0);
        for (int64_t i = 0; i < 8; i++)
            OK(ps_sum_take(&sum, (tri_tree_part){i, 1}, rooms[i]));
        assert_memory_equal(ps_sum_root(&sum), expected, sizeof(expected));
        ps_sum_fini(&sum);
    }
    assert_int_equal(tri_memory_now().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_has_the_bits_of_the_tree_in_whatever_order_parts_come),
        cmocka_unit_test(rooms_may_be_open_side_by_side_and_buffers_are_used_again),
        cmocka_unit_test(what_overlaps_or_cannot_be_is_refused),
        cmocka_unit_test(a_room_that_is_left_can_be_asked_for_again),
        cmocka_unit_test(what_is_dropped_is_left_out),
        cmocka_unit_test(parts_of_those_who_were_not_chosen_are_forgone),
        cmocka_unit_test(a_sum_goes_on_elsewhere_from_its_bytes),
        cmocka_unit_test(two_sums_that_heard_different_senders_become_one),
        cmocka_unit_test(bytes_that_are_no_sum_are_refused),
        cmocka_unit_test(running_out_of_memory_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
