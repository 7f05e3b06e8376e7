/* SPDX-License-Identifier: Apache-2.0
 *
 * test_scan.c: texts cut into words as the regular expressions do, and places where cutting is safe.
 */
#include "text/scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

/* `words` has a | at each cut. */
static void check_words(tri_scan_kind kind, const char *words)
{
    unsigned char text[256];
    size_t ends[64], count = 0, nbytes = 0;
    for (const char *at = words; *at; at++) {
        if (*at == '|')
            ends[count++] = nbytes;
        else
            text[nbytes++] = (unsigned char)*at;
    }
    ends[count++] = nbytes;
    for (size_t at = 0, i = 0; at < nbytes; i++) {
        size_t end = tri_scan_word(kind, text, nbytes, at);
        if (i == count || end != ends[i])
            fail_msg("'%s' (kind %d): word %zu is '%.*s'", words, (int)kind, i, (int)(end - at), (char *)text + at);
        at = end;
    }
}

static void words_of_gpt_are_those_of_its_expression(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "Hello| world", "I|'m| don|'t| you|'ll",
        "'|S| '|s|'s",  "a| | b| c",
        "a|\n|\n|b",    "a| \n | b",
        "x|  ",         "12345|abc| 67",
        "!?|a| ...|b",  "\xc3\xa9|1|\xc3\xa9",
        "a|\xcc\x81",   "\xff\xfe|a|\xc3",
        "a|\xc2\xa0|b", "a|\xe2\x80\xa8|\xe2\x80\xa8|b",
        "I|'|LL",       "'ve|'d|'re|'t|'|v",
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        check_words(TRI_SCAN_GPT, cases[i]);
}

static void words_of_llama_are_those_of_its_expression(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "Hello| world|!\n\n|(why",
        "I|'M| don|'t| you|'LL|'v",
        "'\xc5\xbf|trange",
        "1|,|234|5",
        "123|456|7| |89",
        "a|  \n\n|  | b",
        "a|\t|\tb|\r\n|c",
        "a| ...\n|b",
        "x|   ",
        ("a|\xc2\xa0|\xc2\xa0"
         "b"),
        "\"quoted|\"'|quoted|'",
        "\xff\n|a",
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        check_words(TRI_SCAN_LLAMA, cases[i]);
    check_words(TRI_SCAN_QWEN, "1|2|3|a| |4");
}

static void gaps_begin_words(void **state)
{
    (void)state;
    check_words(TRI_SCAN_GAPS, "\xe2\x96\x81one|\xe2\x96\x81\xe2\x96\x81two \xe2\x96\x82|\xe2\x96\x81");
    check_words(TRI_SCAN_EACH_GAP, "a|\xe2\x96\x81one|\xe2\x96\x81|\xe2\x96\x81two");
    check_words(TRI_SCAN_WHOLE, "one \xe2\x96\x81two");
}

static void a_safe_cut_is_the_end_of_a_word(void **state)
{
    (void)state;
    static const char text[] = "One two,  three.\n\nfour 5\n6 ''s don't\t7 \xc3\xa9\xc2\xa0x \xff y,\n z";
    const unsigned char *bytes = (const unsigned char *)text;
    static const tri_scan_kind kinds[] = {TRI_SCAN_GPT, TRI_SCAN_LLAMA, TRI_SCAN_QWEN};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        size_t cuts = 0;
        for (size_t cut = 1; cut < sizeof(text) - 1; cut++) {
            if (!tri_scan_is_cut(kinds[k], bytes, sizeof(text) - 1, cut))
                continue;
            cuts++;
            size_t whole = 0, part = 0;
            while (whole < cut)
                whole = tri_scan_word(kinds[k], bytes, sizeof(text) - 1, whole);
            while (part < cut) /* the part alone has the same words */
                part = tri_scan_word(kinds[k], bytes, cut, part);
            assert_int_equal(whole, cut);
            assert_int_equal(part, cut);
        }
        assert_true(cuts >= 8);
    }
    assert_false(tri_scan_is_cut(TRI_SCAN_LLAMA, (const unsigned char *)"a.\nb", 4, 2));
    assert_true(tri_scan_is_cut(TRI_SCAN_GPT, (const unsigned char *)"a.\nb", 4, 2));
    assert_false(tri_scan_is_cut(TRI_SCAN_GPT, (const unsigned char *)"a  b", 4, 2));
    assert_false(tri_scan_is_cut(TRI_SCAN_WHOLE, (const unsigned char *)"a b", 3, 1));
}

static void only_known_expressions_are_found(void **state)
{
    (void)state;
    tri_scan_kind kind = TRI_SCAN_WHOLE;
    assert_false(tri_scan_find("\\w+", &kind));
    assert_int_equal(kind, TRI_SCAN_WHOLE);
    assert_true(
        tri_scan_find("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", &kind));
    assert_int_equal(kind, TRI_SCAN_GPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_gpt_are_those_of_its_expression),
        cmocka_unit_test(words_of_llama_are_those_of_its_expression),
        cmocka_unit_test(gaps_begin_words),
        cmocka_unit_test(a_safe_cut_is_the_end_of_a_word),
        cmocka_unit_test(only_known_expressions_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
