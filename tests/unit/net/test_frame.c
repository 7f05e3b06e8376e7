/* SPDX-License-Identifier: Apache-2.0 */
#include "net/frame.h"

#include <string.h>

#include "unit/net/cmocka_all.h"

static const tri_frame sample = {.kind = TRI_FRAME_DATA,
                                 .op = 3,
                                 .dtype = 2,
                                 .group = 7,
                                 .generation = 9,
                                 .roots = 0x1122,
                                 .sequence = 0x334455667788,
                                 .count = 1000,
                                 .name = 0x8877665544332211,
                                 .nbytes = 4000,
                                 .reduce = 1,
                                 .part = 5};

static void decoding_gives_back_what_was_encoded(void **state)
{
    unsigned char bytes[TRI_FRAME_NBYTES];
    tri_frame frame;

    (void)state;
    tri_frame_encode(&sample, bytes);
    assert_int_equal(tri_frame_decode(bytes, &frame), TRI_OK);
    assert_true(tri_frame_agrees(&sample, &frame));
    assert_int_equal(frame.nbytes, sample.nbytes);
}

static void bytes_lie_where_the_document_says(void **state)
{
    unsigned char bytes[TRI_FRAME_NBYTES];

    (void)state;
    tri_frame_encode(&sample, bytes);
    assert_memory_equal(bytes, "TRI1\1\0\3\2\7\0\0\0\t\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11", 24);
    assert_memory_equal(bytes + 40, "\xa0\x0f\0\0\0\0\0\0\1\0\0\0\5\0\0\0", 16);
}

static void every_damaged_bit_is_found(void **state)
{
    unsigned char bytes[TRI_FRAME_NBYTES];
    tri_frame frame;

    (void)state;
    tri_frame_encode(&sample, bytes);
    for (int bit = 0; bit < TRI_FRAME_NBYTES * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(tri_frame_decode(bytes, &frame), TRI_EFORMAT);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void impossible_kinds_and_lengths_are_refused(void **state)
{
    static const tri_frame wrong[] = {
        {.kind = 0},
        {.kind = TRI_FRAME_KIND_COUNT},
        {.kind = TRI_FRAME_DATA, .nbytes = TRI_FRAME_LIMIT_NBYTES + 1},
        {.kind = TRI_FRAME_ABORT, .nbytes = TRI_FRAME_ABORT_LIMIT_NBYTES + 1},
        {.kind = TRI_FRAME_BYE, .nbytes = 1},
    };
    unsigned char bytes[TRI_FRAME_NBYTES];
    tri_frame frame;

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        tri_frame_encode(&wrong[i], bytes);
        assert_int_equal(tri_frame_decode(bytes, &frame), TRI_EFORMAT);
    }
}

static void any_difference_of_the_call_is_a_disagreement(void **state)
{
    tri_frame other;

    (void)state;
#define DIFFERS(field)                                                                                                 \
    other = sample;                                                                                                    \
    other.field++;                                                                                                     \
    assert_false(tri_frame_agrees(&sample, &other));
    DIFFERS(kind)
    DIFFERS(op)
    DIFFERS(dtype)
    DIFFERS(group)
    DIFFERS(generation)
    DIFFERS(roots)
    DIFFERS(sequence)
    DIFFERS(count)
    DIFFERS(name)
    DIFFERS(reduce)
    DIFFERS(part)
#undef DIFFERS
    other = sample;
    other.nbytes++;
    other.check++;
    assert_true(tri_frame_agrees(&sample, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_gives_back_what_was_encoded),
        cmocka_unit_test(bytes_lie_where_the_document_says),
        cmocka_unit_test(every_damaged_bit_is_found),
        cmocka_unit_test(impossible_kinds_and_lengths_are_refused),
        cmocka_unit_test(any_difference_of_the_call_is_a_disagreement),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
