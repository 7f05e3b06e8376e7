/* SPDX-License-Identifier: Apache-2.0 */
#include "net/hand_over.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/runtime.h"

static atomic_bool over;

static void one_core_take(void)
{
    cpu_set_t allowed, one;

    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    CPU_ZERO(&one);
    for (size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; core++) {
        if (CPU_ISSET(core, &allowed))
            CPU_SET(core, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

static void compute(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
    }
}

/* A rank that yields to a program that computes would wait for a slice of its at each of fifty yields. */
static void a_core_that_others_keep_is_not_handed_over_again(void **state)
{
    (void)state;
    tri_thread *busy;
    int64_t until_ns = tri_now_ns() + 20 * TRI_NS_PER_S;
    bool again = true;

    one_core_take(); /* the thread has it too */
    assert_int_equal(tri_thread_start(&busy, "busy", compute, NULL), TRI_OK);
    while (again && tri_now_ns() < until_ns)
        again = tri_hand_over();
    atomic_store(&over, true);
    tri_thread_join(busy);
    assert_false(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_core_that_others_keep_is_not_handed_over_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
