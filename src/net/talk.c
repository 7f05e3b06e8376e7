/* SPDX-License-Identifier: Apache-2.0
 *
 * talk.c: one conversation of a meeting: three hellos, and the memory that travels with them.
 *
 * Bytes of a stranger are looked at only after their length is right.
 */
#include "net/talk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/runtime.h"
#include "net/auth.h"
#include "net/bytes.h"

void tri_talk_drop(net_talk *talk, const char *why)
{
    if (talk->fd >= 0)
        close(talk->fd);
    if (talk->memory_fd >= 0)
        close(talk->memory_fd);
    talk->fd = talk->memory_fd = -1;
    talk->stage = TALK_IDLE;
    talk->step = 0;
    talk->limit_ns = 0;
    snprintf(talk->why, sizeof talk->why, "%s", why);
}

/* The proof of the side that sends `step`. */
static tri_status hello_prove(const tri_meeting *is, const net_talk *talk, int step, int from, int to, uint32_t about,
                              unsigned char proof[TRI_AUTH_NBYTES])
{
    unsigned char message[16 + 20 + 2 * TRI_TALK_NONCE_NBYTES] = "trireme link 2";

    tri_bytes_write_u32(message + 16, (uint32_t)step);
    tri_bytes_write_u32(message + 20, (uint32_t)from);
    tri_bytes_write_u32(message + 24, (uint32_t)to);
    tri_bytes_write_u32(message + 28, (uint32_t)is->world);
    tri_bytes_write_u32(message + 32, about);
    memcpy(message + 36, talk->nonces, 2 * TRI_TALK_NONCE_NBYTES);
    return tri_auth_prove(is->token, message, sizeof message, proof);
}

/* What the hello says of the link: shm: the ring of the sender; tcp: which connection it is, of how many. */
static uint32_t about_link(const tri_meeting *is, const net_talk *talk)
{
    return is->memory_fd >= 0 ? is->slot_kib : (uint32_t)talk->strand | (uint32_t)talk->strands << 8 | is->marks << 16;
}

/* False: cannot be. */
static bool about_read(const tri_meeting *is, net_talk *talk, uint32_t about)
{
    int strand = (int)(about & 0xff), strands = (int)(about >> 8 & 0xff);

    if (is->memory_fd >= 0) {
        talk->slot_kib = about;
        talk->strand = 0;
        talk->strands = 1;
        return true;
    }
    if (strands < 1 || strands > TRI_STRANDS_MAX || strand >= strands)
        return false;
    if (talk->step > 1 && (strand != talk->strand || strands != talk->strands))
        return false;
    talk->strand = strand;
    talk->strands = strands;
    talk->marks = about >> 16;
    return true;
}

static tri_status hello_encode(const tri_meeting *is, net_talk *talk)
{
    unsigned char *bytes = talk->hello;

    memset(bytes, 0, TRI_HELLO_NBYTES);
    tri_bytes_write_u32(bytes, TRI_HELLO_MAGIC);
    tri_bytes_write_u16(bytes + 4, TRI_HELLO_VERSION);
    tri_bytes_write_u16(bytes + 6, (uint16_t)talk->step);
    tri_bytes_write_u32(bytes + 8, (uint32_t)is->rank);
    tri_bytes_write_u32(bytes + 12, (uint32_t)talk->peer);
    tri_bytes_write_u32(bytes + 16, (uint32_t)is->world);
    tri_bytes_write_u32(bytes + 20, about_link(is, talk));
    memcpy(bytes + 24, talk->nonces[talk->dialed ? 0 : 1], TRI_TALK_NONCE_NBYTES);
    if (talk->step > 1)
        TRI_TRY(hello_prove(is, talk, talk->step, is->rank, talk->peer, about_link(is, talk), bytes + 56));
    tri_bytes_write_u64(bytes + 88, XXH3_64bits(bytes, 88));
    return TRI_OK;
}

/* NULL: fine; else what is wrong with it. */
static const char *hello_check(const tri_meeting *is, net_talk *talk)
{
    const unsigned char *bytes = talk->hello;
    uint32_t from = tri_bytes_read_u32(bytes + 8);
    unsigned char proof[TRI_AUTH_NBYTES];

    if (tri_bytes_read_u32(bytes) != TRI_HELLO_MAGIC || tri_bytes_read_u64(bytes + 88) != XXH3_64bits(bytes, 88))
        return "does not speak this protocol";
    if (tri_bytes_read_u16(bytes + 4) != TRI_HELLO_VERSION)
        return "speaks another version of the protocol";
    if (tri_bytes_read_u16(bytes + 6) != talk->step || tri_bytes_read_u32(bytes + 12) != (uint32_t)is->rank ||
        tri_bytes_read_u32(bytes + 16) != (uint32_t)is->world || from >= (uint32_t)is->world)
        return "is not a rank of this job";
    if (talk->peer < 0) {
        if (from <= (uint32_t)is->rank || (is->addresses && !is->addresses[from]))
            return "is a rank that has no reason to call";
        talk->peer = (int)from;
    }
    if (from != (uint32_t)talk->peer)
        return "is another rank than expected";
    if (talk->step < 3)
        memcpy(talk->nonces[talk->dialed ? 1 : 0], bytes + 24, TRI_TALK_NONCE_NBYTES);
    if (!about_read(is, talk, tri_bytes_read_u32(bytes + 20)))
        return "speaks of a connection that cannot be";
    if (talk->step == 1)
        return NULL;
    if (hello_prove(is, talk, talk->step, talk->peer, is->rank, tri_bytes_read_u32(bytes + 20), proof) != TRI_OK)
        return tri_last_error();
    if (!tri_auth_equals(proof, bytes + 56)) {
        talk->refused = true;
        return "does not know the token of this job";
    }
    if (is->memory_fd >= 0 && talk->memory_fd < 0)
        return "sent no memory";
    return NULL;
}

