/* SPDX-License-Identifier: Apache-2.0
 *
 * test_members_words.c: what members tell each other by the store, word for word: news, whether a generation has
 * formed, who says nothing, who is late.
 */
#include "unit/cluster/members_run.h"

/* --- news --- */

#define REQUESTS 5 /* gone/<id>, news/count, news/<i>, news/oldest, news/count */

/* One dies after `looks` looks at the clock while it tells that 7.0 has ended; then the launcher tells of 1.0. */
static void news_run(int index, void *arg)
{
    run *all = arg;
    (void)index;
    process *teller = &all->processes[0];
    tri_members *listener = NULL;
    int64_t late_ns = tri_now_ns() + 2 * TRI_NS_PER_S;
    tri_members_setup setup = {.store = all->store,
                               .listener = all->store,
                               .id = "0.0",
                               .host = "here",
                               .initial_members = 2,
                               .least = 1,
                               .most = 2};
    if (tri_members_open(&setup, &listener) != TRI_OK)
        broke(all, "members cannot be opened");
    tri_status told = tri_members_mark_dead(&teller->store, "7.0", late_ns);
    if (teller->dead != (told != TRI_OK))
        broke(all, "a request of a dead one was answered");
    if (tri_members_mark_dead(all->store, "1.0", late_ns) != TRI_OK)
        broke(all, "news cannot be told");
    while (listener && !atomic_load(tri_members_broken(listener)) && tri_now_ns() < late_ns)
        tri_sleep_ns(TRI_NS_PER_MS);
    if (tri_now_ns() >= late_ns)
        broke(all, "what was told after somebody died is not heard");
    tri_members_close(listener);
}

static void who_dies_while_it_tells_news_makes_nobody_deaf(void **state)
{
    (void)state;
    for (int looks = 1; looks <= 2 * REQUESTS + 1; looks++) {
        run *all = tri_alloc_zero(1, sizeof *all);
        assert_non_null(all);
        all->processes[0] = (process){.run = all, .store = {.ops = &guarded_ops}, .looks = looks};
        assert_int_equal(tri_store_memory(&all->store), TRI_OK);
        assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, news_run, all), TRI_OK);
        if (all->failures > 0)
            print_message("dies at look %d: %s\n", looks, all->failed);
        assert_int_equal(all->failures, 0);
        assert_true(all->processes[0].dead == (looks <= 2 * REQUESTS));
        run_free(all);
    }
}

/* --- has a generation formed? --- */

#define ASKERS 3

