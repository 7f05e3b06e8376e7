/* SPDX-License-Identifier: Apache-2.0
 *
 * test_endpoint_connections.c: which message goes first, who waits for whom, and how connections end.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "unit/net/cmocka_all.h"
#include "unit/net/endpoint_pair.h"

#define MUCH_NBYTES ((size_t)24 << 20) /* more than the sockets between two ends hold */

static unsigned char *much; /* [MUCH_NBYTES] */

/* A hub takes 64 KiB at a time, and each piece a turn. */
static size_t much_nbytes(const endpoint_pair *pair)
{
    return pair->way->over_hub ? (size_t)2 << 20 : MUCH_NBYTES;
}

static void over_all(void (*body)(endpoint_pair *pair))
{
    for (int i = 0; i < ENDPOINT_WAYS; i++)
        assert_true(pair_holds(&endpoint_ways[i], body));
}

/* ---- order */

static void priorities_body(endpoint_pair *pair)
{
    static const unsigned priorities[] = {1, 0, 3, 1, 0, 3, 2, 3, 0, 1, 2, 0};
    static const uint64_t order[] = {100, 2, 5, 7, 6, 10, 0, 3, 9, 1, 4, 8, 11};
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    /* It fills the way, so all that follow wait. */
    pair_send(from, from->connection, 0, 100, much, much_nbytes(pair));
    PAIR_CHECK(pair, tri_endpoint_poll(from->endpoint, tri_now_ns()) == TRI_OK);
    PAIR_CHECK(pair, tri_connection_queued(from->connection) > 0);
    for (size_t i = 0; i < TRI_COUNT_OF(priorities); i++)
        pair_send(from, from->connection, priorities[i], i, much, 100000 * (i % 3));
    PAIR_UNTIL(pair, pair_count(to, PAIR_MESSAGE) == 13);
    for (int i = 0; i < pair_count(to, PAIR_MESSAGE); i++)
        PAIR_CHECK(pair, pair_event_of(to, PAIR_MESSAGE, i)->id == order[i]);
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 13 && tri_connection_queued(from->connection) == 0);
    for (int i = 0; i < pair_count(from, PAIR_SENT); i++)
        PAIR_CHECK(pair, pair_event_of(from, PAIR_SENT, i)->id == order[i] &&
                             pair_event_of(from, PAIR_SENT, i)->status == TRI_OK);
}

static void urgent_messages_overtake_those_that_wait(void **state)
{
    (void)state;
    over_all(priorities_body);
}

#define MIXED 800

static uint64_t mixed_priority(uint64_t id)
{
    return id % 40 == 31 ? 4 : id * 2654435761u >> 7 & 3;
}

static size_t mixed_nbytes(uint64_t id)
{
    static const size_t sizes[] = {0, 1, 100, 3000, 16384 - TRI_MESSAGE_NBYTES - 1, 16384 - TRI_MESSAGE_NBYTES, 40000};

    /* Some are long and urgent, when a row of short ones has been offered to the way. */
    return id % 40 == 31 ? 400000 : sizes[id * 40503 % TRI_COUNT_OF(sizes)];
}

static bool mixed_then(pair_end *end, const pair_event *event)
{
    if (event->what == PAIR_MESSAGE && event->nbytes > 0)
        PAIR_CHECK(end->pair, event->nbytes == mixed_nbytes(event->id) &&
                                  memcmp(end->body, much + event->id, (size_t)event->nbytes) == 0);
    return true;
}

/* Messages are queued while others are half written: what was promised to the way stays in its order. */
static void mixed_body(endpoint_pair *pair)
{
    for (int i = 0; i < 2; i++)
        pair->ends[i].then = mixed_then;
    for (uint64_t id = 0; id < MIXED; id++) {
        for (int i = 0; i < 2; i++)
            pair_send(&pair->ends[i], pair->ends[i].connection, (unsigned)mixed_priority(id), id, much + id,
                      mixed_nbytes(id));
        tri_connection_pause(pair->ends[0].connection, id % 40 < 20);
        for (uint64_t turns = id % 40 < 20 ? 0 : id % 4; turns > 0; turns--)
            pair_turn(pair);
    }
    tri_connection_pause(pair->ends[0].connection, false);
    for (int i = 0; i < 2; i++) {
        uint64_t next[5] = {0};

        PAIR_UNTIL(pair, pair_count(&pair->ends[i], PAIR_MESSAGE) == MIXED || pair_count(&pair->ends[i], PAIR_CLOSED));
        for (int n = 0; n < pair_count(&pair->ends[i], PAIR_MESSAGE); n++) {
            uint64_t id = pair_event_of(&pair->ends[i], PAIR_MESSAGE, n)->id, priority = mixed_priority(id);

            PAIR_CHECK(pair, id >= next[priority]);
            next[priority] = id + 1;
        }
        PAIR_CHECK(pair, pair_count(&pair->ends[i], PAIR_MESSAGE) == MIXED);
    }
}

