/* SPDX-License-Identifier: Apache-2.0
 *
 * test_task.c: what is said of this process, of its threads and of a child that is stopped and killed.
 */
#include "base/task.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_of_this_process(void **state)
{
    tri_task task, thread;
    (void)state;
    assert_true(tri_task_look(getpid(), 0, &task));
    assert_int_equal(task.parent, getppid());
    assert_int_equal(task.state, 'R');
    assert_true(task.start_ticks > 0 && task.threads >= 1 && task.pages > 0);
    assert_true(tri_task_look(getpid(), getpid(), &thread));
    assert_int_equal(thread.start_ticks, task.start_ticks);
    assert_false(tri_task_look(0, 0, &task));
    assert_false(tri_task_look(getpid(), 1, &task)); /* a thread of another one */
}

/* The file has the name in brackets, and blanks between its fields. */
static void test_a_name_of_any_bytes(void **state)
{
    static const char name[] = "a) R 1 (b)";
    tri_task task;
    (void)state;
    assert_int_equal(prctl(PR_SET_NAME, name), 0);
    assert_true(tri_task_look(getpid(), 0, &task));
    assert_string_equal(task.name, name);
    assert_int_equal(task.parent, getppid());
}

static void test_states_of_a_child(void **state)
{
    tri_task task;
    siginfo_t info;
    pid_t child = fork();
    (void)state;
    if (child == 0)
        for (;;)
            pause();
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WSTOPPED), 0);
    assert_true(tri_task_look(child, 0, &task));
    assert_int_equal(task.state, 'T');
    assert_false(tri_task_has_ended(&task));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_true(tri_task_look(child, 0, &task));
    assert_true(tri_task_has_ended(&task));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(tri_task_look(child, 0, &task));
}

static void *spin(void *arg)
{
    volatile int *counter = arg;
    while (*counter >= 0)
        *counter = (*counter + 1) & 0xffff;
    return NULL;
}

/* One thread that computes, while the main thread waits; and none. */
static void test_threads_of_a_child(void **state)
{
    static int counter;
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        bool runs = false;
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            if (threads && pthread_create(&thread, NULL, spin, &counter) != 0)
                _exit(1);
            for (;;)
                pause();
        }
        for (int i = 0; i < 200 && (!runs || !threads); i++) { /* it begins some time; and runs until it waits */
            usleep(5000);
            runs = tri_task_any_busy(child);
            if (!runs && !threads)
                break;
        }
        assert_int_equal(runs, threads);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_false(tri_task_any_busy(0));
}

/* A thread that waits and cannot be woken, as for a disk: for a child of its own, which shares its memory. */
static void test_a_thread_that_waits_for_its_disk(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        (void)setpgid(0, 0);
        if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, 0L) == 0)
            pause();
        _exit(0);
    }
    tri_task task = {.state = 0};
    for (int i = 0; i < 2000 && task.state != 'D'; i++) {
        usleep(5000);
        assert_true(tri_task_look(child, 0, &task));
    }
    assert_int_equal(task.state, 'D');
    assert_true(tri_task_any_busy(child));
    assert_int_equal(kill(-child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_this_process),
        cmocka_unit_test(test_a_name_of_any_bytes),
        cmocka_unit_test(test_states_of_a_child),
        cmocka_unit_test(test_threads_of_a_child),
        cmocka_unit_test(test_a_thread_that_waits_for_its_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
