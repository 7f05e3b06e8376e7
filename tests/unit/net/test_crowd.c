/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crowd.c: who of the callers that have proven nothing has to go, on a clock of the test's own.
 */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_silent_callers_may_wait),
        cmocka_unit_test(silent_callers_leave_a_crowd_after_a_moment),
        cmocka_unit_test(one_address_never_takes_the_share_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