static void messages_of_all_priorities_come_whole(void **state)
{
    (void)state;
    over_all(mixed_body);
}

/* ---- waiting */

static void pause_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];
    size_t queued;

    tri_connection_pause(to->connection, true);
    for (uint64_t i = 0; i < 4; i++)
        pair_send(from, from->connection, 0, i, much, much_nbytes(pair));
    queued = tri_connection_queued(from->connection);
    for (int steady = 0; steady < 30; steady++) { /* until the kernel takes no more */
        pair_turn(pair);
        if (tri_connection_queued(from->connection) != queued)
            steady = 0;
        queued = tri_connection_queued(from->connection);
    }
    PAIR_CHECK(pair, queued > 3 * much_nbytes(pair) && pair_count(to, PAIR_PLACED) == 0);
    /* The other direction goes on. */
    pair_send(to, to->connection, 0, 50, much, 1000);
    PAIR_UNTIL(pair, pair_count(from, PAIR_MESSAGE) == 1);
    tri_connection_pause(to->connection, false);
    PAIR_UNTIL(pair, pair_count(to, PAIR_MESSAGE) == 4 && pair_count(from, PAIR_SENT) == 4);
}

static void a_connection_that_is_paused_lets_the_sender_wait(void **state)
{
    (void)state;
    over_all(pause_body);
}

static bool pause_then(pair_end *end, const pair_event *event)
{
    if (event->what == PAIR_MESSAGE || event->what == PAIR_PLACED)
        tri_connection_pause(end->connection, true);
    if (event->what == PAIR_MESSAGE && event->nbytes > 0)
        PAIR_CHECK(end->pair,
                   (uintptr_t)end->body % 64 == 0 && memcmp(end->body, much + event->id, (size_t)event->nbytes) == 0);
    return true;
}

/* Many small messages come with one read; the owner wants them one by one. */
static void one_by_one_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    to->then = pause_then;
    for (uint64_t i = 0; i < 100; i++)
        pair_send(from, from->connection, 0, i, much + i, i * 7 % 1000);
    for (int i = 0; i < 100; i++) {
        int before = to->count;

        PAIR_UNTIL(pair, to->count > before);
        PAIR_CHECK(pair, to->count == before + 1);
        pair_turn(pair);
        PAIR_CHECK(pair, to->count == before + 1);
        tri_connection_pause(to->connection, false);
        if (to->events[to->count - 1].what == PAIR_PLACED)
            i--;
    }
    PAIR_CHECK(pair, pair_count(to, PAIR_MESSAGE) == 100);
    for (int i = 0; i < pair_count(to, PAIR_MESSAGE); i++)
        PAIR_CHECK(pair, pair_event_of(to, PAIR_MESSAGE, i)->id == (uint64_t)i);
}

static void a_handler_may_pause_after_each_message(void **state)
{
    (void)state;
    over_all(one_by_one_body);
}

/* ---- ends */

static void hung_up_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    pair_send(from, from->connection, 0, 1, much, 10);
    PAIR_UNTIL(pair, pair_count(to, PAIR_MESSAGE) == 1);
    for (uint64_t i = 2; i < 6; i++)
        pair_send(from, from->connection, 0, i, much, much_nbytes(pair));
    pair_turn(pair);
    tri_connection_close(from->connection);
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 5);
    for (int i = 1; i < 5; i++)
        PAIR_CHECK(pair, pair_event_of(from, PAIR_SENT, i)->status == TRI_ECANCELED);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_MESSAGE) == 1 && pair_event_of(to, PAIR_CLOSED, 0)->why[0]);
    pair_turn(pair);
    PAIR_CHECK(pair, pair_count(from, PAIR_CLOSED) == 0);
    /* The same two ends have another connection. */
    PAIR_CHECK(pair, pair_dial(pair, from->endpoint, tri_endpoint_address(to->endpoint), &from->connection) == TRI_OK);
    pair_send(from, from->connection, 0, 9, much, 100000);
    PAIR_UNTIL(pair, pair_count(to, PAIR_MESSAGE) == 2);
    PAIR_CHECK(pair, pair_event_of(to, PAIR_MESSAGE, 1)->id == 9 && pair_count(to, PAIR_OPENED) == 2);
}

