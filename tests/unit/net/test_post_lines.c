/* SPDX-License-Identifier: Apache-2.0
 *
 * test_post_lines.c: which letter goes first, who waits for whom, and how lines end.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "unit/net/cmocka_all.h"
#include "unit/net/post_pair.h"

#define MUCH_NBYTES ((size_t)24 << 20) /* more than the sockets between two ends hold */

static unsigned char *much; /* [MUCH_NBYTES] */

static void over_all(void (*body)(post_pair *pair))
{
    for (int i = 0; i < POST_WAYS; i++)
        assert_true(pair_holds(&post_ways[i], body));
}

/* ---- order */

static void priorities_body(post_pair *pair)
{
    static const unsigned priorities[] = {1, 0, 3, 1, 0, 3, 2, 3, 0, 1, 2, 0};
    static const uint64_t order[] = {100, 2, 5, 7, 6, 10, 0, 3, 9, 1, 4, 8, 11};
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    /* It fills the way, so all that follow wait. */
    pair_send(from, from->line, 0, 100, much, MUCH_NBYTES);
    PAIR_CHECK(pair, tri_post_turn(from->post, tri_now_ns()) == TRI_OK);
    PAIR_CHECK(pair, tri_line_queued(from->line) > 0);
    for (size_t i = 0; i < TRI_COUNT_OF(priorities); i++)
        pair_send(from, from->line, priorities[i], i, much, 100000 * (i % 3));
    PAIR_UNTIL(pair, pair_count(to, PAIR_LETTER) == 13);
    for (int i = 0; i < pair_count(to, PAIR_LETTER); i++)
        PAIR_CHECK(pair, pair_event_of(to, PAIR_LETTER, i)->id == order[i]);
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 13 && tri_line_queued(from->line) == 0);
    for (int i = 0; i < pair_count(from, PAIR_SENT); i++)
        PAIR_CHECK(pair, pair_event_of(from, PAIR_SENT, i)->id == order[i] &&
                             pair_event_of(from, PAIR_SENT, i)->status == TRI_OK);
}

static void urgent_letters_overtake_those_that_wait(void **state)
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
    static const size_t sizes[] = {0, 1, 100, 3000, 16384 - TRI_LETTER_NBYTES - 1, 16384 - TRI_LETTER_NBYTES, 40000};

    /* Some are long and urgent, when a row of short ones has been offered to the way. */
    return id % 40 == 31 ? 400000 : sizes[id * 40503 % TRI_COUNT_OF(sizes)];
}

static bool mixed_then(pair_end *end, const pair_event *event)
{
    if (event->what == PAIR_LETTER && event->nbytes > 0)
        PAIR_CHECK(end->pair, event->nbytes == mixed_nbytes(event->id) &&
                                  memcmp(end->body, much + event->id, (size_t)event->nbytes) == 0);
    return true;
}

/* Letters are queued while others are half written: what was promised to the way stays in its order. */
static void mixed_body(post_pair *pair)
{
    for (int i = 0; i < 2; i++)
        pair->ends[i].then = mixed_then;
    for (uint64_t id = 0; id < MIXED; id++) {
        for (int i = 0; i < 2; i++)
            pair_send(&pair->ends[i], pair->ends[i].line, (unsigned)mixed_priority(id), id, much + id,
                      mixed_nbytes(id));
        tri_line_pause(pair->ends[0].line, id % 40 < 20);
        for (uint64_t turns = id % 40 < 20 ? 0 : id % 4; turns > 0; turns--)
            pair_turn(pair);
    }
    tri_line_pause(pair->ends[0].line, false);
    for (int i = 0; i < 2; i++) {
        uint64_t next[5] = {0};

        PAIR_UNTIL(pair, pair_count(&pair->ends[i], PAIR_LETTER) == MIXED || pair_count(&pair->ends[i], PAIR_CLOSED));
        for (int n = 0; n < pair_count(&pair->ends[i], PAIR_LETTER); n++) {
            uint64_t id = pair_event_of(&pair->ends[i], PAIR_LETTER, n)->id, priority = mixed_priority(id);

            PAIR_CHECK(pair, id >= next[priority]);
            next[priority] = id + 1;
        }
        PAIR_CHECK(pair, pair_count(&pair->ends[i], PAIR_LETTER) == MIXED);
    }
}

