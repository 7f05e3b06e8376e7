/* SPDX-License-Identifier: Apache-2.0
 *
 * test_runtime_sim.c: what only the simulation promises: replay, virtual time, reports of deadlocks.
 */
#include "unit/base/runtime_rig.h"

/* ---- the simulation: replay */

typedef struct trace {
    int count;
    unsigned char who[4096];
    uint64_t random;
    unsigned char entropy[5];
    tri_mutex mutex;
} trace;

static void trace_run(int index, void *arg)
{
    trace *t = arg;

    for (int i = 0; i < 20; i++) {
        tri_mutex_lock(&t->mutex);
        t->who[t->count++] = (unsigned char)index;
        t->random = t->random * 31 + tri_sim_random();
        tri_mutex_unlock(&t->mutex);
        if (i % 5 == 0)
            tri_yield();
        if (i % 7 == 0)
            tri_sleep_ns(1000 * (int64_t)(tri_sim_random() % 4));
    }
    if (index == 0)
        tri_entropy(t->entropy, sizeof t->entropy);
}

static void trace_take(trace *t, uint64_t seed)
{
    memset(t, 0, sizeof *t);
    tri_mutex_init(&t->mutex);
    assert_ok(simulate(seed, 8, trace_run, t));
    tri_mutex_fini(&t->mutex);
    assert_int_equal(t->count, 160);
}

static void the_same_seed_replays_and_another_does_not(void **state)
{
    static trace a, b, c;

    (void)state;
    trace_take(&a, 7);
    trace_take(&b, 7);
    trace_take(&c, 8);
    assert_memory_equal(a.who, b.who, sizeof a.who);
    assert_true(a.random == b.random);
    assert_memory_equal(a.entropy, b.entropy, sizeof a.entropy);
    assert_memory_not_equal(a.who, c.who, sizeof a.who);
    assert_memory_not_equal(a.entropy, c.entropy, sizeof a.entropy);
}

static void add_without_a_lock(int index, void *arg)
{
    counter *c = arg;

    (void)index;
    for (int i = 0; i < 10; i++) {
        int before = c->value;

        /* A lock in the middle that does not guard the sum: the scheduler must be seen to switch there. */
        tri_mutex_lock(&c->mutex);
        tri_mutex_unlock(&c->mutex);
        c->value = before + 1;
    }
}

static void switches_at_locks_show_a_race(void **state)
{
    counter c;

    (void)state;
    counter_init(&c);
    assert_ok(simulate(1, 4, add_without_a_lock, &c));
    assert_in_range(c.value, 1, 39);
    counter_fini(&c);
}

/* ---- the simulation: time */

static void sleep_own_time(int index, void *arg)
{
    int64_t *ends = arg;

    for (int i = 0; i < 10; i++)
        tri_sleep_ns((int64_t)(index + 1) * MS);
    ends[index] = tri_now_ns();
}

static void a_thousand_fibers_sleep_in_virtual_time(void **state)
{
    static int64_t ends[1000];

    (void)state;
    assert_ok(simulate(3, 1000, sleep_own_time, ends));
    for (int i = 0; i < 1000; i++)
        assert_true(ends[i] == (int64_t)(i + 1) * 10 * MS);
}

static void signal_late(void *arg)
{
    counter *c = arg;

    tri_sleep_ns(50 * MS);
    tri_mutex_lock(&c->mutex);
    c->open = true;
    tri_cond_signal(&c->changed);
    tri_mutex_unlock(&c->mutex);
}

static void wait_with_deadlines(int index, void *arg)
{
    counter *c = arg;
    tri_thread *thread;

    (void)index;
    assert_true(tri_now_ns() == 0 && tri_wall_ns() == 0);
    assert_int_equal(tri_thread_start(&thread, "late", signal_late, c), TRI_OK);
    tri_mutex_lock(&c->mutex);
    assert_false(tri_cond_wait(&c->changed, &c->mutex, 20 * MS));
    assert_true(tri_now_ns() == 20 * MS);
    assert_true(tri_cond_wait(&c->changed, &c->mutex, 3600 * TRI_NS_PER_S));
    assert_true(c->open && tri_now_ns() == 50 * MS);
    tri_mutex_unlock(&c->mutex);
    tri_thread_join(thread);
    tri_sleep_ns(8 * 3600 * TRI_NS_PER_S);
    assert_true(tri_now_ns() == 50 * MS + 8 * 3600 * TRI_NS_PER_S);
}

