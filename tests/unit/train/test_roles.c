/* SPDX-License-Identifier: Apache-2.0 */
#include "train/elastic/assignment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A process with role `own` and the mirror of `mirror` of `roles`, in generation 5 after `step`. */
static tri_assignment_note note_of(int64_t step, bool next, int roles, int own, int mirror)
{
    return (tri_assignment_note){{{5, step, next, roles, own, mirror}}};
}

static void a_note_is_a_word_that_reads_back(void **state)
{
    (void)state;
    char text[TRI_ROLE_NOTE_NBYTES];
    tri_assignment_note notes[] = {
        {{{0}}},
        note_of(12, true, 4, 3, -1),
        note_of(12, true, 4, -1, 2),
        {{{INT64_MAX, INT64_MAX, false, 65536, 65535, 65535}, {INT64_MAX, INT64_MAX, true, 65536, 65535, 65535}}}};
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        tri_assignment_note back;
        tri_assignment_note_print(&notes[i], text);
        assert_true(strlen(text) > 0 && strlen(text) + 1 < sizeof(text));
        assert_null(strpbrk(text, " \n"));
        assert_true(tri_assignment_note_read(text, &back));
        assert_memory_equal(&back, &notes[i], sizeof(back));
    }
    /* Only the second set: it comes back as the first. */
    tri_assignment_note back, second = {{{0}, {5, 1, false, 2, 1, 0}}};
    tri_assignment_note_print(&second, text);
    assert_true(tri_assignment_note_read(text, &back));
    assert_memory_equal(&back.sets[0], &second.sets[1], sizeof(tri_assignment_set));
}

static void what_is_no_note_is_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {"",
                                 "x",
                                 "5,1,0,4,1",
                                 "0,1,0,4,1,-1",
                                 "5,-1,0,4,1,-1",
                                 "5,1,2,4,1,-1",
                                 "5,1,0,4,4,-1",
                                 "5,1,0,4,1,4",
                                 "5,1,0,4,-2,0",
                                 "5,1,0,4,1,-2",
                                 "5,1,0,4,1,0x",
                                 "5,1,0,4,1,0/"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        tri_assignment_note note;
        if (tri_assignment_note_read(wrong[i], &note))
            fail_msg("'%s' was read", wrong[i]);
        assert_int_equal(note.sets[0].generation, 0);
    }
}

static void the_newest_state_that_is_whole_is_found(void **state)
{
    (void)state;
    /* Pairs 0-2 and 1-3; 0 and 3 are left. */
    tri_assignment_note left[] = {note_of(7, false, 4, 0, 2), note_of(7, false, 4, 3, 1), {{{0}}}};
    tri_assignment_state found = tri_assignment_find(left, 3);
    assert_int_equal(found.generation, 5);
    assert_int_equal(found.step, 7);
    assert_non_null(tri_assignment_source(&left[0], &found));
    assert_null(tri_assignment_source(&left[2], &found));
    /* What has changed in memory is as lost as what was killed. */
    left[0].sets[0].mirror = -1;
    found = tri_assignment_find(left, 3);
    assert_int_equal(found.generation, 0);
    assert_int_equal(found.lost, 1);
    assert_int_equal(found.first_lost, 2);
    left[0].sets[0].mirror = 2;
    /* A pair: nothing is whole, and what is missing is said. */
    left[1] = note_of(7, false, 4, 2, 0);
    found = tri_assignment_find(left, 3);
    assert_int_equal(found.generation, 0);
    assert_int_equal(found.lost_step, 7);
    assert_int_equal(found.lost, 2);
    assert_int_equal(found.roles, 4);
    assert_int_equal(found.first_lost, 1);
    /* Nobody has anything. */
    found = tri_assignment_find(&left[2], 1);
    assert_int_equal(found.generation, 0);
    assert_int_equal(found.lost_step, -1);
}