static void letters_of_all_priorities_come_whole(void **state)
{
    (void)state;
    over_all(mixed_body);
}

/* ---- waiting */

static void pause_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];
    size_t queued;

    tri_line_pause(to->line, true);
    for (uint64_t i = 0; i < 4; i++)
        pair_send(from, from->line, 0, i, much, MUCH_NBYTES);
    queued = tri_line_queued(from->line);
    for (int steady = 0; steady < 30; steady++) { /* until the kernel takes no more */
        pair_turn(pair);
        if (tri_line_queued(from->line) != queued)
            steady = 0;
        queued = tri_line_queued(from->line);
    }
    PAIR_CHECK(pair, queued > 3 * MUCH_NBYTES && pair_count(to, PAIR_PLACED) == 0);
    /* The other direction goes on. */
    pair_send(to, to->line, 0, 50, much, 1000);
    PAIR_UNTIL(pair, pair_count(from, PAIR_LETTER) == 1);
    tri_line_pause(to->line, false);
    PAIR_UNTIL(pair, pair_count(to, PAIR_LETTER) == 4 && pair_count(from, PAIR_SENT) == 4);
}

static void a_line_that_is_paused_lets_the_sender_wait(void **state)
{
    (void)state;
    over_all(pause_body);
}

static bool pause_then(pair_end *end, const pair_event *event)
{
    if (event->what == PAIR_LETTER || event->what == PAIR_PLACED)
        tri_line_pause(end->line, true);
    if (event->what == PAIR_LETTER && event->nbytes > 0)
        PAIR_CHECK(end->pair,
                   (uintptr_t)end->body % 64 == 0 && memcmp(end->body, much + event->id, (size_t)event->nbytes) == 0);
    return true;
}

/* Many small letters come with one read; the owner wants them one by one. */
static void one_by_one_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    to->then = pause_then;
    for (uint64_t i = 0; i < 100; i++)
        pair_send(from, from->line, 0, i, much + i, i * 7 % 1000);
    for (int i = 0; i < 100; i++) {
        int before = to->count;

        PAIR_UNTIL(pair, to->count > before);
        PAIR_CHECK(pair, to->count == before + 1);
        pair_turn(pair);
        PAIR_CHECK(pair, to->count == before + 1);
        tri_line_pause(to->line, false);
        if (to->events[to->count - 1].what == PAIR_PLACED)
            i--;
    }
    PAIR_CHECK(pair, pair_count(to, PAIR_LETTER) == 100);
    for (int i = 0; i < pair_count(to, PAIR_LETTER); i++)
        PAIR_CHECK(pair, pair_event_of(to, PAIR_LETTER, i)->id == (uint64_t)i);
}

static void a_handler_may_pause_after_each_letter(void **state)
{
    (void)state;
    over_all(one_by_one_body);
}

/* ---- ends */

static void hung_up_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    pair_send(from, from->line, 0, 1, much, 10);
    PAIR_UNTIL(pair, pair_count(to, PAIR_LETTER) == 1);
    for (uint64_t i = 2; i < 6; i++)
        pair_send(from, from->line, 0, i, much, MUCH_NBYTES);
    pair_turn(pair);
    tri_line_hang_up(from->line);
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 5);
    for (int i = 1; i < 5; i++)
        PAIR_CHECK(pair, pair_event_of(from, PAIR_SENT, i)->status == TRI_ECANCELED);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_LETTER) == 1 && pair_event_of(to, PAIR_CLOSED, 0)->why[0]);
    pair_turn(pair);
    PAIR_CHECK(pair, pair_count(from, PAIR_CLOSED) == 0);
    /* The same two ends have another line. */
    PAIR_CHECK(pair, pair_dial(pair, from->post, tri_post_address(to->post), &from->line) == TRI_OK);
    pair_send(from, from->line, 0, 9, much, 100000);
    PAIR_UNTIL(pair, pair_count(to, PAIR_LETTER) == 2);
    PAIR_CHECK(pair, pair_event_of(to, PAIR_LETTER, 1)->id == 9 && pair_count(to, PAIR_OPENED) == 2);
}