static void deadlines_are_exact_in_virtual_time(void **state)
{
    counter c;

    (void)state;
    counter_init(&c);
    assert_ok(simulate(5, 1, wait_with_deadlines, &c));
    counter_fini(&c);
}

static void spin_until(int index, void *arg)
{
    int64_t *ends = arg;

    if (index == 2) {
        tri_sleep_ns(TRI_NS_PER_S);
    } else {
        while (tri_now_ns() < 2 * TRI_NS_PER_S + 5000)
            tri_yield();
    }
    ends[index] = tri_now_ns();
}

static void poll_a_deadline(int index, void *arg)
{
    counter *c = arg;

    tri_mutex_lock(&c->mutex);
    while (tri_now_ns() < 100 * 1000 * (index + 1))
        tri_cond_wait(&c->changed, &c->mutex, tri_now_ns());
    tri_mutex_unlock(&c->mutex);
}

static void spinning_moves_the_clock(void **state)
{
    tri_sim_config config = {.seed = 1, .limit_ns = 3 * TRI_NS_PER_S};
    int64_t ends[3] = {0};
    counter c;

    (void)state;
    counter_init(&c);
    assert_ok(simulate(2, 3, poll_a_deadline, &c));
    counter_fini(&c);
    /* The clock goes in one jump to the sleeper's timer, then in small steps up to the limit. */
    config.limit_ns = TRI_NS_PER_S + 100 * MS;
    assert_int_equal(tri_sim_run(&config, 3, spin_until, ends), TRI_ETIMEOUT);
    assert_true(ends[2] == TRI_NS_PER_S && ends[0] == 0);
}

static void flag_then_yield(int index, void *arg)
{
    counter *c = arg;

    if (index == 0) {
        for (int i = 0; i < 50; i++) {
            c->value++;
            tri_yield();
        }
        c->open = true;
    } else {
        while (!c->open)
            tri_yield();
        c->waiting = tri_now_ns() < MS;
    }
}

static void yielding_lets_others_run(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        counter c = {.value = 0};

        /* No timer: nothing but the two. */
        assert_ok(simulate(seed, 2, flag_then_yield, &c));
        assert_int_equal(c.value, 50);
        assert_int_equal(c.waiting, 1);
    }
}

static void ping_pong(int index, void *arg)
{
    counter *c = arg;

    if (index == 2) {
        tri_sleep_ns(5 * MS);
        tri_mutex_lock(&c->mutex);
        c->open = true;
        tri_cond_broadcast(&c->changed);
        tri_mutex_unlock(&c->mutex);
        return;
    }
    tri_mutex_lock(&c->mutex);
    while (!c->open) {
        if (c->value % 2 == index) {
            c->value++;
            tri_cond_broadcast(&c->changed);
        } else {
            tri_cond_wait(&c->changed, &c->mutex, TRI_FOREVER);
        }
    }
    tri_mutex_unlock(&c->mutex);
}

static void endless_work_at_one_instant_does_not_stop_the_clock(void **state)
{
    counter c;

    (void)state;
    counter_init(&c);
    assert_ok(simulate(4, 3, ping_pong, &c));
    assert_true(c.value > 100);
    counter_fini(&c);
}

/* ---- the simulation: what ends it early */

typedef struct pair {
    tri_mutex a, b;
    tri_cond never;
} pair;

static void pair_init(pair *p)
{
    tri_mutex_init(&p->a);
    tri_mutex_init(&p->b);
    tri_cond_init(&p->never);
}

static void pair_fini(pair *p)
{
    tri_cond_fini(&p->never);
    tri_mutex_fini(&p->b);
    tri_mutex_fini(&p->a);
}

static void lock_crosswise(int index, void *arg)
{
    pair *p = arg;

    if (index == 2) {
        tri_log_label_set("rank two");
        tri_mutex_lock(&p->a);
        tri_sleep_ns(MS);
        tri_cond_wait(&p->never, &p->a, TRI_FOREVER);
        return;
    }
    tri_sleep_ns(2 * MS);
    tri_mutex_lock(index ? &p->a : &p->b);
    tri_sleep_ns(MS);
    tri_mutex_lock(index ? &p->b : &p->a);
}

