/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_impl.h: what tcp.c, tcp_stream.c and tcp_wait.c share: the sockets of the links of a rank.
 *
 * The byte stream of a link, each way, is cut into segments of TRI_TCP_SEGMENT_NBYTES by position; segment k travels on
 * socket k modulo the number of sockets. So both sides know without a word where the next byte goes and comes from.
 * For these files only.
 */
#ifndef TRI_NET_TCP_IMPL_H
#define TRI_NET_TCP_IMPL_H

#include <poll.h>

#include "net/rendezvous.h"
#include "net/tcp_address.h"
#include "net/tls.h"
#include "net/transport.h"

#define TRI_TCP_SEGMENT_NBYTES ((uint64_t)16 << 10)
#define TRI_TCP_BUFFER_NBYTES  ((size_t)16 << 10)

typedef struct tcp_link {
    int fds[TRI_LINK_SOCKETS_MAX];
    tri_tls *tls[TRI_LINK_SOCKETS_MAX]; /* NULL: not encrypted */
    bool hung[TRI_LINK_SOCKETS_MAX];    /* the other side closed this socket, or it broke */
    int sockets;                        /* 0: not linked */
    int64_t hung_ns;        /* since when a socket is hung and nothing comes on the others; 0: none is hung */
    uint64_t written, read; /* bytes of the two streams so far */
    unsigned char *buffer;  /* so that the head of a frame does not cost a call of its own */
    size_t first, count;    /* in the buffer, read but not yet given */
} tcp_link;

typedef struct tcp_transport {
    tri_transport base;
    const tri_net_config *config;
    const char *const *addresses; /* of all, while they meet */
    const char *token;
    int listeners[TRI_TCP_PLACES_MAX];
    int listener_count;
    char address[TRI_TCP_ADDRESS_NBYTES];
    tcp_link *links;      /* [world] */
    tri_tls_context *tls; /* NULL: nothing is encrypted */
    struct pollfd *polls; /* [1 + world * TRI_LINK_SOCKETS_MAX] */
    int wake_fd;          /* eventfd: ends a wait */
    int64_t spin_ns;      /* looks for so long before it sleeps, 0: ranks share cores */
    int64_t hot_ns;       /* of these, so long without yielding */
    int64_t crowded_ns;   /* until then no longer than hot_ns: others needed the core */
} tcp_transport;

static inline int tri_tcp_socket(const tcp_link *link, uint64_t position)
{
    return link->sockets == 1 ? 0 : (int)(position / TRI_TCP_SEGMENT_NBYTES % (uint64_t)link->sockets);
}

/* tcp_stream.c; as in tri_transport_ops */
tri_status tri_tcp_write_some(tri_transport *transport, int peer, const void *bytes, size_t nbytes, size_t *taken);
tri_status tri_tcp_write_parts(tri_transport *transport, int peer, const tri_part *parts, size_t count, size_t *taken);
tri_status tri_tcp_read_some(tri_transport *transport, int peer, void *bytes, size_t nbytes, size_t *given);
/* Reads ahead into the buffer, which is empty; *given may be 0. TRI_EPEER. */
tri_status tri_tcp_buffer_fill(tcp_link *link, int peer, size_t *given);

/* tcp_tls.c: encrypts all sockets, on both sides at the same time. */
tri_status tri_tcp_encrypt(tcp_transport *tcp, const tri_connected_peer *connected, int64_t deadline_ns);

/* tcp_wait.c */
#define TRI_TCP_HOT_NS INT64_C(50000) /* the most that hot_ns may be, and what it begins with */
tri_status tri_tcp_wait(tri_transport *transport, const unsigned char *want, int64_t deadline_ns);
/* A link of which one socket is hung while the others say nothing is dead after so long. */
#define TRI_TCP_HUNG_LIMIT_NS (300 * TRI_NS_PER_MS)

#endif
