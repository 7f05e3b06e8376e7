/* SPDX-License-Identifier: Apache-2.0
 *
 * test_members.c: runs whose processes are killed, stopped and started again: generations, and what is
 * kept of them.
 */
#include "unit/cluster/members_run.h"

static void a_quiet_run_has_one_generation(void **state)
{
    (void)state;
    run *all = seed_run(1, (run){.initial_members = 5, .least = 1, .most = 8});
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
        int initial_members = 2 + seed % 7;
        run *all =
            seed_run((uint64_t)seed,
                     (run){.initial_members = initial_members, .least = 1, .most = 8, .kills = initial_members - 1});
        assert_true(finishers(all) >= 1);
        run_free(all);
    }
}

/* Faults of all kinds. */
static run *rough_run(int seed)
{
    int initial_members = 2 + seed % 7;
    run *all = seed_run((uint64_t)seed, (run){.initial_members = initial_members,
                                              .least = 1,
                                              .most = initial_members,
                                              .kills = 10,
                                              .stops = 6,
                                              .restarts = 1000});
    assert_true(finishers(all) >= 1);
    return all;
}

static void the_dead_are_replaced_and_the_stopped_come_back(void **state)
{
    (void)state;
    int generations = 0, newcomers = 0, begun_again = 0;
    for (int seed = 1; seed <= seeds_wanted(300); seed++) {
        run *all = rough_run(seed);
        generations += (int)all->newest;
        newcomers += all->count - all->initial_members;
        begun_again += all->begun_again > 0;
        run_free(all);
    }
    print_message("%d generations, %d newcomers, %d runs begun again\n", generations, newcomers, begun_again);
}

/* 251: a newcomer slept while the others came to the end, found all of them gone, and began the run again. 791: one
 * died between its ticket and its name, and those after it waited for it for ever. */
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
    const run settings = {.initial_members = 4,
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
        run *all =
            seed_run((uint64_t)seed, (run){.initial_members = 64, .least = 1, .most = 64, .kills = 32, .stops = 8});
        assert_true(finishers(all) >= 1);
        run_free(all);
    }
}

/* --- what all must have in common --- */

static void check_difference(const char *want, const char *got, const char *told)
{
    tri_string text = {0};
    assert_int_equal(tri_members_spec_compare(want, got, &text), TRI_OK);
    assert_string_equal(tri_string_text(&text), told);
    tri_string_fini(&text);
}

static void a_description_that_differs_is_named_by_its_keys(void **state)
{
    (void)state;
    check_difference("a=1\nb=2\n", "a=1\nb=2\n", "");
    check_difference("a=1\nb=2\n", "a=1\nb=22\n", "b: want 2, got 22");
    check_difference("a=1\nb=2\n", "b=2\n", "a: want 1, got nothing");
    check_difference("a=1\n", "a=1\nab=\n", "ab: want nothing, got ");
    check_difference("a=1\nb=2\nc=3\nd=4\n", "a=0\nb=0\nc=0\nd=0\n",
                     "a: want 1, got 0; b: want 2, got 0; c: want 3, got 0; and 1 more");
    check_difference("a=x=y\n", "a=x=z\n", "a: want x=y, got x=z");
}

typedef struct misfit_run {
    tri_store *store;
    bool lies; /* the newcomer registers without having compared */
    tri_status newcomer;
    char told[TRI_ERROR_NBYTES];
    int64_t generation; /* of the member, in the end */
    int members;
} misfit_run;

static void newcomer_run(void *arg)
{
    misfit_run *both = arg;
    tri_members *members;
    tri_members_setup setup = {.store = both->store,
                               .id = "1.0",
                               .host = "here",
                               .spec = "lr=2\n",
                               .initial_members = 1,
                               .least = 1,
                               .most = 4,
                               .wait_ns = TRI_NS_PER_S};
    assert_int_equal(tri_members_open(&setup, &members), TRI_OK);
    members->spec_agreed = both->lies;
    both->newcomer = tri_members_next(members, -1, NULL, NULL, tri_now_ns() + 100 * TRI_NS_PER_S);
    snprintf(both->told, sizeof both->told, "%s", tri_last_error());
    tri_members_close(members);
}

