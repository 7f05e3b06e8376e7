/* SPDX-License-Identifier: Apache-2.0
 *
 * test_members.c: runs whose processes are killed, stopped and started again: generations, and what is
 * kept of them.
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
        cmocka_unit_test(a_store_holds_no_more_after_many_deaths),
        cmocka_unit_test(of_64_members_half_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
