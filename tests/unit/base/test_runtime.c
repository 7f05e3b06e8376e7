/* SPDX-License-Identifier: Apache-2.0
 *
 * test_runtime.c: both runtimes: the same bodies as threads and as fibers, then what only the simulation promises.
 */
#include "unit/base/runtime_rig.h"

#include "base/stop.h"
#include "base/wait.h"

static void four_count(void)
{
    tri_thread *threads[4];
    counter c;

    counter_init(&c);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tri_thread_start(&threads[i], "a name of more than fifteen bytes", count_up, &c), TRI_OK);
    for (int i = 0; i < 4; i++)
        tri_thread_join(threads[i]);
    assert_int_equal(c.value, 800);
    assert_int_equal(c.most_inside, 1);
    counter_fini(&c);
}

static void wait_open(void *arg)
{
    counter *c = arg;

    tri_mutex_lock(&c->mutex);
    c->waiting++;
    tri_cond_broadcast(&c->changed);
    while (!c->open)
        assert_true(tri_cond_wait(&c->changed, &c->mutex, TRI_FOREVER));
    c->waiting--;
    tri_mutex_unlock(&c->mutex);
}

static void three_wait_for_a_broadcast(void)
{
    tri_thread *threads[3];
    counter c;

    counter_init(&c);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tri_thread_start(&threads[i], "waiter", wait_open, &c), TRI_OK);
    tri_mutex_lock(&c.mutex);
    while (c.waiting < 3)
        tri_cond_wait(&c.changed, &c.mutex, TRI_FOREVER);
    c.open = true;
    tri_cond_broadcast(&c.changed);
    tri_mutex_unlock(&c.mutex);
    for (int i = 0; i < 3; i++)
        tri_thread_join(threads[i]);
    assert_int_equal(c.waiting, 0);
    counter_fini(&c);
}

static void a_deadline_passes(void)
{
    counter c;
    int64_t start_ns = tri_now_ns();

    counter_init(&c);
    tri_mutex_lock(&c.mutex);
    while (tri_cond_wait(&c.changed, &c.mutex, start_ns + 3 * MS)) {
    }
    assert_true(tri_now_ns() >= start_ns + 3 * MS);
    assert_false(tri_cond_wait(&c.changed, &c.mutex, 0));
    tri_mutex_unlock(&c.mutex);
    tri_sleep_ns(2 * MS);
    assert_true(tri_now_ns() >= start_ns + 5 * MS);
    tri_sleep_ns(0);
    tri_sleep_ns(-5);
    counter_fini(&c);
}

static void deadlines_do_not_overflow(void)
{
    int64_t now_ns = tri_now_ns();

    assert_true(tri_deadline_after_ms(-1) == TRI_FOREVER);
    assert_true(tri_deadline_after_ms(INT64_MAX) == TRI_FOREVER);
    assert_true(tri_deadline_after_ms(INT64_MAX / MS) == TRI_FOREVER || now_ns == 0);
    assert_true(tri_deadline_after_ms(7) >= now_ns + 7 * MS);
}

static void in_both(int index, void *arg)
{
    (void)index;
    (void)arg;
    four_count();
    three_wait_for_a_broadcast();
    a_deadline_passes();
    deadlines_do_not_overflow();
}

static void the_same_bodies_pass_as_threads(void **state)
{
    (void)state;
    assert_false(tri_sim_active());
    in_both(0, NULL);
}

static void the_same_bodies_pass_as_fibers_with_any_seed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++)
        assert_ok(simulate(seed, 3, in_both, NULL));
    assert_false(tri_sim_active());
}

/* ---- real */

static void look_at_the_mask(void *arg)
{
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    *(bool *)arg = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGINT) && !sigismember(&mask, SIGSEGV);
}

static void threads_block_signals_and_their_starter_does_not(void **state)
{
    tri_thread *thread;
    sigset_t mask;
    bool blocked = false;

    (void)state;
    assert_int_equal(tri_thread_start(&thread, "mask", look_at_the_mask, &blocked), TRI_OK);
    tri_thread_join(thread);
    assert_true(blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGTERM));
    tri_thread_join(NULL);
}

static void entropy_differs_from_call_to_call(void **state)
{
    unsigned char a[37] = {0}, b[37] = {0};

    (void)state;
    tri_entropy(a, 36);
    tri_entropy(b, 36);
    assert_memory_not_equal(a, b, 36);
    assert_int_equal(a[36], 0);
    assert_true(tri_wall_ns() > INT64_C(1600000000) * TRI_NS_PER_S);
}

/* How a child ends that runs body(). */
static int end_of(void (*body)(void))
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        body();
        _exit(tri_stop_signal() == 0 ? 0 : 100 + tri_stop_signal());
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void hang_up(void)
{
    tri_stop_catch();
    raise(SIGHUP);
    raise(SIGHUP);
    raise(SIGUSR1);
}