static void member_run(int index, void *arg)
{
    misfit_run *both = arg;
    tri_members *members;
    tri_thread *thread;
    int64_t limit_ns = tri_now_ns() + 1000 * TRI_NS_PER_S;
    tri_members_setup setup = {.store = both->store,
                               .id = "0.0",
                               .host = "here",
                               .spec = "lr=1\n",
                               .initial_members = 1,
                               .least = 1,
                               .most = 4,
                               .wait_ns = TRI_NS_PER_S};
    (void)index;
    assert_int_equal(tri_members_open(&setup, &members), TRI_OK);
    assert_int_equal(tri_members_next(members, 0, NULL, NULL, limit_ns), TRI_OK);
    assert_int_equal(tri_thread_start(&thread, "newcomer", newcomer_run, both), TRI_OK);
    tri_sleep_ns(TRI_NS_PER_S);
    assert_int_equal(tri_members_next(members, 0, NULL, NULL, limit_ns), TRI_OK);
    both->generation = tri_members_now(members)->number;
    both->members = tri_members_now(members)->count;
    tri_thread_join(thread);
    tri_members_close(members);
}

static misfit_run misfit_run_make(bool lies)
{
    misfit_run both = {.lies = lies};
    assert_int_equal(tri_store_memory(&both.store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.seed = 1}, 1, member_run, &both), TRI_OK);
    tri_store_close(both.store);
    assert_int_equal(both.newcomer, TRI_EMISMATCH);
    assert_int_equal(both.generation, 2);
    assert_int_equal(both.members, 1);
    return both;
}

static void a_newcomer_that_does_not_fit_refuses_itself(void **state)
{
    (void)state;
    misfit_run both = misfit_run_make(false);
    assert_string_equal(both.told, "worker 1.0 cannot join this run: lr: want 1, got 2");
}

static void members_refuse_a_newcomer_that_has_not_compared(void **state)
{
    (void)state;
    misfit_run both = misfit_run_make(true);
    assert_string_equal(both.told,
                        "worker 1.0 cannot join this run: its description of the run is not that of the members");
}

/* --- a run that cannot be --- */

typedef struct failed_run {
    tri_store *store;
    tri_status told, found;
    char words[TRI_ERROR_NBYTES];
    int64_t waited_ns;
} failed_run;

/* The second of two that are needed never comes. */
static void waiting_run(int index, void *arg)
{
    failed_run *both = arg;
    tri_members *members;
    tri_members_setup setup = {.store = both->store,
                               .id = "0.0",
                               .host = "here",
                               .initial_members = 2,
                               .least = 2,
                               .most = 2,
                               .wait_ns = 60 * TRI_NS_PER_S};
    (void)index;
    assert_int_equal(tri_members_open(&setup, &members), TRI_OK);
    assert_int_equal(tri_members_fail(both->store, both->told, "lr: wrong", tri_now_ns() + TRI_NS_PER_S), TRI_OK);
    assert_int_equal(tri_members_mark_dead(both->store, "1.0", tri_now_ns() + TRI_NS_PER_S), TRI_OK);
    both->waited_ns = -tri_now_ns();
    both->found = tri_members_next(members, -1, NULL, NULL, tri_now_ns() + 100 * TRI_NS_PER_S);
    snprintf(both->words, sizeof both->words, "%s", tri_last_error());
    both->waited_ns += tri_now_ns();
    tri_members_close(members);
}

