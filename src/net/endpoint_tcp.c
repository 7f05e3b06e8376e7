/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_tcp.c: the endpoint over TCP: sockets that never block, and one epoll set.
 *
 * Buffers of the kernel are left to its autotuning. A read that gives less than it could and a write that takes less
 * mean that there is no more by now: the next edge tells when there is.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "net/endpoint_tcp_impl.h"

#define SCRATCH_NBYTES ((size_t)64 << 10)
#define EVENTS         256
#define LONGEST_NS     (60 * TRI_NS_PER_S)

static tcp_endpoint *tcp_of(tri_endpoint *endpoint)
{
    return (tcp_endpoint *)endpoint;
}

static tcp_connection *tcp_connection_of(tri_connection *connection)
{
    return (tcp_connection *)connection;
}

bool tri_endpoint_tcp_watch(const tcp_endpoint *tcp, int how, int fd, uint32_t events, tcp_source *source)
{
    struct epoll_event event = {.events = events, .data = {.ptr = source}};

    return epoll_ctl(tcp->epoll, how, fd, &event) == 0;
}

/* A process that was forked a moment ago may hold the socket too: events of it would continue. */
void tri_endpoint_tcp_close(const tcp_endpoint *tcp, int fd)
{
    epoll_ctl(tcp->epoll, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

/* ---- opening and closing */

static void tcp_close(tri_endpoint *endpoint)
{
    tcp_endpoint *tcp = tcp_of(endpoint);

    tri_endpoint_tcp_strangers_close(tcp);
    tri_tcp_door_close(&tcp->door);
    tri_tls_context_destroy(tcp->tls);
    if (tcp->wake_fd >= 0)
        close(tcp->wake_fd);
    if (tcp->epoll >= 0)
        close(tcp->epoll);
}

static tri_status tcp_listen(tcp_endpoint *tcp)
{
    TRI_TRY(tri_tcp_door_open(tcp->base.config.interface, tcp->base.config.ports, &tcp->door));
    /* Who only dials needs to know its own places, to see which of others' are near. */
    if (!tcp->base.setup.listens)
        tri_tcp_door_close(&tcp->door);
    for (int i = 0; i < tcp->door.count; i++) {
        if (!tri_endpoint_tcp_watch(tcp, EPOLL_CTL_ADD, tcp->door.listeners[i], EPOLLIN, &tcp->listener_source))
            return tri_fail(TRI_EIO, "cannot poll a listener: %s", strerror(errno));
    }
    return TRI_OK;
}

static tri_status tcp_open(tri_endpoint *endpoint)
{
    tcp_endpoint *tcp = tcp_of(endpoint);
    tri_status status = TRI_OK;

    tri_endpoint_node_head(&tcp->strangers);
    tcp->wake_source = SOURCE_WAKE;
    tcp->listener_source = SOURCE_LISTENER;
    tcp->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (tcp->wake_fd < 0 || tcp->epoll < 0 ||
        !tri_endpoint_tcp_watch(tcp, EPOLL_CTL_ADD, tcp->wake_fd, EPOLLIN, &tcp->wake_source))
        status = tri_fail(TRI_EIO, "no eventfd or epoll: %s", strerror(errno));
    if (status == TRI_OK && endpoint->config.encrypt)
        status = tri_tls_context_create(true, &tcp->tls);
    if (status == TRI_OK)
        status = tcp_listen(tcp);
    if (status != TRI_OK)
        tcp_close(endpoint);
    return status;
}

static const char *tcp_address(const tri_endpoint *endpoint)
{
    return ((const tcp_endpoint *)endpoint)->door.address;
}

/* ---- connections */

tri_status tri_endpoint_tcp_connection(tcp_endpoint *tcp, int fd, tri_tls *tls, int how, const char *from,
                                       tcp_connection **out)
{
    tri_connection *base;
    tcp_connection *connection;
    tri_status status = tri_connection_create(&tcp->base, sizeof *connection, &base);

    if (status != TRI_OK) {
        tri_tls_close(tls);
        close(fd);
        return status;
    }
    connection = tcp_connection_of(base);
    connection->source = SOURCE_LINE;
    connection->fd = fd;
    connection->tls = tls;
    snprintf(base->from, sizeof base->from, "%s", from);
    if (!tri_endpoint_tcp_watch(tcp, how, fd, TRI_ENDPOINT_TCP_EVENTS, &connection->source)) {
        status = tri_fail(TRI_EIO, "cannot poll a socket: %s", strerror(errno));
        base->dialed = true; /* nobody has counted it */
        tri_connection_end(base, TRI_EPEER);
        return status;
    }
    /* What was read together with the end of the handshake is nothing that epoll tells of. */
    base->readable = tls != NULL;
    *out = connection;
    return TRI_OK;
}

static void tcp_connection_end(tri_connection *base)
{
    tcp_connection *connection = tcp_connection_of(base);

    tri_tls_close(connection->tls);
    tri_endpoint_tcp_close(tcp_of(base->endpoint), connection->fd);
    connection->tls = NULL;
    connection->fd = -1;
}

/* ---- polling */

static void connection_event(tcp_connection *connection, uint32_t events)
{
    if (connection->base.state != CONNECTION_OPEN)
        return;
    connection->has_hung |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        tri_connection_readable(&connection->base);
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        tri_connection_writable(&connection->base);
}

static void source_event(tcp_endpoint *tcp, tcp_source *source, uint32_t events)
{
    uint64_t rings;

    switch (*source) {
    case SOURCE_LINE:
        connection_event(tri_container_of(source, tcp_connection, source), events);
        break;
    case SOURCE_STRANGER:
        tri_endpoint_tcp_stranger_advance(tcp, tri_container_of(source, tcp_stranger, source));
        break;
    case SOURCE_LISTENER:
        tcp->is_called = true;
        break;
    case SOURCE_WAKE:
        tcp->base.is_woken = true;
        (void)!read(tcp->wake_fd, &rings, sizeof rings);
        break;
    }
}

/* Milliseconds, rounded up. */
static int pause_ms(int64_t until_ns)
{
    int64_t now_ns = until_ns > 0 ? tri_now_ns() : 0;

    if (until_ns <= now_ns)
        return 0;
    if (until_ns - now_ns > LONGEST_NS)
        until_ns = now_ns + LONGEST_NS;
    return (int)((until_ns - now_ns - 1) / TRI_NS_PER_MS + 1);
}

tri_status tri_endpoint_tcp_poll(tri_endpoint *endpoint, int64_t deadline_ns)
{
    tcp_endpoint *tcp = tcp_of(endpoint);
    struct epoll_event events[EVENTS];
    int count;

    if (tcp->crowd.all.count > 0 || tcp->accept_after_ns > 0) {
        int64_t next_ns = tri_endpoint_tcp_sweep(tcp, tri_now_ns());

        deadline_ns = next_ns < deadline_ns ? next_ns : deadline_ns;
    }
    count = epoll_wait(tcp->epoll, events, EVENTS, pause_ms(deadline_ns));
    if (count < 0 && errno != EINTR)
        return tri_fail(TRI_EIO, "%s: cannot wait: %s", endpoint->name, strerror(errno));
    for (int i = 0; i < count; i++)
        source_event(tcp, events[i].data.ptr, events[i].events);
    /* After the events: others may have to make room, and events are of those who were there before. */
    if (tcp->is_called)
        tri_endpoint_tcp_accept(tcp);
    tcp->is_called = false;
    return TRI_OK;
}

static void tcp_wake(tri_endpoint *endpoint)
{
    const uint64_t one = 1;

    /* Full: a turn will end. */
    (void)!write(tcp_of(endpoint)->wake_fd, &one, sizeof one);
}

/* ---- bytes */

/* The message that is set says why. What has come can still be read, and then there is an end. */
static tri_status write_failed(const tcp_connection *connection)
{
    (void)shutdown(connection->fd, SHUT_RDWR);
    return TRI_EPEER;
}

static tri_status connection_gone(int error)
{
    if (error == 0 || error == EPIPE || error == ECONNRESET)
        return tri_fail(TRI_EPEER, "connection closed");
    return tri_fail(TRI_EPEER, "%s", strerror(error));
}

static tri_status tls_read(tcp_connection *connection, const endpoint_room rooms[2], size_t *given)
{
    *given = 0;
    for (int i = 0; i < 2; i++) {
        size_t done = 0, got = 1;

        while (done < rooms[i].nbytes && got > 0) {
            tri_status status = tri_tls_read(connection->tls, rooms[i].bytes + done, rooms[i].nbytes - done, &got);

            if (status != TRI_OK)
                return *given > 0 ? TRI_OK : status;
            done += got;
            *given += got;
        }
        connection->base.readable = done == rooms[i].nbytes;
        if (!connection->base.readable)
            break;
    }
    return TRI_OK;
}

static tri_status tcp_read(tri_connection *base, const endpoint_room rooms[2], size_t *given)
{
    tcp_connection *connection = tcp_connection_of(base);
    size_t skip = rooms[0].nbytes == 0, wanted = rooms[0].nbytes + rooms[1].nbytes;
    struct iovec parts[2] = {{rooms[0].bytes, rooms[0].nbytes}, {rooms[1].bytes, rooms[1].nbytes}};
    ssize_t got;

    if (connection->tls)
        return tls_read(connection, rooms, given);
    got = readv(connection->fd, parts + skip, 2 - (int)skip);
    *given = got > 0 ? (size_t)got : 0;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        return connection_gone(got == 0 ? 0 : errno);
    /* An end that was reported comes after the bytes that were given. */
    base->readable = got < 0 ? errno == EINTR : *given == wanted || connection->has_hung;
    return TRI_OK;
}

/* The next bytes of the parts as one piece that makes a record; a long one is not copied. */
static tri_part record_gather(const tri_part *parts, size_t count, size_t done, unsigned char *record)
{
    size_t used = 0;

    for (size_t i = 0; i < count && used < TRI_TLS_RECORD_NBYTES; i++) {
        size_t left = parts[i].nbytes, room = TRI_TLS_RECORD_NBYTES - used;

        if (done >= left) {
            done -= left;
            continue;
        }
        left -= done;
        if (used == 0 && (left >= room || i + 1 == count))
            return (tri_part){(const unsigned char *)parts[i].bytes + done, left < room ? left : room};
        left = left < room ? left : room;
        memcpy(record + used, (const unsigned char *)parts[i].bytes + done, left);
        used += left;
        done = 0;
    }
    return (tri_part){record, used};
}

static tri_status tls_write(tcp_connection *connection, const tri_part *parts, size_t count, size_t total,
                            size_t *taken, size_t *promised)
{
    unsigned char record[TRI_TLS_RECORD_NBYTES];
    bool corks = total > TRI_TLS_RECORD_NBYTES;
    int on = 1, off = 0;
    tri_status status = TRI_OK;

    /* Records of one call need not be packets of their own. */
    if (corks)
        (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    while (*taken < total && !connection->base.full) {
        tri_part part = record_gather(parts, count, *taken, record);
        size_t took;

        /* After a record that did not go as a whole its last byte comes alone. */
        status = tri_tls_write(connection->tls, part.bytes, part.nbytes, &took);
        if (status != TRI_OK)
            break;
        *taken += took;
        connection->base.full = took < part.nbytes && !(connection->is_held && took == 1);
        *promised = connection->base.full;
        connection->is_held = connection->base.full;
    }
    if (corks)
        (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    return status == TRI_OK ? TRI_OK : write_failed(connection);
}

static tri_status tcp_write(tri_connection *base, const tri_part *parts, size_t count, size_t *taken, size_t *promised)
{
    tcp_connection *connection = tcp_connection_of(base);
    struct iovec out[TRI_ENDPOINT_PARTS];
    struct msghdr message = {.msg_iov = out, .msg_iovlen = count};
    size_t total = 0;
    ssize_t sent;

    *taken = *promised = 0;
    for (size_t i = 0; i < count; i++) {
        out[i] = (struct iovec){(void *)(uintptr_t)parts[i].bytes, parts[i].nbytes};
        total += parts[i].nbytes;
    }
    if (connection->tls)
        return tls_write(connection, parts, count, total, taken, promised);
    sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        connection_gone(errno);
        return write_failed(connection);
    }
    *taken = sent > 0 ? (size_t)sent : 0;
    base->full = *taken < total && !(sent < 0 && errno == EINTR);
    return TRI_OK;
}

/* Closing a socket that still has unread bytes would throw away what was sent. */
static void tcp_drain(tri_endpoint *endpoint, int64_t deadline_ns)
{
    for (endpoint_node *node = endpoint->connections.next; node != &endpoint->connections; node = node->next)
        shutdown(tri_container_of(node, tcp_connection, base.all)->fd, SHUT_WR);
    for (;;) {
        bool waits = false;

        for (endpoint_node *node = endpoint->connections.next; node != &endpoint->connections; node = node->next) {
            int fd = tri_container_of(node, tcp_connection, base.all)->fd, left = 0;
            ssize_t got;

            do
                got = recv(fd, endpoint->scratch, SCRATCH_NBYTES, MSG_DONTWAIT);
            while (got > 0);
            /* The end itself counts as one, and nobody hurries to acknowledge it. */
            waits |= got < 0 && errno == EAGAIN && ioctl(fd, SIOCOUTQ, &left) == 0 && left > 1;
        }
        if (!waits || tri_now_ns() >= deadline_ns)
            return;
        tri_sleep_ns(TRI_NS_PER_MS);
    }
}

const tri_endpoint_ops tri_endpoint_tcp = {
    .name = "tcp",
    .nbytes = sizeof(tcp_endpoint),
    .scratch_nbytes = SCRATCH_NBYTES,
    .open = tcp_open,
    .address = tcp_address,
    .dial = tri_endpoint_tcp_dial,
    .poll = tri_endpoint_tcp_poll,
    .read = tcp_read,
    .write = tcp_write,
    .wake = tcp_wake,
    .drain = tcp_drain,
    .connection_end = tcp_connection_end,
    .close = tcp_close,
};