static void who_is_ready_makes_a_step_that_others_have_made(void **state)
{
    (void)state;
    tri_assignment_note notes[] = {note_of(8, false, 2, 0, 1), note_of(7, true, 2, 1, 0)};
    tri_assignment_state found = tri_assignment_find(notes, 2);
    assert_int_equal(found.step, 8);
    assert_ptr_equal(tri_assignment_source(&notes[1], &found), &notes[1].sets[0]);
    /* One that is not ready keeps all where they are: nobody has moved. */
    notes[0] = note_of(7, false, 2, 0, -1);
    notes[1].sets[0].mirror = -1;
    assert_int_equal(tri_assignment_find(notes, 2).step, 7);
    /* All are ready, and nobody is seen that has moved: one of them who comes back may not have been ready. */
    notes[0].sets[0].next = true;
    assert_int_equal(tri_assignment_find(notes, 2).step, 7);
    /* One has that is not of use otherwise: all can, and do. */
    tri_assignment_note seen[] = {notes[0], notes[1], note_of(8, false, 2, 1, -1)};
    assert_int_equal(tri_assignment_find(seen, 3).step, 8);
}

/* A generation that was lost while it formed: one rank has dropped what it had, another one does not know that all
 * have theirs. */
static void of_two_generations_the_one_that_is_whole_is_found(void **state)
{
    (void)state;
    tri_assignment_note one = {{{6, 7, false, 2, 0, 1}}}, other = {{{5, 7, false, 3, 1, 0}, {6, 7, false, 2, 1, 0}}};
    tri_assignment_note both[] = {one, other};
    assert_int_equal(tri_assignment_find(both, 2).generation, 6);
    /* Nobody has the newer one whole: the older one stands. */
    tri_assignment_note kept[] = {{{{5, 7, false, 3, 1, 0}}}, {{{5, 7, false, 3, 2, 1}, {6, 7, false, 2, 1, -1}}}};
    tri_assignment_state found = tri_assignment_find(kept, 2);
    assert_int_equal(found.generation, 5);
    assert_ptr_equal(tri_assignment_source(&kept[1], &found), &kept[1].sets[0]);
}

static tri_mesh mesh_of(int data, int tensor, int pipeline, int zero)
{
    return (tri_mesh){.data = data, .tensor = tensor, .pipeline = pipeline, .zero = zero};
}

static void a_mirror_is_on_another_host_and_each_rank_keeps_one(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 16; ranks++)
        for (int hosts = 1; hosts <= ranks; hosts++)
            for (int dealt = 0; dealt < 2; dealt++) { /* one after the other, or in turns */
                int host[16], room[16], of[16], kept[16] = {0}, most = 0;
                for (int r = 0; r < ranks; r++)
                    host[r] = dealt ? r % hosts : r * hosts / ranks;
                tri_mesh mesh = mesh_of(ranks, 1, 1, ranks);
                assert_true(tri_assignment_mirror(&mesh, host, room, of));
                for (int h = 0; h < hosts; h++) {
                    int here = 0;
                    for (int r = 0; r < ranks; r++)
                        here += host[r] == h;
                    most = here > most ? here : most;
                }
                for (int r = 0; r < ranks; r++) {
                    assert_true(of[r] >= 0 && of[r] < ranks && of[r] != r);
                    kept[of[r]]++;
                    if (2 * most <= ranks)
                        assert_int_not_equal(host[of[r]], host[r]);
                    if (ranks % 2 == 0)
                        assert_int_equal(of[of[r]], r);
                }
                for (int r = 0; r < ranks; r++)
                    assert_int_equal(kept[r], 1);
            }
}

