/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake.c: one handshake of a rendezvous: three hellos, and the memory that travels with them.
 *
 * Bytes of a stranger are looked at only after their length is right.
 */
#include "net/handshake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/runtime.h"
#include "net/auth.h"
#include "net/bytes.h"

void tri_handshake_drop(net_handshake *handshake, const char *why)
{
    if (handshake->fd >= 0)
        close(handshake->fd);
    if (handshake->memory_fd >= 0)
        close(handshake->memory_fd);
    handshake->fd = handshake->memory_fd = -1;
    handshake->stage = HANDSHAKE_IDLE;
    handshake->step = 0;
    handshake->limit_ns = 0;
    snprintf(handshake->why, sizeof handshake->why, "%s", why);
}

/* The proof of the side that sends `step`. */
static tri_status hello_prove(const tri_rendezvous *is, const net_handshake *handshake, int step, int from, int to,
                              uint32_t about, unsigned char proof[TRI_AUTH_NBYTES])
{
    unsigned char message[16 + 20 + 2 * TRI_HANDSHAKE_NONCE_NBYTES] = "trireme link 2";

    tri_bytes_write_u32(message + 16, (uint32_t)step);
    tri_bytes_write_u32(message + 20, (uint32_t)from);
    tri_bytes_write_u32(message + 24, (uint32_t)to);
    tri_bytes_write_u32(message + 28, (uint32_t)is->world);
    tri_bytes_write_u32(message + 32, about);
    memcpy(message + 36, handshake->nonces, 2 * TRI_HANDSHAKE_NONCE_NBYTES);
    return tri_auth_prove(is->token, message, sizeof message, proof);
}

/* What the hello says of the link: shm: the ring of the sender; tcp: which connection it is, of how many. */
static uint32_t about_link(const tri_rendezvous *is, const net_handshake *handshake)
{
    return is->memory_fd >= 0 ? is->slot_kib
                              : (uint32_t)handshake->socket | (uint32_t)handshake->sockets << 8 | is->marks << 16;
}

/* False: cannot be. */
static bool about_read(const tri_rendezvous *is, net_handshake *handshake, uint32_t about)
{
    int socket = (int)(about & 0xff), sockets = (int)(about >> 8 & 0xff);

    if (is->memory_fd >= 0) {
        handshake->slot_kib = about;
        handshake->socket = 0;
        handshake->sockets = 1;
        return true;
    }
    if (sockets < 1 || sockets > TRI_LINK_SOCKETS_MAX || socket >= sockets)
        return false;
    if (handshake->step > 1 && (socket != handshake->socket || sockets != handshake->sockets))
        return false;
    handshake->socket = socket;
    handshake->sockets = sockets;
    handshake->marks = about >> 16;
    return true;
}

static tri_status hello_encode(const tri_rendezvous *is, net_handshake *handshake)
{
    unsigned char *bytes = handshake->hello;

    memset(bytes, 0, TRI_HELLO_NBYTES);
    tri_bytes_write_u32(bytes, TRI_HELLO_MAGIC);
    tri_bytes_write_u16(bytes + 4, TRI_HELLO_VERSION);
    tri_bytes_write_u16(bytes + 6, (uint16_t)handshake->step);
    tri_bytes_write_u32(bytes + 8, (uint32_t)is->rank);
    tri_bytes_write_u32(bytes + 12, (uint32_t)handshake->peer);
    tri_bytes_write_u32(bytes + 16, (uint32_t)is->world);
    tri_bytes_write_u32(bytes + 20, about_link(is, handshake));
    memcpy(bytes + 24, handshake->nonces[handshake->dialed ? 0 : 1], TRI_HANDSHAKE_NONCE_NBYTES);
    if (handshake->step > 1)
        TRI_TRY(hello_prove(is, handshake, handshake->step, is->rank, handshake->peer, about_link(is, handshake),
                            bytes + 56));
    tri_bytes_write_u64(bytes + 88, XXH3_64bits(bytes, 88));
    return TRI_OK;
}

/* NULL: fine; else what is wrong with it. */
static const char *hello_check(const tri_rendezvous *is, net_handshake *handshake)
{
    const unsigned char *bytes = handshake->hello;
    uint32_t from = tri_bytes_read_u32(bytes + 8);
    unsigned char proof[TRI_AUTH_NBYTES];

    if (tri_bytes_read_u32(bytes) != TRI_HELLO_MAGIC || tri_bytes_read_u64(bytes + 88) != XXH3_64bits(bytes, 88))
        return "does not speak this protocol";
    if (tri_bytes_read_u16(bytes + 4) != TRI_HELLO_VERSION)
        return "speaks another version of the protocol";
    if (tri_bytes_read_u16(bytes + 6) != handshake->step || tri_bytes_read_u32(bytes + 12) != (uint32_t)is->rank ||
        tri_bytes_read_u32(bytes + 16) != (uint32_t)is->world || from >= (uint32_t)is->world)
        return "is not a rank of this job";
    if (handshake->peer < 0) {
        if (from <= (uint32_t)is->rank || (is->addresses && !is->addresses[from]))
            return "is a rank that has no reason to call";
        handshake->peer = (int)from;
    }
    if (from != (uint32_t)handshake->peer)
        return "is another rank than expected";
    if (handshake->step < 3)
        memcpy(handshake->nonces[handshake->dialed ? 1 : 0], bytes + 24, TRI_HANDSHAKE_NONCE_NBYTES);
    if (!about_read(is, handshake, tri_bytes_read_u32(bytes + 20)))
        return "speaks of a connection that cannot be";
    if (handshake->step == 1)
        return NULL;
    if (hello_prove(is, handshake, handshake->step, handshake->peer, is->rank, tri_bytes_read_u32(bytes + 20), proof) !=
        TRI_OK)
        return tri_last_error();
    if (!tri_auth_equals(proof, bytes + 56)) {
        handshake->refused = true;
        return "does not know the token of this job";
    }
    if (is->memory_fd >= 0 && handshake->memory_fd < 0)
        return "sent no memory";
    return NULL;
}