static void a_deadlock_is_reported_with_names(void **state)
{
    pair p;

    (void)state;
    pair_init(&p);
    assert_int_equal(simulate(9, 3, lock_crosswise, &p), TRI_EINTERNAL);
    assert_non_null(strstr(tri_last_error(), "seed 9"));
    assert_non_null(strstr(tri_last_error(), "fiber 0 waits for a lock held by fiber 1"));
    assert_non_null(strstr(tri_last_error(), "fiber 1 waits for a lock held by fiber 0"));
    assert_non_null(strstr(tri_last_error(), "fiber 2 (rank two) waits to be woken"));
    /* The locks of the abandoned fibers are free again. */
    tri_mutex_lock(&p.a);
    tri_mutex_lock(&p.b);
    tri_mutex_unlock(&p.b);
    tri_mutex_unlock(&p.a);
    pair_fini(&p);
}

static void wait_for_ever(void *arg)
{
    pair *p = arg;

    tri_mutex_lock(&p->a);
    tri_cond_wait(&p->never, &p->a, TRI_FOREVER);
}

static void start_and_join(int index, void *arg)
{
    tri_thread *thread;

    (void)index;
    assert_int_equal(tri_thread_start(&thread, "comm", wait_for_ever, arg), TRI_OK);
    tri_thread_join(thread);
}

static void a_long_report_says_how_many_are_left_out(void **state)
{
    pair p;

    (void)state;
    pair_init(&p);
    assert_int_equal(simulate(1, 1, start_and_join, &p), TRI_EINTERNAL);
    assert_non_null(strstr(tri_last_error(), "fiber 0 waits for the end of comm; comm waits to be woken"));
    assert_int_equal(simulate(1, 200, start_and_join, &p), TRI_EINTERNAL);
    assert_non_null(strstr(tri_last_error(), "400 of 400 threads left"));
    assert_non_null(strstr(tri_last_error(), "; and 3"));
    pair_fini(&p);
}

static void heartbeat(int index, void *arg)
{
    (void)arg;
    tri_log_label_set(index ? "" : "rank 0");
    for (;;)
        tri_sleep_ns(TRI_NS_PER_S);
}

static void a_run_without_end_is_given_up_at_the_limit(void **state)
{
    tri_sim_config config = {.seed = 1, .limit_ns = 10 * TRI_NS_PER_S};

    (void)state;
    assert_int_equal(tri_sim_run(&config, 2, heartbeat, NULL), TRI_ETIMEOUT);
    assert_non_null(strstr(tri_last_error(), "at 10.000000000 s"));
    assert_non_null(strstr(tri_last_error(), "fiber 0 (rank 0) sleeps; fiber 1 sleeps"));
    /* The default is a day. */
    config.limit_ns = 0;
    assert_int_equal(tri_sim_run(&config, 2, heartbeat, NULL), TRI_ETIMEOUT);
    assert_non_null(strstr(tri_last_error(), "at 86400.000000000 s"));
}

static void nest(int index, void *arg)
{
    (void)index;
    *(tri_status *)arg = simulate(1, 1, nest, arg);
}

static void wrong_calls_are_refused(void **state)
{
    tri_sim_config config = {.stack_nbytes = 100};
    tri_status inner = TRI_OK;

    (void)state;
    assert_ok(simulate(1, 1, nest, &inner));
    assert_int_equal(inner, TRI_EINVAL);
    assert_int_equal(simulate(1, -1, nest, &inner), TRI_EINVAL);
    assert_int_equal(tri_sim_run(&config, 1, nest, &inner), TRI_EINVAL);
    config = (tri_sim_config){.limit_ns = -1};
    assert_int_equal(tri_sim_run(&config, 1, nest, &inner), TRI_EINVAL);
    config = (tri_sim_config){.stack_nbytes = SIZE_MAX / 4};
    assert_int_equal(tri_sim_run(&config, 1, nest, &inner), TRI_ENOMEM);
    assert_ok(simulate(1, 0, nest, &inner));
}

static void count_one(void *arg)
{
    tri_yield();
    ((counter *)arg)->value++;
}

static void start_three(int index, void *arg)
{
    (void)index;
    for (int i = 0; i < 3; i++) {
        tri_thread *thread = (void *)arg;
        tri_status status = tri_thread_start(&thread, "short", count_one, arg);

        assert_true(status == TRI_OK ? thread != NULL : status == TRI_ENOMEM && thread == NULL);
        tri_thread_join(thread);
    }
}

