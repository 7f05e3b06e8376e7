/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slow.c: who is slow, and why, of rows whose causes are known.
 */
#include "monitor/slow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define SLOW  2

/* A second in which all wait a tenth, and rank SLOW, if it is, nothing, for half a second of which it did `phase`. */
static void rows_fill(tri_slow_row rows[RANKS], double delay)
{
    for (int r = 0; r < RANKS; r++)
        rows[r] = (tri_slow_row){.wall_s = 1,
                                 .forward = 0.4 - delay / 2,
                                 .backward = 0.4 - delay / 2,
                                 .comm = 0.1 + delay,
                                 .optimizer = 0.1,
                                 .link = {.to = -1},
                                 .strain = {.cpu_seconds_total = 0.9}};
    rows[SLOW].comm = 0.1;
    rows[SLOW].forward = rows[SLOW].backward = 0.4;
}

static void nobody_is_slow_where_all_wait_alike(void **state)
{
    (void)state;
    tri_slow_row rows[RANKS];
    rows_fill(rows, 0.05);
    assert_int_equal(tri_slow_find(rows, RANKS).rank, -1);
    rows_fill(rows, 0.5);
    assert_int_equal(tri_slow_find(rows, 1).rank, -1); /* alone */
    memset(rows, 0, sizeof(rows));
    assert_int_equal(tri_slow_find(rows, RANKS).rank, -1); /* no step was made */
}

static void each_cause_is_named(void **state)
{
    (void)state;
    const struct {
        tri_slow_cause cause;
        size_t figure; /* in the row */
        double value, cpu_s;
    } cases[] = {
        {TRI_SLOW_throttled, offsetof(tri_slow_row, strain.throttled_seconds_total), 0.5, 0.5},
        {TRI_SLOW_stolen, offsetof(tri_slow_row, strain.stolen_seconds_total), 0.5, 0.9},
        {TRI_SLOW_queue, offsetof(tri_slow_row, strain.queue_seconds_total), 0.5, 0.5},
        {TRI_SLOW_stopped, offsetof(tri_slow_row, strain.cpu_seconds_total), 0.3, 0.3},
        {TRI_SLOW_memory, offsetof(tri_slow_row, strain.major_faults_total), 6000, 0.9},
        {TRI_SLOW_disk, offsetof(tri_slow_row, strain.major_faults_total), 6000, 0.3}, /* of files that are mapped */
        {TRI_SLOW_disk, offsetof(tri_slow_row, strain.disk_seconds_total), 0.5, 0.3},
        {TRI_SLOW_disk, offsetof(tri_slow_row, strain.data_disk_seconds_total), 0.5, 0.3},
        {TRI_SLOW_data, offsetof(tri_slow_row, prepared), 0.5, 0.9},
        {TRI_SLOW_data, offsetof(tri_slow_row, waited), 0.5, 0.4},
        {TRI_SLOW_between, offsetof(tri_slow_row, backward), 0, 0.9},
        {TRI_SLOW_compute, offsetof(tri_slow_row, strain.involuntary_switches_total), 3, 0.9},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tri_slow_row rows[RANKS];
        char text[400];
        rows_fill(rows, 0.5);
        rows[SLOW].strain.cpu_seconds_total = cases[i].cpu_s;
        if (cases[i].cause == TRI_SLOW_data) {
            rows[SLOW].forward -= 0.4;
            rows[SLOW].data = 0.5;
        }
        if (cases[i].cause == TRI_SLOW_memory) /* the host swaps, and no file is mapped */
            rows[SLOW].strain.swapped_in_pages_total = 6000;
        if (cases[i].cause == TRI_SLOW_disk)
            rows[SLOW].data = rows[SLOW].strain.data_disk_seconds_total = 0.5;
        if (cases[i].cause == TRI_SLOW_between)
            rows[SLOW].forward -= 0.2;
        memcpy((char *)&rows[SLOW] + cases[i].figure, &cases[i].value, sizeof(double));
        tri_slow_verdict found = tri_slow_find(rows, RANKS);
        if (found.rank != SLOW || found.cause != cases[i].cause)
            fail_msg("want rank %d, %s, got rank %d, %s", SLOW, tri_slow_name(cases[i].cause), found.rank,
                     tri_slow_name(found.cause));
        assert_true(found.share > 0.49 && found.share < 0.51);
        tri_slow_print(&found, text, sizeof(text));
        assert_non_null(strstr(text, "rank 2 is slow: the others wait for it 50 % of the time"));
    }
}

/* Threads that read ahead are slow, and the rank does not wait for them. */
static void a_disk_that_nobody_waits_for_is_no_cause(void **state)
{
    (void)state;
    tri_slow_row rows[RANKS];
    rows_fill(rows, 0.5);
    rows[SLOW].strain.data_disk_seconds_total = 0.9;
    assert_int_equal(tri_slow_find(rows, RANKS).cause, TRI_SLOW_compute);
    rows[SLOW].data = 0.4;
    assert_int_equal(tri_slow_find(rows, RANKS).cause, TRI_SLOW_disk);
}

