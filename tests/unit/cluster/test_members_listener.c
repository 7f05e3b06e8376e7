/* SPDX-License-Identifier: Apache-2.0
 *
 * test_members_listener.c: when a member takes its launcher for gone, on virtual time: after two late answers of the
 * store in a row, not after one, behind which this process itself may have stood still.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/members_impl.h"

#define ALONE_NS (3 * TRI_NS_PER_S)
#define LATE_NS  (4 * TRI_NS_PER_S) /* of an answer: longer than the launcher may be gone */

/* A store in which nothing is found, that answers late where `answers` has an 'l'; at its end the listener ends. */
typedef struct slow_store {
    tri_store store;
    tri_members *members;
    const char *answers;
    int asked, alone_after; /* asked: so many times; when `alone` was called, -1: never */
} slow_store;

static tri_status wait_late(tri_store *store, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    slow_store *own = (slow_store *)store;

    (void)bytes;
    (void)nbytes;
    if (strcmp(key, "news/0") != 0)
        return TRI_ETIMEOUT;
    tri_sleep_ns(own->answers[own->asked] == 'l' ? LATE_NS : deadline_ns - tri_now_ns());
    own->asked++;
    if (!own->answers[own->asked])
        atomic_store(&own->members->closing, true);
    return TRI_ETIMEOUT;
}

static void alone_note(void *arg)
{
    slow_store *own = arg;

    own->alone_after = own->asked;
}

static void listen_run(int index, void *arg)
{
    (void)index;
    tri_members_listen(((slow_store *)arg)->members);
}

/* After how many answers the launcher is gone. */
static int alone_after(const char *answers)
{
    static const tri_store_ops ops = {.name = "slow", .wait = wait_late};
    tri_members members = {0};
    slow_store own = {.store = {.ops = &ops}, .members = &members, .answers = answers, .alone_after = -1};

    members.setup.listener = &own.store;
    members.setup.alone_ns = ALONE_NS;
    members.setup.alone = alone_note;
    members.setup.arg = &own;
    assert_int_equal(tri_sim_run(&(tri_sim_config){.seed = 1}, 1, listen_run, &own), TRI_OK);
    assert_int_equal(own.asked, (int)strlen(answers));
    return own.alone_after;
}

static void one_late_answer_is_no_sign(void **state)
{
    (void)state;
    assert_int_equal(alone_after("iiii"), -1);
    assert_int_equal(alone_after("ilii"), -1);
    assert_int_equal(alone_after("lilil"), -1); /* never two in a row */
}

static void two_in_a_row_are_one(void **state)
{
    (void)state;
    assert_int_equal(alone_after("illi"), 3);
    assert_int_equal(alone_after("lilll"), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_late_answer_is_no_sign),
        cmocka_unit_test(two_in_a_row_are_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