static void no_allocation_that_fails_hurts(void **state)
{
    uint64_t live = tri_memory_now().live, n = 0;
    tri_status status;
    int refused = 0;

    (void)state;
    do {
        counter c;

        counter_init(&c);
        tri_memory_fail_at(++n);
        status = simulate(n, 20, start_three, &c);
        refused += status == TRI_ENOMEM;
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        assert_in_range(c.value, status == TRI_OK ? 59 : 0, status == TRI_OK ? 60 : 0);
        assert_true(tri_memory_now().live == live);
        counter_fini(&c);
    } while (n < 100);
    tri_memory_fail_at(0);
    /* Those of the run itself: one, two growths of two tables, and one or two a fiber. */
    assert_in_range(refused, 25, 46);
}

/* ---- the simulation: what belongs to a fiber */

static void keep_own_state(int index, void *arg)
{
    char wanted[32];

    (void)arg;
    snprintf(wanted, sizeof wanted, "fault of %d", index);
    assert_string_equal(tri_last_error(), "");
    (void)tri_fail(TRI_EIO, "%s", wanted);
    errno = index;
    fesetround(index % 2 ? FE_UPWARD : FE_DOWNWARD);
    for (int i = 0; i < 5; i++) {
        tri_yield();
        assert_int_equal(errno, index);
        assert_int_equal(fegetround(), index % 2 ? FE_UPWARD : FE_DOWNWARD);
        assert_string_equal(tri_last_error(), wanted);
    }
    fesetround(FE_TONEAREST);
}

static void fibers_have_their_own_error_errno_and_rounding(void **state)
{
    (void)state;
    (void)tri_fail(TRI_EIO, "outside");
    errno = 77;
    assert_ok(simulate(1, 6, keep_own_state, NULL));
    assert_string_equal(tri_last_error(), "outside");
    assert_int_equal(fegetround(), FE_TONEAREST);
}

static void start_many(int index, void *arg)
{
    (void)index;
    for (int i = 0; i < 20; i++) {
        tri_thread *threads[10];

        for (int j = 0; j < 10; j++)
            assert_int_equal(tri_thread_start(&threads[j], "short", count_up, arg), TRI_OK);
        for (int j = 0; j < 10; j++)
            tri_thread_join(threads[j]);
    }
    /* Nobody joins it: the run still waits for its end. */
    tri_thread *thread;
    assert_int_equal(tri_thread_start(&thread, "last", count_up, arg), TRI_OK);
}

static void threads_started_by_fibers_are_fibers(void **state)
{
    counter c;

    (void)state;
    counter_init(&c);
    assert_ok(simulate(6, 2, start_many, &c));
    assert_int_equal(c.value, 2 * 201 * 200);
    counter_fini(&c);
}

/* ---- several simulations at once, and a lock of the whole process */

typedef struct shared {
    counter *c;
    trace trace;
    tri_status status;
} shared;

static void count_shared(int index, void *arg)
{
    shared *s = arg;

    trace_run(index, &s->trace);
    count_up(s->c);
}

static void simulate_shared(void *arg)
{
    shared *s = arg;

    tri_mutex_init(&s->trace.mutex);
    s->status = simulate(11, 8, count_shared, s);
    tri_mutex_fini(&s->trace.mutex);
}

