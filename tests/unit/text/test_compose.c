/* SPDX-License-Identifier: Apache-2.0
 *
 * test_compose.c: normalization form C, of examples, and of every character there is beside others, whose hashes are
 * those of unicodedata2 16.0.0.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "text/unicode.h"

static void expect(const char *text, size_t nbytes, const char *want)
{
    tri_string out = {0};
    assert_int_equal(tri_unicode_compose(text, nbytes, &out), TRI_OK);
    assert_int_equal(out.nbytes, strlen(want));
    assert_memory_equal(tri_string_text(&out), want, out.nbytes);
    tri_string_fini(&out);
}

static void characters_and_their_marks_become_one(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"plain text", "plain text"},
        {"e\u0301te\u0301", "\u00e9t\u00e9"},
        {"\u00e9", "\u00e9"},
        {"\u212b", "\u00c5"},               /* one that stands for another */
        {"a\u0323\u0302", "\u1ead"},        /* two steps */
        {"a\u0302\u0323", "\u1ead"},        /* in the other order */
        {"q\u0307\u0323", "q\u0323\u0307"}, /* nothing to put together, but an order */
        {"a\u0301\u0301", "\u00e1\u0301"},  /* the second is blocked */
        {"a\u0315\u0300", "\u00e0\u0315"},  /* goes past one of a higher class */
        {"a\u0305\u0300", "a\u0305\u0300"}, /* not past one of its own */
        {"\u0301a", "\u0301a"},             /* marks of nobody */
        {"\u1112\u1161\u11ab", "\ud55c"},   /* Hangul */
        {"\uac00\u11a8", "\uac01"},
        {"\uac01\u11a8", "\uac01\u11a8"},
        {"\u0958", "\u0915\u093c"}, /* excluded from composition */
        {"\u0344", "\u0308\u0301"},
        {"\u09c7\u09be", "\u09cb"},
        {"\u4e00\u0301\u4e00", "\u4e00\u0301\u4e00"},
        {"x\u00e9\u0323y", "x\u1eb9\u0301y"}, /* taken apart, then put together another way */
        {"\U0001d157\U0001d165", "\U0001d157\U0001d165"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        expect(cases[i][0], strlen(cases[i][0]), cases[i][1]);
        expect(cases[i][1], strlen(cases[i][1]), cases[i][1]); /* once more changes nothing */
    }
}

static void what_is_no_utf_8_stays(void **state)
{
    (void)state;
    expect("\xff\xcc\x81z\xcc\x81", 6, "\xff\xcc\x81\xc5\xba");
    expect("e\xcc", 2, "e\xcc");
    expect("\xed\xa0\x80", 3, "\xed\xa0\x80");
}

/* Marks without end: their order takes no squares. */
static void a_megabyte_of_marks_is_put_in_order(void **state)
{
    (void)state;
    enum { PAIRS = 250000 };
    tri_string text = {0}, out = {0};
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(tri_string_append(&text, "\u0301\u0323"), TRI_OK);
    assert_int_equal(tri_unicode_compose(tri_string_text(&text), text.nbytes, &out), TRI_OK);
    assert_int_equal(out.nbytes, text.nbytes);
    assert_memory_equal(tri_string_text(&out), "\u0323\u0323", 4);
    assert_memory_equal(tri_string_text(&out) + 2 * PAIRS - 2, "\u0323\u0301", 4);
    tri_string_fini(&text);
    tri_string_fini(&out);
}

/* FNV-1a over what becomes of three characters, of which the one given as 0 is each there is. */
static uint64_t hash_of(const uint32_t form[3])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    tri_string out = {0};
    for (uint32_t code = 1; code < TRI_UNICODE_END; code++) {
        unsigned char text[12];
        size_t nbytes = 0;
        if (code >> 11 == 0x1b)
            continue;
        for (int i = 0; i < 3; i++)
            if (form[i] != UINT32_MAX)
                nbytes += tri_utf_write(form[i] ? form[i] : code, text + nbytes);
        tri_string_clear(&out);
        assert_int_equal(tri_unicode_compose((const char *)text, nbytes, &out), TRI_OK);
        for (size_t i = 0; i < out.nbytes; i++)
            hash = (hash ^ (unsigned char)out.text[i]) * UINT64_C(0x100000001b3);
    }
    tri_string_fini(&out);
    return hash;
}

static void every_character_is_as_unicode_has_it(void **state)
{
    (void)state;
    const uint32_t none = UINT32_MAX;
    const struct {
        uint32_t form[3];
        uint64_t hash;
    } cases[] = {
        {{0, none, none}, UINT64_C(0xb7a71eef6835bd17)},     {{0, 0x301, none}, UINT64_C(0x347c542ae799612)},
        {{0x61, 0, none}, UINT64_C(0xacfe60d26573efb0)},     {{0, 0x327, 0x301}, UINT64_C(0x1cd077fd22b557d5)},
        {{0x1100, 0, 0x11a8}, UINT64_C(0x126ee7c692507d51)}, {{0x300, 0, 0x323}, UINT64_C(0x40cb0fbbc2e31639)},
        {{0, 0xac00, none}, UINT64_C(0x8ac47b3425b3b997)},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        if (hash_of(cases[i].form) != cases[i].hash)
            fail_msg("form %zu: got the hash %016llx", i, (unsigned long long)hash_of(cases[i].form));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_and_their_marks_become_one),
        cmocka_unit_test(what_is_no_utf_8_stays),
        cmocka_unit_test(a_megabyte_of_marks_is_put_in_order),
        cmocka_unit_test(every_character_is_as_unicode_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