static void who_hangs_up_ends_the_connection_for_both(void **state)
{
    (void)state;
    over_all(hung_up_body);
}

/* Both ends are in the midst of much. */
static void hung_up_in_the_midst_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    for (int round = 0; round < 5; round++) {
        int opened = pair_count(to, PAIR_OPENED), closed = pair_count(to, PAIR_CLOSED);
        int messages = pair_count(to, PAIR_MESSAGE);

        for (uint64_t i = 0; i < 3; i++) {
            pair_send(from, from->connection, 0, 10 + i, much, much_nbytes(pair));
            pair_send(to, to->connection, 0, 20 + i, much, much_nbytes(pair));
        }
        for (int i = 0; i < round; i++)
            pair_turn(pair);
        tri_connection_close(from->connection);
        PAIR_CHECK(pair,
                   pair_dial(pair, from->endpoint, tri_endpoint_address(to->endpoint), &from->connection) == TRI_OK);
        PAIR_UNTIL(pair, pair_count(to, PAIR_OPENED) == opened + 1 && pair_count(to, PAIR_CLOSED) == closed + 1);
        messages = pair_count(to, PAIR_MESSAGE);
        pair_send(from, from->connection, 0, 1, "x", 1);
        pair_send(to, to->connection, 0, 2, "y", 1);
        PAIR_UNTIL(pair, pair_count(to, PAIR_MESSAGE) == messages + 1);
        PAIR_CHECK(pair, pair_event_of(to, PAIR_MESSAGE, messages)->id == 1);
        messages = pair_count(from, PAIR_MESSAGE);
        PAIR_UNTIL(pair, messages > 0 || pair_count(from, PAIR_MESSAGE) > 0);
    }
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) + pair_count(to, PAIR_SENT) >= 5 * 6);
}

static void a_new_connection_hears_nothing_of_the_one_before(void **state)
{
    (void)state;
    over_all(hung_up_in_the_midst_body);
}

/* A message of which a part has gone is no message. */
static void cut_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    if (!pair->way->over_hub)
        return; /* the kernel takes both as a whole */
    pair_send(from, from->connection, 0, 1, much, 40000);
    pair_send(from, from->connection, 0, 2, much, 40000);
    PAIR_CHECK(pair, tri_endpoint_poll(from->endpoint, tri_now_ns()) == TRI_OK);
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 1 && tri_connection_queued(from->connection) < 40000);
    tri_connection_close(from->connection);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_MESSAGE) == 1 && pair_event_of(to, PAIR_MESSAGE, 0)->id == 1);
    PAIR_CHECK(pair, pair_event_of(from, PAIR_SENT, 1)->status == TRI_ECANCELED);
}

static void a_message_that_was_cut_is_none(void **state)
{
    (void)state;
    over_all(cut_body);
}

static pair_what hang_up_at;

static bool hang_up_then(pair_end *end, const pair_event *event)
{
    if (event->what != hang_up_at)
        return true;
    if (event->id % 2 == 0) {
        tri_fail(TRI_EINVAL, "the test does not want it");
        return false;
    }
    tri_connection_close(end->connection);
    return true;
}

static void hang_up_inside_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    to->then = hang_up_then;
    for (uint64_t id = 0; id < 2; id++) {
        int messages = pair_count(to, PAIR_MESSAGE), opened = pair_count(to, PAIR_OPENED);

        pair_send(from, from->connection, 0, id, much, 3000);
        pair_send(from, from->connection, 0, id, much, much_nbytes(pair));
        PAIR_UNTIL(pair, pair_count(from, PAIR_CLOSED) == (int)id + 1);
        PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 2 * (int)id + 2);
        PAIR_CHECK(pair, pair_count(to, PAIR_MESSAGE) == messages + (hang_up_at == PAIR_MESSAGE));
        PAIR_CHECK(pair, pair_count(to, PAIR_CLOSED) == 0);
        PAIR_CHECK(pair,
                   pair_dial(pair, from->endpoint, tri_endpoint_address(to->endpoint), &from->connection) == TRI_OK);
        PAIR_UNTIL(pair, pair_count(to, PAIR_OPENED) == opened + 1);
    }
}