static void who_hangs_up_ends_the_line_for_both(void **state)
{
    (void)state;
    over_all(hung_up_body);
}

/* Both ends are in the midst of much. */
static void hung_up_in_the_midst_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    for (int round = 0; round < 5; round++) {
        int opened = pair_count(to, PAIR_OPENED), closed = pair_count(to, PAIR_CLOSED);
        int letters = pair_count(to, PAIR_LETTER);

        for (uint64_t i = 0; i < 3; i++) {
            pair_send(from, from->line, 0, 10 + i, much, MUCH_NBYTES);
            pair_send(to, to->line, 0, 20 + i, much, MUCH_NBYTES);
        }
        for (int i = 0; i < round; i++)
            pair_turn(pair);
        tri_line_hang_up(from->line);
        PAIR_CHECK(pair, pair_dial(pair, from->post, tri_post_address(to->post), &from->line) == TRI_OK);
        PAIR_UNTIL(pair, pair_count(to, PAIR_OPENED) == opened + 1 && pair_count(to, PAIR_CLOSED) == closed + 1);
        letters = pair_count(to, PAIR_LETTER);
        pair_send(from, from->line, 0, 1, "x", 1);
        pair_send(to, to->line, 0, 2, "y", 1);
        PAIR_UNTIL(pair, pair_count(to, PAIR_LETTER) == letters + 1);
        PAIR_CHECK(pair, pair_event_of(to, PAIR_LETTER, letters)->id == 1);
        letters = pair_count(from, PAIR_LETTER);
        PAIR_UNTIL(pair, letters > 0 || pair_count(from, PAIR_LETTER) > 0);
    }
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) + pair_count(to, PAIR_SENT) >= 5 * 6);
}

static void a_new_line_hears_nothing_of_the_one_before(void **state)
{
    (void)state;
    over_all(hung_up_in_the_midst_body);
}

/* A letter of which a part has gone is no letter. */
static void cut_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    if (!pair->way->over_hub)
        return; /* the kernel takes both as a whole */
    pair_send(from, from->line, 0, 1, much, 40000);
    pair_send(from, from->line, 0, 2, much, 40000);
    PAIR_CHECK(pair, tri_post_turn(from->post, tri_now_ns()) == TRI_OK);
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 1 && tri_line_queued(from->line) < 40000);
    tri_line_hang_up(from->line);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_LETTER) == 1 && pair_event_of(to, PAIR_LETTER, 0)->id == 1);
    PAIR_CHECK(pair, pair_event_of(from, PAIR_SENT, 1)->status == TRI_ECANCELED);
}

static void a_letter_that_was_cut_is_none(void **state)
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
    tri_line_hang_up(end->line);
    return true;
}

static void hang_up_inside_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    to->then = hang_up_then;
    for (uint64_t id = 0; id < 2; id++) {
        int letters = pair_count(to, PAIR_LETTER), opened = pair_count(to, PAIR_OPENED);

        pair_send(from, from->line, 0, id, much, 3000);
        pair_send(from, from->line, 0, id, much, MUCH_NBYTES);
        PAIR_UNTIL(pair, pair_count(from, PAIR_CLOSED) == (int)id + 1);
        PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 2 * (int)id + 2);
        PAIR_CHECK(pair, pair_count(to, PAIR_LETTER) == letters + (hang_up_at == PAIR_LETTER));
        PAIR_CHECK(pair, pair_count(to, PAIR_CLOSED) == 0);
        PAIR_CHECK(pair, pair_dial(pair, from->post, tri_post_address(to->post), &from->line) == TRI_OK);
        PAIR_UNTIL(pair, pair_count(to, PAIR_OPENED) == opened + 1);
    }
}

