/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_watch.c: what watches say to each other: heads, and the notes that beats carry.
 *
 * A first byte of 0 takes the rest for a head, anything else for a note of a world of so many ranks.
 */
#include <string.h>

#include "comm/note.h"
#include "fuzz/fuzz.h"
#include "net/watch_impl.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_note note;
    watch_head head;
    unsigned char again[TRI_WATCH_HEAD_NBYTES];
    if (nbytes == 0)
        return 0;
    if (bytes[0] == 0 && nbytes == 1 + TRI_WATCH_HEAD_NBYTES) {
        if (!tri_watch_head_decode(bytes + 1, &head))
            return 0;
        tri_fuzz_accepted++;
        TRI_ASSERT(head.nbytes <= TRI_WATCH_TEXT_NBYTES);
        tri_watch_head_encode(&head, again);
        TRI_ASSERT(memcmp(again, bytes + 1, sizeof again) == 0);
    } else if (bytes[0] != 0 && tri_note_read(bytes + 1, nbytes - 1, bytes[0], &note)) {
        tri_fuzz_accepted++;
        TRI_ASSERT(note.peer_count >= 0 && note.peer_count <= TRI_NOTE_PEERS);
        for (int i = 0; i < note.peer_count; i++)
            TRI_ASSERT(note.peers[i].rank < bytes[0]);
        TRI_ASSERT(memchr(note.call.name, 0, sizeof note.call.name));
    }
    return 0;
}

/* A note of a call with one peer: number 1, group 1, all_reduce, runs; 152 bytes and 20. */
#define ZEROS8  "\0\0\0\0\0\0\0\0"
#define ZEROS48 ZEROS8 ZEROS8 ZEROS8 ZEROS8 ZEROS8 ZEROS8
#define NOTE                                                                                                           \
    "\x04\1\0\0\0\0\0\0\0\1\0\0\0\1\0\0\1" ZEROS8 ZEROS8 ZEROS8 ZEROS8                                                 \
    "\0\0\0\0\1\0\0\0" ZEROS8 ZEROS8 ZEROS8 ZEROS48 ZEROS8 ZEROS8 ZEROS8 "\3\0\0\0" ZEROS8 ZEROS8

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED(NOTE),
    TRI_FUZZ_REFUSED(NOTE "\1"),
    TRI_FUZZ_REFUSED("\0TRIW\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"TRIW", "\1\1\1\1", "\xff\xff\xff\xff"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
