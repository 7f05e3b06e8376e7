/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_hello.c: what a stranger says in the handshake, to a rank that was called and to one that called. Whatever it
 * is, no link comes of it: nobody can guess a proof over fresh nonces. Bit 0 of the first byte: magic, version and
 * check are made right first; bit 1: the stranger answers instead of calling; bit 2: nobody has counted those who may
 * call (post).
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz/fuzz.h"
#include "net/bytes.h"
#include "net/talk.h"

#define WORLD 4

size_t tri_fuzz_accepted;

static void hello_mend(unsigned char *hello)
{
    tri_bytes_write_u32(hello, TRI_HELLO_MAGIC);
    tri_bytes_write_u16(hello + 4, TRI_HELLO_VERSION);
    tri_bytes_write_u64(hello + 88, XXH3_64bits(hello, 88));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    static const char *const addresses[WORLD] = {"a", NULL, "c", "d"};
    tri_meeting is = {
        .name = "tcp", .rank = 1, .world = WORLD, .token = "token", .memory_fd = -1, .addresses = addresses};
    unsigned char said[2 * TRI_HELLO_NBYTES] = {0};
    net_talk talk = {.memory_fd = -1, .dialed = true, .strands = 1};
    int ends[2];

    if (nbytes < 1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return 0;
    if (bytes[0] & 4) {
        is.world = TRI_MEETING_CROWD;
        is.addresses = NULL;
    }
    memcpy(said, bytes + 1, nbytes - 1 < sizeof said ? nbytes - 1 : sizeof said);
    for (size_t i = 0; (bytes[0] & 1) && i < sizeof said; i += TRI_HELLO_NBYTES)
        hello_mend(said + i);
    if (bytes[0] & 2) {
        talk.fd = ends[0];
        tri_talk_send_start(&is, &talk, 1);
    } else {
        tri_talk_answer(&talk, ends[0], INT64_MAX);
    }
    TRI_ASSERT(send(ends[1], said, sizeof said, MSG_NOSIGNAL) == (ssize_t)sizeof said);
    tri_talk_advance(&is, &talk);
    /* The first hello of a caller needs no proof: one that could be a rank's is answered, and then refused. */
    tri_fuzz_accepted += !(bytes[0] & 2) && talk.peer >= 0;
    TRI_ASSERT(talk.stage == TALK_IDLE);
    TRI_ASSERT(talk.fd < 0 && talk.memory_fd < 0 && talk.why[0]);
    TRI_ASSERT(talk.peer < is.world && talk.strand >= 0 && talk.strand < TRI_STRANDS_MAX &&
               talk.strands <= TRI_STRANDS_MAX);
    tri_talk_drop(&talk, "");
    close(ends[1]);
    return 0;
}

#define NONCE "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\1TRIH\2\0\1\0\2\0\0\0\1\0\0\0\4\0\0\0\0\1\0\0" NONCE),
    TRI_FUZZ_SEED("\1TRIH\2\0\1\0\3\0\0\0\1\0\0\0\4\0\0\0\1\4\0\0" NONCE),
    TRI_FUZZ_SEED("\5TRIH\2\0\1\0\2\0\0\0\1\0\0\0\xff\xff\xff\x7f\0\1\0\0" NONCE),
    TRI_FUZZ_REFUSED("\3TRIH\2\0\2\0\0\0\0\0\1\0\0\0\4\0\0\0\0\1\0\0" NONCE NONCE),
    TRI_FUZZ_REFUSED("\0GET / HTTP/1.1\r\nHost: trireme\r\n\r\n"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"TRIH", "\xff\xff\xff\xff"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
