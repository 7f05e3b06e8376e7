/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_hello.c: what a stranger says in the handshake, to a rank that was called and to one that called. Whatever it
 * is, no link comes of it: nobody can guess a proof over fresh nonces. Bit 0 of the first byte: magic, version and
 * check are made right first; bit 1: the stranger answers instead of calling; bit 2: nobody has counted those who may
 * call (post). Bit 3: two ranks of the job talk, and somebody between them turns the bits that the input says: who
 * hears a hello that was altered makes no link of it.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz/fuzz.h"
#include "net/bytes.h"
#include "net/handshake.h"

#define WORLD 4

size_t tri_fuzz_accepted;

static void hello_mend(unsigned char *hello)
{
    tri_bytes_write_u32(hello, TRI_HELLO_MAGIC);
    tri_bytes_write_u16(hello + 4, TRI_HELLO_VERSION);
    tri_bytes_write_u64(hello + 88, XXH3_64bits(hello, 88));
}

/* Says all at once; memory_fd goes along unless it is -1. */
static void say(int fd, const void *bytes, size_t nbytes, int memory_fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)bytes, nbytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (memory_fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(head), &memory_fd, sizeof(int));
    }
    TRI_ASSERT(sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)nbytes);
}

/* What somebody in the middle passes on of a hello: true when what counts is not what was said. Who has enough bytes
 * makes the check right again; then nobody looks at the proof of the first hello, nor at the nonce of the third, and
 * the marks (bytes 22, 23) of the first are said again, proven, in the third. */
static bool pass_on(int from, int to, size_t step, const uint8_t *mask, size_t nbytes)
{
    unsigned char hello[TRI_HELLO_NBYTES];
    const bool fixes = nbytes > sizeof hello;
    bool altered = false;

    if (recv(from, hello, sizeof hello, 0) != (ssize_t)sizeof hello)
        return true;
    for (size_t i = 0; i < sizeof hello && i < nbytes; i++) {
        bool unread = i >= 88 || (step == 0 && (i >= 56 || i / 2 == 11)) || (step == 2 && i >= 24 && i < 56);
        altered |= mask[i] != 0 && !(fixes && unread);
        hello[i] ^= mask[i];
    }
    if (fixes)
        tri_bytes_write_u64(hello + 88, XXH3_64bits(hello, 88));
    say(to, hello, sizeof hello, -1);
    return altered;
}

