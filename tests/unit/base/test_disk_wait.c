/* SPDX-License-Identifier: Apache-2.0
 *
 * test_disk_wait.c: a wait that the kernel calls one for a disk (state D) is counted, and sleep is not. The caller of
 * vfork() is in that state until its child has gone on; the system call by itself, because ThreadSanitizer makes a
 * fork() of vfork(), which waits for nothing.
 */
#include "base/disk_wait.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/runtime.h"

#define WAIT_MS 400
#define LEAST_S 0.2 /* of a wait that counts */

/* A wait lasts until it has been seen long enough, and at least WAIT_MS: one that is not to be seen no longer. */
typedef struct held {
    tri_disk_wait *wait;
    bool counts;
    int ends[2]; /* of a pipe: a byte ends the wait */
} held;
static held now;

static tri_strain sums_now(void)
{
    tri_strain sums = {0};
    tri_disk_wait_read(now.wait, &sums);
    return sums;
}

static void let_go(void *arg)
{
    (void)arg;
    tri_sleep_ns(WAIT_MS * TRI_NS_PER_MS);
    for (int ms = 0; now.counts && ms < 60000; ms++) {
        const tri_strain sums = sums_now();
        if (sums.disk_seconds_total + sums.data_disk_seconds_total > LEAST_S)
            break;
        tri_sleep_ns(TRI_NS_PER_MS);
    }
    assert_int_equal(write(now.ends[1], "", 1), 1);
}

static void in_vfork(void *arg)
{
    (void)arg;
    const pid_t child = (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, 0);
    if (child == 0) {
        char byte; /* without calls that ThreadSanitizer watches */
        syscall(SYS_close, now.ends[1]);
        syscall(SYS_read, now.ends[0], &byte, 1);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void main_sleeps(void *arg)
{
    char byte;
    (void)arg;
    assert_int_equal(read(now.ends[0], &byte, 1), 1);
}

static void thread_waits(void *name)
{
    tri_thread *thread;
    assert_int_equal(tri_thread_start(&thread, name, in_vfork, NULL), TRI_OK);
    tri_thread_join(thread);
}

/* Data: whether that is what the main thread waits for. */
static tri_strain sums_of(void (*wait_somehow)(void *arg), void *arg, bool data, bool counts)
{
    tri_thread *thread;
    const int64_t start_ns = tri_now_ns();
    now.counts = counts;
    assert_int_equal(pipe(now.ends), 0);
    assert_int_equal(tri_disk_wait_start("data", &now.wait), TRI_OK);
    tri_disk_wait_data(now.wait, data);
    assert_int_equal(tri_thread_start(&thread, "let go", let_go, NULL), TRI_OK);
    wait_somehow(arg);
    tri_thread_join(thread);
    const tri_strain sums = sums_now();
    tri_disk_wait_stop(now.wait);
    close(now.ends[0]);
    close(now.ends[1]);
    const double passed_s = (double)(tri_now_ns() - start_ns) / 1e9;
    assert_true(sums.disk_seconds_total + sums.data_disk_seconds_total <= passed_s);
    return sums;
}

static void waits_are_counted_where_they_belong(void **state)
{
    (void)state;
    tri_strain sums = sums_of(in_vfork, NULL, false, true);
    assert_true(sums.disk_seconds_total > LEAST_S && sums.data_disk_seconds_total == 0);
    sums = sums_of(thread_waits, "data", true, true);
    assert_true(sums.data_disk_seconds_total > LEAST_S);
    sums = sums_of(thread_waits, "data", false, false);
    assert_true(sums.data_disk_seconds_total == 0);
    sums = sums_of(thread_waits, "save", true, false);
    assert_true(sums.data_disk_seconds_total < LEAST_S);
    sums = sums_of(main_sleeps, NULL, true, false);
    assert_true(sums.disk_seconds_total < LEAST_S && sums.data_disk_seconds_total < LEAST_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(waits_are_counted_where_they_belong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
