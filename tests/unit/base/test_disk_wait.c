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
#include <time.h>
#include <unistd.h>

#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/runtime.h"

#define WAIT_MS 400

static void in_vfork(void *arg)
{
    (void)arg;
    const pid_t child = (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, 0);
    if (child == 0) {
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

/* Data: whether that is what the main thread waits for. */
static tri_strain sums_of(void (*wait_somehow)(void), bool data)
{
    tri_disk_wait *wait;
    tri_strain sums = {0};
    assert_int_equal(tri_disk_wait_start("data", &wait), TRI_OK);
    tri_disk_wait_data(wait, data);
    wait_somehow();
    tri_disk_wait_read(wait, &sums);
    tri_disk_wait_stop(wait);
    return sums;
}

static void main_waits(void)
{
    in_vfork(NULL);
}

static void main_sleeps(void)
{
    tri_sleep_ns(WAIT_MS * TRI_NS_PER_MS);
}

static void thread_waits(const char *name)
{
    tri_thread *thread;
    assert_int_equal(tri_thread_start(&thread, name, in_vfork, NULL), TRI_OK);
    tri_thread_join(thread);
}

static void data_waits(void)
{
    thread_waits("data");
}

static void save_waits(void)
{
    thread_waits("save");
}

/* Half of it, on a machine that has other things to do too. */
static void waits_are_counted_where_they_belong(void **state)
{
    (void)state;
    const double most = 4e-3 * WAIT_MS, least = 0.5e-3 * WAIT_MS;
    tri_strain sums = sums_of(main_waits, false);
    assert_true(sums.disk_seconds_total > least && sums.disk_seconds_total < most);
    assert_true(sums.data_disk_seconds_total == 0);
    sums = sums_of(data_waits, true);
    assert_true(sums.data_disk_seconds_total > least && sums.data_disk_seconds_total < most);
    sums = sums_of(data_waits, false);
    assert_true(sums.data_disk_seconds_total == 0);
    sums = sums_of(save_waits, true);
    assert_true(sums.data_disk_seconds_total < least);
    sums = sums_of(main_sleeps, true);
    assert_true(sums.disk_seconds_total < least && sums.data_disk_seconds_total < least);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(waits_are_counted_where_they_belong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
