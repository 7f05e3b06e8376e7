/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

#define LARGE ((size_t)3 << 20)

static tri_frame frame_of(size_t nbytes)
{
    return (tri_frame){.kind = TRI_FRAME_DATA, .op = 1, .sequence = 5, .count = nbytes, .nbytes = nbytes};
}

static tri_status move_one(tri_net *net, int peer, bool send, tri_frame frame, void *bytes, int64_t ms)
{
    tri_move move = {.peer = peer, .send = send, .frame = frame, .bytes = bytes};

    return tri_net_move(net, &move, 1, tri_deadline_after_ms(ms), NULL, NULL);
}

static void over_all(int world, const char *const *faults, spawn_body body)
{
    for (spawn_kind kind = 0; kind < SPAWN_KIND_COUNT; kind++) {
        spawn_config config = {.kind = kind, .world = world, .seed = 3};

        for (int r = 0; faults && r < world; r++)
            config.faults[r] = faults[r];
        assert_true(spawn_ranks(&config, body, NULL));
    }
}

static void different_counts(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char bytes[16] = {0};
    tri_frame mine = frame_of(8), found = {0};
    int culprit = -1;

    (void)arg;
    mine.count = self->rank == 0 ? 100 : 200;
    tri_move moves[2] = {{.peer = 1 - self->rank, .send = true, .frame = mine, .bytes = bytes},
                         {.peer = 1 - self->rank, .frame = mine, .bytes = bytes + 8}};
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    SPAWN_CHECK(self, tri_net_move(net, moves, 2, tri_deadline_after_ms(60000), &found, &culprit) == TRI_EMISMATCH);
    SPAWN_CHECK(self, culprit == 1 - self->rank);
    SPAWN_CHECK(self, found.count == (self->rank == 0 ? 200 : 100) && found.nbytes == 8);
    SPAWN_CHECK(self, strstr(tri_last_error(), "count 100") && strstr(tri_last_error(), "count 200"));
    spawn_barrier(self);
    tri_net_close(net);
}

static void different_calls_are_a_mismatch_on_both_sides(void **state)
{
    (void)state;
    over_all(2, NULL, different_counts);
}

static void different_lengths(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char bytes[16] = {0};
    tri_frame frame = frame_of(8);

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 0) {
        SPAWN_CHECK(self, move_one(net, 1, true, frame, bytes, 60000) == TRI_OK);
    } else {
        frame.nbytes = 9;
        SPAWN_CHECK(self, move_one(net, 0, false, frame, bytes, 60000) == TRI_EMISMATCH);
    }
    spawn_barrier(self);
    tri_net_close(net);
}

static void a_payload_of_another_length_is_a_mismatch(void **state)
{
    (void)state;
    over_all(2, NULL, different_lengths);
}

/* Rank 1 fails while 0 waits for 2 and 2 waits for 0: nobody waits for rank 1. */
static void abort_of_another(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char byte = 0;
    tri_frame found = {0};
    int culprit = -1;
    tri_move move = {.peer = 2 - self->rank, .frame = frame_of(1), .bytes = &byte};

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 1) {
        tri_net_abort(net, TRI_EIO, 1, "the disk is full");
    } else {
        SPAWN_CHECK(self, tri_net_move(net, &move, 1, tri_deadline_after_ms(60000), &found, &culprit) == TRI_EABORT);
        SPAWN_CHECK(self, strcmp(tri_last_error(), "the disk is full") == 0);
        SPAWN_CHECK(self, culprit == 1 && found.op == TRI_EIO && found.count == 1);
    }
    spawn_barrier(self);
    tri_net_close(net);
}

static void the_text_of_an_abort_reaches_those_who_wait_for_others(void **state)
{
    (void)state;
    over_all(3, NULL, abort_of_another);
}

