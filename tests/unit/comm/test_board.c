/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/note.h"
#include "comm/run.h"

static tri_frame frame_of(uint64_t sequence)
{
    return (tri_frame){.kind = TRI_FRAME_DATA,
                       .op = TRI_COMM_ALL_REDUCE,
                       .dtype = TRI_F16,
                       .group = 7,
                       .sequence = sequence,
                       .count = 3 * sequence,
                       .name = 11 * sequence,
                       .reduce = 0x123402};
}

static char named[TRI_BOARD_NAME_NBYTES] = "a bucket";
static const char nameless[TRI_BOARD_NAME_NBYTES] = "";

static void the_latest_call_is_on_the_board(void **state)
{
    tri_board *board = tri_board_create();
    tri_board_call call;
    tri_frame frame = frame_of(5);
    int64_t before_ns = tri_now_ns();

    (void)state;
    assert_non_null(board);
    assert_false(tri_board_read(board, &call));
    tri_board_begin(board, &frame, 0x13, named);
    assert_true(tri_board_read(board, &call));
    assert_true(call.runs && call.number == 1 && call.members == 0x13 && call.end_ns == 0);
    assert_true(tri_frame_agrees(&call.frame, &frame));
    assert_string_equal(call.name, "a bucket");
    assert_true(call.begin_ns >= before_ns - 100000 && call.begin_ns <= tri_now_ns() + 100000);
    tri_board_end(board, TRI_ETIMEOUT, false);
    assert_true(tri_board_read(board, &call));
    assert_true(!call.runs && call.status == TRI_ETIMEOUT && call.end_ns >= call.begin_ns);
    assert_true(tri_frame_agrees(&call.frame, &frame));
    tri_board_begin(board, &frame, 0x13, nameless);
    assert_true(tri_board_read(board, &call) && call.number == 2 && call.runs && call.status == TRI_OK);
    assert_string_equal(call.name, "");
    tri_board_destroy(board);
}

static void a_copy_has_the_latest_calls_in_order(void **state)
{
    tri_board *board = tri_board_create();
    tri_board_call *calls = tri_alloc_zero(TRI_BOARD_CALLS, sizeof *calls);

    (void)state;
    assert_int_equal(tri_board_copy(board, calls, TRI_BOARD_CALLS), 0);
    for (uint64_t i = 1; i <= 1500; i++) {
        tri_frame frame = frame_of(i);

        tri_board_begin(board, &frame, 1, nameless);
        tri_board_end(board, TRI_OK, false);
        if (i == 3)
            assert_int_equal(tri_board_copy(board, calls, TRI_BOARD_CALLS), 3);
    }
    assert_int_equal(tri_board_copy(board, calls, TRI_BOARD_CALLS), TRI_BOARD_CALLS);
    for (uint64_t i = 0; i < TRI_BOARD_CALLS; i++)
        assert_true(calls[i].number == 1500 - TRI_BOARD_CALLS + 1 + i && calls[i].frame.sequence == calls[i].number);
    assert_int_equal(tri_board_copy(board, calls, 10), 10);
    assert_int_equal(calls[9].number, 1500);
    tri_free(calls);
    tri_board_destroy(board);
}

typedef struct racing {
    tri_board *board;
    atomic_bool stop;
} racing;

static void write_on(void *arg)
{
    racing *race = arg;

    for (uint64_t i = 1; !atomic_load(&race->stop); i++) {
        tri_frame frame = frame_of(i);

        tri_board_begin(race->board, &frame, i, nameless);
        tri_board_end(race->board, TRI_OK, false);
    }
}

static void a_reader_never_sees_half_of_a_call(void **state)
{
    racing race = {.board = tri_board_create()};
    tri_board_call call, *calls = tri_alloc_zero(64, sizeof *calls);
    tri_thread *thread;

    (void)state;
    assert_int_equal(tri_thread_start(&thread, "writer", write_on, &race), TRI_OK);
    for (int round = 0; round < 20000; round++) {
        if (tri_board_read(race.board, &call))
            assert_true(call.frame.count == 3 * call.frame.sequence && call.frame.name == 11 * call.frame.sequence &&
                        call.members == call.frame.sequence && call.number == call.frame.sequence);
        for (size_t i = tri_board_copy(race.board, calls, 64); i-- > 0;)
            assert_true(calls[i].frame.count == 3 * calls[i].number && calls[i].frame.name == 11 * calls[i].number);
    }
    atomic_store(&race.stop, true);
    tri_thread_join(thread);
    tri_free(calls);
    tri_board_destroy(race.board);
}

static void members_are_bits_of_the_first_64_ranks(void **state)
{
    const int ranks[] = {0, 5, 63, 64, 1000};

    (void)state;
    assert_true(tri_board_members(ranks, 5) == (UINT64_C(1) | 32 | UINT64_C(1) << 63));
}

static void a_note_tells_what_the_board_says(void **state)
{
    tri_board *board = tri_board_create();
    tri_net_config config;
    tri_net *net = NULL;
    tri_frame frame = frame_of(9);
    tri_note note;
    unsigned char bytes[TRI_WATCH_NOTE_NBYTES];
    size_t nbytes;

    (void)state;
    tri_options_defaults(&tri_net_options, &config);
    assert_int_equal(tri_net_open(&config, 0, 1, "", NULL, &net), TRI_OK);
    assert_int_equal(tri_note_write(board, net, bytes), 0);
    tri_board_begin(board, &frame, 3, named);
    tri_sleep_ns(20 * TRI_NS_PER_MS);
    nbytes = tri_note_write(board, net, bytes);
    assert_true(tri_note_read(bytes, nbytes, 1, &note));
    assert_true(note.call.runs && tri_frame_agrees(&note.call.frame, &frame) && note.call.members == 3);
    assert_string_equal(note.call.name, "a bucket");
    assert_true(note.call.begin_ns >= 19 * TRI_NS_PER_MS && note.peer_count == 0);
    /* What is no note. */
    for (size_t n = 0; n < nbytes; n++)
        assert_false(tri_note_read(bytes, n, 1, &note));
    bytes[12] = TRI_COMM_OP_COUNT;
    assert_false(tri_note_read(bytes, nbytes, 1, &note));
    bytes[12] = TRI_COMM_ALL_REDUCE;
    bytes[52] = 1; /* a peer that is not there */
    assert_false(tri_note_read(bytes, nbytes, 1, &note));
    memset(bytes + nbytes, 0xff, 20);
    assert_false(tri_note_read(bytes, nbytes + 20, 1, &note)); /* of no rank */
    tri_net_close(net);
    tri_board_destroy(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_latest_call_is_on_the_board),    cmocka_unit_test(a_copy_has_the_latest_calls_in_order),
        cmocka_unit_test(a_reader_never_sees_half_of_a_call), cmocka_unit_test(members_are_bits_of_the_first_64_ranks),
        cmocka_unit_test(a_note_tells_what_the_board_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
