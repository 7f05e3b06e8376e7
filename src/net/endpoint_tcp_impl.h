/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_tcp_impl.h: what endpoint_tcp.c (connections and polling) and endpoint_tcp_connect.c (who calls, who is
 * called) share.
 *
 * Every descriptor is in one epoll set for good, edge-triggered but for the listeners: what can continue is remembered
 * in the connections, so pausing and waiting for room cost no call.
 */
#ifndef TRI_NET_ENDPOINT_TCP_IMPL_H
#define TRI_NET_ENDPOINT_TCP_IMPL_H

#include "net/crowd.h"
#include "net/endpoint_impl.h"
#include "net/handshake.h"
#include "net/rendezvous.h"
#include "net/tcp_address.h"
#include "net/tls.h"

/* What an event of epoll is of; first member of each. */
typedef enum tcp_source { SOURCE_LINE, SOURCE_STRANGER, SOURCE_LISTENER, SOURCE_WAKE } tcp_source;

typedef struct tcp_connection {
    tri_connection base;
    tcp_source source;
    int fd;
    tri_tls *tls;  /* NULL: not encrypted */
    bool is_held;  /* tls holds a record that has not gone as a whole */
    bool has_hung; /* the end of the stream has come: only a read tells where it is */
} tcp_connection;

/* Somebody who has called and has not proven anything, or not encrypted yet. */
typedef struct tcp_stranger {
    tcp_source source;
    tri_caller caller; /* of tcp->crowd */
    endpoint_node all; /* of tcp->strangers, the oldest first */
    net_handshake handshake;
    int fd;           /* when the handshake is done */
    tri_tls *tls;     /* from then on */
    int64_t limit_ns; /* to be done */
    char from[TRI_ENDPOINT_FROM_NBYTES];
} tcp_stranger;

typedef struct tcp_endpoint {
    tri_endpoint base;
    int epoll, wake_fd;
    tcp_source wake_source, listener_source;
    tri_tcp_door door;
    tri_tls_context *tls; /* NULL: nothing is encrypted */
    endpoint_node strangers;
    tri_crowd crowd;         /* the same strangers */
    bool is_called;          /* somebody waits at a listener */
    int64_t accept_after_ns; /* out of descriptors: not before this; 0: no such trouble */
} tcp_endpoint;

/* EPOLL_CTL_ADD or EPOLL_CTL_MOD. */
void tri_endpoint_tcp_close(const tcp_endpoint *tcp, int fd);
bool tri_endpoint_tcp_watch(const tcp_endpoint *tcp, int how, int fd, uint32_t events, tcp_source *source);
#define TRI_ENDPOINT_TCP_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | (uint32_t)EPOLLET)
/* Takes the socket and its encryption, also on failure. how: EPOLL_CTL_ADD or EPOLL_CTL_MOD. */
tri_status tri_endpoint_tcp_connection(tcp_endpoint *tcp, int fd, tri_tls *tls, int how, const char *from,
                                       tcp_connection **out);
/* Notes what can continue, as in the table. */
tri_status tri_endpoint_tcp_poll(tri_endpoint *endpoint, int64_t deadline_ns);

/* endpoint_tcp_connect.c */
tri_status tri_endpoint_tcp_dial(tri_endpoint *endpoint, const char *address, bool once, int64_t deadline_ns,
                                 tri_connection **out);
void tri_endpoint_tcp_accept(tcp_endpoint *tcp);
void tri_endpoint_tcp_stranger_advance(tcp_endpoint *tcp, tcp_stranger *stranger);
/* Those whose time is over. Returns when this must be looked at again. */
int64_t tri_endpoint_tcp_sweep(tcp_endpoint *tcp, int64_t now_ns);
void tri_endpoint_tcp_strangers_close(tcp_endpoint *tcp);

#endif