/* Rank 0 loses rank 2 while it is in the middle of a long frame to rank 1, says so, and leaves. */
static void abort_inside_frame(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char *bytes = calloc(1, 2 * LARGE), text[TRI_ERROR_NBYTES];

    (void)arg;
    tri_move moves[2] = {{.peer = 1, .send = true, .frame = frame_of(LARGE), .bytes = bytes},
                         {.peer = 2, .frame = frame_of(LARGE), .bytes = bytes + LARGE}};
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 0) {
        SPAWN_CHECK(self, tri_net_move(net, moves, 2, tri_deadline_after_ms(60000), NULL, NULL) == TRI_EPEER);
        SPAWN_CHECK(self, strstr(tri_last_error(), "rank 2 is gone"));
        snprintf(text, sizeof text, "%s", tri_last_error());
        tri_net_abort(net, TRI_EPEER, 0, text);
        tri_net_close(net);
    } else if (self->rank == 1) {
        /* Two frames are expected, so that one whole one does not end the call. */
        tri_move two[2] = {{.peer = 0, .frame = frame_of(LARGE), .bytes = bytes},
                           {.peer = 0, .frame = frame_of(LARGE), .bytes = bytes}};

        SPAWN_CHECK(self, tri_net_move(net, two, 2, tri_deadline_after_ms(60000), NULL, NULL) == TRI_EABORT);
        SPAWN_CHECK(self, strstr(tri_last_error(), "rank 2 is gone"));
        tri_net_close(net);
    } else {
        tri_net_close(net);
    }
    free(bytes);
}

static void a_frame_under_way_is_ended_before_an_abort(void **state)
{
    (void)state;
    over_all(3, NULL, abort_inside_frame);
}

static void cut_rank(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char *bytes = calloc(1, LARGE);

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 2) {
        SPAWN_CHECK(self, move_one(net, 0, true, frame_of(LARGE), bytes, 60000) == TRI_EPEER);
    } else {
        /* Rank 1 waits for rank 0 alone, which sends it nothing. */
        SPAWN_CHECK(self, move_one(net, self->rank == 0 ? 2 : 0, false, frame_of(LARGE), bytes, 60000) == TRI_EPEER);
        SPAWN_CHECK(self, strcmp(tri_last_error(), "rank 2 is gone (connection closed)") == 0);
        /* Nobody else leaves before all have seen who did. */
        spawn_exchange(self, "");
    }
    tri_net_close(net);
    if (self->rank == 2)
        spawn_exchange(self, "");
    free(bytes);
}

static void a_cut_rank_is_named_by_all_others(void **state)
{
    (void)state;
    over_all(3, (const char *const[]){NULL, NULL, "0:100000:cut;1:0:cut"}, cut_rank);
}

typedef struct stall {
    int64_t limit_ms;
    bool all[2]; /* all bytes before the stall were counted by this rank */
} stall;

static void stalled(spawn_rank *self, void *arg)
{
    stall *at = arg;
    tri_net *net = NULL;
    char *bytes = calloc(1, LARGE);
    bool sends = self->rank == 1;

    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    SPAWN_CHECK(self, move_one(net, 1 - self->rank, sends, frame_of(LARGE), bytes, at->limit_ms) == TRI_ETIMEOUT);
    SPAWN_CHECK(self, sends || strstr(tri_last_error(), "rank 0 waited"));
    SPAWN_CHECK(self, strstr(tri_last_error(), sends ? "to rank 0: " : "from rank 1: "));
    SPAWN_CHECK(self, strstr(tri_last_error(), " of 3145792 bytes"));
    at->all[self->rank] = strstr(tri_last_error(), ": 100000 of ") != NULL;
    spawn_barrier(self);
    tri_net_close(net);
    free(bytes);
}

/* On a machine that is busy the bytes before the stall take their time: a limit in which they do not pass is tried
 * again, longer. */