static void generation_join(void *arg)
{
    process *p = arg;
    if (tri_members_next(p->members, 0, NULL, NULL, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(p->run, tri_last_error());
}

/* Those from `first` on are in generation `number`. */
static void generation_meet(run *all, int first, int64_t number)
{
    for (int i = first; i < ASKERS; i++)
        if (tri_thread_start(&all->processes[i].thread, "asker", generation_join, &all->processes[i]) != TRI_OK)
            broke(all, "no thread");
    for (int i = first; i < ASKERS; i++) {
        tri_thread_join(all->processes[i].thread);
        if (tri_members_now(all->processes[i].members)->number != number)
            broke(all, "another generation");
    }
}

static void word_check(process *p, bool word, bool wanted)
{
    bool stands = !wanted;
    if (tri_members_formed(p->members, word, &stands, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(p->run, tri_last_error());
    if (stands != wanted)
        broke(p->run, "one is told another word than that of the first who said one");
}

static void askers_open(run *all)
{
    process *p = all->processes;
    for (int i = 0; i < ASKERS; i++) {
        p[i] = (process){.run = all, .store = {.ops = &guarded_ops}, .number = i};
        snprintf(p[i].id, sizeof p[i].id, "%d.0", i);
        tri_members_setup setup = {.store = &p[i].store,
                                   .listener = all->store,
                                   .id = p[i].id,
                                   .host = "here",
                                   .initial_members = ASKERS,
                                   .least = 1,
                                   .most = ASKERS};
        if (tri_members_open(&setup, &p[i].members) != TRI_OK)
            broke(all, "members cannot be opened");
    }
}

/* 0.0 says yes, and dies before its word is there (looks 1), or before it is answered (2); the others say no, then, of
 * the next generation, 2.0 first. */
static void formed_run(int index, void *arg)
{
    run *all = arg;
    process *p = all->processes;
    bool stands = false;
    int looks = p[0].looks;
    (void)index;
    p[0].looks = 0;
    askers_open(all);
    generation_meet(all, 0, 1);
    p[0].looks = looks;
    tri_status told = tri_members_formed(p[0].members, true, &stands, tri_now_ns() + TRI_NS_PER_S);
    if (p[0].dead != (told != TRI_OK) || (!p[0].dead && !stands))
        broke(all, "the first who says a word is told that one");
    word_check(&p[1], false, looks != 1);
    word_check(&p[2], looks == 1, looks != 1);
    if (tri_members_mark_dead(all->store, "0.0", tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(all, "a dead one cannot be told");
    generation_meet(all, 1, 2);
    word_check(&p[2], false, false);
    word_check(&p[1], true, false);
    for (int i = 0; i < ASKERS; i++)
        tri_members_close(p[i].members);
}

static void the_first_word_on_a_generation_is_everybodys(void **state)
{
    (void)state;
    for (int looks = 0; looks <= 2; looks++) {
        run *all = tri_alloc_zero(1, sizeof *all);
        assert_non_null(all);
        all->processes[0].looks = looks;
        assert_int_equal(tri_store_memory(&all->store), TRI_OK);
        assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, formed_run, all), TRI_OK);
        if (all->failures > 0)
            print_message("dies at look %d: %s\n", looks, all->failed);
        assert_int_equal(all->failures, 0);
        assert_true(all->processes[0].dead == (looks > 0));
        run_free(all);
    }
}

static void others_give_up(run *all, int64_t number)
{
    for (int i = 1; i < ASKERS; i++)
        tri_members_suspect_from(all->processes[i].members, tri_now_ns() + 100 * TRI_NS_PER_MS);
    generation_meet(all, 1, number);
}

/* 0.0 is cut off so that what it says is heard and what it hears is nothing: it has registered for generation 2, which
 * cannot form, and its links tell nobody. Then it hears again. */
static void deaf_run(int index, void *arg)
{
    static const char registered[] = "0.0 here 0 -\n";
    run *all = arg;
    (void)index;
    askers_open(all);
    generation_meet(all, 0, 1);
    if (tri_store_set(all->store, "gen/2/in/0.0", registered, strlen(registered), tri_now_ns() + TRI_NS_PER_S) !=
        TRI_OK)
        broke(all, "nothing can be set");
    others_give_up(all, 2);
    others_give_up(all, 3);
    if (tri_members_now(all->processes[1].members)->count != 2)
        broke(all, "who did not register is in the generation");
    if (tri_thread_start(&all->processes[0].thread, "asker", generation_join, &all->processes[0]) != TRI_OK)
        broke(all, "no thread");
    tri_sleep_ns(200 * TRI_NS_PER_MS); /* it finds generation 2, and is done with it */
    generation_meet(all, 1, 4);
    tri_thread_join(all->processes[0].thread);
    for (int i = 0; i < ASKERS; i++) {
        if (tri_members_rank(all->processes[i].members) != (i + 2) % ASKERS)
            broke(all, "who was given up is the newcomer");
        tri_members_close(all->processes[i].members);
    }
}

static void who_says_nothing_after_a_generation_did_not_form_is_done_without(void **state)
{
    (void)state;
    run *all = tri_alloc_zero(1, sizeof *all);
    assert_non_null(all);
    assert_int_equal(tri_store_memory(&all->store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, deaf_run, all), TRI_OK);
    if (all->failures > 0)
        print_message("%s\n", all->failed);
    assert_int_equal(all->failures, 0);
    run_free(all);
}

static void generation_sweep(process *p)
{
    if (tri_members_rank(p->members) != 0)
        broke(p->run, "another one is the first");
    if (tri_members_sweep(p->members, NULL, NULL, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(p->run, tri_last_error());
}

static tri_member_way all_are_lost(void *arg, int rank, char *where)
{
    (void)arg;
    (void)rank;
    (void)where;
    return TRI_MEMBER_GONE;
}

static void late_join(void *arg)
{
    process *p = arg;
    if (tri_members_next(p->members, 0, all_are_lost, NULL, tri_now_ns() + TRI_NS_PER_S) != TRI_OK)
        broke(p->run, tri_last_error());
}

/* 0.0 stands still in generation 1 until there are three more, and 2 and 3 are forgotten. It takes itself for the last
 * one that is left, and claims generation 2. */
static void late_run(int index, void *arg)
{
    run *all = arg;
    process *p = all->processes;
    (void)index;
    askers_open(all);
    generation_meet(all, 0, 1);
    generation_sweep(&p[0]);
    for (int64_t number = 2; number <= 4; number++) {
        others_give_up(all, number);
        generation_sweep(&p[1]);
    }
    if (numbered_kept(all, "gen/", 9, "") != 1 || !is_kept(all, "gen/4"))
        broke(all, "what is over is not forgotten");
    word_check(&p[0], true, false); /* whatever it was */
    if (tri_thread_start(&p[0].thread, "late", late_join, &p[0]) != TRI_OK)
        broke(all, "no thread");
    tri_sleep_ns(200 * TRI_NS_PER_MS);
    if (tri_members_rank(p[0].members) >= 0)
        broke(all, "two generations at once");
    generation_meet(all, 1, 5);
    tri_thread_join(p[0].thread);
    if (tri_members_now(p[0].members)->number != 5 || tri_members_rank(p[0].members) != 2)
        broke(all, "who was late is no newcomer");
    if (numbered_kept(all, "gen/", 3, "") + numbered_kept(all, "gen/", 3, "/formed") + is_kept(all, "gen/2/in/0.0") > 0)
        broke(all, "what a late one says stays");
    for (int i = 0; i < ASKERS; i++)
        tri_members_close(p[i].members);
}

static void a_late_one_learns_that_it_was_left_out(void **state)
{
    (void)state;
    run *all = tri_alloc_zero(1, sizeof *all);
    assert_non_null(all);
    assert_int_equal(tri_store_memory(&all->store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, late_run, all), TRI_OK);
    if (all->failures > 0)
        print_message("%s\n", all->failed);
    assert_int_equal(all->failures, 0);
    run_free(all);
}

/* The listener of 0.0 hears again when what it missed is forgotten. */
static void ear_run(int index, void *arg)
{
    run *all = arg;
    process *p = all->processes;
    int64_t after, late_ns = tri_now_ns() + 5 * TRI_NS_PER_S;
    (void)index;
    askers_open(all);
    generation_meet(all, 0, 1);
    /* as of a sweep of others, while the listener stood still */
    if (tri_store_raise(all->store, "news/count", 20, &after, late_ns) != TRI_OK ||
        tri_store_raise(all->store, "news/oldest", 21, &after, late_ns) != TRI_OK)
        broke(all, "nothing can be raised");
    tri_sleep_ns(3 * TRI_NS_PER_S);
    if (atomic_load(tri_members_broken(p[0].members)))
        broke(all, "its generation is the newest, and nobody of it has ended");
    if (tri_members_publish(all->store, "call 2", late_ns) != TRI_OK || !is_kept(all, "news/21"))
        broke(all, "what is told after it is not where it should be");
    tri_sleep_ns(TRI_NS_PER_S);
    if (!tri_members_rescale_requested(p[0].members))
        broke(all, "an listener is deaf");
    if (tri_store_raise(all->store, "gen/now", 3, &after, late_ns + TRI_NS_PER_S) != TRI_OK ||
        tri_store_raise(all->store, "news/oldest", 40, &after, late_ns + TRI_NS_PER_S) != TRI_OK)
        broke(all, "nothing can be raised");
    tri_sleep_ns(2 * TRI_NS_PER_S);
    if (!atomic_load(tri_members_broken(p[0].members)))
        broke(all, "a generation that others have left is taken for whole");
    /* whoever tells had asked for the count before that */
    if (tri_members_publish(all->store, "call 4", late_ns + 9 * TRI_NS_PER_S) != TRI_OK || !is_kept(all, "news/40") ||
        is_kept(all, "news/22"))
        broke(all, "something is told where nobody listens");
    for (int i = 0; i < ASKERS; i++)
        tri_members_close(p[i].members);
}

static void an_ear_hears_again_behind_what_is_forgotten(void **state)
{
    (void)state;
    run *all = tri_alloc_zero(1, sizeof *all);
    assert_non_null(all);
    assert_int_equal(tri_store_memory(&all->store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, ear_run, all), TRI_OK);
    if (all->failures > 0)
        print_message("%s\n", all->failed);
    assert_int_equal(all->failures, 0);
    run_free(all);
}
/* --- a launcher that is gone --- */

typedef struct slow_ear {
    tri_store base;
    int64_t sleep_ns; /* of the first wait */
    int waits;
} slow_ear;

/* Answers late once, as where the process and all others stood still, then never. */
static tri_status slow_wait(tri_store *base, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    slow_ear *listener = tri_container_of(base, slow_ear, base);
    (void)key;
    (void)bytes;
    (void)nbytes;
    (void)deadline_ns;
    tri_sleep_ns(listener->waits++ == 0 ? listener->sleep_ns : 50 * TRI_NS_PER_MS);
    return tri_fail(TRI_EPEER, "nobody is there");
}

static tri_status no_number(tri_store *base, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    (void)base;
    (void)key;
    (void)deadline_ns;
    *after = amount;
    return TRI_OK;
}

static const tri_store_ops slow_ops = {.name = "slow", .wait = slow_wait, .add = no_number};

static void alone_note(void *arg)
{
    *(int64_t *)arg = tri_now_ns();
}

static void alone_run(int index, void *arg)
{
    run *all = arg;
    int64_t alone_ns = 0, begin_ns = tri_now_ns();
    slow_ear listener = {.base = {.ops = &slow_ops}, .sleep_ns = 400 * TRI_NS_PER_S};
    tri_members *members = NULL;
    tri_members_setup setup = {.store = all->store,
                               .listener = &listener.base,
                               .id = "0.0",
                               .host = "here",
                               .initial_members = 1,
                               .least = 1,
                               .most = 1,
                               .alone_ns = 300 * TRI_NS_PER_S,
                               .alone = alone_note,
                               .arg = &alone_ns};
    (void)index;
    if (tri_members_open(&setup, &members) != TRI_OK)
        broke(all, "members cannot be opened");
    tri_sleep_ns(800 * TRI_NS_PER_S);
    if (alone_ns < begin_ns + 700 * TRI_NS_PER_S)
        broke(all, "the time in which it stood still counts as one without a launcher");
    if (alone_ns > begin_ns + 710 * TRI_NS_PER_S)
        broke(all, "it does not say that it is alone");
    tri_members_close(members);
}

static void who_stood_still_has_not_missed_its_launcher(void **state)
{
    (void)state;
    run *all = tri_alloc_zero(1, sizeof *all);
    assert_non_null(all);
    assert_int_equal(tri_store_memory(&all->store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.stack_nbytes = 64 << 10}, 1, alone_run, all), TRI_OK);
    if (all->failures > 0)
        print_message("%s\n", all->failed);
    assert_int_equal(all->failures, 0);
    run_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_dies_while_it_tells_news_makes_nobody_deaf),
        cmocka_unit_test(the_first_word_on_a_generation_is_everybodys),
        cmocka_unit_test(who_says_nothing_after_a_generation_did_not_form_is_done_without),
        cmocka_unit_test(a_late_one_learns_that_it_was_left_out),
        cmocka_unit_test(an_ear_hears_again_behind_what_is_forgotten),
        cmocka_unit_test(who_stood_still_has_not_missed_its_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
