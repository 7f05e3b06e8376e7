/* SPDX-License-Identifier: Apache-2.0
 *
 * test_schedule.c: tables of pipelines: complete, without deadlock where messages go one after the other, with as many
 * slots and as large a bubble as the papers say.
 */
#include "parallel/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK)                                                                                          \
            fail_msg("%s: %s", #call, tri_last_error());                                                               \
    } while (0)

/* Each rank makes its messages in the order of the table, as soon as it may, and they happen one after the other: a
 * rank's next one when the other side's next one is the same. */
typedef struct walk {
    const tri_pipe_schedule *s;
    int at[16], posted[16], moved[16];
    int freed[16][2][64]; /* [rank][way][chunk]: micro-batches whose memory is free again */
    int done[16][2][64];
} walk;

static void walk_post(walk *w, int r, int spare)
{
    for (; w->posted[r] < w->s->message_count[r]; w->posted[r]++) {
        const tri_pipe_message *m = &w->s->messages[r][w->posted[r]];
        int maker = m->backward ? m->chunk + 1 : m->chunk - 1;
        if (m->from == r
                ? w->done[r][m->backward][maker] <= m->micro
                : m->micro >= w->freed[r][m->backward][m->chunk] + w->s->buffers[m->backward][m->chunk] + spare)
            return;
    }
}

static bool walk_move(walk *w, int r)
{
    if (w->moved[r] >= w->posted[r])
        return false;
    const tri_pipe_message *m = &w->s->messages[r][w->moved[r]];
    int other = m->from == r ? m->to : m->from;
    const tri_pipe_message *theirs = &w->s->messages[other][w->moved[other]];
    if (w->moved[other] >= w->posted[other] || memcmp(m, theirs, sizeof(*m)) != 0)
        return false;
    w->moved[r]++;
    w->moved[other]++;
    return true;
}

static bool walk_act(walk *w, int r)
{
    if (w->at[r] == w->s->action_count)
        return false;
    tri_pipe_action a = w->s->actions[r][w->at[r]];
    if (tri_pipe_schedule_receive_of(w->s, a) >= w->moved[r])
        return false;
    w->at[r]++;
    w->done[r][a.backward][a.chunk]++;
    w->freed[r][a.backward][a.chunk] += a.backward;
    if (a.backward || !w->s->training)
        w->freed[r][0][a.chunk]++;
    return true;
}

static void walk_through(const tri_pipe_schedule *s, int spare)
{
    walk *w = test_calloc(1, sizeof(*w));
    w->s = s;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->ranks; r++) {
            walk_post(w, r, spare);
            moved = walk_move(w, r) || moved;
            moved = walk_act(w, r) || moved;
        }
    }
    for (int r = 0; r < s->ranks; r++) {
        if (w->at[r] != s->action_count || w->moved[r] != s->message_count[r])
            fail_msg("%s, %d ranks, %d chunks, %d micro-batches: rank %d stops at action %d, message %d of %d",
                     tri_pipe_kind_word(s->kind), s->ranks, s->each, s->micros, r, w->at[r], w->moved[r],
                     s->message_count[r]);
    }
    test_free(w);
}

static void every_schedule_ends_with_messages_one_after_the_other(void **state)
{
    (void)state;
    static const tri_pipe_kind kinds[] = {TRI_PIPE_GPIPE, TRI_PIPE_1F1B, TRI_PIPE_INTERLEAVED, TRI_PIPE_INTERLEAVED,
                                          TRI_PIPE_INTERLEAVED};
    static const int each[] = {1, 1, 2, 3, 5};
    for (int kind = 0; kind < 5; kind++)
        for (int ranks = kind < 2 ? 1 : 2; ranks <= 8; ranks++)
            for (int micros = 1; micros <= 19; micros++)
                for (int training = 0; training < 2; training++) {
                    tri_pipe_schedule s;
                    OK(tri_pipe_schedule_make(kinds[kind], ranks, each[kind], micros, training, &s));
                    walk_through(&s, 0);
                    walk_through(&s, 1);
                    walk_through(&s, 100);
                    tri_pipe_schedule_fini(&s);
                }
}

static void slots_are_as_few_as_the_schedule_allows(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 6; ranks++)
        for (int micros = 1; micros <= 12; micros++)
            for (int r = 0; r < ranks; r++) {
                tri_pipe_schedule s;
                OK(tri_pipe_schedule_make(TRI_PIPE_GPIPE, ranks, 1, micros, true, &s));
                assert_int_equal(s.slots[r], micros);
                tri_pipe_schedule_fini(&s);
                OK(tri_pipe_schedule_make(TRI_PIPE_1F1B, ranks, 1, micros, true, &s));
                assert_int_equal(s.slots[r], micros < ranks - r ? micros : ranks - r);
                tri_pipe_schedule_fini(&s);
            }
}

