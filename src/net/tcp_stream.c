/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_stream.c: bytes in and out of a link, over its sockets in turn.
 *
 * One call moves a bounded number of bytes, so that what one side writes is read while it is still in the cache, and
 * sending and receiving take turns. A socket that is full (or empty) holds up the stream: the next bytes belong
 * there.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/runtime.h"
#include "net/tcp_impl.h"

#define CALL_NBYTES ((size_t)516 << 10) /* half a MiB with its head */

static tri_status peer_gone(int peer, int error)
{
    if (error == 0 || error == EPIPE || error == ECONNRESET)
        return tri_fail(TRI_EPEER, "rank %d is gone (connection closed)", peer);
    return tri_fail(TRI_EPEER, "rank %d is gone (%s)", peer, strerror(error));
}

/* The message that is set says why TLS ended. */
static tri_status tls_gone(int peer)
{
    char reason[96];

    snprintf(reason, sizeof reason, "%s", tri_last_error());
    return tri_fail(TRI_EPEER, "rank %d is gone (%s)", peer, reason);
}

/* Nothing moved: has one of the other sockets been closed for long? A peer that leaves closes all. */
static tri_status hung_check(const tcp_link *link, int peer)
{
    if (link->hung_ns != 0 && tri_now_ns() - link->hung_ns >= TRI_TCP_HUNG_LIMIT_NS)
        return peer_gone(peer, 0);
    return TRI_OK;
}

/* Bytes that may go to or come from the socket of a position before the next one's turn. */
static size_t segment_left(const tcp_link *link, uint64_t position)
{
    return link->sockets == 1 ? CALL_NBYTES : (size_t)(TRI_TCP_SEGMENT_NBYTES - position % TRI_TCP_SEGMENT_NBYTES);
}

/* The bytes [done, done + limit) of the parts. */
static size_t parts_cut(const tri_part *parts, size_t count, size_t done, size_t limit, struct iovec out[TRI_PARTS_MAX])
{
    size_t used = 0;

    for (size_t i = 0; i < count && limit > 0; i++) {
        size_t nbytes = parts[i].nbytes;

        if (done >= nbytes) {
            done -= nbytes;
            continue;
        }
        nbytes = nbytes - done < limit ? nbytes - done : limit;
        out[used++] = (struct iovec){(char *)(uintptr_t)parts[i].bytes + done, nbytes};
        limit -= nbytes;
        done = 0;
    }
    return used;
}

