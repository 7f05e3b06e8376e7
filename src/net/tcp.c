/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp.c: ranks of different machines: one TCP connection between each two.
 *
 * Sockets never block; poll() waits. Small reads go through a buffer per link, so that the head of a frame does not
 * cost a call of its own; large ones go straight to where they belong. Buffers of the kernel are left to its
 * autotuning.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "net/tcp_address.h"
#include "net/tcp_meet.h"
#include "net/transport.h"

#define BUFFER_NBYTES  ((size_t)16 << 10)
#define CLOSE_LIMIT_NS (100 * TRI_NS_PER_MS)
#define CLOSE_STEP_NS  TRI_NS_PER_MS

typedef struct tcp_link {
    int fd; /* -1: not linked */
    unsigned char *buffer;
    size_t first, count; /* in the buffer, not yet read */
} tcp_link;

typedef struct tcp_transport {
    tri_transport base;
    const char *token;
    double timeout_s;
    int listener;
    char address[TRI_TCP_ADDRESS_NBYTES];
    tcp_link *links;      /* [world] */
    struct pollfd *polls; /* [1 + world] */
    int wake_fd;          /* eventfd: ends a wait */
} tcp_transport;

/* Gives what was sent the time to arrive: closing a socket that still has unread bytes would throw it away. */
static void links_drain(tcp_transport *tcp)
{
    int64_t until_ns = tri_deadline_after_ms(CLOSE_LIMIT_NS / TRI_NS_PER_MS);
    unsigned char waste[4096];

    for (int peer = 0; peer < tcp->base.world; peer++) {
        if (tcp->links[peer].fd >= 0)
            shutdown(tcp->links[peer].fd, SHUT_WR);
    }
    for (;;) {
        bool waits = false;

        for (int peer = 0; peer < tcp->base.world; peer++) {
            int fd = tcp->links[peer].fd, left = 0;
            ssize_t got;

            if (fd < 0)
                continue;
            do
                got = recv(fd, waste, sizeof waste, MSG_DONTWAIT);
            while (got > 0);
            waits |= got < 0 && errno == EAGAIN && ioctl(fd, SIOCOUTQ, &left) == 0 && left > 0;
        }
        if (!waits || tri_now_ns() >= until_ns)
            return;
        tri_sleep_ns(CLOSE_STEP_NS);
    }
}

static void tcp_close(tri_transport *transport)
{
    tcp_transport *tcp = (tcp_transport *)transport;

    if (!tcp)
        return;
    if (tcp->links)
        links_drain(tcp);
    for (int peer = 0; tcp->links && peer < transport->world; peer++) {
        if (tcp->links[peer].fd >= 0)
            close(tcp->links[peer].fd);
        tri_free(tcp->links[peer].buffer);
    }
    if (tcp->listener >= 0)
        close(tcp->listener);
    if (tcp->wake_fd >= 0)
        close(tcp->wake_fd);
    tri_free(tcp->links);
    tri_free(tcp->polls);
    tri_free(tcp);
}

static tri_status tcp_open(const tri_transport_setup *setup, tri_transport **out)
{
    size_t world = (size_t)setup->world;
    tcp_transport *tcp = tri_alloc_zero(1, sizeof *tcp);
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (!tcp)
        return TRI_ENOMEM;
    tcp->base = (tri_transport){.ops = &tri_transport_tcp, .rank = setup->rank, .world = setup->world};
    tcp->token = setup->token;
    tcp->timeout_s = setup->config->timeout_s;
    tcp->listener = -1;
    tcp->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->links = tri_alloc_zero(world, sizeof *tcp->links);
    tcp->polls = tri_alloc_zero(1 + world, sizeof *tcp->polls);
    for (size_t i = 0; tcp->links && i < world; i++)
        tcp->links[i].fd = -1;
    if (tcp->links && tcp->polls)
        status = tcp->wake_fd >= 0 ? TRI_OK : tri_fail(TRI_EIO, "tcp: eventfd: %s", strerror(errno));
    if (status == TRI_OK)
        status = tri_tcp_listen(setup->config->interface, &tcp->listener, tcp->address);
    if (status != TRI_OK) {
        tcp_close(&tcp->base);
        return status;
    }
    *out = &tcp->base;
    return TRI_OK;
}

static const char *tcp_address(const tri_transport *transport)
{
    return ((const tcp_transport *)transport)->address;
}

