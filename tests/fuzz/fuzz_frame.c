/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_frame.c: the head of a frame; what is believed must encode to the same bytes. Odd first byte: the check is made
 * right first, so that what lies behind it is reached.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "net/frame.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    unsigned char head[TRI_FRAME_NBYTES] = {0}, again[TRI_FRAME_NBYTES];
    tri_frame frame;
    if (nbytes < 1)
        return 0;
    memcpy(head, bytes + 1, nbytes - 1 < sizeof(head) ? nbytes - 1 : sizeof(head));
    if (bytes[0] & 1) {
        tri_frame made = {0};
        memcpy(&made.kind, head + 4, sizeof(made.kind));
        memcpy(&made.op, head + 6, 1);
        memcpy(&made.dtype, head + 7, 1);
        memcpy(&made.nbytes, head + 40, sizeof(made.nbytes));
        tri_frame_encode(&made, head);
    }
    if (tri_frame_decode(head, &frame) == TRI_OK) {
        tri_fuzz_accepted++;
        TRI_ASSERT(frame.nbytes <= TRI_FRAME_LIMIT_NBYTES);
        TRI_ASSERT(tri_frame_agrees(&frame, &frame));
        tri_frame_encode(&frame, again);
        TRI_ASSERT(memcmp(head, again, sizeof(head)) == 0);
    }
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\1TRI1\1\0\2\0\1\0\0\0\1\0\0\0\7\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0nnnnnnnn\x40\0\0\0\0\0\0\0\0\0\0\0\0"
                  "\0\0\0cccccccc"),
    TRI_FUZZ_REFUSED("\0TRI1\2\0\2\0\1\0\0\0\1\0\0\0\7\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0nnnnnnnn\x40\0\0\0\0\0\0\0\0\0\0"
                     "\0\0\0\0\0cccccccc"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"TRI1", "\xff\xff\xff\xff\xff\xff\xff\xff"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