static void handshake_through(const uint8_t *masks, size_t nbytes)
{
    static const char *const both[2] = {"a", "b"};
    tri_rendezvous is[2];
    net_handshake handshakes[2] = {{.memory_fd = -1, .dialed = true, .sockets = 1, .peer = 0}};
    int ends[2][2];
    bool altered = false;

    for (int i = 0; i < 2; i++) {
        is[i] = (tri_rendezvous){
            .name = "tcp", .rank = 1 - i, .world = 2, .token = "token", .memory_fd = -1, .addresses = both};
        TRI_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends[i]) == 0);
    }
    handshakes[0].fd = ends[0][0];
    tri_handshake_answer(&handshakes[1], ends[1][0], INT64_MAX);
    tri_handshake_send_start(&is[0], &handshakes[0], 1);
    for (size_t step = 0; step < 3; step++) {
        size_t at = step * TRI_HELLO_NBYTES, side = step % 2;
        tri_handshake_advance(&is[side], &handshakes[side]);
        if (handshakes[side].stage == HANDSHAKE_IDLE)
            break;
        altered |= pass_on(ends[side][1], ends[1 - side][1], step, masks + (at < nbytes ? at : nbytes),
                           at < nbytes ? nbytes - at : 0);
        tri_handshake_advance(&is[1 - side], &handshakes[1 - side]);
    }
    TRI_ASSERT((handshakes[1].stage == HANDSHAKE_DONE) ==
               !altered); /* who hears the third knows that all three were right */
    if (!altered) {
        TRI_ASSERT(handshakes[0].stage == HANDSHAKE_DONE &&
                   memcmp(handshakes[0].key, handshakes[1].key, TRI_AUTH_NBYTES) == 0);
        tri_fuzz_accepted++;
    }
    for (int i = 0; i < 2; i++) {
        tri_handshake_drop(&handshakes[i], "");
        close(ends[i][1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    static const char *const addresses[WORLD] = {"a", NULL, "c", "d"};
    tri_rendezvous is = {
        .name = "tcp", .rank = 1, .world = WORLD, .token = "token", .memory_fd = -1, .addresses = addresses};
    unsigned char said[2 * TRI_HELLO_NBYTES] = {0};
    net_handshake handshake = {.memory_fd = -1, .dialed = true, .sockets = 1};
    int ends[2];

    if (nbytes > 0 && bytes[0] & 8) {
        handshake_through(bytes + 1, nbytes - 1);
        return 0;
    }
    if (nbytes < 1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return 0;
    if (bytes[0] & 4) {
        is.world = TRI_RENDEZVOUS_CROWD;
        is.addresses = NULL;
    }
    if (bytes[0] & 16)
        is.memory_fd = ends[1]; /* any file will do: nobody looks into it before it is proven */
    memcpy(said, bytes + 1, nbytes - 1 < sizeof said ? nbytes - 1 : sizeof said);
    for (size_t i = 0; (bytes[0] & 1) && i < sizeof said; i += TRI_HELLO_NBYTES)
        hello_mend(said + i);
    if (bytes[0] & 2) {
        handshake.fd = ends[0];
        tri_handshake_send_start(&is, &handshake, 1);
    } else {
        tri_handshake_answer(&handshake, ends[0], INT64_MAX);
    }
    say(ends[1], said, sizeof said, is.memory_fd);
    tri_handshake_advance(&is, &handshake);
    /* The first hello of a caller needs no proof: one that could be a rank's is answered, and then refused. */
    tri_fuzz_accepted += !(bytes[0] & 2) && handshake.peer >= 0;
    TRI_ASSERT(handshake.stage == HANDSHAKE_IDLE);
    TRI_ASSERT(handshake.fd < 0 && handshake.memory_fd < 0 && handshake.why[0]);
    TRI_ASSERT(handshake.peer < is.world && handshake.socket >= 0 && handshake.socket < TRI_LINK_SOCKETS_MAX &&
               handshake.sockets <= TRI_LINK_SOCKETS_MAX);
    tri_handshake_drop(&handshake, "");
    close(ends[1]);
    return 0;
}

#define NONCE "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\1TRIH\2\0\1\0\2\0\0\0\1\0\0\0\4\0\0\0\0\1\0\0" NONCE),
    TRI_FUZZ_SEED("\1TRIH\2\0\1\0\3\0\0\0\1\0\0\0\4\0\0\0\1\4\0\0" NONCE),
    TRI_FUZZ_SEED("\5TRIH\2\0\1\0\2\0\0\0\1\0\0\0\xff\xff\xff\x7f\0\1\0\0" NONCE),
    TRI_FUZZ_REFUSED("\3TRIH\2\0\2\0\0\0\0\0\1\0\0\0\4\0\0\0\0\1\0\0" NONCE NONCE),
    TRI_FUZZ_SEED("\x11TRIH\2\0\1\0\2\0\0\0\1\0\0\0\4\0\0\0\x40\0\0\0" NONCE),
    TRI_FUZZ_REFUSED("\x13TRIH\2\0\2\0\0\0\0\0\1\0\0\0\4\0\0\0\x40\0\0\0" NONCE NONCE),
    TRI_FUZZ_SEED("\x08"),
    TRI_FUZZ_REFUSED("\x08\0\1"),
    TRI_FUZZ_REFUSED("\x08" NONCE NONCE NONCE NONCE NONCE NONCE),
    TRI_FUZZ_REFUSED("\0GET / HTTP/1.1\r\nHost: trireme\r\n\r\n"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"TRIH", "\xff\xff\xff\xff"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