/* Without blocking to one socket; *sent may be 0. */
static tri_status socket_write(const tcp_link *link, int socket, int peer, struct iovec *cut, size_t count,
                               size_t *sent)
{
    struct msghdr message = {.msg_iov = cut, .msg_iovlen = count};
    unsigned char gathered[TRI_TLS_RECORD_NBYTES];
    ssize_t done;

    if (!link->tls[socket]) {
        done = sendmsg(link->fds[socket], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        *sent = done > 0 ? (size_t)done : 0;
        if (done < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return peer_gone(peer, errno);
        return TRI_OK;
    }
    /* One record for the head and what fits of the payload. */
    if (count > 1) {
        size_t used = 0;

        for (size_t i = 0; i < count && used < sizeof gathered; i++) {
            size_t nbytes = cut[i].iov_len < sizeof gathered - used ? cut[i].iov_len : sizeof gathered - used;

            memcpy(gathered + used, cut[i].iov_base, nbytes);
            used += nbytes;
        }
        cut[0] = (struct iovec){gathered, used};
    }
    if (tri_tls_write(link->tls[socket], cut[0].iov_base, cut[0].iov_len, sent) != TRI_OK)
        return tls_gone(peer);
    return TRI_OK;
}

static void cork_set(const tcp_link *link, int on)
{
    /* Without it records are sent one by one: slower, not wrong. */
    (void)setsockopt(link->fds[0], IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}

tri_status tri_tcp_write_parts(tri_transport *transport, int peer, const tri_part *parts, size_t count, size_t *taken)
{
    tcp_link *link = &((tcp_transport *)transport)->links[peer];
    size_t total = 0;
    bool corks;

    *taken = 0;
    TRI_ASSERT(count <= TRI_PARTS_MAX);
    for (size_t i = 0; i < count; i++)
        total += parts[i].nbytes;
    total = total < CALL_NBYTES ? total : CALL_NBYTES;
    corks = link->tls[0] && link->sockets == 1 && total > TRI_TLS_RECORD_NBYTES;
    /* Records of one call need not be packets of their own. */
    if (corks)
        cork_set(link, 1);
    while (*taken < total) {
        size_t room = segment_left(link, link->written), wanted = total - *taken < room ? total - *taken : room, sent;
        struct iovec cut[TRI_PARTS_MAX];
        size_t cuts = parts_cut(parts, count, *taken, wanted, cut);
        tri_status status = socket_write(link, tri_tcp_socket(link, link->written), peer, cut, cuts, &sent);

        if (status != TRI_OK && *taken == 0)
            return status;
        if (status != TRI_OK)
            break;
        *taken += sent;
        link->written += sent;
        if (sent == 0 || (sent < wanted && !link->tls[0]))
            break;
    }
    if (corks)
        cork_set(link, 0);
    return *taken > 0 ? TRI_OK : hung_check(link, peer);
}

tri_status tri_tcp_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken)
{
    return tri_tcp_write_parts(transport, peer, &(tri_part){bytes, nbytes}, 1, taken);
}

/* Without blocking from one socket; *got may be 0. */
static tri_status socket_read(const tcp_link *link, int socket, int peer, void *bytes, size_t nbytes, size_t *got)
{
    ssize_t done;

    if (link->tls[socket])
        return tri_tls_read(link->tls[socket], bytes, nbytes, got) == TRI_OK ? TRI_OK : tls_gone(peer);
    done = recv(link->fds[socket], bytes, nbytes, MSG_DONTWAIT);
    *got = done > 0 ? (size_t)done : 0;
    if (done == 0 || (done < 0 && errno != EAGAIN && errno != EINTR))
        return peer_gone(peer, done == 0 ? 0 : errno);
    return TRI_OK;
}

/* Straight from the sockets. */
static tri_status sockets_read(tcp_link *link, int peer, void *bytes, size_t nbytes, size_t *given)
{
    *given = 0;
    nbytes = nbytes < CALL_NBYTES ? nbytes : CALL_NBYTES;
    while (*given < nbytes) {
        size_t left = segment_left(link, link->read), wanted = nbytes - *given < left ? nbytes - *given : left, got;
        tri_status status =
            socket_read(link, tri_tcp_socket(link, link->read), peer, (char *)bytes + *given, wanted, &got);

        if (status != TRI_OK)
            return *given > 0 ? TRI_OK : status;
        *given += got;
        link->read += got;
        if (got == 0 || (got < wanted && !link->tls[0]))
            break;
    }
    if (*given == 0)
        return hung_check(link, peer);
    if (link->hung_ns != 0)
        link->hung_ns = tri_now_ns();
    return TRI_OK;
}

tri_status tri_tcp_buffer_fill(tcp_link *link, int peer, size_t *given)
{
    tri_status status = sockets_read(link, peer, link->buffer, TRI_TCP_BUFFER_NBYTES, given);

    link->first = 0;
    link->count = *given;
    return status;
}

tri_status tri_tcp_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given)
{
    tcp_link *link = &((tcp_transport *)transport)->links[peer];
    size_t filled;

    *given = 0;
    if (nbytes == 0)
        return TRI_OK;
    if (link->count == 0 && nbytes >= TRI_TCP_BUFFER_NBYTES)
        return sockets_read(link, peer, bytes, nbytes, given);
    if (link->count == 0)
        TRI_TRY(tri_tcp_buffer_fill(link, peer, &filled));
    *given = nbytes < link->count ? nbytes : link->count;
    memcpy(bytes, link->buffer + link->first, *given);
    link->first += *given;
    link->count -= *given;
    return TRI_OK;
}
