/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake.c: the meeting of ranks: one poll loop over a listener, the peers dialed, and whoever calls.
 *
 * Invariant: a listener takes a link as made only when the third hello has come, so a caller that gave up in between
 * and dials again replaces its earlier try. Bytes of a stranger are looked at only after their length is right.
 */
#include "net/handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "net/auth.h"
#include "net/bytes.h"

#define NONCE_NBYTES  32
#define TALK_LIMIT_NS (5 * TRI_NS_PER_S)
#define DIAL_PAUSE_NS (50 * TRI_NS_PER_MS)
#define STRANGERS     64 /* callers beyond the world that may talk at once */

/* What a conversation waits for. */
typedef enum talk_stage { TALK_IDLE, TALK_CONNECT, TALK_SEND, TALK_RECEIVE, TALK_DONE } talk_stage;

typedef struct net_talk {
    talk_stage stage;
    bool dialed; /* by us */
    int step;    /* 1 to 3: the hello under way */
    int fd, memory_fd;
    int peer; /* -1: not known yet */
    int attempt;
    bool refused;     /* the peer's proof was wrong in this round */
    int64_t limit_ns; /* gives up then; TALK_IDLE: dials then */
    size_t done_nbytes;
    uint32_t slot_kib;
    unsigned char hello[TRI_HELLO_NBYTES];
    unsigned char nonces[2][NONCE_NBYTES]; /* of the dialer, of the listener */
    char why[96];                          /* the latest failure */
} net_talk;

typedef struct meeting {
    const tri_meeting *is;
    const unsigned char *expected;
    tri_met *met;
    net_talk *dials; /* [world] */
    net_talk *calls; /* [call_count] */
    size_t call_count, call_limit;
    struct pollfd *polls;
} meeting;

static void talk_drop(net_talk *talk, const char *why)
{
    if (talk->fd >= 0)
        close(talk->fd);
    if (talk->memory_fd >= 0)
        close(talk->memory_fd);
    talk->fd = talk->memory_fd = -1;
    talk->stage = TALK_IDLE;
    talk->limit_ns = 0;
    snprintf(talk->why, sizeof talk->why, "%s", why);
}

/* The proof of the side that sends `step`. */
static tri_status hello_prove(const tri_meeting *is, const net_talk *talk, int step, int from, int to,
                              uint32_t slot_kib, unsigned char proof[TRI_AUTH_NBYTES])
{
    unsigned char message[16 + 20 + 2 * NONCE_NBYTES] = "trireme link 1";

    tri_bytes_write_u32(message + 16, (uint32_t)step);
    tri_bytes_write_u32(message + 20, (uint32_t)from);
    tri_bytes_write_u32(message + 24, (uint32_t)to);
    tri_bytes_write_u32(message + 28, (uint32_t)is->world);
    tri_bytes_write_u32(message + 32, slot_kib);
    memcpy(message + 36, talk->nonces, 2 * NONCE_NBYTES);
    return tri_auth_prove(is->token, message, sizeof message, proof);
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
    tri_bytes_write_u32(bytes + 20, is->slot_kib);
    memcpy(bytes + 24, talk->nonces[talk->dialed ? 0 : 1], NONCE_NBYTES);
    if (talk->step > 1)
        TRI_TRY(hello_prove(is, talk, talk->step, is->rank, talk->peer, is->slot_kib, bytes + 56));
    tri_bytes_write_u64(bytes + 88, XXH3_64bits(bytes, 88));
    return TRI_OK;
}

/* NULL: fine; else what is wrong with it. */
static const char *hello_check(const meeting *all, net_talk *talk)
{
    const tri_meeting *is = all->is;
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
        if (from <= (uint32_t)is->rank || !all->expected[from])
            return "is a rank that has no reason to call";
        talk->peer = (int)from;
    }
    if (from != (uint32_t)talk->peer)
        return "is another rank than expected";
    if (talk->step < 3)
        memcpy(talk->nonces[talk->dialed ? 1 : 0], bytes + 24, NONCE_NBYTES);
    talk->slot_kib = tri_bytes_read_u32(bytes + 20);
    if (talk->step == 1)
        return NULL;
    if (hello_prove(is, talk, talk->step, talk->peer, is->rank, talk->slot_kib, proof) != TRI_OK)
        return tri_last_error();
    if (!tri_auth_equals(proof, bytes + 56)) {
        talk->refused = true;
        return "does not know the token of this job";
    }
    if (is->memory_fd >= 0 && talk->memory_fd < 0)
        return "sent no memory";
    return NULL;
}

static void talk_send_start(const tri_meeting *is, net_talk *talk, int step)
{
    talk->step = step;
    if (hello_encode(is, talk) != TRI_OK) {
        talk_drop(talk, tri_last_error());
        return;
    }
    talk->stage = TALK_SEND;
    talk->done_nbytes = 0;
}

