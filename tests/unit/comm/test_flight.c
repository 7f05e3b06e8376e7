/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/containers.h"
#include "comm/flight_read.h"

#define HEAD                                                                                                           \
    "{\"trireme_flight\":1,\"job\":\"0000abcd\",\"rank\":%d,\"world\":3,\"host\":\"h\",\"written_ns\":100,"            \
    "\"status\":\"TRI_EPEER\",\"origin\":2,\"cause\":\"rank 2 is gone\",\"calls\":%d,\"kept\":%d}\n"
#define CALL                                                                                                           \
    "{\"number\":%d,\"group\":%d,\"sequence\":%d,\"op\":\"%s\",\"dtype\":\"f32\",\"count\":%d,\"reduce\":0,"           \
    "\"name\":\"a\",\"hash\":\"00000000000000aa\",\"members\":\"0000000000000007\",\"begin_ns\":%d,\"end_ns\":%d,"     \
    "\"status\":\"%s\"}\n"

/* One call of a text: group 0 ends the list. */
typedef struct one {
    int group, sequence;
    const char *op;
    int count, begin, end; /* end 0: runs; below 0: failed */
} one;

static tri_flight_record record_make(int rank, int calls, const one *list)
{
    tri_string text = {0};
    tri_flight_record record;
    int kept = 0;

    while (list[kept].group)
        kept++;
    assert_int_equal(tri_string_appendf(&text, HEAD, rank, calls ? calls : kept, kept), TRI_OK);
    for (int i = 0; i < kept; i++)
        assert_int_equal(tri_string_appendf(&text, CALL, i + 1, list[i].group, list[i].sequence, list[i].op,
                                            list[i].count, list[i].begin, abs(list[i].end),
                                            list[i].end == 0  ? ""
                                            : list[i].end < 0 ? "TRI_EPEER"
                                                              : "TRI_OK"),
                         TRI_OK);
    assert_int_equal(tri_flight_parse(text.text, text.nbytes, "test", &record), TRI_OK);
    tri_string_fini(&text);
    return record;
}

static void records_fini(tri_flight_record *records, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tri_flight_fini(&records[i]);
}

static void a_record_reads_as_it_was_written(void **state)
{
    tri_flight_record record = record_make(1, 9,
                                           (one[]){{1, 4, "all_reduce", 10, 50, 60},
                                                   {1, 5, "barrier", 0, 70, -80},
                                                   {2, 1, "broadcast", 3, 65, 66},
                                                   {1, 7, "send_recv", 3, 85, 0},
                                                   {0}});
    const tri_board_call *call = tri_flight_find(&record, 1, 5);

    (void)state;
    assert_true(record.rank == 1 && record.world == 3 && record.origin == 2 && record.kept == 4 && record.calls == 9);
    assert_string_equal(record.cause, "rank 2 is gone");
    assert_string_equal(record.host, "h");
    assert_int_equal(record.status, TRI_EPEER);
    assert_non_null(call);
    assert_true(call->frame.op == TRI_COMM_BARRIER && call->status == TRI_EPEER && !call->runs && call->end_ns == 80);
    assert_non_null(tri_flight_find(&record, 2, 1));
    assert_null(tri_flight_find(&record, 1, 7)); /* not a collective */
    assert_null(tri_flight_find(&record, 3, 1));
    assert_true(tri_flight_latest(&record)->runs && tri_flight_latest(&record)->frame.op == TRI_COMM_SEND_RECV);
    tri_flight_fini(&record);
}

