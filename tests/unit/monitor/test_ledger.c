/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ledger.c: the ledger of a run whose writers stop, are killed and come back: no step is missing as long as one of
 * those that have seen it is left, and whoever is to go on without having seen it finds it in the file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fs.h"
#include "monitor/ledger.h"

static const tri_ledger_plan plan = {.seed = 1, .count = 100, .batch = 10, .shards = 2, .shuffle = true};
static char folder[] = "/tmp/trireme-ledger-XXXXXX", path[64];

static void made_write(tri_ledger *ledger, int64_t from, int64_t to)
{
    for (int64_t step = from; step < to; step++)
        tri_ledger_write(ledger, step, (uint64_t)step, 1);
}

static void is_whole(int64_t first, int64_t end)
{
    tri_ledger_view view;
    uint64_t marks;
    int generation;
    assert_int_equal(tri_ledger_load(path, &view), TRI_OK);
    assert_int_equal(view.first, first);
    assert_int_equal(view.end, end);
    for (int64_t step = first; step < end; step++) {
        assert_true(tri_ledger_step(&view, step, &marks, &generation));
        assert_int_equal(marks, step);
    }
    tri_ledger_view_fini(&view);
}

static tri_ledger *ledgers[3];

static int three_open(void **state)
{
    (void)state;
    (void)tri_fs_remove(path);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tri_ledger_open(path, &ledgers[i]), TRI_OK);
    assert_int_equal(tri_ledger_lead(ledgers[0], &plan, 0), TRI_OK);
    return 0;
}

static int three_close(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(tri_ledger_close(ledgers[i]), TRI_OK);
    return 0;
}

static void who_goes_on_writes_what_the_killed_one_had_not(void **state)
{
    (void)state;
    made_write(ledgers[0], 0, 50);
    made_write(ledgers[1], 0, 50);
    tri_ledger_drop_lead(ledgers[0]);
    made_write(ledgers[1], 50, 60);
    assert_int_equal(tri_ledger_lead(ledgers[1], &plan, 60), TRI_OK);
    is_whole(0, 60);
}

/* The third one has seen steps up to 20, and comes back; who hands the state on writes first, so it can go on alone. */
static void who_comes_back_finds_what_it_has_not_seen(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        made_write(ledgers[i], 0, 20);
    for (int i = 0; i < 2; i++)
        made_write(ledgers[i], 20, 50);
    tri_ledger_drop_lead(ledgers[0]);
    assert_int_equal(tri_ledger_lead(ledgers[1], &plan, 50), TRI_OK);
    tri_ledger_drop_lead(ledgers[1]);
    made_write(ledgers[2], 49, 55);
    assert_int_equal(tri_ledger_lead(ledgers[2], &plan, 55), TRI_OK);
    is_whole(0, 55);
}

/* The first one was stopped before it had written; the others are killed before one of them has. */
static void who_was_given_up_still_has_its_steps(void **state)
{
    (void)state;
    made_write(ledgers[0], 0, 50);
    tri_ledger_flush(ledgers[0]);
    made_write(ledgers[0], 50, 80);
    tri_ledger_drop_lead(ledgers[0]);
    assert_int_equal(tri_ledger_lead(ledgers[0], &plan, 80), TRI_OK);
    tri_ledger_yield(ledgers[0]);
    made_write(ledgers[1], 80, 90);
    assert_int_equal(tri_ledger_lead(ledgers[1], &plan, 90), TRI_OK);
    is_whole(0, 90);
}

static void a_run_that_goes_back_writes_later_steps_again(void **state)
{
    (void)state;
    made_write(ledgers[0], 0, 50);
    tri_ledger_rewind(ledgers[0], 30);
    assert_int_equal(tri_ledger_lead(ledgers[0], &plan, 30), TRI_OK);
    is_whole(0, 30);
    made_write(ledgers[0], 30, 40);
    tri_ledger_flush(ledgers[0]);
    is_whole(0, 40);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, three_open, three_close)
    const struct CMUnitTest tests[] = {
        TEST(who_goes_on_writes_what_the_killed_one_had_not),
        TEST(who_comes_back_finds_what_it_has_not_seen),
        TEST(who_was_given_up_still_has_its_steps),
        TEST(a_run_that_goes_back_writes_later_steps_again),
    };
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/ledger", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)tri_fs_remove(folder);
    return failed;
}
