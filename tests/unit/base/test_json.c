/* SPDX-License-Identifier: Apache-2.0
 *
 * test_json.c: exact output, escapes, invalid UTF-8, and failures that reach the outermost end.
 */
#include "base/json.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static void values_of_every_kind_are_written(void **state)
{
    (void)state;
    tri_string out = {0};
    tri_json json = tri_json_object(&out);
    tri_json_int(&json, "step", -7);
    tri_json_int(&json, "least", INT64_MIN);
    tri_json_real(&json, "loss", 0.25);
    tri_json_real(&json, "third", 1.0 / 3.0);
    tri_json_real(&json, "nan", (double)NAN);
    tri_json_real(&json, "inf", -(double)INFINITY);
    tri_json_bool(&json, "yes", true);
    tri_json_bool(&json, "no", false);
    tri_json_text(&json, "text", "plain");
    tri_json_text(&json, "none", NULL);
    assert_int_equal(tri_json_end(&json), TRI_OK);
    assert_string_equal(tri_string_text(&out),
                        "{\"step\":-7,\"least\":-9223372036854775808,\"loss\":0.25,\"third\":0.3333333333333333,"
                        "\"nan\":null,\"inf\":null,\"yes\":true,\"no\":false,\"text\":\"plain\",\"none\":null}");
    tri_string_fini(&out);
}

static void containers_nest(void **state)
{
    (void)state;
    tri_string out = {0};
    tri_json json = tri_json_object(&out);
    tri_json empty = tri_json_array_in(&json, "empty");
    tri_json_end(&empty);
    tri_json ranks = tri_json_array_in(&json, "ranks");
    for (int i = 0; i < 2; i++) {
        tri_json rank = tri_json_object_in(&ranks, NULL);
        tri_json_int(&rank, "rank", i);
        tri_json_end(&rank);
    }
    tri_json_int(&ranks, NULL, 5);
    tri_json_end(&ranks);
    tri_json inner = tri_json_object_in(&json, "inner");
    tri_json_end(&inner);
    assert_int_equal(tri_json_end(&json), TRI_OK);
    assert_string_equal(tri_string_text(&out), "{\"empty\":[],\"ranks\":[{\"rank\":0},{\"rank\":1},5],\"inner\":{}}");
    tri_string_fini(&out);
}

static void assert_text(const char *value, const char *want)
{
    tri_string out = {0};
    tri_json json = tri_json_object(&out);
    tri_json_text(&json, "t", value);
    assert_int_equal(tri_json_end(&json), TRI_OK);
    tri_string whole = {0};
    tri_string_appendf(&whole, "{\"t\":\"%s\"}", want);
    assert_string_equal(tri_string_text(&out), tri_string_text(&whole));
    tri_string_fini(&out);
    tri_string_fini(&whole);
}

#define BAD "\xef\xbf\xbd"

static void texts_are_escaped(void **state)
{
    (void)state;
    assert_text("", "");
    assert_text("a\"b\\c/", "a\\\"b\\\\c/");
    assert_text("\b\f\n\r\t", "\\b\\f\\n\\r\\t");
    assert_text("\x01\x1f\x7f", "\\u0001\\u001f\x7f");
    assert_text("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
    tri_string out = {0};
    tri_json json = tri_json_object(&out);
    tri_json_int(&json, "a\"\n", 1);
    tri_json_end(&json);
    assert_string_equal(tri_string_text(&out), "{\"a\\\"\\n\":1}");
    tri_string_fini(&out);
}

static void invalid_utf8_is_replaced(void **state)
{
    (void)state;
    assert_text("a\xff"
                "b",
                "a" BAD "b");
    assert_text("\x80", BAD);
    assert_text("\xc3", BAD);                            /* cut at the end */
    assert_text("\xe2\x82", BAD BAD);                    /* cut at the end */
    assert_text("\xe2\"", BAD "\\\"");                   /* cut by a quote */
    assert_text("\xc0\xaf", BAD BAD);                    /* overlong */
    assert_text("\xe0\x80\xaf", BAD BAD BAD);            /* overlong */
    assert_text("\xed\xa0\x80", BAD BAD BAD);            /* a surrogate */
    assert_text("\xf4\x90\x80\x80", BAD BAD BAD BAD);    /* above U+10FFFF */
    assert_text("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"); /* U+10FFFF itself */
    assert_text("\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80");
}

static void numbers_have_points_in_every_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"}; /* what there is */
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++) {
        if (!setlocale(LC_ALL, names[i]))
            continue;
        tri_string out = {0};
        tri_json json = tri_json_object(&out);
        tri_json_real(&json, "x", 1.5);
        tri_json_end(&json);
        assert_string_equal(tri_string_text(&out), "{\"x\":1.5}");
        tri_string_fini(&out);
    }
    setlocale(LC_ALL, "C");
}

static tri_status write_nested(tri_string *out)
{
    tri_json json = tri_json_object(out);
    tri_json_text(&json, "name", "a value long enough to need more room than the first allocation gives");
    tri_json list = tri_json_array_in(&json, "list");
    for (int i = 0; i < 100; i++)
        tri_json_int(&list, NULL, i);
    tri_json_end(&list); /* a failure inside is seen outside */
    return tri_json_end(&json);
}

static void the_first_failure_reaches_the_outer_end(void **state)
{
    (void)state;
    tri_memory_counts before = tri_memory_now();
    uint64_t n = 1;
    for (;; n++) {
        tri_string out = {0};
        tri_memory_fail_at(n);
        tri_status status = write_nested(&out);
        tri_memory_fail_at(0);
        tri_string_fini(&out);
        assert_int_equal(tri_memory_now().live, before.live);
        if (status == TRI_OK)
            break;
        assert_int_equal(status, TRI_ENOMEM);
    }
    assert_true(n > 4); /* several allocations were met, some of them in the inner array */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_kind_are_written),
        cmocka_unit_test(containers_nest),
        cmocka_unit_test(texts_are_escaped),
        cmocka_unit_test(invalid_utf8_is_replaced),
        cmocka_unit_test(numbers_have_points_in_every_locale),
        cmocka_unit_test(the_first_failure_reaches_the_outer_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