/* Stopped again and again while it is at its batch, whoever prepares that: half a second of its 0.6 of data. */
static void who_is_stopped_while_it_waits_for_data_or_prepares_them_was_stopped(void **state)
{
    (void)state;
    tri_slow_row rows[RANKS];
    rows_fill(rows, 0.5);
    rows[SLOW].forward = rows[SLOW].backward = 0.1;
    rows[SLOW].data = rows[SLOW].waited = 0.6;
    rows[SLOW].strain.cpu_seconds_total = 0.3;
    assert_int_equal(tri_slow_find(rows, RANKS).cause, TRI_SLOW_data);
    rows[SLOW].waited = 0.1;
    assert_int_equal(tri_slow_find(rows, RANKS).cause, TRI_SLOW_stopped);
    rows[SLOW].waited = 0;
    rows[SLOW].prepared = 0.1;
    assert_int_equal(tri_slow_find(rows, RANKS).cause, TRI_SLOW_stopped);
    rows[SLOW].prepared = 0.6;
    rows[SLOW].strain.cpu_seconds_total = 0.9; /* it was on its core all the time */
    assert_int_equal(tri_slow_find(rows, RANKS).cause, TRI_SLOW_data);
}

/* On a machine that others use too: it was stopped for 0.2 s, and wanted its core for 0.15. */
static void of_causes_that_explain_it_together_the_greatest_is_told(void **state)
{
    (void)state;
    tri_slow_row rows[RANKS];
    rows_fill(rows, 0.5);
    rows[SLOW].strain.queue_seconds_total = 0.15;
    rows[SLOW].strain.cpu_seconds_total = 0.9 - 0.15 - 0.2;
    rows[SLOW].data = 0.2; /* in all of its phases, and between steps */
    rows[SLOW].forward = rows[SLOW].backward = 0.22;
    tri_slow_verdict found = tri_slow_find(rows, RANKS);
    assert_int_equal(found.rank, SLOW);
    assert_int_equal(found.cause, TRI_SLOW_stopped);
    assert_true(found.explained_s > 0.19 && found.explained_s < 0.21);
}

static void a_cause_that_all_have_is_none(void **state)
{
    (void)state;
    tri_slow_row rows[RANKS];
    rows_fill(rows, 0.5);
    for (int r = 0; r < RANKS; r++)
        rows[r].strain.queue_seconds_total = 0.6;
    assert_int_equal(tri_slow_find(rows, RANKS).cause, TRI_SLOW_compute);
}

static void a_link_that_loses_is_named_where_all_wait(void **state)
{
    (void)state;
    tri_slow_row rows[RANKS];
    rows_fill(rows, 0);
    for (int r = 0; r < RANKS; r++)
        rows[r].comm = 0.6;
    assert_int_equal(tri_slow_find(rows, RANKS).rank, -1);
    rows[1].strain.retransmitted_segments_total = 200;
    tri_slow_verdict found = tri_slow_find(rows, RANKS);
    assert_int_equal(found.rank, 1);
    assert_int_equal(found.cause, TRI_SLOW_link);
}

static void a_link_is_named_by_its_ends_where_the_kernel_tells_of_it(void **state)
{
    (void)state;
    char text[400];
    tri_slow_row rows[RANKS];
    rows_fill(rows, 0);
    for (int r = 0; r < RANKS; r++) {
        rows[r].comm = 0.6;
        rows[r].link =
            (tri_slow_link){.to = (r + 1) % RANKS, .busy_s = 0.2, .nbytes = 2e7, .round_trip_s = 1e-4}; /* 100 MB/s */
        rows[r].strain.retransmitted_segments_total = 200; /* of other programs: links are known */
    }
    assert_int_equal(tri_slow_find(rows, RANKS).rank, -1);
    rows[1].link.busy_s = 0.55;
    rows[1].link.nbytes = 3e7; /* 55 MB/s, and the others 100 */
    assert_int_equal(tri_slow_find(rows, RANKS).rank, -1);
    rows[1].link.nbytes = 1.5e7; /* 27 */
    tri_slow_verdict found = tri_slow_find(rows, RANKS);
    assert_int_equal(found.rank, 1);
    assert_int_equal(found.cause, TRI_SLOW_link);
    tri_slow_why(&found, text, sizeof(text));
    assert_non_null(strstr(text, "its link to rank 2 is slow (55 % of the time busy, 27.3 MB/s while it is busy, round "
                                 "trip 0.1 ms; the others' 100)"));
    rows[1].link.nbytes = 5e6; /* small messages: busy with waiting for answers, and not with bytes */
    assert_int_equal(tri_slow_find(rows, RANKS).rank, -1);
    rows[3].link.resent_segments = 50;
    found = tri_slow_find(rows, RANKS);
    assert_int_equal(found.rank, 3);
    tri_slow_why(&found, text, sizeof(text));
    assert_non_null(strstr(text, "segments to rank 0 had to be sent again (50 a second, 100 MB/s"));
}

static void what_the_system_counts_grows_with_what_is_done(void **state)
{
    (void)state;
    tri_strain before, after;
    tri_strain_read(&before);
    volatile double sum = 0;
    for (int i = 0; i < 50 * 1000 * 1000; i++)
        sum = sum + i;
    tri_strain_read(&after);
    tri_strain passed = tri_strain_since(&after, &before);
    assert_true(passed.cpu_seconds_total > 0);
    assert_true(passed.queue_seconds_total >= 0 && passed.stolen_seconds_total >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_slow_where_all_wait_alike),
        cmocka_unit_test(each_cause_is_named),
        cmocka_unit_test(a_disk_that_nobody_waits_for_is_no_cause),
        cmocka_unit_test(who_is_stopped_while_it_waits_for_data_or_prepares_them_was_stopped),
        cmocka_unit_test(of_causes_that_explain_it_together_the_greatest_is_told),
        cmocka_unit_test(a_cause_that_all_have_is_none),
        cmocka_unit_test(a_link_that_loses_is_named_where_all_wait),
        cmocka_unit_test(a_link_is_named_by_its_ends_where_the_kernel_tells_of_it),
        cmocka_unit_test(what_the_system_counts_grows_with_what_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
