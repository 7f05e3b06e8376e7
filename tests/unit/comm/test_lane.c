/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lane.c: what ranks of one host show each other of their latest call, read while it changes.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/lane.h"

#define READS 2000 /* of whole notes, while others are written */

static tri_lane_note note_of(uint64_t sequence)
{
    tri_lane_note note = {.frame = {.kind = TRI_FRAME_DATA,
                                    .op = sequence % 2 ? TRI_COMM_ALL_REDUCE : TRI_COMM_BARRIER,
                                    .dtype = TRI_U8,
                                    .group = 7,
                                    .sequence = sequence,
                                    .count = 3 * sequence,
                                    .name = 11 * sequence}};
    memset(note.name, 'a' + (int)(sequence % 26), sizeof(note.name) - 1);
    return note;
}

static bool is_note(const tri_lane_note *note, uint64_t sequence)
{
    const tri_lane_note want = note_of(sequence);
    return tri_frame_agrees(&note->frame, &want.frame) && note->frame.sequence == sequence &&
           memcmp(note->name, want.name, sizeof(want.name)) == 0;
}

/* A rank that loses its core in the middle of the next note: its operation is there, its number is not. */
static void a_note_that_is_half_written_is_none(void **state)
{
    static tri_lane_notes notes;
    tri_lane_note first = note_of(176), second = note_of(177), found;
    uint64_t words[TRI_LANE_NOTE_WORDS];
    (void)state;
    tri_lane_latest_write(&notes, &first);
    assert_true(tri_lane_latest_read(&notes, &found) && is_note(&found, 176));
    memcpy(words, &second, sizeof(words));
    atomic_store(&notes.latest_stamp, atomic_load(&notes.latest_stamp) + 1);
    for (size_t i = 0; i < 2; i++)
        atomic_store(&notes.latest[i], words[i]);
    for (int look = 0; look < 3; look++)
        assert_false(tri_lane_latest_read(&notes, &found));
    for (size_t i = 2; i < TRI_LANE_NOTE_WORDS; i++)
        atomic_store(&notes.latest[i], words[i]);
    atomic_store(&notes.latest_stamp, atomic_load(&notes.latest_stamp) + 1);
    assert_true(tri_lane_latest_read(&notes, &found) && is_note(&found, 177));
}

typedef struct writer {
    tri_lane_notes notes;
    atomic_bool over;
} writer;

static void *write_on(void *arg)
{
    writer *w = arg;
    for (uint64_t sequence = 1; !atomic_load(&w->over); sequence++) {
        const tri_lane_note note = note_of(sequence);
        tri_lane_latest_write(&w->notes, &note);
    }
    return NULL;
}

static void a_note_is_never_read_in_two_halves(void **state)
{
    static writer w;
    tri_lane_note found;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, write_on, &w), 0);
    for (int reads = 0; reads < READS;) {
        if (!tri_lane_latest_read(&w.notes, &found) || found.frame.sequence == 0)
            continue;
        assert_true(is_note(&found, found.frame.sequence));
        reads++;
    }
    atomic_store(&w.over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_that_is_half_written_is_none),
        cmocka_unit_test(a_note_is_never_read_in_two_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