static tri_status tcp_connect(tri_transport *transport, const char *const *addresses, int64_t deadline_ns)
{
    tcp_transport *tcp = (tcp_transport *)transport;
    size_t world = (size_t)transport->world;
    tri_met *met;
    tri_status status =
        tri_tcp_meet("tcp", transport->rank, transport->world, tcp->token, tcp->listener, addresses, deadline_ns, &met);

    for (size_t i = 0; status == TRI_OK && i < world; i++)
        tcp->links[i].fd = met[i].fd;
    for (size_t i = 0; status == TRI_OK && i < world; i++) {
        if (met[i].fd < 0)
            continue;
        tcp->links[i].buffer = tri_alloc(BUFFER_NBYTES);
        status = tcp->links[i].buffer ? tri_tcp_tune(tcp->links[i].fd, tcp->timeout_s) : TRI_ENOMEM;
    }
    close(tcp->listener);
    tcp->listener = -1;
    tri_free(met);
    return status;
}

static tri_status peer_gone(int peer, int error)
{
    if (error == 0 || error == EPIPE || error == ECONNRESET)
        return tri_fail(TRI_EPEER, "rank %d is gone (connection closed)", peer);
    return tri_fail(TRI_EPEER, "rank %d is gone (%s)", peer, strerror(error));
}

static tri_status tcp_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken)
{
    const tcp_link *link = &((tcp_transport *)transport)->links[peer];
    ssize_t sent = send(link->fd, bytes, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    *taken = sent > 0 ? (size_t)sent : 0;
    if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
        return peer_gone(peer, errno);
    return TRI_OK;
}

static tri_status socket_read(const tcp_link *link, int peer, void *bytes, size_t nbytes, size_t *given)
{
    ssize_t got = recv(link->fd, bytes, nbytes, MSG_DONTWAIT);

    *given = got > 0 ? (size_t)got : 0;
    if (got == 0)
        return peer_gone(peer, 0);
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        return peer_gone(peer, errno);
    return TRI_OK;
}

static tri_status tcp_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given)
{
    tcp_link *link = &((tcp_transport *)transport)->links[peer];

    *given = 0;
    if (nbytes == 0)
        return TRI_OK;
    if (link->count == 0 && nbytes >= BUFFER_NBYTES)
        return socket_read(link, peer, bytes, nbytes, given);
    if (link->count == 0) {
        link->first = 0;
        TRI_TRY(socket_read(link, peer, link->buffer, BUFFER_NBYTES, &link->count));
    }
    *given = nbytes < link->count ? nbytes : link->count;
    memcpy(bytes, link->buffer + link->first, *given);
    link->first += *given;
    link->count -= *given;
    return TRI_OK;
}

static tri_status tcp_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns)
{
    tcp_transport *tcp = (tcp_transport *)transport;
    nfds_t count = 0;
    struct timespec limit;
    int64_t left_ns;
    uint64_t rung;

    tcp->polls[count++] = (struct pollfd){.fd = tcp->wake_fd, .events = POLLIN};
    for (int peer = 0; peer < transport->world; peer++) {
        const tcp_link *link = &tcp->links[peer];

        if (!want[peer] || link->fd < 0)
            continue;
        if ((want[peer] & TRI_WANT_READ) && link->count > 0)
            return TRI_OK;
        tcp->polls[count++] = (struct pollfd){
            .fd = link->fd,
            .events = (short)((want[peer] & TRI_WANT_READ ? POLLIN : 0) | (want[peer] & TRI_WANT_WRITE ? POLLOUT : 0))};
    }
    left_ns = deadline_ns - tri_now_ns();
    if (left_ns < 0)
        left_ns = 0;
    limit = (struct timespec){.tv_sec = (time_t)(left_ns / TRI_NS_PER_S), .tv_nsec = (long)(left_ns % TRI_NS_PER_S)};
    if (ppoll(tcp->polls, count, &limit, NULL) < 0 && errno != EINTR)
        return tri_fail(TRI_EIO, "tcp: cannot wait: %s", strerror(errno));
    if (tcp->polls[0].revents)
        (void)!read(tcp->wake_fd, &rung, sizeof rung);
    return TRI_OK;
}

static void tcp_wake(tri_transport *transport)
{
    const uint64_t one = 1;

    /* Full: a wait will end. */
    (void)!write(((tcp_transport *)transport)->wake_fd, &one, sizeof one);
}

const tri_transport_ops tri_transport_tcp = {
    .name = "tcp",
    .does = "TCP connections between machines",
    .between_hosts = true,
    .open = tcp_open,
    .address = tcp_address,
    .connect = tcp_connect,
    .write_some = tcp_write_some,
    .read_some = tcp_read_some,
    .wait = tcp_wait,
    .wake = tcp_wake,
    .close = tcp_close,
};