static void simulations_in_threads_share_a_lock_and_replay(void **state)
{
    static shared runs[3];
    tri_thread *threads[4];
    counter c;

    (void)state;
    counter_init(&c);
    for (int i = 0; i < 3; i++) {
        runs[i].c = &c;
        assert_int_equal(tri_thread_start(&threads[i], "simulation", simulate_shared, &runs[i]), TRI_OK);
    }
    assert_int_equal(tri_thread_start(&threads[3], "real", count_up, &c), TRI_OK);
    for (int i = 0; i < 4; i++)
        tri_thread_join(threads[i]);
    assert_int_equal(c.value, (3 * 8 + 1) * 200);
    assert_int_equal(c.most_inside, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(runs[i].status, TRI_OK);
    for (int i = 1; i < 3; i++)
        assert_memory_equal(runs[0].trace.who, runs[i].trace.who, sizeof runs[0].trace.who);
    counter_fini(&c);
}

/* Takes at least a KiB of stack a level, whatever the compiler thinks of it. */
static __attribute__((noinline)) int dive(int depth)
{
    char frame[1024] = {(char)depth};
    int below = 0;

    __asm__ volatile("" : : "r"(frame) : "memory");
    if (depth > 0)
        below = dive(depth - 1);
    __asm__ volatile("" : : "r"(frame) : "memory");
    return below + frame[0];
}

static void overflow(int index, void *arg)
{
    *(int *)arg = dive(index == 1 ? 1000 : 10);
}

typedef struct adding {
    int64_t took_ns[3];
    tri_thread *thread;
} adding;

static void add_in_thread(void *arg)
{
    adding *all = arg;
    int64_t start_ns = tri_now_ns();

    for (int i = 0; i < 3; i++)
        tri_added(500);
    all->took_ns[2] = tri_now_ns() - start_ns;
}

static void add_bytes(int index, void *arg)
{
    adding *all = arg;
    int64_t start_ns = tri_now_ns();

    tri_added(1000000);
    all->took_ns[0] = tri_now_ns() - start_ns;
    tri_sim_add_rate_set(3e9);
    start_ns = tri_now_ns();
    tri_added(3000);
    all->took_ns[1] = tri_now_ns() - start_ns;
    assert_ok(tri_thread_start(&all->thread, "adder", add_in_thread, all));
    tri_thread_join(all->thread);
    (void)index;
}

static void adding_takes_the_time_of_its_rate(void **state)
{
    adding all = {{-1, -1, -1}, NULL};

    (void)state;
    tri_added(1000000); /* outside nothing happens */
    assert_ok(simulate(1, 1, add_bytes, &all));
    assert_int_equal(all.took_ns[0], 0);
    assert_int_equal(all.took_ns[1], 1000);
    /* Threads inherit the rate; parts of a nanosecond are not lost. */
    assert_in_range(all.took_ns[2], 499, 500);
}

typedef struct crowd {
    tri_mutex mutex;
    int64_t latest_ns;
} crowd;

static void end_in_a_crowd(int index, void *arg)
{
    crowd *all = arg;

    (void)index;
    for (int i = 0; i < 40; i++) {
        tri_mutex_lock(&all->mutex);
        tri_mutex_unlock(&all->mutex);
    }
    if (tri_now_ns() > all->latest_ns)
        all->latest_ns = tri_now_ns();
}

/* The last of many that end at one instant are few who have seen many switches. */
static void a_crowd_that_ends_does_not_move_the_clock(void **state)
{
    crowd all = {.latest_ns = 0};

    (void)state;
    tri_mutex_init(&all.mutex);
    assert_ok(simulate(1, 1000, end_in_a_crowd, &all));
    tri_mutex_fini(&all.mutex);
    assert_int_equal(all.latest_ns, 0);
}

static void an_overflow_of_a_stack_faults(void **state)
{
    int status, sum = 0;
    pid_t child;

    (void)state;
    child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        tri_sim_config config = {.stack_nbytes = 64 << 10};
        (void)tri_sim_run(&config, 3, overflow, &sum);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_replays_and_another_does_not),
        cmocka_unit_test(switches_at_locks_show_a_race),
        cmocka_unit_test(a_thousand_fibers_sleep_in_virtual_time),
        cmocka_unit_test(deadlines_are_exact_in_virtual_time),
        cmocka_unit_test(spinning_moves_the_clock),
        cmocka_unit_test(yielding_lets_others_run),
        cmocka_unit_test(endless_work_at_one_instant_does_not_stop_the_clock),
        cmocka_unit_test(a_deadlock_is_reported_with_names),
        cmocka_unit_test(a_long_report_says_how_many_are_left_out),
        cmocka_unit_test(a_run_without_end_is_given_up_at_the_limit),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(no_allocation_that_fails_hurts),
        cmocka_unit_test(fibers_have_their_own_error_errno_and_rounding),
        cmocka_unit_test(threads_started_by_fibers_are_fibers),
        cmocka_unit_test(simulations_in_threads_share_a_lock_and_replay),
        cmocka_unit_test(adding_takes_the_time_of_its_rate),
        cmocka_unit_test(a_crowd_that_ends_does_not_move_the_clock),
        cmocka_unit_test(an_overflow_of_a_stack_faults),
    };
    return cmocka_run_group_tests_name("base/runtime_sim", tests, NULL, NULL);
}