static void what_is_wrong_with_a_record_is_said_with_its_line(void **state)
{
    static const char *const cases[][2] = {
        {"", "x: want a head and 0 calls, got 0 lines"},
        {"not json\n", "x: line 1: want a JSON object, got "},
        {"[]\n", "x: line 1: want a JSON object"},
        {"{\"trireme_flight\":2}\n", "x: line 1: want a whole number from 1 to 1 in 'trireme_flight'"},
        {"{\"trireme_flight\":1,\"world\":2,\"rank\":2}\n", "want a whole number from 0 to 1 in 'rank'"},
        {"{\"trireme_flight\":1,\"world\":2,\"rank\":1,\"origin\":0,\"job\":\"123456789\"}\n",
         "want a text below 9 bytes in 'job'"},
        {"{\"trireme_flight\":1,\"world\":2,\"rank\":1,\"origin\":0,\"job\":\"1\",\"host\":\"h\",\"cause\":\"\","
         "\"status\":\"TRI_NONE\"}\n",
         "want the name of a status in 'status'"},
        {"{\"trireme_flight\":1,\"world\":2,\"rank\":1,\"origin\":0,\"job\":\"1\",\"host\":\"h\",\"cause\":\"\","
         "\"status\":\"TRI_OK\",\"written_ns\":1,\"calls\":3,\"kept\":1}\n",
         "x: want a head and 1 calls, got 1 lines"},
        {"{\"trireme_flight\":1,\"world\":2,\"rank\":1,\"origin\":0,\"job\":\"1\",\"host\":\"h\",\"cause\":\"\","
         "\"status\":\"TRI_OK\",\"written_ns\":1,\"calls\":3,\"kept\":0}\n{}\n",
         "x: want 0 calls, got more"},
        {"{\"trireme_flight\":1,\"world\":2,\"rank\":1,\"origin\":0,\"job\":\"1\",\"host\":\"h\",\"cause\":\"\","
         "\"status\":\"TRI_OK\",\"written_ns\":1,\"calls\":3,\"kept\":1}\n"
         "{\"number\":1,\"group\":1,\"sequence\":1,\"count\":1,\"reduce\":0,\"op\":\"all_redu\",\"dtype\":\"f32\"}\n",
         "x: line 2: want an operation in 'op'"},
    };

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_flight_record record;

        assert_int_equal(tri_flight_parse(cases[i][0], strlen(cases[i][0]), "x", &record), TRI_EFORMAT);
        if (!strstr(tri_last_error(), cases[i][1]))
            fail_msg("want '%s', got '%s'", cases[i][1], tri_last_error());
    }
}

static void different_calls_are_the_first_divergence(void **state)
{
    tri_flight_record records[2] = {
        record_make(0, 0, (one[]){{1, 1, "all_reduce", 9, 10, 20}, {1, 2, "all_reduce", 10, 30, -90}, {0}}),
        record_make(1, 0, (one[]){{1, 1, "all_reduce", 9, 11, 20}, {1, 2, "broadcast", 10, 31, -90}, {0}})};
    tri_flight_merge merge;

    (void)state;
    assert_int_equal(tri_flight_merge_find(records, 2, &merge), TRI_OK);
    assert_int_equal(merge.kind, TRI_DIVERGENCE_DIFFERENT);
    assert_true(merge.group == 1 && merge.sequence == 2 && merge.late == 1 && merge.first_ns == 30);
    records_fini(records, 2);
}

static void a_rank_that_never_came_is_late(void **state)
{
    tri_flight_record records[3] = {
        record_make(0, 0, (one[]){{1, 1, "all_reduce", 9, 10, 20}, {1, 2, "all_reduce", 9, 30, 0}, {0}}),
        record_make(1, 0, (one[]){{1, 1, "all_reduce", 9, 10, 20}, {0}}),
        record_make(2, 0, (one[]){{1, 1, "all_reduce", 9, 10, 20}, {1, 2, "all_reduce", 9, 33, -50}, {0}})};
    tri_flight_merge merge;

    (void)state;
    assert_int_equal(tri_flight_merge_find(records, 3, &merge), TRI_OK);
    assert_int_equal(merge.kind, TRI_DIVERGENCE_NEVER_BEGAN);
    assert_true(merge.sequence == 2 && merge.late == 1);
    records_fini(records, 3);
}