static void hang_up_under_nohup(void)
{
    signal(SIGHUP, SIG_IGN);
    tri_stop_catch();
    raise(SIGHUP);
}

static void warn(void)
{
    tri_stop_catch();
    raise(SIGUSR1);
    raise(SIGUSR1);
}

static void stop_at_once(void)
{
    tri_stop_catch();
    if (tri_stop_at_once_begin("before the first step") != TRI_OK)
        _exit(1);
    raise(SIGTERM);
    for (;;) /* it has nothing to say: the signal ends it */
        pause();
}

static void stop_with_words(void)
{
    tri_stop_catch();
    if (tri_stop_at_once_begin("before the first step") != TRI_OK)
        _exit(1);
    raise(SIGTERM);
    _exit(7); /* as one that has just found an error of its own */
}

static void stop_at_once_is_over(void)
{
    tri_stop_catch();
    if (tri_stop_at_once_begin("before the first step") != TRI_OK)
        _exit(1);
    tri_stop_at_once_end();
    raise(SIGUSR1);
    if (tri_stop_at_once_begin("before the first step") != TRI_ECANCELED)
        _exit(2);
}

static void hangups_and_warnings_stop_and_may_come_again(void **state)
{
    (void)state;
    assert_int_equal(end_of(hang_up), 100 + SIGHUP);
    assert_int_equal(end_of(warn), 100 + SIGUSR1);
    assert_int_equal(end_of(hang_up_under_nohup), 0);
}

static void a_stop_ends_the_process_where_nothing_is_to_be_saved(void **state)
{
    (void)state;
    assert_int_equal(end_of(stop_at_once), 128 + SIGTERM);
    assert_int_equal(end_of(stop_with_words), 7);
    assert_int_equal(end_of(stop_at_once_is_over), 100 + SIGUSR1);
}

static int asked;

static int ask(void)
{
    return asked;
}

static void a_runtime_with_signals_of_its_own_is_asked_for_them(void **state)
{
    (void)state;
    tri_stop_ask_set(ask);
    assert_int_equal(tri_stop_signal(), 0);
    assert_int_equal(tri_wait_check("waiting"), TRI_OK);
    asked = SIGINT;
    assert_int_equal(tri_stop_signal(), SIGINT);
    assert_int_equal(tri_wait_check("waiting for rank 1"), TRI_ECANCELED);
    assert_string_equal(tri_last_error(), "stopped by signal 2 (Interrupt) while waiting for rank 1");
    tri_stop_ask_set(NULL);
    assert_int_equal(tri_stop_signal(), 0);
}

static void a_wait_reports_itself_seldom(int index, void *arg)
{
    int *told = arg;
    tri_wait wait;

    (void)index;
    tri_wait_begin(&wait);
    for (int second = 1; second <= 300; second++) {
        tri_sleep_ns(TRI_NS_PER_S);
        if (tri_wait_is_long(&wait))
            told[second]++;
    }
    told[0] = (int)tri_wait_limit_s(&wait, wait.begun_ns + 300 * TRI_NS_PER_S);
}

static void a_long_wait_is_reported_after_ten_seconds_and_then_seldom(void **state)
{
    int told[301] = {0};

    (void)state;
    assert_int_equal(tri_sim_run(&(tri_sim_config){.seed = 1}, 1, a_wait_reports_itself_seldom, told), TRI_OK);
    assert_int_equal(told[0], 300);
    for (int second = 1; second <= 300; second++)
        assert_int_equal(told[second], second == 10 || second == 20 || second == 40 || second == 80 || second == 160);
}

static void the_first_stop_sets_the_flag_and_the_second_kills(void **state)
{
    pid_t child;
    int status;

    (void)state;
    child = fork();
    if (child == 0) {
        if (tri_stop_signal() != 0)
            _exit(1);
        tri_stop_catch();
        raise(SIGTERM);
        if (tri_stop_signal() != SIGTERM)
            _exit(2);
        raise(SIGINT);
        if (tri_stop_signal() != SIGTERM)
            _exit(3);
        raise(SIGTERM);
        _exit(4);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bodies_pass_as_threads),
        cmocka_unit_test(the_same_bodies_pass_as_fibers_with_any_seed),
        cmocka_unit_test(threads_block_signals_and_their_starter_does_not),
        cmocka_unit_test(entropy_differs_from_call_to_call),
        cmocka_unit_test(hangups_and_warnings_stop_and_may_come_again),
        cmocka_unit_test(a_stop_ends_the_process_where_nothing_is_to_be_saved),
        cmocka_unit_test(a_runtime_with_signals_of_its_own_is_asked_for_them),
        cmocka_unit_test(a_long_wait_is_reported_after_ten_seconds_and_then_seldom),
        cmocka_unit_test(the_first_stop_sets_the_flag_and_the_second_kills),
    };
    return cmocka_run_group_tests_name("base/runtime", tests, NULL, NULL);
}
