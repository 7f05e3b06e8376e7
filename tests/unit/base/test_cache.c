/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cache.c: copies of any length and alignment copy everything and nothing else; spoiled lines lie inside.
 */
#include "base/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { GUARD = 256 };

typedef void (*copy_fn)(void *to, const void *from, size_t nbytes);

static void copies_well(copy_fn copy, size_t nbytes, size_t to_offset, size_t from_offset)
{
    unsigned char *to = malloc(nbytes + 2 * GUARD), *from = malloc(nbytes + 2 * GUARD);
    assert_true(to && from);
    for (size_t i = 0; i < nbytes + 2 * GUARD; i++) {
        to[i] = 0xa5;
        from[i] = (unsigned char)(i * 131 ^ i >> 8);
    }
    copy(to + to_offset, from + from_offset, nbytes);
    assert_memory_equal(to + to_offset, from + from_offset, nbytes);
    for (size_t i = 0; i < to_offset; i++)
        assert_int_equal(to[i], 0xa5);
    for (size_t i = to_offset + nbytes; i < nbytes + 2 * GUARD; i++)
        assert_int_equal(to[i], 0xa5);
    free(to);
    free(from);
}

static void copies_take_every_length_and_alignment(void **state)
{
    (void)state;
    const size_t lengths[] = {
        0, 1, 63, 64, 65, 2047, 2048, 4097, 100003, ((size_t)4 << 20) - 1, ((size_t)4 << 20) + 77};
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        for (size_t offset = 0; offset < 200; offset += 61) {
            copies_well(tri_copy_large, lengths[l], offset, 199 - offset);
            copies_well(tri_copy_out, lengths[l], offset, 199 - offset);
        }
    }
}

static void only_whole_lines_are_spoiled(void **state)
{
    (void)state;
    enum { LINES = 8 };
    _Alignas(64) unsigned char bytes[LINES * 64];
    for (size_t first = 0; first < 130; first += 13) {
        for (size_t nbytes = 0; first + nbytes <= sizeof(bytes); nbytes += 37) {
            memset(bytes, 1, sizeof(bytes));
            tri_spoil_lines(bytes + first, nbytes);
            for (size_t line = 0; line < LINES; line++) {
                bool inside = line * 64 >= first && line * 64 + 64 <= first + nbytes;
                assert_int_equal(bytes[line * 64], inside ? 0 : 1);
                for (size_t i = 1; i < 64; i++)
                    assert_int_equal(bytes[line * 64 + i], 1);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_take_every_length_and_alignment),
        cmocka_unit_test(only_whole_lines_are_spoiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