static void handlers_may_hang_up(void **state)
{
    (void)state;
    hang_up_at = PAIR_PLACED;
    over_all(hang_up_inside_body);
    hang_up_at = PAIR_LETTER;
    over_all(hang_up_inside_body);
}

static bool refuse_then(pair_end *end, const pair_event *event)
{
    (void)end;
    return event->what != PAIR_OPENED;
}

static void refused_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    tri_line_hang_up(from->line);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    to->then = refuse_then;
    PAIR_CHECK(pair, pair_dial(pair, from->post, tri_post_address(to->post), &from->line) == TRI_OK);
    PAIR_UNTIL(pair, pair_count(from, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_CLOSED) == 1);
}

static void who_is_not_wanted_finds_the_line_closed(void **state)
{
    (void)state;
    over_all(refused_body);
}

static void left_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    /* Letters of who leaves in good order come, also those that were queued; then the end. */
    for (uint64_t i = 0; i < 100; i++)
        pair_send(from, from->line, 0, i, much, 300);
    pair_send(to, to->line, 0, 7, much, MUCH_NBYTES);
    pair_send(to, to->line, 0, 8, much, MUCH_NBYTES);
    tri_post_close(from->post);
    from->post = NULL;
    PAIR_CHECK(pair, pair_count(from, PAIR_SENT) == 100 && pair_count(from, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_event_of(from, PAIR_SENT, 99)->status == TRI_OK);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_LETTER) == 100 && pair_count(to, PAIR_SENT) == 2);
    PAIR_CHECK(pair, pair_event_of(to, PAIR_SENT, 1)->status == TRI_EPEER);
    PAIR_CHECK(pair, to->events[to->count - 1].what == PAIR_CLOSED);
}

static void what_was_said_before_leaving_is_heard(void **state)
{
    (void)state;
    over_all(left_body);
}

static void left_while_paused_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];

    tri_line_pause(to->line, true);
    for (uint64_t i = 0; i < 10; i++)
        pair_send(from, from->line, 0, i, much, 100);
    tri_post_close(from->post);
    from->post = NULL;
    for (int i = 0; i < 100; i++)
        pair_turn(pair);
    PAIR_CHECK(pair, pair_count(to, PAIR_LETTER) == 0 && pair_count(to, PAIR_CLOSED) == 0);
    tri_line_pause(to->line, false);
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    PAIR_CHECK(pair, pair_count(to, PAIR_LETTER) == 10);
}

static void a_line_that_ends_while_paused_is_closed_when_it_is_read(void **state)
{
    (void)state;
    over_all(left_while_paused_body);
}

/* ---- dialing */

static bool dial_then(pair_end *end, const pair_event *event)
{
    tri_line *line;
    tri_status status;

    if (event->what != PAIR_LETTER)
        return true;
    status = tri_post_dial(end->post, "nowhere", tri_now_ns(), &line);
    PAIR_CHECK(end->pair, status == TRI_EPEER && !line);
    pair_send(end, end->line, 0, 5, NULL, 0);
    return true;
}

static void dial_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];
    tri_line *line;

    PAIR_CHECK(pair, strcmp(tri_post_address(from->post), "") == 0);
    PAIR_CHECK(pair, strlen(tri_post_address(to->post)) < TRI_POST_ADDRESS_NBYTES);
    PAIR_CHECK(pair, tri_post_dial(from->post, "", tri_deadline_after_ms(50), &line) == TRI_EPEER);
    PAIR_CHECK(pair, tri_post_dial(from->post, pair->way->over_hub ? "3" : "0,127.0.0.1/1", tri_deadline_after_ms(50),
                                   &line) == TRI_EPEER);
    tri_line_note_set(from->line, pair);
    PAIR_CHECK(pair, tri_line_note(from->line) == pair && !tri_line_note(to->line));
    PAIR_CHECK(pair, tri_line_from(from->line)[0] && tri_line_from(to->line)[0]);
    to->then = dial_then;
    pair_send(from, from->line, 0, 1, NULL, 0);
    PAIR_UNTIL(pair, pair_count(from, PAIR_LETTER) == 1);
}

