/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trace_id.c: TRACEPARENT as the standard has it, and span ids that follow from what they name.
 */
#include "base/trace_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static void a_parent_gives_its_trace(void **state)
{
    (void)state;
    char trace[TRI_TRACE_ID_NBYTES], text[TRI_TRACEPARENT_NBYTES];
    assert_true(tri_traceparent_read("00-" TRACE "-" SPAN "-01", trace));
    assert_string_equal(trace, TRACE);
    tri_traceparent_make(trace, SPAN, text);
    assert_string_equal(text, "00-" TRACE "-" SPAN "-01");
    assert_true(tri_traceparent_read("cc-" TRACE "-" SPAN "-01-what-comes-later", trace)); /* of a later version */
}

static void what_is_no_parent_gives_none(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "00",
                                      "00-" TRACE "-" SPAN,
                                      "00-" TRACE "-" SPAN "-1",
                                      "00-" TRACE "-" SPAN "-01-",
                                      "00-" TRACE "-" SPAN "-01x",
                                      "ff-" TRACE "-" SPAN "-01",
                                      "cc-" TRACE "-" SPAN "-01.",
                                      "0g-" TRACE "-" SPAN "-01",
                                      "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
                                      "00-00000000000000000000000000000000-" SPAN "-01",
                                      "00-" TRACE "-0000000000000000-01",
                                      "00_" TRACE "-" SPAN "-01"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char trace[TRI_TRACE_ID_NBYTES] = "x";
        if (tri_traceparent_read(bad[i], trace) || trace[0])
            fail_msg("'%s' was taken for a parent", bad[i]);
    }
}

static void spans_are_the_same_for_the_same_and_differ_else(void **state)
{
    (void)state;
    char spans[5][TRI_SPAN_ID_NBYTES], again[TRI_SPAN_ID_NBYTES];
    tri_span_id_make(TRACE, -1, 0, -1, spans[0]);
    tri_span_id_make(TRACE, 0, 0, -1, spans[1]);
    tri_span_id_make(TRACE, 0, 1, -1, spans[2]);
    tri_span_id_make(TRACE, 0, 0, 10, spans[3]);
    tri_span_id_make("4bf92f3577b34da6a3ce929d0e0e4737", 0, 0, -1, spans[4]);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(strlen(spans[i]), 16);
        assert_int_equal(strspn(spans[i], "0123456789abcdef"), 16);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(spans[i], spans[j]);
    }
    tri_span_id_make(TRACE, 0, 0, 10, again);
    assert_string_equal(again, spans[3]);
}

static void new_traces_are_ids_and_differ(void **state)
{
    (void)state;
    char a[TRI_TRACE_ID_NBYTES], b[TRI_TRACE_ID_NBYTES];
    tri_trace_id_make(a);
    tri_trace_id_make(b);
    assert_true(tri_trace_id_is(a) && tri_trace_id_is(b));
    assert_string_not_equal(a, b);
    assert_false(tri_trace_id_is("00000000000000000000000000000000"));
    assert_false(tri_trace_id_is(TRACE "0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_parent_gives_its_trace),
        cmocka_unit_test(what_is_no_parent_gives_none),
        cmocka_unit_test(spans_are_the_same_for_the_same_and_differ_else),
        cmocka_unit_test(new_traces_are_ids_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