static void nobody_waits_for_others_with_a_configuration_that_cannot_be(void **state)
{
    (void)state;
    const tri_status rows[] = {TRI_ECONFIG, TRI_ENUMERIC};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        failed_run both = {.told = rows[i]};
        assert_int_equal(tri_store_memory(&both.store), TRI_OK);
        assert_int_equal(tri_sim_run(&(tri_sim_config){.seed = 1}, 1, waiting_run, &both), TRI_OK);
        tri_store_close(both.store);
        if (i == 0) {
            assert_int_equal(both.found, TRI_ECONFIG);
            assert_string_equal(both.words, "lr: wrong");
        }
        assert_int_equal(both.waited_ns < TRI_NS_PER_S, i == 0); /* of other failures others may come again */
    }
}

/* --- spares --- */

typedef struct spare {
    tri_store *store;
    const char *id;
    tri_status found;
    int64_t generation, waited_ns;
    int rank;
} spare;

#define SPARE_LIMIT_NS (100 * TRI_NS_PER_S)
#define SPARE_WAIT_NS  (4 * SPARE_LIMIT_NS)

static tri_members_setup spare_setup(tri_store *store, const char *id)
{
    return (tri_members_setup){
        .store = store, .id = id, .host = "here", .initial_members = 1, .least = 1, .most = 1, .wait_ns = TRI_NS_PER_S};
}

static void spare_wait(void *arg)
{
    spare *own = arg;
    tri_members *members;
    tri_members_setup setup = spare_setup(own->store, own->id);
    assert_int_equal(tri_members_open(&setup, &members), TRI_OK);
    own->waited_ns = -tri_now_ns();
    own->found = tri_members_next(members, -1, NULL, NULL, tri_now_ns() + SPARE_LIMIT_NS);
    own->waited_ns += tri_now_ns();
    own->generation = tri_members_now(members)->number;
    own->rank = tri_members_rank(members);
    tri_members_close(members);
}

/* One works, and dies after a long time; the first spare that takes its place does the same. */
static void work_and_die(int index, void *arg)
{
    spare *spares = arg;
    tri_members *members;
    tri_thread *threads[2];
    tri_store *store = spares[0].store;
    tri_members_setup setup = spare_setup(store, "0.0");
    (void)index;
    assert_int_equal(tri_members_open(&setup, &members), TRI_OK);
    assert_int_equal(tri_members_next(members, 0, NULL, NULL, tri_now_ns() + SPARE_LIMIT_NS), TRI_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tri_thread_start(&threads[i], "spare", spare_wait, &spares[i]), TRI_OK);
        tri_sleep_ns(TRI_NS_PER_S);
    }
    for (int i = 0; i < 2; i++) {
        tri_sleep_ns(SPARE_WAIT_NS);
        assert_int_equal(tri_members_mark_dead(store, i == 0 ? "0.0" : spares[0].id, tri_now_ns() + TRI_NS_PER_S),
                         TRI_OK);
        tri_thread_join(threads[i]);
    }
    tri_members_close(members);
}

static void spares_wait_longer_than_a_generation_may_take(void **state)
{
    spare spares[2] = {{.id = "1.0", .rank = -1}, {.id = "2.0", .rank = -1}};
    (void)state;
    assert_int_equal(tri_store_memory(&spares[0].store), TRI_OK);
    spares[1].store = spares[0].store;
    assert_int_equal(tri_sim_run(&(tri_sim_config){.seed = 1}, 1, work_and_die, spares), TRI_OK);
    tri_store_close(spares[0].store);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spares[i].found, TRI_OK);
        assert_int_equal(spares[i].generation, 2 + i);
        assert_int_equal(spares[i].rank, 0);
        assert_true(spares[i].waited_ns >= (1 + i) * SPARE_WAIT_NS);
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
        cmocka_unit_test(a_description_that_differs_is_named_by_its_keys),
        cmocka_unit_test(a_newcomer_that_does_not_fit_refuses_itself),
        cmocka_unit_test(members_refuse_a_newcomer_that_has_not_compared),
        cmocka_unit_test(nobody_waits_for_others_with_a_configuration_that_cannot_be),
        cmocka_unit_test(spares_wait_longer_than_a_generation_may_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