static void handlers_may_hang_up(void **state)
{
    (void)state;
    hang_up_at = PAIR_PLACED;
    over_all(hang_up_inside_body);
    hang_up_at = PAIR_MESSAGE;
    over_all(hang_up_inside_body);
}

static bool refuse_then(pair_end *end, const pair_event *event)
{
    (void)end;
    return event->what != PAIR_OPENED;
}

static void refused_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    tri_connection_close(from->connection);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    to->then = refuse_then;
    PAIR_CHECK(pair, pair_dial(pair, from->endpoint, tri_endpoint_address(to->endpoint), &from->connection) == TRI_OK);
    PAIR_UNTIL(pair, pair_count(from, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_CLOSED) == 1);
}

static void who_is_not_wanted_finds_the_connection_closed(void **state)
{
    (void)state;
    over_all(refused_body);
}

static void left_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    /* Messages of who leaves in good order come, also those that were queued; then the end. */
    for (uint64_t i = 0; i < 100; i++)
        pair_send(from, from->connection, 0, i, much, 300);
    pair_send(to, to->connection, 0, 7, much, much_nbytes(pair));
    pair_send(to, to->connection, 0, 8, much, much_nbytes(pair));
    tri_endpoint_close(from->endpoint);
    from->endpoint = NULL;
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 100 && pair_count(from, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_event_of(from, PAIR_SENT, 99)->status == TRI_OK);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_MESSAGE) == 100 && pair_count(to, PAIR_SENT) == 2);
    PAIR_CHECK(pair, pair_event_of(to, PAIR_SENT, 1)->status == TRI_EPEER);
    PAIR_CHECK(pair, to->events[to->count - 1].what == PAIR_CLOSED);
}

static void what_was_said_before_leaving_is_heard(void **state)
{
    (void)state;
    over_all(left_body);
}

static void left_while_paused_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    tri_connection_pause(to->connection, true);
    for (uint64_t i = 0; i < 10; i++)
        pair_send(from, from->connection, 0, i, much, 100);
    tri_endpoint_close(from->endpoint);
    from->endpoint = NULL;
    for (int i = 0; i < 100; i++)
        pair_turn(pair);
    PAIR_CHECK(pair, pair_count(to, PAIR_MESSAGE) == 0 && pair_count(to, PAIR_CLOSED) == 0);
    tri_connection_pause(to->connection, false);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_MESSAGE) == 10);
}

static void a_connection_that_ends_while_paused_is_closed_when_it_is_read(void **state)
{
    (void)state;
    over_all(left_while_paused_body);
}

/* ---- dialing */

static bool dial_then(pair_end *end, const pair_event *event)
{
    tri_connection *connection;
    tri_status status;

    if (event->what != PAIR_MESSAGE)
        return true;
    status = tri_endpoint_dial(end->endpoint, "nowhere", tri_now_ns(), &connection);
    PAIR_CHECK(end->pair, status == TRI_EPEER && !connection);
    pair_send(end, end->connection, 0, 5, NULL, 0);
    return true;
}

static void dial_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];
    tri_connection *connection;

    PAIR_CHECK(pair, strcmp(tri_endpoint_address(from->endpoint), "") == 0);
    PAIR_CHECK(pair, strlen(tri_endpoint_address(to->endpoint)) < TRI_ENDPOINT_ADDRESS_NBYTES);
    PAIR_CHECK(pair, tri_endpoint_dial(from->endpoint, "", tri_deadline_after_ms(50), &connection) == TRI_EPEER);
    PAIR_CHECK(pair, tri_endpoint_dial(from->endpoint, pair->way->over_hub ? "3" : "0,127.0.0.1/1",
                                       tri_deadline_after_ms(50), &connection) == TRI_EPEER);
    tri_connection_data_set(from->connection, pair);
    PAIR_CHECK(pair, tri_connection_data(from->connection) == pair && !tri_connection_data(to->connection));
    PAIR_CHECK(pair, tri_connection_peer(from->connection)[0] && tri_connection_peer(to->connection)[0]);
    to->then = dial_then;
    pair_send(from, from->connection, 0, 1, NULL, 0);
    PAIR_UNTIL(pair, pair_count(from, PAIR_MESSAGE) == 1);
}

static void dialing_nobody_fails_in_time(void **state)
{
    (void)state;
    over_all(dial_body);
}

