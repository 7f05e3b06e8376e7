/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crowd.c: who of the callers that have proven nothing has to go, on a clock of the test's own.
 */
#include <arpa/inet.h>

#include "base/runtime.h"
#include "net/crowd.h"
#include "unit/net/cmocka_all.h"

#define LIMIT 64
#define MS    TRI_NS_PER_MS

static tri_caller callers[2 * LIMIT];

static void few_silent_callers_may_wait(void **state)
{
    tri_crowd crowd;
    int64_t next_ns;

    (void)state;
    tri_crowd_init(&crowd, LIMIT);
    assert_int_equal(crowd.limit, LIMIT);
    for (int i = 0; i < LIMIT / 4; i++)
        tri_crowd_add(&crowd, &callers[i], 1, 0);
    assert_null(tri_crowd_silent(&crowd, 4000 * MS, &next_ns));
}

static void silent_callers_leave_a_crowd_after_a_moment(void **state)
{
    tri_crowd crowd;
    tri_caller *silent;
    int64_t next_ns;
    int gone = 0;

    (void)state;
    tri_crowd_init(&crowd, LIMIT);
    for (int i = 0; i < LIMIT / 2; i++)
        tri_crowd_add(&crowd, &callers[i], 1, 0);
    callers[3].has_spoken = true;
    assert_null(tri_crowd_silent(&crowd, 99 * MS, &next_ns));
    assert_int_equal(next_ns, 100 * MS);
    while ((silent = tri_crowd_silent(&crowd, 200 * MS, &next_ns)) != NULL) {
        assert_ptr_not_equal(silent, &callers[3]);
        tri_crowd_remove(&crowd, silent);
        gone++;
    }
    assert_int_equal(gone, LIMIT / 4); /* then it is no crowd any more */
}

static void one_address_never_takes_the_share_of_others(void **state)
{
    tri_crowd crowd;
    tri_caller *leaves;

    (void)state;
    tri_crowd_init(&crowd, LIMIT);
    for (int i = 0; i < LIMIT / 2; i++) {
        assert_true(tri_crowd_admits(&crowd, 1, 10 * MS, &leaves));
        assert_null(leaves);
        tri_crowd_add(&crowd, &callers[i], 1, 10 * MS);
    }
    assert_false(tri_crowd_admits(&crowd, 1, 50 * MS, &leaves)); /* all of its own are young */
    assert_true(tri_crowd_admits(&crowd, 1, 110 * MS, &leaves));
    assert_ptr_equal(leaves, &callers[0]);
    assert_true(tri_crowd_admits(&crowd, 2, 50 * MS, &leaves));
    assert_null(leaves);
    for (int i = LIMIT / 2; i < LIMIT; i++)
        tri_crowd_add(&crowd, &callers[i], 2, 20 * MS);
    assert_true(tri_crowd_admits(&crowd, 3, 50 * MS, &leaves)); /* both have half: a third one comes in */
    assert_ptr_equal(leaves, &callers[0]);
}

/* The share of an address that calls more often pays for one that calls less often. */
static void the_largest_share_makes_room(void **state)
{
    tri_crowd crowd;
    tri_caller *leaves;

    (void)state;
    tri_crowd_init(&crowd, LIMIT);
    for (int i = 0; i < LIMIT; i++)
        tri_crowd_add(&crowd, &callers[i], i < LIMIT / 4 ? 4 : i < LIMIT / 2 ? 5 : 6 + (uint64_t)i % 2, 0);
    tri_crowd_remove(&crowd, &callers[0]);
    tri_crowd_add(&crowd, &callers[LIMIT], 6, 0);
    assert_true(tri_crowd_admits(&crowd, 9, 50 * MS, &leaves));
    assert_ptr_equal(leaves, &callers[LIMIT / 2]); /* the oldest of address 6, which has one more than 7 */
    tri_crowd_remove(&crowd, leaves);
    assert_true(tri_crowd_admits(&crowd, 9, 50 * MS, &leaves));
    assert_null(leaves);
}

/* All addresses that one host may have count as one. */
static void an_ipv6_prefix_is_one_address(void **state)
{
    static const struct {
        const char *one, *other;
        bool same;
    } rows[] = {
        {"2001:db8::1", "2001:db8::ffff:2", true},
        {"2001:db8::1", "2001:db8:0:1::1", false},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.1", true},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.2", false},
    };

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        struct sockaddr_in6 six[2] = {{.sin6_family = AF_INET6}, {.sin6_family = AF_INET6}};

        assert_int_equal(inet_pton(AF_INET6, rows[i].one, &six[0].sin6_addr), 1);
        assert_int_equal(inet_pton(AF_INET6, rows[i].other, &six[1].sin6_addr), 1);
        assert_int_equal(tri_caller_address((struct sockaddr *)&six[0]) ==
                             tri_caller_address((struct sockaddr *)&six[1]),
                         rows[i].same);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_silent_callers_may_wait),
        cmocka_unit_test(silent_callers_leave_a_crowd_after_a_moment),
        cmocka_unit_test(one_address_never_takes_the_share_of_others),
        cmocka_unit_test(the_largest_share_makes_room),
        cmocka_unit_test(an_ipv6_prefix_is_one_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