void tri_talk_dial(net_talk *talk, const tri_meeting_place *place, int64_t limit_ns)
{
    talk->refused = false;
    talk->fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (talk->fd < 0 ||
        (connect(talk->fd, (const struct sockaddr *)&place->address, place->nbytes) != 0 && errno != EINPROGRESS)) {
        tri_talk_drop(talk, strerror(errno));
        return;
    }
    talk->stage = TALK_CONNECT;
    talk->limit_ns = limit_ns;
}

void tri_talk_answer(net_talk *talk, int fd, int64_t limit_ns)
{
    memset(talk, 0, sizeof *talk);
    talk->fd = fd;
    talk->memory_fd = -1;
    talk->peer = -1;
    talk->limit_ns = limit_ns;
    tri_entropy(talk->nonces[1], TRI_TALK_NONCE_NBYTES);
    tri_talk_receive_start(talk, 1);
}

/* A secret of this connection: whoever knows the token and heard both nonces has it. */
static tri_status key_derive(const tri_meeting *is, net_talk *talk)
{
    unsigned char message[16 + 2 * TRI_TALK_NONCE_NBYTES] = "trireme key 2";

    memcpy(message + 16, talk->nonces, 2 * TRI_TALK_NONCE_NBYTES);
    return tri_auth_prove(is->token, message, sizeof message, talk->key);
}

void tri_talk_send_start(const tri_meeting *is, net_talk *talk, int step)
{
    talk->step = step;
    if (hello_encode(is, talk) != TRI_OK) {
        tri_talk_drop(talk, tri_last_error());
        return;
    }
    talk->stage = TALK_SEND;
    talk->done_nbytes = 0;
}

void tri_talk_receive_start(net_talk *talk, int step)
{
    talk->step = step;
    talk->stage = TALK_RECEIVE;
    talk->done_nbytes = 0;
}

/* Memory travels with the second and third hello: never to somebody unproven on a socket that is not trusted. */
static ssize_t hello_send(const tri_meeting *is, const net_talk *talk)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)(talk->hello + talk->done_nbytes), TRI_HELLO_NBYTES - talk->done_nbytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (is->memory_fd >= 0 && talk->step > 1 && talk->done_nbytes == 0) {
        struct cmsghdr *head;

        message.msg_control = control;
        message.msg_controllen = sizeof control;
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &is->memory_fd, sizeof(int));
    }
    return sendmsg(talk->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t hello_receive(net_talk *talk)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {talk->hello + talk->done_nbytes, TRI_HELLO_NBYTES - talk->done_nbytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(talk->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (got < 0)
        return got;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
            int fd;

            memcpy(&fd, CMSG_DATA(head), sizeof fd);
            if (talk->memory_fd >= 0)
                close(talk->memory_fd);
            talk->memory_fd = fd;
        }
    }
    return got;
}

/* The hello of this step has been sent or received as a whole. */
static void talk_turn(const tri_meeting *is, net_talk *talk)
{
    const char *wrong;

    if (talk->stage == TALK_SEND) {
        if (talk->step == 3)
            talk->stage = TALK_DONE;
        else
            tri_talk_receive_start(talk, talk->step + 1);
        return;
    }
    wrong = hello_check(is, talk);
    if (!wrong && talk->step > 1 && key_derive(is, talk) != TRI_OK)
        wrong = tri_last_error();
    if (wrong)
        tri_talk_drop(talk, wrong);
    else if (talk->step == 3)
        talk->stage = TALK_DONE;
    else
        tri_talk_send_start(is, talk, talk->step + 1);
}

void tri_talk_advance(const tri_meeting *is, net_talk *talk)
{
    while (talk->stage == TALK_SEND || talk->stage == TALK_RECEIVE) {
        bool sends = talk->stage == TALK_SEND;
        ssize_t moved = sends ? hello_send(is, talk) : hello_receive(talk);

        if (moved < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (moved <= 0) {
            tri_talk_drop(talk, moved == 0 ? "closed the connection" : strerror(errno));
            return;
        }
        talk->done_nbytes += (size_t)moved;
        if (talk->done_nbytes == TRI_HELLO_NBYTES)
            talk_turn(is, talk);
    }
}