static void talk_receive_start(net_talk *talk, int step)
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
static void talk_turn(const meeting *all, net_talk *talk)
{
    const char *wrong;

    if (talk->stage == TALK_SEND) {
        if (talk->step == 3)
            talk->stage = TALK_DONE;
        else
            talk_receive_start(talk, talk->step + 1);
        return;
    }
    wrong = hello_check(all, talk);
    if (wrong)
        talk_drop(talk, wrong);
    else if (talk->step == 3)
        talk->stage = TALK_DONE;
    else
        talk_send_start(all->is, talk, talk->step + 1);
}

/* Goes on as far as it can without waiting. */
static void talk_advance(const meeting *all, net_talk *talk)
{
    while (talk->stage == TALK_SEND || talk->stage == TALK_RECEIVE) {
        bool sends = talk->stage == TALK_SEND;
        ssize_t moved = sends ? hello_send(all->is, talk) : hello_receive(talk);

        if (moved < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (moved <= 0) {
            talk_drop(talk, moved == 0 ? "closed the connection" : strerror(errno));
            return;
        }
        talk->done_nbytes += (size_t)moved;
        if (talk->done_nbytes == TRI_HELLO_NBYTES)
            talk_turn(all, talk);
    }
}

static void dial_start(const meeting *all, net_talk *talk, int64_t now_ns)
{
    int fd = -1;

    if (!all->is->dial(all->is->arg, talk->peer, talk->attempt, &fd)) {
        talk->attempt = 0;
        talk->limit_ns = now_ns + DIAL_PAUSE_NS;
        return;
    }
    talk->attempt++;
    if (fd < 0) {
        talk_drop(talk, strerror(errno));
        return;
    }
    talk->fd = fd;
    talk->stage = TALK_CONNECT;
    talk->limit_ns = now_ns + TALK_LIMIT_NS;
}

static void dial_connected(const meeting *all, net_talk *talk)
{
    int error = 0;
    socklen_t nbytes = sizeof error;

    if (getsockopt(talk->fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) != 0)
        error = errno;
    if (error != 0) {
        talk_drop(talk, strerror(error));
        return;
    }
    if (all->is->trusts && !all->is->trusts(all->is->arg, talk->fd)) {
        talk_drop(talk, "belongs to another user");
        return;
    }
    tri_entropy(talk->nonces[0], NONCE_NBYTES);
    talk_send_start(all->is, talk, 1);
}

static void call_remove(meeting *all, size_t index)
{
    all->calls[index] = all->calls[--all->call_count];
}

static void calls_accept(meeting *all, int64_t now_ns)
{
    for (;;) {
        int fd = accept4(all->is->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        net_talk *talk;

        if (fd < 0)
            return;
        if (all->is->trusts && !all->is->trusts(all->is->arg, fd)) {
            close(fd);
            continue;
        }
        if (all->call_count == all->call_limit) {
            size_t oldest = 0;

            for (size_t i = 1; i < all->call_count; i++) {
                if (all->calls[i].limit_ns < all->calls[oldest].limit_ns)
                    oldest = i;
            }
            talk_drop(&all->calls[oldest], "");
            call_remove(all, oldest);
        }
        talk = &all->calls[all->call_count++];
        memset(talk, 0, sizeof *talk);
        talk->fd = fd;
        talk->memory_fd = -1;
        talk->peer = -1;
        talk->limit_ns = now_ns + TALK_LIMIT_NS;
        tri_entropy(talk->nonces[1], NONCE_NBYTES);
        talk_receive_start(talk, 1);
    }
}

static void met_take(meeting *all, net_talk *talk)
{
    tri_met *met = &all->met[talk->peer];

    if (met->fd >= 0)
        close(met->fd);
    if (met->memory_fd >= 0)
        close(met->memory_fd);
    *met = (tri_met){.fd = talk->fd, .memory_fd = talk->memory_fd, .slot_kib = talk->slot_kib};
    talk->fd = talk->memory_fd = -1;
}

static void calls_advance(meeting *all, int64_t now_ns)
{
    for (size_t i = all->call_count; i-- > 0;) {
        net_talk *talk = &all->calls[i];

        talk_advance(all, talk);
        if (talk->stage == TALK_DONE)
            met_take(all, talk);
        else if (talk->stage != TALK_IDLE && now_ns < talk->limit_ns)
            continue;
        talk_drop(talk, "");
        call_remove(all, i);
    }
}

/* `writable`: what poll said of a socket that is being connected. */
static tri_status dial_advance(meeting *all, net_talk *talk, bool writable, int64_t now_ns)
{
    if (talk->stage == TALK_DONE)
        return TRI_OK;
    if (talk->stage == TALK_CONNECT && writable)
        dial_connected(all, talk);
    talk_advance(all, talk);
    if (talk->stage == TALK_DONE) {
        met_take(all, talk);
        return TRI_OK;
    }
    if (talk->stage != TALK_IDLE && now_ns >= talk->limit_ns)
        talk_drop(talk, "does not answer");
    while (talk->stage == TALK_IDLE && now_ns >= talk->limit_ns) {
        bool first = talk->attempt == 0;

        dial_start(all, talk, now_ns);
        if (!first && talk->attempt == 0 && talk->refused)
            return tri_fail(TRI_EPEER, "%s: rank %d does not know the token of this job", all->is->name, talk->peer);
    }
    return TRI_OK;
}

/* Waits until something can go on. */
static void meeting_wait(meeting *all, int64_t until_ns)
{
    nfds_t count = 0;
    int64_t now_ns;

    all->polls[count++] = (struct pollfd){.fd = all->is->listener, .events = POLLIN};
    for (size_t i = 0; i < (size_t)all->is->world + all->call_count; i++) {
        const net_talk *talk = i < (size_t)all->is->world ? &all->dials[i] : &all->calls[i - (size_t)all->is->world];
        bool reads = talk->stage == TALK_RECEIVE;

        if (talk->fd >= 0)
            all->polls[count++] = (struct pollfd){.fd = talk->fd, .events = reads ? POLLIN : POLLOUT};
        if (talk->limit_ns < until_ns && talk->stage != TALK_DONE && talk->peer != all->is->rank)
            until_ns = talk->limit_ns;
    }
    now_ns = tri_now_ns();
    if (until_ns > now_ns + TRI_NS_PER_S)
        until_ns = now_ns + TRI_NS_PER_S;
    poll(all->polls, count, until_ns <= now_ns ? 0 : (int)((until_ns - now_ns) / TRI_NS_PER_MS) + 1);
}

/* Did the last poll find this socket ready? */
static bool is_writable(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLOUT};

    return fd >= 0 && poll(&one, 1, 0) > 0;
}

static tri_status meeting_late(const meeting *all)
{
    char text[512];
    size_t used = 0;

    text[0] = 0;
    for (int peer = 0; peer < all->is->world && used < sizeof text - 1; peer++) {
        const char *why = "has not called";

        if (!all->expected[peer] || all->met[peer].fd >= 0)
            continue;
        if (peer < all->is->rank)
            why = all->dials[peer].why[0] ? all->dials[peer].why : "does not answer";
        used += (size_t)snprintf(text + used, sizeof text - used, "%srank %d %s", used ? "; " : "", peer, why);
        if (used > sizeof text - 1)
            used = sizeof text - 1;
    }
    return tri_fail(TRI_ETIMEOUT, "%s: rank %d is not linked to all in time: %s", all->is->name, all->is->rank, text);
}

static tri_status meeting_run(meeting *all, int64_t deadline_ns)
{
    for (;;) {
        int64_t now_ns = tri_now_ns();
        bool complete = true;

        for (int peer = 0; peer < all->is->rank; peer++) {
            if (all->expected[peer])
                TRI_TRY(dial_advance(all, &all->dials[peer],
                                     all->dials[peer].stage == TALK_CONNECT && is_writable(all->dials[peer].fd),
                                     now_ns));
        }
        calls_accept(all, now_ns);
        calls_advance(all, now_ns);
        for (int peer = 0; peer < all->is->world; peer++)
            complete &= !all->expected[peer] || all->met[peer].fd >= 0;
        if (complete)
            return TRI_OK;
        if (now_ns >= deadline_ns)
            return meeting_late(all);
        meeting_wait(all, deadline_ns);
    }
}

tri_status tri_meeting_hold(const tri_meeting *is, const unsigned char *expected, int64_t deadline_ns, tri_met *met)
{
    size_t world = (size_t)is->world;
    meeting all = {.is = is, .expected = expected, .met = met, .call_limit = world + STRANGERS};
    tri_status status = TRI_ENOMEM;

    for (size_t i = 0; i < world; i++)
        met[i] = (tri_met){.fd = -1, .memory_fd = -1};
    all.dials = tri_alloc_zero(world, sizeof *all.dials);
    all.calls = tri_alloc_zero(all.call_limit, sizeof *all.calls);
    all.polls = tri_alloc_zero(1 + world + all.call_limit, sizeof *all.polls);
    if (all.dials && all.calls && all.polls) {
        for (size_t i = 0; i < world; i++) {
            all.dials[i].fd = all.dials[i].memory_fd = -1;
            all.dials[i].dialed = true;
            all.dials[i].peer = (int)i;
            all.dials[i].limit_ns = (int)i < is->rank && expected[i] ? 0 : TRI_FOREVER;
        }
        status = meeting_run(&all, deadline_ns);
        for (size_t i = 0; i < world; i++)
            talk_drop(&all.dials[i], "");
        for (size_t i = 0; i < all.call_count; i++)
            talk_drop(&all.calls[i], "");
    }
    for (size_t i = 0; status != TRI_OK && i < world; i++) {
        if (met[i].fd >= 0)
            close(met[i].fd);
        if (met[i].memory_fd >= 0)
            close(met[i].memory_fd);
        met[i] = (tri_met){.fd = -1, .memory_fd = -1};
    }
    tri_free(all.dials);
    tri_free(all.calls);
    tri_free(all.polls);
    return status;
}