/* Dials the other, and turns only then. */
static void other_reach(endpoint_pair *pair, int index)
{
    pair_end *end = &pair->ends[index];
    int opened = pair_count(end, PAIR_OPENED);
    int64_t deadline_ns = tri_deadline_after_ms(PAIR_WAIT_MS);

    PAIR_CHECK(pair, tri_endpoint_dial(end->endpoint, tri_endpoint_address(pair->ends[!index].endpoint), deadline_ns,
                                       &end->connection) == TRI_OK);
    while (pair_count(end, PAIR_OPENED) == opened && tri_now_ns() < deadline_ns)
        PAIR_CHECK(pair, tri_endpoint_poll(end->endpoint, deadline_ns) == TRI_OK);
    PAIR_CHECK(pair, pair_count(end, PAIR_OPENED) == opened + 1);
}

static void other_main(void *arg)
{
    other_reach(arg, 1);
}

static void each_other_body(endpoint_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];
    tri_endpoint_setup setup = pair_setup(pair, 1);
    tri_thread *thread;

    if (pair->way->over_hub)
        return; /* a rank opens once */
    tri_endpoint_close(from->endpoint);
    from->endpoint = NULL;
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    setup.listens = true;
    PAIR_CHECK(pair, tri_endpoint_open(&setup, &from->endpoint) == TRI_OK);
    PAIR_CHECK(pair, tri_thread_start(&thread, "other", other_main, pair) == TRI_OK);
    other_reach(pair, 0);
    tri_thread_join(thread);
}

static void two_may_dial_each_other(void **state)
{
    (void)state;
    over_all(each_other_body);
}

/* ---- waking */

static void wake_main(void *arg)
{
    tri_sleep_ns(20 * TRI_NS_PER_MS);
    tri_endpoint_wake(arg);
}

static void wake_body(endpoint_pair *pair)
{
    tri_endpoint *endpoint = pair->ends[0].endpoint;
    int64_t before_ns = tri_now_ns();
    tri_thread *thread;

    tri_endpoint_wake(endpoint); /* before the turn */
    PAIR_CHECK(pair, tri_endpoint_poll(endpoint, tri_deadline_after_ms(PAIR_WAIT_MS)) == TRI_OK);
    PAIR_CHECK(pair, tri_now_ns() - before_ns < PAIR_WAIT_MS * TRI_NS_PER_MS);
    PAIR_CHECK(pair, tri_thread_start(&thread, "waker", wake_main, endpoint) == TRI_OK);
    PAIR_CHECK(pair, tri_endpoint_poll(endpoint, tri_deadline_after_ms(PAIR_WAIT_MS)) == TRI_OK);
    PAIR_CHECK(pair, tri_now_ns() - before_ns < PAIR_WAIT_MS * TRI_NS_PER_MS);
    tri_thread_join(thread);
    PAIR_CHECK(pair, tri_endpoint_poll(endpoint, tri_deadline_after_ms(20)) == TRI_OK);
    PAIR_CHECK(pair, tri_now_ns() - before_ns >= 20 * TRI_NS_PER_MS);
}

static void a_wake_ends_a_turn(void **state)
{
    (void)state;
    over_all(wake_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urgent_messages_overtake_those_that_wait),
        cmocka_unit_test(messages_of_all_priorities_come_whole),
        cmocka_unit_test(a_connection_that_is_paused_lets_the_sender_wait),
        cmocka_unit_test(a_handler_may_pause_after_each_message),
        cmocka_unit_test(who_hangs_up_ends_the_connection_for_both),
        cmocka_unit_test(a_new_connection_hears_nothing_of_the_one_before),
        cmocka_unit_test(a_message_that_was_cut_is_none),
        cmocka_unit_test(handlers_may_hang_up),
        cmocka_unit_test(who_is_not_wanted_finds_the_connection_closed),
        cmocka_unit_test(what_was_said_before_leaving_is_heard),
        cmocka_unit_test(a_connection_that_ends_while_paused_is_closed_when_it_is_read),
        cmocka_unit_test(dialing_nobody_fails_in_time),
        cmocka_unit_test(two_may_dial_each_other),
        cmocka_unit_test(a_wake_ends_a_turn),
    };
    int failures;

    much = tri_alloc_bulk(MUCH_NBYTES);
    TRI_ASSERT(much);
    for (size_t i = 0; i < MUCH_NBYTES; i++)
        much[i] = (unsigned char)(i * 13 + i / 1001);
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    tri_free(much);
    return failures;
}