static void a_stall_ends_at_the_limit_and_names_who_is_late(void **state)
{
    (void)state;
    for (spawn_kind kind = 0; kind < SPAWN_KIND_COUNT; kind++) {
        spawn_config config = {.kind = kind, .world = 2, .seed = 3, .faults = {NULL, "0:100000:stall"}};
        stall at = {.limit_ms = 100};

        for (; !spawn_is_left_out(kind) && !(at.all[0] && at.all[1]); at.limit_ms *= 4) {
            assert_true(at.limit_ms < 30000);
            assert_true(spawn_ranks(&config, stalled, &at));
        }
    }
}

static void damaged(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char bytes[100] = {0};

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 1) {
        SPAWN_CHECK(self, move_one(net, 0, true, frame_of(100), bytes, 60000) == TRI_OK);
    } else {
        SPAWN_CHECK(self, move_one(net, 1, false, frame_of(100), bytes, 60000) == TRI_EPEER);
        SPAWN_CHECK(self, strncmp(tri_last_error(), "from rank 1: frame", 18) == 0);
    }
    spawn_barrier(self);
    tri_net_close(net);
}

static void a_damaged_head_is_not_believed(void **state)
{
    (void)state;
    over_all(2, (const char *const[]){NULL, "0:41:flip"}, damaged);
}

static void leaves_early(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char byte = 'x';

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 2) {
        SPAWN_CHECK(self, move_one(net, 0, true, frame_of(1), &byte, 60000) == TRI_OK);
        tri_net_close(net);
        spawn_exchange(self, "");
        return;
    }
    spawn_exchange(self, "");
    /* The others go on without it, and what it said before is there. */
    if (self->rank == 0) {
        tri_sleep_ns(150 * TRI_NS_PER_MS);
        SPAWN_CHECK(self, move_one(net, 2, false, frame_of(1), &byte, 60000) == TRI_OK);
        SPAWN_CHECK(self, move_one(net, 1, true, frame_of(1), &byte, 60000) == TRI_OK);
        SPAWN_CHECK(self, move_one(net, 2, false, frame_of(1), &byte, 60000) == TRI_EPEER);
        SPAWN_CHECK(self, strstr(tri_last_error(), "rank 2 is gone (it left in good order"));
    } else {
        SPAWN_CHECK(self, move_one(net, 0, false, frame_of(1), &byte, 60000) == TRI_OK);
    }
    tri_net_close(net);
}

static void a_goodbye_is_a_failure_only_if_data_is_expected(void **state)
{
    (void)state;
    over_all(3, NULL, leaves_early);
}

static void wrong_moves(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char byte = 0;
    tri_frame abort_frame = {.kind = TRI_FRAME_ABORT};

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    SPAWN_CHECK(self, move_one(net, self->rank, true, frame_of(1), &byte, 100) == TRI_EINVAL);
    SPAWN_CHECK(self, move_one(net, 2, true, frame_of(1), &byte, 100) == TRI_EINVAL);
    SPAWN_CHECK(self, move_one(net, -1, true, frame_of(1), &byte, 100) == TRI_EINVAL);
    SPAWN_CHECK(self, move_one(net, 1 - self->rank, true, frame_of(1), NULL, 100) == TRI_EINVAL);
    SPAWN_CHECK(self, move_one(net, 1 - self->rank, true, abort_frame, &byte, 100) == TRI_EINVAL);
    spawn_barrier(self);
    tri_net_close(net);
}

static void moves_that_cannot_be_are_refused(void **state)
{
    (void)state;
    over_all(2, NULL, wrong_moves);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(different_calls_are_a_mismatch_on_both_sides),
        cmocka_unit_test(a_payload_of_another_length_is_a_mismatch),
        cmocka_unit_test(the_text_of_an_abort_reaches_those_who_wait_for_others),
        cmocka_unit_test(a_frame_under_way_is_ended_before_an_abort),
        cmocka_unit_test(a_cut_rank_is_named_by_all_others),
        cmocka_unit_test(a_stall_ends_at_the_limit_and_names_who_is_late),
        cmocka_unit_test(a_damaged_head_is_not_believed),
        cmocka_unit_test(a_goodbye_is_a_failure_only_if_data_is_expected),
        cmocka_unit_test(moves_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