void tri_handshake_dial(net_handshake *handshake, const tri_rendezvous_place *place, int64_t limit_ns)
{
    handshake->refused = false;
    handshake->fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (handshake->fd < 0 || (connect(handshake->fd, (const struct sockaddr *)&place->address, place->nbytes) != 0 &&
                              errno != EINPROGRESS)) {
        tri_handshake_drop(handshake, strerror(errno));
        return;
    }
    handshake->stage = HANDSHAKE_CONNECT;
    handshake->limit_ns = limit_ns;
}

static void receive_start(net_handshake *handshake, int step)
{
    handshake->step = step;
    handshake->stage = HANDSHAKE_RECEIVE;
    handshake->done_nbytes = 0;
}

void tri_handshake_answer(net_handshake *handshake, int fd, int64_t limit_ns)
{
    memset(handshake, 0, sizeof *handshake);
    handshake->fd = fd;
    handshake->memory_fd = -1;
    handshake->peer = -1;
    handshake->limit_ns = limit_ns;
    tri_entropy(handshake->nonces[1], TRI_HANDSHAKE_NONCE_NBYTES);
    receive_start(handshake, 1);
}

/* A secret of this connection: whoever knows the token and heard both nonces has it. */
static tri_status key_derive(const tri_rendezvous *is, net_handshake *handshake)
{
    unsigned char message[16 + 2 * TRI_HANDSHAKE_NONCE_NBYTES] = "trireme key 2";

    memcpy(message + 16, handshake->nonces, 2 * TRI_HANDSHAKE_NONCE_NBYTES);
    return tri_auth_prove(is->token, message, sizeof message, handshake->key);
}

void tri_handshake_send_start(const tri_rendezvous *is, net_handshake *handshake, int step)
{
    handshake->step = step;
    if (hello_encode(is, handshake) != TRI_OK) {
        tri_handshake_drop(handshake, tri_last_error());
        return;
    }
    handshake->stage = HANDSHAKE_SEND;
    handshake->done_nbytes = 0;
}

/* Memory travels with the second and third hello: never to somebody unproven on a socket that is not trusted. */
static ssize_t hello_send(const tri_rendezvous *is, const net_handshake *handshake)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)(handshake->hello + handshake->done_nbytes),
                         TRI_HELLO_NBYTES - handshake->done_nbytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (is->memory_fd >= 0 && handshake->step > 1 && handshake->done_nbytes == 0) {
        struct cmsghdr *head;

        message.msg_control = control;
        message.msg_controllen = sizeof control;
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &is->memory_fd, sizeof(int));
    }
    return sendmsg(handshake->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t hello_receive(net_handshake *handshake)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {handshake->hello + handshake->done_nbytes, TRI_HELLO_NBYTES - handshake->done_nbytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(handshake->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (got < 0)
        return got;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
            int fd;

            memcpy(&fd, CMSG_DATA(head), sizeof fd);
            if (handshake->memory_fd >= 0)
                close(handshake->memory_fd);
            handshake->memory_fd = fd;
        }
    }
    return got;
}

/* The hello of this step has been sent or received as a whole. */
static void handshake_turn(const tri_rendezvous *is, net_handshake *handshake)
{
    const char *wrong;

    if (handshake->stage == HANDSHAKE_SEND) {
        if (handshake->step == 3)
            handshake->stage = HANDSHAKE_DONE;
        else
            receive_start(handshake, handshake->step + 1);
        return;
    }
    wrong = hello_check(is, handshake);
    if (!wrong && handshake->step > 1 && key_derive(is, handshake) != TRI_OK)
        wrong = tri_last_error();
    if (wrong)
        tri_handshake_drop(handshake, wrong);
    else if (handshake->step == 3)
        handshake->stage = HANDSHAKE_DONE;
    else
        tri_handshake_send_start(is, handshake, handshake->step + 1);
}

void tri_handshake_advance(const tri_rendezvous *is, net_handshake *handshake)
{
    while (handshake->stage == HANDSHAKE_SEND || handshake->stage == HANDSHAKE_RECEIVE) {
        bool sends = handshake->stage == HANDSHAKE_SEND;
        ssize_t moved = sends ? hello_send(is, handshake) : hello_receive(handshake);

        if (moved < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (moved <= 0) {
            tri_handshake_drop(handshake, moved == 0 ? "closed the connection" : strerror(errno));
            return;
        }
        handshake->done_nbytes += (size_t)moved;
        if (handshake->done_nbytes == TRI_HELLO_NBYTES)
            handshake_turn(is, handshake);
    }
}
