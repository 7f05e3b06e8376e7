/* SPDX-License-Identifier: Apache-2.0
 *
 * test_members.c: runs whose processes are killed, stopped and started again: generations, what is kept of them, the
 * order of ranks.
 */
#include "unit/cluster/members_run.h"

static void a_quiet_run_has_one_generation(void **state)
{
    (void)state;
    run *all = seed_run(1, (run){.founders = 5, .least = 1, .most = 8});
    assert_int_equal(finishers(all), 5);
    assert_int_equal(all->newest, 1);
    run_free(all);
}

static int seeds_wanted(int otherwise)
{
    const char *text = getenv("TRI_SEEDS");
    return text ? atoi(text) : otherwise;
}

static void survivors_go_on_without_the_dead(void **state)
{
    (void)state;
    for (int seed = 1; seed <= seeds_wanted(300); seed++) {
        int founders = 2 + seed % 7;
        run *all = seed_run((uint64_t)seed, (run){.founders = founders, .least = 1, .most = 8, .kills = founders - 1});
        assert_true(finishers(all) >= 1);
        run_free(all);
    }
}

/* Faults of all kinds. */
static run *rough_run(int seed)
{
    int founders = 2 + seed % 7;
    run *all =
        seed_run((uint64_t)seed,
                 (run){.founders = founders, .least = 1, .most = founders, .kills = 10, .stops = 6, .restarts = 1000});
    assert_true(finishers(all) >= 1);
    return all;
}

static void the_dead_are_replaced_and_the_stopped_come_back(void **state)
{
    (void)state;
    int generations = 0, newcomers = 0, begun_anew = 0;
    for (int seed = 1; seed <= seeds_wanted(300); seed++) {
        run *all = rough_run(seed);
        generations += (int)all->newest;
        newcomers += all->count - all->founders;
        begun_anew += all->begun_anew > 0;
        run_free(all);
    }
    print_message("%d generations, %d newcomers, %d runs begun anew\n", generations, newcomers, begun_anew);
}

/* 251: a newcomer slept while the others came to the end, found all of them gone, and began the run anew. 791: one died
 * between its ticket and its name, and those after it waited for it for ever. */
static void what_was_found_once_stays_found(void **state)
{
    const int seeds[] = {251, 791};
    (void)state;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++)
        run_free(rough_run(seeds[i]));
}

/* --- the order of ranks --- */

static int named(tri_member *members, const char *names)
{
    int count = (int)strlen(names);
    for (int i = 0; i < count; i++)
        members[i] = (tri_member){.id = {names[i]}, .progress = names[i] >= 'a' ? 7 : -1};
    return count;
}

static void order_check(const char *before, const char *given, const char *wanted)
{
    tri_member old[16], list[16];
    tri_generation generation = {.count = named(old, before), .members = old};
    int count = named(list, given);
    assert_int_equal(tri_members_spread(&generation, list, count), TRI_OK);
    for (int i = 0; i < count; i++)
        if (list[i].id[0] != wanted[i])
            fail_msg("%s, now %s: rank %d is %s, want %s", before, given, i, list[i].id, wanted);
}

/* Letters have a state, digits and capitals have none. */
static void who_stays_keeps_its_place_and_newcomers_take_those_of_the_dead(void **state)
{
    (void)state;
    order_check("abcd", "abcd", "abcd");
    order_check("abcd", "abd", "abd");
    order_check("abcd", "acd1", "a1cd");
    order_check("abcd", "abc1", "abc1");
    order_check("abcd", "bcd1", "b1cd"); /* rank 0 has what a newcomer has not */
    order_check("abcd", "d123", "d123");
    order_check("abcd", "bd12", "b12d");
    order_check("abcd", "bd1", "b1d");
    order_check("abc", "abc1", "a1bc");
    order_check("abcd", "abcd1234", "a1b23c4d");
    order_check("ab", "ab1234", "a1234b");
    order_check("a", "a12", "a12");
    order_check("abcd", "1234", "1234");
    order_check("abcd", "ab1c", "ab1c"); /* c was given up, and has registered all the same */
    order_check("", "12", "12");
    /* 1 and A are of a generation that never formed: a was killed, and had lines that it had not written */
    order_check("a1bc", "1bc", "b1c");
    order_check("aAbc", "Abc2", "bA2c");
    order_check("AB", "AB1a", "aA1B");
}
/* --- what is forgotten --- */

/* Somebody dies all the time, and comes back: what the store holds in the end is a matter of the last generations, not
 * of how many there were (it was 2.5 keys for each death). Whoever dies while it takes something away may leave it. */
static void a_store_holds_no_more_after_many_deaths(void **state)
{
    const run settings = {.founders = 4,
                          .least = 1,
                          .most = 4,
                          .step_ns = 40 * TRI_NS_PER_MS,
                          .life_ns = TRI_NS_PER_S,
                          .kills = 150,
                          .restarts = 1000};
    int born = 0;
    (void)state;
    for (int seed = 1; seed <= 20; seed++) {
        run one = settings;
        one.stops = seed % 2 ? 0 : 30;
        run *all = seed_run((uint64_t)seed, one);
        int kept = all_kept(all, (int)all->newest + 2);
        if (kept > 32)
            print_message("seed %d: %d generations of %d processes: %d keys\n", seed, (int)all->newest, all->count,
                          kept);
        assert_true(kept <= 32);
        born += all->count;
        run_free(all);
    }
    assert_true(born > 1000);
}
static void of_64_members_half_are_lost(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 3; seed++) {
        run *all = seed_run((uint64_t)seed, (run){.founders = 64, .least = 1, .most = 64, .kills = 32, .stops = 8});
        assert_true(finishers(all) >= 1);
        run_free(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_run_has_one_generation),
        cmocka_unit_test(survivors_go_on_without_the_dead),
        cmocka_unit_test(the_dead_are_replaced_and_the_stopped_come_back),
        cmocka_unit_test(what_was_found_once_stays_found),
        cmocka_unit_test(who_stays_keeps_its_place_and_newcomers_take_those_of_the_dead),
        cmocka_unit_test(a_store_holds_no_more_after_many_deaths),
        cmocka_unit_test(of_64_members_half_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
