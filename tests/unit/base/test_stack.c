/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/runtime.h"
#include "base/stack.h"

typedef struct asking {
    int task;
    char text[3072];
    size_t nbytes;
    atomic_bool ended;
} asking;

static void ask(void *arg)
{
    asking *one = arg;
    int question = tri_stack_ask(one->task);

    for (int i = 0; i < 5000 && (one->nbytes = tri_stack_take(question, one->text, sizeof one->text)) == 0; i++)
        tri_sleep_ns(TRI_NS_PER_MS);
    atomic_store(&one->ended, true);
}

static void a_thread_that_is_busy_tells_where_it_is(void **state)
{
    asking one = {.task = tri_stack_task()};
    tri_thread *thread;

    (void)state;
    assert_int_equal(tri_stack_catch(), TRI_OK);
    assert_int_equal(tri_stack_catch(), TRI_OK);
    assert_int_equal(tri_thread_start(&thread, "asker", ask, &one), TRI_OK);
    while (!atomic_load(&one.ended)) {
    }
    tri_thread_join(thread);
    assert_true(one.nbytes == strlen(one.text) && one.nbytes > 0);
    /* The program's own name is in its frames, main's caller at the end. */
    assert_non_null(strstr(one.text, "test_stack"));
    assert_non_null(strstr(one.text, "libc"));
    assert_non_null(strchr(one.text, '\n'));
}

static void a_sleep_that_is_asked_goes_on(void **state)
{
    asking one = {.task = tri_stack_task()};
    int64_t began_ns = tri_now_ns();
    tri_thread *thread;

    (void)state;
    assert_int_equal(tri_thread_start(&thread, "asker", ask, &one), TRI_OK);
    tri_sleep_ns(100 * TRI_NS_PER_MS);
    assert_true(tri_now_ns() - began_ns >= 100 * TRI_NS_PER_MS);
    tri_thread_join(thread);
    assert_true(one.nbytes > 0);
}

static void hide(void *arg)
{
    atomic_int *task = arg;

    atomic_store(task, tri_stack_task());
    while (atomic_load(task) != 0)
        tri_sleep_ns(TRI_NS_PER_MS);
}

static void a_thread_that_blocks_signals_has_no_answer(void **state)
{
    char text[100];
    atomic_int task = 0;
    tri_thread *thread;

    (void)state;
    assert_int_equal(tri_thread_start(&thread, "hidden", hide, &task), TRI_OK);
    while (atomic_load(&task) == 0)
        tri_yield();
    int question = tri_stack_ask(atomic_load(&task));
    assert_true(question > 0);
    tri_sleep_ns(20 * TRI_NS_PER_MS);
    assert_int_equal(tri_stack_take(question, text, sizeof text), 0);
    atomic_store(&task, 0);
    tri_thread_join(thread);
    assert_int_equal(tri_stack_ask(0x3fffffff), 0);
    assert_int_equal(tri_stack_take(0, text, sizeof text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_is_busy_tells_where_it_is),
        cmocka_unit_test(a_sleep_that_is_asked_goes_on),
        cmocka_unit_test(a_thread_that_blocks_signals_has_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
