/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crc32c.c: known values, and sums of parts in any cut and order.
 */
#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void known_texts_have_their_known_values(void **state)
{
    (void)state;
    unsigned char zeros[32] = {0}, ones[32], rising[32];
    memset(ones, 255, sizeof(ones));
    for (int i = 0; i < 32; i++)
        rising[i] = (unsigned char)i;
    assert_int_equal(tri_crc32c("", 0), 0);
    assert_int_equal(tri_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(tri_crc32c(zeros, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    assert_int_equal(tri_crc32c(ones, 32), 0x62a8ab43);
    assert_int_equal(tri_crc32c(rising, 32), 0x46dd794e);
}

static void parts_in_any_order_make_the_whole(void **state)
{
    (void)state;
    enum { NBYTES = 5000 };
    unsigned char text[NBYTES];
    uint32_t random = 1;
    for (int i = 0; i < NBYTES; i++)
        text[i] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
    for (size_t nbytes = 0; nbytes <= NBYTES; nbytes += nbytes < 70 ? 1 : 493) {
        uint32_t whole = tri_crc32c(text, nbytes), odd = 0, even = 0;
        for (size_t at = 0, run, i = 0; at < nbytes; at += run, i++) {
            run = 1 + i * 7 % 61;
            run = run < nbytes - at ? run : nbytes - at;
            *(i % 2 ? &odd : &even) ^= tri_crc32c_part(text + at, run, nbytes - at - run);
        }
        assert_int_equal(tri_crc32c_join(odd ^ even, nbytes), whole);
    }
}

static void every_flipped_bit_changes_it(void **state)
{
    (void)state;
    unsigned char text[600] = "a text";
    uint32_t whole = tri_crc32c(text, sizeof(text));
    for (size_t bit = 0; bit < 8 * sizeof(text); bit++) {
        text[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_not_equal(tri_crc32c(text, sizeof(text)), whole);
        text[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_have_their_known_values),
        cmocka_unit_test(parts_in_any_order_make_the_whole),
        cmocka_unit_test(every_flipped_bit_changes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
