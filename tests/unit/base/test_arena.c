/* SPDX-License-Identifier: Apache-2.0
 *
 * test_arena.c: pieces are zeroed, aligned and apart from each other, and all go at once.
 */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static void pieces_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    enum { PIECES = 600 };
    tri_memory_counts before = tri_memory_now();
    tri_arena arena = {0};
    unsigned char *pieces[PIECES];
    size_t lengths[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        lengths[i] = i % 97 == 96 ? 70000 * (i / 97) : i * 7 % 500;
        pieces[i] = tri_arena_alloc(&arena, lengths[i], 1);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        for (size_t j = 0; j < lengths[i]; j++)
            assert_int_equal(pieces[i][j], 0);
        memset(pieces[i], (int)(i % 255) + 1, lengths[i]);
    }
    for (size_t i = 0; i < PIECES; i++) /* nobody wrote into another's piece */
        for (size_t j = 0; j < lengths[i]; j++)
            assert_int_equal(pieces[i][j], (i % 255) + 1);
    assert_true(tri_memory_now().live - before.live < 30);
    tri_arena_fini(&arena);
    assert_int_equal(tri_memory_now().live, before.live);
}

static void texts_live_in_the_arena(void **state)
{
    (void)state;
    tri_arena arena = {0};
    const char *name = tri_arena_strdup(&arena, "weight");
    const char *text = tri_arena_format(&arena, "%s.%d", name, 12);
    assert_string_equal(name, "weight");
    assert_string_equal(text, "weight.12");
    assert_string_equal(tri_arena_format(&arena, "%s", ""), "");
    tri_arena_fini(&arena);
    assert_null(arena.blocks);
}

static void an_arena_can_be_used_again_after_fini(void **state)
{
    (void)state;
    tri_arena arena = {0};
    tri_arena_fini(&arena);
    assert_non_null(tri_arena_alloc(&arena, 0, 8));
    tri_arena_fini(&arena);
    int *numbers = tri_arena_alloc(&arena, 10, sizeof(int));
    assert_int_equal(numbers[9], 0);
    tri_arena_fini(&arena);
}

static void running_out_of_memory_leaves_the_arena_valid(void **state)
{
    (void)state;
    tri_arena arena = {0};
    assert_null(tri_arena_alloc(&arena, SIZE_MAX / 2, 3));
    assert_non_null(strstr(tri_last_error(), "items of 3 bytes"));
    assert_null(tri_arena_alloc(&arena, SIZE_MAX, 1));
    tri_memory_fail_at(1);
    assert_null(tri_arena_strdup(&arena, "a"));
    char *text = tri_arena_strdup(&arena, "b");
    tri_memory_fail_at(1);
    assert_null(tri_arena_alloc(&arena, 1 << 20, 1));
    assert_string_equal(text, "b");
    assert_non_null(tri_arena_alloc(&arena, 1 << 20, 1));
    tri_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(texts_live_in_the_arena),
        cmocka_unit_test(an_arena_can_be_used_again_after_fini),
        cmocka_unit_test(running_out_of_memory_leaves_the_arena_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