/* GPipe and 1F1B: (p - 1) / (m + p - 1); interleaved: (p - 1) / (v m + p - 1). */
static void bubbles_are_those_of_the_papers(void **state)
{
    (void)state;
    double forward[24], backward[24];
    for (int c = 0; c < 24; c++) {
        forward[c] = 3;
        backward[c] = 7;
    }
    for (int each = 1; each <= 4; each++)
        for (int ranks = 2; ranks <= 6; ranks++)
            for (int micros = ranks; micros <= 4 * ranks; micros += ranks) {
                tri_pipe_schedule s;
                tri_pipe_schedule_costs costs = {.forward = forward, .backward = backward};
                OK(tri_pipe_schedule_make(each == 1 ? TRI_PIPE_1F1B : TRI_PIPE_INTERLEAVED, ranks, each, micros, true,
                                          &s));
                double want = (double)(ranks - 1) / (double)(each * micros + ranks - 1);
                if (fabs(tri_pipe_schedule_bubble(&s, &costs) - want) > 1e-9)
                    fail_msg("%d ranks, %d chunks, %d micro-batches: want %g, got %g", ranks, each, micros, want,
                             tri_pipe_schedule_bubble(&s, &costs));
                costs.message = 1;
                assert_true(tri_pipe_schedule_bubble(&s, &costs) > want);
                tri_pipe_schedule_fini(&s);
            }
}

/* A rank below goes on before the one above has computed gradients of its parameters. */
static void what_comes_after_a_message_makes_nobody_wait(void **state)
{
    (void)state;
    double forward[6] = {1, 1, 1, 1, 1, 1}, backward[6] = {2, 2, 2, 2, 2, 2};
    for (int ranks = 2; ranks <= 6; ranks++) {
        tri_pipe_schedule s;
        tri_pipe_schedule_costs costs = {.forward = forward, .backward = backward, .late = forward};
        OK(tri_pipe_schedule_make(TRI_PIPE_1F1B, ranks, 1, 4 * ranks, true, &s));
        double total = tri_pipe_schedule_play(&s, &costs, NULL);
        if (fabs(total - (4 * ranks * 3 + 2 * (ranks - 1))) > 1e-9)
            fail_msg("%d ranks: want %d, got %g", ranks, 4 * ranks * 3 + 2 * (ranks - 1), total);
        tri_pipe_schedule_fini(&s);
    }
}

static void an_expensive_stage_makes_the_others_wait(void **state)
{
    (void)state;
    tri_pipe_schedule s;
    OK(tri_pipe_schedule_make(TRI_PIPE_1F1B, 2, 1, 100, true, &s));
    double bubble =
        tri_pipe_schedule_bubble(&s, &(tri_pipe_schedule_costs){(double[]){1, 2}, (double[]){2, 4}, NULL, 0});
    assert_true(fabs(bubble - 0.25) < 0.01);
    tri_pipe_schedule_fini(&s);
}

static void tables_that_cannot_run_are_found(void **state)
{
    (void)state;
    tri_pipe_schedule s;
    OK(tri_pipe_schedule_make(TRI_PIPE_1F1B, 2, 1, 3, true, &s));
    tri_pipe_action kept = s.actions[0][1];
    s.actions[0][1] = (tri_pipe_action){true, 0, 0}; /* down before it can have come back, and a forward too few */
    s.actions[0][2] = kept;
    OK(tri_pipe_schedule_check(&s)); /* the same actions in an order with a larger bubble */
    s.actions[1][0] = (tri_pipe_action){true, 1, 0};
    s.actions[1][1] = (tri_pipe_action){false, 1, 0};
    assert_int_equal(tri_pipe_schedule_check(&s), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "waits for ever before backward of micro-batch 0"));
    s.actions[1][0] = (tri_pipe_action){false, 1, 1};
    assert_int_equal(tri_pipe_schedule_check(&s), TRI_EINVAL);
    s.actions[0][0] = (tri_pipe_action){false, 1, 0};
    assert_int_equal(tri_pipe_schedule_check(&s), TRI_EINVAL);
    tri_pipe_schedule_fini(&s);
}

static void what_does_not_fit_is_refused_with_words(void **state)
{
    (void)state;
    tri_pipe_schedule s;
    assert_int_equal(tri_pipe_schedule_make(TRI_PIPE_1F1B, 2, 2, 4, true, &s), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "1 chunk each, got 2 and 2"));
    assert_int_equal(tri_pipe_schedule_make(TRI_PIPE_INTERLEAVED, 2, 1, 4, true, &s), TRI_ECONFIG);
    assert_int_equal(tri_pipe_schedule_make(TRI_PIPE_INTERLEAVED, 1, 2, 4, true, &s), TRI_ECONFIG);
    assert_int_equal(tri_pipe_schedule_make(TRI_PIPE_GPIPE, 2, 1, 0, true, &s), TRI_ECONFIG);
    assert_int_equal(tri_pipe_schedule_make(TRI_PIPE_INTERLEAVED, 1000, 1000, 1, true, &s), TRI_ECONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_ends_with_messages_one_after_the_other),
        cmocka_unit_test(slots_are_as_few_as_the_schedule_allows),
        cmocka_unit_test(bubbles_are_those_of_the_papers),
        cmocka_unit_test(what_comes_after_a_message_makes_nobody_wait),
        cmocka_unit_test(an_expensive_stage_makes_the_others_wait),
        cmocka_unit_test(tables_that_cannot_run_are_found),
        cmocka_unit_test(what_does_not_fit_is_refused_with_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