static void dialing_nobody_fails_in_time(void **state)
{
    (void)state;
    over_all(dial_body);
}

/* Dials the other, and turns only then. */
static void other_reach(post_pair *pair, int index)
{
    pair_end *end = &pair->ends[index];
    int opened = pair_count(end, PAIR_OPENED);
    int64_t deadline_ns = tri_deadline_after_ms(PAIR_WAIT_MS);

    PAIR_CHECK(pair,
               tri_post_dial(end->post, tri_post_address(pair->ends[!index].post), deadline_ns, &end->line) == TRI_OK);
    while (pair_count(end, PAIR_OPENED) == opened && tri_now_ns() < deadline_ns)
        PAIR_CHECK(pair, tri_post_turn(end->post, deadline_ns) == TRI_OK);
    PAIR_CHECK(pair, pair_count(end, PAIR_OPENED) == opened + 1);
}

static void other_main(void *arg)
{
    other_reach(arg, 1);
}

static void each_other_body(post_pair *pair)
{
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];
    tri_post_setup setup = pair_setup(pair, 1);
    tri_thread *thread;

    if (pair->way->over_hub)
        return; /* a rank opens once */
    tri_post_close(from->post);
    from->post = NULL;
    PAIR_UNTIL(pair, pair_count(to, PAIR_CLOSED) == 1);
    setup.listens = true;
    PAIR_CHECK(pair, tri_post_open(&setup, &from->post) == TRI_OK);
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
    tri_post_wake(arg);
}

static void wake_body(post_pair *pair)
{
    tri_post *post = pair->ends[0].post;
    int64_t before_ns = tri_now_ns();
    tri_thread *thread;

    tri_post_wake(post); /* before the turn */
    PAIR_CHECK(pair, tri_post_turn(post, tri_deadline_after_ms(PAIR_WAIT_MS)) == TRI_OK);
    PAIR_CHECK(pair, tri_now_ns() - before_ns < PAIR_WAIT_MS * TRI_NS_PER_MS);
    PAIR_CHECK(pair, tri_thread_start(&thread, "waker", wake_main, post) == TRI_OK);
    PAIR_CHECK(pair, tri_post_turn(post, tri_deadline_after_ms(PAIR_WAIT_MS)) == TRI_OK);
    PAIR_CHECK(pair, tri_now_ns() - before_ns < PAIR_WAIT_MS * TRI_NS_PER_MS);
    tri_thread_join(thread);
    PAIR_CHECK(pair, tri_post_turn(post, tri_deadline_after_ms(20)) == TRI_OK);
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
        cmocka_unit_test(urgent_letters_overtake_those_that_wait),
        cmocka_unit_test(letters_of_all_priorities_come_whole),
        cmocka_unit_test(a_line_that_is_paused_lets_the_sender_wait),
        cmocka_unit_test(a_handler_may_pause_after_each_letter),
        cmocka_unit_test(who_hangs_up_ends_the_line_for_both),
        cmocka_unit_test(a_new_line_hears_nothing_of_the_one_before),
        cmocka_unit_test(a_letter_that_was_cut_is_none),
        cmocka_unit_test(handlers_may_hang_up),
        cmocka_unit_test(who_is_not_wanted_finds_the_line_closed),
        cmocka_unit_test(what_was_said_before_leaving_is_heard),
        cmocka_unit_test(a_line_that_ends_while_paused_is_closed_when_it_is_read),
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
