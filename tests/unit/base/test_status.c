/* SPDX-License-Identifier: Apache-2.0
 *
 * test_status.c: codes and texts, and the one message a thread keeps.
 */
#include "base/status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void every_code_has_name_text_and_scope(void **state)
{
    (void)state;
    assert_string_equal(tri_status_name(TRI_EIO), "TRI_EIO");
    assert_string_equal(tri_status_text(TRI_EIO), "input/output failed");
    assert_int_equal(tri_status_scope(TRI_EIO), TRI_SCOPE_CALL);
    assert_int_equal(tri_status_scope(TRI_EPEER), TRI_SCOPE_GROUP);
    assert_int_equal(tri_status_scope(TRI_ENOMEM), TRI_SCOPE_PROCESS);
    for (int i = 0; i < TRI_STATUS_COUNT; i++) {
        assert_int_equal(strncmp(tri_status_name((tri_status)i), "TRI_", 4), 0);
        assert_true(strlen(tri_status_text((tri_status)i)) > 0);
    }
}

static void numbers_from_nowhere_have_a_name_too(void **state)
{
    (void)state;
    assert_string_equal(tri_status_name((tri_status)-1), "TRI_UNKNOWN");
    assert_string_equal(tri_status_text(TRI_STATUS_COUNT), "unknown status");
    assert_int_equal(tri_status_scope((tri_status)12345), TRI_SCOPE_GROUP);
}

static void fail_keeps_the_text_and_returns_the_code(void **state)
{
    (void)state;
    assert_int_equal(tri_fail(TRI_EINVAL, "rank %d: want %s", 3, "a group"), TRI_EINVAL);
    assert_string_equal(tri_last_error(), "rank 3: want a group");
}

static void the_old_message_may_be_an_argument(void **state)
{
    (void)state;
    tri_fail(TRI_EIO, "first");
    tri_fail(TRI_EIO, "again: %s", tri_last_error());
    assert_string_equal(tri_last_error(), "again: first");
    tri_fail_copy(TRI_EIO, tri_last_error() + 7);
    assert_string_equal(tri_last_error(), "first");
}

static tri_status load(void)
{
    return tri_fail(TRI_EFORMAT, "byte %d: want a brace", 7);
}

static tri_status passes_on(void)
{
    TRI_TRY(load());
    return TRI_OK;
}

static tri_status adds_context(void)
{
    TRI_TRY_IN(passes_on(), "while loading step %d", 9);
    return TRI_OK;
}

static void context_goes_in_front(void **state)
{
    (void)state;
    assert_int_equal(adds_context(), TRI_EFORMAT);
    assert_string_equal(tri_last_error(), "while loading step 9: byte 7: want a brace");
    tri_fail_copy(TRI_EIO, "");
    tri_fail_context(TRI_EIO, "saving");
    assert_string_equal(tri_last_error(), "saving: input/output failed");
    tri_fail_context(TRI_EIO, "saving"); /* heard of another rank */
    assert_string_equal(tri_last_error(), "saving: input/output failed");
    tri_fail_context(TRI_EIO, "sav");
    assert_string_equal(tri_last_error(), "sav: saving: input/output failed");
}

static void messages_are_one_line(void **state)
{
    (void)state;
    tri_fail(TRI_EIO, "a\nb\tc\x1b[0m\x7f");
    assert_string_equal(tri_last_error(), "a b c [0m ");
    tri_fail_copy(TRI_EIO, NULL);
    assert_string_equal(tri_last_error(), "");
}

static void long_messages_are_cut_between_characters(void **state)
{
    (void)state;
    char text[1100];
    memset(text, 'x', sizeof(text));
    memcpy(text + TRI_ERROR_NBYTES - 2, "\xe2\x82\xac", 3); /* a euro sign across the end of the slot */
    text[sizeof(text) - 1] = '\0';
    tri_fail(TRI_EIO, "%s", text);
    assert_int_equal(strlen(tri_last_error()), TRI_ERROR_NBYTES - 2);
    tri_fail_copy(TRI_EIO, text);
    assert_int_equal(strlen(tri_last_error()), TRI_ERROR_NBYTES - 2);
    tri_fail_context(TRI_EIO, "%s", text + 10);
    assert_int_equal(strlen(tri_last_error()), TRI_ERROR_NBYTES - 1);
}

static void *fails_elsewhere(void *arg)
{
    *(size_t *)arg = strlen(tri_last_error());
    tri_fail(TRI_EIO, "from the other thread");
    return NULL;
}

static void threads_have_their_own_message(void **state)
{
    (void)state;
    size_t before = 99;
    pthread_t thread;
    tri_fail(TRI_EIO, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fails_elsewhere, &before), 0);
    pthread_join(thread, NULL);
    assert_int_equal(before, 0);
    assert_string_equal(tri_last_error(), "mine");
}

static void a_swapped_slot_holds_the_message_of_its_fiber(void **state)
{
    (void)state;
    char fiber[TRI_ERROR_NBYTES] = "";
    tri_fail(TRI_EIO, "thread");
    tri_error_slot_swap(fiber);
    assert_string_equal(tri_last_error(), "");
    tri_fail(TRI_EIO, "fiber");
    tri_error_slot_swap(NULL);
    assert_string_equal(tri_last_error(), "thread");
    assert_string_equal(fiber, "fiber");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_name_text_and_scope),
        cmocka_unit_test(numbers_from_nowhere_have_a_name_too),
        cmocka_unit_test(fail_keeps_the_text_and_returns_the_code),
        cmocka_unit_test(the_old_message_may_be_an_argument),
        cmocka_unit_test(context_goes_in_front),
        cmocka_unit_test(messages_are_one_line),
        cmocka_unit_test(long_messages_are_cut_between_characters),
        cmocka_unit_test(threads_have_their_own_message),
        cmocka_unit_test(a_swapped_slot_holds_the_message_of_its_fiber),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