static void what_a_ring_has_forgotten_is_no_divergence(void **state)
{
    /* Rank 1 keeps two calls of 50. */
    tri_flight_record records[2] = {
        record_make(0, 3,
                    (one[]){{1, 1, "all_reduce", 9, 10, 20},
                            {1, 2, "all_reduce", 9, 30, 40},
                            {1, 3, "all_reduce", 9, 50, 60},
                            {0}}),
        record_make(1, 50, (one[]){{1, 2, "all_reduce", 9, 31, 40}, {1, 3, "all_reduce", 9, 51, 60}, {0}})};
    tri_flight_merge merge;

    (void)state;
    assert_int_equal(tri_flight_merge_find(records, 2, &merge), TRI_OK);
    assert_int_equal(merge.kind, TRI_DIVERGENCE_NONE);
    records[1].calls = 2; /* it has not forgotten: the first is missing */
    assert_int_equal(tri_flight_merge_find(records, 2, &merge), TRI_OK);
    assert_true(merge.kind == TRI_DIVERGENCE_NEVER_BEGAN && merge.sequence == 1 && merge.late == 1);
    records_fini(records, 2);
}

static void the_earliest_of_several_groups_is_named(void **state)
{
    tri_flight_record records[2] = {
        record_make(0, 0, (one[]){{5, 1, "all_reduce", 9, 200, 0}, {9, 1, "all_reduce", 9, 100, 0}, {0}}),
        record_make(1, 0, (one[]){{5, 1, "all_reduce", 9, 210, 0}, {9, 1, "all_reduce", 8, 110, 0}, {0}})};
    tri_flight_merge merge;

    (void)state;
    assert_int_equal(tri_flight_merge_find(records, 2, &merge), TRI_OK);
    assert_true(merge.group == 9 && merge.kind == TRI_DIVERGENCE_DIFFERENT);
    records_fini(records, 2);
}

static void all_through_but_one_call_is_named_with_who_came_last(void **state)
{
    tri_flight_record records[2] = {record_make(0, 0, (one[]){{1, 1, "all_reduce", 9, 10, 0}, {0}}),
                                    record_make(2, 0, (one[]){{1, 1, "all_reduce", 9, 40, -50}, {0}})};
    tri_flight_merge merge;

    (void)state;
    assert_int_equal(tri_flight_merge_find(records, 2, &merge), TRI_OK);
    assert_true(merge.kind == TRI_DIVERGENCE_NEVER_ENDED && merge.late == 1);
    assert_true(tri_flight_is_member(records, 2, 1, 1)); /* by the mask; it left no record */
    assert_false(tri_flight_is_member(records, 2, 2, 1));
    records_fini(records, 2);
}

static void records_of_different_jobs_or_twice_of_a_rank_are_refused(void **state)
{
    tri_flight_record records[2] = {record_make(0, 0, (one[]){{0}}), record_make(0, 0, (one[]){{0}})};
    tri_flight_merge merge;

    (void)state;
    assert_int_equal(tri_flight_merge_find(records, 2, &merge), TRI_EFORMAT);
    assert_non_null(strstr(tri_last_error(), "two of rank 0"));
    snprintf(records[1].job, sizeof records[1].job, "other");
    assert_int_equal(tri_flight_merge_find(records, 2, &merge), TRI_EFORMAT);
    assert_non_null(strstr(tri_last_error(), "job 0000abcd of 3 ranks and job other of 3 ranks"));
    records_fini(records, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_reads_as_it_was_written),
        cmocka_unit_test(what_is_wrong_with_a_record_is_said_with_its_line),
        cmocka_unit_test(different_calls_are_the_first_divergence),
        cmocka_unit_test(a_rank_that_never_came_is_late),
        cmocka_unit_test(what_a_ring_has_forgotten_is_no_divergence),
        cmocka_unit_test(the_earliest_of_several_groups_is_named),
        cmocka_unit_test(all_through_but_one_call_is_named_with_who_came_last),
        cmocka_unit_test(records_of_different_jobs_or_twice_of_a_rank_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