static void what_is_on_two_hosts_already_has_no_mirror(void **state)
{
    (void)state;
    int room[8], of[8];
    const int one[8] = {0}, halves[8] = {0, 0, 0, 0, 1, 1, 1, 1}, turns[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    tri_mesh copies = mesh_of(4, 2, 1, 1), stages = mesh_of(4, 1, 2, 1), spread = mesh_of(8, 1, 1, 4);
    assert_false(tri_assignment_mirror(&copies, one, room, of));
    assert_false(tri_assignment_mirror(&copies, halves, room, of));
    assert_false(tri_assignment_mirror(&stages, turns, room, of));
    assert_true(tri_assignment_mirror(&stages, halves, room, of)); /* a stage on each host */
    assert_false(tri_assignment_mirror(&spread, halves, room, of));
    tri_mesh alone = mesh_of(1, 1, 1, 1);
    assert_false(tri_assignment_mirror(&alone, one, room, of));
    assert_int_equal(of[0], -1);
}

static void a_layout_for_fewer_ranks_has_at_most_the_tensor_ranks_and_stages_asked_for(void **state)
{
    (void)state;
    const struct {
        int tensor, pipeline, ranks;
        bool even;
        int data, tensor_found, pipeline_found;
    } rows[] = {{1, 1, 7, false, 7, 1, 1}, {1, 1, 7, true, 4, 1, 1},  {2, 1, 4, false, 2, 2, 1},
                {2, 1, 3, false, 1, 2, 1}, {2, 2, 4, false, 1, 2, 2}, {2, 2, 3, false, 1, 2, 1},
                {1, 4, 3, false, 1, 1, 3}, {4, 1, 3, false, 1, 2, 1}, {4, 2, 1, false, 1, 1, 1},
                {1, 2, 7, true, 2, 1, 2},  {2, 2, 8, false, 2, 2, 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tri_mesh wish = mesh_of(0, rows[i].tensor, rows[i].pipeline, 0), mesh;
        int taken = tri_assignment_layout(&wish, rows[i].ranks, rows[i].even, &mesh);
        assert_int_equal(mesh.data, rows[i].data);
        assert_int_equal(mesh.tensor, rows[i].tensor_found);
        assert_int_equal(mesh.pipeline, rows[i].pipeline_found);
        assert_int_equal(taken, mesh.data * mesh.tensor * mesh.pipeline);
    }
}

static void nobody_leaves_with_the_last_of_something(void **state)
{
    (void)state;
    const tri_assignment_set pairs[] = {
        {5, 1, false, 4, 0, 2}, {5, 1, false, 4, 1, 3}, {5, 1, false, 4, 2, 0}, {5, 1, false, 4, 3, 1}};
    for (int wanted = 0; wanted < 15; wanted++) {
        bool leaves[4], held[4] = {false};
        int left = 0;
        for (int r = 0; r < 4; r++)
            leaves[r] = wanted >> r & 1;
        tri_assignment_leave(pairs, 4, leaves);
        for (int r = 0; r < 4; r++) {
            assert_true((wanted >> r & 1) || !leaves[r]);
            left += leaves[r];
            if (!leaves[r])
                held[pairs[r].own] = held[pairs[r].mirror] = true;
        }
        assert_true(held[0] && held[1] && held[2] && held[3]);
        assert_int_equal(left, ((wanted & 5) != 0) + ((wanted & 10) != 0)); /* one of each pair goes */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_is_a_word_that_reads_back),
        cmocka_unit_test(what_is_no_note_is_refused),
        cmocka_unit_test(the_newest_state_that_is_whole_is_found),
        cmocka_unit_test(who_is_ready_makes_a_step_that_others_have_made),
        cmocka_unit_test(of_two_generations_the_one_that_is_whole_is_found),
        cmocka_unit_test(a_mirror_is_on_another_host_and_each_rank_keeps_one),
        cmocka_unit_test(what_is_on_two_hosts_already_has_no_mirror),
        cmocka_unit_test(a_layout_for_fewer_ranks_has_at_most_the_tensor_ranks_and_stages_asked_for),
        cmocka_unit_test(nobody_leaves_with_the_last_of_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
